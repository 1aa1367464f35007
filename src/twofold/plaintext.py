"""Text that somebody else wrote, made safe to show: what would act, or turn text around, becomes visible instead."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["plain_terminal", "visible", "visible_line"]

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
        text = "\n".join(map(_overwritten, text.split("\n")))
    return visible(text)


def _overwritten(line: str) -> str:
    cells: list[str] = []
    column = position = 0
    for match in _IN_LINE.finditer(line):
        run = line[position : match.start()]
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
    run = line[position:]
    cells[column : column + len(run)] = run
    return "".join(cells)
