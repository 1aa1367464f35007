"""Sessions to look at: rows, and what a terminal and Markdown make of them."""

from twofold.plaintext import plain_terminal, visible, visible_line
from twofold.view._live import LiveText, wrapped
from twofold.view._markdown import markdown
from twofold.view._rows import LiveRows, Piece, Row, RowKind, row, rows
from twofold.view._text import footer, heading, row_lines, text, usage

__all__ = [
    "LiveRows",
    "LiveText",
    "Piece",
    "Row",
    "RowKind",
    "footer",
    "heading",
    "markdown",
    "plain_terminal",
    "row",
    "row_lines",
    "rows",
    "text",
    "usage",
    "visible",
    "visible_line",
    "wrapped",
]
