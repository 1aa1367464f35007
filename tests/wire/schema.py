"""The official JSON schema as an oracle: the shapes of its objects, documents that it allows, and faults in them.

Only the part of JSON Schema that the ACP schemas use is understood; anything else fails loudly.
"""

import base64
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import jsonschema
from hypothesis import strategies as st

from tests.node_tools import sdk_schema
from tests.values import nested, text, whole_text

Version: TypeAlias = Literal[1, 2]
Node: TypeAlias = dict[str, Any]

ROOTS: Mapping[Version, str] = {1: "SessionNotification", 2: "UpdateSessionNotification"}


@dataclass(frozen=True)
class Shape:
    """One way in which an object may look: its properties, those required, and whether it is a union's catch-all."""

    properties: dict[str, Node] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()  # the definitions that it is made of
    other: bool = False
    excluded: dict[str, set[str]] = field(default_factory=dict)  # of a catch-all: the tags it may not have

    def __or__(self, more: "Shape") -> "Shape":
        return Shape(
            self.properties | more.properties,  # what stands deeper says more
            self.required | more.required,
            self.names | more.names,
            self.other or more.other,
            self.excluded | more.excluded,
        )

    def tags(self) -> dict[str, str]:
        return {name: node["const"] for name, node in self.properties.items() if isinstance(node.get("const"), str)}


