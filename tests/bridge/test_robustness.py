"""Whatever ends, hangs or babbles: the others are told, what was asked is answered, and nothing is left running."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.bridge.ends import BOTH, CWD, Bridged, bridged, puppet, script, text
from tests.runtime.talk import run, updates_of
from twofold.journal import open_journal

Json = Any

PAIRS = pytest.mark.parametrize(
    ("client", "agent"), [(1, 1), (1, 2), (2, 1), (2, 2)], ids=["v1 v1", "v1 v2", "v2 v1", "v2 v2"]
)
QUICK: Json = {"grace": 0.3, "drain_timeout": 0.3}
OPTIONS = [{"optionId": "y", "name": "Yes", "kind": "allow_once"}]
TOOL = {"toolCallId": "c", "title": "T"}
ASK = {
    "say": {
        "id": "ask",
        "method": "session/request_permission",
        "params": {"sessionId": "s", "title": "May I?", "toolCall": TOOL, "options": OPTIONS},
    }
}


def chunk(id: str, words: str) -> Json:
    return {"update": {"sessionUpdate": "agent_message_chunk", "messageId": id, "content": text(words)}}


def begun(agent: int) -> list[Json]:
    """The beginning of a turn, which an agent of version 2 has."""
    return [{"answer": {"messageId": "u"}}] if agent == 2 else []


def end_of(agent: int) -> Json:
    idle = {"update": {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}}
    return idle if agent == 2 else {"answer": {"stopReason": "end_turn"}}


@asynccontextmanager
async def session(client: int, agent: int, *, config: Json = None, **options: Any) -> AsyncIterator[Bridged]:
    """A client that has begun session `s` with an agent."""
    command = puppet({str(agent): BOTH[str(agent)]}, **(config or {}))
    async with bridged(command, version=client, agent_version=agent, **options) as ends:
        await ends.talk.new_session()
        yield ends


async def working(ends: Bridged, agent: int, *steps: Json) -> int | str:
    """Send a prompt and wait until the agent has said something; gives the id of the request."""
    id = ends.talk.prompt("s", script(*begun(agent), chunk("m", "…"), *steps))
    await ends.talk.updated("agent_message_chunk")
    return id


async def told(ends: Bridged, client: int, agent: int, id: int | str) -> str:
    """Give the reason for which a turn has ended, as the client is told it."""
    if (client, agent) == (2, 2):  # the prompt was answered: that it has ended is all there is to hear
        assert await ends.talk.transport.receive() == ()
        return str(ends.bridge.failure)
    if client == 2:
        idle = await ends.talk.idle()
        assert (idle["stopReason"], idle["error"]["code"]) == ("error", -32603)
        return str(idle["error"]["data"]["reason"])
    error = await ends.talk.error(id)
    assert error["code"] == -32603
    return str(error["data"]["reason"])


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


# The agent


@PAIRS
@pytest.mark.parametrize(
    ("how", "words"),
    [("exit 3", "ended with status 3"), ("exit 0", "ended with status 0"), ("kill", "ended by SIGKILL")],
)
def test_an_agent_that_ends_in_a_turn_is_told_of_and_the_journal_is_whole(
    client: int, agent: int, how: str, words: str, tmp_path: Path
) -> None:
    async def main() -> None:
        async with session(client, agent, journal=tmp_path / "journal") as ends:
            id = await working(ends, agent, {"end": how})
            assert words in await told(ends, client, agent, id)
            assert not await ends.running
            assert words in str(ends.bridge.failure)
            assert [facts["words"] for facts in ends.reported("failure")] == [ends.bridge.failure]

    run(main())
    with open_journal(str(tmp_path / "journal")) as journal:
        assert not journal.verify().faults
        assert "…" in [message.text for message in journal.load("s").transcript.messages]


@PAIRS
def test_an_agent_that_ends_in_the_middle_of_a_line_garbles_no_answer(client: int, agent: int) -> None:
    async def main() -> None:
        async with session(client, agent) as ends:
            steps = [chunk("m", "…"), {"raw": '{"jsonrpc":"2.0","method":"sess'}, {"end": "exit 3"}]
            ends.talk.prompt("s", script(*steps))
            lines = [line async for line in rest_of(ends)]
            whole = [json.loads(line) for line in lines if not line.rstrip().endswith(b'"sess')]
            assert len(whole) >= len(lines) - 1
            assert "ended with status 3" in str(whole[-1])

    run(main())


async def rest_of(ends: Bridged) -> AsyncIterator[bytes]:
    while line := await ends.read_line():
        yield line


@PAIRS
def test_an_agent_that_closes_its_output_is_ended(client: int, agent: int) -> None:
    async def main() -> None:
        async with session(client, agent, **QUICK) as ends:
            pid = ends.pid()
            id = await working(ends, agent, {"end": "close"})
            assert "ended its output" in await told(ends, client, agent, id)
            assert not await ends.running
            assert is_gone(pid)

    run(main())


@pytest.mark.parametrize("version", [1, 2])
def test_an_agent_that_never_answers_initialize_is_given_up_and_ended(version: int) -> None:
    async def main() -> None:
        async with bridged(puppet({"1": "hang", "2": "hang"}), start_timeout=0.3, **QUICK) as ends:
            error = await ends.talk.refused("initialize", {"protocolVersion": version})
            assert error["data"]["reason"].endswith("did not answer initialize in 0.3 seconds")
            assert not await ends.running
            assert is_gone(ends.pid())

    run(main())


def test_an_agent_that_cannot_be_started_is_told_of() -> None:
    async def main() -> None:
        async with bridged(["/nowhere/agent"]) as ends:
            error = await ends.talk.refused("initialize", {"protocolVersion": 1})
            assert error["data"]["reason"] == "agent could not be started: No such file or directory"
            assert not await ends.running

    run(main())


def test_an_agent_that_cannot_be_started_fails_the_bridge_also_when_the_client_says_nothing() -> None:
    async def main() -> None:
        async with bridged(["/nowhere/agent"]) as ends:
            assert not await ends.finish()
            assert ends.bridge.failure == "agent could not be started: No such file or directory"

    run(main())


def test_a_client_that_says_nothing_and_leaves_leaves_nothing_running() -> None:
    async def main() -> None:
        async with bridged(puppet(BOTH)) as ends:
            assert await ends.finish()
            assert is_gone(ends.pid())

    run(main())


@pytest.mark.parametrize(("client", "agent"), [(1, 2), (2, 1)])
def test_a_flood_of_garbage_before_initialize_is_waded_through(client: int, agent: int) -> None:
    async def main() -> None:
        command = puppet({str(agent): BOTH[str(agent)]}, banner="no JSON at all\n" * 8_000)
        async with bridged(command, agent_version=agent) as ends:
            assert (await ends.talk.initialize(client))["protocolVersion"] == client
            assert await ends.talk.new_session() == "s"

    run(main())


@pytest.mark.parametrize(("client", "agent"), [(1, 2), (2, 1)])
def test_a_line_over_the_limit_is_skipped_and_the_conversation_goes_on(client: int, agent: int) -> None:
    async def main() -> None:
        async with session(client, agent, line_limit=20_000) as ends:
            talk = ends.talk
            ends.stream.send_raw(b'{"jsonrpc":"2.0","id":5,"method":"_long","params":"' + b"x" * 500_000 + b'"}\n')
            assert (await talk.next())["error"]["code"] == -32600
            steps = [{"raw": "y" * 100 + "\n"}, chunk("big", "z" * 15_000), chunk("m", "end")]
            talk.prompt("s", script(*begun(agent), *steps))
            assert len((await talk.updated("agent_message_chunk"))["content"]["text"]) == 15_000
            assert (await talk.updated("agent_message_chunk"))["content"]["text"] == "end"
            assert [facts["side"] for facts in ends.reported("fault")] == ["client", "agent"]
            assert "xxx" not in str(ends.reports)

    run(main())


@PAIRS
def test_everything_arrives_however_slowly_the_client_reads(client: int, agent: int) -> None:
    words = "0123456789" * 1_000
    sizes = 200

    async def main() -> None:
        async with session(client, agent, line_limit=16 * 1024 * 1024) as ends:
            talk, since = ends.talk, ends.talk.position
            talk.prompt("s", script(*begun(agent), *[chunk("m", words)] * sizes, chunk("n", "end")))
            await talk.updated("agent_message_chunk", messageId="n")
            told = [one["content"]["text"] for one in updates_of(talk.heard(since)) if one.get("messageId") == "m"]
            assert told == [words] * sizes

    run(main())


# The client


@PAIRS
@pytest.mark.parametrize("leaves", ["says no more", "reads no more", "is gone"])
def test_a_client_that_leaves_in_a_turn_leaves_nothing_running(
    client: int, agent: int, leaves: str, tmp_path: Path
) -> None:
    async def main() -> None:
        async with session(client, agent, journal=tmp_path / "journal", **QUICK) as ends:
            pid = ends.pid()
            await working(ends, agent, {"end": "hang"})
            if leaves == "says no more":
                ends.stream.end()
            elif leaves == "reads no more":
                assert ends.stream._let_go is not None
                ends.stream._let_go()
            else:
                await ends.stream.close()
            assert await ends.running
            assert is_gone(pid)

    run(main())
    with open_journal(str(tmp_path / "journal")) as journal:
        assert not journal.verify().faults


@PAIRS
def test_a_turn_under_way_is_finished_for_a_client_that_says_no_more(client: int, agent: int) -> None:
    async def main() -> None:
        async with session(client, agent) as ends:
            since = ends.talk.position
            ends.talk.prompt("s", script(*begun(agent), chunk("m", "all of it"), end_of(agent)))
            ends.stream.end()
            while await ends.talk.read():
                pass
            assert "all of it" in str(updates_of(ends.talk.lines[since:]))
            assert await ends.running

    run(main())


@PAIRS
def test_what_the_agent_asked_is_answered_with_an_error_when_the_client_leaves(
    client: int, agent: int, tmp_path: Path
) -> None:
    heard = tmp_path / "heard"

    async def main() -> None:
        async with session(client, agent, config={"heard": heard}) as ends:
            ends.talk.prompt("s", script(*begun(agent), ASK, {"hear": None}, end_of(agent)))
            await ends.talk.asked("session/request_permission")
            await ends.finish()

    run(main())
    assert b'"id":"ask","error":{"code":-32603' in heard.read_bytes()


# The bridge


@PAIRS
def test_a_bridge_that_is_stopped_answers_both_sides_and_ends_the_agent(
    client: int, agent: int, tmp_path: Path
) -> None:
    heard = tmp_path / "heard"

    async def main() -> None:
        async with session(client, agent, config={"heard": heard}, journal=tmp_path / "journal") as ends:
            pid = ends.pid()
            id = await working(ends, agent, ASK, {"hear": None})
            await ends.talk.asked("session/request_permission")
            ends.running.cancel()
            if client == 1:
                assert (await ends.talk.error(id))["data"]["reason"] == "the bridge was stopped"
            elif agent == 1:
                assert (await ends.talk.idle())["error"]["code"] == -32603
            with pytest.raises(asyncio.CancelledError):
                await ends.running
            assert is_gone(pid)
            assert ends.reported("stopped") == [{}]

    run(main())
    assert b'"id":"ask","error":{"code":-32603' in heard.read_bytes()
    with open_journal(str(tmp_path / "journal")) as journal:
        assert not journal.verify().faults


def test_a_bridge_that_is_stopped_while_it_begins_answers_initialize() -> None:
    async def main() -> None:
        async with bridged(puppet({"1": "babble"}), **QUICK) as ends:
            id = ends.talk.request("initialize", {"protocolVersion": 1})
            await until(lambda: bool(ends.reported("garbage")))
            ends.running.cancel()
            assert (await ends.talk.error(id))["data"]["reason"] == "the bridge was stopped"
            with pytest.raises(asyncio.CancelledError):
                await ends.running
            assert is_gone(ends.pid())

    run(main())


async def until(met: Callable[[], bool]) -> None:
    while not met():
        await asyncio.sleep(0)


@pytest.mark.parametrize("end", ["leaves", "stopped"])
def test_an_agent_that_ignores_everything_is_killed_in_time_and_what_it_started_with_it(
    end: str, tmp_path: Path
) -> None:
    child = tmp_path / "child"

    async def main() -> None:
        config = {"deaf": True, "stubborn": True, "child": child}
        async with session(2, 2, config=config, **QUICK) as ends:
            pid = ends.pid()
            loop = asyncio.get_running_loop()
            began = loop.time()
            if end == "leaves":
                await ends.finish()
            else:
                ends.running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await ends.running
            assert is_gone(pid)
            assert loop.time() - began < 5
            await until(lambda: is_zombie_or_gone(int(child.read_text())))

    run(main())


def is_zombie_or_gone(pid: int) -> bool:
    """A process whose parent was killed is reaped by whoever runs this machine, at some time."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return is_gone(pid)


