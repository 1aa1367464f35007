"""Text that somebody else wrote, made safe to show: what would act, or turn text around, becomes visible instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

__all__ = ["Run", "Style", "plain_terminal", "styled_terminal", "visible", "visible_line"]

T = TypeVar("T")


class Style(Struct, frozen=True, gc=False):
    """How a terminal draws text. Colours are numbers of the 256-colour palette, ``None`` is the terminal's own.

    Whatever else a terminal can do to text, hiding it above all, is left out.
    """

    foreground: int | None = None
    background: int | None = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underlined: bool = False
    inverse: bool = False
    struck: bool = False


class Run(Struct, frozen=True, gc=False):
    """Text in one style."""

    text: str
    style: Style = Style()


# Controls but tab and newline, line and paragraph separators, bidirectional controls, invisible operators and tags,
# byte order marks, annotation and shorthand controls, and halves of surrogate pairs. Joiners, zero-width spaces and
# variation selectors make emoji and words of many scripts: they stay, but for joiners and spaces beside printing ASCII,
# where they can only deceive. All of these are unprintable to `str.isprintable`, the quick test.
_ACTING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f\ud800-\udfff]"
)
_JOINERS: Final = "\u200b\u200c\u200d"
_JOINING: Final = re.compile(f"[{_JOINERS}]+")

# ECMA-48 sequences but those that move or erase within the line: CSI …, OSC/DCS/APC/PM/SOS … up to their terminator,
# and two-character escapes. A string without its terminator is text: it hides nothing.
_SEQUENCE: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-BEFH-JL-~]"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|\x1b(?:[0-Z\\-~]|[ -/]+[0-~])"
)
_STYLING: Final = re.compile(r"(?:\x1b\[|\x9b)([0-9;:]*)m")
_LINE_END: Final = re.compile("\r\n")
_IN_LINE: Final = re.compile(r"\r+|\x08+|(?:\x1b\[|\x9b)([0-?]*)[ -/]*([CDGK])")


def visible(text: str) -> str:
    """Give ``text`` with every character that would act instead of show replaced by one that shows (U-8 for halves)."""
    text = text.replace("\r\n", "\n")
    bare = text.replace("\n", "").replace("\t", "")
    if bare.isprintable():
        return text
    joining = [mark for mark in _JOINERS if mark in bare]
    for mark in joining:
        bare = bare.replace(mark, "")
    if not bare.isprintable():
        text = _ACTING.sub(_shown, text)
    return _JOINING.sub(_shown_beside_ascii, text) if joining else text


def visible_line(text: str) -> str:
    """Give ``text`` as :func:`visible` does, and on one line."""
    return visible(text).replace("\n", " ⏎ ").replace("\t", " ")


def _shown(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"<U+{code:04X}>"


def _shown_beside_ascii(match: re.Match[str]) -> str:
    beside = match.string[max(0, match.start() - 1) : match.start()] + match.string[match.end() : match.end() + 1]
    if not any("!" <= mark <= "~" for mark in beside):
        return match.group()
    return "".join(f"<U+{ord(mark):04X}>" for mark in match.group())


def plain_terminal(output: bytes) -> str:
    """Give terminal output as the text that it leaves: no colours, lines as last overwritten, the rest made visible.

    Within a line the cursor moves as the output says (carriage return, backspace, CSI C, D, G, K), one character a
    cell. It does not move between lines. Work is linear in the output.
    """
    text = _SEQUENCE.sub("", output.decode("utf-8", "replace")).replace("\r\n", "\n")
    if _IN_LINE.search(text) is not None:
        text = "\n".join("".join(_overwritten(line, line)) for line in text.split("\n"))
    return visible(text)


def styled_terminal(output: bytes) -> list[Run]:
    """Give what :func:`plain_terminal` gives, with the colours and styles that the output asks for (SGR)."""
    text = output.decode("utf-8", "replace")
    if _STYLING.search(text) is None:
        plain = plain_terminal(output)
        return [Run(plain)] if plain else []
    styles, cuts = [Style()], [0]  # the style that counts from each offset on
    parts: list[str] = []
    position = length = 0
    for match in _SEQUENCE.finditer(text):
        parts.append(text[position : match.start()])
        length += match.start() - position
        position = match.end()
        if match.group().endswith("m") and (asked := _STYLING.fullmatch(match.group())):
            styles.append(_styled(styles[-1], asked.group(1)))
            cuts.append(length)
    parts.append(text[position:])
    text = _sub(_LINE_END, lambda _match: "\n", "".join(parts), cuts)
    if _IN_LINE.search(text) is not None:
        text, cuts, styles = _overwritten_runs(text, cuts, styles)
    text = _sub(_ACTING, _shown, text, cuts)
    text = _sub(_JOINING, _shown_beside_ascii, text, cuts)
    runs: list[Run] = []
    for (start, stop), style in zip(pairwise([*cuts, len(text)]), styles, strict=True):
        if start == stop:
            continue
        if runs and runs[-1].style == style:
            runs[-1] = Run(runs[-1].text + text[start:stop], style)
        else:
            runs.append(Run(text[start:stop], style))
    return runs


def _sub(pattern: re.Pattern[str], shown: Callable[[re.Match[str]], str], text: str, cuts: list[int]) -> str:
    """Substitute as :func:`re.sub` does, and move the cuts with the text. A cut within a match goes to its end."""
    parts: list[str] = []
    position = shift = number = 0
    for match in pattern.finditer(text):
        while number < len(cuts) and cuts[number] <= match.start():
            cuts[number] += shift
            number += 1
        parts += (text[position : match.start()], shown(match))
        position = match.end()
        shift += len(parts[-1]) - (match.end() - match.start())
        while number < len(cuts) and cuts[number] < position:
            cuts[number] = position + shift
            number += 1
    cuts[number:] = [cut + shift for cut in cuts[number:]]
    return "".join([*parts, text[position:]])


def _overwritten_runs(text: str, cuts: list[int], styles: list[Style]) -> tuple[str, list[int], list[Style]]:
    """Overwrite lines as told, each character with its style."""
    cells: list[tuple[str, Style]] = []
    for (start, stop), style in zip(pairwise([*cuts, len(text)]), styles, strict=True):
        cells += [(mark, style) for mark in text[start:stop]]
    left: list[tuple[str, Style]] = []
    position = 0
    for line in text.split("\n"):
        left += _overwritten(line, cells[position : position + len(line)])
        position += len(line) + 1
        left += cells[position - 1 : position]  # the line's end, but for the last
    starts = [index for index, cell in enumerate(left) if not index or cell[1] is not left[index - 1][1]]
    return "".join(mark for mark, _ in left), [0, *starts], [Style(), *(left[start][1] for start in starts)]


def _overwritten(line: str, marks: Sequence[T]) -> list[T]:
    """Give what is left of a line; each character of it is told by the mark at its place."""
    cells: list[T] = []
    column = position = 0
    for match in _IN_LINE.finditer(line):
        run = marks[position : match.start()]
        cells[column : column + len(run)] = run
        column += len(run)
        position = match.end()
        mark, parameter, final = match.group()[0], match.group(1), match.group(2)
        count = int(parameter) if parameter and parameter.isdecimal() and len(parameter) < 7 else 0
        if mark == "\r":
            column = 0
        elif mark == "\b":
            column = max(0, column - len(match.group()))
        elif final == "C":
            column = min(len(cells), column + (count or 1))
        elif final == "D":
            column = max(0, column - (count or 1))
        elif final == "G":
            column = min(len(cells), (count or 1) - 1)
        elif count == 0:
            del cells[column:]
        elif count == 2:  # who erases the whole line writes it anew
            cells.clear()
            column = 0
    run = marks[position:]
    cells[column : column + len(run)] = run
    return cells


_ON: Final = {
    1: "bold", 2: "dim", 3: "italic", 4: "underlined", 7: "inverse", 9: "struck", 21: "underlined",
}  # fmt: skip
_OFF: Final = {
    22: ("bold", "dim"), 23: ("italic",), 24: ("underlined",), 27: ("inverse",), 29: ("struck",),
    39: ("foreground",), 49: ("background",),
}  # fmt: skip


def _styled(style: Style, parameters: str) -> Style:
    """Give a style after an SGR sequence with these parameters; what is not known changes nothing."""
    changes: dict[str, int | bool | None] = {}
    words = iter(parameters.split(";"))
    for word in words:
        number, *below = map(_number, word.split(":"))
        if number == 0:
            style, changes = Style(), {}
        elif number in _ON:
            changes[_ON[number]] = below != [0]  # 4:0 is no line, 4:3 a wavy one
        elif number in _OFF:
            changes |= {name: None if name.endswith("ground") else False for name in _OFF[number]}
        elif number in (38, 48):
            if len(below) > 4 and below[0] == 2:
                del below[1]  # names a colour space
            colour = _colour(iter(below) if below else map(_number, words))
            if colour is not None:
                changes["foreground" if number == 38 else "background"] = colour
        elif 30 <= number <= 37 or 90 <= number <= 97:
            changes["foreground"] = number - 30 if number < 40 else number - 82
        elif 40 <= number <= 47 or 100 <= number <= 107:
            changes["background"] = number - 40 if number < 50 else number - 92
    return replace(style, **changes) if changes else style


def _number(word: str) -> int:
    return min(int(word), 255) if word.isdecimal() and len(word) < 7 else 0


def _colour(numbers: Iterator[int]) -> int | None:
    """Take the colour that follows 38 or 48: one of the palette, or the one that is next to it there."""
    kind = next(numbers, 0)
    if kind == 5:
        return next(numbers, None)
    levels = [min(max(0, round((level - 55) / 40)), 5) for level in islice(numbers, 3)] if kind == 2 else []
    return 16 + 36 * levels[0] + 6 * levels[1] + levels[2] if len(levels) == 3 else None
