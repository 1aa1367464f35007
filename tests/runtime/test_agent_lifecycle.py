"""An agent's sessions on the wire: the order of a turn, and what stops, waits, is taken back, kept and shown again."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.journal.stored import found, raw
from tests.runtime.talk import CWD, Half, Json, Talk, folded, run, served, story, update_of, updates_of
from tests.wire.schema import Schema, Version
from twofold.exceptions import Malformed, RequestError, TwofoldError
from twofold.fold import SETUP, Revision, Transcript
from twofold.journal.sqlite import SQLiteJournal
from twofold.runtime import memory_pair
from twofold.runtime.agent import Agent, Prompt, Session, ToolCallHandle
from twofold.wire import v2

Handler = Callable[[Session, Prompt], Awaitable[str | None]]

SECRET = "the-launch-code-is-0000"


def agent(handler: Handler | None = None, **options: Any) -> Agent:
    return Agent(name="a", version="1", prompt=handler or echo, **options)


async def echo(session: Session, prompt: Prompt) -> None:
    await session.message("m").append(prompt.text)


async def turn(handler: Handler, version: int = 2, *blocks: Json, **options: Any) -> list[Json]:
    """Run one turn, and give its lines from the prompt on."""
    async with served(agent(handler, **options), version) as talk:
        session_id = await talk.new_session()
        start = talk.position
        talk.prompt(session_id, *(blocks or ("go",)), id="p")
        await (talk.idle() if version == 2 else talk.answered("p"))
        return talk.heard(start)


@cache
def schema(version: Version) -> Schema:
    return Schema(version)


def check(lines: list[Json], version: Version) -> None:
    """Hold updates and permission requests to the official schema."""
    for line in lines:
        if line.get("method") == "session/update":
            schema(version).params.validate(line["params"])
        elif line.get("method") == "session/request_permission":
            schema(version).validator({"$ref": "#/$defs/RequestPermissionRequest"}).validate(line["params"])


class Gate:
    """A place in a handler where the test meets it."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self.open.wait()


async def others_run() -> None:
    """Let everything that can go on go on."""
    for _ in range(100):
        await asyncio.sleep(0)


# The order of a turn


def test_a_turn_has_its_order_on_the_wire() -> None:
    lines = run(turn(echo))
    assert story(lines) == ["p: ok", "user_message go", "running", "agent_message_chunk go", "idle end_turn"]
    message_id = lines[0]["result"]["messageId"]
    assert message_id
    assert update_of(lines[1])["messageId"] == message_id
    assert all(line["params"]["sessionId"] for line in lines[1:])
    check(lines, 2)


def test_a_version_1_client_gets_what_was_said_and_then_the_answer() -> None:
    lines = run(turn(echo, 1))
    assert story(lines) == ["agent_message_chunk go", "p: end_turn"]
    check(lines, 1)


@pytest.mark.parametrize(
    ("returned", "reason"),
    [(None, "end_turn"), ("refusal", "refusal"), ("max_tokens", "max_tokens"), ("_acme/tired", "_acme/tired")],
)
def test_the_handler_says_why_the_turn_ends(returned: str | None, reason: str) -> None:
    async def handler(session: Session, prompt: Prompt) -> str | None:
        return returned

    assert story(run(turn(handler)))[-1] == f"idle {reason}"


def test_a_prompt_handler_gets_what_the_user_said() -> None:
    got: list[Prompt] = []

    async def handler(session: Session, prompt: Prompt) -> None:
        got.append(prompt)
        assert session.state.message("user_message", prompt.message_id) is not None

    link = {"type": "resource_link", "uri": "file:///x", "name": "x"}
    lines = run(turn(handler, 2, "a", link, "b"))
    assert [prompt.text for prompt in got] == ["ab"]
    assert got[0].message_id == lines[0]["result"]["messageId"]
    assert update_of(lines[1])["content"] == [{"type": "text", "text": "a"}, link, {"type": "text", "text": "b"}]


def test_no_meta_key_reaches_a_handler_as_if_it_were_a_parameter() -> None:
    got: list[tuple[str, Prompt]] = []

    async def handler(session: Session, prompt: Prompt) -> None:
        got.append((session.session_id, prompt))

    meta = {"session_id": "other", "sessionId": "other", "prompt": [], "text": "x", "message_id": "x", "content": []}

    async def main() -> str:
        async with served(agent(handler)) as talk:
            session_id = await talk.new_session(_meta={"cwd": "/else", "session_id": "x"})
            talk.prompt(session_id, "go", _meta=meta)
            await talk.idle()
            return session_id

    session_id = run(main())
    assert [(one, prompt.text) for one, prompt in got] == [(session_id, "go")]
    assert got[0][1].meta == meta


async def everything(session: Session, prompt: Prompt) -> None:
    async with session.thought("t") as thought:
        await thought.append("hm")
    async with session.message("m") as message:
        await message.append("Hel")
        await message.append(v2.TextContent(text="lo"), meta={"chunk": 1})
        await message.replace(["Hello", v2.TextContent(text="!")])
        await message.append("?")
        await message.clear()
    async with session.tool_call("Read", kind="read", tool_call_id="c", raw_input={"path": "x"}) as call:
        await call.update(locations=[v2.ToolCallLocation(path="/x", line=1)], name="read")
        await call.append("one")
        terminal = await session.terminal("ls", terminal_id="x")
        await call.show(terminal)
        await terminal.write("out\n")
        await terminal.write(b"\xff")
        await terminal.exit(0)
        await call.update(raw_output=[1], content=["instead"])
    await session.plan(["first", v2.PlanEntry(content="second", priority="high", status="completed")])
    await session.usage(10, 100, cost=v2.Cost(amount=0.5, currency="EUR"))
    await session.set_title("A title")
    await session.set_commands([v2.Command(name="help", description="Helps")])
    await session.set_config_options([v2.SessionConfigBoolean(config_id="loud", name="Loud", current_value=True)])
    await session.notice("Disk nearly full", severity="warning", description="Really")
    await session.update(v2.AgentMessage(message_id="n", content=[v2.TextContent(text="whole")]))


def test_everything_an_agent_can_say_is_said_in_order_and_valid() -> None:
    lines = run(turn(everything))
    check(lines, 2)
    assert story(lines) == [
        "p: ok",
        "user_message go",
        "running",
        "agent_thought_chunk hm",
        "agent_message_chunk Hel",
        "agent_message_chunk lo",
        "agent_message Hello|!",
        "agent_message_chunk ?",
        "agent_message (nothing)",
        "tool_call_update in_progress Read",
        "tool_call_update",
        "tool_call_content_chunk one",
        "terminal_update",
        "tool_call_content_chunk terminal",
        "terminal_output_chunk",
        "terminal_output_chunk",
        "terminal_update",
        "tool_call_update instead",
        "tool_call_update completed",
        "plan_update",
        "usage_update",
        "session_info_update A title",
        "available_commands_update",
        "config_option_update",
        "notice Disk nearly full",
        "agent_message whole",
        "idle end_turn",
    ]
    state = folded(lines)
    assert [message.text for message in state.messages] == ["go", "hm", "", "whole"]
    assert state.terminals[0].output == b"out\n\xff"
    assert (state.terminals[0].command, state.terminals[0].cwd) == ("ls", CWD)
    assert [entry.content for entry in state.plans[0].entries] == ["first", "second"]
    assert state.usage is not None
    assert state.usage.used == 10
    assert state.session_info.title == "A title"


def test_everything_an_agent_can_say_is_valid_for_a_version_1_client() -> None:
    lines = run(turn(everything, 1))
    check(lines, 1)
    assert story(lines)[-1] == "p: end_turn"
    kinds = {update["sessionUpdate"] for update in updates_of(lines)}
    assert kinds == {
        "agent_thought_chunk",
        "agent_message_chunk",
        "tool_call",
        "tool_call_update",
        "plan",
        "usage_update",
        "session_info_update",
        "available_commands_update",
        "config_option_update",
    }


# Tool calls end


@pytest.mark.parametrize("said", [None, "completed", "failed", "cancelled", "_acme/skipped", "paused"])
def test_a_tool_call_has_ended_after_its_block_as_it_was_said_or_as_completed(said: str | None) -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        async with session.tool_call("T") as call:
            if said is not None:
                await call.update(status=said)

    statuses = [update["status"] for update in updates_of(run(turn(handler))) if "status" in update]
    if said is None:
        assert statuses == ["in_progress", "completed"]
    elif said == "paused":
        assert statuses == ["in_progress", "paused", "completed"]
    else:
        assert statuses == ["in_progress", said]


def test_a_tool_call_that_raised_has_failed() -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        with pytest.raises(ValueError, match="no"):
            async with session.tool_call("T"):
                raise ValueError("no")

    assert "tool_call_update failed" in story(run(turn(handler)))


def test_a_tool_call_that_was_cancelled_says_so_before_the_turn_ends() -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        async with session.tool_call("T"):
            await asyncio.Event().wait()

    async def main() -> list[Json]:
        async with served(agent(handler)) as talk:
            session_id = await talk.new_session()
            talk.prompt(session_id, "go")
            await talk.updated("tool_call_update")
            talk.notify("session/cancel", {"sessionId": session_id})
            start = talk.position
            await talk.idle()
            return talk.heard(start)

    assert story(run(main())) == ["tool_call_update cancelled", "idle cancelled"]


