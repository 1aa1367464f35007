"""Who talked to whom through a bridge, said at the end of the run."""

from collections.abc import Callable

import pytest

_MET: pytest.StashKey[dict[str, None]] = pytest.StashKey()

Through = Callable[[str, str], None]


@pytest.fixture(scope="session")
def through(pytestconfig: pytest.Config) -> Through:
    """Note that a client talked to an agent through a bridge."""
    met = pytestconfig.stash.setdefault(_MET, {})

    def note(client: str, agent: str) -> None:
        met[f"{client} → bridge → {agent}"] = None

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List every pair, one a line."""
    met = config.stash.get(_MET, {})
    if met:
        terminalreporter.section("through the bridge")
    for line in sorted(met):
        terminalreporter.line(line)
