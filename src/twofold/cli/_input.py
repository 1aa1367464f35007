"""Files and standard input as lines, with a sign of life for long ones."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from twofold.cli._output import counted
from twofold.jsonrpc import LineSplitter
from twofold.plaintext import visible_line

if TYPE_CHECKING:
    from twofold.capture import Counts, Lost, Problem
    from twofold.exceptions import LineTooLong

__all__ = ["InputError", "problem_line", "read_lines", "without_updates"]

_BLOCK = 1 << 18


class InputError(Exception):
    """An input cannot be opened or read."""

    def __init__(self, name: str, error: OSError) -> None:
        super().__init__(f"cannot read {visible_line(name)}: {error.strerror or error}")


def read_lines(files: Sequence[str]) -> Iterator[tuple[str, Iterator[bytes | LineTooLong]]]:
    """Give each input's name and lines; ``-``, and no file at all, is standard input.

    Raises :class:`InputError` for an input that cannot be read, as early as that can be known.
    """
    for name in files:
        if name != "-":
            _look(name)
    for name in files or ["-"]:
        if name == "-":
            yield "<stdin>", _standard_input()
            continue
        try:
            stream = open(name, "rb")  # noqa: SIM115  # closed below, where errors of others are not this one
        except OSError as error:
            raise InputError(name, error) from None
        with stream:
            yield name, _lines(stream, name)


def _look(name: str) -> None:
    """Find out what would go wrong before work begins on another input. (Opening can do harm: to a FIFO, say.)"""
    try:
        directory = stat.S_ISDIR(os.stat(name).st_mode)
    except OSError as error:
        raise InputError(name, error) from None
    number = errno.EISDIR if directory else None if os.access(name, os.R_OK) else errno.EACCES
    if number is not None:
        raise InputError(name, OSError(number, os.strerror(number)))


def _standard_input() -> Iterator[bytes | LineTooLong]:
    if sys.stdin is None:  # who started us closed it
        return iter(())
    if sys.stdin.isatty() and sys.stderr.isatty():
        print("Reading captured traffic from the terminal; Ctrl-D ends it.", file=sys.stderr)
    return _lines(sys.stdin.buffer, "<stdin>")


def _lines(stream: BinaryIO, name: str) -> Iterator[bytes | LineTooLong]:
    splitter = LineSplitter()
    progress = _Progress(stream, name)
    try:
        while block := _read(stream, name):
            yield from splitter.feed(block)
            progress.moved(len(block))
    finally:
        progress.done()
    last = splitter.finish()
    if last is not None:
        yield last


def _read(stream: BinaryIO, name: str) -> bytes:
    reader = getattr(stream, "read1", stream.read)  # what is there, so that a live pipe is shown as it comes
    try:
        block: bytes = reader(_BLOCK)
    except OSError as error:
        raise InputError(name, error) from None
    return block


class _Progress:
    """Says on a terminal how far a long input is: nothing in the first second, then twice a second.

    The cursor is left at the margin, so that whatever is printed next takes the place of what was said.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._wanted = sys.stderr.isatty()
        self._next = time.monotonic() + 1.0
        self._name = visible_line(os.path.basename(name))[:40]  # the whole of it has to fit on one line
        self._stream = stream
        self._read = 0
        self._shown = False

    def moved(self, size: int) -> None:
        self._read += size
        if self._wanted and time.monotonic() >= self._next:
            self._next = time.monotonic() + 0.5
            self._shown = True
            self._say(f"{self._name}: {self._read / 1e6:.0f}{self._whole()} MB read\x1b[K\r")

    def done(self) -> None:
        if self._shown:
            self._say("\x1b[K")

    def _whole(self) -> str:
        status = os.fstat(self._stream.fileno())
        return f" of {status.st_size / 1e6:.0f}" if stat.S_ISREG(status.st_mode) else ""

    def _say(self, words: str) -> None:
        print(words, end="", file=sys.stderr, flush=True)


def problem_line(name: str, problem: Problem | Lost) -> str:
    """Give a problem as ``FILE:LINE: …``, on one line whatever the file and its fields are called."""
    return visible_line(f"{name}:{problem.line}: {problem}")


def without_updates(counts: Counts, bad: int) -> str:
    """Say what there was in place of what was looked for; ``bad`` lines could not be read."""
    kinds = {"request": counts.requests, "response": counts.responses, "notification": counts.notifications}
    found = [counted(count, kind) for kind, count in kinds.items() if count]
    found += [f"{counts.other} of no kind known here"] if counts.other else []
    found += [f"{bad} bad"] if bad else []
    return f"no session update in the input ({', '.join(found)})" if found else "the input is empty"
