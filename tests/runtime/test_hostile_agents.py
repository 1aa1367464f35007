"""Agents that do not keep to the rules: each is a clear error or a fault, and the client goes on unharmed."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import tracemalloc
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.runtime.scripted import MIB, line, run, scripted, turns, words
from tests.strategies import updates
from tests.values import anything
from twofold.exceptions import (
    ConnectionLost,
    HandshakeFailed,
    InvalidFrame,
    LineTooLong,
    Malformed,
    ParseError,
    ProtocolViolation,
    RequestError,
    TwofoldError,
)
from twofold.runtime import ProcessTransport, Transport, memory_pair
from twofold.runtime.client import Client, ClientSession, PermissionRequest, connect

SECRET: Final = "hush-4711"

posix = pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")


class Faults(list[TwofoldError]):
    """What was wrong, as the client told."""

    @property
    def kinds(self) -> list[type[TwofoldError]]:
        return [type(fault) for fault in self]


@asynccontextmanager
async def talking(code: str, *, grace: float | None = None, **options: Any) -> AsyncIterator[tuple[Client, Faults]]:
    """Connect to an agent that follows a script; give the client and its faults."""
    faults = Faults()
    command = scripted(code)
    agent = command if grace is None else await ProcessTransport.start(command, grace=grace)
    async with connect(agent, on_fault=faults.append, **options) as client:
        yield client, faults


@asynccontextmanager
async def session_of(code: str, **options: Any) -> AsyncIterator[tuple[Client, ClientSession, Faults]]:
    """Connect to an agent whose script goes on once there is a session, and give that, too."""
    async with talking("begin()\n" + dedent(code), **options) as (client, faults):
        yield client, await client.new_session(cwd="/tmp"), faults


@contextmanager
def memory_below(size: int) -> Iterator[None]:
    """Hold the block to so many bytes more than there were."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < size


def texts(session: ClientSession) -> list[str]:
    return [message.text for message in session.state.messages]


# The handshake


def fails(code: str, **options: Any) -> HandshakeFailed:
    async def main() -> HandshakeFailed:
        with pytest.raises(HandshakeFailed) as caught:
            async with talking(code, **options):
                raise AssertionError("connected")
        return caught.value

    return run(main())


def test_an_agent_that_never_answers_initialize_is_given_up_after_a_while() -> None:
    error = fails("hear(); assert hear()['method'] == '$/cancel_request'; the_end()", start_timeout=0.2)
    assert str(error).endswith("did not answer initialize within 0.2 seconds")
    assert error.asked == 2


@posix
def test_an_agent_that_never_answers_and_never_ends_is_ended() -> None:
    async def main() -> None:
        transport = await ProcessTransport.start(scripted("while True: signal.pause()"), grace=0.4)
        with pytest.raises(HandshakeFailed):
            async with connect(transport, start_timeout=0.1):
                raise AssertionError("connected")
        assert transport.process.returncode == -signal.SIGTERM

    run(main())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("{'protocolVersion': 7}", "was asked for protocol version 2 and answered 7"),
        ("{'protocolVersion': 0}", "was asked for protocol version 2 and answered 0"),
        ("{'protocolVersion': 'hush-4711'}", "was asked for protocol version 2 and answered no version"),
        ("{'protocolVersion': True}", "was asked for protocol version 2 and answered"),
        ("{}", "was asked for protocol version 2 and answered no version"),
        ("None", "was asked for protocol version 2 and answered no version"),
        ("[2]", "was asked for protocol version 2 and answered no version"),
    ],
)
def test_an_answer_with_another_version_or_none_is_no_handshake(answer: str, words: str) -> None:
    error = fails(f"say(id=hear()['id'], result={answer}); the_end()")
    assert words in str(error)
    assert SECRET not in str(error)
    assert error.asked == 2


CLAIMS_2: Final = """
import pathlib
asked = hear()
seen = pathlib.Path(os.environ["SEEN"])
with seen.open("a") as file:
    file.write(str(asked["params"]["protocolVersion"]))
if asked["params"]["protocolVersion"] == 2:
    say(id=asked["id"], result={"protocolVersion": 2, "agentInfo": {"name": "hush-4711"}})
else:
    say(id=asked["id"], result={"protocolVersion": 1, "agentInfo": {"name": "old", "version": "3"}})
asked = hear()
say(id=asked["id"], result={"sessionId": "s"})
the_end()
"""


