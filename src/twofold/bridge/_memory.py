"""What the bridge remembers for an agent that does not: sessions listed, loaded and resumed from the journal.

It stands at the agent's end and speaks the agent's version. For a session that the agent cannot bring back it opens a
new one behind it and keeps both ids apart: the client goes on using the one that it knows, in this run and in later
ones. The client is told so in the conversation, since the agent itself does not know what was said.

A session that the agent begins under an id that the journal has already, since it counts anew in every run, gets
another id towards the client: two sessions stay two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import Raw, Struct, UnsetType

from twofold.bridge._lines import Own
from twofold.bridge._passing import UPDATE, frame_of, refusal
from twofold.bridge._record import Recorder, setups
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
    dumps,
    encode,
    loads,
)
from twofold.jsonrpc._json import cut
from twofold.runtime._connection import session_not_found
from twofold.runtime._json import objects, part
from twofold.runtime._side import update_line, v1_update_line
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

_REPORTS: Final = frozenset(
    {
        "usage_update",
        "session_info_update",
        "available_commands_update",
        "config_option_update",
        "current_mode_update",
    }
)
"""Kinds of updates in a replay that the journal's record does not stand for."""

T = TypeVar("T")

Answer: TypeAlias = Response | ErrorResponse
Told: TypeAlias = Sequence[bytes]


class _Attaching(Struct):
    """A session of the client's that is loaded or resumed."""

    request: Request
    session: str
    history: bool
    state: bytes | None = None
    """The agent's last state of it, when it remembers a part only: then the record is shown in place of its replay."""

    @property
    def params(self) -> dict[str, Any]:
        return _params(self.request)


