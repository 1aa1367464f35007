"""What the agent took back is in no file any more (J-3, J-4, J-6, P-5). Looked for in the raw bytes."""

from __future__ import annotations

import base64
import json
import random
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journal.stored import Session, call, child, chunk, files_of, found, line, raw, terminal, text, whole
from twofold.journal.sqlite import SQLiteJournal

Json = Any

SECRET = "the-launch-code-is-0000"
OTHER = "what-is-said-instead"

pytestmark = pytest.mark.rule("J-3")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[SQLiteJournal]:
    with SQLiteJournal(path) as journal:
        yield journal


def in_base64(words: str) -> str:
    return base64.b64encode(words.encode()).decode()


SECRET_BYTES = in_base64(SECRET)


def test_the_search_finds_what_is_left_without_our_care(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA secure_delete = OFF")
    connection.execute("CREATE TABLE t (data BLOB)")
    connection.execute("INSERT INTO t VALUES (?)", (SECRET.encode(),))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("DELETE FROM t")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert found(path, SECRET) == ["journal.db"], "secure_delete is what clears the file"
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("INSERT INTO t VALUES (?)", (OTHER.encode(),))
    connection.execute("DELETE FROM t")
    assert found(path, OTHER) == ["journal.db-wal"], "the checkpoint is what clears the log"
    connection.close()


def test_the_connection_is_set_to_erase_and_to_be_durable(journal: SQLiteJournal) -> None:
    def pragma(name: str) -> Any:
        return journal._connection.execute(f"PRAGMA {name}").fetchone()[0]

    assert pragma("secure_delete") == 1
    assert pragma("synchronous") == 2
    assert pragma("journal_mode") == "wal"
    assert pragma("temp_store") == 2


def test_an_erasing_append_commits_before_it_cuts_the_log(journal: SQLiteJournal) -> None:
    session = Session(journal)
    session.append(chunk("m1", SECRET))
    told: list[str] = []
    journal._connection.set_trace_callback(told.append)
    session.append(whole("m1", content=None))
    journal._connection.set_trace_callback(None)
    steps = [words for words in told if words in ("COMMIT", "PRAGMA wal_checkpoint(TRUNCATE)")]
    assert steps == ["COMMIT", "PRAGMA wal_checkpoint(TRUNCATE)"]


ONE_OF_EACH: list[tuple[str, list[Json], Json]] = [
    ("chunks replaced", [chunk("m1", SECRET), chunk("m1", SECRET * 900)], whole("m1", text(OTHER))),
    ("content replaced", [whole("m1", text(SECRET))], whole("m1", text(OTHER))),
    ("cleared by null", [whole("m1", text(SECRET)), chunk("m1", SECRET)], whole("m1", content=None)),
    ("cleared by []", [chunk("m1", SECRET)], whole("m1", content=[])),
    ("a thought", [chunk("m1", SECRET, "agent_thought")], whole("m1", content=[], type="agent_thought")),
    ("the user's words", [chunk("m1", SECRET, "user_message")], whole("m1", content=None, type="user_message")),
    ("an image", [chunk("m1", {"type": "image", "data": SECRET, "mimeType": "image/png"})], whole("m1", content=None)),
    ("a block of an unknown type", [chunk("m1", {"type": "hologram", "x": [SECRET]})], whole("m1", content=None)),
    ("a chunk's own _meta", [chunk("m1", "hi", _meta={"note": SECRET})], whole("m1", content=None)),
    (
        "tool-call content",
        [call(content=[{"type": "content", "content": text(SECRET)}])],
        call(content=[{"type": "content", "content": text(OTHER)}]),
    ),
    (
        "tool-call chunks",
        [
            {
                "sessionUpdate": "tool_call_content_chunk",
                "toolCallId": "c1",
                "content": {"type": "content", "content": text(SECRET)},
            }
        ],
        call(content=None),
    ),
    ("raw input", [call(rawInput={"password": SECRET})], call(rawInput=None)),
    ("raw output", [call(rawOutput=[SECRET])], call(rawOutput={"redacted": True})),
    ("raw output that is a bare value", [call(rawOutput=SECRET)], call(rawOutput=0)),
    ("terminal output", [terminal(output={"data": SECRET_BYTES})], terminal(output=None)),
    (
        "terminal chunks",
        [{"sessionUpdate": "terminal_output_chunk", "terminalId": "t1", "data": SECRET_BYTES}],
        terminal(output={"data": in_base64(OTHER)}),
    ),
    (
        "a compaction's summary",
        [{"sessionUpdate": "compaction_update", "compactionId": "k", "status": "x", "summary": [text(SECRET)]}],
        {"sessionUpdate": "compaction_update", "compactionId": "k", "status": "x", "summary": None},
    ),
    (
        "a compaction's chunks",
        [{"sessionUpdate": "compaction_summary_chunk", "compactionId": "k", "content": text(SECRET)}],
        {"sessionUpdate": "compaction_update", "compactionId": "k", "status": "x", "summary": [text(OTHER)]},
    ),
]


def secrets(path: Path) -> list[str]:
    return [*found(path, SECRET), *found(path, SECRET_BYTES)]


@pytest.mark.parametrize(("updates", "taking"), [one[1:] for one in ONE_OF_EACH], ids=[one[0] for one in ONE_OF_EACH])
class TestTakenBack:
    def test_what_is_superseded_is_gone_when_the_append_returns(
        self, path: Path, journal: SQLiteJournal, updates: list[Json], taking: Json
    ) -> None:
        session = Session(journal)
        for update in [chunk("other", OTHER), *updates]:
            assert session.append(update) == "none"
        assert secrets(path)
        assert session.append(taking) == "done"
        assert secrets(path) == []
        assert len(session.raws) == len(updates) + 2

    def test_within_one_append_it_is_never_stored(
        self, path: Path, journal: SQLiteJournal, updates: list[Json], taking: Json
    ) -> None:
        session = Session(journal)
        session.append(chunk("other", OTHER), *updates, taking)
        assert secrets(path) == []
        assert len(session.raws) == len(updates) + 2

    def test_it_is_gone_for_an_index_that_was_read_from_the_file(
        self, path: Path, updates: list[Json], taking: Json
    ) -> None:
        with SQLiteJournal(path) as journal:
            Session(journal).append(*updates)
        with SQLiteJournal(path) as journal:
            assert secrets(path)
            assert Session(journal).append(taking) == "done"
            assert secrets(path) == []
        assert secrets(path) == []

    def test_it_is_gone_when_another_process_wrote_it(self, path: Path, updates: list[Json], taking: Json) -> None:
        with SQLiteJournal(path) as one, SQLiteJournal(path) as two:
            Session(one).append(chunk("other", OTHER))
            for number, update in enumerate(updates):
                Session((one, two)[number % 2]).append(update)
            Session(one).append(chunk("other", OTHER))
            assert Session(two).append(taking) == "done"
            assert secrets(path) == []

    def test_a_replay_that_brings_other_content_takes_it(
        self, path: Path, journal: SQLiteJournal, updates: list[Json], taking: Json
    ) -> None:
        session = Session(journal)
        session.append(chunk("other", OTHER), *updates)
        session.replay(chunk("other", OTHER), taking)
        assert secrets(path) == []

    def test_it_goes_with_the_session(
        self, path: Path, journal: SQLiteJournal, updates: list[Json], taking: Json
    ) -> None:
        session = Session(journal)
        session.append(*updates)
        Session(journal, "another").append(chunk("m", OTHER))
        assert journal.delete("s") == "done"
        assert secrets(path) == []
        assert journal.position("s") == 0
        assert found(path, OTHER)

    def test_kept_by_option_it_stays(self, path: Path, updates: list[Json], taking: Json) -> None:
        with SQLiteJournal(path, keep_superseded=True) as journal:
            session = Session(journal)
            session.append(*updates)
            assert session.append(taking) == "none"
            assert secrets(path)
            assert session.raws == [raw(update) for update in [*updates, taking]]


@pytest.mark.rule("J-4")
def test_an_erased_record_says_only_that_the_thing_is_there(journal: SQLiteJournal) -> None:
    session = Session(journal)
    session.append(chunk("m1", SECRET, future=1), whole("m2", text(SECRET), _meta={"k": 1}), chunk("m1", SECRET))
    session.append(whole("m1", content=None), whole("m2", content=[]))
    assert [json.loads(one) for one in session.raws] == [
        whole("m1", future=1),
        whole("m2", _meta={"k": 1}),
        whole("m1"),
        whole("m1", content=None),
        whole("m2", content=[]),
    ]
    assert [record.form for record in journal.read("s")] == ["rewritten"] * 3 + ["received"] * 2


REDACTIONS = [
    ("agent_message", "m1", [chunk("m1", SECRET), whole("m1", text(SECRET))]),
    ("user_message", "m1", [whole("m1", text(SECRET), type="user_message")]),
    ("agent_thought", "m1", [chunk("m1", SECRET, "agent_thought")]),
    ("tool_call", "c1", [call(rawInput=SECRET, rawOutput={"x": SECRET}, content=[])]),
    ("terminal", "t1", [{"sessionUpdate": "terminal_output_chunk", "terminalId": "t1", "data": SECRET_BYTES}]),
]


@pytest.mark.rule("J-6")
@pytest.mark.parametrize(("kind", "id", "updates"), REDACTIONS, ids=[one[0] for one in REDACTIONS])
@pytest.mark.parametrize("keep", [False, True], ids=["", "superseded kept"])
def test_a_redaction_erases_and_what_comes_later_is_not_stored(
    path: Path, kind: Any, id: str, updates: list[Json], keep: bool
) -> None:
    with SQLiteJournal(path, keep_superseded=keep) as journal:
        session = Session(journal)
        session.append(*updates)
        for update in updates:
            session.append(update)
        assert journal.redact("s", kind, id).erasure == "done"
        assert secrets(path) == []
        for update in updates:
            session.append(update)
        session.append(*updates)
        session.replay(*updates)
        session.replay(*updates, ok=False)
        assert secrets(path) == []
        held = session.json
        assert SECRET not in json.dumps(held)
        assert SECRET_BYTES not in json.dumps(held)
    with SQLiteJournal(path) as journal:
        for update in updates:
            Session(journal).append(update)
        assert secrets(path) == []


@pytest.mark.rule("J-6")
def test_a_redaction_takes_what_was_superseded_and_kept_before_the_journal_was_opened(path: Path) -> None:
    with SQLiteJournal(path, keep_superseded=True) as journal:
        session = Session(journal)
        session.append(chunk("m1", SECRET))
        session.append(whole("m1", text(OTHER)))
        session.append(chunk("m2", SECRET))
        session.replay(chunk("m2", OTHER))
    assert secrets(path)
    with SQLiteJournal(path) as journal:
        journal.redact("s", "agent_message", "m1")
        journal.redact("s", "agent_message", "m2")
    assert secrets(path) == []


def test_what_a_failed_replay_brought_goes_with_the_thing(path: Path, journal: SQLiteJournal) -> None:
    session = Session(journal)
    session.append(chunk("m1", OTHER))
    session.replay(chunk("m1", SECRET), chunk("m2", SECRET), ok=False)
    assert secrets(path)
    session.append(whole("m1", content=None), whole("m2", content=None))
    assert secrets(path) == []


def test_what_a_replay_that_was_begun_anew_brought_goes_with_the_thing(path: Path, journal: SQLiteJournal) -> None:
    session = Session(journal)
    journal.begin_replay("s", 0)
    session.append(chunk("m1", SECRET))
    session.replay(chunk("m1", OTHER))
    assert secrets(path) == []


def test_a_message_that_a_replay_brings_without_content_is_cleared(path: Path, journal: SQLiteJournal) -> None:
    session = Session(journal)
    session.append(chunk("m1", SECRET))
    session.replay(whole("m1"))
    assert secrets(path) == []


def test_what_the_agent_no_longer_replays_stays(path: Path, journal: SQLiteJournal) -> None:
    session = Session(journal)
    session.append(chunk("m1", "kept words"), chunk("m2", SECRET))
    session.replay(chunk("m2", OTHER))
    assert found(path, "kept words")
    assert journal.load("s").not_replayed == (("agent_message", "m1"),)


def test_compaction_leaves_one_copy_and_that_one_goes_too(path: Path, journal: SQLiteJournal) -> None:
    session = Session(journal)
    for number in range(40):
        session.append(chunk("m1", f"{SECRET} {number}"))
    assert journal.compact("s") == 38
    assert files_of(path)["journal.db"].count(SECRET.encode()) == 40
    session.append(whole("m1", content=None))
    assert secrets(path) == []


def test_compaction_brings_nothing_withdrawn_back(path: Path, journal: SQLiteJournal) -> None:
    session = Session(journal)
    session.append(chunk("m1", SECRET), chunk("m2", "a"), chunk("m2", "b"), whole("m1", content=None), chunk("m1", "c"))
    before = session.json
    assert journal.compact("s") > 0
    assert secrets(path) == []
    assert session.json == before


def test_a_crash_between_commit_and_erasure_is_mended_at_open(path: Path) -> None:
    with SQLiteJournal(path) as journal:
        Session(journal).append(chunk("m1", SECRET))
    with child("crash", str(path), "s") as process:
        assert process.wait(30) == -signal.SIGKILL
    assert secrets(path), "or the crash came too late to show anything"
    with SQLiteJournal(path) as journal:
        assert secrets(path) == []
        assert [json.loads(one) for one in Session(journal).raws] == [whole("m1"), whole("m1", content=None)]


def test_a_crash_between_commit_and_erasure_is_mended_by_the_next_commit_of_another_process(path: Path) -> None:
    with SQLiteJournal(path) as journal:
        session = Session(journal)
        session.append(chunk("m1", SECRET))
        with child("crash", str(path), "s") as process:
            assert process.wait(30) == -signal.SIGKILL
        assert secrets(path)
        session.append(chunk("m2", OTHER))
        assert secrets(path) == []
        assert journal.verify().erasure == "none"


def test_a_crash_between_commit_and_erasure_is_shown_and_mended_by_verify(path: Path) -> None:
    with SQLiteJournal(path) as journal:
        Session(journal).append(chunk("m1", SECRET))
        with child("crash", str(path), "s") as process:
            assert process.wait(30) == -signal.SIGKILL
        assert secrets(path)
        with SQLiteJournal(path, read_only=True) as reader:
            assert reader.verify().erasure == "pending"
        assert journal.verify().erasure == "none"
        assert secrets(path) == []


def test_a_second_process_that_follows_is_not_in_the_way(path: Path, journal: SQLiteJournal) -> None:
    session = Session(journal)
    session.append(chunk("m1", SECRET))
    with child("follow", str(path), "s") as process:
        assert line(process) == "1"
        for number in range(2, 40, 2):
            session.append(chunk("m1", SECRET))
            assert session.append(whole("m1", text(OTHER))) == "done"
            assert secrets(path) == []
            assert [line(process), line(process)] == [str(number), str(number + 1)]


@pytest.fixture
def foreign(path: Path) -> Iterator[Callable[[], sqlite3.Connection]]:
    """Give somebody else's connections, each of which holds a snapshot of now."""
    connections: list[sqlite3.Connection] = []

    def hold() -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None)
        connections.append(connection)
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM segment").fetchone()
        return connection

    yield hold
    for connection in connections:
        connection.close()


