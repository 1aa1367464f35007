"""What ``fold`` and ``replay`` share: their options, and folding the input with every problem reported."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from msgspec import Struct

from twofold.capture import Counts, Folder, Problem
from twofold.cli._input import add_input, problem_line, read_lines, version_of
from twofold.fold import Revision, Transcript

__all__ = ["Folded", "add_folding", "folded"]


class Folded(Struct):
    """The sessions of the input, its line counts, and its problems with the name of their input."""

    transcripts: Sequence[Transcript]
    counts: Counts
    problems: Sequence[tuple[str, Problem]]


def add_folding(command: argparse.ArgumentParser) -> None:
    """Add the arguments of every command that folds its input."""
    add_input(command)
    command.add_argument(
        "--revision",
        choices=[one.value for one in Revision],
        default=Revision.RFD.value,
        help="whose rule for a patch _meta: rfd replaces the object (default), preview merges it by key",
    )
    command.add_argument(
        "--lenient", action="store_true", help="leave out bad content items and bad _meta, report them, apply the rest"
    )
    command.add_argument("--session", metavar="ID", help="only this session")


def folded(arguments: argparse.Namespace, *, prompts: bool = False) -> Folded:
    """Fold the input. Problems go to standard error, ``FILE:LINE: …``, input by input."""
    folder = Folder(revision=arguments.revision, version=version_of(arguments), lenient=arguments.lenient, prompts=prompts)
    problems: list[tuple[str, Problem]] = []
    for name, lines in read_lines(arguments.files):
        folder.begin()
        folder.feed(lines)
        problems += _reported(name, folder)
    folder.finish()
    problems += _reported(name, folder)
    transcripts = [session.transcript for session in folder.sessions.values()]
    if arguments.session is not None:
        transcripts = [one for one in transcripts if one.session_id == arguments.session]
        if not transcripts:
            print(f'{name}: there is no session "{arguments.session}"', file=sys.stderr)
            problems.append((name, Problem(0, "", "the session asked for is not in the input")))
    return Folded(transcripts, folder.reader.counts, problems)


def _reported(name: str, folder: Folder) -> list[tuple[str, Problem]]:
    fresh = [(name, problem) for problem in folder.problems]
    for _, problem in fresh:
        print(problem_line(name, problem), file=sys.stderr)
    folder.problems.clear()
    return fresh
