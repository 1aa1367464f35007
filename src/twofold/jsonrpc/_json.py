"""JSON text to plain Python values and back, exactly.

The quick decoder reads a lone surrogate escape as truncated input, so :func:`loads` is what a decoding failure is
checked against before it is believed: the standard library's reader, held to the JSON grammar (no ``NaN``), to UTF-8
and to bounds on nesting and numbers.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

import msgspec

from twofold.exceptions import ParseError

__all__ = ["MAX_DEPTH", "cut", "dumps", "loads", "too_deep"]

MAX_DEPTH: Final = 256
"""How many arrays and objects may be nested in one line. Deeper input is refused, so that nothing that could be read
can later fail to be compared, copied or written."""

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SPACE: Final = " \t\r\n"
_BETWEEN: Final = re.compile(r"[ \t\r\n,:]*")
_OPENERS: Final = re.compile(rb"[\[{\]}\"]")


def _no_constant(_name: str) -> NoReturn:
    raise ParseError("NaN and Infinity are not JSON")


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ParseError("a number is too large for a double")
    return value


def _int(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # the interpreter's bound on digits
        raise ParseError("a number has too many digits") from None


_quick: Final = msgspec.json.Decoder().decode
_decoder: Final = json.JSONDecoder(parse_constant=_no_constant, parse_float=_float, parse_int=_int)


def loads(raw: bytes) -> Any:
    """Read one JSON text. Lone surrogate escapes are kept as sent (U-8); of duplicate keys the last one counts.

    Raises :class:`~twofold.exceptions.ParseError` for anything else than one JSON text in UTF-8, nested at most
    :data:`MAX_DEPTH` deep, whose numbers fit.
    """
    try:
        text = str(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise ParseError("the text is not valid UTF-8", offset=error.start) from None
    if too_deep(raw):  # before reading: neither reader may be led into a recursion that its stack cannot hold
        raise ParseError(f"the text is nested deeper than {MAX_DEPTH} levels")
    try:
        return _quick(raw)  # what it takes it reads alike; what it refuses may be a lone surrogate
    except msgspec.DecodeError:
        pass
    try:
        value, end = _decoder.raw_decode(text, len(text) - len(text.lstrip(_SPACE)))
    except json.JSONDecodeError as error:
        raise ParseError("the text is not valid JSON", offset=len(text[: error.pos].encode("utf-8"))) from None
    if text[end:].strip(_SPACE):
        raise ParseError("there is more text after the JSON value", offset=len(text[:end].encode("utf-8")))
    return value


def cut(raw: bytes) -> dict[str, bytes] | list[bytes] | None:
    """Cut one JSON text into the members of its object or the items of its array, as they were written.

    Gives ``None`` for a bare value. Raises :class:`~twofold.exceptions.ParseError` as :func:`loads` does.
    """
    whole = loads(raw)
    if not isinstance(whole, (dict, list)):
        return None
    text = str(raw, "utf-8")  # known to be JSON, so what stands between two values is known too
    read = _decoder.raw_decode
    pieces: list[tuple[str, bytes]] = []
    position = _skip(text, _skip(text, 0) + 1)
    while text[position] not in "]}":
        name = ""
        if isinstance(whole, dict):
            name, position = read(text, position)
            position = _skip(text, position)
        _, end = read(text, position)
        pieces.append((name, text[position:end].encode("utf-8")))
        position = _skip(text, end)
    return dict(pieces) if isinstance(whole, dict) else [piece for _, piece in pieces]


def _skip(text: str, position: int) -> int:
    between = _BETWEEN.match(text, position)
    return between.end() if between else position


def too_deep(raw: bytes) -> bool:
    """Whether JSON text is nested deeper than :data:`MAX_DEPTH`; cheap for the lines that cannot be.

    Of text that turns out to be no JSON, this is the depth that a reader gets to before it notices, or more.
    """
    # replace() leaps from bracket to bracket where count() looks at every byte: three times as quick on long strings
    if len(raw) <= MAX_DEPTH or len(raw) - len(raw.replace(b"{", b"").replace(b"[", b"")) <= MAX_DEPTH:
        return False
    depth = 0
    position = 0
    find = _OPENERS.search
    while match := find(raw, position):
        position = match.end()
        mark = raw[match.start()]
        if mark in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif mark in b"]}":
            depth -= 1
        else:  # a string: its brackets are text
            position = _string_end(raw, position)
    return False


def _string_end(raw: bytes, position: int) -> int:
    while True:
        position = raw.find(b'"', position)
        if position < 0:
            return len(raw)
        before = position
        while raw[before - 1] == 0x5C:
            before -= 1
        position += 1
        if (position - 1 - before) % 2 == 0:
            return position


def dumps(value: Any) -> bytes:
    """Write plain JSON values as one JSON text in UTF-8, without spaces.

    A lone surrogate, which UTF-8 cannot hold, is written as its escape (U-8).
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return _SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", text).encode("utf-8")