def test_an_agent_that_claims_version_2_without_speaking_it_is_started_again_and_asked_for_1(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with talking(CLAIMS_2, env={"SEEN": str(tmp_path / "seen")}) as (client, faults):
            assert client.version == 1
            assert (client.info.name, client.info.version) == ("old", "3")
            assert (await client.new_session(cwd="/tmp")).session_id == "s"
            assert faults == []

    run(main())
    assert (tmp_path / "seen").read_text() == "21"
    assert "starting it again, asking for version 1" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize("options", [{"restart": False}, {"versions": (2,)}, {"grace": 1.0}])
def test_it_is_not_started_again_where_that_cannot_help_or_is_not_wanted(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))  # a transport that is given is no command to start again
    error = fails(CLAIMS_2, **options)
    assert "answered version 2, but not as version 2 says: $.result.info: " in str(error)
    assert SECRET not in str(error)
    assert (error.asked, error.answered) == (2, 2)
    assert (tmp_path / "seen").read_text() == "2"


def test_an_agent_that_refuses_every_version_says_so_to_each() -> None:
    code = """
    for version in (2, 1):
        asked = hear()
        assert asked["params"]["protocolVersion"] == version
        say(id=asked["id"], error={"code": -32022, "message": "hush-4711", "data": {"supported": [7]}})
    the_end()
    """
    error = fails(code)
    assert str(error).endswith("refused protocol version 1 (-32022)")
    assert (error.asked, error.answered) == (1, [7])


@pytest.mark.parametrize(
    ("code", "status"),
    [("hear(); sys.exit(3)", 3), ("raw(b'half a li'); os._exit(0)", 0), ("os.close(1); the_end()", None)],
)
def test_an_agent_that_ends_before_it_has_answered_is_a_lost_connection(code: str, status: int | None) -> None:
    async def main() -> None:
        with pytest.raises(ConnectionLost) as caught:
            async with talking(code):
                raise AssertionError("connected")
        assert caught.value.exit_status == status

    run(main())


@pytest.mark.parametrize(
    "odd",
    [
        {"agentCapabilities": []},
        {"agentCapabilities": {"sessionCapabilities": 5, "promptCapabilities": [], "mcpCapabilities": "x"}},
        {"agentCapabilities": {"loadSession": "yes", "_meta": 7}},
        {"authMethods": 5},
        {"authMethods": [5, None, {}, {"id": 5}]},
        {"authMethods": [{"id": "a", "name": "A", "type": "terminal", "env": 5}]},
        {"agentInfo": "old", "_meta": []},
    ],
)
def test_an_odd_answer_of_a_v1_agent_is_taken_as_far_as_it_makes_sense_or_refused(odd: dict[str, Any]) -> None:
    async def main() -> None:
        code = f"say(id=hear()['id'], result={{'protocolVersion': 1, **{odd!r}}}); the_end()"
        with suppress(HandshakeFailed):
            async with talking(code) as (client, _):
                assert client.version == 1

    run(main())


# Lines that are wrong


def test_garbage_between_valid_lines_is_passed_over() -> None:
    code = """
    id = prompted()
    garbage = [b"\\n", b"  \\n", b"hush-4711\\n", b"\\xff\\xfe\\n", b"{\\n", b"[]\\n", b"[1, 2]\\n", b"7\\n",
        b'{"id":3}\\n',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"hush-4711"}}\\n', b"[" * 100_000 + b"\\n",
        b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1e999}}\\n', b"\\x00\\x1b]0;\\n"]
    insert(id)
    for number, one in enumerate(garbage):
        raw(one)
        update(f"{number} ")
    state("idle", stopReason="end_turn")
    the_end()
    """

    async def main() -> None:
        async with session_of(code) as (_, session, faults):
            assert await session.prompt("go") == "end_turn"
            assert texts(session) == ["".join(f"{number} " for number in range(13))]
            assert faults.kinds == [
                ParseError,
                ParseError,
                ParseError,
                InvalidFrame,
                InvalidFrame,
                InvalidFrame,
                InvalidFrame,
                ProtocolViolation,
                ParseError,
                ParseError,
                ParseError,
            ]
            assert SECRET not in "".join(map(repr, faults))

    run(main())


