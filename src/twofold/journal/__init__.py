"""Sessions on storage: append, read, follow, redact. Pick an engine: ``journal.memory``, ``journal.sqlite``."""

from twofold.journal._async import AsyncJournal, Writer
from twofold.journal._base import Journal
from twofold.journal._following import Following
from twofold.journal._open import open_journal
from twofold.journal._records import (
    Appended,
    Damaged,
    EntityKind,
    Erasure,
    Form,
    JournalError,
    Loaded,
    Origin,
    PositionTaken,
    Record,
    SessionInfo,
    Unavailable,
    Verified,
)

__all__ = [
    "Appended",
    "AsyncJournal",
    "Damaged",
    "EntityKind",
    "Erasure",
    "Following",
    "Form",
    "Journal",
    "JournalError",
    "Loaded",
    "Origin",
    "PositionTaken",
    "Record",
    "SessionInfo",
    "Unavailable",
    "Verified",
    "Writer",
    "open_journal",
]
