"""A transcript as rows: what the terminal, Markdown and the web page show, before they make it look like something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias, assert_never

from msgspec import UNSET, Struct

from twofold.fold import (
    LOSS,
    SETUP,
    Compaction,
    Entity,
    Message,
    MessageType,
    Plan,
    Terminal,
    ToolCall,
    Transcript,
    joined_text,
)
from twofold.plaintext import Run, Style, styled_terminal, visible, visible_line
from twofold.wire import v2

__all__ = ["LiveRows", "Piece", "Row", "RowKind", "row", "rows"]

RowKind: TypeAlias = Literal["user", "agent", "thought", "tool", "terminal", "plan", "compaction", "note", "unknown"]


class Piece(Struct, frozen=True, gc=False):
    """A part of a row's body.

    Markdown ``text`` that was said, ``code`` (terminal output, a diff), or a ``note`` of ours: one line, which may
    name things in the agent's words but is not something the agent said. ``runs`` is the text of terminal output that
    has colours or other styles, again, in pieces of one style each.
    """

    kind: Literal["text", "code", "note"]
    text: str
    language: str = ""
    runs: Sequence[Run] = ()


class Row(Struct, frozen=True):
    """One thing to show. All text but ``key`` is safe to show (control characters made visible); title and status are
    one line each.

    ``key`` is the same for the same thing at any time, and no other thing's in its transcript. ``withdrawn``: it said
    something and took it back; there is nothing to show but that. ``corrected``: what it said first was replaced.
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
    shown = _shown_in_tool_calls(transcript)
    for number, entity in enumerate(transcript.timeline):
        if not (isinstance(entity, Terminal) and entity.terminal_id in shown):
            yield row(entity, transcript, number)


class LiveRows:
    """The rows of a transcript that goes on, for whoever draws them again and again.

    A row in which nothing changed is the very object that it was the last time: what is another one is to be drawn.
    """

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._held: dict[int, tuple[Entity, tuple[int, ...], Row]] = {}

    def now(self) -> list[Row]:
        """Give what :func:`rows` gives."""
        shown = _shown_in_tool_calls(self._transcript)
        held: dict[int, tuple[Entity, tuple[int, ...], Row]] = {}
        for number, entity in enumerate(self._transcript.timeline):
            if isinstance(entity, Terminal) and entity.terminal_id in shown:
                continue
            versions = tuple(_versions(entity, self._transcript))
            before = self._held.get(id(entity))
            if before is None or before[0] is not entity or before[1] != versions:
                before = entity, versions, row(entity, self._transcript, number)
            held[id(entity)] = before
        self._held = held
        return [one for _, _, one in held.values()]


def _shown_in_tool_calls(transcript: Transcript) -> set[str]:
    return {
        item.terminal_id for call in transcript.tool_calls for item in call.content if isinstance(item, v2.Terminal)
    }


def _versions(entity: Entity, transcript: Transcript) -> Iterator[int]:
    """Give the versions of all that an entity's row is made of."""
    if not isinstance(entity, v2.OtherUpdate):
        yield entity.version
    if isinstance(entity, ToolCall):
        for item in entity.content:
            if isinstance(item, v2.Terminal):
                terminal = transcript.terminal(item.terminal_id)
                yield 0 if terminal is None else terminal.version


def row(entity: Entity, transcript: Transcript, number: int = 0) -> Row:
    """Give one thing's row; ``number``, its place in the timeline, tells apart things that have no id."""
    match entity:
        case Message():
            return _message(entity)
        case ToolCall():
            return _tool_call(entity, transcript)
        case Terminal():
            key, title = f"terminal/{entity.terminal_id}", visible_line(entity.command or "")
            return Row(key, "terminal", title, _exit(entity), _output(entity))
        case Plan():
            key = f"plan#{number}" if entity.plan_id is None else f"plan/{entity.plan_id}"
            return Row(key, "plan", body=_plan(entity))
        case Compaction():
            body = list(_blocks(entity.summary))
            if entity.error:
                body.append(_note(entity.error))
            key, status = f"compaction/{entity.compaction_id}", visible_line(entity.status)
            return Row(key, "compaction", "of the agent's context", status, body)
        case v2.OtherUpdate(kind=kind) if kind in (LOSS, SETUP):
            return Row(f"note#{number}", "note", visible_line(_own(entity)))
        case v2.OtherUpdate():
            return Row(f"unknown#{number}", "unknown", visible_line(entity.kind))
        case _:
            assert_never(entity)


