"""Tool calls and terminals of v2 as v1 tool calls.

v1 lists replace, so a streamed list is sent again whole, and must not be sent again for every piece: it goes out when
it has grown by half, together with a status, or at a flush. What is sent altogether stays linear in what came.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import UNSET

from twofold.convert._diff import texts_of
from twofold.convert._loss import Loss
from twofold.convert._notes import Notes
from twofold.fold import Terminal, ToolCall, Transcript
from twofold.plaintext import plain_terminal
from twofold.wire import Kept, v1, v2

__all__ = ["ToolCalls"]

_KINDS: Final = ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other")
_STATUSES: Final = ("pending", "in_progress", "completed", "failed")
_NEAREST_STATUS: Final = {"paused": "in_progress", "cancelled": "failed"}
_DEFAULT_TITLE: Final = "Tool call"
_SCALARS: Final = {
    "name": "name",
    "title": "title",
    "raw_input": "rawInput",
    "raw_output": "rawOutput",
    "meta": "_meta",
}


class ToolCalls:
    """The tool calls of one session as the v1 side holds them."""

    def __init__(self) -> None:
        self._held = Transcript()  # what v2 holds: tool calls and terminals only
        self._sent: dict[str, _SentCall] = {}
        self._shows: dict[str, list[str]] = {}  # terminal → tool calls that show it
        self._bytes: dict[str, int] = {}  # terminal → size of its output
        self._sizes: dict[str, _Sizes] = {}  # tool call → size of its content
        self._noted: dict[str, set[tuple[int, type]]] = {}  # tool call → items whose loss was reported
        self._waiting: dict[str, None] = {}  # tool calls whose content the v1 side does not hold yet, in order

    @property
    def pending(self) -> bool:
        """Whether content waits for a flush."""
        return bool(self._waiting)

    @property
    def waiting(self) -> int:
        """How much a flush would send: characters of content, and bytes of terminals."""
        return sum(self._size(self._call(tool_call_id)) for tool_call_id in self._waiting)

    def held(self, tool_call_id: str) -> ToolCall | None:
        """Give a tool call as v2 has it."""
        return self._held.tool_call(tool_call_id)

    def assume_known(self, update: v2.ToolCallUpdate, notes: Notes) -> None:
        """Take a tool call for created, with every field held: what an update by itself must reckon with."""
        for name, wire_name in {**_SCALARS, "kind": "kind", "status": "status"}.items():
            if getattr(update, name) is None:
                raise notes.refuse("tool.reset" if name in ("kind", "status") else "tool.scalar.null", f"$.{wire_name}")
        self._sent[update.tool_call_id] = _SentCall()

    def update(self, update: v2.ToolCallUpdate, notes: Notes) -> Sequence[v1.SessionUpdate]:
        """Convert an upsert: v1 ``tool_call`` at first sight, else ``tool_call_update`` with what changed."""
        held = self._held.tool_call(update.tool_call_id)
        before = {name: getattr(held, name) if held is not None else None for name in (*_SCALARS, "kind", "status")}
        change = self._held.apply(update)
        call = self._call(update.tool_call_id)
        if change.created or update.content is not UNSET:
            self._recount(call)
        fields = self._fields(update, before, notes)
        sent = self._sent.get(call.tool_call_id)
        waits = call.tool_call_id in self._waiting and "status" in fields
        if update.content is not UNSET or waits or (sent is None and call.content):
            fields["content"] = self._items(call, notes)
        if update.locations is not UNSET:
            fields["locations"] = [_location(location) for location in update.locations or ()]
        return self._say(call, fields, notes, first=change.created)

    def chunk(self, update: v2.ToolCallContentChunk, notes: Notes) -> Sequence[v1.SessionUpdate]:
        """Convert one more item: the array so far, now or later."""
        if update.meta or update.extra is not UNSET:
            notes.note("tool.chunk.meta", "$._meta" if update.meta else "$")
        self._held.apply(update)
        call = self._call(update.tool_call_id)
        self._count(call, update.content)
        if notes.strict:
            self._items(call, notes)  # refuse it now, not at some later flush
        return self._grown(call, notes)

    def terminal(self, update: v2.TerminalUpdate | v2.TerminalOutputChunk, notes: Notes) -> Sequence[v1.SessionUpdate]:
        """Convert what a terminal reports: text in the tool calls that show it."""
        for name, path in (
            ("cwd", "$.cwd"),
            ("size", "$.size"),
            ("capabilities", "$.capabilities"),
            ("meta", "$._meta"),
        ):
            if getattr(update, name, UNSET) not in (UNSET, None):
                notes.note("terminal.fields", path)
        if update.extra is not UNSET:
            notes.note("terminal.fields", "$")
        held = self._held.terminal(update.terminal_id)
        before = b"" if held is None or isinstance(update, v2.TerminalOutputChunk) else held.output
        change = self._held.apply(update)
        if not change:
            return ()
        terminal: Terminal = change.target
        if change.content == "appended":
            grew = True
            self._bytes[terminal.terminal_id] = self._bytes.get(terminal.terminal_id, 0) + len(change.block)
        else:  # a new snapshot may go on where the last one ended; anything else is to be seen at once
            grew = change.content == "replaced" and not change.fields and terminal.output.startswith(before)
            self._bytes[terminal.terminal_id] = len(terminal.output)
        updates: list[v1.SessionUpdate] = []
        for tool_call_id in self._shows.get(terminal.terminal_id, ()):
            call = self._call(tool_call_id)
            updates += (
                self._grown(call, notes) if grew else self._say(call, {"content": self._items(call, notes)}, notes)
            )
        return updates

    def flush(self, notes: Notes) -> Sequence[v1.SessionUpdate]:
        """Send all content that waits."""
        updates: list[v1.SessionUpdate] = []
        for tool_call_id in list(self._waiting):
            call = self._call(tool_call_id)
            updates += self._say(call, {"content": self._items(call, notes)}, notes)
        return updates

    def unshown(self) -> Iterator[Loss]:
        """Report the terminals that had something to show and that no tool call showed."""
        for terminal in self._held.terminals:
            shown = terminal.command or terminal.output or terminal.exit_status
            if shown and not self._shows.get(terminal.terminal_id):
                notes = Notes("terminal_update", terminal.terminal_id, strict=False)
                notes.note("terminal", "$")
                yield from notes.losses

    # What v1 is told

    def _fields(self, update: v2.ToolCallUpdate, before: dict[str, Any], notes: Notes) -> dict[str, Any]:
        """Convert the fields of an upsert but its lists."""
        fields: dict[str, Any] = {}
        for name, wire_name in _SCALARS.items():
            value = getattr(update, name)
            if value is None and before[name] not in (None, UNSET):
                notes.lose("tool.scalar.null", f"$.{wire_name}")
            elif value is not None and value is not UNSET:
                fields[name] = value
        if update.kind is None:
            if before["kind"] not in (None, "other"):
                if notes.strict:
                    raise notes.refuse("tool.reset", "$.kind")
                fields["kind"] = "other"
        elif update.kind is not UNSET:
            if update.kind not in _KINDS:
                notes.lose("tool.kind.word", "$.kind", "other")
            fields["kind"] = update.kind if update.kind in _KINDS else "other"
        if update.status is None:
            if before["status"] not in (None, "pending"):
                if notes.strict:
                    raise notes.refuse("tool.reset", "$.status")
                fields["status"] = "pending"
        elif isinstance(update.status, str):
            nearest = update.status if update.status in _STATUSES else _NEAREST_STATUS.get(update.status)
            if nearest != update.status:
                notes.lose("tool.status.word", "$.status", nearest)
            if nearest is not None:
                fields["status"] = nearest
        if isinstance(update.capabilities, v2.ToolCallCapabilities):
            notes.lose("tool.capabilities", "$.capabilities")
        if update.extra is not UNSET:
            fields["extra"] = update.extra
        return fields

    def _say(
        self, call: ToolCall, fields: dict[str, Any], notes: Notes, *, first: bool = False
    ) -> Sequence[v1.SessionUpdate]:
        """Send fields of a tool call; the first time all of it that is held."""
        sent = self._sent.get(call.tool_call_id)
        if sent is not None and not fields:
            return ()
        if "content" in fields:
            self._waiting.pop(call.tool_call_id, None)
        if sent is None:
            sent = self._sent[call.tool_call_id] = _SentCall()
            if not first:  # earlier updates of it could not be carried: what can be is said now
                fields = {**self._standing(call), **fields}
            if "title" not in fields:
                fields["title"] = call.name or _DEFAULT_TITLE
                notes.note(
                    "tool.title.first", "$.title", "the tool's name" if call.name else f"the words “{_DEFAULT_TITLE}”"
                )
            update: Any = v1.ToolCall(tool_call_id=call.tool_call_id, **fields)
        else:
            update = v1.ToolCallUpdate(tool_call_id=call.tool_call_id, **fields)
        if "content" in fields:
            sent.size = self._size(call)
        return (update,)

    def _standing(self, call: ToolCall) -> dict[str, Any]:
        held = {"name": call.name, "title": call.title, "kind": call.kind, "status": call.status, "meta": call.meta}
        fields: dict[str, Any] = {name: value for name, value in held.items() if value is not None}
        if fields["kind"] not in _KINDS:
            del fields["kind"]
        status = _NEAREST_STATUS.get(call.status, call.status)
        fields["status"] = status if status in _STATUSES else "pending"
        for name in ("raw_input", "raw_output"):
            if getattr(call, name) is not UNSET:
                fields[name] = getattr(call, name)
        if call.locations:
            fields["locations"] = [_location(location) for location in call.locations]
        if call.extra:
            fields["extra"] = Kept(call.extra)
        return fields

    def _items(self, call: ToolCall, notes: Notes) -> list[v1.ToolCallContent]:
        """Convert the whole content that is held. What is carried as something else is noted once an item."""
        noted = self._noted.setdefault(call.tool_call_id, set())
        items: list[v1.ToolCallContent] = []
        for index, item in enumerate(call.content):
            path = f"$.content[{index}]"
            told = notes if (index, type(item)) not in noted else Notes(notes.kind, notes.id, strict=notes.strict)
            match item:
                case v2.Content():
                    if _carried(item.content, f"{path}.content", told):
                        items.append(item)
                case v2.Diff():
                    items += self._diff(item, path, told)
                case v2.Terminal():
                    told.note("tool.item.terminal", path, "text")
                    items += self._terminal_text(item)
                case v2.OtherToolCallContent():
                    told.lose("tool.item.unknown", f"{path}.type")
            noted.add((index, type(item)))
        return items

    def _diff(self, diff: v2.Diff, path: str, notes: Notes) -> list[v1.ToolCallContent]:
        texts = texts_of(diff)
        if texts is not None:
            file, old, new = texts
            return [
                v1.Diff(
                    path=file, old_text=UNSET if old is None else old, new_text=new, meta=diff.meta, extra=diff.extra
                )
            ]
        notes.note("tool.item.patch", path, "text")
        if isinstance(diff.patch, v2.DiffPatch):
            words = _fenced(diff.patch.text.rstrip("\n"), "diff")
        else:
            words = "\n".join(_change(change) for change in diff.changes)
        return [v1.Content(content=v2.TextContent(text=words), meta=diff.meta, extra=diff.extra)]

    def _terminal_text(self, item: v2.Terminal) -> list[v1.ToolCallContent]:
        terminal = self._held.terminal(item.terminal_id)
        if terminal is None:
            return []
        lines = [f"$ {terminal.command}"] if terminal.command else []
        if output := plain_terminal(terminal.output).rstrip("\n"):
            lines.append(output)
        status = terminal.exit_status
        if status is not None and isinstance(status.signal, str):
            lines.append(f"[ended by {status.signal}]")
        elif status is not None:
            lines.append(f"[exit {status.exit_code}]" if isinstance(status.exit_code, int) else "[ended]")
        if not lines:
            return []
        return [
            v1.Content(content=v2.TextContent(text=_fenced("\n".join(lines), "")), meta=item.meta, extra=item.extra)
        ]

    # When v1 is told

    def _grown(self, call: ToolCall, notes: Notes) -> Sequence[v1.SessionUpdate]:
        """Send the content when it has grown by half since it was sent, else let it wait."""
        sent = self._sent.get(call.tool_call_id)
        if sent is None or 2 * self._size(call) >= 3 * sent.size:
            return self._say(call, {"content": self._items(call, notes)}, notes)
        self._waiting[call.tool_call_id] = None
        return ()

    def _size(self, call: ToolCall) -> int:
        sizes = self._sizes[call.tool_call_id]
        return sizes.content + sum(self._bytes.get(terminal_id, 0) for terminal_id in sizes.terminals)

    def _recount(self, call: ToolCall) -> None:
        """The content is another one: measure it anew, and note again what becomes something else in it."""
        for terminal_id in self._sizes.get(call.tool_call_id, _Sizes()).terminals:
            self._shows[terminal_id].remove(call.tool_call_id)
        self._sizes[call.tool_call_id] = _Sizes()
        self._noted.pop(call.tool_call_id, None)
        for item in call.content:
            self._count(call, item)

    def _count(self, call: ToolCall, item: v2.ToolCallContent) -> None:
        sizes = self._sizes.setdefault(call.tool_call_id, _Sizes())
        if isinstance(item, v2.Terminal):
            if item.terminal_id not in sizes.terminals:
                sizes.terminals.append(item.terminal_id)
                self._shows.setdefault(item.terminal_id, []).append(call.tool_call_id)
        elif isinstance(item, v2.Content) and isinstance(item.content, v2.TextContent):
            sizes.content += len(item.content.text) + 1
        else:
            sizes.content += len(v2.encode(item))

    def _call(self, tool_call_id: str) -> ToolCall:
        call = self._held.tool_call(tool_call_id)
        if call is None:
            raise KeyError(tool_call_id)
        return call


class _Sizes:
    """What a tool call's content measures, in characters; its terminals are measured by themselves, in bytes."""

    __slots__ = ("content", "terminals")

    def __init__(self) -> None:
        self.content = 0
        self.terminals: list[str] = []


class _SentCall:
    """A tool call on the v1 side; ``size`` is that of the content it holds."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0


def _carried(block: v2.ContentBlock, path: str, notes: Notes) -> bool:
    """Whether v1 has a shape for a block; if not, that is a loss (or, strictly, a refusal)."""
    if isinstance(block, v2.OtherContentBlock):
        notes.lose("block.unknown", f"{path}.type")
        return False
    if isinstance(block, v2.ResourceLink) and block.icons is not UNSET:
        notes.lose("block.icons", f"{path}.icons")
        return False
    return True


def _location(location: v2.ToolCallLocation) -> v1.ToolCallLocation:
    return v1.ToolCallLocation(path=location.path, line=location.line, meta=location.meta, extra=location.extra)


def _change(change: v2.DiffChange) -> str:
    if isinstance(change, v2.OtherDiffChange):
        return "a change"
    operation = str(type(change).__struct_config__.tag)
    if isinstance(change, v2.MoveChange | v2.CopyChange):
        return f"{operation} {change.old_path} to {change.path}"
    return f"{operation} {change.path}"


def _fenced(text: str, language: str) -> str:
    """Put text in a Markdown fence that it cannot end."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
