"""What is superseded, and that erasing it changes nothing that is held (J-3, J-4)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests import strategies
from tests.fold.sessions import chunk, folded, text, typed, whole
from tests.journal.stored import Session, call, raw, terminal
from twofold.exceptions import Malformed
from twofold.fold import Revision
from twofold.journal._supersede import FIELDS, Eraser, Index, slots, without
from twofold.journal.memory import MemoryJournal

Json = Any

M1 = ("agent_message", "m1", "content")


def item(words: str) -> Json:
    return {"type": "content", "content": text(words)}


def tool_chunk(words: str, **members: Json) -> Json:
    return {"sessionUpdate": "tool_call_content_chunk", "toolCallId": "c1", "content": item(words), **members}


def output(words: str, **members: Json) -> Json:
    return {"sessionUpdate": "terminal_output_chunk", "terminalId": "t1", "data": words, **members}


def summary(words: str, **members: Json) -> Json:
    return {"sessionUpdate": "compaction_summary_chunk", "compactionId": "k", "content": text(words), **members}


# The index


def added(*updates: Json) -> tuple[Index, list[dict[Any, list[int]]]]:
    """Note updates at positions 1, 2, …; give the index and what each superseded."""
    index = Index()
    superseded = [index.add(position, typed(update)) for position, update in enumerate(updates, 1)]
    return index, [{slot: list(positions) for slot, positions in one.items()} for one in superseded]


def test_a_replacement_supersedes_the_whole_and_the_chunks_before_it() -> None:
    _, superseded = added(whole("m1", text("a")), chunk("m1", "b"), chunk("m2", "x"), whole("m1", text("c")))
    assert superseded == [{}, {}, {}, {M1: [1, 2]}]


def test_a_clear_supersedes_and_is_not_superseded() -> None:
    _, superseded = added(chunk("m1", "a"), whole("m1", content=None), chunk("m1", "b"), whole("m1", content=[]))
    assert superseded == [{}, {M1: [1]}, {}, {M1: [3]}]


def test_a_patch_that_omits_content_supersedes_nothing() -> None:
    _, superseded = added(chunk("m1", "a"), whole("m1", _meta={}), call(title="t"), terminal(cwd="/"))
    assert superseded == [{}, {}, {}, {}]


def test_the_same_id_under_another_type_is_another_message() -> None:
    _, superseded = added(chunk("m1", "a"), whole("m1", content=None, type="user_message"))
    assert superseded == [{}, {}]


def test_the_fields_of_a_tool_call_are_superseded_one_by_one() -> None:
    _, superseded = added(
        call(rawInput=0, rawOutput=""), call(rawOutput=None), call(rawInput=None, content=[]), call(rawInput=1)
    )
    assert superseded == [{}, {("tool_call", "c1", "rawOutput"): [1]}, {("tool_call", "c1", "rawInput"): [1]}, {}]


def test_positions_of_a_batch_are_settled_when_they_are_known() -> None:
    index = Index()
    index.add(7, typed(chunk("m1", "a")))
    index.add(-3, typed(chunk("m1", "b")))
    index.add(-2, typed(chunk("m2", "b")))
    index.add(-1, typed(chunk("m1", "c")))
    index.settle([11, 12, 13])
    assert list(index.add(14, typed(whole("m1", content=None)))[M1]) == [7, 11, 13]


def test_a_replay_takes_the_place_of_what_it_names_and_of_nothing_else() -> None:
    index, _ = added(chunk("m1", "a"), chunk("m2", "b"), chunk("m3", "c"))
    fresh = Index()
    fresh.add(5, typed(chunk("m1", "a")))
    fresh.add(6, typed(whole("m3")))
    superseded = index.merge(fresh)
    assert {slot[1]: list(positions) for slot, positions in superseded.items()} == {"m1": [1], "m3": [3]}
    assert list(index.add(7, typed(whole("m1", content=None)))[M1]) == [5]
    assert list(index.of("agent_message", "m2").values()) != []


def test_a_failed_replay_is_superseded_with_the_thing() -> None:
    index, _ = added(chunk("m1", "a"))
    failed = Index()
    failed.add(3, typed(chunk("m1", "b")))
    failed.add(4, typed(chunk("m2", "b")))
    index.absorb(failed)
    assert list(index.add(6, typed(whole("m1", content=None)))[M1]) == [1, 3]
    assert list(index.add(7, typed(whole("m2", content=None)))["agent_message", "m2", "content"]) == [4]


# What is left of a record


@pytest.mark.parametrize(
    ("update", "names", "left"),
    [
        (chunk("m1", "a"), {"content"}, whole("m1")),
        (chunk("m1", "a", data=1, _meta={"own": 1}), {"content"}, whole("m1", data=1)),
        (whole("m1", text("a"), _meta={"k": 1}, future=2), {"content"}, whole("m1", _meta={"k": 1}, future=2)),
        (call(title="t", rawInput=1, rawOutput=2), {"rawInput"}, call(title="t", rawOutput=2)),
        (tool_chunk("a", data=1), {"content"}, call(data=1)),
        (tool_chunk("a", status="new"), {"content"}, tool_chunk("", status="new")),
        (tool_chunk("a", status="new", future=1), {"content", FIELDS}, call(future=1)),
        (terminal(output={"data": "AA=="}, cwd="/"), {"output"}, terminal(cwd="/")),
        (output("AA==", content=1, _meta={}), {"output"}, terminal(content=1)),
        (output("AA==", cwd="/"), {"output"}, output("", cwd="/")),
        (output("AA==", cwd="/"), {"output", FIELDS}, terminal()),
        (summary("a", _meta={}, future=1), {"summary"}, summary("", future=1)),
        (summary("a", status="new"), {"summary", FIELDS}, summary("")),
    ],
)
def test_what_is_left_names_the_thing_and_says_nothing(update: Json, names: set[str], left: Json) -> None:
    assert json.loads(without(raw(update), names)) == left
    assert without(without(raw(update), names), names) == without(raw(update), names), "once is enough"


lookalikes = [
    chunk("m1", "plain"),
    chunk("m1", 'with "quotes" and a \\ in it'),
    chunk("m1", '","x":{"text":"'),
    chunk("m1", "ends in a brace}}"),
    chunk("m1", "plain again"),
    chunk("m1", "", future={"text": "b"}),
    chunk("m1", "", _meta={"text": "b"}),
    chunk("m1", {"type": "text", "annotations": {"x": {"text": "a"}}, "text": "b"}),
    chunk("m1", {"type": "hologram", "text": "b"}),
    chunk("m2", "plain"),
    chunk("m1", "plain", "user_message"),
    chunk("m1", "\ud83d"),
    chunk("\ud83d", "plain"),
]


@given(st.lists(st.one_of(st.sampled_from(lookalikes), strategies.message_updates)))
@example(lookalikes)
def test_the_quick_eraser_leaves_what_the_plain_one_leaves(updates: list[Json]) -> None:
    erase = Eraser()
    for update in updates:
        one = raw(update)
        assert erase(one, {"content"}) == without(one, {"content"})


# The law


@st.composite
def batches(draw: st.DrawFn) -> list[list[Json]]:
    """A stream cut into appends."""
    updates = draw(strategies.streams)
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(updates))))))
    return [updates[start:end] for start, end in zip([0, *cuts], [*cuts, len(updates)], strict=True)]


def contents(update: Json) -> list[str]:
    """The content in an update, as JSON texts."""
    return [
        json.dumps(update[name]) for name in ("content", "output", "summary", "rawInput", "rawOutput") if name in update
    ]


@given(batches(), st.sampled_from(Revision), st.booleans())
@example(
    [[output("AAAA", output=1)], [terminal(output={"data": "AAAA"})], [terminal(output=None)]], Revision.RFD, False
)
@example([[output("", output=1), output("AAAA")], [terminal(output={"data": ""})]], Revision.RFD, False)
@example([[tool_chunk("a", status=1)], [call(content=[item("b")])], [call(content=None)]], Revision.RFD, True)
@example([[tool_chunk("a", status=1), call(content=None), tool_chunk("b")], [call(content=[])]], Revision.RFD, True)
@example([[summary("a", status=1)], [{**summary("b"), "status": None}]], Revision.RFD, False)
def test_erasing_changes_nothing_that_is_held(updates: list[list[Json]], revision: Revision, reopen: bool) -> None:
    everything = [update for batch in updates for update in batch]
    expected = folded(everything, revision).to_json()
    journal = MemoryJournal()
    journal.set_revision("s", revision)
    for batch in updates:
        Session(journal).append(*batch)
        if reopen:
            journal._known.clear()  # as if it had been opened anew
    held = journal.load("s").transcript.to_json()
    assert {**held, "sessionId": None} == expected
    assert [record.position for record in journal.read("s")] == list(range(1, len(everything) + 1))


@given(batches(), st.booleans())
def test_erasing_is_exact_and_complete(updates: list[list[Json]], reopen: bool) -> None:
    """What a record says for a slot that another replaces later is out of it; else it is as it was received."""
    everything = [update for batch in updates for update in batch]
    journal = MemoryJournal()
    for batch in updates:
        Session(journal).append(*batch)
        if reopen:
            journal._known.clear()
    for number, (update, record) in enumerate(zip(everything, journal.read("s"), strict=True)):
        mine = {slot for slot in slots(typed(update)) if slot[2] != FIELDS}
        later = {
            slot
            for other in everything[number + 1 :]
            if not other["sessionUpdate"].endswith("_chunk")
            for slot in slots(typed(other))
        }
        chunk_like = update["sessionUpdate"].endswith("_chunk")
        says = {slot for slot in mine if chunk_like or update[slot[2]] not in (None, [])}
        if says & later:
            left = json.loads(record.raw)
            assert record.form == "rewritten" or left == update
            if not chunk_like:
                assert not {slot[2] for slot in says & later} & left.keys()
        elif not any(slot[:2] == other[:2] for slot in mine for other in later):
            assert record.raw == raw(update)
            assert record.form == "received"


@pytest.mark.rule("U-6")
def test_terminal_output_that_is_no_base64_is_refused_before_anything_is_stored() -> None:
    journal = MemoryJournal()
    with pytest.raises(Malformed):
        Session(journal).append(chunk("m1", "a"), output("no base64!"))
    assert journal.position("s") == 0


def test_the_brackets_of_a_replay_cannot_be_appended() -> None:
    with pytest.raises(ValueError, match="begin_replay"):
        MemoryJournal().append("s", 0, raw(chunk("m1", "a")), origin="replay")
