"""One end of a JSON-RPC 2.0 conversation: what was asked, what is owed, what each line means. Bytes in, events out.

What a frame is depends on what is known of its id, and on nothing else:

===================  =========================  ==================================
frame                id                         event
===================  =========================  ==================================
request              not in flight              :class:`Request`, now in flight
request              in flight                  :class:`Fault`, answered
notification         (none)                     :class:`Notification`
cancel request       in flight                  :class:`Withdrawn`
cancel request       not in flight              nothing: it was answered meanwhile
answer               pending                    :class:`Answer`, no longer pending
answer               not pending                :class:`Fault`
no answer after all  pending                    :class:`Fault`, and an :class:`Answer` that says so
no frame, too long   —                          :class:`Fault`, answered
===================  =========================  ==================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType

from twofold.exceptions import InvalidFrame, LineTooLong, ParseError, ProtocolViolation, RequestError, TwofoldError
from twofold.jsonrpc._frames import (
    Batch,
    ErrorResponse,
    Frame,
    Id,
    Notification,
    Request,
    Response,
    encode,
    parse,
)
from twofold.jsonrpc._json import dumps, loads

__all__ = ["CANCEL", "CANCELLED", "Answer", "Event", "Fault", "Peer", "Withdrawn"]

CANCEL: Final = "$/cancel_request"
"""The notification that withdraws a request of the same sender."""

CANCELLED: Final = -32800
"""The error code of a request that was withdrawn."""

MAX_IN_FLIGHT: Final = 4096
"""Requests of the other side that may wait for their answers at once; more are refused."""

_BUSY: Final = -32029
"""Ours: a server error of JSON-RPC that ACP uses for nothing (-32000 would ask for authentication)."""


class Answer(Struct, frozen=True, gc=False):
    """The answer to our request ``id``: a ``result``, or an ``error``."""

    id: Id
    method: str
    result: Raw | None
    error: RequestError | None


class Withdrawn(Struct, frozen=True, gc=False):
    """The other side withdraws its request ``id``. It is still to be answered, best with :data:`CANCELLED`."""

    id: Id


class Fault(Struct, frozen=True):
    """A line that is wrong, and the line to send back, if one is due. The conversation goes on."""

    error: TwofoldError
    reply: bytes | None = None


Event: TypeAlias = Request | Notification | Answer | Withdrawn | Fault


class Peer:
    """Keeps the books of one end. It sends nothing: every method that speaks gives the line to send, without newline.

    ``batches``: whether arrays of messages are taken, as an older revision of ACP had it; else each is refused as a
    whole. None is ever sent.
    """

    def __init__(self, *, batches: bool = False) -> None:
        self._batches = batches
        self._next = 0
        self._pending: dict[Id, str] = {}  # our requests without an answer yet → their methods
        self._in_flight: set[Id] = set()  # the other side's requests that we owe an answer

    @property
    def pending(self) -> int:
        """How many of our requests have no answer yet."""
        return len(self._pending)

    @property
    def in_flight(self) -> int:
        """How many of the other side's requests are not answered yet."""
        return len(self._in_flight)

    def request(self, method: str, params: bytes | None = None) -> tuple[Id, bytes]:
        """Ask something: give the id of the request, and its line."""
        id_ = self._next
        self._next += 1
        self._pending[id_] = method
        return id_, encode(Request(id_, method, _raw(params)))

    def notify(self, method: str, params: bytes | None = None) -> bytes:
        """Say something that wants no answer."""
        return encode(Notification(method, _raw(params)))

    def cancel(self, id: Id) -> bytes | None:
        """Withdraw our request ``id``; its answer still comes. ``None`` when it was answered already."""
        return self.notify(CANCEL, dumps({"requestId": id})) if id in self._pending else None

    def answer(self, id: Id, result: bytes) -> bytes | None:
        """Answer the other side's request ``id``. ``None`` when that was done before: nothing is answered twice."""
        if id not in self._in_flight:
            return None
        self._in_flight.discard(id)
        return encode(Response(id, Raw(result)))

    def refuse(self, id: Id, code: int, message: str, data: Any = None) -> bytes | None:
        """Answer the other side's request ``id`` with an error. ``None`` as for :meth:`answer`."""
        if id not in self._in_flight:
            return None
        self._in_flight.discard(id)
        return _error(id, code, message, data)

    def received(self, line: bytes | LineTooLong) -> Sequence[Event]:
        """Say what a line means: one event, several for a batch, none for an empty line."""
        if isinstance(line, LineTooLong):
            return (Fault(line, _error(None, line.code, str(line))),)
        if not line.strip():
            return ()
        try:
            frame = parse(line)
        except ParseError as error:
            return (Fault(error, _error(None, error.code, "Parse error: " + error.reason)),)
        except InvalidFrame as error:
            return self._invalid(error)
        if not isinstance(frame, Batch):
            return self._frame(frame)
        if not self._batches:
            return self._invalid(InvalidFrame("a message is a JSON object: batches are not taken here"))
        events: list[Event] = []
        for entry in frame.frames:
            events += self._invalid(entry) if isinstance(entry, InvalidFrame) else self._frame(entry)
        return events

    def ended(self) -> Sequence[Id]:
        """Forget both sides' requests: the conversation is over. Gives our requests that will never be answered."""
        ids = tuple(self._pending)
        self._pending.clear()
        self._in_flight.clear()
        return ids

    def _frame(self, frame: Frame) -> Sequence[Event]:
        match frame:
            case Notification(method) if method == CANCEL:
                return self._withdrawn(frame)
            case Notification():
                return (frame,)
            case Request(id):
                if id in self._in_flight:
                    return self._invalid(InvalidFrame("a request with this id is in flight already", id=id))
                if len(self._in_flight) >= MAX_IN_FLIGHT:
                    fault = ProtocolViolation(f"more than {MAX_IN_FLIGHT} requests in flight: one was refused")
                    return (Fault(fault, _error(id, _BUSY, "Too many requests in flight")),)
                self._in_flight.add(id)
                return (frame,)
            case Response(id, result):
                return self._answered(id, result, None)
            case ErrorResponse(id, code, message, error):
                if id is None:  # what we sent could not be read, and nobody can say what it was
                    return (Fault(ProtocolViolation(f"the other side could not read a message: error {code}")),)
                data = loads(bytes(error)).get("data")
                return self._answered(id, None, RequestError(code, message, data, method=self._pending.get(id, "")))

    def _answered(self, id: Id, result: Raw | None, error: RequestError | None) -> Sequence[Event]:
        method = self._pending.pop(id, None)
        if method is None:
            return (Fault(ProtocolViolation("an answer came that no request waits for")),)
        return (Answer(id, method, result, error),)

    def _withdrawn(self, frame: Notification) -> Sequence[Event]:
        try:
            params = None if isinstance(frame.params, UnsetType) else loads(bytes(frame.params))
        except ParseError as error:  # raw until now: a number may not fit
            return (Fault(error),)
        match params:
            case {"requestId": str() | int() as id} if not isinstance(id, bool):
                return (Withdrawn(id),) if id in self._in_flight else ()
            case _:
                return (Fault(ProtocolViolation(f"{CANCEL} without a requestId")),)

    def _invalid(self, error: InvalidFrame) -> Sequence[Event]:
        if error.answer:  # nothing is due for it, and whoever asked is not to wait for another one
            method = None if error.id is None else self._pending.pop(error.id, None)
            if error.id is None or method is None:
                return (Fault(error),)
            return Fault(error), Answer(error.id, method, None, RequestError(-32603, "Invalid answer", method=method))
        id = None if error.id in self._in_flight else error.id  # it would answer the request that is in flight
        return (Fault(error, _error(id, error.code, "Invalid request: " + error.reason)),)


def _raw(params: bytes | None) -> Raw | UnsetType:
    return UNSET if params is None else Raw(params)


def _error(id: Id | None, code: int, message: str, data: Any = None) -> bytes:
    members: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        members["data"] = data
    return encode(ErrorResponse(id, code, message, Raw(dumps(members))))
