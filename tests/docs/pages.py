"""The pages people read, and the fenced blocks in them."""

import itertools
import re
import runpy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["GENERATOR", "ROOT", "Block", "blocks", "pages", "shows"]

ROOT = Path(__file__).parents[2]
GENERATOR: dict[str, Any] = runpy.run_path(str(ROOT / "docs" / "generate_reference.py"))
"""The names of the script that writes the reference: it knows which modules are public."""

_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>\w*)$\n(?P<text>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!-- (?P<word>file|not run): (?P<value>[^>]+?) -->\s*\Z")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, the line its text begins at, and what the comment above it says.

    A comment ``file: NAME`` writes the text to that file, ``not run: REASON`` leaves the block alone. ``output`` is the
    text of a ``text`` block that follows with nothing between.
    """

    language: str
    text: str
    line: int
    file: str = ""
    skipped: str = ""
    output: str | None = None


def pages() -> list[Path]:
    """Give the pages that are written by hand, and the generated reference of the command line."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """Give the blocks of a page in order; a block that is another's output is not one of its own."""
    text = page.read_text(encoding="utf-8")
    found = list(_FENCE.finditer(text))
    pairs = itertools.pairwise(found)
    follows = {one.end(): two for one, two in pairs if not text[one.end() : two.start()].strip()}
    outputs = set()
    for match in found:
        if match.start() in outputs:
            continue
        after = follows.get(match.end())
        output = None
        if match["language"] == "python" and after is not None and after["language"] == "text":
            outputs.add(after.start())
            output = after["text"]
        comment = _COMMENT.search(text, 0, match.start())
        said = {comment["word"]: comment["value"]} if comment else {}
        line = text.count("\n", 0, match.start("text")) + 1
        yield Block(match["language"], match["text"], line, said.get("file", ""), said.get("not run", ""), output)


def shows(shown: str, real: str) -> bool:
    """Whether ``shown`` is ``real``, or what is left when lines of it are cut out at lines of ``…``."""
    pieces = [re.escape(piece) for piece in re.split(r"^…\n", shown, flags=re.MULTILINE)]
    return re.fullmatch(r"(?:.*\n)*?".join(pieces), real) is not None