class Memory:
    """Stands between a client and an agent (:class:`~twofold.bridge._agent_end.Between`).

    ``say`` tells the client something, ``tell_agent`` the agent; ``report`` hears what happens.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        say: Callable[[Own], object],
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
        self._attaching: dict[Id, _Attaching] = {}  # loads that the agent was asked for
        self._partly: dict[str, _Attaching] = {}  # the agent's id → those that it remembers a part of
        self._opening: dict[Id, _Attaching] = {}  # new sessions that were asked for in the place of loads
        self._listing: dict[Id, Request] = {}
        self._held: list[bytes] = []  # what came for sessions that no answer has named yet
        self._known: set[str] = set()  # the agent's ids of the sessions of this run
        self._agents: dict[str, str] = {}  # the client's id of a session → the agent's, where it is another
        self._clients: dict[str, str] = {}  # … and back
        self._count = 0

    # From the client

    def to_agent(self, line: bytes) -> bytes | Awaitable[bytes | None] | None:
        """Give what the agent is to hear instead of a line; ``None`` for nothing."""
        frame = _parsed(line)
        if not isinstance(frame, Request):
            return _renamed(line, frame, self._agents)
        session = _session_of(frame)
        match frame.method:
            case "initialize":
                self._initializing.add(frame.id)
            case "session/new":
                self._creating[frame.id] = _params(frame).get("cwd")
            case "session/list" if not self._lists:
                return self._list(frame)
            case "session/list":
                self._listing[frame.id] = frame
            case "session/load" | "session/resume" if session is not None:
                return self._attach(line, frame, session)
            case _ if session in self._clients and session not in self._agents:  # the agent's name of another one
                self._say(_not_found(frame.id, session))
                return None
            case _ if session is not None:
                self._known.add(self._agents.get(session, session))
            case _:
                pass
        return _renamed(line, frame, self._agents)

    async def _attach(self, line: bytes, request: Request, session: str) -> bytes | None:
        load = request.method == "session/load"
        attaching = _Attaching(request, session, load or is_object(_params(request).get("replayFrom")))
        if session not in self._agents:
            behind = await self._asked(self._behind, session)
            if behind is not None:
                self._map(session, behind)
        able = self._loads if load or self._version == 2 else self._resumes
        if not able or (session in self._clients and session not in self._agents):
            await self._open(attaching)
            return None
        self._attaching[request.id] = attaching
        behind = self._agents.get(session, session)
        self._known.add(behind)
        asked = _renamed(line, request, self._agents)
        if behind == session or not attaching.history:
            return asked
        self._partly[behind] = attaching
        return Own(asked)  # what it replays is not all that there is: it does not take the record's place

    async def _open(self, attaching: _Attaching) -> None:
        """Open a new session behind one that the journal has; refuse one that it has not."""
        if not await self._has(attaching.session):
            self._say(_not_found(attaching.request.id, attaching.session))
            return
        params = attaching.params
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
        listed = await self._asked(self._listed, params.get("cwd"), start)
        self._say(_own(Response(request.id, Raw(dumps({"sessions": []} if listed is None else listed)))))

    # From the agent

    def to_client(self, line: bytes) -> Told | Awaitable[Told]:
        """Give what the client is to hear instead of a line."""
        naming = self._creating or self._opening
        if line.startswith(UPDATE) and not (naming or self._clients):
            return (line,)
        frame = _parsed(line)
        if isinstance(frame, Response | ErrorResponse) and frame.id is not None:
            return self._answered(line, frame, frame.id)
        session = _session_of(frame)
        if naming and isinstance(frame, Notification) and session is not None and session not in self._known:
            self._held.append(line)  # whose it is is known when the answer names it
            return ()
        attaching = None if session is None else self._partly.get(session)
        if attaching is not None and isinstance(frame, Notification) and frame.method == "session/update":
            kind = part(_params(frame), "update").get("sessionUpdate")
            if kind == "state_update":
                attaching.state = _renamed(line, frame, self._clients)
            if kind not in _REPORTS:
                return ()
        return (_renamed(line, frame, self._clients),)

    def _answered(self, line: bytes, answer: Answer, id: Id) -> Told | Awaitable[Told]:
        if id in self._initializing:
            self._initializing.discard(id)
            return (self._initialized(line, answer),)
        if id in self._creating:
            return self._created(line, answer, self._creating.pop(id))
        if id in self._opening:
            return self._opened(answer, self._opening.pop(id))
        if id in self._attaching:
            return self._attached(line, answer, self._attaching.pop(id))
        if id in self._listing:
            return self._their_list(line, answer, self._listing.pop(id))
        return (line,)

    def _initialized(self, line: bytes, answer: Answer) -> bytes:
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
        for name in ("list",) if self._loads else ("list", "resume"):
            if not is_object(session.get(name)):
                session[name] = {}
        return encode(Response(answer.id or 0, Raw(dumps(result)))) + b"\n"

    async def _created(self, line: bytes, answer: Answer, cwd: Any) -> Told:
        behind = part(_result(answer)).get("sessionId")
        if isinstance(behind, str):
            session = behind if behind in self._known else await self._free(behind)
            self._known.add(behind)
            self._map(session, behind)
            self._set_up(session, behind, cwd)
        return [*self._released(), _renamed(line, answer, self._clients)]

    async def _free(self, session: str) -> str:
        """Give an id that stands for no other session, towards the client and in the journal."""
        free, number = session, 1
        while free in self._agents or await self._has(free):
            number += 1
            free = f"{session}~{number}"
        return free

    async def _opened(self, answer: Answer, attaching: _Attaching) -> Told:
        """Show the journal's record, say whose it is, and answer."""
        result, id_, session = part(_result(answer)), attaching.request.id, attaching.session
        behind = result.pop("sessionId", None)
        if not isinstance(behind, str):
            error = (
                answer.error if isinstance(answer, ErrorResponse) else Raw(b'{"code":-32603,"message":"no session"}')
            )
            return [*self._released(), _own(ErrorResponse(id_, 0, "", error))]
        self._known.add(behind)
        self._map(session, behind)
        self._set_up(session, behind, attaching.params.get("cwd"), anew=True)
        self._report("remembered", session=session, agent=behind)
        shown = await self._asked(self._shown, attaching, FORGOTTEN, behind) or []
        return [*shown, *self._released(), _own(Response(id_, Raw(dumps(result))))]

    async def _attached(self, line: bytes, answer: Answer, attaching: _Attaching) -> Told:
        session = attaching.session
        behind = self._agents.get(session, session)
        partly = self._partly.pop(behind, None) is not None
        if isinstance(answer, ErrorResponse):
            if answer.code not in _CANNOT or not await self._has(session):
                return (Own(line) if partly else line,)
            if not partly:
                self._recorder.line(line, "a2c")  # the replay that was asked for has failed
            await self._open(attaching)
            return ()
        if not partly:
            return (_renamed(line, answer, self._clients),)
        shown = await self._asked(self._shown, attaching, BEGUN_ANEW, behind) or []
        return [*shown, Own(_renamed(line, answer, self._clients))]

    async def _their_list(self, line: bytes, answer: Answer, request: Request) -> Told:
        """Give the agent's list under the client's ids; the journal's when the agent turns out to have none."""
        if isinstance(answer, ErrorResponse) and answer.code == -32601:
            self._lists = False
            await self._list(request)
            return ()
        result = _result(answer)
        if self._clients and is_object(result):
            for one in objects(result.get("sessions")):
                if one.get("sessionId") in self._clients:
                    one["sessionId"] = self._clients[one["sessionId"]]
            return (_own(Response(request.id, Raw(dumps(result)))),)
        return (line,)

    def _released(self) -> Told:
        """Give what was held back until an answer names its session."""
        if self._creating or self._opening:
            return ()
        held, self._held = self._held, []
        return [_renamed(line, _parsed(line), self._clients) for line in held]

    # The journal: asked in another thread

    async def _asked(self, question: Callable[..., T], *about: Any) -> T | None:
        """Ask the journal once all that passed is stored; ``None`` when it cannot answer."""

        def ask() -> T:
            self._recorder.flush()
            return question(*about)

        try:
            return await asyncio.to_thread(ask)
        except TwofoldError as error:
            self._report("journal", words=f"the journal cannot be read: {error}")
            return None

    async def _has(self, session: str) -> bool:
        """Whether the journal has a session."""
        return bool(await self._asked(self._journal.position, session))

    def _shown(self, attaching: _Attaching, words: str, behind: str) -> list[bytes]:
        """Give the lines that show the record of a session, and say whose it is."""
        session = attaching.session
        updates: list[v2.SessionUpdate] = []
        if attaching.history:
            for update in replay(self._journal.load(session).transcript):
                own = isinstance(update, v2.OtherUpdate) and update.kind in (SETUP, LOSS)
                if not own and not isinstance(update, v2.StateUpdate):
                    updates.append(update)
        notice = [v2.TextContent(text=words)]
        updates.append(v2.AgentMessage(message_id=f"twofold-notice-{behind}", content=notice, meta={NOTICE: True}))
        if self._version == 2:
            lines = [update_line(session, v2.encode(update)) for update in updates]
            state = attaching.state or update_line(session, v2.encode(v2.StateUpdate(state="idle"))) + b"\n"
            return [*(Own(line + b"\n") for line in lines), Own(state)]
        down = Downgrader(policy=Policy.MARK)
        notifications = [
            v1.SessionNotification(session_id=session, update=one)
            for update in updates
            for one in down.update(update).updates
        ]
        return [Own(v1_update_line(one) + b"\n") for one in notifications]

    def _listed(self, cwd: Any, start: int) -> dict[str, Any]:
        """Give one page of the list of sessions."""
        listed: list[dict[str, Any]] = []
        infos = self._journal.sessions()
        for index in range(start, len(infos)):
            if len(listed) == LISTED:
                return {"sessions": listed, "nextCursor": str(index)}
            session = infos[index].session
            found = (setup["cwd"] for setup in setups(self._journal, session) if isinstance(setup.get("cwd"), str))
            where = next(found, None)
            if where is None or cwd not in (None, where):
                continue
            one: dict[str, Any] = {"sessionId": session, "cwd": where}
            title = self._journal.load(session).transcript.session_info.title
            if isinstance(title, str):
                one["title"] = title
            updated = datetime.fromtimestamp(infos[index].updated_at, UTC)
            one["updatedAt"] = updated.isoformat().replace("+00:00", "Z")
            listed.append(one)
        return {"sessions": listed}

    def _behind(self, session: str) -> str | None:
        """Give the agent's own id for a session, if it had another one in an earlier run."""
        behind: str | None = None
        for setup in setups(self._journal, session):
            held = setup.get("agentSessionId")
            behind = held if isinstance(held, str) else behind
        return behind

    def _set_up(self, session: str, behind: str, cwd: Any, *, anew: bool = False) -> None:
        setup: dict[str, Any] = {"cwd": cwd} if isinstance(cwd, str) else {}
        if anew or behind != session:
            setup["agentSessionId"] = behind
        if setup:
            self._recorder.put(session, v2.read_update({"sessionUpdate": SETUP, **setup}))

    def _map(self, session: str, behind: str) -> None:
        old = self._agents.pop(session, None)
        if old is not None:
            self._clients.pop(old, None)
        if session != behind:
            self._agents[session] = behind
            self._clients[behind] = session


