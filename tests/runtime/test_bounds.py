"""What an agent holds for a client that does not read: at most the bound, and the message that went over it."""

from __future__ import annotations

import asyncio

import pytest

from tests.runtime.talk import run, served, updates_of
from twofold.runtime.agent import Agent, Prompt, Session

LIMIT = 10_000
PIECE = "x" * 1000
PIECES = 100


@pytest.mark.parametrize("tasks", [1, 50])
def test_a_client_that_does_not_read_makes_all_who_send_to_it_wait(tasks: int) -> None:
    async def main() -> tuple[int, int]:
        async def stream(session: Session, number: int) -> None:
            for _ in range(PIECES // tasks):
                await session.message(f"m{number}").append(PIECE)

        async def handler(session: Session, _prompt: Prompt) -> None:
            await asyncio.gather(*(stream(session, number) for number in range(tasks)))

        async with served(Agent(prompt=handler), limit=LIMIT) as talk:
            talk.prompt(await talk.new_session(), "go")
            await talk.updated("state_update", state="running")
            for _ in range(1000):  # as far as a client that does not read lets it
                await asyncio.sleep(0)
            before = len(talk.lines)
            await talk.read()
            waited = len(talk.lines) - before
            await talk.idle()
            chunks = [one for one in updates_of(talk.heard()) if one["sessionUpdate"] == "agent_message_chunk"]
            return waited, len(chunks)

    waited, chunks = run(main())
    assert 1 < waited <= LIMIT // len(PIECE) + 1
    assert chunks == PIECES
