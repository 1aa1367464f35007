"""The examples, each run as the program that it is."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.examples.endpoint import DEADLINE, Answer, Endpoint, Json, call, text, thoughts
from twofold.fold import Transcript
from twofold.runtime.client import Client, ClientSession, PermissionRequest, connect
from twofold.wire import v2

EXAMPLES = Path(__file__).parents[2] / "examples"
VERSIONS = pytest.mark.parametrize("version", [1, 2], ids=["v1", "v2"])

Body = Callable[[ClientSession, Client], Awaitable[None]]


def example(name: str, *arguments: str) -> list[str]:
    """Give the command of an example."""
    return [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), *arguments]


def only(version: int, name: str, agent: str) -> list[str]:
    """Give a command that serves the agent of an example in one version alone."""
    program = f"import sys; sys.path.insert(0, {str(EXAMPLES)!r}); import {name}; {name}.{agent}(versions=[{version}])"
    return [sys.executable, "-W", "error", "-c", f"{program}.run()"]


async def allow(request: PermissionRequest) -> v2.PermissionOption | None:
    """Allow everything."""
    return request.option("allow_once")


def said(state: Transcript) -> list[tuple[str, str]]:
    """Give the messages of a session, but those without text."""
    return [(message.type, message.text) for message in state.messages if message.text]


def run(command: Sequence[str], body: Body, folder: Path, version: int = 2, **options: Any) -> None:
    """Run a body with a new session of an agent in a folder."""

    async def connected() -> None:
        async with asyncio.timeout(DEADLINE), connect(command, versions=[version], **options) as client:
            await body(await client.new_session(cwd=folder), client)

    asyncio.run(connected())


def test_every_example_is_run_here() -> None:
    run_here = Path(__file__).read_text(encoding="utf-8")
    assert [path.stem for path in EXAMPLES.glob("*.py") if f'example("{path.stem}"' not in run_here] == []


class TestTheEchoAgent:
    @VERSIONS
    def test_says_what_it_is_told(self, version: int, tmp_path: Path) -> None:
        async def body(session: ClientSession, client: Client) -> None:
            assert client.version == version
            assert await session.prompt("hello") == "end_turn"
            assert said(session.state) == [("user_message", "hello"), ("agent_message", "hello")]

        run(example("echo_agent"), body, tmp_path, version)


class TestTheStreamingAgent:
    def test_streams_corrects_itself_and_takes_back(self, tmp_path: Path) -> None:
        async def body(session: ClientSession, client: Client) -> None:
            await session.prompt("stream")
            assert said(session.state)[1:] == [("agent_thought", "Let me think"), ("agent_message", "Hello, world!")]
            assert session.state.messages[2].corrected
            assert session.state.messages[3].withdrawn
            assert [entry.content for entry in session.state.plans[0].entries] == ["Say hello", "Take the secret back"]

        run(example("streaming_agent"), body, tmp_path)

    @VERSIONS
    def test_runs_a_tool_when_it_may(self, version: int, tmp_path: Path) -> None:
        async def body(session: ClientSession, client: Client) -> None:
            await session.prompt("tool")
            assert session.state.tool_calls[0].status == "completed"
            assert said(session.state)[-1] == ("agent_message", "Done.")

        run(example("streaming_agent"), body, tmp_path, version, on_permission=allow)

    def test_runs_no_tool_when_nobody_allows_it(self, tmp_path: Path) -> None:
        async def nothing(request: PermissionRequest) -> None:
            return None

        async def body(session: ClientSession, client: Client) -> None:
            await session.prompt("tool")
            assert session.state.tool_calls[0].status == "failed"
            assert not session.state.terminals

        run(example("streaming_agent"), body, tmp_path, on_permission=nothing)

    @VERSIONS
    def test_ends_with_an_error_on_request_and_goes_on(self, version: int, tmp_path: Path) -> None:
        async def body(session: ClientSession, client: Client) -> None:
            turn = session.prompt("boom")
            assert await turn == "error"
            assert turn.error is not None
            assert await session.prompt("still here?") == "end_turn"

        run(example("streaming_agent"), body, tmp_path, version, stderr=subprocess.DEVNULL)

    @VERSIONS
    def test_stops_when_it_is_cancelled(self, version: int, tmp_path: Path) -> None:
        async def body(session: ClientSession, client: Client) -> None:
            turn = session.prompt("slow")
            async for change in turn:
                if change.entity == "message" and change.target.type == "agent_message":
                    await session.cancel()
            assert turn.stop_reason == "cancelled"

        run(example("streaming_agent"), body, tmp_path, version)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give the session's folder, with a file in it and one beside it."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "notes.txt").write_text("three\nlines\nβ\n", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("hk_live_EXAMPLE")
    return work


def environment(endpoint: Endpoint) -> dict[str, str]:
    """Give the environment of the agent around an endpoint."""
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    return {**kept, "OPENAI_BASE_URL": endpoint.url, "OPENAI_API_KEY": "key-1", "OPENAI_MODEL": "scripted"}


def around(
    endpoint: Endpoint, body: Body, folder: Path, version: int = 2, journal: str = "memory:", **more: Any
) -> None:
    """Run a body with a session of the agent around an endpoint."""
    command = example("openai_agent", journal)
    run(command, body, folder, version, env=environment(endpoint), **{"on_permission": allow, **more})


def roles(request: Json) -> list[tuple[str, Any]]:
    """Give the messages of a request after the first, the system's."""
    return [(one["role"], one["content"]) for one in request["messages"][1:]]


