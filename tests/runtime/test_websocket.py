"""WebSocket: whole messages in order, strangers kept out, and ends that come to an end."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as plain_connect
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as plain_serve
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from twofold.exceptions import ConnectionLost
from twofold.runtime._transport import Transport
from twofold.runtime.websocket import Server, WebSocketTransport, connect, serve

DEADLINE: Final = 20.0
MIB: Final = 1024 * 1024
TOKEN: Final = "hush-4711"
UPGRADE: Final = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}

T = TypeVar("T")
Handle = Callable[[WebSocketTransport], Awaitable[object]]


def run(main: Coroutine[Any, Any, T]) -> T:
    async def within_the_deadline() -> T:
        async with asyncio.timeout(DEADLINE):
            return await main

    return asyncio.run(within_the_deadline())


async def receive(transport: Transport) -> bytes:
    (line,) = await transport.receive()
    assert isinstance(line, bytes)
    return line


async def echo(transport: Transport) -> None:
    while lines := await transport.receive():
        for line in lines:
            assert isinstance(line, bytes)
            transport.send(line)
            await transport.drain()


class Held:
    """A handler that gives the test its connection, and keeps it open until the test is done."""

    def __init__(self) -> None:
        self.come: asyncio.Queue[WebSocketTransport] = asyncio.Queue()
        self.done = asyncio.Event()

    async def __call__(self, transport: WebSocketTransport) -> None:
        self.come.put_nowait(transport)
        await self.done.wait()


@asynccontextmanager
async def pair(**settings: Any) -> AsyncIterator[tuple[WebSocketTransport, WebSocketTransport]]:
    """Give both ends of a connection, the client's first."""
    held = Held()
    async with await serve(held, **settings) as server:
        client = await connect(server.url, token=server.token, **settings)
        yield client, await held.come.get()
        held.done.set()
        await client.close()


@asynccontextmanager
async def beside_plain_client(**settings: Any) -> AsyncIterator[tuple[WebSocketTransport, ClientConnection]]:
    """Give a server's end, and a client of the library's that does what it is told."""
    held = Held()
    async with await serve(held, require_token=False, **settings) as server:
        async with plain_connect(server.url, compression=None, proxy=None, max_size=None) as client:
            yield await held.come.get(), client
        held.done.set()


@asynccontextmanager
async def beside_plain_server(**settings: Any) -> AsyncIterator[tuple[WebSocketTransport, ServerConnection]]:
    """Give a client's end, and a server of the library's that does what it is told."""
    come: asyncio.Queue[ServerConnection] = asyncio.Queue()
    done = asyncio.Event()

    async def hold(connection: ServerConnection) -> None:
        come.put_nowait(connection)
        await done.wait()

    async with plain_serve(hold, "127.0.0.1", 0, compression=None, max_size=None) as server:
        client = await connect(f"ws://127.0.0.1:{port(server.sockets)}/acp", **settings)
        yield client, await come.get()
        done.set()
        await client.close()


def port(sockets: Any) -> int:
    return int(next(iter(sockets)).getsockname()[1])


def address(server: Server) -> tuple[str, int]:
    host, _, number = server.url.removeprefix("ws://").removesuffix("/acp").rpartition(":")
    return host, int(number)


async def answer(server: Server, path: str = "/acp", headers: Mapping[str, str | None] | None = None) -> list[str]:
    """Ask for the upgrade and give the lines of the answer's head; ``None`` for a header leaves it out."""
    host, number = address(server)
    sent: dict[str, str | None] = {"Host": f"{host}:{number}", **UPGRADE, "Authorization": f"Bearer {server.token}"}
    sent.update(headers or {})
    reader, writer = await asyncio.open_connection(host, number)
    head = "".join(f"{name}: {value}\r\n" for name, value in sent.items() if value is not None)
    writer.write(f"GET {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1"))
    text = (await reader.readuntil(b"\r\n\r\n")).decode()
    writer.close()
    await writer.wait_closed()
    return text.split("\r\n")


async def status(server: Server, path: str = "/acp", headers: Mapping[str, str | None] | None = None) -> int:
    return int((await answer(server, path, headers))[0].split()[1])


