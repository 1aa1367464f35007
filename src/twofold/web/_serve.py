"""The server: uvicorn around the application, on loopback unless told otherwise."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
from collections.abc import Collection
from pathlib import Path
from typing import Final

import uvicorn

from twofold.journal import Journal
from twofold.web._app import Application, link

__all__ = ["Server", "is_loopback", "kept_token"]

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")

GRACE: Final = 2
"""Seconds that answers under way have when the server ends."""


class Server:
    """Serves a journal. ``token=None`` asks for none. ``hosts`` are further names that the Host of a request may have.

    ``port`` 0 takes a free one. Raises :class:`OSError` when the address cannot be had.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None,
        hosts: Collection[str] = (),
    ) -> None:
        self._socket = _bound(host, port)
        self.port: int = self._socket.getsockname()[1]
        everywhere = host in ("0.0.0.0", "::")
        self._host = LOOPBACK[1] if everywhere else f"[{host}]" if ":" in host else host
        self._token = token
        names = [*LOOPBACK, *(["*"] if everywhere else [host]), *hosts]
        self.application = Application(journal, token=token, hosts=names)
        config = uvicorn.Config(
            self.application,
            http="h11",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE,
        )
        self._server = _Uvicorn(config)

    def link(self, session: str | None = None) -> str:
        """Give the link to the list, or to a session, with the token if there is one."""
        place = "" if session is None else link(session)
        token = "" if self._token is None else f"{'&' if place else '?'}token={self._token}"
        return f"http://{self._host}:{self.port}/{place}{token}"

    def run(self) -> None:
        """Serve until interrupted."""
        self._server.run(sockets=[self._socket])

    async def serve(self) -> None:
        """Serve until :meth:`stop`."""
        await self._server.serve(sockets=[self._socket])

    def close(self) -> None:
        """Let go of the address. Only who does not serve has to."""
        self._socket.close()

    def stop(self) -> None:
        """End, soon. It can be called from any thread."""
        self._server.should_exit = True


class _Uvicorn(uvicorn.Server):
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let those go first who watch: they would stay."""
        app = self.config.app
        if isinstance(app, Application):
            await app.close()
        await super().shutdown(sockets)


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(128)  # from now on, so that the link is good as soon as it is known
    except OSError:
        bound.close()
        raise
    return bound


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == LOOPBACK[0]


def kept_token(path: Path | None = None) -> str:
    """Give this user's token, made at first use and kept in a file that only they can read: links stay good.

    Raises :class:`OSError` when it cannot be kept.
    """
    if path is None:
        state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
        path = Path(state) / "twofold" / "serve-token"
    try:
        held = path.read_text("ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        held = ""
    if len(held) >= 32 and held.isascii() and held.replace("-", "").replace("_", "").isalnum():
        path.chmod(0o600)
        return held
    token = secrets.token_urlsafe(32)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
    fresh.replace(path)
    return token
