"""What a test does when something outside Python that it needs is not to be had."""

import os
from typing import NoReturn

import pytest


def missing(part: str, why: str) -> NoReturn:
    """Skip the test, or fail it where `TWOFOLD_REQUIRE` names `part` or says `all`.

    `TWOFOLD_REQUIRE` is a comma list of parts: `node`, `sdk`, `nats`, `tmpfs`, `chromium`, `peers`, `docs`.
    CI says `all`, so that nothing there passes by being skipped.
    """
    required = {word.strip() for word in os.environ.get("TWOFOLD_REQUIRE", "").split(",")}
    reason = f"{part} is missing: {why}"
    if required & {part, "all"}:
        pytest.fail(f"{reason} (TWOFOLD_REQUIRE asks for it)", pytrace=False)
    pytest.skip(reason, allow_module_level=True)
