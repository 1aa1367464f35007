"""What passes between the bridge and its agent, into a journal: in a thread of its own, in the order it passed."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from twofold.capture.importing import Importer
from twofold.exceptions import TwofoldError
from twofold.fold import SETUP, Revision
from twofold.journal import Journal
from twofold.wire import v2

__all__ = ["Recorder", "Sender", "setups"]

Sender: TypeAlias = Literal["c2a", "a2c"]

_TOGETHER: Final = 512
"""Lines that are looked at before what they say is stored, at most."""

_WAITING: Final = 8 * 1024 * 1024
"""Bytes that may wait to be stored; then the bridge reads no further."""


def setups(journal: Journal, session: str) -> Iterator[Mapping[str, Any]]:
    """Give what a bridge recorded of where a session works: the session itself may lack it, after a replay."""
    for record in journal.read(session):
        if record.origin == "operator" and SETUP.encode() in record.raw:
            update = v2.decode_update(record.raw)
            if isinstance(update, v2.OtherUpdate) and update.kind == SETUP:
                yield update.fields


class _Own(Struct):
    """An update of the bridge's own."""

    session: str
    update: v2.SessionUpdate


class Recorder:
    """Stores what lines say in a journal, as an import of the same traffic would (J-2).

    Nothing of a request but prompts is stored: no servers, headers or authentication data (J-8).
    """

    def __init__(self, journal: Journal, *, revision: Revision, report: Callable[[str], object]) -> None:
        self.journal = journal
        self.failed = False
        """Whether the journal has failed: then nothing more is stored, and the bridge goes on."""
        self._report = report
        self._importer = Importer(journal, name="unnamed", revision=revision)
        self._queue: queue.SimpleQueue[tuple[bytes, Sender] | _Own | threading.Event | None] = queue.SimpleQueue()
        self._size = 0
        self._stored = 0
        self._room = asyncio.Event()
        self._waiter: asyncio.AbstractEventLoop | None = None  # who waits for room, and is told once
        self._thread = threading.Thread(target=self._work, name="twofold-recorder", daemon=True)
        self._thread.start()

    @property
    def behind(self) -> bool:
        """Whether too much waits to be stored."""
        return self._size - self._stored > _WAITING and not self.failed

    async def caught_up(self) -> None:
        """Wait until it does not."""
        while self.behind:
            self._room.clear()
            self._waiter = asyncio.get_running_loop()
            if self.behind:  # still: the thread that stores may have been quicker
                await self._room.wait()

    def line(self, line: bytes, sender: Sender) -> None:
        """Take a line that passed."""
        self._size += len(line)
        self._queue.put((line, sender))

    def put(self, session: str, update: v2.SessionUpdate) -> None:
        """Store an update of the bridge's own in a session, such as a record of what could not be carried."""
        self._queue.put(_Own(session, update))

    def flush(self) -> None:
        """Wait until everything taken is stored. Blocks."""
        done = threading.Event()
        self._queue.put(done)
        done.wait()

    def close(self) -> None:
        """Store what waits, and close the journal. Blocks."""
        self._queue.put(None)
        self._thread.join()
        self.journal.close()

    def _work(self) -> None:
        ended = False
        while not ended:
            done: list[threading.Event] = []
            for _ in range(_TOGETHER):
                item = self._queue.get()
                if item is None:
                    ended = True
                elif isinstance(item, threading.Event):
                    done.append(item)
                elif not self.failed:
                    self._take(item)
                if isinstance(item, tuple):
                    self._stored += len(item[0])
                if ended or self._queue.empty():
                    break
            if not self.failed:
                self._guarded(self._importer.finish if ended else self._importer.flush)
            for event in done:
                event.set()
            waiter = self._waiter
            if waiter is not None and not self.behind:
                self._waiter = None
                with suppress(RuntimeError):  # the loop has ended
                    waiter.call_soon_threadsafe(self._room.set)

    def _take(self, item: tuple[bytes, Sender] | _Own) -> None:
        def take() -> None:
            if isinstance(item, _Own):
                self._importer.put(item.session, item.update)
                return
            for problem in self._importer.take(*item):
                self._report(f"not recorded: {problem}")

        self._guarded(take)

    def _guarded(self, act: Callable[[], object]) -> None:
        try:
            act()
        except TwofoldError as error:
            self.failed = True
            self._report(f"the journal failed, nothing more is recorded: {error}")
        except Exception as error:
            self.failed = True
            self._report(f"the journal failed, nothing more is recorded: {type(error).__name__}")
