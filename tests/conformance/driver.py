"""A client of raw lines: it starts an agent and keeps every line of both sides. It knows nothing of the package.

Waiting is for lines, with a deadline; what did not come is told with the lines that did.
"""

import contextlib
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tests.cli.program import ENVIRONMENT, ROOT
from tests.conformance.judge import Id, Line, Message, faults, read_line, versions
from tests.conformance.requirements import Version

SECONDS = 10.0  # for any one thing to come

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


# The agent


class Agent:
    """An agent in a process of its own."""

    def __init__(self, example: str) -> None:
        self.lines: list[Line] = []
        self.errors = b""
        self.opening: Message = {}
        self.status: int | None = None
        self._more = threading.Condition()
        self._ended = False
        self._ids = itertools.count(1)
        self._checked = 0
        self._process = subprocess.Popen(
            [sys.executable, str(Path("examples", f"{example}.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=ENVIRONMENT,
        )
        self._readers = [threading.Thread(target=self._read_lines), threading.Thread(target=self._read_errors)]
        for reader in self._readers:
            reader.start()

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            line = read_line(raw.removesuffix(b"\n"))
            if not raw.endswith(b"\n"):
                line = Line(False, raw, fault="a line without its end")
            self._add(line)
        with self._more:
            self._ended = True
            self._more.notify_all()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self.errors = self._process.stderr.read()

    def _add(self, line: Line) -> None:
        with self._more:
            self.lines.append(line)
            self._more.notify_all()

    def end(self) -> int:
        """End the agent's input, wait for its end and give its exit status; all that it said is then in `lines`."""
        assert self._process.stdin is not None
        if self.status is None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            try:
                self.status = self._process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"the agent did not end with its input\n{self.story()}") from None
            self._tidy()
        return self.status

    def kill(self) -> None:
        """End the process, whatever it does; nothing happens when it has ended."""
        if self.status is None:
            self._process.kill()
            self.status = self._process.wait()
            self._tidy()

    def _tidy(self) -> None:
        for reader in self._readers:
            reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    # Sending

    @property
    def position(self) -> int:
        """Where the next line will stand in `lines`."""
        return len(self.lines)

    def send_raw(self, raw: bytes) -> None:
        assert self._process.stdin is not None
        self._add(read_line(raw, sent=True))
        self._process.stdin.write(raw + b"\n")
        self._process.stdin.flush()

    def send(self, **members: Any) -> None:
        self.send_raw(json.dumps({"jsonrpc": "2.0", **members}).encode())

    def request(self, method: str, params: Message | None = None, id: Id | None = None) -> Id:
        id = next(self._ids) if id is None else id
        self.send(id=id, method=method, params={} if params is None else params)
        return id

    def notify(self, method: str, params: Message | None = None) -> None:
        self.send(method=method, params={} if params is None else params)

    # Waiting

    def wait_for(self, found: Callable[[Line], bool], what: str, since: int = 0, seconds: float = SECONDS) -> int:
        """Return the position of the agent's first line from `since` on that is the one, once it is there."""
        place = since

        def there() -> bool:
            nonlocal place
            while place < len(self.lines):
                if not self.lines[place].sent and found(self.lines[place]):
                    return True
                place += 1
            return self._ended

        with self._more:
            in_time = self._more.wait_for(there, seconds)
        if in_time and place < len(self.lines):
            return place
        why = f"in {seconds:g} s" if not in_time else "before the agent ended"
        raise AssertionError(f"{what} did not come {why}\n{self.story(since)}")

    def answer_at(self, id: Id | None, since: int = 0) -> int:
        return self.wait_for(
            lambda line: line.is_answer and "id" in line.message and _same(line.message["id"], id),
            f"an answer to the request {id!r}",
            since,
        )

    def answer(self, id: Id | None, since: int = 0) -> Message:
        """Return the answer to a request, or with `None` the next answer to something unreadable."""
        return self.lines[self.answer_at(id, since)].message

    def call(self, method: str, params: Message | None = None) -> Message:
        """Send a request and return its result, an object."""
        message = self.answer(self.request(method, params))
        assert isinstance(message.get("result"), dict), f"{method} has no result\n{self.story()}"
        result: Message = message["result"]
        return result

    def refusal(self, method: str, params: Message | None = None) -> Message:
        """Send a request that must fail and return the error."""
        message = self.answer(self.request(method, params))
        assert isinstance(message.get("error"), dict), f"{method} does not fail\n{self.story()}"
        error: Message = message["error"]
        return error

    def settled(self) -> int:
        """Wait until the agent has dealt with all that was sent so far; return the position of the last answer.

        Two more requests are answered for that: one at once, one after a look at the sessions, which takes a while.
        """
        self.answer(self.request("_settled"))
        return self.answer_at(self.request("session/list"))

    def heard(self, since: int) -> list[Line]:
        """Return what the agent sends from a position on until it has settled, without the answers that say so."""
        before = self.position
        end = self.settled()
        ours = {line.message["id"] for line in self.lines[before:end] if line.sent}
        return [line for line in self.received(since, end) if not (line.is_answer and line.message.get("id") in ours)]

    # The protocol, as far as nearly every test needs it

    def initialize(self, version: Version, **more: Any) -> Message:
        self.opening = self.call("initialize", initialize_params(version, **more))
        return self.opening

    def new_session(self, cwd: Path | str) -> str:
        session = self.call("session/new", {"cwd": str(cwd), "mcpServers": []})["sessionId"]
        assert isinstance(session, str)
        return session

    def prompt(self, session: str, text: str, *more: Message, **members: Any) -> "Turn":
        """Send a prompt, and do not wait."""
        since = self.position
        blocks = [{"type": "text", "text": text}, *more]
        return Turn(
            self, session, since, self.request("session/prompt", {"sessionId": session, "prompt": blocks, **members})
        )

    # Judging

    @property
    def version(self) -> Version:
        """The version that the agent answered with last."""
        return next((version for version in reversed(versions(self.lines)) if version), 2)

    def received(self, since: int = 0, until: int | None = None) -> list[Line]:
        return [line for line in self.lines[since:until] if not line.sent]

    def check(self) -> None:
        """Fail when a line of the agent since the last check does not fit the schema."""
        lines = self.lines[:]  # more may come meanwhile
        since, self._checked = self._checked, len(lines)
        assert faults(lines, since) == [], self.story(since)

    def story(self, since: int = 0, most: int = 40) -> str:
        """Tell the lines of both sides, and what was written to standard error if the agent has ended."""
        lines = [str(line)[:2000] for line in self.lines[since:]]
        left_out = [f"({len(lines) - most} lines before)"] if len(lines) > most else []
        return "\n".join([*left_out, *lines[-most:], self.errors.decode("utf-8", "replace")])


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


@contextlib.contextmanager
def started(example: str) -> Iterator[Agent]:
    """Start `examples/<example>.py`; it is gone in the end, however the block is left."""
    agent = Agent(example)
    try:
        yield agent
    finally:
        agent.kill()


def initialize_params(version: int, **more: Any) -> Message:
    """Give what a client says that wants `version`; one that wants a later one than we know speaks like both."""
    info = {"name": "conformance", "version": "0"}
    params: Message = {"protocolVersion": version}
    if version != 2:
        params |= {"clientInfo": info, "clientCapabilities": {}}
    if version != 1:
        params |= {"info": info, "capabilities": {}}
    return params | more


# One turn

Choice: TypeAlias = Callable[[Message], Message | None]


def pick(kind: str) -> Choice:
    """Answer permission requests by the first option of this kind."""

    def choose(params: Message) -> Message:
        options = [option["optionId"] for option in params["options"] if option["kind"] == kind]
        return {"outcome": {"outcome": "selected", "optionId": options[0]}}

    return choose


ALLOW = pick("allow_once")
REJECT = pick("reject_once")


def undecided(params: Message) -> None:
    """Leave permission requests without an answer."""


@dataclass
class Turn:
    """A prompt and what the agent sends because of it. Version 1 ends it by the answer, version 2 by an idle state."""

    agent: Agent
    session: str
    since: int
    id: Id
    until: int | None = None  # behind the last line of the turn, once it has ended

    def wait_for(self, found: Callable[[Line], bool], what: str, since: int | None = None) -> int:
        since = self.since if since is None else since
        return self.agent.wait_for(lambda line: line.is_about(self.session) and found(line), what, since)

    def finish(self, choose: Choice = ALLOW) -> "Turn":
        """Wait for the end of the turn, and answer permission requests on the way."""
        place = self.since
        ends = self._is_idle if self.agent.version == 2 else self._is_answer
        while self.until is None:
            place = self.agent.wait_for(
                lambda line: ends(line) or self._is_question(line), f"the end of turn {self.id!r}", place
            )
            line = self.agent.lines[place]
            place += 1
            if not self._is_question(line):
                self.until = max(place, self.agent.answer_at(self.id, self.since) + 1)
            elif (result := choose(line.params)) is not None:
                self.agent.send(id=line.message["id"], result=result)
        return self

    def _is_answer(self, line: Line) -> bool:
        return line.is_answer and _same(line.message.get("id"), self.id)

    def _is_idle(self, line: Line) -> bool:
        update = line.update if line.is_about(self.session) else {}
        return update.get("state") == "idle" and update.get("stopReason") is not None

    def _is_question(self, line: Line) -> bool:
        return line.method == "session/request_permission" and line.is_about(self.session)

    def question(self) -> Id:
        """Wait for a permission request, leave it without an answer and return its id."""
        place = self.agent.wait_for(self._is_question, "a permission request", self.since)
        id: Id = self.agent.lines[place].message["id"]
        return id

    def cancel(self, **members: Any) -> int:
        """Cancel the turn; return where that stands."""
        self.agent.notify("session/cancel", {"sessionId": self.session, **members})
        return self.agent.position - 1

    @property
    def answer(self) -> Message:
        """What the prompt was answered with."""
        return self.agent.answer(self.id, self.since)

    @property
    def lines(self) -> list[Line]:
        """The agent's lines from the prompt to the end of the turn."""
        return self.agent.received(self.since, self.until)

    @property
    def updates(self) -> list[Message]:
        """The updates of the turn's session."""
        return [line.update for line in self.lines if line.is_about(self.session) and line.update]

    def of(self, *kinds: str) -> list[Message]:
        return [update for update in self.updates if update.get("sessionUpdate") in kinds]

    @property
    def states(self) -> list[Any]:
        return [update.get("state") for update in self.of("state_update")]

    @property
    def permissions(self) -> list[Message]:
        return [line.params for line in self.lines if self._is_question(line)]

    @property
    def stop_reason(self) -> Any:
        if self.agent.version == 1:
            return self.answer["result"].get("stopReason")
        return self.of("state_update")[-1].get("stopReason")

    @property
    def text(self) -> str:
        """All text that the turn streamed or put as a message of the agent, in order."""
        contents: list[Any] = []
        for update in self.of("agent_message", "agent_message_chunk"):
            content = update.get("content")
            contents += content if isinstance(content, list) else [content]
        return "".join(block["text"] for block in contents if isinstance(block, dict) and block.get("type") == "text")
