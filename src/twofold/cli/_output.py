"""Standard output: what it is, what it can show, and how numbers are said."""

from __future__ import annotations

import os
import sys

__all__ = ["coloured", "counted", "in_place", "width"]


def coloured() -> bool:
    """Whether standard output is a terminal that wants colour."""
    return in_place() and not os.environ.get("NO_COLOR")


def counted(count: int, thing: str) -> str:
    """Say how many there are: ``1 record``, ``2 records``."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def in_place() -> bool:
    """Whether standard output is a terminal on which lines can be drawn again."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def width() -> int | None:
    """How many cells wide standard output is, if it is a terminal."""
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
