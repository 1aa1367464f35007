"""Clients that do not keep to the rules: the agent answers what can be answered, and serves on or ends in order."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.runtime.scripted import DEADLINE, MIB, complaints, line, parsed, run, turns, twofold_program, words
from tests.values import anything
from twofold.exceptions import LineTooLong, ProtocolViolation, TwofoldError
from twofold.jsonrpc import CANCEL
from twofold.jsonrpc._peer import MAX_IN_FLIGHT
from twofold.runtime import memory_pair
from twofold.runtime.agent import Agent, Prompt, Session
from twofold.wire import v2

ECHO: Final = Path(__file__).parents[2] / "examples" / "echo_agent.py"
SECRET: Final = "hush-4711"
INFO: Final = {"name": "hostile", "version": "0"}

Json = Any

posix = pytest.mark.skipif(os.name != "posix", reason="signals and process statistics are those of POSIX")


def initialize(version: int = 2, id: Any = "init", **members: Json) -> bytes:
    params = (
        {"protocolVersion": version, "info": INFO, "capabilities": {}} if version == 2 else {"protocolVersion": version}
    )
    return line(id=id, method="initialize", params={**params, **members})


class Patient(Agent):
    """An agent whose turns end when they are told to; it writes down what reaches it."""

    name = "patient"
    version = "1"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.faults: list[TwofoldError] = []
        self.sessions: list[Session] = []
        self.prompts: list[tuple[Session, Prompt]] = []
        self.heard: list[tuple[str, Json]] = []

    async def new_session(self, session: Session) -> None:
        self.sessions.append(session)

    async def prompt(self, session: Session, prompt: Prompt) -> None:
        self.prompts.append((session, prompt))
        await session.message().append("working")
        await self.go_on.wait()
        await session.message().append("done")

    async def extension(self, method: str, params: Json) -> Json:
        self.heard.append((method, params))
        await self.go_on.wait()
        return {"heard": method}

    async def extension_notification(self, method: str, params: Json) -> None:
        self.heard.append((method, params))

    def fault(self, error: TwofoldError) -> None:
        self.faults.append(error)


class Raw:
    """A client that says what it likes."""

    def __init__(self, agent: Agent, *, limit: int = MIB, line_limit: int = 64 * MIB) -> None:
        self.ours, theirs = memory_pair(limit=limit, line_limit=line_limit)
        self.serving = asyncio.create_task(agent.serve(theirs))
        self.log: list[Json] = []
        self._looked_at = 0

    def say(self, *messages: bytes) -> None:
        for message in messages:
            self.ours.send(message)

    async def hear(self) -> Json:
        """Give the next message."""
        while self._looked_at == len(self.log):
            lines = await self.ours.receive()
            assert lines
            self.log += [parsed(one) for one in lines if isinstance(one, bytes)]
        self._looked_at += 1
        return self.log[self._looked_at - 1]

    async def answer(self, id: Any) -> Json:
        """Give the answer with this id, and pass over what comes before it."""
        while True:
            message = await self.hear()
            if "method" not in message and message["id"] == id:
                return message

    async def ask(self, method: str, params: Json, *, id: Any = None) -> Json:
        """Ask, and give the result or the error."""
        id = f"ask {len(self.log)}" if id is None else id
        self.say(line(id=id, method=method, params=params))
        answer = await self.answer(id)
        return answer.get("result", answer.get("error"))

    async def begin(self, version: int = 2) -> str:
        self.say(initialize(version))
        assert "result" in await self.answer("init")
        params: Json = {"cwd": "/tmp", "mcpServers": []}
        return str((await self.ask("session/new", params))["sessionId"])

    async def idle(self) -> Json:
        """Give the next idle."""
        while True:
            message = await self.hear()
            if message.get("method") == "session/update" and message["params"]["update"].get("state") == "idle":
                return message["params"]["update"]


@asynccontextmanager
async def talking(agent: Agent, **options: Any) -> AsyncIterator[Raw]:
    """Serve a client that says what it likes; the agent has to end when that does."""
    client = Raw(agent, **options)
    yield client
    await client.ours.close()
    await client.serving


def text(words: str = "hello") -> Json:
    return {"type": "text", "text": words}


# Before initialize


def test_nothing_but_initialize_is_answered_before_it_and_a_failed_one_may_be_retried() -> None:
    async def main() -> None:
        agent = Patient()
        async with talking(agent) as client:
            for method in ("session/new", "session/prompt", "session/list", "_acme/x", "unknown", "auth/login"):
                error = await client.ask(method, {"cwd": "/tmp", "sessionId": "s", "prompt": [text()]})
                assert error["code"] == -32600
            client.say(line(method="session/cancel", params={"sessionId": "s"}), line(method="_acme/x", params={}))
            client.say(line(method="session/cancel", params=[]), line(method="unknown"))
            odd: Sequence[Json] = (
                {},
                [],
                {"protocolVersion": "2"},
                {"protocolVersion": True},
                {"protocolVersion": 2.0},
                {"protocolVersion": None},
                {"protocolVersion": 2},  # without info
                {"protocolVersion": 2, "info": SECRET, "capabilities": {}},
                {"protocolVersion": 2, "info": {"name": SECRET}, "capabilities": {}},
            )
            for params in odd:
                error = await client.ask("initialize", params)
                assert error["code"] == -32602, params
                assert SECRET not in json.dumps(error)
            assert (await client.ask("initialize", {"protocolVersion": 0}))["code"] == -32022
            client.say(initialize(2))
            assert (await client.answer("init"))["result"]["protocolVersion"] == 2
            assert (await client.ask("initialize", {"protocolVersion": 2, "info": INFO, "capabilities": {}}))[
                "code"
            ] == (-32600)
            assert "sessionId" in await client.ask("session/new", {"cwd": "/tmp"})
            assert agent.heard == []
            assert agent.faults == []

    run(main())


@pytest.mark.parametrize(
    "odd",
    [
        {"clientCapabilities": []},
        {"clientCapabilities": {"auth": 5, "fs": [], "elicitation": "x", "_meta": 7}},
        {"clientInfo": "old", "_meta": []},
        {"clientInfo": {"name": 5}},
    ],
)
def test_an_odd_initialize_of_a_v1_client_is_taken_as_far_as_it_makes_sense(odd: dict[str, Json]) -> None:
    async def main() -> None:
        async with talking(Patient()) as client:
            client.say(initialize(1, **odd))
            assert (await client.answer("init"))["result"]["protocolVersion"] == 1
            assert "sessionId" in await client.ask("session/new", {"cwd": "/tmp", "mcpServers": []})

    run(main())


def test_what_is_pipelined_behind_initialize_is_answered_behind_it() -> None:
    async def main() -> None:
        async with talking(Patient()) as client:
            client.say(
                line(id=1, method="session/new", params={"cwd": "/tmp"}),
                initialize(2),
                *[line(id=number, method="session/new", params={"cwd": "/tmp"}) for number in range(2, 20)],
            )
            for _ in range(20):
                await client.hear()
            assert client.log[0]["id"] == 1
            assert client.log[0]["error"]["code"] == -32600
            assert client.log[1]["id"] == "init"
            assert {message["id"] for message in client.log[2:]} == set(range(2, 20))
            assert all("sessionId" in message["result"] for message in client.log[2:])

    run(main())


# `_meta` is nobody's parameter

META: Final[Json] = {
    name: value
    for spelled in (
        ("session_id", "sessionId"),
        ("prompt", "content", "message_id", "messageId"),
        ("cwd", "additional_directories", "additionalDirectories", "mcp_servers", "mcpServers"),
        ("config_id", "configId", "value", "type", "options", "method", "params", "id", "request", "session", "self"),
        ("replay_from", "replayFrom", "cursor", "title", "protocol_version", "protocolVersion", "version"),
    )
    for name in spelled
    for value in (SECRET,)
}


class Choosy(Patient):
    """One with an option to choose."""

    def __init__(self) -> None:
        super().__init__()
        self.chosen: list[tuple[str, str | bool]] = []

    async def new_session(self, session: Session) -> None:
        await super().new_session(session)
        await session.set_config_options([v2.SessionConfigBoolean(config_id="loud", name="Loud", current_value=False)])

    async def set_config_option(self, session: Session, config_id: str, value: str | bool) -> None:
        self.chosen.append((config_id, value))


@pytest.mark.parametrize("version", [1, 2])
def test_no_key_of_meta_reaches_a_parameter(version: int) -> None:
    async def main() -> None:
        agent = Choosy()
        async with talking(agent) as client:
            client.say(initialize(version, _meta=META))
            assert (await client.answer("init"))["result"]["protocolVersion"] == version
            setup = {"cwd": "/tmp", "mcpServers": [], "_meta": META}
            session_id = (await client.ask("session/new", setup))["sessionId"]
            (session,) = agent.sessions
            assert session.session_id == session_id != SECRET
            assert (session.cwd, list(session.additional_directories), list(session.mcp_servers)) == ("/tmp", [], [])
            prompting = {"sessionId": session_id, "prompt": [{**text(), "_meta": META}], "_meta": META}
            await client.ask("session/prompt", prompting)
            if version == 2:
                await client.idle()
            ((prompted, prompt),) = agent.prompts
            assert prompted is session
            assert prompt.text == "hello"
            assert prompt.message_id != SECRET
            assert prompt.meta == META
            choice: Json = {"sessionId": session_id, "configId": "loud", "value": True, "_meta": META}
            await client.ask("session/set_config_option", {**choice, "type": "boolean"})
            assert agent.chosen == [("loud", True)]
            await client.ask("_acme/x", {"_meta": META})
            assert agent.heard == [("_acme/x", {"_meta": META})]
            loading = "session/resume" if version == 2 else "session/load"
            assert "error" not in await client.ask(loading, {**setup, "sessionId": session_id})
            assert session.cwd == "/tmp"
            listed = await client.ask("session/list", {"_meta": META})
            assert [one["sessionId"] for one in listed["sessions"]] == [session_id]
            assert await client.ask("session/close", {"sessionId": session_id, "_meta": META}) == {}
            # And where the parameter itself is missing, `_meta` does not stand in for it.
            for method in ("session/new", "session/prompt", "session/close", loading, "session/set_config_option"):
                error = await client.ask(method, {"_meta": {**META, "cwd": "/tmp", "sessionId": session_id}})
                assert error["code"] in (-32602, -32603), method
            assert len(agent.sessions) == 1
            assert agent.faults == []

    run(main())


# Lines that are wrong


def test_garbage_between_requests_is_answered_and_passed_over() -> None:
    async def main() -> None:
        agent = Patient()
        async with talking(agent, line_limit=10_000) as client:
            session_id = await client.begin()
            client.say(
                b"garbage " + SECRET.encode(),
                b"\xff",
                b"",
                b"[]",
                line(id=3, method=5, params=SECRET),
                b"x" * 10_001,
                line(id="never asked", result=SECRET),
                line(id=None, error={"code": 1, "message": SECRET}),
                b'{"jsonrpc":"2.0","id":9,"method":"session/new","params":{"cwd":1e999}}',
                line(id=10, method=SECRET),
                line(method=SECRET),
                line(method="session/update", params={"sessionId": SECRET}),
                line(method="session/cancel", params={"sessionId": 7}),
                line(method="session/cancel", params={"sessionId": "unknown"}),
                line(method=CANCEL, params={"requestId": "unknown"}),
                line(method=CANCEL, params={"requestId": 1.5}),
            )
            assert await client.ask("_acme/x", {}) == {"heard": "_acme/x"}
            answers = {message["id"]: message["error"]["code"] for message in client.log if "error" in message}
            assert answers == {None: -32600, 3: -32600, 9: -32602, 10: -32601}
            assert [message["error"]["code"] for message in client.log if message.get("id", 0) is None] == [
                -32700,
                -32700,
                -32600,
                -32600,
            ]
            assert SECRET not in "".join(map(repr, agent.faults))
            assert sum(isinstance(fault, LineTooLong) for fault in agent.faults) == 1
            assert sum(isinstance(fault, ProtocolViolation) for fault in agent.faults) == 3
            client.say(line(id="go", method="session/prompt", params={"sessionId": session_id, "prompt": [text()]}))
            assert (await client.idle())["stopReason"] == "end_turn"

    run(main())


@pytest.mark.parametrize("params", [None, [], [1], {}, {"sessionId": 7}, {"sessionId": "unknown"}, {"cwd": "relative"}])
def test_requests_that_make_no_sense_are_refused(params: Json) -> None:
    async def main() -> None:
        agent = Patient()
        async with talking(agent) as client:
            session_id = await client.begin()
            for method in (
                "session/prompt",
                "session/resume",
                "session/close",
                "session/delete",
                "session/set_config_option",
                "session/new",
            ):
                said = {"jsonrpc": "2.0", "id": method, "method": method}
                client.say(json.dumps(said if params is None else {**said, "params": params}).encode())
                answer = await client.answer(method)
                if method in ("session/close", "session/delete") and params == {"sessionId": "unknown"}:
                    assert answer["result"] == {}
                else:
                    assert answer["error"]["code"] in (-32602, -32002), answer
            prompt: Json
            for prompt in (
                [],
                "x",
                [text(), {"type": "image", "data": "", "mimeType": "image/png"}],
                [{"type": "odd"}],
            ):
                error = await client.ask("session/prompt", {"sessionId": session_id, "prompt": prompt})
                assert error["code"] == -32602
            assert agent.prompts == []

    run(main())


def test_answers_to_nobody_and_twice_do_no_harm_while_a_permission_is_asked() -> None:
    class Asking(Patient):
        async def prompt(self, session: Session, prompt: Prompt) -> None:
            option = await session.request_permission("May I?")
            await session.message().append("no" if option is None else option.option_id)

    async def main() -> None:
        agent = Asking()
        async with talking(agent) as client:
            session_id = await client.begin()
            client.say(line(id="go", method="session/prompt", params={"sessionId": session_id, "prompt": [text()]}))
            while "id" not in (asked := await client.hear()) or "method" not in asked:
                pass
            outcome = {"outcome": {"outcome": "selected", "optionId": "allow"}}
            client.say(
                line(id=asked["id"] + 1, result=outcome),
                line(id=str(asked["id"]), result=outcome),
                line(id=asked["id"], result={"outcome": {"outcome": "selected", "optionId": "reject"}}),
                line(id=asked["id"], result=outcome),
            )
            await client.idle()
            assert agent.faults[0].args == agent.faults[1].args == agent.faults[2].args
            assert [type(fault) for fault in agent.faults] == [ProtocolViolation] * 3
            assert agent.sessions[0].state.messages[-1].text == "reject"

    run(main())


# Floods and silence


def test_requests_beyond_those_that_may_be_in_flight_are_refused() -> None:
    async def main() -> None:
        agent = Patient()
        agent.go_on.clear()
        async with talking(agent) as client:
            await client.begin()
            extra = 100
            client.say(*[line(id=number, method="_acme/x", params={}) for number in range(MAX_IN_FLIGHT + extra)])
            for number in range(MAX_IN_FLIGHT, MAX_IN_FLIGHT + extra):
                assert "error" in await client.answer(number)
            agent.go_on.set()
            for number in range(MAX_IN_FLIGHT):
                assert "result" in await client.answer(number)
            assert len(agent.heard) == MAX_IN_FLIGHT
            assert len(agent.faults) == extra

    run(main())


def test_requests_that_are_withdrawn_at_once_are_answered_once() -> None:
    async def main() -> None:
        agent = Patient()
        agent.go_on.clear()
        async with talking(agent) as client:
            session_id = await client.begin()
            prompt = {"sessionId": session_id, "prompt": [text()]}
            for number in range(50):
                client.say(line(id=number, method="_acme/x", params={}))
                client.say(line(id=100 + number, method="session/prompt", params=prompt))
                client.say(line(method=CANCEL, params={"requestId": number}))
                client.say(line(method=CANCEL, params={"requestId": 100 + number}))
            agent.go_on.set()
            client.say(line(id="go", method="session/prompt", params=prompt))
            await client.answer("go")
            assert (await client.idle())["stopReason"] == "end_turn"
        answers = [message for message in client.log if "method" not in message]
        ids = [answer["id"] for answer in answers]
        assert sorted(id_ for id_ in ids if isinstance(id_, int)) == [*range(50), *range(100, 150)]
        assert {answer["error"]["code"] for answer in answers if "error" in answer} == {-32800}
        assert agent.faults == []

    run(main())


@pytest.mark.rule("J-7")
def test_what_fails_in_the_agent_is_an_internal_error_and_its_text_is_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    class Failing(Patient):
        async def prompt(self, session: Session, prompt: Prompt) -> None:
            raise RuntimeError(SECRET)

        async def extension(self, method: str, params: Json) -> Json:
            raise RuntimeError(SECRET)

        async def extension_notification(self, method: str, params: Json) -> None:
            raise RuntimeError(SECRET)

        def fault(self, error: TwofoldError) -> None:
            raise RuntimeError(SECRET)

    async def main() -> None:
        async with talking(Failing()) as client:
            session_id = await client.begin()
            assert await client.ask("_acme/x", {}) == {"code": -32603, "message": "Internal error"}
            client.say(line(method="_acme/x", params={}), b"garbage", b"garbage")
            client.say(line(id="go", method="session/prompt", params={"sessionId": session_id, "prompt": [text()]}))
            idle = await client.idle()
            assert idle["stopReason"] == "error"
            assert SECRET not in json.dumps(client.log)

    run(main())
    assert SECRET not in caplog.text
    assert caplog.text.count("RuntimeError") >= 4


# Ends


@contextmanager
def agent_process(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run an agent; it has to be gone in time."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        late = threading.Timer(DEADLINE, process.kill)
        late.start()
        try:
            yield process
        finally:
            late.cancel()
            process.kill()


def say(process: subprocess.Popen[bytes], *messages: bytes) -> None:
    assert process.stdin is not None
    process.stdin.write(b"".join(message + b"\n" for message in messages))
    process.stdin.flush()


def hear(process: subprocess.Popen[bytes]) -> Json:
    assert process.stdout is not None
    return parsed(process.stdout.readline())


def begin(process: subprocess.Popen[bytes], version: int = 2) -> str:
    say(process, initialize(version), line(id="new", method="session/new", params={"cwd": "/tmp", "mcpServers": []}))
    assert hear(process)["id"] == "init"
    return str(hear(process)["result"]["sessionId"])


ECHO_COMMAND: Final = [sys.executable, "-X", "dev", "-W", "error", str(ECHO)]


@pytest.mark.parametrize("version", [1, 2])
def test_at_the_end_of_input_everything_accepted_is_answered_and_flushed(version: int) -> None:
    for attempt in range(3):
        with agent_process(ECHO_COMMAND) as process:
            session_id = begin(process, version)
            words = ["x" * 300_000, "two", "three"]
            asked = [
                line(id=number, method="session/prompt", params={"sessionId": session_id, "prompt": [text(one)]})
                for number, one in enumerate(words)
            ]
            asked.insert(attempt, line(id="list", method="session/list", params={}))
            asked.insert(attempt, line(id="unknown", method="_acme/x", params={}))
            out, err = process.communicate(b"\n".join(asked), timeout=DEADLINE)  # the last one without its newline
            said = [parsed(one) for one in out.splitlines()]
            assert complaints(err) == b""
            assert process.returncode == 0
        answered = [message["id"] for message in said if "method" not in message]
        assert sorted(answered, key=str) == [0, 1, 2, "list", "unknown"]
        assert all("result" in message for message in said if message.get("id") in (0, 1, 2))
        updates = [message["params"]["update"] for message in said if "method" in message]
        spoken = [one["content"]["text"] for one in updates if one["sessionUpdate"] == "agent_message_chunk"]
        assert spoken == words
        if version == 2:
            assert sum(one.get("state") == "idle" for one in updates) == 3
            assert updates[-1]["state"] == "idle"
        else:
            assert {message["result"]["stopReason"] for message in said if message.get("id") in (0, 1, 2)} == {
                "end_turn"
            }


def test_what_does_not_end_in_time_after_the_end_of_input_is_cancelled_and_says_so() -> None:
    code = """
    import asyncio
    from twofold.runtime.agent import Agent
    class Slow(Agent):
        name, drain_timeout = "slow", 0.1
        async def prompt(self, session, prompt):
            await asyncio.Event().wait()
        async def extension(self, method, params):
            await asyncio.Event().wait()
    Slow().run()
    """
    with agent_process(twofold_program(code)) as process:
        session_id = begin(process)
        say(process, line(id="go", method="session/prompt", params={"sessionId": session_id, "prompt": [text()]}))
        out, err = process.communicate(line(id="slow", method="_acme/slow", params={}), timeout=DEADLINE)
        assert complaints(err) == b""
        assert process.returncode == 0
    said = [parsed(one) for one in out.splitlines()]
    assert {message["id"] for message in said if "method" not in message} == {"go", "slow"}
    assert [message["error"]["code"] for message in said if message.get("id") == "slow"] == [-32800]
    assert said[-1]["method"] == "session/update" or said[-2]["method"] == "session/update"
    idles = [message["params"]["update"] for message in said if "method" in message]
    assert [one["stopReason"] for one in idles if one.get("state") == "idle"] == ["cancelled"]


STREAMING: Final = """
import asyncio, sys
from twofold.runtime import _agent
from twofold.runtime.agent import Agent
from twofold.runtime._process import own_stdio
class Streaming(Agent):
    name, drain_timeout = "streaming", 0.2
    async def prompt(self, session, prompt):
        message = session.message()
        for number in range(1024):
            print(number, file=sys.stderr, flush=True)
            await message.append("x" * (1024 * 1024))
