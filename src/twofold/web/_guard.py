"""What stands before the application: it answers to its own names, to reading, and to who has the token."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Collection, MutableMapping
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["Guard"]

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types twofold"
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_KEPT: Final = 30 * 24 * 3600
_FOREIGN: Final = ("cross-site", "same-site")  # another port of the same host is the same site


class Guard:
    """Refuses what is not for the application, and sets the headers of every answer.

    ``hosts`` are the names, without port, that a request may call us by: a page elsewhere whose name is made to lead
    here is not one of them. With ``"*"`` among them every address is one too; a name still has to be listed.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, hosts: Collection[str]) -> None:
        self._app = app
        self._token = token
        self._hosts = frozenset(host.lower() for host in hosts if host != "*")
        self._any_address = "*" in hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError("there is nothing but HTTP here")

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        refusal = self._refusal(Request(scope))
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        name, port = _split(host)
        if not self._is_ours(name):
            return PlainTextResponse("This name does not belong to this server.\n", 421)
        origin = request.headers.get("origin")
        site, mode = request.headers.get("sec-fetch-site"), request.headers.get("sec-fetch-mode")
        if (origin is not None and origin.partition("://")[2] != host) or (site in _FOREIGN and mode != "navigate"):
            return PlainTextResponse("Requests of other sites are not answered.\n", 403)
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("This page is for reading.\n", 405, {"allow": "GET, HEAD"})
        if self._token is None:
            return None
        cookie = f"twofold-{port or 'web'}"  # ports of one host share their cookies
        query = parse_qsl(request.url.query, keep_blank_values=True, errors="surrogateescape")
        if any(key == "token" and self._is_token(value) for key, value in query):
            rest = urlencode([pair for pair in query if pair[0] != "token"], errors="surrogateescape", quote_via=quote)
            place = request.url.path.rpartition("/")[2]  # as it is called from here: there may be folders before
            answer = RedirectResponse(f"./{place}" + (f"?{rest}" if rest else ""), 303)
            answer.set_cookie(cookie, self._token, httponly=True, samesite="lax", max_age=_KEPT)
            return answer
        if self._is_token(request.cookies.get(cookie, "")):
            return None
        words = "Open the link that twofold serve printed: it has the token that this page asks for.\n"
        return PlainTextResponse(words, 401)

    def _is_ours(self, name: str) -> bool:
        if name in self._hosts:
            return True
        if not self._any_address:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _is_token(self, given: str) -> bool:
        held = self._token or ""
        return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), held.encode()) and bool(held)


def _split(host: str) -> tuple[str, str]:
    """Give the name and the port of a Host header."""
    if host.startswith("["):
        name, _, rest = host[1:].partition("]")
        return name.lower(), rest.removeprefix(":")
    name, _, port = host.partition(":")
    return name.lower(), port