def test_a_string_is_one_piece_of_content_wherever_content_is_given() -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        await session.message("m").replace("whole")
        async with session.tool_call("T", tool_call_id="c", content="first") as call:
            await call.update(content="whole")

    state = folded(run(turn(handler)))
    assert state.messages[1].to_json()["content"] == [{"type": "text", "text": "whole"}]
    assert state.tool_calls[0].to_json()["content"] == [
        {"type": "content", "content": {"type": "text", "text": "whole"}}
    ]


# What is sent reads alike under every revision

metas = st.one_of(
    st.none(), st.dictionaries(st.sampled_from("abc"), st.sampled_from([1, None, "x", {}, {"k": None}]), max_size=3)
)


@pytest.mark.rule("R-1")
@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.sampled_from(["message", "thought", "user", "replace", "tool", "tool_first"]), metas), max_size=6
    ),
    metas,
)
def test_meta_is_the_same_under_every_revision(steps: list[tuple[str, Json]], first: Json) -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        for target, meta in steps:
            match target:
                case "message":
                    await session.message("m").set_meta(meta)
                case "thought":
                    await session.thought("t").set_meta(meta)
                case "user":
                    await session.user_message(prompt.message_id).set_meta(meta)
                case "replace":
                    await session.message("m").replace("x", meta=meta)
                case "tool":
                    await ToolCallHandle(session, "c", {}).update(meta=meta)
                case "tool_first":
                    async with session.tool_call("T", tool_call_id="c", meta=meta):
                        pass

    async def main() -> list[Json]:
        async with served(agent(handler)) as talk:
            session_id = await talk.new_session()
            talk.prompt(session_id, "go", **({} if first is None else {"_meta": first}))
            await talk.idle()
            return talk.lines

    lines = run(main())
    older, newer = folded(lines, revision=Revision.RFD), folded(lines, revision=Revision.PREVIEW)
    assert older.to_json() == newer.to_json()
    for target, held in (("message", older.message("agent_message", "m")), ("tool", older.tool_call("c"))):
        said = [meta for one, meta in steps if one == target]
        if [one for one, _ in steps if one in (target, "replace", "tool_first")] == [target] and said[0]:
            assert held is not None
            meant = {key: value for key, value in said[0].items() if value is not None}
            assert (held.meta or {}) == meant, "what can be said is what was meant"


@pytest.mark.rule("R-1")
def test_a_key_of_meta_can_be_taken_away_under_every_revision() -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        await session.message("m").set_meta({"a": 1, "b": 2})
        await session.message("m").set_meta({"b": 3})
        await session.message("n").replace("x", meta={"a": 1})
        await session.message("n").replace("y", meta={"b": 1})
        call = session.tool_call("T", tool_call_id="c")
        await call.update(meta={"a": 1, "b": 2})
        await call.update(meta={"b": 2})

    lines = run(turn(handler))
    for revision in Revision:
        state = folded(lines, revision=revision)
        assert [message.meta for message in state.messages[1:]] == [{"b": 3}, {"b": 1}]
        assert [call.meta for call in state.tool_calls] == [{"b": 2}]


# What is taken back is gone (J-3)


async def clear_message(session: Session, prompt: Prompt) -> None:
    message = session.message()
    await message.append(SECRET)
    await message.append("and so on")
    await message.clear()


async def replace_message(session: Session, prompt: Prompt) -> None:
    message = session.message()
    await message.append(SECRET)
    await message.replace("nothing")


async def replace_thought(session: Session, prompt: Prompt) -> None:
    thought = session.thought()
    await thought.replace(["a", SECRET])
    await thought.replace(["b"], meta={"k": 1})


async def clear_prompt(session: Session, prompt: Prompt) -> None:
    await session.user_message(prompt.message_id).clear()


async def replace_prompt(session: Session, prompt: Prompt) -> None:
    await session.user_message(prompt.message_id).replace("[removed]")


async def clear_terminal(session: Session, prompt: Prompt) -> None:
    terminal = await session.terminal("x")
    await terminal.write(SECRET)
    await terminal.clear()


async def clear_tool_call(session: Session, prompt: Prompt) -> None:
    call = session.tool_call("T")
    await call.update(raw_input={"key": SECRET})
    await call.append(SECRET)
    await call.update(raw_output=SECRET)
    await call.update(raw_input=None, raw_output=None, content=None)


async def replace_tool_call(session: Session, prompt: Prompt) -> None:
    call = session.tool_call("T")
    await call.update(title="T", content=SECRET, raw_output={"key": SECRET})
    await call.update(content=[], raw_output={"key": "none"})


