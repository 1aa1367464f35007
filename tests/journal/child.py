"""What the tests let another process do to a journal: `python -m tests.journal.child COMMAND PATH …`."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

from tests.journal.stored import chunk, raw, whole
from twofold.journal import PositionTaken
from twofold.journal.sqlite import SQLiteJournal


def say(*words: object) -> None:
    """Write a line at once: whoever is killed has said all of it or nothing."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def die(*_: Any) -> bool:
    os.kill(os.getpid(), signal.SIGKILL)
    return False


def append(path: str, session: str, seed: str) -> None:
    """Append for ever, in commits of random sizes, and say who does and how far every commit that returned has come."""
    chance = random.Random(seed)
    journal = SQLiteJournal(path)
    position = journal.position(session)
    say(os.getpid(), position)
    while True:
        batch = [update(number) for number in range(position + 1, position + 1 + chance.choice((1, 1, 2, 7, 40)))]
        position = journal.append(session, position, *batch).position
        say(position)


def update(number: int) -> bytes:
    """The update that `append` writes at a position."""
    return raw(chunk(f"m{number // 50}", f"number {number} " + "x" * (number * 37 % 400)))


def nursery() -> None:
    """Fork a process for every command that comes as a line; say an empty line when it has ended."""
    for words in sys.stdin:
        child = os.fork()
        if not child:
            command, *rest = words.split()
            COMMANDS[command](*rest)
            os._exit(0)
        os.waitpid(child, 0)
        say()


def crash(path: str, session: str) -> None:
    """Clear the message `m1`, and be killed after the commit, before the old pages are gone."""
    journal = SQLiteJournal(path)
    position = journal.position(session)
    vars(journal)["_finished"] = die
    journal.append(session, position, raw(whole("m1", content=None)))


def follow(path: str, session: str) -> None:
    """Say the position of every record, live."""

    async def go() -> None:
        async for record in SQLiteJournal(path).follow(session):
            say(record.position)

    asyncio.run(go())


def race(path: str, session: str, wins: str) -> None:
    """Append wherever the session is until that succeeded so many times; say the positions won."""
    journal = SQLiteJournal(path)
    left = int(wins)
    while left:
        position = journal.position(session)
        try:
            journal.append(session, position, raw(chunk(f"of {os.getpid()}", f"{position + 1}")))
        except PositionTaken:
            continue
        say(position + 1)
        left -= 1


def read(path: str, session: str, until: str) -> None:
    """Read the session over and over until it has so many records; each time they must be whole and in order."""
    journal = SQLiteJournal(path)
    count = 0
    while count < int(until):
        positions = [record.position for record in journal.read(session)]
        assert positions == list(range(1, len(positions) + 1))
        assert len(positions) >= count
        count = len(positions)
    say(count)


def lock(path: str) -> None:
    """Hold the write lock until told to end."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    say("locked")
    sys.stdin.readline()


COMMANDS: dict[str, Callable[..., None]] = {
    "append": append,
    "crash": crash,
    "follow": follow,
    "lock": lock,
    "nursery": nursery,
    "race": race,
    "read": read,
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
