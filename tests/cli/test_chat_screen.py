"""What a conversation shows: rows as lines, and lines that leave the screen while what they say goes on changing."""

import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.cli.lines import chunk, whole
from tests.view.hostile import acts, texts, transcripts, updates
from twofold.cli._chat.look import Line, Look, folded, rendered
from twofold.cli._chat.pane import Pane
from twofold.cli._chat.plain import Printer
from twofold.fold import Transcript
from twofold.plaintext import visible
from twofold.view import LiveRows, Piece, Row, rows
from twofold.wire import v2

OURS = "❯●∴☰∿·✓✗…‖$"
MARKDOWN = """\
# Tides

Low water is at *six*, high water at **noon**; see [the table](http://example.com/t) and <http://example.com>.

1. one
2. two
   - three

> said
> twice

```python
if True:
    print("x")
```

| port | tide |
|------|------|
| Hel  | low  |

![map](http://example.com/map.png) ~~gone~~ `code`

---

End.
"""


def plain(lines: list[Line]) -> list[str]:
    return ["".join(words for _, words in line) for line in lines]


def agent(text: str) -> Row:
    return Row("m", "agent", body=[Piece("text", visible(text))])


def shown(text: str, width: int = 60) -> str:
    return "\n".join(plain(Look(width).lines(agent(text))))


