"""The fold once more, written down from the rules as plainly as can be, on plain JSON values.

Nothing of `twofold` is used here. Where this and `twofold.fold` differ, one of the two has misread the rules. Speed,
laziness, changes and versions are not its business: after each update it gives the whole state.
"""

from __future__ import annotations

import base64
import copy
from typing import Any

Json = Any
Object = dict[str, Any]


def equal(one: Json, two: Json) -> bool:
    """Equality of JSON values: `true` is not 1, 1 is 1.0, the order of members does not matter (U-7)."""
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(equal(one[name], two[name]) for name in one)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(equal(a, b) for a, b in zip(one, two, strict=True))
    if isinstance(one, bool) or isinstance(two, bool):
        return one is two
    if isinstance(one, (int, float)) and isinstance(two, (int, float)):
        return one == two
    return type(one) is type(two) and bool(one == two)


# The patch fields of each kind with what `null` leaves behind: `None` for nothing at all.
TOOL_CALL_FIELDS: Object = {
    "name": None,
    "title": None,
    "kind": "other",
    "status": "pending",
    "locations": [],
    "rawInput": None,
    "rawOutput": None,
    "capabilities": None,
}
TERMINAL_FIELDS: Object = {"command": None, "cwd": None, "exitStatus": None, "size": None, "capabilities": None}
COMPACTION_FIELDS: Object = {"status": "in_progress", "error": None}


