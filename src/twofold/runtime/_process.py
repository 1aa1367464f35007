"""stdio: a child process at the other end, or our own standard streams."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import stat
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, Final

from twofold.exceptions import ConnectionLost, LineTooLong
from twofold.jsonrpc import DEFAULT_LIMIT
from twofold.runtime._transport import OUTGOING_LIMIT, Reader, StreamTransport, Writer

if sys.platform == "linux":
    import fcntl

__all__ = ["ProcessTransport", "own_stdio"]

_BUFFER: Final = 1024 * 1024

_PIPE: Final = 128 * 1024
"""Bytes that a child's output may hold, where that can be said: twice the usual, so half as many times to wake up."""


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
        grace: float = 5.0,
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
        _widen_output(process)
        stream = StreamTransport(process.stdout, process.stdin, name=name, line_limit=line_limit, close_timeout=grace)
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
        loop = asyncio.get_running_loop()
        until = loop.time() + self._grace
        await self._stream.close()
        for number in (None, signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
            if number is not None:
                self._signal(number)
                until = loop.time() + self._grace
            with suppress(TimeoutError):  # also while what it started holds its output open: then the status is there
                await asyncio.wait_for(self.process.wait(), max(0.0, until - loop.time()))
            if self.process.returncode is not None:
                break
        await self._end_group()
        transport = getattr(self.process, "_transport", None)
        if transport is not None:
            transport.close()  # its output may be held open by a grandchild: nobody reads it any more

    async def _end_group(self) -> None:
        """End what it left behind in its process group. We are no parent of that: it is looked at, not waited for."""
        if not hasattr(os, "killpg"):
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + self._grace
        left = self._signal(signal.SIGTERM)
        while left and loop.time() < until:
            await asyncio.sleep(0.01)
            left = self._signal(0)
        if left:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> bool:
        """Signal the process and its group; gives whether there is anything left of them."""
        with suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, number)
                return True
            if self.process.returncode is None:
                self.process.send_signal(number)
                return True
        return False


def _widen_output(process: asyncio.subprocess.Process) -> None:
    transport: asyncio.SubprocessTransport | None = getattr(process, "_transport", None)
    output = None if transport is None else transport.get_pipe_transport(1)
    pipe = None if output is None else output.get_extra_info("pipe")
    if sys.platform == "linux" and pipe is not None:
        with suppress(OSError):  # the user has too many pipes: it is as wide as it is
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE)


def _status(status: int) -> str:
    if status < 0:
        try:
            return f"by {signal.Signals(-status).name}"
        except ValueError:
            return f"by signal {-status}"
    return f"with status {status}"


class _FileReader:
    """The reading end of a standard input that cannot be waited for: a file, which a thread reads piece by piece."""

    def __init__(self, file: IO[bytes], loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._asked: queue.SimpleQueue[tuple[int, asyncio.Future[bytes]] | None] = queue.SimpleQueue()
        self._next: asyncio.Future[bytes] | None = None  # kept until it is taken, whoever is cancelled meanwhile
        threading.Thread(target=self._serve, args=(file,), name="twofold-stdin", daemon=True).start()

    async def read(self, size: int, /) -> bytes:
        if self._next is None:
            self._next = self._loop.create_future()
            self._asked.put((size, self._next))
        chunk = await asyncio.shield(self._next)
        if chunk:  # the end stays the end
            self._next = None
        return chunk

    def close(self) -> None:
        self._asked.put(None)

    def _serve(self, file: IO[bytes]) -> None:
        with file, suppress(RuntimeError):  # the loop was closed
            while asked := self._asked.get():
                size, future = asked
                try:
                    chunk = file.read(size)
                except OSError:
                    chunk = b""
                self._loop.call_soon_threadsafe(_give, future, chunk)


def _give(future: asyncio.Future[bytes], chunk: bytes) -> None:
    if not future.done():
        future.set_result(chunk)


class _FileWriter:
    """The writing end of a standard output that cannot be waited for: a file, which takes everything at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[self._file.write(left) or 0 :]
        except OSError:  # there is no room: it takes nothing more
            self._file.close()

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
    reader: Reader
    writer: Writer
    let_go: Callable[[], object]
    if _can_be_waited_for(incoming):
        stream = asyncio.StreamReader(limit=_BUFFER)
        pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), incoming)
        reader, let_go = stream, pipe.close
    else:
        file = _FileReader(incoming, loop)
        reader, let_go = file, file.close
    if _can_be_waited_for(outgoing):
        # The protocol is one of a reader only because it can wait for the closing.
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), outgoing
        )
        transport.set_write_buffer_limits(high=outgoing_limit)
        writer = asyncio.StreamWriter(transport, protocol, None, loop)
    else:
        writer = _FileWriter(outgoing)
    return StreamTransport(reader, writer, name="the other side", line_limit=line_limit, let_go=let_go)


def _can_be_waited_for(file: IO[bytes]) -> bool:
    """Whether an event loop can: not for a file, not for /dev/null, and for nothing on Windows."""
    mode = os.fstat(file.fileno()).st_mode
    return os.name == "posix" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or file.isatty())
