"""State, plans, commands and configuration options of v2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field
from msgspec.structs import replace

from twofold.exceptions import Malformed
from twofold.wire._common import PlanEntry, SessionConfigSelectOption
from twofold.wire._model import Kept, Model, OptionalMeta, Other, is_array, is_object
from twofold.wire._read import Reading, found, model, read, shape

__all__ = [
    "AvailableCommand",
    "AvailableCommandInput",
    "AvailableCommandsUpdate",
    "BackgroundTerminal",
    "BackgroundToolCall",
    "BackgroundWork",
    "Command",
    "ConfigOptionUpdate",
    "Error",
    "OtherAvailableCommand",
    "OtherAvailableCommandInput",
    "OtherBackgroundWork",
    "OtherPlanUpdateContent",
    "OtherSessionConfigOption",
    "PlanItems",
    "PlanUpdate",
    "PlanUpdateContent",
    "SessionConfigBoolean",
    "SessionConfigOption",
    "SessionConfigSelect",
    "SessionConfigSelectGroup",
    "StateUpdate",
    "TextCommandInput",
]


class BackgroundTerminal(Model, frozen=True, kw_only=True, tag_field="type", tag="terminal"):
    """A terminal that goes on in the background."""

    terminal_id: str
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class BackgroundToolCall(Model, frozen=True, kw_only=True, tag_field="type", tag="tool_call"):
    """A tool call that goes on in the background."""

    tool_call_id: str
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class OtherBackgroundWork(Other, frozen=True, kw_only=True, tag_field="type"):
    """Background work of a kind that twofold does not know."""


BackgroundWork: TypeAlias = BackgroundTerminal | BackgroundToolCall | OtherBackgroundWork


class Error(Model, frozen=True, kw_only=True):
    """A JSON-RPC error object, as an idle state with stop reason ``error`` carries it."""

    code: int
    message: str
    data: Any | UnsetType = UNSET


class StateUpdate(Model, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="state_update"):
    """A snapshot of what the agent is doing: ``running``, ``requires_action``, ``idle`` or a state not known here.

    ``stop_reason`` and ``error`` belong to ``idle``. An unknown state is never read as idle. A field that the schema
    leaves free in a state (all of them, in one not known here) is an extra when it has another shape than here.
    """

    state: str
    background: Sequence[BackgroundWork] | UnsetType | None = UNSET
    stop_reason: str | UnsetType | None = UNSET
    error: Error | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


def _free(state: dict[str, Any]) -> set[str]:
    """Give the fields of `StateUpdate` that the schema does not define for this state."""
    match state.get("state"):
        case "running" | "requires_action":
            return {"stopReason", "error"}
        case "idle":
            return set() if state.get("stopReason") == "error" else {"error"}
        case str():
            return {"background", "stopReason", "error", "_meta"}
        case _:
            return set()


@shape(StateUpdate)
def _read_state(value: Any, path: str, reading: Reading) -> StateUpdate:
    read_state = model(StateUpdate)
    extra: dict[str, Any] = {}
    if is_object(value):
        for name in _free(value) & value.keys():
            try:
                read_state({"state": "", name: value[name]}, path, Reading())
            except Malformed:
                extra[name] = value[name]
    if not extra:
        update: StateUpdate = read_state(value, path, reading)
        return update
    update = read_state({name: held for name, held in value.items() if name not in extra}, path, reading)
    return replace(update, extra=Kept({**({} if update.extra is UNSET else update.extra), **extra}))


class _Plan(Model, frozen=True, kw_only=True):
    plan_id: str


class PlanItems(_Plan, frozen=True, kw_only=True, tag_field="type", tag="items"):
    """A plan as a list of steps."""

    entries: Sequence[PlanEntry]
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class OtherPlanUpdateContent(Other, frozen=True, kw_only=True, tag_field="type"):
    """A plan of a kind that twofold does not know; its fields hold a ``planId``, a string."""

    BASE = _Plan


PlanUpdateContent: TypeAlias = PlanItems | OtherPlanUpdateContent


class PlanUpdate(Model, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="plan_update"):
    """Replaces one plan whole."""

    plan: PlanUpdateContent
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class TextCommandInput(Model, frozen=True, kw_only=True, tag_field="type", tag="text"):
    """A command that takes the text after its name."""

    hint: str
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class OtherAvailableCommandInput(Other, frozen=True, kw_only=True, tag_field="type"):
    """A command input of a kind that twofold does not know."""


AvailableCommandInput: TypeAlias = TextCommandInput | OtherAvailableCommandInput


class _Command(Model, frozen=True, kw_only=True):
    name: str
    description: str


class Command(_Command, frozen=True, kw_only=True, tag_field="type", tag="command"):
    """A slash command that the agent offers."""

    input: AvailableCommandInput | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class OtherAvailableCommand(Other, frozen=True, kw_only=True, tag_field="type"):
    """A command of a kind that twofold does not know; its fields hold a ``name`` and a ``description``, strings."""

    BASE = _Command


AvailableCommand: TypeAlias = Command | OtherAvailableCommand


class AvailableCommandsUpdate(
    Model, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="available_commands_update"
):
    """Replaces the list of commands."""

    available_commands: Sequence[AvailableCommand]
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class SessionConfigSelectGroup(Model, frozen=True, kw_only=True):
    """Values of a select option under one heading."""

    group_id: str
    name: str
    options: Annotated[Sequence[SessionConfigSelectOption], Meta(min_length=1)]
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class _SelectOptions:
    """What the quick decoder sees of a select's options: values or groups of values, which have no tag."""

    __slots__ = ()


