"""Two connections, one between: a client of either version in front, an agent of either version behind.

What happens depends on the version that the client asks for and on what the agent answers:

=====================  =====================  ============================================================
the client asks        the agent answers      the bridge
=====================  =====================  ============================================================
1                      1                      passes bytes on as they are, both ways
2                      2, with ``info``       passes bytes on as they are, both ways
1                      an error, or 2         starts the agent again asking for 2, and converts
2                      1                      goes on with that, and converts
2                      2, without ``info``    starts the agent again asking for 1, and converts
2                      an error               starts the agent again asking for 1, and converts
=====================  =====================  ============================================================

With ``agent_version`` the agent is asked for that version in the first place, and what it answers is final.

However a conversation ends, what either side asked and will not be answered is answered with an error: the agent has
ended, the client has, or the bridge is stopped (by cancelling :meth:`Bridge.run`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import IO, Any, Final, Literal, TypeAlias

from msgspec import Raw, Struct, UnsetType

from twofold.bridge._agent_end import AgentEnd
from twofold.bridge._client_end import ClientEnd
from twofold.bridge._lines import Fragment, Lines
from twofold.bridge._memory import Memory
from twofold.bridge._passing import Passing, frame_of, refusal
from twofold.bridge._record import Recorder
from twofold.convert import Loss, Policy
from twofold.exceptions import (
    ConnectionLost,
    HandshakeFailed,
    InvalidFrame,
    Malformed,
    ParseError,
    RequestError,
    TwofoldError,
)
from twofold.fold import LOSS, Revision
from twofold.journal import Journal
from twofold.jsonrpc import DEFAULT_LIMIT, ErrorResponse, Id, Request, Response, dumps, encode, loads, parse
from twofold.runtime import ProcessTransport, StreamTransport
from twofold.runtime._connection import Connection, Incoming
from twofold.runtime._process import own_stdio
from twofold.runtime._side import Call, Inbound, Remote
from twofold.runtime._v1_agent import V1Agent
from twofold.runtime._v1_client import V1Client
from twofold.runtime._versions import (
    UNSUPPORTED,
    downgrade_initialize,
    downgrade_initialized,
    upgrade_initialize,
    upgrade_initialized,
)
from twofold.wire import is_object, v2

__all__ = ["Bridge", "Report"]

Report: TypeAlias = Callable[[str, Mapping[str, Any]], object]
"""Hears what happens: the name of an event, and facts about it (never content)."""

_HANDSHAKE: Final = "twofold-initialize"
_REASON: Final = "the agent said what protocol version 1 cannot say; load the session again to see it as it is"
_VIEW_ENDED: Final = RequestError(-32603, "Internal error", {"reason": _REASON})


class _Asked(Struct):
    """The client's ``initialize``."""

    id: Id
    line: bytes
    params: dict[str, Any]
    version: Literal[1, 2]


