"""A conversation on pipes: each line of input is a prompt, answers are plain text, the rest goes to standard error."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from queue import SimpleQueue
from typing import Final, TypeVar

from twofold.cli._chat.agent import Line, Unusable, Wanted, failed
from twofold.exceptions import RequestError, TwofoldError
from twofold.fold import Change, Message, ToolCall, Transcript
from twofold.plaintext import visible, visible_line
from twofold.runtime.client import ClientSession, PermissionRequest, Watch
from twofold.view import row, usage
from twofold.wire import v2

__all__ = ["answer"]

T = TypeVar("T")

_ENDED: Final = ("completed", "failed", "cancelled")


async def answer(wanted: Wanted) -> int:
    """Answer every line of standard input, and give the exit status."""
    printer = Printer()
    remarks = _Remarks(printer)
    logging.getLogger("twofold").addHandler(remarks)
    permissions = _Permissions(printer, wanted.allow)
    try:
        async with Line.open(wanted, on_permission=permissions, report=printer.once) as line:
            if wanted.session is None:
                session = await line.new()
            else:
                session, _ = await line.resume(wanted.session, replay=False)
            return await _converse(line, session, printer)
    except Unusable as error:
        printer.remark(str(error))
        return 1
    finally:
        logging.getLogger("twofold").removeHandler(remarks)


async def _converse(line: Line, session: ClientSession, printer: Printer) -> int:
    status = 0
    prompts = _Input()
    async with _Following(session, printer) as following:
        try:
            while (prompt := await following.while_open(prompts.line())) is not None:
                status |= await _turn(line, session, prompt, printer, following)
        except TwofoldError as error:  # the agent is gone
            printer.end()
            printer.remark(line.why(error))
            status = 1
        except asyncio.CancelledError:  # Ctrl-C
            with suppress(TwofoldError):
                await session.cancel()
            raise
    if used := usage(session.state):
        printer.remark(used)
    return status


async def _turn(line: Line, session: ClientSession, prompt: str, printer: Printer, following: _Following) -> int:
    """Send one prompt and wait for the end of its turn. Gives 1 when that is an error."""
    turn = session.prompt(prompt)
    try:
        await following.while_open(turn)
    except RequestError as error:
        printer.end()
        printer.remark(line.why(error))
        return 1
    await following.caught_up()
    printer.end()
    if turn.stop_reason not in (None, "end_turn", "error"):
        printer.remark(f"the turn ended: {turn.stop_reason}")
    if turn.stop_reason != "error" and turn.error is None:
        return 0
    printer.remark(failed(turn))
    return 1


class _Following:
    """Prints the changes of a session as they come, between turns too, as ``async with``."""

    def __init__(self, session: ClientSession, printer: Printer) -> None:
        self._state = session.state
        self._printer = printer
        self._watch: Watch = session.watch()
        self._printed = self._state.version  # how many changes there were when the last one was printed
        self._moved = asyncio.Event()
        self._work: asyncio.Task[None]

    async def __aenter__(self) -> _Following:
        self._work = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._work.cancel()
        await asyncio.wait([self._work])

    async def _follow(self) -> None:
        async for change in self._watch:
            self._printer.show(self._state, change)
            self._printed += 1
            self._moved.set()

    async def while_open(self, work: Awaitable[T]) -> T:
        """Wait for something, or raise what ends the printing: nobody is there to say or to read anything more."""

        async def worked() -> T:
            return await work

        task = asyncio.create_task(worked())
        try:
            await asyncio.wait([task, self._work], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            self._work.result()
            raise TwofoldError("the session is closed")
        finally:
            task.cancel()

    async def caught_up(self) -> None:
        """Wait until everything that the session holds by now is printed."""
        version = self._state.version
        while self._printed < version:
            self._moved.clear()
            await self.while_open(self._moved.wait())


class _Permissions:
    """Answers permission requests as the command line says, and says so."""

    def __init__(self, printer: Printer, allow: bool) -> None:
        self._printer = printer
        self._allow = allow

    async def __call__(self, request: PermissionRequest) -> v2.PermissionOption | None:
        kinds = ("allow_once", "allow_always") if self._allow else ("reject_once", "reject_always")
        option = request.option(*kinds)
        done = "allowed" if self._allow and option is not None else "refused"
        how = f" ({option.name})" if option is not None else ""
        if option is None and self._allow:
            how = " (it offers no way to allow it)"
        elif not self._allow:
            how += "; --allow allows it"
        self._printer.remark(f"{done}: {request.title}{how}")
        return option


class Printer:
    """Prints what the agent says as it comes. What is corrected is printed anew, which standard error tells."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}  # what was printed of each message, and still counts
        self._notes: dict[str, int] = {}  # how many things that are no text were told of each
        self._open: str | None = None  # the message whose text was printed last
        self._half = ""  # of a character or a line end, at the end of that text
        self._calls: dict[str, str] = {}  # tool calls → the status that was told
        self._in_line = False
        self._remarks: set[str] = set()

    def show(self, transcript: Transcript, change: Change) -> None:
        """Print what a change brings."""
        match change.entity, change.target:
            case "message", Message(type="agent_message") as message:
                self._message(transcript, message, change)
            case "tool_call", ToolCall() as call:
                if call.status in _ENDED and self._calls.get(call.tool_call_id) != call.status:
                    self.remark(f"tool {call.status}: {call.title or call.name or 'without a title'}")
                self._calls[call.tool_call_id] = call.status
            case "notice", v2.Notice() as notice:
                more = f": {notice.description}" if isinstance(notice.description, str) else ""
                self.remark(f"{notice.severity}: {notice.title}{more}")
            case _:
                pass

    def _message(self, transcript: Transcript, message: Message, change: Change) -> None:
        key, text = message.message_id, message.text
        said = self._said.get(key, "")
        if not text.startswith(said):
            self._break()
            if not text:
                self.remark("the last answer is withdrawn" if self._open == key else "an earlier answer is withdrawn")
            else:
                self.remark("an answer is corrected: it is now as follows")
            said = self._said[key] = ""
        # The other half of a line end, or of a character, may come with the next chunk.
        whole = text[:-1] if text[-1:] == "\r" or "\ud800" <= text[-1:] <= "\udbff" else text
        if len(whole) > len(said):
            if self._open != key:
                self._break()
                self._open = key
            self._write(visible(whole[len(said) :]))
            self._said[key] = whole
        if self._open == key:
            self._half = text[len(whole) :]
        if change.content == "replaced" or (change.block is not None and not isinstance(change.block, v2.TextContent)):
            notes = [piece.text for piece in row(message, transcript).body if piece.kind == "note"]
            for note in notes[self._notes.get(key, 0) :]:
                self.remark(f"not shown: {note}")
            self._notes[key] = len(notes)

    def end(self) -> None:
        """End the line that was begun: what follows is another answer."""
        self._break()
        self._open = None
        sys.stdout.flush()

    def remark(self, words: str) -> None:
        """Say something about the conversation. The same fault is told once."""
        sys.stdout.flush()
        with suppress(OSError, ValueError, AttributeError):  # one of them is no stream of the system's
            if self._in_line and os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno()):
                self._break()
        print(f"twofold chat: {visible_line(words)}", file=sys.stderr, flush=True)

    def once(self, words: str) -> None:
        """Say something the first time only."""
        if words not in self._remarks:
            self._remarks.add(words)
            self.remark(words)

    def _break(self) -> None:
        half, self._half = self._half, ""
        self._write(visible(half))
        if self._in_line:
            self._write("\n")

    def _write(self, words: str) -> None:
        if words:
            sys.stdout.write(words)
            sys.stdout.flush()
            self._in_line = not words.endswith("\n")


