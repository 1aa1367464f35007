"""A conversation over a transport: told in the order received, one after another, and nothing said breaks it off."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import pytest
from msgspec import Raw, UnsetType

from tests.fold.sessions import chunk, text, whole
from tests.runtime.scripted import line, parsed, run, turns
from twofold.exceptions import ConnectionLost, Malformed, ParseError, ProtocolViolation, RequestError, TwofoldError
from twofold.jsonrpc import CANCEL, CANCELLED
from twofold.runtime import StreamTransport, Transport, memory_pair
from twofold.runtime import _connection as connection_module
from twofold.runtime._connection import Connection, Incoming, method_not_found
from twofold.wire import Codec, v2

SECRET: Final = "hush-4711"

Json = Any


def update(words: str, session: str = "s") -> bytes:
    return line(method="session/update", params={"sessionId": session, "update": chunk("m", words)})


def said(params: v2.UpdateSessionNotification) -> str:
    assert isinstance(params.update, v2.AgentMessageChunk)
    assert isinstance(params.update.content, v2.TextContent)
    return params.update.content.text


class Heard:
    """A handler that writes down what it is told, and then does what ``on_…`` say."""

    codec: Codec[Any, Any] | None = v2.CODEC

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.updates: list[v2.UpdateSessionNotification] = []
        self.lines: list[bytes | None] = []
        self.requests: list[Incoming] = []
        self.faults: list[TwofoldError] = []
        self.ends: list[ConnectionLost] = []
        self.on_update: Callable[[str], Awaitable[object] | None] = lambda _: None
        self.on_notification: Callable[[str], Awaitable[object] | None] = lambda _: None
        self.on_request: Callable[[Incoming], object] = lambda _: None
        self.on_fault: Callable[[TwofoldError], object] = lambda _: None
        self.on_end: Callable[[ConnectionLost], object] = lambda _: None

    def update(self, params: v2.UpdateSessionNotification, line: bytes | None) -> Awaitable[object] | None:
        self.updates.append(params)
        self.lines.append(line)
        words = said(params) if isinstance(params.update, v2.AgentMessageChunk) else "…"
        self.told.append(words)
        return self.on_update(words)

    def notification(self, method: str, params: Raw | UnsetType) -> Awaitable[object] | None:
        self.told.append(method)
        return self.on_notification(method)

    def request(self, incoming: Incoming) -> None:
        self.told.append(incoming.method)
        self.requests.append(incoming)
        self.on_request(incoming)

    def fault(self, error: TwofoldError) -> None:
        self.faults.append(error)
        self.on_fault(error)

    def ended(self, error: ConnectionLost) -> None:
        self.ends.append(error)
        self.on_end(error)


class Talk:
    """A connection that is read, what it tells, and the other end of its transport."""

    def __init__(self, *, limit: int = 1024 * 1024, **options: Any) -> None:
        ours, self.other = memory_pair(limit=limit)
        self.heard = Heard()
        self.connection = Connection(ours, self.heard, **options)
        self.running = asyncio.create_task(self.connection.run())

    def say(self, *messages: bytes) -> None:
        for message in messages:
            self.other.send(message)

    async def replies(self, count: int) -> list[Json]:
        replies: list[Json] = []
        while len(replies) < count:
            lines = await self.other.receive()
            assert lines
            replies += [parsed(one) for one in lines if isinstance(one, bytes)]
        return replies

    async def end(self) -> None:
        """End the other side, and wait until that was heard."""
        await self.other.close()
        await self.running


# Order


def test_handler_calls_follow_one_another_in_the_order_received() -> None:
    chance = random.Random(4711)
    busy = False

    async def main() -> None:
        talk = Talk()
        ended: list[str] = []

        async def work(words: str) -> None:
            nonlocal busy
            assert not busy
            busy = True
            await turns(chance.randrange(4))
            busy = False
            ended.append(words)

        def hear(words: str) -> Awaitable[None] | None:
            assert not busy
            return work(words) if chance.random() < 0.7 else None

        talk.heard.on_update = talk.heard.on_notification = hear
        talk.heard.on_request = lambda incoming: hear(incoming.method) and None
        expected: list[str] = []
        for number in range(1000):
            expected.append(str(number))
            talk.say(update(str(number)))
            if not number % 10:
                expected.append(f"_n{number}")
                talk.say(line(method=f"_n{number}"))
        await talk.end()
        assert talk.heard.told == expected
        assert ended == [words for words in expected if words in set(ended)]
        assert len(ended) > 700

    run(main())


def test_a_request_is_told_after_the_update_before_it_is_done() -> None:
    async def main() -> None:
        talk = Talk()
        go_on = asyncio.Event()
        talk.heard.on_update = lambda _: go_on.wait()
        talk.say(update("first"), line(id=1, method="second"), line(method="third"))
        await turns(10)
        assert talk.heard.told == ["first"]
        go_on.set()
        await talk.end()
        assert talk.heard.told == ["first", "second", "third"]

    run(main())


class Deaf:
    """A writer that drops what is written."""

    def __init__(self) -> None:
        self.closed = False

    def write(self, data: bytes, /) -> None: ...

    def is_closing(self) -> bool:
        return self.closed

    async def drain(self) -> None: ...

    def close(self) -> None:
        self.closed = True

    async def wait_closed(self) -> None: ...


@pytest.mark.parametrize("over", ["memory", "stream"])
def test_an_answer_takes_effect_before_the_next_line_is_looked_at(over: str) -> None:
    async def main() -> None:
        heard = Heard()
        transport: Transport
        if over == "memory":
            transport, other = memory_pair()
        else:
            reader = asyncio.StreamReader()
            transport = StreamTransport(reader, Deaf(), name="a stream")
        connection = Connection(transport, heard)
        running = asyncio.create_task(connection.run())
        asking = asyncio.create_task(
            connection.request("session/new", {}, then=lambda result: heard.told.append(bytes(result)))
        )
        await turns(3)
        came = [update("before"), line(id=0, result={"sessionId": "s"}), update("after"), line(id=7, method="ask")]
        if over == "memory":
            for one in came:
                other.send(one)
            await other.close()
        else:
            reader.feed_data(b"\n".join(came) + b"\n")
            reader.feed_eof()
        assert bytes(await asking) == b'{"sessionId":"s"}'
        await running
        assert heard.told == ["before", b'{"sessionId":"s"}', "after", "ask"]

    run(main())


def test_an_error_answer_takes_effect_in_its_place_too() -> None:
    async def main() -> None:
        talk = Talk()
        told = talk.heard.told
        talk.connection.send_request("m", {}, lambda result, error: told.append((result, error)))
        talk.say(update("before"), line(id=0, error={"code": -32002, "message": "gone"}), update("after"))
        await talk.end()
        before, (result, error), after = told
        assert (before, after) == ("before", "after")
        assert result is None
        assert isinstance(error, RequestError)
        assert (error.code, error.method) == (-32002, "m")

    run(main())


def test_a_handler_that_takes_over_is_told_from_the_next_line_on() -> None:
    async def main() -> None:
        talk = Talk()
        later = Heard()

        def take_over(_: Raw | None, __: TwofoldError | None) -> None:
            talk.connection.handler = later

        talk.connection.send_request("initialize", {}, take_over)
        talk.say(line(method="one"), line(id=0, result={}), update("two"), line(method="three"))
        await talk.end()
        assert talk.heard.told == ["one"]
        assert later.told == ["two", "three"]
        assert len(later.ends) == 1

    run(main())


def test_updates_are_notifications_like_others_where_nobody_reads_them() -> None:
    async def main() -> None:
        talk = Talk()
        talk.heard.codec = None
        talk.say(update("words"), b'{"jsonrpc":"2.0","method":"session/update"}')
        await talk.end()
        assert talk.heard.told == ["session/update", "session/update"]

    run(main())


# What is wrong


def test_garbage_empty_lines_and_unknown_methods_do_not_end_the_conversation() -> None:
    async def main() -> None:
        talk = Talk()

        def refuse(incoming: Incoming) -> None:
            raise method_not_found(incoming.method)

        talk.heard.on_request = refuse
        talk.say(
            b"garbage",
            b"",
            b"  ",
            b"\xff\xfe",
            b"[]",
            line(id=1, method="unknown"),
            line(method="unknown"),
            line(id=2, result={}),
            line(id=None, error={"code": -32700, "message": SECRET}),
            b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1e999}}',
            update("words"),
        )
        answers = await talk.replies(4)
        await talk.end()
        assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [
            (None, -32700),
            (None, -32700),
            (None, -32600),
            (1, -32601),
        ]
        assert talk.heard.told == ["unknown", "unknown", "words"]
        assert [type(fault) for fault in talk.heard.faults[3:]] == [ProtocolViolation, ProtocolViolation, ParseError]
        assert SECRET not in "".join(map(str, talk.heard.faults))

    run(main())


@pytest.mark.rule("U-6")
def test_a_lenient_connection_leaves_bad_items_out_and_says_so() -> None:
    content = [text("good"), {"type": "text", "text": {SECRET: 1}}, text("better")]

    async def main() -> None:
        talk = Talk()
        params = {"sessionId": "s", "update": whole("m", content=content, _meta=SECRET)}
        talk.say(line(method="session/update", params=params))
        await talk.end()
        (told,) = talk.heard.updates
        assert isinstance(told.update, v2.AgentMessage)
        assert told.update.content == [v2.TextContent(text="good"), v2.TextContent(text="better")]
        assert talk.heard.lines == [None]  # the line holds more than was taken: it is not to be passed on
        paths = [fault.path for fault in talk.heard.faults if isinstance(fault, Malformed)]
        assert sorted(paths) == ["$.params.update._meta", "$.params.update.content[1].text"]
        assert SECRET not in "".join(map(str, talk.heard.faults))

    run(main())


@pytest.mark.rule("U-6")
@pytest.mark.parametrize(
    ("broken", "lenient"),
    [
        (whole("m", content=[text("good"), {"type": "text"}]), False),
        (whole("m", content="words"), False),
        (whole("m", content="words"), True),
        (whole("m", content=[{"type": "text"}]), True),
        ({"sessionUpdate": "agent_message_chunk", "content": text("words")}, True),
        ({}, True),
        (None, True),
        ([], True),
    ],
)
def test_a_malformed_update_is_a_fault_and_not_told(broken: Json, lenient: bool) -> None:
    async def main() -> None:
        talk = Talk(lenient=lenient)
        talk.say(line(method="session/update", params={"sessionId": "s", "update": broken}), update("words"))
        await talk.end()
        assert talk.heard.told == ["words"]
        (fault,) = talk.heard.faults
        assert isinstance(fault, Malformed)
        assert fault.path.startswith("$.params.update")

    run(main())


@pytest.mark.parametrize("params", [b"", b',"params":[]', b',"params":{}', b',"params":{"sessionId":"s","x":1e999}'])
def test_params_of_an_update_that_are_none_are_a_fault(params: bytes) -> None:
    async def main() -> None:
        talk = Talk()
        talk.say(b'{"jsonrpc":"2.0","method":"session/update"%b}' % params, update("words"))
        await talk.end()
        assert talk.heard.told == ["words"]
        assert len(talk.heard.faults) == 1

    run(main())


class Leak(Exception):
    """What a program's own exception may say."""

    def __init__(self) -> None:
        super().__init__(SECRET)


