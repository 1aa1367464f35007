"""An agent on twofold under clients on the official SDKs, and agents on the official SDKs under our client."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.interop.official import AGENTS, CLIENTS, ROOT, Event, Exercised, Peer, Record, record, updates
from twofold.convert import SUPERSEDES, WITHDRAWN
from twofold.fold import Change, Message, Transcript, replay
from twofold.runtime.client import ClientSession, PermissionRequest, connect
from twofold.wire import to_json, v2

OURS = [sys.executable, str(ROOT / "examples" / "streaming_agent.py")]
DEADLINE = 30.0
PROMPTS = ["stream", "tool", "one", "two", "slow"]

T = TypeVar("T")
Met = tuple[Peer, Record]


def met(request: pytest.FixtureRequest, folder: Path, exercised: Exercised) -> Met:
    client: Peer = request.param
    found = record(client, OURS, folder)
    exercised(client, found.sdk)
    return client, found


def of_version(version: int) -> dict[str, Any]:
    peers = [one for one in CLIENTS if one.version == version]
    return {"params": peers, "ids": [one.language for one in peers], "scope": "module"}


@pytest.fixture(**of_version(2))
def with_v2(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, exercised: Exercised) -> Met:
    """Let a v2 client go through its script with our agent."""
    return met(request, tmp_path_factory.mktemp("v2"), exercised)


@pytest.fixture(**of_version(1))
def with_v1(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, exercised: Exercised) -> Met:
    """Let a v1 client go through its script with our agent."""
    return met(request, tmp_path_factory.mktemp("v1"), exercised)


def folded(events: Sequence[Event]) -> Transcript:
    transcript = Transcript("s-1")
    for update in updates(events):
        transcript.apply(v2.read_update(update))
    return transcript


def rebuilt(transcript: Transcript) -> list[Any]:
    return [to_json(update) for update in replay(transcript, compact=True)]


def said(messages: Sequence[Message]) -> list[tuple[str, str]]:
    return [(message.type.removeprefix("agent_").removesuffix("_message"), message.text) for message in messages]


def turns(record: Record) -> list[list[Event]]:
    """Cut the live events where user messages are reported; what came before the first is left out."""
    cuts = [index for index, event in enumerate(record.live) if _kind(event) == "user_message"]
    return [record.live[cut:end] for cut, end in zip(cuts, [*cuts[1:], None], strict=True)]


def _kind(event: Event) -> str | None:
    kind: str | None = event["update"]["update"]["sessionUpdate"] if "update" in event else None
    return kind


def states(events: Sequence[Event]) -> list[str]:
    """Give the states among events, and `permission` where one was asked for."""
    return [
        "permission" if "permission" in event else event["update"]["update"]["state"]
        for event in events
        if "permission" in event or _kind(event) == "state_update"
    ]


class TestAV2ClientOfOurAgent:
    def test_gets_the_version_it_asked_for(self, with_v2: Met) -> None:
        _, record = with_v2
        assert record.document["initialize"]["protocolVersion"] == 2
        assert record.document["initialize"]["info"]["name"]

    def test_sees_each_prompt_answered_then_inserted_then_run_and_idle_last(self, with_v2: Met) -> None:
        _, record = with_v2
        message_ids = [answer["messageId"] for answer in record.answers("session/prompt")]
        reported = [turn[0]["update"]["update"] for turn in turns(record)]
        assert [update["messageId"] for update in reported] == message_ids
        assert [update["content"][0]["text"] for update in reported] == PROMPTS
        for turn in turns(record):
            in_turn = updates(turn)
            assert in_turn[1] == {"sessionUpdate": "state_update", "state": "running"}
            assert in_turn[-1]["state"] == "idle"
            assert states(turn).count("idle") == 1
        for message_id, turn in zip(message_ids, turns(record), strict=True):
            answer = {"response": "session/prompt", "result": {"messageId": message_id}}
            assert record.live.index(answer) < record.live.index(turn[0])

    def test_is_asked_for_permission_while_the_state_is_requires_action(self, with_v2: Met) -> None:
        _, record = with_v2
        assert states(turns(record)[1]) == ["running", "requires_action", "permission", "running", "idle"]
        [permission] = [event["permission"] for event in record.events if "permission" in event]
        assert permission["subject"]["toolCall"]["toolCallId"] == folded(record.live).tool_calls[0].tool_call_id
        assert [(option["optionId"], option["kind"]) for option in permission["options"]] == [
            ("allow", "allow_once"),
            ("reject", "reject_once"),
        ]

    def test_holds_each_message_as_the_agent_left_it(self, with_v2: Met) -> None:
        _, record = with_v2
        *messages, slow = said(folded(record.live).messages)
        assert messages == [
            ("user", "stream"),
            ("thought", "Let me think"),
            ("message", "Hello, world!"),
            ("message", ""),
            ("user", "tool"),
            ("message", "Done."),
            ("user", "one"),
            ("message", "one"),
            ("user", "two"),
            ("message", "two"),
            ("user", "slow"),
        ]
        assert slow == ("message", ticks(slow[1]))

    def test_receives_what_is_streamed_in_the_pieces_it_was_written_in(self, with_v2: Met) -> None:
        _, record = with_v2
        chunks = [one for one in updates(turns(record)[0]) if one["sessionUpdate"].endswith("_chunk")]
        assert [(one["sessionUpdate"], one["content"]["text"]) for one in chunks] == [
            ("agent_thought_chunk", "Let me "),
            ("agent_thought_chunk", "think"),
            ("agent_message_chunk", "Hello"),
            ("agent_message_chunk", ", "),
            ("agent_message_chunk", "world"),
            ("agent_message_chunk", "secret"),
        ]

    def test_holds_the_tool_call_its_terminal_and_the_plan(self, with_v2: Met) -> None:
        _, record = with_v2
        transcript = folded(record.live)
        [call] = transcript.tool_calls
        assert (call.title, call.kind, call.status) == ("Run printf", "execute", "completed")
        [terminal] = transcript.terminals
        assert to_json(call.content[0])["terminalId"] == terminal.terminal_id
        assert terminal.output == b"hello from tool"
        [plan] = transcript.plans
        assert len(to_json(plan.update)["plan"]["entries"]) == 2

    def test_cancels_a_turn_that_streams(self, with_v2: Met) -> None:
        _, record = with_v2
        assert [updates(turn)[-1]["stopReason"] for turn in turns(record)] == ["end_turn"] * 4 + ["cancelled"]

    def test_finds_the_session_in_the_list(self, with_v2: Met) -> None:
        _, record = with_v2
        assert_listed(record)

    def test_rebuilds_the_live_state_from_a_replay(self, with_v2: Met) -> None:
        _, record = with_v2
        assert rebuilt(folded(record.replayed)) == rebuilt(folded(record.live))

    def test_gets_the_replay_and_the_state_before_the_answer_to_resume(self, with_v2: Met) -> None:
        client, record = with_v2
        idle = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "cancelled"}
        assert updates(record.replayed)[-1] == idle
        answers = [event.get("response") for event in record.replayed]
        assert [one for one in answers if one is not None] == ["session/resume", "session/close"]
        late = updates(record.replayed[answers.index("session/resume") :])
        assert late == [] or not client.in_order

    def test_leaves_and_the_agent_ends_by_itself(self, with_v2: Met) -> None:
        _, record = with_v2
        assert record.document["agentExit"]["code"] == 0


def ticks(text: str) -> str:
    """Give the beginning of the ticks that is as long as this: at least three, and not all."""
    count = text.count("tick")
    assert 3 <= count < 500
    return "".join(f"tick {number} " for number in range(1, count + 1))


def assert_listed(record: Record) -> None:
    [session_id] = {event["update"]["sessionId"] for event in record.events if "update" in event}
    [new] = record.answers("session/new")
    assert new["sessionId"] == session_id
    [listed] = record.document["list"]["sessions"]
    assert listed["sessionId"] == session_id
    assert Path(listed["cwd"]).is_absolute()


class V1View:
    """What a v1 reader holds: the text of each message under the id that stands for it, marks apart."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.texts: dict[tuple[str, str], str] = {}
        self.marks: list[tuple[str, str]] = []
        """The text of each mark, and that of the message that no longer counts."""
        for update in updates(events):
            kind, chunk, _ = update["sessionUpdate"].partition("_chunk")
            if not chunk:
                continue
            superseded = (update.get("_meta") or {}).get(SUPERSEDES)
            old = self.texts.pop((kind, superseded), None) if superseded else None
            text = update["content"]["text"]
            if old is not None:
                self.marks.append((text, old))
                continue
            key = (kind, update["messageId"])
            self.texts[key] = self.texts.get(key, "") + text

    def of(self, kind: str) -> list[str]:
        return [text for (one, _), text in self.texts.items() if one == kind]


