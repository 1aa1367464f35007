"""Agents that stream at a steady rate: `python -m benchmarks.ticking twofold|bare [JOURNAL]`.

Asked with a prompt of the text "COUNT RATE", they send as many chunks at that rate a second. The text of each says when
it was given away to be sent, in nanoseconds of the clock that all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from time import monotonic_ns
from typing import Any, Final

__all__ = ["LINE"]

LINE: Final = (
    b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"%b","update":{"sessionUpdate":'
    b'"agent_message_chunk","messageId":"%b","content":{"type":"text","text":"%d"}}}}'
)
"""A chunk as a bare agent writes it: as long as one of twofold's."""


async def tick(text: str, send: Callable[[int], Awaitable[object]]) -> None:
    """Send what a prompt asks for, by the clock: what comes late does not delay the rest."""
    count, rate = map(int, text.split(" "))
    began = monotonic_ns()
    for number in range(count):
        await asyncio.sleep((began - monotonic_ns()) / 1e9 + number / rate)
        await send(monotonic_ns())


def twofold(journal: str = "memory:") -> None:
    """Serve with the runtime."""
    from twofold.runtime.agent import Agent, Prompt, Session

    async def prompt(session: Session, prompt: Prompt) -> None:
        message = session.message()
        await tick(prompt.text, lambda now: message.append(str(now)))

    Agent(prompt=prompt, journal=journal).run()


async def bare() -> None:
    """Serve with the streams of asyncio alone."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb", buffering=0))
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(1, "wb", buffering=0)
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    ids = (b"0" * 32, b"1" * 32)

    async def send(now: int) -> None:
        writer.write(LINE % (*ids, now) + b"\n")
        await writer.drain()

    def answer(result: dict[str, Any]) -> None:
        writer.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode() + b"\n")

    while line := await reader.readline():
        request = json.loads(line)
        if request["method"] != "session/prompt":
            answer({"sessionId": "0"})
            continue
        answer({"messageId": "0"})
        await tick(request["params"]["prompt"][0]["text"], send)
        writer.write(b'{"state":"idle"}\n')


if __name__ == "__main__":
    if sys.argv[1] == "bare":
        asyncio.run(bare())
    else:
        twofold(*sys.argv[2:])
