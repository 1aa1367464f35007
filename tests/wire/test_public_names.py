"""What `jsonrpc` and `wire` offer is what their underscored modules offer, and nothing is forgotten."""

import importlib
import pkgutil
from types import ModuleType

import pytest

from twofold import jsonrpc, wire
from twofold.wire import Model, v1, v2

# Names that the modules of a package share among themselves, and do not offer further.
INTERNAL = {
    "twofold.jsonrpc": {"cut"},
    "twofold.wire": {
        *("EXTRA", "OTHER", "OTHER_FIELDS", "OptionalMeta", "Reading"),
        *("found", "hook", "member", "model", "read", "shape"),
    },
}


def offered_inside(package: ModuleType) -> set[str]:
    modules = [
        importlib.import_module(f"{package.__name__}.{one.name}") for one in pkgutil.iter_modules(package.__path__)
    ]
    return {name for module in modules if module.__name__.rpartition(".")[2].startswith("_") for name in module.__all__}


def test_jsonrpc_offers_what_its_modules_offer() -> None:
    assert set(jsonrpc.__all__) == offered_inside(jsonrpc) - INTERNAL["twofold.jsonrpc"]


def test_wire_and_its_versions_offer_what_their_modules_offer() -> None:
    shared = offered_inside(wire) - INTERNAL["twofold.wire"]
    assert set(wire.__all__) <= shared
    for version in (v1, v2):
        assert (shared | offered_inside(version)) - {"Codec", "decode", "is_array", "is_object"} <= set(version.__all__)


@pytest.mark.parametrize("module", [jsonrpc, wire, v1, v2])
def test_every_offered_name_is_there_once(module: ModuleType) -> None:
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


@pytest.mark.parametrize("module", [v1, v2])
def test_every_model_that_a_version_uses_is_offered_by_it(module: ModuleType) -> None:
    used = {name for name, value in vars(module).items() if isinstance(value, type) and issubclass(value, Model)}
    assert used <= set(module.__all__)
    assert module.VERSION in (1, 2)
