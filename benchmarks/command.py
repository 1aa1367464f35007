"""The row about the command line: `twofold fold` of the whole corpus, from the start of the process to its end."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.corpus import Corpus
from benchmarks.measure import Costs, Goal, Row, Size

__all__ = ["Command"]

LOADS: Final = """
import sys, orjson
with open(sys.argv[1], "rb") as file:
    for line in file:
        orjson.loads(line)
"""

ROOT: Final = Path(__file__).parent.parent


class Command:
    """The group of this row."""

    rows: Sequence[Row] = (Row("command", "twofold fold / orjson.loads in a loop", "twofold", "orjson", Goal(3.0)),)

    def __init__(self, corpus: Corpus) -> None:
        self.corpus: Final = corpus

    def rounds(self, _rows: Sequence[Row], size: Size, /) -> Sequence[Costs]:
        """Measure both whole processes, in CPU seconds."""
        path = str(self.corpus.path)
        fold = ["-m", "twofold", "fold", "--format", "json", path]
        return [{"twofold": _seconds(fold), "orjson": _seconds(["-c", LOADS, path])} for _ in range(size.processes)]


def _seconds(words: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
