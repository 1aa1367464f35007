"""Clients and agents that others wrote, or built on what others wrote, with a bridge between them.

Every scripted client on an official SDK goes through its script with every scripted agent on one: a turn that streams,
corrects and takes back, one that asks for a permission, two prompts at once, one that is cancelled, and a replay.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from tests.bridge.conftest import Through
from tests.bridge.ends import CWD, EXAMPLES, V1, V2, bridged, puppet
from tests.interop.official import AGENTS, CLIENTS, ROOT, SECONDS, Peer, Record, updates
from tests.node_tools import node, node_modules
from tests.peers.agents import AGENTS as REAL
from tests.peers.agents import Agent, Place, Start
from tests.peers.conversation import Conversation, converse, prompt_of
from tests.peers.fake_llm import SCRIPTS, WRITTEN
from tests.runtime.talk import updates_of
from twofold.bridge._memory import FORGOTTEN
from twofold.convert import CORRECTED, SUPERSEDES, WITHDRAWN
from twofold.fold import Transcript
from twofold.journal import open_journal
from twofold.wire import v2

Json = Any

PROMPTS: Final = ["stream", "tool", "one", "two", "slow"]
BRIDGE: Final = [sys.executable, "-m", "twofold", "bridge"]
TOGETHER: Final = 2
"""Runs at once: each is three processes, and most of the time one of them starts."""

ALL_SECONDS: Final = 240.0

Runs = dict[tuple[str, Any], Future[Any]]
T = TypeVar("T")


@dataclass
class Run:
    """What one scripted client recorded while it talked to an agent through a bridge."""

    client: Peer
    agent: Peer | None
    status: int
    record: Record
    err: str
    folder: Path

    @property
    def journal(self) -> Path:
        return self.folder / "journal"

    @property
    def live(self) -> dict[tuple[str, str], str]:
        """The texts of messages that the client held before the reload."""
        return shown(self.record.live, self.client.version)

    @property
    def replayed(self) -> dict[tuple[str, str], str]:
        """Those that it held after that."""
        return shown(self.record.replayed, self.client.version)

    def logged(self, event: str) -> list[Json]:
        lines = [json.loads(line) for line in (self.folder / "log").read_bytes().splitlines()]
        return [line for line in lines if line["event"] == event]

    @property
    def losses(self) -> list[tuple[str, str]]:
        """What could not be told: the kinds of updates, and where in them."""
        return [(one["kind"], one["path"]) for one in self.logged("loss")]


def go(client: Peer, agent: Peer | None, command: Sequence[str], folder: Path) -> Run:
    """Let a scripted client talk to an agent through a bridge."""
    words = [*BRIDGE, "--journal", str(folder / "journal"), "--log", str(folder / "log"), "--", *command]
    done = subprocess.run(
        [*client.command, "--cwd", str(folder), "--", *words],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.stdout, done.stderr
    return Run(client, agent, done.returncode, Record(json.loads(done.stdout)), done.stderr, folder)


PAIRS: Final = [(client, agent) for client in CLIENTS for agent in AGENTS]


def name_of(parties: tuple[Any, Any]) -> str:
    return " - ".join(f"v{one}" if isinstance(one, int) else f"{one.language} v{one.version}" for one in parties)


@pytest.fixture(scope="session")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Begin everything that the tests will ask for, some at once."""
    pool = ThreadPoolExecutor(TOGETHER)
    runs: Runs = {}
    for item in request.session.items:
        params = getattr(item, "callspec", item).__dict__.get("params", {})
        for name, work in WORK.items():
            if name in params and (name, params[name]) not in runs:
                folder = tmp_path_factory.mktemp(name)
                runs[name, params[name]] = pool.submit(work, params[name], folder)
    yield runs
    pool.shutdown(cancel_futures=True)


def in_time(work: Coroutine[Any, Any, T]) -> T:
    """Run it, in a thread of its own, within a deadline that a busy machine keeps."""

    async def main() -> T:
        async with asyncio.timeout(ALL_SECONDS):
            return await work

    return asyncio.run(main())


def pair(parties: tuple[Peer, Peer], folder: Path) -> Run:
    client, agent = parties
    return go(client, agent, agent.command, folder)


