"""Writes docs/conversion-table.md from the table that the converter takes its reasons from.

Run ``python docs/generate_conversion_table.py`` with a Python that twofold is installed in. The page is committed, and
a test compares it with what this script would write.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from twofold.convert import CARRY, Rule

PAGE: Final = Path(__file__).parent / "conversion-table.md"

HEAD: Final = """<!-- Written by docs/generate_conversion_table.py from twofold.convert.CARRY: edit that, not this. -->

# What v1 can carry of v2

Every v2 update, field by field and state by state: whether v1 can say it, what each policy does, and the reason that
the error or loss record gives. [Serving v1 clients](serving-v1-clients.md) explains the policies. Rule numbers are
those of [the numbered rules](protocol-revisions.md#the-rules); "RFD step 5" is the source document's own sentence on
v1.

| update | field | state | v1 can say it | `strict` | `mark` | reason | rule |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""

WORDS: Final = {"yes": "yes", "when": "in another form", "no": "no"}


def page() -> str:
    """Give the page's text."""
    return HEAD + "".join(map(_row, CARRY))


def _row(rule: Rule) -> str:
    updates = ", ".join(kind if kind.startswith("(") else f"`{kind}`" for kind in rule.update.split(", "))
    mark = "the same" if rule.mark == rule.strict else rule.mark
    cells = (updates, rule.field, rule.state, WORDS[rule.carry], rule.strict, mark, rule.reason, rule.clause)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
