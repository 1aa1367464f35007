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

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import UNSET, UnsetType

__all__ = ["Revision", "patched", "patched_meta"]

T = TypeVar("T")

Meta: TypeAlias = dict[str, Any]


class Revision(StrEnum):
    """Which revision's rules a session is folded by."""

    RFD = "rfd"
    PREVIEW = "preview"


def patched(held: T, patch: T | UnsetType | None, *, empty: T) -> T:
    """Return the value held after ``patch``: absent keeps, null empties, a value replaces (F-2)."""
    if patch is UNSET:
        return held
    return empty if patch is None else patch


def patched_meta(held: Meta | None, patch: Meta | UnsetType | None, revision: Revision) -> Meta | None:
    """Return the ``_meta`` held after ``patch``, by the rule of ``revision`` (F-11, R-1). Neither is changed."""
    if isinstance(patch, dict):
        patch = _OBJECT[revision](held, patch)
    return patched(held, patch, empty=None)


def _whole(_held: Meta | None, patch: Meta) -> Meta | None:
    return patch


def _by_key(held: Meta | None, patch: Meta) -> Meta | None:
    merged = {**(held or {}), **patch}
    # ours: when the last key goes, none is held. The empty object cannot be said in this revision: it does nothing.
    return {key: value for key, value in merged.items() if value is not None} or None


_OBJECT: Final[dict[Revision, Callable[[Meta | None, Meta], Meta | None]]] = {
    Revision.RFD: _whole,
    Revision.PREVIEW: _by_key,
}