class TestAV1ClientOfOurAgent:
    def test_gets_the_version_it_asked_for(self, with_v1: Met) -> None:
        _, record = with_v1
        assert record.document["initialize"]["protocolVersion"] == 1
        assert record.document["initialize"]["agentInfo"]["name"]

    def test_gets_a_stop_reason_for_each_prompt_when_its_turn_has_ended(self, with_v1: Met) -> None:
        _, record = with_v1
        stop_reasons = [answer["stopReason"] for answer in record.answers("session/prompt")]
        assert stop_reasons == ["end_turn"] * 4 + ["cancelled"]
        answered = [index for index, event in enumerate(record.live) if event.get("response") == "session/prompt"]
        ends = [updates(record.live[:index])[-1]["sessionUpdate"] for index in answered]
        assert ends == ["plan"] + ["agent_message_chunk"] * 4

    def test_reads_what_v1_can_say_and_a_mark_for_what_was_taken_back(self, with_v1: Met) -> None:
        _, record = with_v1
        view = V1View(record.live)
        assert view.of("agent_thought") == ["Let me think"]
        *messages, slow = view.of("agent_message")
        assert messages == ["Hello, world!", "Done.", "one", "two"]
        assert slow == ticks(slow)
        assert view.marks == [(WITHDRAWN, "secret")]

    def test_sees_the_tool_call_with_its_output_as_text(self, with_v1: Met) -> None:
        _, record = with_v1
        [permission] = [event["permission"] for event in record.events if "permission" in event]
        calls = [one for one in updates(record.live) if one["sessionUpdate"].startswith("tool_call")]
        assert calls[0]["sessionUpdate"] == "tool_call"
        assert (calls[0]["title"], calls[0]["kind"]) == ("Run printf", "execute")
        assert {one["toolCallId"] for one in calls} == {permission["toolCall"]["toolCallId"]}
        assert [one["status"] for one in calls if "status" in one][-1] == "completed"
        [content] = [one["content"] for one in calls if one.get("content")][-1]
        assert "hello from tool" in content["content"]["text"]

    def test_sees_the_plan(self, with_v1: Met) -> None:
        _, record = with_v1
        [plan] = [one for one in updates(record.live) if one["sessionUpdate"] == "plan"]
        assert len(plan["entries"]) == 2

    def test_finds_the_session_in_the_list(self, with_v1: Met) -> None:
        _, record = with_v1
        assert_listed(record)

    def test_loads_what_it_held_live(self, with_v1: Met) -> None:
        _, record = with_v1
        live, loaded = V1View(record.live), V1View(record.replayed)
        assert loaded.of("user_message") == PROMPTS
        assert loaded.of("agent_thought") == live.of("agent_thought")
        assert loaded.of("agent_message") == live.of("agent_message")
        assert loaded.marks == []

    def test_gets_the_replay_before_the_answer_to_load(self, with_v1: Met) -> None:
        _, record = with_v1
        answers = [event.get("response") for event in record.replayed]
        assert [one for one in answers if one is not None] == ["session/load", "session/close"]
        assert answers.index("session/load") == len(updates(record.replayed))

    def test_leaves_and_the_agent_ends_by_itself(self, with_v1: Met) -> None:
        _, record = with_v1
        assert record.document["agentExit"]["code"] == 0


