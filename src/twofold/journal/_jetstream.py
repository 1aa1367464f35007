"""What is asked of a NATS server's JetStream, over one connection whose event loop runs in a thread of its own.

Nothing here knows records. The client library speaks the core protocol; batches that are stored whole or not at all,
reading many messages by one request and deleting with erasure are JetStream's own requests, which it has no calls for.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import secrets
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, Final, TypeVar

import msgspec
import nats.errors
from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg

from twofold.journal._records import Unavailable

__all__ = [
    "CLOSED",
    "LARGEST_BATCH",
    "NO_STREAM",
    "PATIENCE",
    "WRONG_LAST",
    "Link",
    "Message",
    "Post",
    "Refused",
    "Unanswered",
]

T = TypeVar("T")

PATIENCE: Final = 10.0
"""Seconds to wait for an answer; a new connection or leader may have to be found meanwhile."""

ATTEMPT: Final = 2.0
"""Seconds after which something asked is asked again: a connection that breaks takes requests with it."""

LARGEST_BATCH: Final = 1000
"""Messages that a server stores as one batch, at most (its default)."""

IN_FLIGHT: Final = 64
"""Requests of one kind under way at once, at most."""

HEARTBEAT: Final = 2.0
"""Seconds between signs of life from the server to one who watches."""

CLOSED: Final = "the journal is closed"

MISSING: Final = frozenset({10037, 10043, 10057})  # no message found, sequence not found, message deleted
NO_STREAM: Final = 10059
WRONG_LAST: Final = frozenset({10070, 10071, 10164})  # somebody else wrote first


class Refused(Exception):
    """JetStream's own error answer. Its text is the server's and never passed on."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(code)


class Unanswered(Exception):
    """Nobody said whether a batch was stored."""


class Message(Struct, frozen=True, gc=False):
    """A stored message."""

    subject: str
    sequence: int
    headers: Mapping[str, str]
    data: bytes


class Post(Struct):
    """A message about to be stored."""

    subject: str
    data: bytes
    headers: dict[str, str]


class _Reading:
    """The answers to one request that come one by one."""

    __slots__ = ("done", "messages")

    def __init__(self, done: asyncio.Future[int]) -> None:
        self.messages: list[Message] = []
        self.done = done


class _Client(Client):
    """The client library looks at every character of every header name; stored messages have many headers."""

    @staticmethod
    def _parse_header_lines(raw: bytes) -> dict[str, str]:
        lines = raw.decode("utf-8", "replace").split("\r\n")
        return {name: value.strip() for name, colon, value in (line.partition(":") for line in lines) if colon}


