"""A user interface in miniature: it knows of a session only what the changes say."""

from __future__ import annotations

from typing import Any

from tests.fold.reference import equal
from twofold.fold import Change, Compaction, Message, Terminal, ToolCall, Transcript
from twofold.wire import to_json

Json = Any
Shown = Message | ToolCall | Terminal | Compaction

LISTS = {"message": "content", "tool_call": "content", "compaction": "summary"}


class Row:
    """One message, tool call, terminal or compaction as shown."""

    def __init__(self, target: Shown) -> None:
        self.target = target
        self.content: list[Json] | bytearray = bytearray() if isinstance(target, Terminal) else []
        self.fields: dict[str, Json] = {}

    def take(self, change: Change) -> None:
        """Append what was appended; look at the target only where the change says to."""
        if change.content == "appended" and isinstance(self.content, bytearray):
            assert change.index == len(self.content)
            self.content += change.block
        elif change.content == "appended":
            assert change.index == len(self.content)
            self.content.append(to_json(change.block))
        elif change.content in ("replaced", "cleared"):
            self.content[:] = content_of(self.target)
            assert bool(self.content) == (change.content == "replaced")
        for name in change.fields:
            self.fields[name] = field_of(self.target, name)


def content_of(target: Shown) -> Any:
    match target:
        case Terminal():
            return target.output
        case Compaction():
            return to_json(list(target.summary))
        case _:
            return to_json(list(target.content))


def field_of(target: Shown, name: str) -> Json:
    """All that a field of this name stands for: the known one, the unknown one, what is said beside the bytes."""
    known = target.to_json().get(name)
    if isinstance(target, Terminal) and name == "output":
        known = {key: value for key, value in (known or {}).items() if key != "data"}
    return [known, target.extra.get(name)]


class Mirror:
    """Rows in the order in which they came, and the last report of each kind."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.reports: dict[str, Json] = {}
        self.rest: list[Json] = []
        self.plans: list[Any] = []

    def __call__(self, change: Change) -> None:
        assert change, "nobody is told of nothing"
        match change.entity:
            case "message" | "tool_call" | "terminal" | "compaction":
                self.row(change).take(change)
            case "plan":
                assert change.created == (change.target not in self.plans)
                if change.created:
                    self.plans.append(change.target)
            case "notice" | "other":
                self.rest.append(to_json(change.target))
            case "transcript":
                raise AssertionError("no replay here")
            case _:
                self.reports[change.entity] = to_json(change.target)

    def row(self, change: Change) -> Row:
        found = [row for row in self.rows if row.target is change.target]
        if change.created:
            assert not found, "created once"
            self.rows.append(Row(change.target))
            return self.rows[-1]
        (row,) = found
        return row

    def check(self, transcript: Transcript) -> None:
        """Compare all that is shown with all that is held."""
        held = [one for one in transcript.timeline if isinstance(one, Shown)]
        assert [id(row.target) for row in self.rows] == [id(one) for one in held]
        for row in self.rows:
            assert equal(content_json(row.content), content_json(content_of(row.target)))
            untouched = type(row.target)(*key_of(row.target))
            names = {*untouched.to_json(), *row.target.to_json(), *row.target.extra, *row.fields}
            for name in names - {*LISTS.values(), "extra"}:
                shown = row.fields.get(name, field_of(untouched, name))
                assert equal(shown, field_of(row.target, name)), name
        assert self.plans == list(transcript.plans)
        assert self.rest_of("notice") == [to_json(one) for one in transcript.notices]
        assert self.rest_of() == [to_json(one) for one in transcript.other]
        state = transcript.to_json()
        for entity, name in (
            ("state", "state"),
            ("usage", "usage"),
            ("available_commands", "availableCommands"),
            ("config_options", "configOptions"),
            ("session_info", "sessionInfo"),
        ):
            report = dict(self.reports.get(entity, {}))
            report.pop("sessionUpdate", None)
            assert equal(report, state.get(name, {}))

    def rest_of(self, kind: str | None = None) -> list[Json]:
        return [one for one in self.rest if (one["sessionUpdate"] == "notice") == (kind == "notice")]


def content_json(content: Any) -> Json:
    return list(content)


def key_of(target: Shown) -> tuple[Any, ...]:
    match target:
        case Message():
            return target.type, target.message_id
        case ToolCall():
            return (target.tool_call_id,)
        case Terminal():
            return (target.terminal_id,)
        case Compaction():
            return (target.compaction_id,)
