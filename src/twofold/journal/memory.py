"""A journal in memory: for tests, and for agents whose sessions end with them."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence

from twofold.journal._base import Journal, New
from twofold.journal._records import Erasure, Form, PositionTaken, Record, SessionInfo, Verified

__all__ = ["MemoryJournal"]


class _Session:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.generation = 0
        self.redacted: set[tuple[str, str]] = set()
        self.revision = "rfd"


class MemoryJournal(Journal):
    """Keeps sessions in this process; nothing of it survives the process, and erased bytes are merely let go of."""

    def __init__(self, *, keep_superseded: bool = False) -> None:
        super().__init__("memory", keep_superseded=keep_superseded)
        self._sessions: dict[str, _Session] = {}

    def sessions(self) -> Sequence[SessionInfo]:
        with self._lock:
            infos = [
                SessionInfo(
                    name,
                    held.records[-1].position,
                    len(held.records),
                    sum(len(record.raw) for record in held.records),
                    held.records[0].received_at,
                    held.records[-1].received_at,
                    held.revision,
                )
                for name, held in self._sessions.items()
                if held.records
            ]
        return sorted(infos, key=lambda one: one.updated_at, reverse=True)

    def verify(self) -> Verified:
        with self._lock:
            return Verified(len(self._sessions), sum(len(held.records) for held in self._sessions.values()))

    def close(self) -> None:
        pass

    def _of(self, session: str) -> _Session:
        return self._sessions.setdefault(session, _Session())

    def _head(self, session: str) -> int:
        held = self._sessions.get(session)
        return held.records[-1].position if held is not None and held.records else 0

    def _read(self, session: str, after: int, limit: int) -> Sequence[Record]:
        held = self._sessions.get(session)
        if held is None:
            return ()
        start = bisect.bisect_right(held.records, after, key=lambda record: record.position)
        return held.records[start : start + limit]

    def _append(
        self, session: str, expected: int, news: Sequence[New], rewritten: Mapping[int, bytes]
    ) -> tuple[Sequence[int], Erasure]:
        head = self._head(session)
        if head != expected:
            raise PositionTaken(session, expected=expected, found=head)
        self._rewrite_now(session, {position: (raw, "rewritten") for position, raw in rewritten.items()}, ())
        positions = range(head + 1, head + 1 + len(news))
        self._of(session).records += [
            Record(session, position, new.received_at, new.origin, new.raw, new.form)
            for position, new in zip(positions, news, strict=True)
        ]
        return positions, "done" if rewritten else "none"

    def _rewrite(self, session: str, rewritten: Mapping[int, tuple[bytes, Form]], removed: Iterable[int]) -> Erasure:
        self._rewrite_now(session, rewritten, removed)
        self._of(session).generation += 1
        return "done"

    def _rewrite_now(self, session: str, rewritten: Mapping[int, tuple[bytes, Form]], removed: Iterable[int]) -> None:
        held, gone = self._of(session), set(removed)
        if not rewritten and not gone:
            return
        records: list[Record] = []
        for record in held.records:
            if record.position in gone:
                continue
            fresh = rewritten.get(record.position)
            if fresh is not None:
                raw, form = fresh
                record = Record(session, record.position, record.received_at, record.origin, raw, form)
            records.append(record)
        held.records = records

    def _generation(self, session: str) -> int:
        held = self._sessions.get(session)
        return held.generation if held is not None else 0

    def _delete(self, session: str) -> Erasure:
        return "none" if self._sessions.pop(session, None) is None else "done"

    def _remember_redaction(self, session: str, kind: str, id: str) -> None:
        self._of(session).redacted.add((kind, id))

    def _redactions(self, session: str) -> Iterable[tuple[str, str]]:
        held = self._sessions.get(session)
        return held.redacted if held is not None else ()

    def _set_revision(self, session: str, revision: str) -> None:
        self._of(session).revision = revision

    def _revision(self, session: str) -> str:
        held = self._sessions.get(session)
        return held.revision if held is not None else "rfd"
