"""Our models against the JSON schemas of the official SDK: the same fields, and the same documents read and refused."""

import json
import random
from types import ModuleType, UnionType
from typing import Any, get_args

import msgspec.inspect as inspect
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.values import canonical, joined
from tests.wire.introspection import fullest
from tests.wire.schema import Node, Schema, Shape, Version, schema
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
            null = " | null" if "null" in said and "any" not in said else ""
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
            members: frozenset[type] = frozenset(one.cls for one in rest if isinstance(one, inspect.StructType))
            return unions(module)[members] + null
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


def unions(module: ModuleType) -> dict[frozenset[type], str]:
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

    def compare_fields(definition: str, shapes: list[Shape], cls: type[Model], tag_field: str | None) -> None:
        theirs, ours = schema_fields(about, *shapes), model_fields(module, cls)
        for field in (theirs.keys() | ours.keys()) - {tag_field}:
            note(definition, field, theirs.get(field), ours.get(field))

    shapes_of = {name: about.shapes({"$ref": f"#/$defs/{name}"}) for name in sorted(about.reachable())}
    for definition, shapes in shapes_of.items():
        union = getattr(module, definition, None)
        if not isinstance(union, UnionType) or definition in UNTAGGED.values():
            continue
        ours: dict[str, type[Model]] = {tag_of(cls): cls for cls in get_args(union)}
        (tag_field,) = {str(cls.__struct_config__.tag_field) for cls in ours.values()}
        theirs: dict[str, list[Shape]] = {}
        for shape in shapes:
            theirs.setdefault(shape.tags().get(tag_field, "*"), []).append(shape)
            covered |= shape.names
        for tag in theirs.keys() | ours.keys():
            cls = ours.get(tag)
            if cls is None or tag not in theirs:
                note(definition, tag, "a variant" if tag in theirs else None, None if cls is None else cls.__name__)
            elif issubclass(cls, Other):
                compare_fields(f"{definition} *", theirs[tag], cls.BASE or Model, tag_field)
            else:
                names = {UNNAMED.get(cls.__name__), *(base.__name__ for base in cls.__mro__)}
                (name,) = names & {name for shape in theirs[tag] for name in shape.names}
                compare_fields(str(name), theirs[tag], cls, tag_field)
    for definition in shapes_of.keys() - {*covered, *UNTAGGED.values(), *ERROR_DATA}:
        if shapes_of[definition]:
            (shape,) = shapes_of[definition]
            (cls,) = (getattr(module, name) for name in shape.names if hasattr(module, name))
            compare_fields(definition, [shape], cls, None)
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


# Documents


@both
@given(st.data())
def test_a_document_that_the_schema_allows_comes_back_equal(version: Version, data: st.DataObject) -> None:
    about, module = schema(version), MODULES[version]
    document = joined(data.draw(about.documents))
    about.params.validate(document)  # the strategy keeps its word

    params = module.decode_params(json.dumps(document).encode())

    encoded = module.encode(params)
    assert canonical(json.loads(encoded)) == canonical(document)
    assert canonical(to_json(params)) == canonical(document)
    assert params == module.read_params(document)
    assert params == module.decode_params(encoded)


OF_EVERY_KIND: list[Any] = [None, True, 7, 1.5, "words", [], [[]], {}]


@both
@given(st.data())
def test_a_document_with_a_value_of_a_wrong_type_is_refused_with_its_path(
    version: Version, data: st.DataObject
) -> None:
    about = schema(version)
    document = joined(data.draw(about.documents))
    faults = [(fault, bad) for fault in about.faults(document) if (bad := about.refused(fault.node, OF_EVERY_KIND))]
    fault, bad = data.draw(st.sampled_from(faults))
    fault.container[fault.key] = data.draw(st.sampled_from(bad))
    assume(not about.params.is_valid(document))  # it may have become a valid document of another shape
    assert_refused_at(version, document, {fault.path})


@both
def test_no_field_takes_a_value_of_a_wrong_type(version: Version) -> None:
    about, module = schema(version), MODULES[version]
    rng = random.Random(version)
    for cls in get_args(module.SessionUpdate):
        if issubclass(cls, Other):
            continue
        document = {"sessionId": "s", "update": fullest(cls, rng, "word"), "_meta": {}}
        for fault in about.faults(document):
            good = fault.container[fault.key]
            for bad in about.refused(fault.node, OF_EVERY_KIND):
                fault.container[fault.key] = bad
                try:
                    module.read_params(document)
                except Malformed:
                    assert_refused_at(version, document, {fault.path})
                else:  # it has become another shape of a union, such as an idle state without a stop reason
                    about.params.validate(document)
            fault.container[fault.key] = good
        module.read_params(document)


@both
@given(st.data())
def test_a_document_without_a_required_field_is_refused_with_its_path(version: Version, data: st.DataObject) -> None:
    about = schema(version)
    document = joined(data.draw(about.documents))
    fault = data.draw(st.sampled_from([fault for fault in about.faults(document) if fault.required]))
    del fault.container[fault.key]
    places = {fault.path}
    if fault.key in ("text", "blob"):
        places.add(fault.path.rpartition(".")[0])  # an embedded resource that is neither: the fault is its own
    if fault.key in ("value", "groupId", "group"):
        places |= {f"{fault.path.rpartition('.')[0]}.value"}
    assume(not about.params.is_valid(document))  # it may have become a valid document of another shape
    assert_refused_at(version, document, places)


def assert_refused_at(version: Version, document: Any, places: set[str]) -> None:
    module = MODULES[version]
    with pytest.raises(Malformed) as caught:
        module.decode_params(json.dumps(document).encode())
    path = caught.value.path
    assert any(path == place or path.startswith((f"{place}.", f"{place}[")) for place in places)
    with pytest.raises(Malformed) as again:
        module.read_params(document)
    assert str(again.value) == str(caught.value)
    assert module.decode_line(frame(document)) is None


def frame(params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode()
