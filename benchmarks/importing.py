"""The row about importing: what a program waits for before it can begin, in fresh processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.measure import Costs, Goal, Row, Size

__all__ = ["Importing"]

MODULES: Final = ("acp", "twofold", "twofold.runtime.agent", "twofold.runtime.client")
TIMES: Final = 3  # in each round: the quickest counts, which nothing else delayed

SCRIPT: Final = """
import importlib, sys, time
before = time.process_time()
importlib.import_module(sys.argv[1])
print(time.process_time() - before)
"""

ROOT: Final = Path(__file__).parent.parent


class Importing:
    """Importing beside the official Python SDK, CPU time, the interpreter's own start left out."""

    rows: Sequence[Row] = (
        Row("import", "import twofold / import acp", "twofold", "acp", Goal(0.2)),
        Row("import-agent", "import twofold.runtime.agent / import acp", "twofold.runtime.agent", "acp", Goal(0.2)),
        Row("import-client", "import twofold.runtime.client / import acp", "twofold.runtime.client", "acp", Goal(0.2)),
    )

    def rounds(self, _rows: Sequence[Row], size: Size, /) -> Sequence[Costs]:
        """Measure each module in turn, compiled already, in seconds."""
        for module in MODULES:
            _seconds(module)
        return [self._round() for _ in range(size.processes)]

    def _round(self) -> Costs:
        taken: dict[str, list[float]] = {module: [] for module in MODULES}
        for _ in range(TIMES):
            for module in MODULES:
                taken[module].append(_seconds(module))
        return {module: min(seconds) for module, seconds in taken.items()}


def _seconds(module: str) -> float:
    words = [sys.executable, "-c", SCRIPT, module]
    compiling = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    return float(subprocess.run(words, cwd=ROOT, env=compiling, check=True, stdout=subprocess.PIPE).stdout)
