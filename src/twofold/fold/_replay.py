"""The inverse of the fold: the shortest list of updates that rebuilds a transcript (P-1 … P-3)."""

# The entities are closed to everyone else; this module reads them as they are held.

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, assert_never

from msgspec import UNSET

from twofold.fold._entities import (
    Compaction,
    Entity,
    Message,
    MessageType,
    Part,
    Plan,
    Terminal,
    ToolCall,
    block_of,
    joined,
    or_unset,
)
from twofold.fold._transcript import Transcript
from twofold.wire import same, v2

__all__ = ["replay"]


def replay(transcript: Transcript, *, compact: bool = False) -> Iterator[v2.SessionUpdate]:
    """Give the updates that rebuild ``transcript``, one for each thing that it holds; the current state comes last.

    It is made from the state, not from history: what was replaced or withdrawn does not come back (P-2), and neither do
    notices. With ``compact``, neighbouring plain text blocks of a message are joined (P-3): the text is the same, the
    blocks are fewer. (A tool call, terminal or compaction takes a second update where a chunk brought an unknown field
    with the name of a field that the whole update has: only another chunk can say it.)

    The transcript is read as the iterator goes on. Hold updates back until it is at its end, or take a ``list`` of it.
    """
    for entity in transcript.timeline:
        yield from _updates(entity, compact)
    if transcript.session_info != v2.SessionInfoUpdate():
        yield transcript.session_info
    for update in (transcript._available_commands, transcript._config_options, transcript._usage, transcript._state):
        if update is not None:
            yield update


_MESSAGES: Final[dict[MessageType, type[v2.UserMessage] | type[v2.AgentMessage] | type[v2.AgentThought]]] = {
    "user_message": v2.UserMessage,
    "agent_message": v2.AgentMessage,
    "agent_thought": v2.AgentThought,
}


def _updates(entity: Entity, compact: bool) -> Iterator[v2.SessionUpdate]:
    match entity:
        case Message():
            yield _MESSAGES[entity.type](
                message_id=entity.message_id,
                content=_blocks(entity._parts, compact),
                meta=or_unset(entity.meta),
                extra=entity._update_fields(),
            )
        case ToolCall():
            items, chunk = list(entity._parts), entity._chunk_fields()
            last = [] if chunk is UNSET else [items.pop()]
            yield v2.ToolCallUpdate(
                tool_call_id=entity.tool_call_id,
                content=items or UNSET,
                meta=or_unset(entity.meta),
                extra=entity._update_fields(),
                **_known(entity),
            )
            for item in last:
                yield v2.ToolCallContentChunk(tool_call_id=entity.tool_call_id, content=item, extra=chunk)
        case Terminal():
            yield v2.TerminalUpdate(
                terminal_id=entity.terminal_id,
                output=or_unset(entity.output_update()),
                meta=or_unset(entity.meta),
                extra=entity._update_fields(),
                **_known(entity),
            )
            chunk = entity._chunk_fields()
            if chunk is not UNSET:
                yield v2.TerminalOutputChunk(terminal_id=entity.terminal_id, data="", extra=chunk)
        case Plan():
            yield entity.update
        case Compaction():
            blocks, chunk = _blocks(entity._parts, compact), entity._chunk_fields()
            last_block = [] if chunk is UNSET else [blocks.pop()]
            yield v2.CompactionUpdate(
                compaction_id=entity.compaction_id,
                status=entity.status,
                summary=blocks or UNSET,
                error=or_unset(entity.error),
                meta=or_unset(entity.meta),
                extra=entity._update_fields(),
            )
            for block in last_block:
                yield v2.CompactionSummaryChunk(compaction_id=entity.compaction_id, content=block, extra=chunk)
        case v2.OtherUpdate():
            yield entity
        case _:
            assert_never(entity)


def _known(entity: ToolCall | Terminal) -> dict[str, Any]:
    """Give the plain fields that are not what a new entity has anyhow."""
    held = {name: getattr(entity, name) for name in entity.EMPTIES}
    return {name: value for name, value in held.items() if not same(value, entity.EMPTIES[name])}


def _blocks(parts: list[Part], compact: bool) -> list[v2.ContentBlock]:
    return [block_of(part) for part in (joined(parts) if compact else parts)]
