"""A journal in one SQLite file, safe with several processes.

Durable means ``synchronous=FULL`` in WAL mode: a commit is on the disk when it returns. Several records of one commit
share a row, a *segment*.

Erasing rewrites segments under ``secure_delete``, then moves the write-ahead log into the file and cuts it to nothing,
because the old pages are still in it; only a reader with an old snapshot can delay that. ``secure_delete`` alone would
not do: when SQLite moves rows between pages it leaves copies of them in the unused parts. It never moves overflow
pages, so a segment's data is put where it does not fit into a page with the rest of its row, and lies in overflow pages
as a whole.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import threading
import time
import zlib
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from twofold.journal._base import Journal, New, Stale
from twofold.journal._records import (
    Damaged,
    Erasure,
    Form,
    Origin,
    PositionTaken,
    Record,
    SessionInfo,
    Unavailable,
    Verified,
)

__all__ = ["SQLiteJournal"]

APPLICATION: Final = 0x74776F66  # "twof": which program's file this is
BUSY_SECONDS: Final = 5.0
PATIENCE: Final = 1.0
"""Seconds to wait for readers when an erasure cuts the log; those of ours hold a snapshot for a moment only."""
PAGE_BYTES: Final = 2048
"""SQLite's page: rather small, because the smallest commit takes an overflow page of its own."""
LOG_BYTES: Final = 1 << 22
"""How long the write-ahead log grows before SQLite moves it into the file, in pages of this size."""
SEGMENT: Final = 256
"""Records in one row, at most."""
SEGMENT_BYTES: Final = 1 << 22
"""Bytes in one row, unless it is one record; and what a page of reading stops at."""

_MAKING: Final = threading.Lock()

FORMS: Final[Sequence[Form]] = ("received", "rewritten", "compacted")

MIGRATIONS: Final[Sequence[str]] = (
    # 1: the first release
    """
    CREATE TABLE session (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name NOT NULL UNIQUE,
        position INTEGER NOT NULL DEFAULT 0,
        generation INTEGER NOT NULL DEFAULT 0,
        revision TEXT NOT NULL DEFAULT 'rfd'
    );
    CREATE TABLE segment (
        session INTEGER NOT NULL REFERENCES session (id),
        last INTEGER NOT NULL,
        after INTEGER NOT NULL,
        origin TEXT NOT NULL,
        checksum INTEGER NOT NULL,
        positions BLOB NOT NULL,
        times BLOB NOT NULL,
        forms BLOB NOT NULL,
        lengths BLOB NOT NULL,
        gap BLOB NOT NULL,
        data BLOB NOT NULL,
        PRIMARY KEY (session, last)
    ) WITHOUT ROWID;
    CREATE TABLE redaction (
        session INTEGER NOT NULL REFERENCES session (id),
        kind TEXT NOT NULL,
        entity NOT NULL,
        PRIMARY KEY (session, kind, entity)
    ) WITHOUT ROWID;
    CREATE TABLE erasure (asked INTEGER NOT NULL, done INTEGER NOT NULL);
    INSERT INTO erasure VALUES (0, 0);
    """,
)
"""What brings a file from each version of the format to the next."""