def statuses(requests: list[Mapping[str, str | None]], **settings: Any) -> list[int]:
    async def main() -> list[int]:
        async with await serve(echo, **settings) as server:
            return [await status(server, headers=headers) for headers in requests]

    return run(main())


# Messages


def test_messages_arrive_whole_and_in_order_both_ways() -> None:
    sent = [f'{{"number":{number},"fill":"{"é" * (number % 300)}"}}'.encode() for number in range(1000)]

    async def fill(transport: Transport) -> None:
        for message in sent:
            transport.send(message)
            await transport.drain()

    async def take(transport: Transport) -> list[bytes]:
        return [await receive(transport) for _ in sent]

    async def main() -> None:
        async with pair() as (client, agent):
            _, _, at_client, at_agent = await asyncio.gather(fill(client), fill(agent), take(client), take(agent))
            assert at_client == sent
            assert at_agent == sent

    run(main())


def test_both_ends_know_the_connection_by_the_id_in_the_answer_to_the_upgrade() -> None:
    async def main() -> None:
        async with pair() as (client, agent):
            assert client.connection_id is not None
            assert str(uuid.UUID(client.connection_id)) == client.connection_id == agent.connection_id

    run(main())


def test_a_server_may_give_no_connection_id() -> None:
    async def main() -> None:
        async with beside_plain_server() as (client, _):
            assert client.connection_id is None

    run(main())


def test_a_message_printed_on_many_lines_becomes_one() -> None:
    async def main() -> None:
        async with beside_plain_client() as (agent, client):
            await client.send('{\r\n  "text": "a\\nb\u2028c"\n}')
            assert await receive(agent) == '{    "text": "a\\nb\u2028c" }'.encode()

    run(main())


def test_a_message_in_several_frames_is_one() -> None:
    async def main() -> None:
        async with beside_plain_client() as (agent, client):
            await client.send(["[1,", "2,\n", "3]"])
            assert await receive(agent) == b"[1,2, 3]"

    run(main())


def test_what_is_not_utf8_is_sent_as_replacement_characters() -> None:
    async def main() -> None:
        async with beside_plain_client() as (agent, client):
            agent.send(b'["\xff","\xc3\xa9"]')
            agent.send(b"[]")
            assert [await client.recv(), await client.recv()] == ['["\ufffd","é"]', "[]"]

    run(main())


def test_messages_are_not_compressed_even_for_those_who_offer_to() -> None:
    async def main() -> list[str]:
        async with await serve(echo) as server:
            return await answer(server, headers={"Sec-WebSocket-Extensions": "permessage-deflate"})

    head = run(main())
    assert head[0] == "HTTP/1.1 101 Switching Protocols"
    assert not [line for line in head if line.lower().startswith("sec-websocket-extensions")]


# Who is let in


@pytest.mark.parametrize("shown", [None, "", "Bearer", "Bearer ", "Bearer hush", f"Basic {TOKEN}", TOKEN, "Bearer é"])
def test_without_the_token_the_answer_is_401(shown: str | None) -> None:
    async def main() -> list[str]:
        async with await serve(echo, token=TOKEN) as server:
            return await answer(server, headers={"Authorization": shown})

    head = run(main())
    assert head[0] == "HTTP/1.1 401 Unauthorized"
    assert "WWW-Authenticate: Bearer" in head


def test_the_name_of_the_scheme_may_be_written_in_any_case() -> None:
    assert statuses([{"Authorization": f"bearer {TOKEN}"}], token=TOKEN) == [101]


@pytest.mark.parametrize("token", [None, "wrong-4712"])
def test_a_client_with_the_wrong_token_is_told_and_the_token_is_not(token: str | None) -> None:
    async def main() -> None:
        async with await serve(echo, token=TOKEN) as server:
            with pytest.raises(ConnectionLost, match=r"refused the connection: HTTP 401 \(Unauthorized\)") as caught:
                await connect(server.url + "?key=hush-4713", token=token)
            assert all(word not in str(caught.value) for word in ("wrong-4712", TOKEN, "hush-4713"))

    run(main())


