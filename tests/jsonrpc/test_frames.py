import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from tests.values import anything, canonical, joined, text
from twofold.exceptions import InvalidFrame, ParseError
from twofold.jsonrpc import (
    Batch,
    ErrorResponse,
    Frame,
    Id,
    Notification,
    Request,
    Response,
    dumps,
    encode,
    loads,
    parse,
)


def refusal(line: bytes) -> InvalidFrame:
    with pytest.raises(InvalidFrame) as caught:
        parse(line)
    return caught.value


# Reading


def test_a_call_with_an_id_is_a_request() -> None:
    assert parse(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1, 2]}}') == Request(
        1, "m", Raw(b'{"a":[1, 2]}')
    )
    assert parse(b'{"jsonrpc":"2.0","id":"x","method":"m","params":[]}') == Request("x", "m", Raw(b"[]"))
    assert parse(b'{"jsonrpc":"2.0","id":0,"method":"m"}') == Request(0, "m", UNSET)


def test_a_call_without_an_id_is_a_notification() -> None:
    assert parse(b'{"jsonrpc":"2.0","method":"m","params":{}}') == Notification("m", Raw(b"{}"))
    assert parse(b'{"jsonrpc":"2.0","method":""}') == Notification("", UNSET)


def test_an_answer_has_a_result_of_any_kind_or_an_error() -> None:
    assert parse(b'{"jsonrpc":"2.0","id":1,"result":null}') == Response(1, Raw(b"null"))
    error = b'{"code":-32601,"message":"no","data":[1]}'
    assert parse(b'{"jsonrpc":"2.0","id":"x","error":' + error + b"}") == ErrorResponse("x", -32601, "no", Raw(error))


def test_an_error_that_answers_an_unreadable_request_has_the_id_null() -> None:
    error = b'{"code":-32700,"message":"Parse error"}'
    frame = parse(b'{"jsonrpc":"2.0","id":null,"error":' + error + b"}")
    assert frame == ErrorResponse(None, -32700, "Parse error", Raw(error))


def test_raw_parts_are_the_bytes_as_received() -> None:
    raw = b'{ "n" : 1.50e+1 , "n":1,"s":"\\u0041\\/" }'
    frame = parse(b' {"method":"m", "params" : ' + raw + b' , "jsonrpc":"2.0"}\t')
    assert frame == Notification("m", Raw(raw))


@pytest.mark.rule("U-8")
def test_raw_parts_are_the_bytes_as_received_beside_lone_surrogates_too() -> None:
    raw = b'{ "n" : 1.50e+1 , "n":1,"s":"\\ud83d", "t":[",:{", {}] }'
    line = b' { "method":"m\\ude80" ,"params" : ' + raw + b' ,\t"jsonrpc":"2.0", "\\udfff":{} }\t'
    assert parse(line) == Notification("m\ude80", Raw(raw))


def test_members_that_json_rpc_does_not_define_are_ignored() -> None:
    assert parse(b'{"jsonrpc":"2.0","method":"m","traceparent":"00","_meta":{}}') == Notification("m")


def test_of_duplicate_members_the_last_one_counts() -> None:
    assert parse(b'{"jsonrpc":"1.0","id":1,"method":"a","jsonrpc":"2.0","id":2,"method":"b"}') == Request(2, "b")
    assert parse(b'{"jsonrpc":"1.0","method":"a","jsonrpc":"2.0","method":"\\ud800"}') == Notification("\ud800")


def test_large_integers_are_ids() -> None:
    assert parse(b'{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"m"}') == Request(
        123456789012345678901234567890, "m"
    )


@pytest.mark.parametrize(
    "version", [b"", b'"jsonrpc":"1.0",', b'"jsonrpc":2.0,', b'"jsonrpc":null,', b'"jsonrpc":"2",']
)
def test_another_version_of_json_rpc_is_refused_under_the_id_of_the_request(version: bytes) -> None:
    error = refusal(b"{" + version + b'"id":7,"method":"m"}')
    assert str(error) == 'the member "jsonrpc" must be "2.0"'
    assert error.id == 7