@pytest.fixture(scope="session", params=PAIRS, ids=name_of)
def met(request: pytest.FixtureRequest, runs: Runs, through: Through) -> Run:
    """Give what a client recorded of an agent."""
    run = runs["met", request.param].result()
    failed = run.record.document.get("failed")
    assert failed is None, f"{failed}\n{json.dumps(run.record.events[-5:])}\n{run.err}"
    through(f"{run.client.language} SDK {run.record.sdk}, client v{run.client.version}", str(run.agent))
    assert isinstance(run, Run)
    return run


def shown(events: Sequence[Json], version: int) -> dict[tuple[str, str], str]:
    """Give the texts of messages as a client of this version holds them, for v1 without what was superseded."""
    if version == 2:
        state = Transcript()
        for one in updates(events):
            state.apply(v2.read_update(one))
        return {(message.type, message.message_id): message.text for message in state.messages}
    texts: dict[tuple[str, str], str] = {}
    gone: set[str] = set()
    untagged: tuple[str, str] | None = None  # the open run of chunks that name no message
    for number, event in enumerate(events):
        one = event["update"]["update"] if "update" in event else {"sessionUpdate": ""}
        if one["sessionUpdate"] not in CHUNKS:
            untagged = None
            continue
        old = (one.get("_meta") or {}).get(SUPERSEDES)
        gone |= {old} if old else set()
        key = (one["sessionUpdate"].removesuffix("_chunk"), one.get("messageId") or f"untagged {number}")
        if "messageId" in one:
            untagged = None
        elif untagged is not None and untagged[0] == key[0]:
            key = untagged
        else:
            untagged = key
        texts[key] = texts.get(key, "") + one["content"]["text"]
    return {key: text for key, text in texts.items() if key[1] not in gone}


CHUNKS: Final = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk")


def said(messages: Mapping[tuple[str, str], str]) -> list[str]:
    """Give what the agent has said, without what is empty and without marks."""
    kinds = ("agent_message", "agent_thought")
    return [text for (kind, _), text in messages.items() if kind in kinds and text not in ("", *MARKS)]


def prompted(messages: Mapping[tuple[str, str], str]) -> list[str]:
    """Give what the user has said."""
    return [text for (kind, _), text in messages.items() if kind == "user_message"]


MARKS: Final = (CORRECTED, WITHDRAWN)


def script_of(agent: Peer | None) -> list[str]:
    """Give what the agent's state holds after the script, but the ticks."""
    assert agent is not None
    told = ["Hello, world!"] if agent.version == 2 else ["Hello, world", "secret"]
    return ["Let me think", *told, "Done.", "one", "two"]


def ticks(text: str) -> str:
    """Give the beginning of the ticks that is as long as this: at least three, and not all."""
    count = len(text.split()) // 2
    assert 3 <= count < 500
    return "".join(f"tick {number} " for number in range(1, count + 1))


