"""Live reading, at the reader's own pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from twofold.journal._records import Record

if TYPE_CHECKING:
    from twofold.journal._base import Journal

__all__ = ["following"]

POLL: Final = 0.02
"""Seconds between two looks at storage that other processes write to."""


async def following(journal: Journal, session: str, after: int) -> AsyncGenerator[Record, None]:
    """Give a session's records after a position and then those that come, without end.

    Appends of this process wake it; those of others it finds by looking whether the storage has changed. Both are noted
    before a page is read, so that what comes while it is read or handed out is not missed.
    """
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    def wake(name: str) -> None:
        if name == session:
            with suppress(RuntimeError):  # the loop was closed under an iterator that was not
                loop.call_soon_threadsafe(changed.set)

    stop = journal.listen(wake)
    try:
        while True:
            changed.clear()
            seen = journal.changes()
            page = await asyncio.to_thread(journal.page, session, after)
            for record in page:
                yield record
                after = record.position
            while not page and not changed.is_set() and journal.changes() == seen:
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL):  # wait_for may swallow a cancellation
                        await changed.wait()
    finally:
        stop()
