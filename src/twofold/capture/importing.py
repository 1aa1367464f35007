"""Captured traffic into a journal: updates as they were received, replays between brackets (J-2, P-5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from twofold.capture._fold import from_start, kept_whole, prompt_of, session_id_of, stop_reason_of
from twofold.capture._reader import Answered, Asked, Event, Problem, Reader, Updated, Version
from twofold.convert import Upgrader
from twofold.exceptions import LineTooLong, Malformed
from twofold.fold import Revision, Transcript
from twofold.journal import Appended, Journal, Origin, PositionTaken
from twofold.jsonrpc import dumps
from twofold.wire import v1, v2

__all__ = ["Importer", "exported"]

BATCH: Final = 256
"""Updates of one session that are stored in one commit."""


class _Params(Struct):
    update: Raw


class _Message(Struct):
    params: _Params


class _Captured(Struct):
    line: str


_message: Final = msgspec.json.Decoder(_Message)
_params: Final = msgspec.json.Decoder(_Params)
_captured: Final = msgspec.json.Decoder(_Captured)


def raw_update(line: bytes) -> bytes | None:
    """Give the bytes of the one update of a line, exactly as they stand there; ``None`` when that is not one line's
    business."""
    for decode in (_message.decode, _params.decode):
        try:
            found: Any = decode(line)
        except (msgspec.MsgspecError, RecursionError):
            continue
        return bytes((found.params if isinstance(found, _Message) else found).update)
    try:
        return raw_update(_captured.decode(line).line.encode("utf-8"))
    except (msgspec.MsgspecError, RecursionError):
        pass
    return line.strip() if line.lstrip()[:1] == b"{" else None


class _Replay:
    """A replay that was asked for. One that is ``tentative`` is none until something of the conversation comes."""

    __slots__ = ("before", "begun", "key", "reports", "tentative")

    def __init__(self, key: tuple[str, object], before: Upgrader, *, tentative: bool) -> None:
        self.before = before  # goes on if the replay fails
        self.key = key
        self.tentative = tentative
        self.begun = False
        self.reports: list[tuple[Origin, bytes]] = []


class Importer:
    """Stores the sessions of captured lines in a journal, each after what the journal has of it already.

    From a v1 agent it stores what the upgrading converter makes of the updates, the prompts as user messages, marked
    as of origin ``v1``. ``name`` is the session of lines that name none.
    """

    def __init__(
        self, journal: Journal, *, name: str, version: Version | None = None, revision: Revision | str = Revision.RFD
    ) -> None:
        self.stored = 0
        """Records stored so far."""
        self._journal = journal
        self._name = name
        self._revision = Revision(revision)
        self.reader = Reader(version=version)
        self._number = 0
        self._waiting: dict[str, tuple[Origin, list[bytes]]] = {}
        self._positions: dict[str, int] = {}
        self._upgraders: dict[str, Upgrader] = {}
        self._replays: dict[str, _Replay] = {}

    def feed(self, lines: Iterable[bytes | LineTooLong]) -> Iterator[Problem]:
        """Store lines, in order, and give their problems."""
        for line in lines:
            self._number += 1
            if isinstance(line, LineTooLong):
                yield Problem.of(self._number, line)
                continue
            for event in self.reader.read(line, self._number):
                yield from self._event(event, line)

    def take(self, line: bytes, sender: Literal["c2a", "a2c"]) -> Iterator[Problem]:
        """Store what one line of a live connection says, and who said it. :meth:`flush` when there is time."""
        self._number += 1
        for event in self.reader.read(line, self._number, sender=sender):
            yield from self._event(event, line)

    def put(self, session: str, update: v2.SessionUpdate) -> None:
        """Store an update that no line said, after what was stored before."""
        self._put(session, "operator", v2.encode(update))

    def flush(self) -> None:
        """Store what waits."""
        for session in list(self._waiting):
            self._flush(session)

    def finish(self) -> None:
        """Store what waits; a replay that was never answered has failed."""
        for session in list(self._replays):
            self._end_replay(session, ok=False)
        self.flush()

    def _event(self, event: Event, line: bytes) -> Iterator[Problem]:
        match event:
            case Problem():
                yield event
            case Updated(session_id, update, version, path):
                try:
                    self._update(session_id or self._name, update, version, line, exact=event.wrap is not None)
                except Malformed as error:
                    yield Problem.of(self._number, error, under=path)
            case Asked(params=params):
                session = session_id_of(params)
                if session is not None:
                    self._asked(event, session)
            case Answered(asked=asked, ok=ok):
                session = session_id_of(asked.params)
                if session is None:
                    return
                if asked.method == "session/prompt":
                    for said in self._upgrader(session).prompt_answered(asked.key, stop_reason_of(event)):
                        self._put(session, "v1", v2.encode(said))
                elif session in self._replays and self._replays[session].key == asked.key:
                    self._end_replay(session, ok=ok)

    def _update(self, session: str, update: Any, version: Version, line: bytes, *, exact: bool) -> None:
        replay = self._replays.get(session)
        if replay is not None and not replay.begun and not (replay.tentative and _report(update)):
            self._begin_replay(session, replay)
        if version == 2:
            if isinstance(update, v2.TerminalUpdate | v2.TerminalOutputChunk):
                Transcript().apply(update)  # raises when its output is no base64: the journal does not take it
            raw = raw_update(line) if exact and line.lstrip()[:1] == b"{" else None
            self._put(session, "agent", v2.encode(update) if raw is None else raw)
            return
        upgraded = self._upgrader(session).update(update)
        for one in upgraded.updates or (kept_whole(update),):
            self._put(session, "v1", v2.encode(one))

    def _asked(self, asked: Asked, session: str) -> None:
        match asked.method:
            case "session/prompt":
                prompt = prompt_of(asked.params) if self.reader.version == 1 else None
                for said in self._upgrader(session).prompt_sent(asked.key, prompt):
                    self._put(session, "v1", v2.encode(said))
            case "session/request_permission":
                self._upgrader(session).permission_requested()
            case "session/load" | "session/resume" if (
                asked.method == "session/load" or self.reader.version == 1 or from_start(asked.params)
            ):
                before = self._upgrader(session)
                self._upgraders[session] = before.restarted()
                tentative = asked.method == "session/resume" and self.reader.version == 1
                self._replays[session] = _Replay(asked.key, before, tentative=tentative)
            case _:
                pass

    def _begin_replay(self, session: str, replay: _Replay) -> None:
        self._flush(session)
        self._at_end(session, lambda position: self._journal.begin_replay(session, position))
        replay.begun = True
        for origin, raw in replay.reports:
            self._put(session, origin, raw)

    def _end_replay(self, session: str, *, ok: bool) -> None:
        replay = self._replays[session]
        if not replay.begun and not replay.tentative and ok:
            self._begin_replay(session, replay)  # the agent was asked for all that it holds, and holds nothing
        del self._replays[session]
        if not ok or not replay.begun:
            self._upgraders[session] = replay.before
        if not replay.begun:
            for origin, raw in replay.reports:
                self._put(session, origin, raw)
            return
        self._flush(session)
        self._at_end(session, lambda position: self._journal.end_replay(session, position, ok=ok))

    def _upgrader(self, session: str) -> Upgrader:
        upgrader = self._upgraders.get(session)
        if upgrader is None:
            taken: set[str] = set()
            if self._position(session):  # it goes on: what is made up must not pass for what is there
                taken = {message.message_id for message in self._journal.load(session).transcript.messages}
            upgrader = self._upgraders[session] = Upgrader(taken=taken)
        return upgrader

    def _position(self, session: str) -> int:
        position = self._positions.get(session)
        if position is None:
            position = self._journal.position(session)
            if not position:
                self._journal.set_revision(session, self._revision)
        return position

    def _put(self, session: str, origin: Origin, raw: bytes) -> None:
        replay = self._replays.get(session)
        if replay is not None and not replay.begun:  # it is still to be seen whether this is part of a replay
            replay.reports.append((origin, raw))
            return
        held = self._waiting.get(session)
        if held is not None and (held[0] != origin or len(held[1]) >= BATCH):
            self._flush(session)
            held = None
        if held is None:
            held = self._waiting[session] = (origin, [])
        held[1].append(raw)

    def _flush(self, session: str) -> None:
        origin, raws = self._waiting.pop(session, ("agent", []))
        if raws:
            self._at_end(session, lambda position: self._journal.append(session, position, *raws, origin=origin))
            self.stored += len(raws)

    def _at_end(self, session: str, store: Callable[[int], Appended]) -> None:
        """Store after what is there, also when somebody else (an operator, who redacts) stores in the session, too."""
        position = self._position(session)
        while True:
            try:
                self._positions[session] = store(position).position
            except PositionTaken as taken:
                position = taken.found
            else:
                return


def _report(update: Any) -> bool:
    """Whether an update is none of the conversation: an agent sends those when it resumes without a replay, too."""
    return isinstance(
        update,
        v2.StateUpdate
        | v2.UsageUpdate
        | v2.SessionInfoUpdate
        | v2.AvailableCommandsUpdate
        | v2.ConfigOptionUpdate
        | v2.Notice
        | v1.AvailableCommandsUpdate
        | v1.ConfigOptionUpdate
        | v1.CurrentModeUpdate,
    )


def exported(journal: Journal, session: str) -> Iterator[bytes]:
    """Give a session's records as lines that fold to the same state, each update byte for byte.

    The brackets of a replay become the request and the answer that they stand for.
    """
    name = dumps(session)
    replays = 0
    for record in journal.read(session):
        if record.origin != "replay":
            raw = record.raw if b"\n" not in record.raw else v2.encode(v2.decode_update(record.raw))
            yield b"".join(
                (b'{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":', name, b',"update":', raw, b"}}")
            )
        elif record.raw == b'{"replay":"begin"}':
            replays += 1
            params = {"sessionId": session, "cwd": "/", "replayFrom": {"type": "start"}}
            yield dumps({"jsonrpc": "2.0", "id": f"replay-{replays}", "method": "session/resume", "params": params})
        elif record.raw == b'{"replay":"end"}':
            yield dumps({"jsonrpc": "2.0", "id": f"replay-{replays}", "result": {}})
        else:
            error = {"code": -32603, "message": "the replay failed"}
            yield dumps({"jsonrpc": "2.0", "id": f"replay-{replays}", "error": error})
