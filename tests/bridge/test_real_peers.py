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
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from tests.bridge.conftest import Through
from tests.bridge.ends import CWD, EXAMPLES, V1, V2, bridged, puppet
from tests.interop.official import AGENTS, CLIENTS, ROOT, SECONDS, Peer, Record, updates
from tests.node_tools import node, node_modules
from tests.peers.agents import AGENTS as REAL
from tests.peers.agents import Agent, Place, Start
from tests.peers.conversation import Conversation, converse, prompt_of
from tests.peers.fake_llm import SCRIPTS, WRITTEN
from tests.runtime.talk import run, updates_of
from twofold.bridge._memory import FORGOTTEN
from twofold.convert import CORRECTED, SUPERSEDES, WITHDRAWN
from twofold.fold import Transcript
from twofold.journal import open_journal
from twofold.wire import v2

Json = Any

PROMPTS: Final = ["stream", "tool", "one", "two", "slow"]
BRIDGE: Final = [sys.executable, "-m", "twofold", "bridge"]
TOGETHER: Final = 2
"""Runs at once: each is three processes, most of the time one of them starts."""


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


def name_of(pair: tuple[Peer, Peer]) -> str:
    client, agent = pair
    return f"{client.language} v{client.version} - {agent.language} v{agent.version}"


@pytest.fixture(scope="session")
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Future[Run]]:
    """Begin the runs of all pairs that are asked for."""
    found = [getattr(item, "callspec", None) for item in request.session.items]
    wanted = {name_of(one.params["met"]): one.params["met"] for one in found if one and "met" in one.params}
    commands = {name: (client.command, agent.command) for name, (client, agent) in wanted.items()}  # installs, or skips
    pool = ThreadPoolExecutor(TOGETHER)
    request.addfinalizer(lambda: pool.shutdown(cancel_futures=True))
    return {
        name: pool.submit(go, client, agent, commands[name][1], tmp_path_factory.mktemp("pair"))
        for name, (client, agent) in wanted.items()
    }


@pytest.fixture(scope="session", params=PAIRS, ids=map(name_of, PAIRS))
def met(request: pytest.FixtureRequest, runs: dict[str, Future[Run]], through: Through) -> Run:
    """Give what a client recorded of an agent."""
    client, agent = request.param
    run = runs[name_of(request.param)].result()
    failed = run.record.document.get("failed")
    assert failed is None, f"{failed}\n{json.dumps(run.record.events[-5:])}\n{run.err}"
    through(f"{client.language} SDK {run.record.sdk}, client v{client.version}", str(agent))
    return run


def shown(events: Sequence[Json]) -> dict[tuple[str, str], str]:
    """Give the texts of messages as a client of either version holds them, without what was superseded for v1."""
    told = updates(events)
    texts: dict[tuple[str, str], str] = {}
    gone: set[str] = set()
    if any(one["sessionUpdate"] in ("agent_message", "user_message", "state_update") for one in told):
        state = Transcript()
        for one in told:
            state.apply(v2.read_update(one))
        return {(message.type, message.message_id): message.text for message in state.messages}
    for number, one in enumerate(told):
        kind = one["sessionUpdate"]
        if kind.endswith("_chunk") and "content" in one:
            old = (one.get("_meta") or {}).get(SUPERSEDES)
            gone |= {old} if old else set()
            previous = next(reversed(texts), ("", ""))
            type_ = kind.removesuffix("_chunk")
            id = one.get("messageId") or (previous[1] if previous[0] == type_ else f"untagged {number}")
            texts[type_, id] = texts.get((type_, id), "") + one["content"]["text"]
    return {key: text for key, text in texts.items() if key[1] not in gone}