def _own(update: v2.OtherUpdate) -> str:
    """Say what a record of twofold's own says."""
    fields = update.fields
    if update.kind == SETUP and "agentSessionId" in fields:
        return f"begun anew at the agent, which did not remember it, as its session {fields['agentSessionId']}"
    if update.kind == SETUP:
        return f"session in {fields.get('cwd')}"
    what = f'{fields.get("kind")} "{fields["id"]}"' if "id" in fields else str(fields.get("kind"))
    return f"the client was not told all of {what}: {fields.get('reason')}"


_ROLES: Final[dict[MessageType, RowKind]] = {
    "user_message": "user",
    "agent_message": "agent",
    "agent_thought": "thought",
}


def _message(message: Message) -> Row:
    return Row(
        f"{message.type}/{message.message_id}",
        _ROLES[message.type],
        body=list(_blocks(message.content)),
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
            yield _note(f"image, {block.mime_type}, {_size(block.data)}")
        case v2.AudioContent():
            yield _note(f"audio, {block.mime_type}, {_size(block.data)}")
        case v2.ResourceLink():
            yield _note(f"link to {block.name} <{block.uri}>")
        case v2.EmbeddedResource():
            yield from _resource(block.resource)
        case v2.OtherContentBlock():
            yield _note(f"content of unknown type {block.kind}")
        case _:
            assert_never(block)


def _resource(resource: v2.EmbeddedResourceResource) -> Iterator[Piece]:
    if isinstance(resource, v2.TextResourceContents):
        yield _note(f"resource {resource.uri}")
        yield Piece("code", visible(resource.text))
    else:
        yield _note(f"resource {resource.uri}, {_size(resource.blob)}")


def _note(words: str) -> Piece:
    return Piece("note", visible_line(words))


def _size(data: str) -> str:
    """Say how many bytes a base64 text stands for."""
    size: float = len(data.rstrip("=")) * 3 // 4
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.0f} GB"


def _tool_call(call: ToolCall, transcript: Transcript) -> Row:
    body: list[Piece] = []
    for location in call.locations:
        line = f":{location.line}" if isinstance(location.line, int) else ""
        body.append(_note(f"{location.path}{line}"))
    for item in call.content:
        match item:
            case v2.Content():
                body.extend(_block(item.content))
            case v2.Diff():
                body.extend(_diff(item))
            case v2.Terminal():
                terminal = transcript.terminal(item.terminal_id)
                body.extend([_note("a terminal that was not reported")] if terminal is None else _terminal(terminal))
            case v2.OtherToolCallContent():
                body.append(_note(f"content of unknown type {item.kind}"))
            case _:
                assert_never(item)
    title = call.title or call.name or "without a title"
    return Row(f"tool/{call.tool_call_id}", "tool", visible_line(title), visible_line(call.status), body)


def _diff(diff: v2.Diff) -> Iterator[Piece]:
    patch = diff.patch
    if isinstance(patch, v2.DiffPatch) and patch.format == "git_patch":
        yield Piece("code", visible(patch.text.rstrip("\n")), "diff")
        return
    for change in diff.changes:
        if isinstance(change, v2.OtherDiffChange):
            yield _note(f"change of unknown kind {change.kind}")
        else:
            operation: Any = change.__struct_config__.tag
            before = f"{change.old_path} → " if isinstance(change, (v2.MoveChange, v2.CopyChange)) else ""
            yield _note(f"{operation} {before}{change.path}")


def _terminal(terminal: Terminal) -> Iterator[Piece]:
    if terminal.command:
        yield _note(f"$ {terminal.command}")
    yield from _output(terminal)
    if _exit(terminal):
        yield _note(_exit(terminal))


def _output(terminal: Terminal) -> list[Piece]:
    runs = styled_terminal(terminal.output)
    while runs and not runs[-1].text.strip("\n"):
        runs.pop()
    if not runs:
        return []
    runs[-1] = Run(runs[-1].text.rstrip("\n"), runs[-1].style)
    styled = any(run.style != Style() for run in runs)
    return [Piece("code", "".join(run.text for run in runs), "", runs if styled else ())]


def _exit(terminal: Terminal) -> str:
    status = terminal.exit_status
    if status is None:
        return ""
    if isinstance(status.signal, str):
        return f"ended by {visible_line(status.signal)}"
    return "ended" if status.exit_code in (None, UNSET) else f"exit {status.exit_code}"


_MARKS: Final = {"completed": "x", "in_progress": "~", "cancelled": "-"}


def _plan(plan: Plan) -> list[Piece]:
    if isinstance(plan.update.plan, v2.OtherPlanUpdateContent):
        return [_note(f"plan of unknown kind {plan.update.plan.kind}")]
    steps = [f"- [{_MARKS.get(entry.status, ' ')}] {visible_line(entry.content)}" for entry in plan.entries]
    return [Piece("text", "\n".join(steps))] if steps else []
