"""Messages of v2 and the ``session/update`` notification with everything it can carry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import UNSET, UnsetType, field

from twofold.wire._common import (
    CompactionSummaryChunk,
    CompactionUpdate,
    Notice,
    SessionInfoUpdate,
    UsageUpdate,
)
from twofold.wire._content import ContentBlock
from twofold.wire._model import Model, OptionalMeta, Other
from twofold.wire.v2._session import AvailableCommandsUpdate, ConfigOptionUpdate, PlanUpdate, StateUpdate
from twofold.wire.v2._tools import TerminalOutputChunk, TerminalUpdate, ToolCallContentChunk, ToolCallUpdate

__all__ = [
    "AgentMessage",
    "AgentMessageChunk",
    "AgentThought",
    "AgentThoughtChunk",
    "ContentChunk",
    "MessageUpdate",
    "OtherUpdate",
    "SessionUpdate",
    "UpdateSessionNotification",
    "UserMessage",
    "UserMessageChunk",
]


class MessageUpdate(Model, frozen=True, kw_only=True):
    """Upserts a message: ``content`` and ``meta`` are patch fields (U-3), and so is every unknown field (U-7)."""

    message_id: str
    content: Sequence[ContentBlock] | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class UserMessage(MessageUpdate, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="user_message"):
    """A whole message of the user."""


class AgentMessage(MessageUpdate, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="agent_message"):
    """A whole message of the agent."""


class AgentThought(MessageUpdate, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="agent_thought"):
    """A whole thought of the agent."""


class ContentChunk(Model, frozen=True, kw_only=True):
    """Appends one block to a message (U-4). ``meta`` belongs to the chunk, not to the message (U-5)."""

    message_id: str
    content: ContentBlock
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class UserMessageChunk(ContentChunk, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="user_message_chunk"):
    """A piece of a message of the user."""


class AgentMessageChunk(ContentChunk, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="agent_message_chunk"):
    """A piece of a message of the agent."""


class AgentThoughtChunk(ContentChunk, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="agent_thought_chunk"):
    """A piece of a thought of the agent."""


class OtherUpdate(Other, frozen=True, kw_only=True, tag_field="sessionUpdate"):
    """An update of a kind that twofold does not know: a later version's, or an extension's (named ``_…``)."""


SessionUpdate: TypeAlias = (
    AgentMessageChunk
    | AgentThoughtChunk
    | UserMessageChunk
    | AgentMessage
    | AgentThought
    | UserMessage
    | ToolCallUpdate
    | ToolCallContentChunk
    | TerminalUpdate
    | TerminalOutputChunk
    | PlanUpdate
    | StateUpdate
    | UsageUpdate
    | AvailableCommandsUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | Notice
    | CompactionUpdate
    | CompactionSummaryChunk
    | OtherUpdate
)


class UpdateSessionNotification(Model, frozen=True, kw_only=True):
    """The params of ``session/update``: one update of one session. ``meta`` belongs to the notification alone."""

    session_id: str
    update: SessionUpdate
    meta: OptionalMeta = field(default=UNSET, name="_meta")
