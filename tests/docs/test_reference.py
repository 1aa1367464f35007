"""The generated reference says what the docstrings say now."""

import re

import pytest

from tests.docs.pages import GENERATOR, ROOT

REFERENCE = ROOT / "docs" / "reference"
AGAIN = "Run `.venv/bin/python docs/generate_reference.py` (or another Python that twofold is installed in) and commit."


def test_the_reference_is_what_its_script_writes_now() -> None:
    pages: dict[str, str] = GENERATOR["pages"]()
    written = {page.name: page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md")}
    stale = sorted(name for name in pages.keys() | written.keys() if pages.get(name) != written.get(name))
    if stale:
        pytest.fail(f"docs/reference does not say what the docstrings say: {', '.join(stale)}.\n{AGAIN}", pytrace=False)


def test_every_rule_that_the_reference_names_stands_on_the_page_of_rules() -> None:
    rules = (ROOT / "docs" / "protocol-revisions.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^- \*\*([A-Z]-\d+)\*\*", rules, re.MULTILINE))
    named = {code for page in REFERENCE.glob("*.md") for code in re.findall(r"\b[A-Z]-\d+\b", page.read_text("utf-8"))}
    assert named <= explained