def test_a_token_is_made_for_each_server_that_is_given_none() -> None:
    async def main() -> None:
        async with await serve(echo) as one, await serve(echo) as two:
            assert one.token is not None
            assert len(one.token) >= 32
            assert one.token != two.token

    run(main())


def test_on_loopback_no_token_may_be_required() -> None:
    async def main() -> None:
        async with await serve(echo, require_token=False) as server:
            assert server.token is None
            client = await connect(server.url)
            client.send(b"[]")
            assert await receive(client) == b"[]"
            await client.close()

    run(main())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"require_token": False, "host": "0.0.0.0"}, "only a loopback host"),
        ({"require_token": False, "host": ""}, "only a loopback host"),
        ({"require_token": False, "token": TOKEN}, "none is required"),
        ({"token": ""}, "a token is one or more"),
        ({"token": TOKEN + "\n"}, "a token is one or more"),
        ({"path": "acp"}, "begins with /"),
    ],
)
def test_settings_that_cannot_be_meant_are_errors(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        run(serve(echo, **settings))
    assert TOKEN not in str(caught.value)


def test_an_origin_is_refused_unless_it_is_allowed() -> None:
    origins: list[Mapping[str, str | None]] = [
        {"Origin": None},
        {"Origin": "https://app.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
    ]
    assert statuses(origins) == [101, 403, 403, 403, 403]
    assert statuses(origins, origins=["https://app.example"]) == [101, 101, 403, 403, 403]
    twice = {"Origin": "https://app.example", "origin": "https://evil.example"}
    assert statuses([twice], origins=["https://app.example"]) == [403]


def test_an_origin_that_is_not_allowed_is_refused_whatever_the_token() -> None:
    assert statuses([{"Origin": "https://evil.example", "Authorization": None}]) == [403]


def test_on_loopback_only_names_of_this_machine_are_served() -> None:
    hosts = ["127.0.0.1", "localhost:1", "LOCALHOST", "[::1]:80", "127.9.9.9", "acp.example:443"]
    strangers = ["evil.example", "127.0.0.1.evil.example", "evil@localhost", "localhost:80:80", "192.0.2.1", "", None]
    assert statuses([{"Host": host} for host in hosts]) == [101, 101, 101, 101, 101, 403]
    assert statuses([{"Host": host} for host in hosts], hosts=["ACP.example"]) == [101] * 6
    assert statuses([{"Host": host} for host in strangers], hosts=["ACP.example"]) == [403] * 7
    assert statuses([{"Host": "localhost", "host": "evil.example"}]) == [403]


def test_elsewhere_any_name_is_served_unless_names_are_given() -> None:
    def asked(**settings: Any) -> int:
        async def main() -> int:
            async with await serve(echo, host="0.0.0.0", token=TOKEN, **settings) as server:
                return await status(server, headers={"Host": "evil.example"})

        return run(main())

    assert asked() == 101
    assert asked(hosts=["acp.example"]) == 403


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/acp", 101), ("/acp?x=1", 101), ("/", 404), ("/acp/", 404), ("/acp2", 404), ("/other", 404)],
)
def test_there_is_one_path(path: str, expected: int) -> None:
    async def main() -> int:
        async with await serve(echo) as server:
            return await status(server, path)

    assert run(main()) == expected


def test_the_path_may_be_another() -> None:
    async def main() -> list[int]:
        async with await serve(echo, path="/agents/one") as server:
            assert server.url.endswith("/agents/one")
            await (await connect(server.url, token=server.token)).close()
            host, _, rest = server.url.removeprefix("ws://").partition(":")
            server.url = f"ws://{host}:{rest.partition('/')[0]}/acp"
            return [await status(server, "/agents/one"), await status(server, "/acp")]

    assert run(main()) == [101, 404]


def test_a_url_without_a_path_means_acp() -> None:
    async def main() -> None:
        async with await serve(echo) as server:
            client = await connect(server.url.removesuffix("/acp"), token=server.token)
            assert client.name == server.url
            await client.close()

    run(main())


def test_a_request_for_no_upgrade_is_told_of_it() -> None:
    assert statuses([{"Upgrade": None, "Connection": None}]) == [426]


def test_beyond_the_most_connections_there_are_none_until_one_ends() -> None:
    async def main() -> None:
        async with await serve(echo, max_connections=1) as server:
            first = await connect(server.url, token=server.token)
            with pytest.raises(ConnectionLost, match="HTTP 503"):
                await connect(server.url, token=server.token)
            await first.close()
            while True:  # the server learns of the end in its own time
                try:
                    second = await connect(server.url, token=server.token)
                except ConnectionLost:
                    continue
                break
            await second.close()

    run(main())


def test_headers_go_beside_the_token() -> None:
    async def main() -> None:
        seen: list[str] = []

        async def look(connection: ServerConnection) -> None:
            assert connection.request is not None
            seen.extend(connection.request.headers.get_all(name)[0] for name in ("Authorization", "Cookie"))

        async with plain_serve(look, "127.0.0.1", 0) as server:
            url = f"ws://127.0.0.1:{port(server.sockets)}"
            client = await connect(url, token=TOKEN, headers={"Cookie": "node=7"})
            assert await client.receive() == ()
            await client.close()
        assert seen == [f"Bearer {TOKEN}", "node=7"]

    run(main())


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("http://127.0.0.1:1/acp", {}),
        ("ws:///acp", {}),
        ("ws://127.0.0.1:hush-4711/acp", {}),
        ("ws://user:hush-4711@127.0.0.1:1/acp", {}),
        ("ws://127.0.0.1:1/acp#hush-4711", {}),
        ("ws://127.0.0.1:1/acp", {"token": ""}),
        ("ws://127.0.0.1:1/acp", {"token": "hush-4711\r\nHost: evil.example"}),
        ("ws://127.0.0.1:1/acp", {"token": "x", "headers": {"authorization": "hush-4711"}}),
        ("ws://127.0.0.1:1/acp", {"headers": {"X-Key": "hush-4711\r\nHost: evil.example"}}),
        ("ws://127.0.0.1:1/acp", {"headers": {"X Key": "hush-4711"}}),
    ],
)
def test_what_cannot_be_connected_to_is_an_error_that_quotes_no_secret(url: str, settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"URL|token|header") as caught:
        run(connect(url, **settings))
    assert TOKEN not in str(caught.value)


