"""What the bridge remembers for an agent that does not: sessions listed, loaded and resumed from the journal.

It stands at the agent's end and speaks the agent's version. For a session that the agent cannot bring back it opens a
new one behind it and keeps both ids apart: the client goes on using the one that it knows, in this run and in later
ones. The client is told so in the conversation, since the agent itself does not know what was said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Raw, Struct, UnsetType

from twofold.convert import Downgrader, Policy
from twofold.exceptions import TwofoldError
from twofold.fold import LOSS, SETUP, replay
from twofold.journal import Journal
from twofold.jsonrpc import Batch, ErrorResponse, Id, Request, Response, dumps, encode, loads, parse
from twofold.runtime._json import part
from twofold.runtime._side import update_line
from twofold.wire import is_object, v1, v2

__all__ = ["FORGOTTEN", "Memory"]

FORGOTTEN: Final = (
    "*The agent does not remember this session: what is above is the bridge's record of it, and the agent begins anew.*"
)

_UNKNOWN: Final = frozenset({-32002, -32600, -32601, -32602, -32603})
"""Codes with which agents say that they cannot bring a session back."""


class _Opening(Struct):
    """A new session that is opened behind one of the journal."""

    request: Request
    session: str
    history: bool


class Memory:
    """Stands between a client and an agent (:class:`~twofold.bridge._agent_end.Between`)."""

    def __init__(
        self,
        journal: Journal,
        *,
        flush: Callable[[], object],
        say: Callable[[bytes], object],
        tell_agent: Callable[[bytes], object],
        record: Callable[[bytes], object],
        put: Callable[[str, v2.SessionUpdate], object],
        report: Callable[..., object],
    ) -> None:
        self._journal = journal
        self._flush = flush  # waits until what passed is stored
        self._say = say  # tells the client something, unrecorded
        self._tell_agent = tell_agent
        self._record = record
        self._put = put
        self._report = report
        self._version = 2
        self._initializing: set[Id] = set()
        self._loads = True
        self._resumes = True
        self._lists = True
        self._asked: dict[Id, _Opening] = {}  # loads that the agent was asked for
        self._opening: dict[Id, _Opening] = {}  # new sessions asked for in their place
        self._agents: dict[str, str] = {}  # the client's id of a session → the agent's
        self._clients: dict[str, str] = {}  # … and back
        self._count = 0

    # From the client

    def to_agent(self, line: bytes) -> bytes | None:
        """Give what the agent is to hear instead of a line; ``None`` for nothing."""
        if b'"initialize"' not in line and b'"session' not in line and not self._agents:
            return line
        frame = _parsed(line)
        if not isinstance(frame, Request):
            return self._rewritten(line, self._agents)
        params = _params(frame)
        if frame.method == "initialize":
            self._initializing.add(frame.id)
        elif frame.method == "session/list" and not self._lists:
            self._list(frame, params)
            return None
        elif frame.method in ("session/load", "session/resume") and isinstance(params.get("sessionId"), str):
            return self._load(line, frame, params)
        return self._rewritten(line, self._agents)

    def _load(self, line: bytes, request: Request, params: dict[str, Any]) -> bytes | None:
        session = params["sessionId"]
        history = request.method == "session/load" or is_object(params.get("replayFrom"))
        opening = _Opening(request, session, history)
        if not (self._loads if request.method == "session/load" or self._version == 2 else self._resumes):
            self._open(opening)
            return None
        self._asked[request.id] = opening
        if session not in self._agents:
            behind = self._behind(session)
            if behind is not None:
                self._map(session, behind)
        return self._rewritten(line, self._agents)

    def _open(self, opening: _Opening) -> None:
        """Open a new session behind one that the journal has; refuse one that it has not."""
        self._flush()
        if not self._journal.position(opening.session):
            error = {"code": -32002, "message": "Session not found", "data": {"sessionId": opening.session}}
            self._fail(opening.request.id, error)
            return
        params = _params(opening.request)
        setup = {name: params[name] for name in ("cwd", "additionalDirectories", "mcpServers") if name in params}
        self._count += 1
        id_ = f"twofold-open-{self._count}"
        self._opening[id_] = opening
        self._tell_agent(encode(Request(id_, "session/new", Raw(dumps(setup)))))

    # From the agent

    def to_client(self, line: bytes) -> Sequence[bytes]:
        """Give what the client is to hear instead of a line."""
        if line.startswith(b'{"jsonrpc":"2.0","method":"session/update"'):
            return (self._rewritten(line, self._clients),)
        frame = _parsed(line) if self._initializing or self._asked or self._opening or self._clients else None
        if isinstance(frame, Response | ErrorResponse) and frame.id is not None:
            if frame.id in self._opening:
                self._opened(self._opening.pop(frame.id), frame)
                return ()
            if frame.id in self._initializing:
                self._initializing.discard(frame.id)
                return (self._initialized(line, frame),)
            opening = self._asked.pop(frame.id, None)
            if opening is not None and isinstance(frame, ErrorResponse) and self._may_open(opening, frame):
                self._record(line)
                self._open(opening)
                return ()
        return (self._rewritten(line, self._clients),)

    def _may_open(self, opening: _Opening, error: ErrorResponse) -> bool:
        self._flush()
        return error.code in _UNKNOWN and self._journal.position(opening.session) > 0

    def _initialized(self, line: bytes, answer: Response | ErrorResponse) -> bytes:
        """Note what the agent can, and offer what the journal can in its place."""
        result = loads(bytes(answer.result)) if isinstance(answer, Response) else None
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
        session.setdefault("list", {})
        return encode(Response(answer.id or 0, Raw(dumps(result)))) + b"\n"

    def _opened(self, opening: _Opening, answer: Response | ErrorResponse) -> None:
        """Show the journal's record, say whose it is, and answer."""
        result = loads(bytes(answer.result)) if isinstance(answer, Response) else None
        if not is_object(result) or not isinstance(result.get("sessionId"), str):
            error: Any = {"code": -32603, "message": "Internal error"}
            if isinstance(answer, ErrorResponse):
                error = loads(bytes(answer.error))
            self._fail(opening.request.id, error)
            return
        session, behind = opening.session, result.pop("sessionId")
        self._map(session, behind)
        setup = {"sessionUpdate": SETUP, "cwd": _params(opening.request).get("cwd"), "agentSessionId": behind}
        self._put(session, v2.read_update(setup))
        self._report("remembered", session=session, agent=behind)
        for line in self._shown(session, history=opening.history):
            self._say(line)
        self._say(encode(Response(opening.request.id, Raw(dumps(result)))))

    def _shown(self, session: str, *, history: bool) -> Iterator[bytes]:
        updates: list[v2.SessionUpdate] = []
        if history:
            for update in replay(self._journal.load(session).transcript):
                own = isinstance(update, v2.OtherUpdate) and update.kind in (SETUP, LOSS)
                if not own and not isinstance(update, v2.StateUpdate):
                    updates.append(update)
        self._count += 1
        notice = v2.TextContent(text=FORGOTTEN)
        updates.append(v2.AgentMessage(message_id=f"twofold-notice-{self._count}", content=[notice]))
        if self._version == 2:
            for update in (*updates, v2.StateUpdate(state="idle")):
                yield update_line(session, v2.encode(update))
            return
        down = Downgrader(policy=Policy.MARK)
        for update in updates:
            for one in down.update(update).updates:
                params = v1.SessionNotification(session_id=session, update=one)
                yield b'{"jsonrpc":"2.0","method":"session/update","params":%b}' % v1.encode(params)

    def _list(self, request: Request, params: Mapping[str, Any]) -> None:
        """Answer with the sessions of the journal."""
        self._flush()
        listed: list[dict[str, Any]] = []
        for info in self._journal.sessions():
            cwd = next(
                (setup["cwd"] for setup in self._setups(info.session) if isinstance(setup.get("cwd"), str)), None
            )
            if cwd is None or params.get("cwd") not in (None, cwd):
                continue
            one: dict[str, Any] = {"sessionId": info.session, "cwd": cwd}
            title = self._journal.load(info.session).transcript.session_info.title
            if isinstance(title, str):
                one["title"] = title
            one["updatedAt"] = datetime.fromtimestamp(info.updated_at, UTC).isoformat().replace("+00:00", "Z")
            listed.append(one)
        self._say(encode(Response(request.id, Raw(dumps({"sessions": listed})))))

    def _fail(self, id: Id, error: dict[str, Any]) -> None:
        code, message = error.get("code", -32603), error.get("message", "Internal error")
        self._say(encode(ErrorResponse(id, code, message, Raw(dumps(error)))))

    # Ids

    def _map(self, session: str, behind: str) -> None:
        old = self._agents.get(session)
        if old is not None:
            self._clients.pop(old, None)
        self._agents[session] = behind
        self._clients[behind] = session

    def _behind(self, session: str) -> str | None:
        """Give the agent's own id for a session, if it had another one in an earlier run."""
        self._flush()
        behind: str | None = None
        for setup in self._setups(session):
            held = setup.get("agentSessionId")
            behind = held if isinstance(held, str) else behind
        return behind

    def _setups(self, session: str) -> Iterator[Mapping[str, Any]]:
        for record in self._journal.read(session):
            if record.origin == "operator" and SETUP.encode() in record.raw:
                update = v2.decode_update(record.raw)
                if isinstance(update, v2.OtherUpdate) and update.kind == SETUP:
                    yield update.fields

    def _rewritten(self, line: bytes, ids: Mapping[str, str]) -> bytes:
        """Give a line with the other side's id of its session; the very same line when it names no such session."""
        for mine, theirs in ids.items():
            if dumps(mine) not in line:
                continue
            try:
                message = loads(line)
            except TwofoldError:
                return line
            for place in (message.get("params"), message.get("result")) if is_object(message) else ():
                if is_object(place) and place.get("sessionId") == mine:
                    place["sessionId"] = theirs
                    return dumps(message) + b"\n"
        return line


def _parsed(line: bytes) -> Any:
    try:
        frame = parse(line)
    except TwofoldError:
        return None
    return None if isinstance(frame, Batch) else frame


def _params(request: Request) -> dict[str, Any]:
    return {} if isinstance(request.params, UnsetType) else part(loads(bytes(request.params)))


def _member(of: dict[str, Any], name: str) -> dict[str, Any]:
    """Give an object inside an object, made if it is not there."""
    held = of.get(name)
    if not is_object(held):
        held = of[name] = {}
    return held