def test_a_line_over_the_limit_is_passed_over() -> None:
    code = """
    id = prompted()
    insert(id)
    update("before ")
    update("x" * 2_000_000)
    update("after")
    state("idle", stopReason="end_turn")
    the_end()
    """

    async def main() -> None:
        async with session_of(code, line_limit=MIB) as (_, session, faults):
            assert await session.prompt("go") == "end_turn"
            assert texts(session) == ["before after"]
            assert faults.kinds == [LineTooLong]

    run(main())


@pytest.mark.rule("U-6")
def test_malformed_updates_are_faults_and_change_nothing() -> None:
    code = """
    def odd(update, **members):
        say(method="session/update", params={"sessionId": "s", "update": update, **members})
    id = prompted()
    insert(id)
    update("kept")
    say(method="_before")
    text = {"type": "text", "text": "hush-4711"}
    odd({"sessionUpdate": "agent_message", "content": [text]})
    odd({"sessionUpdate": "agent_message", "messageId": None, "content": [text]})
    odd({"sessionUpdate": "agent_message", "messageId": "m", "content": "hush-4711"})
    odd({"sessionUpdate": "agent_message", "messageId": "m", "content": [{"type": "text"}]})
    odd({"sessionUpdate": "agent_message_chunk", "messageId": "m"})
    odd({"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": {"type": "text", "text": 7}})
    odd({"sessionUpdate": 7})
    odd({})
    odd(None)
    odd("hush-4711")
    odd({"sessionUpdate": "state_update"})
    odd({"sessionUpdate": "tool_call_update", "toolCallId": 7})
    odd({"sessionUpdate": "plan_update", "plan": []})
    say(method="session/update", params=[])
    say(method="session/update")
    say(method="session/update", params={"sessionId": 7, "update": {"sessionUpdate": "state_update", "state": "idle"}})
    say(method="_after")
    state("idle", stopReason="end_turn")
    the_end()
    """
    seen: list[Any] = []

    async def main() -> None:
        def heard(method: str, _: Any) -> None:
            state = client._sessions["s"].state
            seen.append((method, state.version, [message.text for message in state.messages]))

        async with session_of(code, on_notification=heard) as (client, session, faults):
            assert await session.prompt("go") == "end_turn"
            (_, version, kept), (_, version_after, kept_after) = seen
            assert version_after == version
            assert kept_after == kept == ["kept"]
            assert faults.kinds == [Malformed] * 16
            assert all(isinstance(fault, Malformed) and fault.path.startswith("$.params") for fault in faults)
            assert SECRET not in "".join(map(repr, faults))

    run(main())


# Answers that are wrong


def test_a_second_answer_is_a_fault_and_the_first_one_counts() -> None:
    code = """
    id = prompted()
    say(id=id, result={"messageId": "first"})
    say(id=id, result={"messageId": "second"})
    say(id=id, error={"code": 1, "message": "hush-4711"})
    state("running")
    state("idle", stopReason="end_turn")
    the_end()
    """

    async def main() -> None:
        async with session_of(code) as (client, session, faults):
            turn = session.prompt("go")
            assert await turn == "end_turn"
            assert turn.message_id == "first"
            assert faults.kinds == [ProtocolViolation] * 2
            assert client.lost is None

    run(main())


def test_an_answer_under_a_wrong_id_is_a_fault_and_whoever_waits_may_give_up() -> None:
    code = """
    initialize()
    asked = hear()
    say(id=asked["id"] + 77, result={"sessionId": "wrong"})
    say(id=str(asked["id"]), result={"sessionId": "wrong"})
    say(method="_said")
    assert hear() == {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": asked["id"]}}
    say(id=asked["id"], error={"code": -32800, "message": "cancelled"})
    asked = hear()
    say(id=asked["id"], result={"sessionId": "right"})
    the_end()
    """

    async def main() -> None:
        said = asyncio.Event()
        async with talking(code, on_notification=lambda *_: said.set()) as (client, faults):
            opening = asyncio.create_task(client.new_session(cwd="/tmp"))
            await said.wait()
            assert not opening.done()
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            assert (await client.new_session(cwd="/tmp")).session_id == "right"
            assert faults.kinds == [ProtocolViolation] * 2

    run(main())


