"""Looking into JSON of others, which may have any shape."""

from __future__ import annotations

from typing import Any

from twofold.wire import is_array, is_object

__all__ = ["objects", "part"]


def part(value: Any, *path: str) -> dict[str, Any]:
    """Give the object at ``path`` inside ``value``; an empty one where there is none."""
    for name in path:
        value = value.get(name) if is_object(value) else None
    return value if is_object(value) else {}


def objects(value: Any) -> list[dict[str, Any]]:
    """Give the objects of an array; none of what is no array, and nothing that is no object."""
    return [item for item in value if is_object(item)] if is_array(value) else []
