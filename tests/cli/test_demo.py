"""`twofold demo`, and its session as a test vector."""

import itertools
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.lines import chunk, line, whole, write
from tests.cli.program import HARBOUR, OnTerminal, call, on_terminal, run
from tests.view.screen import Screen
from twofold.cli import _player
from twofold.examples import harbour

VECTOR = Path(__file__).parents[1] / "vectors/harbour.json"
WITHDRAWN = "hk_live"
WRONG = "02:00"
RIGHT = "01:00 UTC"
Capture = pytest.CaptureFixture[bytes]


def test_the_final_transcript_is_that_of_the_vector(capsysbinary: Capture) -> None:
    expected = json.loads(VECTOR.read_text())
    found = call(capsysbinary, "fold", "--format", "json", HARBOUR)
    assert (found.status, found.err) == (0, "")
    assert json.loads(found.out) == expected["expect"]
    assert WITHDRAWN not in found.out
    assert WRONG not in found.out


def test_what_is_withdrawn_and_corrected_was_said() -> None:
    assert WITHDRAWN.encode() in harbour()
    assert WRONG.encode() in harbour()


def test_without_a_terminal_it_is_told_change_by_change_without_pauses(capsysbinary: Capture) -> None:
    began = time.monotonic()
    found = call(capsysbinary, "demo")
    assert time.monotonic() - began < 10
    assert (found.status, found.err) == (0, "")
    assert "\x1b" not in found.out
    told, last = found.out.split("That was the session as it went.")
    assert told.index(WRONG) < told.index("[agent message a2 now reads]") < told.index(RIGHT)
    assert told.index(WITHDRAWN) < told.index("[agent message a3 is withdrawn]")
    assert "· withdrawn by the agent" in last
    assert WITHDRAWN not in last
    assert WRONG not in last
    assert "twofold fold FILE" in last
    assert last.endswith("Watch it live in the browser: twofold serve --demo (in a clone: make serve-demo)\n")


def test_it_can_be_written_in_ascii() -> None:
    found = run("demo", environment={"PYTHONIOENCODING": "ascii"})
    assert (found.returncode, found.stderr) == (0, b"")
    assert found.stdout.isascii()


@pytest.mark.parametrize(("options", "pauses"), [((), True), (("--fast",), False)], ids=["paced", "fast"])
def test_on_a_terminal_it_takes_as_long_as_one_reads(
    options: tuple[str, ...], pauses: bool, capsysbinary: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = [at for _, at in _player.timed(harbour())]
    assert at == sorted(at)
    assert 15 <= at[-1] <= 20
    slept: list[float] = []
    monkeypatch.setattr("twofold.cli.demo.time.monotonic", lambda: sum(slept))
    monkeypatch.setattr("twofold.cli.demo.time.sleep", slept.append)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    assert call(capsysbinary, "demo", *options).status == 0
    assert sum(slept) == pytest.approx(at[-1] if pauses else 0)


def frames(screen: Screen, written: str) -> Iterator[str]:
    """Give what the screen shows after each time that it was drawn."""
    for part in re.split(r"(?<=\x1b\[\?7h)", written.replace("\r\n", "\n")):
        screen.feed(part)
        yield screen.text


def played(width: int = 80, height: int = 24, **environment: str) -> OnTerminal:
    with on_terminal("demo", "--fast", width=width, height=height, environment=environment) as terminal:
        assert terminal.end() == 0
    return terminal


def test_corrections_and_redactions_are_seen_in_place() -> None:
    screen = Screen(80, 24)
    seen = list(frames(screen, played().written))
    wrong = [number for number, frame in enumerate(seen) if WRONG in frame]
    right = [number for number, frame in enumerate(seen) if RIGHT in frame]
    withdrawn = [number for number, frame in enumerate(seen) if WITHDRAWN in frame]
    assert 0 < wrong[-1] < right[0] < withdrawn[0]
    before, after = (seen[withdrawn[-1] + step].splitlines() for step in (0, 1))
    place = before.index("  All green. While I was there I saw the deploy script uses the booking key")
    assert after[:place] == before[:place]  # nothing moved
    assert after[place : place + 2] == ["· withdrawn by the agent", ""]
    everything = "\n".join([*screen.gone, *screen.lines])
    assert WITHDRAWN not in everything
    assert WRONG not in everything
    assert everything.count("All 42 tests pass.") == 2  # as it went, and at the end


def test_it_streams() -> None:
    lengths = [len(frame) for frame in frames(Screen(80, 60), played(height=60).written)]
    assert sum(one < two for one, two in itertools.pairwise(lengths)) > 40


@pytest.mark.parametrize(("width", "height"), [(1, 1), (9, 3), (24, 6), (40, 100), (200, 60)])
def test_any_terminal_is_large_enough(width: int, height: int) -> None:
    terminal = played(width, height)
    screen = Screen(max(width, 2), height)
    screen.feed(terminal.written.replace("\r\n", "\n"))
    assert "Traceback" not in terminal.written


def test_colours_are_for_terminals_that_want_them() -> None:
    coloured = re.compile(r"\x1b\[[0-9;]*m")
    assert coloured.search(played().written)
    assert not coloured.search(played(NO_COLOR="1").written)
    dumb = played(TERM="dumb").written
    assert "\x1b" not in dumb
    assert "[agent message a3 is withdrawn]" in dumb


def test_ctrl_c_in_the_middle_is_quiet() -> None:
    with on_terminal("demo") as terminal:
        terminal.read_until("Only Sundays")
        terminal.type(b"\x03")
        assert terminal.end() == 130
    assert "Traceback" not in terminal.written
    assert "That was the session" not in terminal.written


def test_a_fold_on_a_terminal_is_coloured_and_stays_indented(tmp_path: Path) -> None:
    path = write(tmp_path / "c.jsonl", line(whole("word " * 40 + "user")), line(chunk("\x1b[2J\x1b[31mx", "n")))
    with on_terminal("fold", path, width=40) as terminal:
        assert terminal.end() == 0
    screen = Screen(40, 24)
    screen.feed(terminal.written.replace("\r\n", "\n"))
    assert "1;32" in screen.styles
    assert [one for one in screen.lines if one and not one.startswith(" ")] == ["session s-1", "agent", "agent"]
    assert "␛[2J␛[31mx" in screen.text
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        with on_terminal("fold", path, environment=environment) as terminal:
            assert terminal.end() == 0
        assert "\x1b" not in terminal.written
    assert "\x1b" not in run("fold", path).stdout.decode()


def test_a_terminal_as_input_is_told_what_is_waited_for() -> None:
    with on_terminal("fold") as terminal:
        terminal.read_until("Ctrl-D ends it.")
        terminal.type(b"bad\n\x04")
        assert terminal.end() == 1
    assert "<stdin>:1: $: " in terminal.written