def test_an_answer_before_the_question_is_a_fault_and_the_question_is_asked_all_the_same() -> None:
    code = """
    say(id=1, result={"sessionId": "early"})
    say(id=2, error={"code": 1, "message": "early"})
    initialize()
    asked = hear()
    assert asked["id"] == 1, asked
    say(id=1, result={"sessionId": "s"})
    the_end()
    """

    async def main() -> None:
        async with talking(code) as (client, faults):
            assert (await client.new_session(cwd="/tmp")).session_id == "s"
            assert faults.kinds == [ProtocolViolation] * 2

    run(main())


@pytest.mark.parametrize("result", ["None", "[]", "'hush-4711'", "{}", "{'sessionId': 7}", "{'sessionId': None}"])
def test_an_answer_of_a_wrong_shape_is_an_error_with_its_path(result: str) -> None:
    code = f"""
    initialize()
    say(id=hear()["id"], result={result})
    say(id=hear()["id"], result={{"sessionId": "s"}})
    say(id=prompted(), result={result if "sessionId" in result else "{'messageId': 7}"})
    say(id=prompted(), result={{"messageId": "u"}})
    state("idle", stopReason="refusal")
    the_end()
    """

    async def main() -> None:
        async with talking(code) as (client, _):
            with pytest.raises(Malformed) as caught:
                await client.new_session(cwd="/tmp")
            assert caught.value.path.startswith("$.result")
            assert SECRET not in str(caught.value)
            session = await client.new_session(cwd="/tmp")
            first = session.prompt("go")
            if "sessionId" not in result:
                with pytest.raises(Malformed):
                    await first
            else:  # an older answer has no id
                second = session.prompt("go")
                assert await second == "refusal"
                return
            assert await session.prompt("go") == "refusal"

    run(main())


def test_an_error_answer_may_hold_anything_and_none_of_it_is_in_the_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    code = """
    initialize()
    for data in (None, "hush-4711", {"hush-4711": [1]}):
        say(id=hear()["id"], error={"code": -32002, "message": "hush-4711", "data": data, "hush-4711": 1})
    the_end()
    """

    async def main() -> None:
        async with talking(code) as (client, faults):
            for data in (None, SECRET, {SECRET: [1]}):
                with pytest.raises(RequestError) as caught:
                    await client.new_session(cwd="/tmp")
                assert (caught.value.code, caught.value.message, caught.value.data) == (-32002, SECRET, data)
                assert str(caught.value) == "session/new was answered with “not found” (-32002)"
            assert faults == []

    run(main())
    assert SECRET not in caplog.text


# Updates before their session


def test_an_update_before_the_answer_that_names_its_session_is_held_and_applied() -> None:
    code = """
    initialize()
    asked = hear()
    update("for nobody", session="other")
    update("early ", session="s")
    state("running", session="s")
    update("bird", session="s")
    say(id=asked["id"], result={"sessionId": "s"})
    update(" flies", session="s")
    asked = hear()
    say(id=asked["id"], result={"sessionId": "other"})
    the_end()
    """

    async def main() -> None:
        async with talking(code) as (client, faults):
            session = await client.new_session(cwd="/tmp")
            assert texts(session)[0].startswith("early bird")
            other = await client.new_session(cwd="/tmp")
            assert texts(session) == ["early bird flies"]
            assert not session.idle
            assert texts(other) == []  # it was named by no answer to what was under way
            assert faults.kinds == [TwofoldError]
            assert client._held == []

    run(main())


