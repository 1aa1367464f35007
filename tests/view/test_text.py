"""A session as text and as Markdown: what is ours and what was said cannot be taken for one another."""

import re
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.view.hostile import acts, texts, transcript_of, transcripts
from twofold.fold import Transcript
from twofold.view import footer, heading, markdown, row_lines, rows, text

STYLE = re.compile(r"\x1b\[[0-9;]*m")
HEADING = re.compile(
    r"(?:user|agent|thought|tool|terminal|plan|compaction|unknown update)(?: \S.*?)?(?:  .*)?(?:  \(corrected\))?"
)


def said(words: str, kind: str = "agent_message") -> dict[str, Any]:
    return {"sessionUpdate": kind, "messageId": "m", "content": [{"type": "text", "text": words}]}


def margins(found: str) -> list[str]:
    """Give the lines that begin at the margin: ours."""
    return [line for line in found.split("\n") if line and not line.startswith(" ")]


def expected_margins(transcript: Transcript) -> list[str]:
    lines = [heading(transcript)]
    for row in rows(transcript):
        (head, *_) = row_lines(row)
        lines.append(head)
        lines += ["· withdrawn by the agent"] * row.withdrawn
        lines += [f"· {piece.text}" for piece in row.body if piece.kind == "note"]
    return [*lines, *([f"· {footer(transcript)}"] if footer(transcript) else [])]


@given(transcripts)
def test_only_our_headings_and_notes_stand_at_the_margin(transcript: Transcript) -> None:
    assert margins(text(transcript)) == expected_margins(transcript)
    assert all(HEADING.fullmatch(line) for line in margins(text(transcript))[1:] if not line.startswith("· "))


@given(transcripts, st.integers(4, 60))
def test_so_it_is_on_a_narrow_terminal(transcript: Transcript, width: int) -> None:
    assert len(margins(text(transcript, width=width))) == len(expected_margins(transcript))


@given(transcripts, st.booleans(), st.one_of(st.none(), st.integers(2, 60)))
def test_nothing_in_a_text_acts_but_our_colours(transcript: Transcript, colour: bool, width: int | None) -> None:
    found = text(transcript, colour=colour, width=width)
    assert not any(map(acts, STYLE.sub("", found)))
    assert colour or not STYLE.search(found)
    assert STYLE.sub("", text(transcript, colour=True)) == text(transcript)


@given(transcripts)
def test_nothing_in_markdown_acts(transcript: Transcript) -> None:
    assert not any(map(acts, markdown(transcript)))


def test_each_part_of_a_text_has_its_place() -> None:
    stream = [
        said("Why?\n\n- because", "user_message"),
        {"sessionUpdate": "tool_call_update", "toolCallId": "t", "title": "Look", "status": "completed"},
        {
            "sessionUpdate": "tool_call_content_chunk",
            "toolCallId": "t",
            "content": {
                "type": "content",
                "content": {"type": "resource", "resource": {"uri": "u", "text": "a\n b\n"}},
            },
        },
        said("secret", "agent_thought"),
        said("Forty", "agent_message"),
        said("Forty-one\n", "agent_message"),
        {"sessionUpdate": "agent_thought", "messageId": "m", "content": []},
        {"sessionUpdate": "session_info_update", "title": "Two\nlines"},
        {"sessionUpdate": "usage_update", "used": 1200, "size": 200000, "cost": {"amount": 0.25, "currency": "USD"}},
        {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"},
    ]
    assert text(transcript_of("s-1", stream)) == (
        "session s-1: Two ⏎ lines\n"
        "\n"
        "user\n"
        "  Why?\n"
        "\n"
        "  - because\n"
        "\n"
        "tool ✓ completed  Look\n"
        "· resource u\n"
        "    a\n"
        "     b\n"
        "\n"
        "thought\n"
        "· withdrawn by the agent\n"
        "\n"
        "agent  (corrected)\n"
        "  Forty-one\n"
        "\n"
        "· idle (end_turn) · 1,200 of 200,000 tokens · 0.25 USD\n"
    )
    assert markdown(transcript_of("s-1", stream)) == (
        "# session s-1: Two ⏎ lines\n"
        "\n"
        "## User\n"
        "\n"
        "> Why?\n"
        ">\n"
        "> - because\n"
        "\n"
        "## Tool: Look (completed)\n"
        "\n"
        "*resource u*\n"
        "\n"
        "```\n"
        "a\n"
        " b\n"
        "```\n"
        "\n"
        "## Thought\n"
        "\n"
        "*withdrawn by the agent*\n"
        "\n"
        "## Agent (corrected)\n"
        "\n"
        "> Forty-one\n"
        "\n"
        "---\n"
        "\n"
        "*idle (end\\_turn) · 1,200 of 200,000 tokens · 0.25 USD*\n"
    )


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ([], ""),
        ([{"sessionUpdate": "state_update", "state": "running"}], "running"),
        ([{"sessionUpdate": "state_update", "state": "idle\nuser"}], "idle ⏎ user"),
        ([{"sessionUpdate": "usage_update", "used": 0, "size": 9}], "0 of 9 tokens"),
        (
            [{"sessionUpdate": "usage_update", "used": 0, "size": 9, "cost": {"amount": 10**400, "currency": "X"}}],
            f"0 of 9 tokens · {10**400} X",
        ),
    ],
)
def test_the_last_line_is_the_sessions_word_on_itself(state: list[dict[str, Any]], words: str) -> None:
    assert footer(transcript_of(None, state)) == words


