"""A stream of bytes as lines that keep every byte: what passes through a bridge unchanged is exactly what came."""

from __future__ import annotations

from typing import Final

from twofold.jsonrpc import DEFAULT_LIMIT

__all__ = ["Fragment", "Lines", "Own"]


class Fragment(bytes):
    """Bytes of a line that is over the limit: they are passed on, and not looked at."""


class Own(bytes):
    """A line of the bridge's own: it is told, and not recorded."""


class Lines:
    """Cuts a stream into whole lines, newline included, and fragments. Put together they are the stream."""

    def __init__(self, *, limit: int = DEFAULT_LIMIT) -> None:
        self._limit: Final = limit
        self._open = bytearray()
        self._long = False  # the line that is open is over the limit: its bytes are given as they come

    def feed(self, chunk: bytes) -> list[bytes]:
        """Give the lines that a chunk completes, and the fragments in it."""
        pieces: list[bytes] = []
        limit, start = self._limit, 0
        while (end := chunk.find(b"\n", start)) >= 0:
            piece = chunk[start : end + 1]
            start = end + 1
            if self._open:
                piece = bytes(self._open) + piece
                self._open.clear()
            pieces.append(Fragment(piece) if self._long or len(piece) > limit else piece)
            self._long = False
        rest = chunk[start:]
        if self._long:
            if rest:
                pieces.append(Fragment(rest))
            return pieces
        self._open += rest
        if len(self._open) > limit:
            pieces.append(Fragment(self._open))
            self._open.clear()
            self._long = True
        return pieces

    def finish(self) -> list[bytes]:
        """Give what was left without a newline."""
        rest = bytes(self._open)
        self._open.clear()
        return [rest] if rest else []
