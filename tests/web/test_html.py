"""A row as HTML: what somebody said is text there, whatever it is."""

from __future__ import annotations

import base64
import itertools
import re
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.journal.stored import call, chunk, terminal, text, whole
from tests.view.hostile import acts, texts, transcript_of, transcripts
from tests.web.html import Element, parsed
from twofold.plaintext import Run, Style
from twofold.view import Piece, Row, rows
from twofold.web import _html
from twofold.web._html import anchor, article, colour_styles
from twofold.web._markdown import LARGEST_CODE, highlight_styles, markdown_html

ROW_TAGS = (
    "article",
    "header",
    "h2",
    "span",
    "details",
    "summary",
    "div",
    "a",
    "button",
    "p",
    "ul",
    "li",
    "pre",
    "code",
)
TEXT_TAGS = ("h1", "h3", "h4", "h5", "h6", "em", "strong", "s", "ol", "blockquote", "hr", "br")
TAGS = {*ROW_TAGS, *TEXT_TAGS, "table", "thead", "tbody", "tr", "th", "td"}
ATTRIBUTES = {"id", "class", "tabindex", "aria-label", "data-version", "dir", "href", "type", "open", "start"}
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "</div></article><h1>Agent</h1>",
    "<!-- ",
    "<a href='javascript:alert(1)'>x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](vbscript:x)",
    "[x](//example.com)",
    "[x](&#106;avascript:alert(1))",
    "![x](https://example.com/x.png)",
    "![x](data:image/svg+xml;base64,PHN2Zz4=)",
    '<https://example.com/" onclick="alert(1)>',
    "[x](https://example.com 'a\" onclick=\"alert(1)')",
    "```html onclick=alert(1)\n<b>\n```",
    '```"><script>\nx\n```',
    "&#x202e;&#8238;&lrm;&zwj;&#0;&#27;",
    "&lt;b&gt;",
    "| a |\n|---|\n| <b> |",
    "# <b>\n\n---\n\n> <i>\n\n1. <u>",
]


def the_row(*stream: Any) -> Row:
    *_, found = rows(transcript_of("s", list(stream)))
    return found


def shown(row: Row, **how: Any) -> Element:
    return parsed(article(row, **how)).one("article")


def rendered(row: Row) -> Element:
    return shown(row, rendered=[markdown_html(one) for one in _html.texts(row)])


def inert(element: Element) -> None:
    """Fail when something in an element acts or is fetched."""
    for one in element.all():
        assert one.tag in TAGS
        assert set(one.attributes) <= ATTRIBUTES | ({"rel", "target"} if one.tag == "a" else set())
        if "href" in one.attributes:
            assert re.match(r"#|https?://|mailto:", one.attributes["href"], re.IGNORECASE)
    assert not any(map(acts, element.text))


@given(transcripts)
def test_nothing_in_any_row_acts(transcript: Any) -> None:
    for row in rows(transcript):
        for element in (parsed(article(row)), rendered_in(row)):
            inert(element)
            assert len(element.all("article")) == 1
            assert all(map(str.isascii, [element.one("article").attributes["id"]]))


def rendered_in(row: Row) -> Element:
    return parsed(article(row, rendered=[markdown_html(one) for one in _html.texts(row)]))


@pytest.mark.parametrize("words", HOSTILE)
def test_hostile_markdown_is_text(words: str) -> None:
    for breaks in (False, True):
        element = parsed(markdown_html(words, breaks=breaks))
        inert(element)
        assert not element.all("img")
        assert not [one for one in element.all("a") if "script" in one.attributes["href"]]


@given(texts)
@example("".join(HOSTILE))
@example("&#8238;x&rlm;")
def test_whatever_the_markdown_nothing_in_it_acts(words: str) -> None:
    inert(parsed(markdown_html(words)))


@given(texts)
@example("\r\n\n a  \u202e\ud800")
def test_text_that_is_not_rendered_is_there_to_the_letter(words: str) -> None:
    row = the_row(whole("m", text(words)))
    (stream,) = shown(row).all("div", class_="stream")
    assert stream.text == row.body[0].text


def test_what_entities_stand_for_is_visible_too() -> None:
    assert parsed(markdown_html("pay&#8238;pal &zwj;")).text == "pay<U+202E>pal <U+200D>\n"


def test_markdown_is_rendered() -> None:
    element = parsed(
        markdown_html("# A\n\n**b** ~~c~~ `d`\n\n- e\n\n| f |\n|--:|\n| g |\n\n> h\n\n[i](https://example.com)")
    )
    tags = "h1 p strong s code ul li table thead tr th tbody tr td blockquote p p a"
    assert " ".join(one.tag for one in element.all()) == tags
    assert element.one("td").attributes == {"class": "right"}
    link = element.one("a")
    assert link.attributes == {"href": "https://example.com", "rel": "noopener noreferrer nofollow", "target": "_blank"}


