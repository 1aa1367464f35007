"""``twofold fold``: captured traffic to its final sessions."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from twofold.cli._sessions import Folded, add_folding, folded
from twofold.jsonrpc import dumps
from twofold.view import markdown, text

if TYPE_CHECKING:
    from twofold.cli._types import Commands

__all__ = ["add"]


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "fold",
        help="fold captured traffic into its final sessions",
        description="Fold captured traffic into its final sessions and print them. Lines that cannot be read are reported "
        "on standard error as FILE:LINE and left out; the rest is folded, and the exit status is 1.",
    )
    add_folding(command)
    command.add_argument(
        "--format",
        choices=["text", "markdown", "json"],
        default="text",
        help="text for people (default; coloured on a terminal), markdown, or json: one object with sessions, lines, errors",
    )
    command.add_argument(
        "--prompts",
        action=argparse.BooleanOptionalAction,
        help="show what a v1 client asked, which no v1 update reports, as user messages (default: not with json)",
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    prompts = arguments.format != "json" if arguments.prompts is None else arguments.prompts
    result = folded(arguments, prompts=prompts)
    match arguments.format:
        case "json":
            sys.stdout.buffer.write(dumps(to_json(result)) + b"\n")
        case "markdown":
            _write("\n".join(map(markdown, result.transcripts)))
        case _:
            colour = coloured()
            _write("\n".join(text(transcript, colour=colour) for transcript in result.transcripts))
    return 1 if result.problems else 0


def to_json(result: Folded) -> dict[str, Any]:
    """Give the result as the one JSON object that is printed. A file is named where there are several."""
    several = len({name for name, _ in result.problems}) > 1
    return {
        "sessions": [transcript.to_json() for transcript in result.transcripts],
        "lines": msgspec.structs.asdict(result.counts),
        "errors": [
            {**({"file": name} if several else {}), "line": problem.line, "path": problem.path, "message": problem.message}
            for name, problem in result.problems
        ],
    }


def coloured() -> bool:
    """Whether standard output is a terminal that wants colour."""
    import os

    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _write(words: str) -> None:
    sys.stdout.buffer.write(words.encode("utf-8", "replace"))
