"""What a journal keeps: records, and the fixed words for what they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from twofold.exceptions import TwofoldError
from twofold.fold import Transcript

__all__ = [
    "Appended",
    "Damaged",
    "EntityKind",
    "Erasure",
    "Form",
    "JournalError",
    "Loaded",
    "Origin",
    "PositionTaken",
    "Record",
    "SessionInfo",
    "Unavailable",
    "Verified",
]

Origin: TypeAlias = Literal["agent", "v1", "operator", "replay"]
"""Who the bytes are from: a v2 agent as received; the converter, from a v1 agent; an operator's redaction; the
journal's own brackets around a replay (``{"replay": "begin"}``, ``"end"``, ``"failed"``)."""

Form: TypeAlias = Literal["received", "rewritten", "compacted"]
"""Whether a record is as it was appended, had content erased from it (J-4), or stands for several by compaction."""

Erasure: TypeAlias = Literal["none", "done", "pending"]
"""What became of superseded bytes: there were none; they are gone; they wait for a foreign reader (J-3)."""

EntityKind: TypeAlias = Literal["user_message", "agent_message", "agent_thought", "tool_call", "terminal"]
"""What an operator can redact."""

ENTITY_KINDS: Final[Sequence[EntityKind]] = ("user_message", "agent_message", "agent_thought", "tool_call", "terminal")


class Record(Struct, frozen=True, gc=False):
    """One update of one session at its position. ``received_at`` is in seconds since the epoch; ``raw`` is exact."""

    session: str
    position: int
    received_at: float
    origin: Origin
    raw: bytes
    form: Form = "received"


class Appended(Struct, frozen=True, gc=False):
    """Where an append went (the position of its last record, and of all), and whether what it superseded is erased."""

    position: int
    erasure: Erasure = "none"
    positions: tuple[int, ...] = ()


class SessionInfo(Struct, frozen=True, gc=False):
    """A session in a journal: its last position, its records and bytes, when it began and was last heard of."""

    session: str
    position: int
    records: int
    size: int
    created_at: float
    updated_at: float
    revision: str = "rfd"


class Loaded(Struct, frozen=True):
    """A session folded from its records.

    ``position`` is that of the last record folded. ``gaps`` are position ranges whose records are damaged: the
    transcript lacks them. ``not_replayed`` names what the agent did not replay when it last replayed the session (P-5):
    it is still in the journal, and not in the transcript. ``replaying`` says that a replay was begun and has not ended:
    what came since is not in the transcript. ``era`` is the position where the last replay began that succeeded.
    """

    transcript: Transcript
    position: int
    gaps: Sequence[tuple[int, int]] = ()
    not_replayed: Sequence[tuple[str, str]] = ()
    era: int = 0
    replaying: bool = False


class Verified(Struct, frozen=True):
    """What :meth:`Journal.verify` found. A journal is sound when ``faults`` is empty."""

    sessions: int
    records: int
    faults: Sequence[str] = ()
    erasure: Erasure = "none"


class JournalError(TwofoldError):
    """Base of what goes wrong with a journal."""


class PositionTaken(JournalError):
    """An append at a position that is taken: somebody else appended first. Read on from ``expected`` and try again."""

    def __init__(self, session: str, *, expected: int, found: int) -> None:
        self.session = session
        self.expected = expected
        self.found = found
        super().__init__(f'session "{session}" is at position {found}, not at {expected}')


class Damaged(JournalError):
    """Stored bytes are not what was stored. ``first`` to ``last`` are the positions that cannot be read."""

    def __init__(self, where: str, session: str, first: int, last: int) -> None:
        self.where = where
        self.session = session
        self.first = first
        self.last = last
        super().__init__(f'{where}: session "{session}": positions {first} to {last} are damaged')


class Unavailable(JournalError):
    """The journal's storage cannot be used now: locked, read-only, full, unreachable. ``where`` names it."""

    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        self.reason = reason
        super().__init__(f"{where}: {reason}")
