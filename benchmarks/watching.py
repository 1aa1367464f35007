"""Rows about the web page: a server of its own, Chromium, and watchers that only read. Wall time, but for `serving`.

Updates say when they were made, in milliseconds of the clock that all processes of a machine share. So whoever sees one
knows how old it is.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.measure import Costs, Goal, Row, Size
from tests.browser.chromium import browser
from twofold.journal import open_journal
from twofold.wire import v2

__all__ = ["Watching"]

MESSAGES: Final = 2_000
RATE: Final = 200
WATCHERS: Final = 100
SECONDS: Final = 5
SESSION: Final = "s"
ROOT: Final = Path(__file__).parent.parent

ANSWER: Final = """\
Here is what I found about **the timetable**: it is built elsewhere, and `sailings.py` has an off-by-one in `offset()`.

- a first point, with a [link](https://example.com/a)
- a second, *emphasised*

```python
def offset(day: date) -> timedelta:
    return timedelta(hours=1) if day.weekday() == 6 else timedelta(0)
```

So I changed it and ran the tests. All 42 pass."""

WATCH: Final = """() => {
    window.ages = [];
    const look = () => {
        const text = document.querySelector("#rows > article:last-child .body")?.textContent ?? "";
        const stamps = text.trim().split(" ");
        for (const stamp of stamps.slice(window.seen ?? 0)) if (stamp) window.ages.push(Date.now() - Number(stamp));
        window.seen = stamps.length;
    };
    new MutationObserver(look).observe(
        document.getElementById("rows"), { subtree: true, childList: true, characterData: true });
}"""


class Watching:
    """The group of these rows."""

    rows: Sequence[Row] = (
        Row(
            "open",
            "2,000 messages opened in Chromium, the server fresh: to the last row, live",
            "open",
            None,
            Goal(1),
            " s",
        ),
        Row("open-again", "the same, once more", "again", None, Goal(1), " s"),
        Row("scroll", "the same, scrolled: the frames' mean", "frame", None, Goal(50), " ms"),
        Row(
            "lag",
            "200 updates a second after them: their age in Chromium, 95th percentile",
            "lag",
            None,
            Goal(300),
            " ms",
        ),
        Row("crowd", "the same for 100 watchers: their age for the last one", "crowd", None, Goal(500), " ms"),
        Row("serving", "the same: the server's CPU time", "cpu", None, Goal(0.6), " s a second"),
    )

    def rounds(self, rows: Sequence[Row], size: Size, /) -> Sequence[Costs]:
        """Measure what the rows need."""
        wanted = {row.name for row in rows}
        return [self._round(wanted) for _ in range(size.processes)]

    def _round(self, wanted: set[str]) -> Costs:
        costs: dict[str, float] = {}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            _write(path / "journal", [_whole(number) for number in range(MESSAGES)])
            if wanted & {"open", "open-again", "scroll"}:
                with browser() as chromium:
                    costs |= _opened(path / "journal", chromium)
            if "lag" in wanted:
                with browser() as chromium:
                    costs["lag"] = _lag(path / "journal", chromium)
            if wanted & {"crowd", "serving"}:
                costs |= _crowd(path / "journal")
        return costs


def _whole(number: int) -> bytes:
    words = ANSWER if number % 2 else f"What about sailing number {number}?"
    kind = v2.AgentMessage if number % 2 else v2.UserMessage
    return v2.encode(kind(message_id=f"m{number}", content=[v2.TextContent(text=words)]))


def _chunk(message_id: str, words: str) -> bytes:
    return v2.encode(v2.AgentMessageChunk(message_id=message_id, content=v2.TextContent(text=words)))


def _write(path: Path, raws: Sequence[bytes]) -> None:
    with open_journal(path) as journal:
        position = 0
        for start in range(0, len(raws), 256):
            position = journal.append(SESSION, position, *raws[start : start + 256]).position


@contextmanager
def _served(path: Path) -> Iterator[tuple[str, int]]:
    """Serve a journal, and give the link and the server's process id."""
    command = [sys.executable, "-m", "twofold", "serve", "--no-token", "--journal", str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http\S+", server.stdout.readline())
            assert found is not None
            yield found.group(), server.pid
        finally:
            server.send_signal(signal.SIGINT)


def _opened(path: Path, chromium: Any) -> Costs:
    costs: dict[str, float] = {}
    with _served(path) as (url, _):
        page = chromium.new_page()
        page.goto(url)
        for name in ("open", "again"):
            began = time.perf_counter()
            page.goto(f"{url}session?id={SESSION}", wait_until="commit")
            page.locator(f"#rows > article:nth-child({MESSAGES})").wait_for()
            page.locator("#connection[data-state=live]").wait_for()
            costs[name] = time.perf_counter() - began
        costs["frame"] = page.evaluate(
            """async () => {
                const began = performance.now();
                for (let frame = 0; frame < 200; frame++) {
                    scrollTo(0, document.documentElement.scrollHeight - 100 * frame);
                    await new Promise(requestAnimationFrame);
                }
                return (performance.now() - began) / 200;
            }"""
        )
    return costs


def _lag(path: Path, chromium: Any) -> float:
    with _served(path) as (url, _):
        page = chromium.new_page()
        page.goto(f"{url}session?id={SESSION}")
        page.locator("#connection[data-state=live]").wait_for()
        page.evaluate(WATCH)
        count = _stream(path)
        page.wait_for_function(f"() => window.ages.length >= {count}")
        ages: list[float] = page.evaluate("() => window.ages")
        return statistics.quantiles(ages, n=20)[-1]


def _stream(path: Path) -> int:
    """Store updates at the rate, and give how many."""
    count = RATE * SECONDS
    with open_journal(path) as journal:
        position = journal.position(SESSION)
        message_id = f"stream {position}"
        began = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began + number / RATE - time.monotonic()))
            position = journal.append(SESSION, position, _chunk(message_id, f"{time.time() * 1000:.0f} ")).position
    return count


def _crowd(path: Path) -> Costs:
    with _served(path) as (url, pid):
        ages, busy = asyncio.run(_watched(url, pid, threading.Thread(target=_stream, args=(path,))))
    return {"crowd": max(statistics.quantiles(each, n=20)[-1] for each in ages), "cpu": busy}


async def _watched(url: str, pid: int, streaming: threading.Thread) -> tuple[list[list[float]], float]:
    """Watch as many do; give the ages of what each saw, and the CPU seconds that the server took in each."""
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    ready = asyncio.Barrier(WATCHERS + 1)

    async def watch() -> list[float]:
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 26)
        writer.write(f"GET /events?id={SESSION} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        ages: list[float] = []
        await reader.readuntil(b"\nid: ")  # all that there is
        await reader.readline()
        await ready.wait()
        while len(ages) < RATE * SECONDS:
            line = await reader.readline()
            if line.startswith(b"data: "):
                now = time.time() * 1000
                ages += [now - int(stamp) for stamp in re.findall(rb"\b\d{13}\b", line)]
        writer.close()
        return ages

    watchers = [asyncio.create_task(watch()) for _ in range(WATCHERS)]
    await ready.wait()
    before, began = _cpu(pid), time.monotonic()
    streaming.start()
    ages = await asyncio.gather(*watchers)
    busy = (_cpu(pid) - before) / (time.monotonic() - began)
    streaming.join()
    return ages, busy


def _cpu(pid: int) -> float:
    """Give the CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
