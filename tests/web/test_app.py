"""What the application answers, and to whom."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

import pytest

from tests.journal.stored import Session, call, chunk, text, whole
from tests.view.hostile import acts
from tests.web.client import HOST, TOKEN, Client, serving
from tests.web.html import Element, parsed
from tests.web.page import Page, watching
from twofold.fold import SETUP
from twofold.journal import Journal, Record, SessionInfo, Unavailable
from twofold.journal.memory import MemoryJournal
from twofold.web import _sessions

IDLE = {"sessionUpdate": "state_update", "state": "idle"}
RUNNING = {"sessionUpdate": "state_update", "state": "running"}
PATHS = ["/", "/sessions", "/session?id=s", "/rows?id=s&row=agent_message/m", "/markdown?id=s", "/static/twofold.js"]
ODD = [
    "a/b", "a/events", ".", "..", "../..", "/", "//example.com", "?x=1&y=2#z", "a&after=9", "%2F", "%", "+", " ", "a b",
    "żółw", "日本", "👩‍💻", "\ud800", "a\nb", "a\0b", "<script>alert(1)</script>", "\" onclick=\"x", "'", "x" * 5000,
]  # fmt: skip


def journal_of(*updates: Any, session: str = "s", journal: Journal | None = None) -> Journal:
    held = journal or MemoryJournal()
    Session(held, session).append(*updates)
    return held


def run(body: Callable[[Client], Awaitable[None]], journal: Journal | None = None, **how: Any) -> None:
    async def main() -> None:
        held = journal or journal_of(whole("m", text("words")), IDLE)
        async with serving(held, **how) as client:
            await body(client)
        held.close()

    asyncio.run(main())


# Who is answered


@pytest.mark.parametrize("path", [*PATHS, "/events?id=s", "/nowhere"])
@pytest.mark.parametrize("cookie", [None, "", "wrong", TOKEN + "x", TOKEN[:-1], "\u00e9"])
def test_without_the_token_nothing_is_told(path: str, cookie: str | None) -> None:
    async def body(client: Client) -> None:
        answer = await client.get(path, cookie=None if cookie is None else quote(cookie))
        assert answer.status_code == 401
        assert "twofold serve printed" in answer.text
        assert "set-cookie" not in answer.headers

    run(body)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/?token={}", "./"),
        ("/session?id=a%2Fb%26&token={}", "./session?id=a%2Fb%26"),
        ("/session?token={}&id=%ED%A0%80&after=", "./session?id=%ED%A0%80&after="),
        ("/folder/session?token={}", "./session"),
    ],
)
def test_the_token_in_a_link_becomes_a_cookie_and_leaves_the_address(path: str, place: str) -> None:
    async def body(client: Client) -> None:
        answer = await client.get(path.format(TOKEN), cookie=None)
        assert (answer.status_code, answer.headers["location"]) == (303, place)
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"twofold-8000={TOKEN}; ")
        assert {"HttpOnly", "SameSite=lax", "Path=/"} <= set(cookie.split("; "))
        assert TOKEN not in answer.text

    run(body)


@pytest.mark.parametrize("given", ["wrong", "", "%FF", "%00"])
def test_a_wrong_token_in_a_link_is_none(given: str) -> None:
    async def body(client: Client) -> None:
        assert (await client.get(f"/?token={given}", cookie=None)).status_code == 401
        assert (await client.get(f"/?token={given}")).status_code == 200

    run(body)


@pytest.mark.parametrize("path", PATHS)
def test_with_the_cookie_everything_is_told(path: str) -> None:
    async def body(client: Client) -> None:
        assert (await client.get(path)).status_code == 200
        assert (await client.get(path, host="localhost:9999")).status_code == 401  # another server's

    run(body)


@pytest.mark.parametrize("path", PATHS)
def test_where_no_token_is_asked_for_none_is_needed(path: str) -> None:
    async def body(client: Client) -> None:
        assert (await client.get(path, cookie=None)).status_code == 200

    run(body, token=None)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("LocalHost:8000", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("localhost", 200),
        ("", 421),
        ("example.com:8000", 421),
        ("localhost.example.com:8000", 421),
        ("127.0.0.1.example.com", 421),
        ("localhost@example.com:8000", 421),
        ("example.com/localhost", 421),
        ("::1", 421),
        ("[localhost]", 200),
        ("0.0.0.0:8000", 421),
        ("192.168.1.5:8000", 421),
    ],
)
def test_only_our_own_names_are_answered_to(host: str, status: int) -> None:
    async def body(client: Client) -> None:
        assert (await client.get("/", host=host)).status_code == status

    run(body, token=None)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("192.168.1.5:8000", 200),
        ("[fe80::1]:8000", 200),
        ("box.lan:8000", 200),
        ("example.com", 421),
        ("1.2.3.4.example.com", 421),
        ("*", 421),
    ],
)
def test_who_serves_everywhere_is_called_by_any_address_but_not_by_any_name(host: str, status: int) -> None:
    async def body(client: Client) -> None:
        assert (await client.get("/", host=host)).status_code == status

    run(body, token=None, hosts=["*", "box.lan"])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": f"http://{HOST}"}, 200),
        ({"origin": f"https://{HOST}"}, 200),
        ({"origin": "http://localhost:9999"}, 403),
        ({"origin": "https://example.com"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"sec_fetch_site": "same-origin", "sec_fetch_mode": "cors"}, 200),
        ({"sec_fetch_site": "none", "sec_fetch_mode": "navigate"}, 200),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"}, 200),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors"}, 403),
        ({"sec_fetch_site": "cross-site", "sec_fetch_mode": "cors"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site", "sec_fetch_mode": "navigate"}, 200),
        ({"sec_fetch_site": "same-site", "sec_fetch_mode": "no-cors"}, 403),
    ],
)
def test_pages_of_other_sites_are_not_answered(headers: dict[str, str], status: int) -> None:
    async def body(client: Client) -> None:
        answer = await client.get("/", **headers)
        assert answer.status_code == status
        assert "access-control-allow-origin" not in answer.headers

    run(body)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_there_is_nothing_but_reading(method: str) -> None:
    async def body(client: Client) -> None:
        for path in PATHS:
            answer = await client.get(path, method=method)
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")

    run(body)


@pytest.mark.parametrize("path", [*PATHS, "/events?id=s"])
def test_the_head_of_everything_can_be_had(path: str) -> None:
    async def body(client: Client) -> None:
        answer = await client.get(path, method="HEAD")
        assert (answer.status_code, answer.content) == (200, b"")

    run(body)


@pytest.mark.parametrize(
    ("path", "how"),
    [
        *((path, {}) for path in PATHS),
        ("/", {"cookie": None}),
        ("/", {"host": "example.com"}),
        ("/", {"origin": "null"}),
        ("/", {"method": "POST"}),
        ("/nowhere", {}),
        ("/session?id=none", {}),
        (f"/?token={TOKEN}", {}),
    ],
)
def test_every_answer_says_what_a_page_may_do_and_that_it_is_not_to_be_kept(path: str, how: Any) -> None:
    async def body(client: Client) -> None:
        headers = (await client.get(path, **how)).headers
        policy = dict(part.partition(" ")[::2] for part in headers["content-security-policy"].split("; "))
        assert policy.pop("trusted-types") == "twofold"
        assert policy.pop("require-trusted-types-for") == "'script'"
        assert (
            policy["default-src"]
            == policy["base-uri"]
            == policy["form-action"]
            == policy["frame-ancestors"]
            == "'none'"
        )
        assert set(policy.values()) == {"'none'", "'self'"}
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
        assert len(headers.get_list("content-security-policy")) == 1

    run(body)


# Pages


async def page_of(client: Client, path: str) -> Element:
    answer = await client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return parsed(answer.text.removeprefix("<!doctype html>\n"))


def test_pages_hold_no_script_or_style_of_their_own_and_lead_nowhere_else() -> None:
    async def body(client: Client) -> None:
        for path in ("/", "/session?id=s"):
            page = await page_of(client, path)
            assert not page.all("style")
            assert [one.attributes for one in page.all("script")] == [{"src": "static/twofold.js", "defer": ""}]
            assert page.one("script").text == ""
            for one in page.all():
                assert not [name for name in one.attributes if name.startswith("on") or name == "style"]
                for name in ("href", "src"):
                    assert ":" not in one.attributes.get(name, "")
                    assert not one.attributes.get(name, "").startswith("/")

    run(body)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("twofold.js", "text/javascript; charset=utf-8"),
        ("twofold.css", "text/css; charset=utf-8"),
        ("colours.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    ],
)
def test_what_the_page_needs_is_there(name: str, kind: str) -> None:
    async def body(client: Client) -> None:
        answer = await client.get(f"/static/{name}")
        assert answer.headers["content-type"] == kind
        assert "http://" not in answer.text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in answer.text

    run(body)


@pytest.mark.parametrize("name", ["", "none.css", "../_app.py", "..%2F_app.py", "twofold.js/x", "%00"])
def test_nothing_else_is(name: str) -> None:
    async def body(client: Client) -> None:
        assert (await client.get(f"/static/{name}")).status_code == 404

    run(body)


@pytest.mark.parametrize("id", ["none", "", "s/", "S"])
def test_there_is_no_session_of_another_name(id: str) -> None:
    async def body(client: Client) -> None:
        for path in ("session", "events", "markdown", "rows"):
            answer = await client.get(f"/{path}?id={quote(id)}&row=x")
            assert answer.status_code == 404
            assert "no such session" in answer.text
        assert (await client.get("/session")).status_code == 404
        assert (await client.get("/session?id=%FF")).status_code == 404

    run(body)


@pytest.mark.parametrize("id", ODD, ids=ascii)
def test_a_session_and_a_message_may_have_any_id(id: str) -> None:
    async def body(client: Client) -> None:
        (link,) = (await page_of(client, "/")).one("ul").all("a")
        assert not any(map(acts, link.text))
        page = await page_of(client, "/" + link.attributes["href"])
        main = page.one("main")
        assert link.attributes["href"] == f"session?id={main.attributes['data-session']}"
        (row,) = main.all("article")
        assert row.one("a", class_="permalink").attributes["href"] == "#" + row.attributes["id"]
        assert not any(map(acts, page.text))
        async with client.events(f"/events?id={main.attributes['data-session']}&after=") as events:
            watcher = watching(events)
            await watcher.until(lambda page: list(page.rows) == [row.attributes["id"]])
            await watcher.stop()
        names = quote(row.attributes["id"], safe="")
        for path in ("markdown", "rows"):
            answer = await client.get(f"/{path}?id={main.attributes['data-session']}&row={names}")
            assert answer.status_code == 200
            assert "words" in answer.text

    run(body, journal_of(whole(id, text("words")), session=id))


def test_the_page_of_a_session_says_all_of_it() -> None:
    async def body(client: Client) -> None:
        page = await page_of(client, "/session?id=s")
        assert page.one("title").text == "A <title> · twofold"
        assert page.one("h1").text == "A <title>"
        assert [row.attributes["id"] for row in page.one("main").all("article")] == [
            "user_message/u",
            "agent_message/m",
        ]
        assert page.one("main").all("strong")[0].text == "rendered"
        assert page.one("footer").one("p", id="footer").text == "requires_action"
        assert page.one("p", id="asked").text == "The agent waits for a permission."

    run(
        body,
        journal_of(
            whole("u", text("?"), type="user_message"),
            whole("m", text("It is **rendered**.")),
            {"sessionUpdate": "session_info_update", "title": "A <title>"},
            {"sessionUpdate": "state_update", "state": "requires_action"},
        ),
    )


def test_what_was_said_is_in_no_title_for_a_browser_remembers_those() -> None:
    async def body(client: Client) -> None:
        page = await page_of(client, "/session?id=s")
        assert page.one("title").text == "s · twofold"

    run(body, journal_of(whole("u", text("my password is x"), type="user_message")))


def test_what_was_withdrawn_is_in_no_answer() -> None:
    async def body(client: Client) -> None:
        for path in [*PATHS, "/session?id=s", "/markdown?id=s&row=user_message/u"]:
            assert "hk_live" not in (await client.get(path)).text
        async with client.events("/events?id=s") as events:
            async for event in events:
                assert b"hk_live" not in event
                if event.startswith(b"id:"):
                    break

    run(
        body,
        journal_of(
            whole("u", text("the key is hk_live"), type="user_message"),
            chunk("m", "hk_live it is"),
            whole("u", content=None, type="user_message"),
            whole("m", content=None),
        ),
    )


def test_a_session_or_a_row_can_be_had_as_markdown() -> None:
    async def body(client: Client) -> None:
        answer = await client.get("/markdown?id=s")
        assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
        assert answer.headers["content-disposition"] == 'attachment; filename="session.md"'
        assert answer.text.startswith("# session s\n\n## Agent\n\n> **a**\n> b\n")
        assert (await client.get("/markdown?id=s&row=agent_message/m")).text == "**a**\nb\n"
        shown = (await client.get("/markdown?id=s&row=tool/c1")).text
        assert shown == "/x\n\nresource u\n\n````\na\n```\n````\n"
        assert (await client.get("/markdown?id=s&row=none")).status_code == 404

    items = [{"type": "content", "content": {"type": "resource", "resource": {"uri": "u", "text": "a\n```"}}}]
    run(body, journal_of(whole("m", text("**a**\nb")), call(title="T", content=items, locations=[{"path": "/x"}])))


def test_rows_are_rendered_when_they_are_asked_for() -> None:
    async def body(client: Client) -> None:
        page = await page_of(client, "/session?id=s")
        plain = [row.attributes["id"] for row in page.one("main").all("article") if "plain" in row.classes]
        assert plain == [f"agent_message/m{number}" for number in range(70)]
        answer = await client.get(f"/rows?id=s&row={'+'.join(plain[:3])}+none")
        rows = parsed(answer.text).all("article")
        assert [row.attributes["id"] for row in rows] == plain[:3]
        assert [row.one("em").text for row in rows] == ["0", "1", "2"]
        assert (await client.get("/rows?id=s&row=")).text == ""

    run(body, journal_of(*(whole(f"m{number}", text(f"*{number}*")) for number in range(100)), IDLE))


# The list


async def listed(client: Client) -> list[tuple[str, str]]:
    page = await page_of(client, "/sessions")
    return [(link.one("span", class_="title").text, link.one("span", class_="where").text) for link in page.all("a")]


def test_the_list_says_what_each_session_is_about_the_last_one_first() -> None:
    journal = journal_of(
        {"sessionUpdate": SETUP, "cwd": "/work"},
        whole("u", text("First line\nsecond"), type="user_message"),
        session="1",
    )
    journal_of({"sessionUpdate": "session_info_update", "title": "<b>A title"}, session="2", journal=journal)
    journal_of(whole("m", text("words")), session="3", journal=journal)

    async def body(client: Client) -> None:
        assert await listed(client) == [("3", "3"), ("<b>A title", "2"), ("First line", "/work")]
        page = await page_of(client, "/")
        assert page.one("title").text == "Sessions · twofold"
        assert len(page.one("ul").all("li")) == 3
        journal_of(whole("u", content=None, type="user_message"), session="1", journal=journal)
        assert await listed(client) == [("1", "/work"), ("3", "3"), ("<b>A title", "2")]

    run(body, journal)


def test_an_empty_journal_has_an_empty_list() -> None:
    async def body(client: Client) -> None:
        assert "There are no sessions in this journal yet." in (await page_of(client, "/")).text

    run(body, MemoryJournal())


@pytest.mark.parametrize(
    ("state", "ago", "activity"),
    [
        ("running", 1, "live"),
        ("running", 60, "live"),
        ("running", 1000, "not heard of since"),
        ("requires_action", 1000, "waits for a permission"),
        ("idle", 1, "live"),
        ("idle", 60, ""),
        (None, 60, ""),
        ("_dancing", 60, "live"),
    ],
)
def test_a_session_is_live_or_not(state: str | None, ago: float, activity: str) -> None:
    journal = MemoryJournal()
    raws = [] if state is None else [b'{"sessionUpdate":"state_update","state":"%s"}' % state.encode()]
    raws.append(b'{"sessionUpdate":"agent_message","messageId":"m"}')
    journal.append("s", 0, *raws, received_at=time.time() - ago)

    async def body(client: Client) -> None:
        shown = (await page_of(client, "/sessions")).all("span", class_="activity")
        assert [one.text for one in shown] == [activity] * bool(activity)

    run(body, journal)


class Counting(MemoryJournal):
    """Counts how often sessions are folded, and may take its time."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[str, int]] = []
        self.pause = 0.0

    def read(self, session: str, after: int = 0) -> Iterator[Record]:
        self.reads.append((session, after))
        time.sleep(self.pause)
        return super().read(session, after)