def leak(*_: Any) -> Any:
    raise Leak


async def leak_later(*_: Any) -> None:
    await turns(1)
    raise Leak


@pytest.mark.rule("J-7")
@pytest.mark.parametrize("failing", [leak, leak_later])
def test_a_handler_that_fails_does_not_end_the_conversation_and_its_text_is_not_logged(
    failing: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        talk = Talk()
        talk.heard.on_update = talk.heard.on_notification = failing
        talk.heard.on_request = talk.heard.on_fault = talk.heard.on_end = leak
        talk.connection.send_request("m", {}, leak)
        talk.connection.send_request("n", {}, leak)
        asking = asyncio.create_task(talk.connection.request("o", {}, then=leak))
        await turns(2)
        assert [parsed(one)["id"] for one in await talk.other.receive() if isinstance(one, bytes)] == [0, 1, 2]

        def hold(incoming: Incoming) -> None:
            incoming.on_withdrawn = leak

        talk.say(update("one"), line(method="two"), line(id=0, result={}), line(id=2, result={}))
        talk.say(line(id=1, method="three"), b"garbage")
        refused, unread = await talk.replies(2)
        assert refused == {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "Internal error"}}
        assert unread["id"] is None
        with pytest.raises(Leak):  # this one has a place to go
            await asking
        talk.heard.on_request = hold
        talk.say(line(id=2, method="four"), line(method=CANCEL, params={"requestId": 2}), update("five"))
        await talk.end()
        assert talk.heard.told == ["one", "two", "three", "four", "five"]
        assert talk.connection.lost is not None
        assert len(talk.heard.ends) == 1

    run(main())
    assert SECRET not in caplog.text
    assert caplog.text.count(" failed with Leak\n") == 9


