"""Rows as lines of a terminal: styled pieces of text, never escape sequences. What was said is indented, and only what
is ours stands at the margin: nothing said can pass for it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final, TypeAlias

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.cells import cell_len, chop_cells
from rich.color import ColorType
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.theme import Theme

from twofold.plaintext import visible
from twofold.view import Piece, Row, wrapped

__all__ = ["NOTE", "Line", "Look", "folded", "note", "said"]

Line: TypeAlias = "list[tuple[str, str]]"
"""One line: pieces of text, each with its style, in prompt_toolkit's words."""

NOTE: Final = "dim"
_LARGE: Final = 16 * 1024
"""Characters of one block of Markdown beyond which it is shown as it is: rendering it at every word would take long."""

_PIECE: Final = 4096
"""Characters of a line that are looked at together."""

_LONGEST: Final = {"text": 16, "output": 16, "diff": 80}
"""Lines of a tool's text, output and diff that are shown."""

_TOOLS: Final = {
    "completed": ("ansigreen", "✓"),
    "failed": ("ansired", "✗"),
    "cancelled": ("ansired", "✗"),
    "in_progress": ("ansiyellow", "…"),
    "pending": ("ansiyellow", "…"),
    "paused": ("ansiyellow", "‖"),
}
_STEPS: Final = {"- [x] ": "✓", "- [~] ": "▸", "- [-] ": "✗", "- [ ] ": "□"}
_ANSI: Final = (
    *("ansiblack", "ansired", "ansigreen", "ansiyellow", "ansiblue", "ansimagenta", "ansicyan", "ansigray"),
    *("ansibrightblack", "ansibrightred", "ansibrightgreen", "ansibrightyellow"),
    *("ansibrightblue", "ansibrightmagenta", "ansibrightcyan", "ansiwhite"),
)


def note(words: str, width: int, style: str = NOTE) -> list[Line]:
    """Say something of our own, after a dot."""
    return [[(style, line)] for line in wrapped(f"· {words}", width)]


def said(mark: str, mark_style: str, lines: Sequence[Line]) -> list[Line]:
    """Put what somebody said behind a mark at the margin."""
    return [[(mark_style, f"{mark} ") if number == 0 else ("", "  "), *line] for number, line in enumerate(lines)]


def folded(line: Line, width: int) -> list[Line]:
    """Cut a line that is too long, wherever it has to be cut."""
    lines: list[Line] = [[]]
    cells = 0
    for style, words in line:
        for part in chop_cells(words, 1) if cells + cell_len(words) > width else [words]:
            size = cell_len(part)
            if cells + size > width:
                lines.append([("", "  ")])
                cells = 2
            lines[-1].append((style, part))
            cells += size
    return lines


