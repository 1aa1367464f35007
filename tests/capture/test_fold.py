"""Cases, and replays in captures (P-5)."""

import hashlib
import json
from typing import Any

import pytest

from twofold.capture import Folder, Version
from twofold.fold import Revision
from twofold.wire import same, to_json, v2


def fold(lines: list[bytes], version: Version | None = None, **options: Any) -> Folder:
    folder = Folder(version=version, **options)
    folder.feed(lines)
    folder.finish()
    return folder


def as_case(folder: Folder, *, made_ids: bool = False) -> dict[str, Any]:
    """What a case compares: kinds, ids, content and meta, in order of first sight."""
    sessions = {}
    for session_id, session in folder.sessions.items():
        sessions[str(session_id)] = [
            {
                "kind": {"user_message": "user", "agent_message": "agent", "agent_thought": "thought"}[message.type],
                "messageId": None if made_ids and message.message_id.startswith("untagged-") else message.message_id,
                "content": [to_json(block) for block in message.content],
                "meta": message.meta or None,
            }
            for message in session.transcript.messages
        ]
    return sessions


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("01-patch-without-content", 2),
        ("04-thought-and-answer-share-id", 2),
        ("06-clear-then-stream-again", 2),
        ("10-v1-late-tail-and-back-to-back", 1),
        ("17-newer-update-kinds", 2),
        ("21-replay-whole-onto-live", 2),
    ],
)
@pytest.mark.parametrize("revision", list(Revision))
def test_a_reported_case_folds_to_the_right_outcome(case: Any, name: str, version: Version, revision: Revision) -> None:
    lines, expected = case(name)
    folder = fold(lines, version, revision=revision)
    assert folder.problems == []
    assert same(as_case(folder), expected["sessions"])


def test_text_that_comes_again_under_an_id_is_kept_as_a_message_of_its_own(case: Any) -> None:
    lines, expected = case("03-v1-untagged-then-tagged-copy")
    assert same(as_case(fold(lines, 1), made_ids=True), expected["oneOf"][0]["sessions"])


@pytest.mark.rule("U-7")
def test_newer_kinds_are_kept_and_come_out_again_equal(case: Any) -> None:
    lines, _ = case("17-newer-update-kinds")
    updates = [json.loads(line)["params"]["update"] for line in lines]
    for update in updates:
        assert same(json.loads(v2.encode(v2.read_update(update))), update)
    transcript = fold(lines).sessions["s-1"].transcript
    assert same([to_json(update) for update in transcript.other], updates[1:3])
    assert "not for display" not in "".join(message.text for message in transcript.messages)


def test_wide_lines_are_read_whole(case: Any) -> None:
    lines, expected = case("19-wide-lines")
    folder = fold(lines)
    text, image = folder.sessions["s-1"].transcript.messages
    wanted_text, wanted_image = expected["sessionsByDigest"]["s-1"]
    assert len(text.content) == wanted_text["blocks"]
    assert len(text.text) == wanted_text["joinedTextLength"]
    assert hashlib.sha256(text.text.encode()).hexdigest() == wanted_text["joinedTextSha256"]
    (block,) = image.content
    assert isinstance(block, v2.ImageContent)
    assert hashlib.sha256(block.data.encode()).hexdigest() == wanted_image["imageDataSha256"]


@pytest.mark.rule("U-8")
def test_half_characters_join_in_the_text_and_stay_halves_in_the_blocks(case: Any) -> None:
    lines, expected = case("28-journal-half-characters")
    folder = fold(lines)
    assert folder.problems == []
    first, second = folder.sessions["s-1"].transcript.messages
    assert first.text == expected["sensible"]["joinedForDisplay"]
    assert [v2.encode(block).decode() for block in first.content] == expected["sensible"]["messageE1BlocksAsJsonText"]
    assert same(as_case(folder)["s-1"][1], expected["messageE2"])
    assert second.text == "one\u2028two\u0085three tab\tnul\u0000 end"


def test_a_torn_last_line_is_reported_and_the_rest_is_folded(case: Any) -> None:
    lines, expected = case("25-journal-torn-tail")
    folder = fold(lines)
    assert [problem.line for problem in folder.problems] == [4]
    assert same(as_case(folder), expected["onOpen"]["sessions"])


def update(text: str, message_id: str = "m", session_id: str = "s") -> bytes:
    chunk = {"sessionUpdate": "agent_message_chunk", "messageId": message_id, "content": {"type": "text", "text": text}}
    return line({"method": "session/update", "params": {"sessionId": session_id, "update": chunk}})


