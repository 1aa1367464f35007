"""``twofold replay``: the shortest list of updates that rebuilds the same sessions."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from twofold.cli._arguments import add_folding

if TYPE_CHECKING:
    from twofold.cli._arguments import Commands
    from twofold.wire import v2

__all__ = ["add"]


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "replay",
        help="print the shortest list of updates that rebuilds the same sessions",
        description="Fold captured traffic and print the shortest list of v2 updates that rebuilds the same sessions, "
        "as session/update lines (bare updates where the input names no session). What was withdrawn does not come "
        "back. Lines that cannot be read are reported as by fold, and the exit status is 1.",
    )
    add_folding(command)
    command.add_argument(
        "--compact", action="store_true", help="join neighbouring plain text blocks: the same text in fewer blocks"
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from twofold.cli._sessions import folded, uncollected
    from twofold.fold import replay

    with uncollected():
        result = folded(arguments)
        for transcript in result.transcripts:
            for update in replay(transcript, compact=arguments.compact):
                sys.stdout.buffer.write(_line(transcript.session_id, update) + b"\n")
    return 1 if result.problems else 0


def _line(session_id: str | None, update: v2.SessionUpdate) -> bytes:
    from msgspec import Raw

    from twofold.jsonrpc import Notification, encode
    from twofold.wire import v2

    if session_id is None:
        return v2.encode(update)
    params = v2.UpdateSessionNotification(session_id=session_id, update=update)
    return encode(Notification("session/update", Raw(v2.encode(params))))
