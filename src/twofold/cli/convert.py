"""``twofold convert``: a captured stream in the other protocol version."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from twofold.cli._arguments import POLICIES, add_input, version_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twofold.capture import Converted
    from twofold.cli._arguments import Commands

__all__ = ["add"]


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "convert",
        help="convert a stream to the other protocol version",
        description="Convert the updates of captured traffic to v1 or v2 and print each in the envelope that it came "
        "in; lines that hold no update belong to the connection and are left out. What cannot be carried is reported "
        "on standard error as FILE:LINE with its reason, and the exit status is 1.",
    )
    command.add_argument("--to", choices=["v1", "v2"], required=True, help="the version to convert to")
    command.add_argument(
        "--policy",
        choices=POLICIES,
        default=POLICIES[0],
        help="strict (default): what the other version cannot say exactly fails; mark: a v1 reader is told of "
        "corrections, a v2 reader gets message ids that were made up",
    )
    add_input(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from twofold.capture import Converter
    from twofold.cli._input import read_lines

    status = 0
    for name, lines in read_lines(arguments.files):
        converter = Converter(1 if arguments.to == "v1" else 2, policy=arguments.policy, version=version_of(arguments))
        for part in (converter.feed(lines), converter.finish()):
            status |= _write(name, part)
    return status


def _write(name: str, results: Iterable[Converted]) -> int:
    from twofold.cli._input import problem_line

    status = 0
    for one in results:
        if isinstance(one, bytes):
            sys.stdout.buffer.write(one + b"\n")
        else:
            print(problem_line(name, one), file=sys.stderr)
            status = 1
    return status