class TestEveryPair:
    def test_the_client_has_the_version_that_it_asked_for(self, met: Run) -> None:
        assert met.record.document["initialize"]["protocolVersion"] == met.client.version
        [versions] = met.logged("versions")
        assert met.agent is not None
        assert (versions["client"], versions["agent"]) == (met.client.version, met.agent.version)

    def test_the_client_shows_what_the_agents_state_holds(self, met: Run) -> None:
        *texts, slow = said(met.live)
        assert texts == script_of(met.agent)
        assert slow == ticks(slow)

    def test_what_could_not_be_carried_is_marked_in_the_log_and_counted(self, met: Run) -> None:
        assert met.agent is not None
        marks = [text for text in met.live.values() if text in MARKS]
        if (met.client.version, met.agent.version) != (1, 2):
            assert (marks, met.losses, met.err) == ([], [], "")
            return
        assert marks == [WITHDRAWN]
        assert met.losses[0] == ("agent_message", "$.content")
        as_text = ("terminal_update", "tool_call_update")  # terminals are shown as text
        assert {loss[0] for loss in met.losses[1:]} <= {*as_text, "session/request_permission"}
        assert met.err == f"twofold bridge: {len(met.losses)} things could not be told to the client\n"
        assert "secret" not in (met.folder / "log").read_text()

    def test_a_permission_is_asked_for_and_its_answer_heard(self, met: Run) -> None:
        [permission] = [event["permission"] for event in met.record.events if "permission" in event]
        assert [(one["optionId"], one["kind"]) for one in permission["options"]] == [
            ("allow", "allow_once"),
            ("reject", "reject_once"),
        ]
        call = permission["toolCall"] if met.client.version == 1 else permission["subject"]["toolCall"]
        calls = [one for one in updates(met.record.live) if one["sessionUpdate"].startswith("tool_call")]
        assert {one["toolCallId"] for one in calls} == {call["toolCallId"]}
        assert calls[-1]["status"] == "completed"
        assert "hello from tool" in json.dumps(calls) + terminals(met.record.live)
        title = call["title"] if met.client.version == 1 else permission["title"]
        assert title.startswith("Run printf")

    def test_two_prompts_at_once_are_both_answered(self, met: Run) -> None:
        answers = met.record.answers("session/prompt")
        assert len(answers) == len(PROMPTS)
        if met.client.version == 1:
            assert [answer["stopReason"] for answer in answers] == ["end_turn"] * 4 + ["cancelled"]
        else:
            assert len({answer["messageId"] for answer in answers}) == len(PROMPTS)

    def test_a_v2_client_sees_what_it_said_inserted_and_the_work_begin_and_end(self, met: Run) -> None:
        if met.client.version == 1:
            assert prompted(met.live) == []
            return
        assert prompted(met.live) == PROMPTS
        states = [one for one in updates(met.record.live) if one["sessionUpdate"] == "state_update"]
        assert states[0]["state"] == "running"
        assert (states[-1]["state"], states[-1]["stopReason"]) == ("idle", "cancelled")
        assert "requires_action" in [one["state"] for one in states]

    def test_the_session_is_in_the_list(self, met: Run) -> None:
        [session] = met.record.document["list"]["sessions"]
        assert session["sessionId"] == met.record.answers("session/new")[0]["sessionId"]

    def test_a_reload_shows_the_same_again_and_nothing_of_what_was_taken_back(self, met: Run) -> None:
        *texts, slow = said(met.replayed)
        assert texts == script_of(met.agent)
        assert slow == ticks(slow)
        assert [text for text in met.replayed.values() if text in MARKS] == []
        assert prompted(met.replayed) == PROMPTS

    def test_everything_ends_and_the_journal_is_whole(self, met: Run) -> None:
        assert met.status == 0
        assert met.record.document["agentExit"]["code"] == 0
        assert met.agent is not None
        session = met.record.answers("session/new")[0]["sessionId"]
        with open_journal(str(met.journal)) as journal:
            assert not journal.verify().faults
            state = journal.load(session).transcript
            texts = [one.text for one in state.messages if one.type != "user_message" and one.text]
            assert texts[:-1] == script_of(met.agent)
            assert [one.text for one in state.messages if one.type == "user_message"] == PROMPTS
        if met.agent.version == 2:
            assert b"secret" not in b"".join(path.read_bytes() for path in met.folder.glob("journal*"))


def terminals(events: Sequence[Json]) -> str:
    state = Transcript()
    for one in updates(events):
        if one["sessionUpdate"].startswith("terminal"):
            state.apply(v2.read_update(one))
    return str([terminal.output for terminal in state.terminals])


# What ends early, and what is loaded later


def crash(parties: tuple[Peer, int], folder: Path) -> Run:
    client, version = parties
    return go(client, None, puppet({str(version): V1 if version == 1 else V2}, prompted="exit 3"), folder)


def to_end(peers: Sequence[Peer]) -> list[tuple[Peer, int]]:
    """Pair peers with versions of the other side: all four pairs, those of Python with the version that differs."""
    return [(one, version) for one in peers for version in (1, 2) if (one.language, version) != ("Python", one.version)]


@pytest.fixture(scope="session", params=to_end(CLIENTS), ids=name_of)
def crashed(request: pytest.FixtureRequest, runs: Runs) -> Run:
    """Give what a client recorded of an agent that ended at its first prompt."""
    run = runs["crashed", request.param].result()
    assert isinstance(run, Run)
    return run


def test_a_client_is_told_that_its_agent_crashed(crashed: Run) -> None:
    assert crashed.status == 1
    assert re.search(r"twofold bridge: \S+ ended with status 3\n", crashed.err)
    first = next(
        event
        for event in crashed.record.events
        if ("error" in event and event.get("response") == "session/prompt")
        or event.get("update", {}).get("update", {}).get("state") == "idle"
    )
    if "error" in first:
        assert first["error"]["code"] == -32603
        assert "ended with status 3" in first["error"]["data"]["reason"]
    else:
        assert first["update"]["update"]["stopReason"] == "error"


@dataclass
class Reloaded:
    """What a client, line by line, saw of an agent that was killed, and of the next one."""

    error: Json
    failure: str
    texts: list[str]
    after: list[Json]


