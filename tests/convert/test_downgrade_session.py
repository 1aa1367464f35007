"""v2 → v1 for tool calls, terminals, plans and the rest of a session; the table; and the way back."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import CAPTURES
from tests.node_tools import sdk_schema
from twofold.convert import CARRY, Downgrader, Loss, Policy, Upgrader, downgrade, upgrade
from twofold.exceptions import Malformed, Unrepresentable
from twofold.wire import same, to_json, v1, v2

POLICIES = list(Policy)


def run(policy: Policy, *stream: dict[str, Any], finish: bool = True) -> tuple[list[dict[str, Any]], list[Loss]]:
    converter = Downgrader(policy=policy)
    results = [converter.update(v2.read_update(update)) for update in stream]
    if finish:
        results.append(converter.finish())
    return [to_json(one) for result in results for one in result.updates], [
        loss for result in results for loss in result.losses
    ]


def tool(**fields: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call_update", "toolCallId": "t", **fields}


def said(words: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": words}}


def more(words: str, tool_call_id: str = "t", **fields: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call_content_chunk", "toolCallId": tool_call_id, "content": said(words), **fields}


def output(data: bytes, terminal_id: str = "x") -> dict[str, Any]:
    return {
        "sessionUpdate": "terminal_output_chunk",
        "terminalId": terminal_id,
        "data": base64.b64encode(data).decode(),
    }


@pytest.mark.parametrize("policy", POLICIES)
def test_first_sight_creates_a_v1_tool_call_and_later_updates_change_it(policy: Policy) -> None:
    first = tool(
        title="Read",
        kind="read",
        status="pending",
        rawInput={"a": None},
        locations=[{"path": "/a", "line": 1}],
        _meta={"k": 1},
        unknown=True,
    )
    later = tool(status="completed", content=[said("x")])
    sent, losses = run(policy, first, later)
    assert sent == [{**first, "sessionUpdate": "tool_call"}, later]
    assert losses == []


@pytest.mark.parametrize(("name", "title"), [(None, "Tool call"), ("grep", "grep")])
def test_a_missing_title_is_defaulted_and_said_so(name: str | None, title: str) -> None:
    fields = {} if name is None else {"name": name}
    sent, losses = run(Policy.STRICT, tool(**fields))
    assert sent == [{"sessionUpdate": "tool_call", "toolCallId": "t", **fields, "title": title}]
    assert [(loss.id, loss.path, bool(loss.sent)) for loss in losses] == [("t", "$.title", True)]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("field", ["content", "locations"])
@pytest.mark.parametrize("clear", [None, []])
def test_collection_clears_become_empty_arrays(policy: Policy, field: str, clear: Any) -> None:
    held = {"content": [said("x")], "locations": [{"path": "/a"}]}
    sent, losses = run(policy, tool(title="T", **held), tool(**{field: clear}))
    assert sent[1] == tool(**{field: []})
    assert losses == []


@pytest.mark.parametrize("field", ["name", "title", "rawInput", "rawOutput", "_meta"])
def test_scalar_clears_fail_strictly_and_are_a_loss_otherwise(field: str) -> None:
    first = tool(name="n", title="T", rawInput=1, rawOutput=2, _meta={"k": 1})
    clear = tool(**{field: None, "status": "completed"})
    sent, losses = run(Policy.STRICT, first, clear, tool(status="failed"))
    assert sent[1:] == [tool(status="failed")]
    assert [(loss.path, loss.sent) for loss in losses] == [(f"$.{field}", None)]
    sent, losses = run(Policy.MARK, first, clear)
    assert sent[1:] == [tool(status="completed")]
    assert [loss.path for loss in losses] == [f"$.{field}"]


@pytest.mark.parametrize("policy", POLICIES)
def test_clearing_what_v1_never_had_is_no_loss(policy: Policy) -> None:
    sent, losses = run(policy, tool(title="T", rawOutput=None, name=None), tool(rawInput=None, status="completed"))
    assert sent == [{"sessionUpdate": "tool_call", "toolCallId": "t", "title": "T"}, tool(status="completed")]
    assert losses == []


@pytest.mark.parametrize(("field", "held", "default"), [("kind", "read", "other"), ("status", "failed", "pending")])
def test_a_reset_to_the_default_fails_strictly_and_is_said_as_the_default_otherwise(
    field: str, held: str, default: str
) -> None:
    stream = tool(title="T", **{field: held}), tool(**{field: None})
    assert [loss.path for loss in run(Policy.STRICT, *stream)[1]] == [f"$.{field}"]
    sent, losses = run(Policy.MARK, *stream)
    assert sent[1:] == [tool(**{field: default})]
    assert losses == []


@pytest.mark.parametrize(
    ("field", "word", "nearest"),
    [
        ("status", "cancelled", "failed"),
        ("status", "paused", "in_progress"),
        ("status", "_acme", None),
        ("kind", "_acme", "other"),
    ],
)
def test_words_that_v1_lacks_fail_strictly_and_become_the_nearest_otherwise(
    field: str, word: str, nearest: str | None
) -> None:
    sent, losses = run(Policy.STRICT, tool(title="T"), tool(**{field: word}))
    assert len(sent) == len(losses) == 1
    sent, losses = run(Policy.MARK, tool(title="T"), tool(**{field: word}))
    assert sent[1:] == ([] if nearest is None else [tool(**{field: nearest})])
    assert [(loss.path, loss.sent) for loss in losses] == [(f"$.{field}", nearest)]


def test_items_v1_has_no_shape_for_fail_strictly_and_are_left_out_otherwise() -> None:
    content = [said("a"), {"type": "chart"}, {"type": "content", "content": {"type": "hologram"}}, said("b")]
    sent, losses = run(Policy.STRICT, tool(title="T"), tool(content=content))
    assert len(sent) == 1
    assert [loss.path for loss in losses] == ["$.content[1].type"]
    sent, losses = run(Policy.MARK, tool(title="T"), tool(content=content))
    assert sent[1:] == [tool(content=[said("a"), said("b")])]
    assert [loss.path for loss in losses] == ["$.content[1].type", "$.content[2].content.type"]


@pytest.mark.parametrize("policy", POLICIES)
def test_content_chunks_become_replacement_arrays_and_the_last_one_is_whole(policy: Policy) -> None:
    words = [f"line {number}\n" for number in range(400)]
    sent, losses = run(policy, tool(title="T"), *map(more, words))
    assert losses == []
    assert sent[-1]["content"] == [said(word) for word in words]
    assert len(sent) < 30
    size = sum(len(json.dumps(one)) for one in sent)
    assert size < 4 * len(json.dumps(sent[-1])), "what is sent stays linear in what came"


def test_a_status_takes_the_waiting_content_with_it() -> None:
    converter = Downgrader()
    stream = [tool(title="T"), more("a" * 100), more("b"), tool(status="completed")]
    results = [converter.update(v2.read_update(update)) for update in stream]
    assert results[2].updates == ()
    assert [to_json(one) for one in results[3].updates] == [
        tool(status="completed", content=[said("a" * 100), said("b")])
    ]
    assert not converter.pending


def test_a_flush_sends_what_waits_once() -> None:
    converter = Downgrader()
    for update in (tool(title="T"), more("a" * 100), more("b")):
        converter.update(v2.read_update(update))
    waiting = converter.pending
    assert [to_json(one) for one in converter.flush().updates] == [tool(content=[said("a" * 100), said("b")])]
    assert (waiting, converter.pending) == (True, False)
    assert converter.flush().updates == ()


def test_a_tool_call_that_is_first_seen_through_a_chunk_is_created_with_it() -> None:
    sent, _ = run(Policy.MARK, more("a"))
    defaults = {"title": "Tool call", "kind": "other", "status": "pending"}
    assert sent == [{"sessionUpdate": "tool_call", "toolCallId": "t", **defaults, "content": [said("a")]}]


def test_a_tool_call_whose_creation_failed_is_created_whole_by_the_next_update() -> None:
    sent, losses = run(Policy.STRICT, tool(title="T", name="n", status="cancelled", rawInput=1), tool(rawOutput=2))
    assert sent == [
        {
            "sessionUpdate": "tool_call",
            "toolCallId": "t",
            "title": "T",
            "name": "n",
            "kind": "other",
            "status": "failed",
            "rawInput": 1,
            "rawOutput": 2,
        }
    ]
    assert [loss.path for loss in losses] == ["$.status"]


def test_capabilities_are_a_loss_that_stops_nothing_when_marking() -> None:
    update = tool(title="T", capabilities={"cancel": {}})
    assert run(Policy.STRICT, update)[0] == []
    sent, losses = run(Policy.MARK, update)
    assert sent == [{"sessionUpdate": "tool_call", "toolCallId": "t", "title": "T"}]
    assert [loss.path for loss in losses] == ["$.capabilities"]


# Terminals


def shown(update: dict[str, Any]) -> str:
    (item,) = update["content"]
    assert item["type"] == "content"
    return str(item["content"]["text"])


def test_a_terminal_becomes_text_without_control_sequences_and_never_a_v1_terminal() -> None:
    sent, losses = run(
        Policy.MARK,
        tool(title="T", content=[{"type": "terminal", "terminalId": "x"}]),
        {"sessionUpdate": "terminal_update", "terminalId": "x", "command": "make"},
        output("\x1b[31mr\u00e9d\x1b[0m\x1b]0;title\x07".encode()[:7]),
        output("\x1b[31mr\u00e9d\x1b[0m\x1b]0;title\x07".encode()[7:]),
        {"sessionUpdate": "terminal_update", "terminalId": "x", "exitStatus": {"exitCode": 3}},
    )
    assert shown(sent[-1]) == "```\n$ make\nr\u00e9d\n[exit 3]\n```"
    assert '"terminal"' not in json.dumps(sent)
    assert [loss.path for loss in losses] == ["$.content[0]"], "said once"


def test_terminal_output_that_came_before_the_reference_is_shown_too() -> None:
    sent, _ = run(Policy.MARK, output(b"early"), tool(title="T", content=[{"type": "terminal", "terminalId": "x"}]))
    assert shown(sent[-1]) == "```\nearly\n```"


def test_output_is_sent_when_grown_by_half_and_a_rewritten_snapshot_at_once() -> None:
    def snapshot(data: bytes) -> dict[str, Any]:
        return {
            "sessionUpdate": "terminal_update",
            "terminalId": "x",
            "output": {"data": base64.b64encode(data).decode()},
        }

    converter = Downgrader(policy=Policy.MARK)
    converter.update(v2.read_update(tool(title="T", content=[{"type": "terminal", "terminalId": "x"}])))
    counts = [
        len(converter.update(v2.read_update(update)).updates)
        for update in (
            snapshot(b"a" * 100),
            snapshot(b"a" * 101),
            snapshot(b"secret gone"),
            output(b"!"),
            output(b"!" * 90),
        )
    ]
    assert counts == [1, 0, 1, 0, 1]


def test_output_cannot_end_the_fence_that_it_stands_in() -> None:
    sent, _ = run(
        Policy.MARK, tool(title="T", content=[{"type": "terminal", "terminalId": "x"}]), output(b"```\n# forged")
    )
    assert shown(sent[-1]).startswith("````\n")


def test_a_terminal_that_no_tool_call_shows_is_a_loss_at_the_end() -> None:
    sent, losses = run(Policy.STRICT, output(b"x"))
    assert sent == []
    assert [(loss.kind, loss.id) for loss in losses] == [("terminal_update", "x")]


def test_many_small_outputs_stay_linear() -> None:
    stream = [
        tool(title="T", content=[{"type": "terminal", "terminalId": "x"}]),
        *(output(b"0123456789\n") for _ in range(2000)),
    ]
    sent, _ = run(Policy.MARK, *stream)
    assert sum(len(json.dumps(one)) for one in sent) < 5 * len(json.dumps(sent[-1]))


# Diffs


@pytest.mark.rule("W-3")
@given(
    old=st.one_of(st.none(), st.text(alphabet="ab\n\r", max_size=10)), new=st.text(alphabet="ab\n\r\u2028", max_size=10)
)
def test_a_v1_diff_survives_the_way_to_v2_and_back(old: str | None, new: str) -> None:
    diff: dict[str, Any] = {"type": "diff", "path": "/a.txt", "newText": new, "_meta": {"k": 1}, "unknown": 2}
    if old is not None:
        diff["oldText"] = old
    update = tool(content=[diff])
    assert [to_json(one) for one in downgrade(upgrade(v1.read_update(update)))] == [update]


def test_a_patch_that_may_leave_lines_out_becomes_text() -> None:
    patch = "--- a/x\n+++ b/x\n@@ -10,2 +10,2 @@\n a\n-b\n+c\n"
    diff = {
        "type": "diff",
        "changes": [{"operation": "modify", "path": "/x"}],
        "patch": {"format": "git_patch", "text": patch},
    }
    sent, losses = run(Policy.STRICT, tool(title="T", content=[diff]))
    assert sent[0]["content"] == [said(f"```diff\n{patch.rstrip()}\n```")]
    assert [(loss.path, loss.sent) for loss in losses] == [("$.content[0]", "text")]


def test_an_added_file_is_a_v1_diff_whoever_wrote_the_patch() -> None:
    patch = "diff --git a/x b/x\nnew file mode 100644\n--- /dev/null\n+++ b/x\n@@ -0,0 +1,2 @@\n+a\n+b\n"
    diff = {
        "type": "diff",
        "changes": [{"operation": "add", "path": "/x", "fileType": "text"}],
        "patch": {"format": "git_patch", "text": patch},
    }
    sent, losses = run(Policy.STRICT, tool(title="T", content=[diff]))
    assert sent[0]["content"] == [{"type": "diff", "path": "/x", "newText": "a\nb\n"}]
    assert losses == []


def test_a_diff_without_a_patch_names_its_changes() -> None:
    changes = [{"operation": "delete", "path": "/x"}, {"operation": "move", "oldPath": "/a", "path": "/b"}]
    sent, _ = run(Policy.MARK, tool(title="T", content=[{"type": "diff", "changes": changes}]))
    assert sent[0]["content"] == [said("delete /x\nmove /a to /b")]


# Plans and reports


def entries(*statuses: str, priority: str = "high") -> list[dict[str, Any]]:
    return [
        {"content": f"step {number}", "priority": priority, "status": status} for number, status in enumerate(statuses)
    ]


def plan(plan_id: str = "p", *statuses: str, **fields: Any) -> dict[str, Any]:
    return {
        "sessionUpdate": "plan_update",
        "plan": {"type": "items", "planId": plan_id, "entries": entries(*statuses)},
        **fields,
    }


@pytest.mark.rule("W-3")
@pytest.mark.parametrize("policy", POLICIES)
def test_a_plan_is_carried_and_comes_back_the_same(policy: Policy) -> None:
    sent, losses = run(policy, plan("p", "pending", "completed", _meta={"k": 1}, unknown=1))
    assert sent == [
        {"sessionUpdate": "plan", "entries": entries("pending", "completed"), "_meta": {"k": 1}, "unknown": 1}
    ]
    assert losses == []
    source = {"sessionUpdate": "plan", "entries": entries("pending"), "_meta": {"k": 1}, "x": 2}
    assert [to_json(one) for one in downgrade(upgrade(v1.read_update(source)))] == [source]


def test_a_second_plan_fails_strictly_and_is_merged_otherwise() -> None:
    sent, losses = run(Policy.STRICT, plan("p", "pending"), plan("q", "completed"), plan("p", "completed"))
    assert [one["entries"] for one in sent] == [entries("pending"), entries("completed")]
    assert [loss.id for loss in losses] == ["q"]
    sent, losses = run(Policy.MARK, plan("p", "pending"), plan("q", "completed"), plan("p", "completed"))
    assert sent[1]["entries"] == [*entries("pending"), *entries("completed")]
    assert sent[2]["entries"] == [*entries("completed"), *entries("completed")]
    assert [loss.path for loss in losses] == ["$.plan.planId"] * 2


def test_words_of_a_plan_that_v1_lacks() -> None:
    update = plan("p", "pending", "cancelled")
    update["plan"]["entries"][0]["priority"] = "urgent"
    assert run(Policy.STRICT, update)[0] == []
    sent, losses = run(Policy.MARK, update)
    assert sent[0]["entries"] == [{**entries("pending")[0], "priority": "medium"}]
    assert [loss.path for loss in losses] == ["$.plan.entries[0].priority", "$.plan.entries[1].status"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "update",
    [
        {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": {"amount": 1, "currency": "USD"}, "x": 1},
        {"sessionUpdate": "session_info_update", "title": None, "updatedAt": "2026-01-01T00:00:00Z", "_meta": None},
    ],
)
def test_usage_and_session_info_are_the_same_in_v1(policy: Policy, update: dict[str, Any]) -> None:
    assert run(policy, update) == ([update], [])


def test_a_cleared_cost_cannot_be_said() -> None:
    usage = {"sessionUpdate": "usage_update", "used": 1, "size": 2}
    cost = {**usage, "cost": {"amount": 1, "currency": "USD"}}
    assert run(Policy.STRICT, {**usage, "cost": None}) == ([usage], [])
    sent, losses = run(Policy.STRICT, cost, {**usage, "cost": None})
    assert (sent, [loss.path for loss in losses]) == ([cost], ["$.cost"])
    sent, losses = run(Policy.MARK, cost, {**usage, "cost": None})
    assert (sent, [loss.path for loss in losses]) == ([cost, usage], ["$.cost"])


def test_commands_and_options_lose_v2s_names_and_come_back_the_same() -> None:
    commands = {
        "sessionUpdate": "available_commands_update",
        "availableCommands": [{"name": "n", "description": "d", "input": {"hint": "h", "x": 1}, "y": 2}],
    }
    options = {
        "sessionUpdate": "config_option_update",
        "configOptions": [
            {"type": "boolean", "id": "b", "name": "B", "currentValue": True, "category": "mode"},
            {
                "type": "select",
                "id": "s",
                "name": "S",
                "currentValue": "a",
                "options": [{"group": "g", "name": "G", "options": [{"value": "a", "name": "A"}]}],
            },
        ],
    }
    for source in (commands, options):
        assert same([to_json(one) for one in downgrade(upgrade(v1.read_update(source)))], [source])


def test_commands_and_options_of_unknown_types() -> None:
    command = {"type": "command", "name": "n", "description": "d"}
    update = {
        "sessionUpdate": "available_commands_update",
        "availableCommands": [command, {"type": "_acme", "name": "n", "description": "d"}],
    }
    assert run(Policy.STRICT, update)[0] == []
    sent, losses = run(Policy.MARK, update)
    assert sent[0]["availableCommands"] == [{"name": "n", "description": "d"}]
    assert [loss.path for loss in losses] == ["$.availableCommands[1].type"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "update",
    [
        {"sessionUpdate": "notice", "severity": "info", "title": "t"},
        {"sessionUpdate": "compaction_update", "compactionId": "c", "status": "completed"},
        {"sessionUpdate": "compaction_summary_chunk", "compactionId": "c", "content": {"type": "text", "text": "x"}},
        {"sessionUpdate": "_acme/x"},
        {"sessionUpdate": "plan_update", "plan": {"type": "tree", "planId": "p"}},
    ],
)
def test_what_v1_has_no_update_for_fails_with_a_reason(policy: Policy, update: dict[str, Any]) -> None:
    sent, losses = run(policy, update)
    assert sent == []
    assert len(losses) == 1
    assert losses[0].reason
    with pytest.raises(Unrepresentable):
        downgrade(v2.read_update(update))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_state_is_no_update_but_an_event(policy: Policy) -> None:
    state = v2.StateUpdate(state="idle", stop_reason="end_turn")
    result = Downgrader(policy=policy).update(state)
    assert (result.updates, result.losses, result.state) == ((), (), state)


@pytest.mark.parametrize(
    "update",
    [
        {"sessionUpdate": "state_update", "state": "idle"},
        tool(title=None),
        tool(kind=None),
        tool(content=[{"type": "terminal", "terminalId": "x"}]),
        more("a"),
        output(b"x"),
        {"sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": None},
    ],
)
def test_by_itself_an_update_that_needs_a_memory_fails(update: dict[str, Any]) -> None:
    with pytest.raises(Unrepresentable):
        downgrade(v2.read_update(update))


def test_by_itself_a_tool_call_update_changes_a_tool_call_that_is_there() -> None:
    update = tool(status="completed", content=[said("x")], locations=[])
    assert [to_json(one) for one in downgrade(v2.read_update(update))] == [update]


def test_invalid_terminal_output_changes_nothing() -> None:
    converter = Downgrader()
    with pytest.raises(Malformed):
        converter.update(v2.read_update({"sessionUpdate": "terminal_output_chunk", "terminalId": "x", "data": "?"}))
    assert converter.finish().losses == ()


# The table


def test_every_reason_of_the_table_is_one_that_some_update_gives() -> None:
    """The reasons seen in this test are all there are: no dead cell, no reason from elsewhere."""
    seen = {loss.reason for policy in POLICIES for stream in _showcase() for loss in run(policy, *stream)[1]}
    for update in (stream[-1] for stream in _showcase()):
        try:
            downgrade(v2.read_update(update))
        except Unrepresentable as error:
            seen.add(error.reason)
    assert seen == {rule.reason for rule in CARRY if rule.reason}


def test_the_keys_of_the_table_are_unique_and_every_no_has_a_reason() -> None:
    assert len({rule.key for rule in CARRY}) == len(CARRY)
    assert all(rule.reason for rule in CARRY if rule.carry == "no")
    assert all(not rule.reason for rule in CARRY if rule.carry == "yes")


def test_every_update_kind_of_v2_is_in_the_table() -> None:
    named = {kind for rule in CARRY for kind in rule.update.split(", ")}
    assert named >= v2.KINDS


def _showcase() -> list[tuple[dict[str, Any], ...]]:
    message = {"sessionUpdate": "agent_message", "messageId": "m"}
    words = {"type": "text", "text": "x"}
    full = {**message, "content": [words], "_meta": {"k": 1}}
    held = tool(title="T", kind="read", status="failed", rawInput=1)
    usage = {"sessionUpdate": "usage_update", "used": 1, "size": 2}
    return [
        (full, {**message, "content": [{"type": "text", "text": "y"}]}),
        (message,),
        ({**message, "unknown": 1},),
        (full, {**message, "_meta": {"k": 2}, "x": 1}),
        (full, {**message, "content": None}),
        (full, {**message, "content": []}),
        ({**full, "messageId": "n"}, {**full, "messageId": "n", "_meta": None}),
        ({**message, "content": [{"type": "hologram"}]},),
        ({**message, "content": [{"type": "resource_link", "uri": "u", "name": "n", "icons": []}]},),
        (tool(),),
        (held, tool(title=None)),
        (held, tool(kind=None)),
        (held, tool(kind="_x")),
        (held, tool(status="paused")),
        (held, tool(capabilities={})),
        (held, tool(content=[{"type": "chart"}])),
        (held, tool(content=[{"type": "diff", "changes": []}])),
        (held, tool(content=[{"type": "terminal", "terminalId": "x"}])),
        (held, more("a", _meta={"k": 1})),
        (output(b"x"),),
        ({"sessionUpdate": "terminal_update", "terminalId": "x", "cwd": "/"},),
        (plan("p"), plan("q")),
        ({"sessionUpdate": "plan_update", "plan": {"type": "tree", "planId": "p"}},),
        (plan("p", "cancelled"),),
        ({"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": "p", "entries": [], "_meta": {"k": 1}}},),
        ({"sessionUpdate": "state_update", "state": "idle"},),
        ({**usage, "cost": {"amount": 1, "currency": "USD"}}, {**usage, "cost": None}),
        (
            {
                "sessionUpdate": "available_commands_update",
                "availableCommands": [{"type": "_x", "name": "n", "description": "d"}],
            },
        ),
        ({"sessionUpdate": "config_option_update", "configOptions": [{"type": "_x", "configId": "c", "name": "n"}]},),
        ({"sessionUpdate": "notice", "severity": "info", "title": "t"},),
        ({"sessionUpdate": "compaction_update", "compactionId": "c", "status": "completed"},),
        ({"sessionUpdate": "_x"},),
    ]


# Against what others say: schemas and captures


def validator(version: int, definition: str) -> Any:
    schema = sdk_schema(1 if version == 1 else 2)
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{definition}", "$defs": schema["$defs"]})


def captured(kind: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for path in sorted(CAPTURES.glob("*.jsonl")):
        if ("-v2-" in path.stem) == (kind == "v2") and "init-ask" not in path.stem:
            lines = [json.loads(json.loads(line)["line"]) for line in path.read_bytes().splitlines()]
            yield path.stem, [line["params"]["update"] for line in lines if line.get("method") == "session/update"]


def test_what_is_sent_to_v1_and_v2_validates_against_the_official_schemas() -> None:
    v1_schema, v2_schema = validator(1, "SessionUpdate"), validator(2, "SessionUpdate")
    checked = 0
    streams = [list(stream) for stream in _showcase()] + [updates for _, updates in captured("v2")]
    for policy in POLICIES:
        for stream in streams:
            for one in run(policy, *stream)[0]:
                v1_schema.validate(one)
                checked += 1
    for _, updates in captured("v1"):
        upgrader = Upgrader()
        for update in updates:
            for converted in upgrader.update(v1.read_update(update)).updates:
                v2_schema.validate(to_json(converted))
                checked += 1
    assert checked > 2000


@pytest.mark.rule("W-1", "W-2", "W-3")
def test_v1_captures_come_back_from_v2_as_they_were_where_nothing_was_lost() -> None:
    """Compared as a v1 client reads them: null says the same as nothing, a run has an id now, lists may come later."""
    compared = 0
    for name, updates in captured("v1"):
        upgrader, converter = Upgrader(), Downgrader()
        for update in updates:
            upgraded = upgrader.update(v1.read_update(update))
            back = [one for two in upgraded.updates for one in converter.update(two).updates]
            if upgraded.losses or update["sessionUpdate"] not in (
                "user_message_chunk",
                "agent_message_chunk",
                "agent_thought_chunk",
            ):
                continue
            (one,) = (to_json(found) for found in back)
            if "messageId" not in update:
                assert one.pop("messageId")
            assert same(one, update), name
            compared += 1
    assert compared > 900


@pytest.mark.rule("W-3")
def test_v1_tool_calls_come_back_from_v2_as_they_were() -> None:
    compared = 0
    for name, updates in captured("v1"):
        for update in updates:
            if update["sessionUpdate"] != "tool_call_update" or '"terminal"' in json.dumps(update.get("content")):
                continue
            (back,) = downgrade(upgrade(v1.read_update(update)))
            silent = {key: value for key, value in update.items() if value is not None}
            for item in silent.get("content", ()):
                if item.get("type") == "diff" and item.get("oldText", 0) is None:
                    del item["oldText"]
            assert same(to_json(back), silent), name
            compared += 1
    assert compared > 60
