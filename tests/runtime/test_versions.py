"""The handshake: both tables row by row, and ``initialize`` in the other version's words."""

from __future__ import annotations

import asyncio
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.talk import V1_AGENT, V2_AGENT, Json, Talk, beside, run, served
from tests.wire.schema import Schema
from twofold.exceptions import ConnectionLost, HandshakeFailed, RequestError
from twofold.runtime import memory_pair
from twofold.runtime._versions import (
    choose,
    downgrade_initialize,
    downgrade_initialized,
    supports,
    upgrade_initialize,
    upgrade_initialized,
)
from twofold.runtime.agent import Agent
from twofold.runtime.client import Client, connect


async def nothing(*_: object) -> None: ...


def agent(*versions: int, **members: Any) -> Agent:
    return Agent(name="a", version="1", prompt=nothing, versions=versions or (1, 2), **members)


@cache
def schema(version: Literal[1, 2]) -> Schema:
    return Schema(version)


def faults(version: Literal[1, 2], definition: str, value: Json) -> list[str]:
    """What the official schema of a version has against a value."""
    return [
        f"{error.json_path}: {error.message}"
        for error in schema(version).validator({"$ref": f"#/$defs/{definition}"}).iter_errors(value)
    ]


V1_ASKS: Json = {"protocolVersion": 1, "clientInfo": {"name": "c", "version": "1"}, "clientCapabilities": {}}
V2_ASKS: Json = {"protocolVersion": 2, "info": {"name": "c", "version": "1"}, "capabilities": {}}


# The agent's side


@pytest.mark.parametrize(
    ("asked", "versions", "answer"),
    [
        (2, (1, 2), 2),
        (3, (1, 2), 2),
        (2**40, (1, 2), 2),
        (2, (2,), 2),
        (2, (1,), 1),
        (7, (1,), 1),
        (1, (1, 2), 1),
        (1, (1,), 1),
        (1, (2,), None),
        (0, (1, 2), None),
        (0, (1,), None),
    ],
)
def test_an_agent_answers_the_highest_version_that_it_has_and_that_was_asked(
    asked: int, versions: tuple[int, ...], answer: int | None
) -> None:
    async def main() -> Json:
        ours, theirs = memory_pair()
        serving = asyncio.create_task(agent(*versions).serve(theirs))
        talk = Talk(ours)
        answered = await talk.answered(talk.request("initialize", {**V1_ASKS, **V2_ASKS, "protocolVersion": asked}))
        await ours.close()
        await serving
        return answered

    answered = run(main())
    if answer is None:
        assert answered["error"]["code"] == -32022
        assert answered["error"]["data"] == {"requested": asked, "supported": list(versions)}
        assert not faults(2, "UnsupportedProtocolVersionErrorData", answered["error"]["data"])
        with pytest.raises(RequestError):
            choose(asked, versions)
    else:
        assert answered["result"]["protocolVersion"] == answer == choose(asked, versions)
        assert not faults(2 if answer == 2 else 1, "InitializeResponse", answered["result"])


@pytest.mark.parametrize("asked", ["2", "1", True, False, None, -1, 1.5, [2], {}])
def test_a_version_that_is_no_whole_number_is_refused_and_may_be_asked_again(asked: Json) -> None:
    async def main() -> None:
        ours, theirs = memory_pair()
        serving = asyncio.create_task(agent().serve(theirs))
        talk = Talk(ours)
        error = await talk.refused("initialize", {**V2_ASKS, "protocolVersion": asked})
        assert (error["code"], error["data"]["path"]) == (-32602, "$.params.protocolVersion")
        assert (await talk.initialize())["protocolVersion"] == 2
        await ours.close()
        await serving

    run(main())


