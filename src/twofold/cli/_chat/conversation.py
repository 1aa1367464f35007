"""A conversation with an agent, apart from how it looks: prompts, questions, commands, and what Ctrl-C means."""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct

from twofold.cli._chat.agent import Line, Listed, Unusable, failed, reason
from twofold.exceptions import ConnectionLost, RequestError, TwofoldError
from twofold.plaintext import visible, visible_line
from twofold.runtime.client import ClientSession, PermissionRequest, Turn
from twofold.view import LiveRows, Row, usage
from twofold.wire import v2

__all__ = ["UNSHOWN", "Act", "Command", "Conversation", "Question", "Sent", "Window", "command_name", "described"]

Act: TypeAlias = "Callable[[Conversation, Window, str], Awaitable[None]]"
"""What a command does, with the words after it. May raise :class:`Unusable` and errors of twofold's own."""

UNSHOWN: Final = " (the agent cannot show what was said in it)"

_LOG: Final = 200
"""Lines that the agent wrote to standard error, and faults, that are remembered."""


class Window(Protocol):
    """Where a conversation is shown."""

    def say(self, words: str, style: str = ..., /) -> None:
        """Show a remark of ours, of one line or more. What is foreign in it has been made visible."""

    def changed(self) -> None:
        """Show the conversation as it is now."""

    def begin(self, words: str, *, erase: bool) -> None:
        """Show another session from now on, and say which. ``erase``: it is the one in sight, to be shown anew."""

    def leave(self, status: int) -> None:
        """End the conversation."""


class Command(Struct):
    """What can be typed with a slash: how, what for, and what it does."""

    usage: str
    help: str
    act: Act


class Sent:
    """A prompt that was sent."""

    def __init__(self, text: str, turn: Turn, session: ClientSession) -> None:
        self.text = text
        self.turn = turn
        self._state = session.state
        self._before = len(session.state.messages)

    @property
    def taken_up(self) -> bool:
        """Whether the agent has shown the message that it became. It may come before its id, or without one."""
        message_id = self.turn.message_id
        if message_id is not None:
            return self._state.message("user_message", message_id) is not None
        later = self._state.messages[self._before :]
        return any(message.type == "user_message" and message.text == self.text for message in later)


class Question:
    """A permission that the agent asks for."""

    def __init__(self, request: PermissionRequest) -> None:
        self.request = request
        self.chosen: asyncio.Future[v2.PermissionOption | None] = asyncio.get_running_loop().create_future()

    def option(self, words: str) -> v2.PermissionOption | None:
        """Give the option that these words choose: its number, its name, or as much of its beginning as no other has.

        Nothing chooses nothing.
        """
        words = words.strip().casefold()
        options = self.request.options
        if not words:
            return None
        if words.isascii() and words.isdecimal():
            return options[int(words) - 1] if 0 < int(words) <= len(options) else None
        names = [visible_line(option.name).strip().casefold() for option in options]
        exact = [option for option, name in zip(options, names, strict=True) if name == words]
        begun = exact or [option for option, name in zip(options, names, strict=True) if name.startswith(words)]
        return begun[0] if len(begun) == 1 else None

    def letters(self) -> list[str]:
        """Give the first letters that choose an option."""
        firsts = [visible_line(option.name).strip()[:1].casefold() for option in self.request.options]
        return [letter for letter in firsts if letter.isalpha() and firsts.count(letter) == 1]


