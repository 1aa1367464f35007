"""`twofold bridge`, the program: its options, its log, what it says on standard error, how it ends."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.bridge.ends import BOTH, CWD, EXAMPLES, V1, V2, puppet, script, text
from tests.cli.program import ENVIRONMENT, ROOT, Result, call, command
from tests.cli.program import run as run_program
from twofold.convert import CORRECTED
from twofold.journal import open_journal

Json = Any

SECONDS = 30
IDLE = {"update": {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}}
CORRECTION = [
    {"answer": {"messageId": "u"}},
    {"update": {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": text("five")}},
    {"update": {"sessionUpdate": "agent_message", "messageId": "m", "content": [text("four")]}},
]


class Program:
    """The program between us and an agent."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._id = 0

    def send(self, method: str, params: Json) -> int:
        assert self.process.stdin is not None
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        return self._id

    def read(self) -> Json:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def answer(self, id: int) -> Json:
        while (message := self.read()) is not None:
            if message.get("id") == id and "method" not in message:
                return message
        return None

    def ask(self, method: str, params: Json) -> Json:
        return self.answer(self.send(method, params))

    def begin(self, version: int) -> str:
        """Initialize and begin a session."""
        self.ask("initialize", {"protocolVersion": version, "info": {"name": "t", "version": "0"}, "capabilities": {}})
        return str(self.ask("session/new", {"cwd": CWD, "mcpServers": []})["result"]["sessionId"])

    def prompt(self, session: str, words: str) -> int:
        return self.send("session/prompt", {"sessionId": session, "prompt": [text(words)]})

    def end(self) -> tuple[int, str]:
        """Say no more; give the exit status and what was said on standard error."""
        _, err = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, err.decode()


@contextmanager
def bridge(*words: str | Path) -> Iterator[Program]:
    process = subprocess.Popen(
        command("bridge", *words),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=ENVIRONMENT,
    )
    try:
        yield Program(process)
    finally:
        process.kill()
        process.communicate()


