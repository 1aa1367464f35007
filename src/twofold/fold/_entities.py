"""What a transcript is made of: messages, tool calls, terminals, plans, compactions.

The fold changes them in place; everyone else reads. ``version`` counts the changes of one entity.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, overload

from msgspec import UNSET, UnsetType

from twofold.exceptions import Malformed
from twofold.fold._revision import Revision, patched, patched_meta
from twofold.wire import Kept, Model, same, to_json, v2

__all__ = [
    "Compaction",
    "Entity",
    "Message",
    "MessageType",
    "Plan",
    "Terminal",
    "ToolCall",
    "View",
    "joined_text",
]

T = TypeVar("T")
Held = TypeVar("Held")

MessageType: TypeAlias = Literal["user_message", "agent_message", "agent_thought"]
"""A message is identified by its session, this type and its id (F-8)."""

Part: TypeAlias = str | v2.ContentBlock
"""A block as it is held: plain text (no annotations, no ``_meta``, nothing unknown) as the bare string."""


class View(Sequence[T], Generic[Held, T]):
    """A read-only, live view of a list that the fold appends to."""

    __slots__ = ("_held", "_show")

    def __init__(self, held: list[Held], show: Callable[[Held], T]) -> None:
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
        return isinstance(other, (View, list, tuple)) and same(list(self), list(other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<view of {len(self._held)}>"


def itself(held: T) -> T:
    """Show a held thing as it is."""
    return held


def part_of(block: v2.ContentBlock) -> Part:
    """Give a block in the form it is held in."""
    if (
        type(block) is v2.TextContent
        and block.annotations is UNSET
        and block.meta is UNSET
        and block.extra is UNSET
    ):
        return block.text
    return block


def block_of(part: Part) -> v2.ContentBlock:
    """Give a held part as the block it stands for."""
    return v2.TextContent(text=part) if isinstance(part, str) else part


def joined_text(parts: Iterable[Part]) -> str:
    """Join the text of text blocks. Halves of a surrogate pair that meet become their character (U-8)."""
    texts = [
        part if isinstance(part, str) else part.text
        for part in parts
        if isinstance(part, (str, v2.TextContent))
    ]
    return _paired("".join(texts))


def _paired(text: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


class _Held:
    """Unknown fields and ``_meta`` of an entity, and the patching of both (F-11, U-7)."""

    __slots__ = ("_extra", "_meta", "version")

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

    def _patch_meta(self, patch: dict[str, Any] | None | UnsetType, revision: Revision) -> tuple[str, ...]:
        if patch is UNSET:
            return ()
        after = patched_meta(self._meta, patch, revision)
        if same(after, self._meta):
            return ()
        self._meta = after
        return ("_meta",)

    def _patch_extra(self, patch: Kept | UnsetType) -> tuple[str, ...]:
        if isinstance(patch, UnsetType):
            return ()
        held = self._extra or {}
        changed = []
        for name, value in patch.items():
            if value is None:
                if held.pop(name, UNSET) is not UNSET:
                    changed.append(name)
            elif name not in held or not same(held[name], value):
                held[name] = value
                changed.append(name)
        self._extra = held or None
        return tuple(changed)

    def _patch_fields(self, update: Model, empties: dict[str, Any]) -> list[str]:
        """Patch plain fields: ``empties`` names them (as here and on the update) with what ``null`` leaves behind."""
        changed = []
        for name, empty in empties.items():
            patch = getattr(update, name)
            if patch is UNSET:
                continue
            after = patched(getattr(self, name), patch, empty=empty)
            if not same(after, getattr(self, name)):
                setattr(self, name, after)
                changed.append(_wire_name(update, name))
        return changed

    def _extended(self, members: dict[str, Any]) -> dict[str, Any]:
        """Add ``_meta`` and unknown fields to the JSON form; an unknown field never hides one of ours."""
        if self._meta is not None:
            members["_meta"] = to_json(self._meta)
        hidden = {}
        for name, value in self.extra.items():
            (hidden if name in members else members)[name] = to_json(value)
        if hidden:
            members["extra"] = hidden
        return members

    def _kept(self) -> Kept | UnsetType:
        return Kept(self._extra) if self._extra else UNSET


def _wire_name(update: Model, name: str) -> str:
    return update.__struct_encode_fields__[update.__struct_fields__.index(name)]


class Message(_Held):
    """One message as the agent last said it (F-1 … F-11)."""

    __slots__ = ("_joined", "_joined_parts", "_parts", "corrected", "message_id", "type", "withdrawn")

    def __init__(self, type: MessageType, message_id: str) -> None:
        super().__init__()
        self.type: Final = type
        self.message_id: Final = message_id
        self.withdrawn = False
        """Content was shown and then cleared, and nothing came after it."""
        self.corrected = False
        """Content was shown and then replaced. (Neither flag is part of the state: a replay does not carry them.)"""
        self._parts: list[Part] = []
        self._joined = ""  # text of the first _joined_parts parts, so that reading on and on is not quadratic
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
            fresh = "".join(
                part if isinstance(part, str) else part.text
                for part in self._parts[self._joined_parts :]
                if isinstance(part, (str, v2.TextContent))
            )
            self._joined = _paired(self._joined + fresh)
            self._joined_parts = len(self._parts)
        return self._joined

    def to_json(self) -> dict[str, Any]:
        """Give the message as plain JSON values, unknown fields beside the known."""
        return self._extended(
            {"type": self.type, "messageId": self.message_id, "content": [to_json(block) for block in self.content]}
        )

    def _replace(self, parts: list[Part]) -> Literal["kept", "replaced", "cleared"]:
        if same(parts, self._parts):
            return "kept"
        shown = bool(self._parts)
        self._parts[:] = parts  # in place: views stay live
        self._joined, self._joined_parts = "", 0
        self.withdrawn = shown and not parts
        self.corrected = self.corrected or (shown and bool(parts))
        return "replaced" if parts else "cleared"


class ToolCall(_Held):
    """One tool call."""

    __slots__ = (
        "_items",
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
        self._items: list[v2.ToolCallContent] = []

    EMPTIES: Final = {
        "name": None,
        "title": None,
        "kind": "other",
        "status": "pending",
        "locations": (),
        "raw_input": UNSET,
        "raw_output": UNSET,
        "capabilities": None,
    }
    """What a new tool call starts with, and what ``null`` goes back to."""

    def __repr__(self) -> str:
        return f"<ToolCall {self.tool_call_id!r} {self.status}>"

    @property
    def content(self) -> Sequence[v2.ToolCallContent]:
        """What the tool call has produced. A live view."""
        return View(self._items, itself)

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
            "content": to_json(self._items),
            "locations": to_json(self.locations),
        }
        if self.raw_input is not UNSET:
            members["rawInput"] = self.raw_input
        if self.raw_output is not UNSET:
            members["rawOutput"] = self.raw_output
        if self.capabilities is not None:
            members["capabilities"] = to_json(self.capabilities)
        return self._extended(members)

    def _replace(self, items: list[v2.ToolCallContent]) -> Literal["kept", "replaced", "cleared"]:
        if same(items, self._items):
            return "kept"
        self._items[:] = items
        return "replaced" if items else "cleared"


class Terminal(_Held):
    """One terminal of the agent's: what to show, never something to run."""

    __slots__ = ("_chunks", "_snapshot", "capabilities", "command", "cwd", "exit_status", "size", "terminal_id")

    def __init__(self, terminal_id: str) -> None:
        super().__init__()
        self.terminal_id: Final = terminal_id
        self.command: str | None = None
        self.cwd: str | None = None
        self.exit_status: v2.TerminalExitStatus | None = None
        self.size: v2.TerminalSize | None = None
        self.capabilities: v2.TerminalCapabilities | None = None
        self._chunks: list[bytes] = []
        self._snapshot: v2.TerminalOutput | None = None  # without its data: what else the last snapshot said

    EMPTIES: Final = {"command": None, "cwd": None, "exit_status": None, "size": None, "capabilities": None}

    def __repr__(self) -> str:
        return f"<Terminal {self.terminal_id!r}, {len(self)} bytes>"

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

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

    def _replace(self, output: v2.TerminalOutput | None) -> Literal["kept", "replaced", "cleared"]:
        data = b"" if output is None else decoded(output.data, "$.output.data")
        snapshot = None
        if output is not None and (output.meta is not UNSET or output.extra is not UNSET):
            snapshot = v2.TerminalOutput(data="", meta=output.meta, extra=output.extra)
        if data == self.output and same(snapshot, self._snapshot):
            return "kept"
        self._chunks[:] = [data] if data else []
        self._snapshot = snapshot
        return "replaced" if data else "cleared"


def decoded(data: str, path: str) -> bytes:
    """Decode base64 strictly; a terminal must not show bytes that nobody sent."""
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
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
        return {**members, "update": beside} if beside else members


class Compaction(_Held):
    """One compaction of the agent's context."""

    __slots__ = ("_parts", "compaction_id", "error", "status")

    def __init__(self, compaction_id: str) -> None:
        super().__init__()
        self.compaction_id: Final = compaction_id
        self.status = "in_progress"  # ours: what a summary chunk at first sight means
        self.error: str | None = None
        self._parts: list[Part] = []

    EMPTIES: Final = {"status": "in_progress", "error": None}

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
            "summary": [to_json(block) for block in self.summary],
        }
        if self.error is not None:
            members["error"] = self.error
        return self._extended(members)

    def _replace(self, parts: list[Part]) -> Literal["kept", "replaced", "cleared"]:
        if same(parts, self._parts):
            return "kept"
        self._parts[:] = parts
        return "replaced" if parts else "cleared"


Entity: TypeAlias = Message | ToolCall | Terminal | Plan | Compaction | v2.OtherUpdate
"""What stands in a timeline."""
