"""What somebody else wrote is shown and does not act; terminal output is read as a terminal would."""

import itertools
import sys
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.view.hostile import ACTING, SEQUENCES, acts, texts
from twofold.plaintext import Run, Style, styled_terminal
from twofold.view import plain_terminal, visible, visible_line


@given(texts)
@example("".join(SEQUENCES) + ACTING)
def test_nothing_that_acts_survives(text: str) -> None:
    assert not any(map(acts, visible(text)))


@given(texts)
def test_what_shows_by_itself_is_kept_in_its_order(text: str) -> None:
    shown = iter(visible(text))
    assert all(mark in shown for mark in text if mark.isprintable())


@given(texts)
def test_what_is_visible_stays_as_it_is(text: str) -> None:
    assert visible(visible(text)) == visible(text)


@given(texts)
def test_a_line_stays_one(text: str) -> None:
    assert len(visible_line(text).splitlines()) <= 1
    assert "\t" not in visible_line(text)


@pytest.mark.rule("U-8")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "␛[2J"),
        ("a\rb", "a␍b"),
        ("a\r\nb", "a\nb"),
        ("tab\there", "tab\there"),
        ("nul\x00 del\x7f", "nul␀ del␡"),
        ("c1 \x9b31m", "c1 <U+009B>31m"),
        ("\u202eevil", "<U+202E>evil"),
        ("\ufeffbom", "<U+FEFF>bom"),
        ("\U000e0041\U000e007f", "<U+E0041><U+E007F>"),
        ("half \ud83d", "half \ufffd"),
        ("one\u2028two\u0085", "one<U+2028>two<U+0085>"),
    ],
)
def test_each_kind_is_shown_as_something(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize("text", ["👩‍💻", "❤️", "1️⃣", "می‌خواهم", "ក\u200bខ", "e\u0301", "\u00ad", "日本語"])
def test_marks_that_make_words_and_emoji_stay(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [("rm\u200b -rf", "rm<U+200B> -rf"), ("pay\u200d\u200cpal", "pay<U+200D><U+200C>pal"), ("ក\u200bx", "ក<U+200B>x")],
)
def test_joiners_beside_ascii_are_shown_for_there_they_can_only_deceive(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_every_character_there_is_either_shows_or_is_made_to() -> None:
    assert not any(map(acts, visible("".join(map(chr, range(sys.maxunicode + 1))))))


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (b"plain\n", "plain\n"),
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"10%\r50%\r100%\n", "100%\n"),
        (b"Fetching 10%\rdone\x1b[K\n", "done\n"),
        (b"long text\rshort\n", "shorttext\n"),
        (b"\x1b[2K\x1b[1GWorking\x1b[2K\x1b[1GDone\n", "Done\n"),
        (b"abc\x08\x08X\n", "aXc\n"),
        (b"N\x08NA\x08A\n", "NA\n"),
        (b"50%\x08\x08\x08   \x08\x08\x08100%\n", "100%\n"),
        (b"\x08\x08up\n", "up\n"),
        (b"abc\x1b[2DX\x1b[CY", "aXcY"),
        (b"abc\x1b[99999999999GX", "Xbc"),
        (b"abc\x1b[9999GX", "abcX"),
        (b"\x1b]0;window title\x07text", "text"),
        (b"\x1b]8;;https://example.com\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1bP+q544e\x1b\\\x1b_a\x1b\\\x1b^p\x1b\\\x1bXs\x1b\\text", "text"),
        (b"\x1b(B\x1b=\x1bM\x1b7text\x1b8", "text"),
        (b"\xc2\x9b31mred", "red"),
        (b"\x1b[?25l\x1b[38;2;1;2;3mx\x1b[ q", "x"),
        (b"bell\x07 nul\x00", "bell␇ nul␀"),
        (b"cut \xf0\x9f", "cut \ufffd"),
        (b"\xe2\x80\xae", "<U+202E>"),
        (b"", ""),
    ],
)
def test_terminal_output_is_the_text_that_it_leaves(output: bytes, text: str) -> None:
    assert plain_terminal(output) == text


