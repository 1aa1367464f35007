"""What the bridge remembers for an agent that does not: sessions listed, loaded and resumed from the journal.

It stands at the agent's end and speaks the agent's version. For a session that the agent cannot bring back it opens a
new one behind it and keeps both ids apart: the client goes on using the one that it knows, in this run and in later
ones. The client is told so in the conversation, since the agent itself does not know what was said.

A session that the agent begins under an id that the journal has already, since it counts anew in every run, gets
another id towards the client: two sessions are two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, UnsetType

from twofold.bridge._record import Recorder
from twofold.convert import Downgrader, Policy
from twofold.exceptions import TwofoldError
from twofold.fold import LOSS, SETUP, replay
from twofold.jsonrpc import (
    Batch,
    ErrorResponse,
    Frame,
    Id,
    Notification,
    Request,
    Response,
    cut,
    dumps,
    encode,
    loads,
    parse,
)
from twofold.runtime._json import objects, part
from twofold.runtime._side import update_line
from twofold.runtime._v1_agent import NOTICE
from twofold.wire import is_object, v1, v2

__all__ = ["BEGUN_ANEW", "FORGOTTEN", "Memory"]

FORGOTTEN: Final = (
    "*The agent does not remember this session: what is above is the bridge's record of it, and the agent begins anew.*"
)
BEGUN_ANEW: Final = (
    "*The agent remembers this session only from where it began anew: what is above is the bridge's record of all.*"
)

LISTED: Final = 50
"""Sessions in one page of a list."""

_CANNOT: Final = frozenset({-32002, -32600, -32601, -32602, -32603})
"""Codes with which agents say that they cannot bring a session back."""

_CONVERSATION: Final = (
    v2.ContentChunk,
    v2.MessageUpdate,
    v2.ToolCallUpdate,
    v2.ToolCallContentChunk,
    v2.TerminalUpdate,
    v2.TerminalOutputChunk,
    v2.PlanUpdate,
    v1.ContentChunk,
    v1.ToolCall,
    v1.ToolCallUpdate,
    v1.Plan,
)

_members: Final = msgspec.json.Decoder(dict[str, Raw])


class _Attaching(Struct):
    """A session of the client's that is loaded or resumed."""

    request: Request
    session: str
    history: bool
    partly: bool = False  # the agent knows it only since it began anew: the record is shown in place of its replay


