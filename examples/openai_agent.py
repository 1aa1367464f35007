"""An agent around any endpoint that speaks OpenAI's chat completions: ``python openai_agent.py [JOURNAL]``.

``OPENAI_BASE_URL``, ``OPENAI_API_KEY`` and ``OPENAI_MODEL`` say which. The model may read files of the session's
folders and run commands there; the user is asked each time. Needs ``httpx``, and a POSIX system for the commands.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx

from twofold.exceptions import LineTooLong, RequestError
from twofold.fold import Message, ToolCall, Transcript
from twofold.jsonrpc import LineSplitter
from twofold.runtime.agent import Agent, Prompt, Session, ToolCallHandle
from twofold.wire import v2

Json: TypeAlias = dict[str, Any]
Tool: TypeAlias = Callable[[ToolCallHandle], Awaitable[str]]

REQUESTS: Final = 20  # to the endpoint, in one turn
LONGEST: Final = 50_000  # bytes of a file or of a command's output that the model is shown
FAILED: Final = -32603  # the code of an error that is nobody else's
STOP_REASONS: Final = {"length": "max_tokens", "content_filter": "refusal"}


def described(name: str, description: str, argument: str) -> Json:
    """Describe a tool of one argument to the model."""
    parameters = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS: Final = [
    described("read_file", "Read a text file in the working directory.", "path"),
    described("run_command", "Run a shell command in the working directory and read what it writes.", "command"),
]


class OpenAI(Agent):
    name = "openai"
    version = "1.0"
    http: httpx.AsyncClient

    async def start(self) -> None:
        url = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
        headers = {"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', '')}"}
        self.http = httpx.AsyncClient(base_url=url, headers=headers, timeout=httpx.Timeout(30, read=300))

    async def stop(self) -> None:
        await self.http.aclose()

    async def prompt(self, session: Session, prompt: Prompt) -> str:
        if not session.state.session_info.title:
            await session.set_title(" ".join(prompt.text.split())[:60] or None)
        for _ in range(REQUESTS):
            wanted, reason = await self.ask_model(session)
            if not wanted:
                return STOP_REASONS.get(reason, "end_turn")
            for function in wanted:
                await self.use_tool(session, function["name"], function["arguments"])
            while await session.take_prompt():  # what the user said meanwhile is part of the next request
                pass
        return "max_turn_requests"

    async def ask_model(self, session: Session) -> tuple[list[dict[str, str]], str]:
        """Stream one answer into the session. Gives the tool calls that the model wants, and why it stopped."""
        system = {"role": "system", "content": f"You are a coding agent. You work in {session.cwd}."}
        messages = [system, *conversation(session.state)]
        body = {"model": os.environ["OPENAI_MODEL"], "messages": messages, "tools": TOOLS, "stream": True}
        answer, thought = session.message(), session.thought()
        wanted: dict[int, dict[str, str]] = {}
        reason = ""
        try:
            # When the turn is cancelled, CancelledError is raised in here: leaving the block closes the request.
            async with self.http.stream("POST", "/chat/completions", json=body) as response:
                if response.status_code != 200:
                    raise RequestError(FAILED, f"The endpoint answered with HTTP {response.status_code}")
                async for event in events(response):
                    for choice in event.get("choices", ()):
                        delta = choice.get("delta") or {}
                        if delta.get("reasoning_content"):
                            await thought.append(delta["reasoning_content"])
                        if delta.get("content"):
                            await answer.append(delta["content"])
                        for part in delta.get("tool_calls") or ():  # a call comes in parts, told apart by its index
                            function = wanted.setdefault(part.get("index", 0), {"name": "", "arguments": ""})
                            for member, text in part["function"].items():
                                function[member] = function.get(member, "") + (text or "")
                        reason = choice.get("finish_reason") or reason
        except httpx.HTTPError as error:
            raise RequestError(FAILED, f"The endpoint cannot be used: {type(error).__name__}") from None
        if not reason:
            raise RequestError(FAILED, "The endpoint ended in the middle of an answer")
        return [function for _, function in sorted(wanted.items())], reason

    async def use_tool(self, session: Session, name: str, arguments: str) -> None:
        """Ask the user, run the tool, and report what came of it: the next request takes it from the session."""
        try:
            values = json.loads(arguments)
        except ValueError:
            values = None
        run: Tool | None
        match name, values:
            case "read_file", {"path": str(path)}:
                title, kind, run = f"Read {path}", "read", partial(read_file, session, path)
            case "run_command", {"command": str(command)}:
                title, kind, run = command, "execute", partial(run_command, session, command)
            case _:
                title, kind, run = f"Call {name}", "other", None
        async with session.tool_call(title, kind=kind, status="pending", name=name, raw_input=values) as call:
            if run is None:
                await call.update(status="failed", raw_output="There is no such tool, or it has other arguments.")
                return
            if not await session.allowed(title, subject=call):
                await call.update(status="failed", raw_output="The user did not allow this.")
                return
            await call.update(status="in_progress")
            try:
                await call.update(status="completed", raw_output=await run(call))
            except OSError as error:
                await call.update(status="failed", raw_output=f"It failed: {error.strerror}")


def conversation(state: Transcript) -> list[Json]:
    """Give what was said so far as the endpoint wants it. What was taken back is not in it."""
    messages: list[Json] = []
    for entity in state.timeline:
        match entity:
            case Message(type="user_message" | "agent_message") if entity.content:
                role = "user" if entity.type == "user_message" else "assistant"
                messages.append({"role": role, "content": said(entity)})
            case ToolCall():
                arguments = json.dumps(entity.raw_input if isinstance(entity.raw_input, dict) else {})
                function = {"name": entity.name, "arguments": arguments}
                result = entity.raw_output if isinstance(entity.raw_output, str) else "It did not come to an end."
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": None})
                messages[-1]["tool_calls"] = [{"id": entity.tool_call_id, "type": "function", "function": function}]
                messages.append({"role": "tool", "tool_call_id": entity.tool_call_id, "content": result})
            case _:
                pass
    return messages


def said(message: Message) -> str:
    """Give a message as text; what the user linked to is named."""
    parts = [message.text, *(block.uri for block in message.content if isinstance(block, v2.ResourceLink))]
    return "\n".join(part for part in parts if part)


async def events(response: httpx.Response) -> AsyncIterator[Json]:
    """Give the data of each server-sent event. (A line ends at a newline: JSON may hold what else ends lines.)"""
    splitter = LineSplitter()
    async for chunk in response.aiter_bytes():
        for line in splitter.feed(chunk):
            if isinstance(line, LineTooLong):
                raise line
            if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
                yield json.loads(line[5:])


async def read_file(session: Session, path: str, call: ToolCallHandle) -> str:
    """Give the beginning of a file of the session's folders."""
    file = Path(session.cwd, path).resolve()
    roots = [Path(root).resolve() for root in (session.cwd, *session.additional_directories)]
    if not any(file.is_relative_to(root) for root in roots) or not file.is_file():
        raise FileNotFoundError(0, "there is no such file in the working directory")
    await call.update(locations=[v2.ToolCallLocation(path=str(file))])
    with file.open("rb") as opened:
        text = opened.read(LONGEST).decode(errors="replace")
    await call.append(text)
    return text


async def run_command(session: Session, command: str, call: ToolCallHandle) -> str:
    """Run a command and show its terminal. It is killed, with all that it started, when the turn is cancelled."""
    terminal = await session.terminal(command)
    await call.show(terminal)
    process = await asyncio.create_subprocess_shell(
        command,
        cwd=session.cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    output = b""
    try:
        while chunk := await process.stdout.read(65_536):
            await terminal.write(chunk)
            output = (output + chunk)[-LONGEST:]
        await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        status = await process.wait()
        await terminal.exit(status)  # a negative one is a signal's number
    return f"{output.decode(errors='replace')}\n(status {status})"


if __name__ == "__main__":
    if "OPENAI_MODEL" not in os.environ:
        sys.exit("Set OPENAI_MODEL to the name of a model.")
    OpenAI(journal=sys.argv[1] if len(sys.argv) > 1 else "memory:").run()
