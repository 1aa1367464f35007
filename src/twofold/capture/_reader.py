"""One line of captured traffic to what it means for sessions, whatever envelope it came in.

Told apart line by line: a bare update object; ``session/update`` params; a JSON-RPC message or batch array; a capture
record ``{"dir": …, "line": "<raw line>"}``; a conductor trace event (``type``, ``method``, ``params``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

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
from twofold.wire import Skipped, v1, v2

__all__ = [
    "Answered",
    "Asked",
    "Counts",
    "Event",
    "Problem",
    "Reader",
    "Updated",
    "Version",
]

Version: TypeAlias = Literal[1, 2]

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
    def of(cls, line: int, error: Exception) -> Problem:
        """Give the fault that an exception of twofold's reports."""
        if isinstance(error, Malformed):
            return cls(line, error.path, f"expected {error.expected}, found {error.found}")
        return cls(line, "$", str(error))


class Updated(Struct, frozen=True):
    """An update of a session (``None``: the line does not say which), in the version spoken."""

    session_id: str | None
    update: v1.SessionUpdate | v2.SessionUpdate
    version: Version
    path: str = "$"


class Asked(Struct, frozen=True):
    """A request. ``key`` pairs it with its answer."""

    key: tuple[str, object]
    method: str
    params: Any
    line: int


