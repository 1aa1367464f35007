"""The same agent under a v1 client: what it is answered, what it is shown, and what it is said to have missed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.convert.streams import PlainReader, joined
from tests.runtime.talk import CWD, Json, Talk, folded, run, served, story, update_of, updates_of
from tests.runtime.test_agent_lifecycle import Gate, Handler, agent, check, others_run, schema, selecting, turn
from twofold.convert import CORRECTED, SUPERSEDES, WITHDRAWN, Loss, Upgrader
from twofold.exceptions import Malformed, RequestError, TwofoldError
from twofold.fold import Transcript
from twofold.runtime import _v1_client, memory_pair
from twofold.runtime._connection import Connection
from twofold.runtime._side import Inbound, Remote
from twofold.runtime._v1_client import V1Client
from twofold.runtime.agent import Agent, Prompt, Session
from twofold.wire import to_json, v1, v2


class Losing(Agent):
    """An agent that remembers what its v1 clients could not be told."""

    def __init__(self, handler: Handler | None = None, **options: Any) -> None:
        super().__init__(name="a", version="1", prompt=handler, **options)
        self.losses: list[Loss] = []

    def lost(self, session_id: str, loss: Loss) -> None:
        self.losses.append(loss)


class Between:
    """A v1 client and a v2 agent, both of lines, and what converts between them."""

    def __init__(self) -> None:
        front, ours = memory_pair()
        back, theirs = memory_pair()
        self.client, self.agent = Talk(ours), Talk(theirs)
        self.losses: list[Loss] = []
        self.faults: list[TwofoldError] = []
        nobody: Any = None
        self._back = Connection(back, nobody)
        self._front = Connection(front, nobody)
        self._converter = V1Client(
            self._front,
            Remote(self._back),
            lost=lambda _, loss: self.losses.append(loss),
            fault=self.faults.append,
            ended=lambda _: None,
        )
        self._front.handler = self._converter.handler
        self._back.handler = Inbound(self._converter, ended=self._converter.agent_ended, fault=self.faults.append)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Between]:
        tasks = [asyncio.create_task(one.run()) for one in (self._front, self._back)]
        try:
            yield self
        finally:
            await self.client.transport.close()
            await self.agent.transport.close()
            await asyncio.gather(*tasks)

    async def session(self, session_id: str = "s", **result: Json) -> str:
        """Open a session."""
        id = self.client.request("session/new", {"cwd": CWD, "mcpServers": []})
        asked = await self.agent.asked("session/new")
        self.agent.respond(asked["id"], {"sessionId": session_id, **result})
        await self.client.result(id)
        return session_id

    async def prompted(self, words: str, id: str) -> Json:
        """Send a prompt; gives the agent's request."""
        self.client.prompt("s", words, id=id)
        return await self.agent.asked("session/prompt")

    def state(self, state: str, **members: Json) -> None:
        self.agent.update("s", sessionUpdate="state_update", state=state, **members)

    def user(self, message_id: str, *words: str) -> None:
        content = [{"type": "text", "text": one} for one in words]
        self.agent.update("s", sessionUpdate="user_message", messageId=message_id, content=content)

    async def settled(self) -> list[str]:
        """What the client has heard since, once all that was sent to it has come."""
        start = self.client.position
        self.agent.update("s", sessionUpdate="usage_update", used=0, size=1)
        await self.client.updated("usage_update")
        return story(self.client.heard(start))[:-1]


def between() -> Any:
    return Between().running()


# Answers to prompts


def test_a_prompt_is_answered_at_the_first_idle_after_its_insertion() -> None:
    async def main() -> None:
        async with between() as one:
            await one.session()
            asked = await one.prompted("go", "p")
            one.state("running")
            one.state("idle", stopReason="max_tokens")  # of what ran before
            one.agent.respond(asked["id"], {"messageId": "u"})
            one.user("u", "go")
            one.state("running")
            assert await one.settled() == []
            one.state("idle", stopReason="refusal")
            one.state("idle", stopReason="refusal")  # a snapshot that repeats it
            assert await one.settled() == ["p: refusal"]

    run(main())


def test_a_short_turn_may_end_before_its_prompt_is_answered() -> None:
    async def main() -> None:
        async with between() as one:
            await one.session()
            asked = await one.prompted("go", "p")
            one.user("u", "go")
            one.state("running")
            one.state("idle", stopReason="end_turn")
            one.state("running")
            one.state("idle", stopReason="cancelled")  # of another turn
            assert await one.settled() == []
            one.agent.respond(asked["id"], {"messageId": "u"})
            assert await one.settled() == ["p: end_turn"]

    run(main())


def test_two_prompts_of_one_turn_are_answered_together() -> None:
    async def main() -> None:
        async with between() as one:
            await one.session()
            first = await one.prompted("a", "p")
            one.agent.respond(first["id"], {"messageId": "u"})
            second = await one.prompted("b", "q")
            one.state("running")
            one.agent.respond(second["id"], {"messageId": "w"})
            one.state("idle", stopReason="end_turn")
            assert await one.settled() == ["p: end_turn", "q: end_turn"]

    run(main())


def test_states_that_are_not_idle_answer_nothing() -> None:
    async def main() -> None:
        async with between() as one:
            await one.session()
            asked = await one.prompted("go", "p")
            one.agent.respond(asked["id"], {"messageId": "u"})
            for state in ("running", "requires_action", "_acme/idle", "Idle"):
                one.state(state, stopReason="end_turn")
            assert await one.settled() == []
            one.state("idle")
            assert await one.settled() == ["p: end_turn"]

    run(main())