def test_a_picture_is_a_link_and_not_fetched() -> None:
    element = parsed(markdown_html("![a cat](https://example.com/cat.png)"))
    assert element.one("a").attributes["href"] == "https://example.com/cat.png"
    assert element.text == "!a cat\n"


def test_lines_that_a_user_broke_stay_broken() -> None:
    assert parsed(markdown_html("a\nb", breaks=True)).all("br")
    assert not parsed(markdown_html("a\nb")).all("br")


@pytest.mark.parametrize("language", ["python", "Python", "py"])
def test_code_is_highlighted_with_classes(language: str) -> None:
    element = parsed(markdown_html(f"```{language}\ndef f(): return '<b>'\n```"))
    assert element.one("pre").text == "def f(): return '<b>'\n"
    assert [one.text for one in element.all("span", class_="hl-k")] == ["def", "return"]
    assert ".text .hl-k {" in highlight_styles()


@pytest.mark.parametrize("code", ["x = 1\n" * LARGEST_CODE, "x"], ids=["long", "short"])
@pytest.mark.parametrize("language", ["", "no-such-language", "python" * 100, "\"'<>&"])
def test_code_that_is_not_highlighted_is_there_all_the_same(code: str, language: str) -> None:
    element = parsed(markdown_html(f"```{language}\n{code}\n```"))
    assert element.text.strip() == code.strip()
    inert(element)