def test_a_session_is_looked_into_again_only_when_it_has_changed() -> None:
    journal = Counting()
    for name in "abc":
        journal_of(whole("u", text(name), type="user_message"), session=name, journal=journal)

    async def body(client: Client) -> None:
        for _ in range(3):
            await listed(client)
        assert journal.reads == [("c", 0), ("b", 0), ("a", 0)]
        journal_of(whole("n", text("more")), session="a", journal=journal)
        await listed(client)
        assert journal.reads[3:] == [("a", 1)]
        journal.delete("b")
        assert [title for title, _ in await listed(client)] == ["a", "c"]
        journal.delete("a")
        journal_of(
            whole("u", text("another"), type="user_message"), whole("m"), whole("n"), session="a", journal=journal
        )
        assert [title for title, _ in await listed(client)] == ["another", "c"]
        assert journal.reads[4:] == [("a", 0)]

    run(body, journal)


def test_the_list_does_not_wait_for_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sessions, "PATIENCE", 0.05)
    journal = Counting()
    journal.pause = 0.3
    journal_of(whole("u", text("a title"), type="user_message"), session="slow", journal=journal)

    async def body(client: Client) -> None:
        assert await listed(client) == [("slow", "slow")]
        while await listed(client) == [("slow", "slow")]:
            await asyncio.sleep(0.01)
        assert await listed(client) == [("a title", "slow")]
        assert journal.reads == [("slow", 0)]

    run(body, journal)


