"""What type checkers must find in the models. They prove it by reading this file; `test_typing` runs it besides."""

from collections.abc import Sequence
from typing import Any, assert_never, assert_type

from twofold.jsonrpc import Batch, ErrorResponse, Frame, Notification, Request, Response, parse
from twofold.wire import UNSET, Kept, Skipped, UnsetType, encode, v1, v2

KIND = "agent_message_chunk"


def every_update_is_one_of_these(update: v2.SessionUpdate) -> str:
    match update:
        case v2.AgentMessage() | v2.AgentThought() | v2.UserMessage():
            assert_type(update.message_id, str)
            assert_type(update.content, Sequence[v2.ContentBlock] | UnsetType | None)
        case v2.AgentMessageChunk() | v2.AgentThoughtChunk() | v2.UserMessageChunk():
            assert_type(update.content, v2.ContentBlock)
        case v2.StateUpdate(state=state):
            assert_type(state, str)
            assert_type(update.background, Sequence[v2.BackgroundWork] | UnsetType | None)
        case v2.ToolCallUpdate():
            assert_type(update.kind, str | UnsetType | None)
            assert_type(update.locations, Sequence[v2.ToolCallLocation] | UnsetType | None)
        case v2.ToolCallContentChunk():
            assert_type(update.content, v2.ToolCallContent)
        case v2.TerminalUpdate():
            assert_type(update.output, v2.TerminalOutput | UnsetType | None)
        case v2.TerminalOutputChunk(data=data):
            assert_type(data, str)
        case v2.PlanUpdate():
            assert_type(update.plan, v2.PlanUpdateContent)
        case v2.AvailableCommandsUpdate():
            assert_type(update.available_commands, Sequence[v2.AvailableCommand])
        case v2.ConfigOptionUpdate():
            assert_type(update.config_options, Sequence[v2.SessionConfigOption])
        case v2.SessionInfoUpdate():
            assert_type(update.title, str | UnsetType | None)
        case v2.UsageUpdate():
            assert_type(update.used, int)
            assert_type(update.cost, v2.Cost | UnsetType | None)
        case v2.Notice():
            assert_type(update.severity, str)
        case v2.CompactionUpdate():
            assert_type(update.summary, Sequence[v2.ContentBlock] | UnsetType | None)
        case v2.CompactionSummaryChunk():
            assert_type(update.content, v2.ContentBlock)
        case v2.OtherUpdate(kind=kind, fields=fields):
            assert_type(kind, str)
            assert_type(fields, Kept)
        case _:
            assert_never(update)
    assert_type(update.meta if not isinstance(update, v2.OtherUpdate) else None, dict[str, Any] | UnsetType | None)
    assert_type(update.extra, Kept | UnsetType)
    return type(update).__name__


def every_v1_update_is_one_of_these(update: v1.SessionUpdate) -> str:
    match update:
        case v1.AgentMessageChunk() | v1.AgentThoughtChunk() | v1.UserMessageChunk():
            assert_type(update.message_id, str | UnsetType | None)
        case v1.ToolCall():
            assert_type(update.title, str)
            assert_type(update.content, Sequence[v1.ToolCallContent] | UnsetType)
        case v1.ToolCallUpdate():
            assert_type(update.title, str | UnsetType | None)
        case v1.Plan():
            assert_type(update.entries, Sequence[v1.PlanEntry])
        case v1.AvailableCommandsUpdate() | v1.CurrentModeUpdate() | v1.ConfigOptionUpdate():
            pass
        case v1.SessionInfoUpdate() | v1.UsageUpdate() | v1.Notice():
            pass
        case v1.CompactionUpdate() | v1.CompactionSummaryChunk() | v1.OtherUpdate():
            pass
        case _:
            assert_never(update)
    return type(update).__name__


def every_block_is_one_of_these(block: v2.ContentBlock) -> str:
    match block:
        case v2.TextContent(text=text):
            return assert_type(text, str)
        case v2.ImageContent() | v2.AudioContent():
            return assert_type(block.mime_type, str)
        case v2.ResourceLink():
            assert_type(block.icons, Sequence[v2.Icon] | UnsetType | None)
            return block.uri
        case v2.EmbeddedResource(resource=resource):
            assert_type(resource, v2.TextResourceContents | v2.BlobResourceContents)
            return resource.uri
        case v2.OtherContentBlock():
            return block.kind
        case _:
            assert_never(block)


def three_states_narrow_by_identity(message: v2.AgentMessage) -> int:
    content = message.content
    if content is UNSET:
        return -1
    if content is None:
        return 0
    assert_type(content, Sequence[v2.ContentBlock])
    return len(content)


def readers_give_the_types_of_their_version(line: bytes) -> bytes:
    skipped: list[Skipped] = []
    params = v2.decode_line(line)
    assert_type(params, v2.UpdateSessionNotification | None)
    assert_type(v1.decode_line(line), v1.SessionNotification | None)
    if params is None:
        return b""
    raw = encode(params)
    assert_type(raw, bytes)
    assert_type(v2.decode_params(raw, skipped=skipped), v2.UpdateSessionNotification)
    assert_type(v1.decode_params(raw), v1.SessionNotification)
    assert_type(v2.read_params({"sessionId": "s", "update": {"sessionUpdate": "later"}}).update, v2.SessionUpdate)
    assert_type(v2.decode_update(encode(params.update)), v2.SessionUpdate)
    assert_type(params.update, v2.SessionUpdate)
    return raw


def every_line_is_one_of_these(line: bytes) -> str:
    frame = parse(line)
    assert_type(frame, Frame | Batch)
    match frame:
        case Request(id=id, method=method):
            assert_type(id, int | str)
            return method
        case Notification(method=method):
            return method
        case Response(id=id):
            return str(id)
        case ErrorResponse(id=id, code=code):
            assert_type(id, int | str | None)
            return str(code)
        case Batch(frames=frames):
            return str(len(frames))
        case _:
            assert_never(frame)
