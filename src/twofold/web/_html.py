"""Rows as HTML. Everything that somebody else wrote is text: nothing in it acts, and nothing in it is fetched."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any, Final

from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from twofold.view import Piece, Row

__all__ = ["article", "highlight_styles", "markdown_html", "streamed"]

_LARGEST: Final = 100_000
"""Characters of code that are highlighted; more is shown plain."""

_HIGHLIGHT_LIGHT: Final = HtmlFormatter(nowrap=True, classprefix="hl-", style="default")
_HIGHLIGHT_DARK: Final = HtmlFormatter(nowrap=True, classprefix="hl-", style="github-dark")
_LINK: Final = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_STEP: Final = re.compile(r"- \[(.)\] (.*)")
_STEPS: Final = {"x": "completed", "~": "in progress", "-": "cancelled", " ": "pending"}
_LABELS: Final = {"agent": "Agent", "user": "User", "thought": "Thought", "unknown": "Unknown update"}


def _code(text: str, language: str) -> str:
    """Give code as spans with classes, if its language is known."""
    words = language.split()
    if words and len(text) <= _LARGEST:
        try:
            lexer = get_lexer_by_name(words[0], stripnl=False)
        except ClassNotFound:
            pass
        else:
            return str(highlight(text, lexer, _HIGHLIGHT_LIGHT))
    return escape(text)


def _markdown() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "highlight": _fence})
    parser.enable(["table", "strikethrough"])
    parser.disable("image")  # a picture would be fetched: what is left is a link
    parser.validateLink = lambda url: _LINK.match(url) is not None  # type: ignore[method-assign]
    parser.add_render_rule("link_open", _link)
    return parser


def _fence(text: str, language: str, _attributes: str) -> str:
    return f"<pre><code>{_code(text, language)}</code></pre>"


def _link(self: Any, tokens: Sequence[Any], index: int, options: Any, env: Any) -> str:
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    tokens[index].attrSet("target", "_blank")
    return str(self.renderToken(tokens, index, options, env))


_parser: Final = _markdown()


def markdown_html(text: str) -> str:
    """Give Markdown as HTML: without raw HTML, pictures or script links, which show as the text that they are."""
    return str(_parser.render(text))


def highlight_styles() -> str:
    """Give the style sheet of highlighted code, for light and dark."""
    light = _HIGHLIGHT_LIGHT.get_style_defs(".body")
    dark = _HIGHLIGHT_DARK.get_style_defs(".body")
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def article(row: Row, *, position: int) -> str:
    """Give a row as one ``<article>``; ``position`` is the record that it is as of."""
    classes = ["row", row.kind, *(("withdrawn",) if row.withdrawn else ())]
    label = _LABELS.get(row.kind, row.kind.capitalize())
    head = [f'<span class="kind">{escape(label)}</span>']
    if row.title:
        head.append(f'<span class="title">{escape(row.title)}</span>')
    if row.status:
        head.append(f'<span class="status status-{_word(row.status)}">{escape(row.status)}</span>')
    if row.corrected and not row.withdrawn:
        head.append('<span class="mark">corrected</span>')
    if row.withdrawn:
        head.append('<span class="mark">withdrawn by the agent</span>')
    anchor = escape(row.key, quote=True)
    tools = f'<a class="permalink" href="#{anchor}" aria-label="Link to this">#</a>'
    if row.kind in ("agent", "user", "thought") and not row.withdrawn:
        tools += '<button class="copy" type="button" aria-label="Copy as Markdown">copy</button>'
    body = "".join(_piece(piece, row.kind) for piece in row.body)
    source = escape("\n\n".join(piece.text for piece in row.body if piece.kind == "text"), quote=True)
    heading = f'<header>{" ".join(head)}<span class="tools">{tools}</span></header>'
    if row.kind == "thought":
        inner = f'<details><summary>{heading}</summary><div class="body">{body}</div></details>'
    elif row.kind == "tool":
        opened = "" if row.status == "completed" else " open"
        inner = f'<details{opened}><summary>{heading}</summary><div class="body">{body}</div></details>'
    else:
        inner = f'{heading}<div class="body">{body}</div>'
    return (
        f'<article id="{anchor}" class="{" ".join(classes)}" data-position="{position}" '
        f'data-source="{source}" tabindex="-1">{inner}</article>'
    )


def streamed(row: Row, *, position: int) -> str:
    """Give a message that is still streaming: its text as it is, to be appended to."""
    text = "".join(piece.text for piece in row.body)
    plain = Row(row.key, row.kind, row.title, row.status, [], row.withdrawn, row.corrected)
    return article(plain, position=position).replace(
        '<div class="body"></div>', f'<div class="body"><div class="stream" dir="auto">{escape(text)}</div></div>'
    )


def _word(status: str) -> str:
    return re.sub(r"[^a-z_]", "", status.lower())


def _piece(piece: Piece, kind: str) -> str:
    match piece.kind:
        case "note":
            return f'<p class="note">{escape(piece.text)}</p>'
        case "code":
            return f'<pre class="code"><code>{_code(piece.text, piece.language)}</code></pre>'
        case "text" if kind == "plan":
            return f'<ul class="plan">{"".join(_step(line) for line in piece.text.splitlines())}</ul>'
        case "text":
            return f'<div class="text" dir="auto">{markdown_html(piece.text)}</div>'


def _step(line: str) -> str:
    found = _STEP.fullmatch(line)
    mark, words = found.groups() if found is not None else (" ", line)
    status = _STEPS.get(mark, "pending")
    return f'<li class="step-{status.split()[0]}"><span class="step">{status}</span> {escape(words)}</li>'
