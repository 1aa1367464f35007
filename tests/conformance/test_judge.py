"""The judge is judged: a client that finds no fault in anything would hold no agent to anything."""

import json

import pytest

from tests.conformance.driver import initialize_params
from tests.conformance.judge import Message, extras, faults, read_line
from tests.conformance.requirements import Version

RESULTS: dict[Version, Message] = {
    1: {"protocolVersion": 1, "agentInfo": {"name": "a", "version": "1"}},
    2: {"protocolVersion": 2, "info": {"name": "a", "version": "1"}, "capabilities": {"session": {}}},
}


def judged(version: Version, *received: Message | bytes) -> tuple[list[str], list[str]]:
    """Give the faults and the unknown fields in what an agent sends that answered with this version first."""
    opening = {"id": 1, "method": "initialize", "params": initialize_params(version)}
    lines = [read_line(json.dumps({"jsonrpc": "2.0", **opening}).encode(), sent=True)]
    lines += [
        read_line(one if isinstance(one, bytes) else json.dumps({"jsonrpc": "2.0", **one}).encode())
        for one in ({"id": 1, "result": RESULTS[version]}, *received)
    ]
    return faults(lines), extras(lines)


def update(**members: object) -> Message:
    return {"method": "session/update", "params": {"sessionId": "s", "update": members}}


GOOD: list[tuple[Version, Message]] = [
    (1, update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "a"})),
    (2, update(sessionUpdate="state_update", state="idle", stopReason="error", error={"code": 1, "message": "a"})),
    (2, update(sessionUpdate="state_update", state="idle")),
    (2, update(sessionUpdate="_later", anything=1)),
    (2, update(sessionUpdate="agent_message", messageId="m", content=None, _meta={"any": {"thing": 1}})),
    (2, {"id": None, "error": {"code": -32700, "message": "bad JSON"}}),
    (2, {"method": "_later", "params": {"anything": 1}}),
    (2, {"method": "$/cancel_request", "params": {"requestId": 1}}),
]


@pytest.mark.parametrize(("version", "message"), GOOD)
def test_what_fits_the_schema_is_let_pass(version: Version, message: Message) -> None:
    assert judged(version, message) == ([], [])


BAD: list[tuple[Version, Message | bytes]] = [
    (1, update(sessionUpdate="agent_message", messageId="m")),
    (1, update(sessionUpdate="state_update", state="idle")),
    (1, update(sessionUpdate="agent_message_chunk", content={"type": "text"})),
    (2, update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "a"})),
    (2, update(sessionUpdate="plan_update", plan={"type": "items", "entries": []})),
    (2, {"id": 2, "method": "fs/read_text_file", "params": {"sessionId": "s", "path": "/a"}}),
    (2, {"id": 2, "method": "session/request_permission", "params": {"sessionId": "s", "title": "a", "options": []}}),
    (2, {"id": 2, "result": {}}),
    (2, {"id": None, "result": {}}),
    (2, {"id": 1, "result": {"protocolVersion": 2}}),
    (2, {"id": 1, "result": {}, "error": {"code": 1, "message": "a"}}),
    (2, {"id": 1, "error": {"code": "1", "message": "a"}}),
    (2, b'{"id":1,"error":{"code":1,"message":"a"}}'),
    (2, b"[]"),
    (2, b"hello"),
    (2, b'{"jsonrpc":"2.0","method":"_later","params":NaN}'),
    (2, b'{"jsonrpc":"2.0","method":"\xff"}'),
]


@pytest.mark.parametrize(("version", "message"), BAD)
def test_what_does_not_fit_the_schema_is_a_fault(version: Version, message: Message | bytes) -> None:
    assert judged(version, message)[0] != []


EXTRA: list[tuple[Version, str, Message]] = [
    (1, "update.messageID", update(sessionUpdate="plan", entries=[], messageID="m")),
    (2, "update.text", update(sessionUpdate="state_update", state="running", text="a")),
    (
        2,
        "update.content[0].content.bold",
        update(
            sessionUpdate="tool_call_update",
            toolCallId="t",
            content=[{"type": "content", "content": {"type": "text", "text": "a", "bold": True}}],
        ),
    ),
]


@pytest.mark.parametrize(("version", "path", "message"), EXTRA)
def test_a_field_that_the_schema_does_not_know_is_named(version: Version, path: str, message: Message) -> None:
    found, [extra] = judged(version, message)
    assert found == []
    assert extra.partition(": ")[0].endswith(f".{path}")
