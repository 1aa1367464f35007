"""What is public is listed, in order, and says what it is."""

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

import msgspec
import pytest

import twofold
from tests.docs.pages import GENERATOR

MODULES: Final[tuple[str, ...]] = GENERATOR["MODULES"]
FOREIGN = (msgspec.UNSET, msgspec.UnsetType)
"""What is offered here and documented by msgspec."""


def public() -> Iterator[tuple[str, str, Any]]:
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            yield module, name, getattr(importlib.import_module(module), name)


def source(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def imported(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Give what a module imports from twofold: where from, and the name."""
    for statement in source(module).body:
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("twofold"):
            for alias in statement.names:
                yield str(statement.module), alias.asname or alias.name


def in_order(name: str) -> tuple[int, str]:
    """Sort as the linter does: CONSTANTS, Classes, functions."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_lists_what_it_offers_sorted_and_once(module: str) -> None:
    names = importlib.import_module(module).__all__
    assert list(names) == sorted(set(names), key=in_order)
    assert not [name for name in names if not hasattr(importlib.import_module(module), name)]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_offers_all_that_it_takes_from_its_underscored_modules_and_they_offer_it(module: str) -> None:
    taken = [(origin, name) for origin, name in imported(importlib.import_module(module)) if "._" in origin]
    names = set(importlib.import_module(module).__all__)
    assert {name for origin, name in taken if origin.startswith(module)} <= names
    assert [name for origin, name in taken if name not in importlib.import_module(origin).__all__] == []


def test_every_public_module_is_in_the_reference() -> None:
    found = {
        info.name
        for info in pkgutil.walk_packages(twofold.__path__, "twofold.")
        if not any(part.startswith("_") for part in info.name.split("."))
    }
    missing = sorted(name for name in found - set(MODULES) if not name.startswith("twofold.cli"))
    if missing:
        how = "name it in MODULES of docs/generate_reference.py, or begin its name with an underscore"
        pytest.fail(f"not in the reference: {', '.join(missing)}; {how}", pytrace=False)


@pytest.mark.parametrize(("module", "name", "value"), [pytest.param(*one, id=f"{one[0]}.{one[1]}") for one in public()])
def test_every_public_name_says_what_it_is(module: str, name: str, value: Any) -> None:
    if any(value is one for one in FOREIGN):
        return
    if isinstance(value, type) and "." in value.__module__:
        assert value.__dict__.get("__doc__"), f"{name} has no docstring of its own"
        for member, held in vars(value).items():
            function = held.fget if isinstance(held, property) else getattr(held, "__func__", held)
            if not member.startswith("_") and inspect.isfunction(function):
                assert inspect.getdoc(getattr(value, member)), f"{name}.{member} has no docstring"
    elif inspect.isroutine(value):
        assert inspect.getdoc(value)
