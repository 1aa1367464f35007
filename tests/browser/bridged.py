"""An agent behind a bridge of its own process, which writes a journal, and a small client that prompts it."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from twofold.runtime.client import PermissionRequest, Turn, connect
from twofold.wire import v2

__all__ = ["Bridged"]

DEADLINE: Final = 20.0


class Bridged:
    """Runs `twofold bridge` with an agent behind it. The client has a loop of its own, in a thread."""

    def __init__(self, journal: Path, agent: Path) -> None:
        command = [
            sys.executable,
            "-m",
            "twofold",
            "bridge",
            "--journal",
            str(journal),
            "--",
            sys.executable,
            str(agent),
        ]
        self.session_id = ""
        self._command = command
        self._prompts: queue.Queue[tuple[str, Future[Any]] | None] = queue.Queue()
        self._ready = threading.Event()
        self._allowed = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(DEADLINE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._allowed.set()
        self._prompts.put(None)
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()

    def prompt(self, words: str) -> Future[Any]:
        """Prompt the agent; the turn's stop reason comes later."""
        future: Future[Any] = Future()
        self._prompts.put((words, future))
        return future

    def allow(self) -> None:
        """Answer what the agent asks, or will ask, with yes."""
        self._allowed.set()

    async def _serve(self) -> None:
        async def decide(request: PermissionRequest) -> v2.PermissionOption | None:
            await asyncio.to_thread(self._allowed.wait)
            return request.option("allow_once")

        async with connect(self._command, on_permission=decide) as client:
            session = await client.new_session(cwd="/")
            self.session_id = session.session_id
            self._ready.set()
            turns: set[asyncio.Task[None]] = set()
            while (asked := await asyncio.to_thread(self._prompts.get)) is not None:
                words, future = asked
                turn = session.prompt(words)
                turns.add(asyncio.create_task(_answered(turn, future)))
            for task in turns:
                task.cancel()


async def _answered(turn: Turn, future: Future[Any]) -> None:
    future.set_result(await turn)
