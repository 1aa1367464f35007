"""What a transcript is made of: messages, tool calls, terminals, plans, compactions.

The fold changes them in place; everyone else reads. ``version`` counts the changes of one entity.
"""

from __future__ import annotations

import base64
import binascii
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar, cast, overload

from msgspec import UNSET, UnsetType

from twofold.exceptions import Malformed
from twofold.fold._change import ChangedContent
from twofold.fold._revision import Revision, patched, patched_meta
from twofold.wire import Kept, Model, same, to_json, v2

__all__ = [
    "Compaction",
    "Entity",
    "Message",
    "MessageType",
    "Part",
    "Plan",
    "SessionInfo",
    "Terminal",
    "ToolCall",
    "Upsert",
    "View",
    "block_of",
    "decoded",
    "itself",
    "joined",
    "joined_text",
    "or_unset",
    "part_of",
    "parts_of",
]

T = TypeVar("T")
Item = TypeVar("Item")

MessageType: TypeAlias = Literal["user_message", "agent_message", "agent_thought"]
"""A message is identified by its session, this type and its id (F-8)."""

Part: TypeAlias = str | v2.ContentBlock
"""A block as it is held: plain text (no annotations, no ``_meta``, nothing unknown) as the bare string."""

Upsert: TypeAlias = (
    v2.MessageUpdate | v2.ToolCallUpdate | v2.TerminalUpdate | v2.CompactionUpdate | v2.SessionInfoUpdate
)
"""An update that patches what is held."""


class View(Sequence[T], Generic[Item, T]):
    """A read-only, live view of a list that the fold appends to."""

    __slots__ = ("_held", "_show")

    def __init__(self, held: list[Item], show: Callable[[Item], T]) -> None:
        self._held = held
        self._show = show

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return [self._show(held) for held in self._held[index]]
        return self._show(self._held[index])

    def __iter__(self) -> Iterator[T]:
        return map(self._show, self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (View, list, tuple)) and same(list(self), list(cast(Iterable[Any], other)))

    def __repr__(self) -> str:
        return f"<view of {len(self._held)}>"


def itself(held: T) -> T:
    """Show a held thing as it is."""
    return held


def part_of(block: v2.ContentBlock) -> Part:
    """Give a block in the form it is held in."""
    if type(block) is v2.TextContent and block.annotations is UNSET and block.meta is UNSET and block.extra is UNSET:
        return block.text
    return block


def parts_of(blocks: Iterable[v2.ContentBlock]) -> list[Part]:
    """Give blocks in the form they are held in: :func:`part_of` of each, written out for messages of many."""
    return [
        block.text
        if type(block) is v2.TextContent and block.annotations is UNSET and block.meta is UNSET and block.extra is UNSET
        else block
        for block in blocks
    ]


def block_of(part: Part) -> v2.ContentBlock:
    """Give a held part as the block it stands for."""
    return v2.TextContent(text=part) if isinstance(part, str) else part


def part_json(part: Part) -> dict[str, Any]:
    """Give a held part as the JSON of its block."""
    return {"type": "text", "text": part} if isinstance(part, str) else to_json(part)


def joined_text(parts: Iterable[Part]) -> str:
    """Join the text of text blocks. Halves of a surrogate pair that meet become their character (U-8)."""
    return _paired(
        "".join(
            part if isinstance(part, str) else part.text for part in parts if isinstance(part, (str, v2.TextContent))
        )
    )


