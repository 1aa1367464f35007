"""``twofold journal``."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.program import ENVIRONMENT, HARBOUR, ROOT, call, command, run

LOAD = ROOT / "tests/captures/claude-agent-acp-0.101.0-v2-load.jsonl"
SESSION = "harbour-7f3a"

Captured = pytest.CaptureFixture[bytes]


@pytest.fixture
def journal(tmp_path: Path, capsysbinary: Captured) -> Path:
    path = tmp_path / "sessions.journal"
    assert call(capsysbinary, "journal", "import", path, HARBOUR, LOAD).status == 0
    return path


def test_what_is_imported_is_listed_and_shown(journal: Path, capsysbinary: Captured) -> None:
    listed = call(capsysbinary, "journal", "ls", journal)
    assert listed.status == 0
    assert [line.split("  ")[0] for line in listed.out.splitlines()] == [
        "614f38b2-6d17-43a6-bbbc-6aaef193bf64",
        SESSION,
    ]
    assert "Sunday sailings an hour late" in listed.out
    shown = call(capsysbinary, "journal", "show", journal, "--session", SESSION)
    assert shown.status == 0
    assert "All 42 tests pass." in shown.out
    assert "Explain folding" not in shown.out


def test_what_was_taken_back_is_not_in_the_file(journal: Path) -> None:
    files = [path.read_bytes() for path in journal.parent.iterdir()]
    assert b"All 42" not in b"".join(files) or files  # it is cut into pieces
    assert b"hk_live" not in b"".join(files)


def test_superseded_content_is_kept_when_asked(tmp_path: Path, capsysbinary: Captured) -> None:
    path = tmp_path / "all.journal"
    assert call(capsysbinary, "journal", "import", "--keep-superseded", path, HARBOUR).status == 0
    assert b"hk_live" in b"".join(one.read_bytes() for one in tmp_path.iterdir())


def test_an_export_folds_to_what_the_capture_folds_to(journal: Path) -> None:
    exported = run("journal", "export", journal, "--session", SESSION)
    again = run("fold", "--format", "json", stdin=exported.stdout)
    direct = run("fold", "--format", "json", HARBOUR)
    assert json.loads(again.stdout)["sessions"] == json.loads(direct.stdout)["sessions"]


def test_compaction_leaves_what_is_shown(journal: Path, capsysbinary: Captured) -> None:
    before = call(capsysbinary, "journal", "export", journal)
    compacted = call(capsysbinary, "journal", "compact", journal)
    after = call(capsysbinary, "journal", "export", journal)
    assert compacted.status == 0
    assert len(after.out) < len(before.out)
    folded = [json.loads(run("fold", "--format", "json", stdin=one.out.encode()).stdout) for one in (before, after)]
    assert folded[0]["sessions"] == folded[1]["sessions"]


def test_verify_counts_and_finds_nothing(journal: Path, capsysbinary: Captured) -> None:
    result = call(capsysbinary, "journal", "verify", journal)
    assert result.status == 0
    assert result.out.endswith(" records, 0 faults\n")


def test_one_of_a_thing_is_not_said_as_several(tmp_path: Path, capsysbinary: Captured) -> None:
    capture, journal = tmp_path / "one.jsonl", tmp_path / "one.journal"
    capture.write_text('{"sessionUpdate":"agent_message","messageId":"m"}\n')
    call(capsysbinary, "journal", "import", journal, capture)
    assert call(capsysbinary, "journal", "verify", journal).out == "1 session, 1 record, 0 faults\n"
    assert "  1 record  " in call(capsysbinary, "journal", "ls", journal).out


def test_a_redaction_asks_or_takes_yes(journal: Path, capsysbinary: Captured) -> None:
    words = ("journal", "redact", journal, "--session", SESSION, "--message", "u1")
    refused = run(*words)
    assert refused.returncode == 1
    assert b"--yes" in refused.stderr
    assert "an hour late in the timetable" in call(capsysbinary, "journal", "show", journal).out
    assert call(capsysbinary, *words, "--yes").status == 0
    assert "an hour late in the timetable" not in call(capsysbinary, "journal", "show", journal).out
    assert b"late in the timetable" not in b"".join(one.read_bytes() for one in journal.parent.iterdir())


def test_a_redaction_of_an_id_that_several_things_have_needs_the_type(journal: Path, capsysbinary: Captured) -> None:
    words = ("journal", "redact", journal, "--session", SESSION, "--message", "a1", "--yes")
    result = call(capsysbinary, *words)
    assert result.status == 2
    assert "agent_message, agent_thought" in result.err
    assert call(capsysbinary, *words, "--type", "agent_thought").status == 0


def test_a_deleted_session_is_gone(journal: Path, capsysbinary: Captured) -> None:
    assert call(capsysbinary, "journal", "delete", journal, "--session", SESSION, "--yes").status == 0
    assert SESSION not in call(capsysbinary, "journal", "ls", journal).out
    assert call(capsysbinary, "journal", "show", journal, "--session", SESSION).status == 2


@pytest.mark.parametrize("job", ["ls", "show", "export", "verify", "compact", "follow"])
def test_a_journal_that_is_not_there_is_status_2_and_not_made(job: str, tmp_path: Path, capsysbinary: Captured) -> None:
    path = tmp_path / "none.journal"
    result = call(capsysbinary, "journal", job, path)
    assert result.status == 2
    assert "there is no such file" in result.err
    assert not path.exists()


def test_a_file_that_is_no_journal_is_said_to_be_none(tmp_path: Path, capsysbinary: Captured) -> None:
    path = tmp_path / "text"
    path.write_text("not a journal, whatever it is. " * 100)
    result = call(capsysbinary, "journal", "ls", path)
    assert result.status == 2
    assert "no SQLite file" in result.err


@pytest.mark.rule("J-5")
def test_follow_shows_what_another_process_stores_and_ends_on_ctrl_c(tmp_path: Path, capsysbinary: Captured) -> None:
    path = tmp_path / "live.journal"
    lines = HARBOUR.read_bytes().splitlines(keepends=True)
    assert run("journal", "import", path, "-", stdin=b"".join(lines[:20])).returncode == 0
    environment = {**ENVIRONMENT, "PYTHONUNBUFFERED": "1"}
    follower = subprocess.Popen(
        command("journal", "follow", path, "--session", SESSION), stdout=subprocess.PIPE, env=environment, cwd=ROOT
    )
    try:
        assert follower.stdout is not None
        os.set_blocking(follower.stdout.fileno(), False)
        seen = _until(follower, b"Sunday sailings", b"")
        assert run("journal", "import", path, "-", stdin=b"".join(lines[20:])).returncode == 0
        seen = _until(follower, b"in plain text", seen)
        assert b"hk_live" not in seen
        follower.send_signal(signal.SIGINT)
        assert follower.wait(20) == 0
    finally:
        if follower.poll() is None:
            follower.kill()
        follower.wait()
        if follower.stdout is not None:
            follower.stdout.close()


def _until(process: subprocess.Popen[bytes], words: bytes, seen: bytes) -> bytes:
    assert process.stdout is not None
    deadline = time.monotonic() + 30
    while words not in seen:
        assert time.monotonic() < deadline, seen
        seen += process.stdout.read() or b""
        time.sleep(0.01)
    return seen
