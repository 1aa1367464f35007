"""A v2 client on the official Python SDK: CLIENT --cwd DIR -- AGENT COMMAND…"""

import asyncio
from typing import Any

from acp.experimental.v2 import PROTOCOL_VERSION, connect_to_agent, schema  # type: ignore[import-not-found]
from acp.transports import spawn_stdio_transport

from tests.interop.peers.recording import SDK, Recording, dumped, run


class Recorder:
    """The handlers of the client. They record before they wait for anything: the SDK gives each a task of its own."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.ticks = 0
        self.inserted: set[str] = set()  # the ids of user messages reported so far,
        self.worked: set[str] = set()  # and of those that an idle state came after

    async def session_update(self, session_id: str, update: Any, **meta: Any) -> None:
        match update.session_update:
            case "user_message" | "user_message_chunk":
                self.inserted.add(update.message_id)
            case "state_update" if update.state == "idle":
                self.worked |= self.inserted
            case "agent_message_chunk":
                self.ticks += update.content.text.startswith("tick ")
        self.recording.update(session_id, update, meta)

    async def request_permission(self, session_id: str, title: str, options: list[Any], **more: Any) -> Any:
        subject = more.get("subject")
        params = {"sessionId": session_id, "title": title, "options": [dumped(one) for one in options]}
        self.recording.add({"permission": params if subject is None else {**params, "subject": dumped(subject)}})
        outcome = schema.SelectedPermissionOutcomeVariant(option_id="allow")
        return schema.RequestPermissionResponse(outcome=outcome)


async def talk(recording: Recording, cwd: str, command: list[str]) -> int | None:
    recorder = Recorder(recording)
    answer = recording.answer
    async with (
        spawn_stdio_transport(*command, stderr=None) as (reader, writer, process),
        connect_to_agent(recorder, writer, reader) as agent,
    ):
        initialize = agent.initialize(PROTOCOL_VERSION, schema.Implementation(**SDK), schema.ClientCapabilities())
        recording.document["initialize"] = dumped(await answer("initialize", initialize))
        session_id = (await answer("session/new", agent.new_session(cwd, mcp_servers=[]))).session_id

        async def prompt(words: str) -> None:
            """Send a prompt, and wait until it is in the conversation and the session idle again."""
            content = [schema.TextContentBlock(text=words)]
            message_id = (await answer("session/prompt", agent.prompt(session_id, content))).message_id
            await recording.until(lambda: message_id in recorder.worked)

        await prompt("stream")
        await prompt("tool")
        await asyncio.gather(prompt("one"), prompt("two"))

        slow = asyncio.create_task(prompt("slow"))
        await recording.until(lambda: recorder.ticks >= 3)
        await agent.cancel_session(session_id)
        await slow

        recording.document["list"] = dumped(await answer("session/list", agent.list_sessions(cwd)))
        start = schema.ReplayFromStartVariant()
        resume = agent.resume_session(session_id, cwd, mcp_servers=[], replay_from=start)
        await answer("session/resume", resume)
        await answer("session/close", agent.close_session(session_id))
    return process.returncode


if __name__ == "__main__":
    run(PROTOCOL_VERSION, talk)
