"""A v1 client, seen by a v2 agent as a v2 client: its requests become v2's, what it is told becomes v1's.

==========================  ==========================================================================
the v1 client says          the v2 agent hears
==========================  ==========================================================================
session/new                 session/new; commands in the answer are sent as an update after it
session/load                session/resume with replayFrom start, and a new v1 view
session/resume              session/resume without replay
session/prompt              session/prompt; answered at the first idle after the insertion
session/set_mode            session/set_config_option, of the option whose category is ``mode``
session/set_config_option   the same, with the type of the value
authenticate, logout        auth/login, auth/logout
list, close, delete,        the same
cancel, ``_…``
==========================  ==========================================================================

``initialize`` is not here: whoever serves the client answers it. What v1 cannot be told is a loss, and is told to
``lost``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import UNSET, Raw, UnsetType

from twofold.convert import Downgraded, Downgrader, Loss, Policy
from twofold.exceptions import ConnectionLost, Malformed, RequestError, TwofoldError
from twofold.jsonrpc import loads
from twofold.runtime._connection import Connection, Handler, method_not_found
from twofold.runtime._json import part
from twofold.runtime._side import Call, Heard, Remote, Side, ask, v1_update_line
from twofold.runtime._turns import Turns
from twofold.wire import decode, is_array, is_object, to_json, v1, v2

__all__ = ["V1Client", "v1_prompt_answer"]

FLUSH: Final = 0.1
"""Seconds that tool call content waits to be sent, at least, while it grows by less than half: it is sent whole each
time."""

FLUSH_RATE: Final = 64 * 1024
"""Characters a second of content that may be sent so: long content waits longer, and what is sent altogether is bounded
by what came, and by time."""

STOP_REASONS: Final = ("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled")
OPTION_KINDS: Final = ("allow_once", "allow_always", "reject_once", "reject_always")


def v1_prompt_answer(idle: v2.StateUpdate) -> tuple[dict[str, Any] | RequestError, Loss | None]:
    """Give the answer to a v1 prompt whose turn ended with ``idle``, and what could not be said in it."""
    reason = idle.stop_reason
    if reason == "error":
        # In fixed words: the agent's may quote anything. One thing the client can do something about.
        error = idle.error if isinstance(idle.error, v2.Error) else v2.Error(code=-32603, message="Internal error")
        login = error.code == -32000
        answer = RequestError(-32000, "Authentication required") if login else RequestError(-32603, "Internal error")
        if (error.code, error.message) == (answer.code, answer.message) and error.data is UNSET:
            return answer, None
        words = f"{answer.code}, in fixed words"
        return answer, Loss("state_update", None, "$.error", "v1 is told of an error in fixed words", words)
    if reason in STOP_REASONS:
        return {"stopReason": reason}, None
    if not isinstance(reason, str):
        return {"stopReason": "end_turn"}, None
    loss = Loss("state_update", None, "$.stopReason", "v1 does not know this stop reason", "end_turn")
    return {"stopReason": "end_turn"}, loss


class _Sent:
    """A prompt of this client that waits for the end of its turn."""

    __slots__ = ("blocks", "call")

    def __init__(self, call: Call, blocks: int) -> None:
        self.call = call
        self.blocks = blocks


class _View:
    """One session as the v1 client holds it."""

    __slots__ = ("down", "ended", "flush", "mode", "own", "resuming", "turns")

    def __init__(self, policy: Policy) -> None:
        self.down = Downgrader(policy=policy)
        self.turns = Turns()
        self.own: dict[str, int] = {}  # messages that this client's own prompts became → blocks not reported yet
        self.resuming = 0
        self.mode: v2.SessionConfigSelect | None = None
        self.flush: asyncio.TimerHandle | None = None
        self.ended: RequestError | None = None  # why nothing more is told of it


class V1Client:
    """The client's :class:`Side`. ``agent`` is whom it talks to, in v2; let its connection tell :attr:`handler`.

    ``answers_first``: the agent answers a prompt before it reports the message that the prompt became. Of other agents
    a message that is seen for the first time while a prompt waits for its id is taken for that prompt.
    """

    def __init__(
        self,
        connection: Connection,
        agent: Side,
        *,
        policy: Policy | str = Policy.MARK,
        answers_first: bool = False,
        lost: Callable[[str, Loss], object],
        fault: Callable[[TwofoldError], object],
        ended: Callable[[ConnectionLost], object],
    ) -> None:
        self.handler: Handler = Heard(
            None,
            update=lambda _params, _line: None,  # a client sends no updates
            notification=self.told,
            request=self.heard,
            fault=fault,
            ended=self._closed,
        )
        self._ended = ended
        self._connection = connection
        self._remote = Remote(connection)
        self._agent = agent
        self._policy = Policy(policy)
        self._answers_first = answers_first
        self._lost = lost
        self._fault = fault
        self._views: dict[str, _View] = {}
        self._asked = 0

    # From the client

    def heard(self, call: Call) -> None:
        """Ask the agent, in v2's words, what the client asks."""
        match call.method:
            case "initialize":
                self._agent.request(call)
            case "session/new":
                self._ask(call, "session/new", _setup(call.json()), self._opened, after=self._opened_commands)
            case "session/load" | "session/resume":
                self._resume(call)
            case "session/prompt":
                self._prompt(call)
            case "session/set_mode":
                self._set_mode(call)
            case "session/set_config_option":
                params = _object(call.json())
                params["type"] = "boolean" if isinstance(params.get("value"), bool) else "id"
                self._ask(call, call.method, params, _options_answer)
            case "authenticate":
                self._ask(call, "auth/login", call.params, None)
            case "logout":
                self._ask(call, "auth/logout", call.params, None)
            case "session/close" | "session/delete":
                self._close(call)
            case "session/list":
                self._ask(call, call.method, call.params, None)
            case method if method.startswith("_"):
                self._ask(call, method, call.params, None)
            case method:
                raise method_not_found(method)

    def told(self, method: str, params: Raw | UnsetType) -> None:
        """Pass a notification of the client on: they are called the same."""
        self._agent.notify(method, {} if isinstance(params, UnsetType) else params)

    def agent_ended(self, error: ConnectionLost) -> None:
        """Fail the prompts whose turn will not end."""
        for view in self._views.values():
            for sent in view.turns.abandoned():
                sent.call.fail(error)

    def end_view(self, session_id: str, error: RequestError) -> bool:
        """Tell of this session no further: what waits fails with ``error``, and so do prompts until it is loaded.

        Gives whether it was told of until now.
        """
        view = self._views.get(session_id)
        if view is None or view.ended is not None:
            return False
        view.ended = error
        for sent in view.turns.abandoned():
            sent.call.fail(error)
        return True

    def _closed(self, error: ConnectionLost) -> None:
        """Stop waiting for a better time to send: there is nobody to send to."""
        for view in self._views.values():
            if view.flush is not None:
                view.flush.cancel()
        self._ended(error)

    def _ask(
        self,
        call: Call,
        method: str,
        params: Any,
        translate: Callable[[dict[str, Any]], dict[str, Any]] | None,
        *,
        after: Callable[[Raw | None], object] | None = None,
    ) -> None:
        """Ask the agent, and answer the client with what ``translate`` makes of the result; then do ``after``."""

        def then(result: Raw | None, error: TwofoldError | None) -> None:
            try:
                if isinstance(error, RequestError) and error.code == -32601:
                    call.fail(method_not_found(call.method))  # by the name that the client knows
                elif error is not None or translate is None or result is None:
                    call.settle(result, error)
                else:
                    call.respond(translate(loads(bytes(result))))
            except Exception as problem:
                call.fail(problem)
            if after is not None:
                after(result if error is None else None)

        asked = Call(method, params, then)
        call.on_withdrawn = asked.withdraw
        ask(self._agent, asked)

    def _opened(self, result: dict[str, Any]) -> dict[str, Any]:
        """Say the answer to session/new in v1's words; the commands in it follow as an update."""
        session_id = result.get("sessionId")
        if not isinstance(session_id, str):
            raise Malformed("$.result.sessionId", expected="a string", found="something else")
        view = self._views.setdefault(session_id, _View(self._policy))
        return {"sessionId": session_id, **self._attached(session_id, view, result)}

    def _opened_commands(self, result: Raw | None) -> None:
        if result is not None:
            members = loads(bytes(result))
            self._send_commands(members["sessionId"], members.get("availableCommands"))

    def _attached(self, session_id: str, view: _View, result: dict[str, Any]) -> dict[str, Any]:
        """Say the options of an answer in v1's words, those for modes as modes, too."""
        members: dict[str, Any] = {}
        options = result.get("configOptions")
        if options:
            update = v2.read_update(
                {"sessionUpdate": "config_option_update", "configOptions": options}, path="$.result"
            )
            self._note_mode(view, update)
            downgraded = view.down.update(update)
            for converted in downgraded.updates:
                members["configOptions"] = to_json(converted)["configOptions"]
            for loss in downgraded.losses:
                self._lost(session_id, loss)
        if view.mode is not None:
            members["modes"] = {
                "currentModeId": view.mode.current_value,
                "availableModes": [{"id": one.value, "name": one.name} | _described(one) for one in view.mode.values],
            }
        if is_object(result.get("_meta")):
            members["_meta"] = result["_meta"]
        return members

    def _send_commands(self, session_id: str, commands: Any) -> None:
        if commands:
            update = v2.read_update({"sessionUpdate": "available_commands_update", "availableCommands": commands})
            self._tell(session_id, update)

    def _resume(self, call: Call) -> None:
        params = _setup(call.json())
        session_id = params.get("sessionId")
        if not isinstance(session_id, str):
            raise Malformed("$.params.sessionId", expected="a string", found="something else")
        self._flush(session_id)
        old = self._views.get(session_id)
        if call.method == "session/load":  # a new v1 view begins with nothing delivered (V-8)
            params["replayFrom"] = {"type": "start"}
            view = self._views[session_id] = _View(self._policy)
            if old is not None:
                view.turns, view.own = old.turns, old.own
        else:
            view = self._views.setdefault(session_id, _View(self._policy))
        view.resuming += 1
        view.turns.resumes()
        commands: list[Any] = []

        def translate(result: dict[str, Any]) -> dict[str, Any]:
            commands.append(result.get("availableCommands"))
            self._flush(session_id)
            return self._attached(session_id, view, result)

        def after(result: Raw | None) -> None:
            view.resuming -= 1
            if result is not None:
                self._send_commands(session_id, commands[0])
            elif old is None:
                self._views.pop(session_id, None)
            else:
                self._views[session_id] = old
            self._end(session_id, view, view.turns.resumed())

        self._ask(call, "session/resume", params, translate, after=after)

    def _prompt(self, call: Call) -> None:
        params = _object(call.json())
        session_id = params.get("sessionId")
        view = self._views.get(session_id) if isinstance(session_id, str) else None
        if view is None:  # the agent knows what is wrong with it
            self._ask(call, "session/prompt", params, lambda _: {"stopReason": "end_turn"})
            return
        if view.ended is not None:
            raise view.ended
        prompt = params.get("prompt")
        sent = _Sent(call, len(prompt) if is_array(prompt) else 0)

        def then(result: Raw | None, error: TwofoldError | None) -> None:
            if error is not None or result is None:
                view.turns.failed(sent)
                cancelled = isinstance(error, RequestError) and error.code == -32800
                if cancelled and not call.withdrawn:
                    call.respond({"stopReason": "cancelled"})  # in v1 a cancelled prompt is no error
                else:
                    call.fail(error or RequestError(-32603, "Internal error"))
                return
            try:
                answer = decode(v2.PromptResponse, result, path="$.result")
            except TwofoldError as problem:
                view.turns.failed(sent)
                self._fault(problem)
                call.fail(problem)
                return
            message_id = answer.message_id if isinstance(answer.message_id, str) else None
            if message_id is not None:
                view.own.setdefault(message_id, sent.blocks)
            ended = view.turns.inserted(sent, message_id)
            if ended is not None:
                self._answer(str(session_id), sent, ended)

        view.turns.sent(sent)
        asked = Call("session/prompt", params, then)

        def withdrawn() -> None:
            if asked.settled:  # in v1 the request is the turn
                self._agent.notify("session/cancel", {"sessionId": session_id})
            else:
                asked.withdraw()

        call.on_withdrawn = withdrawn
        ask(self._agent, asked)

    def _end(self, session_id: str, view: _View, ended: Sequence[Any]) -> None:
        for sent in ended:
            self._answer(session_id, sent, view.turns.idle)

    def _answer(self, session_id: str, sent: Any, idle: v2.StateUpdate) -> None:
        answer, loss = v1_prompt_answer(idle)
        if loss is not None:
            self._lost(session_id, loss)
        if isinstance(answer, RequestError):
            sent.call.fail(answer)
        else:
            sent.call.respond(answer)

    def _close(self, call: Call) -> None:
        session_id = part(call.json()).get("sessionId")

        def after(result: Raw | None) -> None:
            if result is not None and isinstance(session_id, str):
                self._views.pop(session_id, None)

        self._ask(call, call.method, call.params, None, after=after)

    def _set_mode(self, call: Call) -> None:
        params = _object(call.json())
        session_id = params.get("sessionId")
        view = self._views.get(session_id) if isinstance(session_id, str) else None
        if view is None or view.mode is None:
            raise method_not_found(call.method)
        asked = {
            "sessionId": params.get("sessionId"),
            "configId": view.mode.config_id,
            "type": "id",
            "value": params.get("modeId"),
        }
        self._ask(call, "session/set_config_option", asked, lambda _: {})

    # To the client

    async def drain(self) -> None:
        """Wait while the client does not read."""
        await self._connection.drain()

    def notify(self, method: str, params: Any) -> None:
        """Tell of what both versions call the same; other notifications mean nothing in v1."""
        if method.startswith("_") or method == "elicitation/complete":
            self._remote.notify(method, params)

    def update(self, params: v2.UpdateSessionNotification, line: bytes | None) -> Awaitable[object] | None:
        """Tell of an update, as far as v1 can say it."""
        session_id, update = params.session_id, params.update
        view = self._views.get(session_id)
        if view is None:
            view = self._views[session_id] = _View(self._policy)
        if view.ended is not None:
            return None
        result = view.down.update(update)
        if not self._is_echo(view, update):
            if result.unchanged and line is not None:
                self._connection.send(line)
            else:
                self._send(session_id, result, params.meta)
        for loss in result.losses:
            self._lost(session_id, loss)
        if view.down.pending and view.flush is None:
            delay = max(FLUSH, view.down.waiting / FLUSH_RATE)
            view.flush = asyncio.get_running_loop().call_later(delay, self._flush, session_id)
        if isinstance(update, v2.ConfigOptionUpdate):
            self._note_mode(view, update, session_id)
        if isinstance(update, v2.StateUpdate) and view.down.pending:
            self._flush(session_id)
        self._end(session_id, view, view.turns.update(update))
        return None

    def _tell(self, session_id: str, update: v2.SessionUpdate) -> None:
        """Tell of an update that is no message of its own."""
        self.update(v2.UpdateSessionNotification(session_id=session_id, update=update), None)

    def _send(self, session_id: str, result: Downgraded, meta: dict[str, Any] | UnsetType | None = UNSET) -> None:
        for one in result.updates:
            params = v1.SessionNotification(session_id=session_id, update=one, meta=meta)
            self._connection.send(v1_update_line(params))

    def _is_echo(self, view: _View, update: v2.SessionUpdate) -> bool:
        """Whether this reports a prompt of this very client: v1 clients show those by themselves.

        What comes for it when all of it was reported is told like anything else. A replay shows it, too.
        """
        if not isinstance(update, v2.UserMessage | v2.UserMessageChunk):
            return False
        waiting: Any = view.turns.waiting
        whole = isinstance(update, v2.UserMessage)
        if whole and waiting and not self._answers_first and update.message_id not in view.own:
            view.own[update.message_id] = waiting[0].blocks
        left = view.own.get(update.message_id, 0)
        if not left or (whole and not update.content):
            return False
        view.own[update.message_id] = 0 if whole else left - 1
        return not view.resuming

    def _flush(self, session_id: str) -> None:
        view = self._views.get(session_id)
        if view is None:
            return
        if view.flush is not None:
            view.flush.cancel()
            view.flush = None
        if view.ended is not None:
            return
        result = view.down.flush()
        self._send(session_id, result)
        for loss in result.losses:
            self._lost(session_id, loss)

    def _note_mode(self, view: _View, update: v2.SessionUpdate, session_id: str | None = None) -> None:
        """Keep the option that stands for v1's modes, and tell of its value."""
        if not isinstance(update, v2.ConfigOptionUpdate):
            return
        before, view.mode = view.mode, None
        for option in update.config_options:
            if isinstance(option, v2.SessionConfigSelect) and option.category == "mode":
                view.mode = option
                break
        if session_id is None or view.mode is None:
            return
        if before is None or before.current_value != view.mode.current_value:
            mode = v1.CurrentModeUpdate(current_mode_id=view.mode.current_value)
            self._send(session_id, Downgraded((mode,)))

    def request(self, call: Call) -> None:
        """Ask the client in v1's words."""
        match call.method:
            case "session/request_permission":
                self._ask_permission(call)
            case "elicitation/create":
                self._remote.request(call)
            case method if method.startswith("_"):
                self._remote.request(call)
            case method:
                call.fail(method_not_found(method))

    def _ask_permission(self, call: Call) -> None:
        request = decode(v2.RequestPermissionRequest, call.params)
        session_id = request.session_id
        view = self._views.setdefault(session_id, _View(self._policy))
        if view.ended is not None:  # the client cannot be asked about what it was not told
            call.respond({"outcome": {"outcome": "cancelled"}})
            return
        self._flush(session_id)
        tool_call, losses = self._tool_call(view, request)
        for loss in losses:
            self._lost(session_id, loss)
        options: list[Any] = []
        for index, option in enumerate(request.options):
            if option.kind in OPTION_KINDS:
                options.append(to_json(option))
            else:
                where, reason = f"$.options[{index}].kind", "v1 has no option of this kind"
                self._lost(session_id, _permission_loss(tool_call["toolCallId"], where, reason, None))
        params: dict[str, Any] = {"sessionId": session_id, "toolCall": tool_call, "options": options}
        if is_object(request.meta):
            params["_meta"] = request.meta
        asked = Call(call.method, params, call.settle)
        call.on_withdrawn = asked.withdraw
        self._remote.request(asked)

    def _tool_call(self, view: _View, request: v2.RequestPermissionRequest) -> tuple[dict[str, Any], Sequence[Loss]]:
        """Give what v1 is asked about: a tool call, whatever the subject is. It takes that for an update."""
        losses: Sequence[Loss] = ()
        lost: list[tuple[str, str, str | None]] = []  # path, reason, what is sent instead
        members: dict[str, Any] = {}
        match request.subject:
            case v2.ToolCallPermissionSubject():
                update = request.subject.update()
                result = view.down.update(update)
                losses = result.losses
                for one in result.updates:
                    if isinstance(one, v1.ToolCall):  # first sight: a v1 client knows no call that it was not told of
                        self._send(request.session_id, Downgraded((one,)))
                    members |= to_json(one)
                members["toolCallId"] = update.tool_call_id
                members.pop("sessionUpdate", None)
            case v2.CommandPermissionSubject() as subject:
                members["kind"] = "execute"
                members["rawInput"] = {"command": subject.command, "cwd": subject.cwd}
                if isinstance(subject.tool_call_id, str):
                    members["toolCallId"] = subject.tool_call_id
                lost.append(("$.subject", "v1 asks about tool calls only", "a tool call"))
            case v2.OtherRequestPermissionSubject():
                lost.append(("$.subject", "v1 does not know this subject", "the title alone"))
            case _:
                lost.append(("$.subject", "v1 asks about tool calls only", "a tool call"))
        if "toolCallId" not in members:
            self._asked += 1
            members["toolCallId"] = f"permission-{self._asked}"
        held = view.down.tool_call(members["toolCallId"])
        members["title"] = request.title
        if held is not None and held.title != request.title:
            lost.append(("$.title", "v1 has one title, the tool call's", "the tool call's title"))
        if isinstance(request.description, str):
            if held is not None and held.content:
                lost.append(("$.description", "v1 has no place for it beside the content", None))
            else:
                members["content"] = [{"type": "content", "content": {"type": "text", "text": request.description}}]
                reason = "v1 has no description, but the tool call's content"
                lost.append(("$.description", reason, "the tool call's content"))
        return members, (*losses, *(_permission_loss(members["toolCallId"], *one) for one in lost))


def _permission_loss(tool_call_id: str, path: str, reason: str, sent: str | None) -> Loss:
    return Loss("session/request_permission", tool_call_id, path, reason, sent)


def _object(value: Any) -> dict[str, Any]:
    if not is_object(value):
        raise Malformed("$.params", expected="an object", found="an array")
    return value


def _setup(value: Any) -> dict[str, Any]:
    """In v1 an MCP server over stdio has no type."""
    params = _object(value)
    servers = params.get("mcpServers")
    if is_array(servers):
        params["mcpServers"] = [
            {"type": "stdio", **server} if is_object(server) and "type" not in server else server for server in servers
        ]
    return params


def _options_answer(result: dict[str, Any]) -> dict[str, Any]:
    update = v2.read_update(
        {"sessionUpdate": "config_option_update", "configOptions": result.get("configOptions")}, path="$.result"
    )
    options: list[Any] = []
    for converted in Downgrader(policy=Policy.MARK).update(update).updates:
        options += to_json(converted)["configOptions"]
    return {"configOptions": options}


def _described(option: v2.SessionConfigSelectOption) -> dict[str, Any]:
    return {"description": option.description} if isinstance(option.description, str) else {}
