"""One record for many: the state, the order and the followers stay as they are (J-4, J-5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests import strategies
from tests.fold.sessions import chunk, text, whole
from tests.journal.stored import Session, call, raw, terminal
from twofold.fold import Revision, Transcript
from twofold.journal import Journal
from twofold.journal._folding import Folding
from twofold.journal.memory import MemoryJournal
from twofold.journal.sqlite import SQLiteJournal
from twofold.wire import v2

Json = Any

IDLE = {"sessionUpdate": "state_update", "state": "idle"}


def appended(*updates: Json, revision: Revision | str = "rfd") -> Session:
    journal = MemoryJournal()
    journal.set_revision("s", revision)
    session = Session(journal)
    for update in updates:
        session.append(update)
    return session


def left(session: Session) -> list[Json]:
    return [json.loads(one) for one in session.raws]


def test_the_first_record_stays_at_first_sight_and_the_last_says_all() -> None:
    session = appended(chunk("m1", "a"), chunk("m2", "x"), chunk("m1", "b"), chunk("m1", "c"), chunk("m2", "y"))
    assert session.journal.compact("s") == 1
    assert [(record.position, json.loads(record.raw)) for record in session.journal.read("s")] == [
        (1, whole("m1")),
        (2, whole("m2")),
        (4, whole("m1", text("a"), text("b"), text("c"), _meta=None)),
        (5, whole("m2", text("x"), text("y"), _meta=None)),
    ]
    assert {record.form for record in session.journal.read("s")} == {"compacted"}


def test_the_message_that_the_agent_is_at_is_left() -> None:
    session = appended({"sessionUpdate": "state_update", "state": "running"}, *[chunk("m1", "a")] * 3)
    assert session.journal.compact("s") == 0
    session.append(IDLE)
    assert session.journal.compact("s") == 2  # a chunk, and the older state


def test_a_replay_under_way_is_left() -> None:
    session = appended(*[chunk("m1", "a")] * 3)
    session.journal.begin_replay("s", 3)
    assert session.journal.load("s").replaying
    assert session.journal.compact("s") == 0


def test_what_a_failed_replay_brought_does_not_stand_for_what_is_held() -> None:
    session = appended(*[chunk("m1", "a")] * 3)
    session.replay(chunk("m1", "b"), ok=False)
    before = session.json
    session.journal.compact("s")
    assert session.json == before


def test_superseded_content_that_is_kept_on_purpose_is_kept() -> None:
    journal = MemoryJournal(keep_superseded=True)
    session = Session(journal)
    for update in [chunk("m1", "a"), whole("m1", text("b")), *[chunk("m2", "c")] * 3]:
        session.append(update)
    assert journal.compact("s") == 1
    assert raw(chunk("m1", "a")) in session.raws


def test_a_follower_that_holds_an_unknown_field_hears_that_it_is_gone() -> None:
    session = appended(whole("m1", future=1), chunk("m1", "a"), whole("m1", future=None), chunk("m1", "b"))
    session.journal.compact("s")
    assert left(session)[-1]["future"] is None


def test_a_field_that_only_a_chunk_can_say_keeps_its_tool_call_from_being_compacted() -> None:
    piece = {"sessionUpdate": "tool_call_content_chunk", "toolCallId": "c1", "content": {"type": "x"}, "status": "new"}
    session = appended(call(), piece, piece)
    before = session.json
    assert session.journal.compact("s") == 0
    assert session.json == before


def folding(records: list[Any], revision: Revision) -> Folding:
    fold = Folding("s", revision)
    for record in records:
        fold.add(record)
    return fold


def state(transcript: Transcript) -> Json:
    return transcript.to_json()


@st.composite
def sessions(draw: st.DrawFn) -> list[Any]:
    """Updates and replays."""
    parts = draw(
        st.lists(
            st.one_of(
                strategies.updates,
                strategies.updates,
                strategies.updates,
                st.tuples(strategies.streams, st.booleans()),
            ),
            max_size=14,
        )
    )
    return list(parts)


def fill(journal: Journal, parts: list[Any]) -> None:
    session = Session(journal)
    for part in parts:
        if isinstance(part, tuple):
            session.replay(*part[0], ok=part[1])
        else:
            session.append(part)


@given(sessions(), st.sampled_from(Revision))
@example([whole("a", _meta={"k": 1}), whole("a", _meta={"l": 1}), chunk("a", "x")], Revision.PREVIEW)
@example([call("a", future=1), call("a", future=None), call("a", rawInput=1)], Revision.RFD)
@example([([chunk("a", "x")], True), chunk("a", "y"), ([chunk("a", "z")], False), chunk("a", "w")], Revision.RFD)
def test_compaction_changes_nothing_for_anybody(parts: list[Any], revision: Revision) -> None:
    journal = MemoryJournal()
    journal.set_revision("s", revision)
    fill(journal, parts)
    before = list(journal.read("s"))
    notices = len(journal.load("s").transcript.notices)
    expected = state(journal.load("s").transcript)
    count = journal.compact("s")
    after = list(journal.read("s"))
    assert len(after) == len(before) - count
    assert state(journal.load("s").transcript) == expected
    assert len(journal.load("s").transcript.notices) == notices
    # Whoever has read up to a position before, and reads on from there, ends where everybody ends. (Inside a failed
    # replay, or before the last replay that succeeded, nothing is compacted.)
    for cut in range(len(before) + 1):
        follower = folding(before[:cut], revision)
        reached = before[cut - 1].position if cut else 0
        for record in after:
            if record.position > reached:
                follower.add(record)
        assert state(follower.transcript) == expected
    assert journal.compact("s") == 0, "once is enough"
    assert list(journal.read("s")) == after


@given(sessions(), strategies.streams, st.sampled_from(Revision))
def test_a_compacted_session_goes_on_as_one_that_is_not(parts: list[Any], rest: list[Json], revision: Revision) -> None:
    journals = [MemoryJournal(), MemoryJournal()]
    for journal in journals:
        journal.set_revision("s", revision)
        fill(journal, parts)
    journals[0].compact("s")
    for journal in journals:
        fill(journal, rest)
    assert state(journals[0].load("s").transcript) == state(journals[1].load("s").transcript)
    journals[0].compact("s")
    assert state(journals[0].load("s").transcript) == state(journals[1].load("s").transcript)


@given(strategies.streams)
def test_nothing_withdrawn_comes_back(updates: list[Json]) -> None:
    journal = MemoryJournal()
    fill(journal, [*updates, chunk("a", "the-withdrawn-words"), *updates, whole("a", content=None)])
    assume(b"the-withdrawn-words" not in b"".join(Session(journal).raws))
    journal.compact("s")
    assert b"the-withdrawn-words" not in b"".join(Session(journal).raws)


def test_small_segments_become_few(tmp_path: Path) -> None:
    with SQLiteJournal(tmp_path / "j.db") as journal:
        session = Session(journal)
        for number in range(60):
            session.append(chunk(f"m{number}", "a"), chunk(f"m{number}", "b"), chunk(f"m{number}", "c"))
        before = session.json
        assert journal.compact("s") == 60
        assert journal._connection.execute("SELECT count(*) FROM segment").fetchone()[0] == 1
        assert session.json == before
    with SQLiteJournal(tmp_path / "j.db") as journal:
        assert Session(journal).json == before
        assert journal.verify().faults == ()


def test_a_compaction_that_another_process_overtook_works_from_what_is_there_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other takes content back after it was read and before it is written: it must not be written again."""
    with SQLiteJournal(tmp_path / "j.db") as one, SQLiteJournal(tmp_path / "j.db") as two:
        Session(one).append(*[chunk("m1", "the-withdrawn-words")] * 3, chunk("m2", "a"), chunk("m2", "b"))
        rewrite = one._rewrite
        calls: list[int] = []

        def overtaken(*arguments: Any) -> Any:
            calls.append(1)
            if len(calls) == 1:
                Session(two).append(whole("m1", content=None))
            return rewrite(*arguments)

        monkeypatch.setattr(one, "_rewrite", overtaken)
        one.compact("s")
        assert len(calls) == 2
        assert b"the-withdrawn-words" not in b"".join(Session(one).raws)


