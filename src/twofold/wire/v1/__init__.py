"""ACP v1: every ``session/update`` kind and its content, under the schema's own names."""

from __future__ import annotations

from typing import Final, Literal

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
from twofold.wire._read import Skipped
from twofold.wire.v1._models import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AvailableCommand,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    ContentChunk,
    CurrentModeUpdate,
    Diff,
    OtherSessionConfigOption,
    OtherToolCallContent,
    OtherUpdate,
    Plan,
    SessionConfigBoolean,
    SessionConfigOption,
    SessionConfigSelect,
    SessionConfigSelectGroup,
    SessionNotification,
    SessionUpdate,
    ToolCall,
    ToolCallContent,
    ToolCallLocation,
    ToolCallUpdate,
    UnstructuredCommandInput,
    UserMessageChunk,
)

__all__ = [
    "CODEC",
    "KINDS",
    "UNSET",
    "VERSION",
    "AgentMessageChunk",
    "AgentThoughtChunk",
    "Annotations",
    "AudioContent",
    "AvailableCommand",
    "AvailableCommandsUpdate",
    "BlobResourceContents",
    "CompactionSummaryChunk",
    "CompactionUpdate",
    "ConfigOptionUpdate",
    "Content",
    "ContentBlock",
    "ContentChunk",
    "Cost",
    "CurrentModeUpdate",
    "Diff",
    "EmbeddedResource",
    "EmbeddedResourceResource",
    "Icon",
    "ImageContent",
    "Kept",
    "Model",
    "Notice",
    "Other",
    "OtherContentBlock",
    "OtherSessionConfigOption",
    "OtherToolCallContent",
    "OtherUpdate",
    "Plan",
    "PlanEntry",
    "ResourceLink",
    "SessionConfigBoolean",
    "SessionConfigOption",
    "SessionConfigSelect",
    "SessionConfigSelectGroup",
    "SessionConfigSelectOption",
    "SessionInfoUpdate",
    "SessionNotification",
    "SessionUpdate",
    "Skipped",
    "Terminal",
    "TextContent",
    "TextResourceContents",
    "ToolCall",
    "ToolCallContent",
    "ToolCallLocation",
    "ToolCallUpdate",
    "UnsetType",
    "UnstructuredCommandInput",
    "UsageUpdate",
    "UserMessageChunk",
    "decode_line",
    "decode_params",
    "decode_update",
    "encode",
    "read_line",
    "read_params",
    "read_update",
    "same",
    "to_json",
]

VERSION: Final = 1
"""The ``protocolVersion`` of this module."""


class _Line(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    jsonrpc: Literal["2.0"]
    method: Literal["session/update"]
    params: SessionNotification


CODEC: Final[Codec[SessionNotification, SessionUpdate]] = Codec(SessionNotification, SessionUpdate, _Line)
"""Reads this version's updates; the functions below are its methods."""

read_line = CODEC.read_line
decode_line = CODEC.decode_line
decode_params = CODEC.decode_params
decode_update = CODEC.decode_update
read_params = CODEC.read_params
read_update = CODEC.read_update

KINDS: Final[frozenset[str]] = CODEC.kinds
"""Every ``sessionUpdate`` that has a model here."""