class Answered(Struct, frozen=True):
    """The answer to an earlier request; ``ok`` when it was no error."""

    asked: Asked
    ok: bool
    result: Any


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
    is known it is 2. An answer of 2 without ``info`` is not v2: reported, and read as 1. With ``lenient``, bad items
    and bad ``_meta`` values are left out of an update and reported (U-6).
    """

    def __init__(self, *, version: Version | None = None, lenient: bool = False) -> None:
        self._given = version
        self._lenient = lenient
        self.version: Version = version or 2
        self.counts = Counts()
        self._asked: dict[tuple[str, object], Asked] = {}

    def read(self, line: bytes, number: int) -> Iterator[Event]:
        """Give the events of line ``number`` (from 1). Never raises for what the line holds."""
        if not line.strip():
            return
        try:
            yield from self._record(line, number)
        except (ParseError, InvalidFrame) as error:
            yield Problem.of(number, error)

    def _record(self, line: bytes, number: int) -> Iterator[Event]:
        """A capture record, quickly; anything else by the long way."""
        try:
            record = _record_decoder.decode(line)
        except (msgspec.MsgspecError, RecursionError):
            yield from self._value(line, number, "")
            return
        inner = record.line.encode("utf-8")
        codec = v2.CODEC if self.version == 2 else v1.CODEC
        params = codec.decode_line(inner)
        if params is None:
            yield from self._value(inner, number, record.dir or "?")
        else:
            self.counts.updates += 1
            yield Updated(params.session_id, params.update, self.version, "$.params.update")

    def _value(self, line: bytes, number: int, sender: str) -> Iterator[Event]:
        value = loads(line)
        if isinstance(value, list):
            yield from self._message(line, number, sender)
        elif not isinstance(value, dict):
            raise InvalidFrame("expected an object or an array, found a bare value")
        elif "jsonrpc" in value or ("method" in value and "type" not in value):
            yield from self._message(line, number, sender)
        elif "sessionUpdate" in value:
            yield from self._update(None, value, number, "$")
        elif "update" in value and "sessionId" in value:
            yield from self._params(value, number, "$")
        elif value.get("type") in ("request", "response", "notification"):
            yield from self._trace(value, number)
        else:
            self.counts.other += 1

    def _message(self, line: bytes, number: int, sender: str) -> Iterator[Event]:
        frame = parse(line)
        if not isinstance(frame, Batch):
            yield from self._frame(frame, number, sender)
            return
        for index, one in enumerate(frame.frames):
            if isinstance(one, InvalidFrame):
                yield Problem(number, f"$[{index}]", str(one))
            else:
                yield from self._frame(one, number, sender, f"$[{index}].params")

    def _frame(self, frame: Frame, number: int, sender: str, path: str = "$.params") -> Iterator[Event]:
        match frame:
            case Notification(method="session/update", params=params):
                if isinstance(params, bytes) or not params:
                    self.counts.notifications += 1
                    yield Problem(number, path, "expected an object, found nothing")
                else:
                    yield from self._params(loads(bytes(params)), number, path)
            case Notification():
                self.counts.notifications += 1
            case Request(id=id_, method=method, params=params):
                value = loads(bytes(params)) if params else None
                yield from self._request(sender or _sender_of(method), id_, method, value, number)
            case Response(id=id_, result=result):
                yield from self._answer(sender, id_, True, loads(bytes(result)), number)
            case ErrorResponse(id=id_):
                yield from self._answer(sender, id_, False, None, number)

    def _trace(self, event: dict[str, Any], number: int) -> Iterator[Event]:
        """A trace shows one message once a hop: what a proxy sends on has been seen before."""
        sender, method, params = event.get("from"), event.get("method"), event.get("params")
        kind = event["type"]
        if event.get("protocol", "acp") != "acp" or (kind != "response" and str(sender).lower().startswith("proxy")):
            self.counts.other += 1
        elif kind == "response":
            yield from self._answer("", event.get("id"), not event.get("is_error"), event.get("payload"), number)
        elif not isinstance(method, str):
            yield Problem(number, "$.method", "expected a string in a trace event, found something else")
        elif kind == "request":
            yield from self._request(_sender_of(method), event.get("id"), method, params, number)
        elif method == "session/update":
            yield from self._params(params, number, "$.params")
        else:
            self.counts.notifications += 1

    def _request(self, sender: str, id_: object, method: str, params: Any, number: int) -> Iterator[Event]:
        self.counts.requests += 1
        asked = Asked((sender, dumps(id_)), method, params, number)
        self._asked[asked.key] = asked
        yield asked
        if method == "session/request_permission" and isinstance(params, dict):
            yield from self._permission(params, number)

    def _permission(self, params: dict[str, Any], number: int) -> Iterator[Event]:
        """The tool call that a permission is asked for is shown like an update of it."""
        session_id = params.get("sessionId")
        if not isinstance(session_id, str):
            return
        call, path = params.get("toolCall"), "$.params.toolCall"
        if self.version == 2:
            subject = params.get("subject")
            if not isinstance(subject, dict) or subject.get("type") != "tool_call":
                return
            call, path = subject.get("toolCall"), "$.params.subject.toolCall"
        if isinstance(call, dict):
            yield from self._update(session_id, {**call, "sessionUpdate": "tool_call_update"}, number, path, counted=False)

    def _answer(self, sender: str, id_: object, ok: bool, result: Any, number: int) -> Iterator[Event]:
        self.counts.responses += 1
        key = dumps(id_)
        candidates = [one for one in self._asked if one[1] == key and one[0] != (sender or None)]
        if not candidates:
            return
        asked = self._asked.pop(candidates[-1])
        if asked.method == "initialize" and ok:
            yield from self._initialized(result, number)
        yield Answered(asked, ok, result)

    def _initialized(self, result: Any, number: int) -> Iterator[Event]:
        answer = result if isinstance(result, dict) else {}
        version = answer.get("protocolVersion")
        claims_v2 = version == 2 and type(version) is int
        is_v2 = claims_v2 and isinstance(answer.get("info"), dict)
        if claims_v2 and not is_v2:
            yield Problem(
                number,
                "$.result.info",
                'the agent answers protocolVersion 2 without the required "info", so it does not speak v2; read as v1',
            )
        if self._given is None:
            self.version = 2 if is_v2 else 1

    def _params(self, value: Any, number: int, path: str) -> Iterator[Event]:
        skipped: list[Skipped] | None = [] if self._lenient else None
        codec = v2.CODEC if self.version == 2 else v1.CODEC
        self.counts.updates += 1
        try:
            params = codec.read_params(value, path=path, skipped=skipped)
        except Malformed as error:
            yield self._problem(number, error)
            return
        yield from (Problem(number, one.path, f"expected {one.expected}, found {one.found}; skipped") for one in skipped or ())
        yield Updated(params.session_id, params.update, self.version, f"{path}.update")

    def _update(
        self, session_id: str | None, value: Any, number: int, path: str, *, counted: bool = True
    ) -> Iterator[Event]:
        skipped: list[Skipped] | None = [] if self._lenient else None
        codec = v2.CODEC if self.version == 2 else v1.CODEC
        self.counts.updates += counted
        try:
            update: Any = codec.read_update(value, path=path, skipped=skipped)
        except Malformed as error:
            yield self._problem(number, error)
            return
        yield from (Problem(number, one.path, f"expected {one.expected}, found {one.found}; skipped") for one in skipped or ())
        yield Updated(session_id, update, self.version, path)

    def _problem(self, number: int, error: Malformed) -> Problem:
        problem = Problem.of(number, error)
        if self.version == 2 and self._given is None and error.path.endswith("messageId") and error.found == "nothing":
            hint = f"{problem.message} (ACP v1 traffic may omit it: is this v1?)"
            return Problem(number, problem.path, hint)
        return problem


def _sender_of(method: str) -> str:
    return "a2c" if method.startswith(_CLIENT_METHODS) else "c2a"
