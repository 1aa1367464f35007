"""Plans, commands and options of v2 as v1's: whole reports, each replacing the one before."""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET, UnsetType

from twofold.convert._notes import Notes
from twofold.wire import Kept, to_json, v1, v2

__all__ = ["available_commands", "config_options", "plan"]

_PRIORITIES: Final = ("high", "medium", "low")
_STATUSES: Final = ("pending", "in_progress", "completed")


def plan(update: v2.PlanUpdate, plans: dict[str, v2.PlanUpdate], notes: Notes) -> v1.Plan:
    """Convert a plan. v1 has one: the entries of several stand in it one plan after another, by first sight."""
    if not isinstance(update.plan, v2.PlanItems):
        raise notes.refuse("plan.unknown", "$.plan.type")
    items = update.plan
    if plans and items.plan_id not in plans:
        notes.lose("plan.second", "$.plan.planId", "the entries of all plans, one after another")
    elif len(plans) > 1:
        notes.note("plan.second", "$.plan.planId", "the entries of all plans, one after another")
    if isinstance(items.meta, dict):
        notes.lose("plan.meta", "$.plan._meta")
    entries: list[v2.PlanEntry] = []
    for held in {**plans, items.plan_id: update}.values():
        if isinstance(held.plan, v2.PlanItems):
            entries += _entries(held.plan, notes if held is update else None)
    plans[items.plan_id] = update
    extra = _merged(items.extra, update.extra)
    return v1.Plan(entries=entries, meta=update.meta, extra=extra)


def _merged(inner: Kept | UnsetType, outer: Kept | UnsetType) -> Kept | UnsetType:
    if isinstance(inner, UnsetType):
        return outer
    return inner if isinstance(outer, UnsetType) else Kept({**inner, **outer})


def _entries(items: v2.PlanItems, notes: Notes | None) -> list[v2.PlanEntry]:
    """Give the entries that v1 has words for; ``notes`` is ``None`` for a plan whose losses were reported before."""
    entries: list[v2.PlanEntry] = []
    for index, entry in enumerate(items.entries):
        priority = entry.priority
        if priority not in _PRIORITIES:
            if notes is not None:
                notes.lose("plan.entry.word", f"$.plan.entries[{index}].priority", "medium")
            priority = "medium"
        if entry.status not in _STATUSES:
            if notes is not None:
                notes.lose("plan.entry.word", f"$.plan.entries[{index}].status")
            continue
        same_entry = priority == entry.priority
        entries.append(
            entry
            if same_entry
            else v2.PlanEntry(
                content=entry.content, priority=priority, status=entry.status, meta=entry.meta, extra=entry.extra
            )
        )
    return entries


def available_commands(update: v2.AvailableCommandsUpdate, notes: Notes) -> v1.AvailableCommandsUpdate:
    """Convert the list of commands."""
    commands: list[v1.AvailableCommand] = []
    for index, command in enumerate(update.available_commands):
        if not isinstance(command, v2.Command):
            notes.lose("commands.unknown", f"$.availableCommands[{index}].type")
            continue
        input_: v1.UnstructuredCommandInput | UnsetType | None = UNSET
        if command.input is None:
            input_ = None
        elif isinstance(command.input, v2.TextCommandInput):
            given = command.input
            input_ = v1.UnstructuredCommandInput(hint=given.hint, meta=given.meta, extra=given.extra)
        elif not isinstance(command.input, UnsetType):
            notes.lose("commands.unknown", f"$.availableCommands[{index}].input.type", "the command without its input")
        commands.append(
            v1.AvailableCommand(
                name=command.name, description=command.description, input=input_, meta=command.meta, extra=command.extra
            )
        )
    return v1.AvailableCommandsUpdate(available_commands=commands, meta=update.meta, extra=update.extra)


def config_options(update: v2.ConfigOptionUpdate, notes: Notes) -> v1.ConfigOptionUpdate:
    """Convert the list of configuration options: the same under v1's names for their ids."""
    options: list[dict[str, Any]] = []
    for index, option in enumerate(update.config_options):
        if isinstance(option, v2.OtherSessionConfigOption):
            notes.lose("config.unknown", f"$.configOptions[{index}].type")
            continue
        members: dict[str, Any] = to_json(option)
        members["id"] = members.pop("configId")
        groups: list[dict[str, Any]] = members.get("options", []) if isinstance(option, v2.SessionConfigSelect) else []
        for group in groups:
            if "groupId" in group:
                group["group"] = group.pop("groupId")
        options.append(members)
    converted = v1.read_update({"sessionUpdate": "config_option_update", "configOptions": options})
    if not isinstance(converted, v1.ConfigOptionUpdate):
        raise TypeError("a config_option_update was read as something else")
    return v1.ConfigOptionUpdate(config_options=converted.config_options, meta=update.meta, extra=update.extra)
