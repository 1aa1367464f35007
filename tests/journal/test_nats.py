"""The NATS engine, where it differs: servers that go away, erasures cut short, streams of others, several servers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fold.sessions import text, whole
from tests.journal.contract import DEADLINE, Follower, S, add, following, in_a_loop, raw, refold, say, state, texts
from tests.journal.servers import Server, cluster, server
from twofold.journal import Damaged, PositionTaken, Record, Unavailable, open_journal

with contextlib.suppress(ImportError):  # the fixtures say that it is missing
    from twofold.journal import _jetstream
    from twofold.journal import nats as engine
    from twofold.journal.nats import NATSJournal, PartlyStored

NUMBERS: Final = itertools.count()
HUSH: Final = ("hush-4711", "hush-4712")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("nats")) as one:
        yield one


@pytest.fixture
def url(shared: Server) -> str:
    """A stream that is not there yet."""
    return shared.url(f"stream-{next(NUMBERS)}")


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Server]:
    """A server that the test may end."""
    with server(tmp_path) as one:
        yield one


def cut_off(journal: NATSJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the node crash after its batches are stored: nothing is deleted any more."""

    def gone(*_: Any) -> None:
        raise Unavailable(journal.where, "cut off")

    for name in ("erase", "drop"):
        monkeypatch.setattr(journal._link, name, gone)


def heard(needles: tuple[str, ...] = HUSH) -> tuple[bytes, ...]:
    return tuple(needle.encode() for needle in needles)


# What an acknowledged append means


@pytest.mark.rule("J-1")
def test_what_was_acknowledged_survives_a_killed_server(own: Server) -> None:
    with NATSJournal(own.url()) as journal:
        position = add(journal, *say("m", *map(str, range(100))))
        own.kill()
        own.start()
        assert len(list(journal.read(S))) == 100
        assert journal.append(S, position, *say("m", "on")).position > position
    with NATSJournal(own.url()) as journal:
        assert len(list(journal.read(S))) == 101
        assert journal.verify().faults == ()