@pytest.mark.parametrize(
    ("idle", "answer", "losses"),
    [
        ({"stopReason": "end_turn"}, {"stopReason": "end_turn"}, 0),
        ({"stopReason": "max_turn_requests"}, {"stopReason": "max_turn_requests"}, 0),
        ({}, {"stopReason": "end_turn"}, 0),
        ({"stopReason": None}, {"stopReason": "end_turn"}, 0),
        ({"stopReason": "_acme/tired"}, {"stopReason": "end_turn"}, 1),
        ({"stopReason": "later"}, {"stopReason": "end_turn"}, 1),
    ],
)
def test_every_way_to_end_has_an_answer_in_version_1(idle: Json, answer: Json, losses: int) -> None:
    async def main() -> None:
        async with between() as one:
            await one.session()
            asked = await one.prompted("go", "p")
            one.agent.respond(asked["id"], {"messageId": "u"})
            one.state("idle", **idle)
            assert await one.client.result("p") == answer
            assert [(loss.kind, loss.path, loss.sent) for loss in one.losses] == [
                ("state_update", "$.stopReason", "end_turn")
            ] * losses

    run(main())


@pytest.mark.parametrize("failure", [None, {"code": -32042, "message": "Out of paper", "data": {"tray": 2}}])
def test_a_turn_that_ended_with_an_error_is_answered_in_fixed_words(failure: Json) -> None:
    async def main() -> None:
        async with between() as one:
            await one.session()
            asked = await one.prompted("go", "p")
            one.agent.respond(asked["id"], {"messageId": "u"})
            one.state("idle", stopReason="error", error=failure)
            assert await one.client.error("p") == {"code": -32603, "message": "Internal error"}
            lost = [] if failure is None else [("state_update", "$.error", "-32603, in fixed words")]
            assert [(loss.kind, loss.path, loss.sent) for loss in one.losses] == lost

    run(main())


def test_an_author_who_asks_for_authentication_is_understood() -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        raise RequestError(-32000, "log in first")

    (line,) = run(turn(handler, 1))
    assert line["error"]["code"] == -32000
    last = update_of(run(turn(handler))[-1])
    assert (last["stopReason"], last["error"]) == ("error", {"code": -32000, "message": "log in first"})


def test_a_prompt_that_the_agent_refuses_is_answered_with_its_error() -> None:
    async def main() -> None:
        async with between() as one:
            await one.session()
            for id, code in (("p", -32602), ("q", -32800), ("r", -32000)):
                asked = await one.prompted("go", id)
                one.agent.fail(asked["id"], code)
            assert (await one.client.error("p"))["code"] == -32602
            assert await one.client.result("q") == {"stopReason": "cancelled"}, "no error in version 1"
            assert (await one.client.error("r"))["code"] == -32000
            one.state("idle")
            assert await one.settled() == []

    run(main())


def test_the_end_of_the_agent_fails_the_prompts_that_wait() -> None:
    async def main() -> None:
        async with between() as one:
            await one.session()
            first = await one.prompted("a", "p")
            one.agent.respond(first["id"], {"messageId": "u"})
            await one.prompted("b", "q")
            await one.agent.transport.close()
            answers = [await one.client.next(), await one.client.next()]
            assert {answer["id"]: answer["error"]["code"] for answer in answers} == {"p": -32603, "q": -32603}

    run(main())


# Snapshots


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
def test_the_snapshot_on_a_resume_answers_nothing(method: str) -> None:
    async def main() -> None:
        async with between() as one:
            await one.session()
            asked = await one.prompted("go", "p")
            id = one.client.request(method, {"sessionId": "s", "cwd": CWD, "mcpServers": []})
            resume = await one.agent.asked("session/resume")
            one.agent.respond(asked["id"], {"messageId": "u"})  # inserted, and not begun
            one.state("idle", stopReason="end_turn")  # what the turn before it ended with
            one.agent.respond(resume["id"], {})
            await one.client.result(id)
            one.state("running")
            assert await one.settled() == []
            one.state("idle", stopReason="refusal")
            assert await one.settled() == ["p: refusal"]

    run(main())


@pytest.mark.parametrize("snapshot", [True, False])
@pytest.mark.parametrize("method", ["session/load", "session/resume"])
def test_a_turn_that_ends_while_the_session_is_resumed_has_ended(method: str, snapshot: bool) -> None:
    async def main() -> None:
        async with between() as one:
            await one.session()
            asked = await one.prompted("go", "p")
            one.agent.respond(asked["id"], {"messageId": "u"})
            one.state("running")
            id = one.client.request(method, {"sessionId": "s", "cwd": CWD, "mcpServers": []})
            resume = await one.agent.asked("session/resume")
            one.state("idle", stopReason="refusal")
            if snapshot:  # older agents send none
                one.state("idle")
            one.agent.respond(resume["id"], {})
            answers = {answer["id"]: answer["result"] for answer in [await one.client.next(), await one.client.next()]}
            assert answers == {id: {}, "p": {"stopReason": "refusal"}}

    run(main())


# What is shown of the client's own prompts


