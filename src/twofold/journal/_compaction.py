"""Which records one record can stand for, without disturbing order, followers or the folded state (J-4, J-5).

Of the records of one thing, the first stays as a patch-only update at first sight, and the last becomes the whole of
the thing; those between are removed. Whoever follows from between the two gets the whole: what it holds by then is
replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from twofold.fold import Revision, Transcript, replay
from twofold.journal._folding import BRACKETS
from twofold.journal._records import Form, Loaded, Record
from twofold.journal._supersede import clashing
from twofold.jsonrpc import dumps
from twofold.wire import v2

__all__ = ["Plan", "Thing", "compaction"]

Thing: TypeAlias = tuple[str, str]
"""What records are about: its kind and its id."""


class Plan(Struct):
    """What a compaction changes: new bytes for some positions, and positions that go."""

    rewritten: dict[int, tuple[bytes, Form]]
    removed: set[int]


class _Told:
    """What the records tell of one thing."""

    __slots__ = ("clashes", "forms", "names", "positions")

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.forms: list[Form] = []
        self.names: set[str] = set()  # of its unknown fields
        self.clashes = False  # some of them only a chunk can say

    def add(self, record: Record, update: v2.SessionUpdate) -> None:
        self.positions.append(record.position)
        self.forms.append(record.form)
        if update.extra is not UNSET:
            self.names.update(update.extra)
            self.clashes = self.clashes or bool(clashing(update))

    @property
    def compacted(self) -> bool:
        return len(self.forms) == 2 and self.forms[0] != "received" and self.forms[1] == "compacted"

    @property
    def first_form(self) -> Form:
        """What the record at first sight is marked as: that something was taken back goes on to be known."""
        return "rewritten" if "rewritten" in self.forms else "compacted"


_SINGLE: Final[Mapping[type[Any], str]] = {
    v2.StateUpdate: "state",
    v2.UsageUpdate: "usage",
    v2.AvailableCommandsUpdate: "available_commands",
    v2.ConfigOptionUpdate: "config_options",
    v2.SessionInfoUpdate: "session_info",
}
_MESSAGES: Final[Mapping[type[Any], str]] = {
    v2.UserMessage: "user_message",
    v2.UserMessageChunk: "user_message",
    v2.AgentMessage: "agent_message",
    v2.AgentMessageChunk: "agent_message",
    v2.AgentThought: "agent_thought",
    v2.AgentThoughtChunk: "agent_thought",
}


def compaction(loaded: Loaded, records: Iterable[Record], keep: Collection[Thing] = ()) -> Plan:
    """Say what can be compacted of a session that has no gaps and no replay under way; leave the things to ``keep``."""
    whole = _wholes(loaded.transcript)
    open_thing = _still_open(loaded.transcript)
    plan = Plan({}, set())
    for thing, told in _tellings(records, loaded.era).items():
        update = whole.get(thing)
        if update is None or thing == open_thing or thing in keep or len(told.positions) < 2:
            continue
        if told.clashes or told.compacted or _depends_on_history(loaded.transcript, update):
            continue
        first, *between, last = told.positions
        if type(update) in _SINGLE:
            between.append(first)
        else:
            plan.rewritten[first] = (_first_sight(update), told.first_form)
        plan.rewritten[last] = (v2.encode(_explicit(update, told.names)), "compacted")
        plan.removed.update(between)
    return plan


def _tellings(records: Iterable[Record], era: int) -> dict[Thing, _Told]:
    """Sort by thing what counts: not what a replay took the place of, nor a replay that failed."""
    tellings: dict[Thing, _Told] = {}
    failing = False  # of the replays after the last that succeeded, all did
    for record in records:
        if record.position <= era:
            continue
        if record.origin == "replay":
            failing = record.raw == BRACKETS["begin"]
        elif not failing:
            update = v2.decode_update(record.raw)
            thing = _thing(update)
            if thing is not None:
                tellings.setdefault(thing, _Told()).add(record, update)
    return tellings


def _wholes(transcript: Transcript) -> dict[Thing, v2.SessionUpdate]:
    """Give the one update that says all of a thing, for those that one update can say."""
    wholes: dict[Thing, v2.SessionUpdate] = {}
    for update in replay(transcript):
        thing = _thing(update)
        if thing is not None:
            wholes[thing] = update
    return wholes


def _thing(update: v2.SessionUpdate) -> Thing | None:
    """Name the thing that an update is about, ``None`` for what happens once."""
    kind = _MESSAGES.get(type(update))
    if kind is not None:
        return kind, update.message_id  # type: ignore[union-attr]
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
            name = _SINGLE.get(type(update))
            return None if name is None else ("single", name)


_UPSERTS: Final[Mapping[type[Any], Sequence[str]]] = {
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
    v2.SessionInfoUpdate: ("title", "updated_at", "meta"),
}
"""The patch fields of the updates whose unknown fields are patch fields too."""


def _explicit(update: v2.SessionUpdate, names: Iterable[str]) -> v2.SessionUpdate:
    """Say of every patch field that holds nothing that it does: a follower may hold what was cleared since.

    ``names`` are the unknown fields ever seen.
    """
    if isinstance(update, v2.UsageUpdate):
        return msgspec.structs.replace(update, cost=None) if update.cost is UNSET else update
    fields = _UPSERTS.get(type(update))
    if fields is None:
        return update
    changes: dict[str, Any] = {name: None for name in fields if getattr(update, name) is UNSET}
    held = {} if update.extra is UNSET else dict(update.extra)
    extra = dict.fromkeys(sorted(names)) | held
    if extra:
        changes["extra"] = v2.Kept(extra)
    return msgspec.structs.replace(update, **changes)


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


def _still_open(transcript: Transcript) -> Thing | None:
    """Name the last message while the agent works: it may go on any moment."""
    if transcript.state is None or transcript.state.state == "idle" or not transcript.messages:
        return None
    last = transcript.messages[-1]
    return last.type, last.message_id


def _depends_on_history(transcript: Transcript, update: v2.SessionUpdate) -> bool:
    """Whether a follower that holds an earlier form would not end at this one: ``preview`` merges objects."""
    return (
        transcript.revision is Revision.PREVIEW
        and type(update) in _UPSERTS
        and getattr(update, "meta", UNSET) is not UNSET
    )
