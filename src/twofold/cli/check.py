"""``twofold check``: what breaks the protocol, line by line."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from twofold.cli._arguments import add_input, version_of

if TYPE_CHECKING:
    from twofold.cli._arguments import Commands

__all__ = ["add"]


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "check",
        help="say, line by line, what breaks the protocol and how",
        description="Say, line by line, what breaks the protocol: what a fold refuses, and faults that it tolerates "
        "(malformed ids, a first tool call without a title, unknown words without an underscore, relative paths, "
        "invalid base64, reused terminal ids). Findings go to standard output as FILE:LINE; the exit status is 1 when "
        "there are any.",
    )
    add_input(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from twofold.capture import Checker
    from twofold.cli._input import problem_line, read_lines, without_updates
    from twofold.plaintext import visible_line

    findings = 0
    for name, lines in read_lines(arguments.files):
        checker = Checker(version=version_of(arguments))
        before = findings
        for problem in checker.feed(lines):
            print(problem_line(name, problem))
            findings += 1
        counts = checker.reader.counts
        if not counts.updates:
            print(f"{visible_line(name)}: {without_updates(counts, findings - before)}", file=sys.stderr)
    return 1 if findings else 0
