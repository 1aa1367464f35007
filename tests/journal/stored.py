"""Updates to journal, and what lies in the files of a journal afterwards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.fold.sessions import chunk, text, whole
from twofold.journal import Journal

Json = Any

__all__ = ["Session", "call", "child", "chunk", "files_of", "found", "line", "raw", "terminal", "text", "whole"]

ROOT = Path(__file__).parent.parent.parent


def raw(update: Json) -> bytes:
    """An update as a peer would send it."""
    return json.dumps(update, separators=(",", ":")).encode()


def call(tool_call_id: str = "c1", **members: Json) -> Json:
    """A tool-call update."""
    return {"sessionUpdate": "tool_call_update", "toolCallId": tool_call_id, **members}


def terminal(terminal_id: str = "t1", **members: Json) -> Json:
    """A terminal update."""
    return {"sessionUpdate": "terminal_update", "terminalId": terminal_id, **members}


class Session:
    """Appends to one session of a journal, from wherever it is."""

    def __init__(self, journal: Journal, name: str = "s") -> None:
        self.journal = journal
        self.name = name

    def append(self, *updates: Json) -> str:
        """Append updates in one commit, and give what became of what they supersede."""
        return self.journal.append(
            self.name, self.journal.position(self.name), *(raw(update) for update in updates)
        ).erasure

    def replay(self, *updates: Json, ok: bool = True) -> None:
        """Append a replay."""
        self.journal.begin_replay(self.name, self.journal.position(self.name))
        for update in updates:
            self.append(update)
        self.journal.end_replay(self.name, self.journal.position(self.name), ok=ok)

    @property
    def raws(self) -> list[bytes]:
        """The records as they are now."""
        return [record.raw for record in self.journal.read(self.name)]

    @property
    def json(self) -> Json:
        """The state."""
        return self.journal.load(self.name).transcript.to_json()


def files_of(path: Path) -> dict[str, bytes]:
    """The bytes of a database and of everything beside it that has its name.

    Another process reads them where there is one for it: closing a file lets go of all locks that this process has on
    it, SQLite's included.
    """
    files = sorted(path.parent.glob(f"{path.name}*"))
    cat = shutil.which("cat")
    if cat is None:
        return {one.name: one.read_bytes() for one in files}
    return {one.name: subprocess.run([cat, str(one)], stdout=subprocess.PIPE, check=True).stdout for one in files}


def found(path: Path, word: str) -> list[str]:
    """The files that the bytes of a word are in, in any form that a record could hold it."""
    return [name for name, data in files_of(path).items() if word.encode() in data]


@contextmanager
def child(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command of `tests.journal.child` in a process of its own; it is killed at the end."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.journal.child", *words],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[bytes]) -> str:
    """Wait for the next line that a child says; nothing when it is gone."""
    assert process.stdout is not None
    return process.stdout.readline().decode().strip()
