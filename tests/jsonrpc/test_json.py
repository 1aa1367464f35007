import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.values import anything, canonical, joined
from twofold.exceptions import ParseError
from twofold.jsonrpc import MAX_DEPTH, dumps, loads, too_deep

NOT_JSON = [
    b"",
    b" ",
    b"{",
    b'{"a"',
    b'{"a":',
    b'{"a":1,}',
    b"[1,]",
    b"[1 2]",
    b'"abc',
    b'"\\x"',
    b'"\\u12"',
    b'"tab\tinside"',
    b'"newline\ninside"',
    b"'single'",
    b"{a:1}",
    b"01",
    b"1.",
    b".5",
    b"+1",
    b"0x1",
    b"tru",
    b"True",
    b"nul",
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"\x0b1",
    b"\xc2\xa01",
    b"\xef\xbb\xbf{}",
    b"1\x00",
]


@pytest.mark.parametrize("raw", NOT_JSON)
def test_what_is_no_json_text_is_refused(raw: bytes) -> None:
    with pytest.raises(ParseError):
        loads(raw)


def test_a_refusal_says_at_which_byte_reading_stopped() -> None:
    with pytest.raises(ParseError) as caught:
        loads('{"é": tru}'.encode())
    assert caught.value.offset == 7
    assert str(caught.value) == "the text is not valid JSON (at byte 7)"


@pytest.mark.parametrize("raw", [b"\xff", b'"\xed\xa0\x80"', b'"\xc3"', b'{"\xc3(": 1}'])
def test_what_is_no_utf8_is_refused(raw: bytes) -> None:
    with pytest.raises(ParseError, match="not valid UTF-8"):
        loads(raw)


def test_text_after_the_value_is_refused() -> None:
    with pytest.raises(ParseError, match=r"more text after the JSON value \(at byte 2\)"):
        loads(b"{} {}")
    assert loads(b" {} \r\n\t") == {}


@pytest.mark.parametrize("raw", [b"1e999", b"-1e999", b"[1E400]"])
def test_a_number_too_large_for_a_double_is_refused(raw: bytes) -> None:
    with pytest.raises(ParseError, match="too large"):
        loads(raw)


def test_a_number_with_more_digits_than_the_interpreter_converts_is_refused() -> None:
    with pytest.raises(ParseError, match="too many digits"):
        loads(b"1" * 5000)


def test_of_duplicate_keys_the_last_one_counts() -> None:
    assert loads(b'{"a": 1, "b": 2, "a": 3}') == {"a": 3, "b": 2}


@pytest.mark.rule("U-8")
def test_lone_surrogates_are_read_as_sent_and_written_as_escapes() -> None:
    half = loads(b'"Launch \\ud83d"')
    assert half == "Launch \ud83d"
    assert dumps([half, "é"]) == '["Launch \\ud83d","é"]'.encode()


@pytest.mark.rule("U-8")
def test_halves_that_meet_are_written_as_what_reads_as_one_character() -> None:
    assert loads(dumps("\ud83d" + "\ude80")) == "\U0001f680"


@pytest.mark.rule("U-8")
@given(anything)
def test_values_come_back_from_their_text(value: Any) -> None:
    raw = dumps(value)
    assert canonical(loads(raw)) == canonical(joined(value))
    assert b"\n" not in raw


@given(anything, st.sampled_from([None, 1]), st.booleans())
def test_the_standard_reader_reads_the_same(value: Any, indent: int | None, ascii_only: bool) -> None:
    raw = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    try:
        expected = json.loads(str(raw, "utf-8"))
    except UnicodeDecodeError:
        with pytest.raises(ParseError):
            loads(raw)
    else:
        assert canonical(loads(raw)) == canonical(expected)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 5_000, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"]":', b"}]")])
@pytest.mark.parametrize("closed", [True, False])
def test_text_nested_too_deeply_is_refused(depth: int, opening: bytes, closing: bytes, closed: bool) -> None:
    raw = opening * depth + b"1" + closing * (depth * closed)
    with pytest.raises(ParseError, match="deeper than 256 levels"):
        loads(raw)


def test_text_of_the_greatest_depth_is_read_and_written() -> None:
    raw = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert dumps(loads(raw)) == raw


def deepest(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(deepest, value.values()), default=0)
    return 1 + max(map(deepest, value), default=0) if isinstance(value, list) else 0


# Brackets and quotes in texts are what a count of the depth may take for structure.
brackets = st.text(alphabet='[]{}"\\a', max_size=8)
bracketed = st.recursive(brackets, lambda inner: st.lists(inner) | st.dictionaries(brackets, inner), max_leaves=8)


@given(bracketed, st.integers(MAX_DEPTH - 6, MAX_DEPTH))
@example(['"' + "]" * 600], MAX_DEPTH)
@example(["[" * 600], MAX_DEPTH - 1)
@example(["\\" * 601 + "]"], MAX_DEPTH)
def test_brackets_inside_texts_do_not_count_as_depth(value: Any, around: int) -> None:
    raw = b"[" * around + json.dumps(value).encode() + b"]" * around
    assert too_deep(raw) == (around + deepest(value) > MAX_DEPTH)
