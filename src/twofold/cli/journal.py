"""``twofold journal``: look after a journal."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from twofold.cli._arguments import REVISIONS, Command, add_input, version_of
from twofold.cli._output import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from twofold.cli._arguments import Commands
    from twofold.fold import Transcript
    from twofold.journal import EntityKind, Journal

__all__ = ["add"]

TYPES: Sequence[EntityKind] = ("user_message", "agent_message", "agent_thought", "tool_call", "terminal")


def add(commands: Commands) -> None:
    """Add the command and its own commands."""
    group = commands.add_parser(
        "journal",
        help="keep sessions: import, export, list, show, follow, redact, delete, compact, verify",
        description="Look after a journal of sessions. JOURNAL is the path of a file, or sqlite:PATH, or "
        "nats://HOST:PORT/STREAM.",
    )
    jobs = group.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Command)

    job = _job(jobs, "import", _import, "store captured traffic; the file is made if it is not there")
    job.add_argument("journal", metavar="JOURNAL", help="the journal")
    add_input(job)
    job.add_argument("--session", metavar="ID", help="the session of lines that name none (default: the file's name)")
    job.add_argument(
        "--revision", choices=REVISIONS, default=REVISIONS[0], help="by whose rules new sessions are folded"
    )
    job.add_argument("--keep-superseded", action="store_true", help="do not erase what was replaced or taken back")

    job = _job(jobs, "export", _export, "print sessions as lines that fold to the same state")
    _of_journal(job, session="only this one")

    job = _job(jobs, "ls", _ls, "list the sessions")
    _of_journal(job)

    job = _job(jobs, "show", _show, "print sessions as they are now")
    _of_journal(job, session="only this one")

    job = _job(jobs, "follow", _follow, "print a session as it goes on; Ctrl-C ends it")
    _of_journal(job, session="the session (default: the one heard of last)")

    job = _job(jobs, "redact", _redact, "erase what a message, tool call or terminal says, for good")
    _of_journal(job)
    job.add_argument("--session", metavar="ID", required=True, help="the session")
    job.add_argument("--message", metavar="ID", required=True, help="the id of what to redact")
    job.add_argument("--type", choices=TYPES, help="what has that id (default: whatever does, if it is one thing)")
    job.add_argument("--yes", action="store_true", help="do not ask")

    job = _job(jobs, "delete", _delete, "erase a session")
    _of_journal(job)
    job.add_argument("--session", metavar="ID", required=True, help="the session")
    job.add_argument("--yes", action="store_true", help="do not ask")

    job = _job(jobs, "compact", _compact, "let one record stand for each finished thing")
    _of_journal(job, session="only this one")

    job = _job(jobs, "verify", _verify, "read everything and say what is wrong with it")
    _of_journal(job)


def _job(jobs: Commands, name: str, run: object, help: str) -> Command:
    job = jobs.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
    job.set_defaults(run=_running(run))
    return job


def _of_journal(job: Command, *, session: str | None = None) -> None:
    job.add_argument("journal", metavar="JOURNAL", help="the journal")
    if session is not None:
        job.add_argument("--session", metavar="ID", help=session)


def _running(job: object) -> object:
    def run(arguments: argparse.Namespace) -> int:
        from twofold.journal import JournalError, open_journal
        from twofold.plaintext import visible_line

        def report(sentence: str) -> None:
            print(f"twofold: {visible_line(sentence)}", file=sys.stderr)

        try:
            journal = open_journal(
                arguments.journal,
                create=job is _import,
                keep_superseded=getattr(arguments, "keep_superseded", False),
                report=report,
            )
            with journal:
                return job(journal, arguments)  # type: ignore[operator, no-any-return]
        except JournalError as error:
            report(str(error))
            return 2

    return run


def _import(journal: Journal, arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from twofold.capture.importing import Importer
    from twofold.cli._input import problem_line, read_lines
    from twofold.plaintext import visible_line

    status = 0
    for name, lines in read_lines(arguments.files):
        importer = Importer(
            journal,
            name=arguments.session or Path(name).stem,
            version=version_of(arguments),
            revision=arguments.revision,
        )
        for problem in importer.feed(lines):
            print(problem_line(name, problem), file=sys.stderr)
            status = 1
        importer.finish()
        print(f"{visible_line(name)}: {counted(importer.stored, 'record')} stored", file=sys.stderr)
    return status


def _export(journal: Journal, arguments: argparse.Namespace) -> int:
    from twofold.capture.importing import exported

    for session in _chosen(journal, arguments):
        for line in exported(journal, session):
            sys.stdout.buffer.write(line + b"\n")
    return 0


def _ls(journal: Journal, _arguments: argparse.Namespace) -> int:
    from datetime import datetime

    from twofold.plaintext import visible_line

    for one in journal.sessions():
        title = journal.load(one.session).transcript.session_info.title
        heard = datetime.fromtimestamp(one.updated_at).astimezone().isoformat(sep=" ", timespec="seconds")
        words = (one.session, heard, counted(one.records, "record"), counted(one.size, "byte"), title or "")
        print("  ".join(visible_line(str(word)) for word in words).rstrip())
    return 0


def _show(journal: Journal, arguments: argparse.Namespace) -> int:
    from twofold.cli import _output
    from twofold.view import text

    status = 0
    for session in _chosen(journal, arguments):
        loaded = journal.load(session)
        print(text(loaded.transcript, colour=_output.coloured(), width=_output.width()))
        for first, last in loaded.gaps:
            print(f"There is a gap: positions {first} to {last} are damaged, and what they said is not shown.\n")
            status = 1
        if loaded.not_replayed:
            count = len(loaded.not_replayed)
            print(f"The agent did not replay all of it: {count} earlier messages or tool calls are not shown.\n")
    return status


def _follow(journal: Journal, arguments: argparse.Namespace) -> int:
    import asyncio

    from twofold.cli._player import player
    from twofold.journal import Following

    sessions = _chosen(journal, arguments)
    if not sessions:
        print("twofold: there is no session yet", file=sys.stderr)
        return 1
    screen = player()

    async def follow() -> None:
        following = Following(journal, sessions[0])
        async for change in following:
            screen.show(following.transcript, change)

    try:
        asyncio.run(follow())
    except KeyboardInterrupt:
        screen.end()
    return 0


def _redact(journal: Journal, arguments: argparse.Namespace) -> int:
    from twofold.plaintext import visible_line

    transcript = journal.load(arguments.session).transcript
    asked: Sequence[EntityKind] = [arguments.type] if arguments.type else TYPES
    kinds: list[EntityKind] = [kind for kind in asked if _holds(transcript, kind, arguments.message)]
    what = visible_line(f'"{arguments.message}" of session "{arguments.session}"')
    if not kinds:
        print(f"twofold: there is no {what}", file=sys.stderr)
        return 1
    if len(kinds) > 1:
        print(f"twofold: {what} is several things: say which with --type ({', '.join(kinds)})", file=sys.stderr)
        return 2
    if not arguments.yes and not _confirmed(f"Erase what {kinds[0]} {what} says, for good?"):
        return 1
    appended = journal.redact(arguments.session, kinds[0], arguments.message)
    return _erased(appended.erasure, f"{kinds[0]} {what}")


def _holds(transcript: Transcript, kind: EntityKind, id: str) -> bool:
    if kind == "tool_call":
        return transcript.tool_call(id) is not None
    if kind == "terminal":
        return transcript.terminal(id) is not None
    return transcript.message(kind, id) is not None


def _delete(journal: Journal, arguments: argparse.Namespace) -> int:
    from twofold.plaintext import visible_line

    what = visible_line(f'session "{arguments.session}"')
    if not journal.position(arguments.session):
        print(f"twofold: there is no {what}", file=sys.stderr)
        return 1
    if not arguments.yes and not _confirmed(f"Erase {what}, for good?"):
        return 1
    return _erased(journal.delete(arguments.session), what)


def _confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        print("twofold: not a terminal: say --yes to do it", file=sys.stderr)
        return False
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def _erased(erasure: str, what: str) -> int:
    if erasure == "pending":
        print(f"{what}: erased when another program that reads the file lets go of its old view", file=sys.stderr)
    else:
        print(f"{what}: erased", file=sys.stderr)
    return 0


def _compact(journal: Journal, arguments: argparse.Namespace) -> int:
    from twofold.plaintext import visible_line

    for session in _chosen(journal, arguments):
        print(f"{visible_line(session)}: {counted(journal.compact(session), 'record')} fewer", file=sys.stderr)
    return 0


def _verify(journal: Journal, _arguments: argparse.Namespace) -> int:
    from twofold.plaintext import visible_line

    found = journal.verify()
    for fault in found.faults:
        print(visible_line(fault))
    if found.erasure == "pending":
        print("an erasure waits for another program that reads the file")
    counts = ((found.sessions, "session"), (found.records, "record"), (len(found.faults), "fault"))
    print(", ".join(counted(count, thing) for count, thing in counts))
    return 1 if found.faults else 0


def _chosen(journal: Journal, arguments: argparse.Namespace) -> list[str]:
    """Give the sessions asked for: the one named, or all, the one heard of last first."""
    names: Iterable[str] = (one.session for one in journal.sessions())
    if arguments.session is None:
        return list(names)
    if arguments.session not in set(names):
        from twofold.journal import Unavailable

        raise Unavailable(journal.where, f'there is no session "{arguments.session}"')
    return [arguments.session]