def test_where_nobody_listens_there_is_no_connection() -> None:
    async def main() -> None:
        async with await serve(echo) as server:
            pass
        with pytest.raises(ConnectionLost, match="cannot be reached"):
            await connect(server.url)

    run(main())


@asynccontextmanager
async def speaking(reply: bytes, *, hang_up: bool = True) -> AsyncIterator[str]:
    """A server that says ``reply`` to whatever it is asked."""
    done = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        if not hang_up:
            await done.wait()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{port(server.sockets)}/acp"
        done.set()


@pytest.mark.parametrize("reply", [b"", b"hello\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\n\r\n"])
def test_what_answers_like_no_websocket_server_gives_no_connection(reply: bytes) -> None:
    async def main() -> None:
        async with speaking(reply) as url:
            with pytest.raises(ConnectionLost, match="did not answer as a WebSocket server does"):
                await connect(url)

    run(main())


def test_a_server_that_says_nothing_is_waited_for_only_so_long() -> None:
    async def main() -> None:
        async with speaking(b"", hang_up=False) as url:
            with pytest.raises(ConnectionLost, match=r"did not answer within 0\.1 seconds"):
                await connect(url, open_timeout=0.1)

    run(main())


def test_a_redirect_is_not_followed() -> None:
    async def main() -> None:
        async with (
            await serve(echo, require_token=False) as server,
            speaking(f"HTTP/1.1 307 Moved\r\nLocation: {server.url}\r\nContent-Length: 0\r\n\r\n".encode()) as url,
        ):
            with pytest.raises(ConnectionLost, match="HTTP 307"):
                await connect(url, token=TOKEN)

    run(main())