@pytest.mark.rule("J-3")
@pytest.mark.parametrize(
    "taking_back",
    [
        clear_message,
        replace_message,
        replace_thought,
        clear_prompt,
        replace_prompt,
        clear_terminal,
        clear_tool_call,
        replace_tool_call,
    ],
)
def test_what_is_taken_back_is_in_no_file_when_the_call_returns(taking_back: Handler, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    encoded = base64.b64encode(SECRET.encode()).decode()
    left: list[list[str]] = []

    async def handler(session: Session, prompt: Prompt) -> None:
        if taking_back not in (clear_prompt, replace_prompt):
            await session.user_message(prompt.message_id).replace("[removed]")
        await taking_back(session, prompt)
        left.append([name for word in (SECRET, encoded) for name in await asyncio.to_thread(found, path, word)])

    lines = run(turn(handler, 2, SECRET, journal=path))
    assert story(lines)[-1] == "idle end_turn"
    assert left == [[]]
    with SQLiteJournal(path) as journal:
        assert journal.verify().faults == ()
        (info,) = journal.sessions()
        held = folded(lines)
        for update in journal.load(info.session).transcript.other:
            held.apply(update)
        stored = journal.load(info.session).transcript.to_json()
    assert {**stored, "sessionId": None} == held.to_json()


@pytest.mark.rule("J-3")
def test_the_search_does_find_what_is_not_taken_back(tmp_path: Path) -> None:
    run(turn(echo, 2, SECRET, journal=tmp_path / "journal.db"))
    assert found(tmp_path / "journal.db", SECRET)


# Permissions


async def permission(
    answer: Callable[[Talk, Json], object], *, version: int = 2, **options: Any
) -> tuple[list[str], list[Any]]:
    """Ask for a permission, let the client answer, and give the story and what the agent made of the answer."""
    got: list[Any] = []

    async def handler(session: Session, prompt: Prompt) -> None:
        got.append(await session.request_permission("May I?", **options))

    async with served(agent(handler), version) as talk:
        session_id = await talk.new_session()
        start = talk.position
        talk.prompt(session_id, "go", id="p")
        asked = await talk.asked("session/request_permission")
        answer(talk, asked)
        await (talk.idle() if version == 2 else talk.answered("p"))
        check(talk.lines, 2 if version == 2 else 1)
        return story(talk.heard(start)), got


def selecting(option_id: Json) -> Callable[[Talk, Json], None]:
    return lambda talk, asked: talk.respond(asked["id"], {"outcome": {"outcome": "selected", "optionId": option_id}})


@pytest.mark.parametrize("version", [1, 2])
def test_the_session_requires_action_while_the_user_is_asked(version: int) -> None:
    lines, got = run(permission(selecting("allow"), version=version))
    if version == 2:
        assert lines == [
            "p: ok",
            "user_message go",
            "running",
            "requires_action",
            "session/request_permission",
            "running",
            "idle end_turn",
        ]
    else:
        assert lines == ["session/request_permission", "p: end_turn"]
    assert [(option.option_id, option.kind) for option in got] == [("allow", "allow_once")]


OUTCOMES: list[Json] = [
    {"outcome": {"outcome": "cancelled"}},
    {"outcome": {"outcome": "cancelled", "optionId": "allow"}},
    {"outcome": {"outcome": "approved", "optionId": "allow"}},
    {"outcome": {"outcome": "_acme/maybe", "optionId": "allow"}},
    {"outcome": {"outcome": "selected", "optionId": "always"}},
    {"outcome": {"outcome": "selected", "optionId": "Allow"}},
    {"outcome": {"outcome": "selected", "optionId": None}},
    {"outcome": {"outcome": "selected", "optionId": ["allow"]}},
    {"outcome": {"outcome": "selected"}},
    {"outcome": {"outcome": ["selected"], "optionId": "allow"}},
    {"outcome": {"optionId": "allow"}},
    {"outcome": "selected", "optionId": "allow"},
    {"outcome": "allow"},
    {"outcome": None},
    {"outcome": []},
    {"optionId": "allow"},
    {},
    [],
    None,
    "allow",
    True,
]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_that_is_no_choice_of_an_offered_option_is_never_approval(outcome: Json, version: int) -> None:
    lines, got = run(permission(lambda talk, asked: talk.respond(asked["id"], outcome), version=version))
    assert got == [None]
    assert lines[-1] == ("idle end_turn" if version == 2 else "p: end_turn")


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("code", [-32601, -32800, -32603, 1])
def test_an_error_is_never_approval(code: int, version: int) -> None:
    _, got = run(permission(lambda talk, asked: talk.fail(asked["id"], code, "allow"), version=version))
    assert got == [None]


def test_an_option_of_ones_own_is_chosen_by_its_id() -> None:
    options = [
        v2.PermissionOption(option_id="1", name="Yes", kind="allow_always"),
        v2.PermissionOption(option_id="2", name="No", kind="reject_once"),
    ]
    _, got = run(permission(selecting("2"), options=options))
    assert got == [options[1]]


@pytest.mark.parametrize("version", [1, 2])
def test_a_client_that_is_gone_approves_of_nothing(version: int) -> None:
    got: list[Any] = []
    done = asyncio.Event

    async def main() -> list[Any]:
        ended = done()

        async def handler(session: Session, prompt: Prompt) -> None:
            got.append(await session.request_permission("May I?"))
            got.append(await session.request_permission("May I now?"))
            ended.set()

        async with agent(handler) as one:
            async with served(one, version) as talk:
                talk.prompt(await talk.new_session(), "go")
                await talk.asked("session/request_permission")
            await ended.wait()
        return got

    assert run(main()) == [None, None]


def test_nobody_is_asked_where_nobody_listens() -> None:
    got: list[Any] = []

    async def main() -> None:
        class Eager(Agent):
            async def new_session(self, session: Session) -> None:
                got.append(await session.request_permission("May I?"))

        async with served(Eager()) as talk:
            await talk.new_session()

    run(main())
    assert got == [None]


def test_several_permissions_are_one_time_of_requiring_action() -> None:
    async def handler(session: Session, prompt: Prompt) -> str:
        chosen = await asyncio.gather(*(session.request_permission(title) for title in ("a", "b", "c")))
        return "_" + "".join(option.option_id[0] if option else "-" for option in chosen)

    async def main() -> list[str]:
        async with served(agent(handler)) as talk:
            session_id = await talk.new_session()
            start = talk.position
            talk.prompt(session_id, "go", id="p")
            asked = [await talk.asked("session/request_permission") for _ in range(3)]
            selecting("reject")(talk, asked[2])
            await others_run()
            talk.fail(asked[1]["id"], -32601)
            await others_run()
            selecting("allow")(talk, asked[0])
            await talk.idle()
            return story(talk.heard(start))

    assert run(main()) == [
        "p: ok",
        "user_message go",
        "running",
        "requires_action",
        *["session/request_permission"] * 3,
        "running",
        "idle _a-r",
    ]


def test_a_tool_call_that_permission_is_asked_for_is_part_of_the_state_and_of_the_journal(tmp_path: Path) -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        call = session.tool_call("Delete", kind="delete", tool_call_id="c")
        update = v2.ToolCallUpdate(tool_call_id="c", title="Delete", kind="delete", status="pending")
        allowed = await session.request_permission("Delete it?", description="All of it", subject=update)
        assert allowed is not None
        async with call:
            assert session.state.tool_calls[0].kind == "delete"
            assert await session.request_permission("Really?", subject=call) is None
        subject = v2.CommandPermissionSubject(command="rm", cwd="/", tool_call_id="c")
        assert await session.request_permission("Run it?", subject=subject) is not None

    async def main() -> tuple[list[Json], str]:
        async with served(agent(handler, journal=tmp_path / "j")) as talk:
            session_id = await talk.new_session()
            talk.prompt(session_id, "go", id="p")
            asked = []
            for choice in ("allow", "nothing", "allow"):
                asked.append(await talk.asked("session/request_permission"))
                selecting(choice)(talk, asked[-1])
            await talk.idle()
            check(talk.lines, 2)
            return [one["params"] for one in asked], session_id

    (first, second, third), session_id = run(main())
    assert first["description"] == "All of it"
    assert first["subject"] == {
        "type": "tool_call",
        "toolCall": {"toolCallId": "c", "title": "Delete", "kind": "delete", "status": "pending"},
    }
    assert second["subject"]["toolCall"] == {"toolCallId": "c"}
    assert third["subject"] == {"type": "command", "command": "rm", "cwd": "/", "toolCallId": "c"}
    with SQLiteJournal(tmp_path / "j") as journal:
        (call,) = journal.load(session_id).transcript.tool_calls
        assert (call.title, call.status) == ("Delete", "completed")


def test_a_question_that_outlives_its_turn_does_not_make_the_session_run_again() -> None:
    tasks: list[asyncio.Task[Any]] = []

    async def handler(session: Session, prompt: Prompt) -> None:
        if prompt.text == "ask":
            tasks.append(asyncio.create_task(session.request_permission("May I?")))
            await asyncio.sleep(0)

    async def main() -> list[str]:
        async with served(agent(handler)) as talk:
            session_id = await talk.new_session()
            start = talk.position
            talk.prompt(session_id, "ask", id="p")
            asked = await talk.asked("session/request_permission")
            await talk.idle()
            selecting("allow")(talk, asked)
            assert (await tasks[0]).option_id == "allow"
            talk.prompt(session_id, "more", id="q")
            await talk.idle()
            return story(talk.heard(start))

    assert run(main()) == [
        "p: ok",
        "user_message ask",
        "running",
        "requires_action",
        "session/request_permission",
        "idle end_turn",
        "q: ok",
        "user_message more",
        "running",
        "idle end_turn",
    ]


# Cancelling


@pytest.mark.parametrize("version", [1, 2])
def test_a_cancelled_turn_may_still_say_something_and_then_is_idle(version: int) -> None:
    async def handler(session: Session, prompt: Prompt) -> str:
        await session.message("m").append("working")
        try:
            await asyncio.Event().wait()
        finally:
            await session.message("m").append("stopping")
            await session.message("n").append("stopped")
        return "end_turn"

    async def main() -> list[str]:
        async with served(agent(handler), version) as talk:
            session_id = await talk.new_session()
            talk.prompt(session_id, "go", id="p")
            await talk.updated("agent_message_chunk")
            start = talk.position
            talk.notify("session/cancel", {"sessionId": session_id})
            await (talk.idle() if version == 2 else talk.answered("p"))
            return story(talk.heard(start))

    last = "idle cancelled" if version == 2 else "p: cancelled"
    assert run(main()) == ["agent_message_chunk stopping", "agent_message_chunk stopped", last]


def test_a_handler_sees_a_cancellation_as_one_of_its_task() -> None:
    seen: list[BaseException] = []

    async def handler(session: Session, prompt: Prompt) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            seen.append(error)
            if prompt.text == "raise":
                raise RuntimeError("while stopping") from None
            return "end_turn"  # whatever it says now
        return "end_turn"

    async def main() -> None:
        async with served(agent(handler)) as talk:
            session_id = await talk.new_session()
            for words in ("swallow", "raise"):
                talk.prompt(session_id, words)
                await talk.updated("state_update", state="running")
                talk.notify("session/cancel", {"sessionId": session_id})
                idle = await talk.idle()
                assert (idle["stopReason"], "error" in idle) == ("cancelled", False)

    run(main())
    assert len(seen) == 2


@pytest.mark.parametrize("version", [1, 2])
def test_cancelling_withdraws_what_the_user_is_asked(version: int) -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        await asyncio.gather(session.request_permission("a"), session.request_permission("b"))

    async def main() -> tuple[list[str], set[Any], set[Any]]:
        async with served(agent(handler), version) as talk:
            session_id = await talk.new_session()
            talk.prompt(session_id, "go", id="p")
            asked = [await talk.asked("session/request_permission") for _ in range(2)]
            start = talk.position
            talk.notify("session/cancel", {"sessionId": session_id})
            await (talk.idle() if version == 2 else talk.answered("p"))
            heard = talk.heard(start)
            for one in asked:  # too late, and ignored
                selecting("allow")(talk, one)
            talk.prompt(session_id, "again", id="q")
            again = await talk.asked("session/request_permission")
            talk.notify("session/cancel", {"sessionId": session_id})
            await (talk.idle() if version == 2 else talk.answered("q"))
            assert again["id"] not in [one["id"] for one in asked]
            withdrawn = {line["params"]["requestId"] for line in heard if line.get("method") == "$/cancel_request"}
            return story(heard), {one["id"] for one in asked}, withdrawn

    lines, asked, withdrawn = run(main())
    assert lines == ["$/cancel_request"] * 2 + ["idle cancelled" if version == 2 else "p: cancelled"]
    assert withdrawn == asked


def test_cancelling_withdraws_also_what_a_task_of_its_own_asks() -> None:
    got: list[Any] = []

    async def main() -> list[str]:
        async def handler(session: Session, prompt: Prompt) -> None:
            task = asyncio.create_task(session.request_permission("May I?"))
            try:
                await asyncio.Event().wait()
            finally:
                got.append(await task)

        async with served(agent(handler)) as talk:
            session_id = await talk.new_session()
            talk.prompt(session_id, "go")
            await talk.asked("session/request_permission")
            start = talk.position
            talk.notify("session/cancel", {"sessionId": session_id})
            await talk.idle()
            return story(talk.heard(start))

    assert run(main()) == ["$/cancel_request", "idle cancelled"]
    assert got == [None]


@pytest.mark.parametrize("version", [1, 2])
def test_cancelling_refuses_the_prompts_that_wait(version: int) -> None:
    async def main() -> list[str]:
        gate = Gate()

        async def handler(session: Session, prompt: Prompt) -> None:
            await gate()

        async with served(agent(handler), version) as talk:
            session_id = await talk.new_session()
            for id in ("p", "q", "r"):
                talk.prompt(session_id, id, id=id)
            await gate.reached.wait()
            start = len(talk.lines)
            talk.notify("session/cancel", {"sessionId": session_id})
            gate.reached.clear()
            await (talk.idle() if version == 2 else talk.answered("p"))
            talk.prompt(session_id, "s", id="s")
            await gate.reached.wait()
            gate.open.set()
            await (talk.idle() if version == 2 else talk.answered("s"))
            return [one for one in story(talk.heard(start)) if ": " in one or one.startswith(("idle", "user"))]

    if version == 2:
        answered = ["p: ok", "user_message p", "q: error -32800", "r: error -32800", "idle cancelled"]
        assert run(main()) == [*answered, "s: ok", "user_message s", "idle end_turn"]
    else:
        assert run(main()) == ["q: cancelled", "r: cancelled", "p: cancelled", "s: end_turn"]


@pytest.mark.parametrize("version", [1, 2])
def test_cancelling_when_nothing_runs_does_nothing(version: int) -> None:
    async def main() -> list[str]:
        async with served(agent(), version) as talk:
            session_id = await talk.new_session()
            start = talk.position
            talk.notify("session/cancel", {"sessionId": session_id})
            talk.notify("session/cancel", {"sessionId": "nobody"})
            talk.notify("session/cancel", {"sessionId": 7})
            talk.notify("session/cancel", {})
            talk.prompt(session_id, "go", id="p")
            await (talk.idle() if version == 2 else talk.answered("p"))
            return story(talk.heard(start))

    assert run(main())[-1] == ("idle end_turn" if version == 2 else "p: end_turn")


def test_a_prompt_that_is_cancelled_before_it_is_inserted_never_was() -> None:
    async def main() -> list[str]:
        async with served(agent()) as talk:
            session_id = await talk.new_session()
            start = talk.position
            talk.prompt(session_id, "p", id="p")
            talk.notify("session/cancel", {"sessionId": session_id})  # both are read before any task runs
            talk.prompt(session_id, "q", id="q")
            await talk.idle()
            return story(talk.heard(start))

    assert run(main()) == [
        "p: error -32800",
        "q: ok",
        "user_message q",
        "running",
        "agent_message_chunk q",
        "idle end_turn",
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_cancelling_refuses_also_a_prompt_behind_another_request(version: int) -> None:
    async def main() -> list[str]:
        gate = Gate()

        class Slow(Agent):
            async def new_session(self, session: Session) -> None:
                await session.set_config_options([v2.SessionConfigBoolean(config_id="l", name="L", current_value=True)])

            async def set_config_option(self, session: Session, config_id: str, value: str | bool) -> None:
                await gate()

        async with served(Slow(prompt=echo), version) as talk:
            session_id = await talk.new_session()
            params = {"sessionId": session_id, "configId": "l", "type": "boolean", "value": False}
            talk.request("session/set_config_option", params, id="o")
            await gate.reached.wait()
            talk.prompt(session_id, "p", id="p")
            talk.notify("session/cancel", {"sessionId": session_id})
            answer = await talk.answered("p")
            gate.open.set()
            talk.prompt(session_id, "q", id="q")
            await (talk.idle(stopReason="end_turn") if version == 2 else talk.answered("q"))
            return story([answer, *[line for line in talk.lines if line.get("id") == "q"]])

    assert run(main()) == (["p: error -32800", "q: ok"] if version == 2 else ["p: cancelled", "q: end_turn"])


# Failing


@pytest.mark.parametrize("version", [1, 2])
def test_an_exception_ends_the_turn_with_an_error_that_quotes_nothing(
    version: int, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[BaseException] = []

    async def handler(session: Session, prompt: Prompt) -> None:
        try:
            raise KeyError(prompt.text)
        except KeyError as error:
            raise ValueError(f"cannot: {prompt.text}") from error

    class Failing(Agent):
        def failed(self, session: Session, error: BaseException) -> None:
            heard.append(error)
            super().failed(session, error)

    async def main() -> list[Json]:
        async with served(Failing(prompt=handler), version) as talk:
            session_id = await talk.new_session()
            start = talk.position
            talk.prompt(session_id, SECRET, id="p")
            await (talk.idle() if version == 2 else talk.answered("p"))
            return talk.heard(start)

    with caplog.at_level(logging.DEBUG):
        lines = run(main())
    if version == 2:
        last = update_of(lines[-1])
        assert last == {
            "sessionUpdate": "state_update",
            "state": "idle",
            "stopReason": "error",
            "error": {"code": -32603, "message": "Internal error"},
        }
        check(lines, 2)
    else:
        assert story(lines) == ["p: error -32603"]
        assert lines[-1]["error"] == {"code": -32603, "message": "Internal error"}
    assert [str(error) for error in heard] == [f"cannot: {SECRET}"]
    assert "ValueError" in caplog.text
    assert "in handler" in caplog.text, "where it came from"
    assert SECRET not in caplog.text


def test_whatever_a_handler_raises_and_whatever_fails_over_it_the_turn_ends(caplog: pytest.LogCaptureFixture) -> None:
    class Odd(BaseException):
        pass

    class Failing(Agent):
        def failed(self, session: Session, error: BaseException) -> None:
            raise ValueError(SECRET)

    async def handler(session: Session, prompt: Prompt) -> None:
        raise Odd(SECRET)

    async def main() -> None:
        async with served(Failing(prompt=handler)) as talk:
            session_id = await talk.new_session()
            for _ in range(2):
                talk.prompt(session_id, "go")
                assert (await talk.idle())["stopReason"] == "error"

    run(main())
    assert SECRET not in caplog.text


def test_an_error_in_the_authors_own_words_is_the_clients_to_read() -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        raise RequestError(-32042, "Out of paper", {"tray": 2})

    lines = run(turn(handler))
    assert update_of(lines[-1])["error"] == {"code": -32042, "message": "Out of paper", "data": {"tray": 2}}
    check(lines, 2)


@pytest.mark.parametrize("words", ["error", "_error"])
def test_an_author_who_says_error_gets_one(words: str) -> None:
    async def handler(session: Session, prompt: Prompt) -> str:
        return words

    lines = run(turn(handler))
    assert ("error" in update_of(lines[-1])) is (words == "error")
    check(lines, 2)


def test_the_turn_after_a_failed_one_is_like_any_other() -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        if prompt.text == "boom":
            raise RuntimeError("boom")

    async def main() -> list[str]:
        async with served(agent(handler)) as talk:
            session_id = await talk.new_session()
            start = talk.position
            talk.prompt(session_id, "boom", id="p")
            talk.prompt(session_id, "go on", id="q")
            await talk.idle()
            await talk.idle()
            return [one for one in story(talk.heard(start)) if one.startswith("idle")]

    assert run(main()) == ["idle error", "idle end_turn"]


def test_what_cannot_be_folded_or_written_changes_nothing() -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        version = session.state.version
        with pytest.raises(Malformed):
            await session.update(v2.TerminalOutputChunk(terminal_id="x", data="no base64"))
        async with session.tool_call("T", tool_call_id="c") as call:
            held = session.state.to_json()
            with pytest.raises(TypeError):
                await call.update(raw_output=object())
            with pytest.raises(TypeError):
                await call.update(meta={"x": object()})
            assert session.state.to_json() == held
        assert session.state.version == version + 2

    lines = run(turn(handler))
    assert story(lines)[3:] == ["tool_call_update in_progress T", "tool_call_update completed", "idle end_turn"]


def test_an_extension_that_fails_says_nothing_of_what_it_was_told(caplog: pytest.LogCaptureFixture) -> None:
    told = asyncio.Event

    async def main() -> None:
        come = told()

        class Extended(Agent):
            async def extension(self, method: str, params: Any) -> Any:
                if method == "_acme/echo":
                    return {"said": params}
                raise ValueError(f"{method} {params}")

            async def extension_notification(self, method: str, params: Any) -> None:
                come.set()
                raise ValueError(f"{method} {params}")

        async with served(Extended()) as talk:
            assert await talk.ask("_acme/echo", {"a": 1}) == {"said": {"a": 1}}
            assert (await talk.refused("_acme/x", {"key": SECRET}))["code"] == -32603
            talk.notify("_acme/y", {"key": SECRET})
            await come.wait()
            assert (await talk.refused("acme/x", {}))["code"] == -32601

    with caplog.at_level(logging.DEBUG):
        run(main())
    assert caplog.text.count("failed with ValueError") == 2
    assert SECRET not in caplog.text


# Prompts in line


def test_two_prompts_wait_and_are_inserted_when_their_turn_starts() -> None:
    waiting: list[int] = []

    async def main() -> list[str]:
        gate = Gate()

        async def handler(session: Session, prompt: Prompt) -> None:
            waiting.append(session.waiting_prompts)
            if prompt.text == "a":
                await gate()

        async with served(agent(handler)) as talk:
            session_id = await talk.new_session()
            start = talk.position
            for words in "abc":
                talk.prompt(session_id, words, id=words)
            await gate.reached.wait()
            await others_run()
            assert not [line for line in talk.lines if line.get("id") in ("b", "c")]
            gate.open.set()
            for _ in range(3):
                await talk.idle()
            return story(talk.heard(start))

    assert run(main()) == [
        entry for one in "abc" for entry in (f"{one}: ok", f"user_message {one}", "running", "idle end_turn")
    ]
    assert waiting == [2, 1, 0]


@pytest.mark.parametrize("version", [1, 2])
def test_a_prompt_can_be_taken_into_the_turn_that_runs(version: int) -> None:
    async def main() -> list[str]:
        gate = Gate()

        async def handler(session: Session, prompt: Prompt) -> None:
            assert await session.take_prompt() is None
            await gate()
            steered = await session.take_prompt()
            assert steered is not None
            await session.message("m").append(f"{prompt.text} {steered.text}")
            assert session.waiting_prompts == 1

        async with served(agent(handler), version) as talk:
            session_id = await talk.new_session()
            start = talk.position
            talk.prompt(session_id, "a", id="a")
            await gate.reached.wait()
            talk.prompt(session_id, "b", id="b")
            talk.prompt(session_id, "c", id="c")
            await others_run()
            gate.open.set()
            if version == 2:
                await talk.idle()
            else:
                await talk.answered("b")
            lines = story(talk.heard(start))
            talk.notify("session/cancel", {"sessionId": session_id})
            return lines

    if version == 2:
        assert run(main()) == [
            "a: ok",
            "user_message a",
            "running",
            "b: ok",
            "user_message b",
            "agent_message_chunk a b",
            "idle end_turn",
        ]
    else:
        assert run(main()) == ["agent_message_chunk a b", "a: end_turn", "b: end_turn"]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("prompt", "path"),
    [
        ([], "$.params.prompt"),
        ([{"type": "image", "data": "AAAA", "mimeType": "image/png"}], "$.params.prompt[0].type"),
        ([{"type": "text", "text": "a"}, {"type": "audio", "data": "", "mimeType": "a/b"}], "$.params.prompt[1].type"),
        ([{"type": "resource", "resource": {"uri": "file:///x", "text": "x"}}], "$.params.prompt[0].type"),
        ([{"type": "_acme/card", "text": "x"}], "$.params.prompt[0].type"),
        ([{"type": "text"}], "$.params.prompt[0].text"),
        ([{"text": "x"}], "$.params.prompt[0].type"),
        ("go", "$.params.prompt"),
        (None, "$.params.prompt"),
    ],
)
def test_a_prompt_that_the_agent_cannot_take_is_refused(prompt: Json, path: str, version: int) -> None:
    async def main() -> Json:
        async with served(agent(), version) as talk:
            session_id = await talk.new_session()
            start = talk.position
            error = await talk.refused("session/prompt", {"sessionId": session_id, "prompt": prompt})
            assert len(talk.heard(start)) == 1, "nothing was said of it"
            return error

    error = run(main())
    assert (error["code"], error["data"]["path"]) == (-32602, path)


def test_kinds_of_content_that_are_offered_are_taken() -> None:
    class Seeing(Agent):
        prompt_content = ("image", "audio", "embeddedContext")

    blocks: list[Json] = [
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///x", "text": "x"}},
    ]

    async def main() -> Json:
        async with served(Seeing(prompt=echo)) as talk:
            talk.prompt(await talk.new_session(), *blocks)
            return (await talk.updated("user_message"))["content"]

    assert run(main()) == blocks


@pytest.mark.parametrize("version", [1, 2])
def test_a_prompt_for_a_session_that_is_not_there_is_refused(version: int) -> None:
    async def main() -> Json:
        async with served(agent(), version) as talk:
            return await talk.error(talk.prompt("nobody", "go"))

    assert run(main()) == {"code": -32002, "message": "Session not found", "data": {"sessionId": "nobody"}}


@pytest.mark.parametrize("version", [1, 2])
def test_a_prompt_that_waits_can_be_withdrawn(version: int) -> None:
    async def main() -> list[str]:
        gate = Gate()

        async def handler(session: Session, prompt: Prompt) -> None:
            await gate()

        async with served(agent(handler), version) as talk:
            session_id = await talk.new_session()
            start = talk.position
            for id in ("a", "b", "c"):
                talk.prompt(session_id, id, id=id)
            await gate.reached.wait()
            talk.notify("$/cancel_request", {"requestId": "b"})
            talk.notify("$/cancel_request", {"requestId": "nobody"})
            await talk.answered("b")
            if version == 2:
                talk.notify("$/cancel_request", {"requestId": "a"})  # it was answered
            gate.open.set()
            await talk.answered("c")
            return [one for one in story(talk.heard(start)) if ": " in one]

    if version == 2:
        assert run(main()) == ["a: ok", "b: error -32800", "c: ok"]
    else:
        assert run(main()) == ["b: error -32800", "a: end_turn", "c: end_turn"]


# Closing and deleting


@pytest.mark.parametrize("version", [1, 2])
def test_closing_cancels_first_and_is_answered_after_the_last_word(version: int) -> None:
    closed: list[Any] = []

    async def main() -> list[str]:
        gate = Gate()

        class Closing(Agent):
            async def prompt(self, session: Session, prompt: Prompt) -> None:
                try:
                    await gate()
                finally:
                    await session.message("m").append("bye")

            async def close_session(self, session: Session) -> None:
                closed.append(session.state.state and session.state.state.state)

        async with served(Closing(), version) as talk:
            session_id = await talk.new_session()
            talk.prompt(session_id, "go", id="p")
            talk.prompt(session_id, "more", id="q")
            await gate.reached.wait()
            start = len(talk.lines)
            await talk.ask("session/close", {"sessionId": session_id})
            lines = story(talk.heard(start))
            assert (await talk.error(talk.prompt(session_id, "go")))["code"] == -32002
            await talk.ask("session/close", {"sessionId": session_id})
            await talk.ask("session/close", {"sessionId": "nobody"})
            return lines

    lines = run(main())
    if version == 2:
        assert lines[-4:] == ["q: error -32800", "agent_message_chunk bye", "idle cancelled", "3: ok"]
    else:
        assert lines[-4:] == ["q: cancelled", "agent_message_chunk bye", "p: cancelled", "3: ok"]
    assert closed == ["idle"]


def test_a_session_that_is_being_closed_takes_no_prompts_and_is_not_handed_out() -> None:
    async def main() -> None:
        gate = Gate()
        prompts: list[str] = []

        class Slow(Agent):
            async def prompt(self, session: Session, prompt: Prompt) -> None:
                prompts.append(prompt.text)

            async def close_session(self, session: Session) -> None:
                await gate()

        async with served(Slow()) as talk:
            session_id = await talk.new_session()
            talk.request("session/close", {"sessionId": session_id}, id="close")
            await gate.reached.wait()
            talk.prompt(session_id, "late", id="late")
            talk.request("session/resume", {"sessionId": session_id, "cwd": CWD}, id="resume")
            talk.prompt(session_id, "new", id="new")
            await others_run()
            assert not [line for line in talk.lines if line.get("id") in ("close", "late", "resume", "new")]
            gate.open.set()
            await talk.result("close")
            assert (await talk.error("late"))["code"] == -32002
            await talk.result("resume")
            await talk.result("new")
            await talk.idle(stopReason="end_turn")
            assert prompts == ["new"]

    run(main())


def test_requests_of_one_session_keep_their_order_when_one_of_them_is_withdrawn() -> None:
    async def main() -> list[str]:
        gate = Gate()
        seen: list[str] = []

        class Slow(Agent):
            async def close_session(self, session: Session) -> None:
                await gate()
                seen.append("closed")

            async def resume_session(self, session: Session) -> None:
                seen.append("resumed")

        async with served(Slow()) as talk:
            session_id = await talk.new_session()
            params = {"sessionId": session_id, "cwd": CWD}
            talk.request("session/close", params, id="close")
            await gate.reached.wait()
            talk.request("session/resume", params, id="withdrawn")
            talk.request("session/resume", params, id="resume")
            talk.notify("$/cancel_request", {"requestId": "withdrawn"})
            assert (await talk.error("withdrawn"))["code"] == -32800
            await others_run()
            assert seen == []
            gate.open.set()
            await talk.result("resume")
            return list(seen)

    assert run(main()) == ["closed", "resumed"]


def test_a_session_can_be_resumed_while_it_says_much() -> None:
    async def main() -> None:
        stop = asyncio.Event()

        async def handler(session: Session, prompt: Prompt) -> None:
            while not stop.is_set():
                await session.usage(session.state.version, 10**9)

        async with agent(handler) as one, served(one) as talk:
            session_id = await talk.new_session()
            talk.prompt(session_id, "go")
            await talk.updated("usage_update")

            async def listen() -> None:
                await talk.idle()

            listening = asyncio.create_task(listen())
            async with served(one) as other:
                await other.ask("session/resume", {"sessionId": session_id, "cwd": CWD})
                stop.set()
                await listening

    run(main())


def test_a_closed_session_says_nothing_more() -> None:
    async def main() -> None:
        sessions: list[Session] = []

        class Keeping(Agent):
            async def new_session(self, session: Session) -> None:
                sessions.append(session)

        async with served(Keeping()) as talk:
            session_id = await talk.new_session()
            await talk.ask("session/close", {"sessionId": session_id})
            start = talk.position
            with pytest.raises(TwofoldError, match="closed"):
                await sessions[0].message().append("x")
            assert await sessions[0].request_permission("x") is None
            await talk.ask("session/list")
            assert len(talk.heard(start)) == 1

    run(main())


def test_deleting_erases_a_session_and_closes_it_first(tmp_path: Path) -> None:
    path = tmp_path / "j"

    async def main() -> None:
        gate = Gate()

        async def handler(session: Session, prompt: Prompt) -> None:
            await session.message().append(SECRET)
            await gate()

        async with served(agent(handler, journal=path)) as talk:
            kept, gone = await talk.new_session(), await talk.new_session()
            talk.prompt(gone, "go")
            await gate.reached.wait()
            await talk.ask("session/delete", {"sessionId": gone})
            assert "idle cancelled" in story(talk.lines)
            assert await asyncio.to_thread(found, path, SECRET) == []
            assert [one["sessionId"] for one in (await talk.ask("session/list"))["sessions"]] == [kept]
            error = await talk.refused("session/resume", {"sessionId": gone, "cwd": CWD})
            assert (error["code"], error["data"]) == (-32002, {"sessionId": gone})
            await talk.ask("session/delete", {"sessionId": gone})
            await talk.ask("session/delete", {"sessionId": "nobody"})

    run(main())


# Beginning


def test_what_an_agent_prepares_is_in_the_answer_and_right_behind_it() -> None:
    class Prepared(Agent):
        async def new_session(self, session: Session) -> None:
            await session.set_commands([v2.Command(name="help", description="Helps")])
            await session.set_config_options([v2.SessionConfigBoolean(config_id="l", name="L", current_value=True)])
            await session.message("hello").append("Hello")
            await session.set_title("New")

    async def main() -> tuple[Json, Transcript]:
        async with served(Prepared()) as talk:
            answer = await talk.ask("session/new", {"cwd": CWD})
            await talk.idle()
            check(talk.lines, 2)
            schema(2).validator({"$ref": "#/$defs/NewSessionResponse"}).validate(answer)
            return answer, folded(talk.lines)

    answer, state = run(main())
    assert [one["name"] for one in answer["availableCommands"]] == ["help"]
    assert [one["configId"] for one in answer["configOptions"]] == ["l"]
    assert [message.text for message in state.messages] == ["Hello"]
    assert state.session_info.title == "New"
    assert not state.other, "what the runtime notes for itself is not sent"


def test_a_session_that_could_not_be_prepared_was_never_there(tmp_path: Path) -> None:
    class Picky(Agent):
        async def new_session(self, session: Session) -> None:
            if session.cwd != CWD:
                raise Malformed("$.params.cwd", expected="another folder", found="this one")

    async def main() -> list[Json]:
        async with served(Picky(journal=tmp_path / "j")) as talk:
            error = await talk.refused("session/new", {"cwd": CWD + "elsewhere"})
            assert (error["code"], error["data"]["path"]) == (-32602, "$.params.cwd")
            return list((await talk.ask("session/list"))["sessions"])

    assert run(main()) == []


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"cwd": "here"}, "$.params.cwd"),
        ({}, "$.params.cwd"),
        ({"cwd": CWD, "additionalDirectories": [CWD, "x"]}, "$.params.additionalDirectories[1]"),
        ({"cwd": CWD, "mcpServers": [{"type": "stdio", "name": "x", "command": "/x"}]}, "$.params.mcpServers[0].type"),
        ({"cwd": CWD, "mcpServers": [{"name": "x", "command": "/x"}]}, "$.params.mcpServers[0].type"),
        ({"cwd": CWD, "mcpServers": 7}, "$.params.mcpServers"),
    ],
)
def test_a_session_is_not_begun_where_the_agent_cannot(params: Json, path: str) -> None:
    async def main() -> None:
        async with served(agent()) as talk:
            session_id = await talk.new_session()
            for method, more in (("session/new", {}), ("session/resume", {"sessionId": session_id})):
                error = await talk.refused(method, {**params, **more})
                assert (error["code"], error["data"]["path"]) == (-32602, path)

    run(main())


