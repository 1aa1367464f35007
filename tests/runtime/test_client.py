"""A client: prompts and their turns, watchers, replays, permissions, and v1 agents as if they were v2 agents."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.talk import CWD, V1_AGENT, V2_AGENT, Json, Talk, beside, run, story
from tests.runtime.test_agent_lifecycle import Gate, agent, others_run, schema
from twofold.convert import Loss
from twofold.exceptions import ConnectionLost, RequestError, TwofoldError
from twofold.fold import Change
from twofold.runtime._turns import Turns
from twofold.runtime._watch import LIMIT
from twofold.runtime.agent import Agent, Prompt, Session
from twofold.runtime.client import Client, ClientSession, PermissionRequest, connect
from twofold.wire import v2

# Turns: the first idle after the insertion, whatever is heard of first


def state(name: str, **members: Any) -> v2.StateUpdate:
    return v2.StateUpdate(state=name, **members)


def user(message_id: str) -> v2.UserMessage:
    return v2.UserMessage(message_id=message_id, content=[v2.TextContent(text="go")])


def told(events: list[str]) -> list[str]:
    """Tell a follower of turns of one prompt; give when it was said to end, and by which idle."""
    turns = Turns()
    ends: list[str] = []
    turns.sent("p")
    for number, event in enumerate(events):
        match event:
            case "answer":
                idle = turns.inserted("p", "u")
                if idle is not None:
                    ends.append(f"{idle.stop_reason} at {number}")
            case "message":
                ends += [f"{turns.idle.stop_reason} at {number}" for _ in turns.update(user("u"))]
            case "chunk":
                chunk = v2.UserMessageChunk(message_id="u", content=v2.TextContent(text="go"))
                ends += [f"{turns.idle.stop_reason} at {number}" for _ in turns.update(chunk)]
            case "running":
                ends += [f"{turns.idle.stop_reason} at {number}" for _ in turns.update(state("running"))]
            case _:
                ended = turns.update(state("idle", stop_reason=event))
                ends += [f"{turns.idle.stop_reason} at {number}" for _ in ended]
    return ends


@pytest.mark.parametrize("sight", ["message", "chunk", "none"])
def test_a_turn_ends_at_the_first_idle_after_its_insertion_in_every_order(sight: str) -> None:
    for events in set(itertools.permutations(["answer", sight, "running", "one", "two"])):
        order = [event for event in events if event != "none"]
        answered = order.index("answer")
        inserted = min(answered, order.index(sight)) if sight != "none" else answered
        after = [event for event in order[inserted:] if event in ("one", "two")]
        if not after:
            assert told(order) == [], order
            continue
        heard = max(answered, order.index(after[0]))
        assert told(order) == [f"{after[0]} at {heard}"], order


def test_a_prompt_that_failed_or_was_abandoned_has_no_turn() -> None:
    turns = Turns()
    for prompt in "abc":
        turns.sent(prompt)
    turns.failed("a")
    assert turns.inserted("b", "u") is None
    assert turns.waiting == ["c"]
    before = turns.open
    assert sorted(turns.abandoned()) == ["b", "c"]
    assert (before, turns.open) == (True, False)
    assert turns.inserted("c", "v") is None
    turns.failed("b")
    assert turns.update(state("idle")) == []


STEPS = {
    "a": ["sent", "answer"],
    "b": ["sent", "message", "answer"],
    "c": ["sent", "message", "answer"],
    "d": ["sent", "fail"],
}


def traced(order: list[str]) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Let prompts go on, and an agent run and rest, in some order; give what is heard, and how each turn ends."""
    events: list[tuple[str, str]] = []
    ends: dict[str, str] = {}
    left = {name: list(steps) for name, steps in STEPS.items()}
    inserted: list[str] = []
    for number, name in enumerate(order):
        if name in ("running", "idle"):
            events.append((name, str(number)))
            if name == "idle":
                ends |= dict.fromkeys(inserted, str(number))
                inserted.clear()
        elif left[name]:
            step = left[name].pop(0)
            events.append((step, name))
            if step == "message" or (step == "answer" and "message" not in STEPS[name]):
                inserted.append(name)
    answered = {name for name, steps in left.items() if not steps}
    return events, {name: end for name, end in ends.items() if name in answered}


def follow(events: list[tuple[str, str]]) -> dict[str, str]:
    turns = Turns()
    ends: dict[str, str] = {}
    for event, what in events:
        ended: Any = ()
        match event:
            case "sent":
                turns.sent(what)
            case "fail":
                turns.failed(what)
            case "message":
                ended = turns.update(user(f"u-{what}"))
            case "answer":
                idle = turns.inserted(what, f"u-{what}")
                if idle is not None:
                    ends[what] = str(idle.stop_reason)
            case "running":
                ended = turns.update(state("running"))
            case "idle":
                ended = turns.update(state("idle", stop_reason=what))
            case "resume":
                turns.resumes()
            case "resumed":
                ended = turns.resumed()
        for prompt in ended:
            assert prompt not in ends, "a turn ends once"
            ends[prompt] = str(turns.idle.stop_reason)
    return ends


@settings(max_examples=200)
@given(st.lists(st.sampled_from(["a", "b", "c", "d", "running", "idle"]), max_size=20), st.sets(st.integers(0, 20)))
def test_turns_of_several_prompts_end_by_the_rule_also_where_the_session_is_resumed(
    order: list[str], places: set[int]
) -> None:
    trace, ends = traced(order)
    assert follow(trace) == ends
    events: list[tuple[str, str]] = []
    last = ("idle", "before")
    resuming = False
    for number, event in enumerate([*trace, ("end", "")]):
        if number in places or (event[0] == "end" and resuming):
            events += [last, ("resumed", "")] if resuming else [("resume", "")]  # P-4: a snapshot, then the answer
            resuming = not resuming
        events.append(event)
        if event[0] in ("running", "idle"):
            last = event
    assert follow([*events, ("resumed", "")] if resuming else events) == ends


# What a client says and hears, with an agent of lines


async def opened(client: Client, talk: Talk, session_id: str = "s", **result: Json) -> ClientSession:
    opening = asyncio.create_task(client.new_session(cwd=CWD))
    line = await talk.asked("session/new")
    talk.respond(line["id"], {"sessionId": session_id, **result})
    return await opening


def chunk(talk: Talk, words: str, *, message_id: str = "m", session_id: str = "s") -> None:
    talk.update(
        session_id, sessionUpdate="agent_message_chunk", messageId=message_id, content={"type": "text", "text": words}
    )


