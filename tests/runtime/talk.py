"""A program at one end of a pair in memory that speaks line by line, and keeps every line that it heard.

Waiting is for lines, inside the deadline of :func:`run`. :func:`story` tells what was heard in few words.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias, TypeVar

from twofold.exceptions import LineTooLong
from twofold.fold import Revision, Transcript
from twofold.runtime import OUTGOING_LIMIT, StreamTransport, Transport, memory_pair
from twofold.runtime.agent import Agent
from twofold.runtime.client import Client, connect
from twofold.wire import v2

Json: TypeAlias = Any
Id: TypeAlias = int | str
T = TypeVar("T")

DEADLINE: Final = 20.0
CWD: Final = os.path.abspath(os.sep)

V1_AGENT: Final[Json] = {
    "protocolVersion": 1,
    "agentInfo": {"name": "old", "version": "1"},
    "agentCapabilities": {
        "loadSession": True,
        "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "delete": {}},
    },
}
V2_AGENT: Final[Json] = {
    "protocolVersion": 2,
    "info": {"name": "new", "version": "1"},
    "capabilities": {"session": {"delete": {}}},
}


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run it to its end, in time."""

    async def within_the_deadline() -> T:
        async with asyncio.timeout(DEADLINE):
            return await main

    return asyncio.run(within_the_deadline())


class Talk:
    """One end of a conversation in lines."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.lines: list[Json] = []
        self._taken = 0
        self._ids = itertools.count(1)

    # Speaking

    def send(self, **members: Json) -> None:
        self.transport.send(json.dumps({"jsonrpc": "2.0", **members}).encode())

    def request(self, method: str, params: Json = None, *, id: Id | None = None) -> Id:
        """Ask, and do not wait."""
        id = next(self._ids) if id is None else id
        self.send(id=id, method=method, params={} if params is None else params)
        return id

    def notify(self, method: str, params: Json = None) -> None:
        self.send(method=method, params={} if params is None else params)

    def respond(self, id: Id, result: Json) -> None:
        self.send(id=id, result=result)

    def fail(self, id: Id, code: int, message: str = "no", data: Json = None) -> None:
        self.send(id=id, error={"code": code, "message": message, **({} if data is None else {"data": data})})

    def update(self, session_id: str, **update: Json) -> None:
        """Report something, as an agent does."""
        self.notify("session/update", {"sessionId": session_id, "update": update})

    def prompt(self, session_id: str, *blocks: Json, id: Id | None = None, **members: Json) -> Id:
        """Send a prompt: blocks, or words."""
        prompt = [{"type": "text", "text": one} if isinstance(one, str) else one for one in blocks]
        return self.request("session/prompt", {"sessionId": session_id, "prompt": prompt, **members}, id=id)

    # Listening

    async def next(self) -> Json:
        """Wait for the next line."""
        while self._taken == len(self.lines):
            if not await self.read():
                raise AssertionError(f"the other end has ended; it said last {story(self.lines[-10:])}")
        self._taken += 1
        return self.lines[self._taken - 1]

    async def read(self) -> bool:
        """Read what there is into `lines`, or wait for more; false at the end."""
        received = await self.transport.receive()
        for line in received:
            assert isinstance(line, bytes)
            self.lines.append(json.loads(line))
        return bool(received)

    async def until(self, found: Callable[[Json], object]) -> Json:
        """Take lines up to the one that is found."""
        while True:
            line = await self.next()
            if found(line):
                return line

    async def answered(self, id: Id) -> Json:
        """Take lines up to the answer to a request."""
        return await self.until(lambda line: "method" not in line and line.get("id") == id)

    async def result(self, id: Id) -> Json:
        answer = await self.answered(id)
        assert "result" in answer, answer
        return answer["result"]

    async def error(self, id: Id) -> Json:
        answer = await self.answered(id)
        assert "error" in answer, answer
        return answer["error"]

    async def ask(self, method: str, params: Json = None) -> Json:
        """Ask, and wait for the result."""
        return await self.result(self.request(method, params))

    async def refused(self, method: str, params: Json = None) -> Json:
        """Ask, and wait for the error."""
        return await self.error(self.request(method, params))

    async def asked(self, method: str) -> Json:
        """Take lines up to a request, or a notification, of the other end."""
        return await self.until(lambda line: line.get("method") == method)

    async def updated(self, kind: str, **members: Json) -> Json:
        """Take lines up to an update of a kind with these members; gives the update."""

        def found(line: Json) -> bool:
            update = update_of(line)
            return (
                update is not None
                and update["sessionUpdate"] == kind
                and all(update.get(key) == value for key, value in members.items())
            )

        return update_of(await self.until(found))

    async def idle(self, **members: Json) -> Json:
        return await self.updated("state_update", state="idle", **members)

    def heard(self, since: int = 0) -> list[Json]:
        """The lines taken so far."""
        return self.lines[since : self._taken]

    @property
    def position(self) -> int:
        """How many lines were taken."""
        return self._taken

    # What an end of a conversation begins with

    async def initialize(self, version: int = 2, **members: Json) -> Json:
        if version == 1:
            params = {"protocolVersion": 1, "clientInfo": {"name": "t", "version": "0"}, "clientCapabilities": {}}
        else:
            params = {"protocolVersion": version, "info": {"name": "t", "version": "0"}, "capabilities": {}}
        return await self.ask("initialize", {**params, **members})

    async def new_session(self, **params: Json) -> str:
        answer = await self.ask("session/new", {"cwd": CWD, "mcpServers": [], **params})
        return str(answer["sessionId"])


@asynccontextmanager
async def served(
    agent: Agent, version: int = 2, *, limit: int = OUTGOING_LIMIT, **initialize: Json
) -> AsyncIterator[Talk]:
    """Serve an agent in this process, and give the client's end."""
    ours, theirs = memory_pair(limit=limit)
    serving = asyncio.create_task(agent.serve(theirs))
    talk = Talk(ours)
    try:
        await talk.initialize(version, **initialize)
        yield talk
    finally:
        await ours.close()
        await serving