class Look:
    """How the rows of one conversation look at one width."""

    def __init__(self, width: int) -> None:
        self.width = max(width, 8)
        self._texts: dict[str, _Streaming] = {}  # the Markdown of messages that are still on the screen

    def forget(self, key: str) -> None:
        """Let go of what was kept for a row."""
        self._texts.pop(key, None)

    def lines(self, row: Row, *, again: bool = False) -> list[Line]:
        """Give a row as lines, without any for one that says nothing; ``again``: it has been on the screen before, and
        what it said then is not so any more."""
        match row.kind:
            case "user":
                return self._message(row, "❯", "bold ansicyan", again, self._plain(row.body, "bold"))
            case "agent":
                return self._message(row, "●", "ansigreen", again, self._markdown(row))
            case "thought":
                return self._message(row, "∴", NOTE, again, self._plain(row.body, f"italic {NOTE}"))
            case "plan":
                return self._headed("☰", "ansimagenta", "plan", "", self._steps(row.body)) if row.body else []
            case "compaction":
                return self._headed("∿", NOTE, "compaction", row.status, self._plain(row.body, NOTE))
            case "note":
                return note(row.title, self.width)
            case "unknown":
                return note(f"an update of a kind that is not known here: {row.title}", self.width)
            case _:
                style, mark = _TOOLS.get(row.status, ("ansiyellow", "·")) if row.kind == "tool" else ("ansiyellow", "$")
                return self._headed(mark, style, row.title, row.status, self._tool(row))

    def _message(self, row: Row, mark: str, style: str, again: bool, lines: list[Line]) -> list[Line]:
        if row.withdrawn:
            words = f"withdrawn by the {'user' if row.kind == 'user' else 'agent'}"
            more = note("what stands further up is no longer said", self.width) if again else []
            return [*said(mark, style, [[("bold ansired", words)]]), *more]
        if not lines:
            return []
        first = note("corrected: what stands further up is no longer so", self.width, "ansiyellow") if again else []
        last = note("corrected", self.width) if row.corrected and not again else []
        return [*first, *said(mark, style, lines), *last]

    def _headed(self, mark: str, style: str, title: str, status: str, body: Iterable[Line]) -> list[Line]:
        heads: list[Line] = [[("bold", line)] for line in wrapped(title, self.width - 2)]
        if status and status != "completed":
            heads[-1].append((NOTE, f"  {status}"[: self.width]))
        return [*said(mark, f"bold {style}", heads), *([("", "  "), *line] for line in body)]

    # What was said

    def _markdown(self, row: Row) -> list[Line]:
        """Give a message of the agent. While its text only grows, what is settled of it is not rendered again."""
        if len(row.body) == 1 and row.body[0].kind == "text":
            width = self.width - 2
            text = self._texts.get(row.key)
            if text is None:
                text = self._texts[row.key] = _Streaming(width)
            return text.lines(row.body[0].text)
        self.forget(row.key)
        lines: list[Line] = []
        for piece in row.body:
            if piece.kind == "text":
                lines += rendered(piece.text, self.width - 2)
            else:
                lines += self._piece(piece, "")
        return lines

    def _plain(self, body: Iterable[Piece], style: str) -> list[Line]:
        return [line for piece in body for line in self._piece(piece, style)]

    def _piece(self, piece: Piece, style: str) -> list[Line]:
        if piece.kind == "note":
            return note(piece.text, self.width - 2)
        indent = "  " if piece.kind == "code" else ""
        return [[(style, indent + line)] for line in _cut(piece.text, self.width - 2 - len(indent))]

    # What was done

    def _tool(self, row: Row) -> Iterator[Line]:
        for piece in row.body:
            match piece.kind:
                case "note":
                    yield from note(piece.text, self.width - 2)
                case "code" if piece.language == "diff":
                    lines = [line for line in piece.text.split("\n") if not line.startswith(("index ", "diff --git "))]
                    for line in lines[: _LONGEST["diff"]]:
                        yield from ([(_diff_style(line), cut)] for cut in _wrapped(f"  {line}", self.width - 2))
                    yield from self._more(len(lines) - _LONGEST["diff"])
                case "code":
                    lines = list(_cut(piece.text, self.width - 4))
                    yield from self._more(len(lines) - _LONGEST["output"], "before")
                    yield from ([("", f"  {line}")] for line in lines[-_LONGEST["output"] :])
                case _:
                    lines = list(_cut(piece.text, self.width - 2))
                    yield from ([("", line)] for line in lines[: _LONGEST["text"]])
                    yield from self._more(len(lines) - _LONGEST["text"])

    def _more(self, count: int, where: str = "more") -> list[Line]:
        if count <= 0:
            return []
        return note(f"{count} {'line' if count == 1 else 'lines'} {where}, not shown", self.width - 2)

    def _steps(self, body: Iterable[Piece]) -> Iterator[Line]:
        for piece in body:
            if piece.kind == "note":
                yield from note(piece.text, self.width - 2)
                continue
            for step in piece.text.split("\n"):
                mark, words = _STEPS.get(step[:6], "□"), step[6:]
                style = NOTE if mark in "✓✗" else "bold" if mark == "▸" else ""
                yield from ([(style, cut)] for cut in wrapped(f"{mark} {words}", self.width - 2))


def _cut(text: str, width: int) -> Iterator[str]:
    """Give a text as lines that fit. While a text grows, only its last line is new."""
    for line in text.rstrip("\n").split("\n"):
        for start in range(0, max(len(line), 1), _PIECE):
            yield from _wrapped(line[start : start + _PIECE], width)


@functools.lru_cache(maxsize=4096)
def _wrapped(line: str, width: int) -> Sequence[str]:
    return wrapped(line, width)


def _diff_style(line: str) -> str:
    if line.startswith(("+++", "---")):
        return "bold"
    return {"+": "ansigreen", "-": "ansired", "@": "ansicyan"}.get(line[:1], "")


# Markdown