def said(talk: Talk, name: str, **members: Json) -> None:
    talk.update("s", sessionUpdate="state_update", state=name, **members)


def texts(session: ClientSession) -> list[str]:
    return [message.text for message in session.state.messages]


async def settled(client: Client, talk: Talk) -> None:
    """Wait until the client has taken everything that was sent to it."""
    asking = asyncio.create_task(client.request("_sync", {}))
    line = await talk.asked("_sync")
    talk.respond(line["id"], {})
    await asking


def kinds(changes: list[Change]) -> list[str]:
    return [f"{change.entity} {change.kind}" for change in changes]


def test_a_turn_gives_its_changes_and_ends_at_its_idle() -> None:
    async def main() -> None:
        async with beside(V2_AGENT) as (client, talk):
            session = await opened(client, talk)
            turn = session.prompt("go")
            asked = await talk.asked("session/prompt")
            assert asked["params"] == {"sessionId": "s", "prompt": [{"type": "text", "text": "go"}]}
            talk.respond(asked["id"], {"messageId": "u"})
            talk.update("s", sessionUpdate="user_message", messageId="u", content=[{"type": "text", "text": "go"}])
            said(talk, "running")
            chunk(talk, "Hel")
            chunk(talk, "lo")
            said(talk, "idle", stopReason="end_turn")
            chunk(talk, "of nobody's turn", message_id="n")
            changes = [change async for change in turn]
            assert kinds(changes) == [
                "message created",
                "state patched",
                "message created",
                "message appended",
                "state patched",
            ]
            assert (turn.message_id, turn.stop_reason, turn.error) == ("u", "end_turn", None)
            assert await turn == "end_turn", "it may be awaited afterwards"
            await settled(client, talk)
            assert texts(session) == ["go", "Hello", "of nobody's turn"]

    run(main())


def test_a_turn_begins_with_the_prompts_insertion() -> None:
    async def main() -> None:
        async with beside(V2_AGENT) as (client, talk):
            session = await opened(client, talk)
            first, second = session.prompt("a"), session.prompt("b")
            asked = [await talk.asked("session/prompt") for _ in range(2)]
            chunk(talk, "before", message_id="x")
            talk.respond(asked[0]["id"], {"messageId": "u"})
            chunk(talk, "first", message_id="m")
            said(talk, "idle", stopReason="refusal")
            talk.respond(asked[1]["id"], {"messageId": "w"})
            chunk(talk, "second", message_id="n")
            said(talk, "idle", stopReason="end_turn")
            heard = [[change.target async for change in turn] for turn in (first, second)]
            names = [[getattr(one, "message_id", "state") for one in each] for each in heard]
            assert names == [["m", "state"], ["n", "state"]]
            assert (first.stop_reason, second.stop_reason) == ("refusal", "end_turn")

    run(main())


def test_a_short_turn_whose_idle_comes_before_the_answer_is_whole() -> None:
    async def main() -> None:
        async with beside(V2_AGENT) as (client, talk):
            session = await opened(client, talk)
            turn = session.prompt("go")
            asked = await talk.asked("session/prompt")
            talk.update("s", sessionUpdate="user_message", messageId="u", content=[{"type": "text", "text": "go"}])
            said(talk, "running")
            chunk(talk, "quick")
            said(talk, "idle", stopReason="max_tokens")
            said(talk, "running")
            said(talk, "idle", stopReason="cancelled")
            talk.respond(asked["id"], {"messageId": "u"})
            changes = [change async for change in turn]
            assert kinds(changes)[:3] == ["message created", "state patched", "message created"]
            assert turn.stop_reason == "max_tokens"

    run(main())


def test_an_older_agent_answers_without_an_id() -> None:
    async def main() -> None:
        async with beside(V2_AGENT) as (client, talk):
            session = await opened(client, talk)
            turn = session.prompt("go")
            talk.respond((await talk.asked("session/prompt"))["id"], {})
            said(talk, "running")
            said(talk, "idle")
            assert await turn is None
            assert turn.message_id is None

    run(main())


def test_an_error_is_part_of_the_turn_and_a_refusal_is_raised() -> None:
    async def main() -> None:
        async with beside(V2_AGENT) as (client, talk):
            session = await opened(client, talk)
            turn = session.prompt("go")
            talk.respond((await talk.asked("session/prompt"))["id"], {"messageId": "u"})
            said(talk, "idle", stopReason="error", error={"code": -32603, "message": "Internal error"})
            assert await turn == "error"
            assert turn.error is not None
            assert turn.error.code == -32603
            refused = session.prompt("go")
            talk.fail((await talk.asked("session/prompt"))["id"], -32602, data={"path": "$.params.prompt"})
            with pytest.raises(RequestError) as raised:
                await refused
            assert (raised.value.code, raised.value.data) == (-32602, {"path": "$.params.prompt"})
            with pytest.raises(RequestError):
                await anext(aiter(refused))
            odd = session.prompt("go")
            talk.respond((await talk.asked("session/prompt"))["id"], {"messageId": 7})
            with pytest.raises(TwofoldError):
                await odd
            cancelled = session.prompt("go")
            talk.fail((await talk.asked("session/prompt"))["id"], -32800)
            assert await cancelled == "cancelled"
            with pytest.raises(ValueError, match="block"):
                session.prompt([])
            assert session.idle

    run(main())


def test_prompts_may_have_any_blocks() -> None:
    async def main() -> Json:
        async with beside(V2_AGENT) as (client, talk):
            session = await opened(client, talk)
            session.prompt(["see ", v2.ResourceLink(uri="file:///x", name="x")])
            return (await talk.asked("session/prompt"))["params"]["prompt"]

    assert run(main()) == [
        {"type": "text", "text": "see "},
        {"type": "resource_link", "uri": "file:///x", "name": "x"},
    ]


def test_the_end_of_the_agent_ends_turns_watchers_and_whoever_asks() -> None:
    async def main() -> None:
        async with beside(V2_AGENT) as (client, talk):
            session = await opened(client, talk)
            turn, watch = session.prompt("go"), session.watch()
            asking = asyncio.create_task(client.list_sessions())
            await talk.asked("session/list")
            await talk.transport.close()
            for waiting in (turn, anext(watch), asking):
                with pytest.raises(ConnectionLost):
                    await waiting
            assert client.lost is not None
            for use in (session.watch, lambda: session.prompt("more")):
                with pytest.raises(ConnectionLost):
                    use()
            with pytest.raises(ConnectionLost):
                await client.new_session(cwd=CWD)

    run(main())


