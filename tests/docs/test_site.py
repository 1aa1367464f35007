"""The site: built without a warning and without the network, all there, and nothing of it comes from elsewhere."""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.pages import ROOT
from tests.require import missing

BUILD: Final = ROOT / "docs" / "site" / "build.py"
NEEDED: Final = ("sphinx", "myst_parser", "furo")
SECONDS: Final = 120  # it takes less than ten
HINT: Final = "A page belongs into one of the lists under “All pages” in docs/index.md."

OFFLINE: Final = """
import runpy, sys

def refuse(event, _arguments):
    if event.startswith(("socket.connect", "socket.getaddrinfo", "socket.gethostby", "socket.send", "subprocess.")):
        raise RuntimeError(f"the site is built without {event}")

sys.addaudithook(refuse)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script that may neither reach the network nor start a program that could."""

LOADING: Final = {"stylesheet", "icon", "manifest", "preload", "prefetch", "preconnect", "modulepreload"}
"""What a `<link>` is that makes a browser load something."""
NAMESPACES: Final = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml", "http://www.w3.org/1999/xlink"}
"""Names that look like addresses and are never loaded."""


class Page(HTMLParser):
    """What a page loads, where it leads, and the places in it that can be led to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.told: list[str] = []
        """The links in what the page itself says, without the site's sidebar and footer."""
        self.places: set[str] = set()
        self._in_article = 0
        self._in_style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attributes}
        self._in_article += tag == "article"
        self._in_style = tag == "style"
        self.places |= {has[name] for name in ("id", "name") if name in has}
        self.loads += addresses(has.get("style", ""))
        if tag == "a" and "href" in has:
            self.links.append(has["href"])
            if self._in_article:
                self.told.append(has["href"])
        elif tag == "link":
            (self.loads if LOADING & set(has.get("rel", "").split()) else self.links).append(has.get("href", ""))
        elif tag == "form":
            self.links.append(has.get("action", ""))
        else:
            names = ("src", "href", "xlink:href", "data", "poster", "background")
            self.loads += [has[name] for name in names if name in has]
            self.loads += [one.split()[0] for one in has.get("srcset", "").split(",") if one.strip()]

    def handle_endtag(self, tag: str) -> None:
        self._in_article -= tag == "article"
        self._in_style = False

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.loads += addresses(data)


def addresses(style: str) -> list[str]:
    """Give what a style sheet loads."""
    style = re.sub(r"/\*.*?\*/", "", style, flags=re.DOTALL)
    found = re.findall(r"""url\(\s*["']?([^"')]+)|@import\s+["']([^"']+)""", style)
    return [one or other for one, other in found]


def names_of_hosts(script: str) -> set[str]:
    """Give the addresses of other hosts in a script or a picture, comments left out."""
    script = re.sub(r"/\*.*?\*/|^\s*//.*$|<!--.*?-->", "", script, flags=re.DOTALL | re.MULTILINE)
    return set(re.findall(r"""(?:\bhttps?:|\bwss?:|(?<=["'`]))//[\w.-]+\.\w+[^\s"'`<>)]*""", script)) - NAMESPACES


