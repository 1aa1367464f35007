"""A session shown while it goes on: in place on a terminal, change after change elsewhere."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from typing import Protocol

import msgspec
from msgspec import Struct

from twofold.cli._output import coloured, in_place
from twofold.fold import Change, Message, Transcript, joined_text
from twofold.view import LiveRows, LiveText, Row, row_lines, visible, visible_line
from twofold.wire import v2

__all__ = ["Player", "player", "timed"]


class Player(Protocol):
    """What changes are shown by."""

    def show(self, transcript: Transcript, change: Change, /) -> None:
        """Show one change."""

    def end(self) -> None:
        """End what is shown; what is printed next begins on a line of its own."""


def player() -> Player:
    """Give what suits standard output."""
    return _Live() if in_place() else _Plain()


class _Record(Struct):
    ts: float


def timed(capture: bytes) -> Iterator[tuple[bytes, float]]:
    """Give the records of a capture with their times, in seconds."""
    for line in capture.splitlines():
        yield line, msgspec.json.decode(line, type=_Record).ts


class _Live:
    """The rows as they stand, drawn again where they changed."""

    def __init__(self) -> None:
        size = shutil.get_terminal_size()
        self._colour = coloured()
        self._screen = LiveText(sys.stdout, width=size.columns, height=size.lines)
        self._rows: dict[int, LiveRows] = {}
        self._lines: dict[int, tuple[Row, list[str]]] = {}

    def show(self, transcript: Transcript, _change: Change) -> None:
        rows = self._rows.setdefault(id(transcript), LiveRows(transcript)).now()
        held = {id(row): self._lines.get(id(row)) or (row, [*row_lines(row, colour=self._colour), ""]) for row in rows}
        self._lines = held
        self._screen.show(line for _, lines in held.values() for line in lines)

    def end(self) -> None:
        pass


class _Plain:
    """What each change adds, one after another. What was said is indented, so that it cannot pass for our own words."""

    def __init__(self) -> None:
        self._open: Message | None = None
        self._half = ""  # of a character, whose other half may come with the next chunk

    def show(self, _transcript: Transcript, change: Change) -> None:
        message = change.target
        if not isinstance(message, Message):
            return
        name = f"{message.type.replace('_', ' ')} {visible_line(message.message_id)}"
        match change.content:
            case "appended":
                if self._open is not message:
                    self._begin(message, name)
                if isinstance(change.block, v2.TextContent):
                    self._say(change.block.text)
            case "replaced":
                self._begin(message, f"{name} {'now reads' if message.corrected else 'whole'}")
                self._say(message.text)
            case "cleared":
                self.end()
                print(f"[{name} is withdrawn]\n")
            case _:
                pass

    def _begin(self, message: Message, words: str) -> None:
        self.end()
        print(f"[{words}]")
        sys.stdout.write("  ")
        self._open = message

    def _say(self, words: str) -> None:
        words = joined_text([self._half, words])
        self._half = words[-1:] if "\ud800" <= words[-1:] <= "\udbff" else ""
        sys.stdout.write(visible(words.removesuffix(self._half)).replace("\n", "\n  "))

    def end(self) -> None:
        if self._open is not None:
            print(f"{visible(self._half)}\n")
        self._open, self._half = None, ""
