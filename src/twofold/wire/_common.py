"""Definitions that are the same in both protocol versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType, field

from twofold.wire._content import ContentBlock
from twofold.wire._model import Model, OptionalMeta

__all__ = [
    "CompactionSummaryChunk",
    "CompactionUpdate",
    "Content",
    "Cost",
    "Notice",
    "PlanEntry",
    "SessionConfigSelectOption",
    "SessionInfoUpdate",
    "Terminal",
    "UsageUpdate",
]


class Content(Model, frozen=True, kw_only=True, tag_field="type", tag="content"):
    """A content block as a tool call's output."""

    content: ContentBlock
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class Terminal(Model, frozen=True, kw_only=True, tag_field="type", tag="terminal"):
    """A terminal shown inside a tool call. In v2 the agent owns and reports it; in v1 it is the client's own."""

    terminal_id: str
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class PlanEntry(Model, frozen=True, kw_only=True):
    """One step of a plan.

    ``priority``: high, medium, low; ``status``: pending, in_progress, completed, cancelled (both open).
    """

    content: str
    priority: str
    status: str
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class Cost(Model, frozen=True, kw_only=True):
    """What the session has cost so far, in units of ``currency`` (ISO 4217)."""

    amount: int | float
    currency: str
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class SessionConfigSelectOption(Model, frozen=True, kw_only=True):
    """One value that a select option can take."""

    value: str
    name: str
    description: str | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class SessionInfoUpdate(Model, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="session_info_update"):
    """Patches the session's title and time of last activity (RFC 3339)."""

    title: str | UnsetType | None = UNSET
    updated_at: str | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class UsageUpdate(Model, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="usage_update"):
    """Tokens in context (``used``) of those that fit (``size``); ``cost`` is a patch field."""

    used: Annotated[int, Meta(ge=0)]
    size: Annotated[int, Meta(ge=0)]
    cost: Cost | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class Notice(Model, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="notice"):
    """Something to tell the user now; not part of the session's history. ``severity``: info, warning, error (open)."""

    severity: str
    title: Annotated[str, Meta(min_length=1)]
    description: str | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class CompactionUpdate(Model, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="compaction_update"):
    """Upserts a context compaction. ``status``: in_progress, completed, failed, cancelled (open)."""

    compaction_id: str
    status: str
    summary: Sequence[ContentBlock] | UnsetType | None = UNSET
    error: str | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class CompactionSummaryChunk(
    Model, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="compaction_summary_chunk"
):
    """Appends one block to a compaction's summary."""

    compaction_id: str
    content: ContentBlock
    meta: OptionalMeta = field(default=UNSET, name="_meta")
