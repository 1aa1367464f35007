"""Which earlier records an update supersedes, and what is left of them (J-3, J-4).

Content lives in slots: a message's content, a tool call's content, raw input and raw output, a terminal's output, a
compaction's summary. A chunk adds to its slot; a field that is given replaces what the slot holds, and the records that
held it are to be erased from: they stay as patch-only updates, so first sight and order survive.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from msgspec import UNSET

from twofold.jsonrpc import dumps, loads
from twofold.wire import v2

__all__ = ["Eraser", "Index", "Slot", "slots", "without"]


class Slot(NamedTuple):
    """One place that content lives in. ``entity`` is the kind of thing, ``name`` the wire name of the field."""

    entity: str
    id: str
    name: str


_WHOLE: Final[dict[type[Any], str]] = {
    v2.UserMessage: "user_message",
    v2.AgentMessage: "agent_message",
    v2.AgentThought: "agent_thought",
}
_CHUNK: Final[dict[type[Any], str]] = {
    v2.UserMessageChunk: "user_message",
    v2.AgentMessageChunk: "agent_message",
    v2.AgentThoughtChunk: "agent_thought",
}
_ID: Final = {
    "user_message": "messageId",
    "agent_message": "messageId",
    "agent_thought": "messageId",
    "tool_call": "toolCallId",
    "terminal": "terminalId",
    "compaction": "compactionId",
}
_UPDATE: Final = {"tool_call": "tool_call_update", "terminal": "terminal_update"}
_CHUNKED: Final = {"tool_call_content_chunk": "tool_call", "terminal_output_chunk": "terminal"}
_TOOL_FIELDS: Final = {"content": "content", "raw_input": "rawInput", "raw_output": "rawOutput"}


def slots(update: v2.SessionUpdate) -> Iterable[tuple[Slot, bool]]:
    """Give the slots that an update gives content to, each with whether it replaces what is there."""
    kind = type(update)
    if kind in _CHUNK:
        return ((Slot(_CHUNK[kind], update.message_id, "content"), False),)  # type: ignore[union-attr]
    if kind in _WHOLE:
        if update.content is UNSET:  # type: ignore[union-attr]
            return ()
        return ((Slot(_WHOLE[kind], update.message_id, "content"), True),)  # type: ignore[union-attr]
    match update:
        case v2.ToolCallUpdate():
            return [
                (Slot("tool_call", update.tool_call_id, wire_name), True)
                for name, wire_name in _TOOL_FIELDS.items()
                if getattr(update, name) is not UNSET
            ]
        case v2.ToolCallContentChunk():
            return ((Slot("tool_call", update.tool_call_id, "content"), False),)
        case v2.TerminalUpdate():
            return () if update.output is UNSET else ((Slot("terminal", update.terminal_id, "output"), True),)
        case v2.TerminalOutputChunk():
            return ((Slot("terminal", update.terminal_id, "output"), False),)
        case v2.CompactionUpdate():
            return () if update.summary is UNSET else ((Slot("compaction", update.compaction_id, "summary"), True),)
        case v2.CompactionSummaryChunk():
            return ((Slot("compaction", update.compaction_id, "summary"), False),)
        case _:
            return ()


class Index:
    """Which records of one session hold the content of which slot.

    A record that has no position yet is noted under a negative one, counted from the end of its batch, until
    :meth:`settle` gives the batch its positions.
    """

    __slots__ = ("_held", "_unsettled")

    def __init__(self) -> None:
        self._held: dict[Slot, array[int]] = {}
        self._unsettled: set[Slot] = set()

    def add(self, position: int, update: v2.SessionUpdate) -> dict[Slot, array[int]]:
        """Note a record, and give the positions that it supersedes, by slot."""
        superseded: dict[Slot, array[int]] = {}
        for slot, replaces in slots(update):
            held = self._held.get(slot)
            if replaces:
                if held:
                    superseded[slot] = held
                self._held[slot] = array("q", (position,)) if _gives(update, slot) else array("q")
            elif held is None:
                self._held[slot] = array("q", (position,))
            else:
                held.append(position)
            if position < 0:
                self._unsettled.add(slot)
        return superseded

    def settle(self, positions: Sequence[int]) -> None:
        """Give the records of the last batch the positions that they got."""
        for slot in self._unsettled:
            held = self._held.get(slot, array("q"))
            for place in range(len(held) - 1, -1, -1):
                if held[place] > 0:
                    break
                held[place] = positions[held[place]]
        self._unsettled.clear()

    def of(self, entity: str, id: str) -> dict[Slot, array[int]]:
        """Give all that is held of one thing."""
        return {slot: held for slot, held in self._held.items() if slot.entity == entity and slot.id == id and held}

    def merge(self, fresh: Index) -> dict[Slot, array[int]]:
        """Let a replay's content take the place of what is held under the same ids, and give what that supersedes (P-5)."""
        things = {(slot.entity, slot.id) for slot in fresh._held}
        superseded = {slot: held for slot, held in self._held.items() if (slot.entity, slot.id) in things and held}
        self._held = {slot: held for slot, held in self._held.items() if slot not in superseded} | fresh._held
        return superseded


def _gives(update: v2.SessionUpdate, slot: Slot) -> bool:
    """Whether a replacing field brings content (a clear brings none)."""
    names = {**{wire: name for name, wire in _TOOL_FIELDS.items()}, "output": "output", "summary": "summary"}
    return bool(getattr(update, names[slot.name], None))


def without(raw: bytes, names: Iterable[str]) -> bytes:
    """Give the patch-only update that is left of a record when content fields are taken out of it (J-4).

    A chunk becomes a whole update of the same type and id that gives no field; its unknown fields, which a fold keeps with
    the thing, stay. Its own ``_meta`` goes with it (U-5).
    """
    update: dict[str, Any] = loads(raw)
    kind = str(update["sessionUpdate"])
    if kind == "compaction_summary_chunk":  # its whole update needs a status, which would be news: an empty piece is none
        return dumps({**update, "content": {"type": "text", "text": ""}, "_meta": None})
    if kind.endswith("_chunk"):
        entity = _CHUNKED.get(kind, kind.removesuffix("_chunk"))
        own = {"sessionUpdate", _ID[entity], "content", "data", "_meta"}
        kept = {"sessionUpdate": _UPDATE.get(entity, entity), _ID[entity]: update[_ID[entity]]}
        return dumps({**kept, **{name: value for name, value in update.items() if name not in own}})
    for name in names:
        update.pop(name, None)
    return dumps(update)


class Eraser:
    """Takes content out of records, quickly for the many plain chunks of one message: what is left of each is the same."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left: dict[tuple[type[Any], str], bytes] = {}

    def __call__(self, raw: bytes, names: Iterable[str]) -> bytes:
        """Give what :func:`without` gives."""
        update = v2.decode_update(raw)
        if not isinstance(update, v2.ContentChunk) or update.extra is not UNSET:
            return without(raw, names)
        key = (type(update), update.message_id)
        left = self._left.get(key)
        if left is None:
            left = self._left[key] = without(raw, names)
        return left
