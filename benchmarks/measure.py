"""How things are measured: side by side, in turns, the median of several rounds.

The clock of a shared machine drifts more within a minute than the things measured here differ. So no case is timed
alone: the work is cut into batches, every case does one batch before any does the next, and a row is the ratio of what
two cases took in the same round.
"""

from __future__ import annotations

import gc
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, TypeAlias

__all__ = ["Batches", "Goal", "Group", "Result", "Row", "Size", "Start", "Step", "results", "timed"]

BATCH: Final = 5_000  # lines: long beside the clock's resolution, short beside the drift
WARM_UP: Final = 60_000  # lines, at most, that do not count: caches, allocators, and Node's compilers above all

Step: TypeAlias = Callable[[int, int], float]
"""Does the lines from the first number to before the second; returns the seconds that took."""

Start: TypeAlias = Callable[[], Step]
"""A case: starts afresh, once in a round."""

Costs: TypeAlias = Mapping[str, float]
"""What each case cost in one round."""


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rounds: int
    processes: int
    """Rounds of the rows that start whole processes."""
    lines: int
    """Lines of the corpus, at most; whole processes always take all."""


@dataclass(frozen=True)
class Goal:
    """What is promised of a row."""

    bound: float
    kind: Literal["at most", "at least"] = "at most"

    def holds(self, value: float) -> bool:
        """Whether `value` keeps the promise."""
        return value <= self.bound if self.kind == "at most" else value >= self.bound


@dataclass(frozen=True)
class Row:
    """One line of the table: what `over` cost, in units of what `under` cost (or as it is, in `unit`)."""

    name: str
    text: str
    over: str
    under: str | None
    goal: Goal | None = None
    unit: str = "×"

    def sample(self, costs: Costs) -> float:
        """Give the row's value in one round."""
        return costs[self.over] if self.under is None else costs[self.over] / costs[self.under]


@dataclass(frozen=True)
class Result:
    """A row as it was measured, with one sample of every round."""

    row: Row
    samples: tuple[float, ...]

    @property
    def value(self) -> float:
        """The median."""
        return statistics.median(self.samples)

    @property
    def holds(self) -> bool | None:
        """Whether the goal was met; `None` where there is none."""
        return None if self.row.goal is None else self.row.goal.holds(self.value)


class Group(Protocol):
    """Cases that are measured together, and the rows that compare them."""

    rows: Sequence[Row]

    def rounds(self, rows: Sequence[Row], size: Size, /) -> Sequence[Costs]:
        """Measure what `rows` need."""
        ...


class Batches:
    """Cases in this process that take the same lines, in turns.

    `lines` says how many of them a run of some size takes.
    """

    def __init__(self, lines: Callable[[Size], int], cases: Mapping[str, Start], rows: Sequence[Row]) -> None:
        self.lines: Final = lines
        self.cases: Final = cases
        self.rows = rows

    def rounds(self, rows: Sequence[Row], size: Size, /) -> Sequence[Costs]:
        """Measure the cases of `rows`, in seconds a line."""
        lines = self.lines(size)
        wanted = {name for row in rows for name in (row.over, row.under)}
        cases = {name: start for name, start in self.cases.items() if name in wanted}
        self._round(cases, min(lines, WARM_UP))
        return [self._round(cases, lines) for _ in range(size.rounds)]

    def _round(self, cases: Mapping[str, Start], lines: int) -> Costs:
        steps = {name: start() for name, start in cases.items()}
        seconds = dict.fromkeys(steps, 0.0)
        order = list(steps)
        chance = random.Random(len(order))
        gc.collect()  # what the last round left behind is not for this one to clear away
        for start in range(0, lines, BATCH):
            stop = min(start + BATCH, lines)
            chance.shuffle(order)  # who comes after whom, and finds what in the caches, is nobody's lasting luck
            for name in order:
                seconds[name] += steps[name](start, stop)
        return {name: total / lines for name, total in seconds.items()}


def timed(eat: Callable[[Sequence[bytes]], object], lines: Sequence[bytes], clock: Callable[[], float]) -> Step:
    """Make a step of a function that takes some lines."""

    def step(start: int, stop: int) -> float:
        batch = lines[start:stop]
        before = clock()
        eat(batch)
        return clock() - before

    return step


def results(group: Group, rows: Sequence[Row], size: Size) -> Sequence[Result]:
    """Measure `rows` of `group`."""
    rounds = group.rounds(rows, size)
    return [Result(row, tuple(row.sample(costs) for costs in rounds)) for row in rows]