def said(events: Sequence[Json]) -> list[str]:
    """Give what the agent has said, without what is empty and without marks."""
    kinds = ("agent_message", "agent_thought")
    return [text for (kind, _), text in shown(events).items() if kind in kinds and text not in ("", *MARKS)]


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
        *texts, slow = said(met.record.live)
        assert texts == script_of(met.agent)
        assert slow == ticks(slow)

    def test_what_could_not_be_carried_is_marked_in_the_log_and_counted(self, met: Run) -> None:
        assert met.agent is not None
        marks = [text for text in shown(met.record.live).values() if text in MARKS]
        if (met.client.version, met.agent.version) != (1, 2):
            assert (marks, met.losses, met.err) == ([], [], "")
            return
        assert marks == [WITHDRAWN]
        assert met.losses[0] == ("agent_message", "$.content")
        assert {kind for kind, _ in met.losses[1:]} <= {"terminal_update", "tool_call_update"}  # shown as text
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
            assert [key for key in shown(met.record.live) if key[0] == "user_message"] == []
            return
        prompts = [text for (kind, _), text in shown(met.record.live).items() if kind == "user_message"]
        assert prompts == PROMPTS
        states = [one for one in updates(met.record.live) if one["sessionUpdate"] == "state_update"]
        assert states[0]["state"] == "running"
        assert (states[-1]["state"], states[-1]["stopReason"]) == ("idle", "cancelled")
        assert "requires_action" in [one["state"] for one in states]

    def test_the_session_is_in_the_list(self, met: Run) -> None:
        [session] = met.record.document["list"]["sessions"]
        assert session["sessionId"] == met.record.answers("session/new")[0]["sessionId"]

    def test_a_reload_shows_the_same_again_and_nothing_of_what_was_taken_back(self, met: Run) -> None:
        *texts, slow = said(met.record.replayed)
        assert texts == script_of(met.agent)
        assert slow == ticks(slow)
        assert [text for text in shown(met.record.replayed).values() if text in MARKS] == []
        prompts = [text for (kind, _), text in shown(met.record.replayed).items() if kind == "user_message"]
        assert prompts == PROMPTS

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


@pytest.mark.parametrize("version", [1, 2], ids=["v1 agent", "v2 agent"])
@pytest.mark.parametrize("client", CLIENTS, ids=str)
def test_a_client_is_told_that_its_agent_crashed(client: Peer, version: int, tmp_path: Path) -> None:
    agent = puppet({str(version): V1 if version == 1 else V2}, prompted="exit 3")
    done = go(client, None, agent, tmp_path)
    assert done.status == 1
    assert re.search(r"twofold bridge: \S+ ended with status 3\n", done.err)
    first = next(
        event
        for event in done.record.events
        if ("error" in event and event.get("response") == "session/prompt")
        or event.get("update", {}).get("update", {}).get("state") == "idle"
    )
    if "error" in first:
        assert first["error"]["code"] == -32603
        assert "ended with status 3" in first["error"]["data"]["reason"]
    else:
        assert first["update"]["update"]["stopReason"] == "error"


@pytest.mark.parametrize("version", [1, 2], ids=["v1 client", "v2 client"])
@pytest.mark.parametrize("agent", AGENTS, ids=str)
def test_a_crash_of_the_agent_is_told_and_what_was_said_is_loaded_from_the_journal(
    agent: Peer, version: int, tmp_path: Path, through: Through
) -> None:
    command = agent.command

    async def main() -> None:
        async with bridged(command, version=version, journal=tmp_path / "journal") as ends:
            talk = ends.talk
            session = await talk.new_session(cwd=str(tmp_path))
            id = talk.prompt(session, "slow")
            for _ in range(3):
                await talk.updated("agent_message_chunk")
            os.kill(ends.pid(), signal.SIGKILL)
            if version == 1:
                assert "ended by SIGKILL" in (await talk.error(id))["data"]["reason"]
            assert not await ends.running
            assert "ended by SIGKILL" in str(ends.bridge.failure)
        async with bridged(command, version=version, journal=tmp_path / "journal") as ends:
            talk, since = ends.talk, ends.talk.position
            setup = {"sessionId": session, "cwd": CWD, "mcpServers": []}
            if version == 1:
                await talk.ask("session/load", setup)
            else:
                await talk.ask("session/resume", {**setup, "replayFrom": {"type": "start"}})
            texts = list(shown([{"update": line["params"]} for line in talk.heard(since) if "params" in line]).values())
            assert texts[0] == "slow"
            assert texts[1] == ticks(texts[1])
            assert texts[2] == FORGOTTEN
            await talk.answered(talk.prompt(session, "again"))
            if version == 2:
                await talk.idle()
            assert "again" in str(updates_of(talk.heard(since)))

    run(main())
    through(f"raw lines, client v{version}", str(agent))


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


@pytest.fixture(scope="module", params=BEHIND.values(), ids=BEHIND.keys())
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, through: Through) -> Conversation:
    """Have the conversation once; the tests look at what was seen of it."""
    agent, version = request.param

    async def main() -> Conversation:
        async with asyncio.timeout(240):
            return await converse(agent, version, tmp_path_factory.mktemp("real"))

    conversation = asyncio.run(main())
    assert conversation.info is not None
    through(
        f"twofold's client v{version}", f"{conversation.info.name} {conversation.info.version}, agent v{3 - version}"
    )
    return conversation


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

    def test_is_refused_when_its_tools_are_to_be_used_or_nothing(self, acpx: Any) -> None:
        done = acpx(STREAMING, "exec", "hi", options=["--agent-version", "2", "--refuse-client-tools"])
        assert done.returncode != 0
        assert "an agent of version 2 cannot use them" in done.stdout + done.stderr

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
