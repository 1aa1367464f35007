"""The application: a list of sessions, a page for each, its events. Nothing leaves the machine, nothing is served to a
stranger: every request needs the token (of the link, then of a cookie) and a Host that is ours."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from typing import Any, Final
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from twofold.fold import SETUP
from twofold.journal import Damaged, Journal
from twofold.plaintext import visible_line
from twofold.view import footer, markdown
from twofold.web._html import highlight_styles
from twofold.web._hub import Hubs
from twofold.wire import v2

__all__ = ["application"]

COOKIE: Final = "twofold"
LIVE: Final = 15.0
"""Seconds since the last record within which a session counts as live, when it does not say that it is at work."""

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    b"content-security-policy": _POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}


def application(journal: Journal, *, token: str | None, hosts: Collection[str]) -> ASGIApp:
    """Give the application over a journal.

    ``token`` is asked for once in the link (``?token=…``) and kept in a cookie; ``None`` asks for none. ``hosts`` are
    the names, without port, that a request's Host may have; any other is refused, whoever resolved it to us.
    """
    hubs = Hubs(journal)
    pages = _Pages(journal, hubs)
    routes = [
        Route("/", pages.sessions),
        Route("/sessions", pages.sessions_fragment),
        Route("/session/{session:path}/events", pages.events),
        Route("/session/{session:path}/markdown", pages.markdown),
        Route("/session/{session:path}", pages.session),
        Route("/static/{name}", _static),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        yield
        pages.closing.set()
        await hubs.close()

    return _Guard(Starlette(routes=routes, lifespan=lifespan), token=token, hosts=hosts)


class _Guard:
    """Refuses what is not for us, and sets the headers of every answer."""

    def __init__(self, app: ASGIApp, *, token: str | None, hosts: Collection[str]) -> None:
        self._app = app
        self._token = token
        self._hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                held = {name.lower() for name, _ in message["headers"]}
                message["headers"] += [(name, value) for name, value in _HEADERS.items() if name not in held]
            await send(message)

        request = Request(scope)
        refusal = self._refusal(request)
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        if name.strip("[]").lower() not in self._hosts:
            return PlainTextResponse("This name does not belong to this server.\n", 421)
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return PlainTextResponse("Requests of other sites are not answered.\n", 403)
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("This page is for reading.\n", 405, {"allow": "GET, HEAD"})
        if self._token is None:
            return None
        given = request.query_params.get("token")
        if given is not None and self._is_token(given):
            rest = [(key, value) for key, value in request.query_params.multi_items() if key != "token"]
            path = request.url.path + ("?" + "&".join(f"{quote(k)}={quote(v)}" for k, v in rest) if rest else "")
            answer = RedirectResponse(path, 303)
            answer.set_cookie(COOKIE, given, httponly=True, samesite="strict", max_age=30 * 24 * 3600)
            return answer
        if self._is_token(request.cookies.get(COOKIE, "")):
            return None
        words = "Open the link that twofold serve printed: it has the token that this page asks for.\n"
        return PlainTextResponse(words, 401)

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name == "highlight.css":
        return Response(highlight_styles(), media_type="text/css")
    kinds = {"twofold.css": "text/css", "twofold.js": "text/javascript", "icon.svg": "image/svg+xml"}
    if name not in kinds:
        return PlainTextResponse("Not found.\n", 404)
    return Response((files("twofold.web") / "static" / name).read_bytes(), media_type=kinds[name])


class _Pages:
    """What is shown."""

    def __init__(self, journal: Journal, hubs: Hubs) -> None:
        self._journal = journal
        self._hubs = hubs
        self._titles: dict[str, tuple[int, dict[str, Any]]] = {}
        self.closing = asyncio.Event()

    async def sessions(self, _request: Request) -> Response:
        """The list of sessions."""
        inner = await self._list()
        return _page("Sessions", f'<main id="sessions" data-refresh="/sessions"><h1>Sessions</h1>{inner}</main>')

    async def sessions_fragment(self, _request: Request) -> Response:
        """The list alone, for the page to refresh itself with."""
        return HTMLResponse(f"<h1>Sessions</h1>{await self._list()}")

    async def _list(self) -> str:
        infos = await asyncio.to_thread(self._journal.sessions)
        now = datetime.now(UTC).timestamp()
        items: list[str] = []
        for info in infos:
            about = await asyncio.to_thread(self._about, info.session, info.position)
            live = about["busy"] or now - info.updated_at < LIVE
            at = datetime.fromtimestamp(info.updated_at, UTC)
            title = about["title"] or info.session
            items.append(
                f'<li><a href="/session/{quote(info.session, safe="")}"><span class="title">{escape(title)}</span>'
                f'<span class="where">{escape(about["cwd"])}</span>'
                f'<time datetime="{at.isoformat()}">{at:%Y-%m-%d %H:%M} UTC</time>'
                f"{'<span class=live>live</span>' if live else ''}"
                f'<span class="footer">{escape(about["footer"])}</span></a></li>'
            )
        if not items:
            return '<p class="empty">There are no sessions in this journal yet.</p>'
        return f'<ul class="sessions">{"".join(items)}</ul>'

    def _about(self, session: str, position: int) -> dict[str, Any]:
        """Say what a session is about; looked at again only when it has changed."""
        held = self._titles.get(session)
        if held is not None and held[0] == position:
            return held[1]
        transcript = self._journal.load(session).transcript
        title, state = transcript.session_info.title, transcript.state
        first = next((message for message in transcript.messages if message.type == "user_message"), None)
        if not isinstance(title, str) or not title:
            title = "" if first is None else first.text.strip().partition("\n")[0][:120]
        about = {
            "title": visible_line(title),
            "cwd": visible_line(self._cwd(session)),
            "busy": state is not None and state.state != "idle",
            "footer": footer(transcript),
        }
        self._titles[session] = (position, about)
        return about

    def _cwd(self, session: str) -> str:
        try:
            page = self._journal.page(session, 0)
        except Damaged:
            return ""
        for record in page:
            if SETUP.encode() in record.raw:
                update = v2.decode_update(record.raw)
                if isinstance(update, v2.OtherUpdate) and isinstance(update.fields.get("cwd"), str):
                    return str(update.fields["cwd"])
        return ""

    async def _exists(self, session: str) -> bool:
        return bool(await asyncio.to_thread(self._journal.position, session))

    async def session(self, request: Request) -> Response:
        """One session."""
        session = request.path_params["session"]
        if not await self._exists(session):
            return _page("Not found", "<main><h1>There is no such session in this journal.</h1></main>", 404)
        hub = await self._hubs.of(session)
        header = hub.header
        title = header["title"] or visible_line(session)
        link = quote(session, safe="")
        inner = (
            f'<header class="top"><a href="/" class="back">Sessions</a><h1>{escape(title)}</h1>'
            '<label class="search"><span class="hidden">Search in this session</span>'
            '<input id="search" type="search" placeholder="Search" autocomplete="off"></label>'
            '<span id="found" role="status"></span>'
            f'<a href="/session/{link}/markdown" class="export">Markdown</a>'
            '<span id="connection" role="status">connecting</span></header>'
            f'<main id="rows" data-events="/session/{link}/events" data-position="{hub.position}" '
            f'aria-live="polite" aria-relevant="additions">{"".join(hub.rows())}</main>'
            f'<footer id="footer" data-state="{escape(header["state"], quote=True)}">'
            f"{escape(header['footer'])}</footer>"
            '<button id="latest" type="button" hidden>Jump to the latest</button>'
        )
        return _page(title, inner)

    async def markdown(self, request: Request) -> Response:
        """One session as Markdown, to keep."""
        session = request.path_params["session"]
        if not await self._exists(session):
            return PlainTextResponse("There is no such session.\n", 404)
        loaded = await asyncio.to_thread(self._journal.load, session)
        return PlainTextResponse(markdown(loaded.transcript), media_type="text/markdown")

    async def events(self, request: Request) -> Response:
        """The changes of one session, from a position on (``after``, or ``Last-Event-ID`` of who comes back)."""
        session = request.path_params["session"]
        if not await self._exists(session):
            return PlainTextResponse("There is no such session.\n", 404)
        given = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
        after = int(given) if given.isdecimal() and len(given) < 19 else 0
        hub = await self._hubs.of(session)
        return StreamingResponse(
            self._stream(hub.events(after)), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
        )

    async def _stream(
        self, events: AsyncGenerator[tuple[int | None, str, dict[str, Any]], None]
    ) -> AsyncGenerator[bytes, None]:
        closing = asyncio.create_task(self.closing.wait())
        waiting: asyncio.Task[tuple[int | None, str, dict[str, Any]]] | None = None
        try:
            yield b"retry: 500\n\n"
            while True:
                if waiting is None:
                    waiting = asyncio.ensure_future(anext(events))
                await asyncio.wait({waiting, closing}, timeout=15.0, return_when=asyncio.FIRST_COMPLETED)
                if closing.done():
                    return
                if not waiting.done():
                    yield b": still here\n\n"
                    continue
                position, name, data = waiting.result()
                waiting = None
                text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
                mark = "" if position is None else f"id: {position}\n"
                yield f"{mark}event: {name}\ndata: {text}\n\n".encode("utf-8", "replace")
        finally:
            closing.cancel()
            if waiting is not None:
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
                    await waiting
            await events.aclose()


def _page(title: str, inner: str, status: int = 200) -> Response:
    return HTMLResponse(
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)} · twofold</title>"
        '<link rel="stylesheet" href="/static/twofold.css"><link rel="stylesheet" href="/static/highlight.css">'
        '<link rel="icon" href="/static/icon.svg" type="image/svg+xml">'
        '<script src="/static/twofold.js" defer></script></head>'
        f"<body>{inner}</body></html>\n",
        status,
    )