def test_an_error_of_ours_in_a_handler_is_a_fault_or_the_answer() -> None:
    async def main() -> None:
        talk = Talk()
        error = Malformed("$.params.x", expected="a string", found="an integer")

        def refuse(*_: Any) -> Any:
            raise error

        talk.heard.on_update = talk.heard.on_notification = talk.heard.on_request = refuse
        talk.connection.send_request("m", {}, refuse)
        talk.say(update("one"), line(method="two"), line(id=0, result={}), line(id=9, method="three"))
        _, answer = await talk.replies(2)
        assert answer["id"] == 9
        assert answer["error"] == {
            "code": -32602,
            "message": "Invalid params",
            "data": {"path": "$.params.x", "expected": "a string", "found": "an integer"},
        }
        await talk.end()
        assert talk.heard.faults == [error] * 3

    run(main())


# Batches


def test_entries_of_a_batch_are_told_one_after_another_and_their_array_is_no_line_of_theirs() -> None:
    async def main() -> None:
        talk = Talk(batches=True)
        go_on = asyncio.Event()
        talk.heard.on_update = lambda words: go_on.wait() if words == "one" else leak_later()
        talk.say(b"[" + b",".join([update("one"), line(method="two"), update("three"), b"7"]) + b"]")
        talk.say(b" [" + update("four") + b"]", update("five"))
        await turns(10)
        assert talk.heard.told == ["one"]
        go_on.set()
        await talk.end()
        assert talk.heard.told == ["one", "two", "three", "four", "five"]
        assert talk.heard.lines == [None, None, None, update("five")]
        assert len(talk.heard.faults) == 1

    run(main())


