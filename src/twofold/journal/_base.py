"""The contract of a journal, and everything about it that does not depend on where the bytes lie.

An engine stores, reads and rewrites records. This class says which: it checks updates before they are stored, knows
what an update supersedes (J-3), honours redactions (J-6), folds (P-5) and compacts (J-4).
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Final, Self

from msgspec import Struct

from twofold.exceptions import Malformed, ParseError, TwofoldError
from twofold.fold import Revision, Transcript, replay
from twofold.journal._compaction import compaction
from twofold.journal._folding import BRACKETS, Folding
from twofold.journal._follow import following
from twofold.journal._records import (
    Appended,
    Damaged,
    EntityKind,
    Erasure,
    Form,
    Loaded,
    Origin,
    PositionTaken,
    Record,
    SessionInfo,
    Verified,
)
from twofold.journal._supersede import Eraser, Held, Index, Slot, slots, without
from twofold.jsonrpc import dumps
from twofold.wire import v2

__all__ = ["PAGE", "Journal", "New", "Stale"]

PAGE: Final = 512
"""Records read at a time: between two pages a reader holds nothing of the storage."""


class New(Struct, frozen=True, gc=False):
    """A record about to be stored; its position is the engine's to give."""

    raw: bytes
    origin: Origin
    received_at: float
    form: Form = "received"


class Stale(Exception):
    """What an engine raises when another process changed a session since it was last looked at: look again."""


class _Known:
    """What this process knows of a session's records up to ``position``."""

    __slots__ = ("generation", "index", "position", "replay")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.position = 0
        self.index = Index()
        self.replay: Index | None = None  # of the replay under way

    @property
    def open(self) -> Index:
        """The index that new records go into."""
        return self.index if self.replay is None else self.replay

    def note(self, record: Record) -> None:
        """Note a record that is stored already."""
        self.position = record.position
        if record.origin == "replay":
            superseded = self.turn(record.raw)
            self.index.keep(superseded)
            return
        try:
            update = v2.decode_update(record.raw)
        except (Malformed, ParseError):  # sound bytes that are no update: a gap wherever they are shown
            return
        self.open.keep(self.open.add(record.position, update))  # what is superseded and still there was kept

    def turn(self, bracket: bytes) -> Mapping[Slot, Held]:
        """Go into a replay or out of it, and give what that supersedes. One that is begun anew has failed before."""
        fresh, self.replay = self.replay, None
        superseded: Mapping[Slot, Held] = {}
        if fresh is not None and bracket == BRACKETS["end"]:
            superseded = self.index.merge(fresh)
        elif fresh is not None:
            self.index.absorb(fresh)
        if bracket == BRACKETS["begin"]:
            self.replay = Index()
        return superseded


