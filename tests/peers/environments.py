"""The real agents that tests talk to, each installed once into a folder of its own.

An agent in Python gets a virtual environment that holds what `requirements/peers-NAME.txt` pins; one on Node gets the
packages that `tests/peers/NAME/package-lock.json` pins, and runs on the node of the tests. The folders lie under
`.peers` of the running environment (so `make clean` removes them), or in the folder that `TWOFOLD_PEERS` names, which
several environments may share. Each is filled at the first test that needs it, and again when its pins have changed.
"""

import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.locked import locked
from tests.node_tools import node
from tests.require import missing

HERE: Final = Path(__file__).parent
REQUIREMENTS: Final = HERE.parent.parent / "requirements"
FOLDER: Final = Path(os.environ.get("TWOFOLD_PEERS") or Path(sys.prefix) / ".peers").absolute()
INSTALL_SECONDS: Final = 300
PYTHONS: Final = {"fast-agent": (12, 13, 14), "hermes": (11, 12, 13)}
"""Agents in Python, and the minor versions of Python 3 that they run on."""

PLATFORMS: Final = {"opencode": ("Linux", "x86_64")}
"""Agents whose packages are pinned for one kind of machine only."""


class Unavailable(Exception):
    """An agent cannot be installed here; the words say why."""


def python_programs(agent: str) -> Path:
    """Return the folder of the programs of an agent in Python; skip or fail the test when it cannot be installed."""
    return _installed(agent) / "bin"


def node_packages(agent: str) -> Path:
    """Return the `node_modules` of an agent on Node; skip or fail the test when it cannot be installed."""
    return _installed(agent) / "node_modules"


def _installed(agent: str) -> Path:
    why_not = _install(agent)
    if why_not is not None:
        missing("peers", f"{agent}: {why_not}")
    return FOLDER / agent


@functools.cache
def _install(agent: str) -> str | None:
    """Bring an agent's folder to what its pins say; return why that failed. Tried once in a process."""
    pins = REQUIREMENTS / f"peers-{agent}.txt" if agent in PYTHONS else HERE / agent / "package-lock.json"
    wanted = hashlib.sha256(pins.read_bytes()).hexdigest()
    folder = FOLDER / agent
    stamp = folder / ".installed-from"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with locked(FOLDER / f".{agent}.lock"):
        if stamp.is_file() and stamp.read_text() == wanted and (agent not in PYTHONS or _python(folder).exists()):
            return None
        shutil.rmtree(folder, ignore_errors=True)
        try:
            if agent in PYTHONS:
                _install_python(agent, folder, pins)
            else:
                _install_node(agent, folder)
        except Unavailable as reason:
            return str(reason)
        stamp.write_text(wanted)
    return None


def _install_python(agent: str, folder: Path, pins: Path) -> None:
    _run([_interpreter(PYTHONS[agent]), "-m", "venv", "--without-pip", str(folder)])
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--retries=1"]
    # The pins name everything. Bytecode is compiled when it is needed: that of all of it takes longer than the rest.
    options = ["--no-deps", "--no-compile", "--require-hashes", "-r", str(pins)]
    _run([*pip, "--python", str(_python(folder)), "install", *options])


def _install_node(agent: str, folder: Path) -> None:
    here = (platform.system(), platform.machine())
    if here != PLATFORMS.get(agent, here):
        raise Unavailable(f"it is pinned for {' on '.join(PLATFORMS[agent])} only")
    folder.mkdir()
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / agent / name, folder / name)
    npm = [str(node()), str(node().parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    options = ["--no-audit", "--no-fund", "--no-progress", "--loglevel=error", "--prefer-offline", "--fetch-retries=1"]
    _run([*npm, "ci", "--ignore-scripts", *options], cwd=folder)


def _python(folder: Path) -> Path:
    """Return the interpreter of an environment: a link to one that may have gone since."""
    return folder / "bin" / "python"


def _run(command: Sequence[str], cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(
            command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"it was not installed: {error}") from None
    if done.returncode:
        raise Unavailable(f"it was not installed: {done.stderr.strip() or done.stdout.strip()}")


def _interpreter(minors: Sequence[int]) -> str:
    """Return a Python 3 of one of these minor versions that starts and can make virtual environments."""
    for minor in minors:
        probe = f"import sys, venv; sys.exit(sys.version_info[:2] != (3, {minor}))"
        for candidate in _candidates(minor):
            try:
                if subprocess.run([candidate, "-c", probe], capture_output=True, timeout=20).returncode == 0:
                    return candidate
            except (OSError, subprocess.TimeoutExpired):
                continue
    raise Unavailable(f"there is no Python 3.{', 3.'.join(map(str, minors))} here")


def _candidates(minor: int) -> Iterator[str]:
    """Yield names of Pythons: ours, one on the path (pyenv's may not start), and those that pyenv and uv keep."""
    if sys.version_info[:2] == (3, minor):
        yield sys.executable
    yield f"python3.{minor}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or Path.home() / ".local" / "share" / "uv" / "python")
    for folder in (Path(sys.base_prefix).parent, pyenv, uv):
        for pattern in (f"3.{minor}.*", f"cpython-3.{minor}.*"):
            yield from (str(found / "bin" / "python3") for found in sorted(folder.glob(pattern)))