class Schema:
    """One protocol version's definitions."""

    def __init__(self, version: Version) -> None:
        self.version = version
        self.definitions: dict[str, Node] = sdk_schema(version)["$defs"]
        self.root = {"$ref": f"#/$defs/{ROOTS[version]}"}

    def validator(self, node: Node) -> jsonschema.Draft202012Validator:
        return jsonschema.Draft202012Validator({**node, "$defs": self.definitions})

    @functools.cached_property
    def params(self) -> jsonschema.Draft202012Validator:
        """Validates the params of a `session/update`."""
        return self.validator(self.root)

    @functools.cached_property
    def documents(self) -> st.SearchStrategy[dict[str, Any]]:
        """Give valid params of a `session/update`."""
        return self.values(self.root, text)

    @functools.cached_property
    def plain_documents(self) -> st.SearchStrategy[dict[str, Any]]:
        """Give valid params of a `session/update` without lone surrogates, which other libraries refuse."""
        return self.values(self.root, whole_text)

    def resolve(self, node: Node) -> tuple[str | None, Node]:
        """Follow references, alone or as the only part of an `allOf`, to a node and its definition's name."""
        name = None
        while True:
            match node:
                case {"$ref": reference}:
                    name = reference.rpartition("/")[2]
                    node = self.definitions[name]
                case {"allOf": [only]} if "properties" not in node:
                    node = only
                case _:
                    return name, node

    def nullable(self, node: Node) -> tuple[bool, Node]:
        """Take `null` off a node."""
        _, node = self.resolve(node)
        match node:
            case {"anyOf": [inner, {"type": "null"}]}:
                return True, inner
            case {"type": [kind, "null"]}:
                return True, {**node, "type": kind}
            case _:
                return False, node

    def shapes(self, node: Node) -> list[Shape]:
        """Give every shape of an object, or none when the node is no object of known shape."""
        name, node = self.resolve(node)
        own = Shape(
            node.get("properties", {}),
            frozenset(node.get("required", ())),
            frozenset([name] if name else []),
            "not" in node,
            {
                key: {kind["properties"][key]["const"] for kind in node["not"]["anyOf"]}
                for key in node.get("required", ())
                if "not" in node and key in node["not"]["anyOf"][0]["properties"]
            },
        )
        found = [own] if "properties" in node else []
        for part in node.get("allOf", ()):
            found = [one | more for one in found or [own] for more in self.shapes(part)]
        branches = [self.shapes(branch) for branch in node.get("anyOf") or node.get("oneOf") or ()]
        if not all(branches):
            return []
        ways = [shape for branch in branches for shape in branch]
        return [one | more for one in found or [own] for more in ways] if ways else found

    def reachable(self) -> set[str]:
        """Give the names of all definitions that a `session/update` can lead to."""
        names: set[str] = set()
        waiting: list[Any] = [self.root]
        while waiting:
            part = waiting.pop()
            if isinstance(part, list):
                waiting += part
            elif isinstance(part, dict):
                waiting += [inner for key, inner in part.items() if key != "not"]
                name = str(part.get("$ref", "")).rpartition("/")[2]
                if name and name not in names:
                    names.add(name)
                    waiting.append(self.definitions[name])
        return names

    # Documents

    def values(self, node: Node, words: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
        """Give values that the node allows; `words` are its free texts."""
        nullable, node = self.nullable(node)
        if nullable:
            return st.one_of(st.none(), self.values(node, words))
        shapes = self.shapes(node)
        if shapes:
            return st.one_of([self._object(shape, words) for shape in shapes])
        match node:
            case {"const": value}:
                return st.just(value)
            case {"anyOf": kinds} | {"oneOf": kinds}:
                return st.one_of([self.values(kind, words) for kind in kinds])
            case {"type": "array", "items": item}:
                return st.lists(self.values(item, words), min_size=node.get("minItems", 0), max_size=2)
            case {"type": "string"}:
                return _texts(node, words)
            case {"type": "integer"}:
                return st.integers(node.get("minimum", -(2**31)), node.get("maximum", 2**31 - 1))
            case {"type": "number"}:
                low, high = node.get("minimum"), node.get("maximum")
                decimals = st.floats(low, high, allow_nan=False, allow_infinity=False)
                return st.one_of(decimals, st.integers(low if low is not None else -(2**53), high or 2**53))
            case {"type": "boolean"}:
                return st.booleans()
            case {"type": "null"}:
                return st.none()
            case {"type": "object", "additionalProperties": True}:
                return st.dictionaries(words, nested(words), max_size=2)
            case _ if not node.keys() - {"description", "title", "x-deserialize-default-on-error"}:
                return nested(words)
        raise TypeError(f"no values for {sorted(node)}")

    def _object(self, shape: Shape, words: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
        fields = {
            name: _unknown_tags(shape.excluded[name]) if name in shape.excluded else self.values(node, words)
            for name, node in shape.properties.items()
        }
        known = st.fixed_dictionaries(
            {name: values for name, values in fields.items() if name in shape.required},
            optional={name: values for name, values in fields.items() if name not in shape.required},
        )
        if not shape.other:
            return known
        extra = st.dictionaries(words.filter(lambda name: name not in shape.properties), nested(words), max_size=2)
        return st.tuples(extra, known).map(lambda parts: parts[0] | parts[1])

    # Faults

    def faults(self, value: Any, node: Node | None = None, path: str = "$.params") -> Iterator["Fault"]:
        """Give every place of a document where something is required or of one type only."""
        node = self.root if node is None else node
        _, node = self.nullable(node)
        if isinstance(value, dict):
            shape = self._shape_of(value, node)
            if shape is None:
                return
            for name, part in shape.properties.items():
                if name in value:
                    yield Fault(value, name, part, f"{path}.{name}", name in shape.required)
                    yield from self.faults(value[name], part, f"{path}.{name}")
        elif isinstance(value, list):
            for _, kind in map(self.nullable, [node, *node.get("anyOf", ())]):
                if kind.get("type") == "array" and self.validator(kind).is_valid(value):
                    for index, item in enumerate(value):
                        yield Fault(value, index, kind["items"], f"{path}[{index}]", False)
                        yield from self.faults(item, kind["items"], f"{path}[{index}]")
                    return

    def _shape_of(self, value: dict[str, Any], node: Node) -> Shape | None:
        """Give the shape that a valid value has: its tags are those of the value, or else it is a catch-all."""
        fitting = [
            shape
            for shape in self.shapes(node)
            if shape.required <= value.keys()
            and all(value.get(key) == tag for key, tag in shape.tags().items())
            and all(value.get(key) not in tags for key, tags in shape.excluded.items())
        ]
        return fitting[0] if fitting else None

    def refused(self, node: Node, values: list[Any]) -> list[Any]:
        """Give those of the values whose type the node forbids, whatever its ranges, lengths and words."""
        validator = self.validator(_types_only(self, node))
        return [value for value in values if not validator.is_valid(value)]


@dataclass
class Fault:
    """A place in a document to do harm at: `container[key]`, at `path`, allowed by `node`."""

    container: Any
    key: str | int
    node: Node
    path: str
    required: bool


def _types_only(about: Schema, node: Any) -> Any:
    _, node = about.resolve(node)
    if about.shapes(node):
        return {"type": "object"}
    kinds = node.get("anyOf") or node.get("oneOf")
    if kinds:
        return {"anyOf": [_types_only(about, kind) for kind in kinds]}
    return {"type": node["type"]} if "type" in node else {}


def _texts(node: Node, words: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    match node:
        case {"contentEncoding": "base64"}:
            return st.binary(max_size=6).map(lambda data: base64.b64encode(data).decode())
        case {"format": "uri"}:
            return st.sampled_from(["file:///a%20b", "https://example.com/?q=%C3%A9"])
        case {"format": "date-time"}:
            return st.sampled_from(["2026-06-09T12:00:00Z", "2026-06-09T12:00:00.5+02:00"])
        case {"format": unknown}:
            raise TypeError(f"no texts in the format {unknown}")
    return words.filter(lambda word: len(word) >= node.get("minLength", 0))


def _unknown_tags(known: set[str]) -> st.SearchStrategy[str]:
    return st.one_of(st.sampled_from(["_vendor", "later"]), st.text(max_size=4)).filter(lambda tag: tag not in known)


@functools.cache
def schema(version: Version) -> Schema:
    return Schema(version)
