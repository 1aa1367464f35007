"""The real program: in a process of its own, on pipes or on a terminal."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from twofold.cli import main

ROOT = Path(__file__).parents[2]
HARBOUR = ROOT / "src/twofold/examples/harbour.jsonl"

# What would change what is shown is not passed on from the environment that the tests run in.
_SHOWN_BY = ("NO_COLOR", "TERM", "COLUMNS", "LINES", "LANG", "LC_", "PYTHON")
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name == "PYTHONPATH" or not name.startswith(_SHOWN_BY)},
    "LC_ALL": "C.UTF-8",
    "TERM": "xterm-256color",
    "PYTHONWARNINGS": "error",
}


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "twofold", *map(str, words)]


def run(
    *words: str | Path, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run the program to its end, on pipes."""
    return subprocess.run(
        command(*words),
        input=stdin,
        capture_output=True,
        cwd=ROOT,
        env={**ENVIRONMENT, **(environment or {})},
        timeout=60,
        check=False,
    )


class Result:
    """What a run in this process did."""

    def __init__(self, status: int, out: bytes, err: bytes) -> None:
        self.status, self.out, self.err = status, out.decode("utf-8"), err.decode("utf-8")


def call(capsysbinary: pytest.CaptureFixture[bytes], *words: str | Path) -> Result:
    """Run the program in this process: quick, and good for all that does not depend on the process."""
    try:
        status = main([str(word) for word in words])
    except SystemExit as ended:
        status = int(ended.code or 0)
    out, err = capsysbinary.readouterr()
    return Result(status, out, err)


class OnTerminal:
    """The program on a terminal of its own; ``written`` is what it wrote so far."""

    def __init__(self, process: subprocess.Popen[bytes], leader: int) -> None:
        self.process = process
        self._leader = leader
        self._bytes = b""

    @property
    def written(self) -> str:
        return self._bytes.decode("utf-8", "ignore")

    def read(self) -> bool:
        """Wait for more to be written. Gives False at the end."""
        try:
            block = os.read(self._leader, 1 << 16)
        except OSError:  # how Linux says that the other side is gone
            block = b""
        self._bytes += block
        return bool(block)

    def read_until(self, words: str) -> None:
        deadline = time.monotonic() + 30
        while words not in self.written:
            assert time.monotonic() < deadline
            assert self.read(), self.written

    def type(self, words: bytes) -> None:
        os.write(self._leader, words)

    def end(self) -> int:
        """Read to the end and give the exit status."""
        while self.read():
            pass
        return self.process.wait(timeout=30)


@contextlib.contextmanager
def on_terminal(
    *words: str | Path, width: int = 80, height: int = 24, environment: Mapping[str, str] | None = None
) -> Iterator[OnTerminal]:
    """Run the program on a terminal of ``width`` by ``height``, which is its controlling one (Ctrl-C works)."""
    pytest.importorskip("pty")
    import fcntl
    import pty
    import struct
    import termios

    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    process = subprocess.Popen(
        command(*words),
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=ROOT,
        env={**ENVIRONMENT, **(environment or {})},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(follower)
    try:
        yield OnTerminal(process, leader)
    finally:
        process.kill()
        process.wait()
        os.close(leader)