@pytest.mark.rule("J-8")
def test_servers_that_the_client_names_are_the_agents_to_see_and_in_no_file(tmp_path: Path) -> None:
    path = tmp_path / "j"
    seen: list[Any] = []

    class Connected(Agent):
        mcp_transports = ("stdio", "http")

        async def new_session(self, session: Session) -> None:
            seen.append(session.mcp_servers)

        async def resume_session(self, session: Session) -> None:
            seen.append(session.mcp_servers)

    servers: list[Json] = [
        {"type": "stdio", "name": "x", "command": "/x", "env": [{"name": "KEY", "value": SECRET}]},
        {"type": "http", "name": "y", "url": "https://y", "headers": [{"name": "Authorization", "value": SECRET}]},
    ]

    async def main() -> None:
        async with served(Connected(journal=path, prompt=echo)) as talk:
            session_id = await talk.new_session(mcpServers=servers, additionalDirectories=[CWD + "more"])
            talk.prompt(session_id, "go")
            await talk.idle()
            (listed,) = (await talk.ask("session/list"))["sessions"]
            assert listed["additionalDirectories"] == [CWD + "more"]
            await talk.ask("session/close", {"sessionId": session_id})
            await talk.ask("session/resume", {"sessionId": session_id, "cwd": CWD, "mcpServers": servers})
            assert await asyncio.to_thread(found, path, SECRET) == []
            assert await asyncio.to_thread(found, path, "mcpServers") == []

    run(main())
    assert seen == [tuple(servers), tuple(servers)]
    assert found(path, SECRET) == []


