"""The system's Chromium, driven by Playwright: no browser is downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from tests.require import missing

__all__ = ["browser"]


@contextmanager
def browser() -> Iterator[Browser]:
    """Start Chromium; skip where there is none (`TWOFOLD_CHROMIUM` names another one than that on the PATH)."""
    program = os.environ.get("TWOFOLD_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        missing("chromium", "there is none on the PATH")
    arguments = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield started
        finally:
            started.close()
