"""Both sides speak the same version: bytes pass as they are, and the books are kept on who owes whom an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Raw

from twofold.bridge._agent_end import AgentEnd
from twofold.bridge._lines import Fragment, Lines
from twofold.exceptions import HandshakeFailed, TwofoldError
from twofold.jsonrpc import Batch, ErrorResponse, Frame, Id, Request, Response, dumps, encode, parse
from twofold.runtime import StreamTransport
from twofold.runtime._connection import wire_error

__all__ = ["UPDATE", "Passing", "frame_of", "refusal"]

UPDATE: Final = (b'{"jsonrpc":"2.0","method":"session/update"', b'{"jsonrpc": "2.0", "method": "session/update"')
"""How nearly all lines of an agent begin: those are no request and no answer."""


class Passing:
    """Two directions to run at once. When one has ended, :meth:`refuse` answers what nobody else will."""

    def __init__(
        self, client: StreamTransport, agent: AgentEnd, *, report: Callable[..., object], line_limit: int
    ) -> None:
        self._client = client
        self._agent = agent
        self._report = report
        self._limit = line_limit
        self._asked: set[Id] = set()  # by the client, without an answer
        self._asking: set[Id] = set()  # by the agent
        self._cut = False  # whether the client has the beginning of a line, and not its end

    async def from_client(self) -> None:
        """Pass on what the client says, to its end. Raises :class:`ConnectionLost` when the agent does not take it."""
        lines = Lines(limit=self._limit)
        while chunk := await self._client.receive_raw():
            for piece in lines.feed(chunk):
                self._from_client(piece)
            await self._agent.drain()
        for piece in lines.finish():
            self._from_client(piece)

    def _from_client(self, piece: bytes) -> None:
        match frame_of(piece):
            case Request(id=id):
                self._asked.add(id)
            case Response(id=id) | ErrorResponse(id=id) if id is not None:
                self._asking.discard(id)
            case _:
                pass
        self._agent.send_piece(piece)

    async def from_agent(self) -> None:
        """Pass on what the agent says, to its end. Raises :class:`ConnectionLost` when the client does not take it."""
        while pieces := await self._agent.pieces():
            for piece in pieces:
                if not piece.startswith(UPDATE):
                    self._from_agent(piece)
            self._cut = not pieces[-1].endswith(b"\n")
            self._client.send_raw(b"".join(pieces))
            await self._client.drain()

    def _from_agent(self, piece: bytes) -> None:
        match frame_of(piece):
            case Request(id=id):
                self._asking.add(id)
            case Response(id=id) | ErrorResponse(id=id) if id is not None:
                self._asked.discard(id)
            case None if type(piece) is not Fragment and piece.strip():
                self._report("garbage", bytes=len(piece))
            case _:
                pass

    def refuse_agent(self, error: TwofoldError) -> None:
        """Answer what the agent asked and the client will not answer."""
        for id in self._asking:
            self._agent.send_direct(refusal(id, error))
        self._asking.clear()

    def refuse(self, error: TwofoldError) -> None:
        """Answer what either side asked and will not be answered."""
        self.refuse_agent(error)
        if self._asked and self._cut:
            self._client.send_raw(b"\n")
        for id in self._asked:
            self._client.send(refusal(id, error))
        self._asked.clear()


def refusal(id: Id | None, error: TwofoldError) -> bytes:
    """Give the line that answers a request with an error, in our own fixed words."""
    code, message, data = wire_error(error)
    if isinstance(error, HandshakeFailed):
        data = {"reason": error.reason}
    members: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        members["data"] = data
    return encode(ErrorResponse(id, code, message, Raw(dumps(members))))


def frame_of(piece: bytes) -> Frame | Batch | None:
    """Read a line; ``None`` for what is no message."""
    if type(piece) is Fragment:
        return None
    try:
        return parse(piece)
    except TwofoldError:
        return None
