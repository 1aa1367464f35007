"""A journal from an event loop: what is done between appends is done in its turn."""

import asyncio

import pytest

from tests.fold.sessions import chunk
from tests.journal.stored import raw
from twofold.journal import AsyncJournal
from twofold.journal.memory import MemoryJournal


@pytest.mark.rule("P-5")
def test_a_replay_is_bracketed_in_the_order_of_calls() -> None:
    async def main() -> list[str]:
        async with AsyncJournal(MemoryJournal()) as journal:
            writer = await journal.writer("s")
            first = writer.put(raw(chunk("m", "Fog ")), raw(chunk("m", "lifts.")))
            begun = asyncio.ensure_future(writer.begin_replay())
            await asyncio.sleep(0)  # the task queues its job
            replayed = writer.put(raw(chunk("m", "Fog lifts.")))
            ended = asyncio.ensure_future(writer.end_replay())
            await asyncio.sleep(0)
            last = writer.put(raw(chunk("m", " Sail.")))
            positions = [one.position for one in await asyncio.gather(first, begun, replayed, ended, last)]
            assert positions == [2, 3, 4, 5, 6]
            return [message.text for message in (await journal.load("s")).transcript.messages]

    assert asyncio.run(main()) == ["Fog lifts. Sail."]


@pytest.mark.rule("J-6")
def test_a_redaction_takes_its_turn_and_the_writer_goes_on_behind_it() -> None:
    async def main() -> list[str]:
        async with AsyncJournal(MemoryJournal()) as journal:
            writer = await journal.writer("s")
            await writer.append(raw(chunk("m", "secret")))
            redacted = await writer.redact("agent_message", "m")
            assert redacted.position == 2
            await writer.append(raw(chunk("m", "more of it")))
            await writer.append(raw(chunk("n", "fine")))
            return [message.text for message in (await journal.load("s")).transcript.messages]

    assert asyncio.run(main()) == ["", "fine"]


def test_a_replay_that_is_not_under_way_cannot_end() -> None:
    async def main() -> None:
        async with AsyncJournal(MemoryJournal()) as journal:
            writer = await journal.writer("s")
            with pytest.raises(ValueError, match="no replay"):
                await writer.end_replay()
            assert (await writer.append(raw(chunk("m", "a")))).position == 1

    asyncio.run(main())
