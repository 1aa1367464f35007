"""The two sides of a conversation in v2, whoever is there: a program over a connection, one that speaks v1, our own.

An agent and a client each see the other as a :class:`Side`. What a side is asked, it is asked by a :class:`Call`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from msgspec import UNSET, Raw, UnsetType

from twofold.exceptions import ConnectionLost, RequestError, TwofoldError
from twofold.jsonrpc import Id, dumps, loads
from twofold.runtime._connection import Connection, Incoming, Then, wire_error
from twofold.wire import Codec, Model, to_json, v1, v2

__all__ = ["Call", "Heard", "Inbound", "Remote", "Side", "as_error", "ask", "update_line", "v1_update_line"]


class Call:
    """A request under way: its ``method``, its raw ``params``, and what to do with the answer.

    :meth:`respond` or :meth:`fail` settles it; later answers are ignored. ``on_withdrawn`` is called when the one who
    asked withdraws it: it is still to be settled.
    """

    __slots__ = ("_then", "id", "method", "on_withdrawn", "params", "settled", "withdrawn")

    def __init__(self, method: str, params: Raw | UnsetType | Any, then: Then) -> None:
        self.method = method
        self.params: Raw | UnsetType = params if isinstance(params, Raw | UnsetType) else Raw(dumps(to_json(params)))
        self._then = then
        self.id: Id | None = None  # of the request that carries it over a connection
        self.settled = False
        self.withdrawn = False
        self.on_withdrawn: Callable[[], object] | None = None

    @classmethod
    def of(cls, incoming: Incoming) -> Call:
        """Make a call of what came over a connection."""

        def then(result: Raw | None, error: TwofoldError | None) -> None:
            if error is not None:
                incoming.fail(error)
            else:
                incoming.respond_raw(b"{}" if result is None else bytes(result))

        call = cls(incoming.method, incoming.params, then)
        incoming.on_withdrawn = call.withdraw
        return call

    def json(self) -> Any:
        """Give the params as plain JSON values: an object, empty when there are none."""
        return {} if isinstance(self.params, UnsetType) else loads(bytes(self.params))

    def respond(self, result: Raw | Model | dict[str, Any] | None = None) -> None:
        """Settle it with a result."""
        if not self.settled:
            self.settled = True
            raw = result if isinstance(result, Raw) else Raw(dumps(to_json({} if result is None else result)))
            self._then(raw, None)

    def fail(self, error: BaseException) -> None:
        """Settle it with an error."""
        if not self.settled:
            self.settled = True
            self._then(None, as_error(error))

    def settle(self, result: Raw | None, error: TwofoldError | None) -> None:
        """Settle it with the answer to another request: what is asked in its place."""
        if error is not None:
            self.fail(error)
        else:
            self.respond(result)

    def withdraw(self) -> None:
        """Say that whoever asked does not want the answer any more."""
        if not self.settled and not self.withdrawn:
            self.withdrawn = True
            if self.on_withdrawn is not None:
                self.on_withdrawn()


def as_error(error: BaseException) -> TwofoldError:
    """Give an error that can be told to the other side: its own words, or fixed ones."""
    if isinstance(error, RequestError | ConnectionLost):
        return error
    code, message, data = wire_error(error)
    return RequestError(code, message, data)


class Side(Protocol):
    """One side of a conversation in v2, as the other one sees it. No method waits; order is that of the calls."""

    def request(self, call: Call) -> None:
        """Ask. The call is settled now or later; withdraw it with :meth:`Call.withdraw`."""
        ...

    def notify(self, method: str, params: Any) -> None:
        """Say something that wants no answer; ``params`` raw or JSON."""
        ...

    def update(self, params: v2.UpdateSessionNotification, line: bytes | None) -> Awaitable[object] | None:
        """Tell a client of an update; ``line`` is the whole message if there is one. Await what it gives, if any."""
        ...

    async def drain(self) -> None:
        """Wait while this side does not take what it is told. Raises :class:`ConnectionLost` when it never will."""
        ...


def ask(side: Side, call: Call) -> None:
    """Ask a side; what it raises is its answer."""
    try:
        side.request(call)
    except Exception as error:
        call.fail(error)


def update_line(session_id: str, raw: bytes) -> bytes:
    """Give the message that carries an update's own bytes."""
    return b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%b,"update":%b}}' % (
        dumps(session_id),
        raw,
    )


def v1_update_line(params: v1.SessionNotification) -> bytes:
    """Give the message that carries an update of v1."""
    return b'{"jsonrpc":"2.0","method":"session/update","params":%b}' % v1.encode(params)


class Remote:
    """A side at the other end of a connection that speaks v2."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def request(self, call: Call) -> None:
        """Send the request; its answer settles the call."""

        def withdrawn() -> None:
            if id_ is not None:
                self._connection.withdraw(id_)

        id_ = self._connection.send_request(call.method, call.params, call.settle)
        call.id = id_
        call.on_withdrawn = withdrawn

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        self._connection.notify(method, params)

    def update(self, params: v2.UpdateSessionNotification, line: bytes | None) -> Awaitable[object] | None:
        """Send an update."""
        self._connection.send(update_line(params.session_id, v2.encode(params.update)) if line is None else line)
        return None

    async def drain(self) -> None:
        """Wait while the other end does not read."""
        await self._connection.drain()


class Heard:
    """Tells what comes over a connection, each kind to a function; requests come as calls."""

    def __init__(
        self,
        codec: Codec[Any, Any] | None,
        *,
        update: Callable[[Any, bytes | None], Awaitable[object] | None],
        notification: Callable[[str, Raw | UnsetType], None],
        request: Callable[[Call], object],
        fault: Callable[[TwofoldError], object],
        ended: Callable[[ConnectionLost], object],
    ) -> None:
        self.codec = codec
        self.update = update
        self.notification = notification
        self._request = request
        self._fault = fault
        self._ended = ended

    def request(self, incoming: Incoming) -> None:
        """Pass a request on."""
        self._request(Call.of(incoming))

    def fault(self, error: TwofoldError) -> None:
        """Tell of a fault."""
        self._fault(error)

    def ended(self, error: ConnectionLost) -> None:
        """Tell of the end."""
        self._ended(error)


class Inbound(Heard):
    """Tells a side what comes over a connection that speaks v2."""

    def __init__(
        self,
        side: Side,
        *,
        ended: Callable[[ConnectionLost], object],
        fault: Callable[[TwofoldError], object],
    ) -> None:
        super().__init__(
            v2.CODEC,
            update=side.update,
            notification=lambda method, params: side.notify(method, {} if params is UNSET else params),
            request=side.request,
            fault=fault,
            ended=ended,
        )