class Journal(ABC):
    """Sessions on storage. Use it from any thread; close it when done (it is a context manager).

    Every method raises :class:`Unavailable` when the storage cannot be used and :class:`Damaged` when what it holds is
    not what was stored.
    """

    gapless: ClassVar[bool] = True
    """Whether positions count on by one as records are appended. (After compaction there are gaps everywhere.)"""

    def __init__(self, where: str, *, keep_superseded: bool = False) -> None:
        self.where = where
        """The storage's name, for messages."""
        self.keep_superseded = keep_superseded
        self._known: dict[str, _Known] = {}
        self._lock = threading.RLock()
        self._listeners: set[Callable[[str], object]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Writing

    def append(
        self,
        session: str,
        expected_position: int,
        *raws: bytes,
        origin: Origin = "agent",
        received_at: float | None = None,
    ) -> Appended:
        """Store updates after ``expected_position`` (0 begins a session), all or none, durably (J-1).

        What they supersede is erased before this returns, unless a foreign reader is in the way (J-3). Raises
        :class:`PositionTaken` when the session is at another position, and :class:`~twofold.exceptions.Malformed` or
        :class:`~twofold.exceptions.ParseError` for bytes that are no v2 update: then nothing is stored.
        """
        if origin == "replay":
            raise ValueError("the records around a replay are made by begin_replay and end_replay")
        updates = [v2.decode_update(raw) for raw in raws]
        for update in updates:
            if type(update) in _TERMINALS:
                Transcript().apply(update)  # raises when its output is no base64: it could not be folded
        now = time.time() if received_at is None else received_at
        with self._lock:
            while True:
                known = self._caught_up(session, expected_position)
                if not raws:
                    return Appended(expected_position)
                news = [New(raw, origin, now) for raw in raws]
                for kind, id in self._redactions(session):
                    for number, update in enumerate(updates):
                        names = {name for entity, its_id, name in slots(update) if (entity, its_id) == (kind, id)}
                        if names:
                            stripped = without(news[number].raw, names)
                            news[number] = New(stripped, origin, now, "rewritten")
                            updates[number] = v2.decode_update(stripped)
                try:
                    return self._store(session, known, news, updates)
                except Stale:
                    continue

    def begin_replay(self, session: str, expected_position: int) -> Appended:
        """Note that the agent begins to replay the session: what is appended now is the replay (P-5)."""
        return self._bracket(session, expected_position, "begin")

    def end_replay(self, session: str, expected_position: int, *, ok: bool = True) -> Appended:
        """Note that the replay has ended. If it succeeded it takes the place of what was there before."""
        return self._bracket(session, expected_position, "end" if ok else "failed")

    def redact(self, session: str, kind: EntityKind, id: str) -> Appended:
        """Erase what a message, tool call or terminal says, for good: what comes later for it is not stored (J-6).

        The redaction is a record itself, so that followers see it: an update that clears the thing.
        """
        clear = dumps(_cleared(kind, id))
        update = v2.decode_update(clear)
        with self._lock:
            self._remember_redaction(session, kind, id)
            while True:
                known = self._caught_up(session, None)
                held = known.index.of(kind, id)
                if known.replay is not None:
                    for slot, positions in known.replay.of(kind, id).items():
                        held[slot] = held.get(slot, array("q")) + positions
                try:
                    done = self._store(
                        session, known, [New(clear, "operator", time.time())], [update], also=held, forced=True
                    )
                except (PositionTaken, Stale):
                    continue  # somebody was quicker
                for index in {known.index, known.open}:
                    index.forget_kept(kind, id)
                return done

    # Reading

    def read(self, session: str, after: int = 0) -> Iterator[Record]:
        """Give the records after a position, in order, as they are now. Raises :class:`Damaged` at one that is."""
        while page := self.page(session, after):
            yield from page
            after = page[-1].position

    def page(self, session: str, after: int = 0) -> Sequence[Record]:
        """Give the first records after a position, at most :data:`PAGE` of them."""
        with self._lock:
            return self._read(session, after, PAGE)

    def follow(self, session: str, after: int = 0) -> AsyncGenerator[Record, None]:
        """Give the records after a position and then, live, those that come: each once, in order, without end (J-5).

        A slow reader holds back nobody: it reads from the storage at its own pace and holds one page in memory.
        """
        return following(self, session, after)

    def revision(self, session: str) -> Revision:
        """Give the revision by whose rules a session is folded."""
        with self._lock:
            return Revision(self._revision(session))

    def position(self, session: str) -> int:
        """Give the last position of a session, 0 when there is none of that name."""
        with self._lock:
            return self._head(session)

    def load(self, session: str, *, revision: Revision | str | None = None) -> Loaded:
        """Fold a session; damaged records are gaps in it. ``revision`` overrides the one that is stored with it."""
        folding = Folding(session, Revision(revision or self._revision(session)))
        for record in self._tolerant(session, 0):
            folding.add(record)
        return folding.result()

    def replay(self, session: str, *, compact: bool = False) -> Iterator[v2.SessionUpdate]:
        """Give the updates that rebuild a session (P-1), for an agent that is asked to replay it."""
        return replay(self.load(session).transcript, compact=compact)

    # Looking after it

    def compact(self, session: str) -> int:
        """Let one record stand for each thing that is finished, and give how many records that saved.

        The folded state stays the same, exactly; order and followers are not disturbed (J-4, J-5).
        """
        with self._lock:
            while True:
                known = self._caught_up(session, None)
                loaded = self.load(session)
                if loaded.replaying or loaded.gaps or loaded.position != known.position:
                    return 0
                plan = compaction(loaded, self.read(session), known.index.kept if self.keep_superseded else ())
                if not plan.rewritten:
                    return 0
                try:
                    self._rewrite(session, plan.rewritten, plan.removed)
                except Stale:
                    continue
                finally:
                    self._known.pop(session, None)
                return len(plan.removed)

    def retain(self, *, max_age: float | None = None, max_bytes: int | None = None) -> Sequence[str]:
        """Delete sessions not heard of for ``max_age`` seconds, then the oldest until ``max_bytes`` hold; name them."""
        sessions = sorted(self.sessions(), key=lambda one: one.updated_at)
        total = sum(one.size for one in sessions)
        deleted: list[str] = []
        for one in sessions:
            too_old = max_age is not None and time.time() - one.updated_at > max_age
            too_big = max_bytes is not None and total > max_bytes
            if too_old or too_big:
                self.delete(one.session)
                deleted.append(one.session)
                total -= one.size
        return deleted

    def delete(self, session: str) -> Erasure:
        """Erase a session and everything known of it."""
        with self._lock:
            self._known.pop(session, None)
            erasure = self._delete(session)
        self._tell(session)
        return erasure

    def set_revision(self, session: str, revision: Revision | str) -> None:
        """Store by which revision's rules a session is folded (R-1); it may have no records yet."""
        with self._lock:
            self._set_revision(session, Revision(revision).value)

    @abstractmethod
    def sessions(self) -> Sequence[SessionInfo]:
        """Give all sessions, the one heard of last first."""

    @abstractmethod
    def verify(self) -> Verified:
        """Read everything and say what is wrong with it."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the storage. Appends that returned are durable already."""

    # What an engine does

    @abstractmethod
    def _head(self, session: str) -> int: ...

    @abstractmethod
    def _read(self, session: str, after: int, limit: int) -> Sequence[Record]: ...

    @abstractmethod
    def _append(
        self, session: str, expected: int, news: Sequence[New], rewritten: Mapping[int, bytes]
    ) -> tuple[Sequence[int], Erasure]:
        """Store ``news`` and other bytes for earlier records, in one step, and erase theirs. Give the positions."""

    @abstractmethod
    def _rewrite(
        self, session: str, rewritten: Mapping[int, tuple[bytes, Form]], removed: Iterable[int]
    ) -> Erasure: ...

    @abstractmethod
    def _generation(self, session: str) -> int:
        """Give a number that every compaction and deletion of the session changes."""

    @abstractmethod
    def _delete(self, session: str) -> Erasure: ...

    @abstractmethod
    def _remember_redaction(self, session: str, kind: str, id: str) -> None: ...

    @abstractmethod
    def _redactions(self, session: str) -> Iterable[tuple[str, str]]: ...

    @abstractmethod
    def _set_revision(self, session: str, revision: str) -> None: ...

    @abstractmethod
    def _revision(self, session: str) -> str: ...

    def _records_at(self, session: str, positions: Iterable[int]) -> Iterator[Record]:
        """Give the records at these positions that are still there. Engines may know a shorter way."""
        wanted = set(positions)
        for record in self._tolerant(session, min(wanted) - 1):
            if isinstance(record, Record) and record.position in wanted:
                yield record

    # Listening, for followers in this process

    def listen(self, callback: Callable[[str], object]) -> Callable[[], None]:
        """Call ``callback`` with a session's name after each append to it by this object, in the appending thread."""
        self._listeners.add(callback)
        return lambda: self._listeners.discard(callback)

    def changes(self) -> object:
        """Give a value that is another one when some other process has changed the storage (``None``: not known)."""
        return None

    def _tell(self, session: str) -> None:
        for callback in list(self._listeners):
            callback(session)

    # How it is done

    def _tolerant(self, session: str, after: int) -> Iterator[Record | Damaged]:
        """Give the records after a position, and a :class:`Damaged` in the place of those that cannot be read."""
        while True:
            try:
                for record in self.read(session, after):
                    yield record
                    after = record.position
            except Damaged as damage:
                yield damage
                after = damage.last
            else:
                return

    def _checked(self, sessions: Iterable[str]) -> tuple[int, list[str]]:
        """Read whole sessions: how many records can be read, and what is wrong with them and the others."""
        records, faults = 0, list[str]()
        for name in sessions:
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
        return records, faults

    def _caught_up(self, session: str, expected: int | None) -> _Known:
        """Know all records of a session; they may be another process's."""
        head = self._head(session)
        if expected is not None and head != expected:
            raise PositionTaken(session, expected=expected, found=head)
        generation = self._generation(session)
        known = self._known.get(session)
        if known is None or known.generation != generation or known.position > head:
            known = self._known[session] = _Known(generation)
        if known.position != head:
            for record in self._tolerant(session, known.position):
                if isinstance(record, Record):
                    known.note(record)
            known.position = head
        return known

    def _bracket(self, session: str, expected_position: int, word: str) -> Appended:
        with self._lock:
            while True:
                known = self._caught_up(session, expected_position)
                if word != "begin" and known.replay is None:
                    raise ValueError("no replay is under way")
                bracket = New(BRACKETS[word], "replay", time.time())
                superseded = known.turn(bracket.raw)
                try:
                    return self._store(session, known, [bracket], [None], also=superseded)
                except Stale:
                    continue

    def _store(
        self,
        session: str,
        known: _Known,
        news: Sequence[New],
        updates: Sequence[v2.SessionUpdate | None],
        *,
        also: Mapping[Slot, Held] | None = None,
        forced: bool = False,
    ) -> Appended:
        """Store records with everything that they supersede erased, earlier ones of the same batch included."""
        superseded = dict(also or {})
        stored = list(news)
        index, expected, count = known.open, known.position, len(news)
        try:
            for number, update in enumerate(updates):
                if update is None:
                    continue
                found = index.add(number - count, update)
                for slot in found:
                    superseded[slot] = superseded.get(slot, array("q")) + found[slot]
            if self.keep_superseded and not forced:
                index.keep(superseded)
                superseded.clear()
            names: dict[int, frozenset[str]] = {}
            for (_, _, name), positions in superseded.items():
                one = frozenset((name,))
                for position in positions:
                    names[position] = names[position] | one if position in names else one
            erase = Eraser()
            rewritten: dict[int, bytes] = {}
            for position in [position for position in names if position < 0]:
                old = stored[position]
                stored[position] = New(erase(old.raw, names.pop(position)), old.origin, old.received_at, "rewritten")
            for record in self._records_at(session, names) if names else ():
                left = erase(record.raw, names[record.position])
                if left != record.raw:
                    rewritten[record.position] = left
            places, erasure = self._append(session, expected, stored, rewritten)
        except BaseException:
            self._known.pop(session, None)  # what was noted may not be so
            raise
        index.settle(places)
        known.position = places[-1]
        if not expected:
            known.generation = self._generation(session)  # the session has only now begun
        self._tell(session)
        return Appended(places[-1], erasure, tuple(places))


_TERMINALS: Final = frozenset({v2.TerminalUpdate, v2.TerminalOutputChunk})


def _cleared(kind: EntityKind, id: str) -> dict[str, Any]:
    """Give the update that takes back all that a thing says."""
    match kind:
        case "tool_call":
            cleared = {"content": None, "rawInput": None, "rawOutput": None}
            return {"sessionUpdate": "tool_call_update", "toolCallId": id, **cleared}
        case "terminal":
            return {"sessionUpdate": "terminal_update", "terminalId": id, "output": None}
        case _:
            return {"sessionUpdate": kind, "messageId": id, "content": None}
