"""A client of any agent: v2 agents as they are, v1 agents through the converter, both as v2."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import IO, Any, Final, TypeAlias

from msgspec import UNSET, Raw, Struct

from twofold.convert import Loss
from twofold.exceptions import ConnectionLost, HandshakeFailed, Malformed, RequestError, TwofoldError
from twofold.fold import Change, Reload, Revision, Transcript
from twofold.jsonrpc import CANCELLED, DEFAULT_LIMIT, dumps, loads
from twofold.runtime._agent import Agent
from twofold.runtime._connection import Connection, method_not_found, session_not_found
from twofold.runtime._json import part
from twofold.runtime._process import ProcessTransport
from twofold.runtime._side import Call, Inbound, Remote, Side, ask
from twofold.runtime._transport import OUTGOING_LIMIT, Transport, memory_pair
from twofold.runtime._turns import Turns
from twofold.runtime._v1_agent import V1Agent
from twofold.runtime._versions import downgrade_initialize, supports, upgrade_initialized
from twofold.runtime._watch import BEYOND, LIMIT, Feed, Watch
from twofold.wire import decode, v2

__all__ = ["Client", "ClientSession", "PermissionRequest", "Turn", "connect"]

log: Final = logging.getLogger("twofold.runtime")

Choice: TypeAlias = "v2.PermissionOption | str | None"
OnPermission: TypeAlias = "Callable[[PermissionRequest], Awaitable[Choice]]"

_HELD: Final = 10_000
"""Updates of sessions not known yet that are held while a request that may name them is under way."""

_HELD_BYTES: Final = DEFAULT_LIMIT
"""How large these may be together, as JSON."""


class PermissionRequest:
    """The agent asks for a permission. Answer it once, with one of ``options`` or ``None`` for none of them.

    ``title`` and ``description`` are the agent's words for the user; ``subject`` says what it is for: a tool call, a
    command, something that is not known here, or ``None``.
    """

    def __init__(self, session: ClientSession, request: v2.RequestPermissionRequest, call: Call) -> None:
        self.session = session
        self.title = request.title
        self.description = request.description if isinstance(request.description, str) else None
        self.subject = request.subject if request.subject is not UNSET else None
        self.options = request.options
        self._call = call
        self._deciding: asyncio.Task[None] | None = None  # the handler's task, if a handler was given

    @property
    def answered(self) -> bool:
        """Whether it was answered, or withdrawn by the agent."""
        return self._call.settled

    def answer(self, choice: Choice) -> None:
        """Choose an option, or its id; ``None`` chooses none. Raises :class:`ValueError` for one not offered."""
        if choice is None:
            self._forget()
            self._call.respond({"outcome": {"outcome": "cancelled"}})
            return
        option_id = choice if isinstance(choice, str) else choice.option_id
        if option_id not in [option.option_id for option in self.options]:
            raise ValueError("this option was not offered")
        self._forget()
        self._call.respond({"outcome": {"outcome": "selected", "optionId": option_id}})

    def _forget(self) -> None:
        if self in self.session._asking:
            self.session._asking.remove(self)

    def option(self, *kinds: str) -> v2.PermissionOption | None:
        """Give the first option of one of these kinds (``allow_once``, …)."""
        for kind in kinds:
            for option in self.options:
                if option.kind == kind:
                    return option
        return None


class Turn(Watch):
    """A prompt that was sent. Iterate over its changes until its turn ends, or await it for the stop reason alone.

    It begins with the prompt's insertion and ends at the first idle after it. Changes of other origin in between are
    among them: a session is one conversation. A prompt that was cancelled before it was inserted ends as ``cancelled``,
    too. Raises :class:`RequestError` when the prompt was refused, and :class:`ConnectionLost`.
    """

    def __init__(self, feed: Feed, progress: _Progress) -> None:
        super().__init__(feed)
        self._progress = progress

    @property
    def message_id(self) -> str | None:
        """The id of the user message that the prompt became, once it is inserted."""
        return self._progress.message_id

    @property
    def stop_reason(self) -> str | None:
        """Why the turn ended, once it has and the agent said why."""
        reason = None if self._progress.idle is None else self._progress.idle.stop_reason
        return reason if isinstance(reason, str) else None

    @property
    def error(self) -> v2.Error | None:
        """The error that the turn ended with, if it did."""
        error = None if self._progress.idle is None else self._progress.idle.error
        return error if isinstance(error, v2.Error) else None

    def __await__(self) -> Generator[Any, None, str | None]:
        return self._rest().__await__()

    async def _rest(self) -> str | None:
        with self._progress.client._waits():
            async for _ in self:
                pass
        return self.stop_reason


class _Progress(Struct, eq=False, gc=True):
    """A prompt under way."""

    client: Client
    feed: Feed
    message_id: str | None = None
    idle: v2.StateUpdate | None = None


class ClientSession:
    """One session with an agent. ``state`` is always what the agent last said (F-1 … F-13)."""

    def __init__(self, client: Client, session_id: str, revision: Revision) -> None:
        self.session_id = session_id
        self.state = Transcript(session_id, revision=revision)
        self._client = client
        self._turns = Turns()
        self._feeds: list[Feed] = []
        self._own: set[str] = set()  # the user messages that prompts sent from here became
        self._attached = False  # whether the agent has ever answered that it is
        self._resuming = 0
        self._reload: Reload | None = None
        self._room = asyncio.Event()
        self._asking: list[PermissionRequest] = []
        self._closed = False
        self._rests: list[asyncio.Future[None]] = []  # of those who wait until the agent is at rest
        self._ended: list[tuple[Any, v2.SessionUpdate]] = []  # turns whose idle came while the session was resumed

    def __repr__(self) -> str:
        return f"<ClientSession {self.session_id!r}>"

    @property
    def idle(self) -> bool:
        """Whether the agent is at rest. A state that is not known is not idle."""
        return self.state.state is None or self.state.state.state == "idle"

    async def at_rest(self) -> None:
        """Wait until the agent is at rest, with no prompt of this client's waiting for its turn.

        Raises :class:`ConnectionLost` when it never will be.
        """
        if self._client.lost is not None:
            raise self._client.lost
        if not self._resting():
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._rests.append(waiting)
            with self._client._waits():
                await waiting

    def _resting(self) -> bool:
        return self.idle and not self._turns.open

    def _rested(self, error: BaseException | None = None) -> None:
        """Tell those who wait for it that the agent is at rest, or why it will not be."""
        if self._rests and (error is not None or self._resting()):
            rests, self._rests = self._rests, []
            for waiting in rests:
                if waiting.done():
                    continue
                if error is None:
                    waiting.set_result(None)
                else:
                    waiting.set_exception(error)

    @property
    def permission_requests(self) -> Sequence[PermissionRequest]:
        """The permission requests that are open, the oldest first."""
        return tuple(self._asking)

    def prompt(self, prompt: str | Sequence[str | v2.ContentBlock]) -> Turn:
        """Send a prompt, at once. Iterate over the turn, or await it.

        Prompts are sent in the order of the calls. An agent that is busy inserts them later; a v1 agent is given one
        at a time.
        """
        parts = [prompt] if isinstance(prompt, str) else list(prompt)
        blocks = [v2.TextContent(text=part) if isinstance(part, str) else part for part in parts]
        if not blocks:
            raise ValueError("a prompt has at least one block")
        feed = self._feed(started=False)
        feed.collecting = False  # until it is inserted
        progress = _Progress(self._client, feed)

        def then(result: Raw | None, error: TwofoldError | None) -> None:
            if error is None and result is not None:
                try:
                    answer = decode(v2.PromptResponse, result, path="$.result")
                except TwofoldError as problem:
                    error = problem
                else:
                    progress.message_id = answer.message_id if isinstance(answer.message_id, str) else None
                    feed.collecting = True
                    if progress.message_id is not None:
                        self._own.add(progress.message_id)
                    ended = self._turns.inserted(progress, progress.message_id)
                    if ended is not None:
                        self._end_turn(progress, ended)
                    return
            self._turns.failed(progress)
            if isinstance(error, RequestError) and error.code == CANCELLED:
                self._end_turn(progress, v2.StateUpdate(state="idle", stop_reason="cancelled"))
            else:
                feed.end(error)

        self._turns.sent(progress)
        params = {"sessionId": self.session_id, "prompt": blocks}
        ask(self._client._agent, Call("session/prompt", params, then))
        return Turn(feed, progress)

    async def cancel(self) -> None:
        """Ask the agent to stop: the turn ends with ``cancelled``, and so do open permission requests."""
        self._client._agent.notify("session/cancel", {"sessionId": self.session_id})
        for request in list(self._asking):
            self._client._settle(request)
        await self._client._agent.drain()

    def watch(self) -> Watch:
        """Give every change of the session from now on. Several may watch."""
        return Watch(self._feed(started=True))

    async def set_config_option(self, config_id: str, value: str | bool) -> None:
        """Choose the value of a configuration option. Raises :class:`RequestError` when the agent refuses it."""
        type_ = "boolean" if isinstance(value, bool) else "id"
        params = {"sessionId": self.session_id, "configId": config_id, "type": type_, "value": value}

        def then(result: Raw) -> None:
            answer = decode(v2.SetSessionConfigOptionResponse, result, path="$.result")
            self._apply(v2.ConfigOptionUpdate(config_options=answer.config_options))

        await self._client.request("session/set_config_option", params, then=then)

    async def close(self) -> None:
        """Close the session: what runs is cancelled. It may be resumed later, if the agent keeps it."""
        for request in list(self._asking):
            self._client._settle(request)
        try:
            await self._client.request("session/close", {"sessionId": self.session_id})
        except RequestError as error:
            if error.code != -32002:  # it is not there: as good as closed
                raise
        self._closed = True
        self._end(None)
        self._client._sessions.pop(self.session_id, None)

    def _feed(self, *, started: bool) -> Feed:
        if self._client.lost is not None:
            raise self._client.lost
        if self._closed:
            raise TwofoldError(f'session "{self.session_id}" is closed')
        feed = Feed(self.state, self._room.set, started=started)
        self._feeds.append(feed)
        return feed

    def _apply(self, update: v2.SessionUpdate) -> bool:
        """Fold an update in and pass the change on; gives whether a watcher has too many waiting."""
        if self._reload is not None:
            self._reload.apply(update)
            return False
        change = self.state.apply(update)
        return self._tell(change) if change is not Change.nothing else False

    def _tell(self, change: Change) -> bool:
        full = False
        closed = False
        for feed in self._feeds:
            if feed.put(change):
                full = True
            closed = closed or feed.closed or feed.ended
        if closed:
            self._feeds = [feed for feed in self._feeds if not feed.closed and not feed.ended]
        return full

    def _update(self, update: v2.SessionUpdate) -> Awaitable[object] | None:
        if type(update) in _TURNING and (self._turns.open or self._rests):
            if not self._resuming:
                self._mark(update)
            full = self._apply(update)
            self._note_ended(self._turns.update(update))
            if not self._resuming:
                self._end_turns()
        else:
            full = self._apply(update)
        return self._wait_room() if full else None

    def _mark(self, update: v2.SessionUpdate) -> None:
        """Begin the turn of the oldest prompt that waits, where its insertion shows: at the user message that it seems
        to have become, or at a state that is not idle while no other turn runs."""
        waiting: Any = self._turns.waiting
        if isinstance(update, v2.StateUpdate):
            begins = update.state != "idle" and not self._turns.running
            if waiting and begins:
                waiting[0].feed.collecting = True
            return
        first_sight = (
            isinstance(update, v2.UserMessage | v2.UserMessageChunk)
            and update.message_id not in self._own
            and self.state.message("user_message", update.message_id) is None
        )
        if waiting and first_sight:
            waiting[0].feed.collecting = True

    def _note_ended(self, prompts: Sequence[Any]) -> None:
        self._ended += [(progress, self._turns.idle) for progress in prompts]

    def _end_turns(self) -> None:
        """End the turns whose idle has come. While a session is resumed they wait for the state to be in its place."""
        ended, self._ended = self._ended, []
        for progress, idle in ended:
            self._end_turn(progress, idle)
        self._rested()

    def _end_turn(self, progress: Any, idle: Any) -> None:
        progress.idle = idle
        progress.feed.end()

    async def _wait_room(self) -> None:
        """Wait while a watcher has too many changes waiting: the reader reads no further.

        Not while somebody waits for an answer, which only the reader can bring: else a watcher that asks something
        would wait for itself. (It may, far beyond.)
        """
        while True:
            self._room.clear()
            most = max((len(feed.changes) for feed in self._feeds if feed.started and not feed.closed), default=0)
            if most <= LIMIT // 2 or (self._client._asked and most <= BEYOND):
                return
            self._client._waiting.add(self._room)
            try:
                await self._room.wait()
            finally:
                self._client._waiting.discard(self._room)

    def _end(self, error: BaseException | None) -> None:
        for feed in self._feeds:
            feed.end(error)
        self._feeds.clear()
        self._room.set()
        self._rested(error or TwofoldError(f'session "{self.session_id}" is closed'))


_TURNING: Final = frozenset({v2.UserMessage, v2.UserMessageChunk, v2.StateUpdate})
"""The updates that a turn may begin or end with."""


class Client:
    """A connection to one agent, made by :func:`connect`. It may have many sessions.

    ``version`` is the protocol version that the agent speaks; ``info``, ``capabilities`` and ``auth_methods`` are what
    it says of itself, in v2's words whatever it speaks.
    """

    def __init__(
        self,
        *,
        revision: Revision,
        on_permission: OnPermission | None,
        on_request: Callable[[str, Any], Awaitable[Any]] | None,
        on_notification: Callable[[str, Any], object] | None,
        on_fault: Callable[[TwofoldError], object] | None,
        on_loss: Callable[[str, Loss], object] | None,
    ) -> None:
        self.version = 0
        self.info = v2.Implementation(name="", version="")
        self.capabilities: dict[str, Any] = {}
        self.auth_methods: Sequence[dict[str, Any]] = ()
        self.permissions: asyncio.Queue[PermissionRequest] = asyncio.Queue()
        """The permission requests, when no ``on_permission`` was given to :func:`connect`."""
        self.lost: ConnectionLost | None = None
        """Why the connection is gone, once it is."""
        self._revision = revision
        self._on_permission = on_permission
        self._on_request = on_request
        self._on_notification = on_notification
        self._on_fault = on_fault
        self._on_loss = on_loss
        self._agent: Side
        self._connection: Connection
        self._sessions: dict[str, ClientSession] = {}
        self._held: list[v2.UpdateSessionNotification] = []
        self._held_bytes = 0  # since there was nothing to wait for
        self._opening = 0  # requests under way that may bring a session
        self._asked = 0  # requests that somebody waits for
        self._waiting: set[asyncio.Event] = set()  # of readers that wait for room
        self._tasks: set[asyncio.Task[None]] = set()

    # Sessions

    async def new_session(
        self,
        *,
        cwd: str | os.PathLike[str],
        additional_directories: Sequence[str] = (),
        mcp_servers: Sequence[Mapping[str, Any]] = (),
        meta: Mapping[str, Any] | None = None,
    ) -> ClientSession:
        """Begin a session in ``cwd``, an absolute path. ``mcp_servers`` are JSON objects as v2 has them."""
        params = _setup(cwd, additional_directories, mcp_servers, meta)
        opened: list[ClientSession] = []

        def then(result: Raw) -> None:
            answer = decode(v2.NewSessionResponse, result, path="$.result")
            session = self._session(answer.session_id)
            session._attached = True
            self._release(session)
            _apply_lists(session, answer)
            opened.append(session)

        self._opening += 1
        try:
            await self.request("session/new", params, then=then)
        finally:
            self._opening -= 1
            if not self._opening:
                held, self._held, self._held_bytes = self._held, [], 0
                for session_id in dict.fromkeys(params.session_id for params in held):
                    self._not_open(session_id)
        return opened[0]

    async def resume(
        self,
        session_id: str,
        *,
        cwd: str | os.PathLike[str],
        replay: bool = False,
        additional_directories: Sequence[str] = (),
        mcp_servers: Sequence[Mapping[str, Any]] = (),
        meta: Mapping[str, Any] | None = None,
    ) -> ClientSession:
        """Attach to a session that the agent keeps; with ``replay``, receive its history first (P-4).

        What is replayed is folded apart and takes the place of the state held when the agent has answered (P-5); if it
        answers with an error, the old state stays. A session that this client has already is the same object.
        """
        params = {"sessionId": session_id, **_setup(cwd, additional_directories, mcp_servers, meta)}
        if replay:
            params["replayFrom"] = {"type": "start"}
        session = self._session(session_id)
        if session._reload is not None:
            raise TwofoldError(f'session "{session_id}" is being replayed already')
        if replay:
            session._reload = session.state.reload()
        session._resuming += 1
        session._turns.resumes()

        answered = False

        def over() -> None:
            nonlocal answered
            if not answered:
                answered = True
                session._resuming -= 1
                session._note_ended(session._turns.resumed())

        def then(result: Raw) -> None:
            answer = decode(v2.ResumeSessionResponse, result, path="$.result")
            reload, session._reload = session._reload, None
            session._attached = True
            over()
            if reload is not None and replay:
                session._tell(reload.commit())
            _apply_lists(session, answer)
            session._end_turns()

        def failed() -> None:  # what comes behind the answer is no replay
            over()
            if replay:
                session._reload = None
            session._end_turns()
            if not session._attached and not session._resuming:
                self._sessions.pop(session_id, None)

        await self.request("session/resume", params, then=then, failed=failed)
        return session

    async def list_sessions(self, *, cwd: str | os.PathLike[str] | None = None) -> list[v2.SessionInfo]:
        """List the agent's sessions, of one working directory or all; follows its pages to their end."""
        found: list[v2.SessionInfo] = []
        cursors: set[str] = set()
        params: dict[str, Any] = {} if cwd is None else {"cwd": os.fspath(cwd)}
        while True:
            answer = decode(v2.ListSessionsResponse, await self.request("session/list", params), path="$.result")
            found += answer.sessions
            cursor = answer.next_cursor
            if not isinstance(cursor, str) or cursor in cursors:
                return found
            cursors.add(cursor)
            params["cursor"] = cursor

    async def delete_session(self, session_id: str) -> None:
        """Delete a session at the agent. One that is not there counts as deleted."""
        try:
            await self.request("session/delete", {"sessionId": session_id})
        except RequestError as error:
            if error.code != -32002:
                raise
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session._closed = True
            session._end(None)

    async def login(self, method_id: str) -> None:
        """Authenticate by one of :attr:`auth_methods`."""
        await self.request("auth/login", {"methodId": method_id})

    async def logout(self) -> None:
        """Forget the authentication."""
        await self.request("auth/logout", {})

    def supports(self, *path: str) -> bool:
        """Whether the agent has a capability: ``supports("session", "prompt", "image")``."""
        return supports(self.capabilities, *path)

    async def request(
        self,
        method: str,
        params: Any,
        *,
        then: Callable[[Raw], object] | None = None,
        failed: Callable[[], object] | None = None,
    ) -> Raw:
        """Ask the agent anything in v2's words, extensions (``_…``) too, and give the raw result.

        ``then`` is called with it in its place in the order received, ``failed`` when there is none, or ``then``
        raised. Raises :class:`RequestError` and :class:`ConnectionLost`; cancelling withdraws the request, whose answer
        is still heard.
        """
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()

        def answered(result: Raw | None, error: TwofoldError | None) -> None:
            try:
                if error is not None:
                    raise error
                raw = Raw(b"{}") if result is None else result
                if then is not None:
                    then(raw)
            except Exception as problem:
                if failed is not None:
                    failed()
                if not future.done():
                    future.set_exception(problem)
            else:
                if not future.done():
                    future.set_result(raw)

        call = Call(method, params, answered)
        with self._waits():
            try:
                ask(self._agent, call)
                return await future
            except asyncio.CancelledError:
                call.withdraw()
                raise
            except RequestError as error:
                error.method = method
                raise

    @contextmanager
    def _waits(self) -> Generator[None, None, None]:
        """Somebody waits for what only the reader can bring: it goes on, whoever does not take their changes."""
        self._asked += 1
        for event in self._waiting:
            event.set()
        try:
            yield
        finally:
            self._asked -= 1

    async def notify(self, method: str, params: Any) -> None:
        """Tell the agent anything in v2's words."""
        self._agent.notify(method, params)
        await self._agent.drain()

    def _session(self, session_id: str) -> ClientSession:
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = ClientSession(self, session_id, self._revision)
        return session

    def _release(self, session: ClientSession) -> None:
        """Apply what came for a session before it was known."""
        held, self._held = self._held, []
        for params in held:
            if params.session_id == session.session_id:
                session._update(params.update)
            else:
                self._held.append(params)

    # What the agent says; see _ClientSide

    def _update(self, params: v2.UpdateSessionNotification, line: bytes | None) -> Awaitable[object] | None:
        """Take an update."""
        session = self._sessions.get(params.session_id)
        if session is not None:
            return session._update(params.update)
        if self._opening and len(self._held) < _HELD:
            self._held_bytes += len(v2.encode(params.update) if line is None else line)
            if self._held_bytes <= _HELD_BYTES:
                self._held.append(params)
                return None
        self._not_open(params.session_id)
        return None

    def _not_open(self, session_id: str) -> None:
        self._fault(TwofoldError(f'an update of session "{session_id}", which is not open here'))

    def _request(self, call: Call) -> None:
        """Take a request."""
        if call.method == "session/request_permission":
            self._permission(call)
        elif self._on_request is not None:
            self._start(self._answer(call, self._on_request))
        else:
            raise method_not_found(call.method)

    def _notification(self, method: str, params: Any) -> None:
        """Take a notification; unknown ones are ignored."""
        if self._on_notification is not None:
            self._on_notification(method, loads(bytes(params)) if isinstance(params, Raw) else params)

    def _permission(self, call: Call) -> None:
        request = decode(v2.RequestPermissionRequest, call.params)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise session_not_found(request.session_id)
        if isinstance(request.subject, v2.ToolCallPermissionSubject):  # applied before the user is asked
            session._apply(request.subject.update())
        asked = PermissionRequest(session, request, call)
        session._asking.append(asked)
        if self._on_permission is None:
            call.on_withdrawn = lambda: self._settle(asked)
            self.permissions.put_nowait(asked)
            return
        asked._deciding = self._start(self._decide(asked, self._on_permission))
        call.on_withdrawn = lambda: self._settle(asked)

    def _settle(self, asked: PermissionRequest) -> None:
        """See to it that a request is answered, and that nobody works on the answer any more."""
        if not asked.answered:
            asked.answer(None)
        if asked._deciding is not None and asked._deciding is not asyncio.current_task():
            asked._deciding.cancel()
        if asked in asked.session._asking:
            asked.session._asking.remove(asked)

    async def _decide(self, asked: PermissionRequest, decide: OnPermission) -> None:
        try:
            choice = await decide(asked)
            if not asked.answered:
                asked.answer(choice)
        finally:
            self._settle(asked)

    async def _answer(self, call: Call, answer: Callable[[str, Any], Awaitable[Any]]) -> None:
        try:
            call.respond(await answer(call.method, call.json()))
        except BaseException as error:
            call.fail(error)
            raise

    def _start(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # it may have been cancelled before its turn
        return task

    async def _guarded(self, work: Any) -> None:
        try:
            await work
        except Exception as error:
            if isinstance(error, TwofoldError):
                self._fault(error)
            else:
                log.error("a handler failed with %s", type(error).__qualname__)

    def _fault(self, error: TwofoldError) -> None:
        if self._on_fault is not None:
            self._on_fault(error)
        else:
            log.warning("%s: %s", type(error).__name__, error)

    def _lost_to_v2(self, session_id: str, loss: Loss) -> None:
        if self._on_loss is not None:
            self._on_loss(session_id, loss)
        else:
            log.info("session %s: %s", session_id, loss)

    def _ended(self, error: ConnectionLost) -> None:
        self.lost = error
        for session in list(self._sessions.values()):
            for asked in list(session._asking):
                self._settle(asked)
            session._end(error)


class _ClientSide:
    """The client, as the agent sees it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.update = client._update

    def request(self, call: Call) -> None:
        self._client._request(call)

    def notify(self, method: str, params: Any) -> None:
        self._client._notification(method, params)

    async def drain(self) -> None:
        """A client takes what it is told, or makes the reader wait."""


def _setup(
    cwd: str | os.PathLike[str],
    additional_directories: Sequence[str],
    mcp_servers: Sequence[Mapping[str, Any]],
    meta: Mapping[str, Any] | None,
) -> dict[str, Any]:
    path = os.fspath(cwd)
    if not os.path.isabs(path):
        raise ValueError("cwd is an absolute path")
    params: dict[str, Any] = {"cwd": path}
    if additional_directories:
        params["additionalDirectories"] = list(additional_directories)
    if mcp_servers:
        params["mcpServers"] = [dict(server) for server in mcp_servers]
    if meta is not None:
        params["_meta"] = dict(meta)
    return params


def _apply_lists(session: ClientSession, answer: v2.NewSessionResponse | v2.ResumeSessionResponse) -> None:
    """Hold the options and commands of an answer as if an update had brought them."""
    if answer.config_options is not UNSET and answer.config_options is not None:
        session._apply(v2.ConfigOptionUpdate(config_options=answer.config_options))
    if answer.available_commands is not UNSET and answer.available_commands is not None:
        session._apply(v2.AvailableCommandsUpdate(available_commands=answer.available_commands))


@asynccontextmanager
async def connect(
    agent: Sequence[str | os.PathLike[str]] | Transport | Agent,
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stderr: int | IO[Any] | None = None,
    versions: Collection[int] = (1, 2),
    restart: bool = True,
    name: str = "twofold",
    version: str = "0",
    title: str | None = None,
    capabilities: Mapping[str, Any] | None = None,
    on_permission: OnPermission | None = None,
    on_request: Callable[[str, Any], Awaitable[Any]] | None = None,
    on_notification: Callable[[str, Any], object] | None = None,
    on_fault: Callable[[TwofoldError], object] | None = None,
    on_loss: Callable[[str, Loss], object] | None = None,
    revision: Revision | str = Revision.RFD,
    lenient: bool = True,
    start_timeout: float = 60.0,
    grace: float = 5.0,
    line_limit: int = DEFAULT_LIMIT,
    outgoing_limit: int = OUTGOING_LIMIT,
) -> AsyncGenerator[Client, None]:
    """Connect to an agent, as ``async with``: a command to run, a transport, or an :class:`Agent` in this process.

    The client asks for the highest of ``versions`` and goes on with what the agent answers. An agent that answers 2 and
    does not speak it is started again and asked for 1, if it is a command and ``restart`` allows.

    - ``cwd``, ``env`` (the whole environment) and ``stderr`` are those of the process, as for :mod:`subprocess`.
    - ``name``, ``version``, ``title``, ``capabilities`` say who the client is, in v2's words.
    - ``on_permission`` is awaited with each :class:`PermissionRequest` and gives an option, its id, or ``None``;
      without it they wait in :attr:`Client.permissions`.
    - ``on_request`` answers other requests of the agent (``elicitation/create``, ``_…``); ``on_notification`` hears
      its other notifications.
    - ``on_fault`` hears what was wrong in what the agent sent, ``on_loss`` what of a v1 agent v2 has no place for;
      both are logged otherwise. ``lenient`` reading leaves bad items out and reports them (U-6).
    - ``start_timeout`` is in seconds, until the agent has answered ``initialize``; ``grace`` is what a process has for
      each step of ending.

    Raises :class:`HandshakeFailed`, :class:`ConnectionLost` (also when the command cannot be started) and
    :class:`RequestError`. On leaving, the connection is closed; a process is given time to end, then ended.
    """
    if not versions or not set(versions) <= {1, 2}:
        raise ValueError("versions are 1, 2, or both")
    client = Client(
        revision=Revision(revision),
        on_permission=on_permission,
        on_request=on_request,
        on_notification=on_notification,
        on_fault=on_fault,
        on_loss=on_loss,
    )
    info = {"name": name, "version": version, **({} if title is None else {"title": title})}
    params = {"info": info, "capabilities": dict(capabilities or {})}
    serving: asyncio.Task[None] | None = None
    remaining = set(versions)
    async with _Closing() as closing:
        while True:
            if isinstance(agent, Agent):
                transport, other = memory_pair(limit=outgoing_limit, line_limit=line_limit)
                serving = asyncio.create_task(agent.serve(other))
            elif isinstance(agent, Sequence):
                transport = await ProcessTransport.start(
                    agent,  # pyright: ignore[reportUnknownArgumentType]  # it could be a transport that is a sequence
                    cwd=cwd,
                    env=env,
                    stderr=stderr,
                    line_limit=line_limit,
                    outgoing_limit=outgoing_limit,
                    grace=grace,
                )
            else:
                transport = agent
            closing.begin(client, transport, lenient, serving)
            try:
                async with asyncio.timeout(start_timeout):
                    await _handshake(client, params, remaining, transport.name)
                break
            except TimeoutError:
                reason = f"{transport.name} did not answer initialize within {start_timeout:g} seconds"
                raise HandshakeFailed(reason, asked=max(remaining)) from None
            except HandshakeFailed as error:
                says_2 = error.asked == error.answered == 2
                if not (restart and says_2 and 1 in remaining and isinstance(agent, Sequence)):
                    raise
                log.warning("%s; starting it again, asking for version 1", error)
                await closing.end()
                client.lost = None
                remaining = {1}
        yield client


class _Closing:
    """Sees to it that what was begun is ended."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._reading: asyncio.Task[None] | None = None
        self._serving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> _Closing:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    def begin(self, client: Client, transport: Transport, lenient: bool, serving: asyncio.Task[None] | None) -> None:
        side = _ClientSide(client)
        inbound = Inbound(side, ended=client._ended, fault=client._fault)
        client._connection = Connection(transport, inbound, lenient=lenient)
        client._agent = Remote(client._connection)
        self._client, self._serving = client, serving
        self._reading = asyncio.create_task(client._connection.run())

    async def end(self) -> None:
        client, self._client = self._client, None
        if client is None or self._reading is None:
            return
        for task in list(client._tasks):
            task.cancel()
        await client._connection.close()
        self._reading.cancel()
        with suppress(asyncio.CancelledError, ConnectionLost):
            await self._reading
        if self._serving is not None:
            await self._serving


async def _handshake(client: Client, params: dict[str, Any], versions: set[int], who: str) -> None:
    """Agree on a version by the table of :mod:`twofold.runtime._versions`."""
    connection = client._connection
    for asked in sorted(versions, reverse=True):
        words = {"protocolVersion": 2, **params}

        def then(result: Raw, asked: int = asked) -> None:
            _answered(client, part(loads(bytes(result))), asked, versions, who)

        try:
            await connection.request("initialize", words if asked == 2 else downgrade_initialize(words), then=then)
            return
        except RequestError as error:
            if asked == min(versions):
                supported = part(error.data).get("supported")
                reason = f"{who} refused protocol version {asked} ({error.code})"
                raise HandshakeFailed(reason, asked=asked, answered=supported) from error


def _answered(client: Client, result: dict[str, Any], asked: int, versions: set[int], who: str) -> None:
    answered = result.get("protocolVersion")
    if type(answered) is not int:  # true is not 1
        answered = None
    if answered == 2 and asked == 2:
        try:
            answer = decode(v2.InitializeResponse, Raw(dumps(result)), path="$.result")
        except Malformed as error:
            reason = f"{who} answered version 2, but not as version 2 says: {error}"
            raise HandshakeFailed(reason, asked=2, answered=2) from None
        client.version = 2
    elif answered == 1 and 1 in versions:
        upgraded = upgrade_initialized(result, name=who)
        answer = decode(v2.InitializeResponse, Raw(dumps(upgraded)), path="$.result")
        client.version = 1
        agent = V1Agent(
            client._connection,
            _ClientSide(client),
            result,
            lost=client._lost_to_v2,
            fault=client._fault,
            ended=client._ended,
        )
        client._agent = agent
        client._connection.handler = agent.handler
    else:
        shown = "no version" if answered is None else answered
        reason = f"{who} was asked for protocol version {asked} and answered {shown}"
        raise HandshakeFailed(reason, asked=asked, answered=answered)
    client.info = answer.info
    client.capabilities = part(answer.capabilities)
    client.auth_methods = tuple(answer.auth_methods or ())
