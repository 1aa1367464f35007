"""Generated v2 updates as JSON values: every kind, few ids so that they meet, and much that no model knows.

Everything here is well-formed; what a broken sender does stands in the tests about it.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from hypothesis import strategies as st

from tests.values import anything, joined, text

Json = Any

OMITTED: Final = object()

MESSAGES: Final = ("user_message", "agent_message", "agent_thought")

ids = st.sampled_from(["a", "b", ""])

strange_names = st.sampled_from(
    # what may come one day, what we call things ourselves, and what is known elsewhere but not here
    ["future", "_acme.dev/x", "type", "extra", "update", "plan", "\uffffextra", "status", "title", "output", "content"]
)
some = st.one_of(st.none(), anything)


def three_state(values: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    """A patch field: omitted, `null`, a value."""
    return st.one_of(st.just(OMITTED), st.none(), values)


metas: st.SearchStrategy[Json] = st.one_of(
    st.sampled_from([{}, {"k": 1}, {"k": None}, {"k": True, "l": {"m": None}}, {"l": [1.0]}]),
    st.dictionaries(st.sampled_from(["k", "l"]), some, max_size=2),
)


rare_metas: st.SearchStrategy[Json] = st.one_of(st.just(OMITTED), st.just(OMITTED), three_state(metas))
rare_extras = st.one_of(st.just({}), st.just({}), st.just({}), st.dictionaries(strange_names, some, max_size=2))


def objects(fields: dict[str, st.SearchStrategy[Json]]) -> st.SearchStrategy[dict[str, Json]]:
    """An object with these fields (each may be omitted by its own strategy), `_meta` and unknown fields."""

    def put_together(members: dict[str, Json], strange: dict[str, Json]) -> dict[str, Json]:
        unknown = {name: value for name, value in strange.items() if name not in members}
        return {name: value for name, value in (members | unknown).items() if value is not OMITTED}

    return st.builds(put_together, st.fixed_dictionaries({**fields, "_meta": rare_metas}), rare_extras)


plain_blocks = st.builds(lambda words: {"type": "text", "text": words}, text)
hints = st.sampled_from([{}, {"audience": ["user"], "priority": 0.5}, {"priority": 1, "future": None}])
blocks = st.one_of(
    plain_blocks,
    plain_blocks,
    plain_blocks,
    objects({"type": st.just("text"), "text": text, "annotations": three_state(hints)}),
    objects({"type": st.just("image"), "data": st.just("AAAA"), "mimeType": text, "uri": three_state(text)}),
    objects({"type": st.just("resource_link"), "uri": text, "name": text, "title": three_state(text)}),
    objects({"type": st.just("resource"), "resource": objects({"uri": text, "text": text})}),
    objects({"type": st.sampled_from(["hologram", "_acme.dev/card"]), "text": some, "data": some}),
)
block_lists = st.lists(blocks, max_size=3)

messages = objects(
    {
        "sessionUpdate": st.sampled_from(MESSAGES),
        "messageId": ids,
        "content": three_state(st.one_of(st.just([]), block_lists)),
    }
)
message_chunks = objects(
    {
        "sessionUpdate": st.sampled_from([f"{kind}_chunk" for kind in MESSAGES]),
        "messageId": ids,
        "content": blocks,
    }
)

items = st.one_of(
    objects({"type": st.just("content"), "content": blocks}),
    objects({"type": st.just("terminal"), "terminalId": ids}),
    objects(
        {
            "type": st.just("diff"),
            "changes": st.lists(
                st.one_of(
                    objects({"operation": st.just("modify"), "path": text}),
                    objects({"operation": st.just("_acme.dev/blend"), "path": some}),
                ),
                max_size=2,
            ),
        }
    ),
    objects({"type": st.just("chart"), "content": some}),
)
tool_calls = objects(
    {
        "sessionUpdate": st.just("tool_call_update"),
        "toolCallId": ids,
        "name": three_state(text),
        "title": three_state(text),
        "kind": three_state(st.sampled_from(["other", "read", "unheard_of"])),
        "status": three_state(st.sampled_from(["pending", "completed", "unheard_of"])),
        "content": three_state(st.lists(items, max_size=2)),
        "locations": three_state(st.lists(objects({"path": text, "line": three_state(st.integers(0, 9))}), max_size=2)),
        "rawInput": three_state(anything),
        "rawOutput": three_state(anything),
        "capabilities": three_state(objects({"cancel": three_state(objects({}))})),
    }
)
tool_call_chunks = objects({"sessionUpdate": st.just("tool_call_content_chunk"), "toolCallId": ids, "content": items})

data = st.one_of(st.sampled_from([b"", b"ok\n", b"\xe2\x82", b"\xac", b"\x1b[1m"]), st.binary(max_size=4)).map(
    lambda some_bytes: base64.b64encode(some_bytes).decode()
)
terminals = objects(
    {
        "sessionUpdate": st.just("terminal_update"),
        "terminalId": ids,
        "command": three_state(text),
        "cwd": three_state(text),
        "output": three_state(objects({"data": data})),
        "exitStatus": three_state(objects({"exitCode": three_state(st.integers(0, 2)), "signal": three_state(text)})),
        "size": three_state(objects({"cols": st.integers(1, 9), "rows": st.integers(1, 9)})),
        "capabilities": three_state(objects({"cancel": three_state(objects({}))})),
    }
)
terminal_chunks = objects({"sessionUpdate": st.just("terminal_output_chunk"), "terminalId": ids, "data": data})

entries = st.lists(objects({"content": text, "priority": st.just("low"), "status": st.just("pending")}), max_size=2)
plans = objects(
    {
        "sessionUpdate": st.just("plan_update"),
        "plan": st.one_of(
            objects({"type": st.just("items"), "planId": ids, "entries": entries}),
            objects({"type": st.just("items"), "planId": ids, "entries": entries}),
            objects({"type": st.sampled_from(["mural", "_acme.dev/graph"]), "planId": ids, "entries": some}),
        ),
    }
)
states = objects(
    {
        "sessionUpdate": st.just("state_update"),
        "state": st.sampled_from(["running", "requires_action", "idle", "dreaming"]),
        "stopReason": three_state(st.sampled_from(["end_turn", "unheard_of"])),
        "background": three_state(
            st.lists(
                st.one_of(
                    objects({"type": st.just("terminal"), "terminalId": ids}),
                    objects({"type": st.just("daemon"), "pid": some}),
                ),
                max_size=2,
            )
        ),
        "error": three_state(objects({"code": st.integers(-3, 3), "message": text})),
    }
)
usages = objects(
    {
        "sessionUpdate": st.just("usage_update"),
        "used": st.integers(0, 3),
        "size": st.integers(0, 3),
        "cost": three_state(objects({"amount": st.sampled_from([0, 0.5]), "currency": st.just("EUR")})),
    }
)
commands = objects(
    {
        "sessionUpdate": st.just("available_commands_update"),
        "availableCommands": st.lists(
            st.one_of(
                objects({"type": st.just("command"), "name": text, "description": text}),
                objects({"type": st.just("gesture"), "name": text, "description": text}),
            ),
            max_size=2,
        ),
    }
)
config_options = objects(
    {
        "sessionUpdate": st.just("config_option_update"),
        "configOptions": st.lists(
            st.one_of(
                objects(
                    {"type": st.just("boolean"), "configId": ids, "name": text, "currentValue": st.booleans()},
                ),
                objects(
                    {
                        "type": st.just("select"),
                        "configId": ids,
                        "name": text,
                        "currentValue": text,
                        "options": st.lists(objects({"value": text, "name": text}), min_size=1, max_size=2),
                    }
                ),
                objects({"type": st.just("slider"), "configId": ids, "name": text, "currentValue": some}),
            ),
            max_size=2,
        ),
    }
)
session_infos = objects(
    {
        "sessionUpdate": st.just("session_info_update"),
        "title": three_state(text),
        "updatedAt": three_state(st.just("2026-12-01T00:00:00Z")),
    }
)
notices = objects(
    {
        "sessionUpdate": st.just("notice"),
        "severity": st.sampled_from(["info", "unheard_of"]),
        "title": st.just("Disk nearly full"),
        "description": three_state(text),
    }
)
compactions = objects(
    {
        "sessionUpdate": st.just("compaction_update"),
        "compactionId": ids,
        "status": st.sampled_from(["in_progress", "completed", "unheard_of"]),
        "summary": three_state(block_lists),
        "error": three_state(text),
    }
)
compaction_chunks = objects(
    {"sessionUpdate": st.just("compaction_summary_chunk"), "compactionId": ids, "content": blocks}
)
unknown_updates = st.builds(
    lambda kind, members: members | {"sessionUpdate": kind},
    st.sampled_from(["agent_dream", "_acme.dev/ping", "current_mode_update"]),
    st.dictionaries(strange_names, some, max_size=2),
)

updates = st.one_of(
    messages,
    message_chunks,
    message_chunks,
    tool_calls,
    tool_call_chunks,
    terminals,
    terminal_chunks,
    plans,
    states,
    usages,
    commands,
    config_options,
    session_infos,
    notices,
    compactions,
    compaction_chunks,
    unknown_updates,
).map(joined)
"""One v2 update of any kind, as a JSON object."""

message_updates = st.one_of(messages, message_chunks).map(joined)
"""One v2 update of a message."""

streams = st.lists(updates, max_size=12)
message_streams = st.lists(message_updates, max_size=12)
