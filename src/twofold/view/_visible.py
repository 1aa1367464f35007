"""Text that an agent sent, made safe to show: what would act on a terminal or turn text around becomes visible instead."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["plain_terminal", "visible"]

# Controls but tab and newline, line and paragraph separators, bidirectional controls, invisible tags, byte order marks,
# and halves of surrogate pairs. (Joiners and variation selectors stay: they make emoji and Indic and Persian words.)
_ACTING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]"
)

# ECMA-48 sequences: CSI …, OSC/DCS/APC/PM/SOS … up to their terminator, and two-character escapes.
_SEQUENCE: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)"
    r"|\x1b[ -/]*[0-~]"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)


def visible(text: str) -> str:
    """Give ``text`` with every character that would act instead of show replaced by one that shows (U-8 for halves)."""
    return _ACTING.sub(_shown, text.replace("\r\n", "\n"))


def _shown(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"<U+{code:04X}>"


def plain_terminal(output: bytes) -> str:
    """Give terminal output as text: sequences removed, a carriage return starts its line anew, the rest made visible."""
    text = _SEQUENCE.sub("", output.decode("utf-8", "replace")).replace("\r\n", "\n")
    lines = [line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n")]
    return visible(_backspaced("\n".join(lines)))


def _backspaced(text: str) -> str:
    while "\b" in text:
        text, count = re.subn("[^\b\n]\b", "", text)
        if not count:
            return text.replace("\b", "")
    return text
