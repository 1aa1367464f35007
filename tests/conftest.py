"""Hypothesis profiles, chosen with HYPOTHESIS_PROFILE; cases and captures as fixtures."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("default"), max_examples=20)
settings.register_profile("long", settings.get_profile("default"), max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

CASES = Path(__file__).parent / "cases"
CAPTURES = Path(__file__).parent / "captures"

Case = tuple[list[bytes], dict[str, Any]]


@pytest.fixture
def case() -> Callable[[str], Case]:
    """Read a case by name: the lines of its input, and what it expects."""

    def read(name: str) -> Case:
        lines = (CASES / name / "input.jsonl").read_bytes().split(b"\n")
        return [line for line in lines if line], json.loads((CASES / name / "expect.json").read_text())["expect"]

    return read


@pytest.fixture
def capture_lines() -> Callable[[str], list[bytes]]:
    """Read the lines of a capture by name."""
    return lambda name: (CAPTURES / f"{name}.jsonl").read_bytes().splitlines()
