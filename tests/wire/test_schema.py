"""Our models against the JSON schemas of the official SDK: the same fields, and the same documents read and refused."""

import json
from types import ModuleType, UnionType
from typing import Any, get_args

import msgspec.inspect as inspect
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.values import canonical, joined, text
from tests.wire.schema import Fault, Node, Schema, Shape, Version, schema
from twofold.exceptions import Malformed
from twofold.wire import Model, Other, to_json, v1, v2
from twofold.wire._model import EXTRA

MODULES: dict[Version, ModuleType] = {1: v1, 2: v2}
both = pytest.mark.parametrize("version", [1, 2])

# Where our models differ from the schema on purpose; an entry that stops being true fails the test.
#   (version, definition, field, or "*" for unknown variants): (what the schema says, what the model says)
INTENDED: dict[tuple[Version, str, str], tuple[str, str]] = {
    # One resource link for both versions: v1 has no icons, and v2 alone bounds the size.
    (1, "ResourceLink", "icons"): ("nothing", "array of Icon | null, optional"),
    (2, "ResourceLink", "size"): ("integer 0.. | null, optional", "integer | null, optional"),
    # One set of annotations for both versions: v2 alone bounds the priority.
    (2, "Annotations", "priority"): ("number 0..1 | null, optional", "number | null, optional"),
    # The older revision of v2 counted lines from zero, as v1 does.
    (2, "ToolCallLocation", "line"): ("integer 1.. | null, optional", "integer 0.. | null, optional"),
    # A union of one.
    (1, "AvailableCommand", "input"): (
        "AvailableCommandInput | null, optional",
        "UnstructuredCommandInput | null, optional",
    ),
    # Enums that v1 calls closed are read as open: an unknown word is kept (U-7).
    (1, "Annotations", "audience"): ("array of (assistant, user) | null, optional", "array of string | null, optional"),
    (1, "PlanEntry", "priority"): ("(high, low, medium)", "string"),
    (1, "PlanEntry", "status"): ("(completed, in_progress, pending)", "string"),
    (1, "ToolCall", "kind"): (
        "(delete, edit, execute, fetch, move, other, read, search, switch_mode, think), optional",
        "string, optional",
    ),
    (1, "ToolCall", "status"): ("(completed, failed, in_progress, pending), optional", "string, optional"),
    (1, "ToolCallUpdate", "kind"): (
        "(delete, edit, execute, fetch, move, other, read, search, switch_mode, think) | null, optional",
        "string | null, optional",
    ),
    (1, "ToolCallUpdate", "status"): (
        "(completed, failed, in_progress, pending) | null, optional",
        "string | null, optional",
    ),
    # Unions that v1 calls closed are read as open: an unknown variant is kept (U-7).
    (1, "SessionUpdate", "*"): ("nothing", "OtherUpdate"),
    (1, "ContentBlock", "*"): ("nothing", "OtherContentBlock"),
    (1, "ToolCallContent", "*"): ("nothing", "OtherToolCallContent"),
    (1, "SessionConfigOption", "*"): ("nothing", "OtherSessionConfigOption"),
}

# Models whose variant has no name of its own in the schema: it is named here by what it is made of.
UNNAMED = {
    "AddChange": "DiffPathChange",
    "DeleteChange": "DiffPathChange",
    "ModifyChange": "DiffPathChange",
    "MoveChange": "DiffPathPairChange",
    "CopyChange": "DiffPathPairChange",
}

# Unions without a tag, which the decoder's types cannot express: the type that stands in for each.
UNTAGGED = {"_ResourceContents": "EmbeddedResourceResource", "_SelectOptions": "SessionConfigSelectOptions"}


def between(low: int | None, high: int | None) -> str:
    return "" if low is None and high is None else f" {'' if low is None else low}..{'' if high is None else high}"


def said_by_schema(about: Schema, node: Node) -> str:
    name, node = about.resolve(node)
    if name is not None and (about.shapes(node) or name in UNTAGGED.values()):
        return name
    match node:
        case {"anyOf": kinds} | {"oneOf": kinds}:
            said = {word for kind in kinds for word in said_by_schema(about, kind).split(" | ")}
            null = " | null" if "null" in said else ""
            free = said & {"any", "string", "integer"}
            words = sorted(free or said - {"null"})
            return (words[0] if len(words) == 1 else f"({', '.join(words)})") + null
        case {"type": [kind, "null"]}:
            return f"{said_by_schema(about, {**node, 'type': kind})} | null"
        case {"const": value}:
            return str(value)
        case {"type": "array", "items": item}:
            return f"array{between(node.get('minItems'), None)} of {said_by_schema(about, item)}"
        case {"type": "string"}:
            return f"string{between(node.get('minLength'), None)}"
        case {"type": "integer" | "number" as kind}:
            return f"{kind}{between(node.get('minimum'), node.get('maximum'))}"
        case {"type": kind}:
            return str(kind)
        case _:
            return "any"