def test_a_request_may_be_answered_before_its_withdrawal_in_the_same_batch_is_looked_at() -> None:
    async def main() -> None:
        talk = Talk(batches=True)
        talk.heard.on_request = lambda incoming: incoming.respond({"ok": True})
        talk.say(b"[" + line(id=1, method="m") + b"," + line(method=CANCEL, params={"requestId": 1}) + b"]")
        assert await talk.replies(1) == [{"jsonrpc": "2.0", "id": 1, "result": {"ok": True}}]
        talk.say(update("words"))
        await talk.end()
        assert talk.heard.told == ["m", "words"]

    run(main())


def test_a_batch_is_refused_as_a_whole_unless_it_was_asked_for() -> None:
    async def main() -> None:
        talk = Talk()
        talk.say(b"[" + line(id=1, method="m") + b"," + update("one") + b"]", update("two"))
        (answer,) = await talk.replies(1)
        assert (answer["id"], answer["error"]["code"]) == (None, -32600)
        await talk.end()
        assert talk.heard.told == ["two"]

    run(main())


# Asking and being asked


def test_cancelling_whoever_waits_for_an_answer_withdraws_the_request_and_its_answer_does_no_harm() -> None:
    async def main() -> None:
        talk = Talk()
        effects: list[Raw] = []
        asking = asyncio.create_task(talk.connection.request("m", {}, then=effects.append))
        (asked,) = await talk.replies(1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        (withdrawn,) = await talk.replies(1)
        assert withdrawn == {"jsonrpc": "2.0", "method": CANCEL, "params": {"requestId": asked["id"]}}
        again = asyncio.create_task(talk.connection.request("n", {}))
        (other,) = await talk.replies(1)
        talk.say(line(id=asked["id"], result={"late": 1}), line(id=other["id"], result={}))
        assert bytes(await again) == b"{}"
        assert [bytes(effect) for effect in effects] == [b'{"late":1}']  # what it did has effect all the same
        await talk.end()
        assert talk.heard.faults == []

    run(main())


def test_a_request_that_was_answered_is_not_withdrawn() -> None:
    async def main() -> None:
        talk = Talk()
        asking = asyncio.create_task(talk.connection.request("m", {}))
        await talk.replies(1)
        talk.say(line(id=0, result={}))
        await asking
        asking.cancel()
        talk.connection.withdraw(0)
        talk.connection.notify("_last", None)
        assert await talk.replies(1) == [{"jsonrpc": "2.0", "method": "_last"}]
        await talk.end()

    run(main())


def test_a_request_of_theirs_that_they_withdraw_is_said_to_be_and_is_answered_once() -> None:
    async def main() -> None:
        talk = Talk()

        def hold(incoming: Incoming) -> None:
            incoming.on_withdrawn = lambda: incoming.fail(asyncio.CancelledError())

        talk.heard.on_request = hold
        talk.say(line(id=1, method="m"))
        talk.say(line(method=CANCEL, params={"requestId": 1}), line(method=CANCEL, params={"requestId": 1}))
        assert await talk.replies(1) == [
            {"jsonrpc": "2.0", "id": 1, "error": {"code": CANCELLED, "message": "Request cancelled"}}
        ]
        (incoming,) = talk.heard.requests
        assert incoming.withdrawn
        incoming.respond({"late": True})
        incoming.fail(Leak())
        talk.connection.notify("_last", None)
        assert await talk.replies(1) == [{"jsonrpc": "2.0", "method": "_last"}]
        await talk.end()
        assert talk.heard.faults == []

    run(main())


def test_it_can_be_waited_for_that_everything_is_answered() -> None:
    async def main() -> None:
        talk = Talk()
        await talk.connection.answered()
        talk.say(line(id=1, method="m"), line(id=2, method="n"))
        await turns(5)
        assert talk.connection.in_flight == 2
        waiting = asyncio.create_task(talk.connection.answered())
        talk.heard.requests[1].respond()
        await turns(5)
        assert not waiting.done()
        talk.heard.requests[0].fail(Leak())
        await waiting
        assert [answer["id"] for answer in await talk.replies(2)] == [2, 1]
        await talk.end()

    run(main())


# Floods


def test_a_peer_that_floods_us_and_does_not_read_our_answers_is_slowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "_UNREAD", 10_000)

    async def main() -> None:
        talk = Talk(limit=10_000)
        talk.heard.on_request = lambda incoming: incoming.respond()
        talk.say(*[line(id=number, method="m") for number in range(5000)])
        before = -1
        while len(talk.heard.requests) != before:
            before = len(talk.heard.requests)
            await turns(50)
        assert before < 1000
        answers = await talk.replies(5000)
        assert [answer["id"] for answer in answers] == list(range(5000))
        await talk.end()

    run(main())


