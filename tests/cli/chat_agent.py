"""An agent that does what a test tells it to: ``python chat_agent.py [JOURNAL]``. The prompt names a method of it."""

import asyncio
import base64
import os
import sys
from pathlib import Path

from tests.view.hostile import FORGED, SEQUENCES
from twofold.runtime.agent import Agent, Prompt, Session
from twofold.wire import v2

OPTIONS = (
    v2.PermissionOption(option_id="once", name="Yes, once", kind="allow_once"),
    v2.PermissionOption(option_id="always", name="Always", kind="allow_always"),
    v2.PermissionOption(option_id="no", name="Refuse", kind="reject_once"),
    v2.PermissionOption(option_id="never", name="Refuse always", kind="reject_always"),
)


class Scripted(Agent):
    name = "scripted"
    version = "1.0"

    async def new_session(self, session: Session) -> None:
        await self.offer(session, "small", True)

    async def offer(self, session: Session, model: str, fast: bool) -> None:
        models = [v2.SessionConfigSelectOption(value=name, name=name.title()) for name in ("small", "large")]
        await session.set_config_options(
            [
                v2.SessionConfigSelect(config_id="model", name="Model", current_value=model, options=models),
                v2.SessionConfigBoolean(config_id="fast", name="Be fast", current_value=fast),
            ]
        )
        hint = v2.TextCommandInput(hint="WHAT")
        await session.set_commands([v2.Command(name="shout", description="say it loudly", input=hint)])

    async def set_config_option(self, session: Session, config_id: str, value: str | bool) -> None:
        assert isinstance(value, str)
        await self.offer(session, value, True)

    async def prompt(self, session: Session, prompt: Prompt) -> str | None:
        name, _, words = prompt.text.partition(" ")
        act = getattr(self, f"do_{name}", None)
        if act is None:
            await session.message().append(f"You said: {prompt.text}")
            return None
        reason: str | None = await act(session, words)
        return reason

    async def do_draft(self, session: Session, words: str) -> None:
        """Say something as a message with an id, for the others to change."""
        await session.message("m").append(words)

    async def do_correct(self, session: Session, words: str) -> None:
        await session.message("m").replace(words)

    async def do_withdraw(self, session: Session, words: str) -> None:
        await session.message("m").clear()

    async def do_long(self, session: Session, words: str) -> None:
        message = session.message()
        for number in range(1, int(words) + 1):
            await message.append(f"line {number}  \n")

    async def do_slow(self, session: Session, words: str) -> None:
        await session.message().append("I begin")
        await asyncio.Event().wait()

    async def do_stubborn(self, session: Session, words: str) -> None:
        await session.message().append("I begin")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await session.message().append("I go on")
        await asyncio.Event().wait()

    async def do_ask(self, session: Session, words: str) -> None:
        async with session.tool_call("Remove everything", kind="delete", status="pending") as call:
            chosen = await session.request_permission(
                "Remove everything?", options=OPTIONS, description="All of it.\nFor good.", subject=call
            )
        await session.message().append(f"chosen: {chosen.name if chosen else 'nothing'}")

    async def do_later(self, session: Session, words: str) -> None:
        """Ask when something is written to this pipe."""
        await session.message().append("I wait")
        await asyncio.to_thread(Path(words).read_text)
        await self.do_ask(session, "")

    async def do_work(self, session: Session, words: str) -> None:
        async with session.thought() as thought:
            await thought.append("How is it done?")
        async with session.tool_call("Edit the file", kind="edit") as call:
            patch = v2.DiffPatch(format="git_patch", text="--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old line\n+new line\n")
            await call.append(v2.Diff(changes=[v2.ModifyChange(path="/f")], patch=patch))
            terminal = await session.terminal("make test")
            await call.show(terminal)
            await terminal.write(b"".join(b"\x1b[32mtest %d\x1b[0m\r\n" % number for number in range(30)))
            await terminal.exit(0)
        done = v2.PlanEntry(content="Edit", priority="high", status="completed")
        await session.plan([done, v2.PlanEntry(content="Rest", priority="low", status="pending")])
        await session.notice("The disk is nearly full", severity="warning", description="2 MB left")
        await session.usage(1200, 200_000, cost=v2.Cost(amount=0.25, currency="EUR"))

    async def do_markdown(self, session: Session, words: str) -> None:
        text = "# Title\n\nSome **bold** words, `code` and [a link](http://example.com/x).\n\n- one\n- two\n\n"
        await session.message().append(text + "```python\nprint(1)\n```\n\n<b>no html</b>, List<String> [red]no[/red]")

    async def do_hostile(self, session: Session, words: str) -> None:
        everything = "\n\n".join((*SEQUENCES, *FORGED, "&#27;[2J &#155;2J &#8238;x"))
        await session.message().append(everything)
        async with session.tool_call("".join(SEQUENCES), kind="other") as call:
            await call.append(everything)
            data = base64.b64encode("\n".join(SEQUENCES).encode()).decode()
            await session.update(
                v2.TerminalUpdate(terminal_id="t", command="\x1b[2J", output=v2.TerminalOutput(data=data))
            )
            await call.append(v2.Terminal(terminal_id="t"))
        await session.set_title("\x1b]0;title\x07")
        await session.notice("\x1b[2Jnotice", severity="\x1b[2J")
        await session.plan(["\x1b[2J\nplan"])
        hostile = v2.PermissionOption(option_id="h", name="\x1b[2J[red]\nx", kind="allow_once")
        await session.request_permission("\x1b[2J\n? forged", options=[hostile], description=everything)

    async def do_refusal(self, session: Session, words: str) -> str:
        return "refusal"

    async def do_fail(self, session: Session, words: str) -> None:
        raise RuntimeError

    def failed(self, session: Session, error: BaseException) -> None:
        """Say nothing."""

    async def do_die(self, session: Session, words: str) -> None:
        print("no power left", file=sys.stderr, flush=True)
        os._exit(3)

    async def do_grumble(self, session: Session, words: str) -> None:
        print(words, file=sys.stderr, flush=True)
        await session.message().append("I grumbled")


if __name__ == "__main__":
    Scripted(journal=sys.argv[1] if len(sys.argv) > 1 else "memory:").run()