class TestTheAgentAroundAnEndpoint:
    @VERSIONS
    def test_streams_what_the_model_thinks_and_says(self, version: int, folder: Path) -> None:
        pieces = ["Zwölf ", "Boxkämpfer\u2028", "👩\u200d👧 ", "jagen."]
        answer = Answer([*thoughts("Let me ", "see."), *text(*pieces)])

        async def body(session: ClientSession, client: Client) -> None:
            changes = [change async for change in session.prompt("Tell me.")]
            streamed = [change.block.text for change in changes if change.content == "appended"]
            assert streamed[-6:] == ["Let me ", "see.", *pieces]
            assert said(session.state)[1:] == [("agent_thought", "Let me see."), ("agent_message", "".join(pieces))]

        with Endpoint(answer) as endpoint:
            around(endpoint, body, folder, version)
        [request] = endpoint.requests
        assert request["model"] == "scripted"
        assert request["stream"] is True
        assert [one["function"]["name"] for one in request["tools"]] == ["read_file", "run_command"]
        assert str(folder) in request["messages"][0]["content"]
        assert roles(request) == [("user", "Tell me.")]
        assert endpoint.keys == ["Bearer key-1"]

    @VERSIONS
    def test_runs_each_tool_once_it_is_allowed_and_tells_the_model(self, version: int, folder: Path) -> None:
        asked: list[tuple[str, str]] = []

        async def decide(request: PermissionRequest) -> v2.PermissionOption | None:
            asked.append((request.title, request.session.state.tool_calls[-1].status))
            assert not (folder / "made").exists()
            return request.option("allow_once")

        async def body(session: ClientSession, client: Client) -> None:
            assert await session.prompt("Look around.") == "end_turn"
            read, ran = session.state.tool_calls
            assert (read.kind, read.status, read.locations[0].path) == ("read", "completed", str(folder / "notes.txt"))
            assert (ran.kind, ran.status) == ("execute", "completed")
            if version == 2:
                [terminal] = session.state.terminals
                assert terminal.output == b"working\n"
                assert terminal.exit_status == v2.TerminalExitStatus(exit_code=0)
            assert said(session.state)[-1] == ("agent_message", "All done.")

        first = call(0, "read_file", '{"pa', 'th": "not', 'es.txt"}')
        second = call(1, "run_command", '{"command"', ': "echo working; > made"', "}")
        mixed = [one for pair in zip(first, [*second, {}], strict=False) for one in pair]
        with Endpoint(Answer([*text("I will look."), *mixed], "tool_calls"), Answer(text("All done."))) as endpoint:
            around(endpoint, body, folder, version, on_permission=decide)
        assert asked == [("Read notes.txt", "pending"), ("echo working; > made", "pending")]
        after = endpoint.requests[1]["messages"][1:]
        assert roles(endpoint.requests[1]) == [
            ("user", "Look around."),
            ("assistant", "I will look."),
            ("tool", "three\nlines\nβ\n"),
            ("assistant", None),
            ("tool", "working\n\n(status 0)"),
        ]
        for assistant, result in (after[1:3], after[3:5]):
            [wanted] = assistant["tool_calls"]
            assert wanted["id"] == result["tool_call_id"]
        assert json.loads(after[3]["tool_calls"][0]["function"]["arguments"]) == {"command": "echo working; > made"}

    def test_runs_no_tool_that_the_user_refuses(self, folder: Path) -> None:
        async def refuse(request: PermissionRequest) -> v2.PermissionOption | None:
            return request.option("reject_once")

        async def body(session: ClientSession, client: Client) -> None:
            await session.prompt("Make it.")
            assert session.state.tool_calls[0].status == "failed"
            assert not session.state.terminals

        with Endpoint(Answer(call(0, "run_command", '{"command": "> made"}')), Answer(text("Then not."))) as endpoint:
            around(endpoint, body, folder, on_permission=refuse)
        assert not (folder / "made").exists()
        assert roles(endpoint.requests[1])[-1] == ("tool", "The user did not allow this.")

    @pytest.mark.parametrize("path", ["../secret.txt", "link.txt", "/etc/passwd", ".", "nothing.txt"])
    def test_reads_no_file_outside_the_folder_even_if_allowed(self, folder: Path, path: str) -> None:
        (folder / "link.txt").symlink_to(folder.parent / "secret.txt")

        async def body(session: ClientSession, client: Client) -> None:
            await session.prompt("Read it.")
            assert session.state.tool_calls[0].status == "failed"

        with Endpoint(Answer(call(0, "read_file", json.dumps({"path": path}))), Answer(text("No."))) as endpoint:
            around(endpoint, body, folder)
        assert roles(endpoint.requests[1])[-1] == ("tool", "It failed: there is no such file in the working directory")

    @pytest.mark.parametrize(("name", "arguments"), [("fly", "{}"), ("read_file", '{"path": 5}'), ("read_file", "{")])
    def test_asks_nobody_about_a_call_that_makes_no_sense(self, folder: Path, name: str, arguments: str) -> None:
        async def body(session: ClientSession, client: Client) -> None:
            await session.prompt("Do it.")
            assert session.state.tool_calls[0].status == "failed"
            assert client.permissions.empty()

        with Endpoint(Answer(call(0, name, arguments)), Answer(text("No."))) as endpoint:
            around(endpoint, body, folder, on_permission=None)
        assert roles(endpoint.requests[1])[-1][0] == "tool"

    @VERSIONS
    def test_closes_the_request_when_the_turn_is_cancelled(self, version: int, folder: Path) -> None:
        async def body(session: ClientSession, client: Client) -> None:
            turn = session.prompt("Go on and on.")
            async for change in turn:
                if change.entity == "message" and change.target.type == "agent_message":
                    await session.cancel()
            assert turn.stop_reason == "cancelled"
            assert await asyncio.to_thread(endpoint.hung_up.wait, DEADLINE)
            assert await session.prompt("Still there?") == "end_turn"

        with Endpoint(Answer(text("On and "), held=True), Answer(text("Yes."))) as endpoint:
            around(endpoint, body, folder, version)
        assert roles(endpoint.requests[1]) == [
            ("user", "Go on and on."),
            ("assistant", "On and "),
            ("user", "Still there?"),
        ]

    def test_kills_what_a_command_started_when_the_turn_is_cancelled(self, folder: Path) -> None:
        async def body(session: ClientSession, client: Client) -> None:
            turn = session.prompt("Wait.")
            async for change in turn:
                if change.entity == "terminal" and change.content == "appended":
                    await session.cancel()
            assert turn.stop_reason == "cancelled"
            assert session.state.tool_calls[0].status == "cancelled"
            [terminal] = session.state.terminals
            assert terminal.exit_status == v2.TerminalExitStatus(signal="SIGKILL")
            with pytest.raises(ProcessLookupError):
                os.kill(int(terminal.output), 0)

        with Endpoint(Answer(call(0, "run_command", '{"command": "echo $$; exec sleep 1000"}'))) as endpoint:
            around(endpoint, body, folder)

    def test_goes_on_with_a_session_of_an_earlier_process(self, folder: Path, tmp_path: Path) -> None:
        journal = str(tmp_path / "sessions.journal")
        sessions: list[str] = []

        async def before(session: ClientSession, client: Client) -> None:
            await session.prompt("Read the notes.")
            sessions.append(session.session_id)

        async def after(_: ClientSession, client: Client) -> None:
            [listed] = [one for one in await client.list_sessions() if one.session_id == sessions[0]]
            assert listed.title == "Read the notes."
            session = await client.resume(sessions[0], cwd=folder, replay=True)
            assert said(session.state) == [("user_message", "Read the notes."), ("agent_message", "Three lines.")]
            await session.prompt("Thanks.")

        answers = [Answer(call(0, "read_file", '{"path": "notes.txt"}')), Answer(text("Three lines."))]
        with Endpoint(*answers, Answer(text("You are welcome."))) as endpoint:
            around(endpoint, before, folder, journal=journal)
            around(endpoint, after, folder, journal=journal)
        earlier = endpoint.requests[1]["messages"]
        assert endpoint.requests[2]["messages"] == [
            *earlier,
            {"role": "assistant", "content": "Three lines."},
            {"role": "user", "content": "Thanks."},
        ]

    def test_puts_what_the_user_says_meanwhile_into_the_next_request(self, folder: Path) -> None:
        more: list[Any] = []

        async def decide(request: PermissionRequest) -> v2.PermissionOption | None:
            more.append(request.session.prompt("And be quick."))
            return request.option("allow_once")

        async def body(session: ClientSession, client: Client) -> None:
            assert await session.prompt("Read the notes.") == "end_turn"
            assert await more[0] == "end_turn"

        with Endpoint(Answer(call(0, "read_file", '{"path": "notes.txt"}')), Answer(text("Read."))) as endpoint:
            around(endpoint, body, folder, on_permission=decide)
        assert [role for role, _ in roles(endpoint.requests[1])] == ["user", "assistant", "tool", "user"]
        assert roles(endpoint.requests[1])[-1] == ("user", "And be quick.")

    @pytest.mark.parametrize(
        ("answer", "why"),
        [
            (Answer(status=401), "The endpoint answered with HTTP 401"),
            (Answer(text("Half a "), cut=True), "The endpoint cannot be used: RemoteProtocolError"),
            (Answer(text("Half a "), reason=""), "The endpoint ended in the middle of an answer"),
        ],
        ids=["refused", "cut", "ended early"],
    )
    def test_says_what_is_wrong_with_the_endpoint_and_goes_on(self, folder: Path, answer: Answer, why: str) -> None:
        async def body(session: ClientSession, client: Client) -> None:
            turn = session.prompt("Hello.")
            assert await turn == "error"
            assert turn.error is not None
            assert turn.error.message == why
            assert await session.prompt("Hello?") == "end_turn"

        with Endpoint(answer, Answer(text("Hello."))) as endpoint:
            around(endpoint, body, folder, stderr=subprocess.DEVNULL)

    def test_says_that_the_answer_was_too_long(self, folder: Path) -> None:
        async def body(session: ClientSession, client: Client) -> None:
            assert await session.prompt("Tell me all.") == "max_tokens"

        with Endpoint(Answer(text("It begins"), reason="length")) as endpoint:
            around(endpoint, body, folder)

    def test_wants_to_know_the_model(self) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
        done = subprocess.run(example("openai_agent"), env=kept, capture_output=True, text=True, timeout=DEADLINE)
        assert (done.returncode, done.stderr) == (1, "Set OPENAI_MODEL to the name of a model.\n")


