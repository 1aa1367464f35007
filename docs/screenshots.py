"""Takes the pictures of the web page for the documentation: ``python -m docs.screenshots`` from the root of a clone.

It needs Chromium on the PATH and the packages of the tests. Pictures are written to docs/images/, in light and dark.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, Page

from tests.browser.chromium import browser
from twofold.capture.importing import Importer
from twofold.examples import harbour
from twofold.journal import Journal, open_journal
from twofold.web import Server

IMAGES: Final = Path(__file__).parent / "images"
SESSION: Final = "harbour-7f3a"
LARGEST: Final = 150_000
WIDE: Final = {"width": 880, "height": 620}
PHONE: Final = {"width": 390, "height": 700}
OTHERS: Final = (
    ("mooring-2c41", "Why do moorings expire at midnight?", "idle", 3 * 3600),
    ("tides-9b07", "Read the tide tables from the new source", "running", 40),
)


def main() -> None:
    """Take all pictures."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, open_journal(Path(folder) / "sessions") as journal:
        for name, words, state, ago in OTHERS:
            _other(journal, name, words, state, time.time() - ago)
        lines = iter(harbour().splitlines())
        importer = Importer(journal, name="example")
        with _served(journal) as server, browser() as chromium:
            pages = _Pages(chromium, server)
            _play(importer, lines, until=b"requires_action")
            pages.take("web-list", "", lambda page: page.get_by_text("waits for a permission").wait_for())
            pages.take("web-live", SESSION, lambda page: page.locator("#asked").wait_for())
            _play(importer, lines, until=None)
            pages.take("web-session", SESSION, _looked)
            pages.take("web-phone", SESSION, lambda page: page.get_by_text("withdrawn").wait_for(), size=PHONE)


def _looked(page: Page) -> None:
    """Unfold the tests' output, and look at the correction and what comes after it."""
    page.locator("article.tool summary").last.click()
    page.get_by_label("Agent, corrected").evaluate("(row) => scrollTo(0, row.offsetTop - 60)")


def _other(journal: Journal, name: str, words: str, state: str, at: float) -> None:
    raws = (
        b'{"sessionUpdate":"session_info_update","title":"%b"}' % words.encode(),
        b'{"sessionUpdate":"state_update","state":"%b"}' % state.encode(),
    )
    journal.append(name, 0, *raws, received_at=at)


def _play(importer: Importer, lines: Iterator[bytes], *, until: bytes | None) -> None:
    for line in lines:
        list(importer.feed([line]))
        if until is not None and until in line:
            break
    importer.flush()


@contextmanager
def _served(journal: Journal) -> Iterator[Server]:
    server = Server(journal, token=None)
    running = threading.Thread(target=server.run)
    running.start()
    try:
        yield server
    finally:
        server.stop()
        running.join()


class _Pages:
    def __init__(self, chromium: Browser, server: Server) -> None:
        self._chromium = chromium
        self._server = server

    def take(self, name: str, session: str, ready: Callable[[Page], object], *, size: Any = WIDE) -> None:
        """Take a picture of a page, by day and by night."""
        for scheme in ("light", "dark"):
            page = self._chromium.new_page(color_scheme=scheme, viewport=size)
            page.goto(self._server.link(session or None))
            if session:
                page.locator("#connection[data-state=live]").wait_for()
            ready(page)
            page.evaluate("() => document.fonts.ready")
            page.wait_for_function("() => !document.querySelector('.plain') && !document.getAnimations().length")
            path = IMAGES / f"{name}-{scheme}.png"
            page.screenshot(path=path)
            page.context.close()
            size_now = path.stat().st_size
            print(f"{path.name}: {size_now // 1000} kB")
            assert size_now <= LARGEST, f"{path.name} is larger than {LARGEST} bytes"


if __name__ == "__main__":
    main()
