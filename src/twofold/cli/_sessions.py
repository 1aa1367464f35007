"""Folding the input of a command, with every problem reported."""

from __future__ import annotations

import argparse
import contextlib
import gc
import sys
from collections.abc import Generator, Sequence

from msgspec import Struct

from twofold.capture import Counts, Folder, Problem
from twofold.cli._arguments import version_of
from twofold.cli._input import problem_line, read_lines, without_updates
from twofold.fold import Transcript
from twofold.plaintext import visible_line

__all__ = ["Folded", "folded", "uncollected"]


class Folded(Struct):
    """The sessions of the input, its line counts, and its problems with the name of their input."""

    transcripts: Sequence[Transcript]
    counts: Counts
    problems: Sequence[tuple[str, Problem]]


def folded(arguments: argparse.Namespace, *, prompts: bool = False) -> Folded:
    """Fold the input. Problems go to standard error, ``FILE:LINE: …``, input by input."""
    folder = Folder(
        revision=arguments.revision, version=version_of(arguments), lenient=arguments.lenient, prompts=prompts
    )
    problems: list[tuple[str, Problem]] = []
    name = "-"
    for name, lines in read_lines(arguments.files):
        folder.begin()
        folder.feed(lines)
        problems += _reported(name, folder)
    folder.finish()
    problems += _reported(name, folder)
    transcripts = [session.transcript for session in folder.sessions.values()]
    counts = folder.reader.counts
    if not counts.updates:
        print(f"twofold: {without_updates(counts, len(problems))}", file=sys.stderr)
    if arguments.session is not None:
        ids = [str(one.session_id) for one in transcripts]
        transcripts = [one for one in transcripts if one.session_id == arguments.session]
        if not transcripts:
            missing = Problem(0, "", "the session asked for is not in the input")
            problems.append((name, missing))
            print(f"twofold: {missing}; it has: {visible_line(', '.join(ids)) or 'none'}", file=sys.stderr)
    return Folded(transcripts, counts, problems)


@contextlib.contextmanager
def uncollected() -> Generator[None, None, None]:
    """Keep the garbage collector from searching, again and again, what a command holds until it has printed it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _reported(name: str, folder: Folder) -> list[tuple[str, Problem]]:
    fresh = [(name, problem) for problem in folder.problems]
    for _, problem in fresh:
        print(problem_line(name, problem), file=sys.stderr)
    folder.problems.clear()
    return fresh