def test_a_flood_of_updates_of_unknown_sessions_is_not_kept() -> None:
    code = """
    initialize()
    for number in range(20_000):
        update("hush-4711", session="unknown")
    asked = hear()
    for number in range(20_000):
        update("x", session=f"unknown {number % 7}")
    update("kept" , session="s")
    say(id=asked["id"], result={"sessionId": "s"})
    the_end()
    """

    async def main() -> None:
        async with talking(code) as (client, faults):
            with memory_below(100 * MIB):
                session = await client.new_session(cwd="/tmp")
            assert session.session_id == "s"
            assert 7 <= len(faults) <= 40_000
            assert set(faults.kinds) == {TwofoldError}
            assert SECRET not in str(faults[0])
            assert client._held == []

    run(main())


def test_large_updates_of_unknown_sessions_are_held_within_bounds() -> None:
    code = """
    initialize()
    asked = hear()
    update("early", session="s")
    for number in range(120):
        update("x" * 1_000_000, session="unknown")
    say(id=asked["id"], result={"sessionId": "s"})
    the_end()
    """

    async def main() -> None:
        async with talking(code) as (client, faults):
            with memory_below(100 * MIB):
                session = await client.new_session(cwd="/tmp")
            assert texts(session) == ["early"]
            assert len(faults) > 30

    run(main())


# Floods and silence


@posix
def test_an_agent_that_stops_reading_is_waited_for_and_ended_when_we_leave() -> None:
    async def main() -> None:
        async with session_of("while True: signal.pause()", grace=0.2) as (client, session, faults):
            sent = 0

            async def send() -> None:
                nonlocal sent
                while True:
                    await client.notify("_acme/big", {"text": "x" * MIB})
                    sent += 1

            with memory_below(10 * MIB):
                sending = asyncio.create_task(send())
                before = -1
                while sent != before:
                    before = sent
                    await turns(50)
            assert sent <= 4
            turn = session.prompt("go")  # it waits, too, but in the queue
            await turns(5)
        with pytest.raises(ConnectionLost):
            await sending
        with pytest.raises(ConnectionLost):
            await turn
        assert faults == []

    run(main())


@posix
def test_an_agent_that_floods_us_with_requests_and_does_not_read_the_answers_is_slowed() -> None:
    code = """
    import threading
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    say(method="_ready")
    def flood():
        for number in range(20_000):
            out.write(b'{"jsonrpc":"2.0","id":%d,"method":"fs/read_text_file","params":{"path":"/"}}\\n' % number)
        out.flush()
    flooding = threading.Thread(target=flood)
    flooding.start()
    signal.sigwait({signal.SIGUSR1})
    refused = sum(hear()["error"]["code"] == -32601 for _ in range(20_000))
    flooding.join()
    say(method="_refused", params={"count": refused})
    the_end()
    """
    heard: list[Any] = []

    async def main() -> None:
        ready, done = asyncio.Event(), asyncio.Event()

        def hear(method: str, params: Any) -> None:
            heard.append(params)
            (ready if method == "_ready" else done).set()

        transport = await ProcessTransport.start(scripted("begin()\n" + dedent(code)))
        answered = 0
        send = transport.send

        def count(message: bytes) -> None:
            nonlocal answered
            answered += 1
            send(message)

        transport.send = count  # type: ignore[method-assign]
        async with connect(transport, on_notification=hear, on_fault=heard.append) as client:
            await client.new_session(cwd="/tmp")
            await ready.wait()
            with memory_below(20 * MIB):
                before = -1
                while answered < 1000 or answered != before:
                    before = answered
                    await turns(50)
            assert answered < 18_000
            transport.process.send_signal(signal.SIGUSR1)
            await done.wait()
        assert heard == [{}, {"count": 20_000}]

    run(main())