# Lines


def _parsed(line: bytes) -> Frame | None:
    frame = frame_of(line)
    return None if isinstance(frame, Batch) else frame


def _own(frame: Frame) -> Own:
    return Own(encode(frame) + b"\n")


def _not_found(id: Id, session: str) -> Own:
    return Own(refusal(id, session_not_found(session)) + b"\n")


def _params(call: Request | Notification) -> dict[str, Any]:
    return part(_value(call.params))


def _result(answer: Answer) -> Any:
    return _value(answer.result) if isinstance(answer, Response) else None


def _value(raw: Raw | UnsetType) -> Any:
    try:
        return None if isinstance(raw, UnsetType) else loads(bytes(raw))
    except TwofoldError:  # a number that does not fit: for whom it is will say so
        return None


def _session_of(frame: Frame | None) -> str | None:
    session = _params(frame).get("sessionId") if isinstance(frame, Request | Notification) else None
    return session if isinstance(session, str) else None


def _renamed(line: bytes, frame: Frame | None, ids: Mapping[str, str]) -> bytes:
    """Give a line with the other side's id of its session; the very same line when it names no such session.

    All else in it stays as it was written.
    """
    if not ids or frame is None or isinstance(frame, ErrorResponse):
        return line
    held = frame.result if isinstance(frame, Response) else frame.params
    session = part(_value(held)).get("sessionId")
    members = cut(bytes(held)) if session in ids and not isinstance(held, UnsetType) else None
    if not isinstance(session, str) or not isinstance(members, dict):
        return line
    members["sessionId"] = dumps(ids[session])
    renamed = Raw(b"{" + b",".join(dumps(name) + b":" + value for name, value in members.items()) + b"}")
    match frame:
        case Response(id=id):
            return encode(Response(id, renamed)) + b"\n"
        case Request(id=id, method=method):
            return encode(Request(id, method, renamed)) + b"\n"
        case Notification(method=method):
            return encode(Notification(method, renamed)) + b"\n"


def _member(of: dict[str, Any], name: str) -> dict[str, Any]:
    """Give an object inside an object, made if it is not there."""
    held = of.get(name)
    if not is_object(held):
        held = of[name] = {}
    return held
