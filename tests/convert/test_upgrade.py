"""v1 → v2: ids for untagged chunks (W-1, W-2), tool calls and plans (W-3), what v2 has no place for (W-4)."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.convert import FROM_PROMPT, PLAN_ID, Upgrader, git_patch, upgrade
from twofold.exceptions import Malformed, Unrepresentable
from twofold.wire import to_json, v1, v2


def chunk(kind: str, text: str, message_id: str | None = None) -> v1.SessionUpdate:
    update: dict[str, Any] = {"sessionUpdate": f"{kind}_chunk", "content": {"type": "text", "text": text}}
    if message_id is not None:
        update["messageId"] = message_id
    return v1.read_update(update)


def tool(tool_call_id: str, kind: str = "tool_call") -> v1.SessionUpdate:
    return v1.read_update({"sessionUpdate": kind, "toolCallId": tool_call_id, "title": "Set lamp"})


PLAN = v1.read_update({"sessionUpdate": "plan", "entries": []})


def ids(upgrader: Upgrader, updates: Sequence[v1.SessionUpdate]) -> list[str | None]:
    return [getattr(one, "message_id", None) for update in updates for one in upgrader.update(update).updates]


@pytest.mark.rule("W-1")
def test_a_chunk_with_an_id_is_the_same_chunk_in_v2() -> None:
    source = {
        "sessionUpdate": "agent_thought_chunk",
        "messageId": "m",
        "content": {"type": "text", "text": "hm", "x": [1, True]},
        "_meta": {"k": None},
        "unknown": {"deep": 1},
    }
    assert to_json(upgrade(v1.read_update(source))) == source


@pytest.mark.rule("W-2")
@pytest.mark.parametrize("message_id", [{}, {"messageId": None}])
def test_strictly_a_chunk_without_an_id_fails_and_says_where(message_id: dict[str, Any]) -> None:
    update = v1.read_update(
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "secret"}, **message_id}
    )
    with pytest.raises(Unrepresentable) as caught:
        upgrade(update)
    assert (caught.value.kind, caught.value.path) == ("agent_message_chunk", "$.messageId")
    assert "secret" not in str(caught.value)


@pytest.mark.rule("W-2")
def test_a_run_of_untagged_chunks_of_one_type_is_one_message() -> None:
    first, second, third = ids(Upgrader(), [chunk("agent_message", text) for text in "abc"])
    assert first == second == third


@pytest.mark.rule("W-2")
@pytest.mark.parametrize(
    "between",
    [
        chunk("agent_thought", "x"),
        chunk("agent_message", "x", "tagged"),
        chunk("user_message", "x", "tagged"),
        tool("t-1"),
        tool("t-1", "tool_call_update"),
        PLAN,
    ],
)
def test_a_run_ends_at_first_sight_of_something_else(between: v1.SessionUpdate) -> None:
    upgrader = Upgrader()
    before, _, after = ids(upgrader, [chunk("agent_message", "a"), between, chunk("agent_message", "b")])
    assert before != after


@pytest.mark.rule("W-2")
@pytest.mark.parametrize("known", [chunk("user_message", "x", "tagged"), tool("t-1"), PLAN])
def test_more_of_something_seen_before_does_not_end_a_run(known: v1.SessionUpdate) -> None:
    upgrader = Upgrader()
    upgrader.update(known)
    before, _, after = ids(upgrader, [chunk("agent_message", "a"), known, chunk("agent_message", "b")])
    assert before == after


@pytest.mark.rule("W-2")
def test_usage_and_other_reports_do_not_end_a_run() -> None:
    usage = v1.read_update({"sessionUpdate": "usage_update", "used": 1, "size": 2})
    upgrader = Upgrader()
    before, _, after = ids(upgrader, [chunk("agent_message", "a"), usage, chunk("agent_message", "b")])
    assert before == after


@pytest.mark.rule("W-2")
def test_a_permission_request_ends_a_run() -> None:
    upgrader = Upgrader()
    (before,) = ids(upgrader, [chunk("agent_message", "a")])
    upgrader.permission_requested()
    (after,) = ids(upgrader, [chunk("agent_message", "b")])
    assert before != after


@pytest.mark.rule("W-2")
def test_a_prompt_sent_while_none_is_pending_ends_a_run_and_a_queued_one_does_not() -> None:
    upgrader = Upgrader()
    (one,) = ids(upgrader, [chunk("agent_message", "a")])
    upgrader.prompt_sent(1)
    (two,) = ids(upgrader, [chunk("agent_message", "b")])
    upgrader.prompt_sent(2)
    (three,) = ids(upgrader, [chunk("agent_message", "c")])
    assert one != two
    assert two == three


@pytest.mark.rule("W-2")
def test_the_answer_to_the_oldest_prompt_ends_a_run_only_while_another_waits() -> None:
    upgrader = Upgrader()
    upgrader.prompt_sent(1)
    upgrader.prompt_sent(2)
    (one,) = ids(upgrader, [chunk("agent_message", "a")])
    upgrader.prompt_answered(1)
    (two,) = ids(upgrader, [chunk("agent_message", "b")])
    upgrader.prompt_answered(2)
    (tail,) = ids(upgrader, [chunk("agent_message", "a late tail")])
    assert one != two
    assert two == tail


@pytest.mark.rule("W-2")
def test_the_answer_to_a_younger_prompt_does_not_end_a_run() -> None:
    upgrader = Upgrader()
    upgrader.prompt_sent(1)
    upgrader.prompt_sent(2)
    (one,) = ids(upgrader, [chunk("agent_message", "a")])
    upgrader.prompt_answered(2)
    upgrader.prompt_answered("never asked")
    (two,) = ids(upgrader, [chunk("agent_message", "b")])
    assert one == two


@pytest.mark.rule("W-2")
@given(
    st.lists(
        st.tuples(st.sampled_from(["user_message", "agent_message", "agent_thought"]), st.sampled_from([None, 0, 1, 2]))
    )
)
def test_made_up_ids_never_equal_an_id_the_agent_used_even_later(stream: list[tuple[str, int | None]]) -> None:
    """An agent that happens to use the very ids that are made up here: taken from a first run over the same stream."""
    scout = Upgrader()
    made = [ids(scout, [chunk(kind, "x")])[0] for kind, tag in stream if tag is None] or ["untagged-1"]
    upgrader = Upgrader()
    agent_ids: dict[tuple[str, str], str] = {}
    groups: dict[str, set[tuple[str, object]]] = {}
    for position, (kind, tag) in enumerate(stream):
        message_id = None if tag is None else str(made[tag % len(made)])
        (v2_id,) = ids(upgrader, [chunk(kind, "x", message_id)])
        assert isinstance(v2_id, str)
        source = (kind, message_id) if message_id is not None else (kind, f"run before {position}")
        if message_id is not None:
            agent_ids[source] = agent_ids.get(source, v2_id)
            assert agent_ids[source] == v2_id  # one message keeps one id
            groups.setdefault(v2_id, set()).add(("agent", message_id))
        else:
            groups.setdefault(v2_id, set()).add(("made", v2_id))
    for sources in groups.values():
        assert len({origin for origin, _ in sources}) == 1, "an id of the agent's and a made-up one were mixed"


@pytest.mark.rule("W-2")
def test_made_up_ids_are_the_same_for_the_same_input() -> None:
    stream = [chunk("agent_thought", "a"), chunk("agent_message", "b"), tool("t"), chunk("agent_message", "c")]
    assert ids(Upgrader(), stream) == ids(Upgrader(), stream)


@pytest.mark.rule("P-5", "W-2")
def test_a_replay_is_grouped_afresh_and_does_not_disturb_what_stands() -> None:
    upgrader = Upgrader()
    (one,) = ids(upgrader, [chunk("agent_message", "a")])
    replay = upgrader.restarted()
    (again,) = ids(replay, [chunk("agent_message", "a")])
    (more,) = ids(upgrader, [chunk("agent_message", "b")])
    assert one == again == more


def test_a_prompt_and_its_answer_become_what_a_v2_agent_would_have_reported() -> None:
    upgrader = Upgrader()
    message, running = upgrader.prompt_sent(1, [v2.TextContent(text="Dim it.")])
    assert isinstance(message, v2.UserMessage)
    assert message.content == [v2.TextContent(text="Dim it.")]
    assert isinstance(message.meta, dict)
    assert message.meta[FROM_PROMPT] is True
    assert running == v2.StateUpdate(state="running")
    second, _ = upgrader.prompt_sent(2, [])
    assert isinstance(second, v2.UserMessage)
    assert second.message_id != message.message_id
    assert upgrader.prompt_answered(1, "end_turn") == (), "the second is still under way"
    assert upgrader.prompt_answered(2, "cancelled") == (v2.StateUpdate(state="idle", stop_reason="cancelled"),)
    assert upgrader.prompt_sent(3) == ()


@pytest.mark.rule("W-3")
@pytest.mark.parametrize("kind", ["tool_call", "tool_call_update"])
def test_both_tool_call_updates_become_the_v2_upsert_and_null_stays_unsaid(kind: str) -> None:
    source = {
        "sessionUpdate": kind,
        "toolCallId": "t",
        "title": "Read",
        "status": "in_progress",
        "content": [{"type": "content", "content": {"type": "text", "text": "x"}, "y": 1}],
        "locations": [{"path": "/a", "line": 3, "z": None}],
        "rawInput": {"a": None},
        "_meta": {"m": 1},
        "unknown": 1,
    }
    assert to_json(upgrade(v1.read_update(source))) == {**source, "sessionUpdate": "tool_call_update"}
    silent = {"sessionUpdate": kind, "toolCallId": "t", "title": "Read", "rawInput": None, "_meta": None, "name": None}
    assert to_json(upgrade(v1.read_update(silent))) == {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "t",
        "title": "Read",
    }


@pytest.mark.rule("W-3")
def test_the_one_plan_is_reported_under_one_fixed_id() -> None:
    entries = [{"content": "a", "priority": "high", "status": "pending", "x": 1}]
    update = v1.read_update({"sessionUpdate": "plan", "entries": entries, "_meta": {"m": 1}, "y": 2})
    assert to_json(upgrade(update)) == {
        "sessionUpdate": "plan_update",
        "plan": {"type": "items", "planId": PLAN_ID, "entries": entries},
        "_meta": {"m": 1},
        "y": 2,
    }


@pytest.mark.rule("W-3")
def test_commands_and_options_take_v2s_names() -> None:
    commands = {
        "sessionUpdate": "available_commands_update",
        "availableCommands": [{"name": "n", "description": "d", "input": {"hint": "h", "x": 1}}],
    }
    assert to_json(upgrade(v1.read_update(commands)))["availableCommands"] == [
        {"type": "command", "name": "n", "description": "d", "input": {"type": "text", "hint": "h", "x": 1}}
    ]
    option = {
        "type": "select",
        "id": "model",
        "name": "Model",
        "currentValue": "a",
        "options": [{"group": "g", "name": "G", "options": [{"value": "a", "name": "A", "x": 1}]}],
        "y": 2,
    }
    update = v1.read_update({"sessionUpdate": "config_option_update", "configOptions": [option]})
    assert to_json(upgrade(update))["configOptions"] == [
        {
            "type": "select",
            "configId": "model",
            "name": "Model",
            "currentValue": "a",
            "options": [{"groupId": "g", "name": "G", "options": [{"value": "a", "name": "A", "x": 1}]}],
            "y": 2,
        }
    ]


@pytest.mark.rule("W-4")
def test_a_mode_update_fails_strictly_and_is_a_loss_otherwise() -> None:
    update = v1.read_update({"sessionUpdate": "current_mode_update", "currentModeId": "plan"})
    with pytest.raises(Unrepresentable, match="configuration options"):
        upgrade(update)
    upgraded = Upgrader().update(update)
    assert not upgraded.updates
    assert [(loss.kind, loss.path) for loss in upgraded.losses] == [("current_mode_update", "$")]


@pytest.mark.rule("W-4")
def test_a_clients_own_terminal_fails_strictly_and_is_a_loss_otherwise() -> None:
    update = v1.read_update(
        {"sessionUpdate": "tool_call_update", "toolCallId": "t", "content": [{"type": "terminal", "terminalId": "x"}]}
    )
    with pytest.raises(Unrepresentable) as caught:
        upgrade(update)
    assert (caught.value.id, caught.value.path) == ("t", "$.content[0]")
    upgraded = Upgrader().update(update)
    assert len(upgraded.updates) == len(upgraded.losses) == 1


def test_an_update_of_a_kind_that_only_v2_knows_must_have_v2s_shape() -> None:
    good = v1.read_update({"sessionUpdate": "state_update", "state": "idle"})
    assert upgrade(good) == v2.StateUpdate(state="idle")
    with pytest.raises(Malformed, match=r"\$\.state"):
        upgrade(v1.read_update({"sessionUpdate": "state_update", "state": 1}))


def test_an_unknown_update_stays_what_it_is() -> None:
    source = {"sessionUpdate": "_acme/x", "a": [1, {"b": None}]}
    assert to_json(upgrade(v1.read_update(source))) == source


TEXTS = st.text(alphabet=st.sampled_from("ab\n\r\u2028é"), max_size=12)


@pytest.mark.rule("W-3")
@given(old=st.one_of(st.none(), TEXTS), new=TEXTS)
def test_a_diffs_patch_holds_both_texts_whole(old: str | None, new: str) -> None:
    patch = git_patch("/a.txt", old, new)
    before, after = read_patch(patch)
    assert (before, after) == (old or "", new)


def read_patch(patch: str) -> tuple[str, str]:
    """The old and new text of a patch with one hunk, read the plain way."""
    before: list[str] = []
    after: list[str] = []
    _, _, body = patch.partition("@@\n")
    if not body:
        return "", ""
    targets: list[list[str]] = []
    for line in body.split("\n")[:-1]:
        if line.startswith("\\"):
            for target in targets:
                target[-1] = target[-1][:-1]
            continue
        targets = {"-": [before], "+": [after], " ": [before, after]}[line[0]]
        for target in targets:
            target.append(f"{line[1:]}\n")
    return "".join(before), "".join(after)


@pytest.mark.rule("W-3")
@pytest.mark.parametrize(
    ("old", "new"),
    [(None, "a\nb\n"), ("a\nb\n", "a\nB\nc"), ("a", ""), ("", "x\n"), ("a\nb\nc\n" * 40, "a\nc\n" * 40)],
)
def test_git_applies_the_patch(tmp_path: Path, old: str | None, new: str) -> None:
    target = tmp_path / "notes.txt"
    if old is not None:
        target.write_text(old)
    subprocess.run(
        ["git", "apply", "-"],
        input=git_patch("notes.txt", old, new),
        text=True,
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    assert target.read_text() == new


@pytest.mark.rule("W-1", "W-2")
def test_the_reported_missing_ids_are_filled_as_the_case_asks(case: Any) -> None:
    lines, expected = case("15-v1-to-v2-missing-ids")
    updates = [v1.read_params(json.loads(line)["params"]).update for line in lines]
    for update, wanted in zip(updates, expected["strict"]["results"], strict=True):
        if "v2" in wanted:
            assert [to_json(upgrade(update))] == wanted["v2"]
        elif "error" in wanted:
            with pytest.raises(Unrepresentable):
                upgrade(update)
    one, two, three, four, five, _, seven = ids(Upgrader(), updates)
    assert one == "n-1"
    assert two == three
    assert four == five != one
    assert seven not in (one, two, four)