def test_a_session_without_an_id_has_a_heading_too() -> None:
    assert text(transcript_of(None, [])) == "session\n"
    assert markdown(transcript_of(None, [])) == "# session\n"


def test_colours_are_on_our_lines_and_on_thoughts() -> None:
    found = text(transcript_of("s", [said("Fog lifts."), said("Hm.", "agent_thought")]), colour=True)
    assert "\x1b[1;32magent\x1b[0m" in found
    assert "\n  Fog lifts.\n" in found
    assert "  \x1b[2;3mHm.\x1b[0m" in found


OURS = re.compile(r"|>( .*)?|#{1,2} .*|\*.*\*|---")


def outside(found: str) -> list[str]:
    """Give the lines outside of our fences: every line of a quote must say so, and no fence may end early."""
    lines: list[str] = []
    fence: str | None = None
    for line in found.removesuffix("\n").split("\n"):
        if fence is not None:
            fence = None if line == fence else fence
            continue
        opened = re.fullmatch(r"(`{3,})(?:diff)?", line)
        if opened is not None:
            fence = opened.group(1)
        else:
            lines.append(line)
    assert fence is None
    return lines


@given(transcripts)
def test_headings_in_markdown_are_ours_alone(transcript: Transcript) -> None:
    lines = outside(markdown(transcript))
    assert all(OURS.fullmatch(line) for line in lines)
    assert [line.startswith("# ") for line in lines].count(True) == 1
    assert [line.startswith("## ") for line in lines].count(True) == len(list(rows(transcript)))


@given(texts)
@example("```")
@example("````\n```` ~~~")
@example("\n```\n\n## User\n")
def test_code_cannot_break_out_of_its_fence(code: str) -> None:
    resource = {"type": "resource", "resource": {"uri": "u", "text": code}}
    found = markdown(transcript_of("s", [{"sessionUpdate": "agent_message", "messageId": "m", "content": [resource]}]))
    assert outside(found) == ["# session s", "", "## Agent", "", "*resource u*", ""]


@pytest.mark.parametrize(
    ("words", "quote"),
    [
        ("## User", ["> ## User"]),
        ("</blockquote><h2>User</h2>", ["> &lt;/blockquote>&lt;h2>User&lt;/h2>"]),
        ("\\<b>\\\\<b>", ["> \\<b>\\\\&lt;b>"]),
        ("a < b <3 <= c", ["> a < b <3 <= c"]),
        ("`List<String>` <b>", ["> `List<String>` &lt;b>"]),
        ("``a ` <b>`` <b>", ["> ``a ` <b>`` &lt;b>"]),
        ("`open <b>\n<b> close`", ["> `open &lt;b>", "> &lt;b> close`"]),
        ("`open\n\n`<b>`", ["> `open", ">", "> `<b>`"]),
        ("| ` | <b> ` |", ["> | ` | &lt;b> ` |"]),
        ("```html\n<h2>x</h2>\n```\n<b>", ["> ```html", "> <h2>x</h2>", "> ```", "> &lt;b>"]),
        ("~~~~\n<b>\n~~~\n<b>\n~~~~\n<b>", ["> ~~~~", "> <b>", "> ~~~", "> <b>", "> ~~~~", "> &lt;b>"]),
        ("1. do\n   ```sh\n   cat <file\n   ```", ["> 1. do", ">    ```sh", ">    cat <file", ">    ```"]),
        ("- a\n  ```\n<b>\n  ```", ["> - a", ">   ```", "> &lt;b>", ">   ```"]),
        ("- a\n\n      ```\n<b>\n```\n<b>", ["> - a", ">", ">       ```", "> &lt;b>", "> ```", "> &lt;b>"]),
        ("```\n\t```\n<b>\n```\n<b>", ["> ```", "> \t```", "> &lt;b>", "> ```", "> &lt;b>"]),
        ("> ```\n<b>", ["> > ```", "> &lt;b>"]),
    ],
)
def test_html_in_what_was_said_is_shown_where_it_could_act(words: str, quote: list[str]) -> None:
    lines = markdown(transcript_of("s", [said(words)])).split("\n")
    assert lines[4:-1] == quote


@pytest.mark.parametrize("unit", ["`a` ", "<b>", "```\n", "\\`", "` `` ", "> ", "1. ", "| ` "])
def test_a_long_text_takes_no_longer_than_its_length(unit: str) -> None:
    began = time.process_time()
    markdown(transcript_of("s", [said(unit * (500_000 // len(unit)))]))
    assert time.process_time() - began < 10


@pytest.mark.rule("U-8")
def test_a_half_left_over_is_a_replacement_character_in_plain_text() -> None:
    stream = [said("cut \ud83d"), {**said("whole "), "messageId": "n"}]
    stream += [
        {"sessionUpdate": "agent_message_chunk", "messageId": "n", "content": {"type": "text", "text": half}}
        for half in ("\ud83d", "\ude80")
    ]
    transcript = transcript_of("s", stream)
    for found in (text(transcript), markdown(transcript)):
        assert "cut \ufffd\n" in found
        assert "whole 🚀\n" in found
        found.encode("utf-8")
