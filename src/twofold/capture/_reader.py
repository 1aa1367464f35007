"""One line of captured traffic to what it means for sessions, whatever envelope it came in.

Told apart line by line: a bare update object; ``session/update`` params; a JSON-RPC message or batch array; a capture
record ``{"dir": …, "line": "<raw line>"}``; a conductor trace event (``type``, ``method``, ``params``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from twofold.exceptions import InvalidFrame, Malformed, ParseError
from twofold.jsonrpc import (
    Batch,
    ErrorResponse,
    Frame,
    Notification,
    Request,
    Response,
    dumps,
    loads,
    parse,
)
from twofold.wire import Skipped, is_object, v1, v2

__all__ = [
    "Answered",
    "Asked",
    "Counts",
    "Event",
    "Problem",
    "Reader",
    "Updated",
    "Version",
    "Wrap",
]

Version: TypeAlias = Literal[1, 2]

Wrap: TypeAlias = Callable[[Any], Any]
"""Plain JSON values to the JSON of a whole line."""

_CLIENT_METHODS: Final = ("session/request_permission", "fs/", "terminal/", "elicitation/", "session/update")
"""What an agent calls; everything else is called by a client. Only for traffic that does not say who sent it."""


class Problem(Struct, frozen=True, gc=False):
    """One fault of one line. ``message`` and ``path`` never quote a value."""

    line: int
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message

    @classmethod
    def of(cls, line: int, error: Exception, *, under: str = "$") -> Problem:
        """Give the fault that an exception of twofold's reports; its path begins at ``under``."""
        if isinstance(error, Malformed):
            return cls(line, error.path.replace("$", under, 1), f"expected {error.expected}, found {error.found}")
        return cls(line, "$", str(error))


class Updated(Struct, frozen=True):
    """An update of a session (``None``: the line does not say which), in the version spoken.

    ``wrap`` puts another update, as plain JSON values, into the envelope that this one came in; ``None`` for a tool
    call that a permission request shows: no line is about that alone.
    """

    session_id: str | None
    update: v1.SessionUpdate | v2.SessionUpdate
    version: Version
    path: str = "$"
    wrap: Wrap | None = None


class Asked(Struct, frozen=True):
    """A request. ``key`` pairs it with its answer; ``wrap`` puts params of a ``session/update`` into its envelope."""

    key: tuple[str, object]
    method: str
    params: Any
    line: int
    wrap: Wrap


class Answered(Struct, frozen=True):
    """The answer to an earlier request; ``ok`` when it was no error."""

    asked: Asked
    ok: bool
    result: Any
    wrap: Wrap


Event: TypeAlias = Updated | Asked | Answered | Problem


class _Record(Struct, frozen=True, gc=False):
    dir: str
    line: str


_record_decoder: Final = msgspec.json.Decoder(_Record)


class Counts(Struct):
    """How many lines (or batched messages) of each kind there were."""

    updates: int = 0
    requests: int = 0
    responses: int = 0
    notifications: int = 0
    other: int = 0


