"""One session for all who watch it: everybody sees the same, however they come and go."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.journal.servers import server
from tests.journal.stored import Session, call, chunk, terminal, text, whole
from tests.view.hostile import updates
from tests.web.page import DEADLINE, Page, Watcher, watching
from twofold.journal import Journal, Unavailable, open_journal
from twofold.journal.memory import MemoryJournal
from twofold.journal.sqlite import SQLiteJournal
from twofold.web import _hub
from twofold.web._hub import Hub, Hubs
from twofold.web._renderer import Renderer
from twofold.wire import v2

RUNNING = {"sessionUpdate": "state_update", "state": "running"}
IDLE = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}


class Rendering(Renderer):
    """Renders at once, in this process; or not before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = asyncio.Event()
        self.may.set()
        self.asked: list[str] = []

    async def html(self, texts: Sequence[str], *, breaks: bool) -> list[str] | None:
        self.asked += texts
        await self.may.wait()
        return [f"<p>{len(one)} rendered</p>" for one in texts]


Body = Callable[[Session, Hub, Rendering], Awaitable[None]]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_hub, "FRAME", 0.002)
    monkeypatch.setattr(_hub, "SETTLED", 60.0)


def run(body: Body, *before: Any, journal: Journal | None = None) -> None:
    """Run a body with a session that holds some updates already, and its hub."""

    async def main() -> None:
        with journal or MemoryJournal() as held:
            session = Session(held)
            session.append(*before)
            rendering = Rendering()
            hub = Hub(held, session.name, rendering)
            try:
                async with asyncio.timeout(DEADLINE):
                    await hub.ready()
                    await body(session, hub, rendering)
            finally:
                await hub.close()

    asyncio.run(main())


async def newcomer(hub: Hub) -> Page:
    """Give the page of somebody who comes now."""
    watcher = watching(hub.events(""))
    await watcher.until(lambda page: page.mark == hub.mark())
    await watcher.stop()
    return watcher.page


def shows(*words: str) -> Callable[[Page], bool]:
    return lambda page: page.texts == list(words)


# What is shown


def test_who_comes_gets_everything_in_order() -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        page = await newcomer(hub)
        assert list(page.rows) == ["user_message/u", "agent_thought/a", "agent_message/a", "tool/c1", "plan/p"]
        assert page.header == {
            "title": "T", "state": "idle", "asked": "", "footer": "idle (end_turn) · 5 of 9 tokens", "gaps": ""
        }  # fmt: skip

    entries = [{"content": "Look", "priority": "low", "status": "pending"}]
    run(
        body,
        whole("u", text("?"), type="user_message"),
        whole("a", text("Hm."), type="agent_thought"),
        whole("a", text("So.")),
        call(title="Read"),
        {"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": "p", "entries": entries}},
        {"sessionUpdate": "session_info_update", "title": "T"},
        {"sessionUpdate": "usage_update", "used": 5, "size": 9},
        IDLE,
    )


def test_text_appears_as_it_streams_and_is_rendered_when_the_turn_ends() -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        watcher = watching(hub.events(""))
        words = ""
        for piece in ("Fog ", "**li", "\U0001f32b\ufe0f", "fts**"):
            session.append(chunk("m", piece))
            words += piece
            await watcher.until(shows(f"Agent: {words}"))
            assert watcher.page.rows["agent_message/m"][0] == ""
        assert [event for event in watcher.page.events if event[0] == "text"] == [
            ("text", ["agent_message/m", 4, "**li"]),
            ("text", ["agent_message/m", 8, "\U0001f32b\ufe0f"]),
            ("text", ["agent_message/m", 11, "fts**"]),
        ]
        assert rendering.asked == []
        session.append(IDLE)
        await watcher.until(shows("Agent: 15 rendered"))
        assert rendering.asked == ["Fog **li\U0001f32b\ufe0ffts**"]
        await watcher.stop()

    run(body, RUNNING)


