"""A conversation on a terminal: what is said above, what is typed below, both at any time."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Final

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    VerticalAlign,
    Window,
)
from prompt_toolkit.output import Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output

from twofold.cli._chat.agent import Line, Unusable, Wanted
from twofold.cli._chat.commands import COMMANDS
from twofold.cli._chat.conversation import UNSHOWN, Conversation, Question, described
from twofold.cli._chat.look import NOTE, note, said
from twofold.cli._chat.look import Line as Styled
from twofold.cli._chat.pane import Pane
from twofold.plaintext import visible_line
from twofold.view import wrapped

__all__ = ["talk"]

_FRAME: Final = 0.05
"""Seconds between two drawings of the screen, at least."""

_PATIENCE: Final = 1.0
"""Seconds that the agent may take to end before that is told."""

_DESCRIBED: Final = 12
"""Lines of a question's description that are shown."""

_LAST_WORDS: Final = 5
"""Lines of an agent's standard error that are shown when it has ended."""


async def talk(wanted: Wanted) -> int:
    """Talk on this terminal until the user leaves or the agent is gone; give the exit status."""
    screen = _Screen(wanted)
    conversation = screen.conversation
    logged = _Logged(conversation.log.append)
    logging.getLogger("twofold").addHandler(logged)
    status = 1
    failure: str | None = None
    try:
        async with _caught(conversation.log.append) as stderr, AsyncExitStack() as stack:
            keep = conversation.log.append
            with _starting(wanted):
                opening = Line.open(wanted, on_permission=conversation.decide, report=keep, stderr=stderr)
                conversation.line = await stack.enter_async_context(opening)
                past = await conversation.begin(wanted.session)
            status = await screen.run(past)
            failure = conversation.failure
            words = f"· ending {conversation.line.name} …"
            patience = asyncio.get_running_loop().call_later(_PATIENCE, print, words)
        patience.cancel()
    except Unusable as error:
        failure = str(error)
    finally:
        logging.getLogger("twofold").removeHandler(logged)
    if failure is not None:
        print(f"twofold chat: {failure}", file=sys.stderr)
        for words in list(conversation.log)[-_LAST_WORDS:]:
            print(f"  {visible_line(words)}", file=sys.stderr)
    return status


@contextmanager
def _starting(wanted: Wanted) -> Generator[None, None, None]:
    """Say what is waited for, for as long as it is."""
    name = visible_line(os.path.basename(wanted.command[0]))[:40]
    print(f"· starting {name} …", end="", flush=True)
    try:
        yield
    finally:
        print("\r\x1b[K", end="", flush=True)