class Reader:
    """Reads a stream of captured lines, in order, as events.

    The protocol version is that of the ``initialize`` answer in the stream, or ``version`` when given; before anything
    is known it is ``default``. An answer of 2 without ``info`` is not v2: reported, and read as 1. With ``lenient``,
    bad items and bad ``_meta`` values are left out of an update and reported (U-6).
    """

    def __init__(self, *, version: Version | None = None, default: Version = 2, lenient: bool = False) -> None:
        self._given = version
        self._lenient = lenient
        self.version: Version = version or default
        self.counts = Counts()
        self._agreed = version is not None  # whether the version is known, and not only assumed
        self._asked: dict[tuple[str, object], Asked] = {}

    def read(self, line: bytes, number: int, *, sender: Literal["", "c2a", "a2c"] = "") -> Iterator[Event]:
        """Give the events of line ``number`` (from 1). Never raises for what the line holds.

        ``sender`` says who sent it, where that is known: then it is a message as it stands.
        """
        if not line.strip():
            return
        try:
            if sender:
                yield from self._heard(line, number, sender)
                return
            yield from self._record(line, number)
        except (ParseError, InvalidFrame) as error:
            yield Problem.of(number, error)

    def _heard(self, line: bytes, number: int, sender: str) -> Iterator[Event]:
        """A message of a live connection."""
        params = (v2.CODEC if self.version == 2 else v1.CODEC).decode_line(line)
        if params is None:
            yield from self._value(line, number, sender, _itself)
        else:
            self.counts.updates += 1
            wrap = _after(lambda fresh: _message_of(loads(line), fresh), _itself)
            yield Updated(params.session_id, params.update, self.version, "$.params.update", wrap)

    def _record(self, line: bytes, number: int) -> Iterator[Event]:
        """A capture record; anything else is its own line."""
        try:
            record = _record_decoder.decode(line)
        except (msgspec.MsgspecError, RecursionError):
            yield from self._value(line, number, "", _itself)
            return
        inner = record.line.encode("utf-8")

        def wrap(value: Any) -> Any:  # whatever is wrapped is an update, and those are the agent's
            return {**loads(line), "dir": "a2c", "line": dumps(value).decode("utf-8")}

        codec = v2.CODEC if self.version == 2 else v1.CODEC
        params = codec.decode_line(inner)
        if params is None:
            yield from self._value(inner, number, record.dir or "?", wrap)
        else:
            self.counts.updates += 1
            update = _after(lambda fresh: _message_of(loads(inner), fresh), wrap)
            yield Updated(params.session_id, params.update, self.version, "$.params.update", update)

    def _value(self, line: bytes, number: int, sender: str, wrap: Wrap) -> Iterator[Event]:
        value = loads(line)
        if isinstance(value, list):
            yield from self._message(line, value, number, sender, wrap)
        elif not is_object(value):
            raise InvalidFrame("expected an object or an array, found a bare value")
        elif "jsonrpc" in value or ("method" in value and "type" not in value):
            yield from self._message(line, value, number, sender, wrap)
        elif "sessionUpdate" in value:
            yield from self._update(None, value, number, "$", wrap)
        elif "update" in value and "sessionId" in value:
            yield from self._params(value, number, "$", _after(lambda update: {**value, "update": update}, wrap))
        elif value.get("type") in ("request", "response", "notification"):
            yield from self._trace(value, number, wrap)
        else:
            self.counts.other += 1

    def _message(self, line: bytes, value: Any, number: int, sender: str, wrap: Wrap) -> Iterator[Event]:
        frame = parse(line)
        if not isinstance(frame, Batch):
            yield from self._frame(frame, value, number, sender, wrap)
            return
        for index, one in enumerate(frame.frames):
            if isinstance(one, InvalidFrame):
                yield Problem(number, f"$[{index}]", str(one))
            else:
                batch = _after(lambda message: [message], wrap)
                yield from self._frame(one, value[index], number, sender, batch, f"$[{index}].params")

    def _frame(
        self, frame: Frame, value: Any, number: int, sender: str, wrap: Wrap, path: str = "$.params"
    ) -> Iterator[Event]:
        said = _after(lambda params: {"jsonrpc": "2.0", "method": "session/update", "params": params}, wrap)
        match frame:
            case Notification(method="session/update", params=params):
                if not isinstance(params, Raw):
                    self.counts.notifications += 1
                    yield Problem(number, path, "expected an object, found nothing")
                else:
                    update = _after(functools.partial(_message_of, value), wrap)
                    yield from self._params(loads(bytes(params)), number, path, update)
            case Notification():
                self.counts.notifications += 1
            case Request(id=id_, method=method, params=params):
                given = loads(bytes(params)) if isinstance(params, Raw) else None
                yield from self._request(sender or _sender_of(method), id_, method, given, number, said)
            case Response(id=id_, result=result):
                yield from self._answer(sender, id_, True, loads(bytes(result)), number, said)
            case ErrorResponse(id=id_):
                yield from self._answer(sender, id_, False, None, number, said)

    def _trace(self, event: dict[str, Any], number: int, wrap: Wrap) -> Iterator[Event]:
        """A trace shows one message once a hop: what a proxy sends on has been seen before."""
        sender, method, params = event.get("from"), event.get("method"), event.get("params")
        kind = event["type"]

        def said(params: Any) -> Any:
            shared = {name: event[name] for name in ("ts", "protocol", "session") if name in event}
            return wrap(
                {
                    "type": "notification",
                    **shared,
                    "from": "Agent",
                    "to": "Client",
                    "method": "session/update",
                    "params": params,
                }
            )

        if event.get("protocol", "acp") != "acp" or (kind != "response" and str(sender).lower().startswith("proxy")):
            self.counts.other += 1
        elif kind == "response":
            yield from self._answer("", event.get("id"), not event.get("is_error"), event.get("payload"), number, said)
        elif not isinstance(method, str):
            yield Problem(number, "$.method", "expected a string in a trace event, found something else")
        elif kind == "request":
            yield from self._request(_sender_of(method), event.get("id"), method, params, number, said)
        elif method == "session/update":
            yield from self._params(params, number, "$.params", _after(functools.partial(_message_of, event), wrap))
        else:
            self.counts.notifications += 1

    def _request(self, sender: str, id_: object, method: str, params: Any, number: int, said: Wrap) -> Iterator[Event]:
        self.counts.requests += 1
        asked = Asked((sender, dumps(id_)), method, params, number, said)
        self._asked[asked.key] = asked
        yield asked
        if method == "session/request_permission" and is_object(params):
            yield from self._permission(params, number)

    def _permission(self, params: dict[str, Any], number: int) -> Iterator[Event]:
        """The tool call that a permission is asked for is shown like an update of it."""
        session_id = params.get("sessionId")
        if not isinstance(session_id, str):
            return
        call, path = params.get("toolCall"), "$.params.toolCall"
        if self.version == 2:
            subject = params.get("subject")
            if not is_object(subject) or subject.get("type") != "tool_call":
                return
            call, path = subject.get("toolCall"), "$.params.subject.toolCall"
        if is_object(call):
            yield from self._update(session_id, {**call, "sessionUpdate": "tool_call_update"}, number, path, None)

    def _answer(self, sender: str, id_: object, ok: bool, result: Any, number: int, said: Wrap) -> Iterator[Event]:
        self.counts.responses += 1
        key = dumps(id_)
        candidates = [one for one in self._asked if one[1] == key and one[0] != (sender or None)]
        if not candidates:
            return
        asked = self._asked.pop(candidates[-1])
        if asked.method == "initialize" and ok:
            yield from self._initialized(result, number)
        yield Answered(asked, ok, result, said)

    def _initialized(self, result: Any, number: int) -> Iterator[Event]:
        answer: dict[str, Any] = result if is_object(result) else {}
        version = answer.get("protocolVersion")
        claims_v2 = version == 2 and type(version) is int
        is_v2 = claims_v2 and is_object(answer.get("info"))
        if claims_v2 and not is_v2:
            yield Problem(
                number,
                "$.result.info",
                'the agent answers protocolVersion 2 without the required "info", so it does not speak v2; read as v1',
            )
        self._agreed = True
        if self._given is None:
            self.version = 2 if is_v2 else 1

    def _params(self, value: Any, number: int, path: str, wrap: Wrap) -> Iterator[Event]:
        skipped: list[Skipped] | None = [] if self._lenient else None
        codec = v2.CODEC if self.version == 2 else v1.CODEC
        self.counts.updates += 1
        try:
            params = codec.read_params(value, path=path, skipped=skipped)
        except Malformed as error:
            yield self._problem(number, error)
            return
        yield from _left_out(number, skipped)
        yield Updated(params.session_id, params.update, self.version, f"{path}.update", wrap)

    def _update(self, session_id: str | None, value: Any, number: int, path: str, wrap: Wrap | None) -> Iterator[Event]:
        skipped: list[Skipped] | None = [] if self._lenient else None
        codec = v2.CODEC if self.version == 2 else v1.CODEC
        self.counts.updates += wrap is not None
        try:
            update: Any = codec.read_update(value, path=path, skipped=skipped)
        except Malformed as error:
            yield self._problem(number, error)
            return
        yield from _left_out(number, skipped)
        yield Updated(session_id, update, self.version, path, wrap)

    def _problem(self, number: int, error: Malformed) -> Problem:
        problem = Problem.of(number, error)
        if self.version == 2 and not self._agreed and error.path.endswith("messageId") and error.found == "nothing":
            hint = f"{problem.message} (ACP v1 traffic may omit it: is this v1?)"
            return Problem(number, problem.path, hint)
        return problem


def _sender_of(method: str) -> str:
    return "a2c" if method.startswith(_CLIENT_METHODS) else "c2a"


def _left_out(number: int, skipped: list[Skipped] | None) -> Iterator[Problem]:
    for one in skipped or ():
        yield Problem(number, one.path, f"expected {one.expected}, found {one.found}; left out")


def _itself(value: Any) -> Any:
    return value


def _after(inner: Wrap, outer: Wrap) -> Wrap:
    return lambda value: outer(inner(value))


def _message_of(message: dict[str, Any], update: Any) -> dict[str, Any]:
    """Give a ``session/update`` message with another update in it."""
    return {**message, "params": {**message["params"], "update": update}}
