"""v2 → v1. Stateless for one update (the RFD's step 5), and with a memory of what the v1 side was sent (V-1 … V-9)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, ClassVar, Final, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from twofold.convert._downgrade_tools import ToolCalls
from twofold.convert._loss import Loss
from twofold.convert._notes import Notes
from twofold.convert._reports import available_commands, config_options, plan
from twofold.exceptions import Unrepresentable
from twofold.fold import Part, ToolCall, block_of, part_of
from twofold.wire import same, v1, v2

__all__ = ["CORRECTED", "SUPERSEDES", "WITHDRAWN", "Downgraded", "Downgrader", "Policy", "downgrade"]

SUPERSEDES: Final = "twofold/supersedes"
"""The ``_meta`` key of marks and of what replaces a message: the v1 ``messageId`` that no longer counts."""

CORRECTED: Final = "*An earlier message was corrected. What follows replaces it.*"
WITHDRAWN: Final = "*An earlier message was withdrawn. What it said no longer counts.*"


class Policy(StrEnum):
    """What to do where v1 cannot say it: ``strict`` fails (V-5), ``mark`` tells the v1 user (V-8)."""

    STRICT = "strict"
    MARK = "mark"


class Downgraded(Struct, frozen=True, gc=False):
    """What one v2 update became: v1 updates to send in order, and what could not be carried.

    ``unchanged``: there is one v1 update and it is the v2 update, member for member: its bytes may be passed on.
    ``state`` is the state that was reported, for whoever answers v1 prompts.
    """

    updates: Sequence[v1.SessionUpdate] = ()
    losses: Sequence[Loss] = ()
    unchanged: bool = False
    state: v2.StateUpdate | None = None

    nothing: ClassVar[Downgraded]


Downgraded.nothing = Downgraded()

_CHUNKS: Final[dict[type[v2.ContentChunk], type[v1.ContentChunk]]] = {
    v2.UserMessageChunk: v1.UserMessageChunk,
    v2.AgentMessageChunk: v1.AgentMessageChunk,
    v2.AgentThoughtChunk: v1.AgentThoughtChunk,
}
_WHOLES: Final[dict[type[v2.MessageUpdate], type[v1.ContentChunk]]] = {
    v2.UserMessage: v1.UserMessageChunk,
    v2.AgentMessage: v1.AgentMessageChunk,
    v2.AgentThought: v1.AgentThoughtChunk,
}
_IDS: Final = ("message_id", "tool_call_id", "terminal_id", "compaction_id")

Chunk: TypeAlias = type[v1.ContentChunk]


def downgrade(update: v2.SessionUpdate) -> Sequence[v1.SessionUpdate]:
    """Convert one v2 update by itself, strictly: the RFD's step 5 to the letter (V-1, V-2, V-4, V-7).

    For a whole message it holds only when the v1 side has received nothing for that message: one update by itself
    cannot know that (V-3), a :class:`Downgrader` does. A tool call update is one of a tool call that was created
    before.
    Raises :class:`~twofold.exceptions.Unrepresentable` for everything else.
    """
    notes = _notes(update, strict=True)
    converter = Downgrader(policy=Policy.STRICT)
    match update:
        case v2.ToolCallUpdate():
            converter._tools.assume_known(update, notes)
        case v2.ToolCallContentChunk():
            raise notes.refuse("tool.chunk.alone", "$")
        case v2.TerminalUpdate() | v2.TerminalOutputChunk():
            raise notes.refuse("terminal", "$")
        case v2.StateUpdate():
            raise notes.refuse("state", "$")
        case v2.UsageUpdate(cost=None):
            raise notes.refuse("usage.cost.null", "$.cost")
        case _:
            pass
    result = converter._convert(update, notes)
    if notes.losses:  # carried as something else: by itself that is not what was said
        loss = notes.losses[0]
        raise Unrepresentable(loss.kind, id=loss.id, path=loss.path, reason=loss.reason)
    return result.updates


class Downgrader:
    """Converts one session from v2 to v1, remembering what the v1 side holds.

    :meth:`update` never raises for what v1 cannot say: that is in :attr:`Downgraded.losses`, nothing of a failed update
    is sent, and what the v1 side is known to hold does not change (V-6). Make a new one for each ``session/load``: a
    new v1 view begins with nothing delivered.

    While :attr:`pending` is true, tool call content waits to be sent: call :meth:`flush` after a short time, and
    :meth:`finish` at the end.
    """

    def __init__(self, *, policy: Policy | str = Policy.STRICT) -> None:
        self.policy = Policy(policy)
        self._strict = self.policy is Policy.STRICT
        self._messages: dict[Chunk, dict[str, _Sent]] = {chunk: {} for chunk in _CHUNKS.values()}
        self._chunks: dict[type[Any], tuple[Chunk, dict[str, _Sent]]] = {
            source: (chunk, self._messages[chunk]) for source, chunk in _CHUNKS.items()
        }
        self._wholes: dict[type[Any], tuple[Chunk, dict[str, _Sent]]] = {
            source: (chunk, self._messages[chunk]) for source, chunk in _WHOLES.items()
        }
        self._ids: dict[Chunk, set[str]] = {chunk: set() for chunk in _CHUNKS.values()}  # v1 ids in use
        self._tools = ToolCalls()
        self._plans: dict[str, v2.PlanUpdate] = {}
        self._cost_held = False

    @property
    def pending(self) -> bool:
        """Whether tool call content waits for :meth:`flush`."""
        return self._tools.pending

    @property
    def waiting(self) -> int:
        """How much a flush would send, in characters: what a caller goes by who must not send too much in a time."""
        return self._tools.waiting

    def update(self, update: v2.SessionUpdate) -> Downgraded:
        """Convert one update, in the order received."""
        known = self._chunks.get(type(update))
        if known is not None:  # V-1, written out here: the step that runs for every piece of streamed text
            chunk, messages = known
            one: Any = update
            message_id, block, meta, extra = one.message_id, one.content, one.meta, one.extra
            plain = type(block) is v2.TextContent
            if not plain:
                try:
                    _carried(block, "$.content", _notes(update, strict=True))
                except Unrepresentable as error:
                    return Downgraded((), (Loss(error.kind, error.id, error.path, error.reason),))
            sent = messages.get(message_id)
            if sent is None:
                sent = self._sent(chunk, message_id)
            if self._strict:
                sent.received = True
            elif plain and block.annotations is UNSET and block.meta is UNSET and block.extra is UNSET:
                sent.parts.append(block.text)  # part_of, written out
            else:
                sent.parts.append(part_of(block))
            v1_id = sent.v1_id
            if meta is UNSET and extra is UNSET:
                carried: Any = chunk(message_id=v1_id, content=block)
            else:
                sent.meta = sent.meta or bool(meta)
                carried = chunk(message_id=v1_id, content=block, meta=meta, extra=extra)
            return Downgraded((carried,), (), v1_id == message_id)
        known = self._wholes.get(type(update))
        if known is not None:
            first = self._first(update, known[0], known[1])  # type: ignore[arg-type]
            if first is not None:
                return first
        notes = _notes(update, strict=self._strict)
        try:
            result = self._convert(update, notes)
        except Unrepresentable as error:
            return Downgraded((), (*notes.losses, Loss(error.kind, error.id, error.path, error.reason)))
        if not notes.losses:
            return result
        return Downgraded(result.updates, tuple(notes.losses), False, result.state)

    def flush(self) -> Downgraded:
        """Send the tool call content that waits."""
        notes = Notes("tool_call_content_chunk", None, strict=False)
        updates = self._tools.flush(notes)
        return Downgraded(tuple(updates), tuple(notes.losses))

    def finish(self) -> Downgraded:
        """Send what waits and report what was never shown: the session's stream has ended."""
        flushed = self.flush()
        return Downgraded(flushed.updates, (*flushed.losses, *self._tools.unshown()))

    def tool_call(self, tool_call_id: str) -> ToolCall | None:
        """Give a tool call as it was said in v2, ``None`` when none of that id was."""
        return self._tools.held(tool_call_id)

    def v1_id(self, update: v2.ContentChunk | v2.MessageUpdate) -> str | None:
        """Give the v1 ``messageId`` that stands for the message of ``update`` now, ``None`` when none was sent."""
        chunk = _CHUNKS.get(type(update)) or _WHOLES.get(type(update))  # type: ignore[arg-type]
        sent = self._messages[chunk].get(update.message_id) if chunk is not None else None
        return None if sent is None else sent.v1_id

    def _first(self, update: v2.MessageUpdate, chunk: Chunk, messages: dict[str, _Sent]) -> Downgraded | None:
        """V-2 for the common message: text seen for the first time. ``None`` leaves the rest to the whole rules."""
        message_id, content, meta = update.message_id, update.content, update.meta
        if message_id in messages or not content or meta is None:
            return None
        for block in content:
            if type(block) is not v2.TextContent:
                return None
        sent = self._sent(chunk, message_id)
        sent.received = True
        sent.meta = bool(meta)
        if not self._strict:
            sent.parts = [part_of(block) for block in content]
        return Downgraded(_chunks(chunk, sent.v1_id, content, meta, update))

    def _convert(self, update: v2.SessionUpdate, notes: Notes) -> Downgraded:
        match update:
            case v2.UserMessageChunk() | v2.AgentMessageChunk() | v2.AgentThoughtChunk():
                _carried(update.content, "$.content", notes)
                return self.update(update)
            case v2.UserMessage() | v2.AgentMessage() | v2.AgentThought():
                chunk = _WHOLES[type(update)]
                return self._strict_whole(update, chunk, notes) if self._strict else self._whole(update, chunk, notes)
            case v2.ToolCallUpdate():
                return Downgraded(self._tools.update(update, notes))
            case v2.ToolCallContentChunk():
                return Downgraded(self._tools.chunk(update, notes))
            case v2.TerminalUpdate() | v2.TerminalOutputChunk():
                return Downgraded(self._tools.terminal(update, notes))
            case v2.PlanUpdate():
                return Downgraded((plan(update, self._plans, notes),))
            case v2.StateUpdate():
                return Downgraded(state=update)
            case v2.UsageUpdate():
                return self._usage(update, notes)
            case v2.AvailableCommandsUpdate():
                return Downgraded((available_commands(update, notes),))
            case v2.ConfigOptionUpdate():
                return Downgraded((config_options(update, notes),))
            case v2.SessionInfoUpdate():
                return Downgraded((update,), unchanged=True)
            case v2.Notice():
                raise notes.refuse("notice", "$")
            case v2.CompactionUpdate() | v2.CompactionSummaryChunk():
                raise notes.refuse("compaction", "$")
            case v2.OtherUpdate():
                raise notes.refuse("unknown", "$.sessionUpdate")

    def _usage(self, update: v2.UsageUpdate, notes: Notes) -> Downgraded:
        if update.cost is not None:
            self._cost_held = self._cost_held or update.cost is not UNSET
            return Downgraded((update,), unchanged=True)
        if self._cost_held:
            notes.lose("usage.cost.null", "$.cost")
        return Downgraded((v2.UsageUpdate(used=update.used, size=update.size, meta=update.meta, extra=update.extra),))

    # Messages

    def _sent(self, chunk: Chunk, message_id: str) -> _Sent:
        """Begin to remember a message. Its v1 id is its own unless that stands for another one by now."""
        sent = self._messages[chunk][message_id] = _Sent(self._free_id(chunk, message_id))
        return sent

    def _free_id(self, chunk: Chunk, message_id: str) -> str:
        used, free, number = self._ids[chunk], message_id, 1
        while free in used:
            number += 1
            free = f"{message_id}~{number}"
        used.add(free)
        return free

    def _strict_whole(self, update: v2.MessageUpdate, chunk: Chunk, notes: Notes) -> Downgraded:
        """V-2 … V-4 to the letter."""
        content = update.content
        if content is UNSET:
            raise notes.refuse("message.content.omitted", "$")
        if content is None:
            raise notes.refuse("message.content.null", "$.content")
        if not content:
            raise notes.refuse("message.content.empty", "$.content")
        if update.meta is None:
            raise notes.refuse("message.meta.null", "$._meta")
        for index, block in enumerate(content):
            _carried(block, f"$.content[{index}]", notes)
        sent = self._messages[chunk].get(update.message_id)
        if sent is not None and sent.received:
            raise notes.refuse("message.content.replaced", "$.content")
        sent = sent or self._sent(chunk, update.message_id)
        sent.received = True
        return Downgraded(_chunks(chunk, sent.v1_id, content, update.meta, update))

    def _whole(self, update: v2.MessageUpdate, chunk: Chunk, notes: Notes) -> Downgraded:
        """V-8: what counts is what the v1 reader holds, not the form of the update."""
        sent = self._messages[chunk].get(update.message_id)
        content = update.content
        if content is not UNSET:
            for index, block in enumerate(content or ()):
                _carried(block, f"$.content[{index}]", notes)
        sent = sent or self._sent(chunk, update.message_id)
        if update.meta is None and sent.meta:
            notes.lose("message.meta.null", "$._meta")
        fresh: list[Part] = [] if content is UNSET else [part_of(block) for block in content or ()]
        rest = () if content is UNSET else _rest(sent.parts, fresh)
        if rest is None:
            return self._marked(update, chunk, sent, fresh, notes)
        if not rest:
            if update.meta:
                notes.lose("message.meta.alone", "$._meta")
            if update.extra is not UNSET:
                notes.lose("message.extra.alone", "$")
            return Downgraded.nothing
        sent.parts = fresh
        sent.meta = sent.meta or bool(update.meta)
        return Downgraded(_chunks(chunk, sent.v1_id, [block_of(part) for part in rest], update.meta or UNSET, update))

    def _marked(
        self, update: v2.MessageUpdate, chunk: Chunk, sent: _Sent, fresh: list[Part], notes: Notes
    ) -> Downgraded:
        """Delivered content changed: say so, then send the new content under a new id that stands for the message."""
        old = sent.v1_id
        sent.v1_id = self._free_id(chunk, update.message_id)
        sent.parts = fresh
        sent.meta = bool(update.meta)
        mark = v1.AgentMessageChunk(
            message_id=self._free_id(v1.AgentMessageChunk, f"{old}-mark"),
            content=v2.TextContent(text=CORRECTED if fresh else WITHDRAWN),
            meta={SUPERSEDES: old},
        )
        if fresh:
            notes.note("message.content.replaced", "$.content", "a mark, and the content under a new id")
        else:
            key = "message.content.null" if update.content is None else "message.content.empty"
            notes.note(key, "$.content", "a mark")
        meta = {**(update.meta or {}), SUPERSEDES: old}
        return Downgraded((mark, *_chunks(chunk, sent.v1_id, [block_of(part) for part in fresh], meta, update)))