# The journal, while others are at it


@pytest.mark.rule("J-6")
@PAIRS
def test_an_operator_redacts_in_a_session_that_goes_on(client: int, agent: int, tmp_path: Path) -> None:
    path = str(tmp_path / "journal")

    def redact(_: Bridged) -> None:
        with open_journal(path) as journal:
            journal.redact("s", "agent_message", "m")

    async def stored(ends: Bridged) -> None:
        assert ends.bridge._recorder is not None
        await asyncio.to_thread(ends.bridge._recorder.flush)

    async def main() -> None:
        async with session(client, agent, journal=tmp_path / "journal") as ends:
            steps = [{"hear": "_go"}, chunk("m", "more of it"), chunk("n", "another"), end_of(agent)]
            await working(ends, agent, *steps)
            await stored(ends)
            await asyncio.to_thread(redact, ends)
            ends.talk.notify("_go")
            await ends.talk.updated("agent_message_chunk", messageId="n")
            assert await ends.finish(), ends.bridge.failure
            assert ends.reported("journal") == []

    run(main())
    with open_journal(path) as journal:
        texts = {message.message_id: message.text for message in journal.load("s").transcript.messages}
        assert (texts["m"], texts["n"]) == ("", "another")
        assert not journal.verify().faults


@pytest.mark.parametrize("client", [1, 2])
def test_what_the_journal_cannot_take_is_reported_and_the_rest_is_stored(client: int, tmp_path: Path) -> None:
    bad = [
        {"update": {"sessionUpdate": "terminal_output_chunk", "terminalId": "t", "data": "no base64!"}},
        {"update": {"sessionUpdate": "agent_message", "messageId": 5}},
    ]

    async def main() -> None:
        async with session(client, 2, journal=tmp_path / "journal") as ends:
            await working(ends, 2, *bad, chunk("n", "after"), end_of(2))
            await ends.talk.updated("agent_message_chunk", messageId="n")
            assert await ends.finish(), ends.bridge.failure
            assert all(facts["words"].startswith("not recorded: ") for facts in ends.reported("journal"))
            assert len(ends.reported("journal")) == 2
            assert "base64!" not in str(ends.reports)

    run(main())
    with open_journal(str(tmp_path / "journal")) as journal:
        assert [message.text for message in journal.load("s").transcript.messages][-1] == "after"


