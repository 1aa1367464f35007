"""A session on the agent's side: its state, its prompts in order, and the lifecycle around each turn.

The order of a turn is the runtime's, not the author's: the prompt is inserted and answered with its ``messageId``, the
user message is sent, then ``running``; ``requires_action`` stands around permission requests; ``idle`` with the stop
reason comes last, when everything before it is stored.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from twofold.exceptions import ConnectionLost, Malformed, RequestError, TwofoldError
from twofold.fold import SETUP, Transcript, replay
from twofold.journal import Appended, Writer
from twofold.jsonrpc import CANCELLED, loads
from twofold.runtime._handles import MessageHandle, TerminalHandle, ToolCallHandle, alike, new_id
from twofold.runtime._side import Call, Side, ask, update_line
from twofold.wire import to_json, v2

if TYPE_CHECKING:
    from twofold.runtime._agent import Agent

__all__ = ["ALLOW_OR_REJECT", "Prompt", "Session"]

ALLOW_OR_REJECT: Final[Sequence[v2.PermissionOption]] = (
    v2.PermissionOption(option_id="allow", name="Allow", kind="allow_once"),
    v2.PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
)
"""The options of a permission request that names none."""

_UNSTORED: Final = 256
"""Updates that may be on their way to the journal before the sender waits."""


class Prompt(Struct, frozen=True):
    """What the user said: its blocks, and the id of the message that it became."""

    message_id: str
    content: Sequence[v2.ContentBlock]
    meta: dict[str, Any] | UnsetType | None = UNSET

    @property
    def text(self) -> str:
        """The text of its text blocks, one after another."""
        return "".join(block.text for block in self.content if isinstance(block, v2.TextContent))


class _Queued(Struct, eq=False):
    call: Call
    content: Sequence[v2.ContentBlock]
    meta: dict[str, Any] | UnsetType | None


class Session:
    """One session, for the author of an agent. Made by the runtime.

    ``state`` is the folded :class:`~twofold.fold.Transcript`: everything said so far, the user's messages included.
    Every method that sends waits while the clients do not take what is sent.
    """

    def __init__(self, agent: Agent, session_id: str, cwd: str) -> None:
        self.session_id = session_id
        self.cwd = cwd
        """The folder that it works in, an absolute path."""
        self.additional_directories: Sequence[str] = ()
        """Further folders that it may work in."""
        self.mcp_servers: Sequence[dict[str, Any]] = ()
        """As the client sent them. Never stored (J-8)."""
        self.state = Transcript(session_id)
        self.data: dict[str, Any] = {}
        """For the author: whatever goes with this session."""
        self._agent = agent
        self._writer: Writer | None = None
        self._clients: list[Side] = []
        self._order = asyncio.Lock()  # held while a replay is sent: live updates wait
        self._sending = asyncio.Lock()  # held until what was sent is below the bounds: however many send, one goes over
        self._queue: deque[_Queued] = deque()
        self._loop: asyncio.Task[None] | None = None  # the turns, one after another
        self._work: asyncio.Task[Any] | None = None  # the author's handler of the turn
        self._cancelled = False
        self._asking = 0
        self._asked: set[asyncio.Future[Any]] = set()  # outcomes that are waited for
        self._unstored = 0
        self._put: asyncio.Future[Appended] | None = None  # the last that was put into the journal
        self._room = asyncio.Event()
        self._journal_error: BaseException | None = None
        self._closing = False  # no prompt is taken any more
        self._closed = False

    def __repr__(self) -> str:
        return f"<Session {self.session_id!r}>"

    # Writing

    def message(self, message_id: str | None = None) -> MessageHandle:
        """Write a message of the agent: a new one, or one that is there already."""
        return MessageHandle(self, "agent_message", message_id or new_id())

    def thought(self, message_id: str | None = None) -> MessageHandle:
        """Write a thought of the agent."""
        return MessageHandle(self, "agent_thought", message_id or new_id())

    def user_message(self, message_id: str) -> MessageHandle:
        """Correct or take back a message of the user, such as a prompt with a secret in it."""
        return MessageHandle(self, "user_message", message_id)

    def tool_call(
        self, title: str, *, kind: str = "other", tool_call_id: str | None = None, **fields: Any
    ) -> ToolCallHandle:
        """Report a tool call; use it as ``async with``. ``fields`` are those of :meth:`ToolCallHandle.update`."""
        return ToolCallHandle(self, tool_call_id or new_id(), {"title": title, "kind": kind, **fields})

    async def terminal(
        self, command: str | None = None, *, cwd: str | None = None, terminal_id: str | None = None
    ) -> TerminalHandle:
        """Report a terminal; :meth:`ToolCallHandle.show` it in a tool call."""
        handle = TerminalHandle(self, terminal_id or new_id())
        await self.update(
            v2.TerminalUpdate(
                terminal_id=handle.terminal_id,
                command=UNSET if command is None else command,
                cwd=self.cwd if cwd is None else cwd,
            )
        )
        return handle

    async def plan(self, entries: Sequence[v2.PlanEntry | str], *, plan_id: str = "main") -> None:
        """Let the plan be this. A string is an entry of medium priority that is pending."""
        items = [
            v2.PlanEntry(content=one, priority="medium", status="pending") if isinstance(one, str) else one
            for one in entries
        ]
        await self.update(v2.PlanUpdate(plan=v2.PlanItems(plan_id=plan_id, entries=items)))

    async def usage(self, used: int, size: int, *, cost: v2.Cost | UnsetType | None = UNSET) -> None:
        """Report how many tokens of the context are used."""
        await self.update(v2.UsageUpdate(used=used, size=size, cost=cost))

    async def set_title(self, title: str | None) -> None:
        """Let the session's title be this."""
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        await self.update(v2.SessionInfoUpdate(title=title, updated_at=now))

    async def set_commands(self, commands: Sequence[v2.AvailableCommand]) -> None:
        """Offer these commands."""
        await self.update(v2.AvailableCommandsUpdate(available_commands=commands))

    async def set_config_options(self, options: Sequence[v2.SessionConfigOption]) -> None:
        """Offer these configuration options, with these values."""
        await self.update(v2.ConfigOptionUpdate(config_options=options))

    async def notice(self, title: str, *, severity: str = "info", description: str | None = None) -> None:
        """Tell the user something now that is no part of the conversation."""
        await self.update(
            v2.Notice(severity=severity, title=title, description=UNSET if description is None else description)
        )

    async def update(self, update: v2.SessionUpdate, *, durable: bool = False) -> None:
        """Send any update: fold it, store it, tell the clients; with ``durable``, wait until it is stored.

        Raises :class:`~twofold.exceptions.Malformed` for an update that cannot be folded: then nothing was done.
        """
        async with self._sending:
            if self._order.locked():
                async with self._order:
                    stored = self._emit(update)
            else:
                stored = self._emit(update)
            for client in list(self._clients):
                with suppress(ConnectionLost):
                    await client.drain()
            while self._unstored > _UNSTORED:
                self._room.clear()
                await self._room.wait()
        if durable and stored is not None:
            await asyncio.wait([stored])
        self._check_journal()

    def _emit(self, update: v2.SessionUpdate, *, record_only: bool = False) -> asyncio.Future[Appended] | None:
        """Fold, tell the clients, and queue for the journal: in one go, so that all three have the same order."""
        if self._closed:
            raise TwofoldError(f'session "{self.session_id}" is closed')
        raw = v2.encode(update)  # raises for what is no JSON, before anything was done
        self.state.apply(update)
        stored = None
        try:
            if self._clients and not record_only:
                line = update_line(self.session_id, raw)
                params = v2.UpdateSessionNotification(session_id=self.session_id, update=update)
                for client in self._clients:
                    client.update(params, line)
        finally:  # after the sending: it wakes a thread, which would take the interpreter from us in the middle of that
            if self._writer is not None and type(update) is not v2.Notice:
                stored = self._put = self._writer.put(raw)
                self._unstored += 1
                stored.add_done_callback(self._stored)
        return stored

    def _stored(self, future: asyncio.Future[Appended]) -> None:
        self._unstored -= 1
        self._room.set()
        if not future.cancelled() and (error := future.exception()) is not None and self._journal_error is None:
            self._journal_error = error

    def _check_journal(self) -> None:
        if self._journal_error is not None:
            raise self._journal_error

    async def _flushed(self) -> None:
        """Wait until everything sent so far is stored."""
        if self._put is not None:
            await asyncio.wait([self._put])

    # Asking

    async def request_permission(
        self,
        title: str,
        *,
        options: Sequence[v2.PermissionOption] = ALLOW_OR_REJECT,
        description: str | None = None,
        subject: ToolCallHandle | v2.ToolCallUpdate | v2.RequestPermissionSubject | None = None,
    ) -> v2.PermissionOption | None:
        """Ask the user, and give the option that was chosen; ``None`` for everything that is no choice of one of these.

        ``subject`` says what the permission is for: a tool call (an update of it is applied before the user is asked),
        or a command. The session is in ``requires_action`` meanwhile. With several clients the first answer counts.
        """
        if isinstance(subject, ToolCallHandle):
            subject = v2.ToolCallUpdate(tool_call_id=subject.tool_call_id)
        if isinstance(subject, v2.ToolCallUpdate):
            members = to_json(subject)
            del members["sessionUpdate"]
            subject = v2.ToolCallPermissionSubject(tool_call=members)
        async with self._order:
            if isinstance(subject, v2.ToolCallPermissionSubject):
                self._emit(subject.update(), record_only=True)  # the request itself tells the clients
        request = v2.RequestPermissionRequest(
            session_id=self.session_id,
            title=title,
            description=UNSET if description is None else description,
            subject=UNSET if subject is None else subject,
            options=options,
        )
        self._asking += 1
        try:
            await self._show_asking()
            outcome = await self._ask_all(request)
        finally:
            self._asking -= 1
        await self._show_asking()
        return _chosen(outcome, options)

    async def allowed(
        self,
        title: str,
        *,
        description: str | None = None,
        subject: ToolCallHandle | v2.ToolCallUpdate | v2.RequestPermissionSubject | None = None,
    ) -> bool:
        """Ask the user whether to go on, and give whether they allowed it. See :meth:`request_permission`."""
        chosen = await self.request_permission(title, description=description, subject=subject)
        return chosen is not None and chosen.allows

    async def _show_asking(self) -> None:
        """Let the state of the turn that runs say whether the user is asked. Outside a turn the state is another's."""
        async with self._order:
            in_turn = self._work is not None and not self._work.done() and not self._cancelled
            state = "requires_action" if self._asking else "running"
            if in_turn and self.state.state != v2.StateUpdate(state=state):
                self._emit(v2.StateUpdate(state=state))

    async def _ask_all(self, request: v2.RequestPermissionRequest) -> Any:
        """Ask every client and give the first outcome; the other requests are withdrawn."""
        first: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        calls: list[Call] = []
        open_calls = len(self._clients)

        def then(result: Raw | None, _error: TwofoldError | None) -> None:
            nonlocal open_calls
            open_calls -= 1
            if first.done():
                return
            if result is not None:
                first.set_result(loads(bytes(result)))
            elif open_calls <= 0:
                first.set_result(None)  # nobody can answer

        if not self._clients:
            return None
        for client in list(self._clients):
            call = Call("session/request_permission", request, then)
            calls.append(call)
            ask(client, call)
        self._asked.add(first)
        try:
            return await first
        finally:
            self._asked.discard(first)
            for call in calls:
                call.withdraw()

    # Prompts

    @property
    def waiting_prompts(self) -> int:
        """How many prompts wait for their turn."""
        return len(self._queue)

    async def take_prompt(self) -> Prompt | None:
        """Take the next prompt that waits into the turn that runs, to steer it; ``None`` when none waits.

        It is inserted now, and has no turn of its own: this turn's end is its end.
        """
        return await self._insert(self._queue.popleft()) if self._queue else None

    def _prompt(self, call: Call, content: Sequence[v2.ContentBlock], meta: dict[str, Any] | UnsetType | None) -> None:
        queued = _Queued(call, content, meta)
        self._queue.append(queued)

        def withdrawn() -> None:
            if queued in self._queue:
                self._queue.remove(queued)
                call.fail(RequestError(CANCELLED, "Request cancelled"))

        call.on_withdrawn = withdrawn
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(self._turns())

    async def _insert(self, queued: _Queued) -> Prompt:
        message_id = new_id()
        queued.call.respond(v2.PromptResponse(message_id=message_id))
        meta = queued.meta if isinstance(queued.meta, dict) else UNSET
        said = UNSET if meta is UNSET else alike(meta) or UNSET
        await self.update(v2.UserMessage(message_id=message_id, content=queued.content, meta=said))
        return Prompt(message_id, queued.content, meta)

    async def _turns(self) -> None:
        while self._queue:
            await self._turn(self._queue.popleft())

    async def _turn(self, queued: _Queued) -> None:
        self._cancelled = False
        stop_reason = "end_turn"
        failure: v2.Error | UnsetType = UNSET
        try:
            prompt = await self._insert(queued)
            await self.update(v2.StateUpdate(state="running"))
            if not self._cancelled:
                self._work = asyncio.create_task(self._agent.prompt(self, prompt))
                answer = await self._finished(self._work)
                stop_reason = answer if isinstance(answer, str) else "end_turn"
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # whatever it is: the client waits for the end of its turn
            stop_reason, failure = "error", self._failure(error)
        if self._cancelled:
            stop_reason, failure = "cancelled", UNSET
        await self._flushed()
        if self._journal_error is not None:  # not all of the turn is stored
            stop_reason, failure = "error", self._failure(self._journal_error)
        if stop_reason == "error" and failure is UNSET:  # the author said so, and nothing more
            failure = v2.Error(code=-32603, message="Internal error")
        self._work = None
        with suppress(Exception):  # what is wrong with the journal was told above, and the next turn is to come
            await self.update(v2.StateUpdate(state="idle", stop_reason=stop_reason, error=failure))

    def _failure(self, error: BaseException) -> v2.Error:
        """Give the error that a turn ends with: the author's own words, if they chose some, else fixed ones."""
        if isinstance(error, RequestError):
            data = UNSET if error.data is None else error.data
            return v2.Error(code=error.code, message=error.message, data=data)
        self._agent._turn_failed(self, error)
        return v2.Error(code=-32603, message="Internal error")

    async def _finished(self, work: asyncio.Task[Any]) -> Any:
        await asyncio.wait([work])
        if work.cancelled():
            self._cancelled = True
            return None
        return work.result()

    def _cancel(self) -> None:
        """Stop the turn that runs, refuse the prompts that wait, and withdraw what the user is asked."""
        while self._queue:
            self._queue.popleft().call.fail(RequestError(CANCELLED, "Request cancelled"))
        for outcome in self._asked:
            if not outcome.done():
                outcome.set_result(None)
        if self._loop is not None and not self._loop.done():
            self._cancelled = True
            if self._work is not None and not self._work.done():
                self._work.cancel()

    async def _stop(self) -> None:
        """Cancel, and wait until the final idle was sent."""
        self._cancel()
        await self._at_rest()

    async def _at_rest(self) -> None:
        """Wait until no turn runs."""
        while self._loop is not None and not self._loop.done():
            await asyncio.wait([self._loop])

    # Clients

    def _attach(self, client: Side) -> None:
        if client not in self._clients:
            self._clients.append(client)

    def _detach(self, client: Side) -> None:
        if client in self._clients:
            self._clients.remove(client)

    async def _replay_to(self, client: Side, *, history: bool, then: Callable[[], object]) -> None:
        """Send a client the history, if it asked for that, and the current state (P-4). Live updates wait (P-5).

        ``then`` is called before the first live update that comes after.
        """
        async with self._order:
            updates: list[v2.SessionUpdate] = list(replay(self.state)) if history else []
            for update in updates:
                if isinstance(update, v2.StateUpdate) or (isinstance(update, v2.OtherUpdate) and update.kind == SETUP):
                    continue
                client.update(v2.UpdateSessionNotification(session_id=self.session_id, update=update), None)
                await client.drain()
            state = self.state.state or v2.StateUpdate(state="idle")
            client.update(v2.UpdateSessionNotification(session_id=self.session_id, update=state), None)
            self._attach(client)
            then()

    def _check_option(self, config_id: str, type_: str, value: Any) -> v2.SessionConfigOption:
        """Give the option as it will be. Raises :class:`Malformed` for an option or a value that was not offered."""
        for option in self.state.config_options:
            match option:
                case v2.SessionConfigSelect() if option.config_id == config_id:
                    if type_ != "id" or not isinstance(value, str) or value not in [one.value for one in option.values]:
                        raise Malformed("$.params.value", expected="a value that was offered", found="another one")
                    return replace(option, current_value=value)
                case v2.SessionConfigBoolean() if option.config_id == config_id:
                    if type_ != "boolean" or not isinstance(value, bool):
                        raise Malformed("$.params.value", expected="a boolean", found="something else")
                    return replace(option, current_value=value)
                case _:
                    continue
        raise Malformed("$.params.configId", expected="an option that was offered", found="another one")


def _chosen(outcome: Any, options: Sequence[v2.PermissionOption]) -> v2.PermissionOption | None:
    """Read an outcome. What is not understood, or was not offered, is never approval."""
    match outcome:
        case {"outcome": {"outcome": "selected", "optionId": str(option_id)}}:
            return next((option for option in options if option.option_id == option_id), None)
        case _:
            return None