class Away(MemoryJournal):
    away = False

    def sessions(self) -> Sequence[SessionInfo]:
        if self.away:
            raise Unavailable("here", "secret reasons")
        return super().sessions()

    def position(self, session: str) -> int:
        if self.away:
            raise Unavailable("here", "secret reasons")
        return super().position(session)


def test_a_journal_that_is_away_is_said_to_be() -> None:
    journal = Away()
    journal_of(whole("m", text("words")), journal=journal)

    async def body(client: Client) -> None:
        journal.away = True
        for path in ("/", "/session?id=s", "/events?id=s", "/markdown?id=s"):
            answer = await client.get(path)
            assert (answer.status_code, answer.text) == (503, "The journal cannot be read now.\n")
        journal.away = False
        assert (await client.get("/session?id=s")).status_code == 200

    run(body, journal)


# Events


async def seen(client: Client, page: Page, until: Callable[[Page], bool], **headers: str) -> Page:
    """Watch from where a page is, as a browser does that comes back."""
    async with client.events(f"/events?id=s&after={page.mark}", **headers) as events:
        watcher = watching(events, page)
        await watcher.until(until)
        await watcher.stop()
    return page


def test_events_begin_with_how_soon_to_come_back() -> None:
    async def body(client: Client) -> None:
        async with client.events("/events?id=s") as events:
            assert await anext(events) == b"retry: 500\n\n"

    run(body)