class Talk:
    """Our client, connected to an agent for all the tests that talk to it."""

    def __init__(self, agent: Peer, loop: asyncio.Runner, command: Sequence[str]) -> None:
        self.agent = agent
        self.asked = asyncio.Event()
        self._choice: str | None = None
        self._loop = loop
        self._wrong: list[object] = []
        self._stack = AsyncExitStack()
        connecting = connect(
            command,
            on_permission=self._choose,
            on_fault=self._wrong.append,
            on_loss=lambda _, loss: self._wrong.append(loss),
        )
        self.client = self._run(self._stack.enter_async_context(connecting))

    async def _choose(self, _: PermissionRequest) -> str:
        self.asked.set()
        if self._choice is not None:
            return self._choice
        await asyncio.Event().wait()
        raise AssertionError("nobody comes back")

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        async def in_time() -> T:
            async with asyncio.timeout(DEADLINE):
                return await work

        return self._loop.run(in_time())

    def __call__(
        self, cwd: Path, body: Callable[[ClientSession], Coroutine[Any, Any, None]], choice: str | None = "allow"
    ) -> None:
        """Run a body with a new session, and hold that nothing the agent sent was wrong or could not be carried.

        `choice` is what the user answers when asked for a permission; `None` is a user who does not come back.
        """
        self._choice = choice
        self.asked.clear()
        self._wrong.clear()

        async def with_session() -> None:
            await body(await self.client.new_session(cwd=cwd))

        self._run(with_session())
        assert self._wrong == []

    def leave(self) -> None:
        """End the connection."""
        self._run(self._stack.aclose())


