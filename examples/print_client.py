"""A client that prints what an agent does: ``python print_client.py [--allow] [-p PROMPT]… AGENT [ARGUMENT…]``.

Without ``-p`` each line of standard input is a prompt. It is the same for agents of both versions.
"""

import argparse
import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from twofold.exceptions import TwofoldError
from twofold.fold import Change
from twofold.runtime.client import PermissionRequest, connect
from twofold.view import plain_terminal, visible
from twofold.wire import v2


class Printer:
    """Prints changes one after another: what is appended in place, what is corrected anew."""

    def __init__(self) -> None:
        self.last: Any = None  # what the text at the end of the last line is of

    def show(self, change: Change) -> None:
        thing = change.target
        match change.entity, change.content:
            case "message", _ if thing.type == "user_message":
                pass
            case "message", "appended":
                self.text(thing, thing.type, shown(change.block))
            case "message", "replaced":
                history = "" if change.created else " corrected"
                self.text(thing, thing.type + history, "".join(map(shown, change.block)), anew=True)
            case "message", "cleared":
                self.text(thing, f"{thing.type} withdrawn", "", anew=True)
            case "terminal", "appended" | "replaced" as done:
                self.text(thing, "terminal", plain_terminal(change.block), anew=done == "replaced")
            case "tool_call", _ if {"title", "status"} & {*change.fields}:
                self.line(f"[tool_call {thing.status}] {thing.title}")
            case "plan", _:
                self.line("\n".join(f"[plan] {entry.content}: {entry.status}" for entry in thing.entries))
            case "notice", _:
                self.line(f"[{thing.severity}] {thing.title}")
            case "state", _ if thing.state == "idle":
                why = f" {thing.error.message}" if thing.error else ""
                self.line("" if thing.stop_reason == "end_turn" else f"[{thing.stop_reason}]{why}")

    def text(self, thing: Any, name: str, text: str, *, anew: bool = False) -> None:
        if anew or self.last is not thing:
            self.line(f"[{name}] ", end="")
        print(visible(text), end="", flush=True)
        self.last = thing

    def line(self, line: str, *, end: str = "\n") -> None:
        print("" if self.last is None else "\n", visible(line), sep="", end=end, flush=True)
        self.last = None


def shown(block: v2.ContentBlock) -> str:
    return block.text if isinstance(block, v2.TextContent) else f"<{type(block).__name__}>"


def standard_input() -> asyncio.StreamReader:
    """Read standard input in a thread that nobody waits for, be it a file, a pipe or a terminal."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()

    def read() -> None:
        with suppress(RuntimeError):  # the loop has ended
            while data := os.read(0, 65_536):
                loop.call_soon_threadsafe(reader.feed_data, data)
            loop.call_soon_threadsafe(reader.feed_eof)

    threading.Thread(target=read, daemon=True).start()
    return reader


async def main(words: argparse.Namespace) -> None:
    printer, lines = Printer(), standard_input()

    async def prompts() -> AsyncIterator[str]:
        for prompt in words.prompt or ():
            yield prompt
        while not words.prompt and (line := await lines.readline()):
            yield line.decode().rstrip("\n")

    async def decide(request: PermissionRequest) -> v2.PermissionOption | None:
        printer.line(f"[question] {request.title}")
        if words.allow:
            return request.option("allow_once", "allow_always")
        printer.line("\n".join(f"  {number}. {option.name}" for number, option in enumerate(request.options, 1)))
        answer = (await lines.readline()).decode().strip()
        return dict(zip("123456789", request.options, strict=False)).get(answer)

    async with connect(words.agent, on_permission=decide, name="print-client") as client:
        printer.line(f"{client.info.name} {client.info.version} speaks version {client.version}")
        session = await client.new_session(cwd=os.getcwd())
        async for prompt in prompts():
            try:
                async for change in session.prompt(prompt):
                    printer.show(change)
            except asyncio.CancelledError:  # Ctrl-C
                await session.cancel()
                raise


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        usage="%(prog)s [--allow] [-p PROMPT]… AGENT [ARGUMENT…]", description="Prints what an agent does."
    )
    parser.add_argument("--allow", action="store_true", help="answer yes to every permission question")
    parser.add_argument("-p", "--prompt", action="append", help="a prompt; may be given more than once")
    parser.add_argument("agent", nargs=argparse.REMAINDER, help="the agent's command")
    arguments = parser.parse_args()
    if not arguments.agent:
        parser.error("name the agent's command")
    try:
        asyncio.run(main(arguments))
    except KeyboardInterrupt:
        print()
    except TwofoldError as error:
        sys.exit(f"{parser.prog}: {error}")
