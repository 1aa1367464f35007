"""A file's old and new text as a git patch that holds both whole, so that nothing of a v1 diff is lost in v2."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Final

from msgspec import UNSET

from twofold.wire import v2

__all__ = ["WHOLE_FILE", "git_patch", "texts_of"]

WHOLE_FILE: Final = "twofold/whole-file"
"""The ``_meta`` key of a patch whose one hunk spans its file from the first line to the last."""

_HUNK: Final = re.compile(r"^@@ -[01](?:,(\d+))? \+[01](?:,(\d+))? @@.*\n", re.MULTILINE)

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
        for kind, old_start, old_end, new_start, new_end in SequenceMatcher(
            None, old, new, autojunk=False
        ).get_opcodes():
            if kind == "equal":
                yield from _marked(" ", old[old_start:old_end])
            else:
                yield from _marked("-", old[old_start:old_end])
                yield from _marked("+", new[new_start:new_end])
    yield from _marked(" ", before[len(before) - end :])


def _marked(mark: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"


def texts_of(diff: v2.Diff) -> tuple[str, str | None, str] | None:
    """Give a diff's file with its whole old text (``None``: the file is new) and new text, or ``None`` when it does not
    hold them: several files, no patch, or a patch that may leave out lines around its changes.
    """
    patch = diff.patch
    if len(diff.changes) != 1 or not isinstance(patch, v2.DiffPatch) or patch.format != "git_patch":
        return None
    change = diff.changes[0]
    if not isinstance(change, v2.AddChange | v2.ModifyChange) or _says_more(change):
        return None
    whole = isinstance(patch.meta, dict) and patch.meta.get(WHOLE_FILE) is True
    if not whole and (patch.meta not in (UNSET, None) or isinstance(change, v2.ModifyChange)):
        return None
    hunks = _HUNK.split(patch.text)
    if patch.text.count("\n@@ ") + patch.text.startswith("@@ ") > 1 or patch.extra is not UNSET:
        return None
    if len(hunks) == 1:  # nothing before and nothing after
        before, after = "", ""
        if not whole:
            return None
    else:
        texts = _read(hunks[3])
        if texts is None or _counted(texts[0]) != int(hunks[1] or 1) or _counted(texts[1]) != int(hunks[2] or 1):
            return None
        before, after = texts
    if isinstance(change, v2.AddChange):
        return None if before else (change.path, None, after)
    return change.path, before, after


def _says_more(change: v2.AddChange | v2.ModifyChange) -> bool:
    """Whether a change says what a v1 diff has no place for. That a file is text goes without saying there."""
    return (
        change.file_type not in (UNSET, None, "text")
        or change.mime_type not in (UNSET, None)
        or change.meta not in (UNSET, None)
        or change.extra is not UNSET
    )


def _counted(text: str) -> int:
    return len(_lines(text))


def _read(body: str) -> tuple[str, str] | None:
    """Give the old and new text of a hunk."""
    before: list[str] = []
    after: list[str] = []
    marked: tuple[list[str], ...] = ()
    for line in _lines(body):
        mark, text = line[:1], line[1:]
        if mark == "\\":
            for side in marked:
                side[-1] = side[-1].removesuffix("\n")
            continue
        sides = {" ": (before, after), "-": (before,), "+": (after,)}.get(mark)
        if sides is None:
            return None
        marked = sides
        for side in marked:
            side.append(text if text.endswith("\n") else f"{text}\n")
    return "".join(before), "".join(after)
