"""What is said of a change, and to whom."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from tests.fold.sessions import chunk, folded, text, typed, whole
from twofold.fold import Change, Message, Terminal, Transcript
from twofold.wire import v2


def test_a_chunk_says_which_block_was_appended_and_where() -> None:
    transcript = folded([whole("m1", text("a"))])
    change = transcript.apply(typed(chunk("m1", "b")))
    assert change == Change("message", transcript.messages[0], False, "appended", 1, v2.TextContent(text="b"))
    assert change.kind == "appended"
    assert list(transcript.messages[0].content)[change.index] == change.block


def test_output_says_at_which_byte_it_was_appended() -> None:
    transcript, data = Transcript(), b""
    for piece in ("YWI=", "", "Y2Rl", "Zg=="):
        change = transcript.apply(typed({"sessionUpdate": "terminal_output_chunk", "terminalId": "r1", "data": piece}))
        if change:
            assert isinstance(change.target, Terminal)
            assert change.index == len(data)
            data += change.block
            assert change.target.output == data
    assert data == b"abcdef"


@pytest.mark.parametrize(
    ("updates", "kind", "content", "fields"),
    [
        ([whole("m1")], "created", "kept", ()),
        ([whole("m1", text("a"), _meta={})], "created", "replaced", ("_meta",)),
        ([chunk("m1", "a", future=1)], "created", "appended", ("future",)),
        ([chunk("m1", "a"), chunk("m1", "b")], "appended", "appended", ()),
        ([chunk("m1", "a"), whole("m1", text("b"), x=1)], "replaced", "replaced", ("x",)),
        ([chunk("m1", "a"), whole("m1", content=[], _meta={"k": 1})], "cleared", "cleared", ("_meta",)),
        ([chunk("m1", "a"), whole("m1", text("a"), _meta={"k": 1})], "patched", "kept", ("_meta",)),
        ([chunk("m1", "a"), whole("m1", text("a"), _meta=None)], "nothing", "kept", ()),
    ],
)
def test_a_change_is_one_word_and_what_happened_to_content_and_fields(
    updates: list[Any], kind: str, content: str, fields: tuple[str, ...]
) -> None:
    transcript = folded(updates[:-1])
    change = transcript.apply(typed(updates[-1]))
    assert (change.kind, change.content, change.fields) == (kind, content, fields)
    assert change.meta_changed == ("_meta" in fields)
    assert bool(change) == (kind != "nothing")


def test_subscribers_are_told_of_every_change_in_order_and_never_of_nothing() -> None:
    transcript, heard = Transcript(), list[tuple[str, Change]]()
    transcript.subscribe(lambda change: heard.append(("first", change)))
    transcript.subscribe(lambda change: heard.append(("second", change)))
    changes = [transcript.apply(typed(update)) for update in (chunk("m1", "a"), whole("m1"), chunk("m1", "b"))]
    assert [bool(change) for change in changes] == [True, False, True]
    assert heard == [("first", changes[0]), ("second", changes[0]), ("first", changes[2]), ("second", changes[2])]


def test_a_subscriber_sees_the_state_after_the_change() -> None:
    transcript, seen = Transcript(), list[Any]()
    transcript.subscribe(lambda change: seen.append((transcript.version, change.target.text)))
    for words in ("a", "b"):
        transcript.apply(typed(chunk("m1", words)))
    assert seen == [(1, "a"), (2, "ab")]


def test_a_subscription_ends_once_and_only_itself() -> None:
    transcript, heard = Transcript(), list[Change]()
    callback = heard.append
    end_first = transcript.subscribe(callback)
    end_second = transcript.subscribe(callback)
    transcript.apply(typed(chunk("m1", "a")))
    assert len(heard) == 2
    end_first()
    end_first()
    transcript.apply(typed(chunk("m1", "b")))
    assert len(heard) == 3
    end_second()
    transcript.apply(typed(chunk("m1", "c")))
    assert len(heard) == 3


def test_a_coroutine_function_is_refused_as_a_subscriber() -> None:
    async def draw(_change: Change) -> None: ...

    transcript = Transcript()
    with pytest.raises(TypeError, match="plain function"):
        transcript.subscribe(draw)
    transcript.apply(v2.AgentMessageChunk(message_id="m", content=v2.TextContent(text="x")))


def test_a_subscriber_may_end_its_own_subscription_while_it_is_told() -> None:
    transcript, heard = Transcript(), list[str]()

    def once(_change: Change) -> None:
        heard.append("once")
        end()

    end = transcript.subscribe(once)
    transcript.subscribe(lambda _change: heard.append("always"))
    for words in ("a", "b"):
        transcript.apply(typed(chunk("m1", words)))
    assert heard == ["once", "always", "always"]


def test_what_a_subscriber_raises_goes_on_after_the_others_were_told() -> None:
    transcript, heard = Transcript(), list[str]()

    def fail(name: str) -> Any:
        def callback(_change: Change) -> None:
            heard.append(name)
            raise RuntimeError(name)

        return callback

    transcript.subscribe(lambda _change: heard.append("a"))
    transcript.subscribe(fail("b"))
    transcript.subscribe(lambda _change: heard.append("c"))
    transcript.subscribe(fail("d"))
    transcript.subscribe(lambda _change: heard.append("e"))
    with pytest.raises(RuntimeError, match="d") as caught:
        transcript.apply(typed(chunk("m1", "x")))
    assert str(caught.value.__context__) == "b"
    assert heard == ["a", "b", "c", "d", "e"]
    assert transcript.messages[0].text == "x", "the change was made"
    heard.clear()
    with pytest.raises(RuntimeError):
        transcript.reload().commit()
    assert heard == ["a", "b", "c", "d", "e"]
    assert list(transcript.messages) == []


def test_one_that_subscribed_twice_is_told_twice_even_if_it_fails_the_second_time() -> None:
    transcript, heard = Transcript(), list[str]()

    def fail_at_the_second_call(_change: Change) -> None:
        heard.append("failing")
        if len(heard) == 2:
            raise RuntimeError

    transcript.subscribe(fail_at_the_second_call)
    transcript.subscribe(fail_at_the_second_call)
    transcript.subscribe(lambda _change: heard.append("last"))
    with pytest.raises(RuntimeError):
        transcript.apply(typed(chunk("m1", "x")))
    assert heard == ["failing", "failing", "last"]


def test_a_session_that_keeps_its_changes_is_freed_with_them() -> None:
    class Log:
        def __init__(self, transcript: Transcript) -> None:
            self.changes: list[Change] = []
            transcript.subscribe(self.changes.append)
            transcript.subscribe(self.note)

        def note(self, change: Change) -> None:
            assert change is self.changes[-1]

    transcript = folded([chunk("m1", "a")])
    log = Log(transcript)
    transcript.apply(typed(chunk("m1", "b")))
    transcript.reload().commit()
    transcript.apply(typed(chunk("m1", "c")))
    assert [change.entity for change in log.changes] == ["message", "transcript", "message"]
    gone = weakref.ref(log)
    del log, transcript
    gc.collect()
    assert gone() is None


def test_the_target_of_a_change_is_the_live_thing() -> None:
    transcript = Transcript()
    first = transcript.apply(typed(chunk("m1", "a")))
    transcript.apply(typed(chunk("m1", "b")))
    assert isinstance(first.target, Message)
    assert first.target is transcript.messages[0]
    assert (first.target.text, first.target.version, transcript.version) == ("ab", 2, 2)


def test_a_change_that_replaced_content_holds_what_it_was_replaced_by_whatever_comes_later() -> None:
    transcript = Transcript("s")
    first = transcript.apply(v2.AgentMessage(message_id="m", content=[v2.TextContent(text="one")]))
    transcript.apply(v2.AgentMessageChunk(message_id="m", content=v2.TextContent(text=" more")))
    second = transcript.apply(v2.AgentMessage(message_id="m", content=[v2.TextContent(text="two")]))
    output = transcript.apply(v2.TerminalUpdate(terminal_id="t", output=v2.TerminalOutput(data="aGk=")))
    transcript.apply(v2.TerminalOutputChunk(terminal_id="t", data="IQ=="))
    assert [block.text for block in first.block] == ["one"]
    assert [block.text for block in second.block] == ["two"]
    assert output.block == b"hi"
