"""Markdown to HTML in which nothing acts. Run as a program it is the worker of :mod:`twofold.web._renderer`."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from html import escape
from typing import Any, Final

import msgspec
from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]  # its options
from pygments.util import ClassNotFound

from twofold.plaintext import visible

__all__ = ["highlight_styles", "markdown_html"]

LARGEST: Final = 60_000
"""Characters of Markdown that are rendered; longer text is shown as it is."""

LARGEST_CODE: Final = 20_000
"""Characters of code that are highlighted."""

_LIGHT: Final[Any] = HtmlFormatter[str](nowrap=True, classprefix="hl-", style="default")
_DARK: Final[Any] = HtmlFormatter[str](nowrap=True, classprefix="hl-", style="github-dark")
_LINK: Final = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_SHOWN: Final = re.compile(r"<(U\+[0-9A-F]{4,6})>")


def markdown_html(text: str, *, breaks: bool = False) -> str:
    """Give Markdown as HTML: without raw HTML, pictures or script links, which show as the text that they are.

    With ``breaks`` each end of a line is one in the HTML too. What entities stand for is made visible like all else.
    """
    return _SHOWN.sub(r"&lt;\1&gt;", visible((_breaking if breaks else _parser).render(text)))


def highlight_styles() -> str:
    """Give the style sheet of highlighted code, for light and dark."""
    light, dark = ("\n".join(_rules(one.get_style_defs(".text"))) for one in (_LIGHT, _DARK))
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def _rules(sheet: str) -> Iterator[str]:
    """Give the rules of the words alone, not those of what is around them."""
    return (rule for rule in sheet.splitlines() if rule.startswith(".text .hl-"))


def _made(breaks: bool) -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "breaks": breaks})
    parser.enable(["table", "strikethrough"])
    parser.disable("image")  # a picture would be fetched: what is left is a link
    parser.validateLink = lambda url: _LINK.match(url) is not None  # type: ignore[method-assign]
    parser.add_render_rule("link_open", _link)
    parser.add_render_rule("fence", _fence)
    for cell in ("th_open", "td_open"):
        parser.add_render_rule(cell, _cell)
    return parser


def _link(self: Any, tokens: Sequence[Any], index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    token.attrs = {"href": token.attrs["href"], "rel": "noopener noreferrer nofollow", "target": "_blank"}
    return str(self.renderToken(tokens, index, options, env))


def _cell(self: Any, tokens: Sequence[Any], index: int, options: Any, env: Any) -> str:
    side = str(tokens[index].attrs.pop("style", "")).rpartition(":")[2]
    if side:  # a class, for there is no style but that of the sheets
        tokens[index].attrSet("class", side)
    return str(self.renderToken(tokens, index, options, env))


def _fence(_self: Any, tokens: Sequence[Any], index: int, _options: Any, _env: Any) -> str:
    token = tokens[index]
    words = token.info.split()
    lexer = _lexer(words[0].lower()[:40]) if words and len(token.content) <= LARGEST_CODE else None
    code = escape(token.content) if lexer is None else highlight(token.content, lexer, _LIGHT)
    return f"<pre><code>{code}</code></pre>\n"


@lru_cache(maxsize=256)
def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return None


_parser: Final = _made(breaks=False)
_breaking: Final = _made(breaks=True)


def _work() -> None:
    """Answer requests ``[text, breaks]`` with HTML, one JSON value a line, until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server's business
    decoder = msgspec.json.Decoder(tuple[str, bool])
    for line in sys.stdin.buffer:
        text, breaks = decoder.decode(line)
        sys.stdout.buffer.write(msgspec.json.encode(markdown_html(text, breaks=breaks)) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _work()
