"""`twofold fold`: every envelope, every format, and lines that are wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.lines import chunk, line, text, whole, write
from tests.cli.program import HARBOUR, ROOT, call, run
from twofold.capture import Folder
from twofold.fold import Transcript
from twofold.view import markdown
from twofold.view import text as as_text

CAPTURES = sorted((ROOT / "tests/captures").glob("*.jsonl"))
CASES = {path.parent: json.loads(path.read_text())["expect"] for path in (ROOT / "tests/cases").glob("*/expect.json")}
FOLDED = sorted(case for case, expect in CASES.items() if isinstance(expect.get("sessions"), dict))
Capture = pytest.CaptureFixture[bytes]


def folded(*paths: Path, **options: Any) -> list[Transcript]:
    folder = Folder(**options)
    for path in paths:
        folder.begin()
        folder.feed(path.read_bytes().split(b"\n"))
    folder.finish()
    return [session.transcript for session in folder.sessions.values()]


def of(value: Any, session: str = "s-1") -> Any:
    return next(one for one in value["sessions"] if one["sessionId"] == session)


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_a_capture_is_printed_as_the_library_folds_it(path: Path, capsysbinary: Capture) -> None:
    expected = 1 if path.stem.startswith(("fast-agent-0.10.48-claims", "fast-agent-0.10.48-init")) else 0
    found = call(capsysbinary, "fold", "--format", "json", path)
    value = json.loads(found.out)
    assert found.status == expected
    assert value["sessions"] == [one.to_json() for one in folded(path)]
    assert sum(value["lines"].values()) == len(path.read_bytes().splitlines())
    with_prompts = folded(path, prompts=True)
    assert call(capsysbinary, "fold", path).out == "\n".join(map(as_text, with_prompts))
    assert call(capsysbinary, "fold", "--format", "markdown", path).out == "\n".join(map(markdown, with_prompts))


@pytest.mark.parametrize("path", FOLDED, ids=lambda path: path.name)
def test_a_case_gives_the_messages_that_it_expects(path: Path, capsysbinary: Capture) -> None:
    found = call(capsysbinary, "fold", "--format", "json", path / "input.jsonl")
    value = json.loads(found.out)
    for session, messages in CASES[path]["sessions"].items():
        got = of(value, session)["messages"]
        roles = {"user": "user_message", "agent": "agent_message", "thought": "agent_thought"}
        assert [(one["type"], one["messageId"]) for one in got] == [
            (roles[message["kind"]], message["messageId"]) for message in messages
        ]
        for one, message in zip(got, messages, strict=True):
            if "content" in message:
                assert one["content"] == message["content"]
            if "meta" in message:
                assert one.get("_meta") == message["meta"]


def test_the_json_is_one_object_with_sessions_lines_and_errors(tmp_path: Path, capsysbinary: Capture) -> None:
    path = write(
        tmp_path / "capture.jsonl",
        line({**chunk("Fog "), "future": 1}),
        b'{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s-1","prompt":[]}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}',
        b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s-1"}}',
        b'{"some":"thing"}',
        b"",
        line({**chunk("lifts."), "messageId": 7}),
        line({**whole(message="n"), "_meta": {"k": True}}),
        line({"sessionUpdate": "_musing", "x": [1]}),
        json.dumps({**chunk("bare")}).encode(),
    )
    found = call(capsysbinary, "fold", "--format", "json", path)
    assert found.status == 1
    assert found.out.count("\n") == 1
    assert json.loads(found.out) == {
        "sessions": [
            {
                "sessionId": "s-1",
                "messages": [
                    {"type": "agent_message", "messageId": "m", "content": [text("Fog ")], "future": 1},
                    {"type": "agent_message", "messageId": "n", "content": [], "_meta": {"k": True}},
                ],
                "toolCalls": [],
                "terminals": [],
                "plans": [],
                "other": [{"sessionUpdate": "_musing", "x": [1]}],
            },
            {
                "sessionId": None,
                "messages": [{"type": "agent_message", "messageId": "m", "content": [text("bare")]}],
                "toolCalls": [],
                "terminals": [],
                "plans": [],
                "other": [],
            },
        ],
        "lines": {"updates": 5, "requests": 1, "responses": 1, "notifications": 1, "other": 1},
        "errors": [{"line": 7, "path": "$.params.update.messageId", "message": "expected a string, found an integer"}],
    }
    assert found.err == f"{path}:7: $.params.update.messageId: expected a string, found an integer\n"


def test_a_bad_line_stops_nothing(tmp_path: Path, capsysbinary: Capture) -> None:
    path = write(
        tmp_path / "capture.jsonl", b"no json", line(chunk("Fog ")), b'{"half":', b"[]", b"\xff", line(chunk("lifts."))
    )
    for form in ("text", "markdown"):
        found = call(capsysbinary, "fold", "--format", form, path)
        assert found.status == 1
        assert "Fog lifts." in found.out
        assert [one.split(":")[1] for one in found.err.splitlines()] == ["1", "3", "4", "5"]


@pytest.mark.rule("J-7")
def test_what_an_agent_said_is_in_no_report(tmp_path: Path, capsysbinary: Capture) -> None:
    bad = [{**chunk("SECRET"), "messageId": {"SECRET": "SECRET"}}, {**whole(), "content": ["SECRET"]}]
    path = write(tmp_path / "capture.jsonl", *map(line, bad), b'"SECRET', b'{"jsonrpc":"2.0","SECRET":1}', b'"SECRET"')
    found = call(capsysbinary, "fold", "--format", "json", path)
    assert len(json.loads(found.out)["errors"]) == 5
    assert "SECRET" not in found.err + found.out.replace(str(path), "")


def test_a_report_is_one_line_whatever_the_file_and_its_fields_are_called(tmp_path: Path) -> None:
    path = tmp_path / "\x1b[31mevil\nname:1: fine\u202e.jsonl"
    found = run("fold", write(path, line({"sessionUpdate": "agent_message", "messageId": 1})))
    assert found.returncode == 1
    (report,) = found.stderr.decode().splitlines()
    assert "\x1b" not in report
    assert "\u202e" not in report


def test_several_files_are_one_capture_and_errors_name_theirs(tmp_path: Path, capsysbinary: Capture) -> None:
    one = write(tmp_path / "1.jsonl", line(chunk("Fog ")), b"bad")
    two = write(tmp_path / "2.jsonl", line(chunk("lifts.")), line(chunk("Sail.", "n"), "s-2"))
    found = call(capsysbinary, "fold", one, "--format", "json", two)
    value = json.loads(found.out)
    assert [one["text"] for one in of(value)["messages"][0]["content"]] == ["Fog ", "lifts."]
    assert of(value, "s-2")["messages"][0]["content"] == [text("Sail.")]
    assert [(error["file"], error["line"]) for error in value["errors"]] == [(str(one), 2)]
    assert value["lines"]["updates"] == 3


def test_only_the_session_asked_for_is_printed(tmp_path: Path, capsysbinary: Capture) -> None:
    path = write(tmp_path / "c.jsonl", line(chunk("one"), "s-1"), line(chunk("two"), "s-2"))
    found = call(capsysbinary, "fold", "--session", "s-2", path)
    assert (found.status, found.out) == (0, "session s-2\n\nagent\n  two\n")
    missing = call(capsysbinary, "fold", "--session", "s-3", "--format", "json", path)
    assert missing.status == 1
    assert missing.err == "twofold: the session asked for is not in the input; it has: s-1, s-2\n"
    value = json.loads(missing.out)
    assert (value["sessions"], value["lines"]["updates"], len(value["errors"])) == ([], 2, 1)


@pytest.mark.rule("R-1")
def test_the_revision_says_how_a_patch_meta_is_taken(tmp_path: Path, capsysbinary: Capture) -> None:
    patches = [{"a": 1}, {"b": 2}]
    path = write(tmp_path / "c.jsonl", *(line({**whole("x"), "_meta": meta}) for meta in patches))
    for options, meta in (
        ((), {"b": 2}),
        (("--revision", "rfd"), {"b": 2}),
        (("--revision", "preview"), {"a": 1, "b": 2}),
    ):
        value = json.loads(call(capsysbinary, "fold", "--format", "json", *options, path).out)
        assert of(value)["messages"][0]["_meta"] == meta


@pytest.mark.rule("U-6")
def test_lenient_applies_what_is_good_and_reports_the_rest(tmp_path: Path, capsysbinary: Capture) -> None:
    path = write(
        tmp_path / "c.jsonl", line({**whole("good"), "content": [text("good"), {"type": "text"}, text("too")]})
    )
    strict, lenient = (call(capsysbinary, "fold", *options, path) for options in ((), ("--lenient",)))
    assert (strict.status, lenient.status) == (1, 1)
    assert "good" not in strict.out
    assert "  goodtoo\n" in lenient.out
    assert ":1: $.params.update.content[1].text: " in lenient.err


def test_v1_is_recognised_or_named(tmp_path: Path, capsysbinary: Capture) -> None:
    untagged = {"sessionUpdate": "agent_message_chunk", "content": text("Lamp lit.")}
    path = write(tmp_path / "c.jsonl", line(untagged))
    guessed = call(capsysbinary, "fold", path)
    assert guessed.status == 1
    assert "is this v1?" in guessed.err
    named = call(capsysbinary, "fold", "--from", "v1", path)
    assert (named.status, named.out) == (0, "session s-1\n\nagent\n  Lamp lit.\n")


def test_what_a_v1_client_asked_is_shown_to_people_and_not_to_programs(capsysbinary: Capture) -> None:
    path = ROOT / "tests/captures/gemini-cli-0.61.0-turns.jsonl"

    def users(*options: str) -> int:
        found = call(capsysbinary, "fold", *options, path)
        return found.out.count("\nuser\n") + found.out.count("\n## User\n") + found.out.count('"user_message"')

    assert users() == users("--format", "markdown") == users("--prompts", "--format", "json") == 5
    assert users("--no-prompts") == users("--format", "json") == 0


@pytest.mark.rule("U-7")
def test_unknown_things_are_never_shown_as_if_they_were_said(tmp_path: Path, capsysbinary: Capture) -> None:
    card = {"type": "_card", "text": "NOT SAID", "content": [text("NOT SAID")]}
    path = write(
        tmp_path / "c.jsonl",
        line({"sessionUpdate": "_musing", "messageId": "m", "content": text("NOT SAID")}),
        line({**whole("said"), "content": [text("said"), card], "note": "NOT SAID"}),
        line({**chunk("more"), "extra": "NOT SAID"}),
    )
    for form in ("text", "markdown"):
        found = call(capsysbinary, "fold", "--format", form, path)
        assert "said" in found.out
        assert "NOT SAID" not in found.out
    assert call(capsysbinary, "fold", "--format", "json", path).out.count("NOT SAID") == 5


def test_what_was_cleared_is_shown_as_withdrawn_and_is_nowhere(tmp_path: Path, capsysbinary: Capture) -> None:
    path = write(tmp_path / "c.jsonl", line(chunk("hk_live")), line(whole()))
    for form in ("text", "markdown", "json"):
        found = call(capsysbinary, "fold", "--format", form, path)
        assert "hk_live" not in found.out
        assert form == "json" or "withdrawn by the agent" in found.out


@pytest.mark.parametrize("form", ["text", "markdown", "json"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("last", [True, False], ids=["ended", "unended"])
def test_line_ends_make_no_difference(tmp_path: Path, capsysbinary: Capture, form: str, end: bytes, last: bool) -> None:
    lines = [line(chunk("Fog ")), line(chunk("lifts."))]
    path = write(tmp_path / "c.jsonl", *lines, end=end)
    if not last:
        path.write_bytes(path.read_bytes().removesuffix(end))
    plain = write(tmp_path / "plain.jsonl", *lines)
    found, expected = (call(capsysbinary, "fold", "--format", form, one) for one in (path, plain))
    assert (found.status, found.err) == (0, "")
    assert found.out == expected.out


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("claude-agent-acp-0.101.0-init-ask-v2", "2 requests, 2 responses, 2 notifications"),
        ("", "the input is empty"),
    ],
)
def test_an_input_without_updates_is_no_fault_but_said(
    name: str, found: str, tmp_path: Path, capsysbinary: Capture
) -> None:
    path = ROOT / f"tests/captures/{name}.jsonl" if name else write(tmp_path / "empty")
    told = call(capsysbinary, "fold", path)
    assert (told.status, told.out) == (0, "")
    assert found in told.err
    assert json.loads(call(capsysbinary, "fold", "--format", "json", path).out)["sessions"] == []


def test_garbage_is_reported_line_by_line(tmp_path: Path, capsysbinary: Capture) -> None:
    path = tmp_path / "garbage"
    path.write_bytes(bytes(range(256)) * 40)
    for name in ("fold", "check", "replay"):
        found = call(capsysbinary, name, path)
        assert found.status == 1
        reports = (found.err + found.out).splitlines()
        assert all("the text is not valid" in one or "no session update" in one for one in reports)
        assert len(reports) == 42


@pytest.mark.rule("U-8")
@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C"},
        {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    ],
    ids=["ascii", "C", "POSIX"],
)
def test_every_text_can_be_written_everywhere(tmp_path: Path, environment: dict[str, str]) -> None:
    path = write(tmp_path / "c.jsonl", line({**whole("half \ud83d, whole 🚀 café"), "note": "\udc00"}), b"bad")
    for words in (("fold",), ("fold", "--format", "markdown"), ("fold", "--format", "json"), ("replay",), ("check",)):
        found = run(*words, path, environment=environment)
        assert found.returncode == 1, found.stderr
        assert b"Traceback" not in found.stderr
    value = run("fold", "--format", "json", path, environment=environment).stdout
    assert b'"half \\ud83d, whole \xf0\x9f\x9a\x80 caf\xc3\xa9"' in value
    assert b'"note":"\\udc00"' in value
    assert run("fold", path).stdout.decode().splitlines()[-1] == "  half \ufffd, whole 🚀 café"


def test_a_file_name_that_is_no_text_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "caf\udce9.jsonl"
    try:
        write(path, b"bad")
    except (OSError, UnicodeError):
        pytest.skip("names are text here")
    for words in (("check",), ("fold", "--format", "json"), ("fold", "--format", "json", HARBOUR)):
        found = run(*words, path)
        assert found.returncode == 1
        assert b"Traceback" not in found.stderr


def test_a_very_long_line_is_folded(tmp_path: Path, capsysbinary: Capture) -> None:
    path = write(tmp_path / "c.jsonl", line(whole("tide " * 2_000_000)), line(chunk("out")))
    found = call(capsysbinary, "fold", path)
    assert found.status == 0
    assert found.out.endswith("tide out\n")
