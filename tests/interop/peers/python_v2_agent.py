"""A v2 agent on the official Python SDK, on stdin and stdout; the first text block of a prompt says what it does.

A prompt is inserted at once, also while another is worked on: its user message goes out before the answer to its
request. The session is idle when all of them are done.
"""

import asyncio
import base64
import uuid
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from acp import RequestError
from acp.experimental.v2 import PROTOCOL_VERSION, run_agent, schema  # type: ignore[import-not-found]


@dataclass
class Session:
    id: str
    cwd: str
    state: Any = field(default_factory=schema.IdleSessionStateUpdate)
    history: dict[str, Any] = field(default_factory=dict)
    prompts: list[str] = field(default_factory=list)
    work: asyncio.Task[None] | None = None
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)


def text(words: str) -> Any:
    return schema.TextContentBlock(text=words)


def new_id() -> str:
    return str(uuid.uuid4())


class ScriptedAgent:
    client: Any

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}

    def on_connect(self, connection: Any) -> None:
        self.client = connection

    def find(self, session_id: str) -> Session:
        if session_id not in self.sessions:
            raise RequestError(-32002, "no such session", {"sessionId": session_id})
        return self.sessions[session_id]

    async def send(self, session: Session, update: Any) -> None:
        await self.client.session_update(session.id, update)

    async def enter(self, session: Session, state: Any) -> None:
        session.state = state
        await self.send(session, state)

    async def upsert(self, session: Session, entity: str, update: Any) -> None:
        """Send an upsert, and merge it into the one that a replay will send."""
        held = session.history.setdefault(entity, update)
        for name in update.model_fields_set:
            setattr(held, name, getattr(update, name))
        await self.send(session, update)

    async def initialize(self, protocol_version: int, info: Any, **_: Any) -> Any:
        return schema.InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            info=schema.Implementation(name="agent-client-protocol agent", version=version("agent-client-protocol")),
            capabilities=schema.AgentCapabilities(session=schema.SessionCapabilities()),
        )

    async def new_session(self, cwd: str, **_: Any) -> Any:
        session = Session(id=new_id(), cwd=cwd)
        self.sessions[session.id] = session
        return schema.NewSessionResponse(session_id=session.id)

    async def list_sessions(self, cwd: str | None = None, **_: Any) -> Any:
        found = [one for one in self.sessions.values() if cwd in (None, one.cwd)]
        return schema.ListSessionsResponse(
            sessions=[schema.SessionInfo(session_id=one.id, cwd=one.cwd) for one in found]
        )

    async def resume_session(self, session_id: str, replay_from: Any = None, **_: Any) -> Any:
        session = self.find(session_id)
        if replay_from is not None:
            if replay_from.type != "start":
                raise RequestError.invalid_params({"replayFrom": replay_from.type})
            for update in session.history.values():
                await self.send(session, update)
        await self.send(session, session.state)
        return schema.ResumeSessionResponse()

    async def close_session(self, session_id: str, **_: Any) -> Any:
        session = self.sessions.get(session_id)
        if session is not None and session.work is not None:
            session.cancelled.set()
            await session.work
        return schema.CloseSessionResponse()

    async def cancel_session(self, session_id: str, **_: Any) -> None:
        self.find(session_id).cancelled.set()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> Any:
        session = self.find(session_id)
        message_id = new_id()
        session.prompts.append(next((block.text for block in prompt if block.type == "text"), ""))
        await self.upsert(session, message_id, schema.UserMessageUpdate(message_id=message_id, content=prompt))
        if session.work is None:
            session.work = asyncio.create_task(self.work(session))
        return schema.PromptResponse(message_id=message_id)

    async def work(self, session: Session) -> None:
        session.cancelled.clear()
        stop_reason = "end_turn"
        await self.enter(session, schema.RunningSessionStateUpdate())
        while session.prompts:
            try:
                await self.turn(session, session.prompts.pop(0))
            except RuntimeError:
                stop_reason = "error"
            if session.cancelled.is_set():
                session.prompts.clear()
                stop_reason = "cancelled"
        session.work = None
        await self.enter(session, schema.IdleSessionStateUpdate(stop_reason=stop_reason))

    async def turn(self, session: Session, words: str) -> None:
        match words:
            case "stream":
                await self.stream(session)
            case "tool":
                await self.tool(session)
            case "slow":
                await self.slow(session)
            case "boom":
                raise RuntimeError("boom")
            case _:
                await self.say(session, new_id(), words)

    async def say(self, session: Session, message_id: str, *parts: str) -> None:
        """Stream an agent message; in the history it is whole."""
        held = session.history.setdefault(message_id, schema.AgentMessageUpdate(message_id=message_id, content=[]))
        for part in parts:
            held.content = [*held.content, text(part)]
            await self.send(session, schema.AgentMessageChunk(message_id=message_id, content=text(part)))

    async def stream(self, session: Session) -> None:
        thought, greeting, aside, plan = new_id(), new_id(), new_id(), new_id()
        for part in ("Let me ", "think"):
            await self.send(session, schema.AgentThoughtChunk(message_id=thought, content=text(part)))
        session.history[thought] = schema.AgentThoughtUpdate(message_id=thought, content=[text("Let me think")])
        await self.say(session, greeting, "Hello", ", ", "world")
        corrected = schema.AgentMessageUpdate(message_id=greeting, content=[text("Hello, world!")])
        await self.upsert(session, greeting, corrected)
        await self.say(session, aside, "secret")
        await self.upsert(session, aside, schema.AgentMessageUpdate(message_id=aside, content=[]))
        entries = [
            schema.PlanEntry(content="Say hello", priority="high", status="completed"),
            schema.PlanEntry(content="Say goodbye", priority="low", status="pending"),
        ]
        items = {"type": "items", "planId": plan, "entries": entries}
        await self.upsert(session, plan, schema.SessionPlanUpdate(plan=items))

    async def tool(self, session: Session) -> None:
        call, terminal = new_id(), new_id()

        async def update(**fields: Any) -> None:
            await self.upsert(session, call, schema.SessionToolCallUpdate(tool_call_id=call, **fields))

        async def show(**fields: Any) -> None:
            await self.upsert(session, terminal, schema.SessionTerminalUpdate(terminal_id=terminal, **fields))

        await update(title="Run printf", kind="execute", status="pending")
        await self.enter(session, schema.RequiresActionSessionStateUpdate())
        answer = await self.client.request_permission(
            session.id,
            "Run printf?",
            options=[
                schema.PermissionOption(option_id="allow", name="Allow", kind="allow_once"),
                schema.PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
            ],
            subject=schema.ToolCallPermissionSubjectVariant(tool_call=schema.ToolCallUpdate(tool_call_id=call)),
        )
        await self.enter(session, schema.RunningSessionStateUpdate())
        allowed = answer.outcome.outcome == "selected" and answer.outcome.option_id == "allow"
        if allowed:
            data = base64.b64encode(b"hello from tool").decode()
            await show(command="printf 'hello from tool'", cwd=session.cwd)
            await update(status="in_progress", content=[schema.TerminalToolCallContent(terminal_id=terminal)])
            await self.send(session, schema.SessionTerminalOutputChunk(terminal_id=terminal, data=data))
            session.history[terminal].output = schema.TerminalOutput(data=data)
            await show(exit_status=schema.TerminalExitStatus(exit_code=0))
        await update(status="completed" if allowed else "failed")
        await self.say(session, new_id(), "Done." if allowed else "Not done.")

    async def slow(self, session: Session) -> None:
        message_id = new_id()
        for tick in range(1, 501):
            await self.say(session, message_id, f"tick {tick} ")
            try:
                await asyncio.wait_for(session.cancelled.wait(), 0.02)
            except TimeoutError:
                continue
            return


if __name__ == "__main__":
    asyncio.run(run_agent(ScriptedAgent()))
