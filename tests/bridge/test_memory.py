"""With a journal, sessions that the agent has forgotten are listed, loaded and gone on with."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.bridge.ends import CWD, V1, V2, Bridged, bridged, puppet, script, text
from tests.runtime.talk import folded, run, story, updates_of
from twofold.bridge._memory import BEGUN_ANEW, FORGOTTEN, LISTED
from twofold.journal import open_journal
from twofold.wire import v2

Json = Any

FORGETFUL = {1: {"protocolVersion": 1, "agentCapabilities": {}}, 2: V2}
IDLE = {"update": {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}}
PAIRS = pytest.mark.parametrize(
    ("client", "agent"), [(1, 1), (1, 2), (2, 1), (2, 2)], ids=["v1 v1", "v1 v2", "v2 v1", "v2 v2"]
)
VERSIONS = pytest.mark.parametrize("version", [1, 2])


def chunk(id: str, words: str) -> Json:
    return {"update": {"sessionUpdate": "agent_message_chunk", "messageId": id, "content": text(words)}}


def turn(agent: int, *steps: Json, user: str = "u") -> str:
    """Give the text of a prompt whose turn has these steps."""
    if agent == 1:
        return script(*steps, {"answer": {"stopReason": "end_turn"}})
    reported = {"update": {"sessionUpdate": "user_message", "messageId": user, "content": [text("(prompt)")]}}
    return script({"answer": {"messageId": user}}, reported, *steps, IDLE)


@asynccontextmanager
async def a_run(
    client: int, agent: int, journal: Path | None, sessions: list[str], **config: Json
) -> AsyncIterator[Bridged]:
    """One run of a bridge, to an agent that remembers nothing; sessions are the ids that it gives."""
    versions = {str(agent): config.pop("initialized", FORGETFUL[agent])}
    command = puppet(versions, sessions=sessions, **config)
    async with bridged(command, version=client, agent_version=agent, journal=journal) as ends:
        yield ends
        assert await ends.finish() or config.get("fails"), ends.bridge.failure


async def attach(ends: Bridged, client: int, session: str, *, replay: bool = True) -> list[Json]:
    """Load a session; gives the lines up to the answer."""
    params = {"sessionId": session, "cwd": CWD, "mcpServers": []}
    since = ends.talk.position
    if client == 1:
        await ends.talk.ask("session/load" if replay else "session/resume", params)
    else:
        await ends.talk.ask("session/resume", params | ({"replayFrom": {"type": "start"}} if replay else {}))
    return ends.talk.heard(since)


async def converse(ends: Bridged, client: int, session: str, prompt: str) -> list[Json]:
    """Send a prompt and wait for the end of its turn; gives the lines."""
    since = ends.talk.position
    id = ends.talk.prompt(session, prompt)
    if client == 1:
        await ends.talk.result(id)
    else:
        await ends.talk.idle()
    return ends.talk.heard(since)


def said(lines: list[Json]) -> list[str]:
    """Give the texts of the agent's messages, in order, as a client holds them."""
    texts: dict[str, str] = {}
    for one in updates_of(lines):
        if one["sessionUpdate"] in ("agent_message", "agent_message_chunk"):
            content = one["content"]
            held = texts.get(one["messageId"], "") if one["sessionUpdate"].endswith("_chunk") else ""
            blocks = content if isinstance(content, list) else [content]
            texts[one["messageId"]] = held + "".join(block["text"] for block in blocks)
    return list(texts.values())


@PAIRS
def test_a_forgotten_session_is_shown_and_gone_on_with_under_its_own_id(
    client: int, agent: int, tmp_path: Path
) -> None:
    journal, heard = tmp_path / "journal", tmp_path / "heard"

    async def first() -> None:
        async with a_run(client, agent, journal, ["one"]) as ends:
            assert await ends.talk.new_session() == "one"
            await converse(ends, client, "one", turn(agent, chunk("m", "Hel"), chunk("m", "lo")))

    async def second() -> None:
        async with a_run(client, agent, journal, ["two"], heard=heard) as ends:
            listed = (await ends.talk.ask("session/list", {"cwd": CWD}))["sessions"] if agent == 1 else []
            assert [(one["sessionId"], one["cwd"]) for one in listed] == ([("one", CWD)] if agent == 1 else [])
            lines = await attach(ends, client, "one")
            assert said(lines) == ["Hello", FORGOTTEN]
            assert {line["params"]["sessionId"] for line in lines if "params" in line} == {"one"}
            lines = await converse(ends, client, "one", turn(agent, chunk("m2", "again"), user="u2"))
            assert said(lines) == ["again"]
            assert {line["params"]["sessionId"] for line in lines if "params" in line} == {"one"}
            assert ends.reported("remembered") == [{"session": "one", "agent": "two"}]

    async def third() -> None:
        async with a_run(client, agent, journal, ["three"]) as ends:
            assert said(await attach(ends, client, "one")) == ["Hello", "again", FORGOTTEN]

    for one in (first, second, third):
        run(one())
    prompts = [json.loads(line) for line in heard.read_bytes().splitlines()]
    asked = [line["params"]["sessionId"] for line in prompts if line["method"] == "session/prompt"]
    assert asked == ["two"]
    with open_journal(str(journal)) as held:
        assert [info.session for info in held.sessions()] == ["one"]
        assert not held.verify().faults


