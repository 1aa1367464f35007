"""(transcript, update) → change. One session's exact state after every update (F-1 … F-13)."""

# The entities are closed to everyone else; this module is what changes them.

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Final, TypeAlias, TypeVar, assert_never

from msgspec import UNSET

from twofold.fold._change import NOTHING, Change, ChangedContent, ChangedEntity, WholeChange
from twofold.fold._entities import (
    Compaction,
    Entity,
    Message,
    MessageType,
    Plan,
    SessionInfo,
    Terminal,
    ToolCall,
    Upsert,
    View,
    decoded,
    itself,
    part_of,
    parts_of,
)
from twofold.fold._revision import Revision, patched
from twofold.wire import same, to_json, v2
from twofold.wire.v2 import (
    AgentMessage,
    AgentMessageChunk,
    AgentThought,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    CompactionSummaryChunk,
    CompactionUpdate,
    ConfigOptionUpdate,
    Notice,
    OtherUpdate,
    PlanUpdate,
    SessionInfoUpdate,
    StateUpdate,
    TerminalOutputChunk,
    TerminalUpdate,
    TextContent,
    ToolCallContentChunk,
    ToolCallUpdate,
    UsageUpdate,
    UserMessage,
    UserMessageChunk,
)

__all__ = ["Reload", "Transcript"]

_CONTENT: Final = {"compaction": "summary"}
"""Where an update has its content, if not in ``content``."""

Callback: TypeAlias = Callable[[Change], object]
Listed = TypeVar("Listed", ToolCall, Compaction)
Keyed = TypeVar("Keyed", Message, ToolCall, Terminal, Compaction)


