"""Writes docs/reference/ from the docstrings and annotations of twofold's public names.

Run ``python docs/generate_reference.py`` with a Python that twofold is installed in. The pages are committed, and a
test compares them with what this script would write.

Names come from a module's ``__all__``. What is said of them is read off the source where they are defined: annotations
are shown as they were written there, and a string under an attribute is its docstring.
"""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

FOLDER: Final = Path(__file__).parent / "reference"
MODULES: Final = (
    "twofold.exceptions",
    "twofold.jsonrpc",
    "twofold.wire",
    "twofold.wire.v2",
    "twofold.wire.v1",
    "twofold.fold",
    "twofold.convert",
    "twofold.journal",
    "twofold.journal.memory",
    "twofold.journal.nats",
    "twofold.journal.sqlite",
    "twofold.runtime",
    "twofold.runtime.agent",
    "twofold.runtime.client",
    "twofold.runtime.websocket",
    "twofold.bridge",
    "twofold.web",
    "twofold.capture",
    "twofold.capture.importing",
    "twofold.plaintext",
    "twofold.view",
    "twofold.examples",
)
FOREIGN: Final = {
    "UNSET": (msgspec.UNSET, "What a field holds that was omitted. It is msgspec's, and false: compare with `is`."),
    "UnsetType": (msgspec.UnsetType, "The type of `UNSET`, for annotations. It is msgspec's."),
}
NOTE: Final = "<!-- Written by docs/generate_reference.py from the docstrings: edit those, not this. -->"
INDEX: Final = """# API reference

What is public, module by module; anything else may change at any time.
Codes such as F-9 are the [numbered rules](../protocol-revisions.md#the-rules) that a sentence rests on."""
WIDTH: Final = 120

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def pages() -> dict[str, str]:
    """Give every page of the reference: its file name and its text."""
    return {"README.md": _index(), **{f"{module}.md": _page(module) for module in MODULES}}


def _index() -> str:
    lines = [NOTE, "", INDEX, ""]
    for module in MODULES:
        first = _markdown(importlib.import_module(module).__doc__, module).split("\n\n")[0]
        lines.append(f"- [`{module}`]({module}.md): {' '.join(first.split())}")
    return "\n".join([*lines, ""])


def _page(module: str) -> str:
    public = importlib.import_module(module)
    parts = [NOTE, f"# {module}", _markdown(public.__doc__, module)]
    for name in public.__all__:
        parts += [f"## {name}", *_entry(module, name)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _entry(module: str, name: str) -> Iterator[str]:
    """Describe one public name: its signature, its docstring, its members."""
    value = getattr(importlib.import_module(module), name)
    first = _offers(value, name)
    if name in FOREIGN and value is FOREIGN[name][0]:
        yield FOREIGN[name][1]
    elif first != module:
        yield f"The same as {_link(f'{first}.{name}', module)} of `{first}`."
    else:
        home, node, doc = _definition(module, name)
        if isinstance(node, ast.ClassDef):
            yield from _class(module, value)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from (_code(_signature(f"def {name}", node)), _markdown(ast.get_docstring(node), module))
        elif inspect.ismethod(value):  # of an object that the module holds, offered as a function
            method, types = _method(home, node, value)
            yield from (_code(_signature(f"def {name}", method, types)), _markdown(ast.get_docstring(method), module))
        else:
            yield from (_code(_assignment(name, node)), _markdown(doc, module))


# Finding definitions


@cache
def _tree(module: str) -> ast.Module:
    file = inspect.getsourcefile(importlib.import_module(module))
    return ast.parse(Path(str(file)).read_text(encoding="utf-8"))


def _statements(body: list[ast.stmt]) -> Iterator[tuple[Any, str]]:
    """Give the statements of a module, class or function, with the docstring that stands under an assignment."""
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.If):  # what type checkers see comes first
            yield from _statements(statement.body)
        doc = ""
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and isinstance(following, ast.Expr):
            doc = inspect.cleandoc(str(getattr(following.value, "value", "")))
        yield statement, doc


@cache
def _definition(module: str, name: str) -> tuple[str, Any, str]:
    """Find where a name is defined, following imports: the module, the statement, the docstring under it."""
    for statement, doc in _statements(_tree(module).body):
        match statement:
            case ast.ClassDef(name=defined) | ast.FunctionDef(name=defined) if defined == name:
                return module, statement, doc
            case ast.AsyncFunctionDef(name=defined) if defined == name:
                return module, statement, doc
            case ast.AnnAssign(target=ast.Name(id=defined)) if defined == name:
                return module, statement, doc
            case ast.Assign(targets=[ast.Name(id=defined)]) if defined == name:
                return module, statement, doc
            case ast.ImportFrom(module=str(source), names=names) if any(one.name == name for one in names):
                return _definition(source, name)
            case _:
                pass
    raise LookupError(f"{module} does not define {name}")


