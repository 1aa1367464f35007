"""The envelopes that captured lines come in, and how answers find their requests."""

import json
from typing import Any

import pytest

from twofold.capture import Answered, Asked, Folder, Problem, Reader, Updated
from twofold.exceptions import LineTooLong
from twofold.wire import v1, v2

UPDATE = {"sessionUpdate": "agent_message", "messageId": "m", "content": [{"type": "text", "text": "hi"}]}
PARAMS = {"sessionId": "s", "update": UPDATE}
MESSAGE = {"jsonrpc": "2.0", "method": "session/update", "params": PARAMS}


def read(*values: Any, **options: Any) -> tuple[list[Any], Reader]:
    reader = Reader(**options)
    events: list[Any] = []
    for number, value in enumerate(values, 1):
        line = value if isinstance(value, bytes) else json.dumps(value).encode()
        events += reader.read(line, number)
    return events, reader


@pytest.mark.parametrize(
    ("line", "session_id", "path"),
    [
        (UPDATE, None, "$"),
        (PARAMS, "s", "$.update"),
        (MESSAGE, "s", "$.params.update"),
        ([MESSAGE], "s", "$[0].params.update"),
        ({"dir": "a2c", "line": json.dumps(MESSAGE), "ts": 1}, "s", "$.params.update"),
        ({"dir": "a2c", "line": json.dumps(UPDATE)}, None, "$"),
        (
            {"type": "notification", "from": "agent", "to": "client", "method": "session/update", "params": PARAMS},
            "s",
            "$.params.update",
        ),
        ({**MESSAGE, "extra": 1}, "s", "$.params.update"),
        ({**PARAMS, "_meta": {"a": 1}, "unknown": 2}, "s", "$.update"),
    ],
)
def test_every_envelope_gives_the_same_update(line: Any, session_id: str | None, path: str) -> None:
    (event,), reader = read(line)
    assert (event.session_id, event.update, event.version, event.path) == (session_id, v2.read_update(UPDATE), 2, path)
    assert reader.counts.updates == 1
    assert event.wrap is not None
    rewritten = event.wrap({**UPDATE, "messageId": "other"})
    assert json.loads(json.dumps(line).replace('"m"', '"other"').replace('\\"m\\"', '\\"other\\"')) == _spaced(
        rewritten
    )


def _spaced(line: Any) -> Any:
    """A capture record's inner line as json.dumps writes it, for comparison."""
    if isinstance(line, dict) and "dir" in line:
        return {**line, "line": json.dumps(json.loads(line["line"]))}
    return line


@pytest.mark.parametrize("line", [b"", b"  ", b"\t"])
def test_blank_lines_are_nothing(line: bytes) -> None:
    events, reader = read(line)
    assert events == []
    assert reader.counts == Reader().counts


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not valid JSON"),
        (b"nonsense", "not valid JSON"),
        (b"\xff", "UTF-8"),
        (b"3", "bare value"),
        (b'"x"', "bare value"),
        (b"[]", "batch"),
        (b'{"jsonrpc": "1.0", "method": "session/update"}', '"2.0"'),
        (b'{"method": "session/update", "params": {}}', '"2.0"'),
        (b'{"jsonrpc": "2.0", "method": "session/update"}', "object"),
        (b'{"jsonrpc": "2.0", "method": "session/update", "params": []}', "object"),
        (b"[" * 100_000, "nested"),
        (b'{"dir": "a2c", "line": "{"}', "not valid JSON"),
    ],
)
def test_a_bad_line_is_a_problem_and_never_an_exception(line: bytes, reason: str) -> None:
    events, _ = read(line)
    assert len(events) == 1
    assert isinstance(events[0], Problem)
    assert events[0].line == 1
    assert reason in str(events[0])


def test_bad_entries_of_a_batch_do_not_take_the_good_ones_with_them() -> None:
    events, _ = read([MESSAGE, 3, {"jsonrpc": "2.0"}, MESSAGE])
    assert [type(event) for event in events] == [Updated, Problem, Problem, Updated]
    assert [event.path for event in events[1:3]] == ["$[1]", "$[2]"]


def test_lines_without_an_update_are_counted_by_kind() -> None:
    _, reader = read(
        {"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {}},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 2, "error": {"code": 1, "message": "m"}},
        {"jsonrpc": "2.0", "method": "session/cancel", "params": {}},
        {"something": "else"},
    )
    counts = reader.counts
    assert (counts.requests, counts.responses, counts.notifications, counts.other) == (1, 2, 1, 1)


def test_answers_find_their_requests_though_both_sides_use_the_same_ids() -> None:
    ask, permission = "session/prompt", "session/request_permission"
    events, _ = read(
        {"dir": "c2a", "line": json.dumps({"jsonrpc": "2.0", "id": 1, "method": ask, "params": {}})},
        {"dir": "a2c", "line": json.dumps({"jsonrpc": "2.0", "id": 1, "method": permission, "params": {}})},
        {"dir": "c2a", "line": json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"outcome": 1}})},
        {"dir": "a2c", "line": json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"stop": 1}})},
    )
    answers = [event for event in events if isinstance(event, Answered)]
    assert [(answer.asked.method, answer.result) for answer in answers] == [
        (permission, {"outcome": 1}),
        (ask, {"stop": 1}),
    ]


