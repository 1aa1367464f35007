"""Rows as Markdown. Headings are ours; what was said stands under them in quotes, which nothing in it can end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from twofold.fold import Transcript
from twofold.view._rows import rows
from twofold.view._text import footer, heading

__all__ = ["markdown"]

_MARKUP: Final = re.compile(r"[\\`*_\[\]<>#|&~$]")
_TAG: Final = re.compile(r"<(?=[A-Za-z/!?])")
_FENCE: Final = re.compile(r"( {0,3})(?:(`{3,})[^`|]*|(~{3,})[^|]*)")  # a bar: some readers see a table's head
_MAYBE_FENCE: Final = re.compile(r"[^A-Za-z]*?(?:```|~~~)")
_INLINE: Final = re.compile(r"\\[!-/:-@[-`{-~]|`+|<(?=[A-Za-z/!?])")


def markdown(transcript: Transcript) -> str:
    """Give a session as Markdown. What was said is quoted as it is, but for HTML: that is shown and does not act."""
    blocks = [f"# {_escaped(heading(transcript))}"]
    for row in rows(transcript):
        title = f": {_escaped(row.title)}" if row.title else ""
        status = f" ({_escaped(row.status)})" if row.status else ""
        mark = " (corrected)" if row.corrected and not row.withdrawn else ""
        name = "unknown update" if row.kind == "unknown" else str(row.kind)
        blocks.append(f"## {name.capitalize()}{title}{status}{mark}")
        if row.withdrawn:
            blocks.append("*withdrawn by the agent*")
        for piece in row.body:
            match piece.kind:
                case "text":
                    said = _without_html(piece.text.rstrip("\n"))
                    blocks.append("\n".join(f"> {line}" if line else ">" for line in said))
                case "code":
                    code = piece.text.rstrip("\n")
                    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", code)), default=0))
                    blocks.append(f"{fence}{piece.language}\n{code}\n{fence}")
                case "note":
                    blocks.append(_remark(piece.text))
    last = footer(transcript)
    if last:
        blocks.append(f"---\n\n{_remark(last)}")
    return "\n\n".join(blocks) + "\n"


def _remark(words: str) -> str:
    return f"*{_escaped(words.strip())}*"


def _escaped(words: str) -> str:
    """Escape what Markdown would take for markup in a line of ours."""
    return _MARKUP.sub(r"\\\g<0>", words)


def _without_html(text: str) -> Iterator[str]:
    """Give the lines of Markdown with HTML tags disarmed, but where they are certain to be code, and inert, anyhow.

    That is in a fence whose lines are all indented as it is, by three at most, and in a code span of one line. Where
    this reading and a Markdown reader's might differ, tags are disarmed: rather a quote that is a little ugly than one
    with headings that look like ours.
    """
    fence: tuple[str, str] | None = None  # its indentation and its marks
    certain = True  # that it is known where fences begin and end
    open_span = False  # whether a code span may have been left open in this paragraph
    for line in text.split("\n"):
        bare = line.strip(" \t")
        if fence is not None:
            indent, marks = fence
            if bare and not line.startswith(indent):
                fence, certain = None, False  # a list that it may stand in has ended, and with it the fence
            else:
                yield line
                if bare.startswith(marks) and not bare.strip(marks[0]):
                    fence, certain = None, line.rstrip(" \t") == indent + bare
                continue
        opening = _FENCE.fullmatch(line) if certain else None
        if opening is not None:
            fence = opening.group(1), opening.group(2) or opening.group(3)
            open_span = False
        certain = certain and (opening is not None or _MAYBE_FENCE.match(line) is None)
        if opening is not None or not certain:
            yield _TAG.sub("&lt;", line)
        elif not bare:
            open_span = False
            yield line
        elif open_span or "|" in line:  # or a table, whose cells end spans
            open_span = open_span or "`" in line
            yield _TAG.sub("&lt;", line)
        else:
            disarmed, open_span = _disarmed(line)
            yield disarmed


def _disarmed(line: str) -> tuple[str, bool]:
    """Disarm the tags of a line outside of fences, and say whether it leaves a code span open."""
    parts: list[str] = []
    position = 0
    open_span = False
    while match := _INLINE.search(line, position):
        parts.append(line[position : match.start()])
        mark, position = match.group(), match.end()
        if mark[0] == "`":
            end = re.compile(f"(?<!`){mark}(?!`)").search(line, position)
            if end is None:
                open_span = True
            else:
                mark, position = line[match.start() : end.end()], end.end()
        parts.append("&lt;" if mark == "<" else mark)
    parts.append(line[position:])
    return "".join(parts), open_span
