"""WebSocket: an agent on another machine, or one that is shared. Install ``twofold[websocket]``.

:func:`connect` is the client's end, :func:`serve` the server's; both give a :class:`WebSocketTransport`. What is
followed is the WebSocket half of the protocol's RFD “Streamable HTTP & WebSocket Transport” (revision of 2026-07-02),
which lets a server offer nothing but that half:

Connection Establishment (GET with Upgrade)
    One endpoint, ``/acp``. The answer to the upgrade carries ``Acp-Connection-Id``, a UUID of this connection.
Bidirectional Messaging
    Every message is one text frame that holds JSON-RPC. The handler of a connection learns of its end, to clean up.
    Binary frames are ignored.
Requires cookie support on HTTP transports
    The upgrade is the only request of a connection, so there is none to send a cookie back with; redirects are not
    followed. Cookies for the next connection can be given in ``headers``.
How does this interact with authentication?
    It is layered on top in HTTP headers: a bearer token, in ``Authorization``.

The rest is Streamable HTTP's (``POST``, server-sent events, ``DELETE``, ``Acp-Session-Id``) or comes after the upgrade
(``Acp-Protocol-Version``), and is not there. That ``initialize`` comes first, and what becomes of batches, is seen to
where messages are read.

Messages are not compressed. Most are short, and a compressor's state for each connection takes more memory than they
do; and how well secrets compress beside text that somebody else chose tells an onlooker of them.

There is no TLS at the server's end: for other machines put something before it that ends TLS, and name in ``hosts``
what clients call it. A browser page cannot set ``Authorization`` on a WebSocket: to serve one, something before the
server has to add it.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import re
import secrets
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlsplit

try:
    from websockets.asyncio.client import ClientConnection
    from websockets.asyncio.client import connect as _connect
    from websockets.asyncio.connection import Connection
    from websockets.asyncio.server import Server as _Listener
    from websockets.asyncio.server import ServerConnection
    from websockets.asyncio.server import serve as _serve
    from websockets.exceptions import ConnectionClosed, InvalidProxy, InvalidStatus, ProxyError, WebSocketException
    from websockets.frames import CloseCode
    from websockets.http11 import Request, Response
    from websockets.protocol import State
except ImportError:
    raise ImportError("WebSocket needs websockets 15 or newer: pip install 'twofold[websocket]'") from None

from twofold.exceptions import ConnectionLost, LineTooLong
from twofold.jsonrpc import DEFAULT_LIMIT
from twofold.runtime._transport import OUTGOING_LIMIT

__all__ = ["Server", "WebSocketTransport", "connect", "serve"]

_CONNECTION_ID: Final = "Acp-Connection-Id"
_FRAMES: Final = 4  # received and not looked at yet, before the socket is no longer read; each may be a whole message
_TURN: Final = 32  # messages sent before others have a turn
_SPACES: Final = bytes.maketrans(b"\r\n", b"  ")
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, b64token
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\x20-\x7e\t\x80-\xff]*")
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/?#@\[\]]+))(?::[0-9]*)?")


class _Log(logging.LoggerAdapter[logging.Logger]):
    """The library's log without its lines for debugging: they quote headers, so the token, and messages."""

    def isEnabledFor(self, level: int) -> bool:
        return level > logging.DEBUG and super().isEnabledFor(level)


_LOG: Final = _Log(logging.getLogger("twofold.runtime.websocket"), {})