class Transcript:
    """One session: every message, tool call, terminal and plan as the agent last said it.

    Feed it with :meth:`apply`, in the order received; render from the :class:`Change` that each step returns, or
    :meth:`subscribe`. ``version`` counts the changes; an update that changes nothing leaves it as it is (F-12).
    """

    def __init__(self, session_id: str | None = None, *, revision: Revision | str = Revision.RFD) -> None:
        self.session_id = session_id
        self.revision = Revision(revision)
        self.version = 0
        self._subscribers: tuple[Callback, ...] = ()  # never changed in place: a callback may end its own subscription
        self._user_messages: dict[str, Message] = {}
        self._agent_messages: dict[str, Message] = {}
        self._agent_thoughts: dict[str, Message] = {}
        self._messages: list[Message] = []
        self._tool_calls: dict[str, ToolCall] = {}
        self._terminals: dict[str, Terminal] = {}
        self._plans: dict[str, Plan] = {}
        self._compactions: dict[str, Compaction] = {}
        self._timeline: list[Entity] = []
        self._notices: list[v2.Notice] = []
        self._state: v2.StateUpdate | None = None
        self._usage: v2.UsageUpdate | None = None
        self._available_commands: v2.AvailableCommandsUpdate | None = None
        self._config_options: v2.ConfigOptionUpdate | None = None
        self._session_info = SessionInfo()

    def __repr__(self) -> str:
        return f"<Transcript {self.session_id!r}, {len(self._messages)} messages, version {self.version}>"

    # What is held

    @property
    def messages(self) -> Sequence[Message]:
        """All messages in order of first sight, cleared ones too (F-9). Views are live and read-only."""
        return View(self._messages, itself)

    @property
    def tool_calls(self) -> Sequence[ToolCall]:
        """All tool calls in order of first sight."""
        return tuple(self._tool_calls.values())

    @property
    def terminals(self) -> Sequence[Terminal]:
        """All terminals in order of first sight."""
        return tuple(self._terminals.values())

    @property
    def plans(self) -> Sequence[Plan]:
        """All plans in order of first sight."""
        return tuple(entity for entity in self._timeline if isinstance(entity, Plan))

    @property
    def compactions(self) -> Sequence[Compaction]:
        """All compactions in order of first sight."""
        return tuple(self._compactions.values())

    @property
    def timeline(self) -> Sequence[Entity]:
        """Everything with a place of its own in order of first sight, updates of unknown kinds included."""
        return View(self._timeline, itself)

    @property
    def other(self) -> Sequence[v2.OtherUpdate]:
        """The updates of unknown kinds, as they came. Not for showing (U-7)."""
        return tuple(entity for entity in self._timeline if isinstance(entity, v2.OtherUpdate))

    @property
    def notices(self) -> Sequence[v2.Notice]:
        """The notices seen live. They are no history: a replay does not carry them."""
        return View(self._notices, itself)

    @property
    def state(self) -> v2.StateUpdate | None:
        """The last state reported, or ``None``: then the session counts as idle."""
        return self._state

    @property
    def usage(self) -> v2.UsageUpdate | None:
        """The last usage reported, with the cost that is held."""
        return self._usage

    @property
    def available_commands(self) -> Sequence[v2.AvailableCommand]:
        """The commands the agent offers."""
        return () if self._available_commands is None else self._available_commands.available_commands

    @property
    def config_options(self) -> Sequence[v2.SessionConfigOption]:
        """The configuration options the agent offers."""
        return () if self._config_options is None else self._config_options.config_options

    @property
    def session_info(self) -> v2.SessionInfoUpdate:
        """Title, time of last activity and ``_meta`` of the session; what is not held is omitted."""
        return self._session_info.update()

    def message(self, type: MessageType, message_id: str) -> Message | None:
        """Give the message with this type and id (both together are the key, F-8), or ``None``."""
        return self._messages_of(type).get(message_id)

    def tool_call(self, tool_call_id: str) -> ToolCall | None:
        """Give the tool call with this id, or ``None``."""
        return self._tool_calls.get(tool_call_id)

    def terminal(self, terminal_id: str) -> Terminal | None:
        """Give the terminal with this id, or ``None``."""
        return self._terminals.get(terminal_id)

    def plan(self, plan_id: str) -> Plan | None:
        """Give the plan with this id, or ``None``."""
        return self._plans.get(plan_id)

    def compaction(self, compaction_id: str) -> Compaction | None:
        """Give the compaction with this id, or ``None``."""
        return self._compactions.get(compaction_id)

    def to_json(self) -> dict[str, Any]:
        """Give the whole state as plain JSON values: what two transcripts must share to be the same session."""
        members: dict[str, Any] = {
            "sessionId": self.session_id,
            "messages": [message.to_json() for message in self._messages],
            "toolCalls": [call.to_json() for call in self._tool_calls.values()],
            "terminals": [terminal.to_json() for terminal in self._terminals.values()],
            "plans": [plan.to_json() for plan in self.plans],
            "other": [to_json(update) for update in self.other],
        }
        if self._compactions:
            members["compactions"] = [compaction.to_json() for compaction in self._compactions.values()]
        for name, update in (
            ("state", self._state),
            ("usage", self._usage),
            ("availableCommands", self._available_commands),
            ("configOptions", self._config_options),
            ("sessionInfo", self.session_info),
        ):
            held: dict[str, Any] = {} if update is None else to_json(update)
            held.pop("sessionUpdate", None)
            if held:
                members[name] = held
        return members

    # Listening

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Call ``callback`` with every change, right after it was made. Returns the function that ends this.

        Callbacks are called in the order of their subscription. One that raises ends :meth:`apply` with its exception;
        the change itself is made by then, and the others are told all the same. A callback may end its own subscription
        and read everything, but must not call :meth:`apply`: those after it would hear of the later change first.

        Raises :class:`TypeError` for a coroutine function: nothing here would await it.
        """
        if iscoroutinefunction(callback):
            raise TypeError("a callback is called, not awaited: give a plain function, not a coroutine function")
        subscriber = partial(callback) if callback in self._subscribers else callback  # so that no two are equal
        self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            self._subscribers = tuple(one for one in self._subscribers if one is not subscriber)

        return unsubscribe

    # Folding

    def apply(self, update: v2.SessionUpdate) -> Change:
        """Fold one update in and say what it did: :attr:`Change.nothing` if nothing.

        Raises :class:`~twofold.exceptions.Malformed`, with the path in ``update``, for terminal output that is no
        base64. Whatever it raises, nothing changed then (U-6); only what a subscriber raises comes after the change.
        """
        if type(update) is AgentMessageChunk:  # nearly all are of these two kinds; see _reduce for the rest
            change = self._append(self._agent_messages, "agent_message", update)
        elif type(update) is AgentThoughtChunk:
            change = self._append(self._agent_thoughts, "agent_thought", update)
        else:
            change = self._reduce(update)
        if change is not NOTHING:
            self.version += 1
            subscribers = self._subscribers
            for callback in subscribers:  # tell(), written out
                try:
                    callback(change)
                except BaseException:
                    tell_rest(subscribers, callback, change)
                    raise
        return change

    def _reduce(self, update: v2.SessionUpdate) -> Change:
        match update:  # in the order of how often they come: each class pattern that fails costs time
            case ToolCallUpdate():
                items = None if update.content is UNSET else list(update.content or ())
                return self._upsert("tool_call", self._tool_calls, update.tool_call_id, ToolCall, update, items)
            case TerminalOutputChunk():
                return self._append_output(update)
            case UsageUpdate():
                return self._report_usage(update)
            case TerminalUpdate():
                return self._upsert_terminal(update)
            case StateUpdate():
                return self._hold("_state", "state", update)
            case AgentMessage():
                return self._upsert_message(self._agent_messages, "agent_message", update)
            case PlanUpdate():
                return self._upsert_plan(update)
            case UserMessage():
                return self._upsert_message(self._user_messages, "user_message", update)
            case ToolCallContentChunk():
                return self._append_item(
                    "tool_call", self._tool_calls, update.tool_call_id, ToolCall, update, update.content
                )
            case AgentThought():
                return self._upsert_message(self._agent_thoughts, "agent_thought", update)
            case UserMessageChunk():
                return self._append(self._user_messages, "user_message", update)
            case AgentMessageChunk():
                return self._append(self._agent_messages, "agent_message", update)
            case AgentThoughtChunk():
                return self._append(self._agent_thoughts, "agent_thought", update)
            case OtherUpdate():
                self._timeline.append(update)
                return Change("other", update, True)
            case SessionInfoUpdate():
                return self._patch_session_info(update)
            case AvailableCommandsUpdate():
                return self._hold("_available_commands", "available_commands", update)
            case ConfigOptionUpdate():
                return self._hold("_config_options", "config_options", update)
            case Notice():
                self._notices.append(update)
                return Change("notice", update, True)
            case CompactionUpdate():
                parts = None if update.summary is UNSET else parts_of(update.summary or ())
                return self._upsert("compaction", self._compactions, update.compaction_id, Compaction, update, parts)
            case CompactionSummaryChunk():
                return self._append_item(
                    "compaction", self._compactions, update.compaction_id, Compaction, update, part_of(update.content)
                )
            case _:
                assert_never(update)

    def reload(self) -> Reload:
        """Begin to receive a replay: a fresh transcript that takes this one's place at :meth:`Reload.commit` (P-5)."""
        return Reload(self)

    def _messages_of(self, type: MessageType) -> dict[str, Message]:
        match type:
            case "user_message":
                return self._user_messages
            case "agent_message":
                return self._agent_messages
            case "agent_thought":
                return self._agent_thoughts
            case _:
                assert_never(type)

    def _append(self, held: dict[str, Message], message_type: MessageType, update: v2.ContentChunk) -> Change:
        """F-5, F-7: a chunk appends its one block, and creates the message that it is the first of.

        Its ``_meta`` is its own (U-5). This is the step that runs for every chunk, so nothing in it is shared.
        """
        message = held.get(update.message_id)
        created = False
        if message is None:
            created = True
            message = held[update.message_id] = Message(message_type, update.message_id)
            self._messages.append(message)
            self._timeline.append(message)
        fields = () if update.extra is UNSET else message._patch_extra(update.extra)
        block = update.content
        parts = message._parts
        index = len(parts)
        if (  # part_of, written out
            type(block) is TextContent and block.annotations is UNSET and block.meta is UNSET and block.extra is UNSET
        ):
            parts.append(block.text)
        else:
            parts.append(block)
        message.version += 1
        message.withdrawn = False
        return Change("message", message, created, "appended", index, block, fields)

    def _upsert_message(self, held: dict[str, Message], message_type: MessageType, update: v2.MessageUpdate) -> Change:
        """F-2, F-3, F-4, F-6: omitted keeps, ``null`` and ``[]`` clear, an array replaces everything held."""
        parts = None if update.content is UNSET else parts_of(update.content or ())
        change = self._upsert("message", held, update.message_id, partial(Message, message_type), update, parts)
        if change.created:
            self._messages.append(change.target)
        return change

    def _upsert(
        self,
        entity: ChangedEntity,
        held: dict[str, Keyed],
        key: str,
        make: Callable[[str], Keyed],
        update: Upsert,
        content: Any,
    ) -> Change:
        """Patch what is held under ``key``, or make it. ``content`` is its new content, ``None`` keeps what it has."""
        target = held.get(key)
        created = target is None
        if target is None:
            target = make(key)
        values, fields = target._after(update, self.revision)  # all that can fail comes before the first change
        done: ChangedContent = "kept" if content is None else target._replace(content)
        target._set(values)
        if done == "cleared":
            fields += [name for name in target._forget_chunk_fields() if name not in fields]
        if created:
            held[key] = target
            self._timeline.append(target)
        elif done == "kept" and not fields:
            return NOTHING
        target.version += 1
        block: Any = None
        if done == "replaced":  # as it is now: `target` goes on changing
            block = content if entity == "terminal" else getattr(update, _CONTENT.get(entity, "content"))
        return Change(entity, target, created, done, 0, block, tuple(fields))

    def _append_item(
        self,
        entity: ChangedEntity,
        held: dict[str, Listed],
        key: str,
        make: Callable[[str], Listed],
        update: v2.ToolCallContentChunk | v2.CompactionSummaryChunk,
        part: Any,
    ) -> Change:
        """Append one item to what is held under ``key``, or make it, as for messages (F-5, F-7, U-5)."""
        target = held.get(key)
        created = target is None
        if target is None:
            target = make(key)
        fields = () if update.extra is UNSET else target._patch_extra(update.extra)
        if created:
            held[key] = target
            self._timeline.append(target)
        target._parts.append(part)
        target.version += 1
        return Change(entity, target, created, "appended", len(target._parts) - 1, update.content, fields)

    def _upsert_terminal(self, update: v2.TerminalUpdate) -> Change:
        data = None
        if update.output is not UNSET:
            data = b"" if update.output is None else decoded(update.output.data, "$.output.data")
        return self._upsert("terminal", self._terminals, update.terminal_id, Terminal, update, data)

    def _append_output(self, update: v2.TerminalOutputChunk) -> Change:
        """Append the bytes of one chunk. An empty one is news only if it brings the terminal or an unknown field."""
        data = decoded(update.data, "$.data")
        terminal = self._terminals.get(update.terminal_id)
        created = terminal is None
        if terminal is None:
            terminal = Terminal(update.terminal_id)
        fields = () if update.extra is UNSET else terminal._patch_extra(update.extra)
        if created:
            self._terminals[update.terminal_id] = terminal
            self._timeline.append(terminal)
        elif not data and not fields:
            return NOTHING
        terminal.version += 1
        if not data:
            return Change("terminal", terminal, created, fields=fields)
        offset = len(terminal)
        terminal._append(data)
        return Change("terminal", terminal, created, "appended", offset, data, fields)

    def _upsert_plan(self, update: v2.PlanUpdate) -> Change:
        """Hold a plan as its update says it: each is whole, and a repeated one is no change."""
        plan_id = update.plan.plan_id if isinstance(update.plan, v2.PlanItems) else update.plan.fields.get("planId")
        # ours: a plan of an unknown kind that does not say which one it is replaces nothing, and nothing replaces it.
        key = plan_id if isinstance(plan_id, str) else None
        plan = None if key is None else self._plans.get(key)
        if plan is None:
            plan = Plan(key, update)
            if key is not None:
                self._plans[key] = plan
            self._timeline.append(plan)
            return Change("plan", plan, True, "replaced")
        if same(update, plan.update):
            return NOTHING
        plan.update = update
        plan.version += 1
        return Change("plan", plan, False, "replaced")

    def _hold(self, slot: str, entity: ChangedEntity, update: v2.SessionUpdate) -> Change:
        """Hold the last report of its kind: each is whole, and a repeated one is no change."""
        if same(update, getattr(self, slot)):
            return NOTHING
        setattr(self, slot, update)
        return Change(entity, update)

    def _report_usage(self, update: v2.UsageUpdate) -> Change:
        """Hold the last usage reported: whole, but for ``cost``, which is a patch field."""
        cost = patched(UNSET if self._usage is None else self._usage.cost, update.cost, empty=UNSET)
        after = v2.UsageUpdate(used=update.used, size=update.size, cost=cost, meta=update.meta, extra=update.extra)
        return self._hold("_usage", "usage", after)

    def _patch_session_info(self, update: v2.SessionInfoUpdate) -> Change:
        values, fields = self._session_info._after(update, self.revision)
        if not fields:
            return NOTHING
        self._session_info._set(values)
        return Change("session_info", self.session_info, fields=tuple(fields))

    def _take(self, other: Transcript) -> Change:
        """Hold what ``other`` holds, all of it. Views given out before stay live: their lists stay the same."""
        self._messages[:] = other._messages
        self._timeline[:] = other._timeline
        self._notices[:] = other._notices
        self._user_messages = other._user_messages
        self._agent_messages = other._agent_messages
        self._agent_thoughts = other._agent_thoughts
        self._tool_calls = other._tool_calls
        self._terminals = other._terminals
        self._plans = other._plans
        self._compactions = other._compactions
        self._state = other._state
        self._usage = other._usage
        self._available_commands = other._available_commands
        self._config_options = other._config_options
        self._session_info = other._session_info
        self.version += 1
        change = WholeChange("transcript", self, content="replaced")
        tell(self._subscribers, change)
        return change


