"""The ``twofold`` command: one module a subcommand, each a translation of one library call."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from twofold import __version__
from twofold.cli import check, demo, fold, replay
from twofold.cli._input import InputError

__all__ = ["main", "parser"]


def parser() -> argparse.ArgumentParser:
    """Give the argument parser; its help is the reference."""
    top = argparse.ArgumentParser(
        prog="twofold",
        description="Hold, check and replay the sessions of coding agents that speak ACP (Agent Client Protocol) v2 or v1.",
        epilog="Exit status: 0 fine, 1 something in the input was wrong (and reported), 2 the command was used wrongly.",
    )
    top.add_argument("--version", action="version", version=f"twofold {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (fold, check, replay, demo):
        module.add(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    arguments = parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has seen enough. Whatever is still buffered goes nowhere, quietly.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except InputError as error:
        print(f"twofold: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return status
