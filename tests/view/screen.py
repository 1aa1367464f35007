"""A terminal as small as our needs: what it shows after what was written. Any sequence that we never use fails."""

import re
import unicodedata
from collections.abc import Callable

_TOKEN = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])|\r?\n|\r|[^\x00-\x1f\x7f-\x9f]", re.DOTALL)


def cells(mark: str) -> int:
    """Say how many cells a character takes, as most terminals do it."""
    if unicodedata.category(mark) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(mark) in "WF" else 1


class Screen:
    """``width`` by ``height`` cells. ``rows`` is what is in sight, ``gone`` what has scrolled out at the top."""

    def __init__(self, width: int, height: int, *, measure: Callable[[str], int] = cells) -> None:
        self.width, self.height, self.measure = width, height, measure
        self.rows: list[list[str]] = [[] for _ in range(height)]
        self.gone: list[str] = []
        self.row = self.column = 0
        self.wraps = True
        self.styles: list[str] = []

    def feed(self, written: str) -> None:
        position = 0
        while position < len(written):
            token = _TOKEN.match(written, position)
            assert token is not None, f"acts on a terminal: {written[position : position + 10]!r}"
            position = token.end()
            if token.group(3):
                self._sequence(*token.groups())
            elif token.group().endswith("\n"):
                self._down()
            elif token.group() == "\r":
                self.column = 0
            else:
                self._print(token.group())

    def _sequence(self, private: str, number: str, final: str) -> None:
        match (private, final):
            case ("", "A"):
                self.row = max(0, self.row - int(number or 1))
            case ("", "J") if number in ("", "0"):
                del self.rows[self.row][self.column :]
                for row in self.rows[self.row + 1 :]:
                    row.clear()
            case ("", "K") if number in ("", "0"):
                del self.rows[self.row][self.column :]
            case ("", "m"):
                self.styles.append(number)
            case ("?", "h" | "l") if number == "7":
                self.wraps = final == "h"
            case _:
                raise AssertionError(f"a sequence that is not ours: {private}{number}{final}")

    def _down(self) -> None:
        self.column = 0
        if self.row + 1 < self.height:
            self.row += 1
        else:
            self.gone.append("".join(self.rows.pop(0)))
            self.rows.append([])

    def _print(self, mark: str) -> None:
        size = self.measure(mark)
        if self.column + size > self.width:
            if self.wraps:
                self._down()
            else:
                self.column = max(0, self.width - size)
        row = self.rows[self.row]
        row.extend(" " * (self.column - len(row)))
        if size == 0:
            if row:
                row[-1] += mark
            return
        row[self.column : self.column + size] = [mark, *[""] * (size - 1)]
        self.column += size

    @property
    def lines(self) -> list[str]:
        """The rows in sight as text, without the spaces that nobody sees."""
        return ["".join(row).rstrip() for row in self.rows]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)
