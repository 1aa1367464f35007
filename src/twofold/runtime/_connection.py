"""One conversation over a transport: one reader, updates handled one after another, answers in their place.

The order is that of the lines received. What a handler is told, it is told in that order, and while it makes the reader
wait (it gave something to await) nothing after it is looked at. An answer takes effect in its place, too: ``then`` of
:meth:`Connection.request` is called by the reader, before it looks at the next line.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar, assert_never

from msgspec import UNSET, Raw, UnsetType

from twofold.exceptions import ConnectionLost, LineTooLong, Malformed, ParseError, RequestError, TwofoldError
from twofold.jsonrpc import CANCELLED, Answer, Event, Fault, Id, Notification, Peer, Request, Withdrawn, dumps
from twofold.runtime._transport import Transport
from twofold.wire import Codec, Model, Skipped, to_json

__all__ = [
    "Connection",
    "Handler",
    "Incoming",
    "Then",
    "log_failure",
    "method_not_found",
    "session_not_found",
    "wire_error",
]

log: Final = logging.getLogger("twofold.runtime")

T = TypeVar("T")

Then: TypeAlias = Callable[[Raw | None, TwofoldError | None], object]
"""What is called with the answer to a request, in its place in the order received: a result, or an error."""

_TURN: Final = 256
"""Lines looked at before others have a turn."""

_UNREAD: Final = 256 * 1024
"""Bytes of answers that are given to a side that takes nothing, before it is heard no further."""

_LAST_WORDS: Final = 2.0
"""Seconds that are waited for more from a side that takes nothing any more: most likely it has ended."""


class Incoming:
    """A request of the other side. Answer it once; later answers are ignored."""

    __slots__ = ("_connection", "id", "method", "on_withdrawn", "params", "withdrawn")

    def __init__(self, connection: Connection, id: Id, method: str, params: Raw | UnsetType) -> None:
        self._connection = connection
        self.id = id
        self.method = method
        self.params = params
        self.withdrawn = False
        self.on_withdrawn: Callable[[], object] | None = None

    def respond(self, result: Model | dict[str, Any] | None = None) -> None:
        """Answer with a result."""
        self.respond_raw(dumps(to_json({} if result is None else result)))

    def respond_raw(self, result: bytes) -> None:
        """Answer with a result that is JSON text already."""
        self._connection._answer(self.id, result)

    def fail(self, error: BaseException) -> None:
        """Answer with an error, in twofold's own words."""
        code, message, data = wire_error(error)
        self._connection._refuse(self.id, code, message, data)


class Handler(Protocol):
    """What a connection tells. Each method is called in the order received and must not block.

    What ``update`` and ``notification`` give is awaited before the next line is looked at.
    """

    @property
    def codec(self) -> Codec[Any, Any] | None:
        """What reads ``session/update`` for :meth:`update`; ``None``: updates are notifications like others."""
        ...

    def update(self, params: Any, line: bytes | None, /) -> Awaitable[object] | None:
        """Take the params of a ``session/update``, and its line if it was one of its own."""
        ...

    def notification(self, method: str, params: Raw | UnsetType, /) -> Awaitable[object] | None:
        """Take any other notification."""
        ...

    def request(self, incoming: Incoming) -> None:
        """Take a request, to be answered now or later."""
        ...

    def fault(self, error: TwofoldError) -> None:
        """Hear of a line that was wrong, or of what was left out of an update."""
        ...

    def ended(self, error: ConnectionLost) -> None:
        """Hear that nothing more will come."""
        ...