def test_a_client_is_not_told_what_it_said_itself_but_what_became_of_it() -> None:
    one = Losing()

    async def handler(session: Session, prompt: Prompt) -> None:
        message = session.user_message(prompt.message_id)
        await message.append(" (and more)")
        await message.replace("[removed]")
        await message.clear()

    one._prompt = handler

    async def main() -> list[Json]:
        async with served(one, 1) as talk:
            session_id = await talk.new_session()
            start = talk.position
            talk.prompt(session_id, "my secret", id="p")
            await talk.answered("p")
            return talk.heard(start)

    lines = run(main())
    check(lines, 1)
    assert story(lines) == [
        "user_message_chunk  (and more)",
        f"agent_message_chunk {CORRECTED}",
        "user_message_chunk [removed]",
        f"agent_message_chunk {WITHDRAWN}",
        "p: end_turn",
    ]
    assert [loss.path for loss in one.losses] == ["$.content", "$.content"]


def test_an_agent_may_report_a_prompt_in_pieces_and_before_it_answers() -> None:
    async def main() -> None:
        async with between() as one:
            await one.session()
            one.client.request(
                "session/prompt", {"sessionId": "s", "prompt": [{"type": "text", "text": x} for x in "ab"]}, id="p"
            )
            asked = await one.agent.asked("session/prompt")
            one.agent.respond(asked["id"], {"messageId": "u"})
            one.agent.update("s", sessionUpdate="user_message", messageId="u", content=[])
            for words in "ab":
                block = {"type": "text", "text": words}
                one.agent.update("s", sessionUpdate="user_message_chunk", messageId="u", content=block)
            assert await one.settled() == [], "that is the prompt"
            one.agent.update(
                "s", sessionUpdate="user_message_chunk", messageId="u", content={"type": "text", "text": "c"}
            )
            assert await one.settled() == ["user_message_chunk c"]
            asked = await one.prompted("early", "q")
            one.user("w", "early")
            assert await one.settled() == []
            one.agent.respond(asked["id"], {"messageId": "w"})
            one.user("w", "early", "late")
            assert await one.settled() == ["user_message_chunk late"]

    run(main())


def test_what_another_client_says_is_shown_also_while_an_own_prompt_waits() -> None:
    async def main() -> list[str]:
        gate = Gate()

        async def handler(session: Session, prompt: Prompt) -> None:
            if prompt.text == "a":
                await gate()

        async with agent(handler) as one, served(one, 1) as talk, served(one) as other:
            session_id = await talk.new_session()
            await other.ask("session/resume", {"sessionId": session_id, "cwd": CWD})
            start = talk.position
            other.prompt(session_id, "a")
            await gate.reached.wait()
            other.prompt(session_id, "theirs", id="b")
            await others_run()
            talk.prompt(session_id, "mine", id="p")
            await others_run()
            gate.open.set()
            await talk.answered("p")
            return story(talk.heard(start))

    assert run(main()) == ["user_message_chunk a", "user_message_chunk theirs", "p: end_turn"]


def test_a_load_shows_everything_own_prompts_too_and_begins_a_new_view() -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        message = session.message("m")
        await message.append("wrong")
        await message.replace("right")
        await message.append("er")

    async def main() -> tuple[list[str], list[str], list[str]]:
        one = Losing(handler)
        async with served(one, 1) as talk:
            session_id = await talk.new_session()
            start = talk.position
            talk.prompt(session_id, "go", id="p")
            await talk.answered("p")
            live = story(talk.heard(start))
            start = talk.position
            await talk.ask("session/load", {"sessionId": session_id, "cwd": CWD, "mcpServers": []})
            check(talk.lines, 1)
            loaded = story(talk.heard(start))
            losses = len(one.losses)
            start = talk.position
            await talk.ask("session/resume", {"sessionId": session_id, "cwd": CWD, "mcpServers": []})
            assert len(one.losses) == losses
            talk.prompt(session_id, "go", id="q")
            await talk.answered("q")
            return live, loaded, story(talk.heard(start))

    live, loaded, after = run(main())
    assert live == [
        "agent_message_chunk wrong",
        f"agent_message_chunk {CORRECTED}",
        "agent_message_chunk right",
        "agent_message_chunk er",
        "p: end_turn",
    ]
    assert loaded == ["user_message_chunk go", "agent_message_chunk right", "agent_message_chunk er", "3: ok"]
    assert after == [
        "4: ok",
        "agent_message_chunk wrong",
        f"agent_message_chunk {CORRECTED}",
        "agent_message_chunk right",
        "agent_message_chunk er",
        "q: end_turn",
    ]


def test_a_load_that_fails_leaves_the_view_as_it_was() -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        await session.message("m").append(prompt.text)

    async def main() -> list[str]:
        async with served(agent(handler), 1) as talk:
            session_id = await talk.new_session()
            talk.prompt(session_id, "a", id="p")
            await talk.answered("p")
            params = {"sessionId": session_id, "cwd": "not absolute", "mcpServers": []}
            assert (await talk.refused("session/load", params))["code"] == -32602
            start = talk.position
            talk.prompt(session_id, "b", id="q")
            await talk.answered("q")
            return story(talk.heard(start))

    assert run(main()) == ["agent_message_chunk b", "q: end_turn"]


# Corrections are marked (V-8)


