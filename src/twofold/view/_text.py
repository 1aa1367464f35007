"""Rows as text for a terminal or a pipe, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from twofold.fold import Transcript
from twofold.view._rows import Row, rows
from twofold.view._visible import visible
from twofold.wire import v2

__all__ = ["footer", "markdown", "row_lines", "text"]

_STYLES: Final = {
    "user": "1;36",
    "agent": "1;32",
    "thought": "2;3",
    "tool": "1;33",
    "terminal": "1;33",
    "plan": "1;35",
    "compaction": "2",
    "unknown": "2",
    "note": "2",
    "withdrawn": "1;31",
    "session": "1",
}
_TOOL_MARKS: Final = {"completed": "✓", "failed": "✗", "cancelled": "✗", "in_progress": "…", "pending": "…", "paused": "‖"}


def text(transcript: Transcript, *, colour: bool = False) -> str:
    """Give a session as text for people. What was said is indented, so that nothing said can pass for a heading."""
    blocks = [_styled(_heading(transcript), "session", colour)]
    blocks += ["\n".join(row_lines(row, colour=colour)) for row in rows(transcript)]
    last = footer(transcript)
    if last:
        blocks.append(_styled(last, "note", colour))
    return "\n\n".join(blocks) + "\n"


def row_lines(row: Row, *, colour: bool = False) -> Iterator[str]:
    """Give one row as lines."""
    head = row.kind if row.kind != "unknown" else "unknown update"
    if row.status:
        head += f" {_TOOL_MARKS.get(row.status, '·')} {row.status}" if row.kind == "tool" else f" · {row.status}"
    if row.title:
        title = row.title.replace("\n", " ⏎ ")
        head += f"  {title}"
    if row.corrected and not row.withdrawn:
        head += "  (corrected)"
    yield _styled(head, row.kind, colour)
    if row.withdrawn:
        yield "  " + _styled("withdrawn by the agent", "withdrawn", colour)
    for piece in row.body:
        style = {"note": "note", "text": "thought" if row.kind == "thought" else "", "code": ""}[piece.kind]
        indent = "    " if piece.kind == "code" else "  "
        for line in (f"[{piece.text}]" if piece.kind == "note" else piece.text).split("\n"):
            yield f"{indent}{_styled(line, style, colour)}" if line else ""


def footer(transcript: Transcript) -> str:
    """Give the session's last word on itself: state, why it stopped, usage."""
    words = []
    state = transcript.state
    if state is not None:
        reason = f" ({visible(state.stop_reason)})" if isinstance(state.stop_reason, str) else ""
        words.append(f"{visible(state.state)}{reason}")
    usage = transcript.usage
    if usage is not None:
        words.append(f"{usage.used:,} of {usage.size:,} tokens")
        if isinstance(usage.cost, v2.Cost):
            words.append(f"{usage.cost.amount:g} {visible(usage.cost.currency)}")
    return " · ".join(words)


def markdown(transcript: Transcript) -> str:
    """Give a session as Markdown: headings are ours, everything said stands under them as it is."""
    blocks = [f"# {_inline(_heading(transcript))}"]
    for row in rows(transcript):
        title = f": {_inline(row.title)}" if row.title else ""
        status = f" ({_inline(row.status)})" if row.status else ""
        mark = " (corrected)" if row.corrected and not row.withdrawn else ""
        blocks.append(f"## {row.kind.capitalize()}{title}{status}{mark}")
        if row.withdrawn:
            blocks.append("*withdrawn by the agent*")
        for piece in row.body:
            match piece.kind:
                case "text":
                    blocks.append(piece.text)
                case "code":
                    fence = _fence(piece.text)
                    blocks.append(f"{fence}{piece.language}\n{piece.text}\n{fence}")
                case "note":
                    blocks.append(f"*{_inline(piece.text)}*")
    last = footer(transcript)
    if last:
        blocks.append(f"---\n\n{_inline(last)}")
    return "\n\n".join(blocks) + "\n"


def _heading(transcript: Transcript) -> str:
    name = "session" if transcript.session_id is None else f"session {visible(transcript.session_id)}"
    title = transcript.session_info.title
    return f"{name}: {visible(title)}" if isinstance(title, str) and title else name


def _inline(words: str) -> str:
    """Escape what Markdown would take for markup in a line of ours."""
    return "".join(f"\\{mark}" if mark in "\\`*_[]<>#|" else mark for mark in words.replace("\n", " "))


def _fence(code: str) -> str:
    longest = max((len(run) for run in _runs(code)), default=0)
    return "`" * max(3, longest + 1)


def _runs(code: str) -> Iterable[str]:
    run = ""
    for mark in code:
        if mark == "`":
            run += mark
        elif run:
            yield run
            run = ""
    if run:
        yield run


def _styled(words: str, style: str, colour: bool) -> str:
    code = _STYLES.get(style)
    return f"\x1b[{code}m{words}\x1b[0m" if colour and code and words else words