class WebSocketTransport:
    """One WebSocket connection. Made by :func:`connect`, and by :func:`serve` for its handler."""

    name: str
    """What the other end is, for error messages: never more of a URL than scheme, host and path."""
    connection_id: str | None
    """The ``Acp-Connection-Id`` that the server gave; ``None`` if it gave none."""

    def __init__(
        self,
        socket: Connection,
        *,
        name: str,
        connection_id: str | None,
        line_limit: int,
        outgoing_limit: int,
        close_timeout: float,
    ) -> None:
        self.name = name
        self.connection_id = connection_id
        self._socket = socket
        self._line_limit = line_limit
        self._limit = outgoing_limit
        self._close_timeout = close_timeout
        self._queue: deque[bytes] = deque()
        self._unsent = 0  # bytes in the queue, and of the message that is being sent
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._reading = asyncio.Lock()
        self._closing: asyncio.Task[None] | None = None
        self._sender = asyncio.create_task(self._send())

    async def receive(self) -> Sequence[bytes | LineTooLong]:
        """Wait for a message and give it; none when the other side closed the connection in order.

        Line breaks within a message become spaces (they are white space of JSON: within a string it allows none).
        A message longer than ``line_limit`` is never given, nor a :class:`LineTooLong` for it: what the library does
        not want to hold it cannot skip, so the connection ends with close code 1009. Text that is not UTF-8 ends it
        with 1007. Binary frames are ignored.

        Raises :class:`ConnectionLost` when the connection ended in any of these ways or without being closed.
        """
        if self._closing is not None:
            return ()
        async with self._reading:
            try:
                message = await self._socket.recv()
                while isinstance(message, bytes):  # a binary frame
                    message = await self._socket.recv()
            except ConnectionClosed as error:
                reason = self._reason(error)
                if reason is None:
                    return ()
                raise ConnectionLost(reason) from None
        line = message.encode()
        if b"\n" in line or b"\r" in line:
            line = line.translate(_SPACES)
        return (line,)

    def send(self, message: bytes) -> None:
        """Put one message in the queue. Bytes that are not UTF-8 are sent as U+FFFD: a text frame cannot hold them."""
        if not self._open():
            return
        self._queue.append(message)
        self._unsent += len(message)
        if self._unsent > self._limit:
            self._room.clear()
        self._work.set()

    async def drain(self) -> None:
        """Wait while more than ``outgoing_limit`` bytes are unsent."""
        while self._unsent > self._limit and self._open():
            await self._room.wait()
        if not self._open():
            raise ConnectionLost(f"{self.name} is {'closed' if self._closing is not None else 'gone'}")

    async def close(self) -> None:
        """Send what waits and close, within ``close_timeout`` seconds; what comes meanwhile is thrown away."""
        await self._close(CloseCode.NORMAL_CLOSURE)

    async def _close(self, code: CloseCode) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._finish(code))
            self._work.set()
            self._room.set()
        await asyncio.shield(self._closing)

    def _open(self) -> bool:
        return self._closing is None and self._socket.state is State.OPEN

    async def _send(self) -> None:
        """Send what is in the queue, in order, until the connection ends or is to be closed."""
        turn = 0
        try:
            while True:
                while self._queue:
                    message = self._queue.popleft()
                    await self._socket.send(_utf8(message), text=True)
                    self._unsent -= len(message)
                    if self._unsent <= self._limit:
                        self._room.set()
                    turn += 1
                    if turn % _TURN == 0:
                        await asyncio.sleep(0)
                if self._closing is not None:
                    return
                self._work.clear()
                await self._work.wait()
        except ConnectionClosed:
            pass
        finally:
            self._queue.clear()
            self._unsent = 0
            self._room.set()

    async def _finish(self, code: CloseCode) -> None:
        # The other side's close is behind all that it has sent, and it may wait with reading for us to read.
        discarding = asyncio.create_task(self._discard())
        try:
            await self._shut(code, after=self._sender)
        finally:
            self._sender.cancel()
            discarding.cancel()
            await asyncio.wait((self._sender, discarding))

    async def _discard(self) -> None:
        with suppress(ConnectionClosed):
            async with self._reading:  # whoever receives now gets what comes next, and nothing after it
                while True:
                    await self._socket.recv()

    async def _shut(self, code: CloseCode, reason: str = "", *, after: asyncio.Task[None] | None = None) -> None:
        """Close the socket; if the other side does not take that in time, drop it."""
        try:
            async with asyncio.timeout(self._close_timeout):
                if after is not None:
                    await asyncio.wait((after,))
                await self._socket.close(code, reason)
        except TimeoutError:
            self._socket.transport.abort()
            await self._socket.wait_closed()

    def _reason(self, error: ConnectionClosed) -> str | None:
        """Say why the connection ended; ``None`` if one side closed it in order. What the other said is not quoted."""
        if self._closing is not None:
            return None
        sent, received = error.sent, error.rcvd
        if sent is not None and not error.rcvd_then_sent:  # the library closed it for us
            match sent.code:
                case CloseCode.MESSAGE_TOO_BIG:
                    return f"{self.name} sent a message longer than {self._line_limit} bytes, or in too many pieces"
                case CloseCode.INVALID_DATA:
                    return f"{self.name} sent text that is not UTF-8"
                case CloseCode.INTERNAL_ERROR:
                    return f"{self.name} did not answer a ping in time"
                case _:
                    return f"{self.name} broke the WebSocket protocol (closed with code {int(sent.code)})"
        if received is None:
            return f"{self.name} is gone, without closing the connection"
        if received.code in (CloseCode.NORMAL_CLOSURE, CloseCode.GOING_AWAY, CloseCode.NO_STATUS_RCVD):
            return None
        if received.code == CloseCode.MESSAGE_TOO_BIG:
            return f"{self.name} does not take a message as long as one that was sent (closed with code 1009)"
        return f"{self.name} closed the connection with code {int(received.code)}"