class TestLook:
    @given(transcripts, st.sampled_from([1, 20, 80]))
    def test_nothing_said_stands_at_the_margin_or_acts(self, transcript: Transcript, width: int) -> None:
        look = Look(width)
        for row in rows(transcript):
            for line in plain(look.lines(row)):
                assert not any(map(acts, line))
                assert "\n" not in line
                assert not line or line.startswith("  ") or (line[0] in OURS and line[1:2] in ("", " "))

    @given(texts, st.sampled_from([8, 40]))
    def test_no_line_is_too_wide(self, text: str, width: int) -> None:
        for line in Look(width).lines(agent(text)):
            assert sum(cell_len(words) for _, words in line) <= width

    @given(texts)
    def test_a_text_that_says_something_shows_something(self, text: str) -> None:
        if any(mark.isalpha() and mark.isascii() for mark in text) and not set("[`&") & set(text):
            assert any(mark.isalpha() for mark in shown(text))

    @pytest.mark.parametrize(
        ("text", "reads"),
        [
            ("<b>bold</b> List<String> <!-- note -->", "<b>bold</b> List<String> <!-- note -->"),
            ("<div>\nblock\n</div>", "<div>\n  block\n  </div>"),
            ("[red]markup[/red] :smile: [/]", "[red]markup[/red] :smile: [/]"),
            ("[words](http://evil.example)", "words (http://evil.example)"),
            ("![words](http://evil.example/x)", "!words (http://evil.example/x)"),
            ("<http://plain.example>", "http://plain.example"),
            ("a&#27;[2J&#155;2J&#13;&#8238;b&#x202e;", "a\ufffd[2J\ufffd2J␍<U+202E>b<U+202E>"),
            ("\x1b]8;;http://evil.example\x1b\\words\x1b]8;;\x1b\\", "␛]8;;http://evil.example␛\\words␛]8;;␛\\"),
            ("&lt;b&gt; &amp; \\*no\\*", "<b> & *no*"),
        ],
    )
    def test_what_is_no_markdown_is_text_and_what_leads_somewhere_says_where(self, text: str, reads: str) -> None:
        assert shown(text) == f"● {reads}"

    def test_a_text_that_grows_looks_as_it_does_at_once(self) -> None:
        look = Look(60)
        for end in range(1, len(MARKDOWN) + 1):
            grown = look.lines(agent(MARKDOWN[:end]))
        assert grown == Look(60).lines(agent(MARKDOWN))
        assert [line[2:].rstrip() for line in plain(grown)] == plain(rendered(MARKDOWN, 58))

    def test_a_text_that_is_replaced_looks_as_it_does_at_once(self) -> None:
        look = Look(60)
        look.lines(agent(MARKDOWN))
        assert look.lines(agent("Other.")) == Look(60).lines(agent("Other."))

    def test_markdown_that_fails_to_be_drawn_is_shown_as_it_is(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> list[Line]:
            raise RuntimeError

        monkeypatch.setattr("twofold.cli._chat.look._drawn", fail)
        assert shown("**words**") == "● **words**"

    @given(st.lists(st.tuples(st.just(""), st.text("a日 b", max_size=9)), max_size=4), st.integers(4, 20))
    def test_a_folded_line_says_the_same(self, line: Line, width: int) -> None:
        cut = folded(line, width)
        assert all(cell_len(one) <= width for one in plain(cut))
        said = "".join(one if number == 0 else one[2:] for number, one in enumerate(plain(cut)))
        assert said == "".join(plain([line]))


class Talk:
    """A session, shown on a screen of so many lines."""

    def __init__(self, room: int = 1000, width: int = 60) -> None:
        self.transcript = Transcript("s")
        self.rows = LiveRows(self.transcript)
        self.pane = Pane(width)
        self.room = room
        self.gone: list[str] = []

    def hear(self, *stream: dict[str, Any]) -> None:
        for update in stream:
            self.transcript.apply(v2.read_update(update))
        self.pane.show(self.rows.now())
        self.gone += plain(self.pane.leaving(self.room))

    @property
    def seen(self) -> list[str]:
        return [line for line in plain(self.pane.lines()) if line]


def long(number: int) -> dict[str, Any]:
    return chunk("\n\n".join(f"line {one}" for one in range(number)), f"long{number}")


class TestPane:
    def test_what_changes_in_sight_changes_where_it_stands(self) -> None:
        talk = Talk()
        talk.hear(chunk("one"), chunk("two", "n"))
        talk.hear(whole("three"))
        assert talk.seen == ["● three", "· corrected", "● two"]
        talk.hear(whole())
        assert talk.seen == ["● withdrawn by the agent", "● two"]

    def test_what_is_corrected_out_of_sight_is_shown_below(self) -> None:
        talk = Talk(room=6)
        talk.hear(chunk("one"))
        talk.hear(long(9))
        talk.hear(whole("three"))
        assert talk.seen[-2:] == ["· corrected: what stands further up is no longer so", "● three"]
        talk.hear(chunk(", four"))
        assert talk.seen[-1] == "● three, four"

    def test_what_is_corrected_half_out_of_sight_is_shown_whole(self) -> None:
        talk = Talk(room=6)
        talk.hear(long(9))
        assert talk.seen == ["  line 6", "  ", "  line 7", "  ", "  line 8"]
        talk.hear(whole("none", message="long9"))
        assert talk.seen == ["· corrected: what stands further up is no longer so", "● none"]

    def test_what_goes_on_half_out_of_sight_goes_on(self) -> None:
        talk = Talk(room=4)
        talk.hear(long(9))
        talk.hear(chunk("\n\nand on", "long9"))
        assert [one for one in [*talk.gone, *talk.seen] if "on" in one or "line" in one] == [
            *(("● " if one == 0 else "  ") + f"line {one}" for one in range(9)),
            "  and on",
        ]

    @pytest.mark.parametrize(
        "text",
        [
            "".join(f"- **item** {number}\n\n" for number in range(60)),
            "```python\n" + "".join(f"value{number} = other{number} + 1\n" for number in range(700)) + "```\n\nEnd.",
            "| a | b |\n|---|---|\n" + "".join(f"| {number} | {'word ' * (number % 20)} |\n" for number in range(40)),
            "".join(f"word{number} **bold{number}** " for number in range(300)),
        ],
        ids=["list", "code", "table", "paragraph"],
    )
    def test_no_word_is_lost_while_a_text_grows_that_is_longer_than_the_screen(self, text: str) -> None:
        talk = Talk(room=10)
        step = max(len(text) // 60, 7)
        for start in range(0, len(text), step):
            talk.hear(chunk(text[start : start + step]))
        words = " ".join([*talk.gone, *talk.seen])
        assert set(re.findall(r"\w+", text)) - {"python"} <= set(re.findall(r"\w+", words))

    def test_what_goes_on_out_of_sight_goes_on_below_with_what_is_new(self) -> None:
        talk = Talk(room=4)
        talk.hear(chunk("one"))
        talk.hear(long(9))
        talk.hear(chunk(" and two"))
        assert talk.seen[-1] == "● and two"
        talk.hear(chunk(" and three"))
        assert talk.seen[-1] == "● and two and three"

    def test_a_tool_is_shown_once_more_when_it_ends_and_not_for_every_word(self) -> None:
        talk = Talk(room=6)
        call = {"sessionUpdate": "tool_call_update", "toolCallId": "c", "title": "Test", "status": "in_progress"}
        talk.hear(call)
        talk.hear(long(9))
        talk.hear({"sessionUpdate": "tool_call_content_chunk", "toolCallId": "c", "content": item("output")})
        assert talk.seen[-1] == "  line 8"
        talk.hear({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"})
        assert talk.seen[-2:] == ["✓ Test", "  output"]

    def test_a_replay_of_the_same_changes_nothing(self) -> None:
        talk = Talk(room=6)
        talk.hear(chunk("one"), long(9))
        before = [*talk.gone, *talk.seen]
        reload = talk.transcript.reload()
        for update in (whole("one"), {**whole(message="long9"), "content": long(9)["content"]}):
            update["content"] = update["content"] if isinstance(update["content"], list) else [update["content"]]
            reload.apply(v2.read_update(update))
        reload.commit()
        talk.hear()
        assert [*talk.gone, *talk.seen] == before

    def test_another_session_leaves_what_is_in_sight_and_changes_it_no_more(self) -> None:
        talk = Talk()
        talk.hear(chunk("one"))
        talk.pane.begin(erase=False)
        talk.rows = LiveRows(Transcript("t"))
        talk.transcript.apply(v2.read_update(whole()))
        talk.pane.show(talk.rows.now())
        assert talk.seen == ["● one"]
        talk.pane.begin(erase=True)
        assert talk.seen == []

    def test_another_width_draws_everything_in_sight_anew(self) -> None:
        talk = Talk(width=80)
        talk.hear(chunk("word " * 20))
        talk.pane.say([[("", "remark " * 9)]])
        talk.pane.resize(20)
        assert max(map(len, talk.seen)) <= 20
        assert "".join(talk.seen).count("word") == 20

    @given(st.lists(st.tuples(updates, st.integers(1, 12), st.sampled_from([9, 30])), max_size=12))
    def test_there_is_always_room(self, stream: list[tuple[dict[str, Any], int, int]]) -> None:
        talk = Talk()
        for update, room, width in stream:
            talk.room = room
            talk.pane.resize(width)
            talk.hear(update)
            assert talk.pane.height == len(talk.pane.lines()) <= room

    @given(st.lists(updates, max_size=8))
    def test_with_room_enough_the_screen_is_what_the_session_is(self, stream: list[dict[str, Any]]) -> None:
        talk = Talk()
        for update in stream:
            talk.hear(update)
        afresh = Talk()
        afresh.transcript = talk.transcript
        afresh.rows = LiveRows(talk.transcript)
        afresh.hear()
        assert sorted(talk.seen) == sorted(afresh.seen)


def item(words: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": words}}


class TestPrinter:
    def printed(self, stream: list[dict[str, Any]]) -> tuple[str, str]:
        with pytest.MonkeyPatch.context() as patched:
            out, err = io.StringIO(), io.StringIO()
            patched.setattr("sys.stdout", out)
            patched.setattr("sys.stderr", err)
            transcript, printer = Transcript("s"), Printer()
            for update in stream:
                printer.show(transcript, transcript.apply(v2.read_update(update)))
            printer.end()
        return out.getvalue(), err.getvalue()

    @pytest.mark.rule("U-8")
    @pytest.mark.parametrize(
        ("chunks", "reads"),
        [
            (("a\ud83d", "\ude80b"), "a🚀b\n"),
            (("a\ud83d",), "a\ufffd\n"),
            (("a\r", "\nb"), "a\nb\n"),
            (("a\r",), "a␍\n"),
            (("a\n",), "a\n"),
        ],
    )
    def test_halves_that_come_apart_are_one(self, chunks: tuple[str, ...], reads: str) -> None:
        assert self.printed([chunk(one) for one in chunks]) == (reads, "")

    def test_answers_that_alternate_are_lines_of_their_own(self) -> None:
        assert self.printed([chunk("one"), chunk("two", "n"), chunk("three")])[0] == "one\ntwo\nthree\n"

    def test_what_is_no_text_is_named(self) -> None:
        image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
        update = {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": image}
        assert self.printed([update]) == ("", "twofold chat: not shown: image, image/png, 3 bytes\n")

    @given(st.lists(updates, max_size=8))
    def test_nothing_acts_and_every_remark_is_a_line(self, stream: list[dict[str, Any]]) -> None:
        out, err = self.printed(stream)
        assert not any(map(acts, out + err))
        assert all(line.startswith("twofold chat: ") for line in err.splitlines())
