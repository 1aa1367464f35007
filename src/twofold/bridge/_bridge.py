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

With ``agent_version`` the agent is asked for that version in the first place.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import IO, Any, Final, Literal, TypeAlias

from msgspec import Raw, UnsetType

from twofold.bridge._agent_end import AgentEnd
from twofold.bridge._lines import Lines, Piece
from twofold.bridge._memory import Memory
from twofold.bridge._record import Recorder, Sender
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
from twofold.fold import LOSS, SETUP, Revision
from twofold.journal import Journal
from twofold.jsonrpc import (
    DEFAULT_LIMIT,
    Batch,
    ErrorResponse,
    Frame,
    Id,
    Request,
    Response,
    dumps,
    encode,
    loads,
    parse,
)
from twofold.runtime import ProcessTransport, StreamTransport
from twofold.runtime._connection import Connection, Incoming, wire_error
from twofold.runtime._process import own_stdio
from twofold.runtime._side import Inbound, Remote
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
        self._on_loss = on_loss
        self._agent_version = agent_version
        self._refuse_client_tools = refuse_client_tools
        self._tell = report
        self._start = {"cwd": cwd, "env": env, "stderr": stderr, "line_limit": line_limit, "grace": grace}
        self._start_timeout = start_timeout
        self._drain_timeout = drain_timeout
        self._line_limit = line_limit
        self._recorder: Recorder | None = None
        if journal is not None:
            say = partial(self._report, "journal")
            self._recorder = Recorder(journal, revision=Revision(revision), report=lambda words: say(words=words))
        self._client: StreamTransport
        self._agent: AgentEnd | None = None
        self._opening: dict[Id, Any] = {}  # session/new requests under way → their working directory
        self._initialized: dict[str, Any] = {}  # a v1 agent's answer
        self._go_on: Callable[[], Awaitable[None]] = self._pass

    async def run(self) -> bool:
        """Serve until either side ends; gives whether all went well (:attr:`failure` says what did not)."""
        self._client = self._given or await own_stdio(line_limit=self._line_limit)
        try:
            await self._serve()
        except (HandshakeFailed, ConnectionLost) as error:
            self._fail(str(error))
        finally:
            if self._agent is not None:
                await self._agent.close()
            await self._client.close()
            if self._recorder is not None:
                await asyncio.to_thread(self._recorder.close)
            self._report("end", losses=self.losses, failure=self.failure)
        return self.failure is None

    def _fail(self, words: str) -> None:
        if self.failure is None:
            self.failure = words
            self._report("failure", words=words)

    def _report(self, event: str, **facts: Any) -> None:
        if self._tell is not None:
            self._tell(event, facts)

    # Beginning

    async def _serve(self) -> None:
        starting = asyncio.create_task(self._started())  # while the client is still about to speak
        try:
            first, rest = await self._first()
        except BaseException:
            starting.cancel()
            with suppress(asyncio.CancelledError, ConnectionLost):
                await starting
            raise
        if first is None:
            await starting
            return
        request, line = first
        try:
            params = _object(request)
            asked = params.get("protocolVersion")
            if not isinstance(asked, int) or isinstance(asked, bool):
                raise Malformed("$.params.protocolVersion", expected="an integer", found="something else")
            if asked < 1:
                data = {"requested": asked, "supported": [1, 2]}
                raise RequestError(UNSUPPORTED, "Unsupported protocol version", data)
        except TwofoldError as error:
            self._refuse(request.id, error)
            raise HandshakeFailed("the client's initialize is wrong: " + str(error)) from None
        self._client.unread(rest)
        try:
            await starting
            async with asyncio.timeout(self._start_timeout):
                await self._agree(request, line, params, min(asked, 2))
        except TimeoutError:
            late = HandshakeFailed(f"{self._name} did not answer initialize within {self._start_timeout:g} seconds")
            self._refuse(request.id, late)
            raise late from None
        except (HandshakeFailed, ConnectionLost) as error:
            self._refuse(request.id, error)
            raise
        await self._go_on()

    async def _started(self) -> None:
        process = await ProcessTransport.start(self._command, **self._start)  # type: ignore[arg-type]
        agent = AgentEnd(process, passed=self._passed, behind=self._behind, line_limit=self._line_limit)
        self._agent = agent
        recorder = self._recorder
        if recorder is not None:
            agent.between = Memory(
                recorder.journal,
                flush=recorder.flush,
                say=partial(agent.say, record=False),
                tell_agent=agent.send_direct,
                record=partial(self._passed, sender="a2c"),
                put=recorder.put,
                report=self._report,
            )
        self._report("agent", words="started", name=process.name, pid=process.process.pid)

    async def _restart(self, why: str) -> None:
        self._report("agent", words="started again", reason=why)
        await self._end_agent.close()
        await self._started()

    @property
    def _end_agent(self) -> AgentEnd:
        if self._agent is None:
            raise ConnectionLost("the agent was not started")
        return self._agent

    @property
    def _name(self) -> str:
        return self._end_agent.name

    async def _first(self) -> tuple[tuple[Request, bytes] | None, bytes]:
        """Read until the client says initialize: the request, its line, and the bytes behind it."""
        lines = Lines(limit=self._line_limit)
        while chunk := await self._client.receive_raw():
            pieces = lines.feed(chunk)
            for index, piece in enumerate(pieces):
                frame = self._early(piece)
                if frame is not None:
                    rest = b"".join(later.data for later in [*pieces[index + 1 :], *lines.finish()])
                    return (frame, piece.data), rest
        return None, b""

    def _early(self, piece: Piece) -> Request | None:
        """Look at what comes before everything else; only initialize may."""
        if not piece.data.strip():
            return None
        try:
            if not piece.whole:
                raise InvalidFrame("a line is too long")
            frame = parse(piece.data)
        except ParseError as error:
            self._say_error(None, error.code, "Parse error: " + error.reason)
            return None
        except InvalidFrame as error:
            self._say_error(error.id, error.code, "Invalid request: " + error.reason)
            return None
        if isinstance(frame, Request):
            if frame.method == "initialize":
                return frame
            self._say_error(frame.id, -32600, "Invalid request", {"reason": "initialize comes first"})
        return None

    def _say_error(self, id: Id | None, code: int, message: str, data: Any = None) -> None:
        members: dict[str, Any] = {"code": code, "message": message}
        if data is not None:
            members["data"] = data
        self._client.send(encode(ErrorResponse(id, code, message, Raw(dumps(members)))))

    def _refuse(self, id: Id, error: TwofoldError) -> None:
        if isinstance(error, HandshakeFailed | ConnectionLost):
            self._say_error(id, -32603, "Internal error", {"reason": str(error)})
        else:
            self._say_error(id, *wire_error(error))

    # Agreeing on versions

    async def _agree(self, request: Request, line: bytes, params: dict[str, Any], asked: int) -> None:
        """Ask the agent, by the table above, answer the client, and settle how to go on."""
        wanted = self._agent_version or asked
        answer, piece, before = await self._initialize(request, line, params, asked, wanted)
        spoken = _spoken(answer)
        if self._agent_version is None and spoken not in ((1, 2) if asked == 2 else (1,)):
            wanted = 3 - wanted
            await self._restart(f"it does not speak version {asked}")
            answer, piece, before = await self._initialize(request, line, params, asked, wanted)
            spoken = _spoken(answer)
        if spoken is None or spoken > wanted or not isinstance(answer, Response):
            reason = f"answered {answer.code}" if isinstance(answer, ErrorResponse) else "did not answer as it says"
            raise HandshakeFailed(f"{self._name} was asked for protocol version {wanted}, and {reason}", asked=wanted)
        result = loads(bytes(answer.result))
        self._report("versions", client=asked, agent=spoken)
        if asked == spoken:
            for early in before:
                self._client.send_raw(early.data)
            if answer.id == request.id:
                self._client.send_raw(piece.data)
            else:
                self._client.send(encode(Response(request.id, answer.result)))
            self._go_on = self._pass
        elif asked == 1:
            self._check_tools(params)
            self._client.send(encode(Response(request.id, Raw(dumps(downgrade_initialized(result))))))
            self._go_on = self._serve_v1
        else:
            upgraded = upgrade_initialized(result, name=self._name)
            self._client.send(encode(Response(request.id, Raw(dumps(upgraded)))))
            self._initialized = result
            self._go_on = self._serve_v2

    async def _initialize(
        self, request: Request, line: bytes, params: dict[str, Any], asked: int, wanted: int
    ) -> tuple[Response | ErrorResponse | None, Piece, list[Piece]]:
        """Ask the agent for a version: in the client's own words if it is the client's version.

        Gives the answer, the piece that it came in, and what came before it; no answer when the agent has ended.
        """
        agent = self._end_agent
        if wanted == asked:
            id_: Id = request.id
            agent.send_piece(Piece(line if line.endswith(b"\n") else line + b"\n", True))
        else:
            id_ = _HANDSHAKE
            translated = upgrade_initialize(params) if wanted == 2 else downgrade_initialize(params)
            agent.send(encode(Request(id_, "initialize", Raw(dumps(translated)))))
        before: list[Piece] = []
        while pieces := await agent.pieces():
            for index, piece in enumerate(pieces):
                frame = _frame(piece)
                if isinstance(frame, Response | ErrorResponse) and frame.id == id_:
                    agent.unsaid(pieces[index + 1 :])
                    return frame, piece, before
                before.append(piece)
                if frame is None and piece.data.strip():
                    self._report("garbage", bytes=len(piece.data))
        return None, Piece(b"", True), before

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
        self._report("ignored", words=f"the client's {words}: an agent of version 2 has its own")

    # Passing on

    async def _pass(self) -> None:
        """Both sides speak the same version: bytes pass as they are."""
        agent = self._end_agent
        pending: dict[Id, str] = {}

        async def from_client() -> None:
            lines = Lines(limit=self._line_limit)
            while chunk := await self._client.receive_raw():
                for piece in lines.feed(chunk):
                    frame = _frame(piece)
                    if isinstance(frame, Request):
                        pending[frame.id] = frame.method
                    agent.send_piece(piece)
                await agent.drain()
            for piece in lines.finish():
                agent.send_piece(piece)
            agent.process.stream.end()

        async def from_agent() -> None:
            last = b"\n"
            while pieces := await agent.pieces():
                for piece in pieces:
                    if pending and not piece.data.startswith(_UPDATE):
                        frame = _frame(piece)
                        if isinstance(frame, Response | ErrorResponse) and frame.id is not None:
                            pending.pop(frame.id, None)
                    last = piece.data
                self._client.send_raw(b"".join([piece.data for piece in pieces]))
                await self._client.drain()
            if not last.endswith(b"\n"):
                self._client.send_raw(b"\n")  # it ended in the middle of a line

        error = await self._both(from_client(), from_agent())
        if error is not None:
            for id_ in pending:
                self._refuse(id_, error)

    async def _serve_v1(self) -> None:
        """A v1 client in front of a v2 agent."""
        front, back = self._connections()
        close = self._on_loss == "close"

        def lost(session_id: str, loss: Loss) -> None:
            self._lost(session_id, loss)
            if close:
                client.end_view(session_id, RequestError(-32603, "Internal error", {"reason": _VIEW_ENDED}))
                back.notify("session/cancel", {"sessionId": session_id})

        client = V1Client(
            front,
            Remote(back),
            policy=Policy.STRICT if close else Policy.MARK,
            lost=lost,
            fault=self._fault_of("client"),
            ended=_nothing,
        )
        front.handler = client.handler
        back.handler = Inbound(client, ended=client.agent_ended, fault=self._fault_of("agent"))
        await self._converse(front, back)

    async def _serve_v2(self) -> None:
        """A v2 client in front of a v1 agent."""
        front, back = self._connections()
        agent = V1Agent(
            back, Remote(front), self._initialized, lost=self._lost, fault=self._fault_of("agent"), ended=_nothing
        )
        front.handler = Inbound(agent, ended=_nothing, fault=self._fault_of("client"))
        back.handler = agent.handler
        agent.tell_of_end = True
        await self._converse(front, back)

    def _connections(self) -> tuple[Connection, Connection]:
        """Each is read no further while the other end does not take what it says."""
        front = Connection(self._client, _Nobody(), pace=lambda: back.drain())
        back = Connection(self._end_agent, _Nobody(), pace=lambda: front.drain())
        return front, back

    async def _converse(self, front: Connection, back: Connection) -> None:
        async def from_client() -> None:
            await front.run()
            with suppress(TimeoutError):
                await asyncio.wait_for(front.answered(), self._drain_timeout)
            self._end_agent.process.stream.end()

        await self._both(from_client(), back.run())
        with suppress(ConnectionLost):
            await front.drain()

    async def _both(
        self, from_client: Coroutine[Any, Any, None], from_agent: Coroutine[Any, Any, None]
    ) -> ConnectionLost | None:
        """Run both directions until one ends. Gives why the agent is gone, if it went first."""
        reading, writing = asyncio.create_task(from_client), asyncio.create_task(from_agent)
        try:
            await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and not _lost(reading):
                await asyncio.wait({writing}, timeout=self._drain_timeout)
                return None
            if not writing.done():  # the agent does not take what the client says
                await asyncio.wait({writing}, timeout=self._drain_timeout)
            if _lost(writing):
                return None  # the client is gone
            agent = self._end_agent
            with suppress(TimeoutError):
                await asyncio.wait_for(agent.process.process.wait(), 0.5)
            how = agent.process.ended or "its output"
            error = ConnectionLost(f"{agent.name} ended {how}", exit_status=agent.process.process.returncode)
            self._fail(str(error))
            return error
        finally:
            for task in (reading, writing):
                task.cancel()
            await asyncio.gather(reading, writing, return_exceptions=True)

    # Watching

    def _passed(self, line: bytes, sender: Sender) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        recorder.line(line, sender)
        if sender == "c2a" and b'"session/new"' in line:
            frame = _frame(Piece(line, True))
            if isinstance(frame, Request) and frame.method == "session/new":
                self._opening[frame.id] = _object(frame).get("cwd")
        elif sender == "a2c" and self._opening and not line.startswith(_UPDATE):
            frame = _frame(Piece(line, True))
            if isinstance(frame, Response | ErrorResponse) and frame.id in self._opening:
                cwd = self._opening.pop(frame.id)
                result = loads(bytes(frame.result)) if isinstance(frame, Response) else None
                if is_object(result) and isinstance(result.get("sessionId"), str) and isinstance(cwd, str):
                    recorder.put(result["sessionId"], v2.read_update({"sessionUpdate": SETUP, "cwd": cwd}))

    def _behind(self) -> bool:
        return self._recorder is not None and self._recorder.behind and not self._recorder.failed

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


_UPDATE: Final = b'{"jsonrpc":"2.0","method":"session/update"'
_VIEW_ENDED: Final = "the agent said what protocol version 1 cannot say; load the session again to see it as it is"


class _Nobody:
    """Hears a connection before anybody does."""

    codec = None

    def update(self, params: Any, line: bytes | None) -> None: ...

    def notification(self, method: str, params: Any) -> None: ...

    def request(self, incoming: Incoming) -> None: ...

    def fault(self, error: TwofoldError) -> None: ...

    def ended(self, error: ConnectionLost) -> None: ...


def _nothing(_error: ConnectionLost) -> None: ...


def _lost(task: asyncio.Task[None]) -> bool:
    """Whether a direction ended because the side that it speaks to is gone."""
    return task.done() and not task.cancelled() and isinstance(task.exception(), ConnectionLost)


def _frame(piece: Piece) -> Frame | None:
    try:
        frame = parse(piece.data) if piece.whole else None
    except TwofoldError:
        return None
    return None if isinstance(frame, Batch) else frame


def _object(request: Request) -> dict[str, Any]:
    params = None if isinstance(request.params, UnsetType) else loads(bytes(request.params))
    if not is_object(params):
        raise Malformed("$.params", expected="an object", found="something else")
    return params


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
