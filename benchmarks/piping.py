"""Rows about whole clients: what an agent writes to a pipe, to messages that are held, beside the official SDKs.

The agent is a plain script that writes lines made before (`agent.py`); each client is a process of its own. The lines
are the text chunks of the corpus, the same bytes for a v1 and a v2 client. Time is that on the clock.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final

from benchmarks.client import AGENT
from benchmarks.corpus import Corpus
from benchmarks.decoding import decode_and_fold
from benchmarks.measure import Batches, Goal, Row, Start, Step, timed
from tests.node_tools import node, node_modules

__all__ = ["groups"]

LINES: Final = 100_000

ROOT: Final = Path(__file__).parent.parent


def groups(corpus: Corpus) -> list[Batches]:
    """Give the groups of this module."""
    return [_python(corpus), _node(corpus)]


class _Client:
    """The process of a client. Each round has a fresh connection and agent; the process and its caches stay."""

    def __init__(self, command: Callable[[], Sequence[str]]) -> None:
        self._command = command
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> Step:
        if self._process is None:
            self._process = subprocess.Popen(
                self._command(), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            self._ask("open")
        else:
            self._ask("close\nopen")
        return lambda start, stop: self._ask(f"{start} {stop}")

    def _ask(self, request: str) -> float:
        assert self._process is not None
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        requests.write(f"{request}\n")
        requests.flush()
        return int(answers.readline().split()[0]) / 1e9


def _at_least(bound: float) -> Goal:
    return Goal(bound, "at least")


def _python_client(kind: str, corpus: Corpus) -> Start:
    return _Client(lambda: [sys.executable, "-m", "benchmarks.client", kind, str(corpus.chunks_path)]).start


def _python(corpus: Corpus) -> Batches:
    cases = {
        "twofold": _python_client("twofold", corpus),
        "official": _python_client("official", corpus),
        "bare": _python_client("bare", corpus),
        "fold": lambda: timed(decode_and_fold(listen=True), corpus.chunks, perf_counter),
    }
    rows = [
        Row("pipe-python", "Python SDK's client, pipe to hand fold / our client", "official", "twofold", _at_least(8)),
        Row("pipe-fold", "our client, pipe to change / fold of the same lines in memory", "twofold", "fold"),
        Row("pipe-bare", "our client, pipe to change / reading the bytes alone", "twofold", "bare"),
    ]
    return Batches(lambda size: min(size.lines, LINES), cases, rows)


def _node(corpus: Corpus) -> Batches:
    def command() -> Sequence[str]:
        sdk = node_modules() / "@agentclientprotocol" / "sdk"
        agent = [sys.executable, "-S", str(AGENT), str(corpus.chunks_path), "2"]
        return [str(node()), str(Path(__file__).with_name("client.mjs")), str(sdk), *agent]

    cases = {"twofold": _python_client("twofold", corpus), "node": _Client(command).start}
    row = Row("pipe-node", "TypeScript SDK's client, pipe to hand fold / our client", "node", "twofold", _at_least(6))
    return Batches(lambda size: min(size.lines, LINES), cases, [row])
