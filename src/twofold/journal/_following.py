"""A session of a journal that goes on, folded: what a viewer holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from twofold.fold import Change, Revision, Transcript
from twofold.journal._base import Journal
from twofold.journal._folding import Folding
from twofold.journal._records import Damaged

__all__ = ["Following"]


class Following:
    """Follows a session. Iterate over it for the changes, and read :attr:`transcript` at any time.

    A session that is not there yet is waited for. The changes of what is stored already come first, as they were made,
    unless :meth:`load` has folded it before. Damaged records are gaps.
    """

    def __init__(self, journal: Journal, session: str, *, revision: Revision | str | None = None) -> None:
        self._journal = journal
        self._session = session
        self._revision = revision
        self._folding: Folding | None = None
        self.transcript = Transcript(session)
        """What is folded so far."""

    @property
    def position(self) -> int:
        """The position of the last record folded."""
        return 0 if self._folding is None else self._folding.position

    @property
    def gaps(self) -> Sequence[tuple[int, int]]:
        """The position ranges met so far whose records are damaged: the transcript lacks them."""
        return () if self._folding is None else tuple(self._folding._gaps)

    def stored(self) -> int:
        """Give the position of the last record that is stored now. Blocks."""
        return self._journal.position(self._session)

    async def load(self) -> None:
        """Fold what is stored already, at once: its changes are not told."""

        def load() -> Folding:
            folding = self._begun()
            for record in self._journal._tolerant(self._session, 0):
                folding.add(record)
            return folding

        self._folding = await asyncio.to_thread(load)
        self.transcript = self._folding.transcript

    async def __aiter__(self) -> AsyncGenerator[Change, None]:
        """Give each change, without end."""
        folding = self._folding
        if folding is None:
            folding = self._folding = await asyncio.to_thread(self._begun)
            self.transcript = folding.transcript
        while True:
            try:
                async with aclosing(self._journal.follow(self._session, folding.position)) as records:
                    async for record in records:
                        change = folding.add(record)
                        if change:
                            yield change
            except Damaged as damage:
                folding.add(damage)

    def _begun(self) -> Folding:
        return Folding(self._session, Revision(self._revision or self._journal.revision(self._session)))
