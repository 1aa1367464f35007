"""Which earlier records an update supersedes, and what is left of them (J-3, J-4).

Content lives in slots: a message's content, a tool call's content, raw input and raw output, a terminal's output, a
compaction's summary. A chunk adds to its slot; a field that is given replaces what the slot holds, and the records that
held it are to be erased from: they stay as patch-only updates, so first sight and order survive.

One slot more is :data:`FIELDS`: unknown fields of a chunk whose names the whole update knows for something else. A fold
keeps them until the content is cleared, and only a chunk can say them, so they go with the clearing, not before.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import UNSET

from twofold.jsonrpc import dumps, loads
from twofold.wire import v2

__all__ = ["FIELDS", "Eraser", "Index", "Slot", "slots", "without"]

Slot: TypeAlias = tuple[str, str, str]
"""One place that content lives in: the kind of thing, its id, and the wire name of the field."""

Held: TypeAlias = "array[int]"
"""The positions of the records that hold a slot's content."""

FIELDS: Final = "unknown fields"

_CHUNKS: Final[Mapping[type[Any], str]] = {
    v2.AgentMessageChunk: "agent_message",
    v2.AgentThoughtChunk: "agent_thought",
    v2.UserMessageChunk: "user_message",
}
_WHOLES: Final[Mapping[type[Any], str]] = {
    v2.AgentMessage: "agent_message",
    v2.AgentThought: "agent_thought",
    v2.UserMessage: "user_message",
}
_TOOL_FIELDS: Final = {"content": "content", "raw_input": "rawInput", "raw_output": "rawOutput"}


def _known(one: type[v2.Model], *but: type[v2.Model]) -> frozenset[str]:
    return frozenset(one.__struct_encode_fields__).difference(*(other.__struct_encode_fields__ for other in but))


_CLASHING: Final[Mapping[str, frozenset[str]]] = {
    "tool_call_content_chunk": _known(v2.ToolCallUpdate, v2.ToolCallContentChunk),
    "terminal_output_chunk": _known(v2.TerminalUpdate, v2.TerminalOutputChunk),
    "compaction_summary_chunk": _known(v2.CompactionUpdate, v2.CompactionSummaryChunk),
}
"""The names that only the whole update knows, by kind of chunk."""


def clashing(update: v2.SessionUpdate) -> frozenset[str]:
    """Give the unknown fields of a chunk that only a chunk can say."""
    if isinstance(update, v2.Other) or update.extra is UNSET:
        return frozenset()
    return _CLASHING.get(str(update.__struct_config__.tag), frozenset()).intersection(update.extra)


class _Touched:
    """What an update does to one slot: it gives content or not, in addition to what is there or instead of it."""

    __slots__ = ("empties", "gives", "replaces", "slot")

    def __init__(self, slot: Slot, *, replaces: bool, gives: bool, empties: bool = False) -> None:
        self.slot = slot
        self.replaces = replaces
        self.gives = gives
        self.empties = empties


def slots(update: v2.SessionUpdate) -> Iterator[Slot]:
    """Give the slots that an update says something for."""
    return (touched.slot for touched in _touched(update))


def _touched(update: v2.SessionUpdate) -> Iterator[_Touched]:
    kind = type(update)
    if kind in _CHUNKS:
        chunk: Any = update
        slot: Slot = (_CHUNKS[kind], chunk.message_id, "content")
        yield _Touched(slot, replaces=False, gives=True)
        return
    if kind in _WHOLES:
        yield from _field((_WHOLES[kind], update.message_id, "content"), update.content)  # type: ignore[union-attr]
        return
    match update:
        case v2.ToolCallUpdate():
            for name, wire_name in _TOOL_FIELDS.items():
                yield from _field(("tool_call", update.tool_call_id, wire_name), getattr(update, name))
        case v2.ToolCallContentChunk():
            yield _Touched(("tool_call", update.tool_call_id, "content"), replaces=False, gives=True)
            yield from _fields("tool_call", update.tool_call_id, update)
        case v2.TerminalUpdate(output=output):
            slot = ("terminal", update.terminal_id, "output")
            if output is not UNSET:
                bare = output is None or not output.data
                yield _Touched(slot, replaces=True, gives=output is not None, empties=bare)
        case v2.TerminalOutputChunk():
            slot = ("terminal", update.terminal_id, "output")
            yield _Touched(slot, replaces=False, gives=True, empties=not update.data)
            yield from _fields("terminal", update.terminal_id, update)
        case v2.CompactionUpdate():
            yield from _field(("compaction", update.compaction_id, "summary"), update.summary)
        case v2.CompactionSummaryChunk():
            yield _Touched(("compaction", update.compaction_id, "summary"), replaces=False, gives=True)
            yield from _fields("compaction", update.compaction_id, update)
        case _:
            return


