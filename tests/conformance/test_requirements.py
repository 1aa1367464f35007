"""Every requirement is held by a test of its version or waived for a reason, and no test names one that is neither."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.requirements import REQUIREMENTS, Version

FILES: dict[Version, str] = {1: "test_v1.py", 2: "test_v2.py"}
HELD = {(one.version, one.id) for one in REQUIREMENTS if one.waived is None}


def named() -> Iterator[tuple[Version, str]]:
    """Give each requirement that a test names in ``@pytest.mark.requirement(...)``, with the version of its file."""
    for version, file in FILES.items():
        for node in ast.walk(ast.parse((Path(__file__).parent / file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.requirement":
                for argument in node.args:
                    yield version, ast.literal_eval(argument)


def test_every_requirement_that_is_not_waived_is_held_by_a_test() -> None:
    assert HELD - set(named()) == set()


def test_no_test_names_a_requirement_that_is_waived_or_none() -> None:
    assert set(named()) - HELD == set()


def test_every_requirement_is_listed_once() -> None:
    assert [key for key, times in Counter((one.version, one.id) for one in REQUIREMENTS).items() if times > 1] == []


def test_what_would_make_a_requirement_apply_is_only_said_of_those_that_are_waived() -> None:
    assert [one.id for one in REQUIREMENTS if one.needs and one.waived is None] == []
