"""Captured traffic into a journal and out again."""

import json
from typing import Any

import pytest

from tests.conftest import CAPTURES
from twofold.capture import Folder, Version
from twofold.capture.importing import Importer, exported
from twofold.examples import harbour
from twofold.journal.memory import MemoryJournal
from twofold.wire import same

SESSIONS = sorted(path.stem for path in CAPTURES.glob("*.jsonl") if "init" not in path.stem)


def imported(lines: list[bytes], *, version: Version | None = None, **options: Any) -> MemoryJournal:
    journal = MemoryJournal(**options)
    importer = Importer(journal, name="nameless", version=version)
    list(importer.feed(lines))
    importer.finish()
    return journal


def folded(lines: list[bytes], **options: Any) -> dict[str, Any]:
    folder = Folder(**options)
    folder.feed(lines)
    folder.finish()
    return {str(name): session.transcript.to_json() for name, session in folder.sessions.items()}


@pytest.mark.rule("J-2", "P-5")
@pytest.mark.parametrize("name", SESSIONS)
def test_a_capture_in_a_journal_loads_to_what_the_capture_folds_to(name: str) -> None:
    """But for the tool calls that only a permission request shows, which are no updates of the session."""
    lines = (CAPTURES / f"{name}.jsonl").read_bytes().splitlines()
    journal = imported(lines)
    asked = "request_permission" in str(lines)
    for session, expected in folded(lines, prompts=True).items():
        found = journal.load(session).transcript.to_json()
        if asked:
            found, expected = dict(found, toolCalls=[]), dict(expected, toolCalls=[])
        assert same(found, expected)


@pytest.mark.rule("J-2")
def test_records_of_a_v2_agent_are_the_bytes_as_they_stood_in_the_line() -> None:
    odd = b'{ "sessionUpdate" : "agent_message","messageId":"m", "content":[ {"text":"\\u0061","type":"text"} ]}'
    message = b'{"jsonrpc":"2.0","method":"session/update","params":{"update":' + odd + b',"sessionId":"s"}}'
    params = b'{"sessionId":"s","update":' + odd + b"}"
    record = json.dumps({"dir": "a2c", "line": message.decode()}).encode()
    journal = imported([message, params, record, odd], keep_superseded=True)
    assert [one.raw for one in journal.read("s")] == [odd] * 3
    assert [(one.raw, one.origin) for one in journal.read("nameless")] == [(odd, "agent")]


@pytest.mark.rule("J-2")
def test_records_of_a_v1_agent_are_marked_and_prompts_are_among_them() -> None:
    journal = imported((CAPTURES / "gemini-cli-0.61.0-turns.jsonl").read_bytes().splitlines())
    (session,) = journal.sessions()
    records = list(journal.read(session.session))
    assert {record.origin for record in records} == {"v1"}
    assert sum(b'"user_message"' in record.raw for record in records) == 5


@pytest.mark.rule("J-3")
def test_what_the_example_takes_back_is_not_in_its_records() -> None:
    journal = imported(harbour().splitlines())
    assert b"hk_live" not in b"".join(record.raw for record in journal.read("harbour-7f3a"))


@pytest.mark.rule("P-5")
def test_a_live_session_and_its_reload_make_one_session_in_brackets() -> None:
    live = (CAPTURES / "claude-agent-acp-0.101.0-v2-turns.jsonl").read_bytes().splitlines()
    load = (CAPTURES / "claude-agent-acp-0.101.0-v2-load.jsonl").read_bytes().splitlines()
    journal = imported(live)
    importer = Importer(journal, name="nameless")
    assert list(importer.feed(load)) == []
    importer.finish()
    (session,) = journal.sessions()
    brackets = [record.raw for record in journal.read(session.session) if record.origin == "replay"]
    assert brackets == [b'{"replay":"begin"}', b'{"replay":"end"}']
    assert same({session.session: journal.load(session.session).transcript.to_json()}, folded(load))


@pytest.mark.parametrize("name", ["claude-agent-acp-0.101.0-v2-load", "gemini-cli-0.61.0-load-tools"])
def test_an_export_folds_to_the_same_state_and_imports_to_the_same_records(name: str) -> None:
    journal = imported((CAPTURES / f"{name}.jsonl").read_bytes().splitlines())
    (session,) = journal.sessions()
    lines = list(exported(journal, session.session))
    assert same(folded(lines)[session.session], journal.load(session.session).transcript.to_json())
    again = imported(lines)
    assert [one.raw for one in again.read(session.session)] == [one.raw for one in journal.read(session.session)]


def test_a_bad_line_is_a_problem_and_the_rest_is_stored() -> None:
    journal = MemoryJournal()
    importer = Importer(journal, name="nameless")
    good = b'{"sessionUpdate":"state_update","state":"idle"}'
    problems = list(importer.feed([b"{", good, b'{"sessionUpdate":"agent_message"}']))
    importer.finish()
    assert [problem.line for problem in problems] == [1, 3]
    assert [record.raw for record in journal.read("nameless")] == [good]


def test_a_replay_that_is_never_answered_has_failed() -> None:
    update = '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":%s}}'
    chunk = update % '{"sessionUpdate":"agent_message_chunk","messageId":"m","content":{"type":"text","text":"a"}}'
    resume = (
        '{"jsonrpc":"2.0","id":1,"method":"session/resume","params":{"sessionId":"s","replayFrom":{"type":"start"}}}'
    )
    journal = imported([chunk.encode(), resume.encode(), chunk.encode()])
    assert [message.text for message in journal.load("s").transcript.messages] == ["a"]
