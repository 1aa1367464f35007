"""Rows about what the agent runtime adds to sending a chunk: latency at a steady rate, to a reader that only waits."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic_ns
from typing import IO, Any, Final

from benchmarks.measure import Costs, Goal, Row, Size

__all__ = ["Sending"]

RATE: Final = 200
TURN: Final = 20  # chunks: a tenth of a second, long beside the beginning of a turn and short beside the drift
TURNS: Final = 20

ROOT: Final = Path(__file__).parent.parent

_SENT: Final = re.compile(rb'"text":"(\d+)"')


class Sending:
    """How long a chunk is on its way, with the runtime and with bare asyncio, in turns."""

    rows: Sequence[Row] = (
        Row("send", f"agent runtime at {RATE} chunks a second: added latency, median", "p50", None, Goal(0.2), " ms"),
        Row("send-p99", "the same, 99th percentile", "p99", None, Goal(2.0), " ms"),
        Row("send-durable", "the same, journal on disk: added latency, median", "durable p50", None, None, " ms"),
        Row("send-bare", "for comparison: latency of a bare asyncio write, median", "bare p50", None, None, " ms"),
    )

    def rounds(self, _rows: Sequence[Row], size: Size, /) -> Sequence[Costs]:
        """Give percentiles in milliseconds."""
        return [self._round(TURNS if size.processes > 1 else 10) for _ in range(size.processes)]

    def _round(self, turns: int) -> Costs:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            agents = {
                "twofold": _Agent("twofold"),
                "durable": _Agent("twofold", str(Path(folder, "journal"))),
                "bare": _Agent("bare"),
            }
            for agent in agents.values():
                stack.enter_context(agent)
            taken: dict[str, list[float]] = {name: [] for name in agents}
            for _ in range(turns):
                for name, agent in agents.items():
                    taken[name] += agent.turn()
        p50 = {name: statistics.median(times) for name, times in taken.items()}
        p99 = {name: statistics.quantiles(times, n=100)[-1] for name, times in taken.items()}
        return {
            "p50": p50["twofold"] - p50["bare"],
            "p99": p99["twofold"] - p99["bare"],
            "durable p50": p50["durable"] - p50["bare"],
            "bare p50": p50["bare"],
        }


class _Agent:
    """An agent of `ticking.py`, and the least that can be its client."""

    def __init__(self, *words: str) -> None:
        self._words = words

    def __enter__(self) -> _Agent:
        words = [sys.executable, "-m", "benchmarks.ticking", *self._words]
        self._process = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._ask("initialize", {"protocolVersion": 2, "info": {"name": "bench", "version": "0"}, "capabilities": {}})
        self._read(b'"id"')
        self._ask("session/new", {"cwd": str(ROOT), "mcpServers": []})
        self._session = json.loads(self._read(b'"id"'))["result"]["sessionId"]
        self.turn()
        return self

    def __exit__(self, *_: object) -> None:
        _pipe(self._process.stdin).close()
        self._process.wait()
        _pipe(self._process.stdout).close()

    def turn(self) -> list[float]:
        """Give how many milliseconds each chunk of one turn was on its way."""
        prompt = [{"type": "text", "text": f"{TURN} {RATE}"}]
        self._ask("session/prompt", {"sessionId": self._session, "prompt": prompt})
        taken: list[float] = []
        self._read(b'"idle"', taken)
        if len(taken) != TURN:
            raise AssertionError(f"{len(taken)} of {TURN} chunks came")
        return taken

    def _ask(self, method: str, params: dict[str, Any]) -> None:
        request = {"jsonrpc": "2.0", "id": 0, "method": method, "params": params}
        _pipe(self._process.stdin).write(json.dumps(request).encode() + b"\n")

    def _read(self, mark: bytes, taken: list[float] | None = None) -> bytes:
        """Read until a line with a mark in it, and give that line."""
        rest = b""
        while True:
            data = os.read(_pipe(self._process.stdout).fileno(), 65_536)
            now = monotonic_ns()
            if not data:
                raise AssertionError("the agent ended")
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                sent = _SENT.search(line)
                if sent is not None and taken is not None:
                    taken.append((now - int(sent[1])) / 1e6)
                if mark in line:
                    return line


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
