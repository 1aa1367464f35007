"""What the pages show is run: Python blocks, commands, and what both print."""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, Block, blocks, pages, shows

IDS = [str(page.relative_to(ROOT)) for page in pages()]
MAKE = {"make demo": "twofold demo"}
"""Commands of the Makefile that are run without it, so that a test neither builds nor installs anything."""
RUN = {"twofold", "python", "printf"}
"""What a ``console`` block may run."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give an empty folder that is the current one, with ``twofold`` and ``python`` on the PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in [("twofold", " -m twofold"), ("python", "")]:
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("PYTHONUTF8", "1")
    monkeypatch.setenv("COLUMNS", "80")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.mark.parametrize("page", pages(), ids=IDS)
def test_what_a_page_shows_is_what_happens(page: Path, folder: Path) -> None:
    names: dict[str, Any] = {"__name__": page.stem}
    for block in blocks(page):
        if block.skipped:
            assert len(block.skipped) > 10, f"{page.name}:{block.line}: say why this block is not run"
        elif block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            run_python(page, block, names)
        elif block.language == "console":
            run_commands(page, block)


def run_python(page: Path, block: Block, names: dict[str, Any]) -> None:
    """Run a block; what it prints stands in the ``text`` block after it."""
    printed = io.StringIO()
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    same(page, block, block.output or "", printed.getvalue())


def run_commands(page: Path, block: Block) -> None:
    """Run the ``$`` lines of a block one after another and compare what they print, errors included."""
    _, *turns = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert turns, f"{page.name}:{block.line}: a console block without a command"
    for turn in turns:
        command, _, shown = turn.partition("\n")
        command = MAKE.get(command, command)
        assert command.split()[0] in RUN, f"{page.name}:{block.line}: {command} is not run; show it in a `sh` block"
        done = subprocess.run(
            ["sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
        )
        statuses = (0, 1, 2) if shown.strip("…\n") else (0, 1)  # what is refused is shown with its reason
        assert done.returncode in statuses, f"{page.name}:{block.line}: {command}\n{done.stdout.decode()}"
        same(page, block, shown, done.stdout.decode())


def same(page: Path, block: Block, shown: str, real: str) -> None:
    """Fail with both texts when a page shows something else than what was printed."""
    if not shows(shown, real):
        where = f"{page.relative_to(ROOT)}:{block.line}"
        pytest.fail(f"{where} shows\n{shown}\nbut this was printed\n{real}", pytrace=False)


def test_the_makefile_does_what_the_tests_run_in_its_place() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for command, meant in MAKE.items():
        recipe = re.search(rf"^{command.removeprefix('make ')}:.*\n\t(.*)$", makefile, re.MULTILINE)
        assert recipe is not None
        assert meant.removeprefix("twofold ") in recipe.group(1)


@pytest.mark.parametrize("page", pages(), ids=IDS)
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^|\$ )make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= targets


@pytest.mark.parametrize(
    ("shown", "real", "right"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n", "a\nb\n", False),
        ("a\n…\n", "a\nb\nc\n", True),
        ("…\nc\n", "a\nb\nc\n", True),
        ("a\n…\nc\n", "a\nc\n", True),
        ("a\n…\nc\n", "a\nb\nd\n", False),
        ("a…\n", "abc\n", False),
        ("", "a\n", False),
    ],
)
def test_a_page_may_leave_lines_out_and_nothing_else(shown: str, real: str, right: bool) -> None:
    assert shows(shown, real) is right