@pytest.mark.parametrize(
    ("output", "runs"),
    [
        (b"", []),
        (b"plain\n", [Run("plain\n")]),
        (b"a\x1b[31mb\x1b[0mc", [Run("a"), Run("b", Style(foreground=1)), Run("c")]),
        (b"\x1b[1;4;92mx\x1b[mx", [Run("x", Style(foreground=10, bold=True, underlined=True)), Run("x")]),
        (b"\x1b[7;9mx\x1b[27;29mx", [Run("x", Style(inverse=True, struck=True)), Run("x")]),
        (b"\x1b[1;2;3mx\x1b[22;23mx", [Run("x", Style(bold=True, dim=True, italic=True)), Run("x")]),
        (b"\x1b[41mx\x1b[107mx\x1b[49mx", [Run("x", Style(background=1)), Run("x", Style(background=15)), Run("x")]),
        (b"\x1b[38;5;208;1mx", [Run("x", Style(foreground=208, bold=True))]),
        (b"\x1b[38;2;255;0;0mx", [Run("x", Style(foreground=196))]),
        (b"\x1b[38:2::0:0:255mx\x1b[48:5:7mx", [Run("x", Style(21)), Run("x", Style(21, 7))]),
        (b"\x1b[4:3mx\x1b[4:0mx", [Run("x", Style(underlined=True)), Run("x")]),
        (b"\x1b[8mhidden\x1b[5mblinking\x1b[0m", [Run("hiddenblinking")]),
        (b"\x1b[38;5mx\x1b[38;2;1mx\x1b[38mx\x1b[99999999mx", [Run("xxxx")]),
        (b"\x1b[31mred\nred", [Run("red\nred", Style(foreground=1))]),
        (b"\x1b[31mab\r\x1b[32mx\n", [Run("x", Style(2)), Run("b", Style(1)), Run("\n", Style(2))]),
        (b"\x1b[31m\x07\x1b[32m\r\nx", [Run("\u2407", Style(1)), Run("\nx", Style(2))]),
        (b"\xc2\x9b31mx", [Run("x", Style(1))]),
        (b"\x1b[?31mx\x1b[>4;1mx", [Run("xx")]),
    ],
)
def test_colours_and_styles_are_kept_and_nothing_is_hidden(output: bytes, runs: list[Run]) -> None:
    assert styled_terminal(output) == runs


STYLING = (
    "\x1b[1m",
    "\x1b[0m",
    "\x1b[31;4m",
    "\x1b[38;5;9m",
    "\x1b[48:2::1:2:3m",
    "\r",
    "\x08",
    "\x1b[K",
    "\u200d",
    "x",
)


@given(
    st.lists(st.one_of(texts, st.sampled_from(STYLING)), max_size=12).map(
        lambda found: "".join(found).encode("utf-8", "replace")
    )
)
@example("\u200d\x1b[1mx\x1b[1m\u200d\u200d\x1b[0my\x1b\x1b[1m[Kz".encode())
def test_with_its_styles_output_is_the_same_text(output: bytes) -> None:
    runs = styled_terminal(output)
    assert "".join(run.text for run in runs) == plain_terminal(output)
    assert all(run.text for run in runs)
    assert not any(one.style == two.style for one, two in itertools.pairwise(runs))


@pytest.mark.parametrize("output", [b"\x1b]0;never ended, and\nmore text", b"\x1bPnever ended, and\nmore text"])
def test_a_string_without_its_end_hides_nothing(output: bytes) -> None:
    assert plain_terminal(output).endswith("never ended, and\nmore text")


@given(st.one_of(texts.map(lambda text: text.encode("utf-8", "replace")), st.binary(max_size=60)))
def test_nothing_in_terminal_output_acts(output: bytes) -> None:
    assert not any(map(acts, plain_terminal(output)))


@given(st.lists(texts, max_size=4).map(lambda found: "".join(found).encode("utf-8", "replace")), st.integers(0, 99))
def test_a_sequence_that_is_cut_shows_and_completes(output: bytes, cut: int) -> None:
    """Output is looked at while it comes: the first part must be harmless too, and the whole the same as ever."""
    assert not any(map(acts, plain_terminal(output[:cut])))
    assert plain_terminal(output[:cut] + output[cut:]) == plain_terminal(output)


SIZE = 1_000_000


@pytest.mark.parametrize(
    "unit",
    [
        b"collected 42 items\n",
        b"\x1b[31mred\x1b[0m\n",
        b"\x1b[3;38;5;1;48:2:1:2:3mx",
        b"\x1b[1mx\r",
        b"Downloading 100%\r",
        b"a\x08",
        b"\x1b",
        b"\x1b]",
        b"\x1b[",
        b"\x1bP",
        b"\x1b[2K",
        b"x\x1b[D",
        b"\r\x1b[K",
        b"\xe2\x80\x8d",
        b"\xe2\x80\xae",
        bytes(range(256)),
    ],
)
def test_a_megabyte_of_anything_takes_a_moment(unit: bytes) -> None:
    output = (unit * (SIZE // len(unit) + 1))[:SIZE]
    began = time.process_time()
    plain_terminal(output)
    styled_terminal(b"\x1b[31m" + output)
    assert time.process_time() - began < 10  # a second a second where this was written; an hour if it were quadratic


@pytest.mark.parametrize("after", [b"\x08" * (SIZE // 2), b"\x1b[2K" * (SIZE // 8), b"\x1b[K" * (SIZE // 6)])
def test_going_back_over_a_long_line_is_not_quadratic(after: bytes) -> None:
    began = time.process_time()
    plain_terminal(b"x" * (SIZE // 2) + after)
    styled_terminal(b"\x1b[1m" + b"x" * (SIZE // 2) + after)
    assert time.process_time() - began < 10
