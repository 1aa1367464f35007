"""Each thing in a transcript is one row: what it is, what it says, what it took back."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.view.hostile import acts, transcript_of, transcripts, updates
from twofold.fold import Transcript
from twofold.plaintext import Run, Style
from twofold.view import LiveRows, Piece, Row, row, rows
from twofold.wire import v2

OUTPUT = base64.b64encode(b"\x1b[32m42 passed\x1b[0m\r\n").decode()
PASSED = Piece("code", "42 passed", runs=[Run("42 passed", Style(foreground=2))])


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def the_row(*stream: dict[str, Any]) -> Row:
    (found,) = rows(transcript_of("s", list(stream)))
    return found


@pytest.mark.parametrize(
    ("kind", "role"), [("user_message", "user"), ("agent_message", "agent"), ("agent_thought", "thought")]
)
def test_a_message_is_a_row_of_its_role(kind: str, role: str) -> None:
    found = the_row({"sessionUpdate": kind, "messageId": "m", "content": [text("Fog "), text("lifts.")]})
    assert found == Row(f"{kind}/m", role, body=[Piece("text", "Fog lifts.")])  # type: ignore[arg-type]


def test_a_message_that_took_back_what_it_said_says_only_that() -> None:
    found = the_row(
        {"sessionUpdate": "agent_message", "messageId": "m", "content": [text("secret")]},
        {"sessionUpdate": "agent_message", "messageId": "m", "content": None},
    )
    assert found == Row("agent_message/m", "agent", body=[], withdrawn=True)


def test_a_message_that_said_something_else_first_is_corrected() -> None:
    found = the_row(
        {"sessionUpdate": "agent_message", "messageId": "m", "content": [text("Forty")]},
        {"sessionUpdate": "agent_message", "messageId": "m", "content": [text("Forty-one")]},
    )
    assert (found.corrected, found.withdrawn, found.body) == (True, False, [Piece("text", "Forty-one")])


@pytest.mark.parametrize(
    ("block", "pieces"),
    [
        ({"type": "image", "data": "AAAA", "mimeType": "image/png"}, [Piece("note", "image, image/png, 3 bytes")]),
        ({"type": "image", "data": "AA==", "mimeType": "image/png"}, [Piece("note", "image, image/png, 1 bytes")]),
        ({"type": "audio", "data": "A" * 8000, "mimeType": "a/b"}, [Piece("note", "audio, a/b, 6 kB")]),
        ({"type": "image", "data": "A" * 4_000_000, "mimeType": "a/b"}, [Piece("note", "image, a/b, 3 MB")]),
        ({"type": "resource_link", "name": "n", "uri": "file:///n"}, [Piece("note", "link to n <file:///n>")]),
        (
            {"type": "resource", "resource": {"uri": "file:///n", "text": "all\nof it"}},
            [Piece("note", "resource file:///n"), Piece("code", "all\nof it")],
        ),
        ({"type": "resource", "resource": {"uri": "u", "blob": "AAAA"}}, [Piece("note", "resource u, 3 bytes")]),
        ({"type": "hologram", "text": "said?"}, [Piece("note", "content of unknown type hologram")]),
    ],
)
def test_content_that_is_no_text_is_a_note_of_ours(block: dict[str, Any], pieces: list[Piece]) -> None:
    found = the_row(
        {"sessionUpdate": "agent_message", "messageId": "m", "content": [text("See "), text("this:"), block, text("!")]}
    )
    assert found.body == [Piece("text", "See this:"), *pieces, Piece("text", "!")]
    tool = the_row(
        {
            "sessionUpdate": "tool_call_content_chunk",
            "toolCallId": "t",
            "content": {"type": "content", "content": block},
        }
    )
    assert tool.body == pieces


def test_a_tool_call_shows_where_what_and_how_it_ended() -> None:
    found = the_row(
        {
            "sessionUpdate": "tool_call_update",
            "toolCallId": "t",
            "title": "Edit\nnotes",
            "status": "completed",
            "locations": [{"path": "/a", "line": 3}, {"path": "/b"}],
            "content": [
                {"type": "content", "content": text("Done.")},
                {"type": "diff", "changes": [], "patch": {"format": "git_patch", "text": "-a\n+b\n"}},
                {
                    "type": "diff",
                    "changes": [
                        {"operation": "add", "path": "/new"},
                        {"operation": "move", "oldPath": "/from", "path": "/to"},
                        {"operation": "_swap", "path": "/x"},
                    ],
                },
                {"type": "terminal", "terminalId": "x"},
                {"type": "_card", "text": "said?"},
            ],
        }
    )
    assert found == Row(
        "tool/t",
        "tool",
        "Edit ⏎ notes",
        "completed",
        [
            Piece("note", "/a:3"),
            Piece("note", "/b"),
            Piece("text", "Done."),
            Piece("code", "-a\n+b", "diff"),
            Piece("note", "add /new"),
            Piece("note", "move /from → /to"),
            Piece("note", "change of unknown kind _swap"),
            Piece("note", "a terminal that was not reported"),
            Piece("note", "content of unknown type _card"),
        ],
    )


@pytest.mark.parametrize(
    ("fields", "title"), [({"title": "T", "name": "n"}, "T"), ({"name": "n"}, "n"), ({}, "without a title")]
)
def test_a_tool_call_is_called_by_the_best_name_it_has(fields: dict[str, str], title: str) -> None:
    found = the_row({"sessionUpdate": "tool_call_update", "toolCallId": "t", **fields})
    assert (found.title, found.status) == (title, "pending")


TERMINAL: list[dict[str, Any]] = [
    {"sessionUpdate": "terminal_update", "terminalId": "x", "command": "pytest", "exitStatus": {"exitCode": 0}},
    {"sessionUpdate": "terminal_output_chunk", "terminalId": "x", "data": OUTPUT},
]


def test_a_terminal_that_a_tool_call_shows_is_part_of_its_row() -> None:
    call = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "t",
        "content": [{"type": "terminal", "terminalId": "x"}],
    }
    found = the_row(*TERMINAL, call)
    assert found.kind == "tool"
    assert found.body == [Piece("note", "$ pytest"), PASSED, Piece("note", "exit 0")]


def test_a_terminal_by_itself_is_a_row() -> None:
    assert the_row(*TERMINAL) == Row("terminal/x", "terminal", "pytest", "exit 0", [PASSED])


@pytest.mark.parametrize(
    ("status", "words"),
    [({"exitCode": 3}, "exit 3"), ({"signal": "SIG\nKILL"}, "ended by SIG ⏎ KILL"), ({}, "ended"), (None, "")],
)
def test_how_a_terminal_ended(status: dict[str, Any] | None, words: str) -> None:
    assert the_row({"sessionUpdate": "terminal_update", "terminalId": "x", "exitStatus": status}).status == words


def test_a_plan_is_a_list_of_its_steps() -> None:
    steps = [
        ("one", "completed"),
        ("two", "in_progress"),
        ("three", "pending"),
        ("four", "cancelled"),
        ("fi\nve", "_later"),
    ]
    entries = [{"content": content, "priority": "low", "status": status} for content, status in steps]
    found = the_row({"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": "p", "entries": entries}})
    assert found.body == [Piece("text", "- [x] one\n- [~] two\n- [ ] three\n- [-] four\n- [ ] fi ⏎ ve")]
    assert the_row({"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": "p", "entries": []}}).body == []
    unknown = the_row({"sessionUpdate": "plan_update", "plan": {"type": "_graph", "planId": "p", "text": "said?"}})
    assert unknown.body == [Piece("note", "plan of unknown kind _graph")]


def test_a_compaction_shows_its_summary_and_its_fault() -> None:
    found = the_row(
        {
            "sessionUpdate": "compaction_update",
            "compactionId": "c",
            "status": "failed",
            "summary": [text("So far")],
            "error": "too long",
        }
    )
    assert found.body == [Piece("text", "So far"), Piece("note", "too long")]
    assert (found.kind, found.status) == ("compaction", "failed")


@pytest.mark.rule("U-7")
def test_an_update_of_an_unknown_kind_is_named_and_not_quoted() -> None:
    found = the_row({"sessionUpdate": "_musing", "messageId": "m", "content": [text("said?")]})
    assert found == Row("unknown#0", "unknown", "_musing")


@pytest.mark.rule("F-9")
def test_rows_come_in_the_order_of_first_sight() -> None:
    stream: list[dict[str, Any]] = [
        {"sessionUpdate": "agent_message_chunk", "messageId": "b", "content": text("b")},
        {"sessionUpdate": "tool_call_update", "toolCallId": "t"},
        {"sessionUpdate": "agent_message", "messageId": "a", "content": [text("a")]},
        {"sessionUpdate": "agent_message", "messageId": "b", "content": [text("b again")]},
    ]
    assert [one.key for one in rows(transcript_of("s", stream))] == ["agent_message/b", "tool/t", "agent_message/a"]


@given(transcripts)
def test_a_row_is_safe_to_show_and_its_key_its_own(transcript: Transcript) -> None:
    found = list(rows(transcript))
    keys = [one.key for one in found]
    assert len(set(keys)) == len(keys)
    for one in found:
        assert not any(map(acts, one.title + one.status + "".join(piece.text for piece in one.body)))
        assert "\n" not in one.title + one.status
        assert all("\n" not in piece.text for piece in one.body if piece.kind == "note")
        assert not (one.withdrawn and one.body)


@given(transcripts)
def test_one_thing_alone_gives_the_row_that_it_has_among_all(transcript: Transcript) -> None:
    by_key = {one.key: one for one in rows(transcript)}
    for number, entity in enumerate(transcript.timeline):
        one = row(entity, transcript, number)
        assert by_key.get(one.key, one) == one


@given(st.lists(updates, max_size=12), st.integers(0, 12))
def test_rows_kept_from_change_to_change_are_those_made_anew(stream: list[dict[str, Any]], reloaded: int) -> None:
    transcript = Transcript("s")
    live = LiveRows(transcript)
    for number, update in enumerate(stream):
        if number == reloaded:
            reload = transcript.reload()
            reload.apply(v2.read_update(update))
            reload.commit()
        before = live.now()
        if not transcript.apply(v2.read_update(update)):
            assert all(one is two for one, two in zip(before, live.now(), strict=True))
        assert live.now() == list(rows(transcript))


def test_a_row_in_which_nothing_changed_is_the_same_object() -> None:
    call = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": "t",
        "content": [{"type": "terminal", "terminalId": "x"}],
    }
    said = {"sessionUpdate": "agent_message", "messageId": "m", "content": [text("Fog lifts.")]}
    transcript = transcript_of("s", [said, call])
    live = LiveRows(transcript)
    message, tool = live.now()
    transcript.apply(v2.read_update(TERMINAL[1]))
    assert live.now()[0] is message
    assert live.now()[1] is not tool
    assert live.now()[1].body == [PASSED]
