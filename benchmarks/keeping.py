"""Rows of the journal: a fresh SQLite file on this machine's disk, wall time where the disk is part of it."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Final

from benchmarks.corpus import Corpus
from benchmarks.decoding import decode_and_fold
from benchmarks.measure import Costs, Goal, Row, Size
from twofold.fold import Transcript
from twofold.journal import AsyncJournal
from twofold.journal.sqlite import SQLiteJournal
from twofold.wire import v2

__all__ = ["Keeping"]

GROUP: Final = 256
LINES: Final = 40_000
CHUNKS: Final = 10_000
RATE: Final = 200


class Keeping:
    """What durability, erasure and loading cost."""

    rows: Sequence[Row] = (
        Row(
            "append", "durable append in groups of 256, decode and fold / decode and fold", "append", "fold", Goal(3.5)
        ),
        Row("latency", "durable append at 200 updates a second, median", "latency", None, Goal(2.5), " ms"),
        Row("disk", "for comparison: fdatasync of 200 bytes on this disk, median", "disk", None, None, " ms"),
        Row("erase", "erasure of a message of 10,000 chunks", "erase", None, Goal(50), " ms"),
        Row("load", "fold of 100,000 raw lines / load after compaction", "raw", "load", Goal(4.0, "at least")),
    )

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus

    def rounds(self, rows: Sequence[Row], size: Size, /) -> Sequence[Costs]:
        """Give what each case cost, in seconds or milliseconds."""
        wanted = {row.name for row in rows}
        return [self._round(wanted, size) for _ in range(size.processes)]

    def _round(self, wanted: set[str], size: Size) -> Costs:
        costs: dict[str, float] = {}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            if "append" in wanted:
                lines = self._corpus.chunks[: min(LINES, size.lines)]
                costs["fold"] = _seconds(lambda: decode_and_fold(listen=True)(lines))
                costs["append"] = costs["fold"] + _seconds(lambda: _append(path / "append", lines))
            if "latency" in wanted:
                costs["latency"] = asyncio.run(_latency(path / "latency", 100 if size.lines < LINES else 400))
            if "disk" in wanted:
                costs["disk"] = _disk(path / "disk")
            if "erase" in wanted:
                costs["erase"] = _erase(path / "erase")
            if "load" in wanted:
                costs |= _load(path / "load", min(100_000, size.lines))
        return costs


def _seconds(work: Callable[[], object]) -> float:
    before = perf_counter()
    work()
    return perf_counter() - before


def _updates(lines: Sequence[bytes]) -> list[bytes]:
    return [line[line.index(b'"update":') + 9 : -2] for line in lines]


def _append(path: Path, lines: Sequence[bytes]) -> None:
    with SQLiteJournal(path) as journal:
        position = 0
        raws = _updates(lines)
        for start in range(0, len(raws), GROUP):
            position = journal.append("s", position, *raws[start : start + GROUP]).position


async def _latency(path: Path, count: int) -> float:
    taken = []
    async with AsyncJournal(SQLiteJournal(path)) as journal:
        writer = await journal.writer("s")
        for number in range(count):
            began = perf_counter()
            await writer.append(_chunk(number))
            taken.append(perf_counter() - began)
            await asyncio.sleep(max(0.0, 1 / RATE - taken[-1]))
    return statistics.median(taken) * 1e3


def _disk(path: Path) -> float:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    sync = getattr(os, "fdatasync", os.fsync)
    taken = []
    for _ in range(100):
        began = perf_counter()
        os.write(descriptor, bytes(200))
        sync(descriptor)
        taken.append(perf_counter() - began)
    os.close(descriptor)
    return statistics.median(taken) * 1e3


def _erase(path: Path) -> float:
    raws = [_chunk(number) for number in range(CHUNKS)]
    with SQLiteJournal(path) as journal:
        position = 0
        for start in range(0, CHUNKS, GROUP):
            position = journal.append("s", position, *raws[start : start + GROUP]).position
        clear = b'{"sessionUpdate":"agent_message","messageId":"m","content":null}'
        began = perf_counter()
        appended = journal.append("s", position, clear)
        taken = perf_counter() - began
    if appended.erasure != "done":
        raise AssertionError("the erasure was not done")
    return taken * 1e3


def _load(path: Path, count: int) -> Costs:
    raws = [_chunk(number, f"m{number // 100}") for number in range(count)]
    with SQLiteJournal(path) as journal:
        position = 0
        for start in range(0, count, GROUP):
            position = journal.append("s", position, *raws[start : start + GROUP]).position
        journal.compact("s")

        lines = [
            b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":%s}}' % raw for raw in raws
        ]

        def fold() -> None:
            transcript = Transcript("s")
            for line in lines:
                params = v2.decode_line(line)
                assert params is not None
                transcript.apply(params.update)

        return {"raw": _seconds(fold), "load": _seconds(lambda: journal.load("s"))}


def _chunk(number: int, message_id: str = "m") -> bytes:
    chunk = (
        b'{"sessionUpdate":"agent_message_chunk","messageId":"%s","content":{"type":"text","text":"some words, %d "}}'
    )
    return chunk % (message_id.encode(), number)
