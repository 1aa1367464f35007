"""An append that returned is on disk; what is not as it was stored is said, with its positions (J-1, J-8)."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.journal import child as other
from tests.journal.stored import Session, child, chunk, found, line, raw, whole
from tests.require import missing
from twofold.journal import AsyncJournal, Damaged, PositionTaken, Unavailable
from twofold.journal.sqlite import MIGRATIONS, SQLiteJournal

Json = Any

pytestmark = pytest.mark.rule("J-1")

KILLS = 200
KILLS_PER_FILE = 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def check(path: Path, acknowledged: int, session: str = "s", reports: list[str] | None = None) -> int:
    """Check that what was acknowledged is there, in order, and nothing that was never sent. Gives how far it goes."""
    with SQLiteJournal(path, report=None if reports is None else reports.append) as journal:
        position = journal.position(session)
        records = list(journal.read(session))
        assert journal.verify().faults == ()
    assert [record.position for record in records] == list(range(1, position + 1))
    assert [record.raw for record in records] == [other.update(number) for number in range(1, position + 1)]
    assert position >= acknowledged
    return position


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes to kill are forked")
def test_every_append_that_returned_survives_kill_9(tmp_path: Path) -> None:
    chance = random.Random(8)
    with child("nursery") as nursery:
        assert nursery.stdin is not None
        for number in range(KILLS // KILLS_PER_FILE):
            path = tmp_path / f"{number}.db"
            last = 0
            for kill in range(KILLS_PER_FILE):
                nursery.stdin.write(f"append {path} s {number}.{kill}\n".encode())
                nursery.stdin.flush()
                pid, begun = map(int, line(nursery).split())
                assert begun == last
                killer = threading.Timer(chance.uniform(0.0, 0.05), os.kill, [pid, signal.SIGKILL])
                killer.start()
                reported = begun
                while said := line(nursery):
                    reported = int(said)
                killer.join()
                last = check(path, reported)


def test_a_log_cut_anywhere_loses_nothing_but_its_end(path: Path, tmp_path: Path) -> None:
    """At each cut: every commit that is whole in the log is there, what is behind the last is dropped and reported."""
    with child("append", str(path), "s", "cuts") as process:
        line(process)
        while int(line(process)) < 60:
            pass
        process.kill()
        process.wait(30)
    log = path.with_name("journal.db-wal")
    whole_log = log.read_bytes()
    total = check(copied(path, tmp_path / "all"), 60)
    chance = random.Random(1)
    page = int.from_bytes(whole_log[8:12], "big")
    frames = range(32, len(whole_log) + 1, 24 + page)
    cuts = {0, 1, 31, 32, 33, len(whole_log) - 1, *frames, *(chance.randrange(len(whole_log)) for _ in range(60))}
    reached: list[int] = []
    for number, cut in enumerate(sorted(cuts)):
        copy = copied(path, tmp_path / f"cut{number}")
        os.truncate(copy.with_name("journal.db-wal"), cut)
        reports: list[str] = []
        reached.append(check(copy, 0, reports=reports))
        ends = [
            at for at in frames if at <= cut and (at == 32 or whole_log[at - page - 20 : at - page - 16] != bytes(4))
        ]
        assert bool(reports) == (cut not in (0, *ends)), f"cut at {cut}"
        shutil.rmtree(copy.parent)
    assert reached == sorted(reached)
    assert reached[-1] <= total
    assert len(set(reached)) > 5


def copied(path: Path, folder: Path) -> Path:
    """Copy a database that nobody has open, without the index that is rebuilt."""
    folder.mkdir()
    for name in (path.name, f"{path.name}-wal"):
        shutil.copy(path.with_name(name), folder / name)
    return folder / path.name


def test_a_log_that_another_process_writes_to_is_not_reported_as_torn(path: Path) -> None:
    with child("append", str(path), "s", "live") as process:
        line(process)
        for _ in range(30):
            reports: list[str] = []
            SQLiteJournal(path, report=reports.append).close()
            assert reports == []


# Damage


@pytest.fixture
def damaged(path: Path) -> Path:
    """A session of five segments, the third (positions 5 and 6) damaged; and one that is whole."""
    with SQLiteJournal(path) as journal:
        for number in range(5):
            Session(journal).append(chunk(f"m{number}", f"words {number}"), chunk(f"m{number}", "more"))
        Session(journal, "whole").append(chunk("m", "a"))
    connection = sqlite3.connect(path)
    connection.execute("UPDATE segment SET data = replace(data, 'words 2', 'swords2') WHERE last = 6")
    connection.commit()
    connection.close()
    return path


def test_damage_is_said_with_session_and_positions(damaged: Path) -> None:
    with SQLiteJournal(damaged) as journal:
        read: list[int] = []
        with pytest.raises(Damaged, match='session "s": positions 5 to 6') as caught:
            read.extend(record.position for record in journal.read("s"))
        assert (caught.value.session, caught.value.first, caught.value.last) == ("s", 5, 6)
        with pytest.raises(Damaged):
            journal.page("s", 5)
        assert [record.position for record in journal.page("s", 6)] == [7, 8, 9, 10]


def test_what_is_before_the_damage_is_read_first(damaged: Path) -> None:
    with SQLiteJournal(damaged) as journal:
        assert [record.position for record in journal.page("s")] == [1, 2, 3, 4]


def test_a_transcript_with_a_gap_says_so(damaged: Path) -> None:
    with SQLiteJournal(damaged) as journal:
        loaded = journal.load("s")
        assert loaded.gaps == ((5, 6),)
        assert loaded.position == 10
        assert [message.message_id for message in loaded.transcript.messages] == ["m0", "m1", "m3", "m4"]
        assert journal.load("whole").gaps == ()
        assert journal.compact("s") == 0


def test_verify_lists_damage(damaged: Path) -> None:
    with SQLiteJournal(damaged) as journal:
        verified = journal.verify()
        assert list(verified.faults) == ['session "s": positions 5 to 6 are damaged']
        assert (verified.sessions, verified.records) == (2, 9)


def test_appending_to_a_damaged_session_goes_on(damaged: Path) -> None:
    with SQLiteJournal(damaged) as journal:
        session = Session(journal)
        session.append(chunk("m2", "again"))
        session.append(*(whole(f"m{number}", content=None) for number in range(5)))
        assert journal.position("s") == 16
        assert journal.load("s").gaps == ((5, 6),)
        assert all(not message.text for message in journal.load("s").transcript.messages)


def test_damage_that_happens_under_an_open_journal_stops_no_append(path: Path) -> None:
    with SQLiteJournal(path) as journal:
        session = Session(journal)
        for _ in range(3):
            session.append(chunk("m1", "words"))
        connection = sqlite3.connect(path)
        connection.execute("UPDATE segment SET positions = x'00', lengths = x'ff' WHERE last = 2")
        connection.commit()
        connection.close()
        session.append(whole("m1", content=None))
        assert journal.load("s").gaps == ((2, 2),)
        assert [message.text for message in journal.load("s").transcript.messages] == [""]


@pytest.mark.parametrize("seed", range(12))
def test_flipped_bytes_in_the_file_are_never_passed_over(path: Path, seed: int) -> None:
    with SQLiteJournal(path) as journal:
        for number in range(40):
            Session(journal).append(*(chunk(f"m{number}", f"{number} " * 150) for _ in range(4)))
        total = journal.position("s")
    chance = random.Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(6):
        data[chance.randrange(8192, len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    try:
        with SQLiteJournal(path) as journal:
            verified = journal.verify()
            loaded = journal.load("s")
            lost = sum(last - first + 1 for first, last in loaded.gaps)
            said = sum(len(message.content) for message in loaded.transcript.messages)
            assert said + lost == total
            assert verified.faults or not lost
            assert journal.append("s", journal.position("s"), raw(chunk("new", "a"))).position == journal.position("s")
    except Unavailable as error:
        if error.reason != "the file is damaged":  # SQLite's own structures: nothing is served then
            raise


# Storage that cannot be used


@contextmanager
def small_disk(folder: Path, size: str = "1m") -> Iterator[Path]:
    folder.mkdir()
    mount = (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
        )
        if shutil.which("mount")
        else None
    )
    if mount is None or mount.returncode:
        missing("tmpfs", "mounting a small one takes root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(session: Session, count: int = 10_000) -> int:
    """Append until the disk is full; give how many records are acknowledged."""
    for number in range(count):
        try:
            session.append(chunk("m", "x" * 3000))
        except Unavailable as error:
            if error.reason != "the disk is full":
                raise
            return number
    raise AssertionError("the disk was never full")


def test_a_full_disk_is_said_and_loses_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(200_000))
        path = disk / "journal.db"
        with SQLiteJournal(path) as journal:
            session = Session(journal)
            count = fill(session)
            assert count > 20
            assert len(session.raws) == count
            with pytest.raises(Unavailable, match="the disk is full"):
                session.append(chunk("m", "y" * 100_000))
            ballast.unlink()
            session.append(chunk("m", "after"))
            assert len(session.raws) == count + 1
            assert journal.verify().faults == ()
        with SQLiteJournal(path) as journal:
            assert len(Session(journal).raws) == count + 1


def test_a_disk_that_is_full_when_content_is_taken_back_is_no_excuse(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        path = disk / "journal.db"
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(400_000))
        with SQLiteJournal(path) as journal:
            session = Session(journal)
            session.append(chunk("secret", "the-launch-code"))
            fill(session)
            try:
                erasure = session.append(whole("secret", content=None))
            except Unavailable:
                ballast.unlink()
                erasure = session.append(whole("secret", content=None))
            if erasure == "pending":
                ballast.unlink(missing_ok=True)
                session.append(chunk("m", "z"))
            assert journal.verify().erasure == "none"
            assert found(path, "the-launch-code") == []


def test_a_file_on_a_read_only_disk_is_refused(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        path = disk / "journal.db"
        with SQLiteJournal(path) as journal:
            Session(journal).append(chunk("m", "a"))
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(Unavailable, match="the file is read-only"):
            SQLiteJournal(path)


def test_a_journal_opened_for_reading_refuses_to_write(path: Path) -> None:
    with SQLiteJournal(path) as journal:
        Session(journal).append(chunk("m", "a"))
        with SQLiteJournal(path, read_only=True) as reader:
            assert reader.position("s") == 1
            with pytest.raises(Unavailable, match="the file is read-only"):
                Session(reader).append(chunk("m", "b"))


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are another thing there")
def test_a_file_without_permission_is_refused(path: Path) -> None:
    SQLiteJournal(path).close()
    path.chmod(0o400)
    if os.access(path, os.W_OK):
        pytest.skip("root may do anything")
    with pytest.raises(Unavailable, match="the file is read-only"):
        SQLiteJournal(path)


def test_a_locked_file_is_said_after_a_while_and_loses_nothing(path: Path) -> None:
    with SQLiteJournal(path, busy_seconds=0.1) as journal:
        session = Session(journal)
        session.append(chunk("m", "a"))
        with child("lock", str(path)) as process:
            assert line(process) == "locked"
            with pytest.raises(Unavailable, match="another process holds the lock"):
                session.append(chunk("m", "b"))
            with pytest.raises(Unavailable, match="another process holds the lock"):
                SQLiteJournal(path, busy_seconds=0.1)
            assert len(session.raws) == 1, "reading goes on"
        session.append(chunk("m", "b"))
        assert len(session.raws) == 2


@pytest.mark.parametrize("content", [b"this is a letter to grandmother\n" * 40, b"{}", bytes(4096)])
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(Unavailable, match="this is no SQLite file"):
        SQLiteJournal(path)
    assert path.read_bytes() == content
    assert [one.name for one in path.parent.iterdir()] == ["journal.db"]


@pytest.mark.parametrize("statement", ["CREATE TABLE address (name)", "PRAGMA application_id = 7"])
def test_a_database_of_another_program_is_refused_and_left_alone(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    path.chmod(0o644)
    content = path.read_bytes()
    with pytest.raises(Unavailable, match="not a twofold journal"):
        SQLiteJournal(path)
    assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_newer_format_is_refused_and_left_alone(path: Path) -> None:
    with SQLiteJournal(path) as journal:
        Session(journal).append(chunk("m", "a"))
        journal._connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    content = path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(Unavailable, match="written by a newer twofold"):
            SQLiteJournal(path, read_only=read_only)
    assert path.read_bytes() == content


def test_an_empty_file_becomes_a_journal(path: Path) -> None:
    path.touch()
    with pytest.raises(Unavailable, match="this file is empty"):
        SQLiteJournal(path, read_only=True)
    with SQLiteJournal(path) as journal:
        Session(journal).append(chunk("m", "a"))
    with SQLiteJournal(path) as journal:
        assert journal.position("s") == 1


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="No such file or directory"):
        SQLiteJournal(tmp_path / "nowhere" / "journal.db")


def test_a_closed_journal_says_so(path: Path) -> None:
    journal = SQLiteJournal(path)
    journal.close()
    journal.close()
    for use in (lambda: journal.position("s"), lambda: Session(journal).append(chunk("m", "a")), journal.changes):
        with pytest.raises(Unavailable, match="the journal is closed"):
            use()


@pytest.mark.rule("J-8")
@pytest.mark.skipif(sys.platform == "win32", reason="permissions are another thing there")
def test_only_the_owner_can_read_the_files(path: Path) -> None:
    before = os.umask(0)
    try:
        with SQLiteJournal(path) as journal:
            Session(journal).append(chunk("m", "a"))
            modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
            assert modes == {"journal.db": 0o600, "journal.db-wal": 0o600, "journal.db-shm": 0o600}
            for one in path.parent.iterdir():
                one.chmod(0o644)
            reports: list[str] = []
            SQLiteJournal(path, report=reports.append).close()
            assert len(reports) == 3
            assert {stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()} == {0o600}
    finally:
        os.umask(before)


# Several at once


def test_of_two_processes_that_append_exactly_one_wins_each_position(path: Path) -> None:
    SQLiteJournal(path).close()
    with child("race", str(path), "s", "60") as one, child("race", str(path), "s", "60") as two:
        won = [[int(line(process)) for _ in range(60)] for process in (one, two)]
        pids = one.pid, two.pid
    assert sorted(won[0] + won[1]) == list(range(1, 121))
    with SQLiteJournal(path) as journal:
        records = list(journal.read("s"))
        for pid, mine in zip(pids, won, strict=True):
            assert [record.position for record in records if f"of {pid}".encode() in record.raw] == mine
        assert all(f'"{record.position}"'.encode() in record.raw for record in records)


def test_several_processes_read_while_one_writes(path: Path) -> None:
    with SQLiteJournal(path) as journal:
        session = Session(journal)
        session.append(chunk("m", "a"))
        with child("read", str(path), "s", "400") as one, child("read", str(path), "s", "400") as two:
            for _ in range(200):
                session.append(chunk("m", "b"), chunk("m", "c"))
            assert (line(one), line(two)) == ("401", "401")


def test_many_processes_may_make_the_file_at_once(tmp_path: Path) -> None:
    for attempt in range(4):
        path = tmp_path / f"{attempt}.db"
        with (
            child("race", str(path), "s", "5") as one,
            child("race", str(path), "s", "5") as two,
            child("race", str(path), "s", "5") as three,
        ):
            won = [int(line(process)) for process in (one, two, three) for _ in range(5)]
        assert sorted(won) == list(range(1, 16))


def test_threads_may_share_a_journal(path: Path) -> None:
    with SQLiteJournal(path) as journal:
        failures: list[BaseException] = []

        def work(name: str) -> None:
            try:
                session = Session(journal, name)
                for number in range(40):
                    session.append(chunk("m", f"{number}"))
                    assert len(session.raws) == number + 1 + number // 10 * 2
                    if number % 10 == 9:
                        session.append(whole("n", text_of(number)), whole("n", content=None))
                        journal.delete(f"{name}'s other")
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(f"s{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert journal.verify().faults == ()


def text_of(number: int) -> Json:
    return {"type": "text", "text": f"{number}"}


def test_a_stale_index_is_seen_to_be_stale_after_deletion_and_a_new_beginning(path: Path) -> None:
    with SQLiteJournal(path) as one, SQLiteJournal(path) as two:
        Session(one).append(chunk("m1", "a"), chunk("m2", "b"))
        two.delete("s")
        Session(two).append(chunk("m2", "the-launch-code"), chunk("m1", "b"))
        Session(one).append(whole("m2", content=None))
        assert b"the-launch-code" not in b"".join(Session(one).raws)


# Odd things to store


NAMES = [
    "",
    " ",
    "a\x00b",
    "'; DROP TABLE session; --",
    "ünï",
    "\ud83d",
    "\udc00x",
    "\U0001f600",
    "x" * 10_000,
    "a/b\n",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_session_may_have_any_name_and_an_id_any_characters(path: Path, name: str) -> None:
    for _ in range(2):
        with SQLiteJournal(path) as journal:
            session = Session(journal, name)
            session.append(chunk(name, "a"))
            session.append(chunk(name, "b"))
            journal.redact(name, "agent_message", name)
            session.append(chunk(name, "c"))
            assert [one.session for one in journal.sessions()] == [name]
            assert journal.load(name).transcript.messages[0].text == ""
            journal.set_revision(name, "preview")
            assert journal.revision(name) == "preview"
            assert {record.session for record in journal.read(name)} == {name}
            journal.verify()


def test_names_that_look_alike_are_different(path: Path) -> None:
    with SQLiteJournal(path) as journal:
        for name in NAMES:
            Session(journal, name).append(chunk("m", "a"))
        assert {one.session for one in journal.sessions()} == set(NAMES)
        assert all(journal.position(name) == 1 for name in NAMES)


def test_an_empty_append_stores_nothing(path: Path) -> None:
    with SQLiteJournal(path) as journal:
        assert journal.append("s", 0).position == 0
        assert journal.sessions() == []
        Session(journal).append(chunk("m", "a"))
        assert journal.append("s", 1).position == 1
        with pytest.raises(PositionTaken):
            journal.append("s", 0)


def test_huge_records_are_stored_and_read_in_bounded_pages(path: Path) -> None:
    with SQLiteJournal(path) as journal:
        session = Session(journal)
        session.append(*(chunk(f"m{number}", str(number) * 3_000_000) for number in range(6)))
        assert len(journal.page("s")) < 4
        assert [len(message.text) for message in journal.load("s").transcript.messages] == [3_000_000] * 6
        session.append(*(whole(f"m{number}", content=None) for number in range(6)))
        assert path.with_name("journal.db-wal").stat().st_size == 0


def test_a_failed_append_leaves_the_index_right(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SQLiteJournal(path) as journal:
        session = Session(journal)
        session.append(chunk("m1", "the-launch-code"))
        monkeypatch.setattr(journal, "_erased", lambda _ours: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            session.append(chunk("m1", "the-launch-code"), chunk("m1", "the-launch-code"))
        monkeypatch.undo()
        session.append(whole("m1", content=None))
        assert b"the-launch-code" not in b"".join(session.raws)


def test_times_are_as_given(path: Path) -> None:
    with SQLiteJournal(path) as journal:
        journal.append("s", 0, raw(chunk("m", "a")), received_at=1e9)
        journal.append("s", 1, raw(chunk("m", "b")), received_at=5.0)  # a clock may be put back
        assert [record.received_at for record in journal.read("s")] == [1e9, 5.0]
        info = journal.sessions()[0]
        assert (info.created_at, info.updated_at) == (1e9, 5.0)


# For asyncio


def test_what_is_queued_when_an_async_journal_is_closed_is_stored(path: Path) -> None:
    async def go() -> list[int]:
        journal = AsyncJournal(SQLiteJournal(path))
        writer = await journal.writer("s")
        queued = [writer.put(raw(chunk("m", f"{number}"))) for number in range(200)]
        closing = [asyncio.ensure_future(journal.close()) for _ in range(2)]
        await asyncio.sleep(0)
        late = writer.put(raw(chunk("m", "late")))
        with pytest.raises(Unavailable, match="the journal is closed"):
            await late
        await asyncio.gather(*closing)
        return [appended.position for appended in await asyncio.gather(*queued)]

    assert asyncio.run(asyncio.wait_for(go(), 60)) == list(range(1, 201))
    check_positions = SQLiteJournal(path)
    assert check_positions.position("s") == 200
    check_positions.close()


def test_one_bad_update_in_the_queue_fails_alone(path: Path) -> None:
    async def go() -> list[Any]:
        async with AsyncJournal(SQLiteJournal(path)) as journal:
            writer = await journal.writer("s")
            queued = [writer.put(one) for one in (raw(chunk("m", "a")), b"{}", raw(chunk("m", "b")), b"no json")]
            return await asyncio.gather(*queued, return_exceptions=True)

    good, bad, again, worse = asyncio.run(asyncio.wait_for(go(), 60))
    assert (good.position, again.position) == (1, 2)
    assert type(bad).__name__ == "Malformed"
    assert type(worse).__name__ == "ParseError"


def test_a_follower_of_a_journal_that_is_closed_is_told(path: Path) -> None:
    async def go() -> None:
        journal = SQLiteJournal(path)
        Session(journal).append(chunk("m", "a"))
        follower = journal.follow("s")
        assert (await anext(follower)).position == 1
        waiting = asyncio.ensure_future(anext(follower))
        await asyncio.sleep(0.05)
        journal.close()
        with pytest.raises(Unavailable, match="the journal is closed"):
            await asyncio.wait_for(waiting, 10)

    asyncio.run(go())


def test_looking_for_changes_does_not_wait_for_a_commit(path: Path) -> None:
    with SQLiteJournal(path) as journal:
        first = journal.changes()
        with journal._transaction():
            began = time.monotonic()
            done = threading.Event()

            def look() -> None:
                journal.changes()
                done.set()

            thread = threading.Thread(target=look)
            thread.start()
            assert done.wait(5), "it waited for the lock"
            thread.join()
            assert time.monotonic() - began < 5
        assert first == journal.changes()
        Session(journal).append(chunk("m", "a"))
        assert first != journal.changes()


def test_a_follower_misses_nothing_of_many_writers(path: Path) -> None:
    async def go() -> list[int]:
        with SQLiteJournal(path) as journal, SQLiteJournal(path) as another:
            positions: list[int] = []

            def write() -> None:
                for number in range(150):
                    Session((journal, another)[number % 2]).append(chunk("m", f"{number}"))

            writing = asyncio.ensure_future(asyncio.to_thread(write))
            async for record in journal.follow("s"):
                positions.append(record.position)
                if len(positions) == 150:
                    break
            await writing
            return positions

    assert asyncio.run(asyncio.wait_for(go(), 60)) == list(range(1, 151))