def test_a_page_goes_on_from_its_own_mark() -> None:
    async def body(client: Client) -> None:
        shown = await page_of(client, "/session?id=s")
        page = Page()
        page.mark = shown.one("main").attributes["data-mark"]
        session = Session(journal)
        session.append(whole("n", text("new")), IDLE)
        await seen(client, page, lambda page: list(page.rows) == ["agent_message/n"])
        assert [what for what, _ in page.events] == ["row", "header"]

    journal = journal_of(whole("m", text("words")), RUNNING)
    run(body, journal)


def test_last_event_id_counts_more_than_the_address_which_is_the_first_connections() -> None:
    async def body(client: Client) -> None:
        page = await seen(client, Page(), lambda page: bool(page.mark))
        last, page.mark = page.mark, "0.0"
        page.events.clear()
        Session(journal).append(whole("n", text("new")))
        await seen(client, page, lambda page: "agent_message/n" in page.rows, last_event_id=last)
        assert "agent_message/m" not in str(page.events)

    journal = journal_of(whole("m", text("words")), IDLE)
    run(body, journal)


def test_who_comes_and_goes_while_it_streams_has_no_gap() -> None:
    journal = journal_of(RUNNING)

    async def body(client: Client) -> None:
        session, page = Session(journal), Page()
        for number in range(30):
            session.append(chunk(f"m{number // 7}", f"{number} "))
            await seen(client, page, lambda page: f"{number} " in "".join(page.texts))  # noqa: B023
        session.append(IDLE)
        fresh = await seen(client, Page(), lambda page: bool(page.mark) and not page.plain)
        await seen(client, page, lambda page: page.rows == fresh.rows)
        words = " ".join(body for _, _, body in page.rows.values()).split()
        assert words == [str(number) for number in range(30)]

    run(body, journal)


def test_a_server_that_is_started_again_has_no_gap() -> None:
    journal = journal_of(whole("a", text("A")), chunk("b", "begun"), RUNNING)

    async def main() -> None:
        page = Page()
        async with serving(journal) as client:
            await seen(client, page, lambda page: len(page.rows) == 2)
        session = Session(journal)
        session.append(whole("a", content=None), chunk("b", " and ended"), whole("c", text("C")), IDLE)
        journal.compact("s")
        page.events.clear()
        async with serving(journal) as client:
            await seen(client, page, lambda page: len(page.rows) == 3)
            fresh = await seen(client, Page(), lambda page: len(page.rows) == 3)
        assert page.rows == fresh.rows
        assert page.texts == ["Agent withdrawn by the agent", "Agent: begun and ended", "Agent: C"]

    asyncio.run(main())


def test_the_end_of_the_application_is_the_end_of_the_events() -> None:
    async def body(client: Client) -> None:
        async with client.events("/events?id=s") as events:
            watcher = watching(events)
            await watcher.until(lambda page: bool(page.rows))
            assert client.app.watched.is_set()
            await client.app.close()
            await watcher.ended()
            await watcher.stop()

    run(body)
