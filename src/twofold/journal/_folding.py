"""Records to a transcript: the fold, with replays taking the place of what was there before (P-5)."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET

from twofold.exceptions import Malformed, ParseError
from twofold.fold import Change, Message, MessageType, Reload, Revision, ToolCall, Transcript
from twofold.journal._records import Damaged, Loaded, Record
from twofold.wire import v2

__all__ = ["BRACKETS", "Folding"]

_TYPES: Final[dict[type[v2.MessageUpdate], MessageType]] = {
    v2.UserMessage: "user_message",
    v2.AgentMessage: "agent_message",
    v2.AgentThought: "agent_thought",
}

BRACKETS: Final = {"begin": b'{"replay":"begin"}', "end": b'{"replay":"end"}', "failed": b'{"replay":"failed"}'}
"""What the journal's own records around a replay say."""


class Folding:
    """Folds the records of one session one by one."""

    def __init__(self, session: str, revision: Revision) -> None:
        self.transcript = Transcript(session, revision=revision)
        self.position = 0
        self.era = 0
        """Where the replay began whose content the transcript stands on, 0 when there was none."""
        self._gaps: list[tuple[int, int]] = []
        self._reload: Reload | None = None
        self._began = 0
        self._missing: dict[tuple[str, str], None] = {}
        self._erased: set[Message] = set()  # messages that content was erased from

    def add(self, record: Record | Damaged) -> Change:
        """Fold one record and say what that did to the transcript; damage is a gap."""
        if isinstance(record, Damaged):
            self._gaps.append((record.first, record.last))
            self.position = record.last
            return Change.nothing
        self.position = record.position
        if record.origin != "replay":
            try:
                update = v2.decode_update(record.raw)
                return self._apply(record, update)
            except (Malformed, ParseError):  # sound bytes that are no update; nothing of ours stores such
                self._gaps.append((record.position, record.position))
                return Change.nothing
        if record.raw == BRACKETS["begin"]:
            self._reload, self._began = self.transcript.reload(), record.position
        else:
            if self._reload is not None and record.raw == BRACKETS["end"]:
                self._missing |= _things(self.transcript)
                self.era, reload, self._reload = self._began, self._reload, None
                return reload.commit()
            self._reload = None
        return Change.nothing

    def _apply(self, record: Record, update: v2.SessionUpdate) -> Change:
        shown = self.transcript
        if self._reload is not None:
            fresh = self._reload.fresh
            self._marked(record, update, fresh, fresh.apply(update))
            if record.origin != "operator" or not _holds(shown, update):
                return Change.nothing
            # What an operator redacts is gone from storage at once, and must not be shown until the replay ends.
        return self._marked(record, update, shown, shown.apply(update))

    def _marked(self, record: Record, update: v2.SessionUpdate, transcript: Transcript, change: Change) -> Change:
        """Say of a message that content was erased from what its flags would say had the content been seen."""
        if not isinstance(update, v2.UserMessage | v2.AgentMessage | v2.AgentThought):
            return change
        message = transcript.message(_TYPES[type(update)], update.message_id)
        if message is None:
            return change
        if record.form == "rewritten":
            self._erased.add(message)
        elif message in self._erased and update.content is not UNSET:
            message.corrected = message.corrected or bool(message.content)
            if not message.content and not message.withdrawn:
                message.withdrawn = True
                return change or Change("message", message, content="cleared")
        return change

    def result(self) -> Loaded:
        """Give what was folded."""
        here = _things(self.transcript)
        missing = [thing for thing in self._missing if thing not in here]
        return Loaded(
            self.transcript, self.position, tuple(self._gaps), tuple(missing), self.era, self._reload is not None
        )


def _holds(transcript: Transcript, update: v2.SessionUpdate) -> bool:
    match update:
        case v2.UserMessage() | v2.AgentMessage() | v2.AgentThought():
            return transcript.message(_TYPES[type(update)], update.message_id) is not None
        case v2.ToolCallUpdate():
            return transcript.tool_call(update.tool_call_id) is not None
        case v2.TerminalUpdate():
            return transcript.terminal(update.terminal_id) is not None
        case _:
            return False


def _things(transcript: Transcript) -> dict[tuple[str, str], None]:
    things: dict[tuple[str, str], None] = {}
    for entity in transcript.timeline:
        if isinstance(entity, Message):
            things[entity.type, entity.message_id] = None
        elif isinstance(entity, ToolCall):
            things["tool_call", entity.tool_call_id] = None
    return things
