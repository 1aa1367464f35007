"""The page in a browser: what a person sees, while it happens, and what nobody must see."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.bridged import DEADLINE, Bridged
from tests.browser.site import LIVE, Pages, Site
from tests.journal.stored import ROOT, call, chunk, terminal, text, whole
from tests.view.hostile import ACTING, FORGED, ORDINARY, SEQUENCES, acts
from tests.web.test_html import HOSTILE

RUNNING = {"sessionUpdate": "state_update", "state": "running"}
IDLE = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}
STREAMING = ROOT / "examples" / "streaming_agent.py"
STEPPING = Path(__file__).with_name("stepping_agent.py")


def rows(page: Page) -> Any:
    return page.locator("#rows > article")


def said(page: Page) -> list[str]:
    """What all rows say, unfolded or not."""
    return [" ".join(words.split()) for words in page.locator("#rows > article").all_text_contents()]


def shown(page: Page) -> Any:
    """Everything that a reader can come to see."""
    return page.evaluate(
        """() => [document.title, ...["#title", "#foot"].map((one) => document.querySelector(one).textContent),
            ...[...document.querySelectorAll("#rows > article")].map((row) =>
                [row.id, row.className.replace(" plain", ""), row.ariaLabel, row.textContent])]"""
    )


# Sessions as they go on


def test_the_list_leads_to_a_session_and_back_and_is_kept_up_to_date(site: Site, pages: Pages) -> None:
    page = pages(site.url)
    expect(page).to_have_title("Sessions · twofold")
    site.session(whole("u", text("Why is <it> late?"), type="user_message"), name="a/b c")
    page.get_by_role("link", name="Why is <it> late?").click()
    expect(page).to_have_title("a/b c · twofold")
    expect(page.get_by_role("article", name="User")).to_contain_text("Why is <it> late?")
    page.get_by_role("link", name="Sessions").click()
    expect(page).to_have_title("Sessions · twofold")


def test_a_session_that_another_process_writes_is_seen_as_it_goes_on(site: Site, pages: Pages) -> None:
    with Bridged(site.path, STEPPING) as agent:
        agent.prompt("say Hello, ").result(DEADLINE)
        page = pages(site.at(agent.session_id))
        answers = page.get_by_role("article", name=re.compile("^Agent"))
        expect(answers.last.locator(".body")).to_have_text("Hello, ")
        agent.prompt("add **wrold**").result(DEADLINE)
        expect(answers.last.locator(".body")).to_have_text("Hello, wrold")
        expect(answers.last.locator("strong")).to_have_text("wrold")
        agent.prompt("correct Hello, **world**!").result(DEADLINE)
        expect(answers.last).to_have_accessible_name("Agent, corrected")
        expect(answers.last.locator(".body")).to_have_text("Hello, world!")
        assert "wrold" not in "".join(words for words in said(page) if not words.startswith("User"))
        agent.prompt("say the key is hk_live").result(DEADLINE)
        expect(answers.last.locator(".body")).to_have_text("the key is hk_live")
        agent.prompt("withdraw").result(DEADLINE)
        expect(answers.last).to_have_accessible_name("Agent, withdrawn by the agent")
        expect(answers.last.locator(".body")).to_be_empty()
        expect(page.locator("#footer")).to_contain_text("idle")


def test_the_example_agent_streams_corrects_redacts_asks_and_runs_a_tool(site: Site, pages: Pages) -> None:
    with Bridged(site.path, STREAMING) as agent:
        agent.prompt("stream").result(DEADLINE)
        page = pages(site.at(agent.session_id))
        expect(page.get_by_role("article", name="Agent, corrected")).to_contain_text("Hello, world!")
        expect(page.get_by_role("article", name="Agent, withdrawn by the agent")).to_be_visible()
        expect(page.get_by_role("article", name="Plan").get_by_role("listitem")).to_have_text(
            ["pending Say hello", "pending Take the secret back"]
        )
        assert "secret" not in page.content().replace("Take the secret back", "")
        thought = page.get_by_role("article", name="Thought")
        expect(thought.get_by_text("Let me think")).to_be_hidden()
        thought.locator("summary").click()
        expect(thought.get_by_text("Let me think")).to_be_visible()
        done = agent.prompt("tool")
        expect(page.locator("#asked")).to_have_text("The agent waits for a permission: Run printf")
        agent.allow()
        tool = page.get_by_role("article", name="Tool call")
        expect(tool.locator(".status")).to_have_text("completed")
        expect(tool.locator("pre")).to_have_text("hello from tool")
        expect(page.locator("#asked")).to_be_hidden()
        assert done.result(DEADLINE) == "end_turn"
        slow = agent.prompt("slow")
        streaming = rows(page).last.locator(".stream")
        expect(streaming).to_contain_text("tick 3 ")
        first = streaming.inner_text()
        expect(streaming).to_contain_text("tick 20 ")
        assert streaming.inner_text().startswith(first)
        assert not slow.done()


def test_who_looked_away_while_the_server_was_started_again_has_no_gap(site: Site, pages: Pages) -> None:
    session = site.session(
        whole("a", text("first *A*")), whole("b", text("the key is hk_live")), chunk("c", "it "), RUNNING
    )
    page = pages()
    expect(rows(page)).to_have_count(3)
    kept = rows(page).first.element_handle()
    site.stop()
    expect(page.locator("#connection")).to_have_text("away")
    session.append(whole("b", content=None), chunk("c", "goes on"), whole("d", text("more")), IDLE)
    site.journal.compact(site.name)
    site.start()
    page.locator(LIVE).wait_for()
    expect(page.locator("#footer")).to_have_text("idle (end_turn)")
    expect(rows(page).locator(".body")).to_have_text(["first A", "", "it goes on", "more"])
    assert "hk_live" not in page.content()
    assert kept is not None
    assert kept.evaluate("(row) => row.isConnected && row.querySelector('em').textContent") == "A"
    fresh = pages()
    expect(rows(fresh)).to_have_count(4)
    assert shown(page) == shown(fresh)


def test_two_pages_agree(site: Site, pages: Pages) -> None:
    session = site.session(RUNNING)
    one = pages()
    for number in range(40):
        session.append(chunk(f"m{number // 6}", f"*{number}* "))
        if number == 10:
            session.append(whole("m0", text("corrected")), call(title="Run", status="in_progress"))
        if number == 20:
            other = pages()
            session.append(whole("m1", content=None), terminal(command="ls"))
            session.append(call(status="completed", content=[{"type": "terminal", "terminalId": "t1"}]))
    session.append(IDLE)
    for page in (one, other):
        expect(page.locator("#footer")).to_have_text("idle (end_turn)")
        expect(page.locator(".plain")).to_have_count(0)
    assert shown(one) == shown(other) == shown(pages())


def test_a_session_that_is_deleted_is_gone_from_the_page(site: Site, pages: Pages) -> None:
    site.session(whole("m", text("a secret")))
    page = pages()
    site.journal.delete(site.name)
    expect(page.locator("#connection")).to_have_text("this session was deleted")
    assert "a secret" not in page.content()


# What was taken back


def test_what_was_withdrawn_is_not_in_the_page_nor_in_what_a_browser_goes_back_to(site: Site, pages: Pages) -> None:
    session = site.session(whole("u", text("my key is hk_live"), type="user_message"), IDLE)
    page = pages()
    expect(rows(page)).to_contain_text("hk_live")
    page.get_by_role("link", name="Sessions").click()
    expect(page.get_by_role("link", name="my key is hk_live")).to_be_visible()
    site.journal.redact(site.name, "user_message", "u")
    expect(page.get_by_role("link", name="my key is hk_live")).to_have_count(0)
    page.go_back()
    page.locator(LIVE).wait_for()
    expect(page.get_by_role("article", name="User, withdrawn by the agent")).to_be_visible()
    assert "hk_live" not in page.content()
    session.append(whole("m", text("hk_live, I see")), IDLE)
    expect(rows(page).last.locator(".body")).to_have_text("hk_live, I see")
    session.append(whole("m", content=None))
    expect(page.get_by_role("article", name="Agent, withdrawn by the agent")).to_be_visible()
    held = page.evaluate(
        "() => document.documentElement.outerHTML + JSON.stringify({...localStorage, ...sessionStorage})"
    )
    assert "hk_live" not in held
    page.go_forward()
    expect(page).to_have_title("Sessions · twofold")
    assert "hk_live" not in page.content()
    assert page.evaluate("async () => (await caches.keys()).length + (await indexedDB.databases()).length") == 0


def test_an_answer_that_comes_late_does_not_bring_back_what_was_withdrawn(site: Site, pages: Pages) -> None:
    words = [whole(f"m{number}", text("*words* " * 100)) for number in range(60)]
    session = site.session(whole("secret", text("the key is *hk_live*")), *words, IDLE)
    page = pages()
    held: list[Route] = []
    page.route("**/rows?*", lambda route: held.append(route))
    with page.expect_request("**/rows?*"):
        rows(page).first.scroll_into_view_if_needed()
    while not held:
        page.evaluate("() => new Promise(requestAnimationFrame)")
    answers = [route.fetch() for route in held]
    assert "hk_live" in answers[0].text()
    session.append(whole("secret", content=None))
    expect(rows(page).first).to_have_accessible_name("Agent, withdrawn by the agent")
    for route, answer in zip(held, answers, strict=True):
        route.fulfill(response=answer)
    page.unroute_all(behavior="wait")
    expect(rows(page).nth(1)).not_to_have_class(re.compile("plain"))
    expect(rows(page).first).to_have_accessible_name("Agent, withdrawn by the agent")
    assert "hk_live" not in page.content()


# What others say


def hostile() -> list[Any]:
    svg = base64.b64encode(b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>").decode()
    output = "".join([*SEQUENCES, *HOSTILE, ACTING]).encode("utf-8", "replace")
    words = [*HOSTILE, *FORGED, *ORDINARY, "".join(SEQUENCES), ACTING.replace("\ud83d\ude00", "")]
    return [
        *(whole(f"m{number}", text(one)) for number, one in enumerate(words)),
        whole("<b id=rows>", text("an id")),
        whole("u", text("\n".join(words)), type="user_message"),
        whole("t", text("\n\n".join(words)), type="agent_thought"),
        whole("svg", {"type": "image", "data": svg, "mimeType": "image/svg+xml"}),
        whole("link", {"type": "resource_link", "uri": "javascript:alert(1)", "name": "<img src=x onerror=alert(1)>"}),
        call(title="<script>alert(1)</script>", status='"><b>', content=[{"type": "terminal", "terminalId": "t1"}]),
        terminal(command="<i>", output={"data": base64.b64encode(output).decode()}),
        {"sessionUpdate": "session_info_update", "title": "</title><script>alert(1)</script>\u202e"},
        whole("long", text("x" * 300_000)),
        whole("wide", text("```\n" + "y" * 5_000 + "\n```")),
    ]


def harmless(page: Page, count: int) -> None:
    """Fail when something in a page is more than text."""
    expect(rows(page)).to_have_count(count)
    page.evaluate(
        """async () => {
            for (const row of document.querySelectorAll("#rows > article")) {
                row.scrollIntoView();
                await new Promise(requestAnimationFrame);
            }
        }"""
    )
    expect(page.locator(".plain:not(#agent_message\\/long)")).to_have_count(0)
    tags = page.evaluate("() => [...new Set([...document.querySelectorAll('*')].map((one) => one.localName))]")
    assert not set(tags) & {
        "img",
        "svg",
        "iframe",
        "object",
        "embed",
        "video",
        "audio",
        "form",
        "style",
        "base",
        "i",
        "b",
    }
    assert page.locator("script").count() == 1
    assert page.locator("title").count() == 1
    names = page.evaluate("() => [...document.querySelectorAll('*')].flatMap((one) => one.getAttributeNames())")
    assert not [name for name in names if name.startswith("on") or name == "style"]
    links = page.evaluate("() => [...document.querySelectorAll('#rows a')].map((one) => one.protocol)")
    assert set(links) <= {"http:", "https:", "mailto:"}
    assert not any(map(acts, page.evaluate("() => document.documentElement.textContent")))
    assert page.evaluate("() => document.body.scrollWidth <= innerWidth")


def test_hostile_content_is_text(site: Site, pages: Pages) -> None:
    updates = hostile()
    site.session(*updates, IDLE)
    page = pages()
    harmless(page, len(updates) - 2)
    first = page.locator("#agent_message\\/m0")
    expect(first.locator(".body")).to_have_text("<script>alert(1)</script>")
    expect(page.locator("#title")).to_have_text("</title><script>alert(1)</script><U+202E>")
    expect(page.get_by_role("article", name="Tool call").locator(".title")).to_have_text("<script>alert(1)</script>")


def test_hostile_content_that_comes_live_is_text(site: Site, pages: Pages) -> None:
    session = site.session(RUNNING)
    page = pages()
    updates = hostile()
    for update in updates:
        session.append(update)
        if update["sessionUpdate"] == "agent_message":
            words = update["content"][0].get("text", "")
            session.append(*(chunk(f"{update['messageId']}.", half) for half in (words[:7], words[7:]) if half))
    session.append(IDLE)
    expect(page.locator("#footer")).to_have_text("idle (end_turn)")
    again = sum(
        update["sessionUpdate"] == "agent_message" and bool(update["content"][0].get("text")) for update in updates
    )
    page.locator("#agent_message\\/long\\.").evaluate("(row) => { row.id = 'agent_message/long' }")
    harmless(page, len(updates) - 2 + again)


# How it is read


def test_a_link_to_a_message_leads_to_it_whatever_its_id(site: Site, pages: Pages) -> None:
    page, other = pages.blank(), pages.blank()
    for id in ("..", "%2F# ü 日本\u202e", "<b>x\" y='z"):
        far = [whole(f"m{number}", text("words " * 200)) for number in range(60)]
        site.session(*far[:30], whole(id, text("here")), *far[30:], name=f"{site.name} {id}")
        page.goto(site.at(f"{site.name} {id}"))
        rows(page).nth(30).scroll_into_view_if_needed()  # what is far away has no link yet
        rows(page).nth(30).locator(".permalink").evaluate("(link) => link.click()")
        expect(rows(page).nth(30)).to_be_focused()
        other.goto(page.url)
        place = rows(other).nth(30)
        expect(place).to_be_focused()
        expect(place).to_be_in_viewport()
        expect(place.locator(".body")).to_have_text("here")


def test_it_is_used_with_the_keyboard(site: Site, pages: Pages) -> None:
    session = site.session(
        whole("u", text("Where is the ferry?"), type="user_message"),
        whole("a", text("The ferry is late, I think."), type="agent_thought"),
        call(title="Look", status="completed", content=[{"type": "content", "content": text("nothing")}]),
        whole("a", text("It is *late*.")),
        IDLE,
    )
    page = pages()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the latest")).to_be_focused()
    page.keyboard.press("Enter")
    expect(rows(page).last).to_be_focused()
    page.keyboard.press("c")
    expect(rows(page).last.locator(".copy")).to_have_text("copied")
    assert page.evaluate("() => navigator.clipboard.readText()") == "It is *late*.\n"
    page.keyboard.press("Home")
    expect(rows(page).first).to_be_focused()
    page.keyboard.press("j")
    expect(rows(page).nth(1)).to_be_focused()
    page.keyboard.press("o")
    expect(rows(page).nth(1).get_by_text("The ferry is late")).to_be_visible()
    page.keyboard.press("o")
    expect(rows(page).nth(1).get_by_text("The ferry is late")).to_be_hidden()
    page.keyboard.press("k")
    expect(rows(page).first).to_be_focused()
    page.keyboard.press("End")
    expect(rows(page).last).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.get_by_label("Use these keys").uncheck()
    page.keyboard.press("Escape")
    rows(page).first.focus()
    page.keyboard.press("j")
    expect(rows(page).first).to_be_focused()
    page.reload()
    page.locator(LIVE).wait_for()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).not_to_be_focused()
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("Use these keys").check()
    page.get_by_role("button", name="Done").click()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    session.append(whole("b", text("more")))
    expect(rows(page)).to_have_count(5)
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_the_focus_stays_in_a_row_that_is_replaced_and_what_is_unfolded_stays_so(site: Site, pages: Pages) -> None:
    items = [{"type": "content", "content": text("one")}]
    session = site.session(whole("m", text("Forty")), call(title="Look", status="in_progress", content=items), IDLE)
    page = pages()
    for part, number in ((".copy", 1), (".permalink", 2), (None, 3)):
        row = rows(page).first
        (row if part is None else row.locator(part)).focus()
        session.append(whole("m", text(f"Forty-{number}")))
        expect(row.locator(".body")).to_have_text(f"Forty-{number}")
        expect(row if part is None else row.locator(part)).to_be_focused()
    tool = rows(page).nth(1)
    tool.locator("summary").focus()
    session.append(call(status="completed"))
    expect(tool.locator(".status")).to_have_text("completed")
    expect(tool.locator("summary")).to_be_focused()
    expect(tool.get_by_text("one")).to_be_visible()
    tool.locator("summary").click()
    session.append(call(status="failed"))
    expect(tool.locator(".status")).to_have_text("failed")
    expect(tool.get_by_text("one")).to_be_hidden()


def test_a_search_finds_what_is_folded_away_and_goes_from_one_to_the_next(site: Site, pages: Pages) -> None:
    words = [whole(f"m{number}", text("words " * 100)) for number in range(80)]
    thought = whole("t", text("a ferry?"), type="agent_thought")
    last = whole("last", text("no *ferry* here"))
    session = site.session(whole("first", text("The Ferry")), thought, *words, last, IDLE)
    page = pages()
    page.get_by_role("searchbox").fill("ferry")
    expect(page.locator("#found")).to_have_text("3 found")
    page.keyboard.press("Enter")
    expect(page.locator("#found")).to_have_text("1 of 3")
    expect(rows(page).first).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(rows(page).nth(1).get_by_text("a ferry?")).to_be_visible()
    page.keyboard.press("Shift+Enter")
    page.keyboard.press("Shift+Enter")
    expect(page.locator("#found")).to_have_text("3 of 3")
    expect(rows(page).last).to_be_in_viewport()
    session.append(whole("new", text("another ferry")), whole("last", text("nothing")))
    expect(page.locator("#found")).to_have_text("3 found")
    page.get_by_role("searchbox").fill("submarine")
    expect(page.locator("#found")).to_have_text("none found")
    page.keyboard.press("Escape")
    expect(page.get_by_role("searchbox")).to_have_value("")
    expect(page.locator(".hit")).to_have_count(0)


def test_the_page_stays_at_the_end_or_where_the_reader_is(site: Site, pages: Pages) -> None:
    session = site.session(*(whole(f"m{number}", text(f"words {number} " * 60)) for number in range(60)), RUNNING)
    page = pages()
    expect(rows(page).last).to_be_in_viewport()
    session.append(*(chunk("n", "more words " * 50) for _ in range(20)))
    expect(rows(page).last).to_contain_text("more words")
    page.wait_for_function("() => Math.abs(innerHeight + scrollY - document.documentElement.scrollHeight) < 20")
    rows(page).nth(20).scroll_into_view_if_needed()
    expect(page.locator(".plain").nth(20)).to_have_count(1)
    expect(rows(page).nth(20)).not_to_have_class(re.compile("plain"))
    page.wait_for_function("() => window.settled === scrollY || (window.settled = scrollY, false)")
    before = rows(page).nth(20).bounding_box()
    session.append(*(chunk("n", "yet more " * 50) for _ in range(20)), whole("m59", text("corrected")))
    expect(page.get_by_role("button", name="Jump to the latest")).to_be_visible()
    assert rows(page).nth(20).bounding_box() == before
    page.get_by_role("button", name="Jump to the latest").click()
    expect(page.get_by_role("button", name="Jump to the latest")).to_be_hidden()
    page.wait_for_function("() => Math.abs(innerHeight + scrollY - document.documentElement.scrollHeight) < 20")


def test_a_screen_reader_is_told_what_was_said_corrected_and_withdrawn(site: Site, pages: Pages) -> None:
    session = site.session(RUNNING)
    page = pages()
    status = page.locator("#announcer")
    expect(status).to_have_role("status")
    session.append(chunk("m", "The key is "), chunk("m", "hk_live"), IDLE)
    expect(status).to_have_text("Agent: The key is hk_live")
    session.append(whole("m", text("The key is secret")))
    expect(status).to_have_text("Agent, corrected: The key is secret")
    session.append(whole("m", content=None))
    expect(status).to_have_text("A message was withdrawn by the agent.")
    session.append(call(title="rm"), {"sessionUpdate": "state_update", "state": "requires_action"})
    expect(status).to_have_text("The agent waits for a permission: rm")
    expect(page.get_by_role("main")).to_be_visible()
    expect(page.get_by_role("search")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_text(site.name)
    expect(page.get_by_role("heading", name="Agent", level=2)).to_be_visible()


def test_on_a_phone_nothing_scrolls_sideways_and_everything_is_there(site: Site, pages: Pages) -> None:
    table = "|" + "cell|" * 30 + "\n|" + "-|" * 30
    site.session(
        whole("u", text("https://example.com/" + "a" * 300), type="user_message"),
        whole("m", text("# " + "Donaudampfschiff" * 8 + "\n\n```\n" + "x" * 500 + "\n```\n\n" + table)),
        call(title="/".join(["very-long-folder-name"] * 10), status="failed"),
        terminal(command="make", output={"data": base64.b64encode(b"z" * 400).decode()}),
        {"sessionUpdate": "session_info_update", "title": f"Title of {site.name} " * 30},
        IDLE,
    )
    page = pages(site.url, viewport={"width": 320, "height": 700}, has_touch=True, is_mobile=True)
    sideways = "() => document.documentElement.scrollWidth - 320"
    assert page.evaluate(sideways) == 0
    page.get_by_role("link", name=f"Title of {site.name}").tap()
    page.locator(LIVE).wait_for()
    expect(page.locator(".plain")).to_have_count(0)
    assert page.evaluate(sideways) == 0
    expect(page.get_by_role("searchbox")).to_be_visible()
    expect(rows(page).first.get_by_role("button", name="Copy as Markdown")).to_be_visible()
    page.get_by_role("link", name="Sessions").tap()
    expect(page).to_have_title("Sessions · twofold")


CONTRAST = """() => {
    const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const light = (colour) => {
        const [r, g, b] = channels(colour).slice(0, 3).map((level) => level / 255)
            .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (one) => {
        for (; one; one = one.parentElement) {
            const colour = getComputedStyle(one).backgroundColor;
            if ((channels(colour)[3] ?? 1) > 0) return colour;
        }
    };
    const low = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const one = node.parentElement;
        if (!node.data.trim() || one.closest("dialog, script, noscript")) continue;
        const [a, b] = [light(getComputedStyle(one).color), light(behind(one))].sort((x, y) => x - y);
        if ((b + 0.05) / (a + 0.05) < 4.5) low.push([node.data.slice(0, 40), getComputedStyle(one).color, behind(one)]);
    }
    return low;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read_by_day_and_night(scheme: str, site: Site, pages: Pages) -> None:
    patch = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new"
    code = "```python\n# why\n@a\ndef f(x: int = 1) -> str:\n    '''Say.'''\n    return f'{x!r}' if x else None\n```"
    output = b"\x1b[31mred \x1b[1;34mblue\x1b[0m \x1b[42mgreen\x1b[0m \x1b[30;40mblack\x1b[0m"
    site.session(whole("u", text("Why? [link](https://example.com)"), type="user_message"),
        whole("t", text("Hm."), type="agent_thought"),
        whole("m", text(f"`code` > *quote*\n\n> quote\n\n{code}")),
        whole("m", text(f"`code`\n\n> quote\n\n{code}")),
        whole("w", text("x")),
        whole("w", content=None),
        *(call(f"c{status}", title="T", status=status) for status in ("pending", "in_progress", "completed", "failed")),
        call("d", title="D", status="pending", content=[
            {"type": "diff", "changes": [], "patch": {"format": "git_patch", "text": patch}},
            {"type": "terminal", "terminalId": "t1"},
        ]),
        terminal(command="make", output={"data": base64.b64encode(output).decode()}),
        {"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": "p", "entries": [
            {"content": status, "priority": "low", "status": status} for status in ("completed", "in_progress", "")
        ]}},
        {"sessionUpdate": "state_update", "state": "requires_action"},
    )  # fmt: skip
    page = pages(color_scheme=scheme)
    expect(page.locator(".plain")).to_have_count(0)
    assert page.evaluate(CONTRAST) == []
    page.goto(site.url)
    assert page.evaluate(CONTRAST) == []
    background = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[scheme]


def test_without_script_a_session_can_be_read(site: Site, pages: Pages) -> None:
    site.session(whole("m", text("It is *here*.")), IDLE)
    page = pages(java_script_enabled=False)
    expect(rows(page).locator(".body")).to_have_text("It is here.")
    expect(page.locator("#connection")).to_have_text("not live: this needs JavaScript")


def test_the_link_with_the_token_opens_the_page_and_the_address_keeps_no_token(site: Site, pages: Pages) -> None:
    site.session(whole("m", text("words")))
    site.stop()
    site.start(token="t0ken" * 8)
    page = pages.blank()
    answer = page.goto(site.at())
    assert answer is not None
    assert answer.status == 401
    page.goto(site.server.link(site.name))
    page.locator(LIVE).wait_for()
    assert page.url == site.at()
    assert page.evaluate("() => document.cookie") == ""
    site.stop()
    site.start(token="another " * 5)
    expect(page.locator("#connection")).to_have_text("open the printed link again")
    site.stop()
    site.start()
    expect(page.locator("#connection")).to_have_text("live")
    assert [trouble for trouble in pages.troubles if "401" not in trouble] == []
    pages.troubles.clear()  # the browser said so, too