if TYPE_CHECKING:
    SessionConfigSelectOptions: TypeAlias = Sequence[SessionConfigSelectOption] | Sequence[SessionConfigSelectGroup]
else:
    SessionConfigSelectOptions = _SelectOptions


class _OptionList(list[Any], _SelectOptions):
    """A list that the decoder accepts where it was promised select options."""

    __slots__ = ()


@shape(_SelectOptions)
def _read_options(value: Any, path: str, reading: Reading) -> Any:
    if not is_array(value) or not value:
        raise Malformed(path, expected="an array with at least one item", found=found(value))
    grouped = any(is_object(item) and "value" not in item and item.keys() & {"groupId", "options"} for item in value)
    kind = Sequence[SessionConfigSelectGroup] if grouped else Sequence[SessionConfigSelectOption]
    return _OptionList(read(kind, value, path, reading))


class _SessionConfigOption(Model, frozen=True, kw_only=True):
    config_id: str
    name: str
    description: str | UnsetType | None = UNSET
    category: str | UnsetType | None = UNSET
    meta: OptionalMeta = field(default=UNSET, name="_meta")


class SessionConfigSelect(_SessionConfigOption, frozen=True, kw_only=True, tag_field="type", tag="select"):
    """An option with a list of values to choose from."""

    current_value: str
    options: SessionConfigSelectOptions

    @property
    def values(self) -> Sequence[SessionConfigSelectOption]:
        """The values that it can take, those in groups too, in order."""
        values: list[SessionConfigSelectOption] = []
        for one in self.options:
            values += one.options if isinstance(one, SessionConfigSelectGroup) else [one]
        return values


class SessionConfigBoolean(_SessionConfigOption, frozen=True, kw_only=True, tag_field="type", tag="boolean"):
    """An option that is on or off."""

    current_value: bool


class OtherSessionConfigOption(Other, frozen=True, kw_only=True, tag_field="type"):
    """An option of a kind that twofold does not know."""

    BASE = _SessionConfigOption


SessionConfigOption: TypeAlias = SessionConfigSelect | SessionConfigBoolean | OtherSessionConfigOption


class ConfigOptionUpdate(Model, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="config_option_update"):
    """Replaces the list of configuration options."""

    config_options: Sequence[SessionConfigOption]
    meta: OptionalMeta = field(default=UNSET, name="_meta")
