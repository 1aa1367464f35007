"""Markdown is rendered in a process of its own, and whatever becomes of that the rest goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable

import pytest

from twofold.web._markdown import LARGEST
from twofold.web._renderer import Renderer

DEADLINE = 20.0


def run(body: Callable[[Renderer], Awaitable[None]], *, deadline: float = 10.0) -> None:
    async def main() -> None:
        renderer = Renderer(deadline=deadline)
        try:
            async with asyncio.timeout(DEADLINE):
                await body(renderer)
        finally:
            await renderer.close()

    asyncio.run(main())


def test_texts_are_rendered_each_by_itself() -> None:
    async def body(renderer: Renderer) -> None:
        assert await renderer.html(["*a*\nb", "c\u2028d"], breaks=False) == (
            ["<p><em>a</em>\nb</p>\n", "<p>c&lt;U+2028&gt;d</p>\n"]
        )
        assert await renderer.html(["*a*\nb"], breaks=True) == ["<p><em>a</em><br />\nb</p>\n"]
        assert await renderer.html([], breaks=True) == []

    run(body)


def test_many_may_ask_at_once() -> None:
    async def body(renderer: Renderer) -> None:
        found = await asyncio.gather(*(renderer.html([str(number)], breaks=False) for number in range(50)))
        assert found == [[f"<p>{number}</p>\n"] for number in range(50)]

    run(body)


def test_text_that_is_too_long_is_left_as_it_is() -> None:
    async def body(renderer: Renderer) -> None:
        assert await renderer.html(["short", "x" * (LARGEST + 1)], breaks=False) is None
        assert await renderer.html(["x" * LARGEST], breaks=False) is not None

    run(body)


def test_a_text_that_takes_too_long_is_left_as_it_is_and_others_are_rendered_after_it() -> None:
    async def body(renderer: Renderer) -> None:
        await renderer.start()
        process = renderer._process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        assert await renderer.html(["a"], breaks=False) is None
        assert process.returncode is not None
        renderer._deadline = 10.0
        assert await renderer.html(["b"], breaks=False) == ["<p>b</p>\n"]

    run(body, deadline=0.2)


def test_a_process_that_dies_is_replaced() -> None:
    async def body(renderer: Renderer) -> None:
        await renderer.start()
        process = renderer._process
        assert process is not None
        process.kill()
        await process.wait()
        assert await renderer.html(["a"], breaks=False) is None
        assert await renderer.html(["b"], breaks=False) == ["<p>b</p>\n"]

    run(body)


def test_one_that_cannot_be_started_leaves_everything_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    async def body(renderer: Renderer) -> None:
        await renderer.start()
        assert await renderer.html(["a"], breaks=False) is None

    run(body)


def test_who_gives_up_waiting_does_not_get_the_next_one_another_ones_answer() -> None:
    async def body(renderer: Renderer) -> None:
        await renderer.start()
        asking = asyncio.create_task(renderer.html(["a"] * 1000, breaks=False))
        await asyncio.sleep(0)
        asking.cancel()
        assert await renderer.html(["b"], breaks=False) == ["<p>b</p>\n"]

    run(body)


def test_after_the_end_nothing_is_started_again() -> None:
    async def body(renderer: Renderer) -> None:
        await renderer.close()
        assert await renderer.html(["a"], breaks=False) is None
        assert renderer._process is None

    run(body)