# Watchers


def test_several_watchers_see_each_change_once_in_order() -> None:
    async def main() -> None:
        async with beside(V2_AGENT) as (client, talk):
            session = await opened(client, talk)
            early = session.watch()
            for number in range(10):
                chunk(talk, str(number))
            await settled(client, talk)
            late = session.watch()
            for number in range(10, 20):
                chunk(talk, str(number))
            await settled(client, talk)
            heard = [
                [(await anext(watch)).block.text for _ in range(count)] for watch, count in ((early, 20), (late, 10))
            ]
            assert heard[0] == [str(number) for number in range(20)]
            assert heard[1] == heard[0][10:]
            for watch in (early, late):
                watch.close()
                assert [change async for change in watch] == []

    run(main())


def test_a_dropped_watcher_costs_nothing() -> None:
    async def main() -> None:
        async with beside(V2_AGENT) as (client, talk):
            session = await opened(client, talk)
            watches = [session.watch(), session.prompt("go")]
            feeds = [watch._feed for watch in watches]
            watches.clear()
            gc.collect()
            chunk(talk, "x")
            await settled(client, talk)
            assert [len(feed.changes) for feed in feeds] == [0, 0]
            assert session._feeds == []

    run(main())


def test_a_slow_watcher_slows_the_agent_and_nothing_is_lost() -> None:
    count = 4 * LIMIT

    async def main() -> None:
        async with beside(V2_AGENT, limit=10_000) as (client, talk):
            session = await opened(client, talk)
            watch = session.watch()
            sent: list[int] = []

            async def stream() -> None:
                for number in range(count):
                    chunk(talk, f"{number} ")
                    sent.append(number)
                    await talk.transport.drain()

            streaming = asyncio.create_task(stream())
            await others_run()
            while len(sent) < LIMIT:
                await asyncio.sleep(0)
            for _ in range(1000):
                await asyncio.sleep(0)
            assert len(sent) < 2 * LIMIT, "the agent waits"
            heard = [(await anext(watch)).block.text for _ in range(count)]
            assert heard == [f"{number} " for number in range(count)]
            await streaming

    run(main())


def test_a_thousand_chunks_keep_their_order_with_a_randomly_slow_consumer() -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        for number in range(1000):
            await session.message("m").append(f"{number} ")

    async def main(version: int) -> None:
        chance = random.Random(version)
        async with connect(agent(handler), versions=(version,), outgoing_limit=5000) as client:
            session = await client.new_session(cwd=CWD)
            heard: list[str] = []
            async for change in session.prompt("go"):
                if change.entity == "message" and change.target.type == "agent_message":
                    heard.append(change.block.text)
                    for _ in range(chance.choice([0, 0, 0, 1, 20])):
                        await asyncio.sleep(0)
            assert heard == [f"{number} " for number in range(1000)]

    for version in (1, 2):
        run(main(version))


@pytest.mark.parametrize("what", ["list", "prompt", "resume"])
def test_a_request_inside_the_loop_of_a_watcher_with_much_waiting_does_not_deadlock(what: str) -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        for number in range(2 * LIMIT):
            await session.message(prompt.text).append(f"{number} ")

    async def main() -> None:
        async with connect(agent(handler)) as client:
            session = await client.new_session(cwd=CWD)
            watch = session.watch()
            session.prompt("a")
            count = 0
            async for change in watch:
                count += 1
                if count == 2:
                    while len(watch._feed.changes) <= LIMIT:
                        await asyncio.sleep(0)
                    match what:
                        case "list":
                            assert len(await client.list_sessions()) == 1
                        case "prompt":
                            assert await session.prompt("b") == "end_turn"
                        case _:
                            await client.resume(session.session_id, cwd=CWD)
                if change.entity == "state" and change.target.state == "idle" and session.idle:
                    break
            assert len(session.state.messages[1].content) == 2 * LIMIT

    run(main())


def test_a_turn_that_nobody_iterates_over_holds_up_nobody() -> None:
    async def main() -> None:
        async with beside(V2_AGENT) as (client, talk):
            session = await opened(client, talk)
            kept = session.prompt("go")
            talk.respond((await talk.asked("session/prompt"))["id"], {"messageId": "u"})
            for number in range(3 * LIMIT):
                chunk(talk, f"{number} ")
            said(talk, "idle", stopReason="end_turn")
            await settled(client, talk)
            assert len(session.state.messages[0].content) == 3 * LIMIT
            assert kept.stop_reason == "end_turn"
            changes = [change async for change in kept]
            assert [change.block.text for change in changes[:-1]] == [f"{number} " for number in range(3 * LIMIT)]

    run(main())


def test_whoever_comes_very_late_renders_everything_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twofold.runtime._watch.BEYOND", 100)

    async def main() -> None:
        async with beside(V2_AGENT) as (client, talk):
            session = await opened(client, talk)
            turn = session.prompt("go")
            talk.respond((await talk.asked("session/prompt"))["id"], {"messageId": "u"})
            for number in range(150):
                chunk(talk, f"{number} ")
            said(talk, "idle")
            await settled(client, talk)
            changes = [change async for change in turn]
            assert changes[0].entity == "transcript"
            assert changes[0].target is session.state
            assert len(changes) <= 51

    run(main())


# Sessions


def test_updates_that_come_before_the_answer_that_names_their_session_are_held() -> None:
    faults: list[TwofoldError] = []

    async def main() -> None:
        async with beside(V2_AGENT, on_fault=faults.append) as (client, talk):
            opening = [asyncio.create_task(client.new_session(cwd=CWD)) for _ in range(2)]
            asked = [await talk.asked("session/new") for _ in range(2)]
            chunk(talk, "for t ", session_id="t")
            chunk(talk, "for s ", session_id="s")
            chunk(talk, "for nobody", session_id="x")
            chunk(talk, "more for s", session_id="s")
            commands = [{"type": "command", "name": "help", "description": "Helps"}]
            talk.respond(asked[0]["id"], {"sessionId": "s", "availableCommands": commands})
            chunk(talk, ", and live", session_id="s")
            talk.respond(asked[1]["id"], {"sessionId": "t"})
            one, two = [await each for each in opening]
            await settled(client, talk)
            assert texts(one) == ["for s more for s, and live"]
            assert texts(two) == ["for t "]
            assert [command.name for command in one.state.available_commands if isinstance(command, v2.Command)] == [
                "help"
            ]
            chunk(talk, "for nobody", session_id="x")
            await settled(client, talk)

    run(main())
    assert len(faults) == 2
    assert all('"x"' in str(fault) for fault in faults)