def tell(subscribers: tuple[Callback, ...], change: Change) -> None:
    """Call everyone who subscribed with a change. What one of them raises goes on when the others have heard."""
    for callback in subscribers:
        try:
            callback(change)
        except BaseException:
            tell_rest(subscribers, callback, change)
            raise


def tell_rest(subscribers: tuple[Callback, ...], failed: Callback, change: Change) -> None:
    """Tell those who come after the one that raised."""
    tell(subscribers[subscribers.index(failed) + 1 :], change)


class Reload:
    """A replay under way (P-5): folded into a fresh transcript while the old one still stands.

    :meth:`apply` every replayed update; when the response arrives :meth:`commit`, or drop the object if it is an error.
    """

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self.fresh = Transcript(transcript.session_id, revision=transcript.revision)
        """What was replayed so far; after the commit the transcript itself."""

    def apply(self, update: v2.SessionUpdate) -> Change:
        """Fold one replayed update in. Nobody is told before the commit; one that comes after it is folded as usual."""
        return self.fresh.apply(update)

    def commit(self) -> Change:
        """Let the fresh state take the old one's place, and tell the subscribers that everything is new.

        Messages and all other entities are other objects from then on, and their versions begin anew: drop what was
        derived from the old ones. A second commit does nothing.
        """
        if self.fresh is self._transcript:
            return NOTHING
        fresh, self.fresh = self.fresh, self._transcript
        return self._transcript._take(fresh)
