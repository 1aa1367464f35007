"""Records to a transcript: the fold, with replays taking the place of what was there before (P-5)."""

from __future__ import annotations

from typing import Final

from twofold.fold import Change, Message, Reload, Revision, ToolCall, Transcript
from twofold.journal._records import Damaged, Loaded, Record
from twofold.wire import v2

__all__ = ["BRACKETS", "Folding"]

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

    def add(self, record: Record | Damaged) -> Change:
        """Fold one record and say what that did to the transcript; damage is a gap."""
        if isinstance(record, Damaged):
            self._gaps.append((record.first, record.last))
            self.position = record.last
            return Change.nothing
        self.position = record.position
        if record.origin != "replay":
            update = v2.decode_update(record.raw)
            if self._reload is None:
                return self.transcript.apply(update)
            self._reload.apply(update)
        elif record.raw == BRACKETS["begin"]:
            self._reload, self._began = self.transcript.reload(), record.position
        else:
            if self._reload is not None and record.raw == BRACKETS["end"]:
                self._missing |= _things(self.transcript)
                self.era, reload, self._reload = self._began, self._reload, None
                return reload.commit()
            self._reload = None
        return Change.nothing

    def result(self) -> Loaded:
        """Give what was folded."""
        here = _things(self.transcript)
        missing = [thing for thing in self._missing if thing not in here]
        return Loaded(self.transcript, self.position, tuple(self._gaps), tuple(missing), self.era)


def _things(transcript: Transcript) -> dict[tuple[str, str], None]:
    things: dict[tuple[str, str], None] = {}
    for entity in transcript.timeline:
        if isinstance(entity, Message):
            things[entity.type, entity.message_id] = None
        elif isinstance(entity, ToolCall):
            things["tool_call", entity.tool_call_id] = None
    return things