class _Heading(Heading):
    """A heading at the margin."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Code(CodeBlock):
    """Code in the terminal's own colours, indented."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip("\n")
        syntax = Syntax(code, self.lexer_name, theme="ansi_dark", word_wrap=True, background_color="default")
        for line in console.render_lines(syntax, options.update(width=max(options.max_width - 2, 1)), pad=False):
            yield Segment("  ")
            yield from line
            yield Segment.line()


class _Markdown(Markdown):
    """Markdown whose parts are parsed apart; HTML in it is text, and pictures are links. Links show where they lead."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
    }

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = tokens


@functools.cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("image")


def _parsed(text: str, env: dict[str, Any]) -> list[Token]:
    """Parse, and make visible what only parsing brought to light: an entity may stand for a control character."""
    tokens = _parser().parse(text, env)
    for token in tokens:
        if token.children:  # a bare address is shown once, not as a link to itself
            token.children = [one for one in token.children if one.markup != "autolink"]
            for one in token.children:
                if one.type == "softbreak":  # a line that was begun stays one
                    one.type = "hardbreak"
        for one in (token, *(token.children or ())):
            one.content = visible(one.content)
            one.info = visible(one.info)
            one.attrs = {name: visible(held) if isinstance(held, str) else held for name, held in one.attrs.items()}
    return tokens


def rendered(text: str, width: int, env: dict[str, Any] | None = None) -> list[Line]:
    """Give Markdown as lines. What Markdown makes nothing of is shown as it is."""
    lines: list[Line] = []
    if len(text) <= _LARGE:
        with suppress(Exception):  # a renderer's fault must not cost the text
            lines = _drawn(_parsed(text, {} if env is None else env), width)
    return lines if lines or not text.strip() else [[("", cut)] for cut in _cut(text, width)]


def _drawn(tokens: list[Token], width: int) -> list[Line]:
    console = _console()
    options = console.options.update(width=max(width, 4), height=None)
    lines: list[Line] = []
    for segments in console.render_lines(_Markdown(tokens), options, pad=False):
        line = [(_style(style), words) for words, style, control in segments if not control and words]
        while line and line[-1][1].endswith(" "):
            style, words = line.pop()
            if words := words.rstrip(" "):
                line.append((style, words))
        if line or (lines and lines[-1]):
            lines.append(line)
    while lines and not lines[-1]:
        lines.pop()
    return lines


@functools.cache
def _console() -> Console:
    return Console(
        force_terminal=True,
        color_system="truecolor",
        markup=False,
        emoji=False,
        highlight=False,
        theme=Theme({"markdown.code": "cyan", "markdown.hr": "dim", "markdown.block_quote": "dim"}),
    )


@functools.lru_cache(maxsize=1024)
def _style(style: Style | None) -> str:
    """Say a style in prompt_toolkit's words."""
    if style is None:
        return ""
    names = ("bold", "dim", "italic", "underline", "strike", "reverse")
    words = [name for name in names if getattr(style, name)]
    for prefix, color in (("fg:", style.color), ("bg:", style.bgcolor)):
        if color is None or color.type is ColorType.DEFAULT:
            continue
        if color.number is not None and color.number < 16:
            words.append(prefix + _ANSI[color.number])
        else:
            words.append(prefix + color.get_truecolor().hex)
    return " ".join(words)


class _Streaming:
    """A text that grows: all but its last block of Markdown is settled, and stays as it was rendered."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._forget()

    def _forget(self) -> None:
        self._settled = ""
        self._lines: list[Line] = []
        self._env: dict[str, Any] = {}  # link targets, which later blocks may refer to

    def lines(self, text: str) -> list[Line]:
        """Give the text as lines."""
        if not text.startswith(self._settled):
            self._forget()
        rest = text[len(self._settled) :]
        starts: list[int] = []
        with suppress(Exception):
            starts = [token.map[0] for token in _parser().parse(rest, self._env) if token.level == 0 and token.map]
        if len(set(starts)) > 1:
            lines = rest.split("\n")
            head = "".join(f"{line}\n" for line in lines[: starts[-1]])
            self._lines = _joined(self._lines, rendered(head, self._width, self._env))
            self._settled += head
            rest = rest[len(head) :]
        return _joined(self._lines, rendered(rest, self._width, self._env))


def _joined(one: list[Line], two: list[Line]) -> list[Line]:
    """Put blocks below one another, with a line between."""
    return [*one, [], *two] if one and two else [*one, *two]