class Reference:
    """One session."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        # Each is a list of entries in order of first sight (F-9); none ever moves or goes.
        self.messages: list[Object] = []
        self.tool_calls: list[Object] = []
        self.terminals: list[Object] = []
        self.plans: list[Object] = []
        self.compactions: list[Object] = []
        self.other: list[Object] = []
        self.notices: list[Object] = []
        self.state: Object | None = None
        self.usage: Object | None = None
        self.commands: Object | None = None
        self.config_options: Object | None = None
        self.session_info: Object = {"meta": None, "unknown": {}}

    def apply(self, update: Object) -> None:
        update = copy.deepcopy(update)
        kind = update.pop("sessionUpdate")
        if kind in ("user_message", "agent_message", "agent_thought"):
            self.whole_message(kind, update)
        elif kind in ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk"):
            self.message_chunk(kind.removesuffix("_chunk"), update)
        elif kind == "tool_call_update":
            self.whole_tool_call(update)
        elif kind == "tool_call_content_chunk":
            self.tool_call_chunk(update)
        elif kind == "terminal_update":
            self.whole_terminal(update)
        elif kind == "terminal_output_chunk":
            self.terminal_chunk(update)
        elif kind == "compaction_update":
            self.whole_compaction(update)
        elif kind == "compaction_summary_chunk":
            self.compaction_chunk(update)
        elif kind == "plan_update":
            self.plan(update)
        elif kind == "session_info_update":
            self.patch(self.session_info, update, {"title": None, "updatedAt": None})
        elif kind == "usage_update":
            self.report_usage(update)
        elif kind == "state_update":
            self.state = update
        elif kind == "available_commands_update":
            self.commands = update
        elif kind == "config_option_update":
            self.config_options = update
        elif kind == "notice":
            self.notices.append(update)
        else:
            self.other.append({"sessionUpdate": kind, **update})

    # Messages

    def message(self, kind: str, message_id: str) -> Object:
        for message in self.messages:
            if message["type"] == kind and message["messageId"] == message_id:  # both together are the key (F-8)
                return message
        message = {"type": kind, "messageId": message_id, "content": [], "meta": None, "unknown": {}}
        self.messages.append(message)
        return message

    def whole_message(self, kind: str, update: Object) -> None:
        message = self.message(kind, update.pop("messageId"))
        if "content" in update:
            content = update.pop("content")
            message["content"] = [] if content is None else content
        self.patch(message, update, {})

    def message_chunk(self, kind: str, update: Object) -> None:
        message = self.message(kind, update.pop("messageId"))
        message["content"].append(update.pop("content"))
        self.unknown_fields_of_chunk(message, update)

    # Tool calls

    def tool_call(self, tool_call_id: str) -> Object:
        for call in self.tool_calls:
            if call["toolCallId"] == tool_call_id:
                return call
        call = {"toolCallId": tool_call_id, "content": [], "meta": None, "unknown": {}, "of chunks": {}}
        call |= {"kind": "other", "status": "pending", "locations": []}
        self.tool_calls.append(call)
        return call

    def whole_tool_call(self, update: Object) -> None:
        call = self.tool_call(update.pop("toolCallId"))
        if "content" in update:
            self.replace_list(call, "content", update.pop("content"))
        self.patch(call, update, TOOL_CALL_FIELDS)

    def tool_call_chunk(self, update: Object) -> None:
        call = self.tool_call(update.pop("toolCallId"))
        call["content"].append(update.pop("content"))
        self.unknown_fields_of_chunk(call, update, TOOL_CALL_FIELDS)

    # Terminals

    def terminal(self, terminal_id: str) -> Object:
        for terminal in self.terminals:
            if terminal["terminalId"] == terminal_id:
                return terminal
        terminal = {
            "terminalId": terminal_id,
            "bytes": b"",
            "snapshot": {},
            "meta": None,
            "unknown": {},
            "of chunks": {},
        }
        self.terminals.append(terminal)
        return terminal

    def whole_terminal(self, update: Object) -> None:
        terminal = self.terminal(update.pop("terminalId"))
        if "output" in update:
            output = update.pop("output") or {"data": ""}
            had = terminal["bytes"]
            terminal["bytes"] = base64.b64decode(output.pop("data"))
            terminal["snapshot"] = output  # what else it says
            if had and not terminal["bytes"]:
                terminal["of chunks"] = {}
        self.patch(terminal, update, TERMINAL_FIELDS)

    def terminal_chunk(self, update: Object) -> None:
        terminal = self.terminal(update.pop("terminalId"))
        terminal["bytes"] += base64.b64decode(update.pop("data"))
        self.unknown_fields_of_chunk(terminal, update, {**TERMINAL_FIELDS, "output": None})

    # Compactions

    def compaction(self, compaction_id: str) -> Object:
        for compaction in self.compactions:
            if compaction["compactionId"] == compaction_id:
                return compaction
        compaction = {"compactionId": compaction_id, "status": "in_progress", "summary": []}
        compaction |= {"meta": None, "unknown": {}, "of chunks": {}}
        self.compactions.append(compaction)
        return compaction

    def whole_compaction(self, update: Object) -> None:
        compaction = self.compaction(update.pop("compactionId"))
        if "summary" in update:
            self.replace_list(compaction, "summary", update.pop("summary"))
        self.patch(compaction, update, COMPACTION_FIELDS)

    def compaction_chunk(self, update: Object) -> None:
        compaction = self.compaction(update.pop("compactionId"))
        compaction["summary"].append(update.pop("content"))
        self.unknown_fields_of_chunk(compaction, update, {**COMPACTION_FIELDS, "summary": None})

    # The rest

    def plan(self, update: Object) -> None:
        plan_id = update["plan"].get("planId")
        for index, held in enumerate(self.plans):
            if isinstance(plan_id, str) and held["plan"].get("planId") == plan_id:
                self.plans[index] = update
                return
        self.plans.append(update)

    def report_usage(self, update: Object) -> None:
        held = None if self.usage is None else self.usage.get("cost")
        cost = update.pop("cost") if "cost" in update else held
        self.usage = update if cost is None else {**update, "cost": cost}

    # What all patches have in common

    def replace_list(self, entry: Object, name: str, value: Json) -> None:
        had = entry[name]
        entry[name] = [] if value is None else value
        if had and not entry[name]:  # what came with the chunks goes with them
            entry["of chunks"] = {}

    def patch(self, entry: Object, update: Object, empties: Object) -> None:
        """Omitted keeps, `null` empties, a value replaces; for `_meta` the revision decides (F-2, F-11, R-1)."""
        for name, value in update.items():
            if name == "_meta":
                self.patch_meta(entry, value)
            elif name not in empties:
                self.patch_unknown(entry["unknown"], name, value)
            elif value is not None:
                entry[name] = value
            elif empties[name] is not None:
                entry[name] = copy.deepcopy(empties[name])
            else:
                entry.pop(name, None)

    def patch_meta(self, entry: Object, value: Json) -> None:
        if self.revision == "preview" and value is not None:
            held = dict(entry["meta"] or {})
            for key, member in value.items():
                if member is None:
                    held.pop(key, None)
                else:
                    held[key] = member
            entry["meta"] = held or None  # `{}` does nothing, so it cannot be what is held either
        else:
            entry["meta"] = value

    def patch_unknown(self, held: Object, name: str, value: Json) -> None:
        if value is None:
            held.pop(name, None)
        else:
            held[name] = value

    def unknown_fields_of_chunk(self, entry: Object, update: Object, known: Object | None = None) -> None:
        """Unknown fields of a chunk are patch fields of the thing it appends to; its `_meta` is its own (U-5, U-7).

        A name that a whole update knows means something else there, so such a field is the chunks' business only.
        """
        for name, value in update.items():
            if name in (known or {}):
                self.patch_unknown(entry["of chunks"], name, value)
            elif name != "_meta":
                self.patch_unknown(entry["unknown"], name, value)

    # The state as JSON

    def to_json(self) -> Object:
        state: Object = {
            "sessionId": None,
            "messages": [self.shown(message) for message in self.messages],
            "toolCalls": [self.shown(call) for call in self.tool_calls],
            "terminals": [self.shown_terminal(terminal) for terminal in self.terminals],
            "plans": [self.shown_plan(plan) for plan in self.plans],
            "other": self.other,
        }
        if self.compactions:
            state["compactions"] = [self.shown(compaction) for compaction in self.compactions]
        session_info = {name: value for name, value in self.session_info.items() if name not in ("meta", "unknown")}
        session_info |= self.session_info["unknown"]
        if self.session_info["meta"] is not None:
            session_info["_meta"] = self.session_info["meta"]
        for name, held in (
            ("sessionInfo", session_info or None),
            ("state", self.state),
            ("usage", self.usage),
            ("availableCommands", self.commands),
            ("configOptions", self.config_options),
        ):
            if held is not None:
                state[name] = held
        return copy.deepcopy(state)

    def shown(self, entry: Object) -> Object:
        members = {name: value for name, value in entry.items() if name not in ("meta", "unknown", "of chunks")}
        if entry["meta"] is not None:
            members["_meta"] = entry["meta"]
        apart = dict(entry.get("of chunks", {}))
        for name, value in entry["unknown"].items():
            if name == "extra" or (name == "type" and "type" in entry):  # names that we use ourselves
                apart[name] = value
            else:
                members[name] = value
        return {**members, "extra": apart} if apart else members

    def shown_terminal(self, terminal: Object) -> Object:
        members = {name: value for name, value in terminal.items() if name not in ("bytes", "snapshot")}
        if terminal["bytes"] or terminal["snapshot"]:
            data = base64.b64encode(terminal["bytes"]).decode("ascii")
            members["output"] = {"data": data, **terminal["snapshot"]}
        return self.shown(members)

    def shown_plan(self, update: Object) -> Object:
        beside = {name: value for name, value in update.items() if name != "plan"}
        plan = {"plan": update["plan"]} if "update" in update["plan"] else update["plan"]
        return {**plan, "update": beside} if beside else plan
