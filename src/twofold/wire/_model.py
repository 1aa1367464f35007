"""What every wire model is made of: strict Structs, three-state fields and a place for what no model names.

A Struct refuses unknown fields while it is decoded, which costs nothing; the refusal sends the line to the keeping
reader (``_read``), which fills :attr:`Model.extra`. So nothing is lost, and the common line pays nothing for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias, TypeGuard, cast

from msgspec import UNSET, Struct, UnsetType, field

__all__ = [
    "EXTRA",
    "OTHER",
    "OTHER_FIELDS",
    "UNSET",
    "Kept",
    "Model",
    "OptionalMeta",
    "Other",
    "UnsetType",
    "is_array",
    "is_object",
    "same",
    "to_json",
]

# Wire names that no sender can use by accident. If one does, its value has a type that the decoder cannot make, so
# the line takes the keeping path, where such a key is an unknown field like any other.
EXTRA: Final = "\uffffextra"
OTHER: Final = "\uffffother"
OTHER_FIELDS: Final = "\ufffffields"

OptionalMeta: TypeAlias = dict[str, Any] | UnsetType | None
"""The three states of ``_meta``: omitted, ``null``, an object."""


class Kept(Mapping[str, Any]):
    """JSON members held as they came: the unknown fields of a model, or all fields of an unknown variant. Read-only."""

    __slots__ = ("_members",)

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = dict(members)

    def __getitem__(self, name: str) -> Any:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __eq__(self, other: object) -> bool:
        return same(self._members, other) if isinstance(other, Mapping) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._members))

    def __repr__(self) -> str:
        return f"Kept({sorted(self._members)})"  # names only: values are content


class Model(
    Struct,
    frozen=True,
    gc=False,
    eq=False,
    kw_only=True,
    forbid_unknown_fields=True,
    rename="camel",
    repr_omit_defaults=True,
):
    """A value of the ACP schema. A field has one of three states: omitted (``UNSET``), ``null`` (``None``), a value.

    ``extra`` holds the fields that the schema does not define, as they came. Two models are equal when they are equal
    as JSON values: ``True`` is not ``1``.
    """

    extra: Kept | UnsetType = field(default=UNSET, name=EXTRA)

    def __eq__(self, other: object) -> bool:
        return same(self, other) if isinstance(other, Model) else NotImplemented

    def __ne__(self, other: object) -> bool:  # Struct has one of its own, which would be found first
        return not same(self, other) if isinstance(other, Model) else NotImplemented

    def __hash__(self) -> int:  # of what equal models have in common and is cheap to hash: type and strings
        held = (getattr(self, name) for name in self.__struct_fields__)
        return hash((type(self), *(value for value in held if isinstance(value, str))))


class Other(Model, frozen=True, gc=False, eq=False, kw_only=True, tag=OTHER):
    """A variant that this version of twofold does not know: its tag and all its other fields, kept.

    Never shown as if the agent had said it (U-7).
    """

    BASE: ClassVar[type[Model] | None] = None
    """The fields that the schema requires of unknown variants too."""

    kind: str = field(name=f"{OTHER_FIELDS}.kind")
    fields: Kept = field(name=OTHER_FIELDS)


def to_json(value: Any) -> Any:
    """Give a model, or anything made of models, as plain JSON values; extras stand beside the known fields."""
    if isinstance(value, Other):
        tag_field = type(value).__struct_config__.tag_field
        return {tag_field: value.kind, **to_json(value.fields), **to_json(value.extra or {})}
    if isinstance(value, Model):
        members: dict[str, Any] = {}
        config = value.__struct_config__
        if config.tag_field is not None:
            members[config.tag_field] = config.tag
        for name, wire_name in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
            held = getattr(value, name)
            if held is UNSET:
                continue
            if name == "extra":
                members.update(to_json(held))
            else:
                members[wire_name] = to_json(held)
        return members
    if isinstance(value, Mapping):
        return {key: to_json(member) for key, member in cast(Mapping[str, Any], value).items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in cast(Sequence[Any], value)]
    return value


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a plain JSON value is an object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Whether a plain JSON value is an array."""
    return isinstance(value, list)


def same(one: Any, two: Any) -> bool:
    """Whether two values are equal as JSON: ``true`` is not ``1``, the order of members does not matter."""
    if one is two:
        return True
    if isinstance(one, str) or isinstance(two, str):  # most values are
        return bool(one == two)
    if one is None or two is None or one is UNSET or two is UNSET:
        return False
    if isinstance(one, Model):
        if type(one) is not type(two):
            return False
        for name in one.__struct_fields__:
            held, other = getattr(one, name), getattr(two, name)
            if held is not other and not same(held, other):  # most fields are omitted in both
                return False
        return True
    if isinstance(one, (list, tuple)):
        if not isinstance(two, (list, tuple)):
            return False
        items, others = cast(Sequence[Any], one), cast(Sequence[Any], two)
        return len(items) == len(others) and all(map(same, items, others))
    if isinstance(one, (int, float)):
        numbers = isinstance(two, (int, float)) and not isinstance(one, bool) and not isinstance(two, bool)
        return numbers and one == two  # the same bool was the same object
    if isinstance(one, Mapping):
        if not isinstance(two, Mapping):
            return False
        members, rest = cast(Mapping[str, Any], one), cast(Mapping[str, Any], two)
        return len(members) == len(rest) and all(key in rest and same(members[key], rest[key]) for key in members)
    return type(one) is type(two) and bool(one == two)
