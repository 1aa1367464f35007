"""An agent that does what agents do, on request: it streams, corrects and redacts itself, asks, and runs a tool.

What it does depends on the prompt's first line: ``stream``, ``tool``, ``slow`` or ``boom``; it echoes all else.
"""

import asyncio
import sys

from twofold.runtime.agent import Agent, Prompt, Session


class Streaming(Agent):
    name = "streaming"
    version = "1.0"

    async def prompt(self, session: Session, prompt: Prompt) -> None:
        match prompt.text:
            case "stream":
                await self.stream(session)
            case "tool":
                await self.tool(session)
            case "slow":
                await self.slow(session)
            case "boom":
                raise RuntimeError("this agent was asked to fail")
            case text:
                await session.message().append(text)

    async def stream(self, session: Session) -> None:
        async with session.thought() as thought:
            await thought.append("Let me ")
            await thought.append("think")
        async with session.message() as answer:
            for piece in ("Hello", ", ", "world"):
                await answer.append(piece)
            await answer.replace("Hello, world!")  # a correction: clients now hold this, and nothing else
        async with session.message() as mistake:
            await mistake.append("secret")
            await mistake.clear()  # taken back: gone from the clients and from the journal
        await session.plan(["Say hello", "Take the secret back"])

    async def tool(self, session: Session) -> None:
        command = [sys.executable, "-c", "print('hello from tool', end='')"]
        async with session.tool_call("Run printf", kind="execute", status="pending") as call:
            if not await session.allowed("Run printf", subject=call):
                await call.update(status="failed")
                await session.message().append("Not done.")
                return
            await call.update(status="in_progress")
            terminal = await session.terminal("printf 'hello from tool'")
            await call.show(terminal)
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            assert process.stdout is not None
            while chunk := await process.stdout.read(4096):
                await terminal.write(chunk)
            await terminal.exit(await process.wait())
        await session.message().append("Done.")

    async def slow(self, session: Session) -> None:
        async with session.message() as message:
            for number in range(1, 501):
                await message.append(f"tick {number} ")
                await asyncio.sleep(0.02)


if __name__ == "__main__":
    Streaming().run()