# Listing


def test_sessions_are_listed_with_folder_and_title_the_last_heard_of_first() -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        await session.set_title(prompt.text)

    async def main() -> None:
        other = CWD + "other"
        async with served(agent(handler)) as talk:
            first, second = await talk.new_session(), await talk.new_session(cwd=other)
            for session_id, title in ((second, "Two"), (first, "One")):
                talk.prompt(session_id, title)
                await talk.idle()
            await talk.ask("session/close", {"sessionId": second})
            answer = await talk.ask("session/list")
            schema(2).validator({"$ref": "#/$defs/ListSessionsResponse"}).validate(answer)
            listed = [(one["sessionId"], one["cwd"], one["title"]) for one in answer["sessions"]]
            assert listed == [(first, CWD, "One"), (second, other, "Two")]
            assert all(one["updatedAt"].endswith("Z") for one in answer["sessions"])
            for params, found_ in (
                ({"cwd": other}, [second]),
                ({"cwd": CWD}, [first]),
                ({"cwd": CWD + "none"}, []),
                ({"cwd": None, "cursor": None}, [first, second]),
            ):
                answer = await talk.ask("session/list", params)
                assert [one["sessionId"] for one in answer["sessions"]] == found_
            assert (await talk.refused("session/list", {"cwd": "other"}))["data"]["path"] == "$.params.cwd"
            assert (await talk.refused("session/list", {"cursor": "x"}))["data"]["path"] == "$.params.cursor"
            talk.prompt(first, "Uno")
            await talk.idle()
            assert (await talk.ask("session/list"))["sessions"][0]["title"] == "Uno"

    run(main())


