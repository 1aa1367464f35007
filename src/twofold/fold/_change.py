"""What one update did, for those who render."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal, TypeAlias

from msgspec import Struct

__all__ = ["NOTHING", "Change", "ChangeKind", "ChangedContent", "ChangedEntity", "WholeChange"]

ChangedEntity: TypeAlias = Literal[
    "message",
    "tool_call",
    "terminal",
    "plan",
    "compaction",
    "state",
    "usage",
    "available_commands",
    "config_options",
    "session_info",
    "notice",
    "other",
    "transcript",
    "nothing",
]
ChangedContent: TypeAlias = Literal["kept", "appended", "replaced", "cleared"]
ChangeKind: TypeAlias = Literal["created", "appended", "replaced", "cleared", "patched", "nothing"]


class Change(Struct, frozen=True, gc=False):
    """What one update did to one thing. False when it did nothing.

    ``entity`` says what kind of thing, ``target`` is the thing itself: a :class:`~twofold.fold.Message`, …, as it is
    now (it is the live one, and goes on changing); for ``state``, ``usage``, ``session_info``, ``notice`` and the like
    the report that is held now; for ``transcript`` the transcript, all of which is new.

    ``content`` says what happened to its content (for a terminal: its output). After ``appended``, ``block`` is what
    was appended (a content block, a tool-call item, bytes) and ``index`` where it stands: its position, for bytes the
    offset of the first. After ``replaced``, ``block`` is all of the content as this change made it: blocks, items or
    bytes (``target`` may have changed further when one looks at the change later; a plan's is there). ``fields`` names
    the other fields that changed, as on the wire; a report that is always whole (``state``, ``usage``, the lists) names
    none.
    """

    entity: ChangedEntity
    target: Any = None
    created: bool = False
    content: ChangedContent = "kept"
    index: int = 0
    block: Any = None
    fields: tuple[str, ...] = ()

    nothing: ClassVar[Change]
    """The change that is none (F-12). Test for it with ``if change:`` or ``is``."""

    def __bool__(self) -> bool:
        return self.entity != "nothing"

    @property
    def kind(self) -> ChangeKind:
        """The change in one word: the creation first, then what happened to content, then the rest."""
        if self.entity == "nothing":
            return "nothing"
        if self.created:
            return "created"
        return "patched" if self.content == "kept" else self.content

    @property
    def meta_changed(self) -> bool:
        """Whether ``_meta`` is another one now."""
        return "_meta" in self.fields


class WholeChange(Change, frozen=True, gc=True):
    """The change of a whole transcript: the one that can be part of a reference cycle, so the collector sees it."""


NOTHING: Final = Change("nothing")
Change.nothing = NOTHING