def test_requests_of_an_agent_that_make_no_sense_are_refused_and_the_turn_goes_on() -> None:
    code = """
    def refused(code, method, params):
        say(id="x", method=method, params=params)
        answer = hear()
        assert answer["id"] == "x", answer
        assert answer["error"]["code"] == code, answer
        assert "hush-4711" not in json.dumps(answer["error"]["message"]), answer
    id = prompted()
    insert(id)
    option = {"optionId": "a", "name": "A", "kind": "allow_once"}
    ask = "session/request_permission"
    refused(-32601, "session/prompt", {"sessionId": "s", "prompt": []})
    refused(-32601, "hush-4711", {})
    refused(-32002, ask, {"sessionId": "unknown", "title": "T", "options": [option]})
    refused(-32602, ask, {"sessionId": "s", "options": [option]})
    refused(-32602, ask, {"sessionId": 7, "title": "T", "options": [option]})
    refused(-32602, ask, {"sessionId": "s", "title": "T", "options": "hush-4711"})
    refused(-32602, ask, {"sessionId": "s", "title": "T", "options": [option],
        "subject": {"type": "tool_call", "toolCall": {"title": "no id"}}})
    refused(-32602, ask, [])
    state("idle", stopReason="end_turn")
    the_end()
    """

    async def decide(_: PermissionRequest) -> str:
        return "a"

    async def main() -> None:
        async with session_of(code, on_permission=decide) as (_, session, faults):
            assert await session.prompt("go") == "end_turn"
            assert list(session.state.tool_calls) == []
            assert faults == []

    run(main())


# Ends


@pytest.mark.parametrize(
    ("code", "status", "faults"),
    [
        ("sys.exit(0)", 0, []),
        ("sys.exit(3)", 3, []),
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", -9, [], marks=posix),
        ('raw(b\'{"jsonrpc":"2.0","meth\'); os._exit(7)', 7, [ParseError]),
        ("os.close(0); update('last words'); os._exit(5)", 5, []),
    ],
    ids=["ends", "fails", "is killed", "dies in mid-line", "stops listening first"],
)
def test_an_agent_that_ends_in_the_middle_of_a_turn_is_a_lost_connection_with_its_status(
    code: str, status: int, faults: Sequence[type[TwofoldError]]
) -> None:
    async def main() -> None:
        async with session_of(f"insert(prompted())\nupdate('first')\n{code}") as (client, session, seen):
            turn = session.prompt("go")
            assert await anext(turn)
            with pytest.raises(ConnectionLost) as caught:
                await turn
            assert caught.value.exit_status == status
            assert texts(session) == ["firstlast words" if "last words" in code else "first"]
            assert client.lost is caught.value
            assert turn.stop_reason is None
            with pytest.raises(ConnectionLost) as again:
                await client.new_session(cwd="/tmp")
            assert again.value.exit_status == status
            with pytest.raises(ConnectionLost):
                session.prompt("more")
            assert seen.kinds == list(faults)

    run(main())


def test_the_end_cancels_permission_requests_and_their_handlers() -> None:
    code = """
    insert(prompted())
    say(id=1, method="session/request_permission", params={"sessionId": "s", "title": "T",
        "options": [{"optionId": "a", "name": "A", "kind": "allow_once"}]})
    hear_nothing = sys.stdin.buffer.read1(1)
    """

    async def main() -> None:
        asked = asyncio.Event()
        held: list[PermissionRequest] = []

        async def decide(request: PermissionRequest) -> None:
            held.append(request)
            asked.set()
            await asyncio.Event().wait()

        async with session_of(code, on_permission=decide) as (client, session, faults):
            turn = session.prompt("go")
            await asked.wait()
            await client.notify("_go", {})
            with pytest.raises(ConnectionLost):
                await turn
            assert held[0].answered
        assert faults == []
        assert client._tasks == set()

    run(main())


def test_an_update_after_a_resume_that_failed_is_applied_to_what_was_held() -> None:
    code = """
    asked = prompted()
    insert(asked)
    update("old")
    state("idle", stopReason="end_turn")
    asked = hear()
    assert asked["method"] == "session/resume"
    out.flush = lambda: None  # from here on all in one piece
    update("half a replay")
    say(id=asked["id"], error={"code": -32603, "message": "no"})
    update(" and new")
    del out.flush
    out.flush()
    the_end()
    """

    async def main() -> None:
        async with session_of(code) as (client, session, faults):
            await session.prompt("go")
            watch = session.watch()
            with pytest.raises(RequestError):
                await client.resume("s", cwd="/tmp", replay=True)
            await anext(watch)
            assert texts(session) == ["old and new"]
            assert faults == []

    run(main())


