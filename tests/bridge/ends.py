"""A bridge between a client that is a test and an agent that does as it is told, over real pipes.

The client's end is a :class:`~tests.runtime.talk.Talk`, or bytes as they are; the agent is `puppet.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.runtime.talk import Talk
from twofold.bridge import Bridge
from twofold.journal import open_journal
from twofold.runtime import StreamTransport

__all__ = [
    "CWD",
    "EXAMPLES",
    "V1",
    "V2",
    "Bridged",
    "bridged",
    "pipes",
    "puppet",
    "script",
    "text",
]

Json: TypeAlias = Any

PUPPET: Final = Path(__file__).with_name("puppet.py")
EXAMPLES: Final = Path(__file__).parents[2] / "examples"
CWD: Final = os.path.abspath(os.sep)

V2: Final[Json] = {"protocolVersion": 2, "info": {"name": "puppet", "version": "1"}, "capabilities": {"session": {}}}
V1: Final[Json] = {
    "protocolVersion": 1,
    "agentInfo": {"name": "puppet", "version": "1"},
    "agentCapabilities": {
        "loadSession": True,
        "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}},
    },
}
BOTH: Final[Json] = {"1": V1, "2": V2}


def puppet(versions: Mapping[str, Json], **config: Json) -> list[str]:
    """Give the command of a puppet."""
    config = {"versions": versions, "sessions": ["s"], **config}
    return [sys.executable, "-I", "-S", str(PUPPET), json.dumps(config, default=str)]


def script(*steps: Json) -> str:
    """Give the text of a prompt that tells a puppet what to do."""
    return json.dumps(steps)


def text(words: str) -> Json:
    return {"type": "text", "text": words}


class Bridged:
    """A bridge that runs, the client's end of it, and what it reported."""

    def __init__(self, bridge: Bridge, stream: StreamTransport, reports: list[tuple[str, Json]]) -> None:
        self.bridge = bridge
        self.stream = stream
        self.talk = Talk(stream)
        self.reports = reports
        self.running: asyncio.Task[bool]

    def reported(self, event: str) -> list[Json]:
        """Give the facts of all reports of one kind."""
        return [facts for name, facts in self.reports if name == event]

    def pid(self) -> int:
        """Give the process id of the agent that was started last."""
        return int([facts["pid"] for facts in self.reported("agent") if "pid" in facts][-1])

    async def read_all(self) -> bytes:
        """Give every byte up to the end."""
        parts: list[bytes] = []
        while chunk := await self.stream.receive_raw():
            parts.append(chunk)
        return b"".join(parts)

    async def read_line(self) -> bytes:
        """Give the next line as it came. Not to be mixed with :attr:`talk`."""
        line = b""
        while b"\n" not in line:
            chunk = await self.stream.receive_raw()
            if not chunk:
                return line
            line += chunk
        line, rest = line[: line.index(b"\n") + 1], line[line.index(b"\n") + 1 :]
        self.stream.unread(rest)
        return line

    async def finish(self) -> bool:
        """Say no more, and wait until the bridge is done; gives whether all went well."""
        self.stream.end()
        return await self.running


async def pipes() -> tuple[StreamTransport, StreamTransport]:
    """Give both ends of a pair of pipes: the bridge's, and the client's."""
    loop = asyncio.get_running_loop()
    up, down = os.pipe(), os.pipe()

    async def stream(incoming: int, outgoing: int, name: str) -> StreamTransport:
        reader = asyncio.StreamReader()
        pipe, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(incoming, "rb", buffering=0)
        )
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(outgoing, "wb", buffering=0)
        )
        transport.set_write_buffer_limits(high=1024 * 1024)
        return StreamTransport(
            reader, asyncio.StreamWriter(transport, protocol, None, loop), name=name, let_go=pipe.close
        )

    return await stream(up[0], down[1], "the client"), await stream(down[0], up[1], "the bridge")


@asynccontextmanager
async def bridged(
    command: Sequence[str], *, version: int | None = None, journal: Path | None = None, **options: Any
) -> AsyncIterator[Bridged]:
    """Run a bridge to a command; with ``version`` the client has initialized already."""
    theirs, ours = await pipes()
    reports: list[tuple[str, Json]] = []

    def report(event: str, facts: Mapping[str, Any]) -> None:
        reports.append((event, dict(facts)))

    options = {"drain_timeout": 10.0, "grace": 5.0, **options}
    opened = None if journal is None else await asyncio.to_thread(open_journal, str(journal))
    bridge = Bridge(command, client=theirs, report=report, journal=opened, **options)
    ends = Bridged(bridge, ours, reports)
    ends.running = asyncio.create_task(bridge.run())
    try:
        if version is not None:
            await ends.talk.initialize(version)
        yield ends
    finally:
        ends.stream.end()
        if not ends.running.done():
            ends.running.cancel()
        with suppress(asyncio.CancelledError):
            await ends.running
        await ours.close()