def test_no_log_holds_the_token_or_a_message(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="twofold.runtime.websocket")

    async def main() -> None:
        async with await serve(echo, token=TOKEN) as server:
            client = await connect(server.url, token=TOKEN)
            client.send(b'"fog on the pier"')
            assert await receive(client) == b'"fog on the pier"'
            await client.close()
            with pytest.raises(ConnectionLost):
                await connect(server.url, token=TOKEN + "x")

    run(main())
    assert "connection open" in caplog.text
    assert TOKEN not in caplog.text
    assert "fog" not in caplog.text


# What is not taken


def test_binary_frames_are_ignored() -> None:
    async def main() -> None:
        async with beside_plain_client() as (agent, client):
            await client.send("[1]")
            await client.send(b"[2]")
            await client.send("[3]")
            assert await receive(agent) == b"[1]"
            assert await receive(agent) == b"[3]"

    run(main())


def test_an_over_long_message_ends_the_connection_with_1009() -> None:
    async def main() -> None:
        async with beside_plain_client(line_limit=100) as (agent, client):
            await client.send("x" * 100)
            await client.send("y" * 101)
            await client.wait_closed()
            assert client.close_code == 1009
            assert await receive(agent) == b"x" * 100
            with pytest.raises(ConnectionLost, match="sent a message longer than 100 bytes"):
                await agent.receive()

    run(main())


def test_an_over_long_message_is_not_held_while_it_comes_in_pieces() -> None:
    async def main() -> None:
        async with beside_plain_client(line_limit=100) as (agent, client):
            await client.send("é" * 20 for _ in range(3))
            with pytest.raises(ConnectionLost, match="longer than 100 bytes"):
                await agent.receive()
            await client.wait_closed()
            assert client.close_code == 1009

    run(main())


def test_who_sends_a_message_too_long_for_the_other_side_is_told() -> None:
    async def main() -> None:
        held = Held()
        async with await serve(held, line_limit=100) as server:
            client = await connect(server.url, token=server.token)
            client.send(b"x" * 101)
            with pytest.raises(ConnectionLost, match="does not take a message as long as one that was sent"):
                await client.receive()
            await client.close()
            held.done.set()

    run(main())


def test_text_that_is_not_utf8_ends_the_connection_with_1007() -> None:
    async def main() -> None:
        async with beside_plain_client() as (agent, client):
            await client.send(b"\xff", text=True)
            with pytest.raises(ConnectionLost, match="sent text that is not UTF-8"):
                await agent.receive()
            await client.wait_closed()
            assert client.close_code == 1007

    run(main())


# A side that does not read


def held_back(transport: WebSocketTransport) -> int:
    """Give the bytes that the process holds because the other side has not taken them."""
    return sum(map(len, transport._queue)) + transport._socket.transport.get_write_buffer_size()


class Offer:
    """Offers numbered messages, one after another, as far as the other side takes them."""

    def __init__(self, transport: Transport, *, count: int, size: int) -> None:
        self.sent = 0
        self._transport = transport
        self._count = count
        self._fill = b"x" * (size - 7)

    async def go_on(self) -> None:
        await self._transport.drain()
        while self.sent < self._count:
            self._transport.send(b"%07d" % self.sent + self._fill)
            self.sent += 1
            await self._transport.drain()

    async def as_far_as_it_gets(self) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await self.go_on()


def test_a_peer_that_stops_reading_makes_drain_wait_and_not_the_memory_grow() -> None:
    limit, size = MIB, 64 * 1024
    count = 64 * MIB // size

    async def main() -> None:
        async with beside_plain_client(outgoing_limit=limit, keepalive=None) as (agent, client):
            offer = Offer(agent, count=count, size=size)
            await offer.as_far_as_it_gets()
            assert offer.sent < count / 2
            assert limit < agent._unsent <= limit + size
            assert held_back(agent) <= limit + 2 * size
            going_on = asyncio.create_task(offer.go_on())
            for number in range(count):
                message = await client.recv()
                assert len(message) == size
                assert int(message[:7]) == number
                assert held_back(agent) <= limit + 2 * size
            await going_on
            assert offer.sent == count

    run(main())


def test_a_side_that_does_not_receive_holds_few_messages() -> None:
    async def main() -> None:
        async with pair(outgoing_limit=MIB, keepalive=None) as (client, agent):
            offer = Offer(client, count=64, size=MIB)
            await offer.as_far_as_it_gets()
            assert offer.sent < 32
            assert len(agent._socket.recv_messages.frames) <= 5
            assert [int((await receive(agent))[:7]) for _ in range(offer.sent)] == [*range(offer.sent)]

    run(main())