def reload(parties: tuple[Peer, int], folder: Path) -> Reloaded:
    agent, version = parties
    command = agent.command

    async def main() -> Reloaded:
        async with bridged(command, version=version, journal=folder / "journal") as ends:
            talk = ends.talk
            session = await talk.new_session(cwd=str(folder))
            id = talk.prompt(session, "slow")
            for _ in range(3):
                await talk.updated("agent_message_chunk")
            os.kill(ends.pid(), signal.SIGKILL)
            error = await talk.error(id) if version == 1 else None
            assert not await ends.running
            failure = str(ends.bridge.failure)
        async with bridged(command, version=version, journal=folder / "journal") as ends:
            talk, since = ends.talk, ends.talk.position
            setup = {"sessionId": session, "cwd": CWD, "mcpServers": []}
            if version == 1:
                await talk.ask("session/load", setup)
            else:
                await talk.ask("session/resume", {**setup, "replayFrom": {"type": "start"}})
            events = [{"update": line["params"]} for line in talk.heard(since) if "params" in line]
            since = talk.position
            await talk.answered(talk.prompt(session, "again"))
            if version == 2:
                await talk.idle()
            return Reloaded(error, failure, list(shown(events, version).values()), updates_of(talk.heard(since)))

    return in_time(main())


@pytest.fixture(scope="session", params=to_end(AGENTS), ids=name_of)
def reloaded(request: pytest.FixtureRequest, runs: Runs, through: Through) -> Reloaded:
    """Give what was seen of an agent that was killed in a turn."""
    seen = runs["reloaded", request.param].result()
    assert isinstance(seen, Reloaded)
    through(f"raw lines, client v{request.param[1]}", str(request.param[0]))
    return seen


def test_an_agent_that_is_killed_is_told_of(reloaded: Reloaded) -> None:
    assert "ended by SIGKILL" in reloaded.failure
    assert reloaded.error is None or reloaded.error["data"]["reason"] == reloaded.failure


def test_what_was_said_before_a_crash_is_loaded_from_the_journal_and_gone_on_with(reloaded: Reloaded) -> None:
    user, slow, notice = reloaded.texts
    assert (user, slow, notice) == ("slow", ticks(slow), FORGOTTEN)
    assert "again" in str(reloaded.after)


# Real agents, on a scripted model


def behind_a_bridge(agent: Agent, *options: str) -> Agent:
    """Give an agent as its bridge is one."""

    def setup(place: Place) -> Start:
        start = agent.setup(place)
        words = [*BRIDGE, *options, "--journal", str(place.home / "journal"), "--log", str(place.home / "log")]
        return Start([*words, "--", *start.command], start.env)

    return replace(agent, setup=setup)


BEHIND: Final = {
    "v1 client, claude v2": (behind_a_bridge(REAL["claude"], "--agent-version", "2"), 1),
    "v2 client, claude v1": (behind_a_bridge(REAL["claude"], "--agent-version", "1"), 2),
    "v2 client, fast-agent v1": (
        replace(behind_a_bridge(REAL["fast-agent-passthrough"]), name="fast-agent-passthrough behind a bridge"),
        2,
    ),
}


def talk_to(name: str, folder: Path) -> Conversation:
    agent, version = BEHIND[name]

    return in_time(converse(agent, version, folder))


WORK: Final[dict[str, Callable[[Any, Path], Any]]] = {
    "met": pair,
    "crashed": crash,
    "reloaded": reload,
    "seen": talk_to,
}


@pytest.fixture(scope="session", params=list(BEHIND))
def seen(request: pytest.FixtureRequest, runs: Runs, through: Through) -> Conversation:
    """Give what was seen of a conversation with a real agent."""
    seen = runs["seen", request.param].result()
    assert isinstance(seen, Conversation)
    assert seen.info is not None
    through(f"twofold's client v{seen.version}", f"{seen.info.name} {seen.info.version}, agent v{3 - seen.version}")
    return seen