@pytest.mark.rule("V-8")
def test_what_was_corrected_or_withdrawn_is_marked_and_the_new_content_has_a_new_id() -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        corrected, withdrawn = session.message("m"), session.thought("t")
        await corrected.append("wrong")
        await corrected.replace("right")
        await withdrawn.append("secret")
        await withdrawn.clear()
        await corrected.replace("right!")  # goes on from what is held
        await session.message("n").clear()  # nothing was held

    one = Losing(handler)

    async def main() -> list[Json]:
        async with served(one, 1) as talk:
            session_id = await talk.new_session()
            start = talk.position
            talk.prompt(session_id, "go", id="p")
            await talk.answered("p")
            return updates_of(talk.heard(start))

    wrong, mark, right, secret, withdrawn, more = run(main())
    assert mark["content"]["text"] == CORRECTED
    assert mark["_meta"] == right["_meta"] == {SUPERSEDES: wrong["messageId"]}
    assert len({wrong["messageId"], mark["messageId"], right["messageId"]}) == 3
    assert (right["content"]["text"], more["content"]["text"]) == ("right", "!")
    assert right["messageId"] == more["messageId"]
    assert withdrawn["content"]["text"] == WITHDRAWN
    assert withdrawn["_meta"] == {SUPERSEDES: secret["messageId"]}
    assert [(loss.kind, loss.id, loss.path, bool(loss.sent)) for loss in one.losses] == [
        ("agent_message", "m", "$.content", True),
        ("agent_thought", "t", "$.content", True),
    ]


# Tool calls


def test_content_of_a_tool_call_is_sent_when_it_has_waited_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_v1_client, "FLUSH", 0.01)

    async def main() -> None:
        gate = Gate()

        async def handler(session: Session, prompt: Prompt) -> None:
            async with session.tool_call("T", tool_call_id="c") as call:
                await call.append("a" * 100)
                await call.append("b")
                await gate()

        async with served(agent(handler), 1) as talk:
            session_id = await talk.new_session()
            talk.prompt(session_id, "go", id="p")
            update = await talk.until(lambda line: "b" in _contents(line))
            assert [item["content"]["text"] for item in update_of(update)["content"]] == ["a" * 100, "b"]
            gate.open.set()
            await talk.answered("p")
            check(talk.lines, 1)

    run(main())


def _contents(line: Json) -> list[str]:
    update = update_of(line)
    items = update.get("content") if update is not None else None
    return [item["content"]["text"] for item in items] if isinstance(items, list) else []


@pytest.mark.parametrize("how", ["status", "idle", "permission", "load"])
def test_content_of_a_tool_call_does_not_wait_beyond_what_comes_next(how: str) -> None:
    async def main() -> list[Json]:
        gate = Gate()

        async def handler(session: Session, prompt: Prompt) -> None:
            call = session.tool_call("T", tool_call_id="c")
            await call.update(title="T")
            await call.append("a" * 100)
            await call.append("b")
            match how:
                case "status":
                    await call.update(status="completed")
                case "permission":
                    await session.request_permission("May I?")
                case "load":
                    await gate()
                case _:
                    pass

        async with served(agent(handler), 1) as talk:
            session_id = await talk.new_session()
            talk.prompt(session_id, "go", id="p")
            if how == "permission":
                selecting("allow")(talk, await talk.asked("session/request_permission"))
            if how == "load":
                await gate.reached.wait()
                await talk.ask("session/load", {"sessionId": session_id, "cwd": CWD, "mcpServers": []})
                gate.open.set()
            await talk.answered("p")
            return talk.heard()

    lines = run(main())
    ends: dict[str, Callable[[Json], bool]] = {
        "status": lambda line: (update_of(line) or {}).get("status") == "completed",
        "idle": lambda line: line.get("id") == "p",
        "permission": lambda line: line.get("method") == "session/request_permission",
        "load": lambda line: (update_of(line) or {}).get("sessionUpdate") == "user_message_chunk",
    }
    at = next(index for index, line in enumerate(lines) if ends[how](line))
    assert any(_contents(line)[-1:] == ["b"] for line in lines[: at + 1])


# Permissions


def asked_v1(**options: Any) -> tuple[Json, list[Loss]]:
    """Ask a v1 client for a permission; give the params of what it was asked, and the losses."""
    got: list[Any] = []

    async def handler(session: Session, prompt: Prompt) -> None:
        await session.tool_call("Known", tool_call_id="known").update(title="Known", content="held")
        got.append(await session.request_permission("May I?", **options))

    one = Losing(handler)

    async def main() -> Json:
        async with served(one, 1) as talk:
            session_id = await talk.new_session()
            talk.prompt(session_id, "go", id="p")
            asked = await talk.asked("session/request_permission")
            choice = asked["params"]["options"][0]["optionId"]
            selecting(choice)(talk, asked)
            await talk.answered("p")
            check(talk.lines, 1)
            assert got[0].option_id == choice
            return asked["params"]

    params = run(main())
    return params, one.losses


def test_permission_for_a_tool_call_that_is_new_creates_it_first() -> None:
    update = v2.ToolCallUpdate(tool_call_id="c", title="May I?", kind="edit", status="pending", raw_input={"a": 1})
    params, losses = asked_v1(subject=update)
    assert params["toolCall"] == {
        "toolCallId": "c",
        "title": "May I?",
        "kind": "edit",
        "status": "pending",
        "rawInput": {"a": 1},
    }
    assert [option["kind"] for option in params["options"]] == ["allow_once", "reject_once"]
    assert losses == []


def test_permission_for_a_tool_call_has_the_words_of_the_question_and_says_what_they_replace() -> None:
    params, losses = asked_v1(subject=v2.ToolCallUpdate(tool_call_id="known"), description="Because")
    assert params["toolCall"] == {"toolCallId": "known", "title": "May I?"}
    assert [(loss.id, loss.path, loss.sent) for loss in losses] == [
        ("known", "$.title", "the tool call's title"),
        ("known", "$.description", None),
    ]