def printed(*words: str, input: str = "") -> list[str]:
    """Give the lines that the printing client prints."""
    done = subprocess.run(
        example("print_client", *words), input=input, stdout=subprocess.PIPE, text=True, timeout=DEADLINE, check=True
    )
    return done.stdout.splitlines()


class TestTheClientThatPrints:
    def test_prints_text_in_place_and_corrections_anew(self) -> None:
        assert printed("-p", "stream", *example("streaming_agent")) == [
            "streaming 1.0 speaks version 2",
            "[agent_thought] Let me think",
            "[agent_message] Hello, world",
            "[agent_message corrected] Hello, world!",
            "[agent_message] secret",
            "[agent_message withdrawn] ",
            "[plan] Say hello: pending",
            "[plan] Take the secret back: pending",
            "",
        ]

    def test_allows_what_is_asked_when_it_is_told_to(self) -> None:
        assert printed("--allow", "-p", "tool", *example("streaming_agent")) == [
            "streaming 1.0 speaks version 2",
            "[tool_call pending] Run printf",
            "[question] Run printf",
            "[tool_call in_progress] Run printf",
            "[terminal] hello from tool",
            "[tool_call completed] Run printf",
            "[agent_message] Done.",
            "",
        ]

    @VERSIONS
    def test_reads_prompts_and_answers_from_standard_input(self, version: int) -> None:
        question = ["[tool_call pending] Run printf", "[question] Run printf", "  1. Allow", "  2. Reject"]
        lines = printed(*only(version, "streaming_agent", "Streaming"), input="hello\ntool\n2\ntool\n")
        assert lines == [
            f"streaming 1.0 speaks version {version}",
            "[agent_message] hello",
            "",
            *question,
            "[tool_call failed] Run printf",
            "[agent_message] Not done.",
            "",
            *question,  # at the end of the input nobody allows anything
            "[tool_call failed] Run printf",
            "[agent_message] Not done.",
            "",
        ]

    def test_cancels_the_turn_when_it_is_interrupted(self) -> None:
        command = example("print_client", "-p", "slow", *example("streaming_agent"))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None
            client.stdout.readline()
            assert client.stdout.read(len("[agent_message] tick 1")) == "[agent_message] tick 1"
            client.send_signal(signal.SIGINT)
            assert client.wait(DEADLINE) == 0
            assert "tick 500" not in client.stdout.read()

    def test_says_with_what_the_turn_failed(self) -> None:
        done = subprocess.run(
            example("print_client", "-p", "boom", *example("streaming_agent")),
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=True,
        )
        assert done.stdout.splitlines()[1:] == ["[error] Internal error"]

    def test_says_why_there_is_no_agent(self) -> None:
        done = subprocess.run(
            example("print_client", "no-such-agent"), capture_output=True, text=True, timeout=DEADLINE
        )
        assert done.returncode == 1
        assert done.stderr == "print_client.py: no-such-agent could not be started: No such file or directory\n"
