"""A journal in a NATS JetStream stream, for where one machine is not enough: any node appends, reads and follows.

``NATSJournal("nats://HOST:PORT/STREAM")``; install ``twofold[nats]``. The server is nats-server 2.12 or newer, for
its atomic batches. The stream is made as the promises need it, and one that is there with other settings is refused.

What is in the stream
    Each session has a few subjects, ``twofold.STREAM.SESSION.*``. ``r`` holds its records as they were appended, one
    message each, and their sequences are their positions. A message of a stream cannot be changed: what is left of a
    record that content was erased from goes to ``w``, with the position that it stands for, and the original is
    deleted with erasure: the server overwrites its bytes in the stream's files. ``c`` holds what else is known of the
    session: its name, revision, redactions, and which records compaction took away. Whatever is larger than a message
    may be is cut; the pieces are in ``p``, right before it.

One step
    What an append or a compaction writes is one atomic batch, and the server stores it only if the session's last
    message still is the one that the writer knows. So a taken position is an error and never a race, between nodes
    too.

Erasing survives crashes
    The batch that brings the reduced records also brings, in ``e``, the list of the messages to be deleted, which is
    taken out again when they are. Whoever opens the stream, or goes on writing to the session, finishes a list that
    was left.

What an acknowledged append means
    The server has written it to its files (with ``replicas``, a majority has): it survives a killed server. Against a
    power failure set ``sync_interval: always`` in the server's configuration; a stream has no setting for that.

What this engine cannot promise
    - A replicated stream's own log keeps erased bytes until the server's next snapshot of it. Mirrors, sources and
      backups keep them, and so may the file system's free blocks.
    - The server reads a block of its file and syncs the disk for each message that it erases. So replacing a message
      that came in a thousand chunks costs that a thousand times, and so does deleting a session of a thousand records.
    - A server that is not replicated puts a batch of several messages into a file of its own first. Where many small
      appends come, one update each is the quickest.
    - An append of more than :data:`STEP` updates is stored in several steps, see :class:`PartlyStored`.
    - The files are the server's: that only their owner reads them (J-8) is for its operator to see to.
    - A record that the server lost is missed, and is a gap; not so when it was the session's last.
"""

from __future__ import annotations

import asyncio
import base64
import bisect
import hashlib
import math
import re
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from twofold.journal._base import PAGE, Journal, New, Stale
from twofold.journal._follow import following
from twofold.journal._jetstream import (
    CLOSED,
    LARGEST_BATCH,
    NO_STREAM,
    PATIENCE,
    WRONG_LAST,
    Link,
    Message,
    Post,
    Refused,
    Unanswered,
)
from twofold.journal._records import (
    Appended,
    Damaged,
    EntityKind,
    Erasure,
    Form,
    Origin,
    PositionTaken,
    Record,
    SessionInfo,
    Unavailable,
    Verified,
)
from twofold.jsonrpc import dumps, loads
from twofold.wire import v2

__all__ = ["NATSJournal", "PartlyStored"]

STEP: Final = 800
"""Updates stored in one step, at most: a batch of the server's has room for 1000 messages."""

SEGMENT: Final = 256
"""Reduced records in one message, at most."""

SMALL: Final = 1024
"""Bytes up to which a reduced record is kept in memory rather than fetched when it is read."""

OLDEST: Final = (2, 12, 0)
LAG: Final = 0.01
"""Seconds to give a replica before it is asked again."""

FORMAT: Final = "1"


_ERASURES: Final[Sequence[Erasure]] = ("none", "done", "pending")  # the worse, the later


class PartlyStored(Unavailable):
    """A long append got only this far: it is stored up to ``position``, and nothing of the rest is."""

    def __init__(self, where: str, position: int, positions: tuple[int, ...], reason: str) -> None:
        self.position = position
        self.positions = positions
        super().__init__(where, f"{reason}; the append is stored up to position {position}")


class _State(Struct, frozen=True, array_like=True):
    """What is so of a session after a batch: a header of the batch's last message.

    A sequence that the batch itself gets is counted from its end: -1 is the last message's, -2 the one's before.
    """

    head: int = 0
    """The position of the last record."""
    floor: int = 0
    """What is at or below this sequence is deleted."""
    generation: int = 0
    rewrites: int = 0
    """The last message of reduced records."""
    control: int = 0
    count: int = 0
    """How many records were ever appended."""
    records: int = 0
    size: int = 0
    created: float = 0.0
    updated: float = 0.0

    def settled(self, last: int) -> _State:
        """Give this with the sequences that a batch ending at ``last`` got."""
        names = ("head", "floor", "rewrites", "control")
        relative = {name: last + 1 + getattr(self, name) for name in names if getattr(self, name) < 0}
        return msgspec.structs.replace(self, **relative) if relative else self


class _View(Struct, frozen=True):
    """A session at one moment: its last message and its state."""

    last: int
    state: _State

    @property
    def era(self) -> tuple[int, int]:
        """What reduced records are kept for: after it changes, all are read anew."""
        return self.state.floor, self.state.generation


