"""docs/cli.md says what the parser takes, all of it and nothing else."""

import argparse
from pathlib import Path

import pytest

from tests.cli_reference import arguments, commands, reference
from twofold.cli import parser
from twofold.cli._arguments import POLICIES, REVISIONS
from twofold.convert import Policy
from twofold.fold import Revision

PAGE = Path(__file__).parents[2] / "docs/cli.md"
COMMANDS = {name: command for name, command, _ in commands(parser())}


def test_the_page_is_what_would_be_written() -> None:
    assert PAGE.read_text("utf-8") == reference(), "python -m tests.cli_reference > docs/cli.md"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_every_argument_explains_itself(name: str) -> None:
    assert COMMANDS[name].description
    for action in arguments(COMMANDS[name]):
        assert action.help, action


@pytest.mark.parametrize("name", ["fold", "check", "convert", "replay", "journal", "demo"])
def test_the_commands_are_there(name: str) -> None:
    assert f"twofold {name}" in COMMANDS
    listed = [action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)]
    assert any(one.dest == name and one.help for one in listed[0]._choices_actions)


def test_choices_are_the_librarys_though_it_is_not_imported_for_them() -> None:
    assert list(Revision) == list(REVISIONS)
    assert [policy.value for policy in Policy] == list(POLICIES)
