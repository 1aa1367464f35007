"""The keeping reader: plain JSON values to models, with the path of every fault and nothing unknown dropped.

It is driven by the same annotations that the quick decoder is built from, so the two cannot drift apart. It runs only
when the quick decoder has refused a line, and then decides what the line is: fine but for unknown fields or variants
(kept, U-7), or malformed (rejected with its path, U-6).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec.inspect as inspect
from msgspec import UNSET, Struct

from twofold.exceptions import Malformed
from twofold.wire._model import EXTRA, Kept, Model, Other, is_array, is_object, to_json

__all__ = ["Reading", "Skipped", "found", "hook", "member", "model", "read", "shape"]


class Skipped(Struct, frozen=True, gc=False):
    """One bad item or ``_meta`` that a lenient reading left out (U-6). Says where and what, never the value."""

    path: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected}, found {self.found}; skipped"


class Reading:
    """How to read: strict (``skipped is None``) or lenient, noting in ``skipped`` what was left out."""

    __slots__ = ("skipped",)

    def __init__(self, *, lenient: bool = False) -> None:
        self.skipped: list[Skipped] | None = [] if lenient else None

    def mark(self) -> int:
        """Return where the notes stand, for :meth:`forget`."""
        return len(self.skipped or ())

    def forget(self, mark: int) -> None:
        """Drop the notes made since ``mark``: they are about parts of what is now left out, or rejected, whole."""
        if self.skipped is not None:
            del self.skipped[mark:]

    def skip(self, error: Malformed) -> None:
        """Note that the item which ``error`` is about was left out; raises ``error`` when reading strictly."""
        if self.skipped is None:
            raise error
        self.skipped.append(Skipped(error.path, error.expected, error.found))


Reader: TypeAlias = Callable[[Any, str, Reading], Any]

_shapes: Final[dict[Any, Reader]] = {}


def shape(type_: type) -> Callable[[Reader], Reader]:
    """Register how values of a type are read that the decoder's own type system cannot express."""

    def register(reader: Reader) -> Reader:
        _shapes[type_] = reader
        return reader

    return register


def read(type_: Any, value: Any, path: str = "$", reading: Reading | None = None) -> Any:
    """Read a plain JSON value as ``type_`` (a model or a union of models).

    Raises :class:`~twofold.exceptions.Malformed` with the JSON path of the first fault.
    """
    return _reader(type_)(value, path, reading or Reading())


def found(value: Any) -> str:
    """Say in words what kind of JSON value this is, never which."""
    if value is UNSET:
        return "nothing"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "a string" if value else "an empty string"
    if isinstance(value, int):
        return "an integer"
    if isinstance(value, float):
        return "a number"
    return "an array" if isinstance(value, list) else "an object"


def member(path: str, name: str) -> str:
    """Extend a JSON path by a member name."""
    return f"{path}.{name}" if name.isidentifier() else f"{path}[{name!r}]"


@functools.cache
def _reader(type_: Any) -> Reader:
    custom = _shapes.get(type_)
    return custom if custom is not None else _compile(inspect.type_info(type_))


def _compile(info: inspect.Type) -> Reader:  # one case a kind of annotation the models use
    match info:
        case inspect.Metadata(type=inner):
            return _compile(inner)
        case inspect.AnyType():
            return lambda value, _path, _reading: value
        case inspect.StrType(min_length=least):
            return _string(least or 0)
        case inspect.BoolType():
            return _expecting("a boolean", lambda value: isinstance(value, bool))
        case inspect.IntType(ge=low, le=high):
            return _integer(low, high)
        case inspect.FloatType():
            return _expecting("a number", lambda value: type(value) in (int, float))
        case inspect.NoneType():
            return _expecting("null", lambda value: value is None)
        case inspect.LiteralType(values=values):
            return _expecting(
                " or ".join(f'"{value}"' for value in values), lambda value: type(value) is str and value in values
            )
        case inspect.DictType():
            return _expecting("an object", lambda value: isinstance(value, dict))
        case inspect.CollectionType(item_type=item, min_length=least):
            return _array(item, least or 0)
        case inspect.CustomType(cls=cls):
            return _reader(cls)
        case inspect.StructType():
            return _union([info])
        case inspect.UnionType(types=types):
            return _any_of(types)
        case _:
            raise TypeError(f"no reader for {info!r}")


def _expecting(expected: str, good: Callable[[Any], bool]) -> Reader:
    def reader(value: Any, path: str, _reading: Reading) -> Any:
        if good(value):
            return value
        raise Malformed(path, expected=expected, found=found(value))

    return reader


def _string(least: int) -> Reader:
    return _expecting(
        "a string" if not least else "a non-empty string", lambda value: isinstance(value, str) and len(value) >= least
    )


def _integer(low: int | None, high: int | None) -> Reader:
    expected = "an integer"
    if low is not None:
        expected += f" of at least {low}" if high is None else f" from {low} to {high}"

    def good(value: Any) -> bool:
        return type(value) is int and (low is None or value >= low) and (high is None or value <= high)

    return _expecting(expected, good)


