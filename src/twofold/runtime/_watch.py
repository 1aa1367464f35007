"""Changes of a session on their way to whoever iterates over them, in order, none left out."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final, Self

from twofold.fold import Change, Transcript

__all__ = ["LIMIT", "Feed", "Watch"]

LIMIT: Final = 1024
"""Changes that may wait for one watcher before the session's connection is read no further."""

_HALF: Final = LIMIT // 2
"""Changes that may still wait when it is read again."""

BEYOND: Final = 64 * LIMIT
"""Changes that may wait while an answer is awaited, which the reader must go on for."""


class Feed:
    """What waits for one watcher. The session holds it; the watcher that iterates holds it, too."""

    __slots__ = ("_state", "_taken", "_waiter", "changes", "closed", "collecting", "ended", "error", "started")

    def __init__(self, state: Transcript, taken: Callable[[], object], *, started: bool) -> None:
        self._state = state
        self.changes: deque[Change] = deque()
        self.started = started  # whether anybody iterates: one who does not holds up nobody
        self.collecting = True
        self.ended = False  # no more changes come
        self.closed = False  # nobody iterates any more
        self.error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._taken = taken  # called when there is room again

    def put(self, change: Change) -> bool:
        """Add a change; gives whether too many wait now."""
        if self.collecting and not self.closed and not self.ended:
            self.changes.append(change)
            if self._waiter is not None:
                self._wake()
            if self.started:
                return len(self.changes) > LIMIT
            if len(self.changes) > BEYOND:  # whoever comes so late renders the whole state instead
                self.changes.clear()
                self.changes.append(Change("transcript", self._state, content="replaced"))
        return False

    def end(self, error: BaseException | None = None) -> None:
        """Say that no more comes, or why."""
        if not self.ended:
            self.ended = True
            self.error = error
            self._wake()

    def close(self) -> None:
        """Say that nobody iterates any more."""
        self.closed = True
        self.changes.clear()
        self._taken()

    async def next(self) -> Change:
        """Wait for a change."""
        self.started = True
        while not self.changes:
            if self.ended or self.closed:
                if self.error is not None:
                    raise self.error
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        change = self.changes.popleft()
        if len(self.changes) == _HALF:
            self._taken()
        return change

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None  # once: what follows before it runs finds nobody to wake
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class Watch:
    """The changes of a session, as an async iterator: each once, in order, from when it was made.

    Take them at your own pace: the agent is not read any further while 1,024 of them wait. Drop it, or :meth:`close`
    it, when done. A change's target is the live thing, and may be further than the change.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        weakref.finalize(self, feed.close)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        changes = self._feed.changes
        if 0 < len(changes) <= _HALF:
            return changes.popleft()
        return await self._feed.next()

    def close(self) -> None:
        """Stop watching."""
        self._feed.close()
        self._feed.end()