@pytest.mark.parametrize(
    "params",
    [
        {"protocolVersion": 2},
        {"protocolVersion": 2, "info": {"name": "c"}},
        {"protocolVersion": 2, "info": None},
        [],
        {**V2_ASKS, "protocolVersion": 0},
    ],
)
@pytest.mark.parametrize("again", [1, 2])
def test_a_failed_initialize_may_be_retried_in_either_version(params: Json, again: int) -> None:
    async def main() -> None:
        ours, theirs = memory_pair()
        serving = asyncio.create_task(agent().serve(theirs))
        talk = Talk(ours)
        await talk.refused("initialize", params)
        assert (await talk.refused("session/new", {"cwd": "/"}))["code"] == -32600, "nothing else comes before it"
        assert (await talk.initialize(again))["protocolVersion"] == again
        await talk.new_session()
        await ours.close()
        await serving

    run(main())


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("again", [1, 2])
def test_a_second_initialize_is_refused_and_changes_nothing(version: int, again: int) -> None:
    async def main() -> None:
        async with served(agent(), version) as talk:
            error = await talk.refused("initialize", {1: V1_ASKS, 2: V2_ASKS}[again])
            assert error["code"] == -32600
            assert await talk.new_session()

    run(main())


def test_what_comes_before_initialize_is_refused_and_notifications_are_ignored() -> None:
    async def main() -> None:
        ours, theirs = memory_pair()
        serving = asyncio.create_task(agent().serve(theirs))
        talk = Talk(ours)
        talk.notify("session/cancel", {"sessionId": "s"})
        talk.notify("_acme/ping", {})
        for method in ("session/new", "session/prompt", "session/list", "_acme/x", "unheard/of"):
            assert (await talk.refused(method, {}))["code"] == -32600
        await talk.initialize()
        await ours.close()
        await serving

    run(main())


def test_an_agent_of_version_1_alone_understands_who_a_version_2_client_is() -> None:
    heard: list[Any] = []

    class Curious(Agent):
        async def extension(self, method: str, params: Any) -> Any:
            return {}

    async def main() -> None:
        from twofold.runtime._agent import AgentConnection

        one = Curious(versions=(1,))
        ours, theirs = memory_pair()
        async with one:
            connection = AgentConnection(one, theirs)
            serving = asyncio.create_task(connection.serve())
            talk = Talk(ours)
            capabilities: Json = {"auth": {"terminal": {}}}
            assert (await talk.initialize(2, capabilities=capabilities))["protocolVersion"] == 1
            heard.extend([connection.client_info.name, connection.client_capabilities])
            await ours.close()
            await serving

    run(main())
    assert heard == ["t", {"auth": {"terminal": {}}}]


def test_an_agent_needs_versions_that_there_are() -> None:
    for versions in [(), (3,), (0, 1)]:
        with pytest.raises(ValueError, match="versions"):
            Agent(versions=versions)


# The client's side


async def meets(answers: list[Json], **options: Any) -> tuple[list[Json], Client | Exception]:
    """Connect to an agent that answers so; give what it was asked, and what came of it."""
    ours, theirs = memory_pair()
    talk = Talk(theirs)
    asked: list[Json] = []

    async def answer() -> None:
        for one in answers:
            line = await talk.asked("initialize")
            asked.append(line["params"])
            if isinstance(one, int):
                talk.fail(line["id"], one, data={"supported": [1]})
            else:
                talk.respond(line["id"], one)

    answering = asyncio.create_task(answer())
    outcome: Client | Exception
    try:
        async with connect(ours, **options) as client:
            outcome = client
    except Exception as error:
        outcome = error
    answering.cancel()
    return asked, outcome


