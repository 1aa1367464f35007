"""A v1 client on the official Python SDK: CLIENT --cwd DIR -- AGENT COMMAND…"""

import asyncio
from typing import Any

from acp import PROTOCOL_VERSION, spawn_agent_process, text_block
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    Implementation,
    PermissionOption,
    RequestPermissionResponse,
    ToolCallUpdate,
)
from pydantic import BaseModel

from tests.interop.peers.recording import SDK, Recording, dumped, run


class Recorder:
    """The handlers of the client. They record before they wait for anything: the SDK gives each a task of its own."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.ticked = asyncio.Event()
        self._ticks = 0

    async def session_update(self, session_id: str, update: BaseModel, **meta: Any) -> None:
        self.recording.update(session_id, update, meta)
        text = getattr(getattr(update, "content", None), "text", "")
        self._ticks += text.startswith("tick ")
        if self._ticks == 3:
            self.ticked.set()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **meta: Any
    ) -> RequestPermissionResponse:
        params = {"sessionId": session_id, "toolCall": dumped(tool_call), "options": [dumped(one) for one in options]}
        self.recording.add({"permission": params})
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id="allow"))


async def talk(recording: Recording, cwd: str, command: list[str]) -> int | None:
    recorder: Any = Recorder(recording)  # the SDK's Client protocol names every method there is
    answer = recording.answer
    async with spawn_agent_process(recorder, *command, transport_kwargs={"stderr": None}) as (agent, process):
        initialized = await answer(
            "initialize",
            agent.initialize(
                protocol_version=PROTOCOL_VERSION,
                client_capabilities=ClientCapabilities(),
                client_info=Implementation(name=SDK["name"], version=SDK["version"]),
            ),
        )
        recording.document["initialize"] = dumped(initialized)
        session_id = (await answer("session/new", agent.new_session(cwd=cwd, mcp_servers=[]))).session_id

        async def prompt(words: str) -> None:
            await answer("session/prompt", agent.prompt(session_id=session_id, prompt=[text_block(words)]))

        await prompt("stream")
        await prompt("tool")
        await asyncio.gather(prompt("one"), prompt("two"))

        slow = asyncio.create_task(prompt("slow"))
        await recorder.ticked.wait()
        await agent.cancel(session_id=session_id)
        await slow

        recording.document["list"] = dumped(await answer("session/list", agent.list_sessions(cwd=cwd)))
        await answer("session/load", agent.load_session(cwd=cwd, session_id=session_id, mcp_servers=[]))
        capabilities = initialized.agent_capabilities
        if capabilities and capabilities.session_capabilities and capabilities.session_capabilities.close:
            await answer("session/close", agent.close_session(session_id=session_id))
    return process.returncode


if __name__ == "__main__":
    run(PROTOCOL_VERSION, talk)
