"""Rows about one message of 1,000,000 chunks: does the last one cost more than the first, and what does each one hold?

Each is measured in a process of its own, which nothing was done in before.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import Final

import orjson

from benchmarks.decoding import decode_and_fold
from benchmarks.measure import Costs, Goal, Row, Size

__all__ = ["CHUNKS", "Growth", "Memory"]

CHUNKS: Final = 1_000_000
BATCH: Final = 10_000
WARM_UP: Final = 20_000

ROOT: Final = Path(__file__).parent.parent


def chunk(index: int) -> bytes:
    """Make the line of one chunk; its text has 22 characters, the mean of the corpus."""
    return (
        b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"sess_1","update":{"sessionUpdate":'
        b'"agent_message_chunk","content":{"type":"text","text":"this is piece %07d "},"messageId":"msg_1"}}}' % index
    )


def tenths() -> list[float]:
    """Return what a chunk costs in each tenth of the message, fold and one listener, in units of `orjson.loads`."""
    decode_and_fold(listen=True)([chunk(index) for index in range(WARM_UP)])
    eat = decode_and_fold(listen=True)
    costs = []
    for tenth in range(0, CHUNKS, CHUNKS // 10):
        seconds = unit = 0.0
        for start in range(tenth, tenth + CHUNKS // 10, BATCH):
            batch = [chunk(index) for index in range(start, start + BATCH)]
            before = process_time()
            eat(batch)
            between = process_time()
            for line in batch:
                orjson.loads(line)
            unit += process_time() - between  # the clock may drift from the first tenth to the last: this does alike
            seconds += between - before
        costs.append(seconds / unit)
    return costs


def held() -> float:
    """Return the bytes of resident memory that a chunk adds."""
    eat = decode_and_fold(listen=True)
    for index in range(WARM_UP):
        eat([chunk(index)])
    before = resident()
    for index in range(WARM_UP, WARM_UP + CHUNKS):
        eat([chunk(index)])
    return (resident() - before) / CHUNKS


def resident() -> int:
    """Return this process's resident memory in bytes; where only its peak is known, that."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return pages * resource.getpagesize()


class Growth:
    """The group of the row about time: each round is a fresh process."""

    rows: Sequence[Row] = (Row("growth", "fold of 1,000,000 chunks: last tenth / first", "last", "first", Goal(1.15)),)

    def rounds(self, _rows: Sequence[Row], size: Size, /) -> Sequence[Costs]:
        """Measure, in each round, the first tenth and the last."""
        rounds = [json.loads(_in_fresh_process("tenths")) for _ in range(size.processes)]
        return [{"first": costs[0], "last": costs[-1]} for costs in rounds]


class Memory:
    """The group of the row about memory. It comes out the same every time, so one round is enough."""

    rows: Sequence[Row] = (
        Row("memory", "resident memory of each of those chunks", "bytes", None, Goal(100), unit=" B"),
    )

    def rounds(self, _rows: Sequence[Row], _size: Size, /) -> Sequence[Costs]:
        """Measure the bytes a chunk."""
        return [{"bytes": json.loads(_in_fresh_process("held"))}]


def _in_fresh_process(word: str) -> bytes:
    return subprocess.run([sys.executable, "-m", __name__, word], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


if __name__ == "__main__":
    print(json.dumps({"tenths": tenths, "held": held}[sys.argv[1]]()))