@pytest.mark.parametrize(
    ("versions", "answers", "asked", "version"),
    [
        ((1, 2), [V2_AGENT], [2], 2),
        ((2,), [V2_AGENT], [2], 2),
        ((1, 2), [V1_AGENT], [2], 1),
        ((1, 2), [{"protocolVersion": 1}], [2], 1),
        ((1, 2), [-32022, V1_AGENT], [2, 1], 1),
        ((1, 2), [-32602, V1_AGENT], [2, 1], 1),
        ((1,), [V1_AGENT], [1], 1),
        # and those that give up
        ((1, 2), [{**V2_AGENT, "info": None}], [2], None),
        ((1, 2), [{"protocolVersion": 2}], [2], None),
        ((2,), [V1_AGENT], [2], None),
        ((1, 2), [{**V2_AGENT, "protocolVersion": 3}], [2], None),
        ((1, 2), [{**V2_AGENT, "protocolVersion": "2"}], [2], None),
        ((1, 2), [{**V2_AGENT, "protocolVersion": True}], [2], None),
        ((1, 2), [{"protocolVersion": True}], [2], None),
        ((1, 2), [{**V2_AGENT, "protocolVersion": 0}], [2], None),
        ((1, 2), [{}], [2], None),
        ((1, 2), [[]], [2], None),
        ((1, 2), [None], [2], None),
        ((2,), [-32022], [2], None),
        ((1,), [-32022], [1], None),
        ((1, 2), [-32022, -32022], [2, 1], None),
        ((1, 2), [-32022, V2_AGENT], [2, 1], None),
        ((1,), [V2_AGENT], [1], None),
    ],
)
def test_a_client_reads_the_answer_by_the_table(
    versions: tuple[int, ...], answers: list[Json], asked: list[int], version: int | None
) -> None:
    heard, outcome = run(meets(answers, versions=versions))
    assert [params["protocolVersion"] for params in heard] == asked
    for params in heard:
        number = params["protocolVersion"]
        assert not faults(number, "InitializeRequest", params)
    if version is None:
        assert isinstance(outcome, HandshakeFailed), outcome
    else:
        assert isinstance(outcome, Client), outcome
        assert outcome.version == version
        assert outcome.info.name


@pytest.mark.parametrize(
    "answer",
    [
        {"protocolVersion": 1, "agentCapabilities": None, "authMethods": None, "agentInfo": None},
        {"protocolVersion": 1, "agentCapabilities": [], "authMethods": {}, "agentInfo": []},
        {"protocolVersion": 1, "agentCapabilities": "all", "authMethods": 7, "agentInfo": "me"},
        {"protocolVersion": 1, "agentCapabilities": {"sessionCapabilities": 1, "promptCapabilities": [True]}},
        {"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": "http", "loadSession": "yes"}},
        {"protocolVersion": 1, "agentInfo": {"name": "n", "version": "1", "title": 5}, "_meta": 3},
        {"protocolVersion": 1, "agentInfo": {"name": 1, "version": "1"}, "authMethods": [None, 1, {"name": "x"}]},
    ],
)
def test_what_a_version_1_agent_says_wrong_beside_its_version_counts_as_not_said(answer: Json) -> None:
    _, outcome = run(meets([answer]))
    assert isinstance(outcome, Client), outcome
    assert outcome.version == 1
    assert outcome.auth_methods == ()
    assert not faults(2, "InitializeResponse", upgrade_initialized(answer, name="x"))


def test_a_client_of_version_2_alone_says_what_it_was_refused_with() -> None:
    _, outcome = run(meets([-32022], versions=(2,)))
    assert isinstance(outcome, HandshakeFailed)
    assert (outcome.asked, outcome.answered) == (2, [1])


def test_an_agent_that_is_gone_before_it_answers_is_a_lost_connection() -> None:
    async def main() -> None:
        ours, theirs = memory_pair()
        talk = Talk(theirs)

        async def leave() -> None:
            await talk.asked("initialize")
            await theirs.close()

        leaving = asyncio.create_task(leave())
        with pytest.raises(ConnectionLost):
            async with connect(ours):
                raise AssertionError("there is no agent")
        await leaving

    run(main())


def test_an_agent_that_never_answers_is_given_up_in_time() -> None:
    async def main() -> None:
        ours, _theirs = memory_pair()
        with pytest.raises(HandshakeFailed, match=r"within 0\.05 seconds"):
            async with connect(ours, start_timeout=0.05):
                raise AssertionError("there is no agent")

    run(main())


PROGRAM = """
import json, sys
open(sys.argv[1], "a").write("started\\n")
for line in sys.stdin:
    request = json.loads(line)
    answer = json.loads(sys.argv[2])[str(request["params"]["protocolVersion"])]
    key = "error" if "code" in answer else "result"
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], key: answer}), flush=True)
"""


async def starts(tmp_path: Path, answers: dict[str, Json], **options: Any) -> tuple[int, Client | Exception]:
    """Connect to a program that answers so; give how often it was started, and what came of it."""
    log = tmp_path / "log"
    outcome: Client | Exception
    try:
        async with connect([sys.executable, "-c", PROGRAM, str(log), json.dumps(answers)], **options) as client:
            outcome = client
    except Exception as error:
        outcome = error
    return len(log.read_text().splitlines()), outcome