def _method(module: str, assignment: Any, value: Any) -> tuple[Function, dict[str, str]]:
    """Find the method in `name = OBJECT.method`, and what OBJECT's annotation puts for its class's type parameters."""
    owner = type(value.__self__)
    _, owner_node, _ = _definition(owner.__module__, owner.__name__)
    _, held, _ = _definition(module, assignment.value.value.id)
    parameters = [one.__name__ for one in owner.__parameters__]
    arguments = [ast.unparse(one) for one in held.annotation.slice.slice.elts]  # Final[Owner[…]]
    return _functions(owner_node)[value.__name__], dict(zip(parameters, arguments, strict=True))


def _functions(node: Any) -> dict[str, Function]:
    functions = [one for one in node.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return {one.name: one for one in functions if "overload" not in map(ast.unparse, one.decorator_list)}


def _offers(value: object, name: str) -> str | None:
    """Give the first module that offers a public thing."""
    return next((one for one in MODULES if vars(importlib.import_module(one)).get(name) is value), None)


# Classes


def _class(module: str, cls: type) -> Iterator[str]:
    own = [one for one in cls.__mro__ if one.__module__.startswith("twofold")]
    nodes = {one: _definition(one.__module__, one.__name__)[1] for one in own}
    if issubclass(cls, enum.Enum):
        yield _code("\n".join([f"class {cls.__name__}(Enum):", *(f"    {one.name} = {one.value!r}" for one in cls)]))
    elif issubclass(cls, msgspec.Struct):
        yield _code(_struct(cls, list(nodes.values())))
    else:
        made = next((one["__init__"] for one in map(_functions, nodes.values()) if "__init__" in one), None)
        yield _code(f"class {cls.__name__}" if made is None else _signature(f"class {cls.__name__}", made))
    yield _markdown(ast.get_docstring(nodes[cls]), module)
    public = {one: offering for one in own[1:] if (offering := _offers(one, one.__name__))}
    bases = [_link(f"{offering}.{one.__name__}", module) for one, offering in public.items() if one.__name__ != "Model"]
    if bases:
        yield f"Bases: {', '.join(bases)}."
    members = {name: "" for one in public for name in _members(module, one, nodes[one])}
    for one in [one for one in own if one not in public]:  # private bases have no entry of their own
        for name, member in _members(module, one, nodes[one]).items():
            if not members.get(name) and ("\n" in member or name not in members):
                members[name] = member
    yield "\n".join(filter(None, members.values())).rstrip()


def _struct(cls: Any, nodes: list[Any]) -> str:
    """Show a Struct as its constructor: fields with types and defaults; what the wire calls them in comments."""
    fields = {
        statement.target.id: statement
        for node in reversed(nodes)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }
    tag_field, tag = cls.__struct_config__.tag_field, str(cls.__struct_config__.tag)
    head = f"class {cls.__name__}("
    if tag_field is not None and cls.__name__ != "Other":
        head += f'  # "{tag_field}": ' + ("any word that is not known" if tag.startswith("\uffff") else f'"{tag}"')
    lines = [head, *(["    *,"] if hasattr(cls, "extra") else [])]
    for name, wire_name in zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True):
        if name == "extra" and cls.__name__ != "Model":  # every model has it
            continue
        value = fields[name].value
        if isinstance(value, ast.Call):  # field(…)
            value = next((word.value for word in value.keywords if word.arg == "default"), None)
        line = f"    {name}: {ast.unparse(fields[name].annotation)}" + (f" = {ast.unparse(value)}," if value else ",")
        lines.append(line if wire_name == name or wire_name.startswith("\uffff") else f"{line}  # {wire_name}")
    return "\n".join([*lines, ")"])


def _members(module: str, cls: Any, node: Any) -> dict[str, str]:
    """Describe the members that a class itself defines: attributes, properties, methods."""
    found: dict[str, tuple[str, str | None]] = {}
    for statement, doc in _statements(node.body):
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=type_) if doc:
                if name not in getattr(cls, "__struct_fields__", ()) and not name.isupper():
                    found[name] = (f"{name}: {ast.unparse(type_)}", doc)
            case _:
                pass
    functions = _functions(node)
    if "__init__" in functions:  # what the class says of an attribute counts
        found |= {name: held for name, held in _attributes(functions["__init__"]).items() if name not in found}
    for name, function in functions.items():
        head = _signature(name, function, width=10_000)
        if any(ast.unparse(mark) == "property" for mark in function.decorator_list):
            head = head.replace("() ->", ":")
        found[name] = (head, ast.get_docstring(function))
    members: dict[str, str] = {}
    for name, (head, text) in found.items():
        if not name.startswith("_"):
            said = "\n\n" + textwrap.indent(_markdown(text, module), "  ") + "\n" if text else ""
            members[name] = f"- `{_quoted(head)}`{said}"
    return members