@asynccontextmanager
async def beside(
    initialized: Json, *, limit: int = OUTGOING_LIMIT, **options: Any
) -> AsyncIterator[tuple[Client, Talk]]:
    """Connect a client to an agent that is a :class:`Talk`, and give both."""
    ours, theirs = memory_pair(limit=limit)
    talk = Talk(theirs)

    async def answer() -> None:
        talk.respond((await talk.asked("initialize"))["id"], initialized)

    answering = asyncio.create_task(answer())
    async with connect(ours, **options) as client:
        await answering
        yield client, talk


class _Lines:
    """A writer that keeps whole lines for whoever waits for them."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._rest = b""
        self._closed = False

    def write(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.lines.put_nowait(line)

    def is_closing(self) -> bool:
        return self._closed

    async def drain(self) -> None: ...

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.lines.put_nowait(None)

    async def wait_closed(self) -> None: ...


class Half:
    """A client's end that can say that it says no more, and still listens; `other` is the agent's end."""

    name = "the client"

    def __init__(self) -> None:
        self._said = asyncio.StreamReader()
        self._heard = _Lines()
        self.other = StreamTransport(self._said, self._heard, name="the client")

    async def receive(self) -> list[bytes | LineTooLong]:
        line = await self._heard.lines.get()
        return [] if line is None else [line]

    def send(self, message: bytes) -> None:
        self._said.feed_data(message + b"\n")

    def end(self) -> None:
        """Say no more."""
        self._said.feed_eof()

    async def drain(self) -> None: ...

    async def close(self) -> None: ...


# What was said


def update_of(line: Json) -> Json:
    return line["params"]["update"] if line.get("method") == "session/update" else None


def updates_of(lines: Iterable[Json]) -> list[Json]:
    """The updates among lines."""
    return [update for update in map(update_of, lines) if update is not None]


def folded(lines: Iterable[Json], session_id: str | None = None, revision: Revision | str = Revision.RFD) -> Transcript:
    """What a v2 client holds after these lines. What permission is asked for is applied, too."""
    transcript = Transcript(session_id, revision=revision)
    for line in lines:
        update = update_of(line)
        if update is not None:
            transcript.apply(v2.read_update(update))
        elif line.get("method") == "session/request_permission":
            subject = line["params"].get("subject") or {}
            if subject.get("type") == "tool_call":
                transcript.apply(v2.read_update({**subject["toolCall"], "sessionUpdate": "tool_call_update"}))
    return transcript


def story(lines: Iterable[Json]) -> list[str]:
    """Tell lines in few words, one after another."""
    return [_words(line) for line in lines]


def _words(line: Json) -> str:
    update = update_of(line)
    if update is not None:
        kind = update["sessionUpdate"]
        if kind == "state_update":
            return " ".join([update["state"], *([update["stopReason"]] if "stopReason" in update else [])])
        rest = [update[name] for name in ("status", "title") if isinstance(update.get(name), str)]
        content = update.get("content")
        if kind.startswith(("tool_call", "user_message", "agent_")) and content is not None:
            rest.append("|".join(map(_text, content if isinstance(content, list) else [content])) or "(nothing)")
        return " ".join([kind, *rest])
    if "method" in line:
        return str(line["method"])
    if "error" in line:
        return f"{line['id']}: error {line['error']['code']}"
    return f"{line['id']}: {line['result'].get('stopReason', 'ok')}"


def _text(block: Json) -> str:
    inner = block.get("content", block)
    return str(inner.get("text", inner.get("type")))