class _Control(Struct, frozen=True):
    """What is known of a session beside its records."""

    session: str
    generation: int
    revision: str = "rfd"
    redactions: frozenset[tuple[str, str]] = frozenset()
    removed: tuple[tuple[int, int], ...] = ()
    """The records that compaction took away, as ranges of their numbers."""

    def packed(self) -> bytes:
        """Give this as JSON: names may have a lone surrogate in them, for which there is an escape (U-8)."""
        lists = {"redactions": sorted(map(list, self.redactions)), "removed": [list(one) for one in self.removed]}
        return dumps({"session": self.session, "generation": self.generation, "revision": self.revision, **lists})

    @classmethod
    def unpacked(cls, data: bytes) -> _Control:
        held: dict[str, Any] = loads(data)
        redactions = frozenset((str(kind), str(id)) for kind, id in held["redactions"])
        removed = tuple((int(first), int(last)) for first, last in held["removed"])
        return cls(held["session"], held["generation"], held["revision"], redactions, removed)


class _Entry(Struct, frozen=True, array_like=True, gc=False):
    """A record wherever it lies. ``number`` counts a session's records from 1, so that a lost one is missed."""

    position: int
    number: int
    received_at: float
    origin: Origin
    form: Form
    raw: bytes

    def record(self, session: str) -> Record:
        return Record(session, self.position, self.received_at, self.origin, self.raw, self.form)


class _Doomed(Struct):
    """The list of an erasure under way: sequences, or everything before the list itself."""

    sequences: list[int] = []
    all: bool = False