@pytest.mark.parametrize(
    "unit", ["[", "[]()", "*a ", "`a``b", "> ", "- ", "<a ", "![a](", "|x", "&", "**a", "~~a", "_a"]
)
def test_long_markdown_takes_a_moment(unit: str) -> None:
    began = time.process_time()
    markdown_html(unit * (60_000 // len(unit)))
    assert time.process_time() - began < 10


# Rows


def test_a_message_says_who_and_what() -> None:
    element = shown(the_row(whole("m 1/ü", text("Fog *lifts*."))), rendered=["<p>Fog <em>lifts</em>.</p>"], version="v")
    assert element.attributes == {
        "id": "agent_message/m%201/%C3%BC",
        "class": "row agent",
        "tabindex": "-1",
        "aria-label": "Agent",
        "data-version": "v",
    }
    assert element.one("h2").text == "Agent"
    assert element.one("div", class_="body").text == "Fog lifts."
    assert element.one("a", class_="permalink").attributes["href"] == "#agent_message/m%201/%C3%BC"
    assert element.one("button", class_="copy").text == "copy"


def test_text_that_is_not_rendered_yet_says_so() -> None:
    assert "plain" in shown(the_row(whole("m", text("Fog")))).classes
    assert "plain" not in shown(the_row(whole("m", text("Fog"))), rendered=["Fog"]).classes
    assert "plain" not in shown(the_row({"sessionUpdate": "state_update", "state": "idle"}, call(title="T"))).classes


def test_a_corrected_message_says_so() -> None:
    element = shown(the_row(whole("m", text("Forty")), whole("m", text("Forty-one"))))
    assert element.one("span", class_="mark").text == "corrected"
    assert element.attributes["aria-label"] == "Agent, corrected"


def test_a_withdrawn_message_says_only_that() -> None:
    element = shown(the_row(whole("m", text("secret")), whole("m", content=None)))
    assert "withdrawn" in element.classes
    assert element.attributes["aria-label"] == "Agent, withdrawn by the agent"
    assert element.text == "Agent withdrawn by the agent#"


def test_a_thought_is_folded_away() -> None:
    element = shown(the_row(whole("m", text("Hm."), type="agent_thought")))
    details = element.one("details")
    assert "open" not in details.attributes
    assert details.one("summary").text == "Thought"
    assert details.one("div", class_="body").text == "Hm."


@pytest.mark.parametrize(
    ("status", "opened"), [("pending", True), ("in_progress", True), ("failed", True), ("completed", False)]
)
def test_a_tool_call_is_folded_away_when_it_is_done(status: str, opened: bool) -> None:
    items = [{"type": "content", "content": text("words")}]
    element = shown(the_row(call(title="Read <b>", status=status, content=items)))
    assert ("open" in element.one("details").attributes) is opened
    assert element.one("span", class_="title").text == "Read <b>"
    assert element.one("span", class_=f"status-{status}").text == status


def test_a_status_of_any_words_makes_no_class_of_its_own() -> None:
    element = shown(the_row(call(title="T", status='x" onclick="y hidden')))
    assert element.one("span", class_="status").classes == ["status", "status-xonclickyhidden"]
    inert(element)


def test_a_plan_is_a_list() -> None:
    entries = [
        {"content": f"<{status}>\nx", "priority": "low", "status": status}
        for status in ("completed", "in_progress", "cancelled", "pending", "_other")
    ]
    plan = {"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": "p", "entries": entries}}
    items = shown(the_row(plan)).one("ul").all("li")
    assert [item.one("span", class_="step").text for item in items] == (
        ["completed", "in progress", "cancelled", "pending", "pending"]
    )
    assert items[1].all("span")[1].text == "<in_progress> ⏎ x"


PATCH = """\
diff --git a/x b/x
--- a/x
+++ b/x
@@ -1,3 +1,2 @@ <b>
 same
-- a minus
---- looks like a head
+++ looks like a head
\\ No newline at end of file
--- a/y
+++ b/y
@@ -1 +1 @@
-old
+new"""


def test_a_diff_is_marked_line_by_line() -> None:
    item = {"type": "diff", "changes": [], "patch": {"format": "git_patch", "text": PATCH}}
    element = shown(the_row(call(title="T", content=[item])))
    assert element.one("pre").text == PATCH + "\n"
    kinds = {one.text.rstrip("\n"): one.classes for one in element.one("pre").all("span")}
    assert kinds == {
        "diff --git a/x b/x": ["file"],
        "--- a/x": ["file"],
        "+++ b/x": ["file"],
        "@@ -1,3 +1,2 @@ <b>": ["hunk"],
        "-- a minus": ["del"],
        "---- looks like a head": ["del"],
        "+++ looks like a head": ["add"],
        "--- a/y": ["file"],
        "+++ b/y": ["file"],
        "@@ -1 +1 @@": ["hunk"],
        "-old": ["del"],
        "+new": ["add"],
    }


def output(data: bytes) -> Row:
    encoded = base64.b64encode(data).decode()
    return the_row(
        terminal(command="make"),
        {**chunk("", ""), "sessionUpdate": "terminal_output_chunk", "terminalId": "t1", "data": encoded},
    )


def test_a_terminal_keeps_its_colours_as_classes() -> None:
    element = shown(output(b"a \x1b[1;31mred <b>\x1b[0m \x1b]0;title\x07\x1b[2Jb\x1b[7mi"))
    assert element.one("pre").text == "a red <b> bi"
    assert [(one.text, one.classes) for one in element.one("pre").all("span")] == (
        [("red <b>", ["f1", "bold"]), ("i", ["b7", "on-light"])]
    )


def test_no_text_has_the_colour_of_what_is_behind_it() -> None:
    sheet = dict(re.findall(r"\.([\w-]+)\{([^}]*)\}", colour_styles()))
    fronts, backs = (None, *range(0, 256, 5)), (None, 0, 7, 9, 15, 21, 196, 231, 232, 255)
    for front, back, inverse in itertools.product(fronts, backs, (False, True)):
        run = Run("x", Style(foreground=front, background=back, inverse=inverse))
        spans = shown(Row("terminal/t", "terminal", body=[Piece("code", "x", "", [run])])).one("code").all("span")
        styles = ";".join([sheet["terminal"], *(sheet[name] for one in spans for name in one.classes)])
        colours = dict(rule.split(":") for rule in styles.split(";"))
        shades = [bytes.fromhex(colours[name][1:]) for name in ("color", "background")]
        assert _html._contrast(*map(tuple, shades)) >= 3, (front, back, inverse)  # type: ignore[arg-type]


def test_every_class_of_a_style_has_a_rule() -> None:
    named = {name for number in range(256) for name in (f"f{number}", f"b{number}")}
    assert named <= set(re.findall(r"\.([\w-]+)\{", colour_styles()))


def test_a_huge_piece_is_cut_and_says_so() -> None:
    words = "0123456789" * 50_000
    for row in (output(words.encode()), output(b"\x1b[31m" + words.encode()), the_row(whole("m", text(words)))):
        element = shown(row)
        (note,) = [one for one in element.all("p", class_="note") if "left out" in one.text]
        assert note.text == "300,000 characters are left out here. The Markdown has them."
        assert len(element.text) < 201_000
        assert element.text.count("9012") > 19_000


def test_a_huge_line_is_wrapped() -> None:
    assert "wide" in shown(output(b"x" * 3000)).one("pre").classes
    assert "wide" not in shown(output(b"x\n" * 3000)).one("pre").classes


@given(st.lists(texts, min_size=2, max_size=2, unique=True))
@example(["a#b", "a%23b"])
@example(["\ud800", "\ufffd"])
def test_an_anchor_is_one_ascii_word_and_no_other_keys(keys: list[str]) -> None:
    made = [anchor(key) for key in keys]
    assert made[0] != made[1]
    assert all(re.fullmatch(r"[\w.~%/-]*", one, re.ASCII) for one in made)


def test_an_image_is_a_note_even_when_it_could_act() -> None:
    svg = base64.b64encode(b"<svg onload='alert(1)'/>").decode()
    element = shown(the_row(whole("m", {"type": "image", "data": svg, "mimeType": "image/svg+xml"})))
    assert element.one("p", class_="note").text == "image, image/svg+xml, 24 bytes"
    inert(element)