def test_an_id_that_is_a_string_is_not_the_number_that_looks_like_it() -> None:
    events, _ = read(
        {"jsonrpc": "2.0", "id": "1", "method": "session/prompt", "params": {}},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
    )
    assert [type(event) for event in events] == [Asked]


def initialize(result: Any) -> tuple[Any, Any]:
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}, {
        "jsonrpc": "2.0",
        "id": 0,
        "result": result,
    }


@pytest.mark.parametrize(
    ("result", "version", "problems"),
    [
        ({"protocolVersion": 2, "info": {"name": "a", "version": "1"}}, 2, 0),
        ({"protocolVersion": 1}, 1, 0),
        ({"protocolVersion": 2}, 1, 1),
        ({"protocolVersion": 2, "info": None}, 1, 1),
        ({"protocolVersion": True}, 1, 0),
        (None, 1, 0),
    ],
)
def test_the_initialize_answer_says_the_version(result: Any, version: int, problems: int) -> None:
    events, reader = read(*initialize(result))
    assert reader.version == version
    assert sum(isinstance(event, Problem) for event in events) == problems


def test_the_version_that_was_given_wins_over_the_answer() -> None:
    _, reader = read(*initialize({"protocolVersion": 1}), version=2)
    assert reader.version == 2


def test_untagged_chunks_are_read_by_the_version_and_a_hint_says_so() -> None:
    untagged = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x"}}
    events, _ = read(untagged)
    assert isinstance(events[0], Problem)
    assert "v1" in events[0].message
    (event,), _ = read(untagged, version=1)
    assert (event.update, event.version) == (v1.read_update(untagged), 1)


def test_a_trace_counts_a_message_once_and_leaves_mcp_alone() -> None:
    agent = {
        "type": "notification",
        "protocol": "acp",
        "from": "Agent",
        "to": "Proxy(0)",
        "method": "session/update",
        "params": PARAMS,
    }
    events, reader = read(
        agent,
        {**agent, "from": "Proxy(0)", "to": "Client"},
        {**agent, "protocol": "mcp", "method": "notifications/x"},
        {"type": "request", "from": "Client", "to": "Agent", "id": 3, "method": "session/prompt", "params": {}},
        {"type": "response", "from": "Agent", "to": "Client", "id": 3, "is_error": True, "payload": {"code": 1}},
    )
    assert [type(event) for event in events] == [Updated, Asked, Answered]
    assert not events[2].ok
    assert (reader.counts.updates, reader.counts.other) == (1, 2)


@pytest.mark.rule("U-6")
def test_leniently_a_bad_item_is_left_out_and_reported() -> None:
    update = {**UPDATE, "content": [{"type": "text"}, {"type": "text", "text": "kept"}], "_meta": 3}
    events, _ = read({**PARAMS, "update": update}, lenient=True)
    skipped = [event.path for event in events if isinstance(event, Problem)]
    assert sorted(skipped) == ["$.update._meta", "$.update.content[0].text"]
    kept = [event.update for event in events if isinstance(event, Updated)]
    assert kept == [v2.AgentMessage(message_id="m", content=[v2.TextContent(text="kept")])]


def test_an_over_long_line_is_a_problem_in_its_place() -> None:
    folder = Folder()
    folder.feed([json.dumps(MESSAGE).encode(), LineTooLong(limit=10, length=20), json.dumps(MESSAGE).encode()])
    assert [(problem.line, "longer" in problem.message) for problem in folder.problems] == [(2, True)]
    assert folder.reader.counts.updates == 2


def test_the_tool_call_that_a_permission_is_asked_for_is_folded() -> None:
    call = {"toolCallId": "t", "title": "Write", "kind": "edit"}
    ask = {"jsonrpc": "2.0", "id": 9, "method": "session/request_permission"}
    for version, params in (
        (1, {"sessionId": "s", "toolCall": call, "options": []}),
        (2, {"sessionId": "s", "title": "t", "subject": {"type": "tool_call", "toolCall": call}, "options": []}),
    ):
        folder = Folder(version=1 if version == 1 else 2)
        folder.feed([json.dumps({**ask, "params": params}).encode()])
        folder.finish()
        (shown,) = folder.sessions["s"].transcript.tool_calls
        assert (shown.title, shown.kind, folder.reader.counts.updates) == ("Write", "edit", 0)
