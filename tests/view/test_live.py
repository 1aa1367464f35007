"""Lines that change in place: what a terminal shows is what was asked for, whatever came before."""

import io
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.view.screen import Screen, cells
from twofold.view import LiveText, visible_line, wrapped

STYLE = re.compile(r"\x1b\[[0-9;]*m")

words = st.lists(
    st.sampled_from(["a", "fog", "lifts.", " ", "  ", "日本語", "👩‍💻", "❤️", "e\u0301", "✓", "\t", "x" * 30, "ﷺ"]),
    max_size=12,
).map("".join)
styled = words.map(lambda line: f"\x1b[1;32m{line}\x1b[0m" if line else line)
line = st.one_of(words, styled, st.builds("{}{}{}".format, words, styled, words))
frame = st.lists(line, max_size=14)
frames = st.lists(frame, min_size=1, max_size=8)


def bare(text: str) -> str:
    return STYLE.sub("", text)


def shown(width: int, height: int) -> tuple[Screen, LiveText, io.StringIO]:
    stream = io.StringIO()
    return Screen(width, height), LiveText(stream, width=width, height=height), stream


def draw(screen: Screen, live: LiveText, stream: io.StringIO, lines: list[str]) -> None:
    live.show(lines)
    screen.feed(stream.getvalue())
    stream.seek(0)
    stream.truncate()


@given(frames, st.integers(2, 40), st.integers(2, 12))
@example([["a"] * 9, ["b"], ["c"] * 9], 8, 4)
@example([["a"] * 9, [], ["c"]], 8, 4)
@example([["a"] * 9, ["a"] * 6, ["b"] + ["a"] * 7], 8, 6)
@example([["a"] * 6, ["a"]], 2, 6)
def test_the_screen_shows_the_end_of_the_last_frame_and_nothing_else(
    shows: list[list[str]], width: int, height: int
) -> None:
    screen, live, stream = shown(width, height)
    for lines in shows:
        draw(screen, live, stream, lines)
        expected = [bare(piece).rstrip() for one in lines for piece in wrapped(one, width)]
        assert screen.wraps
        assert screen.lines[: screen.row] == expected[len(expected) - screen.row :]
        assert not any(screen.lines[screen.row :])
        assert screen.row or not expected


@given(frames, st.integers(8, 40), st.integers(2, 12))
def test_lines_stay_lines_on_a_terminal_that_takes_characters_for_wider(
    shows: list[list[str]], width: int, height: int
) -> None:
    """Terminals disagree about emoji, joiners and East Asian widths: what is cut off must not push anything away."""
    screen, live, stream = shown(width, height)
    screen.measure = lambda mark: 1 if mark.isascii() else 2
    for lines in shows:
        draw(screen, live, stream, lines)
        expected = [bare(piece) for one in lines for piece in wrapped(one, width)]
        last = expected[len(expected) - screen.row :]
        assert [found[:1] for found in screen.lines[: screen.row]] == [one.rstrip()[:1] for one in last]


@given(frame, st.integers(2, 40), st.integers(2, 12), st.integers(0, 5))
def test_what_was_on_the_screen_before_is_left_alone(lines: list[str], width: int, height: int, before: int) -> None:
    screen, live, stream = shown(width, height)
    screen.feed("before\n" * before)
    draw(screen, live, stream, lines)
    draw(screen, live, stream, [*lines, "more"])
    draw(screen, live, stream, ["other"])
    assert "".join([*screen.gone, *screen.lines]).count("before"[:width]) >= min(before, 1)


def test_nothing_is_written_when_nothing_changed() -> None:
    _, live, stream = shown(80, 24)
    live.show(["one", "two"])
    before = stream.getvalue()
    live.show(["one", "two"])
    assert stream.getvalue() == before


def test_only_what_changed_is_written_again() -> None:
    _, live, stream = shown(80, 24)
    live.show(["one", "two"])
    stream.truncate(stream.seek(0))
    live.show(["one", "two", "three"])
    assert "one" not in stream.getvalue()
    assert "two" not in stream.getvalue()


def test_withdrawn_lines_leave_the_screen() -> None:
    screen, live, stream = shown(40, 8)
    draw(screen, live, stream, ["agent", "  the key is hk_live"])
    assert "hk_live" in screen.text
    draw(screen, live, stream, ["agent", "· withdrawn by the agent"])
    assert screen.lines[:3] == ["agent", "· withdrawn by the agent", ""]
    assert "hk_live" not in "".join(screen.gone)


@given(line, st.integers(2, 60))
def test_a_piece_is_at_most_as_wide_as_asked(text: str, width: int) -> None:
    for piece in wrapped(text, width):
        assert sum(map(cells, bare(piece))) <= width


@given(line, st.integers(2, 60))
def test_wrapping_loses_nothing_but_spaces(text: str, width: int) -> None:
    found = "".join(bare(piece) for piece in wrapped(text, width))
    assert re.sub(r"\s", "", found) == re.sub(r"\s", "", bare(text))


@given(line, st.integers(4, 60))
def test_what_follows_a_cut_is_indented(text: str, width: int) -> None:
    assert all(bare(piece).startswith(" ") for piece in wrapped(text, width)[1:])


@given(styled, st.integers(2, 60))
def test_every_piece_ends_its_own_colour(text: str, width: int) -> None:
    for piece in wrapped(text, width):
        styles = STYLE.findall(piece)
        assert not styles or styles[-1] == "\x1b[0m"
        assert not bare(piece).strip() or styles


@pytest.mark.parametrize(
    ("text", "width", "pieces"),
    [
        ("the fog lifts", 10, ["the fog ", "  lifts"]),
        ("  the fog lifts", 11, ["  the fog ", "  lifts"]),
        ("      deep words go deep", 20, ["      deep words go ", "      deep"]),
        ("abcdefghijkl", 5, ["abcde", " fghi", " jkl"]),
        ("日本語テキスト", 8, ["日本語テ", "  キスト"]),
        ("\ta", 4, ["    ", "    ", " a"]),
        ("", 5, [""]),
        ("\x1b[2mthe fog lifts\x1b[0m", 10, ["\x1b[2mthe fog \x1b[0m", "  \x1b[2mlifts\x1b[0m"]),
    ],
)
def test_lines_are_cut_at_spaces_where_there_are_any(text: str, width: int, pieces: list[str]) -> None:
    assert wrapped(text, width) == pieces


@pytest.mark.parametrize(("width", "height"), [(0, 0), (1, 1), (2, 1), (1, 50)])
def test_a_terminal_without_room_is_no_fault(width: int, height: int) -> None:
    _, live, _ = shown(width, height)
    live.show(["日本語 and more", "two"])
    live.show(["three"])


def test_a_long_line_takes_no_longer_than_its_length() -> None:
    text = visible_line("word " * 200_000)
    assert len(wrapped(text, 80)) < 20_000