def test_two_bridges_keep_their_sessions_in_one_journal(tmp_path: Path) -> None:
    async def one(name: str) -> None:
        command = puppet(BOTH, sessions=[name])
        async with bridged(command, version=2, journal=tmp_path / "journal") as ends:
            await ends.talk.new_session()
            pieces = [chunk("m", f"{number} ") for number in range(100)]
            ends.talk.prompt(name, script(*begun(2), *pieces, end_of(2)))
            await ends.talk.idle()
            assert await ends.finish(), ends.bridge.failure
            assert ends.reported("journal") == []

    async def main() -> None:
        both: list[Awaitable[None]] = [one("a"), one("b")]
        await asyncio.gather(*both)

    run(main())
    with open_journal(str(tmp_path / "journal")) as journal:
        for name in ("a", "b"):
            [message] = journal.load(name).transcript.messages
            assert message.text == "".join(f"{number} " for number in range(100))


def test_the_folder_of_the_session_is_that_of_the_request(tmp_path: Path) -> None:
    async def main() -> None:
        async with session(2, 2, journal=tmp_path / "journal") as ends:
            assert await ends.finish()

    run(main())
    with open_journal(str(tmp_path / "journal")) as journal:
        [setup] = [one for one in journal.load("s").transcript.other if one.kind == "_twofold/session"]
        assert setup.fields["cwd"] == CWD