def _attributes(init: Function) -> dict[str, tuple[str, str | None]]:
    """Give the attributes that `__init__` sets, with their types where these can be read there."""
    given = {one.arg: one.annotation for one in (*init.args.args, *init.args.kwonlyargs)}
    found: dict[str, tuple[str, str | None]] = {}
    for statement, doc in _statements(init.body):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        if not isinstance(target, ast.Attribute):
            continue
        type_ = getattr(statement, "annotation", None)
        if type_ is None or ast.unparse(type_) == "Final":
            match statement.value:
                case ast.Name(id=name):
                    type_ = given.get(name)
                case ast.Call(func=ast.Name() as made):
                    type_ = made
                case ast.Constant(value=constant):
                    type_ = ast.Name(type(constant).__name__)
                case _:
                    type_ = None
        found[target.attr] = (f"{target.attr}: {ast.unparse(type_)}" if type_ else target.attr, doc)
    return found


# Writing


def _signature(start: str, node: Function, types: dict[str, str] | None = None, *, width: int = WIDTH) -> str:
    """Write a function or method as it is called, on one line if it fits."""
    plain, keywords = node.args.args, list(zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True))
    defaults = [None] * (len(plain) - len(node.args.defaults)) + node.args.defaults
    star = [(ast.arg("*"), None)] if keywords else []
    if node.args.vararg:
        star = [(ast.arg(f"*{node.args.vararg.arg}", node.args.vararg.annotation), None)]
    words = [
        ast.unparse(argument) + (f" = {ast.unparse(default)}" if default else "")
        for argument, default in [*zip(plain, defaults, strict=True), *star, *keywords]
        if argument.arg not in ("self", "cls")
    ]
    if node.args.kwarg:
        words.append(f"**{ast.unparse(node.args.kwarg)}")
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    if "asynccontextmanager" in map(ast.unparse, node.decorator_list):  # for those who call it
        returns = re.sub(r"AsyncGenerator\[(.*), None\]", r"AbstractAsyncContextManager[\1]", returns)
    elif isinstance(node, ast.AsyncFunctionDef):
        start = f"async {start}"
    line = f"{start}({', '.join(words)}){returns}"
    if len(line) > width:
        line = "\n".join([f"{start}(", *(f"    {word}," for word in words), f"){returns}"])
    for parameter, meant in (types or {}).items():
        line = re.sub(rf"\b{parameter}\b", meant, line)
    return line


def _assignment(name: str, node: Any) -> str:
    annotation = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
    value = ast.unparse(node.value)
    if annotation == "TypeAlias":
        if len(f"{name} = {value}") <= WIDTH:
            pass
        elif isinstance(node.value, ast.Subscript):
            value = value.replace("[", "[\n    ").replace(", ", ",\n    ").replace("]", ",\n]")
        else:
            value = "(\n    " + value.replace(" | ", "\n    | ") + "\n)"
        return f"{name} = {value}"
    meant = re.fullmatch(r"Final\[(.*)\]", annotation)
    typed = f"{name}: {meant.group(1)}" if meant else name
    return f"{typed} = {value}" if isinstance(node.value, (ast.Constant, ast.BinOp)) else typed


def _code(words: str) -> str:
    return f"```python\n{_quoted(words)}\n```"


def _quoted(words: str) -> str:
    return words if '"' in words else words.replace("'", '"')


def _markdown(doc: str | None, module: str) -> str:
    """Turn a docstring's few marks into Markdown: roles to links, literals to code, `::` and tables to blocks."""
    blocks: list[str] = []
    literal = False
    for block in re.split(r"\n\s*\n", inspect.cleandoc(doc or "")):
        if block.startswith("===") or (literal and block.startswith("    ")):
            blocks.append(f"```text\n{textwrap.dedent(block)}\n```")
            continue
        literal = block.endswith("::")
        if re.fullmatch(f"(?:{_TERM.pattern})+", block):
            block = _TERM.sub(_item, block)
        words = re.sub(r":\w+:`~?([^`]+)`", lambda match: _link(match.group(1), module), block.replace("``", "`"))
        blocks.append(re.sub("::$", "" if block == "::" else ":", words))
    return "\n\n".join(block for block in blocks if block)


_TERM: Final = re.compile(r"(\S.*)\n((?:    .*(?:\n|\Z))+)")
"""A term at the margin, and what is said of it below, indented."""


def _item(match: re.Match[str]) -> str:
    return f"- **{match[1].strip()}**\n{textwrap.indent(textwrap.dedent(match[2]), '  ')}"


def _link(target: str, module: str) -> str:
    """Link a name that has an entry; any other is code."""
    place, _, name = target.rpartition(".")
    for candidate in (place, module):
        if candidate in MODULES and name in importlib.import_module(candidate).__all__:
            return f"[`{name}`]({'' if candidate == module else f'{candidate}.md'}#{name.lower()})"
    return f"`{target.removeprefix('twofold.')}`"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    written = pages()
    for old in FOLDER.glob("*.md"):
        if old.name not in written:
            old.unlink()
    for file_name, text in written.items():
        (FOLDER / file_name).write_text(text, encoding="utf-8")