class _Sent:
    """A message on the v1 side: the id that stands for it now, and what was delivered under it.

    Strictly it is enough to know that something was (``received``); to mark, one must know what (``parts``).
    """

    __slots__ = ("meta", "parts", "received", "v1_id")

    def __init__(self, v1_id: str) -> None:
        self.v1_id = v1_id
        self.received = False
        self.parts: list[Part] = []
        self.meta = False


def _notes(update: v2.SessionUpdate, *, strict: bool) -> Notes:
    kind = update.kind if isinstance(update, v2.OtherUpdate) else str(type(update).__struct_config__.tag)
    id_ = next((value for name in _IDS if isinstance(value := getattr(update, name, None), str)), None)
    if isinstance(update, v2.PlanUpdate) and isinstance(update.plan, v2.PlanItems):
        id_ = update.plan.plan_id
    return Notes(kind, id_, strict=strict)


def _carried(block: v2.ContentBlock, path: str, notes: Notes) -> None:
    """V-7: refuse a block that v1 has no shape for."""
    if isinstance(block, v2.OtherContentBlock):
        raise notes.refuse("block.unknown", f"{path}.type")
    if isinstance(block, v2.ResourceLink) and block.icons is not UNSET:
        raise notes.refuse("block.icons", f"{path}.icons")