def _field(slot: Slot, value: Any) -> Iterator[_Touched]:
    if value is not UNSET:
        # a raw input or output can be any value, ``0`` and ``""`` included; only of lists the empty one is none
        bare = value is None or (isinstance(value, (list, tuple)) and not value and slot[2] in ("content", "summary"))
        yield _Touched(slot, replaces=True, gives=not bare, empties=bare)


def _fields(entity: str, id: str, update: v2.SessionUpdate) -> Iterator[_Touched]:
    if clashing(update):
        yield _Touched((entity, id, FIELDS), replaces=False, gives=True)


_CLEARS: Final = {("tool_call", "content"), ("terminal", "output"), ("compaction", "summary")}
_NOTHING: Final[Mapping[Slot, Held]] = {}


class Index:
    """Which records of one session hold the content of which slot.

    A record that has no position yet is noted under a negative one, counted from the end of its batch, until
    :meth:`settle` gives the batch its positions.
    """

    __slots__ = ("_bare", "_held", "_kept", "_unsettled")

    def __init__(self) -> None:
        self._held: dict[Slot, Held] = {}
        self._kept: dict[Slot, Held] = {}
        self._bare: set[Slot] = set()  # held, but empty: an output of no bytes
        self._unsettled: set[Slot] = set()

    def add(self, position: int, update: v2.SessionUpdate) -> Mapping[Slot, Held]:
        """Note a record, and give the positions that it supersedes, by slot."""
        entity = _CHUNKS.get(type(update))
        if entity is not None:  # the common update, written out
            chunk: Any = update
            slot: Slot = (entity, chunk.message_id, "content")
            held = self._held.get(slot)
            if held is None:
                self._held[slot] = array("q", (position,))
            else:
                held.append(position)
            if position < 0:
                self._unsettled.add(slot)
            return _NOTHING
        return self._noted(position, update)

    def _noted(self, position: int, update: v2.SessionUpdate) -> Mapping[Slot, Held]:
        superseded: dict[Slot, Held] = {}
        for touched in _touched(update):
            slot = touched.slot
            held = self._held.get(slot)
            if touched.replaces:
                if held:
                    superseded[slot] = held
                    fields = (slot[0], slot[1], FIELDS)
                    if touched.empties and slot not in self._bare and (slot[0], slot[2]) in _CLEARS:
                        gone = self._held.pop(fields, None)
                        if gone:
                            superseded[fields] = gone
                self._held[slot] = array("q", (position,)) if touched.gives else array("q")
                (self._bare.add if touched.empties else self._bare.discard)(slot)
            else:
                if held is None:
                    self._held[slot] = array("q", (position,))
                else:
                    held.append(position)
                if not touched.empties:
                    self._bare.discard(slot)
                elif not held:
                    self._bare.add(slot)
            if position < 0:
                self._unsettled.add(slot)
        self._mention(update)
        return superseded

    def _mention(self, update: v2.SessionUpdate) -> None:
        """Remember a thing that an update names without a word on its content."""
        kind = type(update)
        if kind in _WHOLES:
            self._held.setdefault((_WHOLES[kind], update.message_id, "content"), array("q"))  # type: ignore[union-attr]
        elif isinstance(update, v2.ToolCallUpdate):
            self._held.setdefault(("tool_call", update.tool_call_id, "content"), array("q"))
        elif isinstance(update, v2.TerminalUpdate):
            self._held.setdefault(("terminal", update.terminal_id, "output"), array("q"))
        elif isinstance(update, v2.CompactionUpdate):
            self._held.setdefault(("compaction", update.compaction_id, "summary"), array("q"))

    def settle(self, positions: Sequence[int]) -> None:
        """Give the records of the last batch the positions that they got."""
        for slot in self._unsettled:
            for held in (self._held.get(slot), self._kept.get(slot)):
                for place in range(len(held or ()) - 1, -1, -1):
                    if held is None or held[place] > 0:
                        break
                    held[place] = positions[held[place]]
        self._unsettled.clear()

    def keep(self, superseded: Mapping[Slot, Held]) -> None:
        """Remember what is superseded and yet not erased: a redaction takes that too."""
        for slot, positions in superseded.items():
            self._kept.setdefault(slot, array("q")).extend(positions)

    @property
    def kept(self) -> set[tuple[str, str]]:
        """The things of which superseded content is kept."""
        return {(entity, id) for entity, id, _ in self._kept}

    def of(self, entity: str, id: str) -> dict[Slot, Held]:
        """Give all that is stored of one thing, kept superseded content included."""
        found: dict[Slot, Held] = {}
        for stored in (self._held, self._kept):
            for slot, positions in stored.items():
                if slot[:2] == (entity, id) and positions:
                    found[slot] = found.get(slot, array("q")) + positions
        return found

    def forget_kept(self, entity: str, id: str) -> None:
        """Forget the superseded content of one thing: it is erased now."""
        self._kept = {slot: positions for slot, positions in self._kept.items() if slot[:2] != (entity, id)}

    def merge(self, fresh: Index) -> dict[Slot, Held]:
        """Let a replay take the place of what is held of the same things, and give what that supersedes (P-5)."""
        things = {slot[:2] for slot in fresh._held}
        superseded = {slot: held for slot, held in self._held.items() if slot[:2] in things and held}
        self._held = {slot: held for slot, held in self._held.items() if slot[:2] not in things} | fresh._held
        self._bare = {slot for slot in self._bare if slot[:2] not in things} | fresh._bare
        self.keep(fresh._kept)
        return superseded

    def absorb(self, failed: Index) -> None:
        """Note what a failed replay left in storage: nobody sees it, and it goes with the same things' content."""
        for stored in (failed._held, failed._kept):
            for slot, held in stored.items():
                if slot in self._held:
                    self._held[slot].extend(held)
                elif held:
                    self._held[slot] = held