def test_a_program_that_says_2_and_does_not_speak_it_is_started_again_for_1(tmp_path: Path) -> None:
    times, outcome = run(starts(tmp_path, {"2": {"protocolVersion": 2}, "1": V1_AGENT}))
    assert times == 2
    assert isinstance(outcome, Client)
    assert (outcome.version, outcome.info.name, outcome.lost is not None) == (1, "old", True)


@pytest.mark.parametrize("options", [{"restart": False}, {"versions": (2,)}])
def test_it_is_not_started_again_where_that_is_not_wanted(tmp_path: Path, options: Json) -> None:
    times, outcome = run(starts(tmp_path, {"2": {"protocolVersion": 2}, "1": V1_AGENT}, **options))
    assert times == 1
    assert isinstance(outcome, HandshakeFailed)


@pytest.mark.parametrize("second", [{"protocolVersion": 2}, V2_AGENT])
def test_a_program_that_says_2_whatever_it_is_asked_is_started_twice_at_most(tmp_path: Path, second: Json) -> None:
    times, outcome = run(starts(tmp_path, {"2": {"protocolVersion": 2}, "1": second}))
    assert times == 2
    assert isinstance(outcome, HandshakeFailed)
    times, outcome = run(starts(tmp_path, {"2": {"code": -32602, "message": "no"}, "1": second}))
    assert times == 3, "the second time it was started once"
    assert isinstance(outcome, HandshakeFailed)


# In the other version's words

AGENT_METHOD: Json = {"type": "agent", "methodId": "m", "name": "Log in"}
TERMINAL_METHOD: Json = {
    "type": "terminal",
    "methodId": "t",
    "name": "Shell",
    "args": ["login"],
    "env": [{"name": "A", "value": "1"}],
}


def test_an_agent_that_can_everything_says_so_in_both_versions() -> None:
    full = agent()
    full.title = "A"
    full.prompt_content = ("image", "audio", "embeddedContext")
    full.mcp_transports = ("stdio", "http")
    full.auth_methods = [AGENT_METHOD, TERMINAL_METHOD]

    async def main(version: int, **initialize: Json) -> Json:
        async with served(full, version, **initialize) as talk:
            return talk.lines[0]["result"]

    two = run(main(2, capabilities={"auth": {"terminal": {}}}))
    assert not faults(2, "InitializeResponse", two)
    assert two == {
        "protocolVersion": 2,
        "info": {"name": "a", "version": "1", "title": "A"},
        "capabilities": {
            "session": {
                "prompt": {"image": {}, "audio": {}, "embeddedContext": {}},
                "mcp": {"stdio": {}, "http": {}},
                "delete": {},
                "additionalDirectories": {},
            }
        },
        "authMethods": [AGENT_METHOD, TERMINAL_METHOD],
    }
    one = run(main(1, clientCapabilities={"auth": {"terminal": True}}))
    assert not faults(1, "InitializeResponse", one)
    assert one == {
        "protocolVersion": 1,
        "agentInfo": {"name": "a", "version": "1", "title": "A"},
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
            "mcpCapabilities": {"http": True, "sse": False},
            "sessionCapabilities": {
                "list": {},
                "resume": {},
                "close": {},
                "delete": {},
                "additionalDirectories": {},
            },
            "auth": {"logout": {}},
        },
        "authMethods": [
            {"id": "m", "name": "Log in"},
            {"type": "terminal", "id": "t", "name": "Shell", "args": ["login"], "env": {"A": "1"}},
        ],
    }
    assert upgrade_initialized(one, name="?") == two, "nothing was lost on the way there and back"
    full.auth_methods = [{**TERMINAL_METHOD, "env": []}]
    one = run(main(1, clientCapabilities={"auth": {"terminal": True}}))
    assert one["authMethods"] == [{"type": "terminal", "id": "t", "name": "Shell", "args": ["login"], "env": {}}]


