"""Newline-delimited bytes to lines, however the bytes arrive (wire facts, "Connection").

Lines end at U+000A and nowhere else: U+2028, U+0085 and a lone carriage return are text. One carriage return right
before the newline is tolerated and removed.
"""

from __future__ import annotations

from collections.abc import Iterator

from twofold.exceptions import LineTooLong

__all__ = ["DEFAULT_LIMIT", "LineSplitter"]

DEFAULT_LIMIT = 64 * 1024 * 1024
"""Longest line taken by default, in bytes without its newline."""


class LineSplitter:
    """Cut a stream of byte chunks into lines of at most ``limit`` bytes.

    :meth:`feed` gives the lines that a chunk completes, in order; a :class:`~twofold.exceptions.LineTooLong` stands
    in the place of each line that was over the limit (it is given, not raised, so that the stream goes on).
    At the end of the stream call :meth:`finish` for what was left without a newline.

    Work is linear in the bytes fed, whatever their chunking; memory is bounded by ``limit`` plus one chunk.
    """

    __slots__ = ("_held", "_limit", "_parts", "_skipped")

    def __init__(self, *, limit: int = DEFAULT_LIMIT) -> None:
        if limit < 1:
            raise ValueError(f"limit must be at least 1 byte, not {limit}")
        self._limit = limit
        self._parts: list[bytes] = []  # the open line, in pieces: joined once, when its newline comes
        self._held = 0  # bytes in _parts
        self._skipped = 0  # bytes of an over-long line already thrown away; 0 when not skipping

    def feed(self, chunk: bytes) -> Iterator[bytes | LineTooLong]:
        """Give each line that ``chunk`` completes, without its line end. Consume it wholly before feeding again."""
        pieces = chunk.split(b"\n")
        last = pieces.pop()
        for piece in pieces:
            if self._held or self._skipped:
                yield self._complete(piece)
            else:
                yield self._checked(piece)
        self._keep(last)

    def finish(self) -> bytes | LineTooLong | None:
        """Give the bytes after the last newline, or ``None`` when there are none, and start afresh."""
        if not self._held and not self._skipped:
            return None
        return self._complete(b"")

    def _keep(self, piece: bytes) -> None:
        if not piece:
            return
        if self._skipped:
            self._skipped += len(piece)
        elif self._held + len(piece) > self._limit + 1:  # one more: the carriage return of a CRLF does not count
            self._skipped = self._held + len(piece)
            self._parts.clear()
            self._held = 0
        else:
            self._parts.append(piece)
            self._held += len(piece)

    def _complete(self, piece: bytes) -> bytes | LineTooLong:
        if self._skipped:
            length = self._skipped + len(piece)
            self._skipped = 0
            return LineTooLong(limit=self._limit, length=length)
        self._parts.append(piece)
        line = b"".join(self._parts)
        self._parts.clear()
        self._held = 0
        return self._checked(line)

    def _checked(self, line: bytes) -> bytes | LineTooLong:
        if line.endswith(b"\r"):
            line = line[:-1]
        if len(line) > self._limit:
            return LineTooLong(limit=self._limit, length=len(line))
        return line
