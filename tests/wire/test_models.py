"""Models as Python values: equality, hashing, copies; and how deep a line may go."""

import copy
import json
import pickle
import subprocess
import sys
from typing import Any
from unittest.mock import ANY

import pytest
from hypothesis import given
from msgspec.structs import replace

from tests.values import anything, canonical
from tests.wire.captured import captured
from tests.wire.introspection import MODELS, smallest
from twofold.exceptions import ParseError
from twofold.jsonrpc import MAX_DEPTH, loads
from twofold.wire import UNSET, Kept, encode, same, to_json, v1, v2
from twofold.wire._read import read


def message(**fields: Any) -> v2.AgentMessage:
    update = v2.read_update({"sessionUpdate": "agent_message", "messageId": "m", **fields})
    assert isinstance(update, v2.AgentMessage)
    return update


def test_captured_updates_are_equal_to_themselves_read_again_and_hash_alike() -> None:
    for module, line in captured():
        one, two = (module.read_params(loads(line)["params"]) for _ in range(2))
        assert one == two
        assert (one != two) is False
        assert hash(one) == hash(two)
        assert one.update == two.update
        assert len({one.update, two.update}) == 1


def test_captured_updates_survive_copying_and_pickling() -> None:
    for module, line in captured():
        params = module.read_params(loads(line)["params"])
        for other in (copy.copy(params), copy.deepcopy(params), pickle.loads(pickle.dumps(params))):
            assert other == params
            assert repr(other) == repr(params)


def test_models_of_different_types_are_never_equal() -> None:
    models = [read(cls, smallest(cls)) for _, cls in MODELS]
    for one in models:
        for two in models:
            assert (one == two) == (type(one) is type(two))
            assert (one != two) == (type(one) is not type(two))