class _Logged(logging.Handler):
    """Keeps what the library would log: the screen is in use."""

    def __init__(self, keep: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self._keep = keep

    def emit(self, record: logging.LogRecord) -> None:
        self._keep(record.getMessage())


@asynccontextmanager
async def _caught(keep: Callable[[str], object]) -> AsyncGenerator[int, None]:
    """Give a file descriptor, as the agent's standard error, whose lines are kept: the screen is in use.

    A thread reads them, for which nobody waits long: whatever the agent leaves behind may hold the other end open.
    """
    loop = asyncio.get_running_loop()
    source, target = os.pipe()

    def read() -> None:
        held = b""
        with suppress(RuntimeError):  # the loop has ended
            while data := os.read(source, 65_536):
                *lines, held = (held + data).split(b"\n")
                for line in lines:
                    loop.call_soon_threadsafe(keep, line.decode("utf-8", "replace"))
                held = held[-65_536:]
            if held:
                loop.call_soon_threadsafe(keep, held.decode("utf-8", "replace"))
        os.close(source)

    thread = threading.Thread(target=read, name="twofold-stderr", daemon=True)
    thread.start()
    try:
        yield target
    finally:
        os.close(target)
        await asyncio.to_thread(thread.join, 0.2)


class _Screen:
    """The terminal: the conversation, what goes on, and the line that is typed."""

    def __init__(self, wanted: Wanted) -> None:
        self.conversation = Conversation(self, COMMANDS, allow=wanted.allow)
        self._wanted = wanted
        self._output = _output()
        self._pane = Pane(self._width)
        self._shown: StyleAndTextTuples = []
        self._draft: Document | None = None  # what was being typed when a question came
        self._asked: Question | None = None
        self._status: int | None = None  # to end with, once the conversation ends
        self._about_to_leave = False
        self._buffer = Buffer(multiline=True, history=InMemoryHistory())
        self._input = Window(
            BufferControl(self._buffer),
            height=self._input_height,
            wrap_lines=True,
            dont_extend_height=True,
            get_line_prefix=self._prefix,
        )
        shown = Window(FormattedTextControl(lambda: self._shown), dont_extend_height=True, height=self._shown_height)
        rows = [
            ConditionalContainer(shown, Condition(lambda: bool(self._shown))),
            ConditionalContainer(self._input, Condition(lambda: not self._leaving)),
        ]
        self._app: Application[int] = Application(
            layout=Layout(HSplit(rows, align=VerticalAlign.TOP), focused_element=self._input),
            key_bindings=self._keys(),
            output=self._output,
            min_redraw_interval=_FRAME,
            before_render=lambda _: self._drawn(),
        )

    async def run(self, past: bool) -> int:
        """Talk in the session that was begun; ``past``: what was said in it before is shown."""
        line, conversation = self.conversation.line, self.conversation
        info = line.client.info
        title = info.title if isinstance(info.title, str) and info.title else f"{info.name} {info.version}"
        self.say(
            f"{visible_line(title)}, protocol version {line.version}\n"
            f"session {visible_line(conversation.session.session_id)}{'' if past else UNSHOWN}\n"
            "/help says what can be typed, Ctrl-D leaves"
        )
        loop = asyncio.get_running_loop()
        ending = (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
        with suppress(NotImplementedError):  # Windows
            for number in ending:
                loop.add_signal_handler(number, self.leave, 128 + number)
        try:
            return await self._app.run_async(pre_run=self._end, set_exception_handler=False)
        except EOFError:  # the terminal is gone
            return 1
        finally:
            await conversation.close()

    # The conversation's window

    def say(self, words: str, style: str = NOTE) -> None:
        """Show a remark, below what there is by now."""
        first, *rest = words.split("\n")
        width = self._width
        lines = note(first, width, style)
        for line in rest:
            lines += [[(style, f"  {cut}")] for cut in wrapped(line, width - 2)]
        self._sync()
        self._pane.say(lines)
        self.changed()

    def changed(self) -> None:
        """Draw what there is now. A question takes the line that is typed; what was being typed comes back after it."""
        question = self.conversation.question
        if question is not self._asked:
            if self._asked is None:
                self._draft = self._buffer.document
            self._asked = question
            self._buffer.reset(self._draft if question is None else None)
        self._app.invalidate()

    def begin(self, words: str, *, erase: bool) -> None:
        """Show another session from now on."""
        self._sync()
        self._pane.begin(erase=erase)
        self._pane.say(note(words, self._width))

    def leave(self, status: int) -> None:
        """End the conversation."""
        if self._status is None:
            self._status = status
            self._end()

    def _end(self) -> None:
        if self._status is not None and self._app.is_running:
            self._app.exit(result=self._status)

    @property
    def _leaving(self) -> bool:
        return self._status is not None

    # Keys

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        empty = Condition(lambda: not self._buffer.text)

        @keys.add("enter")
        def _(_event: KeyPressEvent) -> None:
            self._about_to_leave = False
            if self._asked is None and self._buffer.document.char_before_cursor == "\\":
                self._buffer.delete_before_cursor()
                self._buffer.newline(copy_margin=False)
                return
            text = self._buffer.text
            self._buffer.reset(append_to_history=self._asked is None and bool(text.strip()))
            self.conversation.enter(text)

        @keys.add("escape", "enter")
        def _(_event: KeyPressEvent) -> None:
            self._buffer.newline(copy_margin=False)

        @keys.add("c-c")
        @keys.add("<sigint>")
        def _(_event: KeyPressEvent) -> None:
            self._interrupted()

        @keys.add("c-d", filter=empty)
        def _(_event: KeyPressEvent) -> None:
            self.leave(0)

        @keys.add("c-z")
        def _(event: KeyPressEvent) -> None:
            event.app.suspend_to_background()

        return keys

    def _interrupted(self) -> None:
        """Stop what goes on; where nothing does, empty the line; where that is empty, leave if asked once more."""
        if self.conversation.interrupt():
            self._about_to_leave = False
        elif self._buffer.text and not self.conversation.running:
            self._buffer.reset()
        elif self._about_to_leave or self.conversation.running:
            self.leave(130)
        else:
            self._about_to_leave = True
        self._app.invalidate()

    # Drawing

    @property
    def _width(self) -> int:
        return self._output.get_size().columns - 1  # the last column is where terminals differ

    def _drawn(self) -> None:
        """Draw; a fault in that must not be told over and over, on the very screen."""
        try:
            self._draw()
        except Exception as error:
            self.conversation.fail(f"the conversation cannot be drawn ({type(error).__qualname__})")

    def _draw(self) -> None:
        """Work out what the screen shows, and let go above what there is no room for: called before it is drawn."""
        began = time.perf_counter()
        pane, width = self._pane, self._width
        pane.resize(width)
        self._sync()
        below = [] if self._leaving else self._below(width)
        rows = self._output.get_size().rows
        room = rows - len(below) - (0 if self._leaving else self._wanted_height())
        left = pane.leaving(max(room, 1))
        if left:
            self._app.renderer.erase()
            self._app.print_text(_joined([*left, []]))
        self._shown = _joined([*pane.lines(), *below])
        # Where drawing is slow, it is done less often.
        self._app.min_redraw_interval = max(_FRAME, 4 * (time.perf_counter() - began))

    def _sync(self) -> None:
        """Take in what the session holds by now."""
        self._pane.show(self.conversation.rows())
        for notice in self.conversation.notices():
            more = f": {notice.description}" if isinstance(notice.description, str) else ""
            style = {"error": "ansired", "warning": "ansiyellow"}.get(notice.severity, NOTE)
            self._pane.say(note(visible_line(f"{notice.title}{more}"), self._width, style))

    def _below(self, width: int) -> list[Styled]:
        """Give what stands between the conversation and the line that is typed: it does not stay."""
        conversation = self.conversation
        lines: list[Styled] = []
        for text in conversation.waiting():
            cut = [[(NOTE, line)] for line in wrapped(visible_line(text), width - 2)]
            lines += [*said("❯", NOTE, cut[:3]), []]
        question = conversation.question
        if question is not None:
            lines += _question(question, conversation, width)
        elif conversation.cancelling:
            lines += note("stopping; Ctrl-C once more leaves", width, "ansiyellow")
        elif conversation.commanding:
            lines += note("working; Ctrl-C stops it", width, "ansiyellow")
        elif conversation.running:
            lines += note("the agent is at work; Ctrl-C stops it", width, "ansiyellow")
        elif self._about_to_leave:
            lines += note("Ctrl-C once more, or Ctrl-D, leaves", width, "ansiyellow")
        return lines

    def _prefix(self, number: int, wrap: int) -> StyleAndTextTuples:
        if number or wrap:
            return [("", "  ")]
        return [("bold ansicyan", "❯ ")] if self._asked is None else [("bold ansiyellow", "? ")]

    def _wanted_height(self) -> int:
        """Give how many lines the line that is typed takes."""
        size = self._output.get_size()
        return min(self._input.preferred_height(size.columns, size.rows).preferred, max(size.rows // 3, 1))

    def _input_height(self) -> Dimension:
        return Dimension(min=1, max=max(self._output.get_size().rows // 3, 1))

    def _shown_height(self) -> Dimension:
        return Dimension(min=0, preferred=1 + sum(text.count("\n") for _, text, *_ in self._shown))


def _question(question: Question, conversation: Conversation, width: int) -> list[Styled]:
    """Give a question with its answers, numbered."""
    request = question.request
    lines: list[Styled] = [[("bold ansiyellow", line)] for line in wrapped(f"? {visible_line(request.title)}", width)]
    if request.session is not conversation.session:
        lines += note(f"in session {visible_line(request.session.session_id)}", width)
    more = [cut for line in described(request) for cut in wrapped(line, width - 2)]
    lines += [[("", f"  {line}")] for line in more[:_DESCRIBED]]
    if len(more) > _DESCRIBED:
        lines += note(f"{len(more) - _DESCRIBED} lines more, not shown", width)
    for number, option in enumerate(request.options, 1):
        lines += [[("", f"  {cut}")] for cut in wrapped(f"{number}. {visible_line(option.name)}", width - 2)]
    letters = question.letters()
    ways = f"a number or a letter ({', '.join(letters)}), then Enter" if letters else "a number, then Enter"
    return [*lines, *note(f"{ways}; Ctrl-C stops the turn", width, "ansiyellow")]


def _joined(lines: list[Styled]) -> StyleAndTextTuples:
    joined: StyleAndTextTuples = []
    for number, line in enumerate(lines):
        if number:
            joined.append(("", "\n"))
        joined += line
    return joined


def _output() -> Output:
    output = create_output(sys.stdout)
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False  # where the cursor stands does not matter: nothing is asked of the terminal
    return output
