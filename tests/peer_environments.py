"""Python environments of their own, for peers whose packages cannot be in the one that runs the tests.

Each is a virtual environment under `.peers` of the running one (so `make clean` removes it), and holds what a file of
pins in `requirements` says: installed at the first test that needs it, and again when the pins have changed.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

from tests.locked import locked
from tests.require import missing

REQUIREMENTS: Final = Path(__file__).parent.parent / "requirements"
ENVIRONMENTS: Final = Path(sys.prefix) / ".peers"
INSTALL_SECONDS: Final = 300


def python_of(name: str) -> Path:
    """Return the interpreter of the environment that `requirements/NAME.txt` pins; skip or fail when there is none."""
    why_not = _install(name)
    if why_not is not None:
        missing("sdk", why_not)
    return _python(ENVIRONMENTS / name)


def _python(environment: Path) -> Path:
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


@functools.cache
def _install(name: str) -> str | None:
    """Bring an environment to what its pins say; return why that failed. Tried once in a process."""
    pins = REQUIREMENTS / f"{name}.txt"
    environment = ENVIRONMENTS / name
    python = _python(environment)  # may be a link to an interpreter that has gone since
    stamp = environment / ".installed-from"
    wanted = hashlib.sha256(pins.read_bytes()).hexdigest()
    ENVIRONMENTS.mkdir(exist_ok=True)
    with locked(ENVIRONMENTS / ".install.lock"):
        if stamp.is_file() and stamp.read_text() == wanted and python.exists():
            return None
        shutil.rmtree(environment, ignore_errors=True)
        venv.create(environment, with_pip=False, symlinks=os.name != "nt")
        pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
        command = [*pip, "--retries=1", "install", "--quiet", "--require-hashes", "-r", str(pins)]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"the packages of {pins.name} were not installed: {error}"
        if done.returncode:
            return f"the packages of {pins.name} were not installed: {done.stderr.strip() or done.stdout.strip()}"
        stamp.write_text(wanted)
        return None