@pytest.mark.parametrize("version", [1, 2])
def test_a_long_list_comes_in_pages(version: int) -> None:
    async def main() -> None:
        async with served(agent(), version) as talk:
            ids = [await talk.new_session(cwd=CWD + "odd" * (number % 2)) for number in range(120)]
            for cwd, expected in ((None, ids), (CWD, ids[::2])):
                params: Json = {} if cwd is None else {"cwd": cwd}
                pages: list[list[str]] = []
                while True:
                    answer = await talk.ask("session/list", params)
                    schema(2 if version == 2 else 1).validator({"$ref": "#/$defs/ListSessionsResponse"}).validate(
                        answer
                    )
                    pages.append([one["sessionId"] for one in answer["sessions"]])
                    if "nextCursor" not in answer:
                        break
                    params["cursor"] = answer["nextCursor"]
                assert sorted(one for page in pages for one in page) == sorted(expected)
                assert [len(page) for page in pages] == ([50, 50, 20] if cwd is None else [50, 10])

    run(main())


# Resuming (P-4)

START: Json = {"type": "start"}


@pytest.mark.rule("P-4")
@pytest.mark.parametrize("cursor", ["omitted", None, START])
@pytest.mark.parametrize("how", ["live", "closed", "running"])
def test_the_state_comes_after_the_replay_and_before_the_answer(cursor: Json, how: str) -> None:
    async def main() -> list[str]:
        gate = Gate()

        async def handler(session: Session, prompt: Prompt) -> None:
            await session.message("m").append("Hello")
            if how == "running":
                await gate()

        async with served(agent(handler)) as talk:
            session_id = await talk.new_session()
            talk.prompt(session_id, "go")
            if how == "running":
                await talk.updated("agent_message_chunk")
            else:
                await talk.idle()
            if how == "closed":
                await talk.ask("session/close", {"sessionId": session_id})
            params = {"sessionId": session_id, "cwd": CWD}
            if cursor != "omitted":
                params["replayFrom"] = cursor
            start = talk.position
            talk.request("session/resume", params, id="r")
            await talk.answered("r")
            check(talk.lines, 2)
            lines = story(talk.heard(start))
            gate.open.set()
            if how == "running":
                await talk.idle(stopReason="end_turn")
            return lines

    history = ["user_message go", "agent_message Hello"] if cursor == START else []
    assert run(main()) == [*history, "running" if how == "running" else "idle end_turn", "r: ok"]


