"""Long sessions: nothing is quadratic, little is retained. Nothing here is timed; what is quadratic does not end."""

from __future__ import annotations

import base64
import gc
import json
import tracemalloc

import pytest

from twofold.fold import Message, Transcript
from twofold.wire import v2


def pieces(count: int) -> list[v2.AgentMessageChunk]:
    return [v2.AgentMessageChunk(message_id="m1", content=v2.TextContent(text=f"{number} ")) for number in range(count)]


@pytest.mark.rule("F-5", "F-10")
def test_two_hundred_thousand_chunks_are_one_message_whose_text_is_read_at_the_end() -> None:
    transcript, seen = Transcript(), [0]

    def count(_change: object) -> None:
        seen[0] += 1

    transcript.subscribe(count)
    for chunk in pieces(200_000):
        transcript.apply(chunk)
    (message,) = transcript.messages
    assert seen == [200_000]
    assert (message.version, transcript.version, len(message.content)) == (200_000, 200_000, 200_000)
    assert message.text == "".join(f"{number} " for number in range(200_000))


@pytest.mark.parametrize("word", ["word ", "\u00e9\u20ac ", "\U0001f680", "\ud83d"])
def test_the_text_may_be_read_after_every_chunk(word: str) -> None:
    transcript = Transcript()
    for number in range(1, 5001):
        change = transcript.apply(v2.AgentMessageChunk(message_id="m1", content=v2.TextContent(text=word)))
        assert isinstance(change.target, Message)
        assert len(change.target.text) == len(word) * number
    assert change.target.text == word * 5000


def test_a_text_of_halves_read_after_every_chunk_is_that_of_whole_characters() -> None:
    first, second = "\ud83d", "\ude80"
    transcript, expected = Transcript(), ""
    for _ in range(1000):
        for half, now in ((first, expected + first), (second, expected + "\U0001f680")):
            change = transcript.apply(v2.AgentMessageChunk(message_id="m1", content=v2.TextContent(text=half)))
            assert change.target.text == now
        expected = now


def test_the_length_of_output_is_known_after_each_of_a_hundred_thousand_chunks() -> None:
    transcript = Transcript()
    chunk = v2.TerminalOutputChunk(terminal_id="r1", data=base64.b64encode(b"line\n").decode())
    for number in range(100_000):
        change = transcript.apply(chunk)
        assert change.index == 5 * number
    assert transcript.terminals[0].output == b"line\n" * 100_000


def test_many_messages_tool_calls_and_terminals_are_each_found_at_once() -> None:
    transcript = Transcript()
    for number in range(20_000):
        transcript.apply(v2.AgentMessageChunk(message_id=f"m{number}", content=v2.TextContent(text="a")))
        transcript.apply(v2.ToolCallUpdate(tool_call_id=f"t{number}"))
        transcript.apply(v2.TerminalUpdate(terminal_id=f"r{number}"))
    for number in range(20_000):
        transcript.apply(v2.AgentMessageChunk(message_id=f"m{number}", content=v2.TextContent(text="b")))
        transcript.apply(v2.ToolCallUpdate(tool_call_id=f"t{number}", status="completed"))
    assert len(transcript.timeline) == 60_000
    assert {message.text for message in transcript.messages} == {"ab"}


def test_a_plain_text_chunk_retains_little_more_than_its_text() -> None:
    lines = [
        json.dumps(
            {
                "sessionUpdate": "agent_message_chunk",
                "messageId": "m1",
                "content": {"type": "text", "text": f"{number:011} "},
            }
        ).encode()
        for number in range(20_000)
    ]
    transcript = Transcript()
    transcript.apply(v2.decode_update(lines[0]))
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for line in lines:
            transcript.apply(v2.decode_update(line))
        gc.collect()
        retained = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert retained / len(lines) <= 90  # bytes; 61 of them are the string itself