def test_a_peer_that_does_not_read_is_heard_all_the_same() -> None:
    async def main() -> None:
        talk = Talk(limit=1000)
        talk.connection.notify("_big", {"text": "x" * 5000})
        draining = asyncio.create_task(talk.connection.drain())
        for number in range(100):
            talk.say(update(str(number)))
            await turns(3)
        talk.say(line(id=1, method="m"), line(method=CANCEL, params={"requestId": 1}))
        await turns(10)
        assert talk.heard.told == [*map(str, range(100)), "m"]
        assert talk.heard.requests[0].withdrawn
        assert not draining.done()
        await talk.end()
        with pytest.raises(ConnectionLost):
            await draining

    run(main())


def test_others_have_their_turns_while_many_lines_are_looked_at() -> None:
    async def main() -> None:
        talk = Talk(limit=100 * 1024 * 1024)
        talk.say(*[b"x"] * 5_000)
        await talk.other.close()
        ticks = 0
        while not talk.running.done():
            await asyncio.sleep(0)
            ticks += 1
        assert ticks > 15
        assert len(talk.heard.faults) == 5_000

    run(main())


def test_the_pace_is_that_of_whoever_it_is_passed_on_to() -> None:
    async def main() -> None:
        ours, next_one = memory_pair(limit=1)
        talk = Talk(pace=ours.drain)
        talk.heard.on_update = lambda words: ours.send(words.encode())
        talk.say(update("one"))
        await turns(10)
        talk.say(update("two"))
        await turns(10)
        assert talk.heard.told == ["one"]
        assert await next_one.receive() == [b"one"]
        await turns(10)
        assert talk.heard.told == ["one", "two"]
        await next_one.close()
        await talk.running
        assert talk.heard.ends == [talk.connection.lost]

    run(main())


