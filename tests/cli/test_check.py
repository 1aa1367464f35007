"""`twofold check` and `twofold replay`."""

import json
from pathlib import Path

import pytest

from tests.cli.lines import chunk, line, whole, write
from tests.cli.program import HARBOUR, ROOT, call, run
from twofold.capture import Checker

CAPTURES = sorted((ROOT / "tests/captures").glob("*.jsonl"))
Capture = pytest.CaptureFixture[bytes]


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_findings_are_the_librarys_one_a_line(path: Path, capsysbinary: Capture) -> None:
    findings = list(Checker().feed(path.read_bytes().split(b"\n")))
    found = call(capsysbinary, "check", path)
    assert found.status == (1 if findings else 0)
    assert found.out.splitlines() == [f"{path}:{one.line}: {one}" for one in findings]


def test_each_finding_says_where_and_what(tmp_path: Path, capsysbinary: Capture) -> None:
    path = write(
        tmp_path / "c.jsonl",
        line(chunk("fine")),
        line({"sessionUpdate": "tool_call_update", "toolCallId": "t"}),
        b"bad",
        line({"sessionUpdate": "state_update", "state": "odd"}),
    )
    found = call(capsysbinary, "check", path)
    assert (found.status, found.err) == (1, "")
    assert found.out == (
        f"{path}:2: $.params.update: the first update of a tool call has no title\n"
        f"{path}:3: $: the text is not valid JSON (at byte 0)\n"
        f"{path}:4: $.params.update.state: an unknown word without a leading underscore: those are ACP's own\n"
    )


def test_each_file_is_checked_by_itself(tmp_path: Path, capsysbinary: Capture) -> None:
    first = line({"sessionUpdate": "tool_call_update", "toolCallId": "t", "title": "Look"})
    again = line({"sessionUpdate": "tool_call_update", "toolCallId": "t"})
    one, two = write(tmp_path / "1", first), write(tmp_path / "2", again)
    assert call(capsysbinary, "check", one, two).out.startswith(f"{two}:1: ")


def test_the_example_has_no_fault(capsysbinary: Capture) -> None:
    found = call(capsysbinary, "check", HARBOUR)
    assert (found.status, found.out, found.err) == (0, "", "")


def test_a_file_that_holds_something_else_is_said_to(tmp_path: Path, capsysbinary: Capture) -> None:
    found = call(capsysbinary, "check", write(tmp_path / "x.json", b'{"name": "x"}', b'{"name": "y"}'))
    assert (found.status, found.out) == (0, "")
    assert found.err == f"{tmp_path / 'x.json'}: no session update in the input (2 of no kind known here)\n"


@pytest.mark.rule("P-1", "P-2")
@pytest.mark.parametrize("options", [(), ("--compact",)], ids=["exact", "compact"])
@pytest.mark.parametrize("path", [HARBOUR, *CAPTURES], ids=lambda path: path.stem)
def test_a_replay_folds_to_the_same_sessions(
    path: Path, options: tuple[str, ...], tmp_path: Path, capsysbinary: Capture
) -> None:
    replayed = tmp_path / "replay.jsonl"
    replayed.write_bytes(call(capsysbinary, "replay", *options, path).out.encode())
    before, after = (
        json.loads(call(capsysbinary, "fold", "--format", "json", one).out)["sessions"] for one in (path, replayed)
    )
    if options:  # the same text in fewer blocks
        assert [_texts(one) for one in after] == [_texts(one) for one in before]
        assert len(replayed.read_bytes().splitlines()) == len(call(capsysbinary, "replay", path).out.splitlines())
    else:
        assert after == before


def _texts(session: dict[str, list[dict[str, list[dict[str, str]]]]]) -> list[str]:
    return ["".join(block.get("text", "") for block in message["content"]) for message in session["messages"]]


@pytest.mark.rule("P-2")
def test_a_replay_holds_nothing_that_was_taken_back(tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", line(chunk("hk_live")), line(whole()), line(chunk("Sail.", "n")))
    found = run("replay", path)
    assert found.returncode == 0
    assert b"hk_live" not in found.stdout
    assert [json.loads(one)["params"]["update"]["content"] for one in found.stdout.splitlines()] == [
        [],
        [{"type": "text", "text": "Sail."}],
    ]


def test_a_replay_of_bare_updates_is_bare(capsysbinary: Capture, tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", json.dumps(chunk("Fog ")).encode(), json.dumps(chunk("lifts.")).encode(), b"bad")
    found = call(capsysbinary, "replay", "--compact", path)
    assert found.status == 1
    assert [json.loads(one) for one in found.out.splitlines()] == [whole("Fog lifts.")]


@pytest.mark.rule("U-8")
def test_a_replay_keeps_halves_as_their_escapes(capsysbinary: Capture, tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", line(whole("cut \ud83d")))
    assert "cut \\ud83d" in call(capsysbinary, "replay", path).out
