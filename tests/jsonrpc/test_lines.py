import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twofold.exceptions import LineTooLong
from twofold.jsonrpc import DEFAULT_LIMIT, LineSplitter

CASES = Path(__file__).parent.parent / "cases"
LIMIT = 4

# Mostly line ends, so that they fall together and apart in every way, and lines around the limit.
streams = st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"bcd", b"\xe2\x80\xa8", b"\xc2\x85"])).map(b"".join)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(bounds)]


def split(chunks: list[bytes], *, limit: int = LIMIT) -> list[bytes | tuple[int, int]]:
    """Give the lines, over-long ones as (limit, length), and the unended rest as the last."""
    splitter = LineSplitter(limit=limit)
    found = [line for chunk in chunks for line in splitter.feed(chunk)]
    rest = splitter.finish()
    return [(one.limit, one.length) if isinstance(one, LineTooLong) else one for one in [*found, rest or b""]]


def split_plainly(data: bytes) -> list[bytes | tuple[int, int]]:
    *ended, rest = data.split(b"\n")
    lines = [line.removesuffix(b"\r") for line in ended]
    return [line if len(line) <= LIMIT else (LIMIT, len(line)) for line in [*lines, rest]]


@given(streams)
def test_lines_come_out_the_same_whole_and_byte_by_byte(data: bytes) -> None:
    assert split([data]) == split_plainly(data)
    assert split([data[at : at + 1] for at in range(len(data))]) == split_plainly(data)


@given(st.data(), streams)
def test_lines_come_out_the_same_however_the_bytes_are_cut(data: st.DataObject, stream: bytes) -> None:
    places = data.draw(st.lists(st.integers(0, len(stream))))
    assert split(cut(stream, places)) == split_plainly(stream)


def test_only_a_newline_ends_a_line() -> None:
    text = "one\u2028two\u0085three\rfour\x0bfive\x0csix\x1cseven".encode()
    assert split([text + b"\n"], limit=100) == [text, b""]


def test_one_carriage_return_before_the_newline_is_taken_off_and_no_more() -> None:
    assert split([b"a\r\n", b"b\r\r\n", b"\r\n"]) == [b"a", b"b\r", b"", b""]


def test_a_carriage_return_at_the_end_of_the_stream_is_text() -> None:
    assert split([b"a\r"]) == [b"a\r"]


def test_empty_lines_are_lines() -> None:
    assert split([b"\n\na\n"]) == [b"", b"", b"a", b""]


def test_the_limit_does_not_count_the_line_end() -> None:
    assert split([b"abcd\r\n", b"abcd\n"]) == [b"abcd", b"abcd", b""]
    assert split([b"abcde\r\n", b"abcde\n"]) == [(4, 5), (4, 5), b""]


def test_an_over_long_line_is_reported_in_its_place_and_the_stream_goes_on() -> None:
    assert split([b"a\nbbb", b"bbb", b"b\nc\n"]) == [b"a", (4, 7), b"c", b""]


def test_an_over_long_line_is_reported_once_even_when_the_stream_ends_in_it() -> None:
    splitter = LineSplitter(limit=LIMIT)
    assert splitter.feed(b"aaaaa") == []
    assert splitter.feed(b"aaaaa") == []
    rest = splitter.finish()
    assert isinstance(rest, LineTooLong)
    assert (rest.limit, rest.length) == (4, 10)
    assert str(rest) == "line of 10 bytes is longer than the limit of 4 bytes and was skipped"


def test_finish_starts_afresh() -> None:
    splitter = LineSplitter()
    splitter.feed(b"a")
    assert splitter.finish() == b"a"
    assert splitter.finish() is None
    assert splitter.feed(b"b\n") == [b"b"]


def test_a_completed_chunk_leaves_nothing_to_finish() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"a\n") == [b"a"]
    assert splitter.feed(b"") == []
    assert splitter.finish() is None


def test_bytes_over_the_limit_are_not_held() -> None:
    splitter = LineSplitter(limit=1000)
    for _ in range(100):
        splitter.feed(b"x" * 100_000)
    assert len(splitter._open) <= 1001
    assert len(splitter.feed(b"\n")) == 1


def test_a_line_of_the_default_limit_is_taken_in_pieces() -> None:
    splitter = LineSplitter()
    piece = b"x" * (64 * 1024)
    for _ in range(DEFAULT_LIMIT // len(piece)):
        assert splitter.feed(piece) == []
    (line,) = splitter.feed(b"\r\n")
    assert isinstance(line, bytes)
    assert len(line) == DEFAULT_LIMIT


def test_a_long_line_that_dribbles_in_is_taken() -> None:
    splitter = LineSplitter()
    for _ in range(500_000):
        splitter.feed(b"xy")
    assert splitter.feed(b"\n") == [b"xy" * 500_000]


def test_a_limit_below_one_byte_is_refused() -> None:
    with pytest.raises(ValueError, match="limit must be at least 1 byte, not 0"):
        LineSplitter(limit=0)


@pytest.mark.parametrize("name", ["19-wide-lines", "28-journal-half-characters"])
@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 20])
def test_recorded_lines_come_out_whole(name: str, size: int) -> None:
    data = (CASES / name / "input.jsonl").read_bytes()
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    *lines, rest = split(chunks, limit=DEFAULT_LIMIT)
    assert rest == b""
    assert len(lines) == 4
    for line in lines:
        assert isinstance(line, bytes)
        json.loads(line)


def test_recorded_wide_lines_are_skipped_under_a_lower_limit() -> None:
    data = (CASES / "19-wide-lines" / "input.jsonl").read_bytes()
    small, *wide, last, rest = split([data], limit=64 * 1024)
    assert wide == [(64 * 1024, 200_191), (64 * 1024, 120_213)]
    assert isinstance(small, bytes)
    assert isinstance(last, bytes)
    assert rest == b""
