"""v1 → v2. Stateless for one update (W-1, W-3, W-4), and with a memory for a session (W-2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar, assert_never

from msgspec import UNSET, Struct, UnsetType

from twofold.convert._diff import WHOLE_FILE, git_patch
from twofold.convert._loss import Loss
from twofold.exceptions import Malformed, Unrepresentable
from twofold.wire import to_json, v1, v2

__all__ = ["FROM_PROMPT", "PLAN_ID", "Upgraded", "Upgrader", "upgrade"]

PLAN_ID: Final = "main"
"""The id under which a session's one v1 plan is reported in v2 (W-3)."""

FROM_PROMPT: Final = "twofold/from-prompt"
"""The ``_meta`` key of user messages that no update reported: they were read off the prompt itself."""

T = TypeVar("T")

_CHUNKS: Final[dict[type[v1.ContentChunk], type[v2.ContentChunk]]] = {
    v1.UserMessageChunk: v2.UserMessageChunk,
    v1.AgentMessageChunk: v2.AgentMessageChunk,
    v1.AgentThoughtChunk: v2.AgentThoughtChunk,
}


def upgrade(update: v1.SessionUpdate) -> v2.SessionUpdate:
    """Convert one v1 update by itself, strictly.

    Raises :class:`~twofold.exceptions.Unrepresentable` for a chunk without ``messageId`` (W-2), a mode update and a
    client-owned terminal (W-4), and :class:`~twofold.exceptions.Malformed` for an update that only v2 knows and that
    does not have v2's shape.
    """
    match update:
        case v1.AgentMessageChunk() | v1.AgentThoughtChunk() | v1.UserMessageChunk():
            if not isinstance(update.message_id, str):
                raise Unrepresentable(
                    _kind(update),
                    id=None,
                    path="$.messageId",
                    reason="v2 needs a messageId, and this v1 chunk has none",
                )
            chunk: v2.SessionUpdate = _chunk(update, update.message_id)
            return chunk
        case v1.ToolCall() | v1.ToolCallUpdate():
            for index, item in enumerate(update.content or ()):
                if isinstance(item, v1.Terminal):
                    raise Unrepresentable(
                        _kind(update),
                        id=update.tool_call_id,
                        path=f"$.content[{index}]",
                        reason="the terminal is the v1 client's own, v2 has none of that kind",
                    )
            return _tool_call(update)
        case v1.Plan():
            plan = v2.PlanItems(plan_id=PLAN_ID, entries=_or(update.entries, ()))
            return v2.PlanUpdate(plan=plan, meta=update.meta, extra=update.extra)
        case v1.AvailableCommandsUpdate():
            commands = [_command(command) for command in _or(update.available_commands, ())]
            return v2.AvailableCommandsUpdate(available_commands=commands, meta=update.meta, extra=update.extra)
        case v1.ConfigOptionUpdate():
            try:
                options = [_config_option(option) for option in _or(update.config_options, ())]
            except Malformed as error:  # v2 asks for more than v1: a select has at least one value
                reason = f"v2 expects {error.expected} here"
                raise Unrepresentable(_kind(update), id=None, path=error.path, reason=reason) from None
            return v2.ConfigOptionUpdate(config_options=options, meta=update.meta, extra=update.extra)
        case v1.CurrentModeUpdate():
            raise Unrepresentable(
                _kind(update), id=None, path="$", reason="v2 has configuration options in place of modes"
            )
        case v1.UsageUpdate():
            # In v1 null says the same as nothing; in v2 it would clear the cost.
            cost = UNSET if update.cost is None else update.cost
            return v2.UsageUpdate(used=update.used, size=update.size, cost=cost, meta=update.meta, extra=update.extra)
        case v1.SessionInfoUpdate() | v1.Notice() | v1.CompactionUpdate() | v1.CompactionSummaryChunk():
            return update  # the same in both versions
        case v1.OtherUpdate():
            return v2.read_update(to_json(update))
        case _:
            assert_never(update)


class Upgraded(Struct, frozen=True):
    """What one v1 update became: v2 updates to apply in order, and what could not be carried."""

    updates: Sequence[v2.SessionUpdate] = ()
    losses: Sequence[Loss] = ()


