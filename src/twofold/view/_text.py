"""Rows as text for a terminal or a pipe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from twofold.fold import Transcript
from twofold.plaintext import visible_line
from twofold.view._live import wrapped
from twofold.view._rows import Row, rows
from twofold.wire import v2

__all__ = ["footer", "heading", "row_lines", "text", "usage"]

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
_TOOL_MARKS: Final = {
    "completed": "✓",
    "failed": "✗",
    "cancelled": "✗",
    "in_progress": "…",
    "pending": "…",
    "paused": "‖",
}


def text(transcript: Transcript, *, colour: bool = False, width: int | None = None) -> str:
    """Give a session as text for people, with lines of at most ``width`` cells if it is given.

    What was said is indented, and only our own headings and notes begin at the margin: nothing said can pass for one.
    (For a terminal give its width: what a terminal wraps by itself goes on at the margin.)
    """
    blocks = [[_styled(heading(transcript), "session", colour)]]
    blocks += [list(row_lines(row, colour=colour)) for row in rows(transcript)]
    last = footer(transcript)
    if last:
        blocks.append([_styled(f"· {last}", "note", colour)])
    lines = [line for block in blocks for line in (*block, "")][:-1]
    if width is not None:
        lines = [piece for line in lines for piece in wrapped(line, width)]
    return "\n".join(lines) + "\n"


def row_lines(row: Row, *, colour: bool = False) -> Iterator[str]:
    """Give one row as lines: a heading, notes after a dot, and what was said, indented."""
    head = "unknown update" if row.kind == "unknown" else str(row.kind)
    if row.status:
        head += f" {_TOOL_MARKS.get(row.status, '·')} {row.status}" if row.kind == "tool" else f" · {row.status}"
    if row.title:
        head += f"  {row.title}"
    if row.corrected and not row.withdrawn:
        head += "  (corrected)"
    yield _styled(head, row.kind, colour)
    if row.withdrawn:
        yield _styled("· withdrawn by the agent", "withdrawn", colour)
    for piece in row.body:
        if piece.kind == "note":
            yield _styled(f"· {piece.text}", "note", colour)
            continue
        indent = "    " if piece.kind == "code" else "  "
        style = "thought" if colour and piece.kind == "text" and row.kind == "thought" else ""
        lines = piece.text.rstrip("\n").split("\n")
        yield from (indent + (_styled(line, style, colour) if style else line) if line else "" for line in lines)


def heading(transcript: Transcript) -> str:
    """Give the session's name, in one line."""
    name = "session" if transcript.session_id is None else f"session {visible_line(transcript.session_id)}"
    title = transcript.session_info.title
    return f"{name}: {visible_line(title)}" if isinstance(title, str) and title else name


def footer(transcript: Transcript) -> str:
    """Give the session's last word on itself, in one line: state, why it stopped, usage. Empty when it said nothing."""
    words: list[str] = []
    state = transcript.state
    if state is not None:
        reason = f" ({visible_line(state.stop_reason)})" if isinstance(state.stop_reason, str) else ""
        words.append(f"{visible_line(state.state)}{reason}")
    return " · ".join(filter(None, [*words, usage(transcript)]))


def usage(transcript: Transcript) -> str:
    """Give what is known of the tokens and the cost of a session, in one line. Empty when nothing is."""
    held = transcript.usage
    if held is None:
        return ""
    words = f"{held.used:,} of {held.size:,} tokens"
    if not isinstance(held.cost, v2.Cost):
        return words
    amount = held.cost.amount
    shown = f"{amount:g}" if isinstance(amount, float) else str(amount)  # an integer may be too large for a float
    return f"{words} · {shown} {visible_line(held.cost.currency)}"


def _styled(words: str, style: str, colour: bool) -> str:
    code = _STYLES.get(style)
    return f"\x1b[{code}m{words}\x1b[0m" if colour and code and words else words
