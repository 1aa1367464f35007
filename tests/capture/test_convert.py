"""A captured stream in the other version, in the envelopes that it came in."""

import json
from typing import Any

import pytest

from tests.conftest import CAPTURES
from twofold.capture import Converter, Folder, Lost, Problem, Version
from twofold.convert import CORRECTED
from twofold.examples import harbour
from twofold.exceptions import LineTooLong


def convert(to: Version, *lines: Any, **options: Any) -> tuple[list[Any], list[Lost | Problem]]:
    converter = Converter(to, **options)
    raw = [line if isinstance(line, bytes | LineTooLong) else json.dumps(line).encode() for line in lines]
    results = [*converter.feed(raw), *converter.finish()]
    return [json.loads(one) for one in results if isinstance(one, bytes)], [
        one for one in results if not isinstance(one, bytes)
    ]


WHOLE = {
    "sessionUpdate": "agent_message",
    "messageId": "m",
    "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
}
CHUNKS = [{"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": block} for block in WHOLE["content"]]


def params(update: Any) -> dict[str, Any]:
    return {"sessionId": "s", "update": update, "_meta": {"k": 1}, "unknown": 2}


def message(update: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "session/update", "params": params(update), "extra": 3}


def record(update: Any) -> dict[str, Any]:
    return {"ts": 1.5, "dir": "a2c", "line": json.dumps(message(update), separators=(",", ":"))}


def trace(update: Any) -> dict[str, Any]:
    return {
        "type": "notification",
        "ts": 1,
        "from": "Agent",
        "to": "Client",
        "method": "session/update",
        "params": params(update),
    }


@pytest.mark.parametrize("envelope", [lambda update: update, params, message, record, trace])
def test_each_converted_update_stands_in_the_envelope_it_came_in(envelope: Any) -> None:
    sent, said = convert(1, envelope(WHOLE))
    assert list(map(parsed, sent)) == [parsed(envelope(chunk)) for chunk in CHUNKS]
    assert said == []


def parsed(line: Any) -> Any:
    return {**line, "line": json.loads(line["line"])} if "line" in line else line


def test_entries_of_a_batch_stay_in_one_batch() -> None:
    sent, said = convert(1, [message(WHOLE), {"jsonrpc": "2.0", "id": 1, "result": {}}, message(CHUNKS[0])])
    assert sent == [[*map(message, CHUNKS), message(CHUNKS[0])]]
    assert said == []


def test_an_unchanged_line_is_passed_on_byte_by_byte() -> None:
    line = b'{ "sessionUpdate":"agent_message_chunk",  "messageId":"m", "content":{"text":"\\u0061","type":"text"} }'
    assert list(Converter(1).feed([line])) == [line]


def test_losses_and_problems_name_their_line_and_the_rest_goes_on() -> None:
    sent, said = convert(1, CHUNKS[0], {**WHOLE, "content": None}, b"{", LineTooLong(limit=1, length=2), CHUNKS[1])
    assert sent == CHUNKS
    assert [(type(one).__name__, one.line) for one in said] == [("Lost", 2), ("Problem", 3), ("Problem", 4)]


def test_lines_without_an_update_are_left_out() -> None:
    assert convert(1, {"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {}}, {"x": 1}) == ([], [])


def test_updates_that_are_in_the_asked_version_pass() -> None:
    assert convert(2, WHOLE, version=2) == ([WHOLE], [])
    assert convert(1, CHUNKS[0], version=1) == ([CHUNKS[0]], [])


@pytest.mark.rule("W-2")
def test_to_v2_untagged_chunks_fail_strictly_and_get_ids_otherwise() -> None:
    untagged = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "a"}}
    sent, said = convert(2, untagged)
    assert sent == []
    assert len(said) == 1
    sent, said = convert(2, untagged, untagged, policy="mark")
    assert said == []
    assert sent[0]["messageId"] == sent[1]["messageId"]


def test_to_v2_prompts_and_answers_become_updates_in_the_envelope_of_their_request() -> None:
    prompt = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "session/prompt",
        "params": {"sessionId": "s", "prompt": [{"type": "text", "text": "Hi"}]},
    }
    answer = {"jsonrpc": "2.0", "id": 1, "result": {"stopReason": "end_turn"}}
    in_records = [{"dir": dir_, "line": json.dumps(one)} for dir_, one in (("c2a", prompt), ("a2c", answer))]
    for stream in ([prompt, answer], in_records):
        sent, said = convert(2, *stream, policy="mark")
        inner = [json.loads(one["line"]) if "line" in one else one for one in sent]
        assert [one["params"]["update"]["sessionUpdate"] for one in inner] == [
            "user_message",
            "state_update",
            "state_update",
        ]
        assert inner[0]["params"]["update"]["content"] == [{"type": "text", "text": "Hi"}]
        assert inner[2]["params"]["update"]["stopReason"] == "end_turn"
        assert all(one["params"]["sessionId"] == "s" for one in inner)
        assert said == []


def test_each_session_has_a_memory_of_its_own_and_a_replay_begins_a_new_one() -> None:
    resume = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "session/resume",
        "params": {"sessionId": "s", "replayFrom": {"type": "start"}},
    }
    other = {**message(WHOLE), "params": {**params(WHOLE), "sessionId": "t"}}
    sent, said = convert(1, message(WHOLE), other, resume, message(WHOLE))
    assert len(sent) == 6
    assert said == []


def test_waiting_tool_content_goes_out_at_the_end() -> None:
    def more(words: str) -> dict[str, Any]:
        item = {"type": "content", "content": {"type": "text", "text": words}}
        return {"sessionUpdate": "tool_call_content_chunk", "toolCallId": "t", "content": item}

    created = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "title": "T"}
    sent, _ = convert(1, created, more("a" * 50), more("b"))
    assert [item["content"]["text"] for item in sent[-1]["content"]] == ["a" * 50, "b"]


@pytest.mark.rule("V-9")
def test_the_example_session_shows_a_v1_reader_its_final_text_and_two_marks() -> None:
    sent, _ = convert(1, *harbour().splitlines(), policy="mark")
    v1 = Folder(version=1)
    v1.feed([json.dumps(one).encode() for one in sent])
    shown = [one.text for one in v1.sessions["harbour-7f3a"].transcript.messages]
    v2 = Folder()
    v2.feed(harbour().splitlines())
    held = [one.text for one in v2.sessions["harbour-7f3a"].transcript.messages if one.text]
    assert [words for words in held if words not in shown] == []
    assert CORRECTED in shown
    assert sum(words.startswith("*An earlier message was") for words in shown) == 2


@pytest.mark.rule("W-1", "W-2", "W-3")
@pytest.mark.parametrize(
    "name",
    sorted(path.stem for path in CAPTURES.glob("*.jsonl") if "-v2-" not in path.stem and "init" not in path.stem),
)
def test_a_v1_capture_converted_to_v2_folds_to_what_it_folds_to_itself(name: str) -> None:
    lines = (CAPTURES / f"{name}.jsonl").read_bytes().splitlines()
    sent, _ = convert(2, *lines, policy="mark")
    v2, v1 = Folder(version=2), Folder(prompts=True)
    v2.feed([json.dumps(one).encode() for one in sent])
    v1.feed(lines)
    v1.finish()

    def texts(folder: Folder) -> dict[str | None, list[tuple[str, str]]]:
        return {
            session_id: [(one.type, one.text) for one in session.transcript.messages]
            for session_id, session in folder.sessions.items()
        }

    assert {key: value for key, value in texts(v1).items() if value} == {
        key: value for key, value in texts(v2).items() if value
    }
