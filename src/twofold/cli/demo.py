"""``twofold demo``: the example session at reading speed, and what is left of it."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from twofold.capture import Folder, Session
from twofold.cli.fold import coloured
from twofold.examples import harbour
from twofold.fold import Change, Message
from twofold.view import LiveText, row_lines, rows, text, visible

if TYPE_CHECKING:
    from twofold.cli._types import Commands

__all__ = ["add"]


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "demo",
        help="play the bundled example session",
        description="Play the bundled example session at reading speed: text streams in, an answer is corrected, one is "
        "withdrawn. Then print the final transcript. Without a terminal there are no pauses.",
    )
    command.add_argument("--fast", action="store_true", help="no pauses")
    command.set_defaults(run=run)


class _Record(Struct):
    ts: float


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    colour = coloured()
    on_terminal = sys.stdout.isatty()
    player = _Live() if on_terminal else _Plain()
    folder = Folder(on_change=lambda session, change, _line: player.show(session, change))
    clock = 0.0
    print("An agent at work, as a client of ACP v2 sees it. Watch the answers.\n", flush=True)
    for line, at in _timed(harbour()):
        if on_terminal and not arguments.fast:
            time.sleep(max(0.0, at - clock))
        clock = at
        folder.feed([line])
    folder.finish()
    player.end()
    print("\nThat was the session as it went. This is what the client holds now:\n")
    for session in folder.sessions.values():
        print(text(session.transcript, colour=colour), end="")
    print("\nTry it on traffic of your own: twofold fold FILE (or --format json)")
    return 0


def _timed(capture: bytes) -> Iterator[tuple[bytes, float]]:
    for line in capture.splitlines():
        yield line, msgspec.json.decode(line, type=_Record).ts


class _Live:
    """On a terminal: the rows as they stand, drawn again where they changed."""

    def __init__(self) -> None:
        size = shutil.get_terminal_size()
        self._colour = coloured()
        self._screen = LiveText(sys.stdout, width=size.columns, height=size.lines)

    def show(self, session: Session, _change: Change) -> None:
        lines: list[str] = []
        for row in rows(session.transcript):
            lines += [*row_lines(row, colour=self._colour), ""]
        self._screen.show(lines)

    def end(self) -> None:
        pass


class _Plain:
    """Without a terminal: what each change adds, one after another."""

    def __init__(self) -> None:
        self._open: object = None

    def show(self, _session: Session, change: Change) -> None:
        target = change.target
        if not isinstance(target, Message):
            return
        name = target.type.replace("_", " ")
        if change.content == "appended":
            if self._open is not target:
                self._line(f"[{name} {visible(target.message_id)}]")
                self._open = target
            sys.stdout.write(visible(getattr(change.block, "text", "")))
        elif change.content == "replaced":
            self._line(f"[{name} {visible(target.message_id)} {'now reads' if target.corrected else 'whole'}]")
            sys.stdout.write(visible(target.text))
            self._open = target
        elif change.content == "cleared":
            self._line(f"[{name} {visible(target.message_id)} is withdrawn]")

    def _line(self, words: str) -> None:
        self.end()
        sys.stdout.write(f"{words}\n")

    def end(self) -> None:
        if self._open is not None:
            sys.stdout.write("\n\n")
        self._open = None