def test_a_model_is_equal_to_no_other_kind_of_value() -> None:
    one = message()
    assert one != to_json(one)
    assert one != "agent_message"
    assert one != None  # noqa: E711
    assert one == ANY
    assert (one != ANY) is False


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({}, {"content": None}),
        ({}, {"content": []}),
        ({"content": None}, {"content": []}),
        ({}, {"later": None}),
        ({"later": 1}, {"later": True}),
        ({"later": 0}, {"later": False}),
        ({"later": 0}, {"later": None}),
        ({"later": "1"}, {"later": 1}),
        ({"later": []}, {"later": {}}),
        ({"later": [1, 2]}, {"later": [2, 1]}),
        ({"_meta": {"a": {"b": True}}}, {"_meta": {"a": {"b": 1}}}),
        ({"content": [{"type": "later", "a": 1}]}, {"content": [{"type": "sooner", "a": 1}]}),
        ({"content": [{"type": "later", "a": 1}]}, {"content": [{"type": "later", "a": True}]}),
    ],
)
def test_what_differs_as_json_is_not_equal(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert message(**one) != message(**two)
    assert (message(**one) == message(**two)) is False


def test_what_is_equal_as_json_is_equal() -> None:
    assert message(later={"a": 1, "b": 2}, sooner=1) == message(sooner=1.0, later={"b": 2, "a": 1})
    assert hash(message(later={"a": 1}, sooner=1)) == hash(message(sooner=1.0, later={"a": 1}))
    one = message(content=[{"type": "text", "text": "x"}])
    assert replace(one, content=tuple(one.content or ())) == one


@given(anything, anything)
def test_same_agrees_with_the_text_of_two_values(one: Any, two: Any) -> None:
    assert same(one, one)
    assert same(one, copy.deepcopy(one))
    if canonical(one) == canonical(two):
        assert same(one, two)
    assert same(one, two) == same(two, one)


def test_true_is_not_one_and_one_is_one_point_zero() -> None:
    assert not same(True, 1)
    assert not same(0, False)
    assert not same([0.0], [False])
    assert same(1, 1.0)
    assert same({"a": [1]}, {"a": (1.0,)})
    assert not same(2**53 + 1, float(2**53))


def test_kept_members_are_a_read_only_mapping_equal_to_a_dict() -> None:
    members: dict[str, Any] = {"a": [True], "b": None}
    kept = Kept(members)
    assert kept == members
    assert members == kept
    assert kept == Kept({"b": None, "a": [True]})
    assert hash(kept) == hash(Kept({"b": None, "a": [True]}))
    assert kept != {"a": [1], "b": None}
    assert kept != [("a", [True]), ("b", None)]
    members["c"] = 1
    assert dict(kept) == {"a": [True], "b": None}
    assert not hasattr(kept, "__setitem__")
    assert kept["a"] is kept.get("a")
    assert len(kept) == 2


def test_kept_members_are_shown_by_name_only() -> None:
    assert repr(Kept({"later": "secret", "and": 1})) == "Kept(['and', 'later'])"
    assert "secret" not in repr(message(later="secret"))


def test_models_are_read_only() -> None:
    with pytest.raises(AttributeError):
        message().message_id = "n"  # type: ignore[misc]


@pytest.mark.parametrize("value", [None, [], {}, {"a": True}])
def test_a_model_built_by_hand_is_written_with_its_extras(value: Any) -> None:
    chunk = v2.AgentMessageChunk(
        message_id="m", content=v2.TextContent(text="x", extra=Kept({"b": value})), extra=Kept({"a": value})
    )
    assert loads(encode(chunk)) == {
        "sessionUpdate": "agent_message_chunk",
        "messageId": "m",
        "content": {"type": "text", "text": "x", "b": value},
        "a": value,
    }
    other = v2.OtherContentBlock(kind="later", fields=Kept({"a": value}), extra=Kept({"b": value}))
    assert loads(encode(other)) == {"type": "later", "a": value, "b": value}


def test_a_model_without_extras_is_written_in_the_order_of_its_fields() -> None:
    chunk = v1.AgentMessageChunk(content=v1.TextContent(text="é"), message_id=None)
    expected = '{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"é"},"messageId":null}'
    assert encode(chunk) == expected.encode()
    assert chunk.meta is UNSET


# Depth


def nested(depth: int) -> bytes:
    """Give the params of an update whose deepest value is `depth` levels down."""
    inner = depth - 2
    return (
        b'{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"t","rawInput":'
        + b"[" * inner
        + b"]" * inner
        + b"}}"
    )


def test_an_update_of_the_greatest_depth_can_be_read_compared_copied_and_written() -> None:
    raw = nested(MAX_DEPTH)
    params = v2.decode_params(raw)
    assert copy.deepcopy(params) == params == v2.read_params(to_json(params))
    assert encode(params) == raw
    assert repr(params)
    assert pickle.loads(pickle.dumps(params)) == params
    extra = v2.decode_params(raw.replace(b'"rawInput"', b'"later"'))
    assert canonical(loads(encode(extra))) == canonical(to_json(extra))
    assert loads(encode(extra))["update"]["later"] == loads(raw)["update"]["rawInput"]


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1_000, 100_000])
def test_an_update_nested_too_deeply_is_refused(depth: int) -> None:
    raw = nested(depth)
    assert v2.decode_line(b'{"jsonrpc":"2.0","method":"session/update","params":' + raw + b"}") is None
    for decode in (v2.decode_params, v2.decode_update, v1.decode_params):
        with pytest.raises(ParseError, match="deeper than 256 levels"):
            decode(raw)
        with pytest.raises(ParseError, match="deeper than 256 levels"):
            decode(raw.rstrip(b"]}"))


SMALL_STACK = """
import threading
from twofold.exceptions import ParseError
from twofold.jsonrpc import loads, parse
from twofold.wire import v2

def run():
    for depth in (300, 1_000, 10_000, 100_000):
        for closing in (b"]", b""):
            line = b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":'
            line += b'{"sessionUpdate":"tool_call_update","toolCallId":"t","rawInput":' + b"[" * depth + closing * depth
            line += b"}}}"
            assert v2.decode_line(line) is None
            for read in (parse, loads, v2.decode_params, v2.decode_update):
                try:
                    read(line)
                except ParseError:
                    continue
                raise AssertionError(read)
    print("done")

threading.stack_size(256 * 1024)
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


def test_a_deeply_nested_line_does_not_overrun_the_small_stack_of_a_thread() -> None:
    done = subprocess.run([sys.executable, "-c", SMALL_STACK], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_what_is_read_from_json_text_is_plain_json_again() -> None:
    for module, line in captured():
        params = loads(line)["params"]
        assert json.dumps(to_json(module.read_params(params)), sort_keys=True) == json.dumps(params, sort_keys=True)
