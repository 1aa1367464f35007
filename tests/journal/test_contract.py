"""The contract, with each engine."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from tests.journal.contract import JournalContract, Storage
from tests.journal.servers import Server, server
from twofold.journal import Journal, open_journal
from twofold.journal.memory import MemoryJournal
from twofold.journal.sqlite import SQLiteJournal


class InMemory(Storage):
    durable: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self._journal = MemoryJournal()

    def connect(self, keep_superseded: bool) -> Journal:
        return self._journal

    def holds(self, *needles: bytes) -> Sequence[str]:
        records = [record for info in self._journal.sessions() for record in self._journal.read(info.session)]
        return [record.session for record in records if any(needle in record.raw for needle in needles)]


class InSQLite(Storage):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def connect(self, keep_superseded: bool) -> Journal:
        return SQLiteJournal(self._folder / "journal.db", keep_superseded=keep_superseded)

    def holds(self, *needles: bytes) -> Sequence[str]:
        files = (path for path in self._folder.rglob("*") if path.is_file())
        return [path.name for path in files if any(needle in path.read_bytes() for needle in needles)]


class InNATS(Storage):
    _numbers: ClassVar[Iterator[int]] = itertools.count()

    def __init__(self, nats_server: Server) -> None:
        super().__init__()
        self._server = nats_server
        self._url = nats_server.url(f"journal-{next(self._numbers)}")

    def connect(self, keep_superseded: bool) -> Journal:
        return open_journal(self._url, keep_superseded=keep_superseded)

    def holds(self, *needles: bytes) -> Sequence[str]:
        return self._server.holds(*needles)


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("nats")) as one:
        yield one


class TestJournal(JournalContract):
    @pytest.fixture(params=["memory", "sqlite", "nats"])
    def storage(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
        storage: Storage
        match request.param:
            case "memory":
                storage = InMemory()
            case "sqlite":
                storage = InSQLite(tmp_path)
            case _:
                storage = InNATS(request.getfixturevalue("nats_server"))
        yield storage
        storage.close()
