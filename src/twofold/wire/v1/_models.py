"""The v1 definitions that differ from v2's. Enums that v1 calls closed are read as open: an unknown word is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from twofold.exceptions import Malformed
from twofold.wire._common import (
    CompactionSummaryChunk,
    CompactionUpdate,
    Content,
    Notice,
    PlanEntry,
    SessionConfigSelectOption,
    SessionInfoUpdate,
    Terminal,
    UsageUpdate,
)
from twofold.wire._content import ContentBlock
from twofold.wire._model import Model, OptionalMeta, Other, is_array, is_object
from twofold.wire._read import Reading, found, read, shape

__all__ = [
    "AgentMessageChunk",
    "AgentThoughtChunk",
    "AvailableCommand",
    "AvailableCommandsUpdate",
    "ConfigOptionUpdate",
    "ContentChunk",
    "CurrentModeUpdate",
    "Diff",
    "OtherSessionConfigOption",
    "OtherToolCallContent",
    "OtherUpdate",
    "Plan",
    "SessionConfigBoolean",
    "SessionConfigOption",
    "SessionConfigSelect",
    "SessionConfigSelectGroup",
    "SessionNotification",
    "SessionUpdate",
    "ToolCall",
    "ToolCallContent",
    "ToolCallLocation",
    "ToolCallUpdate",
    "UnstructuredCommandInput",
    "UserMessageChunk",
]


class ContentChunk(Model, frozen=True, kw_only=True):
    """One block of a message. Without a ``message_id`` (omitted or ``null``) only its neighbours say of which one."""

    content: ContentBlock
    message_id: str | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class UserMessageChunk(ContentChunk, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="user_message_chunk"):
    """A piece of a message of the user."""


class AgentMessageChunk(ContentChunk, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="agent_message_chunk"):
    """A piece of a message of the agent."""


class AgentThoughtChunk(ContentChunk, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="agent_thought_chunk"):
    """A piece of a thought of the agent."""


class Diff(Model, frozen=True, kw_only=True, tag_field="type", tag="diff"):
    """A file before (``old_text``; omitted or ``null`` when it was not there) and after a change."""

    path: str
    new_text: str
    old_text: str | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class OtherToolCallContent(Other, frozen=True, kw_only=True, tag_field="type"):
    """Tool-call content of a type that twofold does not know."""


ToolCallContent: TypeAlias = Content | Diff | Terminal | OtherToolCallContent


class ToolCallLocation(Model, frozen=True, kw_only=True):
    """A file a tool call touches."""

    path: str
    line: Annotated[int, Meta(ge=0)] | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class ToolCall(Model, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="tool_call"):
    """Creates a tool call."""

    tool_call_id: str
    title: str
    name: str | UnsetType | None = UNSET
    kind: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    content: Sequence[ToolCallContent] | UnsetType = UNSET
    locations: Sequence[ToolCallLocation] | UnsetType = UNSET
    raw_input: Any | UnsetType = UNSET
    raw_output: Any | UnsetType = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class ToolCallUpdate(Model, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="tool_call_update"):
    """Changes a tool call. ``null`` means the same as omitted; lists replace."""

    tool_call_id: str
    title: str | UnsetType | None = UNSET
    name: str | UnsetType | None = UNSET
    kind: str | UnsetType | None = UNSET
    status: str | UnsetType | None = UNSET
    content: Sequence[ToolCallContent] | UnsetType | None = UNSET
    locations: Sequence[ToolCallLocation] | UnsetType | None = UNSET
    raw_input: Any | UnsetType = UNSET
    raw_output: Any | UnsetType = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class Plan(Model, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="plan"):
    """Replaces the session's one plan."""

    entries: Sequence[PlanEntry]
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class UnstructuredCommandInput(Model, frozen=True, kw_only=True):
    """A command that takes the text after its name."""

    hint: str
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class AvailableCommand(Model, frozen=True, kw_only=True):
    """A slash command that the agent offers."""

    name: str
    description: str
    input: UnstructuredCommandInput | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class AvailableCommandsUpdate(
    Model, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="available_commands_update"
):
    """Replaces the list of commands."""

    available_commands: Sequence[AvailableCommand]
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class CurrentModeUpdate(Model, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="current_mode_update"):
    """The session went to another mode."""

    current_mode_id: str
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class SessionConfigSelectGroup(Model, frozen=True, kw_only=True):
    """Values of a select option under one heading."""

    group: str
    name: str
    options: Sequence[SessionConfigSelectOption]
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class _SelectOptions:
    """What the quick decoder sees of a select's options: values or groups of values, which have no tag."""

    __slots__ = ()


if TYPE_CHECKING:
    SessionConfigSelectOptions: TypeAlias = Sequence[SessionConfigSelectOption] | Sequence[SessionConfigSelectGroup]
else:
    SessionConfigSelectOptions = _SelectOptions


class _OptionList(list[Any], _SelectOptions):
    """A list that the decoder accepts where it was promised select options."""

    __slots__ = ()


@shape(_SelectOptions)
def _read_options(value: Any, path: str, reading: Reading) -> Any:
    if not is_array(value):
        raise Malformed(path, expected="an array", found=found(value))
    grouped = any(is_object(item) and "value" not in item and item.keys() & {"group", "options"} for item in value)
    kind = Sequence[SessionConfigSelectGroup] if grouped else Sequence[SessionConfigSelectOption]
    return _OptionList(read(kind, value, path, reading))


class _SessionConfigOption(Model, frozen=True, kw_only=True):
    id: str
    name: str
    description: str | UnsetType | None = UNSET
    category: str | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class SessionConfigSelect(_SessionConfigOption, frozen=True, kw_only=True, tag_field="type", tag="select"):
    """An option with a list of values to choose from."""

    current_value: str
    options: SessionConfigSelectOptions


class SessionConfigBoolean(_SessionConfigOption, frozen=True, kw_only=True, tag_field="type", tag="boolean"):
    """An option that is on or off."""

    current_value: bool


class OtherSessionConfigOption(Other, frozen=True, kw_only=True, tag_field="type"):
    """An option of a kind that twofold does not know."""

    BASE = _SessionConfigOption


SessionConfigOption: TypeAlias = SessionConfigSelect | SessionConfigBoolean | OtherSessionConfigOption


class ConfigOptionUpdate(Model, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="config_option_update"):
    """Replaces the list of configuration options."""

    config_options: Sequence[SessionConfigOption]
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class OtherUpdate(Other, frozen=True, kw_only=True, tag_field="sessionUpdate"):
    """An update of a kind that twofold does not know."""


SessionUpdate: TypeAlias = (
    AgentMessageChunk
    | AgentThoughtChunk
    | UserMessageChunk
    | ToolCall
    | ToolCallUpdate
    | Plan
    | UsageUpdate
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | Notice
    | CompactionUpdate
    | CompactionSummaryChunk
    | OtherUpdate
)


class SessionNotification(Model, frozen=True, kw_only=True):
    """The params of ``session/update``: one update of one session. ``meta`` belongs to the notification alone."""

    session_id: str
    update: SessionUpdate
    meta: OptionalMeta = field(default=UNSET, name="_meta")