class _Remarks(logging.Handler):
    """Tells what the library would log."""

    def __init__(self, printer: Printer) -> None:
        super().__init__(logging.WARNING)
        self._printer = printer

    def emit(self, record: logging.LogRecord) -> None:
        self._printer.once(record.getMessage())


class _Input:
    """The lines of standard input, but empty ones. A thread reads them, for which nobody waits at the end."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._asked: SimpleQueue[asyncio.Future[bytes]] = SimpleQueue()
        self._held = b""
        self._lines: deque[str] = deque()
        self._ended = sys.stdin is None  # closed by whoever started us
        if not self._ended:
            if sys.stdin.isatty():
                print("Each line is a prompt; Ctrl-D ends it.", file=sys.stderr, flush=True)
            source = sys.stdin.fileno()
            threading.Thread(target=self._read, args=(source,), name="twofold-stdin", daemon=True).start()

    async def line(self) -> str | None:
        """Wait for a line; gives nothing at the end."""
        while not self._lines:
            if self._ended:
                return None
            future: asyncio.Future[bytes] = self._loop.create_future()
            self._asked.put(future)
            data = await future
            self._ended = not data
            *whole, self._held = (self._held + data).split(b"\n")
            lines = [line.decode("utf-8", "replace").removesuffix("\r") for line in (whole if data else [self._held])]
            self._lines.extend(line for line in lines if line.strip())
        return self._lines.popleft()

    def _read(self, source: int) -> None:
        with suppress(RuntimeError):  # the loop has ended
            while True:
                future = self._asked.get()
                try:
                    data = os.read(source, 65_536)
                except OSError:
                    data = b""
                self._loop.call_soon_threadsafe(_give, future, data)


def _give(future: asyncio.Future[bytes], data: bytes) -> None:
    if not future.done():
        future.set_result(data)