@pytest.mark.parametrize("version", [1, 2])
def test_methods_for_a_terminal_are_offered_to_clients_that_have_one(version: int) -> None:
    one = agent()
    one.auth_methods = [AGENT_METHOD, TERMINAL_METHOD]

    async def main() -> Json:
        async with served(one, version) as talk:
            return talk.lines[0]["result"]["authMethods"]

    assert [method["name"] for method in run(main())] == ["Log in"]


def test_an_agent_that_can_nothing_more_says_no_more() -> None:
    async def main(version: int) -> Json:
        async with served(agent(), version) as talk:
            return talk.lines[0]["result"]

    two, one = run(main(2)), run(main(1))
    assert not faults(2, "InitializeResponse", two)
    assert not faults(1, "InitializeResponse", one)
    assert "authMethods" not in two
    assert one["authMethods"] == []
    assert "auth" not in one["agentCapabilities"]
    assert not any(one["agentCapabilities"]["promptCapabilities"].values())


def test_markers_are_objects() -> None:
    markers: list[tuple[Json, bool]] = [
        ({}, True),
        ({"x": 1}, True),
        (None, False),
        (True, False),
        ([], False),
        ("yes", False),
    ]
    for marker, has in markers:
        assert supports({"session": {"delete": marker}}, "session", "delete") is has
    assert not supports(None, "session")
    assert not supports({"session": []}, "session", "delete")


few = settings(max_examples=40)

some = st.one_of(st.none(), st.booleans(), st.integers(0, 2), st.text(max_size=2), st.just([]), st.just({}))
words = st.text(max_size=3)
meta = st.one_of(st.none(), st.dictionaries(words, some, max_size=2))


