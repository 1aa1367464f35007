"""A transcript as rows: what the terminal, Markdown and the web page show, before they make it look like something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias, assert_never

from msgspec import UNSET, Struct

from twofold.fold import Compaction, Entity, Message, Plan, Terminal, ToolCall, Transcript, joined_text
from twofold.view._visible import plain_terminal, visible
from twofold.wire import v2

__all__ = ["Piece", "Row", "RowKind", "row", "rows"]

RowKind: TypeAlias = Literal["user", "agent", "thought", "tool", "terminal", "plan", "compaction", "unknown"]


class Piece(Struct, frozen=True, gc=False):
    """A part of a row's body: Markdown ``text`` that was said, ``code`` (terminal output, a diff) or a ``note`` of ours."""

    kind: Literal["text", "code", "note"]
    text: str
    language: str = ""


class Row(Struct, frozen=True):
    """One thing to show. ``key`` is stable for the thing; all text is safe to show (control characters made visible).

    ``withdrawn``: it said something and took it back; there is nothing to show but that. ``corrected``: what it said first
    was replaced.
    """

    key: str
    kind: RowKind
    title: str = ""
    status: str = ""
    body: Sequence[Piece] = ()
    withdrawn: bool = False
    corrected: bool = False


def rows(transcript: Transcript) -> Iterator[Row]:
    """Give a transcript's rows in order of first sight. A terminal that a tool call shows is part of that row."""
    shown = {
        item.terminal_id for call in transcript.tool_calls for item in call.content if isinstance(item, v2.Terminal)
    }
    for number, entity in enumerate(transcript.timeline):
        if not (isinstance(entity, Terminal) and entity.terminal_id in shown):
            yield row(entity, transcript, number)


def row(entity: Entity, transcript: Transcript, number: int = 0) -> Row:
    """Give one thing's row; ``number`` tells apart things that have no id."""
    match entity:
        case Message():
            return _message(entity)
        case ToolCall():
            return _tool_call(entity, transcript)
        case Terminal():
            pieces = _terminal(entity)
            return Row(f"terminal/{entity.terminal_id}", "terminal", visible(entity.command or ""), _exit(entity), pieces)
        case Plan():
            return Row(f"plan/{entity.plan_id or number}", "plan", body=_plan(entity))
        case Compaction():
            body = [Piece("text", visible(entity.text))] if entity.text else []
            if entity.error:
                body.append(Piece("note", visible(entity.error)))
            return Row(f"compaction/{entity.compaction_id}", "compaction", "context compacted", visible(entity.status), body)
        case v2.OtherUpdate():
            return Row(f"unknown/{number}", "unknown", visible(entity.kind))
        case _:
            assert_never(entity)


_ROLES: dict[str, RowKind] = {"user_message": "user", "agent_message": "agent", "agent_thought": "thought"}


def _message(message: Message) -> Row:
    return Row(
        f"{message.type}/{message.message_id}",
        _ROLES[message.type],
        body=[] if message.withdrawn else list(_blocks(message.content)),
        withdrawn=message.withdrawn,
        corrected=message.corrected,
    )


def _blocks(content: Sequence[v2.ContentBlock]) -> Iterator[Piece]:
    """Neighbouring text blocks are one text: they are pieces of one stream."""
    run: list[str] = []
    for block in content:
        if isinstance(block, v2.TextContent):
            run.append(block.text)
            continue
        if run:
            yield Piece("text", visible(joined_text(run)))
            run = []
        yield from _block(block)
    if run:
        yield Piece("text", visible(joined_text(run)))


def _block(block: v2.ContentBlock) -> Iterator[Piece]:
    match block:
        case v2.TextContent():
            yield Piece("text", visible(block.text))
        case v2.ImageContent():
            yield Piece("note", f"image, {visible(block.mime_type)}, {_size(block.data)}")
        case v2.AudioContent():
            yield Piece("note", f"audio, {visible(block.mime_type)}, {_size(block.data)}")
        case v2.ResourceLink():
            yield Piece("note", f"link to {visible(block.name)} <{visible(block.uri)}>")
        case v2.EmbeddedResource(resource=v2.TextResourceContents() as resource):
            yield Piece("note", f"resource {visible(resource.uri)}")
            yield Piece("code", visible(resource.text))
        case v2.EmbeddedResource(resource=v2.BlobResourceContents() as resource):
            yield Piece("note", f"resource {visible(resource.uri)}, {_size(resource.blob)}")
        case v2.OtherContentBlock():
            yield Piece("note", f"content of unknown type {visible(block.kind)}")
        case _:
            assert_never(block)


def _size(data: str) -> str:
    size: float = len(data) * 3 // 4
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.0f} GB"


def _tool_call(call: ToolCall, transcript: Transcript) -> Row:
    body: list[Piece] = []
    for location in call.locations:
        line = f":{location.line}" if isinstance(location.line, int) else ""
        body.append(Piece("note", f"{visible(location.path)}{line}"))
    for item in call.content:
        match item:
            case v2.Content():
                body.extend(_block(item.content))
            case v2.Diff():
                body.extend(_diff(item))
            case v2.Terminal():
                terminal = transcript.terminal(item.terminal_id)
                body.extend([Piece("note", "a terminal that was not reported")] if terminal is None else _terminal(terminal))
            case v2.OtherToolCallContent():
                body.append(Piece("note", f"content of unknown type {visible(item.kind)}"))
            case _:
                assert_never(item)
    title = call.title or call.name or "tool call"
    return Row(f"tool/{call.tool_call_id}", "tool", visible(title), visible(call.status), body)


def _diff(diff: v2.Diff) -> Iterator[Piece]:
    patch = diff.patch
    if isinstance(patch, v2.DiffPatch) and patch.format == "git_patch":
        yield Piece("code", visible(patch.text.rstrip("\n")), "diff")
        return
    for change in diff.changes:
        if isinstance(change, v2.OtherDiffChange):
            yield Piece("note", f"change of unknown kind {visible(change.kind)}")
        else:
            operation: Any = change.__struct_config__.tag
            yield Piece("note", f"{operation} {visible(change.path)}")


def _terminal(terminal: Terminal) -> list[Piece]:
    pieces = [Piece("note", f"$ {visible(terminal.command)}")] if terminal.command else []
    output = plain_terminal(terminal.output).rstrip("\n")
    if output:
        pieces.append(Piece("code", output))
    if _exit(terminal):
        pieces.append(Piece("note", _exit(terminal)))
    return pieces


def _exit(terminal: Terminal) -> str:
    status = terminal.exit_status
    if status is None:
        return ""
    if isinstance(status.signal, str):
        return f"ended by {visible(status.signal)}"
    return "ended" if status.exit_code in (None, UNSET) else f"exit {status.exit_code}"


_MARKS = {"completed": "x", "in_progress": "~", "cancelled": "-"}


def _plan(plan: Plan) -> list[Piece]:
    if isinstance(plan.update.plan, v2.OtherPlanUpdateContent):
        return [Piece("note", f"plan of unknown kind {visible(plan.update.plan.kind)}")]
    steps = [f"- [{_MARKS.get(entry.status, ' ')}] {visible(entry.content)}" for entry in plan.entries]
    return [Piece("text", "\n".join(steps))] if steps else []