def test_a_foreign_reader_delays_the_erasure_and_the_append_says_so(
    path: Path, foreign: Callable[[], sqlite3.Connection]
) -> None:
    with SQLiteJournal(path, busy_seconds=0.1) as journal:
        session = Session(journal)
        session.append(chunk("m1", SECRET))
        reader = foreign()
        assert session.append(whole("m1", content=None)) == "pending"
        assert secrets(path)
        assert journal.verify().erasure == "pending"
        assert session.append(chunk("m2", OTHER)) == "pending"
        with SQLiteJournal(path, busy_seconds=0.1) as other:
            assert other.verify().erasure == "pending"
            assert Session(other).append(chunk("m2", OTHER)) == "pending"
        reader.close()
        assert session.append(chunk("m2", OTHER)) == "done", "what waited is done now"
        assert secrets(path) == []
        assert journal.verify().erasure == "none"
        assert session.append(chunk("m2", OTHER)) == "none"


def test_a_delayed_erasure_is_finished_at_the_next_opening(
    path: Path, foreign: Callable[[], sqlite3.Connection]
) -> None:
    with SQLiteJournal(path, busy_seconds=0.1) as journal:
        Session(journal).append(chunk("m1", SECRET))
        reader = foreign()
        assert Session(journal).append(whole("m1", content=None)) == "pending"
    assert secrets(path)
    with SQLiteJournal(path, busy_seconds=0.1) as journal:
        assert journal.verify().erasure == "pending"
        assert secrets(path)
    reader.execute("ROLLBACK")  # it stays open: nobody's closing of the file tidies up for us
    with SQLiteJournal(path, busy_seconds=0.1) as journal:
        assert secrets(path) == []
        assert journal.verify().erasure == "none"


