"""Captured traffic to final sessions: reading, the v1 upgrade, replays (P-5) and the fold in one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from twofold.capture._reader import Answered, Asked, Event, Problem, Reader, Updated, Version
from twofold.convert import Loss, Upgrader
from twofold.exceptions import LineTooLong, Malformed
from twofold.fold import Change, Reload, Revision, Transcript
from twofold.wire import Kept, is_object, to_json, v1, v2

__all__ = ["Folder", "Session", "from_start", "kept_whole", "prompt_of", "session_id_of", "stop_reason_of"]


class Session:
    """One session of a capture: its transcript, what converts it from v1, and the replay under way."""

    def __init__(self, session_id: str | None, revision: Revision, *, prompts: bool = False) -> None:
        self._with_prompts = prompts
        self.transcript = Transcript(session_id, revision=revision)
        self.losses: list[Loss] = []
        self._upgrader = Upgrader()
        self._reload: _Replay | None = None

    def apply(self, update: v1.SessionUpdate | v2.SessionUpdate, version: Version) -> list[Change]:
        """Fold one update, in either version; while a replay is under way it belongs to the replay."""
        upgrader = self._upgrader if self._reload is None else self._reload.upgrader
        apply = self.transcript.apply if self._reload is None else self._reload.apply
        if version == 2:
            return [apply(update)]  # type: ignore[arg-type]  # the version says which of the two it is
        upgraded = upgrader.update(update)  # type: ignore[arg-type]
        self.losses.extend(upgraded.losses)
        # What v2 has no place for is kept in the timeline as it came: a fold loses nothing.
        return [apply(one) for one in upgraded.updates or (kept_whole(update),)]

    def asked(self, asked: Asked, version: Version) -> list[Change]:
        """Note a request of this session: it may send a prompt, ask for a permission, or begin a replay."""
        match asked.method:
            case "session/prompt":
                prompt = prompt_of(asked.params) if self._with_prompts and version == 1 else None
                return [self.transcript.apply(update) for update in self._upgrader.prompt_sent(asked.key, prompt)]
            case "session/request_permission":
                (self._upgrader if self._reload is None else self._reload.upgrader).permission_requested()
            case "session/load":
                self._reload = _Replay(self, asked)
            case "session/resume" if version == 1:  # v1 does not replay here, but some agents do
                self._reload = _Replay(self, asked, tentative=True)
            case "session/resume" if from_start(asked.params):
                self._reload = _Replay(self, asked)
            case _:
                pass
        return []

    def answered(self, answered: Answered) -> list[Change]:
        """Note an answer: a replay that succeeded takes the place of what was held (P-5)."""
        if answered.asked.method == "session/prompt":
            reason = stop_reason_of(answered) if self._with_prompts else None
            updates = self._upgrader.prompt_answered(answered.asked.key, reason)
            return [self.transcript.apply(update) for update in updates]
        replay = self._reload
        if replay is not None and replay.asked.key == answered.asked.key:
            self._reload = None
            if answered.ok:
                return self._take(replay)
        return []

    def finish(self) -> Problem | None:
        """Take what an unanswered replay brought if nothing else is held; else say that it is not shown."""
        replay, self._reload = self._reload, None
        if replay is None or not replay.reload.fresh.version:
            return None
        if not self.transcript.version:
            self._take(replay)
            return None
        return Problem(
            replay.asked.line, "$", f"{replay.asked.method} was never answered: what it replayed is not shown"
        )

    def _take(self, replay: _Replay) -> list[Change]:
        if replay.tentative and not replay.reload.fresh.timeline:
            return [self.transcript.apply(update) for update in replay.updates]
        self._upgrader = replay.upgrader
        return [replay.reload.commit()]


class _Replay:
    """A replay under way, with the updates in case it turns out to be none."""

    def __init__(self, session: Session, asked: Asked, *, tentative: bool = False) -> None:
        self.asked = asked
        self.tentative = tentative
        self.upgrader = session._upgrader.restarted()
        self.reload: Reload = session.transcript.reload()
        self.updates: list[v2.SessionUpdate] = []

    def apply(self, update: v2.SessionUpdate) -> Change:
        change = self.reload.apply(update)
        if self.tentative and not self.reload.fresh.timeline:
            self.updates.append(update)
        return change


class Folder:
    """Folds captured lines into sessions.

    Feed lines with :meth:`feed`, then call :meth:`finish`. Bad lines never stop it: each is in ``problems``, nothing of
    it is applied, and the rest is folded. With ``prompts``, what a v1 client asked, which no v1 update reports, is
    shown as user messages. ``on_change`` is called with the session, its changes, and the line number.
    """

    def __init__(
        self,
        *,
        revision: Revision | str = Revision.RFD,
        version: Version | None = None,
        lenient: bool = False,
        prompts: bool = False,
        on_change: Callable[[Session, Change, int], object] | None = None,
    ) -> None:
        self.revision = Revision(revision)
        self.sessions: dict[str | None, Session] = {}
        self.problems: list[Problem] = []
        self._on_change = on_change
        self._prompts = prompts
        self._version: Version | None = version
        self._lenient = lenient
        self._number = 0
        self.reader = Reader(version=version, lenient=lenient)

    def begin(self) -> None:
        """Begin another input: lines count from 1 again, and which version is spoken is open again."""
        counts = self.reader.counts
        self.reader = Reader(version=self._version, lenient=self._lenient)
        self.reader.counts = counts
        self._number = 0

    def feed(self, lines: Iterable[bytes | LineTooLong]) -> None:
        """Fold lines, in order."""
        reader, sessions, silent = self.reader, self.sessions, self._on_change is None
        quick = {1: v1.decode_line, 2: v2.decode_line}
        for line in lines:
            self._number += 1
            if isinstance(line, LineTooLong):
                self.problems.append(Problem.of(self._number, line))
                continue
            version = reader.version
            params: Any = quick[version](line)
            if params is None:
                for event in reader.read(line, self._number):
                    self._handle(event)
                continue
            reader.counts.updates += 1
            session = sessions.get(params.session_id)
            if session is None:
                session = self._session(params.session_id)
            if version == 2 and silent and session._reload is None:
                try:
                    session.transcript.apply(params.update)
                except Malformed as error:
                    self.problems.append(Problem.of(self._number, error, under="$.params.update"))
            else:
                self._apply(session, params.update, version, "$.params.update")

    def finish(self) -> None:
        """End the input: whatever still waited for an answer is decided."""
        for session_id, session in list(self.sessions.items()):
            problem = session.finish()
            if problem is not None:
                self.problems.append(problem)
            if not session.transcript.version:  # asked for, and never heard of
                del self.sessions[session_id]

    def _session(self, session_id: str | None) -> Session:
        session = self.sessions.get(session_id)
        if session is None:
            session = self.sessions[session_id] = Session(session_id, self.revision, prompts=self._prompts)
        return session

    def _handle(self, event: Event) -> None:
        match event:
            case Problem():
                self.problems.append(event)
            case Updated(session_id, update, version, path):
                self._apply(self._session(session_id), update, version, path)
            case Asked():
                session_id = session_id_of(event.params)
                if session_id is not None and (session_id in self.sessions or event.method in _OPENING):
                    session = self._session(session_id)
                    self._tell(session, session.asked(event, self.reader.version))
            case Answered():
                asked_in = self.sessions.get(session_id_of(event.asked.params))
                if asked_in is not None:
                    self._tell(asked_in, asked_in.answered(event))

    def _apply(self, session: Session, update: Any, version: Version, path: str) -> None:
        try:
            changes = session.apply(update, version)
        except Malformed as error:
            self.problems.append(Problem.of(self._number, error, under=path))
            return
        self._tell(session, changes)

    def _tell(self, session: Session, changes: list[Change]) -> None:
        if self._on_change is not None:
            for change in changes:
                self._on_change(session, change, self._number)


_OPENING = ("session/load", "session/resume", "session/prompt")


def session_id_of(params: Any) -> str | None:
    session_id = params.get("sessionId") if is_object(params) else None
    return session_id if isinstance(session_id, str) else None


def prompt_of(params: Any) -> Sequence[v2.ContentBlock] | None:
    try:
        return v2.read_content(params.get("prompt"), path="$.params.prompt")
    except Malformed:
        return None  # a prompt is the client's: a fold has no say in it


def stop_reason_of(answered: Answered) -> str | None:
    if not answered.ok:
        return "error"
    reason = answered.result.get("stopReason") if is_object(answered.result) else None
    return reason if isinstance(reason, str) else None


def from_start(params: Any) -> bool:
    cursor = params.get("replayFrom") if is_object(params) else None
    return is_object(cursor) and cursor.get("type") == "start"


def kept_whole(update: v1.SessionUpdate | v2.SessionUpdate) -> v2.OtherUpdate:
    """Give an update that v2 has no place for as one of a kind that is not known: nothing of it is lost."""
    members = to_json(update)
    return v2.OtherUpdate(kind=members.pop("sessionUpdate"), fields=Kept(members))
