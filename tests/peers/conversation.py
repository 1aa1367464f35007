"""One conversation with a real agent, over our client, and what was seen of it.

It takes two processes of the agent with one home: the first is prompted four times (it answers, writes a file once it
may, is cancelled, and answers again), the second resumes the session, replays it and answers once more.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.peers.agents import Agent, Place
from tests.peers.fake_llm import NOTES, ModelServer
from twofold.fold import Change, Transcript
from twofold.runtime.client import Client, ClientSession, PermissionRequest, connect
from twofold.wire import v2

SECONDS: Final = 30.0
"""For one step, except the start: claude's first answer takes less than one, on an idle machine."""

START_SECONDS: Final = 60.0
CANCEL_AFTER: Final = 5
"""Chunks of the slow answer."""


class Said(NamedTuple):
    """A message as the folded state holds it."""

    type: str
    message_id: str
    text: str


@dataclass
class Turn:
    """What one prompt led to."""

    prompt: str
    steps: list[str] = field(default_factory=list)
    """Types of messages, `tool_call`, and states, in the order in which they changed; repeats once."""
    drawn: dict[tuple[str, str], str] = field(default_factory=dict)
    """The texts of messages as somebody has them who only draws the changes."""
    messages: list[Said] = field(default_factory=list)
    """What the state holds of the turn at its end."""
    tool_calls: list[str | None] = field(default_factory=list)
    """The statuses of all tool calls at its end."""
    stop_reason: str | None = None

    @property
    def states(self) -> list[str]:
        """The states of the session, in order."""
        return [step for step in self.steps if step in ("running", "requires_action", "idle")]

    def text(self, type: str = "agent_message") -> str:
        """The texts of all its messages of one type."""
        return "".join(message.text for message in self.messages if message.type == type)


@dataclass
class Asked:
    """A permission request as the handler saw it."""

    kinds: list[str]
    subject: Any
    state: str | None
    file_was_there: bool


@dataclass
class Conversation:
    """What was seen."""

    agent: Agent
    asked_for: int
    place: Place
    version: int = 0
    info: v2.Implementation | None = None
    session_id: str = ""
    turns: dict[str, Turn] = field(default_factory=dict)
    permissions: list[Asked] = field(default_factory=list)
    listed: list[str] | None = None
    resumed: list[Said] = field(default_factory=list)
    replayed: list[Said] = field(default_factory=list)
    state_after_replay: str | None = None
    faults: list[str] = field(default_factory=list)
    problems: list[BaseException] = field(default_factory=list)


def prompt_of(script: str) -> str:
    """Return the prompt that makes the model play a script."""
    return f"Please go on. scenario={script}"


async def converse(agent: Agent, version: int, folder: Path) -> Conversation:
    """Have the conversation, in folders under this one."""
    workspace = folder / "workspace"
    workspace.mkdir()
    (workspace / "notes.txt").write_text(NOTES)
    with ModelServer(workspace) as server:
        seen = Conversation(agent, version, Place(folder / "home", workspace, server.port))
        began = time.time()
        # fast-agent is asked for 2 although it has 1 only: it claims to have 2, and the client has to find that out.
        async with _connected(seen, {1, 2} if agent.name == "fast-agent-passthrough" else {version}) as client:
            await _begin(seen, client)
        if agent.replays_late:
            await asyncio.sleep(max(0.0, 60 - began % 60 - (time.time() - began)) + 1)
        async with _connected(seen, {version}) as client:
            await _resume(seen, client)
        seen.problems = server.problems
    return seen