def test_a_reader_that_stays_does_not_slow_every_append_down(
    path: Path, foreign: Callable[[], sqlite3.Connection]
) -> None:
    with SQLiteJournal(path, busy_seconds=5) as journal:
        session = Session(journal)
        session.append(chunk("m1", SECRET))
        foreign()
        assert session.append(whole("m1", content=None)) == "pending"
        waits: list[str] = []
        journal._connection.set_trace_callback(waits.append)
        assert session.append(chunk("m1", OTHER)) == "pending"
        journal._connection.set_trace_callback(None)
        assert "PRAGMA busy_timeout = 0" in waits


def test_rows_that_sqlite_moves_leave_no_copies(path: Path) -> None:
    """`secure_delete` clears what is deleted, not what is moved: rows are small here, many, and of many sessions."""
    chance = random.Random(5)
    with SQLiteJournal(path) as journal:
        journal._connection.execute("PRAGMA synchronous = OFF")
        held: dict[tuple[str, str], int] = {}
        gone: list[int] = []
        for number in range(10_000, 12_500):
            key = f"s{chance.randrange(25)}", f"m{chance.randrange(3)}"
            position = journal.position(key[0])
            if chance.random() < 0.4:
                journal.append(key[0], position, raw(whole(key[1], content=None)))
                gone += [held.pop(key)] if key in held else []
            elif key not in held:
                held[key] = number
                words = f"<{number}>" * chance.choice((1, 1, 2, 8, 40))
                journal.append(key[0], position, raw(chunk(key[1], words)))
            if chance.random() < 0.01:
                journal.delete(key[0])
                gone += [held.pop(one) for one in list(held) if one[0] == key[0]]
            if chance.random() < 0.02:
                journal.compact(key[0])
        data = b"".join(files_of(path).values())
        assert len(gone) > 400
        assert [number for number in gone if b"<%d>" % number in data] == []


def test_a_segments_data_lies_in_overflow_pages_as_a_whole(path: Path, journal: SQLiteJournal) -> None:
    """What makes the test before this one more than luck."""
    session = Session(journal)
    for count in (1, 2, 5, 100):
        session.append(*(chunk("m", SECRET) for _ in range(count)))
    journal._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = files_of(path)["journal.db"]
    page = journal._connection.execute("PRAGMA page_size").fetchone()[0]
    leaves = [data[at : at + page] for at in range(page, len(data), page) if data[at] in (2, 5, 10, 13)]
    assert leaves
    assert not any(SECRET.encode() in leaf for leaf in leaves)
    assert SECRET.encode() in data
