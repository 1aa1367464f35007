"""Sessions to look at: rows, and what a terminal and Markdown make of them."""

from twofold.view._live import LiveText, wrapped
from twofold.view._rows import Piece, Row, RowKind, row, rows
from twofold.view._text import footer, markdown, row_lines, text
from twofold.view._visible import plain_terminal, visible

__all__ = [
    "LiveText",
    "Piece",
    "Row",
    "RowKind",
    "footer",
    "markdown",
    "plain_terminal",
    "row",
    "row_lines",
    "rows",
    "text",
    "visible",
    "wrapped",
]