class Memory:
    """Stands between a client and an agent (:class:`~twofold.bridge._agent_end.Between`).

    ``say`` tells the client something unrecorded, ``tell_agent`` the agent; ``report`` hears what happens.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        say: Callable[[bytes], object],
        tell_agent: Callable[[bytes], object],
        report: Callable[..., object],
    ) -> None:
        self._recorder = recorder
        self._journal = recorder.journal
        self._say = say
        self._tell_agent = tell_agent
        self._report = report
        self._version = 2
        self._loads = True
        self._resumes = True
        self._lists = True
        self._initializing: set[Id] = set()
        self._creating: dict[Id, Any] = {}  # session/new → its working directory
        self._held: list[bytes] = []  # what came for sessions that no answer has named yet
        self._attaching: dict[Id, _Attaching] = {}  # loads that the agent was asked for
        self._opening: dict[Id, _Attaching] = {}  # new sessions that were asked for in their place
        self._listing: dict[Id, Request] = {}
        self._known: set[str] = set()  # the agent's ids of the sessions of this run
        self._agents: dict[str, str] = {}  # the client's id of a session → the agent's, where it is another
        self._clients: dict[str, str] = {}  # … and back
        self._count = 0

    # From the client

    def to_agent(self, line: bytes) -> bytes | None | Awaitable[bytes | None]:
        """Give what the agent is to hear instead of a line; ``None`` for nothing."""
        if b'"initialize"' not in line and b'"session' not in line:  # JSON may spell them otherwise, nobody does
            return line
        frame = _parsed(line)
        if not isinstance(frame, Request):
            return self._renamed(line, frame, self._agents)
        match frame.method:
            case "initialize":
                self._initializing.add(frame.id)
            case "session/new":
                self._creating[frame.id] = _params(frame).get("cwd")
            case "session/list" if not self._lists:
                return self._list(frame)
            case "session/list":
                self._listing[frame.id] = frame
            case "session/load" | "session/resume":
                return self._attach(line, frame)
            case _:
                pass
        return self._renamed(line, frame, self._agents)

    async def _attach(self, line: bytes, request: Request) -> bytes | None:
        params = _params(request)
        session = params.get("sessionId")
        if not isinstance(session, str):
            return line
        history = request.method == "session/load" or is_object(params.get("replayFrom"))
        attaching = _Attaching(request, session, history)
        if not (self._loads if request.method == "session/load" or self._version == 2 else self._resumes):
            await self._open(attaching)
            return None
        if session not in self._agents:
            behind = await self._asked(self._behind, session)
            if behind is not None and behind != session:
                self._map(session, behind)
        attaching.partly = history and session in self._agents
        self._attaching[request.id] = attaching
        self._known.add(self._agents.get(session, session))
        return self._renamed(line, request, self._agents)

    async def _open(self, attaching: _Attaching) -> None:
        """Open a new session behind one that the journal has; refuse one that it has not."""
        if not await self._asked(self._journal.position, attaching.session):
            error = {"code": -32002, "message": "Session not found", "data": {"sessionId": attaching.session}}
            self._say(encode(ErrorResponse(attaching.request.id, -32002, "", Raw(dumps(error)))))
            return
        params = _params(attaching.request)
        setup = {name: params[name] for name in ("cwd", "additionalDirectories", "mcpServers") if name in params}
        self._count += 1
        id_ = f"twofold-open-{self._count}"
        self._opening[id_] = attaching
        self._tell_agent(encode(Request(id_, "session/new", Raw(dumps(setup)))))

    async def _list(self, request: Request) -> None:
        """Answer with the sessions of the journal."""
        params = _params(request)
        cursor = params.get("cursor")
        start = int(cursor) if isinstance(cursor, str) and cursor.isascii() and cursor.isdigit() else 0
        result = await self._asked(self._listed, params.get("cwd"), start)
        self._say(encode(Response(request.id, Raw(dumps({"sessions": []} if result is None else result)))))

    # From the agent

    def to_client(self, line: bytes) -> Sequence[bytes] | Awaitable[Sequence[bytes]]:
        """Give what the client is to hear instead of a line."""
        if line.startswith(_UPDATE) and not (self._creating or self._clients or self._attaching):
            return (line,)
        frame = _parsed(line)
        if isinstance(frame, Response | ErrorResponse) and frame.id is not None:
            return self._answered(line, frame, frame.id)
        if isinstance(frame, Notification | Request):
            session = _session_of(frame)
            if self._creating and session is not None and session not in self._known and session not in self._clients:
                self._held.append(line)  # which session it is for is known when the answer names it
                return ()
            if self._repeats(frame, session):
                return ()
        return (self._renamed(line, frame, self._clients),)

    def _answered(
        self, line: bytes, frame: Response | ErrorResponse, id: Id
    ) -> Sequence[bytes] | Awaitable[Sequence[bytes]]:
        if id in self._opening:
            return self._opened(self._opening.pop(id), frame)
        if id in self._initializing:
            self._initializing.discard(id)
            return (self._initialized(line, frame),)
        if id in self._creating:
            return self._created(line, frame, self._creating.pop(id))
        if id in self._listing:
            return self._their_list(line, frame, self._listing.pop(id))
        attaching = self._attaching.pop(id, None)
        if attaching is None:
            return (line,)
        return self._attached(line, frame, attaching)

    def _initialized(self, line: bytes, answer: Response | ErrorResponse) -> bytes:
        """Note what the agent can, and offer what the journal can in its place."""
        result = _result(answer)
        if not is_object(result) or (result.get("protocolVersion") == 2 and is_object(result.get("info"))):
            return line
        self._version = 1
        capabilities = _member(result, "agentCapabilities")
        session = _member(capabilities, "sessionCapabilities")
        self._loads = capabilities.get("loadSession") is True
        self._resumes = is_object(session.get("resume"))
        self._lists = is_object(session.get("list"))
        if self._loads and self._lists:
            return line
        capabilities["loadSession"] = True
        for name in ("list", "resume"):
            if not is_object(session.get(name)):
                session[name] = {}
        return encode(Response(answer.id or 0, Raw(dumps(result)))) + b"\n"

    async def _created(self, line: bytes, answer: Response | ErrorResponse, cwd: Any) -> Sequence[bytes]:
        session = part(_result(answer)).get("sessionId")
        if not isinstance(session, str):
            return await self._release(line)
        own, taken = session not in self._known, session
        self._known.add(session)
        if own and (taken in self._agents or await self._asked(self._journal.position, taken)):
            number = 2
            while f"{session}~{number}" in self._agents or await self._asked(
                self._journal.position, f"{session}~{number}"
            ):
                number += 1
            taken = f"{session}~{number}"
            self._map(taken, session)
        setup: dict[str, Any] = {"cwd": cwd} if isinstance(cwd, str) else {}
        if taken != session:
            setup["agentSessionId"] = session
        if setup:
            self._recorder.put(taken, v2.read_update({"sessionUpdate": SETUP, **setup}))
        return await self._release(self._renamed(line, answer, self._clients))

    async def _release(self, line: bytes) -> Sequence[bytes]:
        """Give what was held back for the sake of an answer, and the answer after it."""
        held: list[bytes] = []
        if not self._creating:
            waiting, self._held = self._held, []
            held = [self._renamed(one, _parsed(one), self._clients) for one in waiting]
        return [*held, line]

    async def _attached(self, line: bytes, answer: Response | ErrorResponse, attaching: _Attaching) -> Sequence[bytes]:
        if isinstance(answer, ErrorResponse):
            if answer.code not in _CANNOT or not await self._asked(self._journal.position, attaching.session):
                return (line,)
            self._recorder.line(line, "a2c")  # a replay that was begun has failed
            await self._open(attaching)
        elif attaching.partly:
            for one in await self._shown(attaching, BEGUN_ANEW):
                self._say(one)
            return await self._unrecorded(line)
        return (self._renamed(line, answer, self._clients),) if isinstance(answer, Response) else ()

    async def _unrecorded(self, line: bytes) -> Sequence[bytes]:
        self._say(line.removesuffix(b"\n"))
        return ()

    async def _opened(self, attaching: _Attaching, answer: Response | ErrorResponse) -> Sequence[bytes]:
        """Show the journal's record, say whose it is, and answer."""
        result, id_ = _result(answer), attaching.request.id
        behind = part(result).get("sessionId")
        if not isinstance(behind, str):
            error = answer if isinstance(answer, ErrorResponse) else None
            raw = error.error if error is not None else Raw(b'{"code":-32603,"message":"Internal error"}')
            self._say(encode(ErrorResponse(id_, -32603, "", raw)))
            return await self._release_held()
        self._known.add(behind)
        self._map(attaching.session, behind)
        setup = {"sessionUpdate": SETUP, "cwd": _params(attaching.request).get("cwd"), "agentSessionId": behind}
        self._recorder.put(attaching.session, v2.read_update(setup))
        self._report("remembered", session=attaching.session, agent=behind)
        for line in await self._shown(attaching, FORGOTTEN):
            self._say(line)
        members = {name: value for name, value in result.items() if name != "sessionId"}
        self._say(encode(Response(id_, Raw(dumps(members)))))
        return await self._release_held()
