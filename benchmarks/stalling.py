"""Rows about a client that does not read: what an agent holds that has 1 GB to say to it.

Measured in a process of its own. Tasks of one turn stream it, each a piece at a time, over a pipe that nobody reads
any more; the bound on what may wait to be sent is a configured one.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.growth import resident
from benchmarks.measure import Costs, Goal, Row, Size
from twofold.runtime import StreamTransport
from twofold.runtime.agent import Agent, Prompt, Session

__all__ = ["Stalling"]

LIMIT: Final = 16 * 1024 * 1024
OFFERED: Final = 1024 * 1024 * 1024
PIECE: Final = 16 * 1024
TASKS: Final = 64
QUIET: Final = 0.5  # seconds in which nothing more is taken: then nothing will be

ROOT: Final = Path(__file__).parent.parent


class Stalling:
    """The group of these rows. It comes out the same every time, so one round is enough."""

    rows: Sequence[Row] = (
        Row("stalled", "1 GB for a client that does not read: unsent / the limit", "waiting", None, Goal(1.01)),
        Row("stalled-memory", "the same: resident memory added / the limit", "resident", None, Goal(4)),
    )

    def rounds(self, _rows: Sequence[Row], _size: Size, /) -> Sequence[Costs]:
        """Measure in units of the limit."""
        words = [sys.executable, "-m", __name__]
        held = json.loads(subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
        return [{name: amount / LIMIT for name, amount in held.items()}]


async def held() -> dict[str, int]:
    """Give the bytes that wait, and those of memory that were added."""
    loop = asyncio.get_running_loop()
    incoming, asking = os.pipe()
    told, outgoing = os.pipe()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(incoming, "rb", buffering=0))
    pipe, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(outgoing, "wb", buffering=0)
    )
    pipe.set_write_buffer_limits(high=LIMIT)
    transport = StreamTransport(reader, asyncio.StreamWriter(pipe, protocol, None, loop), name="a client")
    taken = before = 0

    async def prompt(session: Session, _prompt: Prompt) -> None:
        nonlocal before
        before = resident()
        await asyncio.gather(*(stream(session, number) for number in range(TASKS)))

    async def stream(session: Session, number: int) -> None:
        nonlocal taken
        message = session.message()
        for piece in range(OFFERED // TASKS // PIECE):
            await message.append(f"{number:08d}{piece:08d}" * (PIECE // 16))
            taken += PIECE

    def ask(method: str, params: dict[str, Any]) -> None:
        request = {"jsonrpc": "2.0", "id": 0, "method": method, "params": params}
        os.write(asking, json.dumps(request).encode() + b"\n")

    async def answer() -> Any:
        return json.loads(await asyncio.to_thread(os.read, told, 65_536))["result"]

    serving = asyncio.create_task(Agent(prompt=prompt).serve(transport))
    ask("initialize", {"protocolVersion": 2, "info": {"name": "bench", "version": "0"}, "capabilities": {}})
    await answer()
    ask("session/new", {"cwd": str(ROOT), "mcpServers": []})
    session_id = (await answer())["sessionId"]
    ask("session/prompt", {"sessionId": session_id, "prompt": [{"type": "text", "text": "Say it all."}]})
    seen = -1
    while taken > seen:
        seen = taken
        await asyncio.sleep(QUIET)
    found = {"waiting": pipe.get_write_buffer_size(), "resident": resident() - before}
    os.close(told)  # nobody will ever read it
    os.close(asking)
    await serving
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(held())))