def logged(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_an_echo_agent_behind_a_client_of_either_version(tmp_path: Path) -> None:
    for version in (1, 2):
        with bridge("--agent-version", "2", "--", sys.executable, EXAMPLES / "echo_agent.py") as program:
            session = program.begin(version)
            id = program.prompt(session, "Hello")
            lines = []
            while (line := program.read()) is not None:
                lines.append(line)
                idle = line.get("params", {}).get("update", {}).get("state") == "idle"
                if (version == 1 and line.get("id") == id) or idle:
                    break
            assert '"text": "Hello"' in json.dumps(lines)
            assert program.end() == (0, "")


def test_losses_are_in_the_log_in_the_journal_and_counted_on_standard_error(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    journal, log = tmp_path / "journal", tmp_path / "log"
    again = CORRECTION[1:]
    with bridge("--journal", journal, "--log", log, "--agent-version=2", "--", *puppet({"2": V2})) as program:
        session = program.begin(1)
        id = program.prompt(session, script(*CORRECTION, *again, IDLE))
        assert program.answer(id)["result"] == {"stopReason": "end_turn"}
        status, err = program.end()
    assert (status, err) == (0, "twofold bridge: 2 things could not be told to the client\n")
    losses = [one for one in logged(log) if one["event"] == "loss"]
    assert [(one["session"], one["kind"], one["id"]) for one in losses] == [("s", "agent_message", "m")] * 2
    assert all(set(one) == {"time", "event", "session", "kind", "id", "path", "reason", "sent"} for one in losses)
    assert "four" not in log.read_text()
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    shown = call(capsysbinary, "journal", "show", journal)
    assert shown.status == 0
    assert shown.out.count('note  the client was not told all of agent_message "m": content was sent to the v1') == 2


@pytest.mark.rule("J-3")
@pytest.mark.parametrize("keep", [False, True])
def test_what_was_taken_back_is_erased_from_the_journal_unless_it_is_to_be_kept(keep: bool, tmp_path: Path) -> None:
    options = ["--journal", str(tmp_path / "journal"), *(["--keep-superseded"] if keep else [])]
    with bridge(*options, "--", *puppet({"2": V2})) as program:
        session = program.begin(2)
        program.prompt(
            session, script({"update": {**CORRECTION[1]["update"], "content": text("a secret")}}, *CORRECTION[2:], IDLE)
        )
        for _ in range(3):
            program.read()
        assert program.end() == (0, "")
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert (b"a secret" in stored) == keep


def test_one_loss_is_one_thing_and_none_is_not_spoken_of() -> None:
    for steps, words in (
        (CORRECTION, "twofold bridge: 1 thing could not be told to the client\n"),
        (CORRECTION[:2], ""),
    ):
        with bridge("--agent-version=2", "--", *puppet({"2": V2})) as program:
            session = program.begin(1)
            assert program.answer(program.prompt(session, script(*steps, IDLE)))["result"]
            assert program.end() == (0, words)


def test_a_log_is_appended_to(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for _ in range(2):
        with bridge("--log", log, "--", *puppet(BOTH)) as program:
            program.begin(2)
            assert program.end() == (0, "")
    assert [one["event"] for one in logged(log)] == ["agent", "versions", "end"] * 2


def test_on_loss_close_ends_the_view() -> None:
    with bridge("--on-loss", "close", "--agent-version=2", "--", *puppet({"2": V2})) as program:
        session = program.begin(1)
        answer = program.answer(program.prompt(session, script(*CORRECTION, {"hear": "session/cancel"}, IDLE)))
        assert "load the session again" in answer["error"]["data"]["reason"]
        assert program.end() == (0, "twofold bridge: 1 thing could not be told to the client\n")


def test_marking_is_what_happens_when_nothing_is_said() -> None:
    with bridge("--agent-version=2", "--", *puppet({"2": V2})) as program:
        session = program.begin(1)
        program.prompt(session, script(*CORRECTION, IDLE))
        texts = [program.read()["params"]["update"]["content"]["text"] for _ in range(3)]
        assert texts == ["five", CORRECTED, "four"]


def test_a_client_with_tools_is_told_of_or_refused() -> None:
    for option, status, words in (
        ((), 0, "twofold bridge: the client's files: an agent of version 2 has its own\n"),
        (
            ("--refuse-client-tools",),
            1,
            "twofold bridge: the client offers files to the agent, and an agent of version 2 cannot use them\n",
        ),
    ):
        with bridge(*option, "--", *puppet({"2": V2})) as program:
            params = {"protocolVersion": 1, "clientCapabilities": {"fs": {"readTextFile": True}}}
            assert ("error" in program.ask("initialize", params)) == bool(option)
            assert program.end() == (status, words)


@pytest.mark.parametrize("version", [1, 2])
def test_an_agent_that_crashes_is_status_1_and_told_of(version: int) -> None:
    with bridge("--", *puppet(BOTH)) as program:
        session = program.begin(version)
        answer = program.answer(program.prompt(session, script({"end": "exit 3"})))
        name = Path(sys.executable).name
        assert answer["error"]["data"]["reason"] == f"{name} ended with status 3"
        assert program.end() == (1, f"twofold bridge: {name} ended with status 3\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "required: AGENT"),
        (("--",), "required: AGENT"),
        (("--on-loss", "ignore", "--", "agent"), "invalid choice: 'ignore'"),
        (("--agent-version", "3", "--", "agent"), "invalid choice: '3'"),
        (("--nothing", "--", "agent"), "unrecognized arguments: --nothing"),
    ],
)
def test_wrong_usage_is_status_2(
    capsysbinary: pytest.CaptureFixture[bytes], words: tuple[str, ...], complaint: str
) -> None:
    result: Result = call(capsysbinary, "bridge", *words)
    assert (result.status, result.out) == (2, "")
    assert complaint in result.err


def test_a_journal_or_a_log_that_cannot_be_opened_is_status_2(tmp_path: Path) -> None:
    (tmp_path / "no journal").write_text("this is no database, and it is long enough to be looked at as one" * 20)
    for option, path in (("--journal", tmp_path / "no journal"), ("--log", tmp_path / "nowhere" / "log")):
        done = run_program("bridge", option, path, "--", "agent")
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.startswith(b"twofold bridge: " + bytes(path) + b": ")


def test_what_stands_after_the_dashes_is_the_agents(tmp_path: Path) -> None:
    code = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text(repr(sys.argv[2:])); sys.stdin.read()"
    words = ["--log", "--", "--journal", "x", "-h"]
    done = run_program("bridge", "--", sys.executable, "-c", code, tmp_path / "words", *words)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "words").read_text() == repr(words)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("version", [1, 2])
def test_a_signal_ends_it_with_an_answer_and_nothing_is_left(
    number: signal.Signals, version: int, tmp_path: Path
) -> None:
    journal, log = tmp_path / "journal", tmp_path / "log"
    agent = puppet({"2": V2})
    with bridge("--journal", journal, "--log", log, "--agent-version=2", "--", *agent) as program:
        session = program.begin(version)
        steps = [*CORRECTION[:1], *CORRECTION[1:2]] if version == 1 else [CORRECTION[1]]
        id = program.prompt(session, script(*steps, {"hear": "_never"}))
        program.read()
        program.process.send_signal(number)
        assert program.answer(id)["error"]["data"]["reason"] == "the bridge was stopped"
        assert program.end() == (0, "")
    events = logged(log)
    [agent_pid] = [one["pid"] for one in events if "pid" in one]
    assert [one["event"] for one in events][-2:] == ["stopped", "end"]
    with pytest.raises(ProcessLookupError):
        os.kill(agent_pid, 0)
    assert run_program("journal", "verify", journal).returncode == 0
    with open_journal(str(journal)) as held:
        assert "five" in [message.text for message in held.load("s").transcript.messages]


def test_the_journal_is_whole_and_the_agent_ends_when_the_bridge_is_killed(tmp_path: Path) -> None:
    journal, heard = tmp_path / "journal", tmp_path / "heard"
    os.mkfifo(heard)
    agent = puppet({"2": V2}, heard=heard)
    with bridge("--journal", journal, "--", *agent) as program, heard.open("rb") as said:
        session = program.begin(2)
        pieces = [
            {"update": {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": text(f"{n} ")}}
            for n in range(200)
        ]
        program.prompt(session, script(*pieces, {"hear": "_never"}))
        for _ in pieces:
            program.read()
        program.process.send_signal(signal.SIGKILL)
        program.process.wait()
        while said.readline():  # to the end: the agent is gone
            pass
    assert run_program("journal", "verify", journal).returncode == 0
    with open_journal(str(journal)) as held:
        texts = [message.text for message in held.load("s").transcript.messages if message.message_id == "m"]
        assert "".join(f"{number} " for number in range(200)).startswith("".join(texts))


def test_a_full_disk_ends_the_log_and_not_the_conversation() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full here")
    with bridge("--log", "/dev/full", "--", *puppet({"1": V1})) as program:
        assert program.begin(1) == "s"
        status, err = program.end()
    assert (status, err) == (0, "twofold: the log cannot be written: No space left on device\n")


def test_the_program_speaks_through_files(tmp_path: Path) -> None:
    asked, answered = tmp_path / "asked", tmp_path / "answered"
    initialize = {"protocolVersion": 1, "clientCapabilities": {}}
    requests = [("initialize", initialize), ("session/new", {"cwd": CWD, "mcpServers": []})]
    lines = [
        {"jsonrpc": "2.0", "id": number, "method": one[0], "params": one[1]} for number, one in enumerate(requests)
    ]
    asked.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with asked.open("rb") as stdin, answered.open("wb") as stdout:
        words = command("bridge", "--agent-version=2", "--", *puppet({"2": V2}))
        done = subprocess.run(
            words, stdin=stdin, stdout=stdout, cwd=ROOT, env=ENVIRONMENT, timeout=SECONDS, check=False
        )
    assert done.returncode == 0
    answers = [json.loads(line) for line in answered.read_bytes().splitlines()]
    assert [answer["id"] for answer in answers] == [0, 1]
    assert answers[1]["result"] == {"sessionId": "s"}