@pytest.mark.rule("P-4")
@pytest.mark.parametrize(
    "cursor", [{"type": "position", "id": 3}, {"type": "_acme/x"}, {"type": 7}, {}, "start", 3, []]
)
def test_another_cursor_is_refused_and_nothing_is_replayed(cursor: Json) -> None:
    async def main() -> None:
        async with served(agent()) as talk:
            session_id = await talk.new_session()
            talk.prompt(session_id, "go")
            await talk.idle()
            start = talk.position
            params = {"sessionId": session_id, "cwd": CWD, "replayFrom": cursor}
            assert (await talk.refused("session/resume", params))["code"] == -32602
            assert len(talk.heard(start)) == 1

    run(main())


@pytest.mark.parametrize("version", [1, 2])
def test_a_session_that_is_not_there_is_not_resumed(version: int) -> None:
    async def main() -> None:
        async with served(agent(), version) as talk:
            for method in ("session/resume", "session/load") if version == 1 else ("session/resume",):
                error = await talk.refused(method, {"sessionId": "nobody", "cwd": CWD, "mcpServers": []})
                assert (error["code"], error["data"]) == (-32002, {"sessionId": "nobody"})

    run(main())


def test_what_the_agent_offers_is_in_the_answer_to_resume() -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        await session.set_commands([v2.Command(name=prompt.text, description="x")])

    async def main() -> Json:
        async with served(agent(handler)) as talk:
            session_id = await talk.new_session()
            talk.prompt(session_id, "cmd")
            await talk.idle()
            return await talk.ask("session/resume", {"sessionId": session_id, "cwd": CWD})

    answer = run(main())
    assert [one["name"] for one in answer["availableCommands"]] == ["cmd"]
    schema(2).validator({"$ref": "#/$defs/ResumeSessionResponse"}).validate(answer)


@pytest.mark.rule("P-1", "P-2")
def test_another_agent_object_gives_the_same_session_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "j"

    async def first() -> tuple[str, Transcript]:
        async with served(agent(everything, journal=path)) as talk:
            session_id = await talk.new_session()
            talk.prompt(session_id, "go")
            await talk.idle()
            talk.prompt(session_id, "again")
            await talk.idle()
            return session_id, folded(talk.lines)

    async def second(session_id: str) -> tuple[Transcript, list[str]]:
        async with served(agent(everything, journal=path)) as talk:
            params = {"sessionId": session_id, "cwd": CWD, "replayFrom": START}
            await talk.ask("session/resume", params)
            check(talk.lines, 2)
            state, lines = folded(talk.lines), story(talk.lines)
            talk.prompt(session_id, "and again")
            await talk.idle()
            return state, lines

    session_id, before = run(first())
    after, lines = run(second(session_id))
    assert before.to_json() == after.to_json()
    assert "agent_message Hello|!" not in lines, "what was taken back does not come back"
    assert lines[-2:] == ["idle end_turn", "2: ok"]


@pytest.mark.rule("P-4")
@pytest.mark.parametrize("last", [{"state": "running"}, {"state": "requires_action"}, {"state": "_acme/dreaming"}])
@pytest.mark.parametrize("cursor", [None, START])
def test_a_session_whose_process_ended_in_a_turn_is_idle_when_it_is_resumed(
    last: Json, cursor: Json, tmp_path: Path
) -> None:
    path = tmp_path / "j"
    records: list[Json] = [
        {"sessionUpdate": SETUP, "cwd": CWD},
        {"sessionUpdate": "user_message", "messageId": "u", "content": [{"type": "text", "text": "go"}]},
        {"sessionUpdate": "state_update", "state": "running"},
        {"sessionUpdate": "agent_message_chunk", "messageId": "h", "content": {"type": "text", "text": "half"}},
        {"sessionUpdate": "state_update", **last},
    ]
    with SQLiteJournal(path) as journal:
        journal.append("s", 0, *map(raw, records))

    async def main() -> list[str]:
        async with served(agent(journal=path)) as talk:
            await talk.ask("session/resume", {"sessionId": "s", "cwd": CWD, "replayFrom": cursor})
            lines = story(talk.heard(1))
            talk.prompt("s", "go on", id="p")
            await talk.idle()
            return lines

    history = ["user_message go", "agent_message half"] if cursor else []
    assert run(main()) == [*history, "idle", "2: ok"]
    with SQLiteJournal(path) as journal:
        state = journal.load("s").transcript
        assert [message.text for message in state.messages] == ["go", "half", "go on", "go on"]


def test_a_state_that_an_author_reports_outside_a_turn_is_left_as_it_is() -> None:
    async def main() -> list[str]:
        sessions: list[Session] = []

        class Busy(Agent):
            async def new_session(self, session: Session) -> None:
                sessions.append(session)

        async with Busy() as one, served(one) as talk:
            session_id = await talk.new_session()
            await sessions[0].update(v2.StateUpdate(state="running"))
            async with served(one) as other:
                await other.ask("session/resume", {"sessionId": session_id, "cwd": CWD})
                return story(other.heard(1))

    assert run(main()) == ["running", "2: ok"]


@pytest.mark.rule("P-5")
@pytest.mark.parametrize("version", [1, 2])
def test_live_updates_wait_while_a_replay_is_sent(version: int) -> None:
    count = 60

    async def main() -> tuple[list[str], list[str], list[str]]:
        gate = Gate()
        told: list[str] = []

        async def handler(session: Session, prompt: Prompt) -> None:
            for number in range(count):
                await session.message(f"m{number}").append("x" * 200)
            await gate()
            await session.message("live").append("live")
            told.append("live")
            call = v2.ToolCallUpdate(tool_call_id="c", title="T")
            await asyncio.gather(
                session.message("live").append(" too"), session.request_permission("May I?", subject=call)
            )

        async with agent(handler) as one, served(one) as talk:
            session_id = await talk.new_session()
            talk.prompt(session_id, "go")
            await gate.reached.wait()
            async with served(one, version, limit=1000) as slow:
                method = "session/resume" if version == 2 else "session/load"
                params = {"sessionId": session_id, "cwd": CWD, "mcpServers": [], "replayFrom": START}
                slow.request(method, params, id="r")
                await slow.next()  # and no more: it goes as far as a client that does not read lets it
                await others_run()
                start = talk.position
                gate.open.set()
                await others_run()
                assert told == [], "the author waits"
                await talk.read()
                before = [one for one in story(talk.lines[start:]) if "live" in one]
                await slow.answered("r")
                replayed = story(slow.heard(1))
                await slow.asked("session/request_permission")
                selecting("allow")(talk, await talk.asked("session/request_permission"))
                await talk.idle()
                assert [one for one in story(talk.heard()) if "live" in one] == ["agent_message_chunk live"]
                return before, replayed, story(slow.heard(1 + len(replayed)))

    before, replayed, after = run(main())
    assert before == []
    assert len([one for one in replayed if one.startswith("agent_message")]) == count
    assert replayed[-1] == "r: ok"
    live = [one for one in after if one.startswith("agent_message")]
    assert live == ["agent_message_chunk live", "agent_message_chunk  too"]


@pytest.mark.rule("P-5")
def test_a_client_whose_second_resume_fails_goes_on_hearing_the_session() -> None:
    async def main() -> list[str]:
        gate = Gate()

        async def handler(session: Session, prompt: Prompt) -> None:
            for number in range(20):
                await session.message(f"m{number}").append("x" * 200)
            await gate()
            await session.message("live").append("live")

        async with served(agent(handler), limit=1000) as talk:
            session_id = await talk.new_session()
            talk.prompt(session_id, "go")
            await talk.updated("agent_message_chunk", messageId="m19")
            await gate.reached.wait()
            params = {"sessionId": session_id, "cwd": CWD, "replayFrom": START}
            talk.request("session/resume", params, id="r")
            await talk.updated("agent_message", messageId="m0")
            talk.notify("$/cancel_request", {"requestId": "r"})
            await others_run()
            assert (await talk.error("r"))["code"] == -32800
            start = talk.position
            gate.open.set()
            await talk.idle()
            return story(talk.heard(start))

    assert run(main()) == ["agent_message_chunk live", "idle end_turn"]


