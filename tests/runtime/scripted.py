"""Other ends that do as they are told: small programs for child processes, and loops that must be left tidy."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import Coroutine, Sequence
from textwrap import dedent
from typing import Any, Final, TypeVar

from twofold.jsonrpc import dumps

__all__ = [
    "AGENT",
    "DEADLINE",
    "MIB",
    "line",
    "parsed",
    "python",
    "run",
    "scripted",
    "turns",
    "twofold_program",
    "words",
]

DEADLINE: Final = 20.0
MIB: Final = 1024 * 1024

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T], *, deadline: float = DEADLINE) -> T:
    """Run it in a loop of its own, within a deadline; what the loop has to complain of fails the test."""
    complaints: list[dict[str, Any]] = []

    async def within_the_deadline() -> T:
        asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
        async with asyncio.timeout(deadline):
            result = await main
        await turns(3)
        gc.collect()  # tasks whose exceptions nobody asked for complain now
        return result

    result = asyncio.run(within_the_deadline())
    assert complaints == []
    return result


async def turns(count: int) -> None:
    """Let everybody else run for so many turns of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


def line(**members: Any) -> bytes:
    """Write a JSON-RPC message."""
    return dumps({"jsonrpc": "2.0", **members})


def words(text: str) -> list[str]:
    """Give the words of a text."""
    return text.split()


def python(code: str, *words: str) -> Sequence[str]:
    """Give the command for a program that needs nothing but the standard library: it starts quickly."""
    return [sys.executable, "-I", "-S", "-c", dedent(code), *words]


def twofold_program(code: str, *words: str) -> Sequence[str]:
    """Give the command for a program that uses twofold; warnings are errors there, too."""
    return [sys.executable, "-X", "dev", "-W", "error", "-c", dedent(code), *words]


def complaints(errors: bytes) -> bytes:
    """Give what a program said on standard error, but for asyncio's remarks on a machine that is slow just now."""
    return b"".join(line for line in errors.splitlines(keepends=True) if not line.startswith(b"Executing <"))


AGENT: Final = """
import json, os, signal, sys
out = sys.stdout.buffer
def say(**members):
    raw(json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\\n")
def raw(data):
    out.write(data); out.flush()
def hear():
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)
def update(text, session="s", message="m", **members):
    say(method="session/update", params={"sessionId": session, "update": {"sessionUpdate": "agent_message_chunk",
        "messageId": message, "content": {"type": "text", "text": text}, **members}})
def state(state, session="s", **members):
    say(method="session/update", params={"sessionId": session,
        "update": {"sessionUpdate": "state_update", "state": state, **members}})
def initialize():
    asked = hear()
    assert asked["method"] == "initialize", asked
    say(id=asked["id"], result={"protocolVersion": 2, "info": {"name": "scripted", "version": "1"},
        "capabilities": {"session": {}}})
def begin():
    initialize()
    asked = hear()
    assert asked["method"] == "session/new", asked
    say(id=asked["id"], result={"sessionId": "s"})
def prompted():
    asked = hear()
    assert asked["method"] == "session/prompt", asked
    return asked["id"]
def insert(id, message="u"):
    say(id=id, result={"messageId": message})
    state("running")
def the_end():
    while sys.stdin.buffer.readline():
        pass
"""


def scripted(code: str) -> Sequence[str]:
    """Give the command for an agent that follows a script; see :data:`AGENT` for its words."""
    return python(AGENT + dedent(code))


def parsed(message: bytes) -> Any:
    """Read a message as JSON."""
    return json.loads(message)
