"""A journal that is served from a thread of this process, and pages that look at it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Error, Page, Request

from tests.journal.stored import Session
from twofold.journal import open_journal
from twofold.web import Server
from twofold.web._app import link

__all__ = ["DEADLINE", "LIVE", "Pages", "Site"]

DEADLINE: Final = 20_000.0
"""Milliseconds after which something waited for is taken to be lost."""

LIVE: Final = "#connection[data-state=live]"


class Site:
    """Serves a journal; it can be stopped and started again at the same place."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = open_journal(path)
        self.port = 0
        self.name = ""
        """The session of the test that is run."""
        self.start()
        self.url = f"http://127.0.0.1:{self.port}/"

    def start(self, token: str | None = None) -> None:
        self.server = Server(self.journal, port=self.port, token=token)
        self.port = self.server.port
        self._thread = threading.Thread(target=self.server.run)
        self._thread.start()

    def stop(self) -> None:
        self.server.stop()
        self._thread.join(timeout=20)
        assert not self._thread.is_alive()

    def session(self, *updates: Any, name: str | None = None) -> Session:
        """Give what appends to a session, which begins with some updates."""
        session = Session(self.journal, self.name if name is None else name)
        session.append(*updates)
        return session

    def at(self, session: str | None = None) -> str:
        """Give the address of a session's page."""
        return self.url + link(self.name if session is None else session)

    def close(self) -> None:
        self.stop()
        self.journal.close()


class Pages:
    """Opens pages, each in a browser context of its own, and notes what they do that they should not."""

    def __init__(self, browser: Browser, site: Site) -> None:
        self.requests: list[str] = []
        self.troubles: list[str] = []
        self._browser = browser
        self._site = site
        self._contexts: list[BrowserContext] = []

    def __call__(self, url: str | None = None, **how: Any) -> Page:
        """Open a page, of the test's session unless told otherwise, and wait until it is live."""
        page = self.blank(**how)
        page.goto(self._site.at() if url is None else url)
        if "session" in page.url and how.get("java_script_enabled", True):
            page.locator(LIVE).wait_for()
        return page

    def blank(self, **how: Any) -> Page:
        """Open a page that is to go somewhere yet."""
        context = self._browser.new_context(**how)
        context.set_default_timeout(DEADLINE)
        self._contexts.append(context)
        page = context.new_page()
        page.on("request", self._asked)
        page.on("console", self._said)
        page.on("pageerror", self._failed)
        page.on("dialog", self._opened)
        return page

    def _asked(self, request: Request) -> None:
        self.requests.append(request.url)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and "net::ERR_" not in message.text:  # the server may be away
            self.troubles.append(message.text)

    def _failed(self, error: Error) -> None:
        self.troubles.append(str(error))

    def _opened(self, dialog: Dialog) -> None:
        self.troubles.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def close(self) -> None:
        for context in self._contexts:
            context.close()
