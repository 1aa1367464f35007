"""Tool calls, terminals, plans, compactions, and what is reported about the session as a whole."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.fold.sessions import folded, replayed, text, typed
from twofold.exceptions import Malformed
from twofold.fold import Change, Revision, Terminal, Transcript, replay
from twofold.wire import Kept, to_json, v2

Json = Any


def call(tool_call_id: str = "t1", **members: Json) -> Json:
    return {"sessionUpdate": "tool_call_update", "toolCallId": tool_call_id, **members}


def call_chunk(item: Json, tool_call_id: str = "t1", **members: Json) -> Json:
    return {"sessionUpdate": "tool_call_content_chunk", "toolCallId": tool_call_id, "content": item, **members}


def said(words: str) -> Json:
    return {"type": "content", "content": text(words)}


def terminal(terminal_id: str = "r1", **members: Json) -> Json:
    return {"sessionUpdate": "terminal_update", "terminalId": terminal_id, **members}


def output(data: bytes | str, terminal_id: str = "r1", **members: Json) -> Json:
    encoded = data if isinstance(data, str) else base64.b64encode(data).decode()
    return {"sessionUpdate": "terminal_output_chunk", "terminalId": terminal_id, "data": encoded, **members}


def snapshot(data: bytes, **members: Json) -> Json:
    return {"data": base64.b64encode(data).decode(), **members}


def the_terminal(transcript: Transcript) -> Terminal:
    held = transcript.terminal("r1")
    assert held is not None
    return held


# Tool calls


@pytest.mark.rule("F-2", "F-6")
def test_a_tool_call_starts_from_defaults_and_null_goes_back_to_them() -> None:
    untouched = folded([call()]).to_json()
    fields: Json = {
        "name": "n",
        "title": "t",
        "kind": "read",
        "status": "completed",
        "content": [said("a")],
        "locations": [{"path": "/a"}],
        "rawInput": [0],
        "rawOutput": False,
        "capabilities": {"cancel": {}},
        "_meta": {"k": 1},
        "future": 1,
    }
    transcript = folded([call(**fields)])
    assert transcript.to_json()["toolCalls"] == [{"toolCallId": "t1", **fields}]
    nulls: Json = dict.fromkeys(fields)
    change = transcript.apply(typed(call(**nulls)))
    assert set(change.fields) == fields.keys() - {"content"}
    assert change.content == "cleared"
    assert transcript.to_json() == untouched


@pytest.mark.rule("F-2")
@pytest.mark.parametrize("field", ["rawInput", "rawOutput"])
@pytest.mark.parametrize("value", [0, False, "", [], {}])
def test_a_raw_value_that_is_falsy_is_a_value(field: str, value: Json) -> None:
    transcript = folded([call(), call(**{field: value})])
    assert transcript.to_json()["toolCalls"][0][field] == value
    assert replayed(transcript).to_json() == transcript.to_json()


@pytest.mark.rule("F-3", "F-4", "F-5", "F-7")
def test_the_content_of_a_tool_call_follows_the_rules_of_messages() -> None:
    transcript = folded([call_chunk(said("a")), call_chunk({"type": "terminal", "terminalId": "r9"})])
    held = transcript.tool_call("t1")
    assert held is not None
    assert [item.kind if isinstance(item, v2.OtherToolCallContent) else type(item) for item in held.content] == [
        v2.Content,
        v2.Terminal,
    ]
    transcript.apply(typed(call(content=[said("b")])))
    transcript.apply(typed(call_chunk(said("c"))))
    assert to_json(list(held.content)) == [said("b"), said("c")]
    transcript.apply(typed(call(content=[])))
    assert list(held.content) == []
    assert transcript.terminals == (), "a reference is no terminal: the two may come in either order"


@pytest.mark.rule("U-5")
@pytest.mark.parametrize(
    "update",
    [
        call_chunk(said("a"), _meta={"k": 1}),
        output(b"a", _meta={"k": 1}),
        {"sessionUpdate": "compaction_summary_chunk", "compactionId": "c1", "content": text("a"), "_meta": {"k": 1}},
    ],
)
def test_the_meta_of_any_chunk_is_its_own(update: Json) -> None:
    assert '"_meta"' not in str(folded([update]).to_json())
    assert '"k"' not in str(folded([update]).to_json()).replace("'", '"')


# Terminals


@pytest.mark.rule("F-5")
def test_terminal_output_is_bytes_and_a_character_may_be_split_between_chunks() -> None:
    euro = "\u20ac".encode()
    transcript = folded([output(euro[:1]), output(euro[1:2])])
    held = the_terminal(transcript)
    assert held.output == euro[:2]
    change = transcript.apply(typed(output(euro[2:] + b"\x1b[0m\r\n")))
    assert (change.content, change.index, change.block) == ("appended", 2, euro[2:] + b"\x1b[0m\r\n")
    assert held.output == euro + b"\x1b[0m\r\n"
    assert len(held) == len(held.output) == 9


@pytest.mark.rule("F-4")
def test_a_snapshot_replaces_all_bytes_and_chunks_append_to_it() -> None:
    transcript = folded([output(b"old"), terminal(output=snapshot(b"new")), output(b" more")])
    assert the_terminal(transcript).output == b"new more"
    assert len(the_terminal(transcript)) == 8
    transcript.apply(typed(terminal(output=None)))
    assert the_terminal(transcript).output == b""
    assert the_terminal(transcript).output_update() is None
    transcript.apply(typed(output(b"again")))
    assert the_terminal(transcript).output == b"again"


def test_a_terminal_without_output_is_still_a_terminal() -> None:
    assert the_terminal(folded([terminal()]))
    assert len(the_terminal(folded([terminal()]))) == 0


@pytest.mark.rule("F-12")
def test_the_same_bytes_cut_otherwise_are_the_same_output() -> None:
    transcript = folded([output(b"ab"), output(b"cd")])
    assert not transcript.apply(typed(terminal(output=snapshot(b"abcd"))))
    assert not transcript.apply(typed(output(b"")))
    assert transcript.version == 2


def test_what_a_snapshot_says_beside_its_bytes_is_held_until_the_next_one() -> None:
    transcript = folded([terminal(output=snapshot(b"a", _meta={"cut": True}, future=1)), output(b"b")])
    assert transcript.to_json()["terminals"][0]["output"] == snapshot(b"ab", _meta={"cut": True}, future=1)
    change = transcript.apply(typed(terminal(output=snapshot(b"ab", future=1))))
    assert (change.kind, change.content, change.fields) == ("patched", "kept", ("output",))
    assert transcript.to_json()["terminals"][0]["output"] == snapshot(b"ab", future=1)


BAD_BASE64 = ["YWI", "YQ", "YQ=", "YQ==\n", " YQ==", "Y!Q=", "YQ==YQ==", "\u00e9", "\ud83d", "YQ-_"]


@pytest.mark.rule("U-6")
@pytest.mark.parametrize("data", BAD_BASE64)
@pytest.mark.parametrize("known", [False, True])
def test_output_that_is_no_base64_is_rejected_with_its_path_and_changes_nothing(data: str, known: bool) -> None:
    transcript = folded([terminal(command="make", output=snapshot(b"held"), _meta={"k": 1})] if known else [])
    heard: list[Change] = []
    transcript.subscribe(heard.append)
    before, version = transcript.to_json(), transcript.version
    for update, path in (
        (output(data, future=1), "$.data"),
        (terminal(command="x", output={"data": data}, _meta=None, future=1), "$.output.data"),
    ):
        with pytest.raises(Malformed) as caught:
            transcript.apply(typed(update))
        assert caught.value.path == path
        assert caught.value.expected == "base64"
        assert data not in str(caught.value)
    assert (transcript.to_json(), transcript.version, heard) == (before, version, [])
    assert len(transcript.timeline) == len(transcript.terminals) == known
    assert transcript.terminal("r1") is (transcript.terminals[0] if known else None)


# Plans


def plan(plan_id: str, *entries: str, **members: Json) -> Json:
    steps = [{"content": words, "priority": "low", "status": "pending"} for words in entries]
    return {"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": plan_id, "entries": steps}, **members}


@pytest.mark.rule("F-9", "F-12")
def test_a_plan_is_replaced_whole_and_keeps_its_place() -> None:
    transcript = folded([plan("p1", "a"), plan("p2", "x"), plan("p1", "b", "c")])
    assert [(one.plan_id, [step.content for step in one.entries]) for one in transcript.plans] == [
        ("p1", ["b", "c"]),
        ("p2", ["x"]),
    ]
    held = transcript.plan("p1")
    assert held is transcript.plans[0]
    assert held.version == 2
    assert not transcript.apply(typed(plan("p1", "b", "c")))
    assert held.version == 2
    assert transcript.plan("p3") is None


@pytest.mark.rule("U-7")
def test_a_plan_of_an_unknown_kind_is_kept_under_its_id() -> None:
    mural = {"sessionUpdate": "plan_update", "plan": {"type": "mural", "planId": "p1", "paint": ["red", None]}}
    transcript = folded([plan("p1", "a"), mural])
    assert transcript.to_json()["plans"] == [mural["plan"]]
    assert list(transcript.plans[0].entries) == []
    assert not transcript.apply(typed(mural))
    transcript.apply(typed(plan("p1", "b")))
    assert [step.content for step in transcript.plans[0].entries] == ["b"]


@pytest.mark.rule("U-7")
@pytest.mark.parametrize("fields", [{}, {"planId": None}, {"planId": 1}])
def test_a_plan_that_does_not_say_which_one_it_is_replaces_none(fields: Json) -> None:
    # The wire refuses these; a program can still build them.
    anonymous = v2.PlanUpdate(plan=v2.OtherPlanUpdateContent(kind="mural", fields=Kept(fields)))
    transcript = folded([plan("p1", "a")])
    for number in (1, 2):
        change = transcript.apply(anonymous)
        assert (change.kind, change.target.plan_id) == ("created", None)
        assert len(transcript.plans) == 1 + number
    assert transcript.to_json()["plans"][1:] == [{"type": "mural", **fields}] * 2


@pytest.mark.rule("U-7")
def test_what_stands_beside_a_plan_and_what_stands_in_it_are_told_apart() -> None:
    beside = folded([plan("p1", _meta={"k": 1}, future=1)])
    assert beside.to_json()["plans"] == [
        {"type": "items", "planId": "p1", "entries": [], "update": {"_meta": {"k": 1}, "future": 1}}
    ]
    inside = plan("p1")
    inside["plan"] |= {"update": {"_meta": {"k": 1}, "future": 1}}
    assert folded([inside]).to_json()["plans"] == [{"plan": inside["plan"]}]
    assert replayed(beside).to_json() == beside.to_json()


# Compactions


@pytest.mark.rule("F-3", "F-5", "F-7")
def test_a_compaction_that_begins_with_a_chunk_is_in_progress() -> None:
    transcript = folded(
        [{"sessionUpdate": "compaction_summary_chunk", "compactionId": "c1", "content": text("We met.")}]
    )
    held = transcript.compaction("c1")
    assert held is not None
    assert (held.status, held.text, held.error) == ("in_progress", "We met.", None)
    assert transcript.compactions == (held,)
    transcript.apply(
        typed(
            {"sessionUpdate": "compaction_update", "compactionId": "c1", "status": "failed", "summary": [], "error": ""}
        )
    )
    assert (held.status, list(held.summary), held.error) == ("failed", [], "")
    assert transcript.compaction("c2") is None


# What is reported about the session


@pytest.mark.rule("F-12")
def test_a_state_said_again_is_nothing_and_an_unknown_state_is_kept_and_not_idle() -> None:
    transcript = folded([{"sessionUpdate": "state_update", "state": "running"}])
    assert not transcript.apply(typed({"sessionUpdate": "state_update", "state": "running"}))
    change = transcript.apply(typed({"sessionUpdate": "state_update", "state": "dreaming", "about": None}))
    assert change.entity == "state"
    assert transcript.state is change.target
    assert transcript.state.state == "dreaming"
    assert transcript.to_json()["state"] == {"state": "dreaming", "about": None}


def test_a_new_session_has_no_state_which_counts_as_idle() -> None:
    transcript = Transcript("s-1")
    assert (transcript.state, transcript.usage) == (None, None)
    assert (transcript.available_commands, transcript.config_options) == ((), ())
    assert to_json(transcript.session_info) == {"sessionUpdate": "session_info_update"}
    assert transcript.to_json() == {
        "sessionId": "s-1",
        "messages": [],
        "toolCalls": [],
        "terminals": [],
        "plans": [],
        "other": [],
    }


@pytest.mark.rule("F-2")
def test_the_cost_of_a_session_is_kept_cleared_or_replaced() -> None:
    cost = {"amount": 1, "currency": "EUR"}
    start = {"sessionUpdate": "usage_update", "used": 1, "size": 9, "cost": cost}
    for patch, expected in (
        ({}, cost),
        ({"cost": None}, None),
        ({"cost": {**cost, "amount": 2}}, {**cost, "amount": 2}),
    ):
        transcript = folded([start, {"sessionUpdate": "usage_update", "used": 2, "size": 9, **patch}])
        assert transcript.to_json()["usage"].get("cost") == expected
        assert transcript.usage is not None
        assert transcript.usage.used == 2
        assert replayed(transcript).to_json() == transcript.to_json()


@pytest.mark.rule("R-1")
@pytest.mark.parametrize("revision", list(Revision))
def test_session_information_that_was_taken_back_is_as_if_it_had_never_been(revision: Revision) -> None:
    transcript = folded(
        [
            {"sessionUpdate": "session_info_update", "title": "Pumps", "_meta": {"k": 1}, "mood": "calm"},
            {"sessionUpdate": "session_info_update", "title": None, "_meta": None, "mood": None},
        ],
        revision,
    )
    assert transcript.to_json() == Transcript().to_json()
    assert list(replay(transcript)) == []


def test_lists_of_commands_and_options_are_replaced_whole() -> None:
    commands = [{"type": "command", "name": name, "description": ""} for name in ("a", "b")]
    options = [{"type": "boolean", "configId": name, "name": name, "currentValue": True} for name in ("a", "b")]
    transcript = folded(
        [
            {"sessionUpdate": "available_commands_update", "availableCommands": commands},
            {"sessionUpdate": "config_option_update", "configOptions": options},
            {"sessionUpdate": "available_commands_update", "availableCommands": commands[1:]},
            {"sessionUpdate": "config_option_update", "configOptions": []},
        ]
    )
    assert to_json(list(transcript.available_commands)) == commands[1:]
    assert list(transcript.config_options) == []


def test_a_notice_is_told_every_time_and_is_no_history() -> None:
    notice = {"sessionUpdate": "notice", "severity": "warning", "title": "Disk nearly full"}
    transcript = folded([notice, notice])
    assert [one.title for one in transcript.notices] == ["Disk nearly full"] * 2
    assert transcript.version == 2
    assert transcript.to_json() == Transcript().to_json()
    assert list(replay(transcript)) == []
    assert list(transcript.timeline) == []


@pytest.mark.rule("F-9")
def test_the_timeline_holds_all_things_in_order_of_first_sight() -> None:
    transcript = folded(
        [
            output(b"a"),
            call(),
            {"sessionUpdate": "agent_dream"},
            plan("p1"),
            {"sessionUpdate": "agent_message_chunk", "messageId": "m1", "content": text("a")},
            terminal(command="make"),
            call(status="completed"),
            plan("p1", "a"),
        ]
    )
    assert [type(one).__name__ for one in transcript.timeline] == [
        "Terminal",
        "ToolCall",
        "OtherUpdate",
        "Plan",
        "Message",
    ]
    assert list(transcript.other) == [transcript.timeline[2]]
    assert (transcript.tool_calls, transcript.terminals) == (
        (transcript.tool_call("t1"),),
        (transcript.terminal("r1"),),
    )


# All or nothing


@pytest.mark.rule("U-6")
@pytest.mark.parametrize(
    "update",
    [
        v2.AgentMessage(message_id="new", content=1),  # type: ignore[arg-type]
        v2.ToolCallUpdate(tool_call_id="new", content=1),  # type: ignore[arg-type]
        v2.TerminalUpdate(terminal_id="new", command="x", output=v2.TerminalOutput(data=1)),  # type: ignore[arg-type]
        v2.TerminalOutputChunk(terminal_id="new", data=1),  # type: ignore[arg-type]
        v2.CompactionUpdate(compaction_id="new", status="x", summary=1),  # type: ignore[arg-type]
        v2.AgentMessage(message_id="new", extra=1),  # type: ignore[arg-type]
        v2.ToolCallContentChunk(tool_call_id="new", content=v2.Terminal(terminal_id="r"), extra=1),  # type: ignore[arg-type]
        v2.AgentMessage(message_id=[]),  # type: ignore[arg-type]
        1,
    ],
    ids=repr,
)
def test_an_update_that_no_sender_could_have_sent_changes_nothing_either(update: Any) -> None:
    transcript = Transcript()
    with pytest.raises((TypeError, AttributeError, AssertionError)):
        transcript.apply(update)
    assert transcript.to_json() == Transcript().to_json()
    assert (transcript.version, list(transcript.timeline)) == (0, [])
    assert list(transcript.messages) == []
    assert (transcript.tool_calls, transcript.terminals, transcript.compactions) == ((), (), ())


def bottomless() -> Json:
    value: Json = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.rule("U-6")
@pytest.mark.parametrize("where", ["_meta", "future", "block"])
def test_an_update_that_fails_in_the_middle_of_a_comparison_leaves_everything_as_it_was(where: str) -> None:
    def update(*words: str) -> v2.SessionUpdate:
        meta = {"k": bottomless()} if where == "_meta" else {}
        extra = Kept({"first": words, "future": bottomless()} if where == "future" else {})
        deep = v2.TextContent(text="deep", meta={"k": bottomless()} if where == "block" else {})
        blocks = [deep, *(v2.TextContent(text=one) for one in words)]
        return v2.AgentMessage(message_id="m1", content=blocks, meta=meta, extra=extra)

    transcript = Transcript()
    transcript.apply(update("a"))
    held = transcript.messages[0]
    with pytest.raises(RecursionError):
        transcript.apply(update("b"))
    assert (transcript.version, held.version, held.text) == (1, 1, "deepa")
    assert held.extra.get("first", ("a",)) == ("a",)
    assert not held.corrected
