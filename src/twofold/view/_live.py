"""A transcript on a terminal while it changes: lines that changed are drawn again in place."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final, TextIO

__all__ = ["LiveText", "wrapped"]

_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")
_RESET: Final = "\x1b[0m"


class LiveText:
    """Shows a growing and changing list of lines on a terminal of ``width`` by ``height`` cells.

    :meth:`show` compares with what was shown and rewrites from the first line that differs. Lines that have scrolled
    out of sight stay as they were: a terminal cannot take them back.
    """

    def __init__(self, stream: TextIO, *, width: int, height: int) -> None:
        self._stream = stream
        self._width = max(width, 20)
        self._height = max(height, 4)
        self._shown: list[str] = []

    def show(self, lines: Iterable[str]) -> None:
        """Show ``lines``, which may hold colours and nothing else that acts."""
        fresh = [part for line in lines for part in wrapped(line, self._width)]
        same = 0
        for one, two in zip(self._shown, fresh, strict=False):
            if one != two:
                break
            same += 1
        if same == len(self._shown) == len(fresh):
            return
        same = max(same, len(self._shown) - (self._height - 1))
        up = len(self._shown) - same
        if up > 0:
            self._stream.write(f"\x1b[{up}A\r\x1b[J")
        self._stream.writelines(f"{line}\n" for line in fresh[same:])
        self._stream.flush()
        self._shown = fresh if len(fresh) >= same else [*self._shown[:same]]


def wrapped(line: str, width: int) -> Iterator[str]:
    """Cut a line, which may hold colours, into pieces of at most ``width`` cells; colours go on over the cut."""
    style = ""
    piece = ""
    cells = 0
    position = 0
    line = line.expandtabs(8)
    while position < len(line):
        match = _STYLE.match(line, position)
        if match is not None:
            piece += match.group()
            style = "" if match.group() == _RESET else match.group()
            position = match.end()
            continue
        mark = line[position]
        size = 0 if unicodedata.combining(mark) or mark in "\u200d\ufe0f" else 1 + (unicodedata.east_asian_width(mark) in "WF")
        if cells + size > width:
            yield piece + (_RESET if style else "")
            piece, cells = style, 0
        piece += mark
        cells += size
        position += 1
    yield piece