@pytest.mark.parametrize("ends", [[call(title="Read")], [chunk("n", "Next")]], ids=["tool", "message"])
def test_a_message_settles_when_something_else_begins(ends: Any) -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        watcher = watching(hub.events(""))
        session.append(chunk("m", "words"))
        await watcher.until(shows("Agent: words"))
        session.append(*ends)
        await watcher.until(lambda page: page.texts[0] == "Agent: 5 rendered")
        await watcher.stop()

    run(body, RUNNING)


def test_a_message_settles_when_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_hub, "SETTLED", 0.02)

    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        watcher = watching(hub.events(""))
        session.append(chunk("m", "words"))
        await watcher.until(shows("Agent: 5 rendered"))
        session.append(chunk("m", " and more"))
        await watcher.until(lambda page: page.texts == ["Agent: words and more"])
        await watcher.until(shows("Agent: 14 rendered"))
        await watcher.stop()

    run(body, RUNNING)


def test_a_correction_takes_the_place_of_what_was_said() -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        watcher = watching(hub.events(""))
        session.append(chunk("m", "at two"), call(title="Read"))
        await watcher.until(shows("Agent: 6 rendered", "Tool call Read pending"))
        session.append(whole("m", text("at one")))
        await watcher.until(lambda page: page.texts[0].startswith("Agent corrected"))
        assert list(watcher.page.rows) == ["agent_message/m", "tool/c1"]
        await watcher.stop()

    run(body, RUNNING)


def test_what_was_withdrawn_is_nowhere_any_more() -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        watcher = watching(hub.events(""))
        session.append(chunk("m", "the key is hk_live"))
        await watcher.until(shows("Agent: the key is hk_live"))
        session.append(whole("m", content=None))
        await watcher.until(shows("Agent withdrawn by the agent"))
        held = repr(vars(hub)) + repr([hub._since(seen) for seen in range(-1, 20)]) + repr((await hub.page(1))[1])
        assert "hk_live" not in held
        assert "hk_live" not in repr(watcher.page.rows)
        await watcher.stop()

    run(body, RUNNING)


def test_an_operators_redaction_is_seen() -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        watcher = watching(hub.events(""))
        await watcher.until(lambda page: len(page.rows) == 2)
        session.journal.redact(session.name, "user_message", "u")
        await watcher.until(shows("User withdrawn by the agent", "Agent: OK"))
        await watcher.stop()

    run(body, whole("u", text("my password"), type="user_message"), whole("m", text("OK")), IDLE)


def test_a_terminal_that_a_tool_call_shows_moves_into_its_row() -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        watcher = watching(hub.events(""))
        await watcher.until(lambda page: list(page.rows) == ["terminal/t1", "tool/c1"])
        session.append(call(content=[{"type": "terminal", "terminalId": "t1"}]))
        await watcher.until(lambda page: list(page.rows) == ["tool/c1"])
        data = base64.b64encode(b"42 passed").decode()
        session.append({"sessionUpdate": "terminal_output_chunk", "terminalId": "t1", "data": data})
        await watcher.until(lambda page: "42 passed" in page.texts[0])
        session.append(call(content=[]))
        await watcher.until(lambda page: list(page.rows) == ["terminal/t1", "tool/c1"])
        await watcher.stop()

    run(body, terminal(command="pytest"), call(title="Test"))


def test_a_replay_that_leaves_things_out_and_orders_them_anew_is_seen() -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        watcher = watching(hub.events(""))
        await watcher.until(lambda page: [*page.rows] == ["agent_message/a", "agent_message/b", "agent_message/c"])
        before = dict(watcher.page.rows)
        session.replay(whole("c", text("C")), whole("a", text("A")))
        await watcher.until(lambda page: [*page.rows] == ["agent_message/c", "agent_message/a"])
        assert watcher.page.rows == {name: before[name] for name in watcher.page.rows}
        await watcher.stop()

    run(body, *(whole(name, text(name.upper())) for name in "abc"), IDLE)