def test_sessions_of_one_connection_are_kept_apart() -> None:
    async def main() -> None:
        async with connect(agent()) as client:
            sessions = [await client.new_session(cwd=CWD) for _ in range(3)]
            turns = [session.prompt(str(number)) for number, session in enumerate(sessions)]
            assert [await turn for turn in turns] == ["end_turn"] * 3
            assert [texts(session) for session in sessions] == [["0", "0"], ["1", "1"], ["2", "2"]]
            await sessions[1].close()
            assert await sessions[2].prompt("more") == "end_turn"
            with pytest.raises(TwofoldError, match="closed"):
                sessions[1].prompt("more")
            with pytest.raises(TwofoldError, match="closed"):
                sessions[1].watch()

    run(main())


def test_what_new_session_says_is_what_was_given() -> None:
    async def main() -> None:
        async with beside(V2_AGENT) as (client, talk):
            opening = asyncio.create_task(
                client.new_session(
                    cwd=CWD,
                    additional_directories=[CWD],
                    mcp_servers=[{"type": "stdio", "name": "x", "command": "/x"}],
                    meta={"k": 1},
                )
            )
            line = await talk.asked("session/new")
            schema(2).validator({"$ref": "#/$defs/NewSessionRequest"}).validate(line["params"])
            assert line["params"] == {
                "cwd": CWD,
                "additionalDirectories": [CWD],
                "mcpServers": [{"type": "stdio", "name": "x", "command": "/x"}],
                "_meta": {"k": 1},
            }
            talk.respond(line["id"], {"sessionId": 7})
            with pytest.raises(TwofoldError):
                await opening
            with pytest.raises(ValueError, match="absolute"):
                await client.new_session(cwd="here")

    run(main())


def test_lists_are_followed_to_their_end_and_no_further() -> None:
    async def main() -> None:
        async with beside(V2_AGENT) as (client, talk):
            listing = asyncio.create_task(client.list_sessions(cwd=CWD))
            for session_id, cursor, following in (("a", None, ""), ("b", "", "x"), ("c", "x", "x")):
                line = await talk.asked("session/list")
                expected = {"cwd": CWD} if cursor is None else {"cwd": CWD, "cursor": cursor}
                assert line["params"] == expected
                session = {"sessionId": session_id, "cwd": CWD}
                talk.respond(line["id"], {"sessions": [session], "nextCursor": following})
            assert [one.session_id for one in await listing] == ["a", "b", "c"]

        async with connect(agent()) as client:
            ids = [(await client.new_session(cwd=CWD)).session_id for _ in range(60)]
            assert sorted(one.session_id for one in await client.list_sessions()) == sorted(ids)

    run(main())


def test_a_session_is_closed_deleted_and_gone_also_where_the_agent_does_not_know_it() -> None:
    async def main() -> None:
        async with beside(V2_AGENT) as (client, talk):
            session = await opened(client, talk)
            turn, watch = session.prompt("go"), session.watch()
            talk.respond((await talk.asked("session/prompt"))["id"], {"messageId": "u"})
            closing = asyncio.create_task(session.close())
            line = await talk.asked("session/close")
            said(talk, "idle", stopReason="cancelled")
            talk.fail(line["id"], -32002)
            await closing
            assert await turn == "cancelled"
            assert kinds([change async for change in watch]) == ["state patched"]
            for code, raised in ((-32002, False), (-32603, True)):
                deleting = asyncio.create_task(client.delete_session("s"))
                talk.fail((await talk.asked("session/delete"))["id"], code)
                if raised:
                    with pytest.raises(RequestError):
                        await deleting
                else:
                    await deleting
            assert client._sessions == {}

    run(main())


def test_options_and_authentication_are_the_agents_to_refuse() -> None:
    done: list[Any] = []

    class Choosing(Agent):
        auth_methods = ({"type": "agent", "methodId": "key", "name": "Key"},)

        async def new_session(self, session: Session) -> None:
            await session.set_config_options(
                [v2.SessionConfigBoolean(config_id="loud", name="Loud", current_value=False)]
            )

        async def set_config_option(self, session: Session, config_id: str, value: str | bool) -> None:
            done.append((config_id, value))

        async def login(self, method_id: str) -> None:
            done.append(method_id)

        async def logout(self) -> None:
            done.append("out")

    async def main() -> None:
        async with connect(Choosing()) as client:
            assert [method["name"] for method in client.auth_methods] == ["Key"]
            assert client.supports("session", "delete")
            assert not client.supports("session", "mcp", "http")
            await client.login("key")
            await client.logout()
            session = await client.new_session(cwd=CWD)
            (option,) = session.state.config_options
            assert isinstance(option, v2.SessionConfigBoolean)
            await session.set_config_option("loud", True)
            (option,) = session.state.config_options
            assert isinstance(option, v2.SessionConfigBoolean)
            assert option.current_value is True
            for config_id, value in (("loud", "yes"), ("quiet", True)):
                with pytest.raises(RequestError) as raised:
                    await session.set_config_option(config_id, value)
                assert raised.value.code == -32602
            with pytest.raises(RequestError):
                await client.login("door")

    run(main())
    assert done == ["key", "out", ("loud", True)]


# Resuming (P-5)


async def resumed(client: Client, talk: Talk, *, replay: bool, session_id: str = "s") -> tuple[Any, Json]:
    resuming = asyncio.create_task(client.resume(session_id, cwd=CWD, replay=replay))
    return resuming, await talk.asked("session/resume")


@pytest.mark.rule("P-5")
def test_a_replay_takes_the_place_of_what_was_held_when_the_answer_comes() -> None:
    async def main() -> None:
        async with beside(V2_AGENT) as (client, talk):
            session = await opened(client, talk)
            chunk(talk, "old ")
            chunk(talk, "gone", message_id="x")
            await settled(client, talk)
            watch = session.watch()
            resuming, line = await resumed(client, talk, replay=True)
            assert line["params"] == {"sessionId": "s", "cwd": CWD, "replayFrom": {"type": "start"}}
            chunk(talk, "old ")
            chunk(talk, "and new")
            await settled(client, talk)
            assert texts(session) == ["old ", "gone"], "not yet"
            said(talk, "idle")
            options = [{"type": "boolean", "configId": "l", "name": "L", "currentValue": True}]
            talk.respond(line["id"], {"configOptions": options})
            assert await resuming is session
            assert texts(session) == ["old and new"]
            assert len(session.state.config_options) == 1
            assert kinds([await anext(watch), await anext(watch)]) == ["transcript replaced", "config_options patched"]
            chunk(talk, ", and live")
            await settled(client, talk)
            assert texts(session) == ["old and new, and live"]

    run(main())