@pytest.mark.rule("J-1")
def test_an_append_whose_answer_is_lost_is_found(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with NATSJournal(url) as journal:
        position = add(journal, *say("m", "a"))
        store = journal._link.store

        def unheard(*arguments: Any, **keywords: Any) -> int:
            store(*arguments, **keywords)
            raise _jetstream.Unanswered

        for words in ("b", "cd"):
            with monkeypatch.context() as patch:
                patch.setattr(journal._link, "store", unheard)
                places = journal.append(S, position, *say("m", *words)).positions
            assert [record.position for record in journal.read(S, position)] == list(places)
            position = places[-1]
        assert texts(journal) == {"m": "abcd"}


@pytest.mark.rule("J-1")
def test_an_append_that_is_lost_on_the_way_is_stored_once_all_the_same(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with NATSJournal(url) as journal:
        position = add(journal, *say("m", "a"))
        store, calls = journal._link.store, itertools.count()

        def lossy(*arguments: Any, **keywords: Any) -> int:
            number = next(calls)
            if number == 0:
                raise _jetstream.Unanswered  # it never arrived
            last = store(*arguments, **keywords)
            if number == 1:
                raise _jetstream.Unanswered  # the answer did not
            return last

        monkeypatch.setattr(journal._link, "store", lossy)
        journal.append(S, position, *say("m", "b", "c"))
        assert next(calls) == 2
        assert texts(journal) == {"m": "abc"}


def test_an_append_that_never_arrived_is_not_said_to_be_stored(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*arguments: Any, **keywords: Any) -> int:
        raise _jetstream.Unanswered

    with NATSJournal(url, patience=0.2) as journal:
        position = add(journal, *say("m", "a"))
        with monkeypatch.context() as patch:
            patch.setattr(journal._link, "store", lost)
            with pytest.raises(Unavailable, match="not known"):
                journal.append(S, position, *say("m", "b"))
        assert journal.append(S, position, *say("m", "c")).position > position
        assert texts(journal) == {"m": "ac"}


def test_a_server_that_is_gone_is_unavailable_and_not_waited_for_without_end(own: Server) -> None:
    with NATSJournal(own.url(), patience=0.5) as journal:
        add(journal, *say("m", "a"))
        own.stop()
        began = time.monotonic()
        for call in (lambda: add(journal, *say("m", "b")), lambda: list(journal.read(S)), journal.sessions):
            with pytest.raises(Unavailable):
                call()
        assert time.monotonic() - began < DEADLINE
        own.start()
        add(journal, *say("m", "b"))
        assert texts(journal) == {"m": "ab"}


def test_a_long_append_says_how_far_it_got(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with NATSJournal(url, patience=0.2) as journal, NATSJournal(url) as other:
        store, calls = journal._link.store, itertools.count()

        def failing(*arguments: Any, **keywords: Any) -> int:
            if next(calls) >= 1:
                raise _jetstream.Unanswered
            return store(*arguments, **keywords)

        monkeypatch.setattr(journal._link, "store", failing)
        with pytest.raises(PartlyStored) as caught:
            journal.append(S, 0, *say("m", *map(str, range(2 * engine.STEP))))
        assert caught.value.position == other.position(S) == caught.value.positions[-1]
        assert len(list(other.read(S))) == engine.STEP == len(caught.value.positions)


# Erasing


@pytest.mark.rule("J-3", "J-6")
def test_withdrawn_bytes_are_in_no_file_after_the_server_has_started_again(own: Server) -> None:
    with NATSJournal(own.url()) as journal:
        add(journal, *say("m", *HUSH), raw(whole("n", text("kept-1"))))
        assert own.holds(*heard()) != []
        add(journal, raw(whole("m", text("new"))))
        add(journal, *say("o", *HUSH), session="other")
        journal.redact("other", "agent_message", "o")
        add(journal, *say("p", *HUSH), *say("p", *map(str, range(100))), session="third")
        journal.delete("third")
        add(journal, raw(whole("q", text("hush-4711" * 200_000))))
        add(journal, raw(whole("q", content=None)))
        add(journal, *say("r", "1", "2", *HUSH), raw({"sessionUpdate": "state_update", "state": "idle"}))
        journal.compact(S)
        add(journal, raw(whole("r", text("3"))))
        assert own.holds(*heard()) == []
    own.stop()
    assert own.holds(*heard()) == []
    assert own.holds(b"kept-1") != []
    own.start()
    with NATSJournal(own.url()) as journal:
        assert own.holds(*heard()) == []
        assert texts(journal) == {"m": "new", "n": "kept-1", "q": "", "r": "3"}
        assert (journal.verify().faults, journal.verify().erasure) == ((), "none")


@pytest.mark.rule("J-3")
@pytest.mark.parametrize("finisher", ["opening", "other node", "own next append"])
def test_an_erasure_that_was_cut_short_is_finished(own: Server, monkeypatch: pytest.MonkeyPatch, finisher: str) -> None:
    reports: list[str] = []
    with NATSJournal(own.url()) as journal, NATSJournal(own.url()) as other:
        add(journal, *say("m", *HUSH))
        assert texts(other)["m"] == "".join(HUSH)
        with monkeypatch.context() as patch:
            cut_off(journal, patch)
            assert journal.append(S, journal.position(S), raw(whole("m", text("new")))).erasure == "pending"
            assert journal.verify().erasure == "pending"
            assert own.holds(*heard()) != []
            assert not any(b"hush" in record.raw for one in (journal, other) for record in one.read(S))
        match finisher:
            case "opening":
                with NATSJournal(own.url(), report=reports.append):
                    assert len(reports) == 1
            case "other node":
                add(other, *say("n", "x"))
            case _:
                assert journal.append(S, journal.position(S), *say("n", "x")).erasure == "done"
        assert own.holds(*heard()) == []
        assert other.verify().erasure == "none"
        assert texts(other)["m"] == "new"


@pytest.mark.rule("J-3")
def test_a_deletion_that_was_cut_short_is_finished(own: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with NATSJournal(own.url()) as journal, NATSJournal(own.url()) as other:
        add(journal, *say("m", *HUSH))
        add(other, *say("m", *HUSH))
        with monkeypatch.context() as patch:
            cut_off(journal, patch)
            assert journal.delete(S) == "pending"
        assert other.sessions() == []
        assert list(other.read(S)) == []
        assert other.append(S, 0, *say("n", "new life")).position > 0
        assert own.holds(*heard()) == []
        assert texts(journal) == {"n": "new life"}
        assert [info.records for info in journal.sessions()] == [1]


@pytest.mark.rule("J-4", "J-5")
def test_a_compaction_that_was_cut_short_shows_what_it_will_be(own: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with NATSJournal(own.url()) as journal, NATSJournal(own.url()) as other:
        add(journal, *say("m", *map(str, range(600))), raw({"sessionUpdate": "state_update", "state": "idle"}))
        before = state(journal.load(S).transcript)
        with monkeypatch.context() as patch:
            cut_off(journal, patch)
            journal.compact(S)
        assert len(list(other.read(S))) == 3
        assert state(other.load(S).transcript) == before
        with NATSJournal(own.url()) as third:
            assert [record.position for record in third.read(S)] == [record.position for record in other.read(S)]
            assert third.verify().faults == ()


def race(journal: NATSJournal, monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Let something happen right after the journal has read originals, before it looks again."""
    originals = journal._originals

    def read(*arguments: Any) -> Any:
        found = originals(*arguments)
        monkeypatch.setattr(journal, "_originals", originals)
        change()
        return found

    monkeypatch.setattr(journal, "_originals", read)


@pytest.mark.rule("J-3", "J-5")
@pytest.mark.parametrize("action", ["replace", "compact", "redact", "delete", "append"])
def test_a_page_is_of_one_moment_even_when_records_are_rewritten_while_it_is_read(
    url: str, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    with NATSJournal(url) as writer, NATSJournal(url) as reader:
        position = add(writer, *say("m", *HUSH), *say("n", "x", "y", "z"))
        add(writer, raw({"sessionUpdate": "state_update", "state": "idle"}))
        assert len(reader.page(S)) == 6
        changes: dict[str, Callable[[], object]] = {
            "replace": lambda: add(writer, raw(whole("m", text("new")))),
            "compact": lambda: writer.compact(S),
            "redact": lambda: writer.redact(S, "agent_message", "m"),
            "delete": lambda: writer.delete(S),
            "append": lambda: add(writer, *say("n", "!")),
        }
        race(reader, monkeypatch, changes[action])
        page = list(reader.page(S))
        if action == "append":
            assert page == list(writer.read(S))[:6]
        else:
            assert page == list(writer.read(S))
        race(reader, monkeypatch, lambda: add(writer, *say("o", "1")))
        assert list(reader.page(S, writer.position(S))) == list(writer.read(S, position))[-1:] or action == "append"


@pytest.mark.rule("J-3", "J-6")
def test_what_another_node_has_redacted_is_not_stored_by_a_writer_that_has_not_seen_it(url: str) -> None:
    with NATSJournal(url) as one, NATSJournal(url) as two:
        position = add(one, *say("m", "hush"))
        two.redact(S, "agent_message", "m")
        with pytest.raises(PositionTaken):
            one.append(S, position, *say("m", "hush"))
        add(one, *say("m", "hush"))
        assert not any(b"hush" in record.raw for record in two.read(S))


def test_a_writer_is_not_disturbed_by_what_moves_no_position(url: str) -> None:
    with NATSJournal(url) as one, NATSJournal(url) as two:
        position = add(one, *say("m", "a", "b", "c"), raw({"sessionUpdate": "state_update", "state": "idle"}))
        two.set_revision(S, "preview")
        position = one.append(S, position, *say("n", "a", "b", "c")).position
        assert two.compact(S) > 0
        position = one.append(S, position, raw(whole("m", text("new")))).position
        two.set_revision(S, "rfd")
        one.append(S, position, *say("n", "d"))
        assert texts(one) == {"m": "new", "n": "abcd"} == texts(two)
        assert one.verify().faults == ()


# Damage


@pytest.mark.rule("J-1")
@pytest.mark.parametrize("lost", [0, 2, 5])
def test_a_record_that_the_server_lost_is_a_gap_with_its_position(url: str, lost: int) -> None:
    with NATSJournal(url) as journal:
        places = journal.append(S, 0, *say("m", *"abcdef")).positions
        add(journal, *say("n", "x"))
        journal._link.drop([places[lost]])
        with NATSJournal(url) as fresh:
            with pytest.raises(Damaged) as caught:
                list(fresh.read(S))
            assert caught.value.first <= places[lost] <= caught.value.last
            loaded = fresh.load(S)
            assert [gap for gap in loaded.gaps if gap[0] <= places[lost] <= gap[1]] == list(loaded.gaps)
            assert len(loaded.gaps) == len(fresh.verify().faults) == 1
            assert texts(fresh)["m"] == "abcdef".replace("abcdef"[lost], "")


# Streams


def test_credentials_are_in_no_name_and_no_text() -> None:
    with pytest.raises(Unavailable) as caught:
        NATSJournal("nats://me:secret@127.0.0.1:1/stream", patience=0.3)
    assert caught.value.where == "nats://127.0.0.1:1/stream"
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["nats://127.0.0.1:4222", "nats:///stream", "nats://127.0.0.1:4222/a.b", "http://h/s"])
def test_a_name_that_names_no_stream_is_refused(name: str) -> None:
    with pytest.raises(Unavailable, match="HOST:PORT/STREAM"):
        NATSJournal(name)


def test_a_stream_that_is_not_there_is_made_only_if_asked(url: str) -> None:
    with pytest.raises(Unavailable, match="no such stream"):
        NATSJournal(url, create=False)
    with open_journal(url) as journal:
        add(journal, *say("m", "a"))
    with NATSJournal(url, create=False) as journal:
        assert texts(journal) == {"m": "a"}


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"max_age": int(3600e9)}, "max_age"),
        ({"max_msgs": 10}, "max_msgs"),
        ({"storage": "memory"}, "storage"),
        ({"allow_direct": False}, "allow_direct"),
        ({"allow_atomic": False}, "allow_atomic"),
        ({"deny_delete": True}, "deny_delete"),
        ({"compression": "s2"}, "compression"),
        ({"republish": {"src": "twofold.>", "dest": "copy.>"}}, "republish"),
        ({"metadata": {}}, "not made by twofold"),
        ({"metadata": {"twofold": "2"}}, "newer"),
    ],
)
def test_a_stream_that_breaks_a_promise_is_refused_by_the_name_of_the_setting(
    url: str, shared: Server, setting: dict[str, Any], named: str
) -> None:
    stream = url.rpartition("/")[2]
    with NATSJournal(shared.url("helper")) as helper:
        config = {
            "name": stream,
            "subjects": [f"twofold.{stream}.>"],
            "storage": "file",
            "allow_direct": True,
            "allow_atomic": True,
            "metadata": {"twofold": "1"},
        }
        helper._link.ask(f"STREAM.CREATE.{stream}", config | setting)
    with pytest.raises(Unavailable, match="breaks what a journal promises") as caught:
        NATSJournal(url)
    assert named in str(caught.value)


def test_a_server_without_atomic_batches_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_jetstream.Link, "version", (2, 11, 9))
    with pytest.raises(Unavailable, match=r"2\.12"):
        NATSJournal(url)


# Following


@pytest.mark.rule("J-5")
@in_a_loop
async def test_a_follower_goes_on_after_the_server_was_away(own: Server) -> None:
    writer = await asyncio.to_thread(NATSJournal, own.url())
    reader = await asyncio.to_thread(NATSJournal, own.url())
    with writer, reader:
        async with following(reader) as [follower]:
            await follower.reach(await asyncio.to_thread(add, writer, *say("m", "a")))
            await asyncio.to_thread(own.kill)
            await asyncio.to_thread(own.start)
            await asyncio.to_thread(add, writer, *say("m", "b"))
            await follower.reach(await asyncio.to_thread(add, writer, *say("m", "c")))
            positions = [record.position for record in await asyncio.to_thread(lambda: list(writer.read(S)))]
            assert follower.positions == positions


@in_a_loop
async def test_the_server_forgets_who_no_longer_follows(url: str) -> None:
    journal = await asyncio.to_thread(NATSJournal, url)
    with journal:
        async with following(journal, 0, 0) as (one, two):
            position = await asyncio.to_thread(add, journal, *say("m", "a"))
            await one.reach(position)
            await two.reach(position)
            assert await asyncio.to_thread(_consumers, journal) == 1
        async with asyncio.timeout(DEADLINE):
            while await asyncio.to_thread(_consumers, journal):
                await asyncio.sleep(0.02)


def _consumers(journal: NATSJournal) -> int:
    count: int = journal._link.ask(f"STREAM.INFO.{journal._link.stream}")["state"]["consumer_count"]
    return count


# Several servers


@pytest.mark.rule("J-3", "J-5")
def test_three_servers_hold_one_journal_and_one_may_be_lost(tmp_path: Path) -> None:
    with cluster(tmp_path) as servers:
        urls = [one.url() for one in servers]
        opened = _patiently(lambda: NATSJournal(urls[0], replicas=3))
        everyone = ",".join(f"127.0.0.1:{one.port}" for one in servers)
        with opened as one, NATSJournal(urls[1]) as two, NATSJournal(f"nats://{everyone}/journal") as three:
            asyncio.run(_write_and_follow(one, two, three))
            servers[2].kill()
            position = _patiently(lambda: add(three, *say("m", "z")))
            assert _patiently(lambda: texts(one))["m"].endswith("z")
            assert one.position(S) == position
            assert one.verify().faults == ()


async def _write_and_follow(one: NATSJournal, two: NATSJournal, three: NATSJournal) -> None:
    follower = Follower(three)
    last = 0
    for number in range(40):
        writer = one if number % 2 else two
        last = await asyncio.to_thread(add, writer, *say("m", f"{number},", "."))
        assert len(await asyncio.to_thread(lambda: list(two.read(S)))) == 2 * (number + 1)
    last = await asyncio.to_thread(add, one, raw(whole("m", text("all"))))
    await follower.reach(last)
    held: list[Record] = await asyncio.to_thread(lambda: list(two.read(S)))
    assert [record.form for record in held] == ["rewritten"] * 80 + ["received"]
    assert follower.positions == [record.position for record in held]
    assert state(refold(follower.records).transcript) == state(refold(held).transcript)
    await follower.stop()


def _patiently(work: Callable[[], Any]) -> Any:
    """Try until the servers have found one another and a leader."""
    deadline = time.monotonic() + DEADLINE
    while True:
        try:
            return work()
        except Unavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