def maybe(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({}, optional=fields)


def whole(optional: dict[str, st.SearchStrategy[Any]], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(fields, optional=optional)


infos = whole({"title": st.one_of(st.none(), words), "_meta": meta}, name=words, version=words)
described = {"description": st.one_of(st.none(), words), "_meta": meta}
variables = st.dictionaries(words, words, max_size=2)
marker: st.SearchStrategy[Json] = st.one_of(st.none(), st.just({}))
v1_methods = st.one_of(
    whole(described, id=words, name=words),
    whole(
        {**described, "args": st.lists(words, max_size=2), "env": variables},
        type=st.just("terminal"),
        id=words,
        name=words,
    ),
)
v2_methods = st.one_of(
    whole(described, type=st.just("agent"), methodId=words, name=words),
    whole(
        {
            **described,
            "args": st.lists(words, max_size=2),
            "env": variables.map(lambda held: [{"name": name, "value": value} for name, value in held.items()]),
        },
        type=st.just("terminal"),
        methodId=words,
        name=words,
    ),
    whole({"more": some}, type=st.just("_acme"), methodId=words, name=words),
)
v1_answers = whole(
    {
        "agentInfo": st.one_of(st.none(), infos),
        "agentCapabilities": maybe(
            loadSession=st.booleans(),
            promptCapabilities=maybe(image=st.booleans(), audio=st.booleans(), embeddedContext=st.booleans()),
            mcpCapabilities=maybe(http=st.booleans(), sse=st.booleans()),
            sessionCapabilities=maybe(
                list=marker, resume=marker, close=marker, delete=marker, additionalDirectories=marker
            ),
            auth=maybe(logout=marker),
            _meta=meta,
        ),
        "authMethods": st.lists(v1_methods, max_size=2),
        "_meta": meta,
    },
    protocolVersion=st.just(1),
)
v2_answers = whole(
    {
        "capabilities": maybe(
            session=st.one_of(
                st.none(),
                maybe(
                    prompt=st.one_of(st.none(), maybe(image=marker, audio=marker, embeddedContext=marker)),
                    mcp=st.one_of(st.none(), maybe(stdio=marker, http=marker)),
                    delete=marker,
                    additionalDirectories=marker,
                ),
            ),
            _meta=meta,
        ),
        "authMethods": st.lists(v2_methods, min_size=1, max_size=2),
        "_meta": meta,
    },
    protocolVersion=st.just(2),
    info=infos,
)
v1_questions = whole(
    {
        "clientInfo": st.one_of(st.none(), infos),
        "clientCapabilities": maybe(
            fs=maybe(readTextFile=st.booleans(), writeTextFile=st.booleans()),
            terminal=st.booleans(),
            auth=maybe(terminal=st.booleans(), _meta=meta),
            elicitation=st.one_of(st.none(), maybe(form=marker, url=marker)),
            _meta=meta,
        ),
        "_meta": meta,
    },
    protocolVersion=st.just(1),
)
v2_questions = whole(
    {
        "capabilities": maybe(
            auth=st.one_of(st.none(), maybe(terminal=marker)),
            elicitation=st.one_of(st.none(), maybe(form=marker, url=marker)),
            _meta=meta,
        ),
        "_meta": meta,
    },
    protocolVersion=st.just(2),
    info=infos,
)


@few
@given(v1_answers)
def test_a_version_1_answer_becomes_a_valid_version_2_answer(answer: Json) -> None:
    assert not faults(1, "InitializeResponse", answer)
    upgraded = upgrade_initialized(answer, name="x")
    assert not faults(2, "InitializeResponse", upgraded)
    assert (upgraded.get("_meta") or None) == (answer.get("_meta") or None)


@few
@given(v2_answers)
def test_a_version_2_answer_becomes_a_valid_version_1_answer(answer: Json) -> None:
    assert not faults(2, "InitializeResponse", answer)
    assert not faults(1, "InitializeResponse", downgrade_initialized(answer))


@few
@given(v1_questions)
def test_a_version_1_question_becomes_a_valid_version_2_question(question: Json) -> None:
    assert not faults(1, "InitializeRequest", question)
    upgraded = upgrade_initialize(question)
    assert not faults(2, "InitializeRequest", upgraded)
    assert not {"fs", "terminal"} & upgraded["capabilities"].keys(), "they are not offered"


@few
@given(v2_questions)
def test_a_version_2_question_becomes_a_valid_version_1_question(question: Json) -> None:
    assert not faults(2, "InitializeRequest", question)
    downgraded = downgrade_initialize(question)
    assert not faults(1, "InitializeRequest", downgraded)
    assert downgraded["clientInfo"] == question["info"]
    assert downgraded["clientCapabilities"]["terminal"] is False


@few
@given(st.dictionaries(st.sampled_from(["clientInfo", "clientCapabilities", "_meta", "info"]), some, max_size=3))
def test_what_a_version_1_client_says_wrong_beside_its_version_counts_as_not_said(question: Json) -> None:
    wrong: list[Json] = [None, [], "x", {"terminal": 1}]
    for auth in wrong:
        question = {"protocolVersion": 1, "clientCapabilities": {"auth": auth}, **question}
        assert not faults(2, "InitializeRequest", upgrade_initialize(question))


def test_a_client_in_this_process_agrees_on_every_version_that_both_have() -> None:
    async def main(ours: tuple[int, ...], theirs: tuple[int, ...]) -> int:
        async with connect(agent(*theirs), versions=ours) as client:
            assert client.info.name == "a"
            return client.version

    assert run(main((1, 2), (1, 2))) == 2
    assert run(main((1, 2), (1,))) == 1
    assert run(main((1,), (1, 2))) == 1
    with pytest.raises(HandshakeFailed):
        run(main((1,), (2,)))
    with pytest.raises(HandshakeFailed):
        run(main((2,), (1,)))


def test_the_client_says_who_it_is_in_the_words_of_the_version_it_asks_for() -> None:
    async def main(version: int, initialized: Json) -> Json:
        options: dict[str, Any] = {
            "name": "n",
            "version": "9",
            "title": "N",
            "capabilities": {"auth": {"terminal": {}}},
        }
        async with beside(initialized, versions=(version,), **options) as (_, talk):
            return talk.lines[0]["params"]

    assert run(main(2, V2_AGENT)) == {
        "protocolVersion": 2,
        "info": {"name": "n", "version": "9", "title": "N"},
        "capabilities": {"auth": {"terminal": {}}},
    }
    one = run(main(1, V1_AGENT))
    assert one["clientInfo"] == {"name": "n", "version": "9", "title": "N"}
    assert one["clientCapabilities"]["auth"] == {"terminal": True}
    assert not faults(1, "InitializeRequest", one)
