"""Tool calls and terminals of v2: upserts keyed by id, and the chunks that append to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from twofold.wire._common import Content, Terminal
from twofold.wire._model import Model, OptionalMeta, Other

__all__ = [
    "AddChange",
    "CopyChange",
    "DeleteChange",
    "Diff",
    "DiffChange",
    "DiffPatch",
    "ModifyChange",
    "MoveChange",
    "OtherDiffChange",
    "OtherToolCallContent",
    "TerminalCancelCapabilities",
    "TerminalCapabilities",
    "TerminalExitStatus",
    "TerminalOutput",
    "TerminalOutputChunk",
    "TerminalSize",
    "TerminalUpdate",
    "ToolCallCancelCapabilities",
    "ToolCallCapabilities",
    "ToolCallContent",
    "ToolCallContentChunk",
    "ToolCallLocation",
    "ToolCallUpdate",
]


class _DiffChange(Model, frozen=True, kw_only=True):
    file_type: str | UnsetType | None = UNSET
    mime_type: str | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class AddChange(_DiffChange, frozen=True, kw_only=True, tag_field="operation", tag="add"):
    """A file that was added. Paths are absolute."""

    path: str


class DeleteChange(_DiffChange, frozen=True, kw_only=True, tag_field="operation", tag="delete"):
    """A file that was deleted."""

    path: str


class ModifyChange(_DiffChange, frozen=True, kw_only=True, tag_field="operation", tag="modify"):
    """A file that was modified."""

    path: str


class MoveChange(_DiffChange, frozen=True, kw_only=True, tag_field="operation", tag="move"):
    """A file that was moved from ``old_path``."""

    old_path: str
    path: str


class CopyChange(_DiffChange, frozen=True, kw_only=True, tag_field="operation", tag="copy"):
    """A file that was copied from ``old_path``."""

    old_path: str
    path: str


class OtherDiffChange(Other, frozen=True, kw_only=True, tag_field="operation"):
    """A change of a kind that twofold does not know."""

    BASE = _DiffChange


DiffChange: TypeAlias = AddChange | DeleteChange | ModifyChange | MoveChange | CopyChange | OtherDiffChange


class DiffPatch(Model, frozen=True, kw_only=True):
    """The text of a change; ``format`` is ``git_patch`` or another word."""

    format: str
    text: str
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class Diff(Model, frozen=True, kw_only=True, tag_field="type", tag="diff"):
    """Files that a tool call changed, and how if ``patch`` says so."""

    changes: Sequence[DiffChange]
    patch: DiffPatch | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class OtherToolCallContent(Other, frozen=True, kw_only=True, tag_field="type"):
    """Tool-call content of a type that twofold does not know; kept, never shown as text."""


ToolCallContent: TypeAlias = Content | Diff | Terminal | OtherToolCallContent


class ToolCallLocation(Model, frozen=True, kw_only=True):
    """A file a tool call touches. ``line`` counts from one; the older revision also allowed zero."""

    path: str
    line: Annotated[int, Meta(ge=0)] | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class ToolCallCancelCapabilities(Model, frozen=True, kw_only=True):
    """Marks that a tool call can be cancelled."""

    meta: OptionalMeta = field(default=UNSET, name="_meta")


class ToolCallCapabilities(Model, frozen=True, kw_only=True):
    """What a client may ask of a tool call."""

    cancel: ToolCallCancelCapabilities | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class ToolCallUpdate(Model, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="tool_call_update"):
    """Upserts a tool call: every field but the id is a patch field. ``null`` gives ``kind`` and ``status`` defaults."""

    tool_call_id: str
    name: str | UnsetType | None = UNSET
    title: str | UnsetType | None = UNSET
    kind: str | UnsetType | None = UNSET
    status: str | UnsetType | None = UNSET
    content: Sequence[ToolCallContent] | UnsetType | None = UNSET
    locations: Sequence[ToolCallLocation] | UnsetType | None = UNSET
    raw_input: Any | UnsetType = UNSET
    raw_output: Any | UnsetType = UNSET
    capabilities: ToolCallCapabilities | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class ToolCallContentChunk(Model, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="tool_call_content_chunk"):
    """Appends one item to a tool call's content."""

    tool_call_id: str
    content: ToolCallContent
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class TerminalOutput(Model, frozen=True, kw_only=True):
    """All bytes of a terminal so far, base64."""

    data: str
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class TerminalExitStatus(Model, frozen=True, kw_only=True):
    """How a terminal's command ended."""

    exit_code: int | UnsetType | None = UNSET
    signal: str | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class TerminalSize(Model, frozen=True, kw_only=True):
    """A terminal's size in character cells."""

    cols: Annotated[int, Meta(ge=1, le=65535)]
    rows: Annotated[int, Meta(ge=1, le=65535)]
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class TerminalCancelCapabilities(Model, frozen=True, kw_only=True):
    """Marks that a terminal can be cancelled."""

    meta: OptionalMeta = field(default=UNSET, name="_meta")


class TerminalCapabilities(Model, frozen=True, kw_only=True):
    """What a client may ask of a terminal."""

    cancel: TerminalCancelCapabilities | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class TerminalUpdate(Model, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="terminal_update"):
    """Upserts a terminal: every field but the id is a patch field; ``output`` replaces all bytes held."""

    terminal_id: str
    command: str | UnsetType | None = UNSET
    cwd: str | UnsetType | None = UNSET
    output: TerminalOutput | UnsetType | None = UNSET
    exit_status: TerminalExitStatus | UnsetType | None = UNSET
    size: TerminalSize | UnsetType | None = UNSET
    capabilities: TerminalCapabilities | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class TerminalOutputChunk(Model, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="terminal_output_chunk"):
    """Appends bytes to a terminal; each chunk is base64 of its own."""

    terminal_id: str
    data: str
    meta: OptionalMeta = field(default=UNSET, name="_meta")
