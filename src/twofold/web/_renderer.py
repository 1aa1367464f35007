"""Markdown rendered in a process of its own: no text, however it is made, keeps the server from its work."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from twofold.web import _markdown

__all__ = ["Renderer"]

DEADLINE: Final = 3.0
"""Seconds that one text may take. One that takes longer is shown as it is."""

_LIMIT: Final = 64 * 1024 * 1024


class Renderer:
    """Renders Markdown. Close it when done."""

    def __init__(self, *, deadline: float = DEADLINE) -> None:
        self._deadline = deadline
        self._process: asyncio.subprocess.Process | None = None
        self._one_at_a_time = asyncio.Lock()
        self._closed = False

    async def start(self) -> None:
        """Start the process, which takes a moment, before it is needed."""
        async with self._one_at_a_time:
            with suppress(OSError, EOFError):
                await self._started()

    async def html(self, texts: Sequence[str], *, breaks: bool) -> list[str] | None:
        """Give texts as HTML, or ``None`` when that cannot be done for all of them in time."""
        if any(len(text) > _markdown.LARGEST for text in texts):
            return None
        async with self._one_at_a_time:
            try:
                return [await self._asked(text, breaks) for text in texts]
            except (OSError, EOFError, TimeoutError):
                await self._stop()
                return None
            except asyncio.CancelledError:  # with an answer on its way
                await self._stop()
                raise

    async def close(self) -> None:
        """End the process."""
        self._closed = True
        async with self._one_at_a_time:
            await self._stop()

    async def _asked(self, text: str, breaks: bool) -> str:
        process = await self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        async with asyncio.timeout(self._deadline):
            process.stdin.write(msgspec.json.encode((text, breaks)) + b"\n")
            await process.stdin.drain()
            line = await process.stdout.readline()
        if not line:
            raise EOFError
        return msgspec.json.decode(line, type=str)

    async def _started(self) -> asyncio.subprocess.Process:
        if self._closed:
            raise EOFError
        if self._process is None:
            path = os.pathsep.join(entry for entry in sys.path if entry)
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # our own folder is not one to import from
                str(Path(_markdown.__file__)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                limit=_LIMIT,
            )
        return self._process

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()  # lets go of the pipes, too
