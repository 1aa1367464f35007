"""The peers built on the official SDKs, how each is started, and what a scripted client recorded."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from tests.node_tools import HOME, node, node_modules
from tests.peer_environments import python_of

ROOT: Final = Path(__file__).parent.parent.parent
PEERS: Final = Path(__file__).parent / "peers"
SECONDS: Final = 60  # more than a scripted client's own deadline

Role = Literal["client", "agent"]
Version = Literal[1, 2]
Event = dict[str, Any]


@dataclass(frozen=True)
class Peer:
    """A script on an official SDK."""

    language: Literal["TypeScript", "Python"]
    version: Version
    role: Role
    in_order: bool = True
    """Whether a client's SDK hands answers and updates over in the order in which they were sent."""

    def __str__(self) -> str:
        return f"{self.language} SDK, {self.role} v{self.version}"

    @property
    def command(self) -> list[str]:
        """The words that start it; skips or fails the test when what it needs is not to be had."""
        if self.language == "TypeScript":
            node_modules()
            return [str(node()), str(HOME / "peers" / f"{self.role}_v{self.version}.mjs")]
        python = sys.executable if self.version == 1 else str(python_of("python-sdk-rc"))
        name = f"python_v{self.version}_{self.role}"
        return (
            [python, "-m", f"tests.interop.peers.{name}"] if self.role == "client" else [python, f"{PEERS}/{name}.py"]
        )


CLIENTS: Final = (
    Peer("TypeScript", 1, "client"),
    Peer("Python", 1, "client"),
    # An answer overtakes up to two updates that were read together with it.
    Peer("TypeScript", 2, "client", in_order=False),
    Peer("Python", 2, "client"),
)
AGENTS: Final = tuple(Peer(one.language, one.version, "agent") for one in CLIENTS)


class Record:
    """The document of a scripted client: what its SDK handed over while it went through the script."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.events: list[Event] = document["events"]

    @property
    def sdk(self) -> str:
        """The SDK's version."""
        return str(self.document["sdk"]["version"])

    def answers(self, method: str) -> list[Any]:
        """Give the results of the requests with this method."""
        return [one["result"] for one in self.events if one.get("response") == method]

    @cached_property
    def live(self) -> list[Event]:
        """What came until the sessions were listed: the prompts and their turns."""
        return self.events[: self._listed]

    @cached_property
    def replayed(self) -> list[Event]:
        """What came after that: the replay, and the closing of the session."""
        return self.events[self._listed + 1 :]

    @property
    def _listed(self) -> int:
        return next(index for index, one in enumerate(self.events) if one.get("response") == "session/list")


def updates(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Give the updates among events, without their envelope."""
    return [one["update"]["update"] for one in events if "update" in one]


def record(client: Peer, agent: Sequence[str], cwd: Path) -> Record:
    """Run a scripted client with an agent, and give what it recorded."""
    done = subprocess.run(
        [*client.command, "--cwd", str(cwd), "--", *agent],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    assert "failed" not in document, f"{document['failed']}\n{json.dumps(document['events'][-5:])}\n{done.stderr}"
    assert (done.returncode, done.stderr) == (0, "")
    return Record(document)


Exercised = Callable[[Peer, str], None]
