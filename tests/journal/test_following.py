"""A session that is followed is folded as it goes on, whatever happens to its storage."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.journal.stored import Session, chunk, text, whole
from twofold.fold import Change
from twofold.journal import Following, Journal
from twofold.journal.memory import MemoryJournal
from twofold.journal.sqlite import SQLiteJournal

DEADLINE = 20.0


@contextlib.asynccontextmanager
async def changes(following: Following) -> AsyncIterator[AsyncIterator[Change]]:
    async with asyncio.timeout(DEADLINE), contextlib.aclosing(following.__aiter__()) as found:
        yield found


def test_the_changes_of_what_is_stored_come_first_and_then_those_that_come() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        session = Session(journal)
        session.append(chunk("m", "a"), chunk("m", "b"))
        following = Following(journal, "s")
        async with changes(following) as found:
            assert [(await anext(found)).kind for _ in range(2)] == ["created", "appended"]
            assert (following.position, following.transcript.messages[0].text) == (2, "ab")
            session.append(whole("m", text("c")))
            assert (await anext(found)).kind == "replaced"
            assert following.position == following.stored() == 3

    asyncio.run(main())


def test_what_was_loaded_before_is_not_told_again() -> None:
    async def main() -> None:
        journal = MemoryJournal()
        session = Session(journal)
        session.append(chunk("m", "a"), chunk("m", "b"))
        following = Following(journal, "s")
        assert (following.position, following.gaps) == (0, ())
        await following.load()
        transcript = following.transcript
        assert (following.position, transcript.messages[0].text) == (2, "ab")
        session.append(chunk("m", "c"))
        async with changes(following) as found:
            assert (await anext(found)).block.text == "c"
        assert following.transcript is transcript

    asyncio.run(main())


def damaged(path: Path) -> Journal:
    with SQLiteJournal(path) as journal:
        for number in range(1, 5):
            Session(journal).append(whole(f"m{number}", text("words")))
    connection = sqlite3.connect(path)
    connection.execute("UPDATE segment SET data = x'00' WHERE last = 2")
    connection.commit()
    connection.close()
    return SQLiteJournal(path)


def test_damage_is_a_gap_and_not_the_end(tmp_path: Path) -> None:
    async def main() -> None:
        with damaged(tmp_path / "journal") as journal:
            following = Following(journal, "s")
            async with changes(following) as found:
                assert [(await anext(found)).target.message_id for _ in range(3)] == ["m1", "m3", "m4"]
                assert following.gaps == ((2, 2),)
                Session(journal).append(whole("m5", text("words")))
                assert (await anext(found)).target.message_id == "m5"
            loaded = Following(journal, "s")
            await loaded.load()
            assert (loaded.gaps, loaded.position, len(loaded.transcript.messages)) == (((2, 2),), 5, 4)

    asyncio.run(main())


@pytest.mark.parametrize("steps", range(8))
def test_who_is_cancelled_while_something_comes_ends(steps: int) -> None:
    async def main() -> None:
        journal = MemoryJournal()
        session = Session(journal)
        session.append(chunk("m", "a"))

        async def follow() -> None:
            async for _change in Following(journal, "s"):
                waiting.set()

        waiting = asyncio.Event()
        task = asyncio.create_task(follow())
        async with asyncio.timeout(DEADLINE):
            await waiting.wait()
            await asyncio.sleep(0.01)  # until it waits for more
            session.append(chunk("m", "b"))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
        assert task.cancelled()

    asyncio.run(main())
