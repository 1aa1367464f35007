"""What no model names comes out of the fold and of a replay as it came (U-7)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import CAPTURES
from tests.fold.reference import equal
from tests.fold.sessions import chunk, folded, message, replayed, text, typed, whole
from twofold.fold import Revision

Json = Any
Path_ = tuple[str | int, ...]

FIELD = "futureField"
VALUE: Json = {"kept": [1, True, None, {"x": 1.5}], "text": "not said"}


def places(value: Json, path: Path_ = ()) -> Iterator[Path_]:
    """Give the path of every object in a value, its own first."""
    if isinstance(value, dict):
        yield path
        for name, inner in value.items():
            yield from places(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*path, index))


def with_field(value: Json, path: Path_) -> Json:
    """Give a copy of a value with the field added to the object at a path."""
    copy = json.loads(json.dumps(value))
    inner = copy
    for name in path:
        inner = inner[name]
    inner[FIELD] = VALUE
    return copy


def without_field(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: without_field(inner) for name, inner in value.items() if name != FIELD}
    return [without_field(inner) for inner in value] if isinstance(value, list) else value


def found(value: Json) -> list[Json]:
    """Give every value that the field has somewhere in a value."""
    if isinstance(value, dict):
        inner = [one for name, member in value.items() if name != FIELD for one in found(member)]
        return [value[FIELD], *inner] if FIELD in value else inner
    return [one for member in value for one in found(member)] if isinstance(value, list) else []


def shape(path: Path_) -> Path_:
    return tuple("*" if isinstance(name, int) else name for name in path)


def sessions(capture: Path) -> dict[str, list[Json]]:
    updates: dict[str, list[Json]] = {}
    for record in map(json.loads, capture.read_bytes().splitlines()):
        frame = json.loads(record["line"])
        if isinstance(frame, dict) and frame.get("method") == "session/update":
            updates.setdefault(frame["params"]["sessionId"], []).append(frame["params"]["update"])
    return updates


@pytest.mark.rule("U-7", "U-5")
@pytest.mark.parametrize("capture", sorted(CAPTURES.glob("*-v2-*.jsonl")), ids=lambda path: path.stem)
@pytest.mark.parametrize("revision", list(Revision))
def test_an_unknown_field_at_any_depth_of_any_captured_update_survives_fold_and_replay(
    capture: Path, revision: Revision
) -> None:
    tried = set()
    for updates in sessions(capture).values():
        for number, update in enumerate(updates):
            for path in places(update):
                place = (update["sessionUpdate"], *shape(path))
                if place in tried:  # one of each place in each capture
                    continue
                tried.add(place)
                # Only the prefix that ends with this update is folded: nothing can replace the field after it.
                transcript = folded([*updates[:number], with_field(update, path)], revision)
                plain = folded(updates[: number + 1], revision)
                state = transcript.to_json()
                if path[:1] == ("_meta",) and update["sessionUpdate"].endswith("_chunk"):
                    assert equal(state, plain.to_json()), "the _meta of a chunk is its own"
                else:
                    assert equal(found(state), [VALUE]), place
                    assert equal(without_field(state), plain.to_json()), place
                assert equal(replayed(transcript).to_json(), state), place
                assert [one.text for one in transcript.messages] == [one.text for one in plain.messages], place
    assert len(tried) > 15 or "v1shape" in capture.stem  # that one was refused: it holds no update


@pytest.mark.rule("U-7")
@pytest.mark.parametrize("revision", list(Revision))
def test_an_unknown_field_of_a_message_is_omitted_null_or_a_value(revision: Revision) -> None:
    transcript = folded([whole("m1", future={"a": 1, "b": None}, other=0)], revision)
    for update, expected in (
        (whole("m1"), {"future": {"a": 1, "b": None}, "other": 0}),
        (whole("m1", future={"c": 2}), {"future": {"c": 2}, "other": 0}),  # whole, whatever the revision says of _meta
        (whole("m1", other=None), {"future": {"c": 2}}),
        (whole("m1", content=[text("a")]), {"future": {"c": 2}}),
        (whole("m1", future=None), {}),
    ):
        transcript.apply(typed(update))
        assert transcript.messages[0].extra == expected
        assert transcript.messages[0].to_json().keys() == {"type", "messageId", "content", *expected}


@pytest.mark.rule("U-7")
def test_an_unknown_field_of_a_chunk_is_kept_with_its_message() -> None:
    transcript = folded([chunk("m1", "a", score=1), chunk("m1", "b", score=2, late=True), chunk("m1", "c")])
    assert transcript.messages[0].extra == {"score": 2, "late": True}
    assert message(replayed(transcript))["score"] == 2


@pytest.mark.rule("U-7")
@pytest.mark.parametrize("name", ["type", "extra", "\uffffextra", "\uffffother", "", "withdrawn", "text"])
def test_no_name_is_too_strange_for_an_unknown_field(name: str) -> None:
    updates = [
        {"sessionUpdate": "agent_message", "messageId": "m1", "content": [text("a")], name: VALUE},
        {"sessionUpdate": "tool_call_update", "toolCallId": "t1", name: VALUE},
        {"sessionUpdate": "terminal_update", "terminalId": "r1", name: VALUE},
        {"sessionUpdate": "compaction_update", "compactionId": "c1", "status": "completed", name: VALUE},
        {"sessionUpdate": "session_info_update", name: VALUE},
        {"sessionUpdate": "usage_update", "used": 1, "size": 1, name: VALUE},
        {"sessionUpdate": "agent_dream", name: VALUE},
    ]
    transcript = folded(updates)
    state = transcript.to_json()
    assert json.dumps(state).count('"not said"') == len(updates)
    assert state["messages"][0]["type"] == "agent_message"
    assert transcript.messages[0].extra == {name: VALUE}
    assert equal(replayed(transcript).to_json(), state)


@pytest.mark.rule("U-7")
@pytest.mark.parametrize("value", [0, False, "", [], {}, {"x": None}])
def test_an_unknown_value_that_is_falsy_is_a_value(value: Json) -> None:
    transcript = folded([whole("m1", future=value)])
    assert transcript.messages[0].extra == {"future": value}
    assert equal(message(replayed(transcript))["future"], value)


@pytest.mark.rule("U-7")
def test_unknown_updates_are_kept_in_order_and_are_no_messages() -> None:
    dream = {"sessionUpdate": "agent_message_v3", "messageId": "m1", "content": [text("not said")]}
    transcript = folded([dream, chunk("m1", "a"), dream])
    assert transcript.to_json()["other"] == [dream, dream]
    assert [one.text for one in transcript.messages] == ["a"]
    assert equal(replayed(transcript).to_json(), transcript.to_json())