def test_permission_requests_that_are_withdrawn_at_once_are_answered_once() -> None:
    code = """
    insert(prompted())
    ask = {"sessionId": "s", "title": "T", "options": [{"optionId": "a", "name": "A", "kind": "allow_once"}]}
    out.flush = lambda: None  # all in one piece
    for number in range(20):
        say(id=number, method="session/request_permission", params=ask)
        say(method="$/cancel_request", params={"requestId": number})
        say(method="$/cancel_request", params={"requestId": number})
    del out.flush
    out.flush()
    answers = [hear() for _ in range(20)]
    assert sorted(answer["id"] for answer in answers) == list(range(20)), answers
    assert all(answer["result"] == {"outcome": {"outcome": "cancelled"}} for answer in answers), answers
    state("idle", stopReason="end_turn")
    the_end()
    """

    async def never(_: PermissionRequest) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        for decide in (never, None):
            async with session_of(code, on_permission=decide) as (client, session, faults):
                assert await session.prompt("go") == "end_turn"
                assert client._tasks == set()
                assert session._asking == []
                assert faults == []

    run(main())


def test_requests_to_a_client_that_leaves_at_once_do_no_harm() -> None:
    code = """
    initialize()
    out.flush = lambda: None
    for number in range(20):
        say(id=number, method="_acme/ask", params={})
    say(method="_acme/said", params={})
    del out.flush
    out.flush()
    the_end()
    """

    async def never(_: str, __: Any) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        said = asyncio.Event()
        async with talking(code, on_request=never, on_notification=lambda *_: said.set()) as (client, faults):
            await said.wait()
        await turns(3)
        assert client._tasks == set()
        assert faults == []

    run(main())


# Agents of version 1

V1: Final = """
def v1_update(text, session):
    say(method="session/update", params={"sessionId": session, "update": {"sessionUpdate": "agent_message_chunk",
        "content": {"type": "text", "text": text}}})
say(id=hear()["id"], result={"protocolVersion": 1, "agentCapabilities": {}})
"""


def test_a_v1_agent_may_speak_of_a_session_before_it_has_named_it_and_what_it_says_of_others_is_not_kept() -> None:
    code = """
    for number in range(3000):
        v1_update("hush-4711", f"unknown {number}")
    asked = hear()
    v1_update("early ", "s")
    for number in range(3000):
        v1_update("x", f"unknown {number}")
    say(id=1, method="session/request_permission", params={"sessionId": "unknown 1", "toolCall": {"toolCallId": "t"},
        "options": []})
    assert hear()["error"]["code"] == -32002
    v1_update("bird", "s")
    say(id=asked["id"], result={"sessionId": "s"})
    v1_update(" flies", "s")
    say(id=prompted(), result={"stopReason": "end_turn"})
    the_end()
    """

    async def main() -> None:
        async with talking(V1 + dedent(code)) as (client, faults):
            session = await client.new_session(cwd="/tmp")
            assert await session.prompt("go") == "end_turn"
            assert texts(session) == ["early bird flies", "go"]
            agent: Any = client._agent
            assert set(agent._sessions) == {"s"}
            assert agent._early == {}
            assert client._held == []
            assert 3000 <= len(faults) <= 6000
            assert SECRET not in "".join(map(str, faults))

    run(main())


@pytest.mark.parametrize("how", ["say(id=prompted(), result=None)", "say(id=prompted(), result={'stopReason': 7})"])
def test_an_odd_end_of_a_v1_turn_is_an_end(how: str) -> None:
    async def main() -> None:
        code = f"say(id=hear()['id'], result={{'sessionId': 's'}})\n{how}\nthe_end()"
        async with talking(V1 + code) as (client, faults):
            session = await client.new_session(cwd="/tmp")
            assert await session.prompt("go") == "end_turn"
            assert session.idle
            assert faults == []

    run(main())


def test_a_v1_agent_that_ends_in_the_middle_of_a_turn_is_a_lost_connection_with_its_status() -> None:
    code = "say(id=hear()['id'], result={'sessionId': 's'})\nprompted()\nv1_update('half', 's')\nsys.exit(4)"

    async def main() -> None:
        async with talking(V1 + code) as (client, _):
            session = await client.new_session(cwd="/tmp")
            first, second = session.prompt("one"), session.prompt("two")
            for turn in (first, second):
                with pytest.raises(ConnectionLost) as caught:
                    await turn
                assert caught.value.exit_status == 4
            assert texts(session)[-1] == "half"

    run(main())


