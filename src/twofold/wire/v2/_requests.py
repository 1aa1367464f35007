"""Params and results of v2's requests, as far as sessions need them. Capabilities stay plain JSON objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from twofold.wire._content import ContentBlock
from twofold.wire._model import Model, OptionalMeta, Other
from twofold.wire._read import Reading, model
from twofold.wire.v2._session import AvailableCommand, SessionConfigOption
from twofold.wire.v2._tools import ToolCallUpdate

__all__ = [
    "CommandPermissionSubject",
    "Implementation",
    "InitializeRequest",
    "InitializeResponse",
    "ListSessionsRequest",
    "ListSessionsResponse",
    "LoginAuthRequest",
    "NewSessionRequest",
    "NewSessionResponse",
    "OtherReplayFrom",
    "OtherRequestPermissionSubject",
    "PermissionOption",
    "PromptRequest",
    "PromptResponse",
    "ReplayFrom",
    "ReplayFromStart",
    "RequestPermissionRequest",
    "RequestPermissionSubject",
    "ResumeSessionRequest",
    "ResumeSessionResponse",
    "SessionInfo",
    "SessionRequest",
    "SetSessionConfigOptionRequest",
    "SetSessionConfigOptionResponse",
    "ToolCallPermissionSubject",
]


class Implementation(Model, frozen=True, kw_only=True):
    """The program at one end: its ``name`` for programs, its ``version``, and a ``title`` for people."""

    name: str
    version: str
    title: str | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class InitializeRequest(Model, frozen=True, kw_only=True):
    """The params of ``initialize``; ``capabilities`` as sent."""

    protocol_version: int
    info: Implementation
    capabilities: dict[str, Any] | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class InitializeResponse(Model, frozen=True, kw_only=True):
    """The result of ``initialize``: the version that both go on with. Without ``info`` it is no answer of v2."""

    protocol_version: int
    info: Implementation
    capabilities: dict[str, Any] | UnsetType | None = UNSET
    auth_methods: Sequence[dict[str, Any]] | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class LoginAuthRequest(Model, frozen=True, kw_only=True):
    """The params of ``auth/login``."""

    method_id: str
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class SessionRequest(Model, frozen=True, kw_only=True):
    """Params that only name a session: of ``session/close``, ``session/delete`` and ``session/cancel``."""

    session_id: str
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class _SessionSetup(Model, frozen=True, kw_only=True):
    cwd: str
    additional_directories: Sequence[str] | UnsetType | None = UNSET
    mcp_servers: Sequence[dict[str, Any]] | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class NewSessionRequest(_SessionSetup, frozen=True, kw_only=True):
    """The params of ``session/new``; paths are absolute, ``mcp_servers`` as sent."""


class ReplayFromStart(Model, frozen=True, kw_only=True, tag_field="type", tag="start"):
    """Replay everything that the agent retains."""

    meta: OptionalMeta = field(default=UNSET, name="_meta")


class OtherReplayFrom(Other, frozen=True, kw_only=True, tag_field="type"):
    """A replay cursor of a kind that twofold does not know."""


ReplayFrom: TypeAlias = ReplayFromStart | OtherReplayFrom


class ResumeSessionRequest(_SessionSetup, frozen=True, kw_only=True):
    """The params of ``session/resume``; without ``replay_from`` no history is asked for (P-4)."""

    session_id: str
    replay_from: ReplayFrom | UnsetType | None = UNSET


class NewSessionResponse(Model, frozen=True, kw_only=True):
    """The result of ``session/new``."""

    session_id: str
    config_options: Sequence[SessionConfigOption] | UnsetType | None = UNSET
    available_commands: Sequence[AvailableCommand] | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class ResumeSessionResponse(Model, frozen=True, kw_only=True):
    """The result of ``session/resume``."""

    config_options: Sequence[SessionConfigOption] | UnsetType | None = UNSET
    available_commands: Sequence[AvailableCommand] | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class ListSessionsRequest(Model, frozen=True, kw_only=True):
    """The params of ``session/list``: sessions of exactly this ``cwd``, from this ``cursor`` on."""

    cwd: str | UnsetType | None = UNSET
    cursor: str | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class SessionInfo(Model, frozen=True, kw_only=True):
    """A session in a list; ``updated_at`` in RFC 3339."""

    session_id: str
    cwd: str
    additional_directories: Sequence[str] | UnsetType | None = UNSET
    title: str | UnsetType | None = UNSET
    updated_at: str | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class ListSessionsResponse(Model, frozen=True, kw_only=True):
    """The result of ``session/list``; with a ``next_cursor`` there is more."""

    sessions: Sequence[SessionInfo]
    next_cursor: str | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class PromptRequest(Model, frozen=True, kw_only=True):
    """The params of ``session/prompt``: at least one block."""

    session_id: str
    prompt: Annotated[Sequence[ContentBlock], Meta(min_length=1)]
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class PromptResponse(Model, frozen=True, kw_only=True):
    """The result of ``session/prompt``, once the prompt is inserted; the older revision had no ``message_id``."""

    message_id: str | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class SetSessionConfigOptionRequest(Model, frozen=True, kw_only=True):
    """The params of ``session/set_config_option``: ``type`` is ``id`` (``value`` a string), ``boolean``, or another."""

    session_id: str
    config_id: str
    type: str
    value: Any | UnsetType = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class SetSessionConfigOptionResponse(Model, frozen=True, kw_only=True):
    """The result of ``session/set_config_option``: all options as they are now."""

    config_options: Sequence[SessionConfigOption]
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class PermissionOption(Model, frozen=True, kw_only=True):
    """One answer to a permission request. ``kind``: allow_once, allow_always, reject_once, reject_always (open)."""

    option_id: str
    name: str
    kind: str
    meta: OptionalMeta = field(default=UNSET, name="_meta")

    @property
    def allows(self) -> bool:
        """Whether choosing it allows what was asked. A kind that is not known does not."""
        return self.kind in ("allow_once", "allow_always")


class ToolCallPermissionSubject(Model, frozen=True, kw_only=True, tag_field="type", tag="tool_call"):
    """A permission for a tool call; ``tool_call`` is an update of it, applied like any other."""

    tool_call: dict[str, Any]
    meta: OptionalMeta = field(default=UNSET, name="_meta")

    def update(self, path: str = "$.params.subject.toolCall") -> ToolCallUpdate:
        """Give the update. Raises :class:`~twofold.exceptions.Malformed` with its path when it is none."""
        update: ToolCallUpdate = model(ToolCallUpdate)(self.tool_call, path, Reading())
        return update


class CommandPermissionSubject(Model, frozen=True, kw_only=True, tag_field="type", tag="command"):
    """A permission to run ``command`` in ``cwd``."""

    command: str
    cwd: str
    tool_call_id: str | UnsetType | None = UNSET
    terminal_id: str | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class OtherRequestPermissionSubject(Other, frozen=True, kw_only=True, tag_field="type"):
    """A subject of a kind that twofold does not know; kept."""


RequestPermissionSubject: TypeAlias = (
    ToolCallPermissionSubject | CommandPermissionSubject | OtherRequestPermissionSubject
)


class RequestPermissionRequest(Model, frozen=True, kw_only=True):
    """The params of ``session/request_permission``."""

    session_id: str
    title: str
    options: Sequence[PermissionOption]
    description: str | UnsetType | None = UNSET
    subject: RequestPermissionSubject | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")
