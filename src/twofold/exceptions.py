"""Everything twofold raises on purpose.

::

    TwofoldError
    ├── ParseError          the bytes are no JSON text (JSON-RPC code -32700)
    ├── InvalidFrame        JSON, but no JSON-RPC 2.0 message (code -32600)
    ├── LineTooLong         a line exceeded its bound and was skipped to its end
    ├── Malformed           a known update, block or field has the wrong shape
    ├── Unrepresentable     the other protocol version cannot say this
    ├── RequestError        a request answered with an error, theirs or ours
    ├── ProtocolViolation   the other side broke the rules of the conversation (remote)
    ├── HandshakeFailed     the two sides found no version to speak
    └── ConnectionLost      the other side is gone, or stopped reading

Every text names places, ids, sizes and types. None of them quotes a value: what an agent said never reaches a log
through an exception (message rules, J-7).
"""

from __future__ import annotations

import copyreg
from typing import Any, ClassVar, Final

__all__ = [
    "ConnectionLost",
    "HandshakeFailed",
    "InvalidFrame",
    "LineTooLong",
    "Malformed",
    "ParseError",
    "ProtocolViolation",
    "RequestError",
    "TwofoldError",
    "Unrepresentable",
]


class TwofoldError(Exception):
    """Base of every error that twofold raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:  # facts are keywords, which the inherited way would not pass on
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ParseError(TwofoldError, ValueError):
    """The bytes are not one JSON text.

    ``reason`` is one of twofold's own fixed sentences, ``offset`` the byte where reading stopped, if known.
    """

    code: ClassVar[int] = -32700

    def __init__(self, reason: str, *, offset: int | None = None) -> None:
        self.reason = reason
        self.offset = offset
        super().__init__(reason if offset is None else f"{reason} (at byte {offset})")


class InvalidFrame(TwofoldError, ValueError):
    """JSON that is not a JSON-RPC 2.0 message.

    ``id`` is the request id to answer under, when the frame had a usable one; with ``answer``, the frame was to be an
    answer to the request of that id, and none is due.
    """

    code: ClassVar[int] = -32600

    def __init__(self, reason: str, *, id: int | str | None = None, answer: bool = False) -> None:
        self.reason = reason
        self.id = id
        self.answer = answer
        super().__init__(reason)


class LineTooLong(TwofoldError, ValueError):
    """A line of ``length`` bytes, without its line end, is longer than ``limit`` bytes; it was skipped to its end."""

    code: ClassVar[int] = -32600

    def __init__(self, *, limit: int, length: int) -> None:
        self.limit = limit
        self.length = length
        super().__init__(f"line of {length} bytes is longer than the limit of {limit} bytes and was skipped")


class Malformed(TwofoldError, ValueError):
    """A known thing with a wrong shape (U-6): rejected as a whole, and nothing changed.

    ``path`` is the JSON path of the fault, ``expected`` and ``found`` say in words what should be there and what is.
    """

    code: ClassVar[int] = -32602

    def __init__(self, path: str, *, expected: str, found: str) -> None:
        self.path = path
        self.expected = expected
        self.found = found
        super().__init__(path, expected, found)

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected}, found {self.found}"


class Unrepresentable(TwofoldError, ValueError):
    """One update that the other protocol version has no words for.

    ``kind`` is the update's ``sessionUpdate``, ``id`` the id of its message, tool call or terminal (``None`` when it
    has none), ``path`` the JSON path of what cannot be carried and ``reason`` one sentence without content.
    """

    def __init__(self, kind: str, *, id: str | None, path: str, reason: str) -> None:
        self.kind = kind
        self.id = id
        self.path = path
        self.reason = reason
        super().__init__(kind, id, path, reason)

    def __str__(self) -> str:
        name = self.kind if self.id is None else f'{self.kind} "{self.id}"'
        return f"{name}: {self.reason} (at {self.path})"


class RequestError(TwofoldError):
    """A request that is answered with an error.

    Raise it in a handler to answer with ``code``, ``message`` and ``data`` (plain JSON); catch it where a request was
    sent. What the other side wrote in ``message`` and ``data`` may quote anything: neither is in the text of the error.
    """

    def __init__(self, code: int, message: str, data: Any = None, *, method: str = "") -> None:
        self.code = code
        self.message = message
        self.data = data
        self.method = method
        super().__init__(code, message, data)

    def __str__(self) -> str:
        words = _CODES.get(self.code, "an error of its own")
        return f"{self.method or 'the request'} was answered with {words} ({self.code})"


_CODES: Final = {
    -32700: "a parse error",
    -32600: "“invalid request”",
    -32601: "“method not found”",
    -32602: "“invalid params”",
    -32603: "an internal error",
    -32800: "“request cancelled”",
    -32000: "“authentication required”",
    -32002: "“not found”",
    -32022: "“unsupported protocol version”",
}


class ProtocolViolation(TwofoldError):
    """The other side said what it must not say here: an answer nobody asked for, a request before ``initialize``."""


class HandshakeFailed(TwofoldError):
    """The two sides found no version to speak. ``asked`` and ``answered`` are versions, as far as they got."""

    def __init__(self, reason: str, *, asked: int | None = None, answered: object = None) -> None:
        self.reason = reason
        self.asked = asked
        self.answered = answered
        super().__init__(reason)


class ConnectionLost(TwofoldError):
    """The connection ended before what was asked was answered. ``exit_status`` is that of a process that ended."""

    def __init__(self, reason: str, *, exit_status: int | None = None) -> None:
        self.reason = reason
        self.exit_status = exit_status
        super().__init__(reason)