@PAIRS
def test_a_session_that_is_resumed_without_its_history_says_so_too(client: int, agent: int, tmp_path: Path) -> None:
    async def main() -> None:
        for sessions in (["one"], ["two"]):
            async with a_run(client, agent, tmp_path / "journal", sessions) as ends:
                if sessions == ["one"]:
                    session = await ends.talk.new_session()
                    await converse(ends, client, session, turn(agent, chunk("m", "Hello")))
                else:
                    assert said(await attach(ends, client, "one", replay=False)) == [FORGOTTEN]
                    lines = await converse(ends, client, "one", turn(agent, chunk("m2", "again"), user="u2"))
                    assert said(lines) == ["again"]

    run(main())


@VERSIONS
def test_the_state_comes_after_what_is_shown_and_before_the_answer(version: int, tmp_path: Path) -> None:
    async def main() -> None:
        async with a_run(2, version, tmp_path / "journal", ["one"]) as ends:
            await ends.talk.new_session()
            await converse(ends, 2, "one", turn(version, chunk("m", "Hello")))
        async with a_run(2, version, tmp_path / "journal", ["two"]) as ends:
            lines = await attach(ends, 2, "one")
            assert story(lines)[-2] == "idle"
            assert story(lines)[:-2] == [
                one for one in story(lines) if one.split()[0] not in ("idle", "1:", "2:", "3:")
            ]

    run(main())


@pytest.mark.rule("P-2")
@VERSIONS
def test_what_was_taken_back_is_not_shown_again(version: int, tmp_path: Path) -> None:
    client, agent = version, 2  # v1 agents take nothing back
    secret = [chunk("x", "a secret"), {"update": {"sessionUpdate": "agent_message", "messageId": "x", "content": []}}]

    async def main() -> None:
        async with a_run(client, agent, tmp_path / "journal", ["one"]) as ends:
            await ends.talk.new_session()
            await converse(ends, client, "one", turn(agent, chunk("m", "Hello"), *secret))
        async with a_run(client, agent, tmp_path / "journal", ["two"]) as ends:
            lines = await attach(ends, client, "one")
            assert [one for one in said(lines) if one] == ["Hello", FORGOTTEN]
            assert "secret" not in str(lines)

    run(main())
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"a secret" not in stored


@VERSIONS
@pytest.mark.parametrize("journal", [True, False], ids=["with a journal", "without one"])
def test_a_session_that_nobody_knows_is_not_found(version: int, journal: bool, tmp_path: Path) -> None:
    async def main() -> None:
        async with a_run(version, version, tmp_path / "journal" if journal else None, ["one"]) as ends:
            method = "session/load" if version == 1 else "session/resume"
            params = {"sessionId": "none", "cwd": CWD, "mcpServers": [], "replayFrom": {"type": "start"}}
            error = await ends.talk.refused(method, params)
            assert error["code"] == (-32002 if journal and version == 1 else -32601)
            assert await ends.talk.new_session() == "one"

    run(main())


def test_a_v1_agent_that_can_do_it_all_itself_is_passed_as_it_is(tmp_path: Path) -> None:
    replayed = [chunk("m", "mine")["update"]]

    async def main() -> None:
        methods = {"session/load": {"updates": replayed}, "session/list": {"sessions": [], "odd": 1}}
        async with a_run(1, 1, tmp_path / "journal", ["one"], initialized=V1, methods=methods) as ends:
            assert ends.talk.lines[0]["result"] == V1
            assert await ends.talk.ask("session/list") == {"sessions": [], "odd": 1}
            assert said(await attach(ends, 1, "whatever")) == ["mine"]

    run(main())