class NATSJournal(Journal):
    """Keeps sessions in the stream that ``url`` names; makes the stream, with ``replicas``, if it is not there.

    Several hosts may be named, with commas between. ``connect`` is passed on to ``nats.connect`` (credentials, TLS).
    ``patience`` is how many seconds to wait for an answer before giving up with :class:`Unavailable`. An append that
    raises it may have been stored all the same: look at the session's position.
    """

    gapless: ClassVar[bool] = False

    def __init__(
        self,
        url: str,
        *,
        keep_superseded: bool = False,
        create: bool = True,
        replicas: int = 1,
        patience: float = PATIENCE,
        connect: Mapping[str, Any] | None = None,
        report: Callable[[str], object] | None = None,
    ) -> None:
        where, servers, stream = _parsed(url)
        super().__init__(where, keep_superseded=keep_superseded)
        self._root = f"twofold.{stream}"
        self._views: dict[str, _View] = {}  # the writer's
        self._reading: dict[str, _View] = {}
        self._indexes: dict[str, _Index] = {}
        self._controls: dict[str, tuple[int, _Control]] = {}
        self._redacting: dict[str, tuple[str, str]] = {}
        self._read_to: dict[str, tuple[int, int]] = {}
        self._unfinished: set[str] = set()
        self._watched: dict[str, tuple[int, Callable[[], None]]] = {}
        self._index_lock = threading.RLock()
        self._watch_lock = threading.Lock()
        self._link = Link(where, servers, stream, connect or {}, patience)
        try:
            self._link.on_reconnect = self._woken
            self._open(create, replicas)
            finished = self._finish(f"{self._root}.*")
        except BaseException:
            self._link.close()
            raise
        if finished and report is not None:
            report(f"{where}: an erasure that a crash had interrupted is finished")

    # Opening

    def _open(self, create: bool, replicas: int) -> None:
        if self._link.version < OLDEST:
            version = ".".join(map(str, self._link.version))
            raise Unavailable(self.where, f"the server is nats-server {version}; atomic batches need 2.12 or newer")
        wanted = {
            "name": self._link.stream,
            "description": "A twofold journal",
            "subjects": [f"{self._root}.>"],
            "storage": "file",
            "retention": "limits",
            "discard": "new",
            "num_replicas": replicas,
            "allow_direct": True,
            "allow_atomic": True,
            "deny_delete": False,
            "deny_purge": False,
            "metadata": {"twofold": FORMAT},
        }
        try:
            config = self._asked("STREAM.INFO")["config"]
        except Refused as refused:
            if refused.code != NO_STREAM or not create:
                reason = "there is no such stream" if refused.code == NO_STREAM else _refusal(refused)
                raise Unavailable(self.where, reason) from None
            try:
                config = self._asked("STREAM.CREATE", wanted)["config"]
            except Refused as refused:
                raise Unavailable(self.where, f"the stream cannot be made: {_refusal(refused)}") from None
        self._replicas: int = config.get("num_replicas", 1)
        faults = list(self._faults(config))
        if faults:
            raise Unavailable(self.where, f"the stream breaks what a journal promises: {'; '.join(faults)}")

    def _faults(self, config: Mapping[str, Any]) -> Iterator[str]:
        """Say which settings of the stream must be others."""
        if config.get("metadata", {}).get("twofold") != FORMAT:
            yield "it was not made by twofold, or by a newer one (metadata)"
        must: Sequence[tuple[str, Any, Any]] = (
            ("subjects", [f"{self._root}.>"], None),
            ("storage", "file", None),
            ("retention", "limits", "limits"),
            ("max_age", 0, 0),
            ("max_msgs", -1, -1),
            ("max_bytes", -1, -1),
            ("max_msgs_per_subject", -1, -1),
            ("max_msg_size", -1, -1),
            ("allow_direct", True, False),
            ("allow_atomic", True, False),
            ("deny_delete", False, False),
            ("sealed", False, False),
            ("no_ack", False, False),
            ("persist_mode", "default", "default"),
            ("compression", "none", "none"),
            ("mirror", None, None),
            ("sources", None, None),
            ("republish", None, None),
            ("subject_transform", None, None),
        )
        for name, value, absent in must:
            if (config.get(name, absent) or absent) != value:
                yield f"{name} is not {'unset' if value is None else msgspec.json.encode(value).decode()}"

    def close(self) -> None:
        self._link.close()

    # The contract

    def append(
        self,
        session: str,
        expected_position: int,
        *raws: bytes,
        origin: Origin = "agent",
        received_at: float | None = None,
    ) -> Appended:
        """Do what :meth:`Journal.append` does; more than :data:`STEP` updates are stored in several steps.

        Raises :class:`PartlyStored` when a step fails that is not the first.
        """
        for raw in raws[STEP:]:  # refused before the first step is stored
            v2.decode_update(raw)
        done = Appended(expected_position)
        steps = list(self._steps(raws)) or [()]
        for number, step in enumerate(steps):
            try:
                appended = super().append(session, done.position, *step, origin=origin, received_at=received_at)
            except (Unavailable, PositionTaken) as error:
                if not number:
                    raise
                reason = error.reason if isinstance(error, Unavailable) else "somebody else appended meanwhile"
                raise PartlyStored(self.where, done.position, done.positions, reason) from None
            erasure = _ERASURES[max(_ERASURES.index(done.erasure), _ERASURES.index(appended.erasure))]
            done = Appended(appended.position, erasure, done.positions + appended.positions)
        return done

    def _steps(self, raws: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        start = messages = 0
        for place, raw in enumerate(raws):
            pieces = math.ceil(len(raw) / self._piece) or 1
            if place > start and messages + pieces > STEP:
                yield raws[start:place]
                start, messages = place, 0
            messages += pieces
        if raws:
            yield raws[start:]

    def redact(self, session: str, kind: EntityKind, id: str) -> Appended:
        with self._lock:
            try:
                return super().redact(session, kind, id)
            finally:
                self._redacting.pop(session, None)

    def page(self, session: str, after: int = 0) -> Sequence[Record]:
        return self._read(session, after, PAGE)  # without the lock: readers and writers share nothing

    async def follow(self, session: str, after: int = 0) -> AsyncGenerator[Record, None]:
        await asyncio.to_thread(self._watch, session)
        records = following(self, session, after)
        try:
            async for record in records:
                yield record
        finally:
            self._unwatch(session)
            await records.aclose()

    def changes(self) -> object:
        if self._link.closed:
            raise Unavailable(self.where, CLOSED)
        return None  # the server tells who follows

    def position(self, session: str) -> int:
        return self._look(session).state.head

    def sessions(self) -> Sequence[SessionInfo]:
        infos: list[SessionInfo] = []
        for control, state in self._all():
            if state.records:
                infos.append(
                    SessionInfo(
                        control.session,
                        state.head,
                        state.records,
                        state.size,
                        state.created,
                        state.updated,
                        control.revision,
                    )
                )
        return sorted(infos, key=lambda one: one.updated_at, reverse=True)

    def verify(self) -> Verified:
        faults = [f"the stream: {fault}" for fault in self._faults(self._answer("STREAM.INFO")["config"])]
        names = [control.session for control, _ in self._all()]
        records, found = self._checked(names)
        faults += found
        pending = self._link.last(f"{self._root}.*.e") is not None
        return Verified(len(names), records, tuple(faults), "pending" if pending else "none")

    def _all(self) -> Iterator[tuple[_Control, _State]]:
        """Give every session's control and state."""
        suffix, tokens = ".c", dict[str, None]()
        while True:
            request = {"subjects_filter": f"{self._root}.*.c", "offset": len(tokens)}
            found: dict[str, Any] = self._answer("STREAM.INFO", request)["state"].get("subjects") or {}
            fresh = [subject[len(self._root) + 1 : -len(suffix)] for subject in found]
            if not fresh or tokens.keys() >= set(fresh):
                break
            tokens.update(dict.fromkeys(fresh))
        for start in range(0, len(tokens), 100):
            some = list(tokens)[start : start + 100]
            filters = [f"{self._root}.{token}.{kind}" for token in some for kind in "rce"]
            last: dict[str, Message] = {}
            controls: dict[str, Message] = {}
            for message in self._link.last_of_each(filters):
                token = message.subject[len(self._root) + 1 : -len(suffix)]
                if token not in last or message.sequence > last[token].sequence:
                    last[token] = message
                if message.subject.endswith(suffix):
                    controls[token] = message
            for token, message in controls.items():
                view = self._viewed(last[token])
                if view.state.control:
                    yield _Control.unpacked(self._whole([message])[message.sequence]), view.state

    # Looking

    def _subject(self, session: str, kind: str | None = None) -> str:
        subject = f"{self._root}.{_token(session)}"
        return subject if kind is None else f"{subject}.{kind}"

    def _viewed(self, message: Message) -> _View:
        header = message.headers.get("Twofold-State")
        if header is None:
            raise Unavailable(
                self.where, f"there is a message that twofold did not write (sequence {message.sequence})"
            )
        return _View(message.sequence, msgspec.json.decode(header, type=_State).settled(message.sequence))

    def _look(self, session: str) -> _View:
        """See how the session stands, by the stream's leader."""
        message = self._link.last(self._subject(session, ">"))
        return _View(0, _State()) if message is None else self._viewed(message)

    def _control(self, session: str, view: _View) -> _Control | None:
        """Give what is known of a session, at least as new as the view."""
        if not view.state.control:
            return None
        held = self._controls.get(session)
        if held is None or held[0] < view.state.control:
            message = self._link.last(self._subject(session, "c"))
            if message is None:
                return None
            held = message.sequence, _Control.unpacked(self._whole([message])[message.sequence])
            self._controls[session] = held
        return held[1]

    def _caught_up(self, session: str, expected: int | None) -> Any:
        held = self._views.get(session)
        if expected is None or held is None or held.state.head != expected:
            view = self._look(session)
            foreign = held is None or held.last != view.last
            if foreign and view.last and self._finish(self._subject(session)):
                view = self._look(session)
            self._views[session] = view
        return super()._caught_up(session, expected)

    def _head(self, session: str) -> int:
        return self._views[session].state.head

    def _generation(self, session: str) -> int:
        return self._views[session].state.generation

    def _redactions(self, session: str) -> Iterable[tuple[str, str]]:
        control = self._control(session, self._views[session])
        return control.redactions if control is not None else ()

    def _revision(self, session: str) -> str:
        control = self._control(session, self._look(session))
        return control.revision if control is not None else "rfd"

    # Reading

    def _read(self, session: str, after: int, limit: int) -> Sequence[Record]:
        entries = self._entries(session, after, limit)
        return [entry.record(session) for entry in entries]

    def _entries(self, session: str, after: int, limit: int) -> list[_Entry]:
        """Give records after a position, as they were at one moment: if some are rewritten meanwhile, read again."""
        view = self._reading.get(session) or self._look(session)
        deadline = time.monotonic() + self._link.patience
        while view.last:
            start = max(after, view.state.floor)
            reduced = self._reduced(session, view)
            originals, more = self._originals(session, start, limit)
            fresh = self._look(session)
            if (fresh.era, fresh.state.rewrites) != (view.era, view.state.rewrites):
                view = fresh
                continue
            self._reading[session] = fresh
            control = self._control(session, fresh)
            removed = control.removed if control is not None else ()
            with self._index_lock:
                merged = {entry.position: entry for entry in originals}
                places = reduced.between(start, originals[-1].position if more else None, limit + 1)
                merged |= {place: reduced.entry(place) for place in places}
            chosen = sorted(merged)[:limit]
            entries = [merged[at] for at in chosen if not _within(removed, merged[at].number)]
            if entries:
                filled = self._filled(session, self._unbroken(session, start, entries, removed))
                if filled is not None:
                    return filled
                if time.monotonic() > deadline:
                    raise Damaged(self.where, session, entries[0].position, entries[-1].position)
                view = self._look(session)
            elif chosen:
                after = chosen[-1]
            elif start >= fresh.state.head:
                return []
            elif fresh.last == view.last:  # all that there is was stored before it was read
                if self._replicas == 1 or time.monotonic() > deadline:
                    raise Damaged(self.where, session, start + 1, fresh.state.head)
                time.sleep(LAG)  # a replica answered that has yet to catch up
            else:
                view = fresh
        self._reading.pop(session, None)
        return []

    def _originals(self, session: str, after: int, limit: int) -> tuple[list[_Entry], bool]:
        messages, more = self._link.read(self._subject(session, "r"), after + 1, limit)
        whole = self._whole(messages)
        return [_entry(one, whole[one.sequence]) for one in messages if one.sequence in whole], more and bool(messages)

    def _whole(self, messages: Sequence[Message]) -> dict[int, bytes]:
        """Give what messages hold, with the pieces before them; nothing for those that lack one."""
        whole = {message.sequence: message.data for message in messages}
        cut = [message for message in messages if "Twofold-Pieces" in message.headers]
        if not cut:
            return whole
        requests: list[tuple[str, int, int]] = []
        for message in cut:
            pieces = _pieces(message)
            requests.append((f"{message.subject.rpartition('.')[0]}.p", message.sequence - pieces, pieces))
        found = {one.sequence: one.data for one in self._link.read_each(requests)}
        for message in cut:
            places = range(message.sequence - _pieces(message), message.sequence)
            for place in places:
                if place not in found and self._replicas > 1 and (late := self._link.at(place)) is not None:
                    found[place] = late.data
            if all(place in found for place in places):
                whole[message.sequence] = b"".join([*(found[place] for place in places), message.data])
            else:
                del whole[message.sequence]
        return whole

    def _unbroken(
        self, session: str, start: int, entries: list[_Entry], removed: Sequence[tuple[int, int]]
    ) -> list[_Entry]:
        """Give the records up to where one is missing. Raises :class:`Damaged` when that is the first."""
        before, position = self._number(session, start), start
        for place, entry in enumerate(entries):
            if before is not None and not _covered(removed, before + 1, entry.number - 1):
                if place:
                    return entries[:place]
                raise Damaged(self.where, session, position + 1, entry.position - 1)
            before, position = entry.number, entry.position
        self._read_to[session] = position, entries[-1].number
        return entries

    def _number(self, session: str, position: int) -> int | None:
        """Give the number of the record at a position, ``None`` if there is none."""
        view = self._reading.get(session)
        if position == 0 or (view is not None and position <= view.state.floor):
            return 0
        known = self._read_to.get(session)
        if known is not None and known[0] == position:
            return known[1]
        with self._index_lock:
            index = self._indexes.get(session)
            if index is not None and position in index.at:
                return index.at[position][1].number
        messages, _ = self._link.read(self._subject(session, "r"), position, 1)
        if messages and messages[0].sequence == position:
            return _entry(messages[0], b"").number
        return None

    def _reduced(self, session: str, view: _View) -> _Index:
        """Give the session's reduced records, at least as new as the view if that is the newest."""
        deadline = time.monotonic() + self._link.patience
        with self._index_lock:
            index = self._indexes.get(session)
            if index is None or index.era != view.era:
                index = self._indexes[session] = _Index(view.era)
            while index.seen < view.state.rewrites:
                start = max(index.seen, view.state.floor) + 1
                messages, more = self._link.read(self._subject(session, "w"), start, 64)
                whole = self._whole(messages)
                for message in messages:
                    if message.sequence in whole:  # or it is being rewritten
                        segment = msgspec.msgpack.decode(whole[message.sequence], type=list[_Entry])
                        index.add(message.sequence, _pieces(message), segment)
                    index.seen = max(index.seen, message.sequence)
                if more or index.seen >= view.state.rewrites:
                    continue
                if self._replicas == 1 or time.monotonic() > deadline or self._look(session).last != view.last:
                    index.seen = view.state.rewrites  # it is gone by now
                else:
                    time.sleep(LAG)
            return index

    def _filled(self, session: str, entries: list[_Entry]) -> list[_Entry] | None:
        """Fetch the large ones of reduced records, which are not kept in memory; ``None``: one has been rewritten."""
        hollow = [entry.position for entry in entries if not entry.raw]
        if not hollow:
            return entries
        with self._index_lock:
            index = self._indexes.get(session) or _Index((0, 0))
            places = {index.at[position][0] for position in hollow if position in index.at}
        messages = self._link.read_each((self._subject(session, "w"), place, 1) for place in sorted(places))
        messages = [message for message in messages if message.sequence in places]
        whole = self._whole(messages)
        found: dict[int, _Entry] = {}
        for message in messages:
            if message.sequence in whole:
                for entry in msgspec.msgpack.decode(whole[message.sequence], type=list[_Entry]):
                    found[entry.position] = entry
        if not found.keys() >= set(hollow):
            return None
        return [entry if entry.raw else found[entry.position] for entry in entries]

    def _records_at(self, session: str, positions: Iterable[int]) -> Iterator[Record]:
        for entry, _ in self._held(session, positions).values():
            yield entry.record(session)

    def _held(self, session: str, positions: Iterable[int]) -> dict[int, tuple[_Entry, list[int]]]:
        """Give the records at these positions that are still there, and the messages that originals take up."""
        view = self._views[session]
        index = self._reduced(session, view)
        wanted = sorted(set(positions))
        with self._index_lock:
            reduced = [index.entry(position) for position in wanted if position in index.at]
            asked = [position for position in wanted if position not in index.at and position > view.state.floor]
        filled = self._filled(session, reduced)
        if filled is None:
            raise Stale
        held: dict[int, tuple[_Entry, list[int]]] = {entry.position: (entry, []) for entry in filled}
        subject = self._subject(session, "r")
        for start in range(0, len(asked), 4096):
            some = set(asked[start : start + 4096])
            messages = self._link.read_each((subject, first, count) for first, count in _runs(sorted(some)))
            found = {message.sequence: message for message in messages if message.sequence in some}
            if self._replicas > 1:  # what a replica does not know (yet), the leader does if it is there
                late = [self._link.at(place) for place in sorted(some - found.keys())]
                found |= {
                    message.sequence: message for message in late if message is not None and message.subject == subject
                }
            whole = self._whole(list(found.values()))
            for place, message in found.items():
                if place in whole:
                    taken = list(range(place - _pieces(message), place + 1))
                    held[place] = _entry(message, whole[place]), taken
        return dict(sorted(held.items()))

    # Writing

    @property
    def _piece(self) -> int:
        """How many bytes of content go into one message; the headers need room too."""
        return max(self._link.largest - 8192, 4096)

    def _append(
        self, session: str, expected: int, news: Sequence[New], rewritten: Mapping[int, bytes]
    ) -> tuple[Sequence[int], Erasure]:
        view = self._views[session]
        state = view.state
        if state.head != expected:
            raise PositionTaken(session, expected=expected, found=state.head)
        batch = _Batch(self._subject(session), self._piece)
        control = None
        if session in self._redacting or not state.control:
            control = self._control(session, view) or _Control(session, _generation())
            redactions: frozenset[tuple[str, str]] = frozenset()
            if session in self._redacting:
                redactions = control.redactions | {self._redacting[session]}
            control = msgspec.structs.replace(control, redactions=redactions)
        spare = self._put_control(batch, state, control)
        change = self._put_reduced(session, batch, {at: (raw, "rewritten") for at, raw in rewritten.items()}, set())
        places: list[int] = []
        for number, new in enumerate(news, start=state.count + 1):
            record = f"{number} {new.origin} {new.form} {new.received_at!r}"
            places.append(batch.add("r", new.raw, {"Twofold-Record": record}))
        size = state.size + sum(len(new.raw) for new in news) + change.grown
        after = msgspec.structs.replace(
            state,
            head=-1,
            count=state.count + len(news),
            records=state.records + len(news),
            size=size,
            created=state.created if state.records else news[0].received_at,
            updated=news[-1].received_at,
        )
        first, erasure = self._commit(session, view, batch, after, control, change, spare)
        return [first + place for place in places], erasure

    def _rewrite(self, session: str, rewritten: Mapping[int, tuple[bytes, Form]], removed: Iterable[int]) -> Erasure:
        view = self._views[session]
        state = view.state
        gone = set(removed)
        batch = _Batch(self._subject(session), self._piece)
        change = self._put_reduced(session, batch, rewritten, gone)
        control = self._control(session, view)
        if control is None:
            raise Stale
        ranges = _joined([*control.removed, *((number, number) for number in change.numbers_gone)])
        control = msgspec.structs.replace(control, generation=control.generation + 1, removed=ranges)
        spare = self._put_control(batch, state, control)
        after = msgspec.structs.replace(
            state, records=state.records - len(change.numbers_gone), size=state.size + change.grown
        )
        _, erasure = self._commit(session, view, batch, after, control, change, spare)
        return erasure

    def _put_control(self, batch: _Batch, state: _State, control: _Control | None) -> list[int]:
        """Write what is known of the session anew, if it changes; give what that makes superfluous."""
        if control is None:
            return []
        batch.add("c", control.packed(), {})
        return [state.control] if state.control > state.floor else []

    def _put_reduced(
        self, session: str, batch: _Batch, rewritten: Mapping[int, tuple[bytes, Form]], removed: set[int]
    ) -> _Change:
        """Write reduced records, those that lie beside one that changes included, and the list of what they replace."""
        change = _Change()
        if not rewritten and not removed:
            return change
        held = self._held(session, rewritten.keys() | removed)
        index = self._indexes[session]
        fresh: list[_Entry] = []
        with self._index_lock:
            touched = {index.at[position][0] for position in held if position in index.at}
            neighbours = [place for one in touched for place in index.segments[one][1] if place not in held]
            beside = [index.entry(place) for place in neighbours]
            for one in sorted(touched):
                change.doomed += range(one - index.segments[one][0], one + 1)
        for position, (entry, sequences) in held.items():
            change.doomed += sequences
            if position in removed:
                change.numbers_gone.append(entry.number)
                change.positions_gone.append(position)
                change.grown -= len(entry.raw)
                continue
            raw, form = rewritten[position]
            change.grown += len(raw) - len(entry.raw)
            fresh.append(msgspec.structs.replace(entry, raw=raw, form=form))
        filled = self._filled(session, beside)
        if filled is None:
            raise Stale
        fresh += filled
        fresh.sort(key=lambda entry: entry.position)
        for segment in _segments(fresh, self._piece):
            change.segments.append((batch.add("w", msgspec.msgpack.encode(segment), {}), segment))
        if change.doomed:
            batch.add("e", msgspec.msgpack.encode(_Doomed(change.doomed)), {})
        return change

    def _commit(
        self,
        session: str,
        view: _View,
        batch: _Batch,
        state: _State,
        control: _Control | None,
        change: _Change,
        spare: Sequence[int],
    ) -> tuple[int, Erasure]:
        """Store a batch, then erase what it replaces. Gives the sequence of its first message."""
        count = len(batch.posts)
        if count > LARGEST_BATCH:
            raise Unavailable(self.where, f"this needs {count} messages in one step; the server stores {LARGEST_BATCH}")
        relative: dict[str, int] = {}
        if control is not None:
            relative |= {"control": batch.places["c"] - count, "generation": control.generation}
        if change.segments:
            relative["rewrites"] = batch.places["w"] - count
        last = self._stored(session, view, batch, msgspec.structs.replace(state, **relative))
        fresh = self._views[session]
        first = last - count + 1
        if control is not None:
            self._controls[session] = fresh.state.control, control
        with self._index_lock:
            index = self._indexes.get(session)
            if index is not None and index.era == view.era and index.seen >= view.state.rewrites:
                for position in change.positions_gone:
                    index.remove(position)
                for place, segment in change.segments:
                    index.add(first + place, batch.pieces[place], segment)
                index.era, index.seen = fresh.era, max(index.seen, fresh.state.rewrites)
        erasure: Erasure = "none"
        try:
            if session in self._unfinished:
                erasure = "pending"
                self._finish(self._subject(session))
            elif change.doomed:
                erasure = "pending"
                self._unfinished.add(session)
                self._link.erase(change.doomed)
                place = batch.places["e"]
                self._link.drop(range(first + place - batch.pieces[place], first + place + 1))
            if erasure == "pending":
                self._unfinished.discard(session)
                erasure = "done"
            self._link.drop(spare)
        except (Unavailable, Refused):
            pass  # the batch is stored; its list stays, and the next who comes by finishes it
        return first, erasure

    def _stored(self, session: str, view: _View, batch: _Batch, state: _State) -> int:
        batch.posts[-1].headers["Twofold-State"] = msgspec.json.encode(state).decode()
        for post in (batch.posts[0], batch.posts[-1]):
            post.headers["Twofold-Batch"] = batch.mark
        filter = self._subject(session, ">")
        deadline = time.monotonic() + self._link.patience
        self._views.pop(session, None)
        doubt = False
        while True:
            refusal: Refused | None = None
            try:
                last = self._link.store(batch.posts, filter=filter, last=view.last)
                break
            except Refused as refused:
                if refused.code not in WRONG_LAST:
                    raise Unavailable(self.where, _refusal(refused)) from None
                if not doubt:
                    raise Stale from None
                refusal = refused
            except Unanswered:
                doubt = True
            # Storing it a second time is not possible: what came next in the session tells whether it was stored.
            came = self._link.next(filter, view.last + 1)
            if came is not None and came.headers.get("Twofold-Batch") == batch.mark:
                last = came.sequence + len(batch.posts) - 1
                break
            if came is not None or refusal is not None:
                raise Stale
            if time.monotonic() > deadline:
                raise Unavailable(self.where, "the server does not answer, so it is not known whether this is stored")
        self._views[session] = _View(last, state.settled(last))
        return last

    def _remember_redaction(self, session: str, kind: str, id: str) -> None:
        self._redacting[session] = kind, id  # stored with the redaction's record, in one step

    def _set_revision(self, session: str, revision: str) -> None:
        while True:
            self._views[session] = view = self._look(session)
            control = self._control(session, view) or _Control(session, _generation())
            control = msgspec.structs.replace(control, revision=revision)
            batch = _Batch(self._subject(session), self._piece)
            spare = self._put_control(batch, view.state, control)
            try:
                self._commit(session, view, batch, view.state, control, _Change(), spare)
            except Stale:
                continue
            return

    # Erasing

    def _delete(self, session: str) -> Erasure:
        view = self._look(session)
        while view.last:
            batch = _Batch(self._subject(session), self._piece)
            batch.add("e", msgspec.msgpack.encode(_Doomed(all=True)), {})
            try:
                self._stored(session, view, batch, _State(floor=-1))
                break
            except Stale:
                view = self._look(session)
        for held in (self._views, self._reading, self._indexes, self._controls, self._read_to):
            held.pop(session, None)
        if not view.last:
            return "none"
        try:
            self._finish(self._subject(session))
        except Unavailable:
            return "pending"
        return "done"

    def _finish(self, subject: str) -> bool:
        """Finish the erasures whose lists are there, of one session or of all. Gives whether there were any."""
        try:
            found = False
            while True:
                message = self._link.last(f"{subject}.e")
                if message is None:
                    return found
                found = True
                doomed = msgspec.msgpack.decode(self._whole([message])[message.sequence], type=_Doomed)
                root = message.subject.rpartition(".")[0]
                if doomed.all:
                    self._erase_before(root, message.sequence)
                self._link.erase(doomed.sequences)
                pieces = _pieces(message)
                self._link.drop(range(message.sequence - pieces, message.sequence + 1))
        except Refused as refused:
            raise Unavailable(self.where, _refusal(refused)) from None

    def _erase_before(self, root: str, end: int) -> None:
        while True:
            first = self._link.next(f"{root}.>", 1)  # the leader's word: a replica may lag behind
            if first is None or first.sequence >= end:
                return
            start = first.sequence
            while start < end:
                messages, more = self._link.read(f"{root}.>", start, 512)
                self._link.erase(message.sequence for message in messages if message.sequence < end)
                if not more or not messages:
                    break
                start = messages[-1].sequence + 1

    # Asking

    def _asked(self, name: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._link.ask(f"{name}.{self._link.stream}", body)

    def _answer(self, name: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        try:
            return self._asked(name, body)
        except Refused as refused:
            raise Unavailable(self.where, _refusal(refused)) from None

    # Following

    def _watch(self, session: str) -> None:
        """Have followers woken when any node appends to a session."""
        with self._watch_lock:
            count, end = self._watched.get(session, (0, None))
            if end is None:
                end = self._link.watch(self._subject(session, "r"), lambda: self._tell(session))
            self._watched[session] = count + 1, end

    def _woken(self) -> None:
        for session in list(self._watched):
            self._tell(session)

    def _unwatch(self, session: str) -> None:
        with self._watch_lock:
            count, end = self._watched.pop(session)
            if count > 1:
                self._watched[session] = count - 1, end
            else:
                end()


class _Batch:
    """Messages to be stored in one step."""

    def __init__(self, prefix: str, piece: int) -> None:
        self.posts: list[Post] = []
        self.places: dict[str, int] = {}
        """Where the last message of each kind is."""
        self.pieces: dict[int, int] = {}
        self.mark = f"{_generation():x}"
        self._prefix = prefix
        self._piece = piece

    def add(self, kind: str, data: bytes, headers: dict[str, str]) -> int:
        """Add a message, after its pieces if it has any, and give its place."""
        cuts = range(0, max(len(data), 1), self._piece)
        for start in cuts[:-1]:
            self.posts.append(Post(f"{self._prefix}.p", data[start : start + self._piece], {}))
        if len(cuts) > 1:
            headers["Twofold-Pieces"] = str(len(cuts) - 1)
        self.posts.append(Post(f"{self._prefix}.{kind}", data[cuts[-1] :], headers))
        place = self.places[kind] = len(self.posts) - 1
        self.pieces[place] = len(cuts) - 1
        return place


class _Change:
    """What a batch changes in the records before it."""

    def __init__(self) -> None:
        self.segments: list[tuple[int, list[_Entry]]] = []
        self.doomed: list[int] = []
        self.numbers_gone: list[int] = []
        self.positions_gone: list[int] = []
        self.grown = 0


class _Index:
    """Where a session's reduced records lie: in which message, and if they are small what they hold."""

    def __init__(self, era: tuple[int, int]) -> None:
        self.era = era
        self.seen = 0
        self.at: dict[int, tuple[int, _Entry]] = {}
        self.segments: dict[int, tuple[int, dict[int, None]]] = {}
        """By message: how many pieces are before it, and the positions of the records in it that are still current."""
        self._order: list[int] = []
        self._same: dict[bytes, bytes] = {}

    def add(self, sequence: int, pieces: int, entries: Iterable[_Entry]) -> None:
        places: dict[int, None] = {}
        fresh = False
        for entry in entries:
            old = self.at.get(entry.position)
            if old is not None and old[0] > sequence:
                continue
            if old is None:
                fresh = True
                self._order.append(entry.position)
            elif old[0] != sequence:
                self._leave(old[0], entry.position)
            places[entry.position] = None
            raw = self._same.setdefault(entry.raw, entry.raw) if len(entry.raw) <= SMALL else b""
            self.at[entry.position] = sequence, msgspec.structs.replace(entry, raw=raw)
        if fresh:
            self._order.sort()
        if places:
            self.segments[sequence] = pieces, places
        self.seen = max(self.seen, sequence)

    def remove(self, position: int) -> None:
        held = self.at.pop(position, None)
        if held is not None:
            self._leave(held[0], position)
            del self._order[bisect.bisect_left(self._order, position)]

    def _leave(self, sequence: int, position: int) -> None:
        places = self.segments[sequence][1]
        places.pop(position, None)
        if not places:
            del self.segments[sequence]

    def entry(self, position: int) -> _Entry:
        return self.at[position][1]

    def between(self, after: int, end: int | None, limit: int) -> Sequence[int]:
        first = bisect.bisect_right(self._order, after)
        last = len(self._order) if end is None else bisect.bisect_right(self._order, end)
        return self._order[first : min(last, first + limit)]


def _parsed(url: str) -> tuple[str, Sequence[str], str]:
    """Give a name without credentials, the servers and the stream."""
    parts = urlsplit(url)
    stream = unquote(parts.path.strip("/"))
    hosts = [host for host in parts.netloc.split(",") if host]
    where = f"{parts.scheme}://{','.join(host.rpartition('@')[2] for host in hosts)}/{stream}"
    if parts.scheme not in ("nats", "tls") or not hosts or not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", stream):
        raise Unavailable(
            where, "a NATS journal is named nats://HOST:PORT/STREAM, the stream in letters, digits, - and _"
        )
    return where, [f"{parts.scheme}://{host}" for host in hosts], stream


def _token(session: str) -> str:
    """Give a session's name as part of a subject: plain ones as they are, others encoded, very long ones digested."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", session):
        return session
    name = session.encode("utf-8", "surrogatepass")
    if len(name) <= 300:
        return "=" + base64.urlsafe_b64encode(name).decode().rstrip("=")
    return "~" + hashlib.sha256(name).hexdigest()


def _generation() -> int:
    return time.time_ns() & 0x7FFF_FFFF_FFFF_FFFF


def _pieces(message: Message) -> int:
    """How many messages before this one are its pieces."""
    return int(message.headers.get("Twofold-Pieces", "0"))


def _entry(message: Message, raw: bytes) -> _Entry:
    number, origin, form, at = message.headers["Twofold-Record"].split(" ")
    return _Entry(message.sequence, int(number), float(at), origin, form, raw)  # type: ignore[arg-type]


def _segments(entries: Sequence[_Entry], piece: int) -> Iterator[list[_Entry]]:
    """Give records in groups that fit into a message, if each by itself does."""
    group: list[_Entry] = []
    size = 0
    for entry in entries:
        cost = len(entry.raw) + 64
        if group and (len(group) == SEGMENT or size + cost > piece):
            yield group
            group, size = [], 0
        group.append(entry)
        size += cost
    if group:
        yield group


def _runs(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Give readings that cover positions: from where, and how many messages."""
    start = end = positions[0] if positions else 0
    for position in positions[1:]:
        if position - end > 16 or position - start >= 512:
            yield start, end - start + 1
            start = position
        end = position
    if positions:
        yield start, end - start + 1


def _within(ranges: Sequence[tuple[int, int]], number: int) -> bool:
    place = bisect.bisect_right(ranges, number, key=lambda one: one[0]) - 1
    return place >= 0 and number <= ranges[place][1]


def _covered(ranges: Sequence[tuple[int, int]], first: int, last: int) -> bool:
    """Whether all of these numbers are in the ranges, which are apart from one another."""
    if first > last:
        return True
    place = bisect.bisect_right(ranges, first, key=lambda one: one[0]) - 1
    return place >= 0 and ranges[place][1] >= last


def _joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Give ranges in order, neighbours as one."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return tuple(joined)


_REASONS: Final = {
    10023: "the server's resources are used up",
    10047: "the server's storage is full",
    10052: "the server allows no stream like that",
    10058: "a stream of that name is there with other settings",
    10065: "another stream has taken these subjects",
    10074: "there are not enough servers for so many replicas",
    10077: "the stream is full",
    10199: "the server takes smaller batches than twofold needs (max_batch_size)",
}


def _refusal(refused: Refused) -> str:
    return _REASONS.get(refused.code, f"the server refused (JetStream error {refused.code})")
