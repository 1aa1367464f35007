"""Newline-delimited bytes to lines, however the bytes arrive (wire facts, "Connection").

Lines end at U+000A and nowhere else: U+2028, U+0085 and a lone carriage return are text. One carriage return right
before the newline is tolerated and removed.
"""

from __future__ import annotations

from typing import Final

from twofold.exceptions import LineTooLong

__all__ = ["DEFAULT_LIMIT", "LineSplitter"]

DEFAULT_LIMIT: Final = 64 * 1024 * 1024
"""Longest line taken by default, in bytes without its line end."""


class LineSplitter:
    """Cut a stream of byte chunks into lines of at most ``limit`` bytes.

    :meth:`feed` gives the lines that a chunk completes, in order; a :class:`~twofold.exceptions.LineTooLong` stands
    in the place of each line that was over the limit (it is given, not raised, so that the stream goes on).
    At the end of the stream call :meth:`finish` for what was left without a newline.

    Work is linear in the bytes fed, whatever their chunking; what is held is bounded by ``limit``.
    """

    __slots__ = ("_length", "_limit", "_open", "_returned")

    def __init__(self, *, limit: int = DEFAULT_LIMIT) -> None:
        if limit < 1:
            raise ValueError(f"limit must be at least 1 byte, not {limit}")
        self._limit = limit
        self._open = bytearray()  # the line that is not ended yet; empty once it is known to be over-long
        self._length = 0  # its bytes so far, those thrown away included
        self._returned = False  # whether the last of them is a carriage return

    def feed(self, chunk: bytes) -> list[bytes | LineTooLong]:
        """Return each line that ``chunk`` completes, without its line end."""
        *ended, rest = chunk.split(b"\n")
        lines: list[bytes | LineTooLong] = []
        if ended and self._length:
            self._hold(ended.pop(0))
            lines.append(self._close(newline=True))
        if len(chunk) <= self._limit and b"\r" not in chunk:
            lines += ended  # nearly always: nothing to remove, nothing too long
        else:
            for piece in ended:
                line = piece.removesuffix(b"\r")
                lines.append(line if len(line) <= self._limit else LineTooLong(limit=self._limit, length=len(line)))
        if rest:
            self._hold(rest)
        return lines

    def finish(self) -> bytes | LineTooLong | None:
        """Return the bytes after the last newline as they are, or ``None`` when there are none, and start afresh."""
        return self._close(newline=False) if self._length else None

    def _hold(self, piece: bytes) -> None:
        if not piece:
            return
        self._length += len(piece)
        self._returned = piece.endswith(b"\r")
        if self._length <= self._limit + 1:  # one more: the carriage return of a line end does not count
            self._open += piece
        else:
            self._open.clear()

    def _close(self, *, newline: bool) -> bytes | LineTooLong:
        length = self._length
        if newline and self._returned:
            length -= 1
            del self._open[-1:]
        line = bytes(self._open)
        self._open.clear()
        self._length = 0
        return line if length <= self._limit else LineTooLong(limit=self._limit, length=length)