async def _begin(seen: Conversation, client: Client) -> None:
    seen.version = client.version
    seen.info = client.info
    async with asyncio.timeout(SECONDS):
        session = await client.new_session(cwd=seen.place.workspace)
    seen.session_id = session.session_id
    seen.turns["plain"] = await _turn(session, "plain")
    seen.turns["write"] = await _turn(session, "write")
    if seen.agent.scripted:
        seen.turns["slow"] = await _turn(session, "slow", cancel_after=CANCEL_AFTER)
    seen.turns["short"] = await _turn(session, "short")
    async with asyncio.timeout(SECONDS):
        if seen.agent.lists:
            seen.listed = [one.session_id for one in await client.list_sessions(cwd=seen.place.workspace)]
        await session.close()


async def _resume(seen: Conversation, client: Client) -> None:
    workspace = seen.place.workspace
    async with asyncio.timeout(SECONDS):
        if not seen.agent.replays_late:
            seen.resumed = _said((await client.resume(seen.session_id, cwd=workspace)).state)
        session = await client.resume(seen.session_id, cwd=workspace, replay=True)
        if seen.agent.replays_late:
            last = seen.turns["short"].messages[-1].text
            await _until(session, lambda state: state.messages[-1].text == last)
    seen.replayed = _said(session.state)
    seen.state_after_replay = None if session.state.state is None else session.state.state.state
    seen.turns["again"] = await _turn(session, "short")


@asynccontextmanager
async def _connected(seen: Conversation, versions: Collection[int]) -> AsyncGenerator[Client, None]:
    start = seen.agent.start(seen.place)
    log = seen.place.home / "stderr"

    async def allow(request: PermissionRequest) -> v2.PermissionOption | None:
        state = request.session.state.state
        written = (seen.place.workspace / "out.md").exists()
        kinds = [option.kind for option in request.options]
        seen.permissions.append(Asked(kinds, request.subject, None if state is None else state.state, written))
        return request.option("allow_once")

    with log.open("ab") as stderr:
        try:
            async with connect(
                start.command,
                env=start.env,
                cwd=seen.place.workspace,
                stderr=stderr,
                versions=versions,
                on_permission=allow,
                on_fault=lambda fault: seen.faults.append(f"{type(fault).__name__}: {fault}"),
                on_loss=lambda _, loss: seen.faults.append(f"lost: {loss}"),
                start_timeout=START_SECONDS,
            ) as client:
                yield client
        except Exception as error:
            error.add_note(f"{seen.agent.name} wrote on standard error: {log.read_text(errors='replace')[-2000:]}")
            raise


async def _turn(session: ClientSession, script: str, cancel_after: int = 0) -> Turn:
    seen = Turn(prompt_of(script))
    before = set(_said(session.state))
    chunks = 0
    async with asyncio.timeout(SECONDS):
        turn = session.prompt(seen.prompt)
        async for change in turn:
            step = _step(change)
            if step is not None and seen.steps[-1:] != [step]:
                seen.steps.append(step)
            if change.entity == "message":
                key = (change.target.type, change.target.message_id)
                seen.drawn[key] = _drawn(seen.drawn.get(key, ""), change)
                chunks += change.target.type == "agent_message"
                if chunks == cancel_after != 0:
                    await session.cancel()
    seen.stop_reason = turn.stop_reason
    seen.messages = [message for message in _said(session.state) if message not in before]
    seen.tool_calls = [call.status for call in session.state.tool_calls]
    return seen


def _step(change: Change) -> str | None:
    match change.entity:
        case "message":
            return str(change.target.type)
        case "tool_call":
            return "tool_call"
        case "state":
            return str(change.target.state)
        case _:
            return None


def _drawn(text: str, change: Change) -> str:
    """Draw a change of a message: what was appended goes behind, else the text is read anew."""
    if change.content == "appended" and isinstance(change.block, v2.TextContent):
        return text + change.block.text
    return str(change.target.text)


def _said(state: Transcript) -> list[Said]:
    return [Said(message.type, message.message_id, message.text) for message in state.messages]


async def _until(session: ClientSession, done: Callable[[Transcript], bool]) -> None:
    watch = session.watch()
    while not done(session.state):
        await anext(watch)
    watch.close()
