"""The arguments that commands share. Nothing here imports what the commands work with, so that ``--help`` is quick."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    Commands: TypeAlias = argparse._SubParsersAction["Command"]

__all__ = [
    "POLICIES",
    "REVISIONS",
    "Command",
    "Commands",
    "add_folding",
    "add_input",
    "agent_command",
    "version_of",
]

REVISIONS: Final = ("rfd", "preview")
"""The values of :class:`twofold.fold.Revision`, without importing it."""

POLICIES: Final = ("strict", "mark")
"""The values of :class:`twofold.convert.Policy`, likewise."""


class Command(argparse.ArgumentParser):
    """The parser of one command. Options are not abbreviated; beside files they may stand in any order."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.allow_abbrev = False
        self.takes_files = False
        self.takes_command = False
        self._mixing = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str], namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse, and complain here about what is not known: the command's own usage is the one to show."""
        namespace = argparse.Namespace() if namespace is None else namespace
        if self._mixing:  # the intermixed parse calls this too
            return super().parse_known_args(args, namespace)
        if self.takes_command and "--" in args:  # what comes after it is another program's
            end = list(args).index("--")
            found, unknown = super().parse_known_args([*args[:end], "AGENT"], namespace)
            found.agent = [*found.agent[:-1], *args[end + 1 :]]
            if not found.agent:
                self.error("the following arguments are required: AGENT")
        elif self.takes_files:
            end = args.index("--") if "--" in args else len(args)
            self._mixing = True
            found, unknown = self.parse_known_intermixed_args(args[:end], namespace)
            self._mixing = False
            found.files = [*found.files, *args[end + 1 :]]
        else:
            found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, []


def add_input(command: Command) -> None:
    """Add the arguments of every command that reads captured traffic."""
    command.takes_files = True
    command.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="captured traffic, one JSON value a line: bare updates, session/update params, JSON-RPC messages or "
        'batches, capture records {"dir", "line"}, conductor trace events; "-" or no FILE reads standard input',
    )
    command.add_argument(
        "--from",
        dest="version",
        choices=["v1", "v2"],
        help="the protocol version of the input (default: what the initialize answer in it says, else v2)",
    )


def add_folding(command: Command) -> None:
    """Add the arguments of every command that folds its input."""
    add_input(command)
    command.add_argument(
        "--revision",
        choices=REVISIONS,
        default=REVISIONS[0],
        help="whose rule for a patch _meta: rfd replaces the held object (default), preview merges into it by key",
    )
    command.add_argument(
        "--lenient", action="store_true", help="leave out bad content items and bad _meta, report them, apply the rest"
    )
    command.add_argument("--session", metavar="ID", help="only the session with this id")


def agent_command(command: Command) -> None:
    """Add the command line of an agent: everything after the options, or after ``--``."""
    command.takes_command = True
    command.add_argument(
        "agent", nargs="+", metavar="AGENT", help="the command that runs the agent, and its arguments, after --"
    )


def version_of(arguments: argparse.Namespace) -> Literal[1, 2] | None:
    """Give the protocol version that the user named, if any."""
    versions: dict[str | None, Literal[1, 2]] = {"v1": 1, "v2": 2}
    return versions.get(arguments.version)