@pytest.mark.parametrize("id", [b"null", b"1.0", b"1.5", b"1e2", b"true", b"false", b"{}", b"[1]"])
def test_a_request_id_that_is_no_string_or_integer_is_refused(id: bytes) -> None:
    error = refusal(b'{"jsonrpc":"2.0","id":' + id + b',"method":"m"}')
    assert str(error) == "a request id must be a string or an integer"
    assert error.id is None
    assert "needs the id" in str(refusal(b'{"jsonrpc":"2.0","id":' + id + b',"result":1}'))


@pytest.mark.parametrize("id", [b"1.5", b"true", b"{}"])
def test_an_error_answer_needs_an_id_or_null(id: bytes) -> None:
    error = b',"error":{"code":1,"message":""}}'
    assert "needs the id" in str(refusal(b'{"jsonrpc":"2.0","id":' + id + error))
    assert "needs the id" in str(refusal(b'{"jsonrpc":"2.0"' + error))


@pytest.mark.parametrize("params", [b"null", b"1", b'"a"', b"true"])
def test_params_that_are_no_object_or_array_are_refused(params: bytes) -> None:
    error = refusal(b'{"jsonrpc":"2.0","id":7,"method":"m","params": ' + params + b"}")
    assert str(error) == 'the member "params" must be an object or an array'
    assert error.id == 7


@pytest.mark.parametrize(
    "members",
    [
        b'"result":1,"error":{"code":1,"message":"m"}',
        b'"method":"m","result":1',
        b'"method":"m","error":{"code":1,"message":"m"}',
        b'"method":1',
        b'"method":null',
        b'"params":{}',
        b'"error":null',
        b'"error":"m"',
        b'"error":{"code":1}',
        b'"error":{"code":"1","message":"m"}',
        b'"error":{"code":1.0,"message":"m"}',
        b'"error":{"code":true,"message":"m"}',
        b'"error":{"code":1,"message":null}',
    ],
)
def test_a_message_that_is_no_call_and_no_answer_is_refused_under_its_id(members: bytes) -> None:
    assert refusal(b'{"jsonrpc":"2.0","id":7,' + members + b"}").id == 7


@pytest.mark.parametrize("line", [b"1", b'"a"', b"null", b'"\\ud800"', b" true "])
def test_a_bare_value_is_refused(line: bytes) -> None:
    assert str(refusal(line)) == "a message is a JSON object, not a bare value"


NO_JSON = [
    b"",
    b" ",
    b'{"jsonrpc":"2.0","method":"m","params":{"a":NaN}}',
    b'{"jsonrpc":"2.0","method":"m","params":{"a":"\xff"}}',
    b'{"jsonrpc":"2.0","method":"m","params":{"a":"\xed\xa0\x80"}}',
    b'{"jsonrpc":"2.0","method":"m","params":{"a":"\x01"}}',
    b'{"jsonrpc":"2.0","method":"m","params":{"a":"\\x"}}',
    b'{"jsonrpc":"2.0","method":"m","params":{"a":01}}',
    b'{"jsonrpc":"2.0","method":"m","params":{"a":1}',
    b'{"jsonrpc":"2.0","method":"m"}}',
    b'{"jsonrpc":"2.0","method":"m"} {}',
    b'\xef\xbb\xbf{"jsonrpc":"2.0","method":"m"}',
    b'[{"jsonrpc":"2.0","method":"m"},]',
    b'[{"jsonrpc":"2.0","method":"m"}',
    b"{'jsonrpc':'2.0'}",
]


@pytest.mark.parametrize("line", NO_JSON)
def test_a_line_that_is_no_json_is_refused(line: bytes) -> None:
    with pytest.raises(ParseError):
        parse(line)


