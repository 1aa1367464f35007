"""The application in this process, and a client of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
import pytest

from tests.web.page import DEADLINE
from twofold.journal import Journal
from twofold.web import Application
from twofold.web._markdown import markdown_html
from twofold.web._renderer import Renderer

__all__ = ["HOST", "TOKEN", "Client", "serving"]

TOKEN: Final = "t0ken-of-the-test_" + "x" * 20
HOST: Final = "localhost:8000"


class Here(Renderer):
    """Renders in this process: nothing in the tests takes long."""

    async def html(self, texts: Sequence[str], *, breaks: bool) -> list[str] | None:
        return [markdown_html(text, breaks=breaks) for text in texts]


class Client:
    """Asks the application, with the token's cookie unless told otherwise."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://{HOST}")

    async def get(
        self, path: str, *, method: str = "GET", cookie: str | None = TOKEN, **headers: str
    ) -> httpx.Response:
        """Ask, following nothing. Headers are spelled with underscores."""
        return await self._client.request(method, path, headers=_headers(cookie, headers))

    @asynccontextmanager
    async def events(self, path: str, **headers: str) -> AsyncIterator[AsyncGenerator[bytes, None]]:
        """Watch; httpx would wait for the end, which does not come."""
        url = httpx.URL(f"http://{HOST}{path}")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": url.path,
            "raw_path": url.raw_path,
            "query_string": url.query,
            "headers": [
                (name.lower().encode(), value.encode())
                for name, value in {"host": HOST, **_headers(TOKEN, headers)}.items()
            ],
            "server": ("127.0.0.1", 8000),
            "client": ("127.0.0.1", 1),
        }
        messages: asyncio.Queue[Any] = asyncio.Queue(maxsize=1)
        left = asyncio.Event()

        async def receive() -> Any:
            await left.wait()
            return {"type": "http.disconnect"}

        async def taken() -> AsyncGenerator[bytes, None]:
            while (message := await messages.get())["type"] == "http.response.body":
                for event in message["body"].split(b"\n\n"):
                    if event:
                        yield event + b"\n\n"
                if not message.get("more_body"):
                    return

        task = asyncio.create_task(self.app(scope, receive, messages.put))
        try:
            async with asyncio.timeout(DEADLINE):
                start = await messages.get()
            assert start["status"] == 200, start
            assert dict(start["headers"])[b"content-type"] == b"text/event-stream; charset=utf-8"
            yield taken()
        finally:
            left.set()
            task.cancel()
            await asyncio.wait({task})

    async def close(self) -> None:
        await self._client.aclose()
        await self.app.close()


def _headers(cookie: str | None, headers: dict[str, str]) -> dict[str, str]:
    held = {"cookie": f"twofold-8000={cookie}"} if cookie is not None else {}
    return held | {name.replace("_", "-"): value for name, value in headers.items()}


@asynccontextmanager
async def serving(
    journal: Journal, *, token: str | None = TOKEN, hosts: Collection[str] = ("localhost", "127.0.0.1", "::1")
) -> AsyncIterator[Client]:
    """Serve a journal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("twofold.web._app.Renderer", Here)
        client = Client(Application(journal, token=token, hosts=hosts))
    try:
        async with asyncio.timeout(3 * DEADLINE):
            yield client
    finally:
        await client.close()
