"""Rows as HTML. Everything that somebody else wrote is text: nothing in it acts, and nothing in it is fetched."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from html import escape
from typing import Final, TypeAlias
from urllib.parse import quote

from twofold.plaintext import Run, Style
from twofold.view import Piece, Row

__all__ = ["anchor", "article", "colour_styles", "texts"]

LARGEST: Final = 200_000
"""Characters of one piece that are shown; of more, the first quarter of that and the last three."""

WIDEST: Final = 2_000
"""Characters of the longest line in a block of code whose lines are not wrapped."""

_STEP: Final = re.compile(r"- \[(.)\] (.*)")
_STEPS: Final = {"x": "completed", "~": "in progress", "-": "cancelled", " ": "pending"}
_LABELS: Final = {"unknown": "Unknown update", "tool": "Tool call"}
_HUNK: Final = re.compile(r"@@ -\d+(?:,(\d{1,9}))? \+\d+(?:,(\d{1,9}))? @@")


def anchor(key: str) -> str:
    """Give a row's key as it stands in links, ids and events: whatever is in it, one ASCII word."""
    return quote(key, safe="/", errors="surrogatepass")


def texts(row: Row) -> list[str]:
    """Give the texts of a row that are Markdown."""
    return [] if row.kind == "plan" else [piece.text for piece in row.body if piece.kind == "text"]


def article(row: Row, *, rendered: Sequence[str] | None = None, version: str = "", bare: bool = False) -> str:
    """Give a row as one ``<article>``.

    ``rendered`` are its :func:`texts` as HTML; without them they are shown as they are, to be added to or rendered
    later. ``version`` tells the row from what it says at other times. A ``bare`` one has no tools yet.
    """
    label = _LABELS.get(row.kind, row.kind.capitalize())
    marks = ["withdrawn by the agent"] if row.withdrawn else ["corrected"] if row.corrected else []
    head = [f"<h2>{label}</h2>"]
    if row.title:
        head.append(f'<span class="title" dir="auto">{escape(row.title)}</span>')
    if row.status:
        head.append(f'<span class="status status-{_word(row.status)}" dir="auto">{escape(row.status)}</span>')
    head += [f'<span class="mark">{mark}</span>' for mark in marks]
    header = f"<header>{' '.join(head)}</header>"
    html = iter(rendered or ())
    body = "".join(_piece(piece, row, html if rendered is not None else None) for piece in row.body)
    if row.kind in ("thought", "tool") and body:
        opened = " open" if row.kind == "tool" and row.status != "completed" else ""
        inner = f'<details{opened}><summary>{header}</summary><div class="body">{body}</div></details>'
    else:
        inner = f'{header}<div class="body">{body}</div>'
    name = anchor(row.key)
    if not bare:
        inner += _tools(row, name)
    state = ["withdrawn"] if row.withdrawn else []
    state += ["plain"] if rendered is None and texts(row) else []
    state += ["bare"] if bare else []
    return (
        f'<article id="{name}" class="{" ".join(["row", row.kind, *state])}" tabindex="-1" '
        f'aria-label="{", ".join([label, *marks])}" data-version="{version}">{inner}</article>'
    )


def _tools(row: Row, name: str) -> str:
    tools = f'<a class="permalink" href="#{name}" aria-label="Link to this">#</a>'
    if row.body:
        tools += '<button class="copy" type="button" aria-label="Copy as Markdown">copy</button>'
    return f'<div class="tools">{tools}</div>'


def _word(status: str) -> str:
    return re.sub(r"[^a-z_]", "", status.lower())[:20]


def _piece(piece: Piece, row: Row, rendered: Iterator[str] | None) -> str:
    match piece.kind:
        case "note":
            return f'<p class="note" dir="auto">{escape(piece.text)}</p>'
        case "code":
            return _code(piece)
        case "text" if row.kind == "plan":
            return f'<ul class="steps">{"".join(_step(line) for line in piece.text.splitlines())}</ul>'
        case "text":
            html = None if rendered is None else next(rendered)
            if html is not None:
                return f'<div class="text" dir="auto">{html}</div>'
            return _cut(piece.text, lambda text: f'<div class="stream" dir="auto">{escape(text)}</div>')