def test_a_line_cut_short_anywhere_is_refused() -> None:
    line = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":["x",{"b":null}]}}'
    parse(line)
    for end in range(len(line)):
        with pytest.raises(ParseError):
            parse(line[:end])


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"jsonrpc":"2.0","method":"m","params":['])
@pytest.mark.parametrize("depth", [300, 5_000, 100_000])
def test_a_line_nested_too_deeply_is_refused(opening: bytes, depth: int) -> None:
    with pytest.raises(ParseError, match="deeper than 256 levels"):
        parse(opening * depth)
    with pytest.raises(ParseError, match="deeper than 256 levels"):
        parse(b'{"jsonrpc":"2.0","method":"m","params":' + b"[" * depth + b"]" * depth + b"}")


# Batches


def test_an_array_is_a_batch_of_frames_in_order() -> None:
    batch = parse(b'[{"jsonrpc":"2.0","id":1,"method":"a"} , {"jsonrpc":"2.0","id":1,"result":{}}]')
    assert batch == Batch([Request(1, "a"), Response(1, Raw(b"{}"))])


def test_an_empty_batch_is_refused() -> None:
    assert "at least one message" in str(refusal(b"[]"))
    assert "at least one message" in str(refusal(b" [ ] "))


def test_what_is_no_frame_stands_in_its_batch_as_the_error_that_says_so() -> None:
    batch = parse(b'[1,[],[{}],null,{"id":5},{"jsonrpc":"2.0","method":"a","params":{"s":"\\ud800"}}]')
    assert isinstance(batch, Batch)
    *refused, good = batch.frames
    assert [(type(one), str(one)) for one in refused] == [
        (InvalidFrame, "a message is a JSON object, not a bare value"),
        (InvalidFrame, "a message in a batch is an object, not an array"),
        (InvalidFrame, "a message in a batch is an object, not an array"),
        (InvalidFrame, "a message is a JSON object, not a bare value"),
        (InvalidFrame, 'the member "jsonrpc" must be "2.0"'),
    ]
    assert good == Notification("a", Raw(b'{"s":"\\ud800"}'))
    last = refused[-1]
    assert isinstance(last, InvalidFrame)
    assert last.id == 5


# Writing

ids: st.SearchStrategy[Id] = st.one_of(st.integers(), text)
raws = anything.map(dumps).map(Raw)
structured = anything.map(lambda value: value if isinstance(value, (dict, list)) else [value]).map(dumps).map(Raw)
params = st.one_of(st.just(UNSET), structured)


@st.composite
def error_responses(draw: st.DrawFn) -> ErrorResponse:
    code, message = draw(st.integers()), draw(text)
    error = {"code": code, "message": joined(message), "data": draw(anything)}
    return ErrorResponse(draw(st.one_of(st.none(), ids)), code, joined(message), Raw(dumps(error)))


frames: st.SearchStrategy[Frame] = st.one_of(
    st.builds(Request, ids, text, params),
    st.builds(Notification, text, params),
    st.builds(Response, ids, raws),
    error_responses(),
)


def plain(frame: Frame) -> dict[str, Any]:
    members = {name: getattr(frame, name) for name in frame.__struct_fields__}
    return {
        name: loads(bytes(held)) if isinstance(held, Raw) else joined(held)
        for name, held in members.items()
        if held is not UNSET
    }


@given(frames)
def test_a_frame_comes_back_from_its_line(frame: Frame) -> None:
    line = encode(frame)
    assert b"\n" not in line
    back = parse(line)
    assert not isinstance(back, Batch)
    assert type(back) is type(frame)
    assert canonical(plain(back)) == canonical(plain(frame))


@given(frames)
def test_a_frame_is_written_as_the_standard_reader_expects(frame: Frame) -> None:
    written = json.loads(encode(frame))
    assert written.pop("jsonrpc") == "2.0"
    expected = plain(frame)
    if isinstance(frame, ErrorResponse):
        expected = {"id": expected["id"], "error": expected["error"]}
    assert canonical(written) == canonical(expected)


def test_raw_parts_are_written_as_they_are() -> None:
    raw = b'{ "n" : 1.50e+1, "s": "\\u0041" }'
    assert encode(Notification("m", Raw(raw))) == b'{"jsonrpc":"2.0","method":"m","params":' + raw + b"}"


def test_a_raw_part_with_line_breaks_is_still_one_line() -> None:
    line = encode(Response(1, Raw(b'{\r\n  "a": "\\n"\n}')))
    assert b"\n" not in line
    assert parse(line) == Response(1, Raw(b'{\r   "a": "\\n" }'))


def test_params_that_are_omitted_stay_omitted() -> None:
    assert encode(Request(1, "m")) == b'{"jsonrpc":"2.0","id":1,"method":"m"}'
    assert encode(Notification("m")) == b'{"jsonrpc":"2.0","method":"m"}'
