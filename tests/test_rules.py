"""Every numbered message rule is held by some test, and no test names a rule that is none."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
RULES = {
    f"{letter}-{number}"
    for letter, last in {"U": 8, "F": 13, "R": 1, "P": 5, "V": 9, "W": 4, "J": 8}.items()
    for number in range(1, last + 1)
}


def named() -> Iterator[tuple[str, str]]:
    """Give each rule that a test names in ``@pytest.mark.rule(...)``, with the file."""
    for path in sorted(TESTS.rglob("test_*.py")) + sorted(TESTS.rglob("contract.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.rule":
                for argument in node.args:
                    if not isinstance(argument, ast.Starred):
                        yield ast.literal_eval(argument), str(path.relative_to(TESTS))
    for path in sorted((TESTS / "vectors").rglob("*.json")):
        vector = json.loads(path.read_text(encoding="utf-8"))
        for rule in vector.get("rules", ()):
            yield rule, str(path.relative_to(TESTS))


def test_every_rule_is_held_by_a_test() -> None:
    assert RULES - {rule for rule, _ in named()} == set()


def test_no_test_names_a_rule_that_is_none() -> None:
    assert [(rule, file) for rule, file in named() if rule not in RULES] == []