@pytest.mark.rule("P-5")
@pytest.mark.parametrize("how", ["error", "malformed"])
def test_a_failed_resume_keeps_what_was_held(how: str) -> None:
    async def main() -> None:
        async with beside(V2_AGENT) as (client, talk):
            session = await opened(client, talk)
            chunk(talk, "old")
            resuming, line = await resumed(client, talk, replay=True)
            chunk(talk, "other", message_id="x")
            if how == "error":
                talk.fail(line["id"], -32002, data={"sessionId": "s"})
            else:
                talk.respond(line["id"], {"configOptions": 7})
            with pytest.raises(TwofoldError):
                await resuming
            assert texts(session) == ["old"]
            chunk(talk, " and live")
            await settled(client, talk)
            assert texts(session) == ["old and live"]
            resuming, line = await resumed(client, talk, replay=False, session_id="unknown")
            talk.fail(line["id"], -32002)
            with pytest.raises(RequestError):
                await resuming
            assert list(client._sessions) == ["s"]

    run(main())


@pytest.mark.rule("P-5")
def test_a_resume_that_is_given_up_is_over_when_it_is_answered() -> None:
    async def main() -> None:
        async with beside(V2_AGENT) as (client, talk):
            session = await opened(client, talk)
            chunk(talk, "old")
            resuming, line = await resumed(client, talk, replay=True)
            resuming.cancel()
            withdrawn = await talk.asked("$/cancel_request")
            assert withdrawn["params"] == {"requestId": line["id"]}
            with pytest.raises(asyncio.CancelledError):
                await resuming
            chunk(talk, "new")
            said(talk, "idle")
            talk.respond(line["id"], {})  # it was too late
            await settled(client, talk)
            assert texts(session) == ["new"]
            turn = session.prompt("go")
            talk.respond((await talk.asked("session/prompt"))["id"], {"messageId": "u"})
            said(talk, "running")
            said(talk, "idle", stopReason="refusal")
            assert await turn == "refusal"

    run(main())


def test_the_snapshot_of_a_resume_ends_no_turn_and_an_idle_before_it_does() -> None:
    async def main() -> None:
        async with beside(V2_AGENT) as (client, talk):
            session = await opened(client, talk)
            turn = session.prompt("go")
            asked = await talk.asked("session/prompt")
            resuming, line = await resumed(client, talk, replay=True)
            talk.respond(asked["id"], {"messageId": "u"})
            said(talk, "idle", stopReason="end_turn")  # as before: the prompt has not begun
            talk.respond(line["id"], {})
            await resuming
            assert turn.stop_reason is None
            said(talk, "running")
            resuming, line = await resumed(client, talk, replay=False)
            said(talk, "idle", stopReason="refusal")
            said(talk, "idle")
            talk.respond(line["id"], {})
            await resuming
            assert await turn == "refusal"

    run(main())


def test_two_resumes_of_one_session_do_not_take_it_from_one_another() -> None:
    async def main() -> None:
        async with beside(V2_AGENT) as (client, talk):
            first, one = await resumed(client, talk, replay=False)
            second, two = await resumed(client, talk, replay=False)
            talk.fail(one["id"], -32603)
            with pytest.raises(RequestError):
                await first
            talk.respond(two["id"], {})
            session = await second
            chunk(talk, "heard")
            await settled(client, talk)
            assert texts(session) == ["heard"]
            replaying, line = await resumed(client, talk, replay=True)
            with pytest.raises(TwofoldError, match="already"):
                await client.resume("s", cwd=CWD)
            talk.respond(line["id"], {})
            assert await replaying is session

    run(main())


@pytest.mark.parametrize("version", [1, 2])
def test_a_session_is_the_same_after_a_replay(version: int) -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        async with session.message("m") as message:
            await message.append("wrong")
            if version == 2:
                await message.replace("right")
        async with session.tool_call("T", tool_call_id="c", kind="read") as call:
            await call.append("found")
        await session.plan(["one", "two"])
        await session.set_title("Title")

    async def main() -> None:
        async with connect(agent(handler), versions=(version,)) as client:
            session = await client.new_session(cwd=CWD)
            assert await session.prompt("go") == "end_turn"
            before = session.state.to_json()
            again = await client.resume(session.session_id, cwd=CWD, replay=True)
            assert again is session
            after = session.state.to_json()
            for one in (before, after):
                del one["state"]
                if version == 1:  # the prompt is its client's own, and then it is the agent's
                    del one["messages"][0]
            assert before == after
            watch = session.watch()
            await client.resume(session.session_id, cwd=CWD)
            watch.close()
            later = session.state.to_json()
            del later["state"]
            if version == 1:
                del later["messages"][0]
            assert later == after

    run(main())


# Permissions


PERMISSION: Json = {
    "sessionId": "s",
    "title": "May I?",
    "description": "Please",
    "subject": {"type": "tool_call", "toolCall": {"toolCallId": "c", "title": "Delete"}},
    "options": [
        {"optionId": "y", "name": "Yes", "kind": "allow_once"},
        {"optionId": "n", "name": "No", "kind": "reject_once"},
    ],
}


@pytest.mark.parametrize(
    ("choice", "outcome"),
    [
        ("y", {"outcome": "selected", "optionId": "y"}),
        (v2.PermissionOption(option_id="n", name="No", kind="reject_once"), {"outcome": "selected", "optionId": "n"}),
        (None, {"outcome": "cancelled"}),
        ("z", {"outcome": "cancelled"}),
        (ValueError("no"), {"outcome": "cancelled"}),
    ],
)
def test_a_handler_decides_on_permissions(choice: Any, outcome: Json) -> None:
    seen: list[PermissionRequest] = []

    async def decide(request: PermissionRequest) -> Any:
        seen.append(request)
        assert request.session.state.tool_calls[0].title == "Delete", "applied before the user is asked"
        if isinstance(choice, Exception):
            raise choice
        return choice

    async def main() -> None:
        async with beside(V2_AGENT, on_permission=decide) as (client, talk):
            session = await opened(client, talk)
            id = talk.request("session/request_permission", PERMISSION)
            assert await talk.result(id) == {"outcome": outcome}
            (request,) = seen
            assert request.session is session
            assert (request.title, request.description) == ("May I?", "Please")
            assert request.option("allow_always", "allow_once") == request.options[0]
            assert request.option("allow_always") is None
            assert request.answered

    run(main())


