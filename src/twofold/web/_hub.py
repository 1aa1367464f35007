"""One session for all who watch it: folded once, drawn once, sent to each at their own pace.

Each drawing in which something changed is a tick, and every row knows the tick of its last change. A watcher says which
tick it has seen and is given the rows that changed since: whole, or what was added to their text. So one that was away,
or is slow, misses nothing and piles nothing up. A message that streams is text that is added to; when it settles it is
rendered, and until then shown as it is.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
import traceback
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from twofold.exceptions import TwofoldError
from twofold.journal import Following, Journal, Unavailable
from twofold.plaintext import visible_line
from twofold.view import LiveRows, Row, footer
from twofold.web._html import LARGEST, anchor, article, texts
from twofold.web._renderer import Renderer

__all__ = ["Hub", "Hubs"]

FRAME: Final = 0.05
"""Seconds between two drawings, at least: what changes in between is drawn once."""

PATIENCE: Final = 4.0
"""Times as long as a drawing took is waited before the next: the rest of the time is for those who watch."""

SETTLED: Final = 1.5
"""Seconds without a change after which a message counts as settled, if nothing has said so before."""

HEAVY: Final = 1.0
"""Seconds between two drawings of a row that is longer than what is shown of it."""

KEPT: Final = 60.0
"""Seconds that a session that nobody watches is kept folded."""

HEARTBEAT: Final = 15.0
"""Seconds after which those who watch are told that there is still a connection."""

CHUNK: Final = 64 * 1024
"""Bytes of one event, about."""

IN_SIGHT: Final = 30
"""Rows at the end of a session that are rendered before it is opened. Others are when somebody looks at them."""

log = logging.getLogger("twofold.web")


class _Shown(Struct):
    """A row as it is shown."""

    row: Row
    tick: int
    changed_at: float
    before: int = -1
    """The tick of the change before the last."""
    added: tuple[int, str] | None = None
    """What the last change added to the text, and after how many UTF-16 code units."""
    size: int = 0
    streaming: bool = False
    rendered: Sequence[str] | None = None
    html: str = ""
    bare: str = ""

    def says(self, row: Row) -> bool:
        """Whether it has settled on a row."""
        return not self.streaming and self.row == row

    def drawn(self, *, far: bool = False) -> str:
        """Give the row as HTML; as it is before it is rendered, and with nothing around it, if it is far away."""
        if far and not self.streaming and texts(self.row):
            if not self.bare:
                self.bare = article(self.row, version=_digest(self.row), bare=True)
            return self.bare
        if not self.html:
            version = "" if self.streaming else _digest(self.row)
            self.html = article(self.row, rendered=self.rendered, version=version)
        return self.html


def _digest(row: Row) -> str:
    """Tell what a row says from what it says at other times. (Its key may hold what JSON cannot.)"""
    return blake2b(msgspec.json.encode(replace(row, key="")), digest_size=9).hexdigest()


class Hub:
    """Follows one session and draws it. ``on_end`` is called when it has ended; ask for another one then."""

    def __init__(
        self, journal: Journal, session: str, renderer: Renderer, on_end: Callable[[Hub], object] = lambda _hub: None
    ) -> None:
        self.session = session
        self.ended = False
        self.header: dict[str, Any] = {}
        """Title, state and usage, for the page's head and foot."""
        self.last_watched = time.monotonic()
        self.watchers = 0
        self._name = secrets.token_hex(4)
        self._following = Following(journal, session)
        self._renderer = renderer
        self._on_end = on_end
        self._shown: dict[str, _Shown] = {}
        self._tick = 0
        self._order_tick = 0  # the last in which rows went away or changed places
        self._header_tick = 0
        self._deleted = False
        self._heavy = False  # whether a row waits for its turn
        self._ahead: asyncio.Task[None] | None = None  # rendering what is in sight at first
        self._settled: list[_Shown] = []  # to be rendered for those who watch
        self._finished: list[_Shown] = []  # those of them that are, since the last drawing
        self._batches: dict[int, tuple[bytes, ...]] = {}  # what those lack now who have seen a tick
        self._loaded = asyncio.Event()
        self._ready = asyncio.Event()
        self._dirty = asyncio.Event()
        self._to_render = asyncio.Event()
        self._news = asyncio.Event()  # another one after each time that it was set
        self._task = asyncio.create_task(self._run(), name=f"twofold.web {session!r}")

    # For those who watch

    async def ready(self) -> None:
        """Wait until what is stored is drawn. Raises :class:`Unavailable` when it cannot be."""
        await self._ready.wait()
        if self.ended:
            raise Unavailable("the journal", "the session cannot be read now")

    def mark(self) -> str:
        """Give the mark of what is drawn now; who has it may ask for the :meth:`events` since."""
        return f"{self._name}.{self._tick}"

    async def page(self, patience: float) -> tuple[str, list[str]]:
        """Give a mark and all rows as they are then: the last ones rendered, as far as some seconds allow."""
        if self._ahead is None or self._ahead.done():
            self._ahead = asyncio.create_task(self._render_last())
        await asyncio.wait({self._ahead}, timeout=patience)  # if it takes longer it goes on all the same
        far = len(self._shown) - IN_SIGHT
        rows = [shown.drawn(far=number < far) for number, shown in enumerate(self._shown.values())]
        return self.mark(), rows

    async def _render_last(self) -> None:
        for shown in list(self._shown.values())[-IN_SIGHT:]:
            await self._rendered(shown)

    async def render(self, names: Sequence[str]) -> list[str]:
        """Give the rows of these anchors rendered, as far as they are there and can be."""
        wanted = frozenset(names)
        found = [shown for shown in self._shown.values() if anchor(shown.row.key) in wanted]
        for shown in found:
            await self._rendered(shown)
        return [shown.drawn() for shown in found]

    def row(self, name: str) -> Row | None:
        """Give the row of an anchor."""
        return next((shown.row for shown in self._shown.values() if anchor(shown.row.key) == name), None)

    async def events(self, mark: str) -> AsyncGenerator[bytes, None]:
        """Give events, ready to be sent, with what changed since a mark and then with what changes.

        Only the last event of a state carries that state's mark: who has it lacks nothing. A mark of somebody else's is
        as good as none: then everything is sent. Ends when the session can be followed no longer.
        """
        await self.ready()
        self.watchers += 1
        try:
            name, _, number = mark.partition(".")
            seen = int(number) if name == self._name and number.isdecimal() and len(number) < 19 else -1
            seen = seen if seen <= self._tick else -1
            while True:
                news = self._news
                batch = self._since(seen)
                seen = self._tick
                for event in batch:
                    yield event
                if self.ended:
                    break
                if seen == self._tick:
                    await news.wait()
                    if seen == self._tick and not self.ended:
                        yield b":\n\n"
            if self._deleted:
                yield b"event: gone\ndata:\n\n"
        finally:
            self.watchers -= 1
            self.last_watched = time.monotonic()

    def _since(self, seen: int) -> tuple[bytes, ...]:
        """Give the events that who has seen a tick lacks. Many lack the same."""
        batch = self._batches.get(seen)
        if batch is None:
            batch = self._batches[seen] = tuple(self._events(seen))
        return batch

    def _events(self, seen: int) -> list[bytes]:
        if seen == self._tick:
            return []
        parts: list[bytes] = []
        chunks: list[list[bytes]] = [parts]
        size = 0
        for shown in self._shown.values():
            if shown.tick <= seen:
                continue
            if shown.added is not None and shown.before <= seen:
                at, text = shown.added
                parts.append(msgspec.json.encode(("text", anchor(shown.row.key), at, text)))
            else:
                parts.append(msgspec.json.encode(("row", shown.drawn())))
            size += len(parts[-1])
            if size > CHUNK:
                parts, size = [], 0
                chunks.append(parts)
        if self._order_tick > seen:
            parts.append(msgspec.json.encode(("rows", [anchor(key) for key in self._shown])))
        if self._header_tick > seen:
            parts.append(msgspec.json.encode(("header", self.header)))
        events = [b"data: [" + b",".join(chunk) + b"]\n\n" for chunk in chunks]
        events[-1] = b"id: " + self.mark().encode() + b"\n" + events[-1]
        return events

    # What goes on

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in (self._follow, self._draw, self._render, self._look_after):
                    tasks.create_task(work())
        except* (TwofoldError, _Ended):
            pass
        except* Exception as errors:
            _log_failure(errors)
        finally:
            self.ended = True
            self._ready.set()
            self._tell()
            self._on_end(self)

    async def close(self) -> None:
        """Stop following; those who watch are let go."""
        for task in (self._task, self._ahead):
            while task is not None and not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=1)  # a library in between may have swallowed that

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _follow(self) -> None:
        await self._following.load()
        self._loaded.set()
        async for _change in self._following:
            self._dirty.set()

    async def _look_after(self) -> None:
        """Notice that the session was deleted, or that nobody watches it any more; keep connections alive."""
        told = time.monotonic()
        await self._loaded.wait()
        while True:
            await asyncio.sleep(1)
            if await asyncio.to_thread(self._following.stored) < self._following.position:
                self._deleted = True
                raise _Ended
            now = time.monotonic()
            if not self.watchers and now - self.last_watched > KEPT:
                raise _Ended
            if now - told > HEARTBEAT:
                told = now
                self._tell()

    async def _draw(self) -> None:
        await self._loaded.wait()
        live = LiveRows(self._following.transcript)
        while True:
            self._dirty.clear()
            began = time.perf_counter()
            self._redraw(live.now())
            self._ready.set()
            await asyncio.sleep(max(FRAME, PATIENCE * (time.perf_counter() - began)))
            streaming = any(shown.streaming for shown in self._shown.values())
            with suppress(TimeoutError):  # a message settles also when nothing happens
                async with asyncio.timeout(HEAVY if self._heavy else SETTLED if streaming else None):
                    await self._dirty.wait()

    def _redraw(self, rows: Sequence[Row]) -> None:
        """Draw what changed. If anything did, that is a tick."""
        now, tick = time.monotonic(), self._tick + 1
        idle = self._idle()
        last = rows[-1].key if rows else ""
        first = not self._ready.is_set()
        fresh: dict[str, _Shown] = {}
        changed = first
        self._heavy = False
        for row in rows:
            shown = self._shown.get(row.key)
            if shown is None:
                shown = fresh[row.key] = _Shown(row, tick, now)
                streaming = row.key == last and not first and not idle and _streams(row)
                self._take(shown, row, streaming=streaming, seen=not first)
                changed = True
                continue
            fresh[row.key] = shown
            if shown.row is not row and shown.row != row:
                if shown.size > LARGEST and now - shown.changed_at < HEAVY and not row.withdrawn:
                    self._heavy = True
                    continue
                shown.before, shown.tick, shown.changed_at = shown.tick, tick, now
                self._take(shown, row, streaming=row.key == last and not idle and _streams(row))
                changed = True
            elif shown.streaming and (idle or row.key != last or now - shown.changed_at >= SETTLED):
                shown.streaming, shown.html = False, ""
                self._settle(shown)
            shown.row = row
        for shown in self._finished:
            if fresh.get(shown.row.key) is shown and shown.rendered is not None and not shown.streaming:
                shown.before, shown.tick, shown.added = shown.tick, tick, None
                changed = True
        self._finished.clear()
        if list(self._shown) != list(fresh)[: len(self._shown)]:
            self._order_tick = tick
            changed = True
        self._shown = fresh
        header = self._now()
        if header != self.header:
            self.header, self._header_tick = header, tick
            changed = True
        if changed:
            self._tick = tick
            self._batches.clear()
            self._tell()

    def _take(self, shown: _Shown, row: Row, *, streaming: bool, seen: bool = True) -> None:
        """Show another state of a row; ``seen`` when somebody may look at it already."""
        before, shown.row = shown.row, row
        text = "".join(piece.text for piece in row.body)
        shown.added = None
        if streaming and shown.streaming and row.corrected == before.corrected:
            held = "".join(piece.text for piece in before.body)
            if text.startswith(held):
                shown.added = shown.size, text[len(held) :]
        size = shown.size if shown.added is not None else 0
        shown.size = size + _units(text if shown.added is None else shown.added[1])
        shown.streaming = streaming
        shown.rendered, shown.html, shown.bare = None if texts(row) else (), "", ""
        if seen and not streaming:
            self._settle(shown)

    def _settle(self, shown: _Shown) -> None:
        if shown.rendered is None:
            self._settled.append(shown)
            self._to_render.set()

    async def _render(self) -> None:
        """Render what settles while it is watched."""
        while True:
            while not self._settled:
                self._to_render.clear()
                await self._to_render.wait()
            shown = self._settled.pop(0)
            if await self._rendered(shown):
                self._finished.append(shown)
                self._dirty.set()

    async def _rendered(self, shown: _Shown) -> bool:
        """Render a row, if it has settled, and say whether it is rendered now."""
        if shown.rendered is None and not shown.streaming:
            row = shown.row
            rendered = await self._renderer.html(texts(row), breaks=row.kind == "user")
            if shown.says(row):  # still
                shown.rendered, shown.html = rendered, ""
        return shown.rendered is not None

    def _idle(self) -> bool:
        state = self._following.transcript.state
        return state is not None and state.state == "idle"

    def _now(self) -> dict[str, Any]:
        transcript = self._following.transcript
        title, state = transcript.session_info.title, transcript.state
        asked = ""
        if state is not None and state.state == "requires_action":
            waiting = [call for call in transcript.tool_calls if call.status == "pending"]
            asked = visible_line(waiting[-1].title or waiting[-1].name or "") if waiting else ""
        gaps = ", ".join(f"{first} to {last}" for first, last in self._following.gaps)
        return {
            "title": visible_line(title) if isinstance(title, str) else "",
            "state": "" if state is None else visible_line(state.state),
            "asked": asked,
            "footer": footer(transcript),
            "gaps": gaps and f"There is a gap: positions {gaps} are damaged, and what they said is not shown.",
        }


