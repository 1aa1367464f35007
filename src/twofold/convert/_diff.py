"""A file's old and new text as a git patch that holds both whole, so that nothing of a v1 diff is lost in v2."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher

__all__ = ["git_patch"]

_COMPARED = 4_000_000
"""Lines old × lines new that are compared for the smallest change; beyond that the differing middle is one change."""


def git_patch(path: str, old: str | None, new: str) -> str:
    """Give the change of the file at ``path`` from ``old`` (``None``: there was no file) to ``new`` as a git patch.

    The patch has one hunk with all lines as context, and is empty of hunks when nothing changed and nothing was there.
    """
    before, after = _lines(old or ""), _lines(new)
    source = "/dev/null" if old is None else _name("a", path)
    head = [f"diff --git {_name('a', path)} {_name('b', path)}\n"]
    if old is None:
        head.append("new file mode 100644\n")
    if not before and not after:
        return "".join(head)
    head += [f"--- {source}\n", f"+++ {_name('b', path)}\n", f"@@ -{_range(before)} +{_range(after)} @@\n"]
    return "".join([*head, *_body(before, after)])


def _name(side: str, path: str) -> str:
    return f"{side}{path}" if path.startswith("/") else f"{side}/{path}"


def _lines(text: str) -> list[str]:
    """Split at newlines alone, keeping them."""
    lines = [f"{line}\n" for line in text.split("\n")]
    if lines[-1] == "\n":
        lines.pop()
    else:
        lines[-1] = lines[-1][:-1]
    return lines


def _range(lines: list[str]) -> str:
    return f"1,{len(lines)}" if lines else "0,0"


def _body(before: list[str], after: list[str]) -> Iterator[str]:
    start = 0
    while start < len(before) and start < len(after) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    yield from _marked(" ", before[:start])
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    if len(old) * len(new) > _COMPARED:
        yield from _marked("-", old)
        yield from _marked("+", new)
    else:
        for kind, old_start, old_end, new_start, new_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if kind == "equal":
                yield from _marked(" ", old[old_start:old_end])
            else:
                yield from _marked("-", old[old_start:old_end])
                yield from _marked("+", new[new_start:new_end])
    yield from _marked(" ", before[len(before) - end :])


def _marked(mark: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"