def test_permissions_wait_in_a_queue_where_there_is_no_handler() -> None:
    async def main() -> None:
        async with beside(V2_AGENT) as (client, talk):
            session = await opened(client, talk)
            ids = [talk.request("session/request_permission", PERMISSION) for _ in range(3)]
            requests = [await client.permissions.get() for _ in range(3)]
            assert list(session.permission_requests) == requests
            with pytest.raises(ValueError, match="not offered"):
                requests[0].answer("z")
            assert not requests[0].answered
            requests[0].answer("y")
            talk.notify("$/cancel_request", {"requestId": ids[1]})
            assert await talk.result(ids[0]) == {"outcome": {"outcome": "selected", "optionId": "y"}}
            assert await talk.result(ids[1]) == {"outcome": {"outcome": "cancelled"}}
            assert [request.answered for request in requests] == [True, True, False]
            requests[1].answer("y")  # too late, and ignored
            start = talk.position
            await session.cancel()
            assert await talk.result(ids[2]) == {"outcome": {"outcome": "cancelled"}}
            assert story(talk.heard(start)) == ["session/cancel", f"{ids[2]}: ok"]
            assert session.permission_requests == ()
            error = await talk.refused("session/request_permission", {**PERMISSION, "sessionId": "x"})
            assert error["code"] == -32002
            error = await talk.refused("session/request_permission", {"sessionId": "s"})
            assert error["code"] == -32602

    run(main())


def test_a_permission_that_is_withdrawn_stops_its_handler() -> None:
    async def main() -> None:
        gate = Gate()
        stopped: list[bool] = []

        async def decide(request: PermissionRequest) -> str:
            try:
                await gate()
            except asyncio.CancelledError:
                stopped.append(request.answered)
                raise
            return "y"

        async with beside(V2_AGENT, on_permission=decide) as (client, talk):
            await opened(client, talk)
            id = talk.request("session/request_permission", PERMISSION)
            await gate.reached.wait()
            talk.notify("$/cancel_request", {"requestId": id})
            assert await talk.result(id) == {"outcome": {"outcome": "cancelled"}}
            await others_run()
            assert stopped == [True]

    run(main())


def test_cancelling_a_turn_answers_what_is_open_and_the_turn_ends_cancelled() -> None:
    async def handler(session: Session, prompt: Prompt) -> None:
        await session.request_permission("May I?")

    async def main(version: int) -> None:
        async with connect(agent(handler), versions=(version,)) as client:
            session = await client.new_session(cwd=CWD)
            turn, queued = session.prompt("go"), session.prompt("more")
            request = await client.permissions.get()
            assert not session.idle
            await session.cancel()
            assert request.answered
            assert await turn == "cancelled"
            assert await queued == "cancelled"
            await session.at_rest()
            assert session.idle

    for version in (1, 2):
        run(main(version))


def test_other_requests_go_to_their_handler() -> None:
    heard: list[Any] = []

    async def answer(method: str, params: Any) -> Any:
        if method == "_acme/fail":
            raise ValueError("secret")
        return {"to": method, "said": params}

    async def main() -> None:
        options: dict[str, Any] = {"on_request": answer, "on_notification": lambda *told: heard.append(told)}
        async with beside(V2_AGENT, **options) as (client, talk):
            assert await talk.ask("_acme/x", {"a": 1}) == {"to": "_acme/x", "said": {"a": 1}}
            assert await talk.refused("_acme/fail", {}) == {"code": -32603, "message": "Internal error"}
            talk.notify("_acme/y", {"b": 2})
            await settled(client, talk)
            assert heard == [("_acme/y", {"b": 2})]
        async with beside(V2_AGENT) as (client, talk):
            assert (await talk.refused("_acme/x"))["code"] == -32601
            assert (await talk.refused("fs/read_text_file"))["code"] == -32601

    run(main())


# Agents of version 1


def v1_agent(**session: Json) -> Json:
    return {
        **V1_AGENT,
        "agentCapabilities": {"loadSession": session.pop("loads", True), "sessionCapabilities": session},
    }


def test_a_version_1_agent_is_given_one_prompt_at_a_time() -> None:
    async def main() -> None:
        async with beside(V1_AGENT) as (client, talk):
            assert client.version == 1
            session = await opened(client, talk)
            turns = [session.prompt(words) for words in "abc"]
            asked = await talk.asked("session/prompt")
            assert asked["params"]["prompt"] == [{"type": "text", "text": "a"}]
            await settled(client, talk)
            assert not [line for line in talk.lines if line.get("method") == "session/prompt" and line is not asked]
            assert (turns[0].message_id is None, turns[1].message_id) == (False, None)
            assert texts(session) == ["a"], "the others are not inserted"
            assert session.state.state == state("running")
            chunk(talk, "Hello")
            talk.respond(asked["id"], {"stopReason": "max_tokens"})
            asked = await talk.asked("session/prompt")
            assert asked["params"]["prompt"] == [{"type": "text", "text": "b"}]
            assert await turns[0] == "max_tokens"
            await session.cancel()
            assert (await talk.asked("session/cancel"))["params"] == {"sessionId": "s"}
            assert await turns[2] == "cancelled"
            talk.respond(asked["id"], {"stopReason": "cancelled"})
            assert await turns[1] == "cancelled"
            assert texts(session) == ["a", "Hello", "b"]
            assert session.idle

    run(main())


def test_a_version_1_turn_that_fails_ends_with_an_error() -> None:
    async def main() -> None:
        async with beside(V1_AGENT) as (client, talk):
            session = await opened(client, talk)
            turn = session.prompt("go")
            talk.fail((await talk.asked("session/prompt"))["id"], -32000, "log in", {"how": "key"})
            assert await turn == "error"
            assert turn.error == v2.Error(code=-32000, message="log in", data={"how": "key"})

    run(main())