class Conversation:
    """Talks to an agent: :meth:`enter` what the user typed, :meth:`interrupt` at Ctrl-C.

    Everything that it does happens in tasks of its own; :meth:`close` ends them.
    """

    def __init__(self, window: Window, commands: Mapping[str, Command], *, allow: bool) -> None:
        self.line: Line
        self.session: ClientSession
        self.log: deque[str] = deque(maxlen=_LOG)
        """What the agent wrote to standard error, and what was wrong in what it said."""
        self.listed: list[Listed] = []
        self.sent: list[Sent] = []
        self.failure: str | None = None
        """Why the agent is not there any more, once it is not."""
        self._window = window
        self._allow = allow
        self._cancelling = False
        self._questions: list[Question] = []
        self._rows: LiveRows
        self._notices = 0  # how many notices of the session were shown
        self._told: object = None  # the state whose end of a turn was told
        self._usage = ""
        self._commands = commands
        self._entered: deque[str] = deque()  # commands to be done, the oldest first
        self._command: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # Sessions

    async def begin(self, session_id: str | None) -> bool:
        """Begin with a session, or a new one; gives whether all that was said in it is shown. Raises
        :class:`Unusable`."""
        if session_id is None:
            session, past = await self.line.new(), True
        else:
            session, past = await self.line.resume(session_id)
        self.attach(session)
        return past

    def attach(self, session: ClientSession) -> None:
        """Talk in this session from now on."""
        if self._watching is not None:
            self._watching.cancel()
        self.session = session
        self._rows = LiveRows(session.state)
        self._notices = len(session.state.notices)
        self._usage = usage(session.state)
        self._watching = self._start(self._watch(session))
        self._window.changed()

    async def _watch(self, session: ClientSession) -> None:
        try:
            async for _ in session.watch():
                self._window.changed()
        except ConnectionLost as error:
            self.fail(self.line.why(error))

    def fail(self, words: str) -> None:
        """End the conversation, and say why."""
        if self.failure is None:
            self.failure = words
            self._window.leave(1)

    def rows(self) -> Sequence[Row]:
        """Give the rows of the session as they are now."""
        return self._rows.now()

    def notices(self) -> list[v2.Notice]:
        """Give the notices that came since the last call."""
        notices = self.session.state.notices
        fresh = list(notices[min(self._notices, len(notices)) :])
        self._notices = len(notices)
        return fresh

    # What is going on

    @property
    def question(self) -> Question | None:
        """The permission that is to be given or refused next."""
        return next((one for one in self._questions if not (one.request.answered or one.chosen.done())), None)

    @property
    def running(self) -> bool:
        """Whether the agent is at work."""
        return bool(self.sent) or not self.session.idle

    @property
    def cancelling(self) -> bool:
        """Whether the agent was asked to stop, and has not yet."""
        return self._cancelling and self.running

    @property
    def commanding(self) -> bool:
        """Whether a command is under way."""
        return self._command is not None

    def waiting(self) -> list[str]:
        """Give the prompts that the agent has not taken up yet."""
        return [one.text for one in self.sent if not one.taken_up]

    # What the user does

    def enter(self, text: str) -> None:
        """Take what the user typed: an answer, a command, or a prompt."""
        command = text.startswith("/") and _first_word(text) in self._commands
        if self.question is not None and not command:
            self._answer(self.question, text)
        elif not text.strip():
            pass
        elif command or (text.startswith("/") and not self._is_the_agents(text)):
            self._entered.append(text)
            if self._command is None:
                self._command = self._start(self._run_commands())
        else:
            self.prompt(text.removeprefix(" "))

    def _is_the_agents(self, text: str) -> bool:
        return _first_word(text) in map(command_name, self.session.state.available_commands)

    def prompt(self, text: str) -> None:
        """Send a prompt. While another one runs, the agent takes it up when it is ready for it."""
        try:
            turn = self.session.prompt(text)
        except TwofoldError as error:
            self._window.say(self.line.why(error), "ansired")
            return
        self._cancelling = self.cancelling
        self.sent.append(Sent(text, turn, self.session))
        self._start(self._follow(self.sent[-1]))
        self._window.changed()

    async def _follow(self, sent: Sent) -> None:
        """Wait for the end of a turn, and say how it ended if there is something to say."""
        try:
            await sent.turn
        except RequestError as error:
            self._window.say(f"not taken up: {visible_line(sent.text)[:60]} ({self.line.why(error)})", "ansired")
        except ConnectionLost as error:
            self.fail(self.line.why(error))
        else:
            if not sent.taken_up:
                why = "cancelled" if sent.turn.stop_reason == "cancelled" else "the agent does not show it"
                self._window.say(f"your prompt: {visible_line(sent.text)} ({why})")
            self._ended(sent.turn)
        finally:
            self.sent.remove(sent)
            self._cancelling = self.cancelling
            self._window.changed()

    def _ended(self, turn: Turn) -> None:
        state = self.session.state.state
        if state is None or state is not self._told:  # several prompts may end with one state
            if turn.error is not None or turn.stop_reason == "error":
                self._window.say(failed(turn), "ansired")
            elif turn.stop_reason not in (None, "end_turn"):
                self._window.say(visible_line(f"the turn ended: {turn.stop_reason}"), "ansiyellow")
        self._told = state
        used = usage(self.session.state)
        if used and used != self._usage:
            self._window.say(used)
        self._usage = used

    def interrupt(self) -> bool:
        """Stop what is going on, at Ctrl-C; gives whether there was anything to stop that was not being stopped."""
        if self._command is not None:
            self._command.cancel()
            return True
        if (self.running or self.question is not None) and not self.cancelling:
            self.cancel()
            return True
        return False

    def cancel(self) -> None:
        """Ask the agent to stop. Open questions are answered with none of their options."""
        self._cancelling = True
        self._start(self._cancel())

    async def _cancel(self) -> None:
        sessions = {id(one.request.session): one.request.session for one in self._questions}
        for session in {id(self.session): self.session, **sessions}.values():
            with suppress(ConnectionLost):
                await session.cancel()
        self._window.changed()

    # Questions

    async def decide(self, request: PermissionRequest) -> v2.PermissionOption | None:
        """Let the user answer a permission request."""
        if self._allow:
            option = request.option("allow_once", "allow_always")
            if option is not None:
                self._window.say(_answered(request, option))
                return option
        question = Question(request)
        self._questions.append(question)
        self._window.changed()
        try:
            return await question.chosen
        finally:
            self._questions.remove(question)
            self._window.changed()

    def _answer(self, question: Question, text: str) -> None:
        option = question.option(text)
        if option is None:
            if text.strip():
                self._window.say(f"this is none of the answers: {visible_line(text)[:60]}", "ansiyellow")
            return
        if not question.chosen.done():
            question.chosen.set_result(option)
            self._window.say(_answered(question.request, option))

    # Commands

    async def _run_commands(self) -> None:
        try:
            while self._entered:
                try:
                    await self._run_command(self._entered.popleft())
                except Unusable as error:
                    self._window.say(str(error), "ansired")
                except ConnectionLost as error:
                    self.fail(self.line.why(error))
                except TwofoldError as error:
                    self._window.say(reason(error), "ansired")
        except asyncio.CancelledError:
            self._entered.clear()
            self._window.say("stopped", "ansiyellow")
        finally:
            self._command = None
            self._window.changed()

    async def _run_command(self, text: str) -> None:
        name = _first_word(text)
        command = self._commands.get(name)
        if command is not None:
            await command.act(self, self._window, text[1:].strip().removeprefix(name).strip())
            return
        words = f"there is no command /{visible_line(name)}: /help lists them, /commands those of the agent"
        self._window.say(f"{words} (to send it all the same, put a space before it)", "ansiyellow")

    # Tasks

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:  # a fault of ours, not of the agent's
            self.log.extend(line for lines in traceback.format_exception(error) for line in lines.splitlines())
            self._window.say(f"something failed here ({type(error).__qualname__}); /log shows what", "ansired")

    async def close(self) -> None:
        """Stop what runs, as far as that is quick, and end the tasks."""
        if self.failure is None and self.running:
            with suppress(TwofoldError, TimeoutError):
                await asyncio.wait_for(self.session.cancel(), 1)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _first_word(text: str) -> str:
    words = text[1:].split(maxsplit=1)
    return words[0] if words else ""


def command_name(command: v2.AvailableCommand) -> str:
    """Give the name of one of the agent's commands, without a slash."""
    name = command.name if isinstance(command, v2.Command) else str(command.fields.get("name"))
    return name.removeprefix("/")


def _answered(request: PermissionRequest, option: v2.PermissionOption) -> str:
    return f"{visible_line(request.title)}: {visible_line(option.name)}"


def described(request: PermissionRequest) -> list[str]:
    """Give what a request says beside its title, line by line."""
    lines: list[str] = []
    if request.description:
        lines += visible(request.description).rstrip("\n").split("\n")
    if isinstance(request.subject, v2.CommandPermissionSubject):
        lines.append(f"$ {visible_line(request.subject.command)}")
        lines.append(f"in {visible_line(request.subject.cwd)}")
    return lines
