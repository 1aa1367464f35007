"""``twofold fold``: captured traffic to its final sessions."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from twofold.cli._arguments import add_folding

if TYPE_CHECKING:
    from twofold.cli._arguments import Commands
    from twofold.cli._sessions import Folded

__all__ = ["add"]


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "fold",
        help="fold captured traffic into its final sessions",
        description="Fold captured traffic into its final sessions and print them. Lines that cannot be read are "
        "reported on standard error as FILE:LINE and left out; the rest is folded, and the exit status is 1.",
    )
    add_folding(command)
    command.add_argument(
        "--format",
        choices=["text", "markdown", "json"],
        default="text",
        help="text for people (default; coloured on a terminal), markdown, or json: one object with sessions, lines "
        "and errors",
    )
    command.add_argument(
        "--prompts",
        action=argparse.BooleanOptionalAction,
        help="show what a v1 client asked, which no v1 update reports, as user messages (default: not with json)",
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from twofold.cli._sessions import folded, uncollected

    prompts = arguments.format != "json" if arguments.prompts is None else arguments.prompts
    with uncollected():
        result = folded(arguments, prompts=prompts)
        match arguments.format:
            case "json":
                from twofold.jsonrpc import dumps

                sys.stdout.buffer.write(dumps(to_json(result, several=len(arguments.files) > 1)) + b"\n")
            case "markdown":
                from twofold.view import markdown

                sys.stdout.write("\n".join(map(markdown, result.transcripts)))
            case _:
                from twofold.cli import _output
                from twofold.view import text

                look: Any = {"colour": _output.coloured(), "width": _output.width()}
                sys.stdout.write("\n".join(text(transcript, **look) for transcript in result.transcripts))
    return 1 if result.problems else 0


def to_json(result: Folded, *, several: bool) -> dict[str, Any]:
    """Give the result as the one JSON object that is printed. Errors name their file where there are several."""
    from msgspec.structs import asdict

    return {
        "sessions": [transcript.to_json() for transcript in result.transcripts],
        "lines": asdict(result.counts),
        "errors": [({"file": name} if several else {}) | asdict(problem) for name, problem in result.problems],
    }
