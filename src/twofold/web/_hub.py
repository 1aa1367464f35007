"""One session for all who watch it: folded once, drawn once, sent to each at their own pace.

Every row knows the position of the record that it is as of. A watcher says up to which position it has seen, and is
given the rows that changed since: whole, keyed, and in order, so that one that was away, or is slow, misses nothing and
piles nothing up. A message that streams is sent as text that is added to; it is rendered when it settles.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, Final

from msgspec import Struct

from twofold.journal import Following, Journal
from twofold.plaintext import visible_line
from twofold.view import LiveRows, Row, footer
from twofold.web._html import article, streamed

__all__ = ["Hub", "Hubs"]

FRAME: Final = 0.05
"""Seconds between two drawings, at least: what changes in between is drawn once."""

SETTLED: Final = 0.7
"""Seconds without a change after which a message counts as settled."""

KEPT: Final = 60.0
"""Seconds that a session that nobody watches is kept folded."""


class _Drawn(Struct):
    """A row as it was drawn last."""

    row: Row
    html: str
    position: int
    tick: int
    text: str = ""  # of a message that streams: what its watchers hold
    added: tuple[int, str] | None = None  # what was added in the last tick, and where
    streaming: bool = False
    changed_at: float = 0.0


class Hub:
    """Follows one session and draws it. Use :meth:`events` for each who watches."""

    def __init__(self, journal: Journal, session: str) -> None:
        self.session = session
        self._following = Following(journal, session)
        self._drawn: dict[str, _Drawn] = {}
        self._tick = 0
        self._removed_tick = 0  # the last tick in which rows went away
        self._header: dict[str, Any] = {}
        self._header_tick = 0
        self._position = 0
        self._changed = asyncio.Event()
        self._ticked = asyncio.Condition()
        self._caught_up = asyncio.Event()
        self._watchers = 0
        self.last_watched = time.monotonic()
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._draw())]

    @property
    def watched(self) -> bool:
        """Whether anybody watches."""
        return self._watchers > 0

    async def close(self) -> None:
        """Stop following."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task

    async def ready(self) -> None:
        """Wait until what is stored is drawn."""
        await self._caught_up.wait()

    @property
    def position(self) -> int:
        """The position of the last record drawn."""
        return self._position

    @property
    def header(self) -> dict[str, Any]:
        """Title, state and usage."""
        return self._header

    def rows(self) -> list[str]:
        """Give all rows as they are."""
        return [drawn.html for drawn in self._drawn.values()]

    def sources(self) -> list[Row]:
        """Give the rows before they are drawn."""
        return [drawn.row for drawn in self._drawn.values()]

    async def events(self, after: int) -> AsyncGenerator[tuple[int | None, str, dict[str, Any]], None]:
        """Give (position, name, data) of what changed after a position, then what changes, without end.

        Only what completes the state of a position has one: who comes back with it lacks nothing.
        """
        await self.ready()
        self._watchers += 1
        try:
            seen = -1
            while True:
                events = self._since(seen, after)
                position, seen = self._position, self._tick
                for number, (name, data) in enumerate(events, 1):  # who has the last one has them all
                    yield position if number == len(events) else None, name, data
                async with self._ticked:
                    await self._ticked.wait_for(lambda: self._tick > seen)  # noqa: B023 - waited for here and now
        finally:
            self._watchers -= 1
            self.last_watched = time.monotonic()

    def _since(self, seen: int, after: int) -> list[tuple[str, dict[str, Any]]]:
        """Give what a watcher lacks that saw everything up to a tick; a new one, up to a position."""
        events: list[tuple[str, dict[str, Any]]] = []
        new = seen < 0
        if new or self._removed_tick > seen:
            events.append(("keys", {"keys": list(self._drawn)}))
        before = ""
        for key, drawn in self._drawn.items():
            if drawn.position > after if new else drawn.tick > seen:
                if not new and seen == drawn.tick - 1 and drawn.added is not None:
                    at, text = drawn.added
                    events.append(("text", {"key": key, "at": at, "text": text}))
                else:
                    events.append(("row", {"key": key, "before": before, "html": drawn.html}))
            before = key
        if new or self._header_tick > seen:
            events.append(("header", self._header))
        return events

    async def _follow(self) -> None:
        async for _change in self._following:
            self._changed.set()
            if not self._caught_up.is_set():
                await asyncio.sleep(0)

    async def _draw(self) -> None:
        head = await asyncio.to_thread(self._following.stored)
        while self._following.position < head:  # first all that is stored, at once
            await asyncio.sleep(FRAME)
        live = LiveRows(self._following.transcript)
        transcript = self._following.transcript
        while True:
            self._changed.clear()
            if self._following.transcript is not transcript:
                transcript = self._following.transcript
                live = LiveRows(transcript)
            if self._redraw(live.now()) or not self._caught_up.is_set():
                async with self._ticked:
                    self._ticked.notify_all()
            self._caught_up.set()
            await asyncio.sleep(FRAME)
            with suppress(TimeoutError):  # a message settles also when nothing happens
                timeout = SETTLED if any(one.streaming for one in self._drawn.values()) else None
                await asyncio.wait_for(self._changed.wait(), timeout)

    def _redraw(self, rows: list[Row]) -> bool:
        """Draw what changed; gives whether anything did."""
        now = time.monotonic()
        tick, position = self._tick + 1, self._following.position
        first = not self._caught_up.is_set()
        fresh: dict[str, _Drawn] = {}
        changed = False
        last = rows[-1].key if rows else ""
        idle = self._idle()
        for row in rows:
            drawn = self._drawn.get(row.key)
            if drawn is None or drawn.row is not row:
                drawn = self._drawn_anew(drawn, row, tick, position, now, streams=not first and not idle)
                changed = True
            elif drawn.streaming and (idle or row.key != last or now - drawn.changed_at >= SETTLED):
                html = article(row, position=position)
                drawn = _Drawn(row, html, position, tick, changed_at=drawn.changed_at)
                changed = True
            fresh[row.key] = drawn
        if len(fresh) < len(self._drawn) or any(key not in fresh for key in self._drawn):
            self._removed_tick = tick
            changed = True
        self._drawn = fresh
        header = self._now()
        if header != self._header:
            self._header, self._header_tick = header, tick
            changed = True
        self._position = position
        if changed:
            self._tick = tick
        return changed

    def _drawn_anew(
        self, before: _Drawn | None, row: Row, tick: int, position: int, now: float, *, streams: bool
    ) -> _Drawn:
        plain = row.kind in ("agent", "thought", "user") and not row.withdrawn
        if not streams or not plain or any(piece.kind != "text" for piece in row.body):
            return _Drawn(row, article(row, position=position), position, tick, changed_at=now)
        text = "".join(piece.text for piece in row.body)
        added = None
        grown = before is not None and before.streaming and row.corrected == before.row.corrected
        if before is not None and grown and text.startswith(before.text):
            added = (_units(before.text), text[len(before.text) :])
        html = streamed(row, position=position)
        return _Drawn(row, html, position, tick, text, added, streaming=True, changed_at=now)

    def _idle(self) -> bool:
        state = self._following.transcript.state
        return state is None or state.state == "idle"

    def _now(self) -> dict[str, Any]:
        transcript = self._following.transcript
        title, state = transcript.session_info.title, transcript.state
        return {
            "title": visible_line(title) if isinstance(title, str) else "",
            "state": "" if state is None else visible_line(state.state),
            "footer": footer(transcript),
        }


def _units(text: str) -> int:
    """Count as a browser does, in UTF-16 code units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


class Hubs:
    """The sessions that are watched."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._hubs: dict[str, Hub] = {}

    async def of(self, session: str) -> Hub:
        """Give the hub of a session, drawn."""
        await self._forget()
        hub = self._hubs.get(session)
        if hub is None:
            hub = self._hubs[session] = Hub(self.journal, session)
        hub.last_watched = time.monotonic()
        await hub.ready()
        return hub

    async def _forget(self) -> None:
        for session, hub in list(self._hubs.items()):
            if not hub.watched and time.monotonic() - hub.last_watched > KEPT:
                del self._hubs[session]
                await hub.close()

    async def close(self) -> None:
        """Stop following everything."""
        hubs, self._hubs = list(self._hubs.values()), {}
        for hub in hubs:
            await hub.close()
