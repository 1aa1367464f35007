"""The agent behind a bridge: a process whose lines are watched, and may be answered, on their way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from twofold.bridge._lines import Lines, Piece
from twofold.bridge._record import Sender
from twofold.exceptions import ConnectionLost, LineTooLong
from twofold.jsonrpc import DEFAULT_LIMIT
from twofold.runtime import ProcessTransport

__all__ = ["AgentEnd", "Between"]


class Between(Protocol):
    """Stands between the client and the agent and may say other lines than those that came."""

    def to_agent(self, line: bytes) -> bytes | None:
        """Give the line to send to the agent instead; ``None`` for none."""
        ...

    def to_client(self, line: bytes) -> Sequence[bytes]:
        """Give the lines to tell the client instead."""
        ...


class AgentEnd:
    """The agent's end, as a :class:`~twofold.runtime.Transport` and as pieces of its stream.

    ``passed`` is told of every whole line that the client's side says and hears, in order.
    """

    def __init__(
        self,
        process: ProcessTransport,
        *,
        passed: Callable[[bytes, Sender], object],
        behind: Callable[[], bool],
        line_limit: int = DEFAULT_LIMIT,
    ) -> None:
        self.name = process.name
        self.process = process
        self.between: Between | None = None
        self._passed = passed
        self._behind = behind
        self._limit = line_limit
        self._lines = Lines(limit=line_limit)
        self._said: list[Piece] = []  # to be told the client, before what comes next from the agent
        self._say = asyncio.Event()
        self._reading: asyncio.Task[bytes] | None = None
        self._ended = False

    # As pieces

    async def pieces(self) -> list[Piece]:
        """Wait for what the agent says; nothing at all when it has ended."""
        while True:
            if self._said:
                said, self._said = self._said, []
                return said
            if self._ended:
                return []
            while self._behind():  # the journal: what is not stored is not read
                await asyncio.sleep(0.01)
            if self.between is None and self._reading is None:
                chunk = await self.process.stream.receive_raw()
            else:
                read = await self._read_or_say()
                if read is None:
                    continue
                chunk = read
            if chunk:
                pieces = self._lines.feed(chunk)
            else:
                self._ended = True
                pieces = self._lines.finish()
            told: list[Piece] = []
            for piece in pieces:
                told += self._told(piece)
            if told:
                return told

    async def _read_or_say(self) -> bytes | None:
        """Wait for the agent, or for something to be told without it."""
        if self._reading is None:
            self._reading = asyncio.create_task(self.process.stream.receive_raw())
        self._say.clear()
        saying = asyncio.create_task(self._say.wait())
        try:
            await asyncio.wait({self._reading, saying}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            saying.cancel()
        if self._said or not self._reading.done():
            return None
        reading, self._reading = self._reading, None
        return reading.result()

    def _told(self, piece: Piece) -> list[Piece]:
        if not piece.whole:
            return [piece]
        if self.between is None:
            self._passed(piece.data, "a2c")
            return [piece]
        told: list[Piece] = []
        for line in self.between.to_client(piece.data):
            told.append(piece if line is piece.data else Piece(line, True))
            self._passed(line, "a2c")
        return told

    def unsaid(self, pieces: list[Piece]) -> None:
        """Put back what was read too many; it is given again first."""
        self._said = [*pieces, *self._said]

    def say(self, line: bytes, *, record: bool = True) -> None:
        """Tell the client's side something that the agent did not say."""
        if record:
            self._passed(line, "a2c")
        self._said.append(Piece(line if line.endswith(b"\n") else line + b"\n", True))
        self._say.set()

    def send_piece(self, piece: Piece) -> None:
        """Send what the client's side says."""
        data: bytes | None = piece.data
        if piece.whole and self.between is not None:
            data = self.between.to_agent(piece.data)
        if piece.whole and data is not None:
            self._passed(piece.data, "c2a")
        if data is not None:
            self.process.stream.send_raw(data)

    def send_direct(self, line: bytes) -> None:
        """Send the agent something that the client's side did not say."""
        self.process.stream.send_raw(line + b"\n")

    # As a transport

    async def receive(self) -> Sequence[bytes | LineTooLong]:
        """Give the agent's lines."""
        while True:
            pieces = await self.pieces()
            if not pieces:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.process.process.wait(), 0.5)
                if self.process.ended is not None:
                    status = self.process.process.returncode
                    raise ConnectionLost(f"{self.name} ended {self.process.ended}", exit_status=status)
                return ()
            lines: list[bytes | LineTooLong] = []
            for piece in pieces:
                if piece.whole:
                    lines.append(piece.data.removesuffix(b"\n"))
                elif piece.data.endswith(b"\n"):  # the end of a line that was too long
                    lines.append(LineTooLong(limit=self._limit, length=self._limit + 1))
            if lines:
                return lines

    def send(self, message: bytes) -> None:
        """Send one line."""
        self.send_piece(Piece(message + b"\n", True))

    async def drain(self) -> None:
        """Wait while the agent does not read."""
        await self.process.drain()

    async def close(self) -> None:
        """End the process."""
        if self._reading is not None:
            self._reading.cancel()
        await self.process.close()
