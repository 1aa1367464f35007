"""The ``twofold`` command: one module a subcommand, each a translation of one library call.

The modules import what they work with when they run, not before: help, errors of usage and an early Ctrl-C are quick.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Sequence
from typing import TextIO

from twofold import __version__
from twofold.cli import bridge, chat, check, convert, demo, fold, journal, replay, serve
from twofold.cli._arguments import Command

__all__ = ["main", "parser"]


def parser() -> argparse.ArgumentParser:
    """Give the argument parser; its help is the reference."""
    top = argparse.ArgumentParser(
        prog="twofold",
        description="Hold, check and replay the sessions of coding agents that speak ACP (Agent Client Protocol) "
        "v2 or v1.",
        epilog="Exit status: 0 fine, 1 something in the input was wrong (and reported), 2 the command was used wrongly "
        "or could not read or write.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"twofold {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", dest="command", parser_class=Command)
    for module in (fold, check, convert, replay, chat, bridge, journal, serve, demo):
        module.add(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status. Bad usage, and asking for help, raise :class:`SystemExit`."""
    _make_ready()
    try:
        try:
            return _run(argv)
        finally:  # now, not at the interpreter's end, where a failure would be told with a traceback
            sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout, sys.stderr)  # the reader has seen enough
        return 0
    except KeyboardInterrupt:
        return 130
    except OSError as error:  # reading has its own error
        print(f"twofold: cannot write: {error.strerror or error}", file=sys.stderr)
        _discard(sys.stdout)
        return 2


def _run(argv: Sequence[str] | None) -> int:
    top = parser()
    arguments = top.parse_args(argv)
    if arguments.command is None:
        top.print_help(sys.stderr)
        return 2
    from twofold.cli._input import InputError

    try:
        status: int = arguments.run(arguments)
    except InputError as error:
        print(f"twofold: {error}", file=sys.stderr)
        return 2
    return status


def _make_ready() -> None:
    """See to it that every text can be written to the standard streams: what one cannot spell is written as escapes."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard(*streams: TextIO) -> None:
    """Let what a stream still holds go nowhere: written at the interpreter's end, it would fail once more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        with contextlib.suppress(OSError, ValueError):  # not a stream of the system's
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