@VERSIONS
def test_an_agents_error_that_is_not_about_the_session_is_the_clients(version: int, tmp_path: Path) -> None:
    methods = {"session/load": -32000, "session/resume": -32000}

    async def main() -> None:
        async with a_run(version, version, tmp_path / "journal", ["one"]) as ends:
            await ends.talk.new_session()
        async with a_run(
            version, version, tmp_path / "journal", ["two"], initialized=[V1, V2][version - 1], methods=methods
        ) as ends:
            params = {"sessionId": "one", "cwd": CWD, "mcpServers": [], "replayFrom": {"type": "start"}}
            error = await ends.talk.refused("session/load" if version == 1 else "session/resume", params)
            assert error["code"] == -32000

    run(main())


@VERSIONS
def test_an_agent_that_counts_its_sessions_anew_does_not_mix_them_up(version: int, tmp_path: Path) -> None:
    journal = tmp_path / "journal"

    async def main() -> None:
        async with a_run(version, version, journal, ["s-1"]) as ends:
            assert await ends.talk.new_session() == "s-1"
            await converse(ends, version, "s-1", turn(version, chunk("m", "first")))
        async with a_run(version, version, journal, ["s-1", "s-2"]) as ends:
            assert await ends.talk.new_session() == "s-1~2"  # that is s-1 to the agent
            assert said(await converse(ends, version, "s-1~2", turn(version, chunk("m", "second")))) == ["second"]
            error = await ends.talk.error(ends.talk.prompt("s-1", turn(version, chunk("m", "astray"))))
            assert error["code"] == -32002
            assert said(await attach(ends, version, "s-1")) == ["first", FORGOTTEN]  # that is s-2 to the agent
            assert said(await converse(ends, version, "s-1", turn(version, chunk("n", "third"), user="u2"))) == [
                "third"
            ]
        async with a_run(version, version, journal, ["s-1", "s-2"]) as ends:
            assert said(await attach(ends, version, "s-1~2")) == ["second", FORGOTTEN]
            assert said(await attach(ends, version, "s-1")) == ["first", "third", FORGOTTEN]

    run(main())


@VERSIONS
def test_what_comes_before_the_answer_that_names_its_session_comes_under_its_name(version: int, tmp_path: Path) -> None:
    early = {"sessionUpdate": "session_info_update", "title": "Early"}
    new = {"method": "session/update", "params": {"sessionId": "s-1", "update": early}}

    async def main() -> None:
        async with a_run(version, version, tmp_path / "journal", ["s-1"]) as ends:
            await ends.talk.new_session()
            await converse(ends, version, "s-1", turn(version, chunk("m", "first")))
        async with a_run(version, version, tmp_path / "journal", ["t", "s-1"]) as ends:
            talk = ends.talk
            await talk.new_session()
            since = talk.position
            talk.prompt("t", script({"hear": "session/new"}, {"say": new}, {"serve": None}, IDLE))
            id = talk.request("session/new", {"cwd": CWD, "mcpServers": []})
            assert (await talk.result(id))["sessionId"] == "s-1~2"
            named = [
                line["params"]["sessionId"] for line in talk.heard(since) if line.get("method") == "session/update"
            ]
            assert named[:1] == ["s-1~2"]

    run(main())


