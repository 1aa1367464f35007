"""Writes docs/cli.md from the argument parser: `python -m tests.cli_reference > docs/cli.md`.

It reads the parser and not the text of `--help`, which differs between versions of Python.
"""

import argparse
import sys
from collections.abc import Iterator

from twofold.cli import parser

NOTE = "<!-- Written by `python -m tests.cli_reference` from what `--help` says: edit that, not this. -->"


def commands(top: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser, bool]]:
    """Give every command below a parser: its whole name, its own parser, and whether it has commands below it."""
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                nested = any(isinstance(one, argparse._SubParsersAction) for one in below._actions)
                yield below.prog, below, nested
                yield from commands(below)


def arguments(command: argparse.ArgumentParser) -> list[argparse.Action]:
    """Give a command's own arguments, as they are listed: positions first. Every command has `--help`."""
    own = [
        action
        for action in command._actions
        if not isinstance(action, (argparse._HelpAction, argparse._SubParsersAction))
    ]
    return sorted(own, key=lambda action: bool(action.option_strings))


def reference() -> str:
    """Give the whole page."""
    top = parser()
    blocks = [NOTE, "# Command line", str(top.description), _list(top), str(top.epilog)]
    blocks.append("`python -m twofold` is the same command. Every command explains itself with `--help`.")
    summaries = {}
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {f"{top.prog} {one.dest}": one.help for one in action._choices_actions}
    blocks.append("\n".join(f"- [`{name}`](#{name.replace(' ', '-')}): {what}" for name, what in summaries.items()))
    for name, command, nested in commands(top):
        level = "##" if name.count(" ") == 1 else "###"
        blocks += [f"{level} {name}", f"    {_usage(name, command, nested)}", str(command.description), _list(command)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _usage(name: str, command: argparse.ArgumentParser, nested: bool) -> str:
    positions = [action for action in arguments(command) if not action.option_strings]
    options = [action for action in arguments(command) if action.option_strings]
    words = [name, *map(_word, options), *map(_word, positions), *["COMMAND …"] * nested]
    return " ".join(words)


def _word(action: argparse.Action) -> str:
    if not action.option_strings:
        if action.nargs == "+":  # another command: what stands behind the dashes is its own
            return f"-- {_values(action)}…"
        return f"[{_values(action)}…]" if action.nargs == "*" else _values(action)
    word = " | ".join(_spelled(action))
    return word if action.required else f"[{word}]"


def _spelled(action: argparse.Action) -> list[str]:
    values = _values(action)
    return [f"{option} {values}" if values else option for option in action.option_strings]


def _values(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    return "|".join(map(str, action.choices)) if action.choices else str(action.metavar or action.dest.upper())


def _list(command: argparse.ArgumentParser) -> str:
    lines = []
    for action in arguments(command):
        name = ", ".join(f"`{one}`" for one in _spelled(action)) if action.option_strings else f"`{_values(action)}`"
        what = str(action.help).replace("_", r"\_").replace("<", r"\<")
        lines.append(f"- {name}: {what}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    sys.stdout.write(reference())
