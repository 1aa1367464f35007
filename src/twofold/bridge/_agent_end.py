"""The agent behind a bridge: a process whose lines are watched, and may be answered, on their way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias

from twofold.bridge._lines import Fragment, Lines, Own
from twofold.bridge._record import Recorder
from twofold.exceptions import ConnectionLost, LineTooLong
from twofold.jsonrpc import DEFAULT_LIMIT
from twofold.runtime import ProcessTransport

__all__ = ["AgentEnd", "Between"]

_LAST: float = 0.5
"""Seconds that a process whose output has ended has to end itself, before it is said not to."""

ToAgent: TypeAlias = bytes | None
ToClient: TypeAlias = Sequence[bytes]


class Between(Protocol):
    """Stands between the client and the agent and may say other lines than those that came.

    While it takes its time (it gives something to await) nothing overtakes the line. A line is recorded as it is
    towards the client, unless what is given is :class:`Own`.
    """

    def to_agent(self, line: bytes) -> ToAgent | Awaitable[ToAgent]:
        """Give the line to send to the agent instead; ``None`` for none."""
        ...

    def to_client(self, line: bytes) -> ToClient | Awaitable[ToClient]:
        """Give the lines to tell the client instead."""
        ...


class AgentEnd:
    """The agent's end, as a :class:`~twofold.runtime.Transport` and as pieces of its stream.

    ``recorder`` is told of every whole line that the client's side says and hears, in order.
    """

    def __init__(
        self, process: ProcessTransport, *, recorder: Recorder | None = None, line_limit: int = DEFAULT_LIMIT
    ) -> None:
        self.name = process.name
        self.process = process
        self.between: Between | None = None
        self._stream = process.stream
        self._recorder = recorder
        self._limit = line_limit
        self._lines = Lines(limit=line_limit)
        self._said: list[bytes] = []  # to be told the client, before what comes next from the agent
        self._saying = asyncio.Event()
        self._reading: asyncio.Task[bytes] | None = None
        self._passing: asyncio.Task[None] | None = None  # passes on what came while something took its time
        self._behind: deque[bytes] = deque()
        self._ended = False

    # As pieces

    async def pieces(self) -> list[bytes]:
        """Wait for what the agent says; nothing at all when it has ended."""
        while True:
            if self._said:
                said, self._said = self._said, []
                return said
            if self._ended:
                return []
            if self._recorder is not None and self._recorder.behind:  # what cannot be stored yet is not read
                await self._recorder.caught_up()
            chunk = await self._stream.receive_raw() if self.between is None else await self._read_or_say()
            if chunk is None:
                continue
            if chunk:
                pieces = self._lines.feed(chunk)
            else:
                self._ended = True
                pieces = self._lines.finish()
            told = pieces if self._recorder is None and self.between is None else await self._told(pieces)
            if told:
                return told

    async def _read_or_say(self) -> bytes | None:
        """Wait for the agent, or for something to be told without it."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._stream.receive_raw())
        self._saying.clear()
        saying = asyncio.create_task(self._saying.wait())
        try:
            await asyncio.wait({self._reading, saying}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            saying.cancel()
        if self._said or not self._reading.done():
            return None
        reading, self._reading = self._reading, None
        return reading.result()

    async def _told(self, pieces: Sequence[bytes]) -> list[bytes]:
        told: list[bytes] = []
        for piece in pieces:
            lines: Sequence[bytes] = (piece,)
            if self.between is not None and type(piece) is not Fragment:
                instead = self.between.to_client(piece)
                lines = await instead if isinstance(instead, Awaitable) else instead
            for line in lines:
                told.append(line)
                if self._recorder is not None and type(line) is bytes:
                    self._recorder.line(line, "a2c")
        return told

    def unsaid(self, pieces: Sequence[bytes]) -> None:
        """Put back what was read too many; it is given again first."""
        self._said = [*pieces, *self._said]

    def say(self, line: Own) -> None:
        """Tell the client's side something that the agent did not say."""
        self._said.append(line)
        self._saying.set()

    def send_piece(self, piece: bytes) -> None:
        """Send what the client's side says."""
        if self._passing is not None:
            self._behind.append(piece)
            return
        instead = self._instead(piece)
        if isinstance(instead, Awaitable):
            self._passing = asyncio.create_task(self._pass_behind(piece, instead))
        else:
            self._send(piece, instead)

    def _instead(self, piece: bytes) -> ToAgent | Awaitable[ToAgent]:
        if self.between is None or type(piece) is Fragment:
            return piece
        return self.between.to_agent(piece)

    async def _pass_behind(self, piece: bytes, instead: Awaitable[ToAgent]) -> None:
        try:
            self._send(piece, await instead)
            while self._behind:
                piece = self._behind.popleft()
                other = self._instead(piece)
                self._send(piece, await other if isinstance(other, Awaitable) else other)
        finally:
            self._passing = None

    def _send(self, piece: bytes, instead: ToAgent) -> None:
        if instead is None:
            return
        if self._recorder is not None and type(instead) is bytes:
            self._recorder.line(piece, "c2a")
        self._stream.send_raw(instead)

    def send_direct(self, line: bytes) -> None:
        """Send the agent something that the client's side did not say."""
        self._stream.send_raw(line + b"\n")

    async def end(self) -> None:
        """Say that the client's side says nothing more."""
        with suppress(ConnectionLost):
            await self.drain()
        if not self.deaf:
            self._stream.end()

    @property
    def deaf(self) -> bool:
        """Whether the agent takes nothing more."""
        return self._stream.gone

    async def lost(self) -> ConnectionLost:
        """Say how the agent ended, once its output has."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.process.process.wait(), _LAST)
        how = self.process.ended or "its output, and goes on running"
        return ConnectionLost(f"{self.name} ended {how}", exit_status=self.process.process.returncode)

    # As a transport

    async def receive(self) -> Sequence[bytes | LineTooLong]:
        """Give the agent's lines. Raises :class:`ConnectionLost` when it has ended, and says how."""
        while pieces := await self.pieces():
            lines: list[bytes | LineTooLong] = []
            for piece in pieces:
                if type(piece) is not Fragment:
                    lines.append(piece.removesuffix(b"\n"))
                elif piece.endswith(b"\n"):  # the end of a line that was too long
                    lines.append(LineTooLong(limit=self._limit, length=max(len(piece), self._limit + 1)))
            if lines:
                return lines
        raise await self.lost()

    def send(self, message: bytes) -> None:
        """Send one line."""
        self.send_piece(message + b"\n")

    async def drain(self) -> None:
        """Wait while the agent does not read."""
        if self._passing is not None:
            await asyncio.shield(self._passing)
        await self._stream.drain()

    async def close(self) -> None:
        """End the process."""
        for task in (self._reading, self._passing):
            if task is not None:
                task.cancel()
        await self.process.close()