def said_by_model(module: ModuleType, info: inspect.Type) -> str:
    match info:
        case inspect.Metadata(type=inner):
            return said_by_model(module, inner)
        case inspect.UnionType(types=types):
            null = " | null" if any(isinstance(one, inspect.NoneType) for one in types) else ""
            rest = [one for one in types if not isinstance(one, inspect.NoneType)]
            if {type(one) for one in rest} == {inspect.IntType, inspect.FloatType}:
                return f"number{null}"
            if len(rest) == 1:
                return said_by_model(module, rest[0]) + null
            return unions(module)[frozenset(one.cls for one in rest if isinstance(one, inspect.StructType))] + null
        case inspect.AnyType():
            return "any"
        case inspect.StrType(min_length=least):
            return f"string{between(least, None)}"
        case inspect.IntType(ge=low, le=high):
            return f"integer{between(low, high)}"
        case inspect.BoolType():
            return "boolean"
        case inspect.DictType():
            return "object"
        case inspect.CollectionType(item_type=item, min_length=least):
            return f"array{between(least, None)} of {said_by_model(module, item)}"
        case inspect.CustomType(cls=cls):
            return UNTAGGED[cls.__name__]
        case inspect.StructType(cls=cls):
            return cls.__name__
    raise TypeError(info)


def unions(module: ModuleType) -> dict[frozenset[type[Model]], str]:
    """Name every union that a module offers by its members."""
    return {
        frozenset(get_args(offered)): name for name, offered in vars(module).items() if isinstance(offered, UnionType)
    }


def schema_fields(about: Schema, *shapes: Shape) -> dict[str, str]:
    """Say what each field may hold, in any of the shapes. Tags are no fields."""
    names = {name for shape in shapes for name in shape.properties}
    fields = {}
    for name in names:
        said = said_by_schema(about, {"anyOf": [one.properties[name] for one in shapes if name in one.properties]})
        fields[name] = said if all(name in shape.required for shape in shapes) else f"{said}, optional"
    return fields


def model_fields(module: ModuleType, cls: type[Model]) -> dict[str, str]:
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return {
        one.encode_name: said_by_model(module, one.type) + ("" if one.required else ", optional")
        for one in info.fields
        if one.encode_name != EXTRA
    }


def tag_of(cls: type[Model]) -> str:
    return "*" if issubclass(cls, Other) else str(cls.__struct_config__.tag)


def compare(version: Version) -> dict[tuple[Version, str, str], tuple[str, str]]:
    """Give every difference between the schema and our models, as in `INTENDED`."""
    about, module = schema(version), MODULES[version]
    differences: dict[tuple[Version, str, str], tuple[str, str]] = {}
    covered: set[str] = set()

    def note(definition: str, field: str, schema_says: str | None, model_says: str | None) -> None:
        if schema_says != model_says:
            differences[version, definition, field] = (schema_says or "nothing", model_says or "nothing")

    def compare_fields(definition: str, shapes: list[Shape], cls: type[Model]) -> None:
        theirs, ours = schema_fields(about, *shapes), model_fields(module, cls)
        tag_field = cls.__struct_config__.tag_field
        for field in (theirs.keys() | ours.keys()) - {tag_field}:
            note(definition, field, theirs.get(field), ours.get(field))

    reachable = sorted(about.reachable())
    for definition in reachable:
        shapes = about.shapes(about.definitions[definition])
        offered = getattr(module, definition, None)
        if not any(shape.tags() or shape.other for shape in shapes):
            continue
        covered |= {definition, *(name for shape in shapes for name in shape.names)}
        if isinstance(offered, UnionType):
            ours = {tag_of(cls): cls for cls in get_args(offered)}
            theirs = {"*" if shape.other else min(shape.tags().values()): shape for shape in shapes}
            for tag in theirs.keys() | ours.keys():
                cls, shape = ours.get(tag), theirs.get(tag)
                if cls is None or shape is None:
                    note(definition, tag, shape and "a variant", cls and cls.__name__)
                elif issubclass(cls, Other):
                    base = cls.BASE or Model
                    theirs_here, ours_here = schema_fields(about, shape), model_fields(module, base)
                    for field in (theirs_here.keys() | ours_here.keys()) - {cls.__struct_config__.tag_field}:
                        note(f"{definition} *", field, theirs_here.get(field), ours_here.get(field))
                else:
                    names = {UNNAMED.get(cls.__name__, ""), *(base.__name__ for base in cls.__mro__)}
                    assert names & shape.names, f"{cls.__name__} is none of {sorted(shape.names)}"
                    compare_fields(max(names & shape.names), [shape], cls)
        else:
            assert offered is not None, f"v{version} has no {definition}"
            compare_fields(definition, shapes, offered)  # one model for the whole union
    for definition in reachable:
        shapes = about.shapes(about.definitions[definition])
        if len(shapes) == 1 and definition not in covered and definition not in ERROR_DATA:
            compare_fields(definition, shapes, getattr(module, definition))
    return differences


# What the schema names inside `Error.data`, which may be anything.
ERROR_DATA = {"SessionNotFoundErrorData", "UnsupportedProtocolVersionErrorData"}


@both
def test_models_have_the_fields_that_the_schema_defines(version: Version) -> None:
    assert compare(version) == {key: said for key, said in INTENDED.items() if key[0] == version}


@both
def test_every_kind_of_update_in_the_schema_has_a_model(version: Version) -> None:
    about = schema(version)
    shapes = about.shapes({"$ref": "#/$defs/SessionUpdate"})
    kinds = {shape.tags()["sessionUpdate"] for shape in shapes if not shape.other}
    assert kinds == MODULES[version].KINDS
