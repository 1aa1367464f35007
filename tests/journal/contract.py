"""What every journal engine promises: one suite, run against each.

A test asks for `storage` (or for `journal`, one opened on it). Where an engine has nodes, `storage.open()` gives
another one on the same sessions; in memory there is only the one.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Final, ParamSpec, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import strategies
from tests.fold.sessions import chunk, folded, text, whole
from twofold.exceptions import Malformed, ParseError
from twofold.fold import Revision, Transcript
from twofold.journal import (
    AsyncJournal,
    EntityKind,
    Journal,
    JournalError,
    PositionTaken,
    Record,
    Unavailable,
)
from twofold.journal._folding import Folding
from twofold.wire import to_json, v2

Json = Any
T = TypeVar("T")
P = ParamSpec("P")

DEADLINE: Final = 30.0
"""Seconds after which something waited for is taken to be lost."""

S: Final = "session"


class Storage(ABC):
    """Where an engine under test keeps its sessions."""

    durable: ClassVar[bool] = True
    """Whether sessions outlive the journal that wrote them, and nodes can share them."""

    def __init__(self) -> None:
        self._opened: list[Journal] = []

    def open(self, *, keep_superseded: bool = False) -> Journal:
        """Open a journal here; it is closed with the storage."""
        journal = self.connect(keep_superseded)
        self._opened.append(journal)
        return journal

    def close(self) -> None:
        for journal in self._opened:
            journal.close()

    @abstractmethod
    def connect(self, keep_superseded: bool) -> Journal: ...

    @abstractmethod
    def holds(self, *needles: bytes) -> Sequence[str]:
        """Name the files that hold one of these byte strings."""


def raw(update: Json) -> bytes:
    return json.dumps(update).encode()


def say(message_id: str, *words: str) -> list[bytes]:
    """Chunks of one agent message."""
    return [raw(chunk(message_id, word)) for word in words]


def state(transcript: Transcript) -> Json:
    """All of a transcript's state, and what stands where."""
    places = []
    for one in transcript.timeline:
        names = ("type", "message_id", "tool_call_id", "terminal_id", "plan_id", "compaction_id")
        places.append(to_json(one) if isinstance(one, v2.OtherUpdate) else [getattr(one, name, None) for name in names])
    return [{**transcript.to_json(), "sessionId": None}, places]


def add(journal: Journal, *raws: bytes, session: str = S) -> int:
    """Append where the session is."""
    return journal.append(session, journal.position(session), *raws).position


def texts(journal: Journal, session: str = S) -> dict[str, str]:
    """The text of each message of a loaded session."""
    found = {}
    for message in journal.load(session).transcript.messages:
        found[message.message_id] = "".join(block["text"] for block in message.to_json()["content"])
    return found


def together(*work: Callable[[], T]) -> list[T | BaseException]:
    """Do things at once, in threads of their own, and give what each gave or raised."""
    with ThreadPoolExecutor(len(work)) as pool:
        futures = [pool.submit(one) for one in work]
        return [future.exception(DEADLINE) or future.result() for future in futures]


