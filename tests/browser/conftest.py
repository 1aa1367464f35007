"""A browser for all tests here, and for each a site of its own and pages that may talk to nobody else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.chromium import browser
from tests.browser.site import DEADLINE, Pages, Site

expect.set_options(timeout=DEADLINE)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="package")
def shared_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    one = Site(tmp_path_factory.mktemp("site") / "sessions.journal")
    yield one
    one.close()


@pytest.fixture
def site(shared_site: Site, request: pytest.FixtureRequest) -> Site:
    """Give a journal that is served, and in it a session for the test."""
    shared_site.name = f"session of {request.node.name}"
    return shared_site


@pytest.fixture
def pages(chromium: Browser, site: Site) -> Iterator[Pages]:
    """Give what opens pages; at the end none of them may have asked anybody else, or have been in any trouble."""
    made = Pages(chromium, site)
    yield made
    made.close()
    assert made.troubles == []
    assert [url for url in made.requests if not url.startswith(site.url)] == []