def test_permission_for_a_command_is_one_for_a_tool_call_that_runs_it() -> None:
    params, losses = asked_v1(subject=v2.CommandPermissionSubject(command="rm -r x", cwd="/w"), description="Because")
    tool_call = params["toolCall"]
    assert tool_call.pop("toolCallId")
    assert tool_call == {
        "title": "May I?",
        "kind": "execute",
        "rawInput": {"command": "rm -r x", "cwd": "/w"},
        "content": [{"type": "content", "content": {"type": "text", "text": "Because"}}],
    }
    assert [loss.path for loss in losses] == ["$.subject", "$.description"]
    params, losses = asked_v1(subject=v2.CommandPermissionSubject(command="ls", cwd="/", tool_call_id="known"))
    assert params["toolCall"]["toolCallId"] == "known"
    assert [loss.path for loss in losses] == ["$.subject", "$.title"]


@pytest.mark.parametrize(
    "subject", [None, v2.OtherRequestPermissionSubject(kind="_acme/door", fields=v2.Kept({"which": "front"}))]
)
def test_permission_for_something_else_is_one_for_a_tool_call_of_its_own(subject: Any) -> None:
    params, losses = asked_v1(subject=subject)
    assert params["toolCall"].pop("toolCallId")
    assert params["toolCall"] == {"title": "May I?"}
    assert [loss.path for loss in losses] == ["$.subject"]


def test_options_of_a_kind_that_version_1_does_not_know_are_left_out() -> None:
    options = [
        v2.PermissionOption(option_id="x", name="For the day", kind="_acme/allow_today"),
        v2.PermissionOption(option_id="y", name="Yes", kind="allow_always"),
    ]
    params, losses = asked_v1(options=options, subject=v2.ToolCallUpdate(tool_call_id="c", title="May I?"))
    assert [option["optionId"] for option in params["options"]] == ["y"]
    assert [loss.path for loss in losses] == ["$.options[0].kind"]


# Modes and options

MODE = v2.SessionConfigSelect(
    config_id="how",
    name="Mode",
    category="mode",
    current_value="ask",
    options=[
        v2.SessionConfigSelectOption(value="ask", name="Ask", description="Asks"),
        v2.SessionConfigSelectOption(value="act", name="Act"),
    ],
)
MODEL = v2.SessionConfigSelect(
    config_id="model",
    name="Model",
    category="model",
    current_value="s",
    options=[
        v2.SessionConfigSelectGroup(
            group_id="g", name="Small", options=[v2.SessionConfigSelectOption(value="s", name="S")]
        ),
        v2.SessionConfigSelectGroup(
            group_id="h", name="Large", options=[v2.SessionConfigSelectOption(value="l", name="L")]
        ),
    ],
)
LOUD = v2.SessionConfigBoolean(config_id="loud", name="Loud", current_value=False)


class Choosing(Losing):
    def __init__(self, *options: v2.SessionConfigOption, handler: Handler | None = None) -> None:
        super().__init__(handler)
        self.options = options
        self.chosen: list[Any] = []

    async def new_session(self, session: Session) -> None:
        await session.set_config_options(self.options)
        await session.set_commands([v2.Command(name="help", description="Helps")])

    async def set_config_option(self, session: Session, config_id: str, value: str | bool) -> None:
        if value == "l":
            raise Malformed("$.params.value", expected="what can be paid", found="another one")
        self.chosen.append((config_id, value))


def test_options_and_modes_are_offered_and_set_in_version_1s_words() -> None:
    one = Choosing(MODE, MODEL, LOUD)

    async def main() -> None:
        async with served(one, 1) as talk:
            answer = await talk.ask("session/new", {"cwd": CWD, "mcpServers": []})
            schema(1).validator({"$ref": "#/$defs/NewSessionResponse"}).validate(answer)
            session_id = answer["sessionId"]
            assert answer["modes"] == {
                "currentModeId": "ask",
                "availableModes": [{"id": "ask", "name": "Ask", "description": "Asks"}, {"id": "act", "name": "Act"}],
            }
            assert [option["id"] for option in answer["configOptions"]] == ["how", "model", "loud"]
            assert (await talk.updated("available_commands_update"))["availableCommands"][0]["name"] == "help"

            start = talk.position
            assert await talk.ask("session/set_mode", {"sessionId": session_id, "modeId": "act"}) == {}
            changes = updates_of(talk.heard(start))
            assert [one["sessionUpdate"] for one in changes] == ["config_option_update", "current_mode_update"]
            assert changes[1]["currentModeId"] == "act"

            params = {"sessionId": session_id, "configId": "loud", "value": True, "type": "boolean"}
            answer = await talk.ask("session/set_config_option", params)
            schema(1).validator({"$ref": "#/$defs/SetSessionConfigOptionResponse"}).validate(answer)
            assert [option["currentValue"] for option in answer["configOptions"]] == ["act", "s", True]
            answer = await talk.ask(
                "session/set_config_option", {"sessionId": session_id, "configId": "how", "value": "ask"}
            )
            assert [option["currentValue"] for option in answer["configOptions"]] == ["ask", "s", True]
            check(talk.lines, 1)

            for wrong in (
                {"configId": "how", "value": "fly"},
                {"configId": "nothing", "value": "x"},
                {"configId": "loud", "value": "yes"},
                {"configId": "model", "value": "l"},
            ):
                error = await talk.refused("session/set_config_option", {"sessionId": session_id, **wrong})
                assert error["code"] == -32602
            assert (await talk.refused("session/set_mode", {"sessionId": session_id, "modeId": "fly"}))[
                "code"
            ] == -32602
            assert (await talk.refused("session/set_mode", {"sessionId": "nobody", "modeId": "ask"}))["code"] == -32601
            loaded = await talk.ask("session/load", {"sessionId": session_id, "cwd": CWD, "mcpServers": []})
            schema(1).validator({"$ref": "#/$defs/LoadSessionResponse"}).validate(loaded)
            assert loaded["modes"]["currentModeId"] == "ask"

    run(main())
    assert one.chosen == [("how", "act"), ("loud", True), ("how", "ask")]
    assert one.losses == []


