"""The application: a list of sessions, a page for each, its events. What is shown is made here, not in the browser."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Collection
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.resources import files
from typing import Final
from urllib.parse import parse_qsl, quote

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from twofold.exceptions import TwofoldError
from twofold.journal import Journal
from twofold.plaintext import visible_line
from twofold.view import Row, markdown
from twofold.web._guard import Guard
from twofold.web._html import colour_styles
from twofold.web._hub import Hubs
from twofold.web._markdown import highlight_styles
from twofold.web._renderer import Renderer
from twofold.web._sessions import Entry, Sessions

__all__ = ["Application", "link"]

ACTIVITIES: Final = {"live": "live", "asks": "waits for a permission", "silent": "not heard of since", "": ""}

OPENING: Final = 0.4
"""Seconds that a page waits for what is in sight at first to be rendered."""

MOST: Final = 100
"""Rows that can be asked for at once."""

KEYS: Final = (
    ("j, k", "next, previous"),
    ("Home, End", "first, latest"),
    ("o", "unfold or fold"),
    ("c", "copy as Markdown"),
    ("/", "search; Enter and Shift+Enter go through what is found"),
    ("Esc", "end the search"),
    ("?", "this list"),
)


class Application:
    """The application over a journal, for any ASGI server; :class:`Server` has one.

    ``token`` is asked for once in the link (``?token=…``) and kept in a cookie; ``None`` asks for none. ``hosts`` are
    the names, without port, that a request's Host may have; any other is refused, whoever resolved it to us. ``"*"``
    stands for every numeric address.
    """

    def __init__(self, journal: Journal, *, token: str | None, hosts: Collection[str]) -> None:
        self.watched = threading.Event()
        """Set when somebody first watches a session."""
        self._journal = journal
        self._renderer = Renderer()
        self._hubs = Hubs(journal, self._renderer)
        self._sessions = Sessions(journal)
        routes = [
            Route("/", self._index),
            Route("/sessions", self._list),
            Route("/session", self._session),
            Route("/rows", self._rows),
            Route("/events", self._events),
            Route("/markdown", self._markdown),
            Route("/static/{name}", _static),
            Route("/favicon.ico", _icon),
        ]
        app = Starlette(routes=routes, lifespan=self._lifespan, exception_handlers={TwofoldError: _unavailable})
        self._guard = Guard(app, token=token, hosts=hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as ASGI says."""
        await self._guard(scope, receive, send)

    async def close(self) -> None:
        """Let everyone go who watches, and let go of everything but the journal."""
        await self._hubs.close()
        await self._sessions.close()
        await self._renderer.close()

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncGenerator[None, None]:
        await self._renderer.start()
        yield
        await self.close()

    async def _index(self, _request: Request) -> Response:
        """The list of sessions."""
        inner = _listed(await self._sessions.now())
        return _page("Sessions", f'<main id="sessions"><h1>Sessions</h1><div id="list">{inner}</div></main>')

    async def _list(self, _request: Request) -> Response:
        """The list alone, for the page to refresh itself with."""
        return HTMLResponse(_listed(await self._sessions.now()))

    async def _session(self, request: Request) -> Response:
        """One session."""
        session = _asked(request, "id")
        if not await self._exists(session):
            words = "There is no such session in this journal."
            inner = f'<main><h1>{words}</h1><p><a href="./">All sessions</a></p></main>'
            return _page("Not found", inner, 404)
        hub = await self._hubs.of(session)
        mark, rows = await hub.page(OPENING)
        header = hub.header
        name = visible_line(session)
        title, state = header["title"] or name, escape(header["state"], quote=True)
        keys = "".join(f"<dt>{escape(key)}</dt><dd>{escape(what)}</dd>" for key, what in KEYS)
        inner = (
            '<a class="skip" href="#latest">Skip to the latest</a>'
            f'<header class="top"><a href="./" class="back">Sessions</a><h1 id="title" dir="auto">{escape(title)}</h1>'
            '<div role="search" class="search"><input id="search" type="search" placeholder="Search" '
            'aria-label="Search in this session" autocomplete="off" spellcheck="false">'
            '<output id="found" for="search"></output></div>'
            f'<a href="markdown?id={_quoted(session)}" class="export" download>Markdown</a>'
            '<button id="help" type="button" aria-haspopup="dialog">Keys</button>'
            '<span id="connection" role="status">not live: this needs JavaScript</span></header>'
            f'<main id="rows" data-session="{_quoted(session)}" data-name="{escape(name, quote=True)}" '
            f'data-mark="{mark}">{"".join(rows)}</main>'
            f'<footer id="foot" data-state="{state}"><p id="asked" class="asked"{"" if _asks(header) else " hidden"}>'
            f'{escape(_asks(header))}</p><p id="gaps" class="asked"{"" if header["gaps"] else " hidden"}>'
            f'{escape(header["gaps"])}</p><p id="footer">{escape(header["footer"])}</p></footer>'
            '<button id="latest" type="button" hidden>Jump to the latest</button>'
            '<div id="announcer" class="hidden" role="status"></div>'
            f'<dialog id="keys" aria-label="Keys"><dl>{keys}</dl><label><input id="shortcuts" type="checkbox" checked> '
            'Use these keys</label> <button id="done" type="button">Done</button></dialog>'
        )
        return _page(title, inner)

    async def _rows(self, request: Request) -> Response:
        """Some rows of a session, rendered, for the page when they come into sight."""
        session, names = _asked(request, "id"), _asked(request, "row")
        if not await self._exists(session):
            return PlainTextResponse("There is no such session.\n", 404)
        hub = await self._hubs.of(session)
        return HTMLResponse("".join(await hub.render(names.split(" ")[:MOST])))

    async def _events(self, request: Request) -> Response:
        """The changes of one session since a mark (``after``, or ``Last-Event-ID`` of who comes back)."""
        session = _asked(request, "id")
        if not await self._exists(session):
            return PlainTextResponse("There is no such session.\n", 404)
        headers = {"x-accel-buffering": "no"}
        if request.method == "HEAD":
            return Response(media_type="text/event-stream", headers=headers)
        mark = request.headers.get("last-event-id") or _asked(request, "after")
        hub = await self._hubs.of(session)
        self.watched.set()

        async def events() -> AsyncIterator[bytes]:
            async with contextlib.aclosing(hub.events(mark)) as coming:
                yield b"retry: 500\n\n"
                async for event in coming:
                    yield event

        return StreamingResponse(events(), media_type="text/event-stream", headers=headers)

    async def _markdown(self, request: Request) -> Response:
        """A session, or one row of it, as Markdown, to keep."""
        session, name = _asked(request, "id"), _asked(request, "row")
        if not await self._exists(session):
            return PlainTextResponse("There is no such session.\n", 404)
        if not name:
            loaded = await asyncio.to_thread(self._journal.load, session)
            words = await asyncio.to_thread(markdown, loaded.transcript)
            return PlainTextResponse(
                words, media_type="text/markdown", headers={"content-disposition": 'attachment; filename="session.md"'}
            )
        row = (await self._hubs.of(session)).row(name)
        if row is None:
            return PlainTextResponse("There is no such row.\n", 404)
        return PlainTextResponse(_source(row), media_type="text/markdown")

    async def _exists(self, session: str) -> bool:
        return bool(session) and bool(await asyncio.to_thread(self._journal.position, session))


