"""The client in front of a converting bridge."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from twofold.exceptions import LineTooLong
from twofold.runtime import StreamTransport

__all__ = ["ClientEnd"]


class ClientEnd:
    """A :class:`~twofold.runtime.Transport` that writes a line at once, those of one turn of the loop together."""

    def __init__(self, stream: StreamTransport) -> None:
        self.name = stream.name
        self._stream = stream
        self._lines: list[bytes] | None = None  # what waits for the end of this turn, when something was sent in it

    async def receive(self) -> Sequence[bytes | LineTooLong]:
        """Read lines."""
        return await self._stream.receive()

    def send(self, message: bytes) -> None:
        """Send one line."""
        if self._lines is None:
            self._lines = []
            asyncio.get_running_loop().call_soon(self._write)
            self._stream.send(message)
        else:
            self._lines.append(message)

    def _write(self) -> None:
        lines, self._lines = self._lines, None
        if lines:
            lines.append(b"")
            self._stream.send_raw(b"\n".join(lines))

    async def drain(self) -> None:
        """Write, and wait while the client does not read."""
        self._write()
        await self._stream.drain()

    async def close(self) -> None:
        """Write, and let go."""
        self._write()
        await self._stream.close()
