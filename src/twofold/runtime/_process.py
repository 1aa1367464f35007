"""stdio: a child process at the other end, or our own standard streams."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, Final

from twofold.exceptions import ConnectionLost, LineTooLong
from twofold.jsonrpc import DEFAULT_LIMIT
from twofold.runtime._transport import OUTGOING_LIMIT, StreamTransport, Writer

__all__ = ["ProcessTransport", "own_stdio"]

_BUFFER: Final = 1024 * 1024


class ProcessTransport:
    """A child process: messages go to its standard input and come from its standard output.

    Ending it goes by steps, each with a deadline: its input is closed, then it is asked to end (SIGTERM), then it is
    killed; whatever it started in its own process group goes with it.
    """

    def __init__(self, process: asyncio.subprocess.Process, stream: StreamTransport, *, grace: float) -> None:
        self.process = process
        self.name = stream.name
        self._stream = stream
        self._grace = grace
        self._ending: asyncio.Task[None] | None = None
        self._closing = False

    @classmethod
    async def start(
        cls,
        command: Sequence[str | os.PathLike[str]],
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stderr: int | IO[Any] | None = None,
        line_limit: int = DEFAULT_LIMIT,
        outgoing_limit: int = OUTGOING_LIMIT,
        grace: float = 3.0,
    ) -> ProcessTransport:
        """Start ``command``. ``env`` is its whole environment; ``stderr`` as for :mod:`subprocess`, inherited if not
        given; ``grace`` is the seconds it has for each step of ending.

        Raises :class:`ConnectionLost` when it cannot be started.
        """
        words = [os.fspath(word) for word in command]
        name = os.path.basename(words[0]) if words else ""
        if not words:
            raise ValueError("the command is empty")
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                cwd=cwd,
                env=env,
                limit=_BUFFER,
                start_new_session=True,  # so that what it started can be ended with it
            )
        except OSError as error:
            raise ConnectionLost(f"{name} could not be started: {error.strerror}") from None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.transport.set_write_buffer_limits(high=outgoing_limit)
        stream = StreamTransport(process.stdout, process.stdin, name=name, line_limit=line_limit)
        return cls(process, stream, grace=grace)

    @property
    def stream(self) -> StreamTransport:
        """Its standard input and output, as they are."""
        return self._stream

    @property
    def ended(self) -> str | None:
        """How the process ended, in words; ``None`` while it runs."""
        status = self.process.returncode
        return None if status is None else _status(status)

    async def receive(self) -> Sequence[bytes | LineTooLong]:
        """Read lines; at their end, raise ConnectionLost with the exit status if the process has ended by itself."""
        lines = await self._stream.receive()
        if not lines and not self._closing:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), 0.5)
            status = self.process.returncode
            if status is not None:
                raise ConnectionLost(f"{self.name} ended {_status(status)}", exit_status=status)
        return lines

    def send(self, message: bytes) -> None:
        """Send one line."""
        self._stream.send(message)

    async def drain(self) -> None:
        """Wait while the process does not read."""
        await self._stream.drain()

    async def close(self) -> None:
        """Close the process's input and see to it that it ends."""
        self._closing = True
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        await self._stream.close()
        for signal_number in (None, signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
            if signal_number is not None:
                self._signal(signal_number)
            try:
                await asyncio.wait_for(self.process.wait(), self._grace)
                break
            except TimeoutError:
                continue
        self._signal(signal.SIGTERM)  # what it left behind in its process group
        transport = getattr(self.process, "_transport", None)
        if transport is not None:
            transport.close()  # its output may be held open by a grandchild: nobody reads it any more

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, number)
            elif self.process.returncode is None:
                self.process.send_signal(number)


def _status(status: int) -> str:
    if status < 0:
        try:
            return f"by {signal.Signals(-status).name}"
        except ValueError:
            return f"by signal {-status}"
    return f"with status {status}"


class _FileWriter:
    """The writing end of a standard output that is no pipe: a file, which takes everything at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) or 0 :]

    def is_closing(self) -> bool:
        return self._file.closed

    async def drain(self) -> None: ...

    def close(self) -> None:
        self._file.close()

    async def wait_closed(self) -> None: ...


async def own_stdio(*, line_limit: int = DEFAULT_LIMIT, outgoing_limit: int = OUTGOING_LIMIT) -> StreamTransport:
    """Give the transport over this process's own standard input and output.

    From then on what the program prints goes to standard error: standard output carries the protocol only.
    """
    loop = asyncio.get_running_loop()
    incoming = os.fdopen(os.dup(0), "rb", buffering=0)
    sys.stdout.flush()
    outgoing = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    reader = asyncio.StreamReader(limit=_BUFFER)
    try:
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), incoming)
    except (ValueError, NotImplementedError, OSError):  # a file, or a system without such pipes: a thread reads it
        threading.Thread(target=_feed, args=(incoming, reader, loop), name="twofold-stdin", daemon=True).start()
    writer: Writer
    try:
        # The protocol is one of a reader only because it can wait for the closing.
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), outgoing
        )
        transport.set_write_buffer_limits(high=outgoing_limit)
        writer = asyncio.StreamWriter(transport, protocol, None, loop)
    except (ValueError, NotImplementedError, OSError):
        writer = _FileWriter(outgoing)
    return StreamTransport(reader, writer, name="the other side", line_limit=line_limit)


def _feed(file: IO[bytes], reader: asyncio.StreamReader, loop: asyncio.AbstractEventLoop) -> None:
    """Read a file in a thread of its own, at the pace at which it is taken."""
    taken = threading.Event()

    def feed(chunk: bytes) -> None:
        if chunk:
            reader.feed_data(chunk)
        else:
            reader.feed_eof()
        taken.set()

    with suppress(RuntimeError):  # the loop was closed
        while True:
            chunk = file.read(_BUFFER)
            taken.clear()
            loop.call_soon_threadsafe(feed, chunk)
            if not chunk:
                return
            taken.wait()
