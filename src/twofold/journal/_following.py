"""A session of a journal that goes on, folded: what a viewer holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from twofold.fold import Change, Revision, Transcript
from twofold.journal._base import Journal
from twofold.journal._folding import Folding

__all__ = ["Following"]


class Following:
    """Follows a session from its beginning. Iterate over it for the changes, and read :attr:`transcript` at any time.

    A session that is not there yet is waited for. The changes of what is stored already come first, as they were made.
    """

    def __init__(self, journal: Journal, session: str, *, revision: Revision | str | None = None) -> None:
        self._journal = journal
        self._session = session
        self._revision = revision
        self.transcript = Transcript(session)
        """What is folded so far."""
        self.position = 0
        """The position of the last record folded."""

    def stored(self) -> int:
        """Give the position of the last record that is stored now. Blocks."""
        return self._journal.position(self._session)

    async def __aiter__(self) -> AsyncGenerator[Change, None]:
        """Give each change, without end."""
        revision = self._revision
        if revision is None:
            revision = await asyncio.to_thread(self._journal.revision, self._session)
        folding = Folding(self._session, Revision(revision))
        self.transcript = folding.transcript
        async for record in self._journal.follow(self._session):
            change = folding.add(record)
            self.position = record.position
            if change:
                yield change
