"""What the pages claim can be looked up: promises in the tests that they name, figures in the benchmarks, messages in
the code."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.docs.pages import ROOT, pages

ROWS = ["promised", "when", "rule", "tested in", "not promised"]


def sections() -> list[tuple[str, str]]:
    """Give the headings of the page of guarantees and what stands below each."""
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return list(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize(("heading", "text"), sections(), ids=[heading for heading, _ in sections()])
def test_a_guarantee_says_when_it_holds_where_it_comes_from_what_tests_it_and_its_end(heading: str, text: str) -> None:
    cells = dict(re.findall(r"^\| ([\w ]+) \| (.+) \|$", text, re.MULTILINE))
    assert list(cells) == ROWS
    tests = re.findall(r"`([\w/]+\.py)`", cells["tested in"])
    assert tests
    assert [name for name in tests if not (ROOT / "tests" / name).is_file()] == []


@pytest.mark.parametrize("page", [page.name for page in pages()])
def test_every_test_that_a_page_names_in_full_exists(page: str) -> None:
    text = (ROOT / page if page == "README.md" else ROOT / "docs" / page).read_text(encoding="utf-8")
    assert [name for name in re.findall(r"`(tests/[\w/]+\.py)`", text) if not (ROOT / name).is_file()] == []


def test_the_figures_of_the_comparison_are_those_of_the_benchmarks() -> None:
    results = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8").partition("\n## Results\n")[2]
    measured = dict(re.findall(r"^    ([a-z-]+)  .*?  ([\d.]+×)  ", results, re.MULTILINE))
    compared = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8").partition("\n## Speed\n")[2]
    figures = dict(re.findall(r"^\| `([a-z-]+)` \| .+ \| ([\d.]+×) \|$", compared, re.MULTILINE))
    figures |= dict(re.findall(r"\(`([a-z-]+)`, ([\d.]+×)\)", compared))
    figures |= {name: figure for figure, name in re.findall(r"([\d.]+×) \(`([a-z-]+)`\)", compared)}
    assert len(figures) == 6
    assert {name: measured.get(name) for name in figures} == figures


def texts() -> Iterator[str]:
    """Give the texts of the code, and the fixed parts of those with something put in."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value.strip()


def test_every_message_that_is_explained_is_one_that_is_said() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?) \|", page, re.MULTILINE)
    messages = [message for row in rows for message in re.findall(r"`([^`]+)`", row)]
    assert len(messages) > 40
    said = {text for text in texts() if len(text) >= 10}
    unsaid = []
    for message in messages:
        longest = max((part.strip() for part in message.split("…")), key=len)
        if not any(text in message or longest in text for text in said):
            unsaid.append(message)
    assert unsaid == []
