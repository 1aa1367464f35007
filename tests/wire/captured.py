"""Every `session/update` of the captured traffic: the lines as sent, told apart by protocol version."""

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from twofold.wire import v1, v2

CAPTURES = Path(__file__).parent.parent / "captures"


@functools.cache
def captured() -> list[tuple[ModuleType, bytes]]:
    """Give each update's line and the version module that reads it."""
    return list(_updates())


def _updates() -> Iterator[tuple[ModuleType, bytes]]:
    for path in sorted(CAPTURES.glob("*.jsonl")):
        for record in map(json.loads, path.read_bytes().split(b"\n")[:-1]):
            if '"session/update"' in record["line"]:
                # The README says it: those of v2 are named so (fast-agent's `claims-v2` speaks v1).
                yield (v2 if "-v2-" in path.name else v1), record["line"].encode()


@functools.cache
def by_kind() -> dict[tuple[str, str], list[tuple[ModuleType, bytes]]]:
    """Group the updates by module and `sessionUpdate`, so that rare kinds can be drawn as often."""
    groups: dict[tuple[str, str], list[tuple[ModuleType, bytes]]] = {}
    for module, line in captured():
        groups.setdefault((module.__name__, kind(line)), []).append((module, line))
    return groups


def kind(line: bytes) -> str:
    update: dict[str, Any] = json.loads(line)["params"]["update"]
    return str(update["sessionUpdate"])
