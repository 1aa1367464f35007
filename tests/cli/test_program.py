"""The program as such: help, wrong usage, streams that are closed, and ends before the end."""

import io
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.lines import chunk, line, write
from tests.cli.program import ENVIRONMENT, HARBOUR, ROOT, call, command, run
from twofold import __version__
from twofold.cli import _input, main

Capture = pytest.CaptureFixture[bytes]
COMMANDS = ("fold", "check", "convert", "replay", "demo")
READING = (("fold",), ("check",), ("convert", "--to", "v1"), ("replay",))


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture whose output is much more than a pipe holds, whatever is made of it."""
    lines = [
        line({**chunk(f"{number} " + "tide " * 20, f"m{number}"), "content": {"type": "text", "text": "tide " * 20}})
        for number in range(5000)
    ]
    fault = line({"sessionUpdate": "state_update", "state": "unheard of"})
    return write(
        tmp_path_factory.mktemp("cli") / "long.jsonl", *itertools.chain.from_iterable((one, fault) for one in lines)
    )


def test_the_version_is_told(capsysbinary: Capture) -> None:
    assert call(capsysbinary, "--version").out == f"twofold {__version__}\n"


@pytest.mark.parametrize("words", [("--help",), *((name, "--help") for name in COMMANDS)])
def test_help_is_there_for_every_command(words: tuple[str, ...], capsysbinary: Capture) -> None:
    found = call(capsysbinary, *words)
    assert (found.status, found.err) == (0, "")
    assert found.out.startswith("usage: twofold")


def test_without_a_command_the_help_is_shown(capsysbinary: Capture) -> None:
    found = call(capsysbinary)
    assert (found.status, found.out) == (2, "")
    assert "fold captured traffic into its final sessions" in found.err


def test_help_needs_nothing_that_the_commands_work_with() -> None:
    code = "import sys, twofold.cli; twofold.cli.parser().format_help(); print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, env=ENVIRONMENT, check=True)
    loaded = {name for name in found.stdout.decode().split() if name.startswith(("twofold", "msgspec", "asyncio"))}
    assert "msgspec" not in loaded
    assert {name for name in loaded if name.count(".") > 0 and not name.startswith("twofold.cli")} == set()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nonsense",), "invalid choice: 'nonsense'"),
        (("--nonsense", "fold"), "unrecognized arguments: --nonsense"),
        (("fold", "--nonsense"), "twofold fold: error: unrecognized arguments: --nonsense"),
        (("fold", "--form", "json"), "unrecognized arguments: --form"),
        (("fold", "--format", "yaml"), "argument --format: invalid choice: 'yaml'"),
        (("fold", "--revision", "1"), "argument --revision: invalid choice: '1'"),
        (("check", "--from", "v3"), "argument --from: invalid choice: 'v3'"),
        (("fold", "--session"), "argument --session: expected one argument"),
        (("demo", "file"), "twofold demo: error: unrecognized arguments: file"),
        (("convert",), "the following arguments are required: --to"),
        (("fold", "no-such-file"), "twofold: cannot read no-such-file: No such file or directory"),
        (("check", "tests"), "twofold: cannot read tests: Is a directory"),
        (("replay", HARBOUR, "no-such-file"), "twofold: cannot read no-such-file: No such file or directory"),
    ],
)
def test_wrong_usage_is_status_2_and_a_sentence(
    words: tuple[str | Path, ...], says: str, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    found = call(capsysbinary, *words)
    assert (found.status, found.out) == (2, "")
    assert says in found.err.splitlines()[-1]


def test_a_file_that_may_not_be_read_is_wrong_usage(
    tmp_path: Path, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "secret.jsonl", line(chunk("x")))
    path.chmod(0)
    monkeypatch.setattr("os.access", lambda *_: False)  # root may read it all the same
    found = call(capsysbinary, "fold", path)
    assert (found.status, found.err) == (2, f"twofold: cannot read {path}: Permission denied\n")


@pytest.mark.parametrize("words", READING)
def test_an_input_that_fails_while_it_is_read_is_reported(
    words: tuple[str, ...], tmp_path: Path, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(io.BytesIO):
        name = str(tmp_path / "x")

        def read1(self, size: int | None = -1, /) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": Failing(), "isatty": lambda _self: False})())
    found = call(capsysbinary, *words)
    assert (found.status, found.out) == (2, "")
    assert found.err == "twofold: cannot read <stdin>: Input/output error\n"


@pytest.mark.parametrize("words", [("-",), ()], ids=["-", "no file"])
def test_standard_input_is_read(words: tuple[str, ...]) -> None:
    found = run("fold", *words, stdin=line(chunk("Fog lifts.")))
    assert (found.returncode, found.stdout, found.stderr) == (0, b"session s-1\n\nagent\n  Fog lifts.\n", b"")
    bad = run("fold", *words, stdin=b"bad")
    assert bad.stderr.startswith(b"<stdin>:1: $: ")


def test_standard_input_may_stand_among_files(tmp_path: Path) -> None:
    one, two = (write(tmp_path / f"{number}", line(chunk(f"{number} "))) for number in (1, 2))
    assert run("fold", one, "-", two, stdin=line(chunk("and "))).stdout.endswith(b"  1 and 2 \n")


def test_files_may_stand_between_options_and_after_a_double_dash(tmp_path: Path) -> None:
    one, two = (write(tmp_path / name, line(chunk(name))) for name in ("a", "--format"))
    assert b'"text":"a"' in run("fold", "--format", "json", one, "--lenient").stdout
    found = subprocess.run(
        command("fold", "a", "--format", "markdown", "--", two.name),
        cwd=tmp_path,
        env=ENVIRONMENT | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        check=True,
    )
    assert b"> a--format\n" in found.stdout


@pytest.mark.parametrize(
    "words",
    [
        *READING,
        ("fold", "--format", "json"),
        ("fold", "--format", "markdown"),
        ("replay", "--compact"),
        ("convert", "--to", "v2"),
    ],
    ids=" ".join,
)
def test_a_closed_pipe_ends_the_output_quietly(words: tuple[str, ...], long: Path) -> None:
    process = subprocess.Popen(
        command(*words, long), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=ENVIRONMENT
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) == 0


def test_a_pipe_closed_for_reports_too_ends_quietly(long: Path) -> None:
    process = subprocess.Popen(
        command("check", long), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=ROOT, env=ENVIRONMENT
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=60) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("words", [*READING, ("--help",), ("fold", "--help")], ids=" ".join)
def test_a_full_disk_is_told_in_one_sentence(words: tuple[str, ...], long: Path) -> None:
    with open("/dev/full", "wb") as full:
        arguments: tuple[str | Path, ...] = words if words[-1] == "--help" else (*words, long)
        found = subprocess.run(
            command(*arguments), stdout=full, stderr=subprocess.PIPE, cwd=ROOT, env=ENVIRONMENT, check=False
        )
    assert found.returncode == 2
    assert found.stderr == b"twofold: cannot write: No space left on device\n"


@pytest.mark.skipif(os.name != "posix", reason="descriptors are closed in another way here")
@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_stream_that_was_closed_before_we_came_is_no_fault(closed: int) -> None:
    found = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}>&-', "sh", *command("fold", *([] if closed == 0 else [HARBOUR]))],
        capture_output=True,
        cwd=ROOT,
        env=ENVIRONMENT,
        check=False,
    )
    assert found.returncode == 0
    assert b"Traceback" not in found.stderr
    assert (b"session harbour-7f3a" in found.stdout) == (closed == 2)


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is another thing here")
@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_ctrl_c_ends_quietly(words: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        command(*words),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env=ENVIRONMENT,
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(b"bad\n")
    process.stdin.flush()
    _wait_until_it_works(process.pid)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in out + err
    assert all(one.startswith((b"<stdin>:1:", b"twofold: ")) for one in err.splitlines())


def _wait_until_it_works(pid: int) -> None:
    """Wait until the process has loaded what it works with. Elsewhere than on Linux: long enough."""
    maps = Path(f"/proc/{pid}/maps")
    deadline = time.monotonic() + 30
    while maps.exists() and "msgspec" not in maps.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.3 if maps.exists() else 3)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def read_slowly(to: Path, stderr: io.StringIO, monkeypatch: pytest.MonkeyPatch, step: float = 0.3) -> Path:
    """Give an input that is read in small blocks, with ``step`` seconds between two looks at the clock."""
    monkeypatch.setattr(sys, "stderr", stderr)
    clock = itertools.count(0.0, step)
    monkeypatch.setattr("twofold.cli._input.time.monotonic", lambda: next(clock))
    monkeypatch.setattr(_input, "_BLOCK", 100)
    return write(to / "c.jsonl", *[line(chunk("tide"))] * 30)


def test_a_long_input_shows_on_a_terminal_how_far_it_is(
    tmp_path: Path, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr = Terminal()
    path = read_slowly(tmp_path, stderr, monkeypatch)
    assert main(["fold", str(path)]) == 0
    assert stderr.getvalue().count("MB read\x1b[K\r") > 3
    assert "\rc.jsonl: 0 of 0 MB read" in stderr.getvalue()
    assert stderr.getvalue().endswith("\r\x1b[K")
    assert b"MB read" not in capsysbinary.readouterr().out


@pytest.mark.parametrize(("terminal", "step"), [(True, 0.001), (False, 0.3)])
def test_a_short_input_and_a_file_of_reports_show_nothing_of_it(
    terminal: bool, step: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr = Terminal() if terminal else io.StringIO()
    path = read_slowly(tmp_path, stderr, monkeypatch, step)
    assert main(["fold", str(path)]) == 0
    assert stderr.getvalue() == ""


def test_progress_is_cleared_where_reading_ends_early(
    tmp_path: Path, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr = Terminal()
    path = read_slowly(tmp_path, stderr, monkeypatch)
    inputs = _input.read_lines([str(path)])
    _, lines = next(inputs)
    for _ in range(20):
        next(lines)
    assert "MB read" in stderr.getvalue()
    lines.close()  # type: ignore[attr-defined]  # as an exception in whoever reads them does
    inputs.close()  # type: ignore[attr-defined]
    assert stderr.getvalue().endswith("\r\x1b[K")
