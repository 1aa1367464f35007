"""Links between the pages lead somewhere."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, pages

ALL = [*pages(), ROOT / "CHANGELOG.md", *sorted((ROOT / "docs" / "reference").glob("*.md"))]

_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Give the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    seen: Counter[str] = Counter()
    made = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        made.add(slug if not seen[slug] else f"{slug}-{seen[slug]}")
        seen[slug] += 1
    return made


@pytest.mark.parametrize("page", ALL, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_between_files_resolves(page: Path) -> None:
    broken = []
    words = _CODE.sub(lambda match: "code" if match.group().startswith("`") else "", page.read_text(encoding="utf-8"))
    for target in (match["target"] for match in _LINK.finditer(words)):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.is_relative_to(ROOT) or not file.exists():
            broken.append(f"{target}: there is no such file")
        elif anchor and anchor not in anchors(file):
            broken.append(f"{target}: there is no such heading")
    assert broken == []


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {match["target"] for match in _LINK.finditer((ROOT / "README.md").read_text(encoding="utf-8"))}
    wanted = {f"docs/{page.name}" for page in pages() if page.parent.name == "docs"}
    assert wanted | {"docs/reference/README.md", "CHANGELOG.md", "LICENSE"} <= linked
