"""What an agent does for a client that speaks version 1, held against the examples, which are written for version 2.

As in the tests of version 2, one process of each example serves nearly all of them, and what must not come any more is
looked for in a recorded conversation, which was read to the end of the process.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.driver import ALLOW, REJECT, TRACE, Agent, Turn, initialize_params, started, undecided
from tests.conformance.judge import Line, Message, at, extras, faults, words
from tests.conformance.requirements import V1

EXAMPLES = ("echo_agent", "streaming_agent")

CHUNKS = {"user_message_chunk", "agent_message_chunk", "agent_thought_chunk"}

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
        agent.initialize(1)
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
        agent.initialize(1)
        yield agent
        assert agent.end() == 0, agent.story()


@pytest.fixture
def streaming(running_streaming: Agent) -> Iterator[Agent]:
    """The example that streams, uses tools and can be slow."""
    yield running_streaming
    running_streaming.check()


@dataclass(frozen=True)
class Talk:
    """A conversation that is over, with all that the agent ever sent in it. Its last request loads `loaded`."""

    agent: Agent
    turns: dict[str, Turn]
    loaded: str
    load: int  # where the request to load stands

    @property
    def lines(self) -> list[Line]:
        return self.agent.received()


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    cwd = tmp_path_factory.mktemp("talk")
    with started("streaming_agent") as agent:
        agent.initialize(1)
        session, slow, gone = (agent.new_session(cwd) for _ in range(3))
        turns = {
            "stream": agent.prompt(session, "stream").finish(),
            "tool": agent.prompt(session, "tool").finish(ALLOW),
            "tool, rejected": agent.prompt(session, "tool").finish(REJECT),
            "echo": agent.prompt(session, ODD_TEXT).finish(),
            "slow": cancelled(agent.prompt(slow, "slow")),
        }
        agent.prompt(gone, "boom").finish()
        agent.call("session/list")
        agent.call("session/close", {"sessionId": gone})
        agent.call("session/delete", {"sessionId": gone})
        agent.refusal("session/unknown")
        agent.refusal("session/new")
        load = agent.position
        agent.call("session/load", {"sessionId": session, "cwd": str(cwd), "mcpServers": []})
        agent.end()
        yield Talk(agent, turns, session, load)


def ticks(line: Line) -> bool:
    return "tick" in json.dumps(line.update)


def cancelled(turn: Turn) -> Turn:
    """Cancel a slow turn once it is under way, and wait for its end."""
    turn.wait_for(ticks, "the first tick")
    turn.cancel()
    return turn.finish()


def updates(agent: Agent, session: str, since: int, until: int | None = None) -> list[Message]:
    return [line.update for line in agent.received(since, until) if line.is_about(session)]


def answers(agent: Agent, since: int) -> list[Message]:
    """Give all answers since a position, once the agent has settled."""
    return [line.message for line in agent.heard(since) if line.is_answer]


# Opening


@pytest.mark.requirement("INIT-001", "INIT-002")
def test_a_client_that_asks_for_version_1_gets_version_1(agent: Agent) -> None:
    assert agent.opening["protocolVersion"] == 1


@pytest.mark.requirement("INIT-003")
def test_a_version_far_too_high_is_answered_with_the_highest_that_there_is(fresh: Agent) -> None:
    assert fresh.call("initialize", initialize_params(65535))["protocolVersion"] == 2


@pytest.mark.requirement("INIT-004")
def test_the_agent_gives_its_name_and_version(agent: Agent) -> None:
    assert agent.opening["agentInfo"]["name"]
    assert agent.opening["agentInfo"]["version"]


@pytest.mark.requirement("AUTH-001", "AUTH-002")
def test_authentication_methods_are_told_apart_and_none_needs_a_terminal(agent: Agent) -> None:
    methods = agent.opening.get("authMethods", [])
    assert len({method["id"] for method in methods}) == len(methods)
    assert [one for one in methods if one.get("type") == "terminal"] == []


def test_a_client_of_version_1_needs_to_say_no_more_than_that(fresh: Agent, tmp_path: Path) -> None:
    fresh.call("initialize", {"protocolVersion": 1})
    assert fresh.prompt(fresh.new_session(tmp_path), "hello").finish().text == "hello"


def test_a_client_that_offers_files_and_terminals_is_served_without_them(fresh: Agent, tmp_path: Path) -> None:
    fresh.initialize(1, clientCapabilities={"fs": {"readTextFile": True, "writeTextFile": True}, "terminal": True})
    turn = fresh.prompt(fresh.new_session(tmp_path), "tool").finish()
    assert turn.stop_reason == "end_turn"
    assert {line.method for line in turn.lines} <= {None, "session/update", "session/request_permission"}


def test_what_is_waived_as_not_offered_is_not_offered(agent: Agent, tmp_path: Path) -> None:
    made = agent.call("session/new", {"cwd": str(tmp_path), "mcpServers": []})
    offered = {one.id: at({"initialize": agent.opening, "session/new": made}, one.needs) for one in V1 if one.needs}
    assert {id: value for id, value in offered.items() if value not in (None, False, [])} == {}


def test_what_is_tested_here_is_offered(agent: Agent) -> None:
    capabilities = agent.opening["agentCapabilities"]
    assert capabilities["loadSession"] is True
    assert capabilities["sessionCapabilities"].keys() >= {"list", "resume", "close", "delete", "additionalDirectories"}


# Lines


@pytest.mark.requirement("TRANSPORT-001", "TRANSPORT-002")
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


@pytest.mark.requirement("JSONRPC-002", "ERROR-001")
def test_an_answer_has_a_result_or_an_error_with_code_and_one_line(talk: Talk) -> None:
    said = [line.message for line in talk.lines if line.is_answer]
    assert [one for one in said if ("result" in one) == ("error" in one)] == []
    errors = [one["error"] for one in said if "error" in one]
    assert [error["code"] for error in errors] == [-32603, -32601, -32602]
    assert [error["message"] for error in errors if len(error["message"].splitlines()) != 1] == []


@pytest.mark.requirement("JSONRPC-001")
@pytest.mark.parametrize("id", [424242, -1, "words", "42", "", "é\n"])
def test_an_answer_repeats_the_id_of_its_request(agent: Agent, id: int | str) -> None:
    assert "result" in agent.answer(agent.request("session/list", id=id), agent.position - 1)


@pytest.mark.requirement("JSONRPC-003")
@pytest.mark.parametrize("method", ["session/cancel", "_conformance/word", "$/conformance", "session/unknown"])
def test_a_notification_is_not_answered(agent: Agent, tmp_path: Path, method: str) -> None:
    session = agent.new_session(tmp_path)
    since = agent.position
    agent.notify(method, {"sessionId": session})
    assert answers(agent, since) == []


@pytest.mark.requirement("JSONRPC-004", "EXT-001")
@pytest.mark.parametrize("method", ["_conformance/word", "session/unknown", "auth/login", ""])
def test_a_request_with_an_unknown_method_is_answered_as_such(agent: Agent, method: str) -> None:
    assert agent.refusal(method)["code"] == -32601


UNREADABLE = {
    "half an object": (b'{"jsonrpc":"2.0","id":1,"method":', -32700),
    "no JSON": (b"hello", -32700),
    "bad UTF-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700),
    "no message": (b'{"foo": "bar"}', -32600),
    "a bare value": (b'"session/list"', -32600),
    "an array": (b'[{"jsonrpc":"2.0","id":1,"method":"session/list","params":{}}]', -32600),
}


@pytest.mark.requirement("JSONRPC-005", "INFO-PARSE-001", "INFO-INVALIDREQ-001")
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
    fresh.initialize(1)
    fresh.prompt(fresh.new_session(tmp_path), "hello").finish()
    assert fresh.end() == 0
    assert fresh.errors == b""


# Sessions


@pytest.mark.requirement("SESSION-001", "AUTH-005")
def test_a_new_session_has_an_id(agent: Agent, tmp_path: Path) -> None:
    assert agent.new_session(tmp_path)


@pytest.mark.requirement("SESSION-002")
def test_two_sessions_have_two_ids(agent: Agent, tmp_path: Path) -> None:
    assert agent.new_session(tmp_path) != agent.new_session(tmp_path)


@pytest.mark.requirement("ADDDIRS-001")
def test_a_session_may_have_more_directories_than_one(agent: Agent, tmp_path: Path) -> None:
    more = [str(tmp_path / "more")]
    params = {"cwd": str(tmp_path), "mcpServers": [], "additionalDirectories": more}
    session = agent.call("session/new", params)["sessionId"]
    listed = {one["sessionId"]: one for one in agent.call("session/list")["sessions"]}
    assert listed[session]["additionalDirectories"] == more


@pytest.mark.requirement("CONFIG-003")
def test_no_boolean_option_is_offered_to_a_client_that_may_not_know_them(agent: Agent, tmp_path: Path) -> None:
    made = agent.call("session/new", {"cwd": str(tmp_path), "mcpServers": []})
    assert [option for option in made.get("configOptions") or [] if option.get("type") == "boolean"] == []


@pytest.mark.requirement("LIST-001")
def test_sessions_are_listed(agent: Agent, tmp_path: Path) -> None:
    session = agent.new_session(tmp_path)
    assert (session, str(tmp_path)) in [
        (one["sessionId"], one["cwd"]) for one in agent.call("session/list")["sessions"]
    ]


@pytest.mark.requirement("LIST-002")
def test_a_directory_without_sessions_has_an_empty_list(agent: Agent, tmp_path: Path) -> None:
    agent.new_session(tmp_path)
    assert agent.call("session/list", {"cwd": str(tmp_path / "none")})["sessions"] == []


@pytest.mark.requirement("CLOSE-001")
def test_an_idle_session_is_closed(agent: Agent, tmp_path: Path) -> None:
    assert agent.call("session/close", {"sessionId": agent.new_session(tmp_path)}) == {}


@pytest.mark.requirement("DELETE-001", "DELETE-002")
def test_a_session_is_deleted_and_deleting_it_again_succeeds(agent: Agent, tmp_path: Path) -> None:
    session = agent.new_session(tmp_path)
    assert agent.call("session/delete", {"sessionId": session}) == {}
    assert session not in [one["sessionId"] for one in agent.call("session/list")["sessions"]]
    assert agent.call("session/delete", {"sessionId": session}) == {}
    assert agent.call("session/delete", {"sessionId": "never-made"}) == {}


@pytest.mark.requirement("INFO-UNKNOWNSESSION-001")
@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("session/prompt", {"prompt": [{"type": "text", "text": "?"}]}),
        ("session/load", {"cwd": "/", "mcpServers": []}),
        ("session/resume", {"cwd": "/", "mcpServers": []}),
    ],
)
def test_an_unknown_session_is_said_to_be_unknown(agent: Agent, method: str, more: Message) -> None:
    assert agent.refusal(method, {"sessionId": "never-made", **more})["code"] == -32002


@pytest.mark.requirement("LOAD-001", "LOAD-003")
def test_a_session_is_loaded_with_all_that_was_said(agent: Agent, tmp_path: Path) -> None:
    session = agent.new_session(tmp_path)
    for text in ("one", "two", "two"):
        agent.prompt(session, text).finish()
    since = agent.position
    result = agent.call("session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []})
    assert isinstance(result, dict)
    said = [(one["sessionUpdate"], one["content"]["text"]) for one in updates(agent, session, since)]
    assert [text for kind, text in said if kind == "user_message_chunk"] == ["one", "two", "two"]
    assert [text for kind, text in said if kind == "agent_message_chunk"] == ["one", "two", "two"]
    assert agent.prompt(session, "again").finish().text == "again"


@pytest.mark.requirement("LOAD-002")
def test_all_is_replayed_before_the_answer_and_nothing_after_it(talk: Talk) -> None:
    lines = talk.agent.lines[talk.load :]
    assert lines[0].method == "session/load"
    assert [line.message.get("id") for line in lines if line.is_answer] == [lines[0].message["id"]]
    assert lines[-1].is_answer
    assert {line.update["sessionUpdate"] for line in lines if line.is_about(talk.loaded)} >= {"user_message_chunk"}


@pytest.mark.requirement("RESUME-001", "RESUME-002")
@pytest.mark.parametrize("servers", [{}, {"mcpServers": []}])
def test_a_session_is_resumed_without_what_was_said(agent: Agent, tmp_path: Path, servers: Message) -> None:
    session = agent.new_session(tmp_path)
    agent.prompt(session, "remember this").finish()
    since = agent.position
    agent.call("session/resume", {"sessionId": session, "cwd": str(tmp_path), **servers})
    agent.settled()
    assert [one for one in updates(agent, session, since) if one["sessionUpdate"] in CHUNKS] == []
    assert agent.prompt(session, "again").finish().text == "again"


# Turns


@pytest.mark.requirement("PROMPT-001")
def test_a_turn_ends_with_a_known_stop_reason(talk: Talk) -> None:
    reasons = {name: turn.stop_reason for name, turn in talk.turns.items()}
    assert set(reasons.values()) <= words(1, "StopReason")
    assert reasons.pop("slow") == "cancelled"
    assert set(reasons.values()) == {"end_turn"}


@pytest.mark.requirement("PROMPT-002")
def test_the_updates_of_a_turn_are_about_its_session(talk: Talk) -> None:
    for turn in talk.turns.values():
        assert {line.params["sessionId"] for line in turn.lines if line.update} == {turn.session}


@pytest.mark.requirement("PROMPT-003")
def test_a_prompt_may_hold_a_link_to_a_resource(agent: Agent, tmp_path: Path) -> None:
    link = {"type": "resource_link", "uri": (tmp_path / "notes.md").as_uri(), "name": "notes.md"}
    assert agent.prompt(agent.new_session(tmp_path), "see", link).finish().stop_reason == "end_turn"


@pytest.mark.requirement("META-001")
def test_metadata_of_a_prompt_is_accepted_and_taken_for_nothing_else(agent: Agent, tmp_path: Path) -> None:
    session, other = agent.new_session(tmp_path), agent.new_session(tmp_path)
    meta = {"traceparent": TRACE, "sessionId": other, "session_id": other, "prompt": [], "_meta": {}, "turn": 1}
    turn = agent.prompt(session, "hello", _meta=meta).finish()
    assert (turn.text, turn.stop_reason) == ("hello", "end_turn")


@pytest.mark.requirement("CANCEL-001")
def test_a_cancelled_turn_succeeds_with_the_stop_reason_cancelled(streaming: Agent, tmp_path: Path) -> None:
    turn = cancelled(streaming.prompt(streaming.new_session(tmp_path), "slow"))
    assert turn.stop_reason == "cancelled"
    assert 1 <= sum(ticks(line) for line in turn.lines) < 250


@pytest.mark.requirement("CANCEL-002")
def test_no_update_comes_after_the_answer_of_a_cancelled_turn(talk: Talk) -> None:
    turn = talk.turns["slow"]
    assert updates(talk.agent, turn.session, talk.agent.answer_at(turn.id, turn.since)) == []


def test_cancelling_ends_a_turn_that_waits_for_a_permission(streaming: Agent, tmp_path: Path) -> None:
    turn = streaming.prompt(streaming.new_session(tmp_path), "tool")
    question = turn.question()
    turn.cancel()
    streaming.send(id=question, result={"outcome": {"outcome": "cancelled"}})
    assert turn.finish(undecided).stop_reason == "cancelled"
    assert status(turn) != "completed"


@pytest.mark.requirement("CLOSE-002")
def test_closing_during_a_turn_cancels_it(streaming: Agent, tmp_path: Path) -> None:
    session = streaming.new_session(tmp_path)
    turn = streaming.prompt(session, "slow")
    turn.wait_for(ticks, "the first tick")
    assert streaming.call("session/close", {"sessionId": session}) == {}
    assert turn.finish().stop_reason == "cancelled"


@pytest.mark.requirement("CLIENTCAP-001", "CLIENTCAP-002", "CLIENTCAP-003")
def test_nothing_is_asked_of_the_client_that_it_did_not_offer(talk: Talk) -> None:
    assert {line.method for line in talk.lines} - {None} == {"session/update", "session/request_permission"}


def status(turn: Turn) -> Any:
    """The last status of the only tool call of a turn."""
    [id] = {update["toolCallId"] for update in turn.of("tool_call")}
    reported = [update for update in turn.of("tool_call", "tool_call_update") if update["toolCallId"] == id]
    return [update["status"] for update in reported if update.get("status")][-1]


def test_a_tool_call_is_created_before_it_is_updated_and_its_permission_asked_for(talk: Talk) -> None:
    for name, last in (("tool", "completed"), ("tool, rejected", "failed")):
        turn = talk.turns[name]
        [question] = turn.permissions
        created = turn.of("tool_call", "tool_call_update")[0]
        assert (created["sessionUpdate"], created["toolCallId"]) == ("tool_call", question["toolCall"]["toolCallId"])
        assert {option["kind"] for option in question["options"]} == {"allow_once", "reject_once"}
        assert status(turn) == last
