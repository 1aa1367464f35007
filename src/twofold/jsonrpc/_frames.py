"""One line to one JSON-RPC 2.0 frame. Params, results and errors stay raw: what they mean is for ``wire``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from twofold.exceptions import InvalidFrame, ParseError
from twofold.jsonrpc._json import dumps, loads, too_deep

__all__ = ["Batch", "ErrorResponse", "Frame", "Id", "Notification", "Request", "Response", "encode", "parse"]

Id: TypeAlias = int | str
"""A request id. (Only an error that answers an unreadable request has the id ``None``.)"""


class Request(Struct, frozen=True, gc=False):
    """A call that wants an answer under ``id``."""

    id: Id
    method: str
    params: Raw | UnsetType = UNSET


class Notification(Struct, frozen=True, gc=False):
    """A call that wants none."""

    method: str
    params: Raw | UnsetType = UNSET


class Response(Struct, frozen=True, gc=False):
    """The successful answer to the request ``id``."""

    id: Id
    result: Raw


class ErrorResponse(Struct, frozen=True, gc=False):
    """The failed answer to the request ``id``; ``error`` is the raw error object, ``code`` and ``message`` read from it."""

    id: Id | None
    code: int
    message: str
    error: Raw


Frame: TypeAlias = Request | Notification | Response | ErrorResponse


class Batch(Struct, frozen=True):
    """An array of frames. Those that are no frame stand there as the error that says so."""

    frames: Sequence[Frame | InvalidFrame]


_members: Final = msgspec.json.Decoder(dict[str, Raw])
_items: Final = msgspec.json.Decoder(list[Raw])


def parse(line: bytes) -> Frame | Batch:
    """Read one line as a frame, or as a batch when it is an array.

    Raises :class:`~twofold.exceptions.ParseError` when the line is no JSON text in UTF-8 and
    :class:`~twofold.exceptions.InvalidFrame` when it is JSON but no JSON-RPC 2.0 message. An empty array is an
    invalid frame. Members that JSON-RPC does not define are ignored.
    """
    raws = _split(line)
    if isinstance(raws, dict):
        return _frame(raws)
    if not raws:
        raise InvalidFrame("a batch has at least one message, this one is empty")
    frames: list[Frame | InvalidFrame] = []
    for raw in raws:
        try:
            item = _split(bytes(raw))
            if not isinstance(item, dict):
                raise InvalidFrame("a message in a batch is an object, not an array")
            frames.append(_frame(item))
        except InvalidFrame as error:
            frames.append(error)
    return Batch(frames)


def _split(line: bytes) -> dict[str, Raw] | list[Raw]:
    """Give the members of an object, or the items of an array, still raw but known to be JSON in UTF-8."""
    try:
        str(line, "utf-8")  # raw slices are not checked by the decoder
    except UnicodeDecodeError as error:
        raise ParseError("the text is not valid UTF-8", offset=error.start) from None
    first = line.lstrip(b" \t\r\n")[:1]
    try:
        if too_deep(line):
            loads(line)  # raises
        if first == b"{":
            return _members.decode(line)
        if first == b"[":
            return _items.decode(line)
    except (msgspec.DecodeError, RecursionError):
        pass
    value = loads(line)
    if isinstance(value, dict):
        return {key: Raw(dumps(member)) for key, member in value.items()}
    if isinstance(value, list):
        return [Raw(dumps(item)) for item in value]
    raise InvalidFrame("a message is a JSON object, not a bare value")


def _frame(members: dict[str, Raw]) -> Frame:
    def value(name: str) -> Any:
        raw = members.get(name)
        return UNSET if raw is None else loads(bytes(raw))

    id_ = value("id")
    has_id = type(id_) is int or isinstance(id_, str)
    known_id = id_ if has_id else None
    if value("jsonrpc") != "2.0":
        raise InvalidFrame('the member "jsonrpc" must be "2.0"', id=known_id)
    if "method" in members:
        method = value("method")
        if not isinstance(method, str):
            raise InvalidFrame('the member "method" must be a string', id=known_id)
        if "result" in members or "error" in members:
            raise InvalidFrame('a call has neither "result" nor "error"', id=known_id)
        params = members.get("params", UNSET)
        if isinstance(params, Raw) and bytes(params).lstrip(b" \t\r\n")[:1] not in (b"{", b"["):
            raise InvalidFrame('the member "params" must be an object or an array', id=known_id)
        params = UNSET if params is UNSET else params.copy()
        if id_ is UNSET:
            return Notification(method, params)
        if not has_id:
            raise InvalidFrame("a request id must be a string or an integer")
        return Request(id_, method, params)
    if "result" in members and "error" in members:
        raise InvalidFrame('an answer has either "result" or "error", not both', id=known_id)
    if "result" in members:
        if not has_id:
            raise InvalidFrame("an answer needs the id of its request, a string or an integer")
        return Response(id_, members["result"].copy())
    if "error" in members:
        if not has_id and id_ is not None:
            raise InvalidFrame("an error answer needs the id of its request, or null")
        raw = members["error"]
        error = loads(bytes(raw))
        code = error.get("code") if isinstance(error, dict) else None
        message = error.get("message") if isinstance(error, dict) else None
        if type(code) is not int or not isinstance(message, str):
            raise InvalidFrame('the member "error" must be an object with an integer "code" and a string "message"', id=known_id)
        return ErrorResponse(known_id, code, message, raw.copy())
    raise InvalidFrame('a message has a "method", a "result" or an "error"; this one has none', id=known_id)


def encode(frame: Frame) -> bytes:
    """Write ``frame`` as one line, without its newline."""
    members: dict[str, Any] = {"jsonrpc": "2.0"}
    match frame:
        case Request(id, method, params) if params is not UNSET:
            members |= {"id": id, "method": method, "params": params}
        case Request(id, method):
            members |= {"id": id, "method": method}
        case Notification(method, params) if params is not UNSET:
            members |= {"method": method, "params": params}
        case Notification(method):
            members |= {"method": method}
        case Response(id, result):
            members |= {"id": id, "result": result}
        case ErrorResponse(id, _, _, error):
            members |= {"id": id, "error": error}
    return msgspec.json.encode(members)