def test_what_is_replayed_for_a_resume_that_was_given_up_is_not_taken_for_news() -> None:
    code = """
    insert(prompted())
    update("old")
    state("idle", stopReason="end_turn")
    asked = hear()
    assert asked["method"] == "session/resume"
    say(method="_asked")
    assert hear()["method"] == "$/cancel_request"
    update("old")
    say(id=asked["id"], error={"code": -32800, "message": "cancelled"})
    update(" and new")
    say(method="_told")
    the_end()
    """

    async def main() -> None:
        heard: asyncio.Queue[str] = asyncio.Queue()
        async with session_of(code, on_notification=lambda method, _: heard.put_nowait(method)) as talk:
            client, session, faults = talk
            await session.prompt("go")
            resuming = asyncio.create_task(client.resume("s", cwd="/tmp", replay=True))
            assert await heard.get() == "_asked"
            resuming.cancel()
            with pytest.raises(asyncio.CancelledError):
                await resuming
            assert await heard.get() == "_told"
            assert texts(session) == ["old and new"]
            assert faults == []

    run(main())


# Laws

METHODS: Final = words(
    "session/update session/request_permission elicitation/create elicitation/complete $/cancel_request _acme/x unknown"
)
NAMES: Final = words(
    "sessionId update title subject options toolCall toolCallId optionId name kind type requestId content text "
    "sessionUpdate messageId _meta modes configOptions"
)

members: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        anything, st.sampled_from(["s", "tool_call", "text", "agent_message_chunk", "allow_once", 1, None, [], {}])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from(NAMES), members, max_size=5).map(lambda held: {"sessionId": "s", **held})
calls = st.builds(
    lambda method, params, id_: {"method": method, **params, **id_},
    st.sampled_from(METHODS),
    st.one_of(st.just({}), st.builds(lambda held: {"params": held}, st.one_of(objects, objects, members))),
    st.sampled_from([{}, {"id": 1}, {"id": 2}, {"id": "x"}, {"id": None}]),
)
told = updates.map(lambda update: {"method": "session/update", "params": {"sessionId": "s", "update": update}})
answers = st.builds(
    lambda id_, kind, held: {"id": id_, kind: held},
    st.sampled_from([0, 1, 7, "x", None]),
    st.sampled_from(["result", "error"]),
    st.one_of(members, st.builds(lambda code: {"code": code, "message": SECRET}, st.integers())),
)


@pytest.mark.parametrize("version", [1, 2])
@given(st.lists(st.one_of(calls, told, answers), max_size=6))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_said_the_client_goes_on_and_nothing_fails_in_it(
    version: int, caplog: pytest.LogCaptureFixture, said: list[Any]
) -> None:
    caplog.clear()
    initialized: Any = {"protocolVersion": version, "info": {"name": "a", "version": "1"}, "capabilities": {}}

    async def decide(request: PermissionRequest) -> None:
        return None

    async def agent(transport: Transport) -> None:
        heard: list[Any] = []

        async def hear() -> Any:
            while not heard:
                lines = await transport.receive()
                heard.extend(json.loads(one) for one in lines if isinstance(one, bytes))
            return heard.pop(0)

        transport.send(line(id=(await hear())["id"], result=initialized))
        transport.send(line(id=(await hear())["id"], result={"sessionId": "s"}))
        for message in said:
            transport.send(json.dumps({"jsonrpc": "2.0", **message}).encode())
        while "method" not in (asked := await hear()) or asked["method"] != "_acme/last":
            pass
        transport.send(line(id=asked["id"], result={"answer": 7}))

    async def main() -> None:
        ours, theirs = memory_pair()
        serving = asyncio.create_task(agent(theirs))
        options: dict[str, Any] = {"on_permission": decide, "on_fault": lambda _: None, "on_loss": lambda *_: None}
        async with connect(ours, **options) as client:
            await client.new_session(cwd="/tmp")
            assert bytes(await client.request("_acme/last", {})) == b'{"answer":7}'
        await serving

    run(main())
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