# Ends


def test_a_peer_that_closes_in_order_just_ends() -> None:
    async def main() -> None:
        async with beside_plain_client() as (agent, client):
            await client.send("[1]")
            await client.close(1001)
            assert await receive(agent) == b"[1]"
            assert await agent.receive() == ()
            assert await agent.receive() == ()
            agent.send(b"[]")  # dropped
            with pytest.raises(ConnectionLost, match="is gone"):
                await agent.drain()

    run(main())


def test_a_peer_that_closes_with_an_error_is_not_quoted() -> None:
    async def main() -> None:
        async with beside_plain_client() as (agent, client):
            await client.close(4001, "hush-4711")
            with pytest.raises(ConnectionLost, match=r"closed the connection with code 4001$"):
                await agent.receive()

    run(main())


def test_when_the_peer_vanishes_receiving_and_draining_end() -> None:
    async def main() -> None:
        async with beside_plain_client(outgoing_limit=1000, keepalive=None) as (agent, client):
            receiving = asyncio.create_task(agent.receive())
            for _ in range(64):  # more than the system takes
                agent.send(b"x" * MIB)
            draining = asyncio.create_task(agent.drain())
            await asyncio.sleep(0)
            assert not draining.done()
            client.transport.abort()
            with pytest.raises(ConnectionLost, match="is gone, without closing"):
                await receiving
            with pytest.raises(ConnectionLost, match="is gone"):
                await draining
            with pytest.raises(ConnectionLost, match="is gone"):
                await agent.drain()
            assert held_back(agent) == agent._unsent == 0
            agent.send(b"[]")
            assert agent._unsent == 0

    run(main())


def test_a_peer_that_answers_no_ping_is_gone() -> None:
    async def main() -> None:
        async with beside_plain_server(keepalive=0.05, close_timeout=0.1) as (client, server):
            server.transport.pause_reading()
            with pytest.raises(ConnectionLost, match="did not answer a ping in time"):
                await client.receive()
            server.transport.abort()

    run(main())


