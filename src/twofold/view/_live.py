"""A transcript on a terminal while it changes: lines that changed are drawn again in place."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final, TextIO

__all__ = ["LiveText", "wrapped"]

_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")
_TOKEN: Final = re.compile("\x1b\\[[0-9;]*m|.\ufe0f?", re.DOTALL)  # a selector makes some characters wider
_RESET: Final = "\x1b[0m"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"


class LiveText:
    """Shows a growing and changing list of lines on a terminal of ``width`` by ``height`` cells.

    :meth:`show` compares with what was shown and draws again from the first line that differs. Lines that have scrolled
    out of sight stay as they were: a terminal cannot take them back. The cursor is left below the last line.
    """

    def __init__(self, stream: TextIO, *, width: int, height: int) -> None:
        self._stream = stream
        self._width = max(width, 2)
        self._reach = max(height - 1, 1)  # how many lines above the cursor can be in sight
        self._wrapped: dict[str, list[str]] = {}  # the lines of the last frame
        self._shown: list[str] = []
        self._top = 0  # the first of them that is in sight

    def show(self, lines: Iterable[str]) -> None:
        """Show ``lines``, which may hold colours and nothing else that acts."""
        frame = list(lines)
        self._wrapped = {line: self._wrapped.get(line) or wrapped(line, self._width) for line in frame}
        fresh = [piece for line in frame for piece in self._wrapped[line]]
        start = same = _common(self._shown, fresh)
        if same == len(self._shown) == len(fresh):
            return
        if same < self._top or len(fresh) <= self._top:
            # What changed, or the end, is out of sight. All in sight is drawn again, from further up if need be.
            start = self._top if self._top < len(fresh) else max(0, len(fresh) - self._reach)
        up = len(self._shown) - max(same, self._top)
        # A line that the terminal takes for wider than it was measured must not become two: hence no wrapping.
        parts = [_NO_WRAP, f"\x1b[{up}A" if up else "", "\r\x1b[J", *(f"{line}\n" for line in fresh[start:]), _WRAP]
        self._stream.write("".join(parts))
        self._stream.flush()
        self._top = max(min(self._top, start), len(fresh) - self._reach)
        self._shown = fresh


def _common(one: list[str], two: list[str]) -> int:
    """Count the lines that two lists have in common from the start."""
    for position, (left, right) in enumerate(zip(one, two, strict=False)):
        if left != right:
            return position
    return min(len(one), len(two))


def wrapped(line: str, width: int) -> list[str]:
    """Cut a line, which may hold colours, into pieces of at most ``width`` cells, at spaces where there are any.

    Colours go on over a cut. What follows a cut is indented like the line and by two at least: where it stood at the
    margin it could pass for a line of its own. The space at a cut is not shown.
    """
    width = max(width, 2)
    line = line.expandtabs(8)
    if 2 * len(line) <= width or (len(line) <= width and line.isascii()):
        return [line]  # no character takes more than two cells
    bare = _STYLE.sub("", line)
    indent = " " * min(len(bare) - len(bare.lstrip(" ")) or 2, width // 2 - 1)
    pieces: list[str] = []
    piece = style = ""
    cells = 0
    space: tuple[int, int, str] | None = (
        None  # after the last space: what of the piece goes before, its cells, its style
    )
    said = False  # whether more than indentation stands in the piece
    for token in _TOKEN.findall(line):
        if token[0] == "\x1b":
            piece += token
            style = "" if token == _RESET else token
            continue
        size = _cells(token)
        while cells + size > width:
            end, before, styled = space or (len(piece), cells, style)
            if token == " ":
                end, before, styled = len(piece), cells, style
            pieces.append(piece[:end] + (_RESET if styled else ""))
            piece = indent + styled + piece[end:]
            cells += len(indent) - before
            space = None
            said = cells > len(indent)
            if token == " ":
                break
        else:
            piece += token
            cells += size
            said = said or token != " "
            if token == " " and said:
                space = len(piece), cells, style
    return [*pieces, piece]


def _cells(mark: str) -> int:
    """Say how many cells a character, with its selector, takes; in doubt rather too many."""
    if len(mark) > 1:
        return 2
    if mark < "\x7f":
        return 1
    if unicodedata.combining(mark) or mark in "\u200b\u200c\u200d\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(mark) in "WF" else 1
