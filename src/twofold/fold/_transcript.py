"""(transcript, update) → change. One session's exact state after every update (F-1 … F-13)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, assert_never

from msgspec import UNSET


from twofold.fold._change import NOTHING, Change, ChangedEntity
from twofold.fold._entities import (
    Compaction,
    Entity,
    Message,
    MessageType,
    Plan,
    Terminal,
    ToolCall,
    View,
    decoded,
    itself,
    part_of,
)
from twofold.fold._revision import Revision, patched, patched_meta
from twofold.wire import Kept, same, to_json, v2
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


class Transcript:
    """One session: every message, tool call, terminal and plan as the agent last said it.

    Feed it with :meth:`apply`, in the order received; render from the :class:`Change` that each step returns, or
    :meth:`subscribe`. ``version`` counts the changes; an update that changes nothing leaves it as it is (F-12).
    """

    def __init__(self, session_id: str | None = None, *, revision: Revision | str = Revision.RFD) -> None:
        self.session_id = session_id
        self.revision = Revision(revision)
        self.version = 0
        self._subscribers: list[Callable[[Change], object]] = []
        self._clear()

    def _clear(self) -> None:
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
        self._session_info: v2.SessionInfoUpdate | None = None

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
        return self._session_info or v2.SessionInfoUpdate()

    def message(self, type: MessageType, message_id: str) -> Message | None:
        """Give the message with this type and id (both together are the key, F-8), or ``None``."""
        return self._messages_of(type).get(message_id)

    def tool_call(self, tool_call_id: str) -> ToolCall | None:
        """Give the tool call with this id, or ``None``."""
        return self._tool_calls.get(tool_call_id)

    def terminal(self, terminal_id: str) -> Terminal | None:
        """Give the terminal with this id, or ``None``."""
        return self._terminals.get(terminal_id)

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
            ("sessionInfo", self._session_info),
        ):
            if update is not None:
                members[name] = {key: value for key, value in to_json(update).items() if key != "sessionUpdate"}
        return members

    # Listening

    def subscribe(self, callback: Callable[[Change], object]) -> Callable[[], None]:
        """Call ``callback`` with every change, right after it was made. Returns the function that ends this.

        A callback that raises ends :meth:`apply` with its exception; the change itself is made by then.
        """
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            if callback in self._subscribers:
                self._subscribers.remove(callback)

        return unsubscribe

    # Folding

    def apply(self, update: v2.SessionUpdate) -> Change:
        """Fold one update in and say what it did.

        Raises :class:`~twofold.exceptions.Malformed` for terminal output that is no base64; nothing changed then.
        """
        match update:
            case AgentMessageChunk():
                change = self._append(self._agent_messages, "agent_message", update)
            case AgentThoughtChunk():
                change = self._append(self._agent_thoughts, "agent_thought", update)
            case UserMessageChunk():
                change = self._append(self._user_messages, "user_message", update)
            case AgentMessage():
                change = self._upsert(self._agent_messages, "agent_message", update)
            case AgentThought():
                change = self._upsert(self._agent_thoughts, "agent_thought", update)
            case UserMessage():
                change = self._upsert(self._user_messages, "user_message", update)
            case ToolCallUpdate():
                change = self._upsert_tool_call(update)
            case ToolCallContentChunk():
                change = self._append_tool_call_content(update)
            case TerminalUpdate():
                change = self._upsert_terminal(update)
            case TerminalOutputChunk():
                change = self._append_terminal_output(update)
            case PlanUpdate():
                change = self._upsert_plan(update)
            case StateUpdate():
                change = self._hold("_state", "state", update)
            case UsageUpdate():
                change = self._report_usage(update)
            case AvailableCommandsUpdate():
                change = self._hold("_available_commands", "available_commands", update)
            case ConfigOptionUpdate():
                change = self._hold("_config_options", "config_options", update)
            case SessionInfoUpdate():
                change = self._patch_session_info(update)
            case Notice():
                self._notices.append(update)
                change = Change("notice", update, True)
            case CompactionUpdate():
                change = self._upsert_compaction(update)
            case CompactionSummaryChunk():
                change = self._append_compaction_summary(update)
            case OtherUpdate():
                self._timeline.append(update)
                change = Change("other", update, True)
            case _:
                assert_never(update)
        if change is not NOTHING:
            self.version += 1
            for callback in self._subscribers:
                callback(change)
        return change

    def reload(self) -> Reload:
        """Begin to receive a replay: a fresh transcript that takes this one's place at :meth:`Reload.commit` (P-5)."""
        return Reload(self)

    def _hold(self, slot: str, entity: ChangedEntity, update: v2.SessionUpdate) -> Change:
        """Hold the last report of its kind: each is whole, and a repeated one is no change."""
        if same(update, getattr(self, slot)):
            return NOTHING
        setattr(self, slot, update)
        return Change(entity, update)

    def _messages_of(self, type: MessageType) -> dict[str, Message]:
        match type:
            case "user_message":
                return self._user_messages
            case "agent_message":
                return self._agent_messages
            case "agent_thought":
                return self._agent_thoughts

    def _new_message(self, held: dict[str, Message], message_type: MessageType, message_id: str) -> Message:
        message = held[message_id] = Message(message_type, message_id)
        self._messages.append(message)
        self._timeline.append(message)
        return message

    def _append(self, held: dict[str, Message], message_type: MessageType, update: v2.ContentChunk) -> Change:
        """F-5, F-7: a chunk appends its one block, and creates the message it is the first of. Its ``_meta`` is its own (U-5)."""
        message = held.get(update.message_id)
        created = message is None
        if message is None:
            message = self._new_message(held, message_type, update.message_id)
        block = update.content
        parts = message._parts
        if (  # part_of, written out: this is the step that runs for every chunk
            type(block) is TextContent and block.annotations is UNSET and block.meta is UNSET and block.extra is UNSET
        ):
            parts.append(block.text)
        else:
            parts.append(block)
        message.version += 1
        message.withdrawn = False
        # An unknown field of a chunk is kept with its message: a replay has no chunks to put it on (U-7, P-1).
        fields = () if update.extra is UNSET else message._patch_extra(update.extra)
        return Change("message", message, created, "appended", len(parts) - 1, block, fields)

    def _upsert(self, held: dict[str, Message], message_type: MessageType, update: v2.MessageUpdate) -> Change:
        """F-2, F-3, F-4, F-6: omitted keeps, ``null`` and ``[]`` clear, an array replaces everything held."""
        message = held.get(update.message_id)
        created = message is None
        if message is None:
            message = self._new_message(held, message_type, update.message_id)
        content = "kept"
        if update.content is not UNSET:
            content = message._replace([part_of(block) for block in update.content or ()])
        fields = message._patch_meta(update.meta, self.revision) + message._patch_extra(update.extra)
        if not created and content == "kept" and not fields:
            return NOTHING
        message.version += 1
        return Change("message", message, created, content, 0, None, fields)  # type: ignore[arg-type]

    def _upsert_tool_call(self, update: v2.ToolCallUpdate) -> Change:
        call, created = self._tool_call_for(update.tool_call_id)
        content = "kept"
        if update.content is not UNSET:
            content = call._replace(list(update.content or ()))
        fields = tuple(call._patch_fields(update, ToolCall.EMPTIES))
        fields += call._patch_meta(update.meta, self.revision) + call._patch_extra(update.extra)
        if not created and content == "kept" and not fields:
            return NOTHING
        call.version += 1
        return Change("tool_call", call, created, content, 0, None, fields)  # type: ignore[arg-type]

    def _append_tool_call_content(self, update: v2.ToolCallContentChunk) -> Change:
        call, created = self._tool_call_for(update.tool_call_id)
        call._items.append(update.content)
        call.version += 1
        fields = call._patch_extra(update.extra)
        return Change("tool_call", call, created, "appended", len(call._items) - 1, update.content, fields)

    def _tool_call_for(self, tool_call_id: str) -> tuple[ToolCall, bool]:
        call = self._tool_calls.get(tool_call_id)
        if call is not None:
            return call, False
        call = self._tool_calls[tool_call_id] = ToolCall(tool_call_id)
        self._timeline.append(call)
        return call, True

    def _upsert_terminal(self, update: v2.TerminalUpdate) -> Change:
        if isinstance(update.output, v2.TerminalOutput):
            decoded(update.output.data, "$.output.data")  # before anything is touched
        terminal, created = self._terminal_for(update.terminal_id)
        content = "kept"
        if update.output is not UNSET:
            content = terminal._replace(update.output)  # type: ignore[arg-type]
        fields = tuple(terminal._patch_fields(update, Terminal.EMPTIES))
        fields += terminal._patch_meta(update.meta, self.revision) + terminal._patch_extra(update.extra)
        if not created and content == "kept" and not fields:
            return NOTHING
        terminal.version += 1
        return Change("terminal", terminal, created, content, 0, None, fields)  # type: ignore[arg-type]

    def _append_terminal_output(self, update: v2.TerminalOutputChunk) -> Change:
        data = decoded(update.data, "$.data")
        terminal, created = self._terminal_for(update.terminal_id)
        fields = terminal._patch_extra(update.extra)
        if not data and not created and not fields:
            return NOTHING
        if data:
            terminal._chunks.append(data)
        terminal.version += 1
        return Change("terminal", terminal, created, "appended", len(data), data, fields)

    def _terminal_for(self, terminal_id: str) -> tuple[Terminal, bool]:
        terminal = self._terminals.get(terminal_id)
        if terminal is not None:
            return terminal, False
        terminal = self._terminals[terminal_id] = Terminal(terminal_id)
        self._timeline.append(terminal)
        return terminal, True

    def _upsert_plan(self, update: v2.PlanUpdate) -> Change:
        plan_id = update.plan.plan_id if isinstance(update.plan, v2.PlanItems) else update.plan.fields.get("planId")
        if not isinstance(plan_id, str):  # a plan of an unknown kind that does not say which: kept, replaces nothing
            plan = Plan(None, update)
            self._timeline.append(plan)
            return Change("plan", plan, True, "replaced")
        held = self._plans.get(plan_id)
        if held is None:
            plan = self._plans[plan_id] = Plan(plan_id, update)
            self._timeline.append(plan)
            return Change("plan", plan, True, "replaced")
        if same(update, held.update):
            return NOTHING
        held.update = update
        held.version += 1
        return Change("plan", held, False, "replaced")

    def _report_usage(self, update: v2.UsageUpdate) -> Change:
        held = UNSET if self._usage is None else self._usage.cost
        cost = patched(held, update.cost, empty=UNSET)
        after = v2.UsageUpdate(used=update.used, size=update.size, cost=cost, meta=update.meta, extra=update.extra)
        if same(after, self._usage):
            return NOTHING
        self._usage = after
        return Change("usage", after)

    def _patch_session_info(self, update: v2.SessionInfoUpdate) -> Change:
        held = self._session_info or v2.SessionInfoUpdate()
        meta = patched_meta(None if held.meta is UNSET else held.meta, update.meta, self.revision)
        extra = {} if held.extra is UNSET else dict(held.extra)
        if update.extra is not UNSET:
            extra = {name: value for name, value in {**extra, **update.extra}.items() if value is not None}
        after = v2.SessionInfoUpdate(
            title=patched(held.title, update.title, empty=UNSET),
            updated_at=patched(held.updated_at, update.updated_at, empty=UNSET),
            meta=UNSET if meta is None else meta,
            extra=Kept(extra) if extra else UNSET,
        )
        if same(after, held):
            return NOTHING
        self._session_info = after
        fields = tuple(
            wire_name
            for name, wire_name in (("title", "title"), ("updated_at", "updatedAt"), ("meta", "_meta"))
            if not same(getattr(after, name), getattr(held, name))
        )
        return Change("session_info", after, fields=fields)

    def _upsert_compaction(self, update: v2.CompactionUpdate) -> Change:
        compaction, created = self._compaction_for(update.compaction_id)
        content = "kept"
        if update.summary is not UNSET:
            content = compaction._replace([part_of(block) for block in update.summary or ()])
        fields = tuple(compaction._patch_fields(update, Compaction.EMPTIES))
        fields += compaction._patch_meta(update.meta, self.revision) + compaction._patch_extra(update.extra)
        if not created and content == "kept" and not fields:
            return NOTHING
        compaction.version += 1
        return Change("compaction", compaction, created, content, 0, None, fields)  # type: ignore[arg-type]

    def _append_compaction_summary(self, update: v2.CompactionSummaryChunk) -> Change:
        compaction, created = self._compaction_for(update.compaction_id)
        compaction._parts.append(part_of(update.content))
        compaction.version += 1
        fields = compaction._patch_extra(update.extra)
        return Change(
            "compaction", compaction, created, "appended", len(compaction._parts) - 1, update.content, fields
        )

    def _compaction_for(self, compaction_id: str) -> tuple[Compaction, bool]:
        compaction = self._compactions.get(compaction_id)
        if compaction is not None:
            return compaction, False
        compaction = self._compactions[compaction_id] = Compaction(compaction_id)
        self._timeline.append(compaction)
        return compaction, True


class Reload:
    """A replay under way (P-5): folded into a fresh transcript while the old one still stands.

    :meth:`apply` every replayed update; at the answer :meth:`commit`, or drop the object when the resume failed.
    """

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self.fresh = Transcript(transcript.session_id, revision=transcript.revision)
        """What was replayed so far."""

    def apply(self, update: v2.SessionUpdate) -> Change:
        """Fold one replayed update into the fresh transcript. Nobody is told before the commit."""
        return self.fresh.apply(update)

    def commit(self) -> Change:
        """Let the fresh state take the old one's place, and tell the subscribers that everything is new."""
        transcript = self._transcript
        kept = transcript._subscribers, transcript.version
        vars(transcript).update(vars(self.fresh))
        transcript._subscribers, version = kept
        transcript.version = version + 1
        self.fresh = Transcript(transcript.session_id, revision=transcript.revision)
        change = Change("transcript", transcript, content="replaced")
        for callback in transcript._subscribers:
            callback(change)
        return change
