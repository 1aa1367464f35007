"""What differs between the revisions of ACP v2 (R-1), in one table.

==================  ==============================================  ==================================================
what                ``rfd`` (RFD of 2026-06-09; the default)        ``preview`` (schema of npm 2.4.0)
==================  ==============================================  ==================================================
patch ``_meta``     an object replaces the held object whole        per top-level key: ``null`` removes the key,
                                                                    another value replaces it whole; ``{}`` does nothing
==================  ==============================================  ==================================================

Patch ``_meta`` is that of messages, tool calls, terminals, session info and compactions. Where the revisions agree on
what is valid but not on how much (a location's ``line`` may be 0 in the older one), the models accept both.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType

__all__ = ["Revision", "patched", "patched_meta"]

T = TypeVar("T")


class Revision(str, Enum):
    """Which revision's rules a session is folded by."""

    RFD = "rfd"
    PREVIEW = "preview"


def patched(held: T, patch: T | None | UnsetType, *, empty: T) -> T:
    """Return the value held after ``patch``: absent keeps, null empties, a value replaces (F-2)."""
    if patch is UNSET:
        return held
    return empty if patch is None else patch  # type: ignore[return-value]  # UNSET was ruled out by identity


def patched_meta(
    held: dict[str, Any] | None, patch: dict[str, Any] | None | UnsetType, revision: Revision
) -> dict[str, Any] | None:
    """Return the ``_meta`` held after ``patch``, by the rule of ``revision`` (F-11, R-1)."""
    if revision is Revision.PREVIEW and isinstance(patch, dict):
        merged = {**(held or {}), **patch}
        kept = {key: value for key, value in merged.items() if value is not None}
        return kept if kept or held is not None else None
    return patched(held, patch, empty=None)
