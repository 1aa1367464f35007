"""What breaks the protocol in captured traffic, line by line: what a fold must refuse, and what it tolerates.

The rules are in :class:`Checker`; each finding says where, what was found and what ACP asks for, never the value.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec import UNSET

from twofold.capture._reader import Answered, Asked, Event, Problem, Reader, Updated, Version
from twofold.exceptions import LineTooLong
from twofold.wire import Model, Other, is_array, v1, v2

__all__ = ["Checker"]

_ABSOLUTE: Final = re.compile(r"/|[A-Za-z]:[\\/]|\\\\")
_LONGEST_ID: Final = 1024

_KINDS: Final = frozenset(
    {"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"}
)
_V1_STATUSES: Final = frozenset({"pending", "in_progress", "completed", "failed"})
_STOP_REASONS: Final = frozenset({"end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled", "error"})

_OPEN_WORDS: Final[dict[type[Any], dict[str, frozenset[str]]]] = {
    v2.ToolCallUpdate: {"kind": _KINDS, "status": _V1_STATUSES | {"paused", "cancelled"}},
    v2.StateUpdate: {"state": frozenset({"running", "requires_action", "idle"}), "stop_reason": _STOP_REASONS},
    v2.Notice: {"severity": frozenset({"info", "warning", "error"})},
    v2.CompactionUpdate: {"status": frozenset({"in_progress", "completed", "failed", "cancelled"})},
    v2.PlanEntry: {
        "priority": frozenset({"high", "medium", "low"}),
        "status": frozenset({"pending", "in_progress", "completed", "cancelled"}),
    },
    v1.ToolCall: {"kind": _KINDS, "status": _V1_STATUSES},
    v1.ToolCallUpdate: {"kind": _KINDS, "status": _V1_STATUSES},
}
"""The words of the open enums. Others are allowed from extensions, whose words start with an underscore."""

_BASE64: Final[dict[type[Model], str]] = {
    v2.ImageContent: "data",
    v2.AudioContent: "data",
    v2.BlobResourceContents: "blob",
    v2.TerminalOutput: "data",
    v2.TerminalOutputChunk: "data",
}
_PATHS: Final[dict[type[Model], tuple[str, ...]]] = {
    v2.TerminalUpdate: ("cwd",),
    v2.ToolCallLocation: ("path",),
    v2.AddChange: ("path",),
    v2.DeleteChange: ("path",),
    v2.ModifyChange: ("path",),
    v2.MoveChange: ("path", "old_path"),
    v2.CopyChange: ("path", "old_path"),
    v1.ToolCallLocation: ("path",),
    v1.Diff: ("path",),
}
_IDS: Final = ("message_id", "tool_call_id", "terminal_id", "plan_id", "compaction_id")


class Checker:
    """Checks a stream of captured lines, in order; :meth:`feed` gives the findings line by line."""

    def __init__(self, *, version: Version | None = None) -> None:
        self.reader = Reader(version=version)
        self._number = 0
        self._tool_calls: set[tuple[str | None, str]] = set()
        self._terminals: dict[tuple[str | None, str], _SeenTerminal] = {}
        self._open: dict[tuple[str, object], Asked] = {}

    def feed(self, lines: Iterable[bytes | LineTooLong]) -> Iterator[Problem]:
        """Check lines, in order."""
        for line in lines:
            self._number += 1
            if isinstance(line, LineTooLong):
                yield Problem.of(self._number, line)
                continue
            version = self.reader.version
            params: Any = v2.decode_line(line) if version == 2 else v1.decode_line(line)
            if params is not None:
                self.reader.counts.updates += 1
                yield from self._update(Updated(params.session_id, params.update, version, "$.params.update"))
                continue
            if line.lstrip()[:1] == b"[":
                yield self._found("$", "ACP allows single messages only in its newest revision: an array was found")
            for event in self.reader.read(line, self._number):
                yield from self._event(event)

    def _found(self, path: str, message: str) -> Problem:
        return Problem(self._number, path, message)

    def _event(self, event: Event) -> Iterator[Problem]:
        match event:
            case Problem():
                yield event
            case Asked(key=key):
                if key in self._open:
                    yield self._found("$.id", "a request with this id is still waiting for its answer")
                self._open[key] = event
            case Answered(asked=asked):
                self._open.pop(asked.key, None)
            case Updated():
                yield from self._update(event)

    def _update(self, event: Updated) -> Iterator[Problem]:
        update = event.update
        for path, model in _models(update, event.path):
            yield from self._model(path, model, event.version)
        match update:
            case v2.ToolCallUpdate() | v2.ToolCallContentChunk():
                title = update.title if isinstance(update, v2.ToolCallUpdate) else UNSET
                if self._first(event, update.tool_call_id) and not title:
                    yield self._found(event.path, "the first update of a tool call has no title")
            case v1.ToolCall():
                self._first(event, update.tool_call_id)
            case v1.ToolCallUpdate():
                if self._first(event, update.tool_call_id):
                    yield self._found(event.path, "a tool_call_update for a tool call that no tool_call created")
            case v2.TerminalUpdate():
                yield from self._terminal(event, update)
            case _:
                pass

    def _first(self, event: Updated, tool_call_id: str) -> bool:
        key = (event.session_id, tool_call_id)
        first = key not in self._tool_calls
        self._tool_calls.add(key)
        return first

    def _terminal(self, event: Updated, update: v2.TerminalUpdate) -> Iterator[Problem]:
        """A terminal has one command; another one after the first has ended is another terminal under the same id."""
        seen = self._terminals.setdefault((event.session_id, update.terminal_id), _SeenTerminal())
        if isinstance(update.command, str):
            if seen.ended and seen.command is not None and update.command != seen.command:
                yield self._found(
                    f"{event.path}.terminalId", "the id of a terminal that has ended is used for another command"
                )
                seen.ended = False
            seen.command = update.command
        if isinstance(update.exit_status, v2.TerminalExitStatus):
            seen.ended = True

    def _model(self, path: str, model: Model, version: Version) -> Iterator[Problem]:
        if isinstance(model, Other):
            tag = str(model.__struct_config__.tag_field)
            if not model.kind.startswith("_"):
                yield self._found(f"{path}.{tag}", "an unknown word without a leading underscore: those are ACP's own")
            return
        for name in _IDS:
            value = getattr(model, name, UNSET)
            if isinstance(value, str) and not _good_id(value):
                wire_name = _wire_name(model, name)
                yield self._found(
                    f"{path}.{wire_name}",
                    f"a malformed id: expected 1 to {_LONGEST_ID} characters without controls or spaces around",
                )
        encoded = _BASE64.get(type(model))
        if encoded is not None and not _is_base64(getattr(model, encoded)):
            yield self._found(f"{path}.{encoded}", "expected base64, found a string that is none")
        for name in _PATHS.get(type(model), ()):
            value = getattr(model, name)
            if isinstance(value, str) and not _ABSOLUTE.match(value):
                yield self._found(
                    f"{path}.{_wire_name(model, name)}", "expected an absolute path, found a relative one"
                )
        if version == 2 and isinstance(model, v2.ToolCallLocation) and model.line == 0:
            yield self._found(f"{path}.line", "lines count from 1 in the newest revision, found 0")
        for name, words in _OPEN_WORDS.get(type(model), {}).items():
            value = getattr(model, name)
            if isinstance(value, str) and value not in words and not value.startswith("_"):
                yield self._found(
                    f"{path}.{_wire_name(model, name)}",
                    "an unknown word without a leading underscore: those are ACP's own",
                )


class _SeenTerminal:
    __slots__ = ("command", "ended")

    def __init__(self) -> None:
        self.command: str | None = None
        self.ended = False


def _good_id(value: str) -> bool:
    return 0 < len(value) <= _LONGEST_ID and value == value.strip() and value.isprintable()


def _is_base64(data: str) -> bool:
    try:
        base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _wire_name(model: Model, name: str) -> str:
    return model.__struct_encode_fields__[model.__struct_fields__.index(name)]


def _models(value: Any, path: str) -> Iterator[tuple[str, Model]]:
    """Give every model inside ``value`` with its path, the outer ones first. Unknown things are not looked into."""
    if isinstance(value, Model):
        yield path, value
        if not isinstance(value, Other):
            for name, wire_name in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
                held = getattr(value, name)
                if isinstance(held, (Model, list, tuple)):
                    yield from _models(held, f"{path}.{wire_name}")
    elif is_array(value):
        for index, item in enumerate(value):
            yield from _models(item, f"{path}[{index}]")
