"""A page as the script keeps it, from the events that it gets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any, Final

from tests.web.html import parsed

__all__ = ["DEADLINE", "Page", "watching"]

DEADLINE: Final = 20.0
"""Seconds after which something waited for is taken to be lost."""


class Page:
    """What is shown, and the mark of the last event that had one."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[str, str, str]] = {}
        """Of each row its version, its head and its body, in order."""
        self.plain: set[str] = set()
        self.header: dict[str, Any] = {}
        self.mark = ""
        self.events: list[tuple[str, Any]] = []
        self.gone = False

    def take(self, event: bytes) -> None:
        """Take one event."""
        fields = [line.partition(b": ")[::2] for line in event.splitlines() if line and not line.startswith(b":")]
        held = dict(fields)
        assert len(held) == len(fields)
        if held.get(b"event") == b"gone":
            self.gone = True
        if not held.get(b"data"):
            return
        for what, *rest in json.loads(held[b"data"]):
            self.events.append((what, rest))
            match what:
                case "row":
                    row = parsed(rest[0]).one("article")
                    name = row.attributes["id"]
                    body = row.one("div", class_="body").text.strip("\n")
                    self.rows[name] = row.attributes["data-version"], row.one("header").text, body
                    (self.plain.add if "plain" in row.classes else self.plain.discard)(name)
                case "text":
                    name, at, text = rest
                    version, head, body = self.rows[name]
                    assert version == ""
                    assert len(body.encode("utf-16-le")) // 2 == at
                    self.rows[name] = "", head, body + text
                case "rows":
                    self.rows = {name: self.rows[name] for name in rest[0]}
                case "header":
                    self.header = rest[0]
                case _:
                    raise AssertionError(what)
        self.mark = held.get(b"id", self.mark.encode()).decode()

    @property
    def texts(self) -> list[str]:
        """What the rows say, in order."""
        return [f"{head}: {body}" if body else head for _, head, body in self.rows.values()]


class Watcher:
    """Takes events as they come, until it is stopped."""

    def __init__(self, events: AsyncGenerator[bytes, None], page: Page) -> None:
        self.page = page
        self._events = events
        self._changed = asyncio.Condition()
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        try:
            async for event in self._events:
                self.page.take(event)
                async with self._changed:
                    self._changed.notify_all()
        finally:
            async with self._changed:
                self._changed.notify_all()

    async def until(self, true: Any) -> None:
        """Wait until something is true of the page."""
        async with asyncio.timeout(DEADLINE), self._changed:
            await self._changed.wait_for(lambda: self._task.done() or true(self.page))
        if self._task.done():
            self._task.result()
        assert true(self.page)

    async def ended(self) -> None:
        async with asyncio.timeout(DEADLINE):
            await self._task

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})
        await self._events.aclose()


def watching(events: AsyncGenerator[bytes, None], page: Page | None = None) -> Watcher:
    """Watch, with a new page or one that goes on."""
    return Watcher(events, page or Page())