class Link:
    """One stream on one server. Its methods are called from any thread and wait for the answer.

    Each raises :class:`Unavailable` when there is none.
    """

    def __init__(
        self, where: str, servers: Sequence[str], stream: str, options: Mapping[str, Any], patience: float = PATIENCE
    ) -> None:
        self.where = where
        self.stream = stream
        self.patience = patience
        self._attempt = min(patience, ATTEMPT)
        self.on_reconnect: Callable[[], object] = lambda: None
        self._client = _Client()
        self._numbers = itertools.count()
        self._readings: dict[str, _Reading] = {}
        self._inbox = ""
        self.closed = False
        self._door = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="twofold-nats", daemon=True)
        self._thread.start()
        try:
            self._run(self._connect(servers, options))
        except BaseException:
            self.close()
            raise

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def _connect(self, servers: Sequence[str], options: Mapping[str, Any]) -> None:
        async def quiet(_error: Exception) -> None:  # the calls report what matters, in our own words
            pass

        async def reconnected() -> None:
            self.on_reconnect()

        given: dict[str, Any] = {"name": "twofold", "max_reconnect_attempts": -1, "reconnect_time_wait": 0.2, **options}
        connecting = self._client.connect(list(servers), error_cb=quiet, reconnected_cb=reconnected, **given)
        await asyncio.wait_for(connecting, self.patience)
        self._inbox = self._client.new_inbox()
        await self._client.subscribe(f"{self._inbox}.*", cb=self._answered)  # pyright: ignore[reportUnknownMemberType]

    def close(self) -> None:
        """Let go of the connection and end the thread."""
        with self._door:
            if self.closed:
                return
            self.closed = True
        asyncio.run_coroutine_threadsafe(self._ended(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    async def _ended(self) -> None:
        with contextlib.suppress(Exception):  # it is gone either way
            await asyncio.wait_for(self._client.close(), 2)
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    @property
    def version(self) -> tuple[int, ...]:
        """The server's version."""
        version = self._client.connected_server_version
        return (version.major, version.minor, version.patch)

    @property
    def largest(self) -> int:
        """How many bytes a message may have, its headers included."""
        return self._client.max_payload

    # Asking

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._door:  # nothing is begun that closing would not end
            if self.closed:
                work.close()
                raise Unavailable(self.where, CLOSED)
            future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except nats.errors.NoRespondersError:
            raise Unavailable(
                self.where, "nobody answers for JetStream there: it is off, or has no leader now"
            ) from None
        except nats.errors.AuthorizationError:
            raise Unavailable(self.where, "the server refuses these credentials") from None
        except CancelledError:
            raise Unavailable(self.where, CLOSED) from None
        except TimeoutError:
            raise Unavailable(self.where, "the server does not answer") from None
        except (nats.errors.Error, OSError) as error:
            raise Unavailable(self.where, f"the server cannot be talked to ({type(error).__name__})") from None

    def ask(self, name: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Make a request of the JetStream API. Raises :class:`Refused`."""
        return self._run(self._ask(name, body))

    async def _ask(self, name: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        request = msgspec.json.encode(body) if body is not None else b""
        deadline = self._loop.time() + self.patience
        while True:
            try:
                answer = await self._client.request(f"$JS.API.{name}", request, timeout=self._attempt)
                break
            except nats.errors.NoRespondersError:  # between two leaders, or while a server starts
                if self._loop.time() > deadline:
                    raise
                await asyncio.sleep(0.05)
            except TimeoutError:
                if self._loop.time() > deadline:
                    raise
        return _checked(answer.data)

    def last(self, filter: str) -> Message | None:
        """Give the last message of a subject or of several, as the stream's leader knows it."""
        return self._got({"last_by_subj": filter})

    def next(self, filter: str, start: int) -> Message | None:
        """Give the first message of a subject or of several from a sequence on, as the stream's leader knows it."""
        return self._got({"seq": start, "next_by_subj": filter})

    def at(self, sequence: int) -> Message | None:
        """Give a message, if the stream's leader has it."""
        return self._got({"seq": sequence})

    def _got(self, which: Mapping[str, Any]) -> Message | None:
        try:
            found = self.ask(f"STREAM.MSG.GET.{self.stream}", which)["message"]
        except Refused as refused:
            if refused.code in MISSING:
                return None
            raise
        headers = _headers(base64.b64decode(found.get("hdrs", "")))
        return Message(found["subject"], found["seq"], headers, base64.b64decode(found.get("data", "")))

    def read(self, filter: str, start: int, count: int) -> tuple[list[Message], bool]:
        """Give the first messages of a subject from a sequence on, and whether there are more. A replica may answer."""
        return self._run(self._read({"seq": start, "next_by_subj": filter, "batch": count}))

    def read_each(self, requests: Iterable[tuple[str, int, int]]) -> list[Message]:
        """Give what several readings give together."""

        async def work() -> list[Message]:
            limit = asyncio.Semaphore(8)

            async def one(filter: str, start: int, count: int) -> list[Message]:
                async with limit:
                    return (await self._read({"seq": start, "next_by_subj": filter, "batch": count}))[0]

            parts = await asyncio.gather(*(one(*request) for request in requests))
            return [message for part in parts for message in part]

        return self._run(work())

    def last_of_each(self, filters: Sequence[str]) -> list[Message]:
        """Give the last message of each subject. A replica may answer."""
        return self._run(self._read({"multi_last": list(filters), "batch": 10_000}))[0]

    async def _read(self, body: Mapping[str, Any]) -> tuple[list[Message], bool]:
        request = msgspec.json.encode(body)
        deadline = self._loop.time() + self.patience
        while True:
            token = str(next(self._numbers))
            reading = self._readings[token] = _Reading(self._loop.create_future())
            subject, reply = f"$JS.API.DIRECT.GET.{self.stream}", f"{self._inbox}.{token}"
            try:
                await self._client.publish(subject, request, reply=reply)
                seen = -1
                while not reading.done.done() and seen < len(reading.messages):
                    seen = len(reading.messages)
                    await asyncio.wait({reading.done}, timeout=self._attempt)
                if reading.done.done():
                    return reading.messages, reading.done.result() > 0
            except nats.errors.NoRespondersError:
                await asyncio.sleep(0.05)
                if self._loop.time() > deadline:
                    raise
            finally:
                del self._readings[token]
            if self._loop.time() > deadline:
                raise TimeoutError

    async def _answered(self, message: Msg) -> None:
        reading = self._readings.get(message.subject.rpartition(".")[2])
        if reading is None or reading.done.done():
            return
        headers = message.headers or {}
        status = headers.get("Status")
        if status is None:
            reading.messages.append(
                Message(headers["Nats-Subject"], int(headers["Nats-Sequence"]), headers, message.data)
            )
        elif status in ("204", "404"):  # the end; nothing there
            reading.done.set_result(int(headers.get("Nats-Num-Pending", "0")))
        elif status == "503":
            reading.done.set_exception(nats.errors.NoRespondersError())
        else:
            reading.done.set_exception(Refused(int(status)))

    # Writing

    def store(self, posts: Sequence[Post], *, filter: str, last: int) -> int:
        """Store messages one right after the other, all or none, if ``last`` is the filter's last sequence.

        Gives the sequence of the last of them. Raises :class:`Refused` if none was stored, and :class:`Unanswered`.
        """
        return self._run(self._store(posts, filter, last))

    async def _store(self, posts: Sequence[Post], filter: str, last: int) -> int:
        batch = secrets.token_hex(8)
        for number, post in enumerate(posts, start=1):
            if len(posts) > 1:
                post.headers |= {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(number)}
            if number == 1:
                post.headers["Nats-Expected-Last-Subject-Sequence"] = str(last)
                post.headers["Nats-Expected-Last-Subject-Sequence-Subject"] = filter
            if number < len(posts):
                await self._client.publish(post.subject, post.data, headers=post.headers)
        post = posts[-1]
        if len(posts) > 1:
            post.headers["Nats-Batch-Commit"] = "1"
        try:
            answer = await self._client.request(post.subject, post.data, timeout=self._attempt, headers=post.headers)
        except (nats.errors.Error, TimeoutError, OSError):
            raise Unanswered from None
        sequence: int = _checked(answer.data)["seq"]
        return sequence

    def erase(self, sequences: Iterable[int]) -> None:
        """Delete messages and overwrite what they held. Those that are gone already are no error."""
        self._delete_each(sequences, {})

    def drop(self, sequences: Iterable[int]) -> None:
        """Delete messages that hold nothing to hide, which is quicker."""
        self._delete_each(sequences, {"no_erase": True})

    def _delete_each(self, sequences: Iterable[int], how: Mapping[str, Any]) -> None:
        every = list(sequences)
        if every:
            self._run(self._delete(every, how))

    async def _delete(self, sequences: Sequence[int], how: Mapping[str, Any]) -> None:
        async def worker() -> None:
            for sequence in queue:  # shared: each takes the next
                try:
                    await self._ask(f"STREAM.MSG.DELETE.{self.stream}", {"seq": sequence, **how})
                except Refused as refused:
                    if refused.code not in MISSING:
                        raise

        queue = iter(sequences)
        await asyncio.gather(*(worker() for _ in range(min(IN_FLIGHT, len(sequences)))))

    # Watching

    def watch(self, filter: str, woken: Callable[[], object]) -> Callable[[], None]:
        """Call ``woken``, in the link's thread, after messages were stored on a subject; give what ends that.

        It is also called when watching had to begin again, since something may have been missed.
        """

        async def begin() -> asyncio.Task[None]:
            watching = self._loop.create_future()
            task = self._loop.create_task(self._watch(filter, woken, watching))
            await asyncio.wait({watching, task}, timeout=self.patience, return_when=asyncio.FIRST_COMPLETED)
            return task

        task = self._run(begin())

        def end() -> None:
            if not self.closed:
                self._loop.call_soon_threadsafe(task.cancel)

        return end

    async def _watch(self, filter: str, woken: Callable[[], object], watching: asyncio.Future[None]) -> None:
        while True:
            alive, due = asyncio.Event(), asyncio.Event()

            async def received(message: Msg, alive: asyncio.Event = alive, due: asyncio.Event = due) -> None:
                alive.set()
                if (message.headers or {}).get("Status") is None:
                    due.set()
                elif message.reply:  # the server asks whether we keep up
                    await message.respond(b"")

            inbox, name = self._client.new_inbox(), f"twofold-{secrets.token_hex(8)}"
            config = {
                "name": name,
                "deliver_subject": inbox,
                "deliver_policy": "new",
                "ack_policy": "none",
                "filter_subject": filter,
                "headers_only": True,
                "mem_storage": True,
                "num_replicas": 1,
                "max_deliver": 1,
                "idle_heartbeat": int(HEARTBEAT * 1e9),
                "inactive_threshold": int(30e9),
            }
            subscription = await self._client.subscribe(inbox, cb=received)  # pyright: ignore[reportUnknownMemberType]
            try:
                await self._ask(
                    f"CONSUMER.CREATE.{self.stream}.{name}.{filter}",
                    {"stream_name": self.stream, "config": config, "action": "create"},
                )
                woken()
                if not watching.done():
                    watching.set_result(None)
                await self._wake(alive, due, woken)
            except (nats.errors.Error, TimeoutError, OSError, Refused):
                await asyncio.sleep(0.2)
            finally:
                if not self._client.is_closed:
                    try:
                        await subscription.unsubscribe()
                        await self._client.publish(f"$JS.API.CONSUMER.DELETE.{self.stream}.{name}")
                    except nats.errors.Error:
                        pass  # the server forgets it by itself

    async def _wake(self, alive: asyncio.Event, due: asyncio.Event, woken: Callable[[], object]) -> None:
        """Wake for messages until the server gives no sign of life."""

        async def waking() -> None:
            while True:
                await due.wait()
                due.clear()
                woken()

        task = self._loop.create_task(waking())
        try:
            while True:
                await asyncio.wait_for(alive.wait(), 3 * HEARTBEAT)
                alive.clear()
                await asyncio.sleep(HEARTBEAT / 4)
        finally:
            task.cancel()


def _checked(data: bytes) -> dict[str, Any]:
    answer: dict[str, Any] = msgspec.json.decode(data)
    error = answer.get("error")
    if error is not None:
        raise Refused(error.get("err_code", error.get("code", 0)))
    return answer


def _headers(block: bytes) -> dict[str, str]:
    """Read a block of headers (``NATS/1.0``, then a line each)."""
    return _Client._parse_header_lines(block.partition(b"\r\n")[2])
