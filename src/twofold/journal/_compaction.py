"""Which records one record can stand for, without disturbing order, followers or the folded state (J-4, J-5).

Of the records of one thing, the first stays as a patch-only update at first sight, and the last becomes the whole of the
thing; those between are removed. Whoever follows from between the two gets the whole: what it holds by then is replaced.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct

from twofold.fold import Revision, replay
from twofold.journal._records import Form, Loaded, Record
from twofold.jsonrpc import dumps
from twofold.wire import v2

__all__ = ["Plan", "compaction"]


class Plan(Struct):
    """What a compaction changes: new bytes for some positions, and positions that go."""

    rewritten: dict[int, tuple[bytes, Form]]
    removed: set[int]


_SINGLE: Final = {
    v2.StateUpdate: "state",
    v2.UsageUpdate: "usage",
    v2.AvailableCommandsUpdate: "available_commands",
    v2.ConfigOptionUpdate: "config_options",
    v2.SessionInfoUpdate: "session_info",
}
_MESSAGES: Final = {
    "user_message": (v2.UserMessage, v2.UserMessageChunk),
    "agent_message": (v2.AgentMessage, v2.AgentMessageChunk),
    "agent_thought": (v2.AgentThought, v2.AgentThoughtChunk),
}


def compaction(loaded: Loaded, records: Iterable[Record]) -> Plan:
    """Say what can be compacted of a session that has no gaps and no replay under way."""
    places: dict[Hashable, list[int]] = {}
    firsts: dict[int, bytes] = {}
    forms: dict[int, Form] = {}
    for record in records:
        if record.position <= loaded.era or record.origin == "replay":
            continue  # what a replay took the place of stays as it is
        update = v2.decode_update(record.raw)
        thing = _thing(update)
        if thing is None:
            continue
        held = places.setdefault(thing, [])
        if not held:
            firsts[record.position] = record.raw
        held.append(record.position)
        forms[record.position] = record.form
    whole = {_thing(update): update for update in replay(loaded.transcript)}
    plan = Plan({}, set())
    open_thing = _still_open(loaded)
    for thing, held in places.items():
        update = whole.get(thing)
        if update is None or thing == open_thing or len(held) < 2 or _depends_on_history(loaded, update):
            continue
        if len(held) == 2 and forms[held[0]] == forms[held[1]] == "compacted":
            continue
        single = type(update) in _SINGLE
        if single:
            plan.removed.update(held[:-1])
        else:
            plan.rewritten[held[0]] = (_first_sight(update), "compacted")
            plan.removed.update(held[1:-1])
        plan.rewritten[held[-1]] = (v2.encode(_explicit(update)), "compacted")
    return plan


def _thing(update: v2.SessionUpdate) -> tuple[str, str] | None:
    """Name the thing that an update is about, ``None`` for what happens once."""
    for kind, types in _MESSAGES.items():
        if isinstance(update, types):
            return kind, update.message_id
    match update:
        case v2.ToolCallUpdate() | v2.ToolCallContentChunk():
            return "tool_call", update.tool_call_id
        case v2.TerminalUpdate() | v2.TerminalOutputChunk():
            return "terminal", update.terminal_id
        case v2.CompactionUpdate() | v2.CompactionSummaryChunk():
            return "compaction", update.compaction_id
        case v2.PlanUpdate(plan=v2.PlanItems() as items):
            return "plan", items.plan_id
        case _:
            name = _SINGLE.get(type(update))  # type: ignore[arg-type]
            return None if name is None else ("single", name)


_PATCHED: Final[dict[type[Any], Sequence[str]]] = {
    v2.UserMessage: ("meta",),
    v2.AgentMessage: ("meta",),
    v2.AgentThought: ("meta",),
    v2.ToolCallUpdate: (
        "name",
        "title",
        "kind",
        "status",
        "content",
        "locations",
        "raw_input",
        "raw_output",
        "capabilities",
        "meta",
    ),
    v2.TerminalUpdate: ("command", "cwd", "output", "exit_status", "size", "capabilities", "meta"),
    v2.CompactionUpdate: ("summary", "error", "meta"),
    v2.UsageUpdate: ("cost",),
    v2.SessionInfoUpdate: ("title", "updated_at", "meta"),
}


def _explicit(update: v2.SessionUpdate) -> v2.SessionUpdate:
    """Say of every patch field that holds nothing that it does: a follower may hold what was cleared since."""
    cleared = {name: None for name in _PATCHED.get(type(update), ()) if getattr(update, name) is UNSET}
    return msgspec.structs.replace(update, **cleared)


def _first_sight(update: v2.SessionUpdate) -> bytes:
    """Give the update that says of a thing only that it is there."""
    bare: dict[str, Any] = {"sessionUpdate": type(update).__struct_config__.tag}
    match update:
        case v2.PlanUpdate(plan=v2.PlanItems() as items):
            bare["plan"] = {"type": "items", "planId": items.plan_id, "entries": []}
        case v2.CompactionUpdate():
            bare |= {"compactionId": update.compaction_id, "status": update.status}
        case v2.TerminalUpdate():
            bare["terminalId"] = update.terminal_id
        case v2.ToolCallUpdate():
            bare["toolCallId"] = update.tool_call_id
        case v2.UserMessage() | v2.AgentMessage() | v2.AgentThought():
            bare["messageId"] = update.message_id
        case _:
            raise TypeError("an update without a place in the timeline")
    return dumps(bare)


def _still_open(loaded: Loaded) -> tuple[str, str] | None:
    """Name the last message while the agent works: it may go on any moment."""
    transcript = loaded.transcript
    if transcript.state is None or transcript.state.state == "idle" or not transcript.messages:
        return None
    last = transcript.messages[-1]
    return last.type, last.message_id


def _depends_on_history(loaded: Loaded, update: v2.SessionUpdate) -> bool:
    """Whether a follower that holds an earlier form would not end at this one: ``preview`` merges an object into its own."""
    return loaded.transcript.revision is Revision.PREVIEW and getattr(update, "meta", UNSET) is not UNSET
