"""What can be typed with a slash."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from twofold.cli._chat.agent import Listed
from twofold.cli._chat.conversation import UNSHOWN, Command, Conversation, Window, command_name
from twofold.plaintext import visible_line
from twofold.wire import v2

__all__ = ["COMMANDS"]

_LISTED: Final = 20
_BOOLEANS: Final = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}


def _say_list(window: Window, what: str, lines: list[str], none: str) -> None:
    window.say("\n".join([f"{what}:", *lines]) if lines else none)


async def _help(_conversation: Conversation, window: Window, _words: str) -> None:
    width = max(len(command.usage) for command in COMMANDS.values())
    lines = ["what can be typed:"]
    lines += [f"{command.usage:{width}}  {command.help}" for command in COMMANDS.values()]
    lines += [
        "Enter sends; Alt-Enter, or a backslash before Enter, begins a new line. What is pasted stays as it is.",
        "Ctrl-C stops the turn, or empties the line; Ctrl-C once more, or Ctrl-D, leaves.",
        "A slash command of the agent is sent as it is, and so is a line that begins with a space.",
    ]
    window.say("\n".join(lines))


async def _sessions(conversation: Conversation, window: Window, words: str) -> None:
    await _list(conversation)
    listed = conversation.listed
    if not listed:
        window.say("there is no session to resume")
        return
    shown = listed if words == "all" else listed[:_LISTED]
    here = conversation.line.wanted.cwd
    lines = ["sessions that can be resumed:"]
    for number, one in enumerate(shown, 1):
        title = _short(visible_line(one.title).strip(), 60)
        where = "" if one.cwd == here else f"  in {visible_line(one.cwd)}"
        now = "  (this one)" if one.session_id == conversation.session.session_id else ""
        facts = [visible_line(one.session_id), _time(one.updated_at), title]
        lines.append(f"{number:3}. {'  '.join(filter(None, facts))}{where}{now}")
    if len(shown) < len(listed):
        lines.append(f"and {len(listed) - len(shown)} more: /sessions all")
    window.say("\n".join(lines))


def _short(words: str, length: int) -> str:
    return words if len(words) <= length else f"{words[: length - 1]}…"


def _time(written: str) -> str:
    """Give a time as a clock here shows it; one that cannot be read, as it is."""
    try:
        return datetime.fromisoformat(written).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError):
        return visible_line(written)


async def _list(conversation: Conversation) -> None:
    conversation.listed = await conversation.line.sessions()


async def _resume(conversation: Conversation, window: Window, words: str) -> None:
    if not words:
        window.say("which one? /resume N, or /resume ID; /sessions lists them", "ansiyellow")
        return
    if _busy(conversation, window):
        return
    if words.isascii() and words.isdecimal() and not conversation.listed:
        await _list(conversation)
    one = _named(conversation.listed, words)
    here = conversation.session.session_id == one.session_id
    session, replayed = await conversation.line.resume(one.session_id, cwd=one.cwd or None)
    past = "" if replayed else UNSHOWN
    window.begin(f"session {visible_line(session.session_id)}{past}", erase=here and replayed)
    conversation.attach(session)


def _named(listed: list[Listed], words: str) -> Listed:
    if words.isascii() and words.isdecimal() and 0 < int(words) <= len(listed):
        return listed[int(words) - 1]
    return next((one for one in listed if one.session_id == words), Listed(words, ""))


async def _new(conversation: Conversation, window: Window, _words: str) -> None:
    if _busy(conversation, window):
        return
    session = await conversation.line.new()
    window.begin(f"session {visible_line(session.session_id)}", erase=False)
    conversation.attach(session)


def _busy(conversation: Conversation, window: Window) -> bool:
    if conversation.sent:
        window.say("the agent is at work: /cancel stops it", "ansiyellow")
    return bool(conversation.sent)


async def _cancel(conversation: Conversation, window: Window, _words: str) -> None:
    if conversation.running:
        conversation.cancel()
    else:
        window.say("nothing is running")


async def _options(conversation: Conversation, window: Window, _words: str) -> None:
    options = conversation.session.state.config_options
    lines = [line for option in options for line in _option(option)]
    _say_list(window, "the agent's options", lines, "the agent has no options")


def _option(option: v2.SessionConfigOption) -> Iterator[str]:
    match option:
        case v2.SessionConfigSelect():
            values = [visible_line(value.value) for value in option.values]
            yield f"{_name(option)} = {visible_line(option.current_value)}  ({', '.join(values)})"
        case v2.SessionConfigBoolean():
            yield f"{_name(option)} = {'on' if option.current_value else 'off'}  (on, off)"
        case _:
            yield f"{visible_line(str(option.fields.get('configId')))}  (of a kind that is not known here)"


def _name(option: v2.SessionConfigSelect | v2.SessionConfigBoolean) -> str:
    config_id, name = visible_line(option.config_id), visible_line(option.name)
    return config_id if name.casefold() == config_id.casefold() else f"{config_id}  {name}"


async def _set(conversation: Conversation, window: Window, words: str) -> None:
    config_id, _, value = words.partition(" ")
    value = value.strip()
    if not value:
        window.say("which one, and to what? /set ID VALUE; /options lists them", "ansiyellow")
        return
    option = next(
        (
            one
            for one in conversation.session.state.config_options
            if isinstance(one, v2.SessionConfigSelect | v2.SessionConfigBoolean) and one.config_id == config_id
        ),
        None,
    )
    chosen: str | bool | None = None
    match option:
        case v2.SessionConfigBoolean():
            chosen = _BOOLEANS.get(value.casefold())
        case v2.SessionConfigSelect():
            named = [one.value for one in option.values if one.name.casefold() == value.casefold()]
            chosen = value if value in {one.value for one in option.values} else named[0] if len(named) == 1 else None
        case None:
            window.say(f"there is no option {visible_line(config_id)}: /options lists them", "ansiyellow")
            return
    if chosen is None:
        window.say(f"{visible_line(value)} is no value of {'  '.join(_option(option))}", "ansiyellow")
        return
    await conversation.session.set_config_option(config_id, chosen)
    held = next((one for one in conversation.session.state.config_options if _id(one) == config_id), None)
    window.say("  ".join(_option(held)) if held is not None else "set")


def _id(option: v2.SessionConfigOption) -> str | None:
    return None if isinstance(option, v2.OtherSessionConfigOption) else option.config_id


async def _commands(conversation: Conversation, window: Window, _words: str) -> None:
    lines: list[str] = []
    for command in conversation.session.state.available_commands:
        words = "(of a kind that is not known here)"
        hint = ""
        if isinstance(command, v2.Command):
            words = _short(command.description, 100)
            hint = f" {command.input.hint}" if isinstance(command.input, v2.TextCommandInput) else ""
        lines.append(visible_line(f"/{command_name(command)}{hint}  {words}"))
    _say_list(window, "the agent's commands", lines, "the agent has no commands of its own")


async def _log(conversation: Conversation, window: Window, _words: str) -> None:
    lines = [visible_line(line) for line in conversation.log]
    _say_list(window, "the last lines", lines, "the agent wrote nothing to standard error, and made no faults")


async def _quit(_conversation: Conversation, window: Window, _words: str) -> None:
    window.leave(0)


COMMANDS: Final[dict[str, Command]] = {
    "sessions": Command("/sessions [all]", "list the sessions that can be resumed", _sessions),
    "resume": Command("/resume N|ID", "go on with one of them, and show what was said in it", _resume),
    "new": Command("/new", "begin a new session", _new),
    "cancel": Command("/cancel", "stop what the agent is doing", _cancel),
    "options": Command("/options", "list the agent's options and their values", _options),
    "set": Command("/set ID VALUE", "choose the value of an option", _set),
    "commands": Command("/commands", "list the agent's own slash commands", _commands),
    "log": Command("/log", "show what the agent wrote to standard error, and its faults", _log),
    "help": Command("/help", "show this", _help),
    "quit": Command("/quit", "leave", _quit),
}