class Bridge:
    """Puts the agent that ``command`` starts behind the client at the other end of ``client``.

    ``client`` is standard input and output when not given. ``journal`` records what passes; it is closed at the end.
    ``on_loss``: ``mark`` shows a v1 client that something was corrected or withdrawn; ``close`` ends its view of the
    session at the first thing that v1 cannot say. ``refuse_client_tools`` refuses a v1 client that offers files or
    terminals to an agent that cannot use them. ``report`` hears what happens. Seconds: ``start_timeout`` until the
    agent has answered ``initialize``, ``drain_timeout`` for what is under way when the client has ended, ``grace`` for
    each step of ending the agent.
    """

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        client: StreamTransport | None = None,
        journal: Journal | None = None,
        on_loss: Literal["mark", "close"] = "mark",
        agent_version: Literal[1, 2] | None = None,
        refuse_client_tools: bool = False,
        report: Report | None = None,
        revision: Revision | str = Revision.RFD,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        stderr: int | IO[Any] | None = None,
        start_timeout: float = 60.0,
        drain_timeout: float = 5.0,
        grace: float = 3.0,
        line_limit: int = DEFAULT_LIMIT,
    ) -> None:
        self.losses = 0
        """How many things the client could not be told."""
        self.failure: str | None = None
        """What went wrong, when something did."""
        self._command = command
        self._given = client
        self._journal = journal
        self._on_loss = on_loss
        self._agent_version = agent_version
        self._refuse_client_tools = refuse_client_tools
        self._tell = report
        self._revision = Revision(revision)
        self._start = {"cwd": cwd, "env": env, "stderr": stderr, "line_limit": line_limit, "grace": grace}
        self._start_timeout = start_timeout
        self._drain_timeout = drain_timeout
        self._line_limit = line_limit
        self._recorder: Recorder | None = None
        self._client: StreamTransport
        self._agent_end: AgentEnd | None = None
        self._why = ConnectionLost("the bridge was stopped")  # what is not answered is not

    async def run(self) -> bool:
        """Serve until either side ends; gives whether all went well (:attr:`failure` says what did not).

        Cancel it to stop: both sides are told, and the agent is ended, before it is over.
        """
        self._client = self._given or await own_stdio(line_limit=self._line_limit)
        if self._journal is not None:
            loop = asyncio.get_running_loop()
            say = partial(loop.call_soon_threadsafe, partial(self._say, "journal"))
            self._recorder = Recorder(self._journal, revision=self._revision, report=say)
        try:
            await self._serve()
        except (HandshakeFailed, ConnectionLost) as error:
            self._fail(str(error))
        except asyncio.CancelledError:
            self._report("stopped")
            raise
        except Exception as error:
            self._fail(f"the bridge itself failed with {type(error).__name__}")
            raise
        finally:
            await _to_its_end(self._close())
        return self.failure is None

    async def _close(self) -> None:
        if self._agent_end is not None:
            await self._agent_end.close()
        await self._client.close()
        if self._recorder is not None:
            await asyncio.to_thread(self._recorder.close)
        self._report("end", losses=self.losses, failure=self.failure)

    def _fail(self, words: str) -> None:
        if self.failure is None:
            self.failure = words
            self._say("failure", words)

    def _say(self, event: str, words: str) -> None:
        self._report(event, words=words)

    def _report(self, event: str, **facts: Any) -> None:
        if self._tell is not None:
            self._tell(event, facts)

    # Beginning

    async def _serve(self) -> None:
        """Talk until that is over, or nobody listens any more."""
        talk = asyncio.create_task(self._talk())
        gone = asyncio.create_task(self._client.wait_gone())
        try:
            await asyncio.wait((talk, gone), return_when=asyncio.FIRST_COMPLETED)
            if not talk.done():
                self._why = ConnectionLost("the client is gone")
        finally:
            for task in (talk, gone):
                task.cancel()
            await asyncio.gather(talk, gone, return_exceptions=True)
        if not talk.cancelled():
            talk.result()

    async def _talk(self) -> None:
        starting = asyncio.create_task(self._started())  # while the client is still about to speak
        try:
            asked = await self._first()
            if asked is None:
                await starting
            else:
                go_on = await self._begun(asked, starting)
                await go_on()
        finally:
            starting.cancel()
            with suppress(asyncio.CancelledError, ConnectionLost):
                await starting

    async def _begun(self, asked: _Asked, starting: asyncio.Task[None]) -> Callable[[], Awaitable[None]]:
        """Agree with both sides on versions; give how to go on. Whatever happens, the client is answered."""
        agreed = False
        error: TwofoldError = self._why
        try:
            async with asyncio.timeout(self._start_timeout):
                await starting
                go_on = await self._agree(asked)
                agreed = True
                return go_on
        except TimeoutError:
            error = HandshakeFailed(f"{self._agent.name} did not answer initialize in {self._start_timeout:g} seconds")
            raise error from None
        except (HandshakeFailed, ConnectionLost) as problem:
            error = problem
            raise
        finally:
            if not agreed:
                self._client.send(refusal(asked.id, error))

    async def _started(self) -> None:
        process = await ProcessTransport.start(self._command, **self._start)  # type: ignore[arg-type]
        agent = AgentEnd(process, recorder=self._recorder, line_limit=self._line_limit)
        self._agent_end = agent
        if self._recorder is not None:
            agent.between = Memory(self._recorder, say=agent.say, tell_agent=agent.send_direct, report=self._report)
        self._report("agent", words="started", name=process.name, pid=process.process.pid)

    async def _restart(self, why: str) -> None:
        self._report("agent", words="started again", reason=why)
        await self._agent.close()
        await self._started()

    @property
    def _agent(self) -> AgentEnd:
        if self._agent_end is None:
            raise ConnectionLost("the agent was not started")
        return self._agent_end

    async def _first(self) -> _Asked | None:
        """Read until the client says initialize; ``None`` when it never does. What is behind it is read again."""
        lines = Lines(limit=self._line_limit)
        while chunk := await self._client.receive_raw():
            pieces = lines.feed(chunk)
            for index, piece in enumerate(pieces):
                request = self._early(piece)
                if request is None:
                    continue
                self._client.unread(b"".join([*pieces[index + 1 :], *lines.finish()]))
                try:
                    return _asked(request, piece)
                except TwofoldError as error:
                    self._client.send(refusal(request.id, error))
                    raise HandshakeFailed(f"the client's initialize is wrong: {error}") from None
        return None

    def _early(self, piece: bytes) -> Request | None:
        """Look at what comes before everything else; only initialize may."""
        if not piece.strip():
            return None
        try:
            if type(piece) is Fragment:
                raise InvalidFrame("a line is too long")
            frame = parse(piece)
        except ParseError as error:
            self._client.send(refusal(None, RequestError(error.code, "Parse error")))
            return None
        except InvalidFrame as error:
            self._client.send(refusal(error.id, RequestError(error.code, "Invalid request: " + error.reason)))
            return None
        if isinstance(frame, Request):
            if frame.method == "initialize":
                return frame
            early = RequestError(-32600, "Invalid request", {"reason": "initialize comes first"})
            self._client.send(refusal(frame.id, early))
        return None

    # Agreeing on versions

    async def _agree(self, asked: _Asked) -> Callable[[], Awaitable[None]]:
        """Ask the agent, by the table above, answer the client, and give how to go on."""
        wanted = self._agent_version or asked.version
        answer, line, before = await self._initialize(asked, wanted)
        spoken = _spoken(answer)
        if self._agent_version is None and spoken not in ((1, 2) if asked.version == 2 else (1,)):
            wanted = 2 if wanted == 1 else 1
            await self._restart(f"it does not speak version {asked.version}")
            answer, line, before = await self._initialize(asked, wanted)
            spoken = _spoken(answer)
        if spoken is None or spoken > wanted or not isinstance(answer, Response):
            raise await self._refusing(wanted, answer)
        result = loads(bytes(answer.result))
        self._report("versions", client=asked.version, agent=spoken)
        if asked.version == spoken:
            told = line if answer.id == asked.id else encode(Response(asked.id, answer.result)) + b"\n"
            self._client.send_raw(b"".join([*before, told]))
            return self._pass
        if asked.version == 1:
            self._check_tools(asked.params)
            self._client.send(encode(Response(asked.id, Raw(dumps(downgrade_initialized(result))))))
            return self._serve_v1
        upgraded = upgrade_initialized(result, name=self._agent.name)
        self._client.send(encode(Response(asked.id, Raw(dumps(upgraded)))))
        return partial(self._serve_v2, result)

    async def _initialize(
        self, asked: _Asked, wanted: int
    ) -> tuple[Response | ErrorResponse | None, bytes, list[bytes]]:
        """Ask the agent for a version: in the client's own words if it is the client's version.

        Gives the answer, its line, and what came before it; no answer when the agent has ended.
        """
        agent = self._agent
        if wanted == asked.version:
            id_: Id = asked.id
            agent.send_piece(asked.line)
        else:
            id_ = _HANDSHAKE
            translated = upgrade_initialize(asked.params) if wanted == 2 else downgrade_initialize(asked.params)
            agent.send(encode(Request(id_, "initialize", Raw(dumps(translated)))))
        before: list[bytes] = []
        while pieces := await agent.pieces():
            for index, piece in enumerate(pieces):
                frame = frame_of(piece)
                if isinstance(frame, Response | ErrorResponse) and frame.id == id_:
                    agent.unsaid(pieces[index + 1 :])
                    return frame, piece, before
                before.append(piece)
                if frame is None and piece.strip():
                    self._report("garbage", bytes=len(piece))
        return None, b"", before

    async def _refusing(self, wanted: int, answer: Response | ErrorResponse | None) -> TwofoldError:
        """Say why the agent cannot be gone on with."""
        if answer is None:
            return await self._agent.lost()
        what = f"an error ({answer.code})" if isinstance(answer, ErrorResponse) else "something else"
        name = self._agent.name
        return HandshakeFailed(f"{name} was asked for protocol version {wanted}, and answered {what}", asked=wanted)

    def _check_tools(self, params: dict[str, Any]) -> None:
        """A v1 client's files and terminals have no place in v2: say so, or refuse (wire facts, last section)."""
        held = params.get("clientCapabilities")
        capabilities = held if is_object(held) else {}
        files = capabilities.get("fs")
        offered = ["terminals"] if capabilities.get("terminal") is True else []
        if is_object(files) and any(value is True for value in files.values()):
            offered.insert(0, "files")
        if not offered:
            return
        words = " and ".join(offered)
        if self._refuse_client_tools:
            raise HandshakeFailed(f"the client offers {words} to the agent, and an agent of version 2 cannot use them")
        self._say("ignored", f"the client's {words}: an agent of version 2 has its own")

    # Passing on, and converting

    async def _pass(self) -> None:
        """Both sides speak the same version: bytes pass as they are."""
        passing = Passing(self._client, self._agent, report=self._report, line_limit=self._line_limit)

        async def from_client() -> None:
            await passing.from_client()
            passing.refuse_agent(ConnectionLost("the client has ended"))
            await self._agent.end()

        await self._both(from_client(), passing.from_agent(), passing.refuse)

    async def _serve_v1(self) -> None:
        """A v1 client in front of a v2 agent."""
        front, back = self._connections()
        close = self._on_loss == "close"

        def lost(session_id: str, loss: Loss) -> None:
            self._lost(session_id, loss)
            if close and client.end_view(session_id, _VIEW_ENDED):
                back.notify("session/cancel", {"sessionId": session_id})

        client = V1Client(
            front,
            _Initialized(back),
            policy=Policy.STRICT if close else Policy.MARK,
            lost=lost,
            fault=self._fault_of("client"),
            ended=_nothing,
        )
        front.handler = client.handler
        back.handler = Inbound(client, ended=client.agent_ended, fault=self._fault_of("agent"))
        await self._converse(front, back)

    async def _serve_v2(self, initialized: dict[str, Any]) -> None:
        """A v2 client in front of a v1 agent."""
        front, back = self._connections()
        agent = V1Agent(
            back, Remote(front), initialized, lost=self._lost, fault=self._fault_of("agent"), ended=_nothing
        )
        front.handler = Inbound(agent, ended=_nothing, fault=self._fault_of("client"))
        back.handler = agent.handler
        agent.tell_of_end = True
        await self._converse(front, back)

    def _connections(self) -> tuple[Connection, Connection]:
        """Each is read no further while the other end does not take what it says."""
        front = Connection(ClientEnd(self._client), _Nobody(), pace=lambda: back.drain())
        back = Connection(self._agent, _Nobody(), pace=lambda: front.drain())
        return front, back

    async def _converse(self, front: Connection, back: Connection) -> None:
        async def from_client() -> None:
            await front.run()
            with suppress(TimeoutError):
                await asyncio.wait_for(front.answered(), self._drain_timeout)
            await self._agent.end()

        def over(why: ConnectionLost) -> None:
            back.end(why)
            front.end(why)

        await self._both(from_client(), back.run(), over)
        with suppress(ConnectionLost):
            await front.drain()

    async def _both(
        self,
        from_client: Coroutine[Any, Any, None],
        from_agent: Coroutine[Any, Any, None],
        over: Callable[[ConnectionLost], object],
    ) -> None:
        """Run both directions until one ends, see the other one out, and say why nothing more is answered."""
        reading, writing = asyncio.create_task(from_client), asyncio.create_task(from_agent)
        try:
            self._why = await self._until_over(reading, writing)
        finally:
            over(self._why)
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)

    async def _until_over(self, reading: asyncio.Task[None], writing: asyncio.Task[None]) -> ConnectionLost:
        agent = self._agent
        await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
        if not writing.done():  # the client says no more, or the agent does not take it
            await asyncio.wait((writing,), timeout=self._drain_timeout)
        for task in (reading, writing):
            problem = task.exception() if task.done() else None
            if problem is not None and not isinstance(problem, ConnectionLost):
                raise problem
        if self._client.gone:
            return ConnectionLost("the client is gone")
        if writing.done():
            why = await agent.lost()
            failed = not reading.done() or why.exit_status not in (0, None)
        elif agent.deaf:
            why, failed = ConnectionLost(f"{agent.name} takes nothing more"), True
        else:
            seconds = f"{self._drain_timeout:g} seconds"
            why = ConnectionLost(f"{agent.name} was still at work {seconds} after the client had ended")
            failed = False
        if failed:
            self._fail(str(why))
        return why

    # Watching

    def _lost(self, session_id: str, loss: Loss) -> None:
        self.losses += 1
        facts: dict[str, Any] = {"kind": loss.kind, "id": loss.id, "path": loss.path, "reason": loss.reason}
        facts["sent"] = loss.sent
        self._report("loss", session=session_id, **facts)
        if self._recorder is not None:
            held = {name: value for name, value in facts.items() if value is not None}
            self._recorder.put(session_id, v2.read_update({"sessionUpdate": LOSS, **held}))

    def _fault_of(self, side: str) -> Callable[[TwofoldError], object]:
        return lambda error: self._report("fault", side=side, words=str(error))


