"""What the interop tests spoke with, said at the end of the run."""

import pytest

from tests.interop.official import Exercised, Peer

_MET: pytest.StashKey[dict[Peer, str]] = pytest.StashKey()


@pytest.fixture(scope="session")
def exercised(pytestconfig: pytest.Config) -> Exercised:
    """Note that a peer was spoken with, and the version of its SDK."""
    met = pytestconfig.stash.setdefault(_MET, {})
    return met.__setitem__


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List every peer that was spoken with, one a line."""
    met = config.stash.get(_MET, {})
    if met:
        terminalreporter.section("peers on official SDKs")
    for peer, sdk in sorted(met.items(), key=lambda one: str(one[0])):
        terminalreporter.line(f"{peer.language} SDK {sdk}, {peer.role}: protocol version {peer.version}")
