"""What carries messages: whole lines in, whole lines out, and a bound on what waits to go out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from twofold.exceptions import ConnectionLost, LineTooLong
from twofold.jsonrpc import DEFAULT_LIMIT, LineSplitter

__all__ = ["OUTGOING_LIMIT", "Reader", "StreamTransport", "Transport", "Writer", "memory_pair"]

OUTGOING_LIMIT: Final = 1024 * 1024
"""Bytes that may wait to be taken by the other side before :meth:`Transport.drain` waits."""

_CHUNK: Final = 256 * 1024


class Transport(Protocol):
    """Carries messages between two ends, in order. One task reads; anyone writes."""

    name: str
    """What the other end is, for error messages."""

    async def receive(self) -> Sequence[bytes | LineTooLong]:
        """Wait for messages and give those that came, in order; none at all when the other side has ended."""
        ...

    def send(self, message: bytes) -> None:
        """Send one message, a line without its newline. Never waits; messages to an end that is gone are dropped."""
        ...

    async def drain(self) -> None:
        """Wait until what was sent is below the bound. Raises :class:`ConnectionLost` when it will never be."""
        ...

    async def close(self) -> None:
        """Send what waits, as far as the other side takes it, and let go. May be called more than once."""
        ...


class Reader(Protocol):
    """What :class:`StreamTransport` needs of an :class:`asyncio.StreamReader`."""

    async def read(self, n: int, /) -> bytes: ...


class Writer(Protocol):
    """What :class:`StreamTransport` needs of an :class:`asyncio.StreamWriter`."""

    def write(self, data: bytes, /) -> None: ...

    def is_closing(self) -> bool: ...

    async def drain(self) -> None: ...

    def close(self) -> None: ...

    async def wait_closed(self) -> None: ...


class StreamTransport:
    """Lines over a pair of asyncio streams; the bound on what waits is the writer's own.

    ``let_go`` is called at the end of :meth:`close`: for what the streams themselves do not close.
    """

    def __init__(
        self,
        reader: Reader,
        writer: Writer,
        *,
        name: str,
        line_limit: int = DEFAULT_LIMIT,
        close_timeout: float = 5.0,
        let_go: Callable[[], object] | None = None,
    ) -> None:
        self.name = name
        self._reader = reader
        self._writer = writer
        self._splitter = LineSplitter(limit=line_limit)
        self._close_timeout = close_timeout
        self._let_go = let_go
        self._unread = b""
        self._ended = False  # by us: the other side may have more to say

    async def receive(self) -> Sequence[bytes | LineTooLong]:
        """Read until at least one line is whole; bytes after the last newline count as a line at the end of input."""
        while True:
            chunk = await self.receive_raw()
            if not chunk:
                last = self._splitter.finish()
                return () if last is None else (last,)
            lines = self._splitter.feed(chunk)
            if lines:
                return lines

    async def receive_raw(self) -> bytes:
        """Read bytes as they come, lines or not; none at the end. Not to be mixed with :meth:`receive`."""
        if self._unread:
            chunk, self._unread = self._unread, b""
            return chunk
        try:
            return await self._reader.read(_CHUNK)
        except OSError:  # a reset is an end
            return b""

    def unread(self, data: bytes) -> None:
        """Put bytes back that were read too many: they are read again first."""
        self._unread = data + self._unread

    def send_raw(self, data: bytes) -> None:
        """Hand bytes to the stream as they are."""
        if not self._writer.is_closing():
            self._writer.write(data)

    def end(self) -> None:
        """Say that nothing more is sent."""
        self._ended = True
        self._writer.close()

    def send(self, message: bytes) -> None:
        """Hand the line to the stream."""
        if not self._writer.is_closing():
            self._writer.write(message + b"\n")

    async def drain(self) -> None:
        """Wait while more than the bound is unsent."""
        try:
            if not self.gone:
                await self._writer.drain()
        except OSError as error:
            raise ConnectionLost(f"{self.name} does not take what is sent: {error.strerror or 'it is gone'}") from None
        if self.gone:
            raise ConnectionLost(f"{self.name} takes nothing more")

    @property
    def gone(self) -> bool:
        """Whether the other side takes nothing more."""
        return self._writer.is_closing() and not self._ended

    async def wait_gone(self) -> None:
        """Wait until it does not. Only pipes and sockets tell while nothing is sent."""
        if isinstance(self._writer, asyncio.StreamWriter):
            with suppress(OSError):  # cancelling this must not cancel the stream's own future
                await asyncio.shield(asyncio.ensure_future(self._writer.wait_closed()))
        else:
            await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """Send what waits, for at most ``close_timeout`` seconds, and close."""
        self._writer.close()
        closed = asyncio.ensure_future(self._writer.wait_closed())
        await asyncio.wait([closed], timeout=self._close_timeout)  # wait_for() would cancel the stream's own future
        if not closed.done() and isinstance(self._writer, asyncio.StreamWriter):
            self._writer.transport.abort()
        with suppress(OSError):
            await closed
        if self._let_go is not None:
            self._let_go()


class _MemoryEnd:
    """One end of a pair in memory."""

    def __init__(self, name: str, limit: int, line_limit: int) -> None:
        self.name = name
        self.other: _MemoryEnd = self
        self._limit = limit
        self._line_limit = line_limit
        self._queue: deque[bytes] = deque()  # what came in
        self._size = 0
        self._ended = False  # the other end sends no more
        self._closed = False
        self._came = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    async def receive(self) -> Sequence[bytes | LineTooLong]:
        while not self._queue and not self._ended and not self._closed:
            self._came.clear()
            await self._came.wait()
        lines: list[bytes | LineTooLong] = [
            line if len(line) <= self._line_limit else LineTooLong(limit=self._line_limit, length=len(line))
            for line in self._queue
        ]
        self._queue.clear()
        self._size = 0
        self._room.set()
        return lines

    def send(self, message: bytes) -> None:
        other = self.other
        if self._closed or other._closed:
            return
        other._queue.append(message)
        other._size += len(message) + 1  # as if a newline came with it: empty ones count, too
        other._came.set()
        if other._size > other._limit:
            other._room.clear()

    async def drain(self) -> None:
        other = self.other
        while not (other._room.is_set() or other._closed or self._closed):
            await other._room.wait()
        if self._closed or other._closed:
            raise ConnectionLost(f"{self.name} is closed")

    async def close(self) -> None:
        self._closed = True
        self._came.set()
        self._room.set()  # whoever waits to be read, on either side, waits no more
        self.other._room.set()
        self.other._ended = True
        self.other._came.set()


def memory_pair(*, limit: int = OUTGOING_LIMIT, line_limit: int = DEFAULT_LIMIT) -> tuple[Transport, Transport]:
    """Give two ends in one process: what one sends the other receives."""
    name = "the other end in memory"
    one, two = _MemoryEnd(name, limit, line_limit), _MemoryEnd(name, limit, line_limit)
    one.other, two.other = two, one
    return one, two