async def main():
    _agent._LAST_WORDS = 0.2  # the default is for clients that may yet read
    transport = await own_stdio()
    transport._close_timeout = 0.2
    await Streaming().serve(transport)
asyncio.run(main())
with open("/proc/self/status") as status:  # what resource tells is the parent's, where that has more
    print("peak", next(line.split()[1] for line in status if line.startswith("VmHWM")), file=sys.stderr)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads its peak from /proc")
@pytest.mark.parametrize("version", [1, 2])
def test_a_client_that_stops_reading_while_an_agent_streams_a_gigabyte_costs_little_memory(version: int) -> None:
    with agent_process(twofold_program(STREAMING)) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        session_id = begin(process, version)
        say(process, line(id="go", method="session/prompt", params={"sessionId": session_id, "prompt": [text()]}))
        assert process.stderr.readline() == b"0\n"
        assert process.stderr.readline() == b"1\n"
        # A prompt for another turn, and the end, while the agent waits for us to read.
        say(process, line(id="more", method="session/prompt", params={"sessionId": session_id, "prompt": [text()]}))
        process.stdin.close()
        rest, _, peak = process.stderr.read().partition(b"peak")  # to its end: it ends although nobody reads
        assert process.wait(DEADLINE) == 0
        assert all(part.isdigit() and int(part) < 8 for part in rest.split()), rest
        assert int(peak) * 1024 < 150 * MIB