class _Initialized(Remote):
    """An agent that has answered ``initialize`` already."""

    def request(self, call: Call) -> None:
        if call.method == "initialize":
            raise RequestError(-32600, "Invalid request", {"reason": "initialized already"})
        super().request(call)


class _Nobody:
    """Hears a connection before anybody does."""

    codec = None

    def update(self, params: Any, line: bytes | None) -> None: ...

    def notification(self, method: str, params: Any) -> None: ...

    def request(self, incoming: Incoming) -> None: ...

    def fault(self, error: TwofoldError) -> None: ...

    def ended(self, error: ConnectionLost) -> None: ...


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Do it all, also when cancelled meanwhile: that comes after it."""
    task, cancelled = asyncio.create_task(work), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


def _nothing(_error: ConnectionLost) -> None: ...


def _asked(request: Request, line: bytes) -> _Asked:
    params = None if isinstance(request.params, UnsetType) else loads(bytes(request.params))
    if not is_object(params):
        raise Malformed("$.params", expected="an object", found="something else")
    version = params.get("protocolVersion")
    if not isinstance(version, int) or isinstance(version, bool):
        raise Malformed("$.params.protocolVersion", expected="an integer", found="something else")
    if version < 1:
        data = {"requested": version, "supported": [1, 2]}
        raise RequestError(UNSUPPORTED, "Unsupported protocol version", data)
    return _Asked(request.id, line if line.endswith(b"\n") else line + b"\n", params, 1 if version == 1 else 2)


def _spoken(answer: Response | ErrorResponse | None) -> Literal[1, 2] | None:
    """Give the version that an answer to initialize is of; 2 without ``info`` is none."""
    result = loads(bytes(answer.result)) if isinstance(answer, Response) else None
    match result:
        case {"protocolVersion": 2, "info": {"name": str(), "version": str()}}:
            return 2
        case {"protocolVersion": 1}:
            return 1
        case _:
            return None