def _say_nothing(_sentence: str) -> None:
    pass


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
        self._path = Path(path).absolute()
        self._report: Callable[[str], object] = report or _say_nothing
        self._read_only = read_only
        self._busy = busy_seconds
        self._local = 0  # bytes of a row that SQLite may keep in the page
        self._pending = False  # an erasure of ours waits
        self._cut = 0  # the last erasure asked for that the log was cut after, as far as this process knows
        self._watch: sqlite3.Connection | None = None
        self._watching = threading.Lock()
        self._closed = False
        with self._guarded():
            self._connection = self._opened()

    # Opening

    def _opened(self) -> sqlite3.Connection:
        if not self._read_only:
            self._made()
        connection = self._connected()
        try:
            version = self._version(connection)
            if self._read_only:
                if version == 0:
                    raise Unavailable(self.where, "this file is empty, not a journal")
                return connection
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA temp_store = MEMORY")  # or what is erased might lie in a temporary file
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # of a file that is empty yet
            self._log_ahead(connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_BYTES // PAGE_BYTES}")
            self._private()
            self._begin_clean(connection)
            page: int = connection.execute("PRAGMA page_size").fetchone()[0]
            self._local = (page - 12) * 64 // 255 - 23  # SQLite's file format, "B-tree Pages": an index page's X
            # Erasures that a crash interrupted are finished before anything is served.
            self._finished(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _made(self) -> None:
        """Make the file if it is not there. SQLite gives the log and the index beside it the same permissions.

        An existing file is not opened but by SQLite: closing it would let go of all locks that this process has on it.
        """
        with _MAKING:
            try:
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            except FileExistsError:
                if not os.access(self._path, os.W_OK):
                    raise Unavailable(self.where, _REASONS[sqlite3.SQLITE_READONLY]) from None

    def _connected(self) -> sqlite3.Connection:
        return sqlite3.connect(
            f"{self._path.as_uri()}?mode={'ro' if self._read_only else 'rw'}",
            uri=True,
            timeout=self._busy,
            isolation_level=None,
            check_same_thread=False,
        )

    def _version(self, connection: sqlite3.Connection) -> int:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application != APPLICATION and (application or tables):
            raise Unavailable(self.where, "this is a SQLite file, but not a twofold journal")
        if version > len(MIGRATIONS):
            raise Unavailable(self.where, f"this journal was written by a newer twofold (format {version})")
        return version if tables else 0

    def _log_ahead(self, connection: sqlite3.Connection) -> None:
        """Turn the write-ahead log on. SQLite does not wait for the lock that this takes the first time."""
        deadline = time.monotonic() + self._busy
        while True:
            try:
                mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
                continue
            if mode != "wal":
                raise Unavailable(self.where, "SQLite cannot keep a write-ahead log here")
            return

    def _private(self) -> None:
        """Take everybody else's permissions off files that were there before (J-8)."""
        for suffix in ("", "-wal", "-shm"):
            path = self._beside(suffix)
            with contextlib.suppress(FileNotFoundError):
                mode = path.stat().st_mode & 0o777
                if mode & 0o077:
                    os.chmod(path, mode & 0o700)
                    self._report(f"{path}: others than the owner could read it: not any more")

    def _begin_clean(self, connection: sqlite3.Connection) -> None:
        """Bring the file to this version's format, and look whether a crash cut a commit off."""
        seen = connection.execute("PRAGMA data_version").fetchone()[0]
        try:
            committed = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]
        except sqlite3.OperationalError:  # the disk is full, say; what is there can be read
            committed = -1
        connection.execute("BEGIN IMMEDIATE")  # nobody else writes to the log while it is looked at
        try:
            # A log that somebody wrote to meanwhile is in use: what a crash left was dropped before.
            idle = connection.execute("PRAGMA data_version").fetchone()[0] == seen
            if idle and committed >= 0 and self._torn(committed):
                self._report(f"{self.where}: a crash cut off the last commit, which was never acknowledged: dropped")
            self._migrate(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _torn(self, committed: int) -> bool:
        """Whether the write-ahead log goes on after the frames that SQLite counts as committed."""
        try:
            with open(self._beside("-wal"), "rb") as log:
                header = log.read(32)
                page = int.from_bytes(header[8:12], "big")
                log.seek(32 + committed * (24 + page))
                frame = log.read(24)
        except FileNotFoundError:
            return False
        if len(header) < 32:
            return bool(header)
        # Whole frames of an earlier use of the log may follow; they carry another salt.
        return bool(frame) and (len(frame) < 24 or frame[8:16] == header[16:24])

    def _migrate(self, connection: sqlite3.Connection) -> None:
        version = self._version(connection)
        for script in MIGRATIONS[version:]:
            for statement in script.split(";"):
                if statement.strip():
                    connection.execute(statement)
        if version < len(MIGRATIONS):
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    def close(self) -> None:
        with self._lock, self._watching:
            self._closed = True
            for connection in (self._watch, self._connection):
                if connection is not None:
                    connection.close()

    # The contract

    def sessions(self) -> Sequence[SessionInfo]:
        query = """
            SELECT s.name, s.position, s.revision, substr(g.times, 1, 8), substr(g.times, -8),
                   length(g.positions) / 8, length(g.data)
            FROM session s JOIN segment g ON g.session = s.id ORDER BY s.id, g.last
        """
        found: dict[str, SessionInfo] = {}
        for stored, position, revision, first, last, count, size in self._fetched(query):
            if not count:
                continue
            name, began, ended = _name(stored), _time(first), _time(last)
            known = found.get(name)
            if known is not None:
                began, count, size = known.created_at, known.records + count, known.size + size
            found[name] = SessionInfo(name, position, count, size, began, ended, revision)
        return sorted(found.values(), key=lambda one: one.updated_at, reverse=True)

    def verify(self) -> Verified:
        faults = [f"the file: {row[0]}" for row in self._fetched("PRAGMA integrity_check") if row[0] != "ok"]
        names = [_name(stored) for (stored,) in self._fetched("SELECT name FROM session ORDER BY id")]
        records, found = self._checked(names)
        faults += found
        with self._lock, self._guarded():
            erasure: Erasure = "pending" if self._waiting(self._connection) else "none"
        return Verified(len(names), records, tuple(faults), erasure)

    def changes(self) -> object:
        """A connection of its own, so that an event loop that asks does not wait for a commit."""
        with self._watching, self._guarded():
            if self._closed:
                raise Unavailable(self.where, "the journal is closed")
            if self._watch is None:
                self._watch = self._connected()
            return self._watch.execute("PRAGMA data_version").fetchone()[0]

    # What an engine does

    def _head(self, session: str) -> int:
        rows = self._fetched("SELECT position FROM session WHERE name = ?", _key(session))
        return rows[0][0] if rows else 0

    def _read(self, session: str, after: int, limit: int) -> Sequence[Record]:
        records: list[Record] = []
        segments = self._segments(session, after, limit)
        if not segments and after < self._head(session):
            segments = self._segments(session, after, limit)  # appended since, or missing
            if not segments:
                raise Damaged(self.where, session, after + 1, self._head(session))
        for segment in segments:
            try:
                if segment.after > after:
                    raise Damaged(self.where, session, after + 1, segment.after)
                records += (record for record in segment.records(self.where, session, after) if record.position > after)
            except Damaged:
                if not records:
                    raise
                break  # what can be read comes first, the damage with the next page
            after = segment.last
        return records

    def _segments(self, session: str, after: int, limit: int) -> list[_Segment]:
        """Read the first segments after a position: with ``limit`` records, or the bytes that may be in one."""
        query = f"""
            SELECT {_Segment.COLUMNS} FROM segment
            WHERE session = (SELECT id FROM session WHERE name = ?) AND last > ? ORDER BY last
        """
        segments: list[_Segment] = []
        count = size = 0
        with self._lock, self._guarded():
            cursor = self._connection.execute(query, (_key(session), after))
            try:
                for row in cursor:
                    segments.append(_Segment(*row))
                    count += len(segments[-1].forms)
                    size += len(segments[-1].data)
                    if count >= limit or size >= SEGMENT_BYTES:
                        break
            except sqlite3.DatabaseError as error:
                if _code(error) != sqlite3.SQLITE_CORRUPT:
                    raise
                if not segments:
                    raise self._unreadable(session, after) from None
            finally:
                cursor.close()  # the snapshot goes with it
        return segments

    def _unreadable(self, session: str, after: int) -> Damaged:
        """Say how far it reaches that SQLite itself cannot read the next segment."""
        query = "SELECT last FROM segment WHERE session = (SELECT id FROM session WHERE name = ?) AND last > ? LIMIT 1"
        try:
            last = self._connection.execute(query, (_key(session), after)).fetchone()[0]
        except (sqlite3.DatabaseError, TypeError):
            last = max(self._head(session), after + 1)
        return Damaged(self.where, session, after + 1, last)

    def _records_at(self, session: str, positions: Iterable[int]) -> Iterator[Record]:
        wanted = sorted(set(positions))
        chosen, after = frozenset(wanted), wanted[0] - 1
        while after < wanted[-1]:
            try:
                segments = self._segments(session, after, 8 * SEGMENT)
                if not segments:
                    return
                for segment in segments:
                    if not chosen.isdisjoint(segment.places):
                        yield from segment.records(self.where, session, after, chosen)
                    after = segment.last
            except Damaged as damage:  # nothing can be taken out of what cannot be read; verify tells
                after = damage.last

    def _append(
        self, session: str, expected: int, news: Sequence[New], rewritten: Mapping[int, bytes]
    ) -> tuple[Sequence[int], Erasure]:
        with self._transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO session (name) VALUES (?)", (_key(session),))
            query = "SELECT id, position, generation FROM session WHERE name = ?"
            key, head, generation = connection.execute(query, (_key(session),)).fetchone()
            if head != expected:
                raise PositionTaken(session, expected=expected, found=head)
            if expected and _generation(key, generation) != self._known[session].generation:
                raise Stale
            start = head + 1
            for group in _grouped(news):
                _Segment.new(start, group).insert(connection, key, self._local)
                start += len(group)
            connection.execute("UPDATE session SET position = ? WHERE id = ?", (start - 1, key))
            if rewritten:
                self._rewrite_in(connection, key, rewritten, {}, frozenset())
        return range(head + 1, start), self._erased(bool(rewritten))

    def _rewrite(self, session: str, rewritten: Mapping[int, tuple[bytes, Form]], removed: Iterable[int]) -> Erasure:
        known = self._known[session]
        with self._transaction() as connection:
            query = "SELECT id, position, generation FROM session WHERE name = ?"
            row = connection.execute(query, (_key(session),)).fetchone()
            if row is None or row[1] != known.position or _generation(row[0], row[2]) != known.generation:
                raise Stale
            raws = {position: raw for position, (raw, _) in rewritten.items()}
            forms: dict[int, Form] = {position: form for position, (_, form) in rewritten.items()}
            self._rewrite_in(connection, row[0], raws, forms, frozenset(removed))
            self._merge_in(connection, row[0])
            connection.execute("UPDATE session SET generation = generation + 1 WHERE id = ?", (row[0],))
        return self._erased(True)

    def _rewrite_in(
        self,
        connection: sqlite3.Connection,
        key: int,
        rewritten: Mapping[int, bytes],
        forms: Mapping[int, Form],
        removed: frozenset[int],
    ) -> None:
        """Write the segments anew that hold these positions. Records whose form is not given are ``rewritten`` ones."""
        touched = rewritten.keys() | removed
        query = f"SELECT {_Segment.COLUMNS} FROM segment WHERE session = ? AND last >= ? ORDER BY last LIMIT 1"
        last, highest = min(touched), max(touched)
        while last <= highest:
            row = self._row(connection, query, key, last)
            if row is None:
                break
            segment = _Segment(*row)
            if segment.sound and not touched.isdisjoint(segment.places):
                connection.execute("DELETE FROM segment WHERE session = ? AND last = ?", (key, segment.last))
                segment.changed(rewritten, forms, removed).insert(connection, key, self._local)
            last = segment.last + 1
        connection.execute("UPDATE erasure SET asked = asked + 1")

    def _row(self, connection: sqlite3.Connection, query: str, key: int, last: int) -> Any:
        """Give the next segment's row, passing over those that SQLite cannot read."""
        while True:
            try:
                return connection.execute(query, (key, last)).fetchone()
            except sqlite3.DatabaseError as error:
                if _code(error) != sqlite3.SQLITE_CORRUPT:
                    raise
                short = "SELECT last FROM segment WHERE session = ? AND last >= ? ORDER BY last LIMIT 1"
                last = connection.execute(short, (key, last)).fetchone()[0] + 1

    def _merge_in(self, connection: sqlite3.Connection, key: int) -> None:
        """Let neighbouring small segments be one."""
        query = f"SELECT {_Segment.COLUMNS} FROM segment WHERE session = ? AND last >= ? ORDER BY last LIMIT 1"
        run: list[_Segment] = []
        last = 0
        while True:
            row = self._row(connection, query, key, last)
            segment = None if row is None else _Segment(*row)
            if run and (segment is None or not segment.follows(run)):
                if len(run) > 1:
                    for one in run:
                        connection.execute("DELETE FROM segment WHERE session = ? AND last = ?", (key, one.last))
                    _Segment.joined(run).insert(connection, key, self._local)
                run = []
            if segment is None:
                return
            last = segment.last + 1
            if segment.sound:
                run.append(segment)

    def _generation(self, session: str) -> int:
        rows = self._fetched("SELECT id, generation FROM session WHERE name = ?", _key(session))
        return _generation(*rows[0]) if rows else 0

    def _delete(self, session: str) -> Erasure:
        with self._transaction() as connection:
            row = connection.execute("SELECT id FROM session WHERE name = ?", (_key(session),)).fetchone()
            if row is None:
                return "none"
            for statement in ("segment WHERE session", "redaction WHERE session", "session WHERE id"):
                connection.execute(f"DELETE FROM {statement} = ?", row)
            connection.execute("UPDATE erasure SET asked = asked + 1")
        return self._erased(True)

    def _remember_redaction(self, session: str, kind: str, id: str) -> None:
        with self._transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO session (name) VALUES (?)", (_key(session),))
            connection.execute(
                "INSERT OR IGNORE INTO redaction SELECT id, ?, ? FROM session WHERE name = ?",
                (kind, _key(id), _key(session)),
            )

    def _redactions(self, session: str) -> Iterable[tuple[str, str]]:
        query = "SELECT kind, entity FROM redaction WHERE session = (SELECT id FROM session WHERE name = ?)"
        return [(kind, _name(entity)) for kind, entity in self._fetched(query, _key(session))]

    def _set_revision(self, session: str, revision: str) -> None:
        with self._transaction() as connection:
            connection.execute("INSERT OR IGNORE INTO session (name) VALUES (?)", (_key(session),))
            connection.execute("UPDATE session SET revision = ? WHERE name = ?", (revision, _key(session)))

    def _revision(self, session: str) -> str:
        rows = self._fetched("SELECT revision FROM session WHERE name = ?", _key(session))
        return rows[0][0] if rows else "rfd"

    # Erasing

    def _erased(self, ours: bool) -> Erasure:
        """Finish the erasures that are asked for: this commit's (``ours``), or one that waits.

        Only when the log is moved into the file and cut to nothing are the old pages gone. A crash before that is
        mended by the next commit of any process, or the next opening.
        """
        waited = self._pending
        with self._lock, self._guarded():
            if not self._finished(self._connection):
                return "pending"
        return "done" if ours or waited else "none"

    def _finished(self, connection: sqlite3.Connection) -> bool:
        """Cut the log if there is an erasure to finish, and say whether none is left."""
        asked, done = connection.execute("SELECT asked, done FROM erasure").fetchone()
        if asked <= max(done, self._cut):
            self._pending = False
            return True
        connection.execute(f"PRAGMA busy_timeout = {0 if self._pending else int(min(self._busy, PATIENCE) * 1000)}")
        try:
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.Error:  # the disk is full, say: what was committed is so all the same
            busy = 1
        finally:
            connection.execute(f"PRAGMA busy_timeout = {int(self._busy * 1000)}")
        self._pending = bool(busy)
        if not busy:
            self._cut = asked  # noted in the file by the next commit, for nothing
        return not busy

    def _waiting(self, connection: sqlite3.Connection) -> bool:
        """Whether the log holds what was to be erased."""
        asked, done = connection.execute("SELECT asked, done FROM erasure").fetchone()
        if asked <= max(done, self._cut):
            return False
        try:
            size = self._beside("-wal").stat().st_size
        except FileNotFoundError:
            size = 0
        return size > 0 and (self._read_only or not self._finished(connection))

    # SQLite

    def _fetched(self, query: str, *values: Any) -> list[Any]:
        """Read whole: no snapshot is held between two fetches."""
        with self._lock, self._guarded():
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection, None, None]:
        with self._lock, self._guarded():
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                if self._cut:
                    connection.execute("UPDATE erasure SET done = ? WHERE done < ?", (self._cut, self._cut))
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _guarded(self) -> Generator[None, None, None]:
        """Say in one sentence what SQLite or the system refused."""
        try:
            yield
        except sqlite3.Error as error:
            reason = "the journal is closed" if self._closed else _REASONS.get(_code(error))
            raise Unavailable(self.where, reason or f"SQLite refused ({type(error).__name__})") from None
        except OverflowError:
            raise Unavailable(self.where, _REASONS[sqlite3.SQLITE_TOOBIG]) from None
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
    sqlite3.SQLITE_TOOBIG: "the record is too big for SQLite",
}


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _key(name: str) -> str | bytes:
    """Give a name as it is stored: one with half a surrogate pair, which SQLite's texts cannot hold, as bytes."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return name.encode("utf-8", "surrogatepass")
    return name


def _name(stored: str | bytes) -> str:
    return stored if isinstance(stored, str) else stored.decode("utf-8", "surrogatepass")


def _generation(key: int, generation: int) -> int:
    return key * 1_000_000 + generation


def _time(packed: Any) -> float:
    """Give a time, or 0 for bytes that are damaged."""
    return array("d", packed)[0] if isinstance(packed, bytes) and len(packed) == 8 else 0.0


class _Segment(Struct):
    """One row: records of one origin, their positions, times, forms and lengths beside their joined bytes.

    It stands for all positions behind ``after`` up to ``last``, those included that compaction took away: so a row that
    is missing is noticed.
    """

    COLUMNS = "last, after, origin, checksum, positions, times, forms, lengths, data"

    last: int
    after: int
    origin: Origin
    checksum: int
    positions: bytes
    times: bytes
    forms: bytes
    lengths: bytes
    data: bytes

    @classmethod
    def new(cls, start: int, news: Sequence[New]) -> _Segment:
        """Make the segment of records that are to be stored from a position on."""
        raws = [new.raw for new in news]
        positions = array("q", range(start, start + len(news)))
        times = array("d", [new.received_at for new in news])
        forms = bytes([FORMS.index(new.form) for new in news])
        return cls.of(
            positions[-1],
            start - 1,
            news[0].origin,
            positions,
            times,
            forms,
            array("I", map(len, raws)),
            b"".join(raws),
        )

    @classmethod
    def of(
        cls,
        last: int,
        after: int,
        origin: Origin,
        positions: array[int],
        times: array[float],
        forms: bytes,
        lengths: array[int],
        data: bytes,
    ) -> _Segment:
        packed = positions.tobytes(), times.tobytes(), forms, lengths.tobytes(), data
        segment = cls(last, after, origin, 0, *packed)
        segment.checksum = segment.computed()
        return segment

    @classmethod
    def joined(cls, run: Sequence[_Segment]) -> _Segment:
        """Make one segment of several, which are sound."""
        parts = [
            b"".join(getattr(one, name) for one in run) for name in ("positions", "times", "forms", "lengths", "data")
        ]
        segment = cls(run[-1].last, run[0].after, run[0].origin, 0, *parts)
        segment.checksum = segment.computed()
        return segment

    def computed(self) -> int:
        value = zlib.crc32(f"{self.after} {self.last} {self.origin}".encode())
        for part in (self.positions, self.times, self.forms, self.lengths, self.data):
            value = zlib.crc32(part, value)
        return value

    @property
    def sound(self) -> bool:
        """Whether the row is what was put in."""
        parts = (self.positions, self.times, self.forms, self.lengths, self.data)
        # SQLite holds to no type: another program may have put anything there.
        return all(isinstance(part, bytes) for part in parts) and self.checksum == self.computed()  # pyright: ignore[reportUnnecessaryIsInstance]

    @property
    def places(self) -> array[int]:
        """The positions, or those of them that can be made out."""
        return array("q", bytes(self.positions)[: len(self.positions) // 8 * 8])

    def follows(self, run: Sequence[_Segment]) -> bool:
        """Whether this may be joined to the segments of a run."""
        return (
            self.sound
            and self.origin == run[0].origin
            and self.after == run[-1].last
            and sum(len(one.forms) for one in run) + len(self.forms) <= SEGMENT
            and sum(len(one.data) for one in run) + len(self.data) <= SEGMENT_BYTES
        )

    def pieces(self) -> list[bytes]:
        pieces: list[bytes] = []
        start = 0
        for length in array("I", self.lengths):
            pieces.append(self.data[start : start + length])
            start += length
        return pieces

    def records(self, where: str, session: str, after: int, chosen: frozenset[int] | None = None) -> list[Record]:
        """Give the records, or the chosen ones. Raises :class:`Damaged` when they are not what was stored."""
        if not self.sound:
            raise Damaged(where, session, after + 1, self.last)
        origin = self.origin
        return [
            Record(session, position, at, origin, raw, FORMS[form])
            for position, at, form, raw in zip(
                self.places, array("d", self.times), self.forms, self.pieces(), strict=True
            )
            if chosen is None or position in chosen
        ]

    def changed(self, rewritten: Mapping[int, bytes], forms: Mapping[int, Form], removed: frozenset[int]) -> _Segment:
        """Give the segment with other bytes for some positions and without others."""
        positions, times, numbers, raws = self.places, array("d", self.times), self.forms, self.pieces()
        if not removed.isdisjoint(positions):
            kept = [place for place, position in enumerate(positions) if position not in removed]
            positions = array("q", [positions[place] for place in kept])
            times = array("d", [times[place] for place in kept])
            numbers = bytes([numbers[place] for place in kept])
            raws = [raws[place] for place in kept]
        numbers = bytes(
            [
                FORMS.index(forms.get(position, "rewritten")) if position in rewritten else number
                for position, number in zip(positions, numbers, strict=True)
            ]
        )
        raws = [rewritten.get(position, raw) for position, raw in zip(positions, raws, strict=True)]
        lengths = array("I", map(len, raws))
        return _Segment.of(self.last, self.after, self.origin, positions, times, numbers, lengths, b"".join(raws))

    def insert(self, connection: sqlite3.Connection, key: int, local: int) -> None:
        """Store the row with a gap before its data that takes up what SQLite may keep in the page."""
        before = len(self.positions) + len(self.times) + len(self.forms) + len(self.lengths)
        connection.execute(
            "INSERT INTO segment (session, last, after, origin, checksum, positions, times, forms, lengths, gap, data)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                key,
                self.last,
                self.after,
                self.origin,
                self.checksum,
                self.positions,
                self.times,
                self.forms,
                self.lengths,
                bytes(max(0, local - before)),
                self.data,
            ),
        )


def _grouped(news: Sequence[New]) -> Iterator[Sequence[New]]:
    """Give runs of one origin, none longer or larger than a segment."""
    if (
        len(news) <= SEGMENT
        and len({new.origin for new in news}) == 1
        and sum([len(new.raw) for new in news]) <= SEGMENT_BYTES
    ):
        yield news
        return
    start = size = 0
    for index, new in enumerate(news):
        full = index - start == SEGMENT or size + len(new.raw) > SEGMENT_BYTES
        if index > start and (full or new.origin != news[start].origin):
            yield news[start:index]
            start, size = index, 0
        size += len(new.raw)
    yield news[start:]
