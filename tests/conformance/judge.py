"""Lines of JSON-RPC, and what is wrong with those that an agent sent: the official schema is the judge."""

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jsonschema

from tests.conformance.requirements import Version
from tests.wire.schema import Shape, schema

Message: TypeAlias = dict[str, Any]
Id: TypeAlias = int | str


# One line


@dataclass(frozen=True)
class Line:
    """One line as it was, without its newline, and the message in it, or the reason why there is none."""

    sent: bool
    raw: bytes
    message: Message = field(default_factory=dict)
    fault: str | None = None

    def __str__(self) -> str:
        return f"{'>' if self.sent else '<'} {self.raw.decode('utf-8', 'backslashreplace')}"

    @property
    def method(self) -> Any:
        return self.message.get("method")

    @property
    def params(self) -> Message:
        params = self.message.get("params")
        return params if isinstance(params, dict) else {}

    @property
    def is_answer(self) -> bool:
        return not self.sent and "method" not in self.message

    @property
    def update(self) -> Message:
        """The update in a `session/update`, or nothing."""
        update = self.params.get("update") if self.method == "session/update" else None
        return update if isinstance(update, dict) else {}

    def is_about(self, session: str) -> bool:
        return not self.sent and self.params.get("sessionId") == session


def _no_json(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def read_line(raw: bytes, sent: bool = False) -> Line:
    """Read one line; a batch, a bare value, bad JSON and bad UTF-8 are faults."""
    try:
        message = json.loads(raw.decode("utf-8"), parse_constant=_no_json)
    except (ValueError, RecursionError) as error:  # bad UTF-8 is one too
        return Line(sent, raw, fault=f"no JSON in UTF-8: {error}")
    if not isinstance(message, dict):
        return Line(sent, raw, fault="not one object")
    return Line(sent, raw, message)


# The schema


@dataclass(frozen=True)
class Definitions:
    """The names of the definitions that the messages of an agent are made of, by method."""

    calls: dict[str, str]
    results: dict[str, str]


@functools.cache
def definitions(version: Version) -> Definitions:
    found = Definitions({}, {})
    for name, node in schema(version).definitions.items():
        match node:
            case {"x-method": str(method), "x-side": "agent"} if name.endswith("Response"):
                found.results[method] = name
            case {"x-method": str(method), "x-side": "client" | "protocol"} if not name.endswith("Response"):
                found.calls[method] = name
    return found


@functools.cache
def validator(version: Version, name: str) -> jsonschema.Draft202012Validator:
    return schema(version).validator({"$ref": f"#/$defs/{name}"})


def is_valid(version: Version, name: str, value: object) -> bool:
    return validator(version, name).is_valid(value)


def versions(lines: Sequence[Line]) -> list[Version | None]:
    """Say for each line which version it is in: that of the last answer to `initialize` up to it."""
    asked: set[Id] = set()
    found: list[Version | None] = []
    now: Version | None = None
    for line in lines:
        id = line.message.get("id")
        if line.sent and line.method == "initialize" and isinstance(id, int | str):
            asked.add(id)
        elif line.is_answer and id in asked and isinstance(line.message.get("result"), dict):
            now = 1 if line.message["result"].get("protocolVersion") == 1 else 2
        found.append(now)
    return found


@dataclass(frozen=True)
class Part:
    """The part of an agent's message that the schema has a definition for."""

    line: Line
    version: Version
    definition: str
    value: Any


def parts(lines: Sequence[Line], since: int = 0) -> Iterator[Part]:
    """Give what the schema says something of in the agent's lines from `since` on: params, results and errors."""
    methods: dict[Id, Any] = {}
    for place, (line, version) in enumerate(zip(lines, versions(lines), strict=True)):
        message = line.message
        if line.sent and "id" in message and "method" in message:
            methods[message["id"]] = line.method
        if line.sent or place < since:
            continue
        known = definitions(version or 2)
        name: str | None = None
        value: Any = None
        if "method" in message:
            name, value = known.calls.get(line.method), message.get("params")
        elif "error" in message:
            name, value = "Error", message["error"]
        elif isinstance(message.get("id"), int | str):
            name, value = known.results.get(methods.get(message["id"], "")), message.get("result")
        if name is not None:
            yield Part(line, version or 2, name, value)


def faults(lines: Sequence[Line], since: int = 0) -> list[str]:
    """Say what is wrong with the agent's lines from `since` on."""
    found: list[str] = []
    asked: set[Id] = set()
    for place, line in enumerate(lines):
        if line.sent:
            if "id" in line.message and "method" in line.message:
                asked.add(line.message["id"])
        elif place >= since:
            found += [f"{fault}: {line}" for fault in _of_the_envelope(line, asked)]
    for part in parts(lines, since):
        for error in validator(part.version, part.definition).iter_errors(part.value):
            found.append(f"{part.definition}: {error.json_path}: {error.message[:500]}: {part.line}")
    for line, version in zip(lines[since:], versions(lines)[since:], strict=True):
        method = line.method
        if line.sent or method is None or str(method).startswith("_"):
            continue
        if method not in definitions(version or 2).calls:
            found.append(f"no method of a client: {line}")
    return found


def _of_the_envelope(line: Line, asked: set[Id]) -> Iterator[str]:
    message = line.message
    if line.fault:
        yield line.fault
        return
    if message.get("jsonrpc") != "2.0":
        yield "not JSON-RPC 2.0"
    members = set(message) - {"jsonrpc"}
    if "method" in message:
        if members - {"id"} not in ({"method"}, {"method", "params"}) or not isinstance(message["method"], str):
            yield "not a call"
        if "id" in message and not _is_id(message["id"]):
            yield "an id that is none"
    elif members not in ({"id", "result"}, {"id", "error"}):
        yield "not an answer"
    elif message["id"] is None:
        if "error" not in message:
            yield "a result for no request"
    elif not _is_id(message["id"]) or message["id"] not in asked:
        yield "an answer to nothing that was asked"


def _is_id(id: object) -> bool:
    return isinstance(id, str) or (isinstance(id, int) and not isinstance(id, bool))


def extras(lines: Sequence[Line], since: int = 0) -> list[str]:
    """Name the fields in the agent's lines that the schema does not know, in objects that it does know."""
    return [
        f"{path}: {part.line}"
        for part in parts(lines, since)
        if part.definition != "Error"
        for path in _extras(part.version, {"$ref": f"#/$defs/{part.definition}"}, part.value, part.definition)
    ]


def _extras(version: Version, node: Message, value: Any, path: str) -> Iterator[str]:
    about = schema(version)
    _, node = about.nullable(node)
    if isinstance(value, list):
        for kind in [node, *node.get("anyOf", ())]:
            _, kind = about.resolve(kind)
            if "items" in kind:
                for index, item in enumerate(value):
                    yield from _extras(version, kind["items"], item, f"{path}[{index}]")
                return
    if not isinstance(value, dict):
        return
    fitting = [shape for shape in about.shapes(node) if _fits(shape, value)]
    if not fitting or any(shape.other for shape in fitting):
        return
    known = {name: part for shape in fitting for name, part in shape.properties.items()}
    yield from (f"{path}.{name}" for name in value if name not in known)
    for name, inner in value.items():
        if name in known and name != "_meta":
            yield from _extras(version, known[name], inner, f"{path}.{name}")


def _fits(shape: Shape, value: Message) -> bool:
    return (
        shape.required <= value.keys()
        and all(value.get(key) == tag for key, tag in shape.tags().items())
        and all(value.get(key) not in tags for key, tags in shape.excluded.items())
    )


def words(version: Version, name: str) -> set[str]:
    """Give the words that a definition allows: those of an enumeration, or the tags of a union."""
    found: set[str] = set()
    waiting: list[Any] = [schema(version).definitions[name]]
    while waiting:
        match waiting.pop():
            case {"const": str(word)}:
                found.add(word)
            case {"not": _, **rest}:
                waiting.append(rest)
            case {"anyOf": list(kinds)} | {"oneOf": list(kinds)}:
                waiting += kinds
            case (
                {"properties": {"sessionUpdate": tag}} | {"properties": {"state": tag}} | {"properties": {"type": tag}}
            ):
                waiting.append(tag)
            case {"properties": {"stopReason": tag}}:
                waiting.append(tag)
    return found


def metas(value: Any) -> Iterator[Any]:
    """Give every `_meta` in a value, however deep, but not those inside of another."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "_meta":
                yield inner
            else:
                yield from metas(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from metas(inner)


def at(answers: dict[str, Message], place: Sequence[str]) -> Any:
    """Give what stands at a place in the answers to methods: the method first, then names of fields."""
    value: Any = answers
    for name in place:
        value = value.get(name) if isinstance(value, dict) else None
    return value