def test_an_append_that_a_compaction_overtook_still_erases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it would erase is elsewhere by then, and the position is still the one that it expects."""
    with SQLiteJournal(tmp_path / "j.db") as one, SQLiteJournal(tmp_path / "j.db") as two:
        session = Session(one)
        for update in (call(rawInput="the-withdrawn-words"), call(title="x"), terminal(), call(title="y")):
            session.append(update)
        append = one._append
        saved: list[int] = []

        def overtaken(*arguments: Any) -> Any:
            if not saved:
                saved.append(two.compact("s"))
            return append(*arguments)

        monkeypatch.setattr(one, "_append", overtaken)
        session.append(call(rawInput=None))
        assert saved == [1]
        assert b"the-withdrawn-words" not in b"".join(session.raws)


@pytest.mark.parametrize("compacted", [False, True])
def test_what_was_taken_back_is_known_to_have_been_though_nothing_is_left_of_it(compacted: bool) -> None:
    with MemoryJournal() as journal:
        position = 0
        for update in (
            v2.AgentMessageChunk(message_id="m", content=v2.TextContent(text="secret")),
            v2.AgentMessage(message_id="m", content=None),
            v2.AgentMessageChunk(message_id="n", content=v2.TextContent(text="wrong")),
            v2.AgentMessage(message_id="n", content=[v2.TextContent(text="right")]),
            v2.AgentMessage(message_id="o", content=[]),
            v2.StateUpdate(state="idle"),
        ):
            position = journal.append("s", position, v2.encode(update)).position
        if compacted:
            journal.compact("s")
            assert journal.compact("s") == 0
        flags = [(one.withdrawn, one.corrected) for one in journal.load("s").transcript.messages]
        assert flags == [(True, False), (False, True), (False, False)]