def test_a_session_without_modes_has_none_to_set() -> None:
    async def main() -> None:
        async with served(Choosing(LOUD), 1) as talk:
            answer = await talk.ask("session/new", {"cwd": CWD, "mcpServers": []})
            assert "modes" not in answer
            params = {"sessionId": answer["sessionId"], "modeId": "x"}
            assert (await talk.refused("session/set_mode", params))["code"] == -32601

    run(main())


def test_a_mode_that_the_agent_changes_is_told_once() -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        for current in ("act", "act", "ask"):
            changed = v2.SessionConfigSelect(
                config_id="how", name="Mode", category="mode", current_value=current, options=MODE.options
            )
            await session.set_config_options([LOUD, changed])

    async def main() -> list[Json]:
        async with served(Choosing(MODE, handler=handler), 1) as talk:
            session_id = await talk.new_session()
            talk.prompt(session_id, "go", id="p")
            await talk.answered("p")
            return updates_of(talk.lines)

    modes = [one["currentModeId"] for one in run(main()) if one["sessionUpdate"] == "current_mode_update"]
    assert modes == ["act", "ask"]


def test_options_that_version_1_cannot_show_are_losses() -> None:
    slider = v2.OtherSessionConfigOption(
        kind="_acme/slider", fields=v2.Kept({"configId": "x", "name": "X", "currentValue": 3})
    )
    one = Choosing(LOUD, slider)

    async def main() -> Json:
        async with served(one, 1) as talk:
            return await talk.ask("session/new", {"cwd": CWD, "mcpServers": []})

    answer = run(main())
    assert [option["id"] for option in answer["configOptions"]] == ["loud"]
    assert [loss.path for loss in one.losses] == ["$.configOptions[1].type"]


# Sessions in version 1's words


def test_servers_over_stdio_have_no_type_in_version_1_and_are_always_taken() -> None:
    seen: list[Any] = []

    class Connected(Agent):
        mcp_transports = ("http",)

        async def new_session(self, session: Session) -> None:
            seen.append(session.mcp_servers)

        async def resume_session(self, session: Session) -> None:
            seen.append(session.mcp_servers)

    stdio: Json = {"name": "x", "command": "/x", "args": [], "env": []}
    http: Json = {"type": "http", "name": "y", "url": "https://y", "headers": []}
    sse: Json = {"type": "sse", "name": "z", "url": "https://z", "headers": []}

    async def main() -> None:
        async with served(Connected(), 1) as talk:
            session_id = await talk.new_session(mcpServers=[stdio, http])
            for method in ("session/load", "session/resume"):
                await talk.ask(method, {"sessionId": session_id, "cwd": CWD, "mcpServers": [stdio]})
            error = await talk.refused("session/new", {"cwd": CWD, "mcpServers": [stdio, sse]})
            assert (error["code"], error["data"]["path"]) == (-32602, "$.params.mcpServers[1].type")

    run(main())
    typed = {"type": "stdio", **stdio}
    assert seen == [(typed, http), (typed,), (typed,)]


def test_a_version_1_client_logs_in_and_out() -> None:
    done: list[str] = []

    class Guarded(Agent):
        auth_methods = ({"type": "agent", "methodId": "key", "name": "Key"},)

        async def login(self, method_id: str) -> None:
            done.append(method_id)

        async def logout(self) -> None:
            done.append("out")

    async def main() -> None:
        async with served(Guarded(), 1) as talk:
            assert await talk.ask("authenticate", {"methodId": "key"}) == {}
            assert await talk.ask("logout") == {}
            error = await talk.refused("authenticate", {"methodId": "door"})
            assert (error["code"], error["data"]["path"]) == (-32602, "$.params.methodId")
        async with served(agent(), 1) as talk:
            for method in ("authenticate", "logout"):
                assert (await talk.refused(method, {"methodId": "key"}))["code"] == -32601

    run(main())
    assert done == ["key", "out"]


def test_methods_that_version_1_does_not_have_are_not_found() -> None:
    async def main() -> None:
        async with served(agent(), 1) as talk:
            for method in ("auth/login", "session/set_model", "fs/read_text_file", "nothing"):
                assert (await talk.refused(method, {}))["code"] == -32601
            talk.notify("session/unheard_of", {})
            await talk.ask("session/list")

    run(main())


