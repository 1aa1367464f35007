"""One line to one JSON-RPC 2.0 frame. Params, results and errors stay raw: what they mean is for ``wire``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from twofold.exceptions import InvalidFrame, ParseError
from twofold.jsonrpc._json import cut, dumps, loads, too_deep

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
    """The failed answer to the request ``id``; ``error`` is the raw object that ``code`` and ``message`` stand in."""

    id: Id | None
    code: int
    message: str
    error: Raw


Frame: TypeAlias = Request | Notification | Response | ErrorResponse


class Batch(Struct, frozen=True):
    """An array of frames. Those that are no frame stand there as the error that says so."""

    frames: Sequence[Frame | InvalidFrame]


class _Notification(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """A notification as nearly all of them are. What is not of this shape is judged member by member."""

    jsonrpc: Literal["2.0"]
    method: str
    params: Raw


_notification: Final = msgspec.json.Decoder(_Notification)
_members: Final = msgspec.json.Decoder(dict[str, Raw])
_items: Final = msgspec.json.Decoder(list[Raw])


def parse(line: bytes) -> Frame | Batch:
    """Read one line as a frame, or as a batch when it is an array.

    Raises :class:`~twofold.exceptions.ParseError` when the line is no JSON text in UTF-8 and
    :class:`~twofold.exceptions.InvalidFrame` when it is JSON but no JSON-RPC 2.0 message. An empty array is an
    invalid frame. Members that JSON-RPC does not define are ignored.
    """
    raws = _split(line)
    if isinstance(raws, Notification):
        return raws
    if isinstance(raws, dict):
        return _frame(raws)
    if not raws:
        raise InvalidFrame("a batch has at least one message, this one is empty")
    frames: list[Frame | InvalidFrame] = []
    for raw in raws:
        try:
            item = _split(bytes(raw))
            if isinstance(item, list):
                raise InvalidFrame("a message in a batch is an object, not an array")
            frames.append(item if isinstance(item, Notification) else _frame(item))
        except InvalidFrame as error:
            frames.append(error)
    return Batch(frames)


def _split(line: bytes) -> Notification | dict[str, Raw] | list[Raw]:
    """Give the members of an object, or the items of an array, still raw but known to be JSON in UTF-8.

    A plain notification is given as such, read in one go.
    """
    try:
        str(line, "utf-8")  # raw slices are not checked by the decoder
    except UnicodeDecodeError as error:
        raise ParseError("the text is not valid UTF-8", offset=error.start) from None
    if not too_deep(line):
        try:
            plain = _notification.decode(line)
            if bytes(plain.params).startswith((b"{", b"[")):
                return Notification(plain.method, plain.params.copy())
        except msgspec.DecodeError:
            pass
        try:
            return _items.decode(line) if line.lstrip(b" \t\r\n")[:1] == b"[" else _members.decode(line)
        except msgspec.DecodeError:  # a lone surrogate escape, no JSON, or a bare value
            pass
    pieces = cut(line)
    if isinstance(pieces, dict):
        return {name: Raw(piece) for name, piece in pieces.items()}
    if isinstance(pieces, list):
        return [Raw(piece) for piece in pieces]
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
        raise InvalidFrame('an answer has either "result" or "error", not both', id=known_id, answer=True)
    if "result" in members:
        if not has_id:
            raise InvalidFrame("an answer needs the id of its request, a string or an integer", answer=True)
        return Response(id_, members["result"].copy())
    if "error" in members:
        if not has_id and id_ is not None:
            raise InvalidFrame("an error answer needs the id of its request, or null", answer=True)
        match loads(bytes(members["error"])):
            case {"code": int(code), "message": str(message)} if not isinstance(code, bool):
                return ErrorResponse(known_id, code, message, members["error"].copy())
            case _:
                raise InvalidFrame(
                    'the member "error" must be an object with an integer "code" and a string "message"',
                    id=known_id,
                    answer=True,
                )
    raise InvalidFrame('a message has a "method", a "result" or an "error"; this one has none', id=known_id)


def encode(frame: Frame) -> bytes:
    """Write ``frame`` as one line, without its newline. Line breaks in its raw parts become spaces."""
    members: dict[str, bytes | Raw | UnsetType]
    match frame:
        case Request(id, method, params):
            members = {"id": dumps(id), "method": dumps(method), "params": params}
        case Notification(method, params):
            members = {"method": dumps(method), "params": params}
        case Response(id, result):
            members = {"id": dumps(id), "result": result}
        case ErrorResponse(id, _, _, error):
            members = {"id": dumps(id), "error": error}
    parts = [b'{"jsonrpc":"2.0"']
    for name, raw in members.items():
        if raw is not UNSET:
            parts += (b',"', name.encode(), b'":', bytes(raw))
    parts.append(b"}")
    return b"".join(parts).replace(b"\n", b" ")  # in JSON text a raw newline is only ever space