@posix
@pytest.mark.parametrize("ended", [True, False])
def test_a_client_that_closes_our_output_ends_the_agent_without_a_traceback(ended: bool) -> None:
    code = """
    import asyncio, sys
    from twofold.runtime.agent import Agent
    class Ticking(Agent):
        name, drain_timeout = "ticking", 0.2
        async def prompt(self, session, prompt):
            while True:
                await session.message().append("tick")
                await asyncio.sleep(0.001)
        def fault(self, error):
            print(error, file=sys.stderr)
    Ticking().run()
    """
    with agent_process(twofold_program(code)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        session_id = begin(process)
        say(process, line(id="go", method="session/prompt", params={"sessionId": session_id, "prompt": [text()]}))
        assert hear(process)["id"] == "go"
        process.stdout.close()
        if ended:
            process.stdin.close()
        else:
            say(process, line(id="ping", method="_acme/ping", params={}))
        assert complaints(process.stderr.read()) == b""
        assert process.wait(DEADLINE) == 0


def test_a_client_that_goes_at_any_moment_leaves_an_agent_that_serves_the_next_one() -> None:
    chance = random.Random(4711)

    async def main() -> None:
        agent = Patient()
        agent.drain_timeout = 0.0
        async with agent:
            for _ in range(40):
                client = Raw(agent)
                client.say(initialize(chance.choice((1, 2))))
                client.say(line(id=1, method="session/new", params={"cwd": "/tmp", "mcpServers": []}))
                await turns(chance.randrange(30))
                if agent.sessions:
                    prompt = {"sessionId": agent.sessions[-1].session_id, "prompt": [text()]}
                    client.say(line(id=2, method="session/prompt", params=prompt))
                    client.say(line(id=3, method="_acme/x", params={}))
                await turns(chance.randrange(30))
                await client.ours.close()
                await client.serving
            async with talking(agent) as last:
                session_id = await last.begin()
                last.say(line(id="go", method="session/prompt", params={"sessionId": session_id, "prompt": [text()]}))
                assert (await last.idle())["stopReason"] == "end_turn"
        assert agent.faults == []

    run(main())


# Laws

METHODS: Final = words(
    "initialize session/new session/resume session/load session/prompt session/cancel session/close session/delete "
    "session/list session/set_config_option session/set_mode session/update session/request_permission auth/login "
    "auth/logout authenticate logout $/cancel_request _acme/x unknown"
)
NAMES: Final = words(
    "sessionId cwd prompt mcpServers additionalDirectories replayFrom cursor configId value type modeId methodId "
    "requestId protocolVersion info capabilities clientInfo clientCapabilities _meta name version text update"
)

members: st.SearchStrategy[Any] = st.recursive(
    st.one_of(anything, st.sampled_from(["s", "/tmp", 1, 2, "text", "loud", "start", True, None, [], {}])),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from(NAMES), members, max_size=5)
messages = st.builds(
    lambda method, params, id_: {"method": method, **params, **id_},
    st.sampled_from(METHODS),
    st.one_of(st.just({}), st.builds(lambda held: {"params": held}, st.one_of(objects, objects, members))),
    st.sampled_from([{}, {"id": 1}, {"id": 2}, {"id": "x"}, {"id": None}]),
)


@pytest.mark.parametrize("version", [1, 2])
@given(st.lists(messages, max_size=6), st.booleans())
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_said_the_agent_serves_on_and_nothing_fails_in_it(
    version: int, caplog: pytest.LogCaptureFixture, said: list[Json], begun: bool
) -> None:
    caplog.clear()

    async def main() -> None:
        async with talking(Choosy()) as client:
            session_id = await client.begin(version) if begun else "s"
            for message in said:
                words = json.dumps({"jsonrpc": "2.0", **message}).replace('"s"', json.dumps(session_id))
                client.say(words.encode())
            if not begun:
                client.say(initialize(version, id="again"))
                await client.answer("again")
            assert await client.ask("_acme/last", {}) == {"heard": "_acme/last"}

    run(main())
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