def test_extensions_pass_both_ways() -> None:
    class Extended(Agent):
        async def extension(self, method: str, params: Any) -> Any:
            return {"method": method, "params": params}

    async def main() -> None:
        async with served(Extended(), 1) as talk:
            assert await talk.ask("_acme/x", {"a": 1}) == {"method": "_acme/x", "params": {"a": 1}}
        async with between() as one:
            one.agent.request("_acme/y", {"b": 2}, id="a")
            asked = await one.client.asked("_acme/y")
            assert asked["params"] == {"b": 2}
            one.client.respond(asked["id"], {"c": 3})
            assert await one.agent.result("a") == {"c": 3}
            one.agent.notify("_acme/z", {"d": 4})
            assert (await one.client.asked("_acme/z"))["params"] == {"d": 4}
            one.agent.request("unheard/of", {}, id="b")
            assert (await one.agent.error("b"))["code"] == -32601

    run(main())


def test_a_session_that_both_sides_close_is_gone() -> None:
    async def main() -> None:
        async with served(agent(), 1) as talk:
            session_id = await talk.new_session()
            await talk.ask("session/close", {"sessionId": session_id})
            assert (await talk.error(talk.prompt(session_id, "go")))["code"] == -32002
            await talk.ask("session/load", {"sessionId": session_id, "cwd": CWD, "mcpServers": []})
            assert await talk.result(talk.prompt(session_id, "go")) == {"stopReason": "end_turn"}

    run(main())


# The law: what a v1 client holds is what a v2 client holds, or a loss record says otherwise

words = st.sampled_from(["a", "b ", "", "long enough to matter"])
contents = st.lists(words, max_size=2)
icons = v2.read_content([{"type": "resource_link", "uri": "file:///x", "name": "n", "icons": [{"src": "file:///i"}]}])
message_steps = st.one_of(
    st.tuples(st.just("append"), st.sampled_from(["m", "n", "t", "user"]), words),
    st.tuples(st.just("append"), st.sampled_from(["m", "n", "t", "user"]), words),
    st.tuples(st.just("replace"), st.sampled_from(["m", "n", "t", "user"]), contents),
    st.tuples(st.just("clear"), st.sampled_from(["m", "n", "t", "user"])),
    st.tuples(st.just("meta"), st.sampled_from(["m", "t"])),
    st.tuples(st.just("icons"), st.sampled_from(["m", "t"])),
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "title": st.sampled_from(["One", "Two", None]),
        "kind": st.sampled_from(["read", "_acme/kind", None]),
        "status": st.sampled_from(["in_progress", "completed", "cancelled", "paused", None]),
        "content": st.one_of(st.none(), contents),
        "raw_output": st.sampled_from([{"x": 1}, None]),
        "locations": st.sampled_from([[v2.ToolCallLocation(path="/x")], None]),
    },
)
tool_steps = st.one_of(
    st.tuples(st.just("tool"), st.sampled_from("cd"), fields),
    st.tuples(st.just("piece"), st.sampled_from("cd"), words),
    st.tuples(st.just("show"), st.sampled_from("cd")),
    st.tuples(st.just("write"), words),
    st.tuples(st.just("ask"), st.sampled_from(["c", "d", "command", "nothing"]), st.sampled_from([None, "Because"])),
)
other_steps = st.one_of(
    st.tuples(st.just("plan"), st.sampled_from(["main", "other"]), st.lists(words, max_size=2)),
    st.tuples(st.just("usage"), st.integers(0, 3), st.sampled_from([None, 0.5])),
    st.tuples(st.just("title"), st.sampled_from(["A", "B", None])),
    st.tuples(st.just("commands"), st.lists(st.sampled_from("xy"), max_size=2, unique=True)),
    st.tuples(st.just("options"), st.sampled_from([(MODE,), (LOUD, MODE), (LOUD,)])),
    st.tuples(st.just("notice")),
)
scripts = st.lists(st.one_of(message_steps, message_steps, tool_steps, tool_steps, other_steps), max_size=12)


async def perform(session: Session, prompt: Prompt, script: list[Any]) -> None:
    """Do what a script says."""
    handles = {
        "m": session.message("m"),
        "n": session.message("n"),
        "t": session.thought("t"),
        "user": session.user_message(prompt.message_id),
    }
    for step in script:
        match step:
            case ("append", str(name), str(text)):
                await handles[name].append(text)
            case ("replace", str(name), content):
                await handles[name].replace(content)
            case ("clear", str(name)):
                await handles[name].clear()
            case ("meta", str(name)):
                await handles[name].set_meta({"k": 1})
            case ("icons", str(name)):
                await handles[name].append(icons[0])
            case ("tool", str(call), dict(held)):
                await session.tool_call("", tool_call_id=call).update(**held)
            case ("piece", str(call), str(text)):
                await session.tool_call("", tool_call_id=call).append(text)
            case ("show", str(call)):
                await session.tool_call("", tool_call_id=call).append(v2.Terminal(terminal_id="x"))
            case ("write", str(text)):
                await (await session.terminal("ls", terminal_id="x")).write(text)
            case ("ask", str(subject), description):
                asked: Any = {
                    "command": v2.CommandPermissionSubject(command="ls", cwd="/", tool_call_id="c"),
                    "nothing": None,
                }.get(subject, v2.ToolCallUpdate(tool_call_id=subject, title="One"))
                await session.request_permission("One", subject=asked, description=description)
            case ("plan", str(plan_id), entries):
                await session.plan(entries, plan_id=plan_id)
            case ("usage", int(used), amount):
                await session.usage(used, 10, cost=None if amount is None else v2.Cost(amount=amount, currency="EUR"))
            case ("title", title):
                await session.set_title(title)
            case ("commands", names):
                await session.set_commands([v2.Command(name=name, description=name) for name in names])
            case ("options", options):
                await session.set_config_options(options)
            case ("notice",):
                await session.notice("Look")