class Upgrader:
    """Converts one session from v1 to v2, giving ids to the chunks that come without (W-2).

    Tell it of prompts, their answers and permission requests where they stand between the updates: they end messages.
    The ids it makes up are the same for the same input, and are never those of the agent, nor any of ``taken``: the
    message ids of a session that this goes on with and that was not replayed.
    """

    def __init__(self, *, taken: Iterable[str] = ()) -> None:
        self._run: tuple[type[v1.ContentChunk], str] | None = None  # the open run of untagged chunks, and its id
        self._seen: set[tuple[type[v1.ContentChunk] | None, str]] = (
            set()
        )  # messages, tool calls and plans by first sight
        self._ids = set(taken)  # all message ids of the agent
        self._made: dict[str, str] = {}  # ids made up here → what an agent's message of that id is called instead
        self._run_count = 0
        self._prompt_count = 0
        self._prompts: list[object] = []  # requests under way, the oldest first

    def restarted(self) -> Upgrader:
        """Give a converter for a replay of this session: nothing seen yet, the same prompts under way (P-5)."""
        fresh = Upgrader()
        fresh._prompts = self._prompts
        return fresh

    def prompt_sent(
        self, request_id: object, prompt: Sequence[v2.ContentBlock] | None = None
    ) -> Sequence[v2.SessionUpdate]:
        """Note that the client sent a prompt under ``request_id``.

        With the ``prompt`` itself, gives what a v2 agent would have reported and v1 has no update for: the user message
        (under a made-up id, marked by :data:`FROM_PROMPT` in its ``_meta``) and the state ``running``.
        """
        if not self._prompts:
            self._run = None
        self._prompts.append(request_id)
        if prompt is None:
            return ()
        self._prompt_count += 1
        message_id = self._unused(f"prompt-{self._prompt_count}")
        message = v2.UserMessage(message_id=message_id, content=prompt, meta={FROM_PROMPT: True})
        return message, v2.StateUpdate(state="running")

    def prompt_answered(self, request_id: object, stop_reason: str | None = None) -> Sequence[v2.SessionUpdate]:
        """Note that the agent answered a prompt. What comes after the answer may still belong to the message before it.

        With the ``stop_reason`` of the answer, gives the state ``idle`` when no other prompt is under way.
        """
        if request_id not in self._prompts:
            return ()
        if self._prompts[0] == request_id and len(self._prompts) > 1:
            self._run = None
        self._prompts.remove(request_id)
        if stop_reason is None or self._prompts:
            return ()
        return (v2.StateUpdate(state="idle", stop_reason=stop_reason),)

    def permission_requested(self) -> None:
        """Note that the agent asked for a permission."""
        self._run = None

    def update(self, update: v1.SessionUpdate) -> Upgraded:
        """Convert one update. What v2 has no place for is a loss, not an error.

        Raises :class:`~twofold.exceptions.Malformed` as :func:`upgrade` does.
        """
        match update:
            case v1.AgentMessageChunk() | v1.AgentThoughtChunk() | v1.UserMessageChunk():
                return Upgraded([_chunk(update, self._message_id(update))])
            case v1.ToolCall() | v1.ToolCallUpdate():
                self._sight(None, f"tool {update.tool_call_id}")
                losses = [
                    Loss(
                        _kind(update),
                        update.tool_call_id,
                        f"$.content[{index}]",
                        "the terminal is the v1 client's own: its output is not part of the session",
                        "the reference alone",
                    )
                    for index, item in enumerate(update.content or ())
                    if isinstance(item, v1.Terminal)
                ]
                return Upgraded([_tool_call(update)], losses)
            case v1.Plan():
                self._sight(None, "plan")
            case _:
                pass
        try:
            return Upgraded([upgrade(update)])
        except Unrepresentable as error:
            return Upgraded((), [Loss(error.kind, error.id, error.path, error.reason)])

    def _sight(self, kind: type[v1.ContentChunk] | None, name: str) -> None:
        """End the open run at first sight of something else."""
        if (kind, name) not in self._seen:
            self._seen.add((kind, name))
            self._run = None

    def _message_id(self, chunk: v1.ContentChunk) -> str:
        kind = type(chunk)
        if isinstance(chunk.message_id, str):
            self._ids.add(chunk.message_id)
            self._sight(kind, chunk.message_id)
            if (
                chunk.message_id in self._made
            ):  # the agent came to use an id that was made up here: its message is another
                if not self._made[chunk.message_id]:
                    self._made[chunk.message_id] = self._new_id()
                return self._made[chunk.message_id]
            return chunk.message_id
        if self._run is None or self._run[0] is not kind:
            self._run = (kind, self._new_id())
        return self._run[1]

    def _new_id(self) -> str:
        self._run_count += 1
        return self._unused(f"untagged-{self._run_count}")

    def _unused(self, made: str) -> str:
        """Make an id up that is not in use, and remember it: the agent may come to use it later."""
        while made in self._ids or made in self._made:
            made += "~"
        self._made[made] = ""
        return made