def _utf8(message: bytes) -> bytes:
    if not message.isascii():
        try:
            message.decode()
        except UnicodeDecodeError:
            return message.decode(errors="replace").encode()
    return message


# The client's end


class _Deadline(Connection):
    """Drops the connection when the other side does not end it soon after it was told to.

    The library's own deadline holds only while somebody waits in ``send`` or ``close``.
    """

    _timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._timer is None and self.state is State.CLOSING and self.close_timeout is not None:
            self._timer = self.loop.call_later(self.close_timeout, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)


class _Client(_Deadline, ClientConnection):
    """A client's socket."""


class _Connect(_connect):
    """Connects where it was told to: a redirect would take what is in the headers elsewhere."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def connect(
    url: str,
    *,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    line_limit: int = DEFAULT_LIMIT,
    outgoing_limit: int = OUTGOING_LIMIT,
    keepalive: float | None = 20.0,
    open_timeout: float = 10.0,
    close_timeout: float = 5.0,
) -> WebSocketTransport:
    """Connect to the agent at ``url``, ``ws://HOST:PORT/acp`` or ``wss://…``; without a path, ``/acp`` is meant.

    ``token`` is sent as a bearer token, ``headers`` are sent beside it (cookies, say). ``line_limit`` is the longest
    message taken, in bytes; ``outgoing_limit`` what may be unsent before :meth:`WebSocketTransport.drain` waits.
    ``keepalive`` is the seconds from one ping to the next and those the answer may take; ``None`` sends none. Mind that
    an answer waits behind the message that is being sent, and that none is seen while messages wait to be received.
    A proxy that the environment names is used, except for this machine itself.

    Raises :class:`ConnectionLost` when there is no connection to be had, and :class:`ValueError` for a URL, token or
    header that cannot be right. Neither quotes the token, a header's value or the URL's query.
    """
    target, host, name = _target(url)
    sent: dict[str, str] = {}
    for key, value in (headers or {}).items():
        if not _HEADER.fullmatch(key) or not _VALUE.fullmatch(value):
            raise ValueError("a header has a name or a value that HTTP does not allow")
        sent[key] = value
    if token is not None:
        if any(key.lower() == "authorization" for key in sent):
            raise ValueError("a token is given, and an Authorization header too")
        sent["Authorization"] = f"Bearer {_checked(token)}"
    try:
        socket = await _Connect(
            target,
            additional_headers=sent,
            user_agent_header="twofold",
            compression=None,
            proxy=None if _is_loopback(host) else True,
            open_timeout=open_timeout,
            ping_interval=keepalive,
            ping_timeout=keepalive,
            close_timeout=close_timeout,
            max_size=line_limit,
            max_queue=_FRAMES,
            logger=_LOG,
            create_connection=_Client,
        )
    except InvalidStatus as error:
        raise ConnectionLost(f"{name} refused the connection: {_status(error.response.status_code)}") from None
    except (ProxyError, InvalidProxy):
        raise ConnectionLost(f"the proxy before {name} did not let the connection through") from None
    except (WebSocketException, EOFError):
        raise ConnectionLost(f"{name} did not answer as a WebSocket server does") from None
    except TimeoutError:
        raise ConnectionLost(f"{name} did not answer within {open_timeout:g} seconds") from None
    except OSError as error:
        raise ConnectionLost(f"{name} cannot be reached: {error.strerror or 'every address failed'}") from None
    ids = socket.response.headers.get_all(_CONNECTION_ID) if socket.response is not None else []
    return WebSocketTransport(
        socket,
        name=name,
        connection_id=ids[0] if ids else None,
        line_limit=line_limit,
        outgoing_limit=outgoing_limit,
        close_timeout=close_timeout,
    )


def _target(url: str) -> tuple[str, str, str]:
    """Give the URL to connect to, its host, and what it is called in error messages."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # or ValueError
    except ValueError:
        raise ValueError("the URL is not well-formed") from None
    host = parts.hostname
    if parts.scheme not in ("ws", "wss") or not host:
        raise ValueError("the URL of a WebSocket begins with ws:// or wss:// and names a host")
    if "@" in parts.netloc or parts.fragment:
        raise ValueError("the URL holds a user name or a fragment; use token or headers to log in")
    parts = parts._replace(path=parts.path or "/acp")
    return parts.geturl(), host, parts._replace(query="").geturl()


