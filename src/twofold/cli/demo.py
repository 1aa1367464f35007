"""``twofold demo``: the example session at reading speed, and what is left of it."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twofold.cli._arguments import Commands

__all__ = ["add"]


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "demo",
        help="play the bundled example session",
        description="Play the bundled example session at reading speed: text streams in, an answer is corrected, one "
        "is withdrawn. Then print the final transcript. Without a terminal there are no pauses.",
    )
    command.add_argument("--fast", action="store_true", help="no pauses")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from twofold.capture import Folder
    from twofold.cli import _output
    from twofold.cli._player import player, timed
    from twofold.examples import harbour
    from twofold.view import text

    print("An agent at work, as a client of ACP v2 sees it. Watch the answers.\n", flush=True)
    screen = player()
    folder = Folder(on_change=lambda session, change, _line: screen.show(session.transcript, change))
    pauses = sys.stdout.isatty() and not arguments.fast
    began = time.monotonic()
    for line, at in timed(harbour()):
        if pauses:
            time.sleep(max(0.0, began + at - time.monotonic()))
        folder.feed([line])
    folder.finish()
    screen.end()
    print("\nThat was the session as it went. This is what the client holds now:\n")
    for session in folder.sessions.values():
        print(text(session.transcript, colour=_output.coloured(), width=_output.width()))
    print("Try it on traffic of your own: twofold fold FILE (or --format json)")
    print("Watch it live in the browser: twofold serve --demo (in a clone: make serve-demo)")
    return 0
