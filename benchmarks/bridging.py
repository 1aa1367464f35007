"""Rows about the bridge, with a v1 client in front and a v2 agent behind: latency, throughput, growth.

The client is this process; the bridge and the agent are programs of their own. What the bridge is compared with stands
in its place: a program that copies bytes with asyncio, one on the official Python SDK that reads updates and writes
them again.
"""

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
from time import monotonic_ns, perf_counter
from typing import IO, Any, Final, Self

from benchmarks.client import AGENT
from benchmarks.corpus import Corpus
from benchmarks.measure import Batches, Costs, Goal, Row, Size, Start, Step

__all__ = ["Growing", "Hopping", "groups"]

RATE: Final = 200
TURN: Final = 20  # chunks: a tenth of a second, long beside the beginning of a turn and short beside the drift
TURNS: Final = 20
LINES: Final = 100_000
PIECES: Final = 10_000

ROOT: Final = Path(__file__).parent.parent
HOP: Final = [sys.executable, "-m", "benchmarks.hop"]
TICKS: Final = [*HOP, "ticks"]
BRIDGE: Final = [sys.executable, "-m", "twofold", "bridge", "--agent-version", "2"]

_SENT: Final = re.compile(rb'"text":"(\d{6,})"')


class Hop:
    """A client of what stands in front of an agent: bytes out, bytes in."""

    def __init__(self, command: Sequence[str], version: int) -> None:
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        self._rest = b""
        self._ask("initialize", {"protocolVersion": version, "info": {"name": "bench", "version": "0"}})
        self.session = str(self._ask("session/new", {"cwd": str(ROOT), "mcpServers": []})["sessionId"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _pipe(self._process.stdin).close()
        self._process.wait()
        _pipe(self._process.stdout).close()

    def prompt(self, text: str) -> None:
        """Send a prompt."""
        self._send("session/prompt", {"sessionId": self.session, "prompt": [{"type": "text", "text": text}]})

    def read(self) -> bytes:
        """Wait for bytes."""
        data = os.read(_pipe(self._process.stdout).fileno(), 262_144)
        if not data:
            raise AssertionError("the other side has ended")
        return data

    def ticks(self, count: int) -> list[float]:
        """Give how many milliseconds each chunk of a turn was on its way; the turn is over then."""
        self.prompt(f"{count} {RATE} chunk")
        taken: list[float] = []
        while True:
            data = self.read()
            now = monotonic_ns()
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                sent = _SENT.search(line)
                if sent is not None:
                    taken.append((now - int(sent[1])) / 1e6)
                elif b'"stopReason"' in line or b'"idle"' in line:
                    if len(taken) != count:
                        raise AssertionError(f"{len(taken)} of {count} chunks came")
                    return taken

    def _send(self, method: str, params: dict[str, Any]) -> None:
        request = {"jsonrpc": "2.0", "id": 0, "method": method, "params": params}
        _pipe(self._process.stdin).write(json.dumps(request).encode() + b"\n")

    def _ask(self, method: str, params: dict[str, Any]) -> Any:
        self._send(method, params)
        while b"\n" not in self._rest:
            self._rest += self.read()
        line, self._rest = self._rest.split(b"\n", 1)
        return json.loads(line)["result"]


class Hopping:
    """How long a chunk is on its way through the bridge and through a copy of bytes, in turns."""

    rows: Sequence[Row] = (
        Row("hop", f"v2 → v1 bridge at {RATE} chunks a second: added latency, median", "p50", None, Goal(0.1), " ms"),
        Row("hop-p99", "the same, 99th percentile", "p99", None, Goal(1.0), " ms"),
        Row("hop-durable", "the same, with a journal on disk: median", "durable p50", None, Goal(1.0), " ms"),
        Row("hop-same", "the same, v2 → v2: median", "same p50", None, None, " ms"),
        Row("hop-copy", "for comparison: latency of an asyncio byte copy, median", "copy p50", None, None, " ms"),
    )

    def rounds(self, _rows: Sequence[Row], size: Size, /) -> Sequence[Costs]:
        """Give percentiles in milliseconds."""
        return [self._round(TURNS if size.processes > 1 else 10) for _ in range(size.processes)]

    def _round(self, turns: int) -> Costs:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            hops = {
                "bridge": Hop([*BRIDGE, "--", *TICKS], 1),
                "durable": Hop([*BRIDGE, "--journal", str(Path(folder, "journal")), "--", *TICKS], 1),
                "same": Hop([*BRIDGE, "--", *TICKS], 2),
                "copy": Hop([*HOP, "copy", *TICKS], 2),
            }
            for hop in hops.values():
                stack.enter_context(hop)
                hop.ticks(TURN)
            taken: dict[str, list[float]] = {name: [] for name in hops}
            for _ in range(turns):
                for name, hop in hops.items():
                    taken[name] += hop.ticks(TURN)
        p50 = {name: statistics.median(times) for name, times in taken.items()}
        p99 = {name: statistics.quantiles(times, n=100)[-1] for name, times in taken.items()}
        return {
            "p50": p50["bridge"] - p50["copy"],
            "p99": p99["bridge"] - p99["copy"],
            "durable p50": p50["durable"] - p50["copy"],
            "same p50": p50["same"] - p50["copy"],
            "copy p50": p50["copy"],
        }


class Growing:
    """How much is sent of tool output that grows piece by piece, since v1 has it whole each time."""

    rows: Sequence[Row] = (
        Row("hop-growth", f"{PIECES:,} pieces of tool output as v1: bytes out / bytes in", "quick", None, Goal(5)),
        Row("hop-growth-slow", f"the same for a tenth of them, at {RATE} a second", "slow", None, Goal(5)),
    )

    def rounds(self, rows: Sequence[Row], _size: Size, /) -> Sequence[Costs]:
        """Measure in one round: it hangs on timers, but not on the machine's speed."""
        wanted = [row.over for row in rows]
        settings = {"quick": f"{PIECES} 0 output", "slow": f"{PIECES // 10} {RATE} output"}
        return [{name: _grown(settings[name]) for name in wanted}]


def _grown(prompt: str) -> float:
    def bytes_of(command: Sequence[str], version: int) -> int:
        with Hop(command, version) as hop:
            hop.prompt(prompt)
            count, tail = 0, b""
            while b'"stopReason"' not in tail and b'"idle"' not in tail:
                data = hop.read()
                count += len(data)
                tail = (tail + data)[-200:]
            return count

    return bytes_of([*BRIDGE, "--", *TICKS], 1) / bytes_of([*HOP, "copy", *TICKS], 2)


def groups(corpus: Corpus) -> list[Batches]:
    """Give the group of throughput."""
    agent = [sys.executable, "-S", str(AGENT), str(corpus.chunks_path)]
    cases = {
        "bridge": _through([*BRIDGE, "--", *agent, "2"], 1, more=1),
        "official": _through([*HOP, "official", *agent, "1"], 1, more=1),
        "same": _through([*BRIDGE, "--", *agent, "2"], 2, more=4),
        "copy": _through([*HOP, "copy", *agent, "2"], 2, more=4),
    }
    rows = [
        Row(
            "hop-python",
            "Python SDK, reads and writes updates / v2 → v1 bridge",
            "official",
            "bridge",
            Goal(10, "at least"),
        ),
        Row("hop-bytes", "v2 → v1 bridge / an asyncio byte copy", "bridge", "copy"),
        Row("hop-same-bytes", "v2 → v2 bridge / an asyncio byte copy", "same", "copy"),
        Row("hop-line", "v2 → v1 bridge: time a line", "bridge µs", None, None, " µs"),
    ]
    cases["bridge µs"] = _in_microseconds(cases["bridge"])
    return [Batches(lambda size: min(size.lines, LINES), cases, rows)]


def _through(command: Sequence[str], version: int, *, more: int) -> Start:
    """Give a case: prompt for lines, and read as many bytes as it takes for them and `more` lines to come."""
    hops: list[Hop] = []

    def start() -> Step:
        if not hops:
            hops.append(Hop(command, version))
        return step

    def step(start: int, stop: int) -> float:
        before = perf_counter()
        hops[0].prompt(f"{start} {stop}")
        left = stop - start + more
        while left > 0:
            left -= hops[0].read().count(b"\n")
        return perf_counter() - before

    return start


def _in_microseconds(start: Start) -> Start:
    def again() -> Step:
        step = start()
        return lambda first, last: 1e6 * step(first, last)

    return again


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
