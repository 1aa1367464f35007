"""Files and standard input as lines, with a sign of life for long ones."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

from twofold.capture import Problem, Version
from twofold.exceptions import LineTooLong
from twofold.jsonrpc import LineSplitter

__all__ = ["InputError", "add_input", "problem_line", "read_lines", "version_of"]

_BLOCK = 1 << 18


class InputError(Exception):
    """An input cannot be opened or read."""


def add_input(command: argparse.ArgumentParser) -> None:
    """Add the arguments of every command that reads captured traffic."""
    command.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="captured traffic, one JSON value a line: bare updates, session/update params, JSON-RPC messages or batches, "
        'capture records {"dir", "line"}, conductor trace events; "-" or no FILE reads standard input',
    )
    command.add_argument(
        "--from",
        dest="version",
        choices=["v1", "v2"],
        help="the protocol version of the input; otherwise that of the initialize answer in it, else v2",
    )


def version_of(arguments: argparse.Namespace) -> Version | None:
    """Give the version that the user named, if any."""
    named: str | None = arguments.version
    if named is None:
        return None
    return 1 if named == "v1" else 2


def read_lines(files: Sequence[str]) -> Iterator[tuple[str, Iterator[bytes | LineTooLong]]]:
    """Give each input's name and lines. Raises :class:`InputError` when one cannot be read."""
    for name in files or ["-"]:
        if name == "-":
            yield "<stdin>", _lines(sys.stdin.buffer, "<stdin>")
            continue
        try:
            with open(name, "rb") as stream:
                yield name, _lines(stream, name)
        except OSError as error:
            raise InputError(f"cannot read {name}: {error.strerror}") from None


def _lines(stream: BinaryIO, name: str) -> Iterator[bytes | LineTooLong]:
    splitter = LineSplitter()
    progress = _Progress(name)
    while block := _read(stream):
        yield from splitter.feed(block)
        progress.moved(len(block))
    progress.done()
    last = splitter.finish()
    if last is not None:
        yield last


def _read(stream: BinaryIO) -> bytes:
    reader = getattr(stream, "read1", stream.read)  # what is there, so that a live pipe is shown as it comes
    block: bytes = reader(_BLOCK)
    return block


class _Progress:
    """Says on a terminal how far a long input is: nothing in the first second, then twice a second."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._read = 0
        self._shown = False
        self._next = time.monotonic() + 1.0 if sys.stderr.isatty() else float("inf")

    def moved(self, size: int) -> None:
        self._read += size
        now = time.monotonic()
        if now >= self._next:
            self._next = now + 0.5
            self._shown = True
            print(f"\r{self._name}: {self._read / 1e6:.0f} MB read\x1b[K", end="", file=sys.stderr, flush=True)

    def done(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def problem_line(name: str, problem: Problem) -> str:
    """Give a problem as ``FILE:LINE: …``."""
    return f"{name}:{problem.line}: {problem}"


def report(name: str, problems: Iterable[Problem]) -> None:
    """Write problems to standard error."""
    for problem in problems:
        print(problem_line(name, problem), file=sys.stderr)