def _kind(update: v1.SessionUpdate) -> str:
    return update.kind if isinstance(update, v1.OtherUpdate) else str(type(update).__struct_config__.tag)


def _or(value: T | UnsetType, default: T) -> T:
    return default if isinstance(value, UnsetType) else value


def _said(value: T | UnsetType | None) -> T | UnsetType:
    """In v1 tool calls ``null`` says the same as nothing; in v2 it would clear the field."""
    return UNSET if value is None else value


def _chunk(chunk: v1.ContentChunk, message_id: str) -> Any:
    return _CHUNKS[type(chunk)](message_id=message_id, content=chunk.content, meta=chunk.meta, extra=chunk.extra)


def _tool_call(update: v1.ToolCall | v1.ToolCallUpdate) -> v2.ToolCallUpdate:
    content, locations = _said(update.content), _said(update.locations)
    return v2.ToolCallUpdate(
        tool_call_id=update.tool_call_id,
        name=_said(update.name),
        title=_said(update.title),
        kind=_said(update.kind),
        status=_said(update.status),
        content=UNSET if isinstance(content, UnsetType) else [_content(item) for item in content],
        locations=UNSET if isinstance(locations, UnsetType) else [_location(location) for location in locations],
        raw_input=_said(update.raw_input),
        raw_output=_said(update.raw_output),
        meta=_said(update.meta),
        extra=update.extra,
    )


def _content(item: v1.ToolCallContent) -> v2.ToolCallContent:
    match item:
        case v1.Content() | v1.Terminal():
            return item
        case v1.Diff():
            old = None if isinstance(item.old_text, UnsetType) else item.old_text
            change = v2.AddChange(path=item.path) if old is None else v2.ModifyChange(path=item.path)
            text = git_patch(item.path, old, item.new_text)
            patch = v2.DiffPatch(format="git_patch", text=text, meta={WHOLE_FILE: True})
            return v2.Diff(changes=[change], patch=patch, meta=item.meta, extra=item.extra)
        case v1.OtherToolCallContent():
            return v2.OtherToolCallContent(kind=item.kind, fields=item.fields)
        case _:
            assert_never(item)


def _location(location: v1.ToolCallLocation) -> v2.ToolCallLocation:
    return v2.ToolCallLocation(path=location.path, line=location.line, meta=location.meta, extra=location.extra)


def _command(command: v1.AvailableCommand) -> v2.AvailableCommand:
    input_: v2.TextCommandInput | UnsetType | None = UNSET
    if command.input is None:
        input_ = None
    elif not isinstance(command.input, UnsetType):
        input_ = v2.TextCommandInput(hint=command.input.hint, meta=command.input.meta, extra=command.input.extra)
    return v2.Command(
        name=command.name, description=command.description, input=input_, meta=command.meta, extra=command.extra
    )


def _config_option(option: v1.SessionConfigOption) -> v2.SessionConfigOption:
    """The same options under v2's names for their ids."""
    members: dict[str, Any] = to_json(option)
    members["configId"] = members.pop("id")
    groups: list[dict[str, Any]] = members.get("options", []) if isinstance(option, v1.SessionConfigSelect) else []
    for group in groups:
        if "group" in group:
            group["groupId"] = group.pop("group")
    return _read_option(members)


def _read_option(members: dict[str, Any]) -> v2.SessionConfigOption:
    update = v2.read_update({"sessionUpdate": "config_option_update", "configOptions": [members]})
    if not isinstance(update, v2.ConfigOptionUpdate):
        raise TypeError("a config_option_update was read as something else")
    return update.config_options[0]
