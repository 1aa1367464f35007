"""What stands between a client and an agent, and the agent: `python -m benchmarks.hop KIND …`.

`ticks` is an agent of version 2 that streams at a steady rate: asked with a prompt of the text "COUNT RATE KIND" it
sends as many updates at that rate a second (0: as quickly as the pipe takes them). KIND is `chunk`, whose text is when
it was given away to be sent, in nanoseconds of the clock that all processes of a machine share, or `output` of a tool.
`copy AGENT…` passes bytes on, with asyncio. `official AGENT…` passes updates on, with the official Python SDK.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from time import monotonic_ns
from typing import Any, Final

__all__ = ["SESSION"]

SESSION: Final = "s" * 32

_LINE: Final = (
    b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"%b","update":{"sessionUpdate":"%b"%b}}}\n'
)
_CHUNK: Final = b',"messageId":"mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm","content":{"type":"text","text":"%d"}'
_OUTPUT: Final = (
    b',"toolCallId":"cccccccccccccccc",'
    b'"content":{"type":"content","content":{"type":"text","text":"%036d compiled\\n"}}'
)


async def stdio() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Give our own standard input and output."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1024 * 1024)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb", buffering=0))
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(1, "wb", buffering=0)
    )
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


async def ticks() -> None:
    """Be the agent."""
    reader, writer = await stdio()

    def say(**members: Any) -> None:
        writer.write(json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n")

    def update(kind: str, members: bytes) -> None:
        writer.write(_LINE % (SESSION.encode(), kind.encode(), members))

    while line := await reader.readline():
        request = json.loads(line)
        match request.get("method"):
            case "initialize":
                info = {"name": "ticks", "version": "0"}
                say(id=request["id"], result={"protocolVersion": 2, "info": info, "capabilities": {"session": {}}})
            case "session/new":
                say(id=request["id"], result={"sessionId": SESSION})
            case "session/prompt":
                count, rate, kind = request["params"]["prompt"][0]["text"].split(" ")
                say(id=request["id"], result={"messageId": "u"})
                update("state_update", b',"state":"running"')
                if kind == "output":
                    update(
                        "tool_call_update", b',"toolCallId":"cccccccccccccccc","title":"make","status":"in_progress"'
                    )
                began = monotonic_ns()
                for number in range(int(count)):
                    if int(rate):
                        await asyncio.sleep((began - monotonic_ns()) / 1e9 + number / int(rate))
                    if kind == "output":
                        update("tool_call_content_chunk", _OUTPUT % number)
                    else:
                        update("agent_message_chunk", _CHUNK % monotonic_ns())
                    await writer.drain()
                if kind == "output":
                    update("tool_call_update", b',"toolCallId":"cccccccccccccccc","status":"completed"')
                update("state_update", b',"state":"idle"')


async def copy(command: list[str]) -> None:
    """Pass bytes on."""
    reader, writer = await stdio()
    pipe = asyncio.subprocess.PIPE
    agent = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert agent.stdin is not None
    assert agent.stdout is not None

    async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(262_144):
            sink.write(data)
            await sink.drain()
        sink.close()

    await asyncio.gather(pass_on(reader, agent.stdin), pass_on(agent.stdout, writer))
    await agent.wait()


async def official(command: list[str]) -> None:
    """Be an agent for the client and a client for the agent, and pass on what the one says to the other."""
    from acp import PROTOCOL_VERSION, run_agent, spawn_agent_process
    from acp.schema import InitializeResponse

    class Proxy:
        front: Any
        back: Any

        def on_connect(self, connection: Any) -> None:
            self.front = connection

        async def initialize(self, **_: Any) -> Any:
            return InitializeResponse(protocol_version=PROTOCOL_VERSION)

        async def new_session(self, cwd: str, **_: Any) -> Any:
            return await self.back.new_session(cwd=cwd, mcp_servers=[])

        async def prompt(self, session_id: str, prompt: Any, **_: Any) -> Any:
            return await self.back.prompt(session_id=session_id, prompt=prompt)

    class Client:
        async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
            await proxy.front.session_update(session_id=session_id, update=update)

    proxy: Any = Proxy()  # the SDK's protocols name every method there is
    client: Any = Client()
    async with spawn_agent_process(client, *command) as (agent, _):
        proxy.back = agent
        await agent.initialize(protocol_version=PROTOCOL_VERSION)
        await run_agent(proxy)


if __name__ == "__main__":
    kind, *words = sys.argv[1:]
    asyncio.run(ticks() if kind == "ticks" else copy(words) if kind == "copy" else official(words))