# Two clients of one session


@asynccontextmanager
async def both(one: Agent, *versions: int) -> AsyncIterator[list[Talk]]:
    """Serve several clients that have one session, begun by the first; its id is their `session`."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(one)
        talks = [await stack.enter_async_context(served(one, version)) for version in versions]
        session_id = await talks[0].new_session()
        for talk in talks[1:]:
            await talk.ask("session/resume", {"sessionId": session_id, "cwd": CWD, "mcpServers": []})
        yield talks


async def session_of(talk: Talk) -> str:
    return str((await talk.ask("session/list"))["sessions"][0]["sessionId"])


def test_two_clients_of_one_session_see_the_same_and_both_may_prompt() -> None:
    async def main() -> None:
        async with both(agent(), 2, 2) as (one, two):
            session_id = await session_of(one)
            starts = one.position, two.position
            one.prompt(session_id, "first", id="p")
            await one.idle()
            await two.idle()
            two.prompt(session_id, "second", id="p")
            await one.idle()
            await two.idle()
            lines = [one.heard(starts[0]), two.heard(starts[1])]
            heard = [[line for line in each if line.get("method") == "session/update"] for each in lines]
            assert heard[0] == heard[1]
            assert [story(each).count("p: ok") for each in lines] == [1, 1]
            turn = ["user_message {}", "running", "agent_message_chunk {}", "idle end_turn"]
            assert story(heard[0]) == [one.format(words) for words in ("first", "second") for one in turn]

    run(main())


@pytest.mark.parametrize("version", [1, 2])
def test_the_first_answer_to_a_permission_counts_and_the_others_are_withdrawn(version: int) -> None:
    got: list[Any] = []

    async def handler(session: Session, prompt: Prompt) -> None:
        for _ in range(3):
            option = await session.request_permission("May I?")
            got.append(option and option.option_id)

    async def main() -> None:
        async with both(agent(handler), 2, version) as (one, two):
            session_id = await session_of(one)
            one.prompt(session_id, "go")
            asked = [await talk.asked("session/request_permission") for talk in (one, two)]
            selecting("reject")(two, asked[1])
            withdrawn = await one.asked("$/cancel_request")
            assert withdrawn["params"]["requestId"] == asked[0]["id"]
            asked = [await talk.asked("session/request_permission") for talk in (one, two)]
            selecting("allow")(one, asked[0])
            withdrawn = await two.asked("$/cancel_request")
            assert withdrawn["params"]["requestId"] == asked[1]["id"]
            selecting("reject")(two, asked[1])
            asked = [await talk.asked("session/request_permission") for talk in (one, two)]
            two.fail(asked[1]["id"], -32601)  # an error is no answer
            await others_run()
            selecting("allow")(one, asked[0])
            await one.idle()

    run(main())
    assert got == ["reject", "allow", "allow"]


def test_a_client_that_leaves_leaves_the_session_to_the_other() -> None:
    async def main() -> list[str]:
        gate = Gate()

        async def handler(session: Session, prompt: Prompt) -> None:
            await gate()
            await session.message("m").append("still here")

        async with agent(handler) as one, served(one) as talk:
            async with served(one) as leaving:
                session_id = await leaving.new_session()
                await talk.ask("session/resume", {"sessionId": session_id, "cwd": CWD})
                leaving.prompt(session_id, "go")
                await gate.reached.wait()
            gate.open.set()
            start = talk.position
            await talk.idle()
            return story(talk.heard(start))

    assert run(main())[-2:] == ["agent_message_chunk still here", "idle end_turn"]


def test_a_turn_goes_on_for_whoever_takes_the_session_up_while_its_client_drains() -> None:
    async def main() -> list[str]:
        gate = Gate()

        async def handler(session: Session, prompt: Prompt) -> None:
            await gate()
            await session.message("m").append("done")

        one = agent(handler)
        one.drain_timeout = 0.05
        async with one, served(one) as talk:
            half = Half()
            serving = asyncio.create_task(one.serve(half.other))
            leaving = Talk(half)
            await leaving.initialize()
            session_id = await leaving.new_session()
            leaving.prompt(session_id, "go")
            await gate.reached.wait()
            half.end()
            await talk.ask("session/resume", {"sessionId": session_id, "cwd": CWD})
            await serving
            gate.open.set()
            start = talk.position
            await talk.idle()
            return story(talk.heard(start))

    assert run(main()) == ["agent_message_chunk done", "idle end_turn"]


# The end of the client's input


@pytest.mark.parametrize("version", [1, 2])
def test_what_was_accepted_is_answered_after_the_end_of_input(version: int) -> None:
    async def main() -> list[str]:
        gate = Gate()

        async def handler(session: Session, prompt: Prompt) -> None:
            if prompt.text == "a":
                await gate()
            await session.message(prompt.text).append(prompt.text.upper())

        half = Half()
        serving = asyncio.create_task(agent(handler).serve(half.other))
        talk = Talk(half)
        await talk.initialize(version)
        session_id = await talk.new_session()
        start = talk.position
        for words in "ab":
            talk.prompt(session_id, words, id=words)
        talk.request("session/list", id="l")
        half.end()
        await gate.reached.wait()
        gate.open.set()
        await serving
        while await talk.read():
            pass
        return story(talk.lines[start:])

    lines = run(main())
    assert [one for one in lines if one.startswith("agent")] == ["agent_message_chunk A", "agent_message_chunk B"]
    if version == 2:
        assert lines.count("idle end_turn") == 2
        assert {"a: ok", "b: ok", "l: ok"} <= set(lines)
    else:
        assert {"a: end_turn", "b: end_turn", "l: ok"} <= set(lines)


@pytest.mark.parametrize("version", [1, 2])
def test_what_takes_too_long_after_the_end_of_input_is_cancelled_and_says_so(version: int) -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        allowed = await session.request_permission("May I?")
        await session.message("m").append(f"allowed: {allowed}")
        await asyncio.Event().wait()

    async def main() -> list[str]:
        one = agent(handler)
        one.drain_timeout = 0.05
        half = Half()
        serving = asyncio.create_task(one.serve(half.other))
        talk = Talk(half)
        await talk.initialize(version)
        session_id = await talk.new_session()
        talk.prompt(session_id, "a", id="a")
        talk.prompt(session_id, "b", id="b")
        await talk.asked("session/request_permission")
        start = talk.position
        half.end()
        await serving
        while await talk.read():
            pass
        return story(talk.lines[start:])

    lines = run(main())
    if version == 2:
        last = ["running", "agent_message_chunk allowed: None", "b: error -32800", "idle cancelled"]
    else:
        last = ["agent_message_chunk allowed: None", "b: cancelled", "a: cancelled"]
    assert [one for one in lines if one != "$/cancel_request"] == last


# The agent itself


def test_connections_that_come_together_share_one_journal(tmp_path: Path) -> None:
    async def main() -> None:
        one = agent(journal=tmp_path / "j")
        async with AsyncExitStack() as stack:
            talks = await asyncio.gather(*(stack.enter_async_context(served(one)) for _ in range(4)))
            session_id = await talks[0].new_session()
            for talk in talks:
                assert await session_of(talk) == session_id
        assert one._journal is None, "the last one closed it"
        async with served(one) as talk:
            assert await session_of(talk) == session_id

    run(main())


def test_a_journal_that_cannot_be_opened_is_an_error_every_time(tmp_path: Path) -> None:
    async def main() -> None:
        one = agent(journal=tmp_path / "no" / "folder" / "j")
        for _ in range(2):
            with pytest.raises(TwofoldError):
                await one.serve(memory_pair()[0])
        (tmp_path / "no" / "folder").mkdir(parents=True)
        async with served(one) as talk:
            await talk.new_session()
        assert one._journal is None

    run(main())


def test_a_client_that_is_gone_does_not_disturb_the_author() -> None:
    async def main() -> None:
        gate = Gate()
        said: list[str] = []

        async def handler(session: Session, prompt: Prompt) -> None:
            await gate()
            for _ in range(50):
                await session.message("m").append("x" * 1000)
            said.append(session.state.messages[-1].text[:1])

        async with agent(handler) as one:
            async with served(one, limit=1000) as talk:
                talk.prompt(await talk.new_session(), "go")
                await gate.reached.wait()
                gate.open.set()
                await others_run()
            assert said == ["x"]

    run(main())


def test_a_session_outside_a_connection_can_still_write() -> None:
    async def main() -> None:
        sessions: list[Session] = []

        class Keeping(Agent):
            async def new_session(self, session: Session) -> None:
                sessions.append(session)

        async with Keeping() as one:
            async with served(one) as talk:
                session_id = await talk.new_session()
            await sessions[0].message("m").append("nobody listens")
            async with served(one) as talk:
                await talk.ask("session/resume", {"sessionId": session_id, "cwd": CWD, "replayFrom": START})
                assert [message.text for message in folded(talk.lines).messages] == ["nobody listens"]
        with pytest.raises(TwofoldError, match="closed"):
            await sessions[0].message("m").append("the journal is closed")

    run(main())
