"""A v1 agent on the official Python SDK, on stdin and stdout; the first text block of a prompt says what it does.

It tells nothing of the messages its chunks belong to where v1 lets it: the thought and the echo carry no `messageId`.
"""

import asyncio
import uuid
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from acp import (
    PROTOCOL_VERSION,
    Client,
    RequestError,
    plan_entry,
    run_agent,
    start_tool_call,
    text_block,
    tool_content,
    update_agent_message_text,
    update_agent_thought_text,
    update_plan,
    update_tool_call,
    update_user_message,
)
from acp.schema import (
    AgentCapabilities,
    AgentMessageChunk,
    AllowedOutcome,
    CloseSessionResponse,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionInfo,
    SessionListCapabilities,
    TextContentBlock,
    ToolCallUpdate,
)


@dataclass
class Session:
    id: str
    cwd: str
    history: list[Any] = field(default_factory=list)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)


class ScriptedAgent:
    client: Client

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}

    def on_connect(self, conn: Client) -> None:
        self.client = conn

    def find(self, session_id: str) -> Session:
        if session_id not in self.sessions:
            raise RequestError.resource_not_found(session_id)
        return self.sessions[session_id]

    async def say(self, session: Session, update: Any) -> None:
        session.history.append(update)
        await self.client.session_update(session_id=session.id, update=update)

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        sessions = SessionCapabilities(list=SessionListCapabilities(), close=SessionCloseCapabilities())
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="agent-client-protocol agent", version=version("agent-client-protocol")),
            agent_capabilities=AgentCapabilities(load_session=True, session_capabilities=sessions),
        )

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        session = Session(id=str(uuid.uuid4()), cwd=cwd)
        self.sessions[session.id] = session
        return NewSessionResponse(session_id=session.id)

    async def list_sessions(self, cwd: str | None = None, **_: Any) -> ListSessionsResponse:
        found = [one for one in self.sessions.values() if cwd in (None, one.cwd)]
        return ListSessionsResponse(sessions=[SessionInfo(session_id=one.id, cwd=one.cwd) for one in found])

    async def load_session(self, session_id: str, **_: Any) -> LoadSessionResponse:
        for update in self.find(session_id).history:
            await self.client.session_update(session_id=session_id, update=update)
        return LoadSessionResponse()

    async def close_session(self, session_id: str, **_: Any) -> CloseSessionResponse:
        session = self.find(session_id)
        session.cancelled.set()
        async with session.turn:
            return CloseSessionResponse()

    async def cancel(self, session_id: str, **_: Any) -> None:
        self.find(session_id).cancelled.set()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        session = self.find(session_id)
        async with session.turn:  # one prompt after the other
            session.cancelled.clear()
            session.history += [update_user_message(block) for block in prompt]
            text = next((block.text for block in prompt if isinstance(block, TextContentBlock)), "")
            match text:
                case "stream":
                    await self.stream(session)
                case "tool":
                    await self.tool(session)
                case "slow":
                    await self.slow(session)
                case "boom":
                    raise RuntimeError("boom")
                case _:
                    await self.say(session, update_agent_message_text(text))
            return PromptResponse(stop_reason="cancelled" if session.cancelled.is_set() else "end_turn")

    async def message(self, session: Session, *texts: str) -> None:
        message_id = str(uuid.uuid4())
        for text in texts:
            chunk = AgentMessageChunk(
                session_update="agent_message_chunk", message_id=message_id, content=text_block(text)
            )
            await self.say(session, chunk)

    async def stream(self, session: Session) -> None:
        for text in ("Let me ", "think"):
            await self.say(session, update_agent_thought_text(text))
        await self.message(session, "Hello", ", ", "world")
        await self.message(session, "secret")
        entries = [plan_entry("Say hello", status="completed"), plan_entry("Say goodbye", priority="low")]
        await self.say(session, update_plan(entries))

    async def tool(self, session: Session) -> None:
        tool_call_id = str(uuid.uuid4())
        await self.say(session, start_tool_call(tool_call_id, "Run printf", kind="execute", status="pending"))
        answer = await self.client.request_permission(
            session_id=session.id,
            tool_call=ToolCallUpdate(tool_call_id=tool_call_id, title="Run printf", kind="execute"),
            options=[
                PermissionOption(option_id="allow", name="Allow", kind="allow_once"),
                PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
            ],
        )
        if isinstance(answer.outcome, AllowedOutcome) and answer.outcome.option_id == "allow":
            output = [tool_content(text_block("hello from tool"))]
            await self.say(session, update_tool_call(tool_call_id, status="completed", content=output))
            await self.message(session, "Done.")
        else:
            await self.say(session, update_tool_call(tool_call_id, status="failed"))
            await self.message(session, "Not done.")

    async def slow(self, session: Session) -> None:
        message_id = str(uuid.uuid4())
        for tick in range(1, 501):
            chunk = update_agent_message_text(f"tick {tick} ")
            chunk.message_id = message_id
            await self.say(session, chunk)
            try:
                await asyncio.wait_for(session.cancelled.wait(), 0.02)
            except TimeoutError:
                continue
            return


if __name__ == "__main__":
    agent: Any = ScriptedAgent()  # the SDK's Agent protocol names every method there is
    asyncio.run(run_agent(agent, use_unstable_protocol=True))  # session/close counts as unstable