def _checked(token: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise ValueError("a token is one or more of A-Z, a-z, 0-9 and -._~+/, and may end in =")
    return token


def _status(code: int) -> str:
    try:
        return f"HTTP {code} ({HTTPStatus(code).phrase})"
    except ValueError:
        return f"HTTP {code}"


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# The server's end


class Server:
    """A server that listens. Made by :func:`serve`; leave its ``async with``, or close it, to end it."""

    url: str
    """Where it listens, for :func:`connect`."""
    token: str | None
    """What clients have to show; ``None`` if nothing."""

    def __init__(
        self,
        handle: Callable[[WebSocketTransport], Awaitable[object]],
        *,
        host: str,
        path: str,
        token: str | None,
        origins: Sequence[str],
        hosts: Sequence[str],
        max_connections: int,
        line_limit: int,
        outgoing_limit: int,
        close_timeout: float,
    ) -> None:
        self.url = ""
        self.token = token
        self._handle = handle
        self._path = path
        self._origins = frozenset(origins)
        self._hosts = frozenset(name.lower() for name in hosts)
        self._check_host = bool(hosts) or _is_loopback(host)
        self._max_connections = max_connections
        self._line_limit = line_limit
        self._outgoing_limit = outgoing_limit
        self._close_timeout = close_timeout
        self._listener: _Listener | None = None
        self._sockets: set[ServerConnection] = set()  # those still shaking hands among them
        self._served: dict[WebSocketTransport, asyncio.Task[Any] | None] = {}
        self._closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Listen no more and close every connection, sending what waits; handlers that do not end are cancelled.

        A connection has ``close_timeout`` seconds for it, and then a handler as many. May be called more than once.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _start(self, host: str, port: int, keepalive: float | None) -> None:
        owner = self

        class Accepted(_Deadline, ServerConnection):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                if owner._closing is None:
                    owner._sockets.add(self)
                else:
                    self.transport.abort()

            def connection_lost(self, exc: Exception | None) -> None:
                owner._sockets.discard(self)
                super().connection_lost(exc)

        listener = await _serve(
            self._serve,
            host,
            port,
            compression=None,
            process_request=self._admit,
            process_response=_identify,
            server_header=None,
            ping_interval=keepalive,
            ping_timeout=keepalive,
            close_timeout=self._close_timeout,
            max_size=self._line_limit,
            max_queue=_FRAMES,
            logger=_LOG,
            create_connection=Accepted,
        )
        self._listener = listener
        self.url = f"ws://{_address(next(iter(listener.sockets)).getsockname())}{self._path}"

    async def _close(self) -> None:
        listener = self._listener
        if listener is None:
            return
        listener.close(close_connections=False)
        await asyncio.sleep(0)  # from here on it listens no more
        for socket in [*self._sockets]:
            if socket.state is State.CONNECTING:
                socket.transport.abort()
        served = [*self._served.items()]
        await asyncio.gather(*(transport._close(CloseCode.GOING_AWAY) for transport, _ in served))
        tasks = [task for _, task in served if task is not None]
        if tasks:
            _, slow = await asyncio.wait(tasks, timeout=self._close_timeout)
            for task in slow:
                task.cancel()
        await listener.wait_closed()

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer a request that is not to be served; ``None`` lets it go on to the upgrade.

        Who must not know what is here is refused first: pages of other sites, whether they say so (``Origin``) or
        got a name of their own to mean this machine (``Host``, DNS rebinding).
        """
        headers = request.headers
        if self._check_host and not self._is_host(headers.get_all("Host")):
            return connection.respond(HTTPStatus.FORBIDDEN, "This Host is not served here.\n")
        origins = headers.get_all("Origin")
        if origins and (len(origins) > 1 or origins[0] not in self._origins):
            return connection.respond(HTTPStatus.FORBIDDEN, "This Origin is not allowed here.\n")
        if request.path.partition("?")[0] != self._path:
            return connection.respond(HTTPStatus.NOT_FOUND, "There is nothing here.\n")
        if self.token is not None and not _shows(headers.get_all("Authorization"), self.token):
            response = connection.respond(HTTPStatus.UNAUTHORIZED, "A bearer token is needed, and the right one.\n")
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        if len(self._served) >= self._max_connections:
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "There are too many connections.\n")
        return None

    def _is_host(self, values: Sequence[str]) -> bool:
        match = _HOST.fullmatch(values[0]) if len(values) == 1 else None
        if match is None:
            return False
        host = match[1] or match[2]
        return _is_loopback(host) or host.lower() in self._hosts

    async def _serve(self, socket: ServerConnection) -> None:
        address = socket.remote_address
        response = socket.response
        transport = WebSocketTransport(
            socket,
            name=f"the client at {_address(address)}" if address else "the client",
            connection_id=response.headers[_CONNECTION_ID] if response is not None else None,
            line_limit=self._line_limit,
            outgoing_limit=self._outgoing_limit,
            close_timeout=self._close_timeout,
        )
        self._served[transport] = asyncio.current_task()
        code = CloseCode.INTERNAL_ERROR
        try:
            await self._handle(transport)
            code = CloseCode.NORMAL_CLOSURE
        except ConnectionLost:  # the client's going is no fault of the handler
            code = CloseCode.NORMAL_CLOSURE
        finally:
            await transport._close(code)
            del self._served[transport]


def _identify(_connection: ServerConnection, _request: Request, response: Response) -> None:
    if response.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
        response.headers[_CONNECTION_ID] = str(uuid.uuid4())


def _shows(values: Sequence[str], token: str) -> bool:
    """Say whether an ``Authorization`` header shows the token. How long that takes tells nothing of it."""
    scheme, _, shown = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    right = hmac.compare_digest(shown.strip().encode("latin-1", "replace"), token.encode())
    return right and scheme.lower() == "bearer"


def _address(address: Any) -> str:
    host, port = address[0], address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def serve(
    handle: Callable[[WebSocketTransport], Awaitable[object]],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    require_token: bool = True,
    origins: Sequence[str] = (),
    hosts: Sequence[str] = (),
    path: str = "/acp",
    line_limit: int = DEFAULT_LIMIT,
    outgoing_limit: int = OUTGOING_LIMIT,
    max_connections: int = 64,
    keepalive: float | None = 20.0,
    close_timeout: float = 5.0,
) -> Server:
    """Listen, and call ``handle`` with each connection; when it returns, the connection is closed.

    ::

        async with await serve(handle) as server:
            print(server.url, server.token)
            ...

    Who is let in
        Whoever shows ``token``; one is generated if none is given. ``require_token=False`` asks for none, which is
        allowed only where nobody but this machine can come: on a loopback ``host``. Without the right token the
        answer is 401, for any other path 404, beyond ``max_connections`` 503.
    What browsers are used for
        A request with an ``Origin`` that is not one of ``origins`` (exactly as browsers send it, for example
        ``https://app.example``) is answered with 403; programs send none. So is, on a loopback ``host`` or when
        ``hosts`` are given, one whose ``Host`` is not a loopback address, ``localhost`` or one of ``hosts`` (names
        without a port): that is how a page reaches this machine under a name of its own.

    ``port`` 0 takes a free one. ``line_limit``, ``outgoing_limit``, ``keepalive`` and ``close_timeout`` are as for
    :func:`connect`. A client that does not read costs ``outgoing_limit`` and a message or two, if ``handle`` drains;
    one whose messages ``handle`` does not receive costs up to six times ``line_limit``: lower it for clients that are
    not trusted with that much.

    Raises :class:`OSError` when the address is not to be had, and :class:`ValueError` for what cannot be meant.
    """
    if not path.startswith("/") or "?" in path:
        raise ValueError("the path begins with / and has no query")
    if not require_token:
        if token is not None:
            raise ValueError("a token is given, and none is required")
        if not _is_loopback(host):
            raise ValueError("without a token only a loopback host can be served: 127.0.0.1, ::1 or localhost")
    elif token is None:
        token = secrets.token_urlsafe(32)
    server = Server(
        handle,
        host=host,
        path=path,
        token=None if token is None else _checked(token),
        origins=origins,
        hosts=hosts,
        max_connections=max_connections,
        line_limit=line_limit,
        outgoing_limit=outgoing_limit,
        close_timeout=close_timeout,
    )
    await server._start(host, port, keepalive)
    return server
