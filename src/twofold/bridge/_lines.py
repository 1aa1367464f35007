"""A stream of bytes as lines that keep every byte: what passes through a bridge unchanged is exactly what came."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from twofold.jsonrpc import DEFAULT_LIMIT

__all__ = ["Lines", "Piece"]


class Piece(Struct, frozen=True, gc=False):
    """Bytes as they came: a ``whole`` line with its newline, or a part of one that is over the limit."""

    data: bytes
    whole: bool


class Lines:
    """Cuts a stream into pieces. Put together they are the stream."""

    def __init__(self, *, limit: int = DEFAULT_LIMIT) -> None:
        self._limit: Final = limit
        self._open = bytearray()
        self._long = False  # the line that is open is over the limit: its bytes are passed as they come

    def feed(self, chunk: bytes) -> list[Piece]:
        """Give the lines that a chunk completes."""
        pieces: list[Piece] = []
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            data = chunk[start : end + 1]
            start = end + 1
            if self._open:
                data = bytes(self._open) + data
                self._open.clear()
            pieces.append(Piece(data, not self._long and len(data) <= self._limit))
            self._long = False
        rest = chunk[start:]
        if self._long:
            if rest:
                pieces.append(Piece(rest, False))
            return pieces
        self._open += rest
        if len(self._open) > self._limit:
            pieces.append(Piece(bytes(self._open), False))
            self._open.clear()
            self._long = True
        return pieces

    def finish(self) -> list[Piece]:
        """Give what was left without a newline."""
        rest = bytes(self._open)
        self._open.clear()
        return [Piece(rest, True)] if rest else []
