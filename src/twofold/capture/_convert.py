"""A captured stream in the other protocol version, each update in the envelope it came in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from twofold.capture._fold import from_start, prompt_of, session_id_of, stop_reason_of
from twofold.capture._reader import Answered, Asked, Event, Problem, Reader, Updated, Version, Wrap
from twofold.convert import Downgrader, Loss, Policy, Upgraded, Upgrader, upgrade
from twofold.exceptions import LineTooLong, Malformed, Unrepresentable
from twofold.jsonrpc import dumps
from twofold.wire import to_json, v2

__all__ = ["Converted", "Converter", "Lost"]


class Lost(Struct, frozen=True, gc=False):
    """A loss, and the line that it happened in."""

    line: int
    loss: Loss

    def __str__(self) -> str:
        return str(self.loss)


Converted: TypeAlias = bytes | Lost | Problem
"""A line of output, or what is to be said of a line of input."""


class Converter:
    """Converts captured lines to version ``to``, in order.

    Only updates are converted; lines that hold none are the connection's, not the session's, and are left out. Updates
    that are in the asked version already pass as they are. With ``strict`` (the default) everything that cannot be
    said in the other version is a loss; with ``mark`` v1 readers are told of corrections, and v2 readers get made-up
    message ids and the prompts that v1 has no update for.
    """

    def __init__(self, to: Version, *, policy: Policy | str = Policy.STRICT, version: Version | None = None) -> None:
        self._to = to
        self._policy = Policy(policy)
        self.reader = Reader(version=version, default=1 if to == 2 else 2)
        self._number = 0
        self._down: dict[str | None, Downgrader] = {}
        self._up: dict[str | None, Upgrader] = {}
        self._wraps: dict[str | None, Wrap] = {}

    def feed(self, lines: Iterable[bytes | LineTooLong]) -> Iterator[Converted]:
        """Convert lines."""
        for line in lines:
            self._number += 1
            if isinstance(line, LineTooLong):
                yield Problem.of(self._number, line)
                continue
            batch: list[Any] | None = [] if line.lstrip()[:1] == b"[" else None
            for event in self.reader.read(line, self._number):
                for one in self._event(event, line):
                    if batch is None or not isinstance(one, bytes):
                        yield one
                    else:  # entries of one array stay in one array
                        batch.append(one[1:-1])
            if batch:
                yield b"[" + b",".join(batch) + b"]"

    def finish(self) -> Iterator[Converted]:
        """End the input: what waited to be sent is sent, what was never shown is said."""
        for session_id in list(self._down):
            yield from self._finished(session_id)

    def _finished(self, session_id: str | None) -> Iterator[Converted]:
        result = self._down.pop(session_id).finish()
        wrap = self._wraps[session_id]
        yield from (dumps(wrap(to_json(update))) for update in result.updates)
        yield from (Lost(self._number, loss) for loss in result.losses)

    def _event(self, event: Event, line: bytes) -> Iterator[Converted]:
        match event:
            case Problem():
                yield event
            case Updated(session_id, update, version, path, wrap) if wrap is not None:
                self._wraps[session_id] = wrap
                if version == self._to:
                    yield dumps(wrap(to_json(update)))
                elif version == 2:
                    yield from self._downgraded(session_id, update, wrap, path, line)
                else:
                    yield from self._upgraded(session_id, update, wrap, path)
            case Asked(params=params, method=method) if method in _HEARD:
                yield from self._asked(event, session_id_of(params))
            case Answered(asked=asked) if asked.method == "session/prompt":
                reason = stop_reason_of(event)
                updates = self._upgrader(session_id_of(asked.params)).prompt_answered(asked.key, reason)
                yield from self._said(event.wrap, session_id_of(asked.params), updates)
            case _:
                pass

    def _downgraded(
        self, session_id: str | None, update: Any, wrap: Wrap, path: str, line: bytes
    ) -> Iterator[Converted]:
        converter = self._down.get(session_id)
        if converter is None:
            converter = self._down[session_id] = Downgrader(policy=self._policy)
        try:
            result = converter.update(update)
        except Malformed as error:
            yield Problem.of(self._number, error, under=path)
            return
        if result.unchanged and line[:1] == b"{":
            yield line
        else:
            yield from (dumps(wrap(to_json(one))) for one in result.updates)
        yield from (Lost(self._number, loss) for loss in result.losses)

    def _upgraded(self, session_id: str | None, update: Any, wrap: Wrap, path: str) -> Iterator[Converted]:
        try:
            if self._policy is Policy.STRICT:
                result = Upgraded([upgrade(update)])
            else:
                result = self._upgrader(session_id).update(update)
        except Unrepresentable as error:
            yield Lost(self._number, Loss(error.kind, error.id, error.path, error.reason))
            return
        except Malformed as error:
            yield Problem.of(self._number, error, under=path)
            return
        yield from (dumps(wrap(to_json(one))) for one in result.updates)
        yield from (Lost(self._number, loss) for loss in result.losses)

    def _upgrader(self, session_id: str | None) -> Upgrader:
        return self._up.setdefault(session_id, Upgrader())

    def _asked(self, asked: Asked, session_id: str | None) -> Iterator[Converted]:
        """Requests that say where messages end, or that begin another view of a session."""
        if asked.method == "session/request_permission":
            self._upgrader(session_id).permission_requested()
        elif asked.method == "session/prompt":
            shown = self._to == 2 and self.reader.version == 1 and self._policy is Policy.MARK
            prompt = prompt_of(asked.params) if shown else None
            yield from self._said(asked.wrap, session_id, self._upgrader(session_id).prompt_sent(asked.key, prompt))
        elif session_id in self._down and from_start(asked.params):  # the v1 side begins a new view, nothing delivered
            yield from self._finished(session_id)
        elif session_id in self._up:
            self._up[session_id] = self._up[session_id].restarted()

    def _said(self, wrap: Wrap, session_id: str | None, updates: Sequence[v2.SessionUpdate]) -> Iterator[bytes]:
        for update in updates:
            yield dumps(wrap({"sessionId": session_id, "update": to_json(update)}))


_HEARD = ("session/request_permission", "session/prompt", "session/load", "session/resume")
