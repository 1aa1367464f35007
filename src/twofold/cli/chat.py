"""``twofold chat``: talk to any agent, from a terminal or from a script."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Final, Literal

from twofold.cli._arguments import REVISIONS, agent_command
from twofold.cli._output import in_place

if TYPE_CHECKING:
    from twofold.cli._arguments import Commands

__all__ = ["add"]

_NEEDED: Final = ("prompt_toolkit", "rich")
"""What a conversation on a terminal needs: the extra ``chat``."""


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "chat",
        help="talk to any agent",
        description="Run AGENT and talk to it. On a terminal this is a conversation, and /help says what can be typed "
        "(it needs the extra `chat`: prompt_toolkit and rich). Where standard input is no terminal, each line of it is "
        "a prompt, and what the agent answers is printed as plain text while it comes; what there is to say beside it "
        "goes to standard error. The exit status is 1 when a turn ended with an error or the agent did not go on.",
    )
    command.add_argument(
        "--journal",
        metavar="JOURNAL",
        help="record what is said in this journal, a path or a URL: sessions in it can be resumed even with an agent "
        "that does not remember them",
    )
    command.add_argument("--session", metavar="ID", help="resume this session (default: begin a new one)")
    command.add_argument("--cwd", metavar="DIR", help="the working directory of the session (default: the current one)")
    command.add_argument(
        "--allow",
        action="store_true",
        help="allow whatever the agent asks to be allowed (default: ask on a terminal, else refuse)",
    )
    command.add_argument(
        "--agent-version",
        choices=["auto", "1", "2"],
        default="auto",
        help="the protocol version to ask AGENT for (default: auto, 2 first)",
    )
    command.add_argument(
        "--revision", choices=REVISIONS, default=REVISIONS[0], help="by whose rules sessions are folded"
    )
    agent_command(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    import asyncio

    from twofold.cli._chat.agent import Wanted
    from twofold.journal import JournalError, open_journal
    from twofold.plaintext import visible_line

    cwd = arguments.cwd or "."
    if not os.path.isdir(cwd):
        return _usage(f"{visible_line(cwd)} is not a directory")
    on_terminal = sys.stdin is not None and sys.stdin.isatty() and in_place()
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None] if on_terminal else []
    if missing:
        return _usage(f"on a terminal this needs {' and '.join(missing)}: pip install 'twofold[chat]'")
    try:
        journal = None if arguments.journal is None else open_journal(arguments.journal)
    except JournalError as error:
        return _usage(visible_line(str(error)))
    versions: dict[str, Literal[1, 2]] = {"1": 1, "2": 2}
    wanted = Wanted(
        command=arguments.agent,
        cwd=os.path.abspath(cwd),
        session=arguments.session,
        journal=journal,
        version=versions.get(arguments.agent_version),
        revision=arguments.revision,
        allow=arguments.allow,
    )
    if on_terminal:
        from twofold.cli._chat.terminal import talk

        return asyncio.run(talk(wanted))
    from twofold.cli._chat.plain import answer

    return asyncio.run(answer(wanted))


def _usage(words: str) -> int:
    print(f"twofold chat: {words}", file=sys.stderr)
    return 2
