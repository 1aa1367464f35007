"""Our client with real agents: coding agents as people install them, on a scripted model that is on 127.0.0.1.

`make test` talks to two of them, `make peers` to all that `agents.py` knows.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.peers.agents import AGENTS
from tests.peers.conversation import Conversation, Said, converse, prompt_of
from tests.peers.fake_llm import SCRIPTS, WRITTEN
from twofold.wire import v2

ALL_SECONDS: Final = 240.0
DEFAULT: Final = ("fast-agent-passthrough", "claude")
SPOKEN: Final = [
    (agent, version)
    for agent in AGENTS.values()
    if agent.name in DEFAULT or os.environ.get("TWOFOLD_PEERS_ALL")
    for version in agent.versions
]


@pytest.fixture(scope="module", params=SPOKEN, ids=[f"{agent.name}-v{version}" for agent, version in SPOKEN])
def seen(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    exercised: Callable[[str, str, int], None],
) -> Conversation:
    """Have the conversation once; the tests look at what was seen of it."""
    agent, version = request.param

    async def main() -> Conversation:
        async with asyncio.timeout(ALL_SECONDS):
            return await converse(agent, version, tmp_path_factory.mktemp(agent.name))

    conversation = asyncio.run(main())
    assert conversation.info is not None
    exercised(conversation.info.name, conversation.info.version, conversation.version)
    return conversation


def said(seen: Conversation, script: str) -> str:
    """What the agent has to say when the model plays a script."""
    return SCRIPTS[script].said if seen.agent.scripted else prompt_of(script)


def test_the_version_spoken_is_the_one_that_the_agent_has(seen: Conversation) -> None:
    assert seen.version == seen.asked_for
    assert seen.info is not None
    assert seen.info.version[0].isdigit()


def test_all_that_the_agent_sends_is_understood(seen: Conversation) -> None:
    assert seen.faults == []
    assert seen.problems == []  # the model's, in reading what the agent asks


def test_a_turn_begins_with_what_the_user_said_and_ends_idle(seen: Conversation) -> None:
    for turn in seen.turns.values():
        assert turn.steps[:2] == ["user_message", "running"], turn
        assert turn.steps[-1] == "idle"
        assert turn.messages[0].type == "user_message"
        assert turn.text("user_message") == turn.prompt


def test_an_answer_is_what_the_model_sent(seen: Conversation) -> None:
    for name, script in (("plain", "plain"), ("short", "short"), ("again", "short")):
        turn = seen.turns[name]
        assert turn.text() == said(seen, script)
        assert turn.stop_reason == "end_turn"
        assert turn.states == ["running", "idle"]


def test_thoughts_come_before_the_answer_and_apart_from_it(seen: Conversation) -> None:
    turn = seen.turns["plain"]
    thought = [step for step in turn.steps if step == "agent_thought"]
    assert turn.steps == ["user_message", "running", *thought, "agent_message", "idle"]
    if seen.agent.thinks:
        assert turn.text("agent_thought") == "".join(SCRIPTS["plain"].thoughts)


def test_whoever_draws_the_changes_has_the_state(seen: Conversation) -> None:
    for turn in seen.turns.values():
        assert [Said(*key, text) for key, text in turn.drawn.items()] == turn.messages


def test_a_file_is_written_once_that_is_allowed(seen: Conversation) -> None:
    turn = seen.turns["write"]
    file = seen.place.workspace / "out.md"
    assert turn.stop_reason == "end_turn"
    if not seen.agent.scripted:
        assert not file.exists()
        return
    assert file.read_text() == WRITTEN
    assert turn.text().replace("\n\n", "") == said(seen, "write")  # some begin anew after a tool call
    assert "tool_call" in turn.steps
    if seen.agent.finishes:
        assert turn.tool_calls == ["completed"]


def test_a_permission_is_asked_for_in_the_middle_of_the_turn(seen: Conversation) -> None:
    states = seen.turns["write"].states
    if not seen.agent.asks:
        assert seen.permissions == []
        assert states == ["running", "idle"]
        return
    [asked] = seen.permissions
    assert {"allow_once", "reject_once"} <= set(asked.kinds)
    assert isinstance(asked.subject, v2.ToolCallPermissionSubject)
    assert asked.state == "requires_action"
    assert not asked.file_was_there
    assert states == ["running", "requires_action", "running", "idle"]


def test_a_cancelled_turn_ends_so_and_keeps_what_was_said(seen: Conversation) -> None:
    if not seen.agent.scripted:
        assert "slow" not in seen.turns  # it is done before anybody can cancel
        return
    turn = seen.turns["slow"]
    assert turn.stop_reason == "cancelled"
    assert turn.states == ["running", "idle"]
    assert turn.text()
    assert said(seen, "slow").startswith(turn.text())
    assert turn.text() != said(seen, "slow")


def test_the_session_is_listed(seen: Conversation) -> None:
    assert seen.listed == ([seen.session_id] if seen.agent.lists else None)


def test_a_resumed_session_holds_nothing_unless_it_is_replayed(seen: Conversation) -> None:
    assert seen.resumed == []
    assert seen.replayed


def test_a_replayed_session_holds_what_was_said(seen: Conversation) -> None:
    assert seen.state_after_replay == "idle"
    turns = turns_of(seen.replayed)
    wanted = [prompt_of(script) for script in ("plain", "write", "short")]
    assert [prompt for prompt in turns if prompt in wanted] == wanted
    assert turns[prompt_of("plain")] == said(seen, "plain")
    assert turns[prompt_of("short")] == said(seen, "short")
    if seen.agent.scripted:
        script = SCRIPTS["write"]
        assert turns[prompt_of("write")].startswith("".join(script.text))
        assert turns[prompt_of("write")].endswith("".join(script.after))


def turns_of(messages: list[Said]) -> dict[str, str]:
    """The texts of the agent's messages, by the prompt that they came after."""
    turns: dict[str, str] = {}
    prompt = ""
    for message in messages:
        start = message.text.find(prompt_of(""))
        if message.type == "user_message" and start >= 0:
            prompt = message.text[start:]  # without ids, what gemini tells its model first is one message with it
        elif message.type == "agent_message":
            turns[prompt] = turns.get(prompt, "") + message.text
    return turns


@pytest.mark.skipif(sys.platform != "linux", reason="looks through /proc")
def test_nothing_of_the_agent_runs_on_after_its_connection_is_closed(seen: Conversation) -> None:
    mark = f"HOME={seen.place.home}".encode()
    deadline = time.monotonic() + 10
    while running := [process for process in Path("/proc").glob("[0-9]*") if mark in environment(process)]:
        assert time.monotonic() < deadline, [(process / "cmdline").read_bytes() for process in running]
        time.sleep(0.1)


def environment(process: Path) -> list[bytes]:
    """The environment that a process was started with; empty when it is gone or somebody else's."""
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