def _array(item: inspect.Type, least: int) -> Reader:
    read_item = _compile(item)
    expected = "an array" if not least else "an array with at least one item"

    def reader(value: Any, path: str, reading: Reading) -> Any:
        if not is_array(value) or len(value) < least:
            raise Malformed(path, expected=expected, found=found(value))
        items: list[Any] = []
        first_fault: Malformed | None = None
        for index, entry in enumerate(value):
            before = reading.mark()
            try:
                items.append(read_item(entry, f"{path}[{index}]", reading))
            except Malformed as error:
                reading.forget(before)
                reading.skip(error)
                first_fault = first_fault or error
        if first_fault is not None and not items:  # all bad: "cleared" is not what the sender said (U-6)
            raise first_fault
        return items

    return reader


def _any_of(types: tuple[inspect.Type, ...]) -> Reader:
    structs = [one for one in types if isinstance(one, inspect.StructType)]
    nullable = any(isinstance(one, inspect.NoneType) for one in types)
    rest = [one for one in types if not isinstance(one, (inspect.StructType, inspect.NoneType))]
    if structs and rest:
        raise TypeError(f"no reader for a union of models and {rest!r}")
    if {type(one) for one in rest} == {inspect.IntType, inspect.FloatType}:
        inner = _compile(inspect.FloatType())
    elif len(rest) == 1:
        inner = _compile(rest[0])
    elif structs:
        inner = _union(structs)
    else:
        raise TypeError(f"no reader for a union of {rest!r}")
    if not nullable:
        return inner

    def reader(value: Any, path: str, reading: Reading) -> Any:
        return None if value is None else inner(value, path, reading)

    return reader


def _union(structs: list[inspect.StructType]) -> Reader:
    """Read one of several models by its tag; a tag that none has gives the union's ``Other`` model."""
    tag_field = structs[0].tag_field
    if tag_field is None:
        return _reader_of(structs[0].cls)
    readers: dict[str, Reader] = {}
    other: type[Other] | None = None
    for one in structs:
        if issubclass(one.cls, Other):
            other = one.cls
        else:
            readers[str(one.tag)] = _reader_of(one.cls)

    def reader(value: Any, path: str, reading: Reading) -> Any:
        if not is_object(value):
            raise Malformed(path, expected="an object", found=found(value))
        tag = value.get(tag_field, UNSET)
        if not isinstance(tag, str):
            raise Malformed(member(path, tag_field), expected="a string", found=found(tag))
        known = readers.get(tag)
        if known is not None:
            return known(value, path, reading)
        if other is None:
            raise Malformed(
                member(path, tag_field), expected=" or ".join(f'"{tag}"' for tag in readers), found="an unknown value"
            )
        if other.BASE is not None:
            value = to_json(_reader(other.BASE)(value, path, reading))
        return other(kind=tag, fields=Kept({name: held for name, held in value.items() if name != tag_field}))

    return reader


@functools.cache
def _reader_of(cls: type[Model]) -> Reader:
    custom = _shapes.get(cls)
    return custom if custom is not None else model(cls)


@functools.cache
def model(cls: type[Model]) -> Reader:
    """Give the reader of one model by its annotations alone, :func:`shape` or not."""
    info = inspect.type_info(cls)
    if not isinstance(info, inspect.StructType):
        raise TypeError(f"{cls!r} is no model")
    fields: dict[str, tuple[str, Reader | None]] = {}
    required: list[str] = []
    for one in info.fields:
        if one.encode_name == EXTRA:
            continue
        fields[one.encode_name] = (one.name, None)  # compiled at first use: models may contain themselves
        if one.required:
            required.append(one.encode_name)
    types = {one.encode_name: one.type for one in info.fields}
    tag_field = info.tag_field

    def reader(value: Any, path: str, reading: Reading) -> Any:
        if not is_object(value):
            raise Malformed(path, expected="an object", found=found(value))
        for wire_name in required:
            if wire_name not in value:
                raise Malformed(member(path, wire_name), expected="a required field", found="nothing")
        known: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        for wire_name, held in value.items():
            if wire_name == tag_field:
                continue
            target = fields.get(wire_name)
            if target is None:
                extra[wire_name] = held
                continue
            name, read_field = target
            if read_field is None:
                read_field = _compile(types[wire_name])
                fields[wire_name] = (name, read_field)
            try:
                known[name] = read_field(held, member(path, wire_name), reading)
            except Malformed as error:
                if wire_name != "_meta":
                    raise
                reading.skip(error)
        if extra:
            known["extra"] = Kept(extra)
        return cls(**known)

    return reader


def hook(type_: type, value: Any) -> Any:
    """Decode the types registered with :func:`shape` for the quick decoder; refusing sends the line to this reader."""
    reader = _shapes.get(type_)
    if reader is None:
        raise ValueError("kept elsewhere")
    return reader(value, "$", Reading())