def is_elsewhere(address: str) -> bool:
    split = urlsplit(address)
    return bool(split.netloc) or split.scheme not in ("", "data")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site."""
    lacking = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if lacking:
        missing("docs", f"{', '.join(lacking)} cannot be imported; `make test` and `make site` install them")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-X", "utf8", "-c", OFFLINE, str(BUILD), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=SECONDS, check=False)
    if done.returncode or done.stderr:
        pytest.fail(f"the site was built with\n{done.stderr}\n{HINT}", pytrace=False)
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """Read the pages of the site."""
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def targets(path: Path, links: list[str]) -> Iterator[tuple[str, Path, str]]:
    """Give each link that stays within the site, the file that it leads to, and the place in that."""
    for link in links:
        split = urlsplit(link)
        if not is_elsewhere(link):
            yield link, (path.parent / unquote(split.path)).resolve() if split.path else path, unquote(split.fragment)


def test_every_page_of_the_documentation_is_a_page_of_the_site(site: Path) -> None:
    docs = ROOT / "docs"
    written = {
        page.relative_to(docs).with_suffix(".html") for page in [*docs.glob("*.md"), *docs.glob("reference/*.md")]
    }
    written = {page.with_name("index.html") if page.stem == "README" else page for page in written}
    built = {page.relative_to(site) for page in site.rglob("*.html")}
    assert written - built == set()
    assert {page.with_suffix(".html").name for page in (ROOT / "examples").glob("*.py")} <= {
        page.name for page in built
    }


def test_every_page_is_reached_from_the_start_page_by_what_the_pages_say(site: Path, pages: dict[Path, Page]) -> None:
    reached, ahead = {site / "index.html"}, [site / "index.html"]
    while ahead:
        path = ahead.pop()
        found = {file for _, file, _ in targets(path, pages[path].told) if file in pages} - reached
        reached |= found
        ahead += found
    assert pages.keys() - reached == {site / "search.html"}


def test_every_link_within_the_site_leads_to_a_place_that_is_there(site: Path, pages: dict[Path, Page]) -> None:
    broken = set()
    for path, page in pages.items():
        for link, file, place in targets(path, page.links):
            if not file.is_file() or (place and file in pages and place not in pages[file].places):
                broken.add((str(path.relative_to(site)), link))
    assert broken == set()


def test_all_that_a_page_loads_is_part_of_the_site(site: Path, pages: dict[Path, Page]) -> None:
    loaded = [(path, one) for path, page in pages.items() for one in page.loads]
    loaded += [(path, one) for path in site.rglob("*.css") for one in addresses(path.read_text(encoding="utf-8"))]
    assert {one for _, one in loaded if is_elsewhere(one)} == set()
    absent = {(path, one) for path, one in loaded for _, file, _ in targets(path, [one]) if not file.is_file()}
    assert {one for one in absent if not one[1].startswith("data:")} == set()


def test_no_script_and_no_picture_names_another_host(site: Path) -> None:
    files = [path for path in site.rglob("*") if path.suffix in (".js", ".svg")]
    assert {(path.name, one) for path in files for one in names_of_hosts(path.read_text(encoding="utf-8"))} == set()
    inline = [
        (path.name, one)
        for path in site.rglob("*.html")
        for script in re.findall(r"<script>(.*?)</script>", path.read_text(encoding="utf-8"), re.DOTALL)
        for one in names_of_hosts(script)
    ]
    assert inline == []


def test_the_search_knows_every_page(site: Path, pages: dict[Path, Page]) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    names = {path.relative_to(site).with_suffix("").as_posix() for path in pages} - {"search"}
    assert {name for name in names if f'"{name}"' not in index} == set()


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/css">',
        '<link rel="preconnect" href="https://fonts.example">',
        '<img src="http://pictures.example/a.png">',
        '<img srcset="a.png 1x, https://pictures.example/b.png 2x">',
        '<svg><use href="https://icons.example/sun.svg#sun"/></svg>',
        '<p style="background: url(https://pictures.example/a.png)">',
        "<style>@import 'https://fonts.example/css';</style>",
        '<style>@font-face { src: url("//fonts.example/a.woff2") }</style>',
    ],
)
def test_what_comes_from_elsewhere_is_found(text: str) -> None:
    assert [one for one in Page(text).loads if is_elsewhere(one)]


@pytest.mark.parametrize(
    "script", ['fetch("https://api.example/x")', "import('//cdn.example/x.js')", "a=`wss://live.example`"]
)
def test_another_host_in_a_script_is_found(script: str) -> None:
    assert names_of_hosts(script)


@pytest.mark.parametrize("script", ["// see https://docs.example/x", "/* https://docs.example */", "a = b // c.d"])
def test_another_host_in_a_comment_is_nothing(script: str) -> None:
    assert not names_of_hosts(script)