class Connection:
    """Speaks JSON-RPC over ``transport``. :meth:`run` it; it ends when the other side ends its output.

    ``lenient`` reads updates leniently (U-6): bad items are left out and told to :meth:`Handler.fault`. ``pace`` is
    awaited after what was read together, before more is read: whoever passes things on waits there for the next one.
    """

    def __init__(
        self,
        transport: Transport,
        handler: Handler,
        *,
        batches: bool = False,
        lenient: bool = True,
        pace: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.transport = transport
        self.handler: Handler = handler
        """Who is told; it may be another one from the next line on."""
        self._peer = Peer(batches=batches)
        self._lenient = lenient
        self._pace = pace
        self._replied = 0  # bytes of answers since everything sent was taken
        self._deaf: ConnectionLost | None = None  # why the other side takes nothing more, once it does not
        self._then: dict[Id, Then] = {}
        self._incoming: dict[Id, Incoming] = {}
        self._idle = asyncio.Event()  # nothing of the other side's waits for an answer
        self._idle.set()
        self.lost: ConnectionLost | None = None
        """Why nothing more comes, once nothing does."""

    # Speaking

    def send_request(self, method: str, params: Any, then: Then) -> Id | None:
        """Ask, and let the reader call ``then(result, error)`` when the answer's turn has come.

        Gives the id of the request, or ``None`` when the connection is gone: then ``then`` has been called.
        """
        if self.lost is not None:
            then(None, self.lost)
            return None
        id_, line = self._peer.request(method, _text(params))
        self._then[id_] = then
        self.transport.send(line)
        return id_

    async def request(self, method: str, params: Any, *, then: Callable[[Raw], object] | None = None) -> Raw:
        """Ask, and give the result. ``then`` is called with it in its place in the order received.

        Raises :class:`RequestError` for an answer that is an error, and :class:`ConnectionLost`. Cancelling the task
        that waits withdraws the request.
        """
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()

        def answered(result: Raw | None, error: TwofoldError | None) -> None:
            try:
                if error is not None:
                    raise error
                raw = Raw(b"{}") if result is None else result
                if then is not None:
                    then(raw)
            except BaseException as problem:
                if not future.done():
                    future.set_exception(problem)
            else:
                if not future.done():
                    future.set_result(raw)

        id_ = self.send_request(method, params, answered)
        try:
            return await future
        except asyncio.CancelledError:
            if id_ is not None:
                self.withdraw(id_)
            raise

    def withdraw(self, id: Id) -> None:
        """Withdraw a request; its answer is still told."""
        line = self._peer.cancel(id)
        if line is not None:
            self.transport.send(line)

    def notify(self, method: str, params: Any) -> None:
        """Say something that wants no answer."""
        self.transport.send(self._peer.notify(method, _text(params)))

    def send(self, line: bytes) -> None:
        """Send a whole line."""
        self.transport.send(line)

    async def drain(self) -> None:
        """Wait while the other side does not take what is sent."""
        await self.transport.drain()

    @property
    def in_flight(self) -> int:
        """How many requests of the other side are not answered yet."""
        return self._peer.in_flight

    async def answered(self) -> None:
        """Wait until every request of the other side is answered."""
        await self._idle.wait()

    # Listening

    async def run(self) -> None:
        """Read until the other side ends, telling the handler. Then its own requests fail with ConnectionLost."""
        lost: ConnectionLost | None = None
        try:
            while lines := await self._receive():
                for start in range(0, len(lines), _TURN):
                    for line in lines[start : start + _TURN]:
                        waiting = self._line(line)
                        if waiting is not None:
                            await self._wait(waiting)
                    await self._give_way()
                if self._pace is not None:
                    await self._pace()
        except ConnectionLost as error:
            lost = error
        finally:
            self.end(lost or ConnectionLost(f"{self.transport.name} ended the connection"))

    async def _receive(self) -> Sequence[bytes | LineTooLong]:
        if self._deaf is None:
            return await self.transport.receive()
        try:
            async with asyncio.timeout(_LAST_WORDS):
                return await self.transport.receive()
        except TimeoutError:
            raise self._deaf from None

    async def _give_way(self) -> None:
        """Let others run. Whoever floods us and does not take our answers is slowed: it is read no further.

        Who merely does not take what is sent to it is read on: it may want to cancel, or to end, or it takes nothing
        until it has said all that it has to say.
        """
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(None if self._replied > _UNREAD else 0):
                await self.transport.drain()
            self._replied = 0
        except TimeoutError:
            pass
        except ConnectionLost as error:  # what it said before that is still heard
            self._deaf = error

    def end(self, error: ConnectionLost) -> None:
        """Fail what waits for an answer, and tell the handler. The first reason counts."""
        if self.lost is not None:
            return
        self.lost = error
        waiting, self._then = self._then, {}
        for then in waiting.values():
            self._guard("an answer", then, None, error)
        self._guard("the end", self.handler.ended, error)

    async def close(self) -> None:
        """Send what waits, close, and fail what waits for an answer."""
        await self.transport.close()
        self.end(ConnectionLost("the connection was closed"))

    def _line(self, line: bytes | LineTooLong) -> Awaitable[object] | None:
        codec = self.handler.codec
        if codec is not None and type(line) is bytes:
            params = codec.decode_line(line)  # the quick way, for nearly every line
            if params is not None:
                try:
                    return self.handler.update(params, line)
                except Exception as error:
                    self._failed("an update", error)
                    return None
        events = self._peer.received(line)
        if len(events) != 1:
            return self._batch(events) if events else None
        return self._event(events[0], line if type(line) is bytes and not line.lstrip().startswith(b"[") else None)

    async def _batch(self, events: Sequence[Event]) -> None:
        """Take the events of a batch as if they had come in lines of their own."""
        for event in events:
            waiting = self._event(event, None)
            if waiting is not None:
                await self._wait(waiting)

    def _event(self, event: Event, line: bytes | None) -> Awaitable[object] | None:
        match event:
            case Notification("session/update", params) if self.handler.codec is not None:
                return self._update(params, line)
            case Notification(method, params):
                return self._guard("a notification", self.handler.notification, method, params)
            case Request(id, method, params):
                self._idle.clear()
                incoming = self._incoming[id] = Incoming(self, id, method, params)
                try:
                    self.handler.request(incoming)
                except Exception as error:
                    incoming.fail(error)
                    if not isinstance(error, TwofoldError):  # one of ours is the answer, and says it all
                        self._failed("a request", error)
            case Answer(id, _, result, answer):
                then = self._then.pop(id, None)
                if then is not None:
                    self._guard("an answer", then, result, answer)
            case Withdrawn(id):
                withdrawn = self._incoming.get(id)  # in a batch it may be answered already
                if withdrawn is not None:
                    withdrawn.withdrawn = True
                    if withdrawn.on_withdrawn is not None:
                        self._guard("a withdrawal", withdrawn.on_withdrawn)
            case Fault(fault, reply):
                if reply is not None:
                    self._reply(reply)
                self._fault(fault)
            case _:
                assert_never(event)
        return None

    def _update(self, raw: Raw | UnsetType, line: bytes | None) -> Awaitable[object] | None:
        codec = self.handler.codec
        assert codec is not None
        skipped: list[Skipped] | None = [] if self._lenient else None
        try:
            params = codec.decode_params(raw, skipped=skipped)
        except (Malformed, ParseError) as error:  # rejected as a whole: it changes nothing (U-6)
            self._fault(error)
            return None
        for one in skipped or ():
            self._fault(Malformed(one.path, expected=one.expected, found=one.found))
        # A line that holds what was left out is not the update any more.
        return self._guard("an update", self.handler.update, params, None if skipped else line)

    # Handlers fail: the conversation goes on

    def _guard(self, what: str, told: Callable[..., T], *facts: Any) -> T | None:
        try:
            return told(*facts)
        except Exception as error:
            self._failed(what, error)
            return None

    async def _wait(self, waiting: Awaitable[object]) -> None:
        try:
            await waiting
        except Exception as error:
            self._failed("what came", error)

    def _failed(self, what: str, error: Exception) -> None:
        """Tell of an error of ours; of others log where they came from."""
        if isinstance(error, TwofoldError):
            self._fault(error)
        else:
            log_failure(f"handling {what}", error)

    def _fault(self, error: TwofoldError) -> None:
        try:
            self.handler.fault(error)
        except Exception as problem:
            log_failure("handling a fault", problem)

    def _answer(self, id: Id, result: bytes) -> None:
        self._settle(id, self._peer.answer(id, result))

    def _refuse(self, id: Id, code: int, message: str, data: Any) -> None:
        self._settle(id, self._peer.refuse(id, code, message, data))

    def _settle(self, id: Id, line: bytes | None) -> None:
        self._incoming.pop(id, None)
        if line is not None:
            self._reply(line)
        if not self._peer.in_flight:
            self._idle.set()

    def _reply(self, line: bytes) -> None:
        self._replied += len(line)
        self.transport.send(line)


def _text(params: Any) -> bytes | None:
    if isinstance(params, Raw):
        return bytes(params)
    return None if params is None or params is UNSET else dumps(to_json(params))


def log_failure(what: str, error: BaseException) -> None:
    """Log where an exception came from, and not its text: that may quote anything (J-7)."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s failed with %s\n%s", what, type(error).__qualname__, frames)


def session_not_found(session_id: str) -> RequestError:
    """Give the error for a session that is not known here."""
    return RequestError(-32002, "Session not found", {"sessionId": session_id})


def method_not_found(method: str) -> RequestError:
    """Give the error for a method that is not known here."""
    return RequestError(-32601, "Method not found", {"method": method})


def wire_error(error: BaseException) -> tuple[int, str, Any]:
    """Turn an exception into a wire error: code, message, data. The words are fixed; no content gets into them."""
    match error:
        case RequestError():
            return error.code, error.message, error.data
        case Malformed():
            return -32602, "Invalid params", {"path": error.path, "expected": error.expected, "found": error.found}
        case ParseError():
            return -32602, "Invalid params", {"path": "$.params", "expected": "JSON", "found": error.reason}
        case asyncio.CancelledError():
            return CANCELLED, "Request cancelled", None
        case ConnectionLost():
            return -32603, "Internal error", {"reason": error.reason}
        case _:
            return -32603, "Internal error", None