def in_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Let a test run in an event loop of its own."""

    @functools.wraps(test)
    def run(*arguments: P.args, **keywords: P.kwargs) -> None:
        asyncio.run(test(*arguments, **keywords))

    return run


class Follower:
    """Follows a session from within a task, and lets a test wait for what it has seen."""

    def __init__(self, journal: Journal, after: int = 0, *, session: str = S) -> None:
        self.records: list[Record] = []
        self.hold = asyncio.Event()
        self.hold.set()
        self._seen = asyncio.Event()
        self._task = asyncio.create_task(self._work(journal, session, after))

    async def _work(self, journal: Journal, session: str, after: int) -> None:
        async with contextlib.aclosing(journal.follow(session, after)) as records:
            async for record in records:
                self.records.append(record)
                self._seen.set()
                await self.hold.wait()

    async def reach(self, position: int) -> None:
        """Wait until the record at a position has come."""
        async with asyncio.timeout(DEADLINE):
            while not self.records or self.records[-1].position < position:
                self._seen.clear()
                waiting = asyncio.create_task(self._seen.wait())
                await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if self._task.done():
                    self._task.result()

    async def stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Unavailable):
            await self._task

    @property
    def positions(self) -> list[int]:
        return [record.position for record in self.records]


@contextlib.asynccontextmanager
async def following(journal: Journal, *afters: int, session: str = S) -> AsyncIterator[list[Follower]]:
    followers = [Follower(journal, after, session=session) for after in afters or (0,)]
    try:
        yield followers
    finally:
        for follower in followers:
            await follower.stop()


def refold(records: Iterable[Record]) -> Folding:
    folding = Folding(S, Revision.RFD)
    for record in records:
        folding.add(record)
    return folding


stored_streams = st.lists(st.lists(strategies.updates, min_size=1, max_size=4), min_size=1, max_size=6)
actions = st.sampled_from(["append", "append", "append", "compact", "redact", "replay"])
generated = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


class JournalContract:
    """Inherit it, and give a `storage` fixture."""

    @pytest.fixture
    def journal(self, storage: Storage) -> Journal:
        return storage.open()

    # What is stored

    @pytest.mark.rule("J-2", "U-7", "U-8")
    def test_what_is_read_is_what_was_appended_to_the_byte(self, journal: Journal) -> None:
        raws = [
            b'{ "messageId" : "m1","sessionUpdate": "agent_message_chunk", "content": {"type":"text","text":"\\t"}}',
            b'{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"\\ud83d"}}',
            b'{"sessionUpdate":"_acme.dev/ping","n":1.50}',
            raw(whole("m2", text("\N{GRINNING FACE} ü \r\n"))),
        ]
        appended = journal.append(S, 0, *raws, received_at=1234.5)
        records = list(journal.read(S))
        assert [record.raw for record in records] == raws
        assert [record.position for record in records] == list(appended.positions)
        assert appended.position == appended.positions[-1] == journal.position(S)
        assert {(record.session, record.received_at, record.origin, record.form) for record in records} == {
            (S, 1234.5, "agent", "received")
        }

    @pytest.mark.rule("J-2")
    def test_where_records_are_from_is_kept(self, journal: Journal) -> None:
        position = journal.append(S, 0, *say("m", "a"), origin="v1").position
        journal.append(S, position, *say("m", "b"))
        assert [record.origin for record in journal.read(S)] == ["v1", "agent"]

    @pytest.mark.rule("J-5")
    def test_reading_may_begin_after_any_position_and_passes_pages(self, journal: Journal) -> None:
        positions = list(journal.append(S, 0, *say("m", *map(str, range(700)))).positions)
        for start in (0, 1, 255, 256, 511, 512, 513, 698, 699):
            after = positions[start - 1] if start else 0
            assert [record.position for record in journal.read(S, after)] == positions[start:]
        assert list(journal.read(S, positions[-1])) == []
        assert list(journal.read("another")) == []

    @pytest.mark.parametrize(
        "name", ["", "a.b", "*", ">", "a b\n\t", "ü/\N{GRINNING FACE}", "A", "a", "=YQ", "~", "x" * 3000, "\ud83d"]
    )
    def test_a_session_may_have_any_name(self, journal: Journal, name: str) -> None:
        add(journal, *say("m", "other"), session="other")
        add(journal, *say("m", "mine"), session=name)
        assert texts(journal, name) == {"m": "mine"}
        assert {info.session for info in journal.sessions()} == {"other", name}
        journal.delete(name)
        assert [info.session for info in journal.sessions()] == ["other"]

    def test_large_updates_and_large_appends_come_back_whole(self, journal: Journal) -> None:
        large = raw(whole("m", text("x" * 3_000_000)))
        position = journal.append(S, 0, large).position
        many = say("n", *map(str, range(3000)))
        appended = journal.append(S, position, *many, *[raw(whole(f"l{n}", text("y" * 700_000))) for n in range(3)])
        assert len(appended.positions) == 3003
        assert [record.raw for record in journal.read(S)][:3001] == [large, *many]
        assert add(journal, raw(whole("m", text("small")))) > appended.position
        assert texts(journal)["m"] == "small"
        assert journal.verify().faults == ()

    @pytest.mark.rule("U-6", "J-7")
    def test_of_an_append_with_something_malformed_nothing_is_stored(self, journal: Journal) -> None:
        position = add(journal, *say("m", "a"))
        secret = {"sessionUpdate": "agent_message", "messageId": 7, "content": "hush"}
        for bad, error in ((b"{", ParseError), (raw(secret), Malformed)):
            with pytest.raises(error) as caught:
                journal.append(S, position, *say("m", "b"), bad)
            assert "hush" not in str(caught.value)
        assert journal.position(S) == position
        assert texts(journal) == {"m": "a"}

    def test_an_append_of_nothing_changes_nothing(self, journal: Journal) -> None:
        assert journal.append(S, 0).position == 0
        assert list(journal.sessions()) == []

    # Positions

    def test_a_taken_position_is_an_error_that_says_where_the_session_is(self, journal: Journal) -> None:
        first = journal.append(S, 0, *say("m", "a")).position
        second = journal.append(S, first, *say("m", "b")).position
        for expected in (0, first, second + 1, second + 1000):
            with pytest.raises(PositionTaken) as caught:
                journal.append(S, expected, *say("m", "c"))
            assert (caught.value.expected, caught.value.found) == (expected, second)
        assert texts(journal) == {"m": "ab"}

    def test_of_two_writers_at_one_position_one_wins_and_the_other_is_told(self, storage: Storage) -> None:
        writers = [storage.open(), storage.open()]
        position = add(writers[0], *say("m", "a"))
        for writer in writers:
            assert writer.position(S) == position
        if writers[0] is not writers[1]:
            at_the_door = threading.Barrier(2, timeout=DEADLINE)
            for writer in writers:
                _stop_at(writer, at_the_door)
        results = together(
            *(lambda w=w, t=t: w.append(S, position, *say("m", t)) for w, t in zip(writers, "bc", strict=True))
        )
        lost = [result for result in results if isinstance(result, PositionTaken)]
        assert len(lost) == 1
        assert texts(writers[0])["m"] == ("ab" if results.index(lost[0]) else "ac")
        assert lost[0].found == writers[1].position(S)

    def test_whoever_lost_reads_on_and_tries_again(self, storage: Storage) -> None:
        writers = [storage.open(), storage.open()]

        def work(writer: Journal, name: str) -> None:
            for number in range(20):
                while True:
                    try:
                        add(writer, *say(name, f"{number},"))
                        break
                    except PositionTaken:
                        continue

        results = together(lambda: work(writers[0], "a"), lambda: work(writers[1], "b"))
        assert results == [None, None]
        expected = "".join(f"{number}," for number in range(20))
        assert texts(writers[0]) == {"a": expected, "b": expected} == texts(writers[1])

    # Erasing

    @pytest.mark.rule("J-3", "J-4", "F-9")
    @pytest.mark.parametrize("content", [[text("new")], [], None])
    def test_what_is_replaced_or_cleared_stays_as_a_patch_at_its_position(
        self, journal: Journal, content: Json
    ) -> None:
        places = journal.append(S, 0, *say("m", "a", "b"), *say("n", "x")).positions
        appended = journal.append(S, places[-1], raw(whole("m", content=content)))
        assert appended.erasure == "done"
        records = list(journal.read(S))
        assert [record.position for record in records] == [*places, appended.position]
        assert [record.form for record in records] == ["rewritten", "rewritten", "received", "received"]
        left = json.loads(records[0].raw)
        assert left == json.loads(records[1].raw) == {"sessionUpdate": "agent_message", "messageId": "m"}
        assert list(texts(journal)) == ["m", "n"]
        assert journal.append(S, appended.position, *say("o", "c")).erasure == "none"

    @pytest.mark.rule("J-3")
    def test_within_one_append_what_is_superseded_is_never_stored(self, journal: Journal) -> None:
        journal.append(S, 0, *say("m", "a"), raw(whole("m", text("b"))), *say("m", "c"))
        assert [record.form for record in journal.read(S)] == ["rewritten", "received", "received"]
        assert texts(journal) == {"m": "bc"}

    @pytest.mark.rule("J-3")
    def test_tool_calls_and_terminals_obey_the_same_rule(self, journal: Journal) -> None:
        call = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "rawInput": {"a": 1}, "rawOutput": "hush"}
        output = {"sessionUpdate": "terminal_output_chunk", "terminalId": "x", "data": "aHVzaA=="}
        add(journal, raw(call), raw(output))
        add(journal, raw({"sessionUpdate": "tool_call_update", "toolCallId": "t", "rawOutput": None}))
        add(journal, raw({"sessionUpdate": "terminal_update", "terminalId": "x", "output": {"data": ""}}))
        stored = b"".join(record.raw for record in journal.read(S))
        assert b"hush" not in stored
        assert b"aHVzaA" not in stored
        assert b'"rawInput"' in stored

    @pytest.mark.rule("J-3")
    def test_a_record_can_lose_one_thing_after_another(self, journal: Journal) -> None:
        call = {"sessionUpdate": "tool_call_update", "toolCallId": "t"}
        place = add(journal, raw({**call, "rawInput": "in", "rawOutput": "out", "title": "T"}))
        add(journal, *say("m", *map(str, range(5))))
        add(journal, raw(whole("m", text("new"))))
        for name in ("rawInput", "rawOutput"):
            add(journal, raw({**call, name: "fresh"}))
            first = next(iter(journal.read(S)))
            assert first.position == place
            assert name not in json.loads(first.raw)
        assert json.loads(next(iter(journal.read(S))).raw) == {**call, "title": "T"}

    @pytest.mark.rule("J-3")
    def test_keeping_what_is_superseded_is_an_option(self, storage: Storage) -> None:
        if not storage.durable:
            pytest.skip("in memory there is one journal")
        journal = storage.open(keep_superseded=True)
        add(journal, *say("m", "old"))
        add(journal, raw(whole("m", text("new"))))
        assert [record.form for record in journal.read(S)] == ["received", "received"]
        journal.redact(S, "agent_message", "m")
        assert not any(word in record.raw for record in journal.read(S) for word in (b"old", b"new"))

    @pytest.mark.rule("J-3", "J-4", "J-6")
    def test_withdrawn_bytes_are_in_no_file(self, storage: Storage) -> None:
        journal = storage.open()
        needles: list[bytes] = []

        def word() -> str:
            needles.append(f"needle-{len(needles):04}".encode())
            return needles[-1].decode()

        large = word() + "x" * 2_000_000 + word()
        add(journal, *say("kept", "kept-4711"))
        add(journal, *say("replaced", word(), word()))
        add(journal, raw(whole("replaced", text(word()))))
        add(journal, raw(whole("replaced", text("new"))))
        assert not storage.holds(*needles)
        add(journal, *say("cleared", word()), raw(whole("cleared", text(word()))))
        add(journal, raw(whole("cleared", content=None)))
        add(journal, raw(whole("large", text(large))))
        add(journal, raw(whole("large", text("small"))))
        assert not storage.holds(*needles)
        add(journal, *say("redacted", word()))
        journal.redact(S, "agent_message", "redacted")
        add(journal, *say("redacted", word()), raw(whole("redacted", text(word()))))
        assert not storage.holds(*needles)
        call = {"sessionUpdate": "tool_call_update", "toolCallId": "t"}
        add(journal, raw({**call, "rawInput": word(), "content": [], "rawOutput": word()}))
        add(journal, raw({**call, "rawInput": word(), "rawOutput": None}), raw({**call, "rawInput": None}))
        journal.compact(S)
        assert not storage.holds(*needles)
        add(journal, *say("kept", "-more"), *say("gone", word()), session="gone")
        journal.delete("gone")
        journal.begin_replay(S, journal.position(S))
        add(journal, *say("kept", "replayed"))
        needles += [b"kept-4711"]
        journal.end_replay(S, journal.position(S))
        assert not storage.holds(*needles)
        journal.close()
        again = storage.open()
        assert not storage.holds(*needles)
        assert texts(again)["kept"] == "replayed"
        verified = again.verify()
        assert (verified.faults, verified.erasure) == ((), "none")

    # Redaction

    @pytest.mark.rule("J-5", "J-6")
    @pytest.mark.parametrize("other_node", [False, True])
    def test_a_redaction_is_sticky(self, storage: Storage, other_node: bool) -> None:
        journal = storage.open()
        add(journal, *say("m", "hush"), *say("n", "x"))
        position = journal.position(S)
        redactor = storage.open() if other_node else journal
        redaction = redactor.redact(S, "agent_message", "m")
        with pytest.raises(PositionTaken):
            journal.append(S, position, *say("m", "hush"))
        add(journal, *say("m", "hush"), raw(whole("m", text("hush"))), *say("n", "y"))
        assert texts(journal) == {"m": "", "n": "xy"}
        assert not any(b"hush" in record.raw for record in redactor.read(S))
        [record] = [record for record in journal.read(S) if record.position == redaction.position]
        assert record.origin == "operator"
        assert json.loads(record.raw) == {"sessionUpdate": "agent_message", "messageId": "m", "content": None}

    @pytest.mark.rule("J-6")
    @pytest.mark.parametrize(
        ("kind", "update"),
        [
            ("user_message", whole("m", text("hush"), type="user_message")),
            ("agent_thought", chunk("m", "hush", type="agent_thought")),
            ("tool_call", {"sessionUpdate": "tool_call_update", "toolCallId": "m", "rawInput": "hush"}),
            ("terminal", {"sessionUpdate": "terminal_update", "terminalId": "m", "output": {"data": "aHVzaA=="}}),
        ],
    )
    def test_everything_that_says_something_can_be_redacted(
        self, journal: Journal, kind: EntityKind, update: Json
    ) -> None:
        add(journal, raw(update))
        journal.redact(S, kind, "m")
        add(journal, raw(update))
        stored = b"".join(record.raw for record in journal.read(S))
        assert b"hush" not in stored
        assert b"aHVzaA" not in stored

    @pytest.mark.rule("J-6", "P-5")
    def test_a_redaction_holds_for_what_a_replay_brings(self, journal: Journal) -> None:
        add(journal, *say("m", "hush"))
        journal.begin_replay(S, journal.position(S))
        add(journal, *say("m", "hush"))
        journal.redact(S, "agent_message", "m")
        add(journal, *say("m", "hush"), *say("n", "x"))
        journal.end_replay(S, journal.position(S))
        assert texts(journal) == {"m": "", "n": "x"}
        assert not any(b"hush" in record.raw for record in journal.read(S))

    # Replays

    @pytest.mark.rule("P-5", "J-2", "J-3")
    def test_a_replay_takes_the_place_of_what_was_there_when_it_has_ended(self, journal: Journal) -> None:
        add(journal, *say("m", "old"), *say("lost", "still here"))
        journal.begin_replay(S, journal.position(S))
        add(journal, *say("m", "replayed"))
        assert texts(journal) == {"m": "old", "lost": "still here"}
        assert journal.end_replay(S, journal.position(S)).erasure == "done"
        loaded = journal.load(S)
        assert texts(journal) == {"m": "replayed"}
        assert list(loaded.not_replayed) == [("agent_message", "lost")]
        stored = b"".join(record.raw for record in journal.read(S))
        assert b"old" not in stored
        assert b"still here" in stored
        assert [record.raw for record in journal.read(S) if record.origin == "replay"] == [
            b'{"replay":"begin"}',
            b'{"replay":"end"}',
        ]

    @pytest.mark.rule("P-5")
    def test_a_failed_replay_changes_nothing(self, journal: Journal) -> None:
        add(journal, *say("m", "old"))
        journal.begin_replay(S, journal.position(S))
        add(journal, *say("m", "other"))
        journal.end_replay(S, journal.position(S), ok=False)
        assert texts(journal) == {"m": "old"}
        with pytest.raises(ValueError, match="no replay"):
            journal.end_replay(S, journal.position(S))

    @pytest.mark.rule("P-5")
    def test_another_node_goes_on_in_a_replay(self, storage: Storage) -> None:
        one, other = storage.open(), storage.open()
        add(one, *say("m", "old"))
        one.begin_replay(S, one.position(S))
        add(other, *say("m", "new"))
        add(one, *say("m", "er"))
        other.end_replay(S, other.position(S))
        assert texts(one) == {"m": "newer"} == texts(other)
        assert not any(b"old" in record.raw for record in one.read(S))

    @pytest.mark.rule("J-3", "J-5", "J-6", "P-5")
    @pytest.mark.parametrize("ending", [None, "failed", "end"])
    def test_a_redaction_during_a_replay_reaches_those_who_still_show_what_was_before(
        self, journal: Journal, ending: str | None
    ) -> None:
        add(journal, *say("m", "secret"), *say("n", "kept"))
        shown = refold(journal.read(S))
        journal.begin_replay(S, journal.position(S))
        add(journal, *say("n", "kept"))
        journal.redact(S, "agent_message", "m")
        for record in journal.read(S, shown.position):
            change = shown.add(record)
        message = shown.transcript.message("agent_message", "m")
        assert message is not None
        assert message.withdrawn
        assert not message.content
        assert change.content == "cleared"
        if ending:
            journal.end_replay(S, journal.position(S), ok=ending == "end")
            for record in journal.read(S, shown.position):
                shown.add(record)
        assert state(shown.transcript) == state(refold(journal.read(S)).transcript)

    # Laws

    @pytest.mark.rule("F-13", "J-2", "J-3", "J-4")
    @given(stream=stored_streams)
    @generated
    def test_load_gives_the_fold_of_what_was_appended(self, storage: Storage, stream: list[list[Json]]) -> None:
        journal, session = self._fresh(storage)
        for batch in stream:
            add(journal, *map(raw, batch), session=session)
        assert state(journal.load(session).transcript) == state(folded(one for batch in stream for one in batch))
        assert len(list(journal.read(session))) == sum(map(len, stream))
        assert journal.verify().faults == ()

    @pytest.mark.rule("J-3", "J-4", "J-5", "F-9")
    @given(stream=stored_streams, doing=st.lists(actions, min_size=6, max_size=6))
    @generated
    def test_whoever_reads_on_from_anywhere_ends_where_a_fresh_reader_does(
        self, storage: Storage, stream: list[list[Json]], doing: list[str]
    ) -> None:
        journal, session = self._fresh(storage)
        held: dict[int, list[Record]] = {0: []}
        replaying = False
        for batch, action in zip(stream, doing, strict=False):
            add(journal, *map(raw, batch), session=session)
            held[journal.position(session)] = list(journal.read(session))
            if action == "compact":
                before = state(journal.load(session).transcript)
                journal.compact(session)
                assert state(journal.load(session).transcript) == before
            elif action == "redact":
                journal.redact(session, "agent_message", "a")
            elif action == "replay":
                if replaying:
                    journal.end_replay(session, journal.position(session))
                else:
                    journal.begin_replay(session, journal.position(session))
                replaying = not replaying
        final = refold(journal.read(session))
        for position, records in held.items():
            later = list(journal.read(session, position))
            assert all(record.position > position for record in later)
            places = [record.position for record in later]
            assert places == sorted(set(places))
            folding = refold(records)
            for record in later:
                folding.add(record)
            assert state(folding.transcript) == state(final.transcript), position
        assert state(journal.load(session).transcript) == state(final.transcript)

    _sessions: ClassVar[Iterator[int]] = iter(range(1_000_000))
    _journals: ClassVar[dict[Storage, Journal]] = {}

    def _fresh(self, storage: Storage) -> tuple[Journal, str]:
        """Give one journal per test, and a session of its own per generated example."""
        journal = self._journals.get(storage)
        if journal is None:
            self._journals.clear()
            journal = self._journals[storage] = storage.open()
        name = f"example-{next(self._sessions)}"
        for info in journal.sessions():
            journal.delete(info.session)
        return journal, name

    # Followers

    @pytest.mark.rule("J-5")
    @in_a_loop
    async def test_a_follower_gets_what_is_there_and_then_what_comes(self, storage: Storage) -> None:
        writer, reader = storage.open(), storage.open()
        first = await asyncio.to_thread(add, writer, *say("m", "a", "b"))
        async with following(reader, 0, first) as (from_start, from_there):
            await from_start.reach(first)
            for word in "cdef":
                last = await asyncio.to_thread(add, writer, *say("m", word))
                await from_start.reach(last)
            await from_there.reach(last)
        assert [json.loads(record.raw)["content"]["text"] for record in from_start.records] == list("abcdef")
        assert [json.loads(record.raw)["content"]["text"] for record in from_there.records] == list("cdef")

    @pytest.mark.rule("J-5")
    @in_a_loop
    async def test_a_follower_may_wait_for_a_session_that_is_not_there_yet(self, storage: Storage) -> None:
        writer, reader = storage.open(), storage.open()
        async with following(reader, session="a b.*>") as [follower]:
            await asyncio.to_thread(add, writer, *say("m", "no"), session="another")
            await follower.reach(await asyncio.to_thread(lambda: add(writer, *say("m", "yes"), session="a b.*>")))
        assert len(follower.records) == 1

    @pytest.mark.rule("J-5")
    @in_a_loop
    async def test_followers_that_begin_while_it_is_written_miss_nothing_and_get_nothing_twice(
        self, storage: Storage
    ) -> None:
        writer, reader = storage.open(), storage.open()
        count = 300

        def write() -> list[int]:
            positions: list[int] = []
            for number in range(count):
                positions += writer.append(S, writer.position(S), *say("m", str(number))).positions
                if number % 30 == 0:
                    loop.call_soon_threadsafe(begun.put_nowait, positions[-1])
            return positions

        loop = asyncio.get_running_loop()
        begun: asyncio.Queue[int] = asyncio.Queue()
        writing = asyncio.create_task(asyncio.to_thread(write))
        followers: list[Follower] = []
        starts: list[int] = []
        async with asyncio.timeout(2 * DEADLINE):
            for _ in range(count // 30):
                starts.append(await begun.get())
                followers.append(Follower(reader, starts[-1]))
            positions = await writing
        for start, follower in zip(starts, followers, strict=True):
            await follower.reach(positions[-1]) if start < positions[-1] else None
            await follower.stop()
            assert follower.positions == [position for position in positions if position > start]

    @pytest.mark.rule("J-5")
    @in_a_loop
    async def test_a_slow_follower_holds_nobody_back_and_gets_everything(self, storage: Storage) -> None:
        writer, reader = storage.open(), storage.open()
        first = await asyncio.to_thread(add, writer, *say("m", "a"))
        async with following(reader, 0, 0) as (slow, quick):
            await slow.reach(first)
            slow.hold.clear()
            positions = [first]
            for number in range(4):
                appended = await asyncio.to_thread(
                    writer.append, S, positions[-1], *say("m", *(f"{number}.{n}" for n in range(300)))
                )
                positions += appended.positions
            await quick.reach(positions[-1])
            assert len(slow.records) < len(positions)
            slow.hold.set()
            await slow.reach(positions[-1])
        assert slow.positions == quick.positions == positions

    @pytest.mark.rule("J-3", "J-5", "J-6")
    @in_a_loop
    async def test_followers_from_every_position_end_at_the_same_state_whatever_is_erased_meanwhile(
        self, storage: Storage
    ) -> None:
        writer, reader = storage.open(), storage.open()
        script: list[Callable[[], object]] = [
            lambda: add(writer, *say("m", "a", "b"), *say("n", "x")),
            lambda: add(writer, raw(whole("m", text("new"))), *say("m", "er")),
            lambda: writer.redact(S, "agent_message", "n"),
            lambda: add(writer, *say("n", "hush"), *say("o", *map(str, range(600)))),
            lambda: add(writer, raw(whole("o", text("done"))), *say("p", "1", "2", "3")),
            lambda: writer.compact(S),
            lambda: add(writer, raw(whole("p", content=None)), *say("q", "1", "2")),
            lambda: writer.compact(S),
            lambda: add(writer, *say("q", "3")),
        ]
        followers = [(Follower(reader), list[Record]())]
        for step in script:
            await asyncio.to_thread(step)
            position = await asyncio.to_thread(writer.position, S)
            held = await asyncio.to_thread(lambda: list(reader.read(S)))
            followers.append((Follower(reader, position), held))
            middle = held[len(held) // 2].position
            followers.append((Follower(reader, middle), [one for one in held if one.position <= middle]))
        last = await asyncio.to_thread(writer.position, S)
        final = state((await asyncio.to_thread(writer.load, S)).transcript)
        for follower, held in followers:
            if not held or held[-1].position < last:
                await follower.reach(last)
            await follower.stop()
            assert follower.positions == sorted(set(follower.positions))
            assert state(refold([*held, *follower.records]).transcript) == final

    @pytest.mark.rule("J-6", "J-5")
    @in_a_loop
    async def test_a_follower_sees_the_redaction_itself(self, storage: Storage) -> None:
        writer, reader = storage.open(), storage.open()
        async with following(reader) as [follower]:
            await follower.reach(await asyncio.to_thread(add, writer, *say("m", "hush")))
            redaction = await asyncio.to_thread(writer.redact, S, "agent_message", "m")
            await follower.reach(redaction.position)
        assert [record.origin for record in follower.records] == ["agent", "operator"]
        assert refold(follower.records).transcript.messages[0].to_json()["content"] == []

    def test_whoever_listens_is_called_after_each_append(self, journal: Journal) -> None:
        heard: list[str] = []
        stop = journal.listen(heard.append)
        add(journal, *say("m", "a"), session="one")
        add(journal, *say("m", "a"), session="two")
        stop()
        add(journal, *say("m", "a"), session="three")
        assert heard == ["one", "two"]

    # Looking after it

    @pytest.mark.rule("J-4", "F-9", "F-13")
    def test_compaction_keeps_the_state_and_the_order_and_saves_records(self, storage: Storage) -> None:
        journal, other = storage.open(), storage.open()
        add(journal, *say("m", *"abcdef"), *say("n", *"xyz"), *say("m", *"ghi"))
        add(journal, raw({"sessionUpdate": "usage_update", "used": 1, "size": 2}))
        add(journal, raw({"sessionUpdate": "usage_update", "used": 2, "size": 2}))
        add(journal, raw({"sessionUpdate": "state_update", "state": "idle"}))
        before, count = state(journal.load(S).transcript), len(list(journal.read(S)))
        head = journal.position(S)
        saved = journal.compact(S)
        assert saved > 0
        for one in (journal, other):
            assert state(one.load(S).transcript) == before
            assert len(list(one.read(S))) == count - saved
            assert one.position(S) == head
        assert journal.compact(S) == 0
        assert add(other, *say("m", "j")) > head
        assert texts(journal)["m"] == "abcdefghij"
        assert journal.verify().faults == ()
        [info] = journal.sessions()
        assert info.records == count - saved + 1
        assert info.size == sum(len(record.raw) for record in journal.read(S))

    @pytest.mark.rule("J-4")
    def test_what_was_compacted_can_be_replaced_and_compacted_again(self, journal: Journal) -> None:
        add(journal, *say("m", *"abc"), *say("n", *"abc"), raw({"sessionUpdate": "state_update", "state": "idle"}))
        journal.compact(S)
        add(journal, raw(whole("m", text("new"))), *say("n", "d"))
        assert texts(journal) == {"m": "new", "n": "abcd"}
        journal.compact(S)
        assert texts(journal) == {"m": "new", "n": "abcd"}
        journal.redact(S, "agent_message", "n")
        assert texts(journal) == {"m": "new", "n": ""}
        assert journal.verify().faults == ()

    def test_a_deleted_session_is_gone_and_its_name_is_free(self, storage: Storage) -> None:
        journal, other = storage.open(), storage.open()
        add(journal, *say("m", "a"), raw(whole("m", text("b"))))
        add(journal, *say("m", "a"), session="kept")
        journal.redact(S, "agent_message", "m")
        journal.set_revision(S, "preview")
        add(other, *say("m", "a"))
        assert journal.delete(S) == "done"
        assert journal.delete(S) == "none"
        for one in (journal, other):
            assert list(one.read(S)) == []
            assert one.position(S) == 0
            assert [info.session for info in one.sessions()] == ["kept"]
        assert other.append(S, 0, *say("m", "again")).erasure == "none"
        assert texts(journal) == {"m": "again"}
        assert journal.load(S).transcript.revision is Revision.RFD

    def test_sessions_are_listed_with_what_they_hold_the_last_heard_first(self, storage: Storage) -> None:
        journal = storage.open()
        a = journal.append("a", 0, *say("m", "1"), received_at=10.0).position
        journal.append("b", 0, *say("m", "1"), received_at=20.0)
        a = journal.append("a", a, *say("m", "22"), raw(whole("m", text("3"))), received_at=30.0).position
        first, second = storage.open().sessions()
        assert (first.session, first.position, first.records, first.revision) == ("a", a, 3, "rfd")
        assert (first.created_at, first.updated_at) == (10.0, 30.0)
        assert first.size == sum(len(record.raw) for record in journal.read("a"))
        assert second.session == "b"

    def test_retaining_deletes_the_old_and_then_the_oldest_until_it_fits(self, journal: Journal) -> None:
        import time

        now = time.time()
        for number, age in enumerate((5000.0, 50.0, 40.0, 30.0)):
            journal.append(f"s{number}", 0, *say("m", "x" * 1000), received_at=now - age)
        size = journal.sessions()[0].size
        assert journal.retain(max_age=1000.0) == ["s0"]
        assert journal.retain(max_bytes=2 * size) == ["s1"]
        assert sorted(info.session for info in journal.sessions()) == ["s2", "s3"]
        assert journal.retain() == []

    @pytest.mark.rule("R-1")
    def test_a_session_is_folded_by_the_revision_stored_with_it(self, storage: Storage) -> None:
        journal = storage.open()
        journal.set_revision(S, "preview")
        assert journal.sessions() == []
        add(journal, raw(whole("m", _meta={"a": 1})), raw(whole("m", _meta={"b": 2})))
        loaded = storage.open().load(S)
        assert loaded.transcript.revision is Revision.PREVIEW
        assert loaded.transcript.messages[0].to_json()["_meta"] == {"a": 1, "b": 2}
        assert journal.load(S, revision="rfd").transcript.messages[0].to_json()["_meta"] == {"b": 2}
        assert journal.sessions()[0].revision == "preview"

    @pytest.mark.rule("J-1")
    def test_what_was_appended_is_there_when_it_is_opened_again(self, storage: Storage) -> None:
        if not storage.durable:
            pytest.skip("nothing survives there, and nothing says so")
        journal = storage.open()
        add(journal, *say("m", "a", "b"), *say("n", "c"))
        add(journal, raw(whole("m", text("new"))))
        before = list(journal.read(S))
        journal.close()
        again = storage.open()
        assert list(again.read(S)) == before
        assert add(again, *say("m", "er")) > before[-1].position
        assert texts(again) == {"m": "newer", "n": "c"}

    def test_a_closed_journal_says_so(self, storage: Storage) -> None:
        if not storage.durable:
            pytest.skip("there is nothing to close")
        journal = storage.open()
        add(journal, *say("m", "a"))
        journal.close()
        journal.close()
        for call in (
            lambda: journal.append(S, 1, *say("m", "a")),
            lambda: list(journal.read(S)),
            lambda: journal.sessions(),
            lambda: journal.position(S),
        ):
            with pytest.raises(Unavailable):
                call()

    @in_a_loop
    async def test_closing_ends_those_who_follow(self, storage: Storage) -> None:
        if not storage.durable:
            pytest.skip("there is nothing to close")
        journal = storage.open()
        async with following(journal) as [follower]:
            await follower.reach(await asyncio.to_thread(add, journal, *say("m", "a")))
            await asyncio.to_thread(journal.close)
            with pytest.raises(Unavailable):
                await follower.reach(1_000_000)

    # With an event loop

    @in_a_loop
    async def test_an_event_loop_writes_in_order_without_waiting_for_each(self, storage: Storage) -> None:
        async with AsyncJournal(storage.open()) as journal:
            writer = await journal.writer(S)
            puts = [writer.put(*say("m", f"{number},")) for number in range(500)]
            appended = await asyncio.gather(*puts)
            positions = [one.position for one in appended]
            assert positions == sorted(set(positions))
            assert [record.position for record in await journal.page(S)] == positions
            text_held = "".join(f"{number}," for number in range(500))
            message = (await journal.load(S)).transcript.messages[0]
            assert "".join(block["text"] for block in message.to_json()["content"]) == text_held

    @in_a_loop
    async def test_one_malformed_update_is_refused_and_those_queued_with_it_are_not(self, storage: Storage) -> None:
        async with AsyncJournal(storage.open()) as journal:
            writer = await journal.writer(S)
            puts = [writer.put(*say("m", "a")), writer.put(b"{}"), writer.put(*say("m", "b"))]
            first, bad, second = await asyncio.gather(*puts, return_exceptions=True)
            assert isinstance(bad, Malformed)
            assert not isinstance(first, BaseException)
            assert not isinstance(second, BaseException)
            assert [record.raw for record in await journal.page(S)] == say("m", "a", "b")

    @in_a_loop
    async def test_a_second_writer_is_told_that_its_position_is_taken(self, storage: Storage) -> None:
        async with AsyncJournal(storage.open()) as journal:
            one, two = await journal.writer(S), await journal.writer(S)
            await one.append(*say("m", "a"))
            with pytest.raises(PositionTaken):
                await two.append(*say("m", "b"))

    @in_a_loop
    async def test_closing_stores_what_is_queued(self, storage: Storage) -> None:
        async with AsyncJournal(storage.open()) as journal:
            writer = await journal.writer(S)
            puts = [writer.put(*say("m", str(number))) for number in range(100)]
        done = await asyncio.gather(*puts)
        assert len(done) == 100
        assert len(list(storage.open().read(S))) == 100

    def test_every_error_of_a_journal_is_one_of_its_own(self) -> None:
        assert issubclass(PositionTaken, JournalError)
        assert issubclass(Unavailable, JournalError)


def _stop_at(journal: Journal, barrier: threading.Barrier) -> None:
    """Let a journal's first write wait, where it has looked already, until the other's has come as far."""
    write = journal._append
    waited = False

    def waiting(*arguments: Any) -> Any:
        nonlocal waited
        if not waited:
            waited = True
            barrier.wait()
        return write(*arguments)

    setattr(journal, write.__name__, waiting)