# Ends


def test_the_end_of_input_fails_what_waits_for_an_answer_and_whatever_is_asked_later() -> None:
    async def main() -> None:
        talk = Talk()
        asking = [asyncio.create_task(talk.connection.request("m", {})) for _ in range(3)]
        await talk.replies(3)
        talk.say(update("last words"), line(id=1, result={}))
        await talk.end()
        first, second, third = await asyncio.gather(*asking, return_exceptions=True)
        assert isinstance(first, ConnectionLost)
        assert second == Raw(b"{}")
        assert isinstance(third, ConnectionLost)
        assert talk.heard.told == ["last words"]
        assert talk.heard.ends == [talk.connection.lost]
        with pytest.raises(ConnectionLost):
            await talk.connection.request("m", {})
        assert str(talk.connection.lost) == "the other end in memory ended the connection"
        await talk.connection.close()
        assert len(talk.heard.ends) == 1

    run(main())


def test_closing_fails_what_waits_for_an_answer() -> None:
    async def main() -> None:
        talk = Talk()
        asking = asyncio.create_task(talk.connection.request("m", {}))
        await talk.replies(1)
        await talk.connection.close()
        with pytest.raises(ConnectionLost):
            await asking
        await talk.running
        assert await talk.other.receive() == []
        assert len(talk.heard.ends) == 1

    run(main())


def test_cancelling_the_reader_fails_what_waits_for_an_answer() -> None:
    async def main() -> None:
        talk = Talk()
        asking = asyncio.create_task(talk.connection.request("m", {}))
        await talk.replies(1)
        talk.running.cancel()
        with pytest.raises(ConnectionLost):
            await asking
        with suppress(asyncio.CancelledError):
            await talk.running
        assert len(talk.heard.ends) == 1

    run(main())


class Ending:
    """A transport that takes nothing any more, and still has something to say."""

    name = "the dying"

    def __init__(self, said: Sequence[Sequence[bytes]], end: ConnectionLost | None) -> None:
        self.said = list(said)
        self.end = end

    async def receive(self) -> Sequence[bytes]:
        await turns(2)
        if self.said:
            return self.said.pop(0)
        if self.end is None:
            await asyncio.Event().wait()
        raise self.end or AssertionError

    def send(self, message: bytes) -> None: ...

    async def drain(self) -> None:
        raise ConnectionLost("the dying does not take what is sent")

    async def close(self) -> None: ...


@pytest.mark.parametrize("says_why", [True, False])
def test_a_side_that_takes_nothing_any_more_is_heard_to_its_end(
    says_why: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "_LAST_WORDS", 20.0 if says_why else 0.05)

    async def main() -> None:
        heard = Heard()
        end = ConnectionLost("the dying ended with status 3", exit_status=3) if says_why else None
        connection = Connection(Ending([[update("one")], [update("two"), line(id=0, result={})], [b"x"]], end), heard)
        asking = asyncio.create_task(connection.request("m", {}))
        never = asyncio.create_task(connection.request("n", {}))
        await turns(1)
        await connection.run()
        assert heard.told == ["one", "two"]
        assert bytes(await asking) == b"{}"
        with pytest.raises(ConnectionLost) as caught:
            await never
        assert caught.value is connection.lost
        if says_why:
            assert connection.lost is end
            assert caught.value.exit_status == 3
        else:
            assert str(caught.value) == "the dying does not take what is sent"

    run(main())