class Reader:
    """A v1 client as plain as can be: messages by hand, the rest as a v2 client would fold it."""

    def __init__(self) -> None:
        self.messages = PlainReader()
        self.rest = Transcript()
        self._upgrader = Upgrader()

    def line(self, line: Json) -> None:
        if line.get("method") == "session/request_permission":
            self._other({**line["params"]["toolCall"], "sessionUpdate": "tool_call_update"})
            return
        update = update_of(line)
        if update is None:
            return
        if not update["sessionUpdate"].endswith("_chunk"):
            self._other(update)
            return
        old = (update.get("_meta") or {}).get(SUPERSEDES)
        if old is not None and update["content"].get("text") == WITHDRAWN:
            self._forget(old)
        elif old is not None and update["content"].get("text") == CORRECTED:
            pass
        else:
            if old is not None:
                self._forget(old)
            self.messages.read(update)

    def prompt(self, words: str, message_id: str) -> None:
        """Show what the user typed; what is said of it later has the agent's id for it."""
        self.messages.messages["user_message", message_id] = [{"type": "text", "text": words}]

    def _forget(self, message_id: str) -> None:
        for kind in ("user_message", "agent_message", "agent_thought"):
            self.messages.messages.pop((kind, message_id), None)

    def _other(self, update: Json) -> None:
        for one in self._upgrader.update(v1.read_update(update)).updates:
            self.rest.apply(one)

    def held(self) -> list[Json]:
        return sorted(
            ([kind, joined(content)] for (kind, _), content in self.messages.messages.items() if joined(content)),
            key=repr,
        )


def compare(reader: Reader, state: Transcript, losses: list[Loss]) -> None:
    """Hold the law for one view."""
    lost = {
        (loss.kind.removesuffix("_chunk"), loss.id) for loss in losses if loss.sent is None and "content" in loss.path
    }
    messages = [(message.type, message.message_id, joined(message.to_json()["content"])) for message in state.messages]
    expected: list[Json] = [[kind, content] for kind, id, content in messages if content and (kind, id) not in lost]
    held = reader.held()
    if not any(kind in ("agent_message", "agent_thought", "user_message") for kind, _ in lost):
        assert held == sorted(expected, key=repr)
    for one in expected:
        assert one in held
        held.remove(one)
    names = {"description": "content", "subject": "*"}
    unlike: dict[str | None, set[str]] = {}
    for loss in losses:
        name = loss.path.removeprefix("$.").split("[")[0].split(".")[0]
        unlike.setdefault(loss.id, set()).add(names.get(name, name))
        if loss.kind.startswith("terminal") or (loss.kind, loss.id) == ("tool_call_content_chunk", None):  # in a flush
            for call in state.tool_calls:
                unlike.setdefault(call.tool_call_id, set()).add("content")
    for call in state.tool_calls:
        theirs = reader.rest.tool_call(call.tool_call_id)
        if "*" in unlike.get(call.tool_call_id, ()):
            continue
        assert theirs is not None
        mine, others = call.to_json(), theirs.to_json()
        for name in unlike.get(call.tool_call_id, set()):
            mine.pop(name, None), others.pop(name, None)
        assert mine == others
    kinds = {loss.kind for loss in losses}
    if "plan_update" not in kinds and state.plans:
        (plan,) = state.plans
        assert [to_json(entry) for entry in plan.entries] == [to_json(entry) for entry in reader.rest.plans[0].entries]
    ours, theirs_ = state.to_json(), reader.rest.to_json()
    for kind, name in (
        ("usage_update", "usage"),
        ("session_info_update", "sessionInfo"),
        ("available_commands_update", "availableCommands"),
        ("config_option_update", "configOptions"),
    ):
        if kind not in kinds:
            assert ours.get(name) == theirs_.get(name), name


@pytest.mark.rule("V-9")
@settings(max_examples=60)
@given(scripts, st.lists(message_steps, max_size=4))
def test_a_version_1_client_holds_what_a_version_2_client_holds_or_a_loss_says_why_not(
    script: list[Any], later: list[Any]
) -> None:
    async def main() -> None:
        scripts = iter((script, later))

        async def handler(session: Session, prompt: Prompt) -> None:
            await perform(session, prompt, next(scripts))

        one = Losing(handler)
        async with one, served(one, 1) as old, served(one) as new:
            session_id = await old.new_session()
            await new.ask("session/resume", {"sessionId": session_id, "cwd": CWD})

            async def heard(until: str) -> list[Json]:
                start = old.position
                while old.position == start or old.lines[old.position - 1].get("id") != until:
                    line = await old.next()
                    if line.get("method") == "session/request_permission":
                        selecting("allow")(old, line)
                return old.heard(start)

            async def prompted(words: str, id: str, reader: Reader) -> None:
                old.prompt(session_id, words, id=id)
                lines = await heard(id)
                await new.idle(stopReason="end_turn")
                users = [message for message in folded(new.lines).messages if message.type == "user_message"]
                reader.prompt(words, users[-1].message_id)
                for line in lines:
                    reader.line(line)
                compare(reader, folded(new.lines), one.losses)

            await prompted("go", "first", Reader())
            one.losses.clear()
            reader = Reader()
            old.request("session/load", {"sessionId": session_id, "cwd": CWD, "mcpServers": []}, id="load")
            for line in await heard("load"):
                reader.line(line)
            compare(reader, folded(new.lines), one.losses)
            await prompted("more", "second", reader)
            check(old.lines, 1)

    run(main())