@VERSIONS
def test_what_the_agent_remembers_since_it_began_anew_does_not_hide_what_was_before(
    version: int, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    load = "session/load" if version == 1 else "session/resume"
    replayed = [chunk("n", "again")["update"], {"sessionUpdate": "session_info_update", "title": "T"}]

    async def main() -> None:
        async with a_run(version, version, journal, ["one"]) as ends:
            await ends.talk.new_session()
            await converse(ends, version, "one", turn(version, chunk("m", "Hello")))
        initialized = {1: V1, 2: V2}[version]
        async with a_run(version, version, journal, ["two"], initialized=initialized, methods={load: -32002}) as ends:
            assert said(await attach(ends, version, "one")) == ["Hello", FORGOTTEN]
            await converse(ends, version, "one", turn(version, chunk("n", "again"), user="u2"))
        methods = {load: {"updates": replayed}}
        for _ in range(2):
            async with a_run(version, version, journal, [], initialized=initialized, methods=methods) as ends:
                lines = await attach(ends, version, "one")
                assert said(lines) == ["Hello", "again", BEGUN_ANEW]
                assert [one["title"] for one in updates_of(lines) if one["sessionUpdate"] == "session_info_update"][
                    :1
                ] == ["T"]

    run(main())
    with open_journal(str(journal)) as held:
        state = held.load("one").transcript
        assert [one.text for one in state.messages if one.type == "agent_message"] == ["Hello", "again"]


@VERSIONS
def test_the_agents_list_names_sessions_as_the_client_knows_them(version: int, tmp_path: Path) -> None:
    listed = [{"sessionId": "two", "cwd": CWD, "odd": 1}, {"sessionId": "other", "cwd": CWD}]
    load = "session/load" if version == 1 else "session/resume"
    methods = {load: -32002, "session/list": {"sessions": listed, "nextCursor": "n"}}

    async def main() -> None:
        initialized = {1: V1, 2: V2}[version]
        async with a_run(version, version, tmp_path / "journal", ["one"]) as ends:
            await ends.talk.new_session()
        async with a_run(
            version, version, tmp_path / "journal", ["two"], initialized=initialized, methods=methods
        ) as ends:
            await attach(ends, version, "one")
            answer = await ends.talk.ask("session/list")
            assert [one["sessionId"] for one in answer["sessions"]] == ["one", "other"]
            assert (answer["sessions"][0]["odd"], answer["nextCursor"]) == (1, "n")

    run(main())


@VERSIONS
def test_the_journals_list_has_titles_folders_and_pages(version: int, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    names = [f"s-{number}" for number in range(LISTED + 2)]
    with open_journal(str(journal)) as held:
        for name in names:
            setup = {"sessionUpdate": "_twofold/session", "cwd": "/even" if int(name[2:]) % 2 == 0 else "/odd"}
            info = {"sessionUpdate": "session_info_update", "title": name.upper()}
            raws = [v2.encode(v2.read_update(one)) for one in (setup, info)]
            position = held.append(name, 0, raws[0], origin="operator").position
            held.append(name, position, raws[1])

    async def main() -> None:
        methods = {"session/list": -32601}
        async with a_run(version, version, journal, [], methods=methods) as ends:
            first = await ends.talk.ask("session/list")
            second = await ends.talk.ask("session/list", {"cursor": first["nextCursor"]})
            assert [len(page["sessions"]) for page in (first, second)] == [LISTED, 2]
            assert "nextCursor" not in second
            found = [*first["sessions"], *second["sessions"]]
            assert sorted(one["sessionId"] for one in found) == sorted(names)
            assert {one["title"] for one in found} == {name.upper() for name in names}
            even = (await ends.talk.ask("session/list", {"cwd": "/even"}))["sessions"]
            assert {one["cwd"] for one in even} == {"/even"}
            assert len(even) == LISTED // 2 + 1

    run(main())


@VERSIONS
def test_prompts_that_are_sent_right_behind_a_load_wait_for_it(version: int, tmp_path: Path) -> None:
    replayed = [chunk("m", "Hello")["update"]]
    load = "session/load" if version == 1 else "session/resume"

    async def main() -> None:
        initialized = {1: V1, 2: V2}[version]
        async with a_run(
            version,
            version,
            tmp_path / "journal",
            ["one"],
            initialized=initialized,
            methods={load: {"updates": replayed}},
        ) as ends:
            await ends.talk.new_session()
            params = {"sessionId": "one", "cwd": CWD, "mcpServers": [], "replayFrom": {"type": "start"}}
            since = ends.talk.position
            first = ends.talk.request(load, params)
            second = ends.talk.prompt("one", turn(version, chunk("n", "then")))
            await ends.talk.answered(second)
            answers = [line["id"] for line in ends.talk.heard(since) if "method" not in line]
            assert answers == [first, second]

    run(main())


def test_a_journal_that_fails_is_told_of_once_and_the_conversation_goes_on(tmp_path: Path) -> None:
    journal = tmp_path / "journal"

    async def main() -> None:
        async with a_run(2, 2, journal, ["one", "two"]) as ends:
            await ends.talk.new_session()
            assert ends.bridge._recorder is not None
            await converse(ends, 2, "one", turn(2, chunk("m", "Hello")))
            ends.bridge._recorder.flush()
            ends.bridge._recorder.journal.close()
            lines = await converse(ends, 2, "one", turn(2, chunk("n", "still"), chunk("n", " here"), user="u2"))
            assert folded(lines).messages[-1].text == "still here"
            ends.bridge._recorder.flush()
            await ends.talk.new_session()
            [failed] = [facts["words"] for facts in ends.reported("journal") if "nothing more" in facts["words"]]
            assert failed.startswith("the journal failed, nothing more is recorded")

    run(main())