def test_what_the_agent_waits_for_is_said() -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        watcher = watching(hub.events(""))
        session.append(
            call(title="Run <rm>", status="pending"), {"sessionUpdate": "state_update", "state": "requires_action"}
        )
        await watcher.until(lambda page: page.header.get("asked") == "Run <rm>")
        session.append(RUNNING)
        await watcher.until(lambda page: page.header["asked"] == "")
        await watcher.stop()

    run(body, RUNNING)


def test_a_gap_is_said(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "j"
    with SQLiteJournal(path) as journal:
        session = Session(journal)
        for number in range(4):
            session.append(whole(f"m{number}", text("words")))
    connection = sqlite3.connect(path)
    connection.execute("UPDATE segment SET data = x'00' WHERE last = 2")
    connection.commit()
    connection.close()

    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        page = await newcomer(hub)
        assert list(page.rows) == ["agent_message/m0", "agent_message/m2", "agent_message/m3"]
        assert page.header["gaps"] == "There is a gap: positions 2 to 2 are damaged, and what they said is not shown."
        session.append(whole("m4", text("more")))
        watcher = watching(hub.events(""))
        await watcher.until(lambda page: "agent_message/m4" in page.rows)
        await watcher.stop()

    run(body, journal=SQLiteJournal(path))


def test_a_session_on_another_engine_is_followed_across_processes(tmp_path: Path) -> None:
    with server(tmp_path) as nats:
        url = nats.url("sessions")

        async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
            watcher = watching(hub.events(""))
            with open_journal(url) as other:
                await asyncio.to_thread(Session(other).append, chunk("m", "more words"))
            await watcher.until(shows("Agent: words", "Agent: more words"))
            await watcher.stop()

        run(body, whole("a", text("words")), RUNNING, journal=open_journal(url))


# Rows far away


def test_only_the_last_rows_are_rendered_before_somebody_looks_at_others() -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        mark, rows = await hub.page(DEADLINE)
        assert mark == hub.mark()
        assert [row.count("plain") for row in rows] == [1] * 70 + [0] * 30
        assert rendering.asked == [f"words {number}" for number in range(70, 100)]
        found = await hub.render(["agent_message/m3", "agent_message/m99", "agent_message/none"])
        assert ["plain" in row for row in found] == [False, False]
        assert rendering.asked[30:] == ["words 3"]
        assert (await hub.page(DEADLINE))[1] == rows

    run(body, *(whole(f"m{number}", text(f"words {number}")) for number in range(100)), IDLE)


def test_a_page_does_not_wait_for_long_and_what_is_rendered_later_comes() -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        rendering.may.clear()
        mark, rows = await hub.page(0.01)
        assert "plain" in rows[0]
        watcher = watching(hub.events(mark))
        session.append(whole("n", text("new")))
        await watcher.until(lambda page: "agent_message/n" in page.rows)
        assert "agent_message/n" in watcher.page.plain
        rendering.may.set()
        await watcher.until(lambda page: "agent_message/n" not in page.plain)
        await watcher.stop()

    run(body, whole("m", text("words")), IDLE)


def test_a_row_that_cannot_be_rendered_stays_as_it_is() -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        async def none(_texts: Sequence[str], *, breaks: bool) -> None:
            return None

        rendering.html = none  # type: ignore[method-assign, assignment]
        assert "plain" in (await hub.page(DEADLINE))[1][0]
        session.append(whole("n", text("new")))
        watcher = watching(hub.events(""))
        await watcher.until(shows("Agent: words", "Agent: new"))
        await watcher.stop()

    run(body, whole("m", text("words")), IDLE)


def test_a_row_that_changes_while_it_is_rendered_is_rendered_anew() -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        rendering.may.clear()
        watcher = watching(hub.events(""))
        session.append(whole("m", text("other words")))
        await watcher.until(lambda page: page.texts == ["Agent corrected: other words"])
        session.append(whole("m", text("yet others")))
        await watcher.until(lambda page: page.texts == ["Agent corrected: yet others"])
        rendering.may.set()
        await watcher.until(shows("Agent corrected: 10 rendered"))
        await watcher.stop()

    run(body, whole("m", text("words")), IDLE)


def test_a_row_that_has_grown_huge_is_drawn_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_hub, "LARGEST", 1000)
    monkeypatch.setattr(_hub, "HEAVY", 0.3)

    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        watcher = watching(hub.events(""))
        session.append(chunk("m", "x" * 2000))
        await watcher.until(lambda page: bool(page.rows))
        drawn = len(watcher.page.events)
        for _ in range(50):
            session.append(chunk("m", "y"))
            await asyncio.sleep(0.002)
        await watcher.until(shows("Agent: 2050 rendered"))
        assert len(watcher.page.events) - drawn < 10
        session.append(whole("m", content=None))
        await watcher.until(shows("Agent withdrawn by the agent"))
        await watcher.stop()

    run(body, RUNNING)


