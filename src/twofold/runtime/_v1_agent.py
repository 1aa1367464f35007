"""A v1 agent, seen by a v2 client as a v2 agent: what it is asked becomes v1's, what it says becomes v2's.

==========================  ==========================================================================
the v2 client says          the v1 agent hears
==========================  ==========================================================================
session/new                 session/new
session/resume, replay      session/load
session/resume, no replay   session/resume; session/load where there is none, its replay not shown
session/prompt              session/prompt, one at a time: the others wait and are not inserted
session/set_config_option   the same; session/set_mode for the option made of the agent's modes
auth/login, auth/logout     authenticate, logout
session/close               session/close; of an agent without it, what runs is cancelled
list, delete, cancel,       the same
``_…``
==========================  ==========================================================================

Around a prompt it reports what v1 has no update for: the user message, ``running``, ``requires_action`` while a
permission is asked, and ``idle`` when the agent has answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import UNSET, Raw, Struct, UnsetType

from twofold.convert import Loss, Upgrader
from twofold.exceptions import ConnectionLost, Malformed, RequestError, TwofoldError
from twofold.jsonrpc import CANCELLED, dumps, loads
from twofold.runtime._connection import Connection, Handler, method_not_found, session_not_found, wire_error
from twofold.runtime._json import objects, part
from twofold.runtime._side import Call, Heard, Remote, Side, ask
from twofold.wire import decode, is_object, to_json, v1, v2

__all__ = ["MODE", "NOTICE", "V1Agent"]

MODE: Final = "mode"
"""The id of the configuration option made of a v1 agent's modes."""

CLOSE_DEADLINE: Final = 5.0
"""Seconds that an agent has to end a turn when the session is closed."""

_EARLY: Final = 100
"""Sessions that no answer has named yet of which it is remembered what was said."""

NOTICE: Final = "twofold/notice"
"""The ``_meta`` key of what is no part of a session's history, and is shown also where its replay is not."""

_CONVERSATION: Final = (
    v2.ContentChunk,
    v2.MessageUpdate,
    v2.ToolCallUpdate,
    v2.ToolCallContentChunk,
    v2.PlanUpdate,
)


def _is_unasked(update: v2.SessionUpdate) -> bool:
    """Whether an update tells of the conversation, and not of a session that was begun anew."""
    return isinstance(update, _CONVERSATION) and NOTICE not in (update.meta or ())


class _Prompt(Struct, eq=False):
    call: Call
    params: dict[str, Any]
    content: Any


class _Session:
    """What is known of one session of the agent."""

    __slots__ = ("asking", "at_rest", "mode", "options", "prompts", "quiet", "resuming", "running", "titles", "up")

    def __init__(self) -> None:
        self.up = Upgrader()
        self.prompts: deque[_Prompt] = deque()
        self.running: _Prompt | None = None
        self.asking: list[tuple[Call, Call]] = []  # permission requests: the agent's, and ours of the client
        self.titles: dict[str, str] = {}  # of tool calls, for permission requests that name none
        self.mode: dict[str, Any] | None = None  # the option made of the agent's modes
        self.options: list[Any] = []  # the agent's own, in v2's words
        self.quiet = False  # a replay that nobody asked for is under way
        self.resuming = 0  # loads and resumes under way
        self.at_rest: Callable[[], object] | None = None  # called when what runs has ended: the session is to close

    def all_options(self) -> list[Any]:
        """Give the options that the client is told of: modes are one of them, unless the agent has an option so."""
        if self.mode is None or any(option.get("category") == "mode" for option in self.options):
            return self.options
        return [self.mode, *self.options]