_NO_TEXT: Final = {"type": "text", "text": ""}
_CHUNK_OF: Final[Mapping[str, tuple[str, str, str, Any]]] = {
    "tool_call_content_chunk": ("tool_call_update", "toolCallId", "content", {"type": "content", "content": _NO_TEXT}),
    "terminal_output_chunk": ("terminal_update", "terminalId", "data", ""),
    "compaction_summary_chunk": ("compaction_summary_chunk", "compactionId", "content", _NO_TEXT),
}
"""Of each chunk that is not a message's: its whole update, its id, its content, and what it says that says nothing."""


def without(raw: bytes, names: Collection[str]) -> bytes:
    """Give the patch-only update that is left of a record when content fields are taken out of it (J-4).

    A chunk becomes a whole update of the same thing that gives no field; its unknown fields, which a fold keeps with
    the thing, stay. Its own ``_meta`` goes with it (U-5). Where a whole update cannot say what stays, or would say more
    (a compaction's needs a status), it remains a chunk, of nothing.
    """
    update: dict[str, Any] = loads(raw)
    kind = str(update["sessionUpdate"])
    if not kind.endswith("_chunk"):
        return dumps({name: value for name, value in update.items() if name not in names})
    whole, id_name, content, nothing = _CHUNK_OF.get(kind, (kind.removesuffix("_chunk"), "messageId", "content", None))
    clashes = _CLASHING.get(kind, frozenset())
    gone = {"sessionUpdate", id_name, content, "_meta", *(clashes if FIELDS in names else ())}
    extra = {name: value for name, value in update.items() if name not in gone}
    bare: dict[str, Any] = {"sessionUpdate": whole, id_name: update[id_name]}
    if whole == kind or not clashes.isdisjoint(extra):
        bare = {"sessionUpdate": kind, id_name: update[id_name], content: nothing}
    return dumps(bare | extra)


class Eraser:
    """Takes content out of records, quickly for the many plain chunks of one message: each leaves the same."""

    __slots__ = ("_left", "_start")

    END: Final = b'"}}'

    def __init__(self) -> None:
        self._start = b"?"  # the bytes up to the text of the last plain chunk
        self._left = b""

    def __call__(self, raw: bytes, names: Collection[str]) -> bytes:
        """Give what :func:`without` gives."""
        start = self._start
        if raw.startswith(start) and raw.endswith(self.END) and raw.find(b'"', len(start), -3) < 0:
            return self._left  # but for its text, which holds no quote, it is the chunk before
        left = without(raw, names)
        update = v2.decode_update(raw)
        if isinstance(update, v2.ContentChunk) and update.extra is UNSET and update.meta is UNSET:
            text = raw.rfind(b'"', 0, -3) + 1
            if raw.endswith(self.END) and raw.endswith(b'"text":"', 0, text):
                self._start, self._left = raw[:text], left
        return left
