"""Messages: what each is after each update (F-1 … F-13, R-1, U-3, U-5, U-8)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.fold.sessions import chunk, folded, message, text, typed, whole
from twofold.fold import Change, Message, MessageType, Revision, Transcript, patched, patched_meta
from twofold.wire import UNSET, v2

TYPES: list[MessageType] = ["user_message", "agent_message", "agent_thought"]


def words(transcript: Transcript, message_id: str = "m1") -> list[str]:
    return [block["text"] for block in message(transcript, message_id)["content"]]


@pytest.mark.rule("F-1", "F-4", "F-5")
def test_updates_and_chunks_apply_in_the_order_received() -> None:
    updates = [chunk("m1", "a"), whole("m1", text("b")), chunk("m1", "c")]
    assert words(folded(updates)) == ["b", "c"]
    assert words(folded([updates[1], updates[0], updates[2]])) == ["b", "a", "c"]
    assert words(folded([updates[0], updates[2], updates[1]])) == ["b"]


@pytest.mark.rule("F-2", "U-3")
def test_omitted_null_and_a_value_are_three_different_things_for_content_and_meta() -> None:
    start = [whole("m1", text("a"), _meta={"k": 1})]
    assert message(folded([*start, whole("m1")])) == message(folded(start))
    assert message(folded([*start, whole("m1", content=None)]))["content"] == []
    assert "_meta" not in message(folded([*start, whole("m1", _meta=None)]))
    assert message(folded([*start, whole("m1", text("b"))])) | {"content": []} == {
        "type": "agent_message",
        "messageId": "m1",
        "content": [],
        "_meta": {"k": 1},
    }


@pytest.mark.rule("F-3")
@pytest.mark.parametrize("empty", [None, []])
def test_null_and_an_empty_array_clear_text_received_as_chunks(empty: Any) -> None:
    transcript = folded([chunk("m1", "a"), chunk("m1", "b")])
    change = transcript.apply(typed(whole("m1", content=empty)))
    assert (change.kind, change.content) == ("cleared", "cleared")
    assert message(transcript)["content"] == []
    assert transcript.messages[0].text == ""


@pytest.mark.rule("F-4")
def test_a_value_for_content_replaces_chunks_and_later_chunks_append_to_it() -> None:
    assert words(folded([chunk("m1", "a"), whole("m1", text("b"), text("c")), chunk("m1", "d")])) == ["b", "c", "d"]


@pytest.mark.rule("F-5")
def test_a_chunk_appends_its_one_block_whatever_its_type() -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    transcript = folded([whole("m1", text("a")), chunk("m1", image), chunk("m1", "b")])
    assert message(transcript)["content"] == [text("a"), image, text("b")]
    assert transcript.messages[0].text == "ab"


@pytest.mark.rule("F-6", "F-7")
@pytest.mark.parametrize("kind", TYPES)
def test_first_sight_creates_a_message_with_the_content_it_came_with(kind: MessageType) -> None:
    transcript = Transcript()
    assert transcript.message(kind, "m1") is None
    assert transcript.apply(typed(whole("m1", type=kind))).kind == "created"
    assert transcript.apply(typed(chunk("m2", "a", kind))).kind == "created"
    assert message(transcript, "m1", kind) == {"type": kind, "messageId": "m1", "content": []}
    assert message(transcript, "m2", kind) == {"type": kind, "messageId": "m2", "content": [text("a")]}
    assert transcript.messages[0].meta is None
    assert transcript.messages[0].extra == {}


@pytest.mark.rule("F-8")
def test_one_id_under_three_types_is_three_messages_that_do_not_touch_one_another() -> None:
    transcript = folded([chunk("x", str(number), kind) for number, kind in enumerate(TYPES)])
    transcript.apply(typed(whole("x", content=None, type="agent_thought")))
    assert [message(transcript, "x", kind)["content"] for kind in TYPES] == [[text("0")], [text("1")], []]
    assert len(transcript.messages) == 3


@pytest.mark.rule("F-8")
def test_messages_may_interleave() -> None:
    transcript = folded([chunk("m1", "a"), chunk("m2", "x"), chunk("m1", "b"), chunk("m2", "y")])
    assert (words(transcript, "m1"), words(transcript, "m2")) == (["a", "b"], ["x", "y"])


@pytest.mark.rule("F-9")
def test_a_cleared_message_stays_listed_where_it_was_and_no_update_moves_one() -> None:
    transcript = folded([chunk("m1", "a"), chunk("m2", "b"), chunk("m3", "c")])
    for update in (whole("m1", content=None), chunk("m2", "d"), whole("m1", text("e")), whole("m3", _meta={})):
        transcript.apply(typed(update))
        assert [one.message_id for one in transcript.messages] == ["m1", "m2", "m3"]


@pytest.mark.rule("F-10")
def test_content_is_not_trimmed_merged_or_taken_for_a_repetition() -> None:
    said = ["", " ", "\n", "same", "same", "e\u0301", "\u00e9", "\u202e"]
    assert words(folded([chunk("m1", one) for one in said])) == said
    assert words(folded([whole("m1", *[text(one) for one in said])])) == said


@pytest.mark.rule("F-11", "R-1")
@pytest.mark.parametrize(
    ("patch", "rfd", "preview"),
    [
        ({"b": 2}, {"b": 2}, {"a": 1, "n": {"x": 1}, "b": 2}),
        ({"a": None}, {"a": None}, {"n": {"x": 1}}),
        ({"n": {"y": None}}, {"n": {"y": None}}, {"a": 1, "n": {"y": None}}),
        ({}, {}, {"a": 1, "n": {"x": 1}}),
        ({"a": None, "n": None}, {"a": None, "n": None}, None),
        (None, None, None),
    ],
)
def test_an_object_replaces_meta_whole_in_one_revision_and_key_by_key_in_the_other(
    patch: Any, rfd: Any, preview: Any
) -> None:
    start = whole("m1", _meta={"a": 1, "n": {"x": 1}})
    for revision, expected in ((Revision.RFD, rfd), (Revision.PREVIEW, preview), ("rfd", rfd), ("preview", preview)):
        transcript = folded([start, whole("m1", _meta=patch)], revision)
        assert transcript.messages[0].meta == expected
        assert message(transcript).get("_meta") == expected


@pytest.mark.rule("R-1")
def test_patching_meta_leaves_what_was_sent_as_it_was() -> None:
    first, second = {"a": 1}, {"a": None, "b": 2}
    for revision in Revision:
        transcript = Transcript(revision=revision)
        for meta in (first, second):
            transcript.apply(v2.AgentMessage(message_id="m1", meta=meta))
        assert (first, second) == ({"a": 1}, {"a": None, "b": 2})


@pytest.mark.rule("R-1")
def test_the_revision_is_one_of_two() -> None:
    assert Transcript().revision is Revision.RFD
    assert [str(revision) for revision in Revision] == ["rfd", "preview"]
    with pytest.raises(ValueError, match="draft"):
        Transcript(revision="draft")


@pytest.mark.rule("F-2", "F-11")
def test_patches_tell_the_three_states_apart_by_identity() -> None:
    assert patched(1, UNSET, empty=0) == 1
    assert patched(1, None, empty=0) == 0
    assert patched(["held"], [], empty=["empty"]) == []
    assert patched_meta({"k": 1}, UNSET, Revision.PREVIEW) == {"k": 1}
    assert patched_meta({"k": 1}, {}, Revision.RFD) == {}


@pytest.mark.rule("F-12")
@pytest.mark.parametrize(
    "update",
    [
        whole("m1"),
        whole("m1", text("a")),
        whole("m1", _meta={"k": [1, {"x": None}]}),
        whole("m1", text("a"), _meta={"k": [1.0, {"x": None}]}, future=True, gone=None),
    ],
)
def test_an_update_that_changes_nothing_returns_the_change_that_is_none(update: Any) -> None:
    transcript = folded([whole("m1", text("a"), _meta={"k": [1, {"x": None}]}, future=True)])
    held, heard = transcript.messages[0], list[Change]()
    transcript.subscribe(heard.append)
    assert transcript.apply(typed(update)) is Change.nothing
    assert not Change.nothing
    assert Change.nothing.kind == "nothing"
    assert (transcript.version, held.version, heard) == (1, 1, [])


@pytest.mark.rule("F-12", "U-7")
def test_true_is_not_one() -> None:
    transcript = folded([whole("m1", _meta={"k": 1}, future=1)])
    change = transcript.apply(typed(whole("m1", _meta={"k": True}, future=True)))
    assert change.fields == ("_meta", "future")
    assert change.meta_changed
    assert message(transcript)["_meta"]["k"] is message(transcript)["future"] is True


@pytest.mark.rule("F-13")
@pytest.mark.parametrize("revision", list(Revision))
def test_a_whole_message_may_come_twice(revision: Revision) -> None:
    update = whole("m1", text("a"), text("b"), _meta={"k": 1}, future={"x": None})
    once, twice = folded([chunk("m1", "z"), update], revision), folded([chunk("m1", "z"), update, update], revision)
    assert once.to_json() == twice.to_json()
    assert once.version == twice.version


@pytest.mark.rule("U-5")
@pytest.mark.parametrize("meta", [None, {}, {"k": 2}, {"k": None}])
@pytest.mark.parametrize("revision", list(Revision))
def test_the_meta_of_a_chunk_never_touches_that_of_its_message(meta: Any, revision: Revision) -> None:
    transcript = folded(
        [whole("m1", _meta={"k": 1}), chunk("m1", "a", _meta=meta), chunk("m2", "b", _meta=meta)], revision
    )
    assert message(transcript)["_meta"] == {"k": 1}
    assert "_meta" not in message(transcript, "m2")


@pytest.mark.rule("U-8", "F-10")
def test_halves_of_a_character_are_kept_as_sent_and_join_in_the_text() -> None:
    transcript = folded([chunk("m1", "a\ud83d"), chunk("m1", "\ude80b"), chunk("m1", "\ude80"), chunk("m1", "\ud83d")])
    assert words(transcript) == ["a\ud83d", "\ude80b", "\ude80", "\ud83d"]
    assert transcript.messages[0].text == "a\U0001f680b\ude80\ud83d"
    transcript.apply(typed(chunk("m1", "\ude80")))
    assert transcript.messages[0].text == "a\U0001f680b\ude80\U0001f680"


@pytest.mark.rule("U-7")
def test_text_is_that_of_text_blocks_alone() -> None:
    blocks = [
        text("a", _meta={"text": "no"}, text2="no"),
        {"type": "hologram", "text": "no"},
        {"type": "resource", "resource": {"uri": "file:///x", "text": "no"}},
        text("b", annotations={"audience": ["user"]}),
    ]
    assert folded([whole("m1", *blocks)]).messages[0].text == "ab"


# What is history and no state


def test_a_message_is_withdrawn_when_content_was_held_and_cleared_until_content_comes_again() -> None:
    transcript = folded([whole("m1", content=[])])
    held = transcript.messages[0]
    assert not held.withdrawn, "there was nothing to withdraw"
    for update, withdrawn in (
        (chunk("m1", "a"), False),
        (whole("m1", content=None), True),
        (whole("m1", content=[]), True),
        (whole("m1", _meta={"k": 1}), True),
        (chunk("m1", "b"), False),
        (whole("m1", content=[]), True),
        (whole("m1", text("c")), False),
    ):
        transcript.apply(typed(update))
        assert held.withdrawn is withdrawn, update
    assert not held.corrected, "no content was ever put in the place of other content"


def test_a_message_is_corrected_once_other_content_took_the_place_of_what_was_held() -> None:
    transcript = folded([chunk("m1", "4"), chunk("m1", "1")])
    held = transcript.messages[0]
    for update, corrected in (
        (whole("m1", text("41")), False),  # another cut of the same text
        (whole("m1", text("4"), text("1")), False),
        (whole("m1", text("42")), True),
        (whole("m1", text("4"), text("2")), True),
        (whole("m1", content=None), True),
        (chunk("m1", "43"), True),
    ):
        transcript.apply(typed(update))
        assert held.corrected is corrected, update


def test_the_same_text_said_with_other_annotations_is_a_correction() -> None:
    transcript = folded([chunk("m1", "a"), whole("m1", text("a", annotations={"audience": ["user"]}))])
    assert transcript.messages[0].corrected


# What is given out


def test_content_is_a_live_read_only_sequence() -> None:
    transcript = folded([chunk("m1", "a"), chunk("m1", {"type": "hologram", "x": 1})])
    content = transcript.messages[0].content
    assert isinstance(content, Sequence)
    assert not hasattr(content, "append")
    assert content == [v2.TextContent(text="a"), content[1]]
    assert content != [v2.TextContent(text="a")]
    assert content[-1] == content[1:][0]
    moment = list(content)
    transcript.apply(typed(whole("m1", text("b"))))
    assert [block for block in content if isinstance(block, v2.TextContent)] == [v2.TextContent(text="b")]
    assert len(moment) == 2
    assert repr(content) == "<view of 1>"


def test_what_is_printed_of_a_session_holds_no_text() -> None:
    transcript = folded([chunk("m1", "secret")])
    shown = repr([transcript, *transcript.messages, transcript.messages, transcript.messages[0].content])
    assert "secret" not in shown
    assert "'m1'" in shown


def test_what_is_given_out_as_json_may_be_changed_without_changing_the_session() -> None:
    def scribble(value: Any) -> None:
        for inner in list(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()):
            scribble(inner)
        if isinstance(value, dict):
            value["scribble"] = 1
        elif isinstance(value, list):
            value.append("scribble")

    transcript = folded(
        [
            whole("m1", text("a", _meta={"k": {}}), _meta={"k": []}, future={"x": []}),
            {
                "sessionUpdate": "tool_call_update",
                "toolCallId": "t1",
                "rawInput": {"x": []},
                "rawOutput": [{}],
                "future": {},
            },
            {
                "sessionUpdate": "plan_update",
                "plan": {"type": "mural", "planId": "p1", "paint": []},
                "_meta": {"k": []},
            },
            {"sessionUpdate": "agent_dream", "about": [{}]},
            {"sessionUpdate": "session_info_update", "_meta": {"k": []}, "future": []},
            {"sessionUpdate": "state_update", "state": "idle", "_meta": {"k": []}},
        ]
    )
    before = json.dumps(transcript.to_json())
    scribble(transcript.to_json())
    assert json.dumps(transcript.to_json()) == before


def test_a_message_of_a_type_that_does_not_exist_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(AssertionError):
        Transcript().message("agent", "m1")  # type: ignore[arg-type]


def test_messages_are_found_by_type_and_id_and_stay_the_same_object() -> None:
    transcript = folded([chunk("m1", "a")])
    held = transcript.message("agent_message", "m1")
    transcript.apply(typed(whole("m1", content=None)))
    assert isinstance(held, Message)
    assert transcript.message("agent_message", "m1") is held is transcript.messages[0]
    assert transcript.message("user_message", "m1") is None
