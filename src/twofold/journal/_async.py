"""A journal for asyncio: appends go through one thread, which commits together whatever waits."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby, islice
from types import TracebackType
from typing import Final, Self, TypeAlias

from twofold.exceptions import Malformed, ParseError
from twofold.fold import Revision
from twofold.journal._base import Journal
from twofold.journal._records import Appended, EntityKind, Loaded, Origin, Record, SessionInfo, Unavailable

__all__ = ["AsyncJournal", "Writer"]

Act: TypeAlias = Callable[[str, int], Appended]
"""A journal's method that takes a session and its position."""

LARGEST: Final = 512
"""Updates in one commit, at most."""


class _Job:
    """What one writer waits for: updates to be stored, or something else to be done at its position."""

    __slots__ = ("act", "future", "loop", "raws", "writer")

    def __init__(
        self, writer: Writer, raws: tuple[bytes, ...], loop: asyncio.AbstractEventLoop, act: Act | None = None
    ) -> None:
        self.writer = writer
        self.raws = raws
        self.act = act
        self.loop = loop
        self.future: asyncio.Future[Appended] = loop.create_future()

    def settle(self, result: Appended | BaseException) -> None:
        """Give the result to whoever waits; called in the loop."""
        if self.future.done():
            return
        if isinstance(result, BaseException):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


def _answer(answers: Sequence[tuple[_Job, Appended | BaseException]]) -> None:
    """Give results to those who wait, waking each loop once for as many as come together."""
    for loop, group in groupby(answers, key=lambda answer: answer[0].loop):

        def settle(together: Sequence[tuple[_Job, Appended | BaseException]] = tuple(group)) -> None:
            for job, result in together:
                job.settle(result)

        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(settle)


class AsyncJournal:
    """Wraps a :class:`Journal` for use from an event loop, which it never blocks.

    Whatever is queued while a commit runs is committed together in the next one: no timer, and the disk is the pace.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closing = threading.Lock()  # between the last job and the end of the queue
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="twofold-journal", daemon=True)
        self._thread.start()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def writer(self, session: str, *, origin: Origin = "agent") -> Writer:
        """Give what appends to a session from its last position on."""
        return Writer(self, session, await asyncio.to_thread(self.journal.position, session), origin)

    async def append(self, session: str, expected_position: int, *raws: bytes, origin: Origin = "agent") -> Appended:
        """Do what :meth:`Journal.append` does."""
        return await Writer(self, session, expected_position, origin).append(*raws)

    def follow(self, session: str, after: int = 0) -> AsyncGenerator[Record, None]:
        """Do what :meth:`Journal.follow` does."""
        return self.journal.follow(session, after)

    async def page(self, session: str, after: int = 0) -> list[Record]:
        """Do what :meth:`Journal.page` does."""
        return list(await asyncio.to_thread(self.journal.page, session, after))

    async def load(self, session: str, *, revision: Revision | str | None = None) -> Loaded:
        """Do what :meth:`Journal.load` does."""
        return await asyncio.to_thread(lambda: self.journal.load(session, revision=revision))

    async def sessions(self) -> list[SessionInfo]:
        """Do what :meth:`Journal.sessions` does."""
        return list(await asyncio.to_thread(self.journal.sessions))

    async def close(self) -> None:
        """Store what is queued, then close the journal. What is put after that fails with :class:`Unavailable`."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self.journal.close)

    def _put(self, job: _Job) -> None:
        with self._closing:
            if not self._closed:
                self._queue.put(job)
                return
        job.future.set_exception(Unavailable(self.journal.where, "the journal is closed"))

    def _work(self) -> None:
        ended = False
        while not ended:
            runs: dict[Writer, list[_Job]] = {}
            count = 0
            while not count or (count < LARGEST and not self._queue.empty()):
                job = self._queue.get()
                if job is None:  # nothing comes after it
                    ended = True
                    break
                runs.setdefault(job.writer, []).append(job)
                count += max(1, len(job.raws))
            for writer, run in runs.items():
                for acts, jobs in groupby(run, key=lambda job: job.act is not None):
                    for part in [[job] for job in jobs] if acts else [list(jobs)]:
                        self._commit(writer, part)

    def _commit(self, writer: Writer, run: list[_Job]) -> None:
        """Store what one writer queued in one commit.

        If some of it is no update, each by itself, so that each gets its own answer.
        """
        try:
            together = self._done(writer, run)
        except (Malformed, ParseError) as error:
            if len(run) == 1:
                _answer([(run[0], error)])
            else:
                for job in run:
                    self._commit(writer, [job])
            return
        except BaseException as error:
            _answer([(job, error) for job in run])
            return
        if run[0].act is not None:
            _answer([(run[0], together)])
            return
        places = iter(together.positions)
        answers: list[tuple[_Job, Appended | BaseException]] = []
        for job in run:
            mine = tuple(islice(places, len(job.raws)))
            answers.append((job, Appended(mine[-1] if mine else together.position, together.erasure, mine)))
        _answer(answers)

    def _done(self, writer: Writer, run: list[_Job]) -> Appended:
        act = run[0].act
        if act is not None:
            appended = act(writer.session, writer._position)
        else:
            raws = [raw for job in run for raw in job.raws]
            appended = self.journal.append(writer.session, writer._position, *raws, origin=writer.origin)
        writer._position = appended.position
        return appended


class Writer:
    """Appends to one session, in order. There is one writer a session: a second one fails with ``PositionTaken``."""

    def __init__(self, journal: AsyncJournal, session: str, position: int, origin: Origin) -> None:
        self.session = session
        self.origin: Final = origin
        self._journal = journal
        self._position = position  # the thread's: where the last commit ended

    def put(self, *raws: bytes) -> asyncio.Future[Appended]:
        """Queue updates, and give the future of their being stored. The order of calls is the order of records."""
        job = _Job(self, raws, asyncio.get_running_loop())
        self._journal._put(job)
        return job.future

    async def append(self, *raws: bytes) -> Appended:
        """Store updates; they are durable when this returns. Raises what :meth:`Journal.append` does."""
        return await self.put(*raws)

    async def begin_replay(self) -> Appended:
        """Do what :meth:`Journal.begin_replay` does, after what was put before."""
        return await self._act(self._journal.journal.begin_replay)

    async def end_replay(self, *, ok: bool = True) -> Appended:
        """Do what :meth:`Journal.end_replay` does, after what was put before."""
        return await self._act(partial(self._journal.journal.end_replay, ok=ok))

    async def redact(self, kind: EntityKind, id: str) -> Appended:
        """Do what :meth:`Journal.redact` does, after what was put before."""
        redact = self._journal.journal.redact
        return await self._act(lambda session, _position: redact(session, kind, id))

    async def _act(self, act: Act) -> Appended:
        job = _Job(self, (), asyncio.get_running_loop(), act)
        self._journal._put(job)
        return await job.future
