"""``twofold convert``."""

import json
from pathlib import Path

import pytest

from tests.cli.program import HARBOUR, ROOT, call, run

CASES = ROOT / "tests/cases"


def test_what_cannot_be_carried_is_reported_with_file_and_line_and_the_rest_is_printed(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    source = CASES / "13-v2-to-v1-cannot-say/input.jsonl"
    result = call(capsysbinary, "convert", "--to", "v1", source)
    assert result.status == 1
    assert [json.loads(line)["params"]["update"]["content"]["text"] for line in result.out.splitlines()] == ["Hello."]
    reports = result.err.splitlines()
    assert [line.split(": ")[0] for line in reports] == [f"{source}:{number}" for number in range(1, 9)]
    assert "Hello" not in result.err


def test_a_stream_that_is_carried_whole_ends_with_status_0(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    result = call(capsysbinary, "convert", "--to", "v1", CASES / "11-v2-to-v1-fan-out/input.jsonl")
    assert (result.status, result.err, len(result.out.splitlines())) == (0, "", 8)


def test_the_policy_mark_tells_of_corrections(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    strict = call(capsysbinary, "convert", "--to", "v1", HARBOUR)
    mark = call(capsysbinary, "convert", "--to", "v1", "--policy", "mark", HARBOUR)
    assert strict.status == mark.status == 1
    assert "An earlier message was corrected" in mark.out
    assert "An earlier message was" not in strict.out


def test_a_converted_stream_folds_in_its_new_version() -> None:
    converted = run("convert", "--to", "v2", "--policy", "mark", ROOT / "tests/captures/gemini-cli-0.61.0-turns.jsonl")
    assert converted.returncode == 0
    folded = run("fold", "--from", "v2", "--format", "json", stdin=converted.stdout)
    assert folded.returncode == 0
    kinds = [message["type"] for message in json.loads(folded.stdout)["sessions"][0]["messages"]]
    assert kinds.count("user_message") == 5


@pytest.mark.parametrize(
    "words", [["convert"], ["convert", "--to", "v3"], ["convert", "--to", "v1", "--policy", "lax"]]
)
def test_bad_usage_is_status_2(words: list[str], capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    result = call(capsysbinary, *words)
    assert result.status == 2
    assert "usage: twofold convert" in result.err


def test_a_file_that_is_not_there_is_status_2(capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    result = call(capsysbinary, "convert", "--to", "v1", tmp_path / "none.jsonl")
    assert result.status == 2
    assert "cannot read" in result.err
