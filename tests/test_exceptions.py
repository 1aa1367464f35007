import copy
import pickle

import pytest

from twofold import exceptions
from twofold.exceptions import (
    ConnectionLost,
    HandshakeFailed,
    InvalidFrame,
    LineTooLong,
    Malformed,
    ParseError,
    ProtocolViolation,
    RequestError,
    TwofoldError,
    Unrepresentable,
)

EVERY_ERROR = [
    ParseError("the text is not valid JSON", offset=3),
    ParseError("the text is not valid UTF-8"),
    InvalidFrame("a message is a JSON object", id="x"),
    LineTooLong(limit=4, length=10),
    Malformed("$.params.update", expected="an object", found="null"),
    Unrepresentable("agent_message", id="m1", path="$.content", reason="content was already sent"),
    RequestError(-32002, "no such thing: hush", {"sessionId": "s"}, method="session/resume"),
    ProtocolViolation("an answer came that no request waits for"),
    HandshakeFailed("agent answered 7", asked=2, answered=7),
    ConnectionLost("agent ended with status 3", exit_status=3),
]


@pytest.mark.parametrize("error", EVERY_ERROR)
def test_an_error_survives_copying_and_pickling_with_its_facts(error: TwofoldError) -> None:
    for other in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert vars(other) == vars(error)


def test_every_error_is_in_the_tree_and_in_the_drawing() -> None:
    named = [getattr(exceptions, name) for name in exceptions.__all__]
    assert {type(error) for error in EVERY_ERROR} | {TwofoldError} == set(named)
    assert all(issubclass(error, TwofoldError) for error in named)
    assert all(error.__name__ in (exceptions.__doc__ or "") for error in named)


def test_errors_carry_the_code_that_json_rpc_gives_them() -> None:
    codes = (ParseError.code, InvalidFrame.code, LineTooLong.code, Malformed.code)
    assert codes == (-32700, -32600, -32600, -32602)


def test_errors_say_where_what_was_found_and_what_was_expected() -> None:
    assert [str(error) for error in EVERY_ERROR] == [
        "the text is not valid JSON (at byte 3)",
        "the text is not valid UTF-8",
        "a message is a JSON object",
        "line of 10 bytes is longer than the limit of 4 bytes and was skipped",
        "$.params.update: expected an object, found null",
        'agent_message "m1": content was already sent (at $.content)',
        "session/resume was answered with “not found” (-32002)",
        "an answer came that no request waits for",
        "agent answered 7",
        "agent ended with status 3",
    ]
    assert str(Unrepresentable("plan", id=None, path="$", reason="no place")) == "plan: no place (at $)"