@pytest.fixture(params=AGENTS, ids=lambda agent: f"{agent.language}-v{agent.version}", scope="module")
def talk(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, exercised: Exercised
) -> Iterator[Talk]:
    """Let our client talk to each of the agents in turn; in the end the agent ends by itself, and well."""
    agent: Peer = request.param
    status = tmp_path_factory.mktemp("agent") / "status"
    with asyncio.Runner() as loop:
        talk = Talk(agent, loop, ["sh", "-c", '"$@"; echo $? >"$0"', str(status), *agent.command])
        exercised(agent, talk.client.info.version)
        yield talk
        talk.leave()
    assert status.read_text() == "0\n"


def answer_changes(changes: Sequence[Change]) -> list[tuple[str, str]]:
    """Give what changed in the agent's answers: what happened to the content, and what was appended."""
    return [
        (change.content, change.block.text if change.content == "appended" else "")
        for change in changes
        if change.entity == "message" and change.target.type == "agent_message"
    ]


class TestOurClientOfAnAgent:
    def test_speaks_the_version_that_the_agent_has(self, talk: Talk) -> None:
        assert talk.client.version == talk.agent.version
        assert talk.client.info.name.endswith(" agent")
        assert talk.client.supports("session")

    def test_gives_each_change_of_a_turn_and_holds_what_it_leaves(self, talk: Talk, tmp_path: Path) -> None:
        async def body(session: ClientSession) -> None:
            turn = session.prompt("stream")
            changes = [change async for change in turn]
            greeting = [("appended", "Hello"), ("appended", ", "), ("appended", "world")]
            aside = [("appended", "secret")]
            if talk.agent.version == 2:
                assert answer_changes(changes) == [*greeting, ("replaced", ""), *aside, ("cleared", "")]
            else:
                assert answer_changes(changes) == [*greeting, *aside]
            assert said(session.state.messages) == [
                ("user", "stream"),
                ("thought", "Let me think"),
                ("message", "Hello, world!" if talk.agent.version == 2 else "Hello, world"),
                ("message", "" if talk.agent.version == 2 else "secret"),
            ]
            [plan] = session.state.plans
            entries = to_json(plan.update)["plan"]["entries"]
            assert [(one["content"], one["status"]) for one in entries] == [
                ("Say hello", "completed"),
                ("Say goodbye", "pending"),
            ]
            assert turn.stop_reason == "end_turn"
            assert session.idle

        talk(tmp_path, body)

    def test_names_the_user_message_that_a_prompt_became(self, talk: Talk, tmp_path: Path) -> None:
        async def body(session: ClientSession) -> None:
            turn = session.prompt("hello")
            changes = [change async for change in turn]
            assert turn.message_id is not None
            assert changes[0].target is session.state.message("user_message", turn.message_id)

        talk(tmp_path, body)

    @pytest.mark.parametrize("choice", ["allow", "reject"])
    def test_answers_for_a_tool_call_and_holds_its_end(self, talk: Talk, tmp_path: Path, choice: str) -> None:
        async def body(session: ClientSession) -> None:
            changes = [change async for change in session.prompt("tool")]
            reported = [change.target.state for change in changes if change.entity == "state"]
            assert reported == ["running", "requires_action", "running", "idle"]
            [call] = session.state.tool_calls
            assert (call.title, call.kind) == ("Run printf", "execute")
            answer = session.state.messages[-1].text
            if choice == "reject":
                assert (call.status, list(call.content), answer) == ("failed", [], "Not done.")
                return
            assert (call.status, answer) == ("completed", "Done.")
            [item] = [to_json(one) for one in call.content]
            if talk.agent.version == 2:
                [terminal] = session.state.terminals
                assert item == {"type": "terminal", "terminalId": terminal.terminal_id}
                assert (terminal.output, terminal.cwd) == (b"hello from tool", str(tmp_path))
            else:
                assert item == {"type": "content", "content": {"type": "text", "text": "hello from tool"}}

        talk(tmp_path, body, choice)

    def test_sends_prompts_back_to_back_and_each_turn_ends(self, talk: Talk, tmp_path: Path) -> None:
        async def body(session: ClientSession) -> None:
            first, second = session.prompt("one"), session.prompt("two")
            assert [await first, await second] == ["end_turn", "end_turn"]
            messages = said(session.state.messages)
            assert [text for kind, text in messages if kind == "user"] == ["one", "two"]
            assert [text for kind, text in messages if kind == "message"] == ["one", "two"]
            assert first.message_id != second.message_id

        talk(tmp_path, body)

    def test_cancels_a_turn_that_streams_and_goes_on(self, talk: Talk, tmp_path: Path) -> None:
        async def body(session: ClientSession) -> None:
            turn = session.prompt("slow")
            chunks = 0
            async for change in turn:
                if answer_changes([change]):
                    chunks += 1
                    if chunks == 3:
                        await session.cancel()
            assert turn.stop_reason == "cancelled"
            slow = session.state.messages[-1].text
            assert slow == ticks(slow)
            assert await session.prompt("still there?") == "end_turn"
            assert session.state.messages[-1].text == "still there?"

        talk(tmp_path, body)

    def test_cancels_a_turn_that_asks_for_a_permission_and_goes_on(self, talk: Talk, tmp_path: Path) -> None:
        async def body(session: ClientSession) -> None:
            turn = session.prompt("tool")
            await talk.asked.wait()
            await session.cancel()
            assert await turn == "cancelled"
            assert [call.status for call in session.state.tool_calls] == ["failed"]
            assert await session.prompt("still there?") == "end_turn"

        talk(tmp_path, body, choice=None)

    def test_hears_of_a_turn_that_failed_and_goes_on(self, talk: Talk, tmp_path: Path) -> None:
        async def body(session: ClientSession) -> None:
            turn = session.prompt("boom")
            assert await turn == "error"
            if str(talk.agent) != "Python SDK, agent v2":  # its schema has no error beside the stop reason
                assert turn.error is not None
                assert turn.error.code == -32603
            assert await session.prompt("still there?") == "end_turn"

        talk(tmp_path, body)

    def test_lists_the_sessions_of_a_folder(self, talk: Talk, tmp_path: Path) -> None:
        async def body(session: ClientSession) -> None:
            other = await talk.client.new_session(cwd=tmp_path.parent)
            here = await talk.client.list_sessions(cwd=tmp_path)
            assert [(one.session_id, one.cwd) for one in here] == [(session.session_id, str(tmp_path))]
            everywhere = [one.session_id for one in await talk.client.list_sessions()]
            assert everywhere[-2:] == [session.session_id, other.session_id]

        talk(tmp_path, body)

    def test_rebuilds_its_state_from_a_replay(self, talk: Talk, tmp_path: Path) -> None:
        async def body(session: ClientSession) -> None:
            for words in ("stream", "tool", "hello"):
                await session.prompt(words)
            before = held(session, talk.agent)
            assert await talk.client.resume(session.session_id, cwd=tmp_path, replay=True) is session
            assert held(session, talk.agent) == before
            await session.close()
            again = await talk.client.resume(session.session_id, cwd=tmp_path, replay=True)
            assert again is not session
            assert held(again, talk.agent) == before
            assert await again.prompt("hello again") == "end_turn"

        talk(tmp_path, body)


def held(session: ClientSession, agent: Peer) -> Any:
    """Give what is held of a session; of a v1 agent what does not hang on the ids that v1 leaves out."""
    if agent.version == 2:
        return rebuilt(session.state)
    state = session.state
    return (
        said(state.messages),
        [one.to_json() for one in state.tool_calls],
        [to_json(one.update) for one in state.plans],
    )
