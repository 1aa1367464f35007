"""What real agents the tests spoke with, said at the end of the run."""

from collections.abc import Callable

import pytest

_MET: pytest.StashKey[dict[str, None]] = pytest.StashKey()


@pytest.fixture(scope="session")
def exercised(pytestconfig: pytest.Config) -> Callable[[str, str, int], None]:
    """Note that an agent was spoken with: its name and version, and the protocol version."""
    met = pytestconfig.stash.setdefault(_MET, {})

    def note(agent: str, version: str, protocol: int) -> None:
        met[f"{agent} {version}: protocol version {protocol}"] = None

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List every agent that was spoken with, one a line."""
    met = config.stash.get(_MET, {})
    if met:
        terminalreporter.section("real agents")
    for line in met:
        terminalreporter.line(line)