def _chunks(
    chunk: Chunk,
    v1_id: str,
    content: Sequence[v2.ContentBlock],
    meta: dict[str, Any] | UnsetType,
    update: v2.MessageUpdate,
) -> tuple[Any, ...]:
    extra = update.extra
    return tuple([chunk(message_id=v1_id, content=block, meta=meta, extra=extra) for block in content])


def _rest(held: Sequence[Part], fresh: Sequence[Part]) -> Sequence[Part] | None:
    """Give what of ``fresh`` goes beyond ``held``, or ``None`` when it does not begin with it.

    Both are compared after joining neighbouring plain text (P-3); how ``fresh`` cuts its text is kept for the rest.
    """
    joined = _joined(held)
    segment, offset = 0, 0
    for index, part in enumerate(fresh):
        if segment == len(joined):
            rest = fresh[index:]
            return rest if not joined or any(rest) else []  # text of no length adds nothing to what is right
        expected = joined[segment]
        if isinstance(part, str):
            if not part:
                continue
            if not isinstance(expected, str):
                return None
            if expected.startswith(part, offset):
                offset += len(part)
                if offset == len(expected):
                    segment, offset = segment + 1, 0
                continue
            left = len(expected) - offset
            if segment < len(joined) - 1 or left > len(part) or not part.startswith(expected[offset:]):
                return None
            return [part[left:], *fresh[index + 1 :]]
        if isinstance(expected, str) or not same(part, expected):
            return None
        segment += 1
    return [] if segment == len(joined) else None


def _joined(parts: Sequence[Part]) -> list[Part]:
    joined: list[Part] = []
    run: list[str] = []
    for part in parts:
        if isinstance(part, str):
            run.append(part)
            continue
        if text := "".join(run):
            joined.append(text)
        run = []
        joined.append(part)
    if text := "".join(run):
        joined.append(text)
    return joined