class V1Agent:
    """The agent's :class:`Side`. ``client`` is whom it talks to, in v2; let its connection tell :attr:`handler`.

    ``initialized`` is the agent's answer to ``initialize``, in v1's words.
    """

    def __init__(
        self,
        connection: Connection,
        client: Side,
        initialized: dict[str, Any],
        *,
        lost: Callable[[str, Loss], object],
        fault: Callable[[TwofoldError], object],
        ended: Callable[[ConnectionLost], object],
    ) -> None:
        self.handler: Handler = Heard(
            v1.CODEC,
            update=lambda params, _line: self.heard(params),
            notification=self.told,
            request=self.asked,
            fault=fault,
            ended=ended,
        )
        self._connection = connection
        self._remote = Remote(connection)
        self._client = client
        self._lost = lost
        self._sessions: dict[str, _Session] = {}
        self._early: dict[str, _Session] = {}  # heard of before an answer has named them
        self._opening = 0  # requests under way that may name one
        self._number = 0
        self.tell_of_end = False
        """Whether a turn that the agent's end cut short is told as ended, with an error. (Else who asked knows.)"""
        self._loads = part(initialized, "agentCapabilities").get("loadSession") is True
        session = part(initialized, "agentCapabilities", "sessionCapabilities")
        self._can = {name for name in ("list", "delete", "resume", "close") if is_object(session.get(name))}

    # What the client asks

    def request(self, call: Call) -> None:
        """Ask the agent, in v1's words, what the client asks."""
        match call.method:
            case "session/new":
                params = _setup(call.json())
                self._opening += 1
                self._ask(call, "session/new", params, self._opened, after=self._no_longer_opening)
            case "session/resume":
                self._resume(call)
            case "session/prompt":
                self._prompt(call)
            case "session/list":
                if "list" not in self._can:
                    raise method_not_found(call.method)
                self._ask(call, call.method, call.params, None)
            case "session/delete":
                if "delete" not in self._can:
                    raise method_not_found(call.method)
                self._delete(call)
            case "session/close":
                self._close(call)
            case "session/set_config_option":
                self._set_option(call)
            case "auth/login":
                self._ask(call, "authenticate", call.params, None)
            case "auth/logout":
                self._ask(call, "logout", call.params, None)
            case method if method.startswith("_"):
                self._ask(call, method, call.params, None)
            case method:
                raise method_not_found(method)

    def notify(self, method: str, params: Any) -> None:
        """Tell the agent what is called the same in v1."""
        if method == "session/cancel":
            raw = params if isinstance(params, Raw) else Raw(dumps(params))
            session_id = decode(v2.SessionRequest, raw).session_id
            self._connection.notify(method, params)  # first: an agent may take a cancelled permission for a refusal
            self._cancel(session_id)
        elif method.startswith("_"):
            self._connection.notify(method, params)

    def update(self, params: v2.UpdateSessionNotification, line: bytes | None) -> Awaitable[object] | None:
        """An agent is told of no updates."""

    async def drain(self) -> None:
        """Wait while the agent does not read."""
        await self._connection.drain()

    def _ask(
        self,
        call: Call,
        method: str,
        params: Any,
        translate: Callable[[dict[str, Any]], dict[str, Any]] | None,
        *,
        after: Callable[[bool], object] | None = None,
    ) -> None:
        def then(result: Raw | None, error: TwofoldError | None) -> None:
            try:
                if error is not None or translate is None:
                    call.settle(result, error)
                else:
                    members = None if result is None else loads(bytes(result))
                    call.respond(translate(members if is_object(members) else {}))
            except Exception as problem:
                call.fail(problem)
            if after is not None:
                after(error is None)

        asked = Call(method, params, then)
        call.on_withdrawn = asked.withdraw
        ask(self._remote, asked)

    def _opened(self, result: dict[str, Any]) -> dict[str, Any]:
        session_id = result.get("sessionId")
        if not isinstance(session_id, str):
            raise Malformed("$.result.sessionId", expected="a string", found="something else")
        session = self._sessions.setdefault(session_id, self._early.pop(session_id, _Session()))
        return {"sessionId": session_id, **self._attached(session, session_id, result)}

    def _no_longer_opening(self, _ok: bool) -> None:
        self._opening -= 1
        if not self._opening:
            self._early.clear()

    def _attached(self, session: _Session, session_id: str, result: dict[str, Any]) -> dict[str, Any]:
        """Say the options of an answer in v2's words; modes are one of them."""
        if result.get("configOptions"):
            update = v1.read_update(
                {"sessionUpdate": "config_option_update", "configOptions": result["configOptions"]}, path="$.result"
            )
            for one in self._converted(session, session_id, update):
                session.options = to_json(one)["configOptions"]
        if "modes" in result:
            session.mode = _mode_option(result["modes"])
        options = session.all_options()
        members: dict[str, Any] = {"configOptions": options} if options else {}
        if is_object(result.get("_meta")):
            members["_meta"] = result["_meta"]
        return members

    def _resume(self, call: Call) -> None:
        params = _setup(call.json())
        session_id = params.get("sessionId")
        if not isinstance(session_id, str):
            raise Malformed("$.params.sessionId", expected="a string", found="something else")
        cursor = params.pop("replayFrom", None)
        if cursor is not None and (not is_object(cursor) or cursor.get("type") != "start"):
            raise Malformed("$.params.replayFrom.type", expected='"start"', found="another cursor")
        if cursor is not None and not self._loads:
            raise Malformed("$.params.replayFrom", expected="nothing: the agent cannot replay", found="a cursor")
        if cursor is None and "resume" not in self._can and not self._loads:
            raise method_not_found(call.method)
        load = cursor is not None or "resume" not in self._can
        known = session_id in self._sessions
        session = self._sessions.setdefault(session_id, _Session())
        before = session.up
        if cursor is not None:
            session.up = before.restarted()
        session.quiet = cursor is None and (load or session.running is None)  # what runs may go on meanwhile
        session.resuming += 1

        def translate(result: dict[str, Any]) -> dict[str, Any]:
            session.quiet = False
            state = "idle" if session.running is None else "requires_action" if session.asking else "running"
            self._tell(session_id, v2.StateUpdate(state=state))  # P-4: after the replay, before the answer
            return self._attached(session, session_id, result)

        def after(ok: bool) -> None:
            session.quiet = False
            session.resuming -= 1
            if not ok:
                session.up = before
                if not known:
                    self._sessions.pop(session_id, None)
            self._next(session_id, session)

        self._ask(call, "session/load" if load else "session/resume", params, translate, after=after)

    def _prompt(self, call: Call) -> None:
        request = decode(v2.PromptRequest, call.params)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise session_not_found(request.session_id)
        prompt = _Prompt(call, call.json(), request.prompt)
        session.prompts.append(prompt)

        def withdrawn() -> None:
            if prompt in session.prompts:
                session.prompts.remove(prompt)
                call.fail(RequestError(CANCELLED, "Request cancelled"))

        call.on_withdrawn = withdrawn
        self._next(request.session_id, session)

    def _next(self, session_id: str, session: _Session) -> None:
        """Insert the next prompt, when none runs and no replay is under way."""
        if session.running is not None or session.resuming or not session.prompts:
            return
        prompt = session.running = session.prompts.popleft()
        self._number += 1
        key = self._number
        said = session.up.prompt_sent(key, prompt.content)
        message = said[0]
        prompt.call.respond(v2.PromptResponse(message_id=getattr(message, "message_id", UNSET)))
        for update in said:
            self._tell(session_id, update)

        def then(result: Raw | None, error: TwofoldError | None) -> None:
            session.running = None
            said = session.up.prompt_answered(key, "error" if error is not None else _stop_reason(result))
            if isinstance(error, ConnectionLost) and not self.tell_of_end:
                return
            for update in said:
                if error is not None:
                    code, words, data = wire_error(error)
                    failure = v2.Error(code=code, message=words, data=UNSET if data is None else data)
                    update = v2.StateUpdate(state="idle", stop_reason="error", error=failure)
                self._tell(session_id, update)
            at_rest, session.at_rest = session.at_rest, None
            if at_rest is not None:
                at_rest()
            self._next(session_id, session)

        self._remote.request(Call("session/prompt", prompt.params, then))

    def _cancel(self, session_id: str) -> None:
        """Refuse the prompts that wait, and withdraw what the client is asked."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        while session.prompts:
            session.prompts.popleft().call.fail(RequestError(CANCELLED, "Request cancelled"))
        for asked, ours in list(session.asking):
            asked.respond({"outcome": {"outcome": "cancelled"}})
            ours.withdraw()

    def _delete(self, call: Call) -> None:
        session_id = decode(v2.SessionRequest, call.params).session_id

        def after(ok: bool) -> None:
            if ok:
                self._sessions.pop(session_id, None)

        self._ask(call, call.method, call.params, None, after=after)

    def _close(self, call: Call) -> None:
        """Close a session. What runs is cancelled first, and the answer comes after its idle."""
        session_id = decode(v2.SessionRequest, call.params).session_id
        session = self._sessions.get(session_id)

        def close() -> None:
            if "close" in self._can:
                self._ask(call, call.method, call.params, None, after=lambda _: self._sessions.pop(session_id, None))
            else:
                self._sessions.pop(session_id, None)
                call.respond()

        if session is None or session.running is None:
            close()
            return
        self._connection.notify("session/cancel", {"sessionId": session_id})
        self._cancel(session_id)

        def late() -> None:
            session.at_rest = None
            self._tell(session_id, v2.StateUpdate(state="idle", stop_reason="cancelled"))
            close()

        timer = asyncio.get_running_loop().call_later(CLOSE_DEADLINE, late)

        def at_rest() -> None:
            timer.cancel()
            close()

        session.at_rest = at_rest

    def _set_option(self, call: Call) -> None:
        request = decode(v2.SetSessionConfigOptionRequest, call.params)
        session = self._sessions.get(request.session_id)
        if session is not None and session.mode is not None and request.config_id == MODE:
            params = {"sessionId": request.session_id, "modeId": request.value}
            mode = {**session.mode, "currentValue": request.value}

            def chosen(_: dict[str, Any]) -> dict[str, Any]:
                session.mode = mode
                return {"configOptions": session.all_options()}

            self._ask(call, "session/set_mode", params, chosen)
            return
        params = call.json()
        if params.get("type") == "id":
            del params["type"]

        def translate(result: dict[str, Any]) -> dict[str, Any]:
            return self._attached(session or _Session(), request.session_id, result)

        self._ask(call, call.method, params, translate)

    # What the agent says

    def heard(self, params: v1.SessionNotification) -> Awaitable[object] | None:
        """Tell the client of an update."""
        session = self._sessions.get(params.session_id) or self._early.get(params.session_id)
        if session is None:  # it may come before the answer that names the session
            session = _Session()
            if self._opening and len(self._early) < _EARLY:
                self._early[params.session_id] = session
        update = params.update
        if isinstance(update, v1.ToolCall | v1.ToolCallUpdate) and isinstance(update.title, str):
            session.titles[update.tool_call_id] = update.title
        if isinstance(update, v1.CurrentModeUpdate) and session.mode is not None:
            session.mode = {**session.mode, "currentValue": update.current_mode_id}
            options = {"sessionUpdate": "config_option_update", "configOptions": session.all_options()}
            return self._tell(params.session_id, v2.read_update(options))
        waiting = None
        for one in self._converted(session, params.session_id, update):
            if isinstance(one, v2.ConfigOptionUpdate):
                told = to_json(one)
                session.options = told["configOptions"]
                one = v2.read_update({**told, "configOptions": session.all_options()})
            if session.quiet and _is_unasked(one):
                continue
            waiting = self._tell(params.session_id, one, params.meta) or waiting
        return waiting

    def _converted(self, session: _Session, session_id: str, update: v1.SessionUpdate) -> Sequence[v2.SessionUpdate]:
        upgraded = session.up.update(update)
        for loss in upgraded.losses:
            self._lost(session_id, loss)
        return upgraded.updates

    def _tell(
        self, session_id: str, update: v2.SessionUpdate, meta: dict[str, Any] | UnsetType | None = UNSET
    ) -> Awaitable[object] | None:
        return self._client.update(v2.UpdateSessionNotification(session_id=session_id, update=update, meta=meta), None)

    def asked(self, call: Call) -> None:
        """Ask the client, in v2's words, what the agent asks."""
        match call.method:
            case "session/request_permission":
                self._ask_permission(call)
            case "elicitation/create":
                self._pass(call)
            case method if method.startswith("_"):
                self._pass(call)
            case method:  # the client's files and terminals among them: none were offered
                raise method_not_found(method)

    def told(self, method: str, params: Raw | UnsetType) -> None:
        """Pass a notification of the agent on."""
        if method.startswith("_") or method == "elicitation/complete":
            self._client.notify(method, {} if isinstance(params, UnsetType) else params)

    def _pass(self, call: Call) -> None:
        asked = Call(call.method, call.params, call.settle)
        call.on_withdrawn = asked.withdraw
        ask(self._client, asked)

    def _ask_permission(self, call: Call) -> None:
        params = part(call.json())
        session_id, tool_call = params.get("sessionId"), params.get("toolCall")
        if not isinstance(session_id, str):
            raise Malformed("$.params.sessionId", expected="a string", found="something else")
        if not is_object(tool_call):
            raise Malformed("$.params.toolCall", expected="an object", found="something else")
        session = self._sessions.get(session_id)
        if session is None:
            raise session_not_found(session_id)
        session.up.permission_requested()
        update = v1.read_update({**tool_call, "sessionUpdate": "tool_call_update"}, path="$.params.toolCall")
        subject: dict[str, Any] = {}
        for one in self._converted(session, session_id, update):
            subject = to_json(one)
            del subject["sessionUpdate"]
        title = tool_call.get("title")
        if not isinstance(title, str) or not title:
            title = session.titles.get(str(tool_call.get("toolCallId")), "The agent asks for a permission")
        request: dict[str, Any] = {
            "sessionId": session_id,
            "title": title,
            "subject": {"type": "tool_call", "toolCall": subject},
            "options": params.get("options"),
        }
        if is_object(params.get("_meta")):
            request["_meta"] = params["_meta"]

        def then(result: Raw | None, error: TwofoldError | None) -> None:
            session.asking.remove(pair)
            if not session.asking and session.running is not None and not call.settled:
                self._tell(session_id, v2.StateUpdate(state="running"))
            call.settle(result, error)

        ours = Call(call.method, request, then)
        pair = (call, ours)
        if not session.asking and session.running is not None:
            self._tell(session_id, v2.StateUpdate(state="requires_action"))
        session.asking.append(pair)
        call.on_withdrawn = ours.withdraw
        ask(self._client, ours)


