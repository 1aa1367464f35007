"""Builds the documentation site: ``python docs/site/build.py [FOLDER]``, by default into build/site.

The pages are the Markdown files in docs/ as they are, without directives, because people also read them where the code
is kept. This script lays them out for Sphinx in a folder of their own and adds what is beside them:

- what pages link to elsewhere (the changelog, the benchmarks, the programs in examples/) becomes pages of the site;
- the lists of links on the start page and in the index of the reference become the site's sidebar. So a page that is
  in neither list is a warning, and warnings are errors.

Nothing is fetched, neither here nor by the pages.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import posixpath
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sphinx.cmd.build import build_main

ROOT: Final = Path(__file__).parents[2]
SITE: Final = Path(__file__).parent
CONTENTS: Final = "## All pages"
"""The heading on the start page whose lists are the sidebar."""

_FENCE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"(?<=\]\()(?P<file>[^)#\s]+)(?=[)#])")
_ENTRY: Final = re.compile(r"^- \[[^\]]+\]\((?P<page>[^)#\s]+)\.md\)", re.MULTILINE)
_HEADING: Final = re.compile(r"^### (?P<words>.+)$", re.MULTILINE)


def build(folder: Path) -> int:
    """Build the site into a folder and give the exit status; what is wrong is said on standard error."""
    with tempfile.TemporaryDirectory() as work:
        pages = Path(work, "docs")
        pages.mkdir()
        lay_out(pages)
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            status = build_main(["-qW", "--keep-going", "-d", f"{work}/read", "-c", f"{SITE}", f"{pages}", f"{folder}"])
        print(said.getvalue().replace(f"{os.path.realpath(pages)}/", "docs/"), end="", file=sys.stderr)
    return status


def lay_out(folder: Path) -> None:
    """Write all pages into a folder as Sphinx is to find them."""
    places = dict(_places())
    for path, place in places.items():
        source, target = ROOT / path, folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            target.write_text(_examples(source), encoding="utf-8")
        elif source.suffix == ".py":
            target.write_text(_program(source), encoding="utf-8")
        elif source.suffix == ".md":
            text = _with_links(source.read_text(encoding="utf-8"), path, places)
            target.write_text(text + _sidebar(place, text), encoding="utf-8")
        else:
            shutil.copyfile(source, target)


def _places() -> Iterator[tuple[str, str]]:
    """Give what is part of the site: where it is kept, and where it goes."""
    for page in sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("docs/images/*"), *ROOT.glob("docs/reference/*.md")]):
        path = page.relative_to(ROOT).as_posix()
        yield path, path.removeprefix("docs/").replace("README.md", "index.md")
    yield "benchmarks/README.md", "benchmarks.md"
    yield "CHANGELOG.md", "changelog.md"
    yield "LICENSE", "LICENSE"
    yield "examples", "examples/index.md"
    for program in sorted(ROOT.glob("examples/*.py")):
        yield f"examples/{program.name}", f"examples/{program.stem}.md"


def _with_links(text: str, path: str, places: dict[str, str]) -> str:
    """Let the links of a page lead to where things are in the site."""

    def there(match: re.Match[str]) -> str:
        file = posixpath.normpath(posixpath.join(posixpath.dirname(path), match["file"]))
        if file not in places:  # the web, or what Sphinx will not find either
            return match["file"]
        return posixpath.relpath(places[file], posixpath.dirname(places[path]))

    parts = _FENCE.split(text)  # code at odd places
    return "".join(part if number % 2 else _LINK.sub(there, part) for number, part in enumerate(parts))


def _sidebar(place: str, text: str) -> str:
    """Give the tables of contents that a page with lists of pages ends with."""
    if place == "index.md":
        _, *groups = _HEADING.split(text.partition(f"\n{CONTENTS}\n")[2])
        lists = list(zip(groups[::2], groups[1::2], strict=True))
    elif place == "reference/index.md":
        lists = [("", text)]
    else:
        return ""
    return "".join(_contents(caption, [match["page"] for match in _ENTRY.finditer(group)]) for caption, group in lists)


def _contents(caption: str, pages: list[str]) -> str:
    head = ["```{toctree}", ":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n" + "\n".join([*head, "", *pages, "```", ""])


def _program(source: Path) -> str:
    text = source.read_text(encoding="utf-8")
    return f"# {source.name}\n\n```python\n{text}```\n"


def _examples(folder: Path) -> str:
    programs = sorted(folder.glob("*.py"))
    lines = ["# Examples", ""]
    for program in programs:
        about = (ast.get_docstring(ast.parse(program.read_text(encoding="utf-8"))) or "").partition("\n\n")[0]
        lines.append(f"- [`{program.name}`]({program.stem}.md): {' '.join(about.split())}")
    return "\n".join([*lines, _contents("", [program.stem for program in programs])])


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"))
