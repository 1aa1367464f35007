"""The two sides of a conversation in v2, whoever is there: a program over a connection, one that speaks v1, our own.

An agent and a client each see the other as a :class:`Side`. What a side is asked, it is asked by a :class:`Call`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

from msgspec import UNSET, Raw, UnsetType

from twofold.exceptions import ConnectionLost, RequestError, TwofoldError
from twofold.jsonrpc import Id, dumps, loads
from twofold.runtime._connection import Connection, Incoming, wire_error
from twofold.wire import Codec, Model, to_json, v2

__all__ = ["Call", "Inbound", "Remote", "Side", "Then", "as_error", "ask", "update_line"]

Then: TypeAlias = Callable[[Raw | None, TwofoldError | None], object]
"""What is called with the answer to a request, in its place in the order received: a result, or an error."""


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


class Remote:
    """A side at the other end of a connection that speaks v2."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def request(self, call: Call) -> None:
        """Send the request; its answer settles the call."""

        def then(result: Raw | None, error: TwofoldError | None) -> None:
            if error is not None:
                call.fail(error)
            else:
                call.respond(result)

        def withdrawn() -> None:
            if id_ is not None:
                self._connection.withdraw(id_)

        id_ = self._connection.send_request(call.method, call.params, then)
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


class Inbound:
    """Tells a side what comes over a connection that speaks v2."""

    codec: Codec[Any, Any] | None = v2.CODEC
    """What reads updates: v2's."""

    def __init__(
        self,
        side: Side,
        *,
        ended: Callable[[ConnectionLost], object],
        fault: Callable[[TwofoldError], object] | None = None,
    ) -> None:
        self.update = side.update
        self._side = side
        self._ended = ended
        self._fault = fault

    def notification(self, method: str, params: Raw | UnsetType) -> Awaitable[object] | None:
        """Pass a notification on."""
        self._side.notify(method, {} if params is UNSET else params)
        return None

    def request(self, incoming: Incoming) -> None:
        """Pass a request on."""
        self._side.request(Call.of(incoming))

    def fault(self, error: TwofoldError) -> None:
        """Tell of a fault."""
        if self._fault is not None:
            self._fault(error)

    def ended(self, error: ConnectionLost) -> None:
        """Tell of the end."""
        self._ended(error)
