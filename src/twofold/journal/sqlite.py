"""A journal in one SQLite file, safe with several processes.

Durable means ``synchronous=FULL`` in WAL mode: a commit is on the disk when it returns. Several records of one commit share
a row, a *segment*. Erasing rewrites segments under ``secure_delete``, then moves the write-ahead log into the file and cuts
it to nothing, because the old pages are still in it; only a reader with an old snapshot can delay that.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct

from twofold.exceptions import TwofoldError
from twofold.journal._base import Journal, New
from twofold.journal._records import (
    Damaged,
    Erasure,
    Form,
    JournalError,
    Origin,
    PositionTaken,
    Record,
    SessionInfo,
    Unavailable,
    Verified,
)
from twofold.wire import v2

__all__ = ["SQLiteJournal"]

T = TypeVar("T")

APPLICATION: Final = 0x74776F66  # "twof": which program's file this is
BUSY_SECONDS: Final = 5.0
SEGMENT: Final = 256
"""Records in one row, at most."""

FORMS: Final[Sequence[Form]] = ("received", "rewritten", "compacted")

MIGRATIONS: Final[Sequence[str]] = (
    # 1: the first release
    """
    CREATE TABLE session (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        position INTEGER NOT NULL DEFAULT 0,
        generation INTEGER NOT NULL DEFAULT 0,
        revision TEXT NOT NULL DEFAULT 'rfd'
    );
    CREATE TABLE segment (
        session INTEGER NOT NULL REFERENCES session (id) ON DELETE CASCADE,
        last INTEGER NOT NULL,
        origin TEXT NOT NULL,
        positions BLOB NOT NULL,
        times BLOB NOT NULL,
        forms BLOB NOT NULL,
        lengths BLOB NOT NULL,
        checksum INTEGER NOT NULL,
        data BLOB NOT NULL,
        PRIMARY KEY (session, last)
    ) WITHOUT ROWID;
    CREATE TABLE redaction (
        session INTEGER NOT NULL REFERENCES session (id) ON DELETE CASCADE,
        kind TEXT NOT NULL,
        entity TEXT NOT NULL,
        PRIMARY KEY (session, kind, entity)
    ) WITHOUT ROWID;
    CREATE TABLE erasure (pending INTEGER NOT NULL);
    INSERT INTO erasure VALUES (0);
    """,
)
"""What brings a file from each version of the format to the next."""


class SQLiteJournal(Journal):
    """Keeps sessions in the SQLite file at ``path``, readable by its owner only (J-8); makes it if it is not there.

    ``busy_seconds`` is how long to wait for another process's lock before giving up with :class:`Unavailable`.
    ``report`` is called with a sentence for what opening had to mend.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keep_superseded: bool = False,
        busy_seconds: float = BUSY_SECONDS,
        read_only: bool = False,
        report: Callable[[str], object] | None = None,
    ) -> None:
        super().__init__(os.fspath(path), keep_superseded=keep_superseded)
        self._path = Path(path)
        self._report = report or (lambda _sentence: None)
        self._read_only = read_only
        self._pending = 0
        with self._guarded():
            self._connection = self._opened(busy_seconds)

    # Opening

    def _opened(self, busy_seconds: float) -> sqlite3.Connection:
        if not self._read_only:
            # SQLite gives the log and the index beside the file the file's own permissions.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        log = _Log.beside(self._path)
        mode = "ro" if self._read_only else "rw"
        connection = sqlite3.connect(
            f"{self._path.absolute().as_uri()}?mode={mode}",
            uri=True,
            timeout=busy_seconds,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            if self._read_only:
                self._check_format(connection)
                return connection
            connection.execute("PRAGMA secure_delete = ON")
            self._migrate(connection)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            # Erasures that a crash interrupted are finished before anything is served.
            self._pending = connection.execute("SELECT pending FROM erasure").fetchone()[0]
            self._checkpointed(connection)
            if log is not None and log.torn:
                self._report(f"{self.where}: the last commit had been cut off by a crash, and was never acknowledged: dropped")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_format(self, connection: sqlite3.Connection) -> int:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application != APPLICATION and tables:
            raise Unavailable(self.where, "this is a SQLite file, but not a twofold journal")
        if version > len(MIGRATIONS):
            raise Unavailable(self.where, f"this journal was written by a newer twofold (format {version})")
        return version

    def _migrate(self, connection: sqlite3.Connection) -> None:
        if self._check_format(connection) == len(MIGRATIONS):
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = self._check_format(connection)  # another process may have been quicker
            for script in MIGRATIONS[version:]:
                for statement in script.split(";"):
                    if statement.strip():
                        connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    # The contract

    def sessions(self) -> Sequence[SessionInfo]:
        query = """
            SELECT s.name, s.position, s.revision, g.times, length(g.positions) / 8, length(g.data)
            FROM session s JOIN segment g ON g.session = s.id ORDER BY s.id, g.last
        """
        found: dict[str, SessionInfo] = {}
        for name, position, revision, times, count, size in self._fetched(query):
            began, ended = _floats(times)[0], _floats(times)[-1]
            known = found.get(name)
            if known is not None:
                began, count, size = known.created_at, known.records + count, known.size + size
            found[name] = SessionInfo(name, position, count, size, began, ended, revision)
        return sorted(found.values(), key=lambda one: one.updated_at, reverse=True)

    def verify(self) -> Verified:
        faults = [f"the file: {row[0]}" for row in self._fetched("PRAGMA integrity_check") if row[0] != "ok"]
        records = 0
        names = [name for (name,) in self._fetched("SELECT name FROM session ORDER BY id")]
        for name in names:
            for record in self._tolerant(name, 0):
                if isinstance(record, Damaged):
                    faults.append(f'session "{name}": positions {record.first} to {record.last} are damaged')
                    continue
                records += 1
                try:
                    if record.origin != "replay":
                        v2.decode_update(record.raw)
                except TwofoldError as error:
                    faults.append(f'session "{name}": position {record.position} is no update: {error}')
        pending = self._fetched("SELECT pending FROM erasure")[0][0]
        return Verified(len(names), records, tuple(faults), "pending" if pending else "none")

    def changes(self) -> object:
        with self._lock:
            return self._connection.execute("PRAGMA data_version").fetchone()[0]

    # What an engine does

    def _head(self, session: str) -> int:
        rows = self._fetched("SELECT position FROM session WHERE name = ?", session)
        return rows[0][0] if rows else 0

    def _read(self, session: str, after: int, limit: int) -> Sequence[Record]:
        records: list[Record] = []
        for segment in self._segments(session, after, 1 + limit // SEGMENT):
            try:
                records += (record for record in segment.records(self.where, session) if record.position > after)
            except Damaged:
                if not records:
                    raise
                break  # what can be read comes first, the damage with the next page
            if len(records) >= limit:
                break
        return records

    def _segments(self, session: str, after: int, limit: int) -> Iterator[_Segment]:
        query = f"""
            SELECT {_Segment.COLUMNS} FROM segment
            WHERE session = (SELECT id FROM session WHERE name = ?) AND last > ? ORDER BY last LIMIT ?
        """
        return (_Segment(*row) for row in self._fetched(query, session, after, limit))

    def _records_at(self, session: str, positions: Iterable[int]) -> Iterator[Record]:
        wanted = sorted(set(positions))
        after = wanted[0] - 1
        chosen = set(wanted)
        while after < wanted[-1]:
            segments = list(self._segments(session, after, 8))
            if not segments:
                return
            for segment in segments:
                after = segment.last
                if not chosen.isdisjoint(segment.positions):
                    yield from (record for record in segment.records(self.where, session) if record.position in chosen)

    def _append(
        self, session: str, expected: int, news: Sequence[New], rewritten: Mapping[int, bytes]
    ) -> tuple[Sequence[int], Erasure]:
        with self._transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO session (name) VALUES (?)", (session,))
            key, head = connection.execute("SELECT id, position FROM session WHERE name = ?", (session,)).fetchone()
            if head != expected:
                raise PositionTaken(session, expected=expected, found=head)
            positions = range(head + 1, head + 1 + len(news))
            for start, group in _grouped(news):
                segment = _Segment.of([(positions[start + i], new.received_at, new.form, new.raw) for i, new in enumerate(group)], group[0].origin)
                segment.insert(connection, key)
            connection.execute("UPDATE session SET position = ? WHERE id = ?", (positions[-1], key))
            if rewritten:
                forms: dict[int, tuple[bytes, Form]] = {position: (raw, "rewritten") for position, raw in rewritten.items()}
                self._rewrite_in(connection, session, key, forms, set())
        return positions, self._erased() if rewritten else self._retried()

    def _rewrite(self, session: str, rewritten: Mapping[int, tuple[bytes, Form]], removed: Iterable[int]) -> Erasure:
        with self._transaction() as connection:
            key = connection.execute("SELECT id FROM session WHERE name = ?", (session,)).fetchone()[0]
            self._rewrite_in(connection, session, key, rewritten, set(removed))
            self._merge_in(connection, session, key)
            connection.execute("UPDATE session SET generation = generation + 1 WHERE id = ?", (key,))
        return self._erased()

    def _rewrite_in(
        self,
        connection: sqlite3.Connection,
        session: str,
        key: int,
        rewritten: Mapping[int, tuple[bytes, Form]],
        removed: set[int],
    ) -> None:
        """Write the segments anew that hold these positions."""
        touched = rewritten.keys() | removed
        if not touched:
            return
        query = f"SELECT {_Segment.COLUMNS} FROM segment WHERE session = ? AND last >= ? ORDER BY last"
        highest = max(touched)
        for row in connection.execute(query, (key, min(touched))).fetchall():
            segment = _Segment(*row)
            if not touched.isdisjoint(segment.positions):
                segment.changed(self.where, session, rewritten, removed).replace(connection, key, segment.last)
            if segment.last >= highest:
                break

    def _merge_in(self, connection: sqlite3.Connection, session: str, key: int) -> None:
        """Let neighbouring small segments be one."""
        query = f"SELECT {_Segment.COLUMNS} FROM segment WHERE session = ? ORDER BY last"
        run: list[_Segment] = []

        def flush() -> None:
            if len(run) > 1:
                merged = _Segment.of([entry for one in run for entry in one.entries(self.where, session)], run[0].origin)
                for one in run:
                    connection.execute("DELETE FROM segment WHERE session = ? AND last = ?", (key, one.last))
                merged.insert(connection, key)
            run.clear()

        for row in connection.execute(query, (key,)).fetchall():
            segment = _Segment(*row)
            full = sum(len(one.positions) for one in run) + len(segment.positions) > SEGMENT
            if run and (full or segment.origin != run[0].origin):
                flush()
            run.append(segment)
        flush()

    def _generation(self, session: str) -> int:
        rows = self._fetched("SELECT id, generation FROM session WHERE name = ?", session)
        return rows[0][0] * 1_000_000 + rows[0][1] if rows else 0

    def _delete(self, session: str) -> Erasure:
        with self._transaction() as connection:
            for table in ("segment", "redaction"):
                connection.execute(f"DELETE FROM {table} WHERE session = (SELECT id FROM session WHERE name = ?)", (session,))
            count = connection.execute("DELETE FROM session WHERE name = ?", (session,)).rowcount
        return self._erased() if count else "none"

    def _remember_redaction(self, session: str, kind: str, id: str) -> None:
        with self._transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO session (name) VALUES (?)", (session,))
            connection.execute(
                "INSERT OR IGNORE INTO redaction SELECT id, ?, ? FROM session WHERE name = ?", (kind, id, session)
            )

    def _redactions(self, session: str) -> Iterable[tuple[str, str]]:
        query = "SELECT kind, entity FROM redaction WHERE session = (SELECT id FROM session WHERE name = ?)"
        return self._fetched(query, session)

    def _set_revision(self, session: str, revision: str) -> None:
        with self._transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO session (name) VALUES (?)", (session,))
            connection.execute("UPDATE session SET revision = ? WHERE name = ?", (revision, session))

    def _revision(self, session: str) -> str:
        rows = self._fetched("SELECT revision FROM session WHERE name = ?", session)
        return rows[0][0] if rows else "rfd"

    # Erasing

    def _erased(self) -> Erasure:
        """Move the log into the file and cut it: only then are the old pages gone.

        A crash before this is finished by the next opening. Where a reader's snapshot is in the way, that it is still to be
        done is remembered in the file.
        """
        with self._lock, self._guarded():
            return self._checkpointed(self._connection)

    def _retried(self) -> Erasure:
        """Finish an erasure that a foreign reader was in the way of, if it is not any more."""
        return self._erased() if self._pending else "none"

    def _checkpointed(self, connection: sqlite3.Connection) -> Erasure:
        busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        if busy != self._pending:
            connection.execute("UPDATE erasure SET pending = ?", (busy,))
            self._pending = busy
        return "pending" if busy else "done"

    # SQLite

    def _fetched(self, query: str, *values: Any) -> list[Any]:
        """Read whole: no snapshot is held between two fetches."""
        with self._lock, self._guarded():
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._guarded():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Say in one sentence what SQLite or the system refused."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            raise Unavailable(self.where, _REASONS.get(code, f"SQLite refused ({type(error).__name__})")) from None
        except OSError as error:
            raise Unavailable(self.where, error.strerror or errno.errorcode.get(error.errno or 0, "unknown")) from None


_REASONS: Final = {
    sqlite3.SQLITE_BUSY: "another process holds the lock",
    sqlite3.SQLITE_LOCKED: "another connection holds the lock",
    sqlite3.SQLITE_READONLY: "the file is read-only",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "reading or writing the disk failed",
    sqlite3.SQLITE_CORRUPT: "the file is damaged",
    sqlite3.SQLITE_NOTADB: "this is no SQLite file",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
}


class _Segment(Struct):
    """One row: records of one origin, their positions, times, forms and lengths beside their joined bytes."""

    COLUMNS = "last, origin, positions, times, forms, lengths, checksum, data"

    last: int
    origin: Origin
    packed_positions: bytes
    times: bytes
    forms: bytes
    lengths: bytes
    checksum: int
    data: bytes

    @property
    def positions(self) -> array[int]:
        return array("q", self.packed_positions)

    @classmethod
    def of(cls, entries: Sequence[tuple[int, float, Form, bytes]], origin: Origin) -> _Segment:
        positions = array("q", (entry[0] for entry in entries)).tobytes()
        times = array("d", (entry[1] for entry in entries)).tobytes()
        forms = bytes(FORMS.index(entry[2]) for entry in entries)
        lengths = array("I", (len(entry[3]) for entry in entries)).tobytes()
        data = b"".join(entry[3] for entry in entries)
        checksum = _checksum(positions, times, forms, lengths, data)
        return cls(entries[-1][0], origin, positions, times, forms, lengths, checksum, data)

    def entries(self, where: str, session: str) -> list[tuple[int, float, Form, bytes]]:
        """Give what is in the row. Raises :class:`Damaged` when it is not what was put in."""
        if self.checksum != _checksum(self.packed_positions, self.times, self.forms, self.lengths, self.data):
            positions = self.positions if len(self.packed_positions) % 8 == 0 else array("q")
            raise Damaged(where, session, positions[0] if positions else self.last, self.last)
        entries: list[tuple[int, float, Form, bytes]] = []
        start = 0
        for position, at, form, length in zip(
            self.positions, _floats(self.times), self.forms, array("I", self.lengths), strict=True
        ):
            entries.append((position, at, FORMS[form], self.data[start : start + length]))
            start += length
        return entries

    def records(self, where: str, session: str) -> list[Record]:
        return [
            Record(session, position, at, self.origin, raw, form)
            for position, at, form, raw in self.entries(where, session)
        ]

    def changed(
        self, where: str, session: str, rewritten: Mapping[int, tuple[bytes, Form]], removed: set[int]
    ) -> _Segment | _Gone:
        entries = []
        for position, at, form, raw in self.entries(where, session):
            if position not in removed:
                fresh, new_form = rewritten.get(position, (raw, form))
                entries.append((position, at, new_form, fresh))
        return _Segment.of(entries, self.origin) if entries else _Gone()

    def insert(self, connection: sqlite3.Connection, key: int) -> None:
        connection.execute(
            "INSERT INTO segment VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (key, self.last, self.origin, self.packed_positions, self.times, self.forms, self.lengths, self.checksum, self.data),
        )

    def replace(self, connection: sqlite3.Connection, key: int, last: int) -> None:
        connection.execute("DELETE FROM segment WHERE session = ? AND last = ?", (key, last))
        self.insert(connection, key)


class _Gone:
    """A segment of which nothing is left."""

    def replace(self, connection: sqlite3.Connection, key: int, last: int) -> None:
        connection.execute("DELETE FROM segment WHERE session = ? AND last = ?", (key, last))


def _checksum(*parts: bytes) -> int:
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return value


def _floats(packed: bytes) -> array[float]:
    return array("d", packed)


def _grouped(news: Sequence[New]) -> Iterator[tuple[int, Sequence[New]]]:
    """Give runs of one origin, none longer than a segment, each with where it starts."""
    start = 0
    for index in range(1, len(news) + 1):
        if index == len(news) or index - start == SEGMENT or news[index].origin != news[start].origin:
            yield start, news[start:index]
            start = index


class _Log(Struct, frozen=True):
    """What a write-ahead log that was left behind holds: a commit that was cut off is in it, and is not counted."""

    torn: bool

    @classmethod
    def beside(cls, path: Path) -> _Log | None:
        """Look at the log beside a file that nobody has open. Its frames are checked as SQLite checks them."""
        try:
            data = path.with_name(f"{path.name}-wal").read_bytes()
        except OSError:
            return None
        if len(data) < 32:
            return cls(torn=bool(data))
        order = "big" if data[3] & 1 else "little"
        page = int.from_bytes(data[8:12], "big")
        salt = data[16:24]
        sums = _wal_sums(data[:24], (0, 0), order)
        committed = position = 32
        while position + 24 + page <= len(data):
            header, body = data[position : position + 24], data[position + 24 : position + 24 + page]
            sums = _wal_sums(header[:8] + body, sums, order)
            if header[8:16] != salt or (int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")) != sums:
                break
            position += 24 + page
            if int.from_bytes(header[4:8], "big"):  # a commit ends with this frame
                committed = position
        # Frames of an earlier use of the log may follow, under another salt: they are not torn.
        rest = data[committed:]
        return cls(torn=bool(rest) and (len(rest) < 24 or rest[8:16] == salt))


def _wal_sums(data: bytes, start: tuple[int, int], order: str) -> tuple[int, int]:
    one, two = start
    words = array("I", data)
    if order != sys.byteorder:
        words.byteswap()
    for index in range(0, len(words), 2):
        one = (one + words[index] + two) & 0xFFFFFFFF
        two = (two + words[index + 1] + one) & 0xFFFFFFFF
    return one, two