async def pour(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x" * MIB)
        await writer.drain()


def test_a_peer_that_was_told_to_go_and_stays_is_dropped() -> None:
    async def main() -> None:
        settings: dict[str, Any] = {"line_limit": 100, "keepalive": None, "close_timeout": 0.1}
        async with await serve(Held(), require_token=False, **settings) as server:
            reader, writer = await asyncio.open_connection(*address(server))
            head = "".join(f"{name}: {value}\r\n" for name, value in {"Host": "localhost", **UPGRADE}.items())
            writer.write(f"GET /acp HTTP/1.1\r\n{head}\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"\x81\xff" + (101).to_bytes(8, "big"))  # a frame that is too long begins
            assert (await reader.read())[2:4] == (1009).to_bytes(2, "big")
            with pytest.raises(ConnectionError):
                await pour(writer)
            writer.close()

    run(main())


def test_closing_sends_what_waits() -> None:
    async def main() -> None:
        async with beside_plain_client() as (agent, client):
            for number in range(8):
                agent.send(b"%d" % number + b"x" * MIB)
            closing = asyncio.create_task(agent.close())
            assert [int((await client.recv())[:1]) for _ in range(8)] == [*range(8)]
            with pytest.raises(ConnectionClosed):
                await client.recv()
            assert client.close_code == 1000
            await closing
            await agent.close()
            assert await agent.receive() == ()
            with pytest.raises(ConnectionLost, match="is closed"):
                await agent.drain()

    run(main())


def test_closing_waits_only_so_long_for_a_peer_that_does_not_read() -> None:
    async def main() -> None:
        async with beside_plain_client(close_timeout=0.1, keepalive=None) as (agent, client):
            for _ in range(64):
                agent.send(b"x" * MIB)
            async with asyncio.timeout(5):
                await agent.close()
            assert agent._socket.state is State.CLOSED
            assert held_back(agent) == 0
            client.transport.abort()

    run(main())


def test_closing_is_in_order_though_messages_come_that_nobody_receives() -> None:
    async def main() -> None:
        async with pair(keepalive=None) as (client, agent):
            for _ in range(100):
                agent.send(b"x" * 100_000)
            await receive(client)
            client.send(b"[]")
            await client.close()
            assert client._socket.close_code == 1000
            assert await receive(agent) == b"[]"
            assert await agent.receive() == ()

    run(main())


def test_who_receives_while_it_is_closed_learns_of_the_end() -> None:
    async def main() -> None:
        async with pair() as (client, agent):
            receiving = asyncio.create_task(client.receive())
            await asyncio.sleep(0)
            await client.close()
            assert await receiving == ()
            assert await agent.receive() == ()

    run(main())


def test_who_waits_to_send_while_it_is_closed_learns_of_the_end() -> None:
    async def main() -> None:
        async with beside_plain_client(outgoing_limit=1000, keepalive=None) as (agent, client):
            for _ in range(64):
                agent.send(b"x" * MIB)
            draining = asyncio.create_task(agent.drain())
            await asyncio.sleep(0)
            closing = asyncio.create_task(agent.close())
            with pytest.raises(ConnectionLost, match="is closed"):
                async with asyncio.timeout(2.0):
                    await draining
            assert not closing.done()
            client.transport.abort()
            await closing

    run(main())


def test_a_handler_that_returns_ends_its_connection_with_what_it_sent() -> None:
    async def greet(transport: Transport) -> None:
        transport.send(b'"hello"')

    async def main() -> None:
        async with await serve(greet) as server:
            client = await connect(server.url, token=server.token)
            assert await receive(client) == b'"hello"'
            assert await client.receive() == ()
            await client.close()

    run(main())


def test_a_handler_that_fails_ends_its_own_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    async def fail_or_echo(transport: Transport) -> None:
        line = await receive(transport)
        if line == b'"fail"':
            raise RuntimeError("a fault of the handler")
        transport.send(line)
        await transport.receive()

    async def main() -> None:
        async with await serve(fail_or_echo) as server:
            one = await connect(server.url, token=server.token)
            two = await connect(server.url, token=server.token)
            one.send(b'"fail"')
            with pytest.raises(ConnectionLost, match="closed the connection with code 1011"):
                await one.receive()
            two.send(b"[]")
            assert await receive(two) == b"[]"
            await one.close()
            await two.close()

    run(main())
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == [
        "connection handler failed"
    ]


def test_a_handler_whose_client_vanishes_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    ended = asyncio.Event()

    async def wait(transport: Transport) -> None:
        try:
            await transport.receive()
        finally:
            ended.set()

    async def main() -> None:
        async with await serve(wait) as server:
            client = await connect(server.url, token=server.token)
            client._socket.transport.abort()
            await ended.wait()
            await client.close()

    run(main())
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_server_that_closes_lets_everybody_go() -> None:
    async def main() -> None:
        held = Held()
        server = await serve(held, close_timeout=0.2)
        client = await connect(server.url, token=server.token)
        agent = await held.come.get()
        silent_reader, silent = await asyncio.open_connection(*address(server))
        agent.send(b'"last words"')
        async with asyncio.timeout(5):
            closing = asyncio.create_task(server.close())
            assert await receive(client) == b'"last words"'
            assert await client.receive() == ()
            await closing  # its handler waits for an event that never comes
            assert await silent_reader.read() == b""
        assert client._socket.close_code == 1001
        await server.close()
        with pytest.raises(ConnectionLost, match="cannot be reached"):
            await connect(server.url)
        await client.close()
        silent.close()

    run(main())


# Without the extra


def test_without_the_extra_twofold_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] == "websockets":
            monkeypatch.setitem(sys.modules, name, None)
        elif name.partition(".")[0] == "twofold":
            monkeypatch.delitem(sys.modules, name)
    importlib.import_module("twofold")
    importlib.import_module("twofold.runtime._transport")
    with pytest.raises(ImportError, match=r"pip install 'twofold\[websocket\]'"):
        importlib.import_module("twofold.runtime.websocket")