def link(session: str) -> str:
    """Give the link to a session's page, from the list."""
    return f"session?id={_quoted(session)}"


def _quoted(session: str) -> str:
    return quote(session, safe="", errors="surrogatepass")


def _asked(request: Request, name: str) -> str:
    """Give a parameter of a request, empty if there is none. Ids may hold anything, even halves of characters."""
    with contextlib.suppress(UnicodeDecodeError):
        return dict(parse_qsl(request.url.query, keep_blank_values=True, errors="surrogatepass")).get(name, "")
    return ""


def _asks(header: dict[str, str]) -> str:
    if header["state"] != "requires_action":
        return ""
    return "The agent waits for a permission" + (f": {header['asked']}" if header["asked"] else ".")


def _listed(entries: list[Entry]) -> str:
    if not entries:
        return '<p class="empty">There are no sessions in this journal yet.</p>'
    return f'<ul class="sessions">{"".join(map(_entry, entries))}</ul>'


def _entry(entry: Entry) -> str:
    at = datetime.fromtimestamp(entry.info.updated_at, UTC)
    name = visible_line(entry.info.session)
    activity = ACTIVITIES[entry.activity]
    parts = [
        f'<span class="title" dir="auto">{escape(entry.about.title or name)}</span>',
        f'<span class="activity {entry.activity}">{activity}</span>' if activity else "",
        f'<span class="where" dir="auto">{escape(entry.about.cwd or name)}</span>',
        f'<time datetime="{at:%Y-%m-%dT%H:%M:%SZ}">{at:%Y-%m-%d %H:%M} UTC</time>',
        f'<span class="said" dir="auto">{escape(entry.about.footer)}</span>' if entry.about.footer else "",
    ]
    return f'<li><a href="{link(entry.info.session)}">{" ".join(filter(None, parts))}</a></li>'


def _source(row: Row) -> str:
    """Give a row's body as Markdown."""
    parts: list[str] = []
    for piece in row.body:
        if piece.kind == "code":
            fence = "```"
            while fence in piece.text:
                fence += "`"
            parts.append(f"{fence}{piece.language}\n{piece.text}\n{fence}")
        else:
            parts.append(piece.text)
    return "\n\n".join(parts) + "\n"


def _page(title: str, inner: str, status: int = 200) -> Response:
    return HTMLResponse(
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)} · twofold</title>"
        '<link rel="stylesheet" href="static/twofold.css"><link rel="stylesheet" href="static/colours.css">'
        '<link rel="icon" href="static/icon.svg" type="image/svg+xml">'
        '<script src="static/twofold.js" defer></script></head>'
        f"<body>{inner}</body></html>\n",
        status,
    )


_KINDS: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    content = _contents().get(name)
    if content is None:
        return PlainTextResponse("Not found.\n", 404)
    return Response(content, media_type=_KINDS[name.rpartition(".")[2]])


def _icon(_request: Request) -> Response:
    """What browsers ask for by themselves where a page, such as a refusal, names no icon."""
    return Response(_contents()["icon.svg"], media_type=_KINDS["svg"])


@cache
def _contents() -> dict[str, bytes]:
    folder = files("twofold.web") / "static"
    held = {name: (folder / name).read_bytes() for name in ("twofold.css", "twofold.js", "icon.svg")}
    return held | {"colours.css": (highlight_styles() + colour_styles()).encode()}


async def _unavailable(_request: Request, _error: Exception) -> Response:
    return PlainTextResponse("The journal cannot be read now.\n", 503)