def test_a_version_1_permission_is_one_for_its_tool_call_and_stops_the_turn_meanwhile() -> None:
    async def main() -> None:
        async with beside(V1_AGENT) as (client, talk):
            session = await opened(client, talk)
            turn = session.prompt("go")
            asked = await talk.asked("session/prompt")
            talk.update("s", sessionUpdate="tool_call", toolCallId="c", title="Delete", kind="delete")
            options = PERMISSION["options"]
            ids = [
                talk.request(
                    "session/request_permission",
                    {"sessionId": "s", "toolCall": {"toolCallId": id, **more}, "options": options},
                )
                for id, more in (("c", {"status": "pending"}), ("d", {"title": "Write", "rawInput": 1}), ("e", {}))
            ]
            requests = [await client.permissions.get() for _ in range(3)]
            assert [request.title for request in requests] == ["Delete", "Write", "The agent asks for a permission"]
            assert session.state.state == state("requires_action")
            requests[0].answer("y")
            requests[1].answer(None)
            assert await talk.result(ids[0]) == {"outcome": {"outcome": "selected", "optionId": "y"}}
            assert await talk.result(ids[1]) == {"outcome": {"outcome": "cancelled"}}
            await settled(client, talk)
            assert session.state.state == state("requires_action"), "one is still open"
            assert [call.title for call in session.state.tool_calls] == ["Delete", "Write", None]
            talk.notify("$/cancel_request", {"requestId": ids[2]})
            assert await talk.result(ids[2]) == {"outcome": {"outcome": "cancelled"}}
            await settled(client, talk)
            assert session.state.state == state("running")
            last = talk.request(
                "session/request_permission", {"sessionId": "s", "toolCall": {"toolCallId": "c"}, "options": options}
            )
            await client.permissions.get()
            await session.cancel()
            assert await talk.result(last) == {"outcome": {"outcome": "cancelled"}}
            await settled(client, talk)
            talk.respond(asked["id"], {"stopReason": "cancelled"})
            assert await turn == "cancelled"

    run(main())


def test_a_version_1_agent_gets_none_of_the_clients_files_and_terminals() -> None:
    async def main() -> None:
        async with beside(V1_AGENT) as (client, talk):
            capabilities = talk.lines[0]["params"]
            assert "capabilities" in capabilities, "it was asked in version 2's words, and offered nothing"
            await opened(client, talk)
            for method in ("fs/read_text_file", "fs/write_text_file", "terminal/create", "terminal/output"):
                assert (await talk.refused(method, {"sessionId": "s"}))["code"] == -32601

    run(main())


MODES: Json = {
    "currentModeId": "ask",
    "availableModes": [{"id": "ask", "name": "Ask", "description": "Asks"}, {"id": "act", "name": "Act"}],
}


def test_modes_of_a_version_1_agent_are_an_option() -> None:
    async def main() -> None:
        async with beside(V1_AGENT) as (client, talk):
            other = {"id": "loud", "type": "boolean", "name": "Loud", "currentValue": False}
            session = await opened(client, talk, modes=MODES, configOptions=[other])

            def values() -> dict[str, Any]:
                return {option.config_id: option.current_value for option in session.state.config_options}  # type: ignore[union-attr]

            assert values() == {"mode": "ask", "loud": False}
            (mode,) = [option for option in session.state.config_options if getattr(option, "category", None) == "mode"]
            assert isinstance(mode, v2.SessionConfigSelect)

            setting = asyncio.create_task(session.set_config_option("mode", "act"))
            line = await talk.asked("session/set_mode")
            assert line["params"] == {"sessionId": "s", "modeId": "act"}
            talk.respond(line["id"], {})
            await setting
            assert values() == {"mode": "act", "loud": False}

            talk.update("s", sessionUpdate="current_mode_update", currentModeId="ask")
            await settled(client, talk)
            assert values() == {"mode": "ask", "loud": False}

            setting = asyncio.create_task(session.set_config_option("loud", True))
            line = await talk.asked("session/set_config_option")
            schema(1).validator({"$ref": "#/$defs/SetSessionConfigOptionRequest"}).validate(line["params"])
            assert line["params"] == {"sessionId": "s", "configId": "loud", "type": "boolean", "value": True}
            talk.respond(line["id"], {"configOptions": [{**other, "currentValue": True}]})
            await setting
            assert values() == {"mode": "ask", "loud": True}

            talk.update("s", sessionUpdate="config_option_update", configOptions=[other])
            await settled(client, talk)
            assert values() == {"mode": "ask", "loud": False}

            setting = asyncio.create_task(session.set_config_option("mode", "act"))
            talk.fail((await talk.asked("session/set_mode"))["id"], -32602)
            with pytest.raises(RequestError):
                await setting
            assert values() == {"mode": "ask", "loud": False}

    run(main())


def replaying(talk: Talk) -> None:
    """Replay a session as a v1 agent does."""
    for kind, message_id, words in (("user", "u", "go"), ("agent", "m", "Hel"), ("agent", "m", "lo")):
        block = {"type": "text", "text": words}
        talk.update("s", sessionUpdate=f"{kind}_message_chunk", messageId=message_id, content=block)
    talk.update("s", sessionUpdate="tool_call", toolCallId="c", title="T")


@pytest.mark.rule("P-5")
def test_a_version_1_load_doubles_nothing() -> None:
    async def main() -> None:
        async with beside(V1_AGENT) as (client, talk):
            session = await opened(client, talk)
            replaying(talk)
            await settled(client, talk)
            assert texts(session) == ["go", "Hello"]
            for ok in (True, False, True):
                resuming = asyncio.create_task(client.resume("s", cwd=CWD, replay=True))
                line = await talk.asked("session/load")
                schema(1).validator({"$ref": "#/$defs/LoadSessionRequest"}).validate(line["params"])
                replaying(talk)
                if ok:
                    talk.respond(line["id"], {"modes": MODES})
                    await resuming
                    assert len(session.state.config_options) == 1
                else:
                    talk.fail(line["id"], -32603)
                    with pytest.raises(RequestError):
                        await resuming
                assert texts(session) == ["go", "Hello"]
                assert session.state.state == (state("idle") if ok else session.state.state)

    run(main())