# Coming and going


def test_who_comes_back_gets_what_it_missed_and_nothing_else() -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        watcher = watching(hub.events(""))
        await watcher.until(lambda page: page.mark == hub.mark())
        await watcher.stop()
        session.append(whole("n", text("new")))
        other = watching(hub.events(""))
        await other.until(lambda page: page.texts[1:] == ["Agent: 3 rendered"])
        await other.stop()
        watcher.page.events.clear()
        back = watching(hub.events(watcher.page.mark), watcher.page)
        await back.until(lambda page: page.mark == hub.mark())
        assert [what for what, _ in back.page.events] == ["row"]
        assert back.page.rows == (await newcomer(hub)).rows
        await back.stop()

    run(body, whole("m", text("words")), IDLE)


@pytest.mark.parametrize(
    "mark", ["", "1", "nobody.1", "x" * 10_000, "{}.9999", "{}.-1", "{}.", "{}.1e3", "{}." + "9" * 5000]
)
def test_a_mark_that_is_not_ours_is_as_good_as_none(mark: str) -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        watcher = watching(hub.events(mark.format(hub.mark().partition(".")[0])))
        await watcher.until(shows("Agent: words"))
        await watcher.stop()

    run(body, whole("m", text("words")), IDLE)


def test_only_the_last_event_of_a_state_has_its_mark() -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        events: list[bytes] = []
        async for event in hub.events(""):
            events.append(event)
            if event.startswith(b"id: "):
                break
        assert len(events) > 5
        assert [event.startswith(b"id: ") for event in events] == [False] * (len(events) - 1) + [True]
        half = Page()
        for event in events[: len(events) // 2]:
            half.take(event)
        assert half.mark == ""
        back = watching(hub.events(half.mark), half)  # one that was cut off in the middle
        await back.until(lambda page: page.mark == hub.mark())
        assert back.page.rows == (await newcomer(hub)).rows
        await back.stop()

    run(body, *(whole(f"m{number}", text("words " * 1000)) for number in range(100)), IDLE)


@given(st.lists(st.tuples(updates, st.sampled_from(["goes on", "leaves", "comes back"])), max_size=8))
@settings(max_examples=40)
def test_everybody_ends_up_with_what_a_newcomer_gets(steps: list[tuple[Any, str]]) -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        always = watching(hub.events(""))
        page, sometimes = Page(), None
        for update, then in steps:
            with suppress(UnicodeEncodeError):  # half a character is nothing that is stored
                session.journal.append(
                    session.name, session.journal.position(session.name), v2.encode(v2.read_update(update))
                )
            match then:
                case "leaves" if sometimes is not None:
                    await sometimes.stop()
                    sometimes = None
                case "comes back" if sometimes is None:
                    sometimes = watching(hub.events(page.mark), page)
                case _:
                    await asyncio.sleep(0.003)
        session.append(whole("the last", text("word")), IDLE)
        if sometimes is not None:
            await sometimes.stop()
        sometimes = watching(hub.events(page.mark), page)
        for watcher in (always, sometimes):
            await watcher.until(lambda page: page.texts[-1:] == ["Agent: 4 rendered"] and not page.plain)
        fresh = await newcomer(hub)
        assert list(always.page.rows.items()) == list(sometimes.page.rows.items()) == list(fresh.rows.items())
        assert always.page.header == sometimes.page.header == fresh.header
        await always.stop()
        await sometimes.stop()

    run(body, RUNNING)


def test_a_slow_watcher_piles_nothing_up() -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        slow = hub.events("")
        page = Page()
        page.take(await anext(slow))
        for number in range(200):
            session.append(chunk("m", f"{number} "))
            await asyncio.sleep(0)
        session.append(IDLE)
        other = watching(hub.events(""))
        await other.until(lambda page: page.texts == ["Agent: 690 rendered"])
        await other.stop()
        while page.mark != hub.mark():
            page.take(await anext(slow))
        await slow.aclose()
        assert page.rows == other.page.rows
        assert len([event for event in page.events if event[0] == "row"]) <= 1

    run(body, RUNNING)


# The end


def test_a_session_that_is_deleted_is_gone_for_those_who_watch() -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        watcher = watching(hub.events(""))
        await watcher.until(lambda page: bool(page.rows))
        session.journal.delete(session.name)
        await watcher.ended()
        assert watcher.page.gone
        with pytest.raises(Unavailable):
            await hub.ready()

    run(body, whole("m", text("words")))


class Failing(MemoryJournal):
    failed = False

    def page(self, session: str, after: int = 0) -> Any:
        if self.failed:
            raise Unavailable("here", "it is away")
        return super().page(session, after)


def test_a_journal_that_cannot_be_read_any_more_lets_the_watchers_go_and_is_tried_again_when_they_come_back() -> None:
    async def main() -> None:
        journal = Failing()
        session = Session(journal)
        session.append(whole("m", text("words")))
        hubs = Hubs(journal, Rendering())
        hub = await hubs.of(session.name)
        watcher = watching(hub.events(""))
        await watcher.until(lambda page: bool(page.rows))
        journal.failed = True
        session.append(whole("n", text("more")))
        await watcher.ended()
        assert not watcher.page.gone
        with pytest.raises(Unavailable):
            await hubs.of(session.name)
        journal.failed = False
        other = await hubs.of(session.name)
        assert other is not hub
        back = watching(other.events(watcher.page.mark), watcher.page)
        await back.until(lambda page: len(page.rows) == 2)
        await back.stop()
        await hubs.close()

    asyncio.run(main())


def test_an_error_of_ours_is_logged_without_what_anybody_said(caplog: pytest.LogCaptureFixture) -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        watcher = watching(hub.events(""))
        await watcher.until(lambda page: bool(page.rows))

        async def fail(texts: Sequence[str], *, breaks: bool) -> None:
            raise RuntimeError(texts[0])

        rendering.html = fail  # type: ignore[method-assign]
        session.append(whole("n", text("a secret")), IDLE)
        await watcher.ended()

    run(body, whole("m", text("words")))
    assert "failed with RuntimeError" in caplog.text
    assert "in fail" in caplog.text
    assert "a secret" not in caplog.text


def test_a_session_that_nobody_watches_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_hub, "KEPT", 0.0)

    async def main() -> None:
        journal = MemoryJournal()
        Session(journal).append(whole("m", text("words")))
        hubs = Hubs(journal, Rendering())
        hub = await hubs.of("s")
        assert await hubs.of("s") is hub
        watcher: Watcher = watching(hub.events(""))
        await watcher.until(lambda page: bool(page.rows))
        await watcher.stop()
        async with asyncio.timeout(DEADLINE):
            await asyncio.wait({hub._task})
        assert hub.ended
        assert await hubs.of("s") is not hub
        await hubs.close()

    asyncio.run(main())


def test_a_hundred_watchers_see_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(session: Session, hub: Hub, rendering: Rendering) -> None:
        watchers = [watching(hub.events("")) for _ in range(100)]
        for number in range(100):
            session.append(chunk("m", f"{number} "))
            await asyncio.sleep(0)
        session.append(IDLE)
        for watcher in watchers:
            await watcher.until(shows("Agent: 290 rendered"))
            await watcher.stop()
        assert len({json.dumps(watcher.page.rows) for watcher in watchers}) == 1

    run(body, RUNNING)
