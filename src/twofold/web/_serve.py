"""The server: uvicorn around the application, on loopback unless told otherwise."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Collection
from pathlib import Path
from typing import Final

import uvicorn

from twofold.journal import Journal
from twofold.web._app import application

__all__ = ["Server", "kept_token"]

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


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
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
        except OSError:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}/" + ("" if token is None else f"?token={token}")
        """The link to open; with the token, if there is one."""
        app = application(journal, token=token, hosts=[*LOOPBACK, host, *hosts])
        config = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, lifespan="on", timeout_graceful_shutdown=2
        )
        self._server = uvicorn.Server(config)

    def run(self) -> None:
        """Serve until interrupted."""
        self._server.run(sockets=[self._socket])

    async def serve(self) -> None:
        """Serve until :meth:`stop`."""
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        """End."""
        self._server.should_exit = True


def kept_token(path: Path | None = None) -> str:
    """Give this user's token, made at first use and kept in a file that only they can read: links stay good.

    Raises :class:`OSError` when it cannot be kept.
    """
    if path is None:
        state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
        path = Path(state) / "twofold" / "serve-token"
    try:
        held = path.read_text("ascii").strip()
        if len(held) >= 32:
            return held
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    token = secrets.token_urlsafe(32)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
    return token