@pytest.mark.rule("P-5")
@pytest.mark.parametrize(
    ("capabilities", "method"),
    [({"resume": {}}, "session/resume"), ({}, "session/load"), ({"resume": {}, "loads": False}, "session/resume")],
)
@pytest.mark.parametrize("known", [True, False])
def test_a_version_1_resume_without_a_replay_is_quiet_whatever_the_agent_says(
    capabilities: Json, method: str, known: bool
) -> None:
    async def main() -> None:
        async with beside(v1_agent(**capabilities)) as (client, talk):
            before: list[str] = []
            if known:
                session = await opened(client, talk)
                turn = session.prompt("first")
                asked = await talk.asked("session/prompt")
                block = {"type": "text", "text": "untagged"}
                talk.update("s", sessionUpdate="agent_message_chunk", content=block)
                talk.respond(asked["id"], {"stopReason": "end_turn"})
                await turn
                before = ["first", "untagged"]
            resuming = asyncio.create_task(client.resume("s", cwd=CWD))
            line = await talk.asked(method)
            assert "replayFrom" not in line["params"]
            replaying(talk)
            talk.update(
                "s", sessionUpdate="available_commands_update", availableCommands=[{"name": "x", "description": "x"}]
            )
            talk.respond(line["id"], {})
            session = await resuming
            assert texts(session) == before
            assert session.state.tool_calls == ()
            assert len(session.state.available_commands) == 1
            assert session.state.state == state("idle")
            turn = session.prompt("second")
            asked = await talk.asked("session/prompt")
            for words in ("un", "tagged"):
                block = {"type": "text", "text": words}
                talk.update("s", sessionUpdate="agent_message_chunk", content=block)
            talk.respond(asked["id"], {"stopReason": "end_turn"})
            assert await turn == "end_turn"
            assert texts(session) == [*before, "second", "untagged"], "no made-up id is used twice"

    run(main())


def test_a_version_1_turn_goes_on_through_a_resume_and_those_behind_it_too() -> None:
    async def main() -> None:
        async with beside(V1_AGENT) as (client, talk):
            session = await opened(client, talk)
            turns = [session.prompt(words) for words in "ab"]
            asked = await talk.asked("session/prompt")
            chunk(talk, "one ")
            resuming = asyncio.create_task(client.resume("s", cwd=CWD))
            line = await talk.asked("session/resume")
            chunk(talk, "two")
            talk.respond(line["id"], {})
            await resuming
            assert texts(session) == ["a", "one two"]
            assert session.state.state == state("running")
            resuming = asyncio.create_task(client.resume("s", cwd=CWD, replay=True))
            line = await talk.asked("session/load")
            replaying(talk)
            talk.respond(asked["id"], {"stopReason": "refusal"})
            talk.respond(line["id"], {})
            await resuming
            assert await turns[0] == "refusal"
            asked = await talk.asked("session/prompt")
            assert asked["params"]["prompt"][0]["text"] == "b"
            talk.respond(asked["id"], {"stopReason": "end_turn"})
            assert await turns[1] == "end_turn"
            last = session.prompt("c")
            talk.respond((await talk.asked("session/prompt"))["id"], {"stopReason": "end_turn"})
            assert await last == "end_turn"
            assert texts(session) == ["go", "Hello", "b", "c"]

    run(main())


def test_a_version_1_agent_that_cannot_is_not_asked() -> None:
    async def main() -> None:
        async with beside({"protocolVersion": 1}) as (client, talk):
            session = await opened(client, talk)
            start = talk.position
            for asking, code in (
                (client.list_sessions(), -32601),
                (client.delete_session("s"), -32601),
                (client.resume("s", cwd=CWD), -32601),
                (client.resume("s", cwd=CWD, replay=True), -32602),
            ):
                with pytest.raises(RequestError) as raised:
                    await asking
                assert raised.value.code == code
            await session.close()
            assert story(talk.heard(start)) == []

    run(main())


@pytest.mark.parametrize("closes", [True, False])
def test_closing_a_version_1_session_cancels_its_turn_first(closes: bool) -> None:
    async def main() -> None:
        async with beside(v1_agent(**({"close": {}} if closes else {}))) as (client, talk):
            session = await opened(client, talk)
            turn, queued = session.prompt("a"), session.prompt("b")
            asked = await talk.asked("session/prompt")
            closing = asyncio.create_task(session.close())
            await talk.asked("session/cancel")
            chunk(talk, "bye")
            talk.respond(asked["id"], {"stopReason": "cancelled"})
            if closes:
                talk.respond((await talk.asked("session/close"))["id"], {})
            await closing
            assert await turn == "cancelled"
            assert await queued == "cancelled"
            assert texts(session) == ["a", "bye"]

    run(main())


def test_a_version_1_agent_hears_its_own_words_for_the_rest() -> None:
    async def main() -> None:
        async with beside(V1_AGENT) as (client, talk):
            opening = asyncio.create_task(
                client.new_session(
                    cwd=CWD,
                    mcp_servers=[
                        {"type": "stdio", "name": "x", "command": "/x"},
                        {"type": "http", "name": "y", "url": "https://y"},
                    ],
                )
            )
            line = await talk.asked("session/new")
            schema(1).validator({"$ref": "#/$defs/NewSessionRequest"}).validate(line["params"])
            assert line["params"]["mcpServers"] == [
                {"name": "x", "command": "/x", "args": [], "env": []},
                {"type": "http", "name": "y", "url": "https://y", "headers": []},
            ]
            talk.respond(line["id"], {"sessionId": "s"})
            await opening
            for asking, method, params in (
                (client.login("key"), "authenticate", {"methodId": "key"}),
                (client.logout(), "logout", {}),
                (client.delete_session("s"), "session/delete", {"sessionId": "s"}),
                (client.request("_acme/x", {"a": 1}), "_acme/x", {"a": 1}),
            ):
                doing = asyncio.ensure_future(asking)
                line = await talk.asked(method)
                assert line["params"] == params
                talk.respond(line["id"], {})
                await doing

    run(main())


@pytest.mark.rule("W-4")
def test_what_a_version_1_agent_says_that_version_2_has_no_place_for_is_a_loss() -> None:
    losses: list[tuple[str, Loss]] = []

    async def main() -> None:
        async with beside(V1_AGENT, on_loss=lambda *told: losses.append(told)) as (client, talk):
            await opened(client, talk)
            talk.update("s", sessionUpdate="current_mode_update", currentModeId="x")
            content = [{"type": "terminal", "terminalId": "t"}]
            talk.update("s", sessionUpdate="tool_call", toolCallId="c", title="T", content=content)
            await settled(client, talk)

    run(main())
    assert [(session_id, loss.kind) for session_id, loss in losses] == [
        ("s", "current_mode_update"),
        ("s", "tool_call"),
    ]


def test_leaving_ends_what_was_begun() -> None:
    async def main() -> None:
        gate = Gate()
        ended: list[str] = []

        async def handler(session: Session, prompt: Prompt) -> None:
            try:
                await gate()
            finally:
                ended.append(prompt.text)

        one = agent(handler)
        one.drain_timeout = 0.05
        async with connect(one) as client:
            session = await client.new_session(cwd=CWD)
            turn = session.prompt("go")
            await gate.reached.wait()
        assert ended == ["go"]
        with pytest.raises(ConnectionLost):
            await turn
        with pytest.raises(ConnectionLost):
            await client.list_sessions()

    run(main())
