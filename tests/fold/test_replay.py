"""Replay, and the reload that receives one (P-1, P-2, P-3, P-5)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import CAPTURES
from tests.fold.sessions import chunk, folded, message, replayed, sent, text, typed, whole
from twofold.fold import Change, Compaction, Revision, Terminal, ToolCall, Transcript, replay
from twofold.wire import encode, to_json, v2

Json = Any


def told(transcript: Transcript, *, compact: bool = False) -> list[Json]:
    return [to_json(update) for update in replay(transcript, compact=compact)]


@pytest.mark.rule("P-1")
def test_each_message_is_replayed_as_one_whole_update_in_list_order_with_content_and_meta_when_held() -> None:
    transcript = folded(
        [
            chunk("m1", "a", "agent_thought"),
            chunk("m1", "b"),
            whole("u1", type="user_message"),
            chunk("m1", "c"),
            whole("m1", _meta={"k": 1}, future=[1]),
            chunk("m1", "d", "agent_thought", _meta={"chunk": 1}),
        ]
    )
    assert told(transcript) == [
        whole("m1", text("a"), text("d"), type="agent_thought"),
        whole("m1", text("b"), text("c"), _meta={"k": 1}, future=[1]),
        whole("u1", content=[], type="user_message"),
    ]


@pytest.mark.rule("P-1")
def test_the_current_state_comes_last_and_everything_else_in_order_of_first_sight() -> None:
    transcript = folded(
        [
            {"sessionUpdate": "state_update", "state": "idle"},
            {"sessionUpdate": "usage_update", "used": 1, "size": 2},
            {"sessionUpdate": "tool_call_update", "toolCallId": "t1"},
            {"sessionUpdate": "agent_dream"},
            {"sessionUpdate": "notice", "severity": "info", "title": "Hello"},
            chunk("m1", "a"),
            {"sessionUpdate": "session_info_update", "title": "T"},
            {"sessionUpdate": "terminal_output_chunk", "terminalId": "r1", "data": "YQ=="},
        ]
    )
    assert [update["sessionUpdate"] for update in told(transcript)] == [
        "tool_call_update",
        "agent_dream",
        "agent_message",
        "terminal_update",
        "session_info_update",
        "usage_update",
        "state_update",
    ]


@pytest.mark.rule("P-1")
def test_a_replay_says_nothing_that_a_new_thing_has_anyhow() -> None:
    transcript = folded(
        [
            {
                "sessionUpdate": "tool_call_update",
                "toolCallId": "t1",
                "kind": "other",
                "status": "pending",
                "locations": [],
            },
            {"sessionUpdate": "terminal_update", "terminalId": "r1", "output": {"data": ""}},
            {"sessionUpdate": "compaction_update", "compactionId": "c1", "status": "in_progress", "summary": []},
            {"sessionUpdate": "tool_call_update", "toolCallId": "t2", "locations": [{"path": "/a"}], "rawInput": 0},
            {"sessionUpdate": "tool_call_update", "toolCallId": "t2", "locations": [], "rawInput": None},
        ]
    )
    assert told(transcript) == [
        {"sessionUpdate": "tool_call_update", "toolCallId": "t1"},
        {"sessionUpdate": "terminal_update", "terminalId": "r1"},
        {"sessionUpdate": "compaction_update", "compactionId": "c1", "status": "in_progress"},
        {"sessionUpdate": "tool_call_update", "toolCallId": "t2"},
    ]
    assert list(replay(Transcript())) == []


@pytest.mark.rule("P-2")
@pytest.mark.parametrize("compact", [False, True])
def test_what_was_withdrawn_or_replaced_is_in_no_replay(compact: bool) -> None:
    transcript = folded(
        [
            chunk("m1", "WITHDRAWN"),
            whole("m1", content=None),
            chunk("m2", "REPLACED"),
            whole("m2", text("b"), _meta={"k": "REPLACED"}),
            whole("m2", _meta=None),
            {"sessionUpdate": "tool_call_update", "toolCallId": "t1", "title": "REPLACED", "rawInput": "WITHDRAWN"},
            {"sessionUpdate": "tool_call_update", "toolCallId": "t1", "title": "c", "rawInput": None},
            {"sessionUpdate": "terminal_output_chunk", "terminalId": "r1", "data": "UkVQTEFDRUQ="},
            {"sessionUpdate": "terminal_update", "terminalId": "r1", "output": {"data": "YQ=="}},
        ]
    )
    shown = json.dumps(told(transcript, compact=compact))
    assert "WITHDRAWN" not in shown
    assert "REPLACED" not in shown
    assert "UkVQTEFDRUQ" not in shown
    assert told(transcript)[0] == whole("m1", content=[])


@pytest.mark.rule("P-3")
def test_an_exact_replay_keeps_the_blocks_and_a_compact_one_joins_neighbouring_plain_text() -> None:
    rich = text("R", annotations={"priority": 1})
    blocks = [text("a"), text(""), text("b"), rich, text("c"), {"type": "hologram"}, text("d"), text("e")]
    transcript = folded([chunk("m1", block) for block in blocks])
    assert told(transcript) == [whole("m1", *blocks)]
    assert told(transcript, compact=True) == [
        whole("m1", text("ab"), rich, text("c"), {"type": "hologram"}, text("de")),
    ]


@pytest.mark.rule("P-3")
@pytest.mark.parametrize(
    "member", [{"annotations": None}, {"annotations": {}}, {"_meta": {}}, {"_meta": None}, {"x": 1}]
)
def test_a_text_block_that_carries_anything_else_is_not_joined(member: Json) -> None:
    transcript = folded([chunk("m1", "a"), chunk("m1", text("b", **member)), chunk("m1", "c")])
    assert told(transcript, compact=True) == told(transcript)


@pytest.mark.rule("P-3", "U-8")
def test_a_compact_replay_joins_the_halves_of_a_character() -> None:
    transcript = folded([chunk("m1", "a\ud83d"), chunk("m1", "\ude80"), chunk("m2", "\ud83d")])
    assert told(transcript)[0]["content"] == [text("a\ud83d"), text("\ude80")]
    assert told(transcript, compact=True)[0]["content"] == [text("a\U0001f680")]
    assert encode(next(iter(replay(transcript)))).count(b"\\ud83d") == 1
    for compact in (False, True):
        again = replayed(transcript, compact=compact)
        assert [one.text for one in again.messages] == ["a\U0001f680", "\ud83d"]


@pytest.mark.rule("F-13", "U-7")
@pytest.mark.parametrize(
    "chunks",
    [
        [{"sessionUpdate": "tool_call_content_chunk", "content": {"type": "terminal", "terminalId": "r"}}],
        [
            {"sessionUpdate": "terminal_output_chunk", "data": "YQ=="},
            {"sessionUpdate": "terminal_output_chunk", "data": ""},
        ],
        [{"sessionUpdate": "compaction_summary_chunk", "content": text("a")}] * 2,
    ],
    ids=["tool call", "terminal", "compaction"],
)
@pytest.mark.parametrize("compact", [False, True])
def test_a_chunk_field_with_the_name_of_another_field_is_replayed_by_a_chunk(chunks: list[Json], compact: bool) -> None:
    strange = dict.fromkeys(["title", "status", "command", "output", "summary", "error", "kind", "exitStatus"], 5)
    key = {"toolCallId": "x", "terminalId": "x", "compactionId": "x"}
    known = {"tool_call_content_chunk": "toolCallId", "terminal_output_chunk": "terminalId"}
    updates = []
    for update in chunks:
        name = known.get(update["sessionUpdate"], "compactionId")
        updates.append({**update, name: key[name], **strange})
    transcript = folded(updates)
    again = replayed(transcript, compact=compact)
    for session in (transcript, again):
        (entity,) = session.timeline
        assert isinstance(entity, (ToolCall, Terminal, Compaction))
        assert entity.extra == strange
    if not compact:
        assert again.to_json() == transcript.to_json()
        assert len(told(transcript)) == 2


@pytest.mark.rule("R-1", "F-13")
@pytest.mark.parametrize("held", [{}, {"k": None}, {"k": 1}])
@pytest.mark.parametrize("revision", list(Revision))
def test_meta_is_replayed_as_it_is_held(held: Json, revision: Revision) -> None:
    transcript = folded(
        [whole("m1", _meta={"x": 1}), whole("m1", _meta={"x": None}), whole("m1", _meta=held)], revision
    )
    assert replayed(transcript).to_json() == transcript.to_json()


# P-5: receiving one


@pytest.mark.rule("P-5")
def test_chunks_replayed_under_known_ids_double_nothing() -> None:
    history = [chunk("u1", "Weather?", "user_message"), chunk("m1", "Fog "), chunk("m1", "lifts.")]
    transcript = folded(history)
    reload = transcript.reload()
    for update in history:
        reload.apply(typed(update))
    reload.commit()
    transcript.apply(typed(chunk("m1", " Sail.")))
    assert [one.text for one in transcript.messages] == ["Weather?", "Fog lifts. Sail."]


@pytest.mark.rule("P-5")
def test_a_replay_that_fails_leaves_everything_as_it_was() -> None:
    transcript, heard = folded([chunk("m1", "a")]), list[Change]()
    transcript.subscribe(heard.append)
    before, version = transcript.to_json(), transcript.version
    reload = transcript.reload()
    reload.apply(typed(chunk("m1", "b")))
    reload.apply(typed(whole("m2", text("c"))))
    assert (transcript.to_json(), transcript.version, heard) == (before, version, [])
    del reload
    transcript.apply(typed(chunk("m1", "d")))
    assert transcript.messages[0].text == "ad"


@pytest.mark.rule("P-5")
def test_the_fresh_state_takes_the_place_of_the_old_one_in_one_step_and_everyone_is_told_once() -> None:
    notice = {"sessionUpdate": "notice", "severity": "info", "title": "Hello"}
    transcript = folded([chunk("m1", "a"), chunk("m2", "b"), notice], "preview")
    heard: list[Change] = []
    transcript.subscribe(heard.append)
    views = transcript.messages, transcript.timeline, transcript.notices
    old, version = transcript.message("agent_message", "m1"), transcript.version
    reload = transcript.reload()
    assert reload.fresh.revision is Revision.PREVIEW
    reload.apply(typed(whole("m1", text("A"))))
    assert reload.fresh.message("agent_message", "m1") is not None
    change = reload.commit()
    assert heard == [change]
    assert (change.entity, change.target, change.kind) == ("transcript", transcript, "replaced")
    assert transcript.version == version + 1
    assert [one.message_id for one in transcript.messages] == ["m1"]
    new = transcript.message("agent_message", "m1")
    assert new is not None
    assert new is not old
    assert new.text == "A"
    assert transcript.message("agent_message", "m2") is None
    assert [len(view) for view in views] == [1, 1, 0], "views stay live"


@pytest.mark.rule("P-5")
def test_a_second_commit_does_nothing_and_what_comes_late_is_folded_as_usual() -> None:
    transcript, heard = folded([chunk("m1", "a")]), list[Change]()
    reload = transcript.reload()
    reload.apply(typed(chunk("m1", "A")))
    reload.commit()
    transcript.subscribe(heard.append)
    assert reload.commit() is Change.nothing
    assert transcript.messages[0].text == "A"
    late = reload.apply(typed(chunk("m1", "B")))
    assert heard == [late]
    assert transcript.messages[0].text == "AB"
    assert reload.fresh is transcript


@pytest.mark.rule("P-5")
def test_an_empty_replay_leaves_an_empty_session() -> None:
    transcript = folded(
        [
            chunk("m1", "a"),
            chunk("m1", "a", "agent_thought"),
            chunk("m1", "a", "user_message"),
            {"sessionUpdate": "tool_call_update", "toolCallId": "t1"},
            {"sessionUpdate": "terminal_update", "terminalId": "r1"},
            {"sessionUpdate": "compaction_update", "compactionId": "c1", "status": "completed"},
            {"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": "p1", "entries": []}},
            {"sessionUpdate": "state_update", "state": "running"},
            {"sessionUpdate": "usage_update", "used": 1, "size": 2},
            {"sessionUpdate": "available_commands_update", "availableCommands": []},
            {"sessionUpdate": "config_option_update", "configOptions": []},
            {"sessionUpdate": "session_info_update", "title": "T"},
            {"sessionUpdate": "notice", "severity": "info", "title": "T"},
            {"sessionUpdate": "agent_dream"},
        ]
    )
    fresh = Transcript()
    transcript.reload().commit()
    ours = {"session_id", "revision", "version", "_subscribers"}
    held, new = vars(transcript), vars(fresh)
    assert held.keys() == new.keys()
    for name in held.keys() - ours - {"_session_info"}:
        assert held[name] == new[name], name
    assert transcript.to_json() == fresh.to_json()


@pytest.mark.rule("P-5")
def test_a_bad_update_in_a_replay_leaves_the_replay_and_the_session_as_they_were() -> None:
    transcript = folded([chunk("m1", "a")])
    reload = transcript.reload()
    reload.apply(typed(chunk("m1", "A")))
    with pytest.raises(ValueError, match="base64"):
        reload.apply(typed({"sessionUpdate": "terminal_output_chunk", "terminalId": "r1", "data": "?"}))
    assert [one.text for one in transcript.messages] == ["a"]
    reload.commit()
    assert ([one.text for one in transcript.messages], list(transcript.terminals)) == (["A"], [])


def updates_of(name: str) -> list[v2.SessionUpdate]:
    lines = [json.loads(record)["line"] for record in (CAPTURES / f"{name}.jsonl").read_bytes().splitlines()]
    return [typed(json.loads(line)["params"]["update"]) for line in lines if '"session/update"' in line]


@pytest.mark.rule("P-5")
@pytest.mark.parametrize("kind", ["turns", "tools"])
def test_a_captured_session_that_is_loaded_again_onto_the_live_one_doubles_no_message(kind: str) -> None:
    transcript = Transcript()
    for update in updates_of(f"claude-agent-acp-0.101.0-v2-{kind}"):
        transcript.apply(update)
    live = {(one.type, one.message_id): one.text for one in transcript.messages}
    history = updates_of("claude-agent-acp-0.101.0-v2-load" + ("" if kind == "turns" else "-tools"))
    reload = transcript.reload()
    for update in history:
        reload.apply(update)
    reload.commit()
    again = {(one.type, one.message_id): one.text for one in transcript.messages}
    common = live.keys() & again.keys()
    assert len(common) >= 6
    assert {one: again[one] for one in common} == {one: live[one] for one in common}


@pytest.mark.rule("F-13", "P-1")
@pytest.mark.parametrize("path", sorted(CAPTURES.glob("*-v2-*.jsonl")), ids=lambda path: path.stem)
@pytest.mark.parametrize("revision", list(Revision))
def test_every_captured_session_is_rebuilt_by_its_replay(path: Any, revision: Revision) -> None:
    transcript = Transcript(revision=revision)
    for update in updates_of(path.stem):
        transcript.apply(sent(update))
    assert replayed(transcript).to_json() == transcript.to_json()
    compact = replayed(transcript, compact=True)
    assert [one.text for one in compact.messages] == [one.text for one in transcript.messages]


@pytest.mark.rule("P-1", "P-5", "F-9")
def test_the_current_content_may_come_as_an_empty_message_and_then_chunks() -> None:
    # claude-agent-acp replays like this
    transcript = folded([whole("m1", content=[], type="user_message"), chunk("m1", "a", "user_message")])
    held = transcript.messages[0]
    assert message(transcript, "m1", "user_message")["content"] == [text("a")]
    assert not held.withdrawn
    assert not held.corrected