class _Ended(Exception):
    """A hub's own end."""


def _streams(row: Row) -> bool:
    """Whether a row is of a kind that streams, and not so long that it is better drawn now and then."""
    if row.kind not in ("agent", "thought", "user") or row.withdrawn:
        return False
    return [piece.kind for piece in row.body] == ["text"] and len(row.body[0].text) <= LARGEST


def _units(text: str) -> int:
    """Count as a browser does, in UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _log_failure(errors: BaseExceptionGroup[BaseException]) -> None:
    """Log where an exception came from, and not its text: that may quote anything."""
    for error in errors.exceptions:
        frames = "".join(traceback.format_tb(error.__traceback__))
        log.error("following a session failed with %s\n%s", type(error).__qualname__, frames)


class Hubs:
    """The sessions that are watched."""

    def __init__(self, journal: Journal, renderer: Renderer) -> None:
        self.journal = journal
        self._renderer = renderer
        self._hubs: dict[str, Hub] = {}

    async def of(self, session: str) -> Hub:
        """Give the hub of a session, drawn. Raises :class:`Unavailable` when it cannot be read."""
        hub = self._hubs.get(session)
        if hub is None:
            hub = self._hubs[session] = Hub(self.journal, session, self._renderer, self._ended)
        hub.last_watched = time.monotonic()
        await hub.ready()
        return hub

    def held(self, session: str) -> Hub | None:
        """Give the hub of a session if there is one."""
        return self._hubs.get(session)

    def _ended(self, hub: Hub) -> None:
        if self._hubs.get(hub.session) is hub:
            del self._hubs[hub.session]

    async def close(self) -> None:
        """Stop following everything."""
        for hub in list(self._hubs.values()):
            await hub.close()