def _paired(text: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


class _Held:
    """What everything that is upserted holds beside its content, and how updates patch it (F-2, F-11, U-7)."""

    __slots__ = ("_extra", "_meta", "version")

    EMPTIES: ClassVar[Mapping[str, Any]] = {}
    """The plain patch fields, as named here and on the update, with what they start as and ``null`` goes back to."""

    _KNOWN: ClassVar[frozenset[str]] = frozenset()
    """The wire names of the fields that a whole update of this entity knows."""

    def __init__(self) -> None:
        self._meta: dict[str, Any] | None = None
        self._extra: dict[str, Any] | None = None
        self.version = 0

    @property
    def meta(self) -> dict[str, Any] | None:
        """The ``_meta`` held, ``None`` when there is none. Treat it as read-only."""
        return self._meta

    @property
    def extra(self) -> dict[str, Any]:
        """The unknown fields held, by wire name. Treat it as read-only."""
        return self._extra or {}

    def _after(self, update: Upsert, revision: Revision) -> tuple[dict[str, Any], list[str]]:
        """Work out what ``update`` does to all but the content, and do nothing yet.

        Returns the attributes to set and the wire names of the fields that these make others.
        """
        values: dict[str, Any] = {}
        fields: list[str] = []
        for name, empty in self.EMPTIES.items():
            patch = getattr(update, name)
            if patch is UNSET:
                continue
            held = getattr(self, name)
            after = patched(held, patch, empty=empty)
            if not same(after, held):
                values[name] = after
                fields.append(_wire_name(type(update), name))
        if update.meta is not UNSET:
            meta = patched_meta(self._meta, update.meta, revision)
            if not same(meta, self._meta):
                values["_meta"] = meta
                fields.append("_meta")
        if update.extra is not UNSET:
            values["_extra"], unknown = self._extra_after(update.extra)
            fields += unknown
        return values, fields

    def _extra_after(self, patch: Kept) -> tuple[dict[str, Any] | None, list[str]]:
        """Work out the unknown fields after ``patch``: each is a patch field like the known ones (U-7)."""
        after = dict(self.extra)
        fields: list[str] = []
        for name, value in patch.items():
            if not same(value, after.get(name)):
                after[name] = value
                fields.append(name)
        return {name: value for name, value in after.items() if value is not None} or None, fields

    def _patch_extra(self, patch: Kept) -> tuple[str, ...]:
        """Keep a chunk's unknown fields with what it appends to: a replay has no chunk to put them on (U-7, P-1)."""
        self._extra, fields = self._extra_after(patch)
        return tuple(fields)

    def _set(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    def _chunk_fields(self) -> Kept | UnsetType:
        """Give the unknown fields that only a chunk can say: a whole update has known fields of these names."""
        return _kept({name: value for name, value in self.extra.items() if name in self._KNOWN})

    def _update_fields(self) -> Kept | UnsetType:
        """Give the unknown fields that a whole update can say."""
        return _kept({name: value for name, value in self.extra.items() if name not in self._KNOWN})

    def _forget_chunk_fields(self) -> list[str]:
        """Let the fields that only a chunk can say go, with the content that chunks brought. Returns their names."""
        gone = [name for name in self.extra if name in self._KNOWN]
        if gone:
            self._extra = {name: value for name, value in self.extra.items() if name not in self._KNOWN} or None
        return gone

    def _extended(self, members: dict[str, Any]) -> dict[str, Any]:
        """Add ``_meta`` and unknown fields to the JSON form; what could be taken for known stands under ``extra``."""
        if self._meta is not None:
            members["_meta"] = to_json(self._meta)
        known = {*members, *self._KNOWN, "extra"}
        hidden: dict[str, Any] = {}
        for name, value in self.extra.items():
            (hidden if name in known else members)[name] = to_json(value)
        if hidden:
            members["extra"] = hidden
        return members


def _names(update: type[Model]) -> frozenset[str]:
    names = zip(update.__struct_fields__, update.__struct_encode_fields__, strict=True)
    return frozenset(wire_name for name, wire_name in names if name != "extra")


def _kept(members: dict[str, Any]) -> Kept | UnsetType:
    return Kept(members) if members else UNSET


@functools.cache
def _wire_name(update: type[Model], name: str) -> str:
    return update.__struct_encode_fields__[update.__struct_fields__.index(name)]


class _Listing(_Held, Generic[Item]):
    """An entity whose content is a list that chunks append to."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[Item] = []

    def _replace(self, parts: list[Item]) -> ChangedContent:
        """Replace the content whole (F-3, F-4)."""
        if same(parts, self._parts):
            return "kept"
        self._note(parts)
        self._parts[:] = parts  # in place: views stay live
        return "replaced" if parts else "cleared"

    def _note(self, parts: list[Item]) -> None:
        """Note what has to be noted before other content takes the place of what is held."""


class Message(_Listing[Part]):
    """One message as the agent last said it (F-1 … F-11)."""

    __slots__ = ("_joined", "_joined_parts", "corrected", "message_id", "type", "withdrawn")

    _KNOWN = _names(v2.MessageUpdate)

    def __init__(self, type: MessageType, message_id: str) -> None:
        super().__init__()
        self.type: Final = type
        self.message_id: Final = message_id
        self.withdrawn = False
        """Content was held and then cleared, and none has come since."""
        self.corrected = False
        """Content was held and an update put other content in its place; another cut of the same text is not other.

        Neither flag is part of the state: they tell its history since the fold began, and a replay does not carry them.
        """
        self._joined = ""  # text of the first _joined_parts parts, so that only what is new has to be looked at
        self._joined_parts = 0

    def __repr__(self) -> str:
        return f"<Message {self.type} {self.message_id!r}, {len(self._parts)} blocks>"

    @property
    def content(self) -> Sequence[v2.ContentBlock]:
        """The blocks, exactly as sent (F-10). A live view; take ``list(...)`` of it to keep a moment."""
        return View(self._parts, block_of)

    @property
    def text(self) -> str:
        """The text of all text blocks, joined. A lone half of a surrogate pair stays in it as such (U-8)."""
        if self._joined_parts != len(self._parts):
            fresh = joined_text(self._parts[self._joined_parts :])
            if "\ud800" <= self._joined[-1:] <= "\udbff":  # the first half of a character
                self._joined, fresh = self._joined[:-1], _paired(self._joined[-1] + fresh)
            self._joined += fresh
            self._joined_parts = len(self._parts)
        return self._joined

    def to_json(self) -> dict[str, Any]:
        """Give the message as plain JSON values, unknown fields beside the known."""
        return self._extended(
            {"type": self.type, "messageId": self.message_id, "content": [part_json(part) for part in self._parts]}
        )

    def _note(self, parts: list[Part]) -> None:
        if self._parts and parts and not self.corrected:
            self.corrected = not same(joined(parts), joined(self._parts))
        self.withdrawn = not parts
        self._joined, self._joined_parts = "", 0


def joined(parts: Iterable[Part]) -> list[Part]:
    """Join neighbouring plain text (P-3): the parts are fewer, what they say is the same."""
    held = list(parts)
    try:
        return [_paired("".join(held))] if held else []  # type: ignore[arg-type]  # text alone
    except TypeError:
        pass
    fewer: list[Part] = []
    run: list[str] = []
    for part in held:
        if isinstance(part, str):
            run.append(part)
            continue
        if run:
            fewer.append(joined_text(run))
            run = []
        fewer.append(part)
    if run:
        fewer.append(joined_text(run))
    return fewer


class ToolCall(_Listing[v2.ToolCallContent]):
    """One tool call."""

    __slots__ = (
        "capabilities",
        "kind",
        "locations",
        "name",
        "raw_input",
        "raw_output",
        "status",
        "title",
        "tool_call_id",
    )

    EMPTIES: ClassVar[Mapping[str, Any]] = {
        "name": None,
        "title": None,
        "kind": "other",
        "status": "pending",
        "locations": (),
        "raw_input": UNSET,
        "raw_output": UNSET,
        "capabilities": None,
    }
    _KNOWN = _names(v2.ToolCallUpdate)

    def __init__(self, tool_call_id: str) -> None:
        super().__init__()
        self.tool_call_id: Final = tool_call_id
        self.name: str | None = None
        self.title: str | None = None
        self.kind: str = "other"
        self.status: str = "pending"
        self.locations: Sequence[v2.ToolCallLocation] = ()
        self.raw_input: Any = UNSET
        self.raw_output: Any = UNSET
        self.capabilities: v2.ToolCallCapabilities | None = None

    def __repr__(self) -> str:
        return f"<ToolCall {self.tool_call_id!r} {self.status}>"

    @property
    def content(self) -> Sequence[v2.ToolCallContent]:
        """What the tool call has produced. A live view."""
        return View(self._parts, itself)

    def to_json(self) -> dict[str, Any]:
        """Give the tool call as plain JSON values."""
        members: dict[str, Any] = {"toolCallId": self.tool_call_id}
        if self.name is not None:
            members["name"] = self.name
        if self.title is not None:
            members["title"] = self.title
        members |= {
            "kind": self.kind,
            "status": self.status,
            "content": to_json(self._parts),
            "locations": to_json(self.locations),
        }
        if self.raw_input is not UNSET:
            members["rawInput"] = to_json(self.raw_input)
        if self.raw_output is not UNSET:
            members["rawOutput"] = to_json(self.raw_output)
        if self.capabilities is not None:
            members["capabilities"] = to_json(self.capabilities)
        return self._extended(members)


class Terminal(_Held):
    """One terminal of the agent's: what to show, never something to run."""

    __slots__ = (
        "_chunks",
        "_length",
        "_snapshot",
        "capabilities",
        "command",
        "cwd",
        "exit_status",
        "size",
        "terminal_id",
    )

    EMPTIES: ClassVar[Mapping[str, Any]] = {
        "command": None,
        "cwd": None,
        "exit_status": None,
        "size": None,
        "capabilities": None,
    }
    _KNOWN = _names(v2.TerminalUpdate)

    def __init__(self, terminal_id: str) -> None:
        super().__init__()
        self.terminal_id: Final = terminal_id
        self.command: str | None = None
        self.cwd: str | None = None
        self.exit_status: v2.TerminalExitStatus | None = None
        self.size: v2.TerminalSize | None = None
        self.capabilities: v2.TerminalCapabilities | None = None
        self._chunks: list[bytes] = []
        self._length = 0
        self._snapshot: v2.TerminalOutput | None = None  # without its data: what else the last snapshot said

    def __repr__(self) -> str:
        return f"<Terminal {self.terminal_id!r}, {self._length} bytes>"

    def __len__(self) -> int:
        return self._length

    def __bool__(self) -> bool:
        return True  # a terminal without output is a terminal

    @property
    def output(self) -> bytes:
        """All bytes so far. They may hold control sequences, and end inside a character."""
        if len(self._chunks) > 1:
            self._chunks[:] = [b"".join(self._chunks)]
        return self._chunks[0] if self._chunks else b""

    def output_update(self) -> v2.TerminalOutput | None:
        """Give the bytes as the snapshot that would report them, or ``None`` when there is nothing to report."""
        data = base64.b64encode(self.output).decode("ascii")
        if self._snapshot is not None:
            return v2.TerminalOutput(data=data, meta=self._snapshot.meta, extra=self._snapshot.extra)
        return v2.TerminalOutput(data=data) if data else None

    def to_json(self) -> dict[str, Any]:
        """Give the terminal as plain JSON values, its output in base64."""
        members: dict[str, Any] = {"terminalId": self.terminal_id}
        held = {
            "command": self.command,
            "cwd": self.cwd,
            "output": self.output_update(),
            "exitStatus": self.exit_status,
            "size": self.size,
            "capabilities": self.capabilities,
        }
        members |= {name: to_json(value) for name, value in held.items() if value is not None}
        return self._extended(members)

    def _append(self, data: bytes) -> None:
        self._chunks.append(data)
        self._length += len(data)

    def _replace(self, data: bytes) -> ChangedContent:
        if data == self.output:
            return "kept"
        self._chunks[:] = [data] if data else []
        self._length = len(data)
        return "replaced" if data else "cleared"

    def _after(self, update: Upsert, revision: Revision) -> tuple[dict[str, Any], list[str]]:
        values, fields = super()._after(update, revision)
        output = update.output if isinstance(update, v2.TerminalUpdate) else UNSET
        if output is not UNSET:
            snapshot = None
            if output is not None and (output.meta is not UNSET or output.extra is not UNSET):
                snapshot = v2.TerminalOutput(data="", meta=output.meta, extra=output.extra)
            if not same(snapshot, self._snapshot):
                values["_snapshot"] = snapshot
                fields.append("output")  # what it says beside its bytes
        return values, fields


def decoded(data: str, path: str) -> bytes:
    """Decode base64 strictly; a terminal must not show bytes that nobody sent.

    Raises :class:`~twofold.exceptions.Malformed` at ``path``.
    """
    try:
        return binascii.a2b_base64(data, strict_mode=True)
    except ValueError:  # binascii.Error is one
        raise Malformed(path, expected="base64", found="a string that is none") from None


class Plan:
    """One plan, as its last update said it."""

    __slots__ = ("plan_id", "update", "version")

    def __init__(self, plan_id: str | None, update: v2.PlanUpdate) -> None:
        self.plan_id: Final = plan_id
        self.update = update
        self.version = 1

    def __repr__(self) -> str:
        return f"<Plan {self.plan_id!r}>"

    @property
    def entries(self) -> Sequence[v2.PlanEntry]:
        """The steps; empty for a plan of a kind that is not known here."""
        return self.update.plan.entries if isinstance(self.update.plan, v2.PlanItems) else ()

    def to_json(self) -> dict[str, Any]:
        """Give the plan as plain JSON values; what its update carries beside it stands under ``update``."""
        members: dict[str, Any] = to_json(self.update.plan)
        beside: dict[str, Any] = to_json(self.update)
        del beside["sessionUpdate"], beside["plan"]
        if "update" in members:  # an unknown field of the plan's own: the two must not be taken for each other
            members = {"plan": members}
        return {**members, "update": beside} if beside else members


class Compaction(_Listing[Part]):
    """One compaction of the agent's context."""

    __slots__ = ("compaction_id", "error", "status")

    EMPTIES: ClassVar[Mapping[str, Any]] = {"status": "in_progress", "error": None}
    _KNOWN = _names(v2.CompactionUpdate)

    def __init__(self, compaction_id: str) -> None:
        super().__init__()
        self.compaction_id: Final = compaction_id
        self.status = "in_progress"  # ours: what a summary chunk at first sight means
        self.error: str | None = None

    def __repr__(self) -> str:
        return f"<Compaction {self.compaction_id!r} {self.status}>"

    @property
    def summary(self) -> Sequence[v2.ContentBlock]:
        """The summary's blocks. A live view."""
        return View(self._parts, block_of)

    @property
    def text(self) -> str:
        """The summary's text, joined."""
        return joined_text(self._parts)

    def to_json(self) -> dict[str, Any]:
        """Give the compaction as plain JSON values."""
        members: dict[str, Any] = {
            "compactionId": self.compaction_id,
            "status": self.status,
            "summary": [part_json(part) for part in self._parts],
        }
        if self.error is not None:
            members["error"] = self.error
        return self._extended(members)


class SessionInfo(_Held):
    """What is held of the session itself."""

    __slots__ = ("title", "updated_at")

    EMPTIES: ClassVar[Mapping[str, Any]] = {"title": None, "updated_at": None}
    _KNOWN = _names(v2.SessionInfoUpdate)

    def __init__(self) -> None:
        super().__init__()
        self.title: str | None = None
        self.updated_at: str | None = None

    def update(self) -> v2.SessionInfoUpdate:
        """Give it as the update that would report it; what is not held is omitted."""
        return v2.SessionInfoUpdate(
            title=or_unset(self.title),
            updated_at=or_unset(self.updated_at),
            meta=or_unset(self._meta),
            extra=self._update_fields(),
        )


def or_unset(value: T | None) -> T | UnsetType:
    """Give what is held for a field that is omitted when nothing is."""
    return UNSET if value is None else value


Entity: TypeAlias = Message | ToolCall | Terminal | Plan | Compaction | v2.OtherUpdate
"""What stands in a timeline."""