class TestARealAgent:
    def test_everything_is_understood(self, seen: Conversation) -> None:
        assert seen.version == seen.asked_for
        assert seen.faults == []
        assert seen.problems == []

    def test_the_answers_are_what_the_model_sent(self, seen: Conversation) -> None:
        for name, script in (("plain", "plain"), ("short", "short"), ("again", "short")):
            turn = seen.turns[name]
            assert turn.text() == (SCRIPTS[script].said if seen.agent.scripted else prompt_of(script))
            assert turn.stop_reason == "end_turn"
            assert turn.states == ["running", "idle"]

    def test_a_file_is_written_once_that_is_allowed(self, seen: Conversation) -> None:
        if seen.agent.scripted:
            assert (seen.place.workspace / "out.md").read_text() == WRITTEN
            [asked] = seen.permissions
            assert {"allow_once", "reject_once"} <= set(asked.kinds)
            assert not asked.file_was_there
            assert seen.turns["write"].states == ["running", "requires_action", "running", "idle"]

    def test_a_cancelled_turn_ends_so(self, seen: Conversation) -> None:
        if seen.agent.scripted:
            assert seen.turns["slow"].stop_reason == "cancelled"
            assert seen.turns["slow"].text()

    def test_the_session_is_listed_and_replayed(self, seen: Conversation) -> None:
        assert seen.listed == [seen.session_id]
        replayed = [message.text for message in seen.replayed]
        for name in ("plain", "short"):
            assert seen.turns[name].text() in replayed

    def test_the_journal_is_whole(self, seen: Conversation) -> None:
        with open_journal(str(seen.place.home / "journal")) as journal:
            assert not journal.verify().faults
            texts = [message.text for message in journal.load(seen.session_id).transcript.messages]
        assert seen.turns["again"].text() in texts


# acpx, a client that people use


@pytest.fixture
def acpx(tmp_path: Path, through: Through) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Give what runs acpx once, with a prompt, in front of a bridge."""
    program = node_modules() / "acpx" / "dist" / "cli.js"
    version = json.loads((program.parent.parent / "package.json").read_bytes())["version"]

    def run_acpx(agent: Sequence[str], *words: str, options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        command = " ".join(f'"{word}"' for word in [*BRIDGE, *options, "--", *agent])
        through(f"acpx {version}, client v1", "the streaming example, agent v2")
        return subprocess.run(
            [str(node()), str(program), "--cwd", str(tmp_path), "--agent", command, *words],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    return run_acpx


STREAMING: Final = [sys.executable, str(EXAMPLES / "streaming_agent.py")]


class TestAcpx:
    def test_shows_what_a_v2_agent_says_and_a_mark(self, acpx: Any) -> None:
        done = acpx(STREAMING, "--format", "quiet", "exec", "stream", options=["--agent-version", "2"])
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"Hello, world!secret{WITHDRAWN}\n"

    def test_allows_what_a_v2_agent_asks_for(self, acpx: Any, tmp_path: Path) -> None:
        log = tmp_path / "log"
        options = ["--agent-version", "2", "--log", str(log)]
        done = acpx(STREAMING, "--approve-all", "--format", "json", "exec", "tool", options=options)
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        [asked] = [line for line in lines if line.get("method") == "session/request_permission"]
        assert asked["params"]["toolCall"]["title"] == "Run printf"
        told = updates_of(lines)
        assert told[-1]["content"]["text"] == "Done."
        assert "hello from tool" in str(told)
        assert lines[-1]["result"] == {"stopReason": "end_turn"}
        events = [json.loads(line) for line in log.read_bytes().splitlines()]
        words = [one["words"] for one in events if one["event"] == "ignored"]
        assert words == ["the client's files and terminals: an agent of version 2 has its own"]

    def test_is_refused_when_its_tools_are_to_be_used_or_nothing(self, acpx: Any, tmp_path: Path) -> None:
        log = tmp_path / "log"
        options = ["--agent-version", "2", "--refuse-client-tools", "--log", str(log)]
        done = acpx(STREAMING, "exec", "hi", options=options)
        assert done.returncode != 0
        assert "Internal error" in done.stdout
        assert "an agent of version 2 cannot use them" in log.read_text()

    def test_is_told_that_its_agent_crashed(self, acpx: Any) -> None:
        agent = [sys.executable, "-c", CRASHING]
        done = acpx(agent, "exec", "hi", options=["--agent-version", "2"])
        assert done.returncode != 0


CRASHING: Final = (
    "import json,sys\n"
    "for line in sys.stdin:\n"
    "    one = json.loads(line)\n"
    "    if one['method'] == 'session/prompt': sys.exit(3)\n"
    "    info = {'protocolVersion': 2, 'info': {'name': 'a', 'version': '1'}, 'capabilities': {'session': {}}}\n"
    "    result = info if one['method'] == 'initialize' else {'sessionId': 's'}\n"
    "    print(json.dumps({'jsonrpc': '2.0', 'id': one['id'], 'result': result}), flush=True)\n"
)
