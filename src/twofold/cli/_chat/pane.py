"""What is on the screen, and what has left it: rows are drawn again in place as long as they are in sight."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from twofold.cli._chat.look import Line, Look, folded
from twofold.view import Piece, Row

__all__ = ["Pane"]

_NEAR: Final = 20
"""Lines around the one at which something was cut off, among which it is looked for again."""

_MESSAGES: Final = ("user", "agent", "thought")


class _Thing:
    """A row, or a remark of ours, and how much of it has left the screen for good."""

    __slots__ = ("again", "gone", "lines", "row", "start")

    def __init__(self, row: Row | None, lines: list[Line]) -> None:
        self.row = row
        self.lines = lines
        self.gone = 0
        self.again = False  # it was on the screen before, saying something else
        self.start: tuple[int, int] | None = None  # where it goes on after what has left the screen: piece, character


class Pane:
    """The lines of a conversation. :meth:`leaving` takes those for which there is no room.

    A row that changes after it has left is shown once more below everything else: a terminal cannot take back what
    scrolled away.
    """

    def __init__(self, width: int) -> None:
        self._look = Look(width)
        self._things: list[_Thing] = []  # in sight, at least in part
        self._known: dict[str, _Thing] = {}  # by the keys of their rows, also those out of sight

    def resize(self, width: int) -> None:
        """Draw everything in sight anew, at another width."""
        if max(width, 8) == self._look.width:
            return
        self._look = Look(width)
        for thing in self._things:
            before = len(thing.lines)
            if thing.row is None:
                thing.lines = [cut for line in thing.lines for cut in folded(line, self._look.width)]
            else:
                thing.lines = self._drawn(thing)
            thing.gone = thing.gone * len(thing.lines) // before if before else 0

    def begin(self, *, erase: bool) -> None:
        """Begin with other rows. What is in sight stays and changes no more, or goes."""
        self._known.clear()
        if erase:
            self._things.clear()
        for thing in self._things:
            thing.row = None

    def say(self, lines: list[Line]) -> None:
        """Show a remark below everything else."""
        self._things.append(_Thing(None, [*lines, []]))

    def show(self, rows: Iterable[Row]) -> None:
        """Show rows as they are now: first those that are new, since others may have to be shown once more below."""
        others: list[tuple[_Thing, Row]] = []
        keys: set[str] = set()
        for row in rows:
            keys.add(row.key)
            thing = self._known.get(row.key)
            if thing is None:
                thing = self._known[row.key] = _Thing(row, [])
                thing.lines = self._drawn(thing)
                self._things.append(thing)
            elif thing.row is not row:
                others.append((thing, row))
        if len(keys) < len(self._known):  # a terminal that is part of a tool call now; what a replay does not hold
            for key in [key for key in self._known if key not in keys]:
                thing = self._known.pop(key)
                if thing in self._things:
                    self._things.remove(thing)
        for thing, row in others:
            if thing.row == row:
                thing.row = row
            else:
                self._changed(thing, row)

    @property
    def height(self) -> int:
        """How many lines are in sight."""
        return sum(len(thing.lines) - thing.gone for thing in self._things)

    def lines(self) -> list[Line]:
        """Give what is in sight."""
        return [line for thing in self._things for line in thing.lines[thing.gone :]]

    def leaving(self, room: int) -> list[Line]:
        """Take the lines that have to leave, so that the others fit into ``room`` lines."""
        left: list[Line] = []
        over = self.height - room
        while over > len(left):
            thing = self._things[0]
            count = min(over - len(left), len(thing.lines) - thing.gone)
            left += thing.lines[thing.gone : thing.gone + count]
            thing.gone += count
            if thing.gone == len(thing.lines):
                self._things.pop(0)
                if thing.row is not None:
                    self._look.forget(thing.row.key)
        return left

    def _drawn(self, thing: _Thing) -> list[Line]:
        row = thing.row
        assert row is not None
        if thing.start is not None:
            row = replace(row, body=_rest(row.body, thing.start))
        lines = self._look.lines(row, again=thing.again)
        return [*lines, []] if lines else []

    def _changed(self, thing: _Thing, row: Row) -> None:
        before, thing.row = thing.row, row
        assert before is not None
        away = thing not in self._things
        if not thing.gone and not away:
            thing.lines = self._drawn(thing)
            return
        grown = _grown(before, row)
        if grown is not None and not away:  # what has left is the beginning of what it says now
            self._redraw(thing)
        elif grown is not None and row.kind in _MESSAGES:
            self._return(thing, start=grown)
        elif row.kind in _MESSAGES or row.kind in ("plan", "note", "unknown") or row.status != before.status:
            thing.again = row.kind in _MESSAGES
            self._return(thing, start=None)
        elif not away:
            self._redraw(thing)

    def _redraw(self, thing: _Thing) -> None:
        """Draw anew what has left in part. More text may have made other lines of what was there: none must be lost."""
        left = [_words(line) for line in thing.lines[max(0, thing.gone - 2) : thing.gone]]
        thing.lines = self._drawn(thing)
        places = range(max(0, thing.gone - _NEAR), min(thing.gone + _NEAR, len(thing.lines)) + 1)
        found = [end for end in places if [_words(line) for line in thing.lines[max(0, end - 2) : end]] == left]
        thing.gone = min(found, key=lambda end: abs(end - thing.gone), default=min(thing.gone, len(thing.lines)))

    def _return(self, thing: _Thing, *, start: tuple[int, int] | None) -> None:
        """Show a thing from its beginning, or from ``start``: where it is if it is in sight, else at the end."""
        thing.start, thing.gone = start, 0
        thing.lines = self._drawn(thing)
        if thing not in self._things:
            self._things.append(thing)


def _words(line: Line) -> str:
    return "".join(words for _, words in line).strip()


def _grown(before: Row, now: Row) -> tuple[int, int] | None:
    """Give where a message goes on, as a piece and a character in it, if all that it said still stands."""
    if now.withdrawn or now.status != before.status or len(now.body) < len(before.body):
        return None
    for number, (old, new) in enumerate(zip(before.body, now.body, strict=False)):
        if old == new:
            continue
        grows = number == len(before.body) - 1 and old.kind == new.kind and new.text.startswith(old.text)
        return (number, len(old.text)) if grows else None
    return len(before.body), 0


def _rest(body: Sequence[Piece], start: tuple[int, int]) -> list[Piece]:
    """Give the pieces of a body from a place on."""
    number, character = start
    rest = list(body[number:])
    if rest and character:
        rest[0] = replace(rest[0], text=rest[0].text[character:])
    return [piece for piece in rest if piece.text]
