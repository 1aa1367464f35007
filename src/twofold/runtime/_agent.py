"""An agent written against v2, served to whoever connects: v2 clients as they are, v1 clients through the converter."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
import traceback
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeAlias
from weakref import WeakSet

from msgspec import UNSET, Raw

from twofold.convert import Loss
from twofold.exceptions import ConnectionLost, Malformed, RequestError, TwofoldError
from twofold.fold import SETUP, Transcript
from twofold.journal import AsyncJournal, Journal, open_journal
from twofold.jsonrpc import CANCELLED, dumps, loads
from twofold.runtime._connection import Connection, log_failure, method_not_found, session_not_found
from twofold.runtime._handles import new_id
from twofold.runtime._json import part
from twofold.runtime._process import own_stdio
from twofold.runtime._session import Prompt, Session
from twofold.runtime._side import Call, Inbound, Remote, Side
from twofold.runtime._transport import Transport
from twofold.runtime._v1_client import V1Client
from twofold.runtime._versions import choose, downgrade_initialized, supports, upgrade_initialize
from twofold.wire import Kept, decode, same, v2

__all__ = ["Agent"]

log: Final = logging.getLogger("twofold.runtime")

PromptHandler: TypeAlias = Callable[[Session, Prompt], Awaitable[str | None]]

_LATER: Final = object()
"""What a request is given for an answer that comes by itself."""

_LAST_WORDS: Final = 1.0
"""Seconds in which a client that has ended its input may hear of what was cancelled then."""

_LISTED: Final = 50
"""Sessions in one answer to ``session/list``."""


class Agent:
    """An agent. Subclass it and write :meth:`prompt`, or give the function as ``prompt=``; the rest has defaults.

    Sessions are kept in a journal: in memory, or in ``journal`` (a path, an engine URL, or a
    :class:`~twofold.journal.Journal`), from which they are listed, resumed and replayed.

    :meth:`run` serves the process's standard input and output; :meth:`serve` any transport. One agent may serve several
    connections at once; a session resumed on several is shown on all of them.
    """

    name: str = "agent"
    """What the agent is called, for programs."""
    version: str = "0"
    """Its own version."""
    title: str | None = None
    """What it is called, for people."""
    prompt_content: Collection[str] = ()
    """Kinds of content that prompts may have beside text and links: ``image``, ``audio``, ``embeddedContext``."""
    mcp_transports: Collection[str] = ()
    """Transports of MCP servers that the agent connects to: ``stdio``, ``http``."""
    auth_methods: Sequence[dict[str, Any]] = ()
    """Authentication methods as they go on the wire: ``{"type": "agent", "methodId": …, "name": …}``."""
    drain_timeout: float = 3.0
    """Seconds that what was accepted has to finish after the client ended its input; then turns are cancelled."""

    def __init__(
        self,
        *,
        name: str | None = None,
        version: str | None = None,
        title: str | None = None,
        prompt: PromptHandler | None = None,
        journal: str | os.PathLike[str] | Journal = "memory:",
        versions: Collection[int] = (1, 2),
    ) -> None:
        if not versions or not set(versions) <= {1, 2}:
            raise ValueError("versions are 1, 2, or both")
        self.name = self.name if name is None else name
        self.version = self.version if version is None else version
        self.title = self.title if title is None else title
        self.versions = tuple(sorted(versions))
        """The protocol versions that it offers."""
        self._prompt = prompt
        self._journal_name = journal
        self._journal: AsyncJournal | None = None
        self._sessions: dict[str, Session] = {}
        self._requests: dict[str, asyncio.Future[Any]] = {}  # the last request of each session that is under way
        self._listed: dict[str, tuple[int, v2.SessionInfo]] = {}
        self._serving = 0
        self._door = asyncio.Lock()  # held while the journal is opened or closed

    # For authors

    async def prompt(self, session: Session, prompt: Prompt) -> str | None:
        """Do what the user asks. Return the stop reason, or nothing for ``end_turn``.

        It is cancelled (:class:`asyncio.CancelledError`) when the user cancels; what it still sends then goes out
        before the final ``idle``. A :class:`RequestError` ends the turn with ``error``, its code and its message; any
        other exception with fixed words, see :meth:`failed`.
        """
        if self._prompt is None:
            raise NotImplementedError("an agent needs a prompt handler: write the method, or give prompt=")
        return await self._prompt(session, prompt)

    async def start(self) -> None:
        """Prepare what all sessions share, such as an HTTP client. Called before the first connection is served."""

    async def stop(self) -> None:
        """Let go of what :meth:`start` prepared. Called when the last connection has ended and sessions are closed."""

    async def new_session(self, session: Session) -> None:
        """Prepare a new session: look at ``session.cwd`` and ``session.mcp_servers``, offer commands and options."""

    async def resume_session(self, session: Session) -> None:
        """Prepare a session that is resumed; ``session.state`` is what it was."""

    async def close_session(self, session: Session) -> None:
        """Let go of a session. Its turn has ended; it stays in the journal. Called for all that are open at the end."""

    async def list_sessions(self, request: v2.ListSessionsRequest) -> v2.ListSessionsResponse:
        """List the sessions of the journal, the one heard of last first."""
        journal = self._opened()
        infos = await journal.sessions()
        after = request.cursor if isinstance(request.cursor, str) else None
        if after is not None:
            names = [info.session for info in infos]
            if after not in names:
                raise Malformed("$.params.cursor", expected="a cursor that this agent gave", found="another one")
            infos = infos[names.index(after) + 1 :]
        listed: list[v2.SessionInfo] = []
        for index, info in enumerate(infos):
            one = await self._info(info.session, info.position, info.updated_at)
            if one is not None and request.cwd in (UNSET, None, one.cwd):
                listed.append(one)
                if len(listed) == _LISTED and index + 1 < len(infos):
                    return v2.ListSessionsResponse(sessions=listed, next_cursor=info.session)
        return v2.ListSessionsResponse(sessions=listed)

    async def delete_session(self, session_id: str) -> None:
        """Erase a session from the journal. Deleting one that is not there succeeds."""
        await asyncio.to_thread(self._opened().journal.delete, session_id)
        self._listed.pop(session_id, None)

    async def set_config_option(self, session: Session, config_id: str, value: str | bool) -> None:
        """Hear that the user chose ``value``, one that was offered. Raise :class:`Malformed` to refuse it."""

    async def login(self, method_id: str) -> None:
        """Authenticate by one of :attr:`auth_methods`. Raise :class:`RequestError` with -32000 to refuse."""

    async def logout(self) -> None:
        """Forget the authentication."""

    async def extension(self, method: str, params: Any) -> Any:  # noqa: ARG002 - for those who override it
        """Answer a request of an extension (its name begins with ``_``). ``params`` are JSON values."""
        raise method_not_found(method)

    async def extension_notification(self, method: str, params: Any) -> None:
        """Hear a notification of an extension. Unknown ones are ignored."""

    def failed(self, session: Session, error: BaseException) -> None:
        """Hear that a turn ended with an exception. Logs where it came from, and not its text: that may quote anything.

        Override it to log more.
        """
        frames = "".join(traceback.format_tb(error.__traceback__))
        log.error("session %s: the turn failed with %s\n%s", session.session_id, type(error).__qualname__, frames)

    def fault(self, error: TwofoldError) -> None:
        """Hear of a line that was wrong. It was answered where an answer was due."""
        log.warning("%s: %s", type(error).__name__, error)

    def lost(self, session_id: str, loss: Loss) -> None:
        """Hear what a v1 client could not be told."""
        log.info("session %s: %s", session_id, loss)

    # Serving

    def run(self) -> None:
        """Serve standard input and output until the client ends, or the process is asked to (SIGTERM, SIGINT).

        The program's own output goes to standard error.
        """

        async def serve() -> None:
            task = asyncio.create_task(self.serve())
            with suppress(NotImplementedError):  # on a system without
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
            with suppress(asyncio.CancelledError):
                await task

        with suppress(KeyboardInterrupt):
            asyncio.run(serve())

    async def serve(self, transport: Transport | None = None) -> None:
        """Serve one client until it ends: over ``transport``, or over standard input and output."""
        if transport is None:
            transport = await own_stdio()
        async with self:
            await AgentConnection(self, transport).serve()

    async def __aenter__(self) -> Agent:
        """Open the journal. Serving does it by itself; several connections share it inside one ``async with``."""
        async with self._door:
            if self._journal is None:
                name = self._journal_name
                journal = name if isinstance(name, Journal) else await asyncio.to_thread(open_journal, name)
                self._journal = AsyncJournal(journal)
                try:
                    await self.start()
                except BaseException:
                    await self._let_go()
                    raise
            self._serving += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._serving -= 1
        async with self._door:
            if self._serving or self._journal is None:
                return
            for session_id in list(self._sessions):
                try:
                    await self._close(session_id)
                except Exception as error:
                    log_failure("closing a session", error)
            try:
                await self.stop()
            finally:
                await self._let_go()

    async def _let_go(self) -> None:
        journal, self._journal = self._journal, None
        self._sessions.clear()
        if journal is not None:
            await journal.close()

    # Sessions

    def capabilities(self) -> dict[str, Any]:
        """Give the capabilities of the answer to ``initialize``, in v2's words."""
        session: dict[str, Any] = {
            "prompt": {name: {} for name in self.prompt_content},
            "delete": {},
            "additionalDirectories": {},
        }
        if self.mcp_transports:
            session["mcp"] = {name: {} for name in self.mcp_transports}
        return {"session": session}

    def _opened(self) -> AsyncJournal:
        if self._journal is None:
            raise TwofoldError("the agent is not being served")
        return self._journal

    async def _info(self, session_id: str, position: int, updated_at: float) -> v2.SessionInfo | None:
        """Give a session as it is listed; ``None`` for one without a beginning that we know, not one of an agent's."""
        held = self._listed.get(session_id)
        if held is not None and held[0] == position:
            return held[1]
        live = self._sessions.get(session_id)
        state = live.state if live is not None else (await self._opened().load(session_id)).transcript
        setup = _setup(state)
        if setup is None:
            return None
        info = v2.SessionInfo(
            session_id=session_id,
            cwd=setup["cwd"],
            additional_directories=setup.get("additionalDirectories", UNSET),
            title=state.session_info.title,
            updated_at=datetime.fromtimestamp(updated_at, UTC).isoformat().replace("+00:00", "Z"),
        )
        self._listed[session_id] = (position, info)
        return info

    async def _new(self, request: v2.NewSessionRequest) -> Session:
        session = Session(self, new_id(), request.cwd)
        session._writer = await self._opened().writer(session.session_id)
        _set_up(session, request)
        session._emit(_setup_record(request))
        try:
            await self.new_session(session)
            await session._flushed()
            session._check_journal()
        except BaseException:
            await session._flushed()
            with suppress(TwofoldError):
                await self.delete_session(session.session_id)
            raise
        self._sessions[session.session_id] = session
        return session

    async def _resume(self, request: v2.ResumeSessionRequest) -> Session:
        """Give the session that lives, or bring it back from the journal."""
        session = self._sessions.get(request.session_id)
        if session is None:
            journal = self._opened()
            loaded = await journal.load(request.session_id)
            if not loaded.position or _setup(loaded.transcript) is None:
                raise session_not_found(request.session_id)
            session = Session(self, request.session_id, request.cwd)
            session.state = loaded.transcript
            session._writer = await journal.writer(request.session_id)
            if session.state.state is not None and session.state.state.state != "idle":
                session._emit(v2.StateUpdate(state="idle"))  # its process ended in the middle of a turn
        _set_up(session, request)
        setup = _setup_record(request)
        if not same(setup.fields, _setup(session.state)):
            session._emit(setup, record_only=True)
        await session._flushed()
        await self.resume_session(session)
        self._sessions[request.session_id] = session
        return session

    async def _close(self, session_id: str, *, delete: bool = False) -> None:
        """Close a session if it lives, and then delete it if it is to be."""
        session = self._sessions.get(session_id)
        if session is not None:
            session._closing = True
            try:
                await session._stop()
                await self.close_session(session)
                await session._flushed()
            except BaseException:
                session._closing = False
                raise
            session._closed = True
            session._clients.clear()
            del self._sessions[session_id]
        if delete:
            await self.delete_session(session_id)

    def _find(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None or session._closing:
            raise session_not_found(session_id)
        return session

    def _turn_failed(self, session: Session, error: BaseException) -> None:
        try:
            self.failed(session, error)
        except Exception as problem:
            log_failure("telling of a failed turn", problem)


class AgentConnection:
    """One client of an agent: the agent's :class:`Side`, as the client sees it."""

    def __init__(self, agent: Agent, transport: Transport) -> None:
        self._agent = agent
        self._connection = Connection(transport, Inbound(self, ended=self._ended, fault=agent.fault), lenient=False)
        self.version: int | None = None
        self._client: Side = Remote(self._connection)
        self._attached: WeakSet[Session] = WeakSet()  # those that live are the agent's
        self._tasks: set[asyncio.Future[Any]] = set()
        self._late: list[tuple[str, Call]] = []  # prompts behind other requests of their session
        self._methods: dict[str, Callable[[Call], Coroutine[Any, Any, Any]]] = {
            "session/new": self._new,
            "session/resume": self._resume,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/set_config_option": self._set_config_option,
        }
        if agent.auth_methods:
            self._methods |= {"auth/login": self._login, "auth/logout": self._logout}

    async def serve(self) -> None:
        """Serve until the client ends; then finish what was accepted, and let go."""
        reading = asyncio.create_task(self._connection.run())
        try:
            await asyncio.wait([reading])
            await self._drain()
        finally:
            reading.cancel()
            for task in self._tasks:
                task.cancel()
            for session in self._attached:
                session._detach(self._client)
            await self._connection.close()
        if not reading.cancelled():
            reading.result()

    async def _drain(self) -> None:
        """Answer what was accepted (wire facts, "Connection"). What takes too long is cancelled, and says so.

        It says so to a client that reads: one that does not is not waited for any longer.
        """
        until = time.monotonic() + self._agent.drain_timeout
        alone = [session for session in self._attached if session._clients == [self._client]]
        rest = [asyncio.ensure_future(session._at_rest()) for session in alone]
        answered = asyncio.ensure_future(self._connection.answered())
        await asyncio.wait([*self._tasks, *rest, answered], timeout=max(0.0, until - time.monotonic()))
        for one in (*self._tasks, *rest, answered):
            one.cancel()
        with suppress(ConnectionLost, TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                for session in alone:
                    if session._clients == [self._client]:  # nobody else has taken it up meanwhile
                        await session._stop()
                if self._tasks:
                    await asyncio.wait(self._tasks)
                await self._connection.drain()

    # The side that the client sees

    def request(self, call: Call) -> None:
        """Take a request."""
        if call.method == "initialize":
            self._initialize(call)
        elif self.version is None:
            raise RequestError(-32600, "Invalid request", {"reason": "initialize comes first"})
        elif call.method == "session/prompt":
            request = decode(v2.PromptRequest, call.params)
            if request.session_id in self._agent._requests:  # it may be about to open the session, or to close it
                self._start(call, partial(self._prompt_later, call, request), request.session_id)
                self._late = [(id, late) for id, late in self._late if not late.settled]
                self._late.append((request.session_id, call))
            else:
                self._prompt(call, request)
        elif call.method in self._methods:
            session_id = part(call.json()).get("sessionId")
            method = partial(self._methods[call.method], call)
            self._start(call, method, session_id if isinstance(session_id, str) else None)
        elif call.method.startswith("_"):
            self._start(call, partial(self._agent.extension, call.method, call.json()))
        else:
            raise method_not_found(call.method)

    def notify(self, method: str, params: Any) -> None:
        """Take a notification. One that is not known, or comes too early, is ignored."""
        if self.version is None:
            return
        if method == "session/cancel":
            request = decode(v2.SessionRequest, params if isinstance(params, Raw) else Raw(dumps(params)))
            session = self._agent._sessions.get(request.session_id)
            if session is not None:
                session._cancel()
            for session_id, late in self._late:
                if session_id == request.session_id:
                    late.fail(RequestError(CANCELLED, "Request cancelled"))
        elif method.startswith("_"):
            values = loads(bytes(params)) if isinstance(params, Raw) else params
            self._keep(asyncio.create_task(self._hear(method, values)))

    async def _hear(self, method: str, params: Any) -> None:
        try:
            await self._agent.extension_notification(method, params)
        except Exception as error:
            log_failure(method, error)

    def update(self, params: v2.UpdateSessionNotification, line: bytes | None) -> None:
        """An agent is told of no updates."""

    async def drain(self) -> None:
        """An agent takes what it is told."""

    def _ended(self, error: ConnectionLost) -> None:
        pass  # serve() goes on

    def _start(self, call: Call, work: Callable[[], Coroutine[Any, Any, Any]], session_id: str | None = None) -> None:
        """Serve a request in a task of its own, so that others are not held up; withdrawing it cancels the work.

        Requests of one session are served one after another, in the order received.
        """
        requests = self._agent._requests
        before = None if session_id is None else requests.get(session_id)
        began = False

        async def serve() -> None:
            nonlocal began
            try:
                if before is not None:
                    await asyncio.wait([before])
                began = True
                answer: Any = _LATER if call.settled else await work()
                if answer is not _LATER:
                    call.respond(answer)
            except Exception as error:
                if not isinstance(error, TwofoldError):
                    log_failure(call.method, error)
                call.fail(error)

        def served(task: asyncio.Task[None]) -> None:
            if task.cancelled():  # perhaps before it began
                call.fail(asyncio.CancelledError())
            if session_id is not None and requests.get(session_id) is task:
                del requests[session_id]

        def withdrawn() -> None:
            if began:
                task.cancel()
            else:  # the task waits for its turn all the same: those behind wait for it
                call.fail(asyncio.CancelledError())

        task = asyncio.create_task(serve())
        task.add_done_callback(served)
        if session_id is not None:
            requests[session_id] = task
        call.on_withdrawn = withdrawn
        self._keep(task)

    def _keep(self, task: asyncio.Future[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Requests

    def _initialize(self, call: Call) -> None:
        if self.version is not None:
            raise RequestError(-32600, "Invalid request", {"reason": "initialize was answered before"})
        params = part(call.json())
        asked = params.get("protocolVersion")
        if not isinstance(asked, int) or isinstance(asked, bool) or asked < 0:
            raise Malformed("$.params.protocolVersion", expected="a whole number", found="something else")
        version = choose(asked, self._agent.versions)
        agent = self._agent
        upgraded = version == 1 and (asked == 1 or "info" not in params)  # else it is said in v2's words
        request = decode(v2.InitializeRequest, Raw(dumps(upgrade_initialize(params))) if upgraded else call.params)
        self.client_info, self.client_capabilities = request.info, request.capabilities
        info: dict[str, Any] = {"name": agent.name, "version": agent.version}
        if agent.title is not None:
            info["title"] = agent.title
        methods = [
            method
            for method in agent.auth_methods
            if method.get("type") != "terminal" or supports(request.capabilities, "auth", "terminal")
        ]
        result: dict[str, Any] = {"protocolVersion": 2, "info": info, "capabilities": agent.capabilities()}
        if methods:
            result["authMethods"] = methods
        self.version = version
        if version == 2:
            call.respond(result)
            return
        call.respond(downgrade_initialized(result))
        client = V1Client(
            self._connection, self, answers_first=True, lost=agent.lost, fault=agent.fault, ended=self._ended
        )
        self._client = client
        self._connection.handler = client.handler

    async def _new(self, call: Call) -> Any:
        request = decode(v2.NewSessionRequest, call.params)
        self._check_setup(request)
        session = await self._agent._new(request)
        state = session.state
        call.respond(
            v2.NewSessionResponse(
                session_id=session.session_id,
                config_options=state.config_options or UNSET,
                available_commands=state.available_commands or UNSET,
            )
        )
        said = state.timeline[1:]  # by new_session, before anybody could hear it
        if said or state.session_info != v2.SessionInfoUpdate() or state.usage is not None:
            await session._replay_to(self._client, history=True, then=lambda: None)
        session._attach(self._client)
        self._attached.add(session)
        return None

    async def _resume(self, call: Call) -> Any:
        request = decode(v2.ResumeSessionRequest, call.params)
        self._check_setup(request)
        if isinstance(request.replay_from, v2.OtherReplayFrom):
            raise Malformed("$.params.replayFrom.type", expected='"start"', found="another cursor")
        session = await self._agent._resume(request)
        self._attached.add(session)

        def answer() -> None:
            call.respond(
                v2.ResumeSessionResponse(
                    config_options=session.state.config_options or UNSET,
                    available_commands=session.state.available_commands or UNSET,
                )
            )

        history = isinstance(request.replay_from, v2.ReplayFromStart)
        await session._replay_to(self._client, history=history, then=answer)

    def _check_setup(self, request: v2.NewSessionRequest | v2.ResumeSessionRequest) -> None:
        if not os.path.isabs(request.cwd):
            raise Malformed("$.params.cwd", expected="an absolute path", found="a relative one")
        for index, path in enumerate(request.additional_directories or ()):
            if not os.path.isabs(path):
                where = f"$.params.additionalDirectories[{index}]"
                raise Malformed(where, expected="an absolute path", found="a relative one")
        transports = {*self._agent.mcp_transports, *(("stdio",) if self.version == 1 else ())}
        for index, server in enumerate(request.mcp_servers or ()):
            if server.get("type") not in transports:
                where = f"$.params.mcpServers[{index}].type"
                raise Malformed(where, expected="a transport that the agent supports", found="another one")

    async def _list(self, call: Call) -> Any:
        request = decode(v2.ListSessionsRequest, call.params)
        if isinstance(request.cwd, str) and not os.path.isabs(request.cwd):
            raise Malformed("$.params.cwd", expected="an absolute path", found="a relative one")
        return await self._agent.list_sessions(request)

    async def _close(self, call: Call) -> Any:
        await self._agent._close(decode(v2.SessionRequest, call.params).session_id)

    async def _delete(self, call: Call) -> Any:
        await self._agent._close(decode(v2.SessionRequest, call.params).session_id, delete=True)

    async def _prompt_later(self, call: Call, request: v2.PromptRequest) -> Any:
        self._prompt(call, request)
        return _LATER

    def _prompt(self, call: Call, request: v2.PromptRequest) -> None:
        for index, block in enumerate(request.prompt):
            needed = _NEEDED.get(type(block))
            if needed is None or (needed and needed not in self._agent.prompt_content):
                where = f"$.params.prompt[{index}].type"
                raise Malformed(where, expected="content that the agent supports", found="another kind")
        self._agent._find(request.session_id)._prompt(call, request.prompt, request.meta)

    async def _set_config_option(self, call: Call) -> Any:
        request = decode(v2.SetSessionConfigOptionRequest, call.params)
        session = self._agent._find(request.session_id)
        value: Any = request.value
        chosen = session._check_option(request.config_id, request.type, value)
        await self._agent.set_config_option(session, request.config_id, value)
        options = [
            chosen if getattr(option, "config_id", None) == request.config_id else option
            for option in session.state.config_options
        ]
        await session.set_config_options(options)
        return v2.SetSessionConfigOptionResponse(config_options=options)

    async def _login(self, call: Call) -> Any:
        request = decode(v2.LoginAuthRequest, call.params)
        offered = [one for one in self._agent.auth_methods if one.get("type") != "terminal"]
        if request.method_id not in [method.get("methodId") for method in offered]:
            raise Malformed("$.params.methodId", expected="a method that was offered", found="another one")
        await self._agent.login(request.method_id)

    async def _logout(self, _call: Call) -> Any:
        await self._agent.logout()


_NEEDED: Final[dict[type[Any], str]] = {
    v2.TextContent: "",
    v2.ResourceLink: "",
    v2.ImageContent: "image",
    v2.AudioContent: "audio",
    v2.EmbeddedResource: "embeddedContext",
}
"""What an agent must offer for a prompt to have such a block; nothing for those that every agent takes."""


def _set_up(session: Session, request: v2.NewSessionRequest | v2.ResumeSessionRequest) -> None:
    session.cwd = request.cwd
    session.additional_directories = tuple(request.additional_directories or ())
    session.mcp_servers = tuple(request.mcp_servers or ())


def _setup_record(request: v2.NewSessionRequest | v2.ResumeSessionRequest) -> v2.OtherUpdate:
    """Make the record that says where a session works: the first of a new one, and of one that moves."""
    fields: dict[str, Any] = {"cwd": request.cwd}
    if request.additional_directories:
        fields["additionalDirectories"] = list(request.additional_directories)
    return v2.OtherUpdate(kind=SETUP, fields=Kept(fields))


def _setup(state: Transcript) -> Mapping[str, Any] | None:
    """Give what the last record of that kind says."""
    for update in reversed(state.other):
        if update.kind == SETUP and isinstance(update.fields.get("cwd"), str):
            return update.fields
    return None
