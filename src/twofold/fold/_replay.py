"""The inverse of the fold: the shortest list of updates that rebuilds a transcript (P-1 … P-3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, assert_never

from msgspec import UNSET, UnsetType


from twofold.fold._entities import Compaction, Entity, Message, Plan, Terminal, ToolCall, joined_text
from twofold.fold._transcript import Transcript
from twofold.wire import v2

__all__ = ["replay"]


def replay(transcript: Transcript, *, compact: bool = False) -> Iterator[v2.SessionUpdate]:
    """Give the updates that rebuild ``transcript``, one for each thing that it holds; the current state comes last.

    It is made from the state, not from history: what was replaced or withdrawn does not come back (P-2). With
    ``compact``, neighbouring plain text blocks of a message are joined (P-3): the text is the same, the blocks are fewer.
    """
    for entity in transcript.timeline:
        yield _update(entity, compact)
    singles = (
        transcript._session_info,
        transcript._available_commands,
        transcript._config_options,
        transcript._usage,
        transcript._state,
    )
    for update in singles:
        if update is not None:
            yield update


def _update(entity: Entity, compact: bool) -> v2.SessionUpdate:
    match entity:
        case Message():
            kind = _MESSAGES[entity.type]
            content = _blocks(entity.content, compact)
            return kind(message_id=entity.message_id, content=content, meta=_set(entity.meta), extra=entity._kept())
        case ToolCall():
            return _tool_call(entity)
        case Terminal():
            return v2.TerminalUpdate(
                terminal_id=entity.terminal_id,
                command=_set(entity.command),
                cwd=_set(entity.cwd),
                output=_set(entity.output_update()),
                exit_status=_set(entity.exit_status),
                size=_set(entity.size),
                capabilities=_set(entity.capabilities),
                meta=_set(entity.meta),
                extra=entity._kept(),
            )
        case Plan():
            return entity.update
        case Compaction():
            return v2.CompactionUpdate(
                compaction_id=entity.compaction_id,
                status=entity.status,
                summary=_blocks(entity.summary, compact) or UNSET,
                error=_set(entity.error),
                meta=_set(entity.meta),
                extra=entity._kept(),
            )
        case v2.OtherUpdate():
            return entity
        case _:
            assert_never(entity)


_MESSAGES = {
    "user_message": v2.UserMessage,
    "agent_message": v2.AgentMessage,
    "agent_thought": v2.AgentThought,
}


def _set(value: Any) -> Any | UnsetType:
    return UNSET if value is None else value


def _tool_call(call: ToolCall) -> v2.ToolCallUpdate:
    fields = {name: getattr(call, name) for name, empty in ToolCall.EMPTIES.items() if getattr(call, name) != empty}
    if call.content:
        fields["content"] = list(call.content)
    return v2.ToolCallUpdate(
        tool_call_id=call.tool_call_id, meta=_set(call.meta), extra=call._kept(), **fields
    )


def _blocks(content: Sequence[v2.ContentBlock], compact: bool) -> list[v2.ContentBlock]:
    if not compact:
        return list(content)
    blocks: list[v2.ContentBlock] = []
    run: list[str] = []
    for block in content:
        if type(block) is v2.TextContent and block == v2.TextContent(text=block.text):
            run.append(block.text)
            continue
        if run:
            blocks.append(v2.TextContent(text=joined_text(run)))
            run = []
        blocks.append(block)
    if run:
        blocks.append(v2.TextContent(text=joined_text(run)))
    return blocks