def _stop_reason(result: Raw | None) -> str:
    match None if result is None else loads(bytes(result)):
        case {"stopReason": str(reason)}:
            return reason
        case _:
            return "end_turn"


def _setup(value: Any) -> dict[str, Any]:
    """In v1 there is always a list of MCP servers, and one over stdio has no type."""
    if not is_object(value):
        raise Malformed("$.params", expected="an object", found="an array")
    servers: list[Any] = []
    for server in objects(value.get("mcpServers")):
        if server.get("type") == "stdio":
            servers.append({"args": [], "env": [], **{name: held for name, held in server.items() if name != "type"}})
        else:
            servers.append({"headers": [], **server})
    return {**value, "mcpServers": servers}


def _mode_option(modes: Any) -> dict[str, Any] | None:
    """Make the option that stands for a v1 agent's modes."""
    match modes:
        case {"currentModeId": str(current), "availableModes": [_, *_] as available}:
            values = [
                {"value": mode.get("id"), **{name: mode[name] for name in ("name", "description") if name in mode}}
                for mode in available
                if is_object(mode)
            ]
            option = {
                "type": "select",
                "configId": MODE,
                "name": "Mode",
                "category": "mode",
                "currentValue": current,
                "options": values,
            }
            update = {"sessionUpdate": "config_option_update", "configOptions": [option]}
            v2.read_update(update, path="$.result.modes")  # raises Malformed
            return option
        case _:
            return None
