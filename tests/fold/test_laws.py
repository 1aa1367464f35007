"""What holds for every stream of updates: on generated ones, in both revisions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from tests.fold.mirror import Mirror
from tests.fold.reference import Reference, equal
from tests.fold.sessions import contents, folded, replayed, typed
from twofold.fold import Compaction, Message, Plan, Revision, Terminal, ToolCall, Transcript, joined_text, replay
from twofold.wire import same, to_json, v2

Json = Any

revisions = pytest.mark.parametrize("revision", list(Revision))
streams = strategies.streams


def timeline(transcript: Transcript) -> list[Any]:
    """What stands where."""
    return [to_json(one) if isinstance(one, v2.OtherUpdate) else key(one) for one in transcript.timeline]


def key(entity: Message | ToolCall | Terminal | Plan | Compaction) -> tuple[str, str | None]:
    match entity:
        case Message():
            return entity.type, entity.message_id
        case ToolCall():
            return "tool call", entity.tool_call_id
        case Terminal():
            return "terminal", entity.terminal_id
        case Plan():
            return "plan", entity.plan_id
        case Compaction():
            return "compaction", entity.compaction_id


def versions(transcript: Transcript) -> dict[int, int]:
    return {id(one): one.version for one in transcript.timeline if not isinstance(one, v2.OtherUpdate)}


@pytest.mark.rule("F-1", "F-2", "F-3", "F-4", "F-5", "F-6", "F-7", "F-8", "F-9", "F-10", "F-11", "R-1", "U-7", "U-8")
@revisions
@given(stream=streams)
def test_the_state_after_each_update_is_that_of_the_plain_reading_of_the_rules(
    revision: Revision, stream: list[Json]
) -> None:
    reference, transcript = Reference(revision.value), Transcript(revision=revision)
    for update in stream:
        reference.apply(update)
        transcript.apply(typed(update))
        expected, state = reference.to_json(), transcript.to_json()
        assert equal(state, expected)
        assert same(state, expected)
    notices = [{"sessionUpdate": "notice", **notice} for notice in reference.notices]
    assert equal([to_json(notice) for notice in transcript.notices], notices)


@pytest.mark.rule("F-9", "F-12")
@revisions
@given(stream=streams)
def test_versions_grow_by_one_when_something_changed_and_only_then_and_nothing_ever_moves(
    revision: Revision, stream: list[Json]
) -> None:
    transcript = Transcript(revision=revision)
    for update in stream:
        state, version, before = transcript.to_json(), transcript.version, versions(transcript)
        stood, things = timeline(transcript), list(transcript.timeline)
        change = transcript.apply(typed(update))
        assert bool(change) == (not same(state, transcript.to_json()) or update["sessionUpdate"] == "notice")
        assert transcript.version == version + bool(change)
        after = versions(transcript)
        grown = {one: after[one] - before.get(one, 0) for one in after if after[one] != before.get(one)}
        versioned = change.entity in ("message", "tool_call", "terminal", "plan", "compaction")
        assert grown == ({id(change.target): 1} if versioned else {})
        assert timeline(transcript)[: len(stood)] == stood
        assert all(one is other for one, other in zip(things, transcript.timeline, strict=False))
        assert len(transcript.timeline) == len(stood) + (change.created and change.entity != "notice")
        assert list(transcript.messages) == [one for one in transcript.timeline if isinstance(one, Message)]


@revisions
@given(stream=streams)
def test_whoever_knows_only_the_changes_ends_with_the_same_state(revision: Revision, stream: list[Json]) -> None:
    transcript, mirror = Transcript(revision=revision), Mirror()
    transcript.subscribe(mirror)
    for update in stream:
        transcript.apply(typed(update))
        mirror.check(transcript)


@pytest.mark.rule("F-13", "P-1", "P-2", "P-3", "U-7")
@revisions
@given(stream=streams)
def test_a_replay_folds_to_the_same_session(revision: Revision, stream: list[Json]) -> None:
    transcript = folded(stream, revision)
    again = replayed(transcript)
    assert same(again.to_json(), transcript.to_json())
    assert timeline(again) == timeline(transcript)
    assert same([to_json(one) for one in replay(again)], [to_json(one) for one in replay(transcript)])


@pytest.mark.rule("F-13")
@revisions
@given(stream=streams, data=st.data())
def test_a_prefix_and_then_the_rest_is_all_even_if_a_replay_lies_between(
    revision: Revision, stream: list[Json], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(stream)), label="cut")
    whole, parts = folded(stream, revision), folded(stream[:cut], revision)
    resumed = replayed(parts)
    for update in stream[cut:]:
        parts.apply(typed(update))
        resumed.apply(typed(update))
    assert same(parts.to_json(), whole.to_json())
    assert same(resumed.to_json(), whole.to_json())
    assert timeline(resumed) == timeline(parts) == timeline(whole)


@pytest.mark.rule("P-3")
@revisions
@given(stream=streams)
def test_a_compact_replay_says_the_same_text_in_as_few_blocks_as_it_can(revision: Revision, stream: list[Json]) -> None:
    transcript = folded(stream, revision)
    compact = replayed(transcript, compact=True)
    for message, shorter in zip(transcript.messages, compact.messages, strict=True):
        assert (shorter.type, shorter.message_id, shorter.meta) == (message.type, message.message_id, message.meta)
        assert shorter.text == message.text == joined_text(shorter.content)
        assert equal(shorter.to_json()["content"], joined_neighbours(message.to_json()["content"]))
    for compaction, terser in zip(transcript.compactions, compact.compactions, strict=True):
        assert terser.text == compaction.text
    again = replayed(compact, compact=True)
    assert same(again.to_json(), compact.to_json())


def joined_neighbours(blocks: list[Json]) -> list[Json]:
    result: list[Json] = []
    for block in blocks:
        plain = block.keys() == {"type", "text"} and block["type"] == "text"
        if plain and result and result[-1].keys() == block.keys() and result[-1]["type"] == "text":
            whole = (result[-1]["text"] + block["text"]).encode("utf-16-le", "surrogatepass")
            result[-1] = {"type": "text", "text": whole.decode("utf-16-le", "surrogatepass")}
        else:
            result.append(block)
    return result


@pytest.mark.rule("F-12", "F-13")
@revisions
@given(stream=streams, update=strategies.message_updates.filter(lambda one: "_chunk" not in one["sessionUpdate"]))
def test_a_whole_message_said_twice_changes_something_only_once(
    revision: Revision, stream: list[Json], update: Json
) -> None:
    transcript = folded(stream, revision)
    transcript.apply(typed(update))
    state, version = transcript.to_json(), transcript.version
    message = transcript.message(update["sessionUpdate"], update["messageId"])
    assert message is not None
    was = message.version
    change = transcript.apply(typed(update))
    assert not change
    assert change is change.nothing
    assert (transcript.version, message.version) == (version, was)
    assert same(transcript.to_json(), state)


@pytest.mark.rule("F-8")
@revisions
@given(stream=strategies.message_streams, data=st.data())
def test_how_updates_of_different_messages_interleave_makes_no_difference_to_any_of_them(
    revision: Revision, stream: list[Json], data: st.DataObject
) -> None:
    queues: dict[tuple[str, str], list[Json]] = {}
    for update in stream:
        key = (update["sessionUpdate"].removesuffix("_chunk"), update["messageId"])
        queues.setdefault(key, []).append(update)
    shuffled = []
    while queues:
        key = data.draw(st.sampled_from(sorted(queues)), label="next")
        shuffled.append(queues[key].pop(0))
        if not queues[key]:
            del queues[key]
    one, other = folded(stream, revision), folded(shuffled, revision)
    assert contents(one).keys() == contents(other).keys()
    assert equal(contents(one), contents(other))
    for message in one.messages:
        twin = other.message(message.type, message.message_id)
        assert twin is not None
        assert same(twin.to_json(), message.to_json())
        assert twin.text == message.text


@pytest.mark.rule("U-8")
@given(stream=strategies.message_streams)
def test_reading_the_text_now_and_then_makes_no_difference_to_it(stream: list[Json]) -> None:
    read, unread = Transcript(), Transcript()
    for update in stream:
        unread.apply(typed(update))
        message = read.apply(typed(update)).target
        if isinstance(message, Message):
            assert message.text == joined_text(message.content)
    assert [message.text for message in read.messages] == [message.text for message in unread.messages]


@pytest.mark.rule("P-5")
@revisions
@given(stream=streams, history=streams, rest=streams)
def test_after_a_reload_only_what_was_replayed_is_held_and_everything_that_was_given_out_shows_it(
    revision: Revision, stream: list[Json], history: list[Json], rest: list[Json]
) -> None:
    transcript = folded(stream, revision)
    messages, events, version = transcript.messages, transcript.timeline, transcript.version
    reload = transcript.reload()
    for update in history:
        reload.apply(typed(update))
    assert transcript.version == version
    reload.commit()
    alone = folded(history, revision)
    for update in rest:
        reload.apply(typed(update))
        alone.apply(typed(update))
    assert same(transcript.to_json(), alone.to_json())
    assert transcript.version > version
    assert [message.to_json() for message in messages] == [message.to_json() for message in alone.messages]
    assert len(events) == len(alone.timeline)
    for message in messages:
        assert transcript.message(message.type, message.message_id) is message
    for plan in transcript.plans:
        assert isinstance(plan, Plan)
        assert plan.plan_id is None or transcript.plan(plan.plan_id) is plan