def _cut(text: str, shown: Callable[[str], str]) -> str:
    if len(text) <= LARGEST:
        return shown(text)
    head, tail = text[: LARGEST // 4], text[-3 * LARGEST // 4 :]
    left = len(text) - len(head) - len(tail)
    return (
        f'{shown(head)}<p class="note">{left:,} characters are left out here. The Markdown has them.</p>{shown(tail)}'
    )


def _step(line: str) -> str:
    found = _STEP.fullmatch(line)
    mark, words = found.groups() if found is not None else (" ", line)
    status = _STEPS.get(mark, "pending")
    return (
        f'<li class="step-{status.split()[0]}"><span class="step">{status}</span> '
        f'<span dir="auto">{escape(words)}</span></li>'
    )


# Code, diffs and terminals


def _code(piece: Piece) -> str:
    if piece.language == "diff":
        return _cut(piece.text, lambda text: f'<pre class="diff"><code>{"".join(_diff(text))}</code></pre>')
    if piece.runs and len(piece.text) <= LARGEST:
        return f'<pre class="{_pre(piece.text)}"><code>{"".join(map(_run, piece.runs))}</code></pre>'
    return _cut(piece.text, lambda text: f'<pre class="{_pre(text)}"><code>{escape(text)}</code></pre>')


def _pre(text: str) -> str:
    """Wrap what has a line so long that finding one's way in it would be all that one does."""
    return "terminal wide" if max(map(len, text.split("\n"))) > WIDEST else "terminal"


def _diff(text: str) -> Iterator[str]:
    """Give a git patch line by line; what is in a hunk is as its head counts."""
    old = new = 0
    for line in text.split("\n"):
        kind = ""
        if old > 0 or new > 0:
            kind = {"+": "add", "-": "del"}.get(line[:1], "")
            old -= line[:1] not in ("+", "\\")
            new -= line[:1] not in ("-", "\\")
        elif hunk := _HUNK.match(line):
            kind = "hunk"
            old, new = (1 if count is None else int(count) for count in hunk.groups())
        elif line and line[0] not in " \\":
            kind = "file"
        shown = escape(line)
        yield f'<span class="{kind}">{shown}\n</span>' if kind else f"{shown}\n"


def _run(run: Run) -> str:
    classes = " ".join(_classes(run.style))
    return f'<span class="{classes}">{escape(run.text)}</span>' if classes else escape(run.text)


def _classes(style: Style) -> Iterator[str]:
    """Give the classes of a style. Of colours that cannot be told apart the one of the text is another."""
    front, back = style.foreground, style.background
    if style.inverse:
        front, back = _or(back, 0), _or(front, 7)
    if back is not None:
        yield f"b{back}"
        if front is None or _contrast(_front(front), _PALETTE[back]) < 3:
            light = _contrast(_SCREEN, _PALETTE[back]) > _contrast(_INK, _PALETTE[back])
            yield "on-light" if light else "on-dark"
            front = None
    if front is not None:
        yield f"f{front}"
    for name in ("bold", "dim", "italic", "underlined", "struck"):
        if getattr(style, name):
            yield name


def _or(number: int | None, default: int) -> int:
    return default if number is None else number


Colour: TypeAlias = tuple[int, int, int]

_SCREEN: Final[Colour] = (0x1B, 0x1F, 0x24)
_INK: Final[Colour] = (0xE6, 0xE9, 0xED)
_NAMED: Final = (
    "000000 d1242f 2da44e bf8700 218bff a475f9 1b9e9e b6bfc8 6e7781 ff8182 6fdd8b eac54f 80ccff d8b9ff 76e3ea ffffff"
)
_STEPS_OF_CUBE: Final = (0, 95, 135, 175, 215, 255)
_PALETTE: Final[Sequence[Colour]] = [
    *((int(name[:2], 16), int(name[2:4], 16), int(name[4:], 16)) for name in _NAMED.split()),
    *((red, green, blue) for red in _STEPS_OF_CUBE for green in _STEPS_OF_CUBE for blue in _STEPS_OF_CUBE),
    *((grey, grey, grey) for grey in range(8, 248, 10)),
]
"""What the numbers of the 256-colour palette mean."""


def _luminance(colour: Colour) -> float:
    levels = [level / 255 for level in colour]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in levels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one: Colour, two: Colour) -> float:
    """Give the contrast of two colours as WCAG counts it."""
    low, high = sorted((_luminance(one), _luminance(two)))
    return (high + 0.05) / (low + 0.05)


@cache
def _front(number: int) -> Colour:
    """Give a colour of text, made lighter until it can be read on the screen's own background."""
    colour = _PALETTE[number]
    while _contrast(colour, _SCREEN) < 4.5:
        red, green, blue = (level + 8 + (255 - level) // 16 for level in colour)
        colour = min(red, 255), min(green, 255), min(blue, 255)
    return colour


def colour_styles() -> str:
    """Give the style sheet of a terminal's colours, on a dark screen by day and night."""
    rules = [
        f".terminal{{background:{_css(_SCREEN)};color:{_css(_INK)}}}",
        f".on-light{{color:{_css(_SCREEN)}}}.on-dark{{color:{_css(_INK)}}}",
    ]
    rules += [f".f{number}{{color:{_css(_front(number))}}}" for number in range(256)]
    rules += [f".b{number}{{background:{_css(_PALETTE[number])}}}" for number in range(256)]
    return "\n".join(rules) + "\n"


def _css(colour: Colour) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
