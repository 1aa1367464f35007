"""A line in full: the quick way, and the long one for what the quick one declines."""

import json
from typing import Any

import pytest

from twofold.exceptions import InvalidFrame, Malformed, ParseError
from twofold.jsonrpc import Notification, parse
from twofold.wire import Skipped, v1, v2

UPDATE: dict[str, Any] = {"sessionUpdate": "agent_message", "messageId": "m", "content": []}


def line(update: Any = UPDATE, **members: Any) -> bytes:
    params = {"sessionId": "s", "update": update}
    return json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params, **members}).encode()


@pytest.mark.parametrize("update", [UPDATE, {**UPDATE, "unknown": 1}, {"sessionUpdate": "_acme/x"}])
def test_an_update_is_read_whichever_way_it_takes(update: dict[str, Any]) -> None:
    params = v2.read_line(line(update))
    assert params is not None
    assert params.update == v2.read_update(update)


@pytest.mark.parametrize(
    "other",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"session/update","params":{}}',
        b'{"jsonrpc":"2.0","method":"session/cancel","params":{}}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
        b'[{"jsonrpc":"2.0","method":"session/update","params":{}}]',
    ],
)
def test_another_message_is_none_of_it(other: bytes) -> None:
    assert v2.read_line(other) is None
    assert v1.read_line(other) is None


def test_what_is_wrong_is_said_by_where_it_is_wrong() -> None:
    with pytest.raises(ParseError):
        v2.read_line(b"{")
    with pytest.raises(InvalidFrame):
        v2.read_line(b"{}")
    with pytest.raises(Malformed, match=r"^\$\.params\.update\.messageId: "):
        v2.read_line(line({"sessionUpdate": "agent_message"}))
    with pytest.raises(Malformed, match=r"^\$\.params: expected an object, found nothing"):
        v2.read_line(b'{"jsonrpc":"2.0","method":"session/update"}')


@pytest.mark.rule("U-6")
def test_lenient_reading_notes_what_it_left_out() -> None:
    skipped: list[Skipped] = []
    params = v2.read_line(line({**UPDATE, "_meta": 3}), skipped=skipped)
    assert params is not None
    assert [one.path for one in skipped] == ["$.params.update._meta"]


def test_params_are_taken_as_a_frame_holds_them() -> None:
    frame = parse(line({**UPDATE, "content": [{"type": "text", "text": "x" * 1000}]}))
    assert isinstance(frame, Notification)
    assert v2.decode_params(frame.params).session_id == "s"
