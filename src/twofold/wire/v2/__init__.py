"""ACP v2: every stable ``session/update`` kind of the newest schema, under the schema's own names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from msgspec import UNSET, Struct, UnsetType

from twofold.wire._codec import Codec, encode
from twofold.wire._common import (
    CompactionSummaryChunk,
    CompactionUpdate,
    Content,
    Cost,
    Notice,
    PlanEntry,
    SessionConfigSelectOption,
    SessionInfoUpdate,
    Terminal,
    UsageUpdate,
)
from twofold.wire._content import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    EmbeddedResourceResource,
    Icon,
    ImageContent,
    OtherContentBlock,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from twofold.wire._model import Kept, Model, Other, same, to_json
from twofold.wire._read import Skipped, read
from twofold.wire.v2._requests import (
    CommandPermissionSubject,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    ListSessionsRequest,
    ListSessionsResponse,
    LoginAuthRequest,
    NewSessionRequest,
    NewSessionResponse,
    OtherReplayFrom,
    OtherRequestPermissionSubject,
    PermissionOption,
    PromptRequest,
    PromptResponse,
    ReplayFrom,
    ReplayFromStart,
    RequestPermissionRequest,
    RequestPermissionSubject,
    ResumeSessionRequest,
    ResumeSessionResponse,
    SessionInfo,
    SessionRequest,
    SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse,
    ToolCallPermissionSubject,
)
from twofold.wire.v2._session import (
    AvailableCommand,
    AvailableCommandInput,
    AvailableCommandsUpdate,
    BackgroundTerminal,
    BackgroundToolCall,
    BackgroundWork,
    Command,
    ConfigOptionUpdate,
    Error,
    OtherAvailableCommand,
    OtherAvailableCommandInput,
    OtherBackgroundWork,
    OtherPlanUpdateContent,
    OtherSessionConfigOption,
    PlanItems,
    PlanUpdate,
    PlanUpdateContent,
    SessionConfigBoolean,
    SessionConfigOption,
    SessionConfigSelect,
    SessionConfigSelectGroup,
    StateUpdate,
    TextCommandInput,
)
from twofold.wire.v2._tools import (
    AddChange,
    CopyChange,
    DeleteChange,
    Diff,
    DiffChange,
    DiffPatch,
    ModifyChange,
    MoveChange,
    OtherDiffChange,
    OtherToolCallContent,
    TerminalCancelCapabilities,
    TerminalCapabilities,
    TerminalExitStatus,
    TerminalOutput,
    TerminalOutputChunk,
    TerminalSize,
    TerminalUpdate,
    ToolCallCancelCapabilities,
    ToolCallCapabilities,
    ToolCallContent,
    ToolCallContentChunk,
    ToolCallLocation,
    ToolCallUpdate,
)
from twofold.wire.v2._updates import (
    AgentMessage,
    AgentMessageChunk,
    AgentThought,
    AgentThoughtChunk,
    ContentChunk,
    MessageUpdate,
    OtherUpdate,
    SessionUpdate,
    UpdateSessionNotification,
    UserMessage,
    UserMessageChunk,
)

__all__ = [
    "CODEC",
    "KINDS",
    "UNSET",
    "VERSION",
    "AddChange",
    "AgentMessage",
    "AgentMessageChunk",
    "AgentThought",
    "AgentThoughtChunk",
    "Annotations",
    "AudioContent",
    "AvailableCommand",
    "AvailableCommandInput",
    "AvailableCommandsUpdate",
    "BackgroundTerminal",
    "BackgroundToolCall",
    "BackgroundWork",
    "BlobResourceContents",
    "Command",
    "CommandPermissionSubject",
    "CompactionSummaryChunk",
    "CompactionUpdate",
    "ConfigOptionUpdate",
    "Content",
    "ContentBlock",
    "ContentChunk",
    "CopyChange",
    "Cost",
    "DeleteChange",
    "Diff",
    "DiffChange",
    "DiffPatch",
    "EmbeddedResource",
    "EmbeddedResourceResource",
    "Error",
    "Icon",
    "ImageContent",
    "Implementation",
    "InitializeRequest",
    "InitializeResponse",
    "Kept",
    "ListSessionsRequest",
    "ListSessionsResponse",
    "LoginAuthRequest",
    "MessageUpdate",
    "Model",
    "ModifyChange",
    "MoveChange",
    "NewSessionRequest",
    "NewSessionResponse",
    "Notice",
    "Other",
    "OtherAvailableCommand",
    "OtherAvailableCommandInput",
    "OtherBackgroundWork",
    "OtherContentBlock",
    "OtherDiffChange",
    "OtherPlanUpdateContent",
    "OtherReplayFrom",
    "OtherRequestPermissionSubject",
    "OtherSessionConfigOption",
    "OtherToolCallContent",
    "OtherUpdate",
    "PermissionOption",
    "PlanEntry",
    "PlanItems",
    "PlanUpdate",
    "PlanUpdateContent",
    "PromptRequest",
    "PromptResponse",
    "ReplayFrom",
    "ReplayFromStart",
    "RequestPermissionRequest",
    "RequestPermissionSubject",
    "ResourceLink",
    "ResumeSessionRequest",
    "ResumeSessionResponse",
    "SessionConfigBoolean",
    "SessionConfigOption",
    "SessionConfigSelect",
    "SessionConfigSelectGroup",
    "SessionConfigSelectOption",
    "SessionInfo",
    "SessionInfoUpdate",
    "SessionRequest",
    "SessionUpdate",
    "SetSessionConfigOptionRequest",
    "SetSessionConfigOptionResponse",
    "Skipped",
    "StateUpdate",
    "Terminal",
    "TerminalCancelCapabilities",
    "TerminalCapabilities",
    "TerminalExitStatus",
    "TerminalOutput",
    "TerminalOutputChunk",
    "TerminalSize",
    "TerminalUpdate",
    "TextCommandInput",
    "TextContent",
    "TextResourceContents",
    "ToolCallCancelCapabilities",
    "ToolCallCapabilities",
    "ToolCallContent",
    "ToolCallContentChunk",
    "ToolCallLocation",
    "ToolCallPermissionSubject",
    "ToolCallUpdate",
    "UnsetType",
    "UpdateSessionNotification",
    "UsageUpdate",
    "UserMessage",
    "UserMessageChunk",
    "decode_line",
    "decode_params",
    "decode_update",
    "encode",
    "read_content",
    "read_line",
    "read_params",
    "read_update",
    "same",
    "to_json",
]

VERSION: Final = 2
"""The ``protocolVersion`` of this module."""


class _Line(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    jsonrpc: Literal["2.0"]
    method: Literal["session/update"]
    params: UpdateSessionNotification


CODEC: Final[Codec[UpdateSessionNotification, SessionUpdate]] = Codec(UpdateSessionNotification, SessionUpdate, _Line)
"""Reads this version's updates; the functions below are its methods."""

read_line = CODEC.read_line
decode_line = CODEC.decode_line
decode_params = CODEC.decode_params
decode_update = CODEC.decode_update
read_params = CODEC.read_params
read_update = CODEC.read_update


def read_content(value: Any, *, path: str = "$") -> Sequence[ContentBlock]:
    """Read content blocks that are plain JSON values already, such as a prompt. Raises as :func:`read_update` does."""
    content: Sequence[ContentBlock] = read(Sequence[ContentBlock], value, path)
    return content


KINDS: Final[frozenset[str]] = CODEC.kinds
"""Every ``sessionUpdate`` that has a model here."""
