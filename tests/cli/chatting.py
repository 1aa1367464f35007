"""A conversation on a terminal, as a user has it: typing, and looking at the screen."""

import contextlib
import os
import re
import select
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.cli.program import ROOT, OnTerminal, on_terminal
from tests.view.screen import Screen

DEADLINE = 30.0
ENTER, CTRL_C, CTRL_D, ALT_ENTER = "\r", "\x03", "\x04", "\x1b\r"
_UNFINISHED = re.compile(r"\x1b(?:\[[?0-9;]*)?\Z")


class LineEditor(Screen):
    """The terminal that a line editor needs: it also moves the cursor, hides it, and asks for marked pastes."""

    half = ""

    def feed(self, written: str) -> None:
        written = self.half + written
        self.half = ""
        unfinished = _UNFINISHED.search(written)
        if unfinished is not None:
            written, self.half = written[: unfinished.start()], unfinished.group()
        for part in re.split("(\b)", written):
            if part == "\b":
                self.column = max(0, self.column - 1)
            else:
                super().feed(part)

    def _sequence(self, private: str, number: str, final: str) -> None:
        match (private, final):
            case ("", "B"):
                self.row = min(self.height - 1, self.row + int(number or 1))
            case ("", "C"):
                self.column = min(self.width - 1, self.column + int(number or 1))
            case ("", "D"):
                self.column = max(0, self.column - int(number or 1))
            case ("", "J" | "K"):
                super()._sequence(private, number, final)
            case ("?", "h" | "l") if number in ("1", "12", "25", "2004"):
                pass
            case _:
                super()._sequence(private, number, final)

    def _print(self, mark: str) -> None:
        row, size = self.rows[self.row], self.measure(mark)
        if size == 0 and 0 < self.column <= len(row):
            row[self.column - 1] += mark
        elif self.column < len(row):  # over what is there
            row[self.column : self.column + size] = [mark, *[""] * (size - 1)]
            self.column += size
        else:
            super()._print(mark)

    @property
    def everything(self) -> str:
        """What was shown, also what has scrolled out of sight."""
        return "\n".join([*(line.rstrip() for line in self.gone), *self.lines])


class Chat:
    """The user at the terminal."""

    def __init__(self, terminal: OnTerminal, width: int, height: int) -> None:
        self.terminal = terminal
        self.screen = LineEditor(width, height)
        self._fed = 0

    def type(self, words: str) -> None:
        """Press keys."""
        self.terminal.type(words.encode())

    def enter(self, words: str) -> None:
        """Type a line."""
        self.type(words + ENTER)

    def paste(self, words: str) -> None:
        """Paste, as terminals do it that mark pastes."""
        self.type(f"\x1b[200~{words}\x1b[201~")

    def until(self, *words: str, without: str | None = None) -> None:
        """Wait until the screen shows all these words, and no longer those."""
        deadline = time.monotonic() + DEADLINE
        while not all(one in self.screen.text for one in words) or (without and without in self.screen.text):
            assert self._look(deadline), f"waited for {words}, without {without!r}; there is\n{self.screen.text}"

    def _look(self, deadline: float) -> bool:
        ready, _, _ = select.select([self.terminal._leader], [], [], max(0.0, deadline - time.monotonic()))
        went_on = bool(ready) and self.terminal.read()
        self.screen.feed(self.terminal.written[self._fed :])
        self._fed = len(self.terminal.written)
        return went_on

    def resize(self, width: int) -> None:
        """Make the terminal narrower or wider, and wait for what the program makes of it."""
        import fcntl
        import struct
        import termios

        size = struct.pack("HHHH", self.screen.height, width, 0, 0)
        written = len(self.terminal.written)
        self.screen.width = width
        fcntl.ioctl(self.terminal._leader, termios.TIOCSWINSZ, size)
        deadline = time.monotonic() + DEADLINE
        while "❯" not in self.terminal.written[written:]:
            assert self._look(deadline)

    def idle(self) -> None:
        """Wait until the agent is at rest and a new line can be typed."""
        self.until("\n❯", without="the agent is at work")

    def end(self) -> int:
        """Look until the program has ended, and give its status."""
        deadline = time.monotonic() + DEADLINE
        while self._look(deadline):
            pass
        return self.terminal.process.wait(timeout=DEADLINE)


AGENT = (sys.executable, "-W", "error", "-m", "tests.cli.chat_agent")


@contextlib.contextmanager
def chatting(
    *options: str | Path,
    agent: tuple[str, ...] = AGENT,
    width: int = 80,
    height: int = 24,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Chat]:
    """Begin a conversation on a terminal of its own, and wait until something can be typed."""
    with on_terminal("chat", *options, "--", *agent, width=width, height=height, environment=environment) as terminal:
        chat = Chat(terminal, width, height)
        chat.until("❯")
        yield chat
        assert "Traceback" not in chat.screen.everything


def example(name: str) -> tuple[str, ...]:
    """Give the command of one of the example agents."""
    return (sys.executable, "-W", "error", os.fspath(ROOT / f"examples/{name}.py"))
