"""A client in a process of its own: `python -m benchmarks.client KIND LINES` reads what `agent.py` writes.

KIND is `twofold` (v2), `official` (the official Python SDK, v1) or `bare` (no client: counts newlines). A request is a
line on stdin: `open` starts the agent, "START STOP" prompts it for those lines, `close` ends it. The first two are
answered with the nanoseconds that the lines took: on the clock, and of this process's CPU.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Any, Final, TypeAlias

__all__ = ["AGENT"]

AGENT: Final = Path(__file__).with_name("agent.py")

Read: TypeAlias = Callable[[int, int], Awaitable[object]]
"""Prompts for the lines from the first number to before the second, and takes them all."""

Open: TypeAlias = Callable[[list[str], str], AbstractAsyncContextManager[Read]]


@asynccontextmanager
async def twofold(command: list[str], cwd: str) -> AsyncGenerator[Read, None]:
    """Iterate over the changes of a turn."""
    from twofold.runtime.client import connect

    async with connect([*command, "2"]) as client:
        session = await client.new_session(cwd=cwd)

        async def read(start: int, stop: int) -> None:
            changes = 0
            async for _change in session.prompt(f"{start} {stop}"):
                changes += 1
            if changes != stop - start + 3:  # the prompt, running, idle
                raise AssertionError(f"{changes} changes of {stop - start} chunks")

        yield read


@asynccontextmanager
async def official(command: list[str], cwd: str) -> AsyncGenerator[Read, None]:
    """Wait for a prompt, with the least handler that one would write to hold messages of text."""
    from acp import PROTOCOL_VERSION, spawn_agent_process, text_block
    from acp.schema import AgentMessageChunk, AgentThoughtChunk, TextContentBlock, UserMessageChunk

    class Client:
        def __init__(self) -> None:
            self.messages: dict[tuple[str, str], list[str]] = {}
            self.updates = 0

        async def session_update(self, session_id: str, update: Any, **_meta: Any) -> None:  # noqa: ARG002
            self.updates += 1
            if isinstance(update, (AgentMessageChunk, AgentThoughtChunk, UserMessageChunk)):
                key = (update.session_update, update.message_id or "")
                texts = self.messages.get(key)
                if texts is None:
                    texts = self.messages[key] = []
                if isinstance(update.content, TextContentBlock):
                    texts.append(update.content.text)

    client: Any = Client()  # the SDK's Client protocol names every method there is
    async with spawn_agent_process(client, *command, "1") as (agent, _process):
        await agent.initialize(protocol_version=PROTOCOL_VERSION)
        session_id = (await agent.new_session(cwd=cwd, mcp_servers=[])).session_id

        async def read(start: int, stop: int) -> None:
            client.updates = 0
            await agent.prompt(session_id=session_id, prompt=[text_block(f"{start} {stop}")])
            if client.updates != stop - start:
                raise AssertionError(f"{client.updates} updates of {stop - start} chunks")

        yield read


@asynccontextmanager
async def bare(command: list[str], _cwd: str) -> AsyncGenerator[Read, None]:
    """Take the bytes and count: what the agent and the pipe allow."""
    with subprocess.Popen([*command, "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as agent:
        requests, answers = agent.stdin, agent.stdout
        assert requests is not None
        assert answers is not None

        def ask(method: str, params: dict[str, Any], lines: int) -> None:
            requests.write(json.dumps({"id": 0, "method": method, "params": params}).encode() + b"\n")
            while lines > 0:
                lines -= os.read(answers.fileno(), 262_144).count(b"\n")

        async def read(start: int, stop: int) -> None:
            prompt = [{"type": "text", "text": f"{start} {stop}"}]
            ask("session/prompt", {"prompt": prompt}, stop - start + 4)  # the answer, the prompt, running, idle

        ask("initialize", {}, 1)
        yield read


async def main(kind: str, path: str) -> None:
    """Serve requests. Between them nothing goes on, so the loop may be blocked."""
    open_client: Open = {"twofold": twofold, "official": official, "bare": bare}[kind]
    command = [sys.executable, "-S", str(AGENT), path]
    while sys.stdin.readline() == "open\n":
        async with open_client(command, str(Path.cwd())) as read:
            print("0 0", flush=True)
            while (line := sys.stdin.readline()) not in ("close\n", ""):
                start, stop = map(int, line.split())
                wall, cpu = perf_counter_ns(), process_time_ns()
                await read(start, stop)
                print(perf_counter_ns() - wall, process_time_ns() - cpu, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
