"""What an agent that speaks version 2 does, held against the examples: the requirements, and what is newer than them.

One process of each example serves nearly all tests. Where it matters that nothing more comes, a recorded conversation
is looked at, which was read to the end of the process.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.driver import ALLOW, REJECT, TRACE, Agent, Turn, initialize_params, started, undecided
from tests.conformance.judge import Line, Message, at, extras, faults, is_valid, metas, words
from tests.conformance.requirements import V2

EXAMPLES = ("echo_agent", "streaming_agent")

MESSAGES = {"user_message", "agent_message", "agent_thought"}
CHUNKS = {f"{kind}_chunk" for kind in MESSAGES}

ODD_TEXT = "é中文 😀\u2028\u0085 \\u0041 \x7f end"


# Agents


@pytest.fixture(params=EXAMPLES)
def fresh(request: pytest.FixtureRequest) -> Iterator[Agent]:
    """An agent that nothing was said to."""
    with started(request.param) as agent:
        yield agent
        agent.check()


@pytest.fixture(scope="module", params=EXAMPLES)
def running(request: pytest.FixtureRequest) -> Iterator[Agent]:
    with started(request.param) as agent:
        agent.initialize(2)
        yield agent
        assert agent.end() == 0, agent.story()


@pytest.fixture
def agent(running: Agent) -> Iterator[Agent]:
    """Each of the examples; what it sends during the test has to fit the schema."""
    yield running
    running.check()


@pytest.fixture(scope="module")
def running_streaming() -> Iterator[Agent]:
    with started("streaming_agent") as agent:
        agent.initialize(2)
        yield agent
        assert agent.end() == 0, agent.story()


@pytest.fixture
def streaming(running_streaming: Agent) -> Iterator[Agent]:
    """The example that streams, uses tools and can be slow."""
    yield running_streaming
    running_streaming.check()


@dataclass(frozen=True)
class Talk:
    """A conversation that is over, with all that the agent ever sent in it."""

    agent: Agent
    turns: dict[str, Turn]
    listed: Message

    @property
    def lines(self) -> list[Line]:
        return self.agent.received()

    def updates(self, *kinds: str) -> list[Message]:
        return [line.update for line in self.lines if line.update.get("sessionUpdate") in kinds]


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    cwd = tmp_path_factory.mktemp("talk")
    with started("streaming_agent") as agent:
        agent.initialize(2)
        session, slow, gone = (agent.new_session(cwd) for _ in range(3))
        turns = {
            "stream": agent.prompt(session, "stream").finish(),
            "tool": agent.prompt(session, "tool").finish(ALLOW),
            "tool, rejected": agent.prompt(session, "tool").finish(REJECT),
            "boom": agent.prompt(session, "boom").finish(),
            "echo": agent.prompt(session, ODD_TEXT).finish(),
            "slow": cancelled(agent.prompt(slow, "slow")),
        }
        agent.call("session/resume", {"sessionId": session, "cwd": str(cwd), "replayFrom": {"type": "start"}})
        listed = agent.call("session/list")
        agent.call("session/close", {"sessionId": gone})
        agent.call("session/delete", {"sessionId": gone})
        agent.refusal("session/unknown")
        agent.refusal("session/new")
        agent.refusal("session/prompt", {"sessionId": "never-made", "prompt": [{"type": "text", "text": "?"}]})
        agent.end()
        yield Talk(agent, turns, listed)


def ticks(line: Line) -> bool:
    return "tick" in json.dumps(line.update)


def cancelled(turn: Turn, **members: Any) -> Turn:
    """Cancel a slow turn once it is under way, and wait for its end."""
    turn.wait_for(ticks, "the first tick")
    turn.cancel(**members)
    return turn.finish()


def resumed(agent: Agent, session: str, cwd: Path, **more: Any) -> tuple[list[Message], list[Message]]:
    """Resume a session; return the updates before the answer, and those until the agent has settled after it."""
    since = agent.position
    id = agent.request("session/resume", {"sessionId": session, "cwd": str(cwd), **more})
    answer = agent.answer_at(id, since)
    assert isinstance(agent.lines[answer].message.get("result"), dict), agent.story(since)
    end = agent.settled()
    return _updates(agent, session, since, answer), _updates(agent, session, answer, end)


def _updates(agent: Agent, session: str, since: int, until: int) -> list[Message]:
    return [line.update for line in agent.received(since, until) if line.is_about(session)]


def answers(agent: Agent, since: int) -> list[Message]:
    """Give all answers since a position, once the agent has settled."""
    return [line.message for line in agent.heard(since) if line.is_answer]


# Opening


@pytest.mark.requirement("INIT-001", "INIT-201")
def test_a_client_that_asks_for_version_2_gets_version_2(agent: Agent) -> None:
    assert agent.opening["protocolVersion"] == 2


@pytest.mark.requirement("INIT-003")
def test_a_version_far_too_high_is_answered_with_the_highest_that_there_is(fresh: Agent) -> None:
    assert fresh.call("initialize", initialize_params(65535))["protocolVersion"] == 2


@pytest.mark.requirement("INIT-202")
def test_a_client_that_asks_for_version_1_gets_version_1_of_the_same_agent(fresh: Agent) -> None:
    assert fresh.initialize(1)["protocolVersion"] == 1


def test_a_version_below_all_is_refused_with_those_that_there_are_and_may_be_asked_again(fresh: Agent) -> None:
    error = fresh.refusal("initialize", initialize_params(0))
    assert error["code"] == -32022
    assert is_valid(2, "UnsupportedProtocolVersionErrorData", error["data"])
    assert error["data"]["requested"] == 0
    assert sorted(error["data"]["supported"]) == [1, 2]
    assert fresh.initialize(2)["protocolVersion"] == 2


def test_nothing_is_done_before_the_connection_is_open(fresh: Agent, tmp_path: Path) -> None:
    assert fresh.refusal("session/new", {"cwd": str(tmp_path)})["code"] == -32600
    fresh.initialize(2)
    assert fresh.call("session/list")["sessions"] == []


INFO = {"name": "conformance", "version": "0"}

ILL_FORMED: list[Message] = [
    {},
    {"protocolVersion": "2", "info": INFO},
    {"protocolVersion": 2.5, "info": INFO},
    {"protocolVersion": True, "info": INFO},
    {"protocolVersion": -1, "info": INFO},
    {"protocolVersion": 2},
    {"protocolVersion": 2, "info": {"name": "conformance"}},
]


def test_an_opening_that_is_not_well_formed_is_refused_and_may_be_repeated(fresh: Agent) -> None:
    assert [(params, fresh.refusal("initialize", params)["code"]) for params in ILL_FORMED] == [
        (params, -32602) for params in ILL_FORMED
    ]
    assert fresh.initialize(2)["protocolVersion"] == 2
    assert fresh.refusal("initialize", initialize_params(2))["code"] == -32600


def test_what_is_sent_right_behind_the_opening_is_served_after_it(fresh: Agent, tmp_path: Path) -> None:
    opening = fresh.request("initialize", initialize_params(2))
    made = fresh.request("session/new", {"cwd": str(tmp_path)})
    assert fresh.answer_at(opening) < fresh.answer_at(made)
    assert "result" in fresh.answer(made)


@pytest.mark.requirement("INIT-203")
def test_the_agent_gives_its_name_and_version(agent: Agent) -> None:
    assert agent.opening["info"]["name"]
    assert agent.opening["info"]["version"]


@pytest.mark.requirement("INIT-204")
def test_capabilities_are_objects_and_never_booleans(agent: Agent) -> None:
    def markers(capabilities: Message) -> Iterator[Any]:
        for name, value in capabilities.items():
            if name != "_meta":
                yield value
                if isinstance(value, dict):
                    yield from markers(value)

    assert [
        one for one in markers(agent.opening["capabilities"]) if one is not None and not isinstance(one, dict)
    ] == []


@pytest.mark.requirement("EXT-202")
def test_capabilities_that_the_schema_does_not_know_are_announced_in_meta_only(agent: Agent) -> None:
    assert extras(agent.lines[:2]) == []


@pytest.mark.requirement("AUTH-201", "AUTH-202", "AUTH-206")
def test_authentication_methods_are_told_apart_and_none_needs_a_terminal(agent: Agent) -> None:
    methods = agent.opening.get("authMethods", [])
    assert len({method["methodId"] for method in methods}) == len(methods)
    assert [one for one in methods if one["type"] == "terminal"] == []
    assert [one for one in methods if not may_send(one["type"], "AuthMethod")] == []


def test_what_is_waived_as_not_offered_is_not_offered(agent: Agent, tmp_path: Path) -> None:
    made = agent.call("session/new", {"cwd": str(tmp_path)})
    said = {
        "initialize": agent.opening,
        "session/new": made,
        "session/resume": agent.call("session/resume", {"sessionId": made["sessionId"], "cwd": str(tmp_path)}),
    }
    offered = {one.id: at(said, one.needs) for one in V2 if one.needs}
    assert {id: value for id, value in offered.items() if value not in (None, [])} == {}


# Lines


@pytest.mark.requirement("TRANSPORT-201", "TRANSPORT-002", "TRANSPORT-203")
def test_every_line_is_one_message_in_utf_8(talk: Talk) -> None:
    assert [line for line in talk.lines if line.fault] == []
    assert {line.message["jsonrpc"] for line in talk.lines} == {"2.0"}
    assert talk.turns["echo"].text == ODD_TEXT


@pytest.mark.requirement("SCHEMA-001")
def test_all_that_is_sent_fits_the_schema(talk: Talk) -> None:
    assert faults(talk.agent.lines) == []


@pytest.mark.requirement("SCHEMA-002")
def test_nothing_that_is_sent_has_fields_that_the_schema_does_not_know(talk: Talk) -> None:
    assert extras(talk.agent.lines) == []


@pytest.mark.requirement("META-201")
def test_metadata_is_an_object_or_null(talk: Talk) -> None:
    found = [meta for line in talk.lines for meta in metas(line.message)]
    assert [meta for meta in found if meta is not None and not isinstance(meta, dict)] == []


@pytest.mark.requirement("JSONRPC-002")
def test_an_answer_has_a_result_or_an_error_with_code_and_message(talk: Talk) -> None:
    said = [line.message for line in talk.lines if line.is_answer]
    assert [one for one in said if ("result" in one) == ("error" in one)] == []
    errors = [one["error"] for one in said if "error" in one]
    assert len(errors) == 3
    assert {(type(error["code"]), type(error["message"])) for error in errors} == {(int, str)}


@pytest.mark.requirement("ERROR-001")
def test_error_messages_are_one_line(talk: Talk) -> None:
    errors = [line.message["error"]["message"] for line in talk.lines if "error" in line.message]
    errors += [update["error"]["message"] for update in talk.turns["boom"].of("state_update") if update.get("error")]
    assert [message for message in errors if len(message.splitlines()) != 1] == []


@pytest.mark.requirement("JSONRPC-001")
@pytest.mark.parametrize("id", [424242, -1, "words", "42", "", "é\n"])
def test_an_answer_repeats_the_id_of_its_request(agent: Agent, id: int | str) -> None:
    assert "result" in agent.answer(agent.request("session/list", id=id), agent.position - 1)


@pytest.mark.requirement("JSONRPC-003", "EXT-201", "EXT-203")
@pytest.mark.parametrize("method", ["session/cancel", "_conformance/word", "$/conformance", "session/unknown"])
def test_a_notification_is_not_answered(agent: Agent, tmp_path: Path, method: str) -> None:
    session = agent.new_session(tmp_path)
    since = agent.position
    agent.notify(method, {"sessionId": session})
    assert answers(agent, since) == []


@pytest.mark.requirement("JSONRPC-004", "EXT-001")
@pytest.mark.parametrize("method", ["_conformance/word", "session/unknown", "session/load", "authenticate", ""])
def test_a_request_with_an_unknown_method_is_answered_as_such(agent: Agent, method: str) -> None:
    assert agent.refusal(method)["code"] == -32601


CALL = b'{"jsonrpc":"2.0","id":"in-an-array","method":"session/list","params":{}}'

UNREADABLE = {
    "an empty array": (b"[]", -32600),
    "an array of no messages": (b"[17, true, null]", -32600),
    "an array of calls": (b"[" + CALL + b"," + CALL.replace(b"array", b"array-too") + b"]", -32600),
    "an array of notifications": (b'[{"jsonrpc":"2.0","method":"_conformance/word"}]', -32600),
    "an array of a call and an answer": (b"[" + CALL + b',{"jsonrpc":"2.0","id":"x","result":{}}]', -32600),
    "half an array": (b'[{"jsonrpc": "2.0", "id": 1, "method": ', -32700),
    "half an object": (CALL[:-1], -32700),
    "no JSON": (b"hello", -32700),
    "no number": (b'{"jsonrpc":"2.0","id":1,"method":"session/list","params":{"a":NaN}}', -32700),
    "bad UTF-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700),
    "no message": (b'{"foo": "bar"}', -32600),
    "a bare value": (b'"session/list"', -32600),
    "the id null": (CALL.replace(b'"in-an-array"', b"null"), -32600),
}


@pytest.mark.requirement("BATCH-201", "INFO-BATCH-201", "INFO-BATCH-202", "INFO-PARSE-001", "INFO-INVALIDREQ-001")
@pytest.mark.requirement("JSONRPC-005")
@pytest.mark.parametrize("what", UNREADABLE)
def test_what_is_no_message_gets_one_error_for_no_id_and_the_connection_goes_on(agent: Agent, what: str) -> None:
    line, code = UNREADABLE[what]
    since = agent.position
    agent.send_raw(line)
    assert agent.answer(None, since)["error"]["code"] == code
    assert [(one["id"], one["error"]["code"]) for one in answers(agent, since)] == [(None, code)]
    assert "sessions" in agent.call("session/list")


@pytest.mark.requirement("SHUTDOWN-001", "STDERR-001")
def test_the_agent_ends_with_its_input_and_has_nothing_to_complain_of(fresh: Agent, tmp_path: Path) -> None:
    fresh.initialize(2)
    fresh.prompt(fresh.new_session(tmp_path), "hello").finish()
    assert fresh.end() == 0
    assert fresh.errors == b""


# Sessions


@pytest.mark.requirement("SESSION-001", "AUTH-205")
def test_a_new_session_needs_a_directory_only(agent: Agent, tmp_path: Path) -> None:
    session = agent.call("session/new", {"cwd": str(tmp_path)})["sessionId"]
    assert isinstance(session, str)
    assert session


@pytest.mark.requirement("SESSION-002")
def test_two_sessions_have_two_ids(agent: Agent, tmp_path: Path) -> None:
    assert agent.new_session(tmp_path) != agent.new_session(tmp_path)


@pytest.mark.requirement("SESSION-203")
@pytest.mark.parametrize("servers", [{}, {"mcpServers": []}, {"mcpServers": None}])
def test_no_servers_and_an_empty_list_of_them_are_the_same(agent: Agent, tmp_path: Path, servers: Message) -> None:
    assert agent.call("session/new", {"cwd": str(tmp_path), **servers})["sessionId"]


@pytest.mark.parametrize("params", [{}, {"cwd": "here"}, {"cwd": None}, {"cwd": 7}])
def test_a_session_without_an_absolute_directory_is_refused(agent: Agent, params: Message) -> None:
    assert agent.refusal("session/new", params)["code"] == -32602


@pytest.mark.requirement("ADDDIRS-201", "ADDDIRS-202")
def test_a_session_may_have_more_directories_than_one_and_others_when_resumed(agent: Agent, tmp_path: Path) -> None:
    params: Message = {"cwd": str(tmp_path), "additionalDirectories": [str(tmp_path / "one")]}
    session = agent.call("session/new", params)["sessionId"]
    agent.call(
        "session/resume", {"sessionId": session, **params, "additionalDirectories": [str(tmp_path / "two"), "/"]}
    )
    assert agent.prompt(session, "hello").finish().stop_reason == "end_turn"


def test_the_list_says_which_directories_a_session_has_now(agent: Agent, tmp_path: Path) -> None:
    def listed() -> Any:
        return {one["sessionId"]: one for one in agent.call("session/list")["sessions"]}[session][
            "additionalDirectories"
        ]

    one, two = [str(tmp_path / "one")], [str(tmp_path / "two"), "/"]
    session = agent.call("session/new", {"cwd": str(tmp_path), "additionalDirectories": one})["sessionId"]
    assert listed() == one
    agent.call("session/resume", {"sessionId": session, "cwd": str(tmp_path), "additionalDirectories": two})
    assert listed() == two


@pytest.mark.parametrize("directories", [["here"], "/", [None], {}])
def test_more_directories_that_are_not_absolute_are_refused(agent: Agent, tmp_path: Path, directories: object) -> None:
    params = {"cwd": str(tmp_path), "additionalDirectories": directories}
    assert agent.refusal("session/new", params)["code"] == -32602


SERVERS = [
    {"type": "http", "name": "web", "url": "http://127.0.0.1:9/", "headers": []},
    {"type": "stdio", "name": "local", "command": "/bin/true", "args": [], "env": []},
    {"type": "_carrier_pigeon", "name": "loft"},
]


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server["type"])
def test_a_server_that_cannot_be_reached_as_asked_is_refused(agent: Agent, tmp_path: Path, server: Message) -> None:
    assert agent.refusal("session/new", {"cwd": str(tmp_path), "mcpServers": [server]})["code"] == -32602


@pytest.mark.requirement("LIST-201", "LIST-204")
def test_sessions_are_listed_with_absolute_directories(agent: Agent, tmp_path: Path) -> None:
    session = agent.new_session(tmp_path)
    listed = agent.call("session/list")["sessions"]
    assert session in [one["sessionId"] for one in listed]
    assert [one for one in listed if not Path(one["cwd"]).is_absolute()] == []


@pytest.mark.requirement("LIST-202")
def test_a_directory_without_sessions_has_an_empty_list(agent: Agent, tmp_path: Path) -> None:
    agent.new_session(tmp_path)
    assert agent.call("session/list", {"cwd": str(tmp_path / "none")})["sessions"] == []


@pytest.mark.requirement("LIST-203")
def test_sessions_of_one_directory_are_listed_apart(agent: Agent, tmp_path: Path) -> None:
    here, below = agent.new_session(tmp_path), agent.new_session(tmp_path / "below")
    listed = agent.call("session/list", {"cwd": str(tmp_path)})["sessions"]
    assert {one["cwd"] for one in listed} == {str(tmp_path)}
    assert here in [one["sessionId"] for one in listed]
    assert below not in [one["sessionId"] for one in listed]


@pytest.mark.requirement("CLOSE-201")
def test_an_idle_session_is_closed(agent: Agent, tmp_path: Path) -> None:
    assert agent.call("session/close", {"sessionId": agent.new_session(tmp_path)}) == {}


def test_closing_a_session_that_is_not_there_succeeds(agent: Agent) -> None:
    assert agent.call("session/close", {"sessionId": "never-made"}) == {}


@pytest.mark.requirement("DELETE-201", "DELETE-202")
def test_a_deleted_session_is_listed_no_more(agent: Agent, tmp_path: Path) -> None:
    def listed() -> list[str]:
        return [one["sessionId"] for one in agent.call("session/list")["sessions"]]

    session, kept = agent.new_session(tmp_path), agent.new_session(tmp_path)
    assert session in listed()
    assert agent.call("session/delete", {"sessionId": session}) == {}
    assert session not in listed()
    assert kept in listed()


@pytest.mark.requirement("DELETE-203")
def test_deleting_a_session_that_is_not_there_succeeds(agent: Agent, tmp_path: Path) -> None:
    session = agent.new_session(tmp_path)
    for _ in range(2):
        agent.call("session/delete", {"sessionId": session})
    agent.call("session/delete", {"sessionId": "never-made"})


@pytest.mark.requirement("INFO-UNKNOWNSESSION-001")
@pytest.mark.parametrize(
    ("method", "more"),
    [("session/prompt", {"prompt": [{"type": "text", "text": "?"}]}), ("session/resume", {"cwd": "/"})],
)
def test_an_unknown_session_is_named_in_the_error(agent: Agent, method: str, more: Message) -> None:
    error = agent.refusal(method, {"sessionId": "never-made", **more})
    assert (error["code"], error["data"]) == (-32002, {"sessionId": "never-made"})


# Turns


@pytest.mark.requirement("PROMPT-201")
def test_a_prompt_is_answered_with_the_id_of_its_message_and_not_with_its_end(agent: Agent, tmp_path: Path) -> None:
    turn = agent.prompt(agent.new_session(tmp_path), "hello").finish()
    assert turn.answer["result"]["messageId"]
    assert "stopReason" not in turn.answer["result"]
    assert turn.text == "hello"


@pytest.mark.requirement("PROMPT-203")
def test_the_message_is_reported_under_the_id_of_the_answer_before_the_turn_is_over(talk: Talk) -> None:
    for turn in talk.turns.values():
        user = turn.of("user_message", "user_message_chunk")
        assert {update["messageId"] for update in user} == {turn.answer["result"]["messageId"]}


@pytest.mark.requirement("PROMPT-205")
def test_the_updates_of_a_turn_are_about_its_session(talk: Talk) -> None:
    for turn in talk.turns.values():
        updates = [line for line in turn.lines if line.update]
        assert {line.params["sessionId"] for line in updates} == {turn.session}


@pytest.mark.requirement("PROMPT-003")
def test_a_prompt_may_hold_a_link_to_a_resource(agent: Agent, tmp_path: Path) -> None:
    link = {"type": "resource_link", "uri": (tmp_path / "notes.md").as_uri(), "name": "notes.md"}
    turn = agent.prompt(agent.new_session(tmp_path), "see", link).finish()
    assert (turn.stop_reason, turn.answer["result"]["messageId"]) == (
        "end_turn",
        turn.of("user_message")[0]["messageId"],
    )


@pytest.mark.requirement("META-001")
def test_metadata_of_a_prompt_is_accepted_and_taken_for_nothing_else(agent: Agent, tmp_path: Path) -> None:
    session, other = agent.new_session(tmp_path), agent.new_session(tmp_path)
    meta = {"traceparent": TRACE, "sessionId": other, "session_id": other, "prompt": [], "_meta": {}, "turn": 1}
    turn = agent.prompt(session, "hello", _meta=meta).finish()
    assert (turn.text, turn.stop_reason) == ("hello", "end_turn")


def test_half_a_character_is_passed_on_as_it_was(agent: Agent, tmp_path: Path) -> None:
    session = agent.new_session(tmp_path)
    turn = agent.prompt(session, "half \ud83d of it").finish()
    assert turn.text == "half \ud83d of it"
    assert turn.of("user_message")[0]["content"] == [{"type": "text", "text": "half \ud83d of it"}]


BLOCKS = [
    {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
    {"type": "resource", "resource": {"uri": "file:///notes.md", "text": "hi"}},
    {"type": "_scent", "of": "coffee"},
]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block["type"])
def test_a_prompt_with_a_block_that_is_not_offered_is_refused(agent: Agent, tmp_path: Path, block: Message) -> None:
    turn = agent.prompt(agent.new_session(tmp_path), "see", block)
    assert turn.answer["error"]["code"] == -32602
    agent.settled()
    assert turn.updates == []


def test_an_empty_prompt_is_refused(agent: Agent, tmp_path: Path) -> None:
    session = agent.new_session(tmp_path)
    assert agent.refusal("session/prompt", {"sessionId": session, "prompt": []})["code"] == -32602


@pytest.mark.requirement("STATE-201", "STATE-202")
def test_a_turn_runs_before_it_comes_to_rest_and_does_come_to_rest(talk: Talk) -> None:
    for turn in talk.turns.values():
        assert turn.states[0] == "running"
        assert turn.states[-1] == "idle"
        assert turn.states.count("idle") == 1


@pytest.mark.requirement("STATE-203")
def test_a_turn_ends_with_a_stop_reason(talk: Talk) -> None:
    reasons = {name: turn.stop_reason for name, turn in talk.turns.items()}
    assert reasons.pop("slow") == "cancelled"
    assert reasons.pop("boom") == "error"
    assert set(reasons.values()) == {"end_turn"}


def test_a_turn_that_fails_says_so_in_an_error_that_gives_nothing_away(talk: Talk) -> None:
    turn = talk.turns["boom"]
    assert "result" in turn.answer
    assert is_valid(2, "Error", turn.of("state_update")[-1]["error"])
    assert "Traceback" not in json.dumps(turn.updates)


@pytest.mark.requirement("INFO-CONCURRENT-201")
def test_a_prompt_during_a_turn_is_answered_and_the_session_comes_to_rest(streaming: Agent, tmp_path: Path) -> None:
    session = streaming.new_session(tmp_path)
    first = streaming.prompt(session, "slow")
    first.wait_for(ticks, "the first tick")
    second = streaming.prompt(session, "and this")
    first.cancel()
    assert first.finish().stop_reason == "cancelled"
    assert ("result" in second.answer) != ("error" in second.answer)
    third = streaming.prompt(session, "still there?").finish()
    assert (third.text, third.stop_reason) == ("still there?", "end_turn")


# Cancelling


@pytest.mark.requirement("CANCEL-201", "CANCEL-203", "CANCEL-206", "CANCEL-207")
@pytest.mark.parametrize("members", [{}, {"_meta": {"traceparent": TRACE}}, {"_meta": None}])
def test_a_cancelled_turn_ends_idle_and_cancelled_and_is_no_failure(
    streaming: Agent, tmp_path: Path, members: Message
) -> None:
    turn = cancelled(streaming.prompt(streaming.new_session(tmp_path), "slow"), **members)
    assert turn.answer["result"]["messageId"]
    assert turn.states == ["running", "idle"]
    assert turn.stop_reason == "cancelled"


@pytest.mark.requirement("CANCEL-202")
def test_nothing_comes_after_the_idle_state_of_a_cancelled_turn(talk: Talk) -> None:
    turn = talk.turns["slow"]
    assert _updates(talk.agent, turn.session, turn.until or 0, talk.agent.position) == []


@pytest.mark.requirement("CANCEL-204")
def test_a_cancelled_turn_stops_long_before_it_would_be_done(talk: Talk) -> None:
    assert 1 <= sum(ticks(line) for line in talk.turns["slow"].lines) < 250


@pytest.mark.requirement("CANCEL-205")
def test_cancelling_is_not_answered(streaming: Agent, tmp_path: Path) -> None:
    turn = streaming.prompt(streaming.new_session(tmp_path), "slow")
    turn.wait_for(ticks, "the first tick")
    turn.cancel()
    turn.finish()
    assert [one["id"] for one in answers(streaming, turn.since)] == [turn.id]


@pytest.mark.requirement("INFO-CANCEL-201")
@pytest.mark.parametrize("session", ["an idle one", "never-made"])
def test_cancelling_where_nothing_runs_has_no_effect(agent: Agent, tmp_path: Path, session: str) -> None:
    idle = agent.new_session(tmp_path)
    since = agent.position
    agent.notify("session/cancel", {"sessionId": session if session == "never-made" else idle})
    assert agent.heard(since) == []
    assert agent.prompt(idle, "hello").finish().stop_reason == "end_turn"


@pytest.mark.requirement("INFO-CANCEL-202")
def test_cancelling_withdraws_the_permission_request_that_waits(streaming: Agent, tmp_path: Path) -> None:
    turn = streaming.prompt(streaming.new_session(tmp_path), "tool")
    question = turn.question()
    turn.cancel()
    withdrawal = streaming.wait_for(lambda line: line.method == "$/cancel_request", "a withdrawal", turn.since)
    assert streaming.lines[withdrawal].params["requestId"] == question
    streaming.send(id=question, result={"outcome": {"outcome": "cancelled"}})
    assert turn.finish(undecided).stop_reason == "cancelled"
    assert outcome(turn) != "completed"


@pytest.mark.requirement("CLOSE-202", "CANCEL-208")
def test_closing_during_a_turn_cancels_it_first_and_nothing_comes_after(streaming: Agent, tmp_path: Path) -> None:
    session = streaming.new_session(tmp_path)
    turn = streaming.prompt(session, "slow")
    turn.wait_for(ticks, "the first tick")
    closed = streaming.answer_at(streaming.request("session/close", {"sessionId": session}))
    assert streaming.lines[closed].message["result"] == {}
    turn.finish()
    assert turn.stop_reason == "cancelled"
    assert turn.answer["result"]["messageId"]
    assert _updates(streaming, session, turn.since, closed)[-1]["state"] == "idle"
    assert _updates(streaming, session, closed, streaming.settled()) == []


def test_a_prompt_that_waits_is_refused_as_cancelled_when_its_session_is_closed(
    streaming: Agent, tmp_path: Path
) -> None:
    session = streaming.new_session(tmp_path)
    turn = streaming.prompt(session, "slow")
    turn.wait_for(ticks, "the first tick")
    waiting = streaming.prompt(session, "and this")
    streaming.call("session/close", {"sessionId": session})
    assert turn.finish().stop_reason == "cancelled"
    assert waiting.answer["error"]["code"] == -32800


# Resuming


@pytest.mark.requirement("RESUME-201")
def test_a_session_is_resumed(agent: Agent, tmp_path: Path) -> None:
    session = agent.new_session(tmp_path)
    agent.call("session/resume", {"sessionId": session, "cwd": str(tmp_path)})
    agent.call("session/close", {"sessionId": session})
    agent.call("session/resume", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []})
    assert agent.prompt(session, "again").finish().text == "again"


@pytest.mark.requirement("RESUME-202", "RESUME-204")
def test_all_is_replayed_before_the_answer_under_the_ids_that_it_had(agent: Agent, tmp_path: Path) -> None:
    session = agent.new_session(tmp_path)
    turns = [agent.prompt(session, text).finish() for text in ("one", "two", "two")]
    before, after = resumed(agent, session, tmp_path, replayFrom={"type": "start"})
    user = [(one["messageId"], one["content"]) for one in before if one["sessionUpdate"] == "user_message"]
    texts = [("one", turns[0]), ("two", turns[1]), ("two", turns[2])]
    assert user == [(turn.answer["result"]["messageId"], [{"type": "text", "text": text}]) for text, turn in texts]
    assert after == []


@pytest.mark.requirement("RESUME-203")
@pytest.mark.parametrize("cursor", [{}, {"replayFrom": None}])
def test_nothing_is_replayed_without_a_cursor(agent: Agent, tmp_path: Path, cursor: Message) -> None:
    session = agent.new_session(tmp_path)
    agent.prompt(session, "remember this").finish()
    before, after = resumed(agent, session, tmp_path, **cursor)
    assert [one for one in before + after if one["sessionUpdate"] in MESSAGES | CHUNKS] == []


@pytest.mark.parametrize("cursor", [{}, {"replayFrom": {"type": "start"}}])
def test_the_state_is_the_last_thing_before_the_answer(agent: Agent, tmp_path: Path, cursor: Message) -> None:
    session = agent.new_session(tmp_path)
    agent.prompt(session, "hello").finish()
    before, _ = resumed(agent, session, tmp_path, **cursor)
    assert (before[-1]["sessionUpdate"], before[-1]["state"]) == ("state_update", "idle")


def test_a_session_resumed_during_a_turn_says_that_it_runs_and_goes_on(streaming: Agent, tmp_path: Path) -> None:
    session = streaming.new_session(tmp_path)
    turn = streaming.prompt(session, "slow")
    turn.wait_for(ticks, "the first tick")
    since = streaming.position
    params = {"sessionId": session, "cwd": str(tmp_path), "replayFrom": {"type": "start"}}
    answer = streaming.answer_at(streaming.request("session/resume", params), since)
    *messages, state = _updates(streaming, session, since, answer)
    assert state == {"sessionUpdate": "state_update", "state": "running"}
    said = [block["text"] for message in messages for block in message["content"]]
    turn.wait_for(ticks, "one more tick", answer)
    turn.cancel()
    turn.finish()
    said += [line.update["content"]["text"] for line in streaming.received(answer, turn.until) if ticks(line)]
    numbers = [int(word) for word in "".join(said).split() if word.isdigit()]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("running", [False, True])
def test_a_session_closed_and_resumed_in_one_breath_is_open(streaming: Agent, tmp_path: Path, running: bool) -> None:
    session = streaming.new_session(tmp_path)
    if running:
        streaming.prompt(session, "slow").wait_for(ticks, "the first tick")
    closed = streaming.request("session/close", {"sessionId": session})
    resumed = streaming.request("session/resume", {"sessionId": session, "cwd": str(tmp_path)})
    assert "result" in streaming.answer(closed)
    assert "result" in streaming.answer(resumed)
    turn = streaming.prompt(session, "again")
    assert "result" in turn.answer
    assert turn.finish().text == "again"


CURSORS = [{"type": "_message", "messageId": "m"}, {"type": "end"}, {}, {"type": None}, "start", ["start"], True]


@pytest.mark.parametrize("cursor", CURSORS, ids=repr)
def test_a_cursor_that_is_not_understood_is_refused_and_nothing_replayed(
    agent: Agent, tmp_path: Path, cursor: object
) -> None:
    session = agent.new_session(tmp_path)
    agent.prompt(session, "remember this").finish()
    since = agent.position
    params = {"sessionId": session, "cwd": str(tmp_path), "replayFrom": cursor}
    assert agent.refusal("session/resume", params)["code"] == -32602
    assert _updates(agent, session, since, agent.settled()) == []


@pytest.mark.requirement("RESUME-205")
def test_no_message_is_replayed_in_chunks_that_no_whole_message_begins(streaming: Agent, tmp_path: Path) -> None:
    session = streaming.new_session(tmp_path)
    streaming.prompt(session, "stream").finish()
    before, _ = resumed(streaming, session, tmp_path, replayFrom={"type": "start"})
    begun: set[tuple[str, str]] = set()
    for update in before:
        kind = update["sessionUpdate"]
        if kind in MESSAGES and update.get("content") == []:
            begun.add((kind, update["messageId"]))
        elif kind in CHUNKS:
            assert (kind.removesuffix("_chunk"), update["messageId"]) in begun
    texts = ["".join(block["text"] for block in one["content"]) for one in before if one["sessionUpdate"] in MESSAGES]
    assert "Hello, world!" in texts


# What turns are made of


def may_send(word: object, definition: str) -> bool:
    return word in words(2, definition) or (isinstance(word, str) and word.startswith("_"))


def outcome(turn: Turn) -> Any:
    """The last status of the only tool call of a turn."""
    assert len({update["toolCallId"] for update in turn.of("tool_call_update")}) == 1
    return [update["status"] for update in turn.of("tool_call_update") if update.get("status")][-1]


@pytest.mark.requirement("PERM-201")
def test_a_permission_request_says_what_may_be_chosen_and_the_turn_goes_on(talk: Talk) -> None:
    for name, status in (("tool", "completed"), ("tool, rejected", "failed")):
        turn = talk.turns[name]
        [question] = turn.permissions
        assert question["title"]
        assert {option["kind"] for option in question["options"]} == {"allow_once", "reject_once"}
        assert all(option["optionId"] and option["name"] for option in question["options"])
        assert question["subject"]["type"] == "tool_call"
        assert (outcome(turn), turn.stop_reason) == (status, "end_turn")


@pytest.mark.requirement("CLIENTCAP-201", "CLIENTCAP-202")
def test_only_methods_of_a_client_are_called_and_no_questions_are_put_to_the_user(talk: Talk) -> None:
    assert {line.method for line in talk.lines} - {None} == {"session/update", "session/request_permission"}


@pytest.mark.requirement("PATCH-201")
def test_every_update_of_a_message_has_an_id(talk: Talk) -> None:
    updates = talk.updates(*MESSAGES, *CHUNKS)
    assert {update["sessionUpdate"] for update in updates} >= {"user_message", "agent_message", "agent_message_chunk"}
    assert [update for update in updates if not update["messageId"]] == []


@pytest.mark.requirement("PATCH-203")
def test_two_prompts_that_are_alike_get_two_ids(agent: Agent, tmp_path: Path) -> None:
    session = agent.new_session(tmp_path)
    one, two = (agent.prompt(session, "the same").finish().answer["result"]["messageId"] for _ in range(2))
    assert one != two


@pytest.mark.requirement("PATCH-204")
def test_every_update_of_a_tool_call_has_its_id(talk: Talk) -> None:
    assert [one for one in talk.updates("tool_call_update", "tool_call_content_chunk") if not one["toolCallId"]] == []
    assert [one for one in talk.updates("tool_call_content_chunk") if one["content"] is None] == []


@pytest.mark.requirement("PATCH-205")
def test_every_plan_has_an_id(talk: Talk) -> None:
    plans = [update["plan"] for update in talk.updates("plan_update")]
    assert plans
    assert [plan for plan in plans if not plan["planId"]] == []


@pytest.mark.requirement("PATCH-206")
def test_the_directory_of_a_terminal_is_absolute_and_stays(talk: Talk) -> None:
    directories: dict[str, set[str]] = {}
    for update in talk.updates("terminal_update"):
        assert update["terminalId"]
        if update.get("cwd") is not None:
            assert Path(update["cwd"]).is_absolute()
            directories.setdefault(update["terminalId"], set()).add(update["cwd"])
    assert directories
    assert {len(seen) for seen in directories.values()} == {1}


@pytest.mark.requirement("PATCH-207")
def test_each_piece_of_the_output_of_a_terminal_is_decoded_by_itself(talk: Talk) -> None:
    pieces = [update["data"] for update in talk.updates("terminal_output_chunk")]
    pieces += [update["output"]["data"] for update in talk.updates("terminal_update") if update.get("output")]
    assert pieces
    assert all(isinstance(base64.b64decode(piece, validate=True), bytes) for piece in pieces)


@pytest.mark.requirement("PATCH-208")
def test_a_tool_call_begins_with_a_title_and_keeps_its_name(talk: Talk) -> None:
    calls: dict[str, list[Message]] = {}
    for update in talk.updates("tool_call_update"):
        calls.setdefault(update["toolCallId"], []).append(update)
    for updates in calls.values():
        assert updates[0]["title"]
        assert len({update["name"] for update in updates if update.get("name")}) <= 1


@pytest.mark.requirement("PATCH-209")
def test_the_state_says_that_a_permission_is_waited_for(talk: Talk) -> None:
    for name in ("tool", "tool, rejected"):
        assert talk.turns[name].states == ["running", "requires_action", "running", "idle"]


@pytest.mark.requirement("ENUM-201")
def test_kinds_and_statuses_are_known_ones(talk: Talk) -> None:
    said: list[tuple[object, str]] = []
    for update in talk.updates("tool_call_update"):
        said += [(update.get("kind"), "ToolKind"), (update.get("status"), "ToolCallStatus")]
    for update in talk.updates("plan_update"):
        for entry in update["plan"].get("entries", []):
            said += [(entry["priority"], "PlanEntryPriority"), (entry["status"], "PlanEntryStatus")]
    assert {definition for word, definition in said if word is not None} >= {"ToolCallStatus", "PlanEntryStatus"}
    assert [one for one in said if one[0] is not None and not may_send(*one)] == []


@pytest.mark.requirement("ENUM-202")
def test_kinds_of_updates_and_states_and_contents_are_known_ones(talk: Talk) -> None:
    said: list[tuple[object, str]] = []
    for update in (line.update for line in talk.lines if line.update):
        said.append((update["sessionUpdate"], "SessionUpdate"))
        if "state" in update:
            said.append((update["state"], "StateUpdate"))
        if update["sessionUpdate"] in ("tool_call_update", "tool_call_content_chunk"):
            content = update.get("content") or []
            items = content if isinstance(content, list) else [content]
            said += [(item["type"], "ToolCallContent") for item in items]
    assert {definition for _, definition in said} == {"SessionUpdate", "StateUpdate", "ToolCallContent"}
    assert [one for one in said if not may_send(*one)] == []


NO_APPROVALS: dict[str, Message] = {
    "an outcome of an extension": {"outcome": {"outcome": "_later"}},
    "an option that was not offered": {"outcome": {"outcome": "selected", "optionId": "never-offered"}},
    "an option that is none": {"outcome": {"outcome": "selected", "optionId": True}},
    "no outcome": {},
}


@pytest.mark.requirement("ENUM-203")
@pytest.mark.parametrize("given", NO_APPROVALS)
def test_what_is_not_understood_is_no_permission_and_does_not_harm_the_turn(
    streaming: Agent, tmp_path: Path, given: str
) -> None:
    turn = streaming.prompt(streaming.new_session(tmp_path), "tool").finish(lambda _: NO_APPROVALS[given])
    assert turn.answer["result"]["messageId"]
    assert outcome(turn) != "completed"
    assert turn.of("terminal_output_chunk") == []


def test_ticks_keep_their_order(talk: Talk) -> None:
    text = talk.turns["slow"].text
    numbers = [int(word) for word in text.split() if word.isdigit()]
    assert numbers
    assert all(after == before + 1 for before, after in pairwise(numbers))