def line(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


RESUME = line(
    {"id": 1, "method": "session/resume", "params": {"sessionId": "s", "cwd": "/", "replayFrom": {"type": "start"}}}
)
DONE = line({"id": 1, "result": {}})
FAILED = line({"id": 1, "error": {"code": -32602, "message": "no"}})


def text(folder: Folder) -> list[str]:
    return [message.text for message in folder.sessions["s"].transcript.messages]


@pytest.mark.rule("P-5")
def test_chunks_replayed_under_known_ids_double_nothing() -> None:
    assert text(fold([update("Fog "), update("lifts."), RESUME, update("Fog lifts."), DONE, update(" Sail.")])) == [
        "Fog lifts. Sail."
    ]


@pytest.mark.rule("P-5")
def test_a_failed_resume_keeps_what_was_held() -> None:
    assert text(fold([update("Fog"), RESUME, update("Something else"), FAILED, update(" lifts.")])) == ["Fog lifts."]


@pytest.mark.rule("P-5")
def test_what_the_agent_no_longer_holds_is_not_in_the_session_after_a_replay() -> None:
    assert text(fold([update("gone", "old"), RESUME, update("kept", "new"), DONE])) == ["kept"]


@pytest.mark.rule("P-5")
def test_a_replay_that_is_never_answered_is_reported_and_does_not_take_over() -> None:
    folder = fold([update("held"), RESUME, update("replayed")])
    assert text(folder) == ["held"]
    assert [(problem.line, "never answered" in problem.message) for problem in folder.problems] == [(2, True)]


@pytest.mark.rule("P-5")
def test_an_unanswered_replay_is_all_there_is_when_nothing_else_is_held() -> None:
    folder = fold([RESUME, update("replayed")])
    assert text(folder) == ["replayed"]
    assert folder.problems == []


@pytest.mark.rule("P-4")
@pytest.mark.parametrize("cursor", [{}, {"replayFrom": None}, {"replayFrom": {"type": "_acme/since"}}])
def test_without_the_start_cursor_a_resume_is_no_replay(cursor: dict[str, Any]) -> None:
    resume = line({"id": 1, "method": "session/resume", "params": {"sessionId": "s", "cwd": "/", **cursor}})
    assert text(fold([update("Fog"), resume, update(" lifts."), DONE])) == ["Fog lifts."]


@pytest.mark.rule("P-5")
def test_other_sessions_go_on_during_a_replay() -> None:
    folder = fold([update("a"), update("x", session_id="t"), RESUME, update("y", session_id="t"), update("b"), DONE])
    assert text(folder) == ["b"]
    assert [message.text for message in folder.sessions["t"].transcript.messages] == ["xy"]


def test_sessions_that_were_only_asked_for_are_not_listed() -> None:
    assert fold([RESUME, FAILED]).sessions == {}


def test_terminal_output_that_is_no_base64_is_refused_with_its_path() -> None:
    chunk = {"sessionUpdate": "terminal_output_chunk", "terminalId": "x", "data": "###"}
    folder = fold([line({"method": "session/update", "params": {"sessionId": "s", "update": chunk}})])
    assert [(problem.path, problem.message) for problem in folder.problems] == [
        ("$.params.update.data", "expected base64, found a string that is none")
    ]
    assert folder.sessions == {}


def test_what_v2_has_no_place_for_stays_in_the_timeline() -> None:
    mode = {"sessionUpdate": "current_mode_update", "currentModeId": "plan", "_meta": {"a": True}}
    folder = fold([json.dumps(mode).encode()], 1)
    (session,) = folder.sessions.values()
    assert [to_json(one) for one in session.transcript.other] == [mode]
    assert [loss.kind for loss in session.losses] == ["current_mode_update"]


def test_prompts_of_a_v1_client_can_be_shown() -> None:
    prompt = line(
        {"id": 5, "method": "session/prompt", "params": {"sessionId": "s", "prompt": [{"type": "text", "text": "Hi"}]}}
    )
    lines = [prompt, update("Hello.")]
    assert text(fold(lines, 1, prompts=True)) == ["Hi", "Hello."]
    assert text(fold(lines, 1)) == ["Hello."]
    assert text(fold(lines, 2, prompts=True)) == ["Hello."], "a v2 agent reports the user's messages itself"


def test_changes_are_told_with_their_session_and_line() -> None:
    told: list[tuple[Any, str, int]] = []
    folder = Folder(
        on_change=lambda session, change, number: told.append((session.transcript.session_id, change.kind, number))
    )
    folder.feed([update("a"), b"bad", update("b")])
    assert told == [("s", "created", 1), ("s", "appended", 3)]
