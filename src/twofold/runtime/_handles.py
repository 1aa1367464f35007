"""What an agent writes with: handles for messages, tool calls and terminals. What they send keeps its order."""

from __future__ import annotations

import asyncio
import base64
import signal as signals
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias
from uuid import uuid4

from msgspec import UNSET, UnsetType

from twofold.fold import MessageType
from twofold.wire import v2

if TYPE_CHECKING:
    from twofold.runtime._session import Session

__all__ = ["MessageHandle", "TerminalHandle", "ToolCallHandle", "new_id"]

Whole: TypeAlias = type[v2.UserMessage] | type[v2.AgentMessage] | type[v2.AgentThought]
Chunk: TypeAlias = type[v2.UserMessageChunk] | type[v2.AgentMessageChunk] | type[v2.AgentThoughtChunk]

_WHOLES: Final[dict[MessageType, Whole]] = {
    "user_message": v2.UserMessage,
    "agent_message": v2.AgentMessage,
    "agent_thought": v2.AgentThought,
}
_CHUNKS: Final[dict[MessageType, Chunk]] = {
    "user_message": v2.UserMessageChunk,
    "agent_message": v2.AgentMessageChunk,
    "agent_thought": v2.AgentThoughtChunk,
}


def new_id() -> str:
    """Make an id up that nobody else makes up."""
    return uuid4().hex


def _block(content: str | v2.ContentBlock) -> v2.ContentBlock:
    return v2.TextContent(text=content) if isinstance(content, str) else content


def _blocks(content: str | Sequence[str | v2.ContentBlock]) -> list[v2.ContentBlock]:
    return [_block(content)] if isinstance(content, str) else [_block(one) for one in content]


def alike(meta: dict[str, Any]) -> dict[str, Any] | None:
    """Give the ``_meta`` that every revision can hold (R-1): without null, which one of them takes for a removal."""
    return {key: value for key, value in meta.items() if value is not None} or None


def _removes(held: dict[str, Any] | None, meta: dict[str, Any] | None) -> bool:
    """Whether a key goes. It is to be cleared first: a newer revision merges what comes by key (R-1)."""
    return bool(held and meta and not held.keys() <= meta.keys())


class MessageHandle:
    """Writes one message or thought: streams onto it, corrects it, takes it back.

    Nothing is sent before the first call, and nothing marks the end: a message is what was last said. It may be used
    as ``async with``, which only shows where it is written, and it may be used after that.
    """

    def __init__(self, session: Session, type: MessageType, message_id: str) -> None:
        self._session = session
        self._type: MessageType = type
        self.message_id = message_id

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def append(self, content: str | v2.ContentBlock, *, meta: dict[str, Any] | None = None) -> None:
        """Stream text, or one block, onto the message. ``meta`` belongs to this chunk alone (U-5)."""
        chunk = _CHUNKS[self._type]
        await self._session.update(
            chunk(message_id=self.message_id, content=_block(content), meta=UNSET if meta is None else meta)
        )

    async def replace(
        self, content: str | Sequence[str | v2.ContentBlock], *, meta: dict[str, Any] | None = None
    ) -> None:
        """Let the message say this and nothing else (F-4). What it said before is erased from the journal (J-3)."""
        patch = UNSET if meta is None else await self._alike(meta)
        await self._whole(_blocks(content), patch, durable=True)

    async def clear(self) -> None:
        """Take back what the message says (F-3). It is erased from the journal when this returns (J-3)."""
        await self._whole([], UNSET, durable=True)

    async def set_meta(self, meta: dict[str, Any] | None) -> None:
        """Let the message's ``_meta`` be this, under every revision (R-1); ``None`` clears it.

        A key whose value is ``None`` is left out: not every revision could hold it.
        """
        await self._whole(UNSET, None if meta is None else await self._alike(meta), durable=False)

    async def _alike(self, meta: dict[str, Any]) -> dict[str, Any] | None:
        message = self._session.state.message(self._type, self.message_id)
        patch = alike(meta)
        if _removes(None if message is None else message.meta, patch):
            await self._whole(UNSET, None, durable=False)
        return patch

    async def _whole(
        self, content: list[v2.ContentBlock] | UnsetType, meta: dict[str, Any] | UnsetType | None, *, durable: bool
    ) -> None:
        whole = _WHOLES[self._type]
        await self._session.update(whole(message_id=self.message_id, content=content, meta=meta), durable=durable)


class ToolCallHandle:
    """Reports one tool call. As ``async with`` it is ``in_progress`` inside, and has ended after it.

    It ends as ``completed``, unless :meth:`update` said another final status; an exception makes it ``failed``, a
    cancellation ``cancelled``.
    """

    def __init__(self, session: Session, tool_call_id: str, fields: dict[str, Any]) -> None:
        self._session = session
        self._fields = fields
        self.tool_call_id = tool_call_id

    async def __aenter__(self) -> Self:
        fields: dict[str, Any] = {"status": "in_progress", **self._fields}
        await self.update(**fields)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        call = self._session.state.tool_call(self.tool_call_id)
        if call is not None and call.status not in ("pending", "in_progress", "paused"):
            return
        if error is None:
            status = "completed"
        else:
            status = "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"
        await self.update(status=status)

    async def update(
        self,
        *,
        title: str | UnsetType | None = UNSET,
        name: str | UnsetType | None = UNSET,
        kind: str | UnsetType | None = UNSET,
        status: str | UnsetType | None = UNSET,
        content: str | Sequence[str | v2.ContentBlock | v2.ToolCallContent] | UnsetType | None = UNSET,
        locations: Sequence[v2.ToolCallLocation] | UnsetType | None = UNSET,
        raw_input: Any = UNSET,
        raw_output: Any = UNSET,
        meta: dict[str, Any] | UnsetType | None = UNSET,
    ) -> None:
        """Patch the tool call: what is not given stays, ``None`` clears.

        Content, input and output that are taken back or replaced are erased from the journal when this returns (J-3).
        ``meta`` is the whole of it, under every revision (R-1).
        """
        call = self._session.state.tool_call(self.tool_call_id)
        if isinstance(meta, dict):
            meta = alike(meta)
            if _removes(None if call is None else call.meta, meta):
                await self._session.update(v2.ToolCallUpdate(tool_call_id=self.tool_call_id, meta=None))
        if isinstance(content, str):
            content = [content]
        await self._session.update(
            v2.ToolCallUpdate(
                tool_call_id=self.tool_call_id,
                title=title,
                name=name,
                kind=kind,
                status=status,
                content=[_item(one) for one in content] if isinstance(content, Sequence) else content,
                locations=locations,
                raw_input=raw_input,
                raw_output=raw_output,
                meta=meta,
            ),
            durable=call is not None
            and (
                (content is not UNSET and len(call.content) > 0)
                or (raw_input is not UNSET and call.raw_input is not UNSET)
                or (raw_output is not UNSET and call.raw_output is not UNSET)
            ),
        )

    async def append(self, content: str | v2.ContentBlock | v2.ToolCallContent) -> None:
        """Add text, a block, a diff or a terminal to what the tool call shows."""
        await self._session.update(v2.ToolCallContentChunk(tool_call_id=self.tool_call_id, content=_item(content)))

    async def show(self, terminal: TerminalHandle) -> None:
        """Show a terminal in the tool call."""
        await self.append(v2.Terminal(terminal_id=terminal.terminal_id))


def _item(content: str | v2.ContentBlock | v2.ToolCallContent) -> v2.ToolCallContent:
    if isinstance(content, v2.Content | v2.Diff | v2.Terminal | v2.OtherToolCallContent):
        return content
    return v2.Content(content=_block(content))


def _signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


class TerminalHandle:
    """Reports one terminal of the agent: what ran, what it wrote, how it ended."""

    def __init__(self, session: Session, terminal_id: str) -> None:
        self._session = session
        self.terminal_id = terminal_id

    async def write(self, output: bytes | str) -> None:
        """Add output, byte for byte (text is encoded as UTF-8)."""
        data = output.encode("utf-8", "surrogatepass") if isinstance(output, str) else output
        await self._session.update(
            v2.TerminalOutputChunk(terminal_id=self.terminal_id, data=base64.b64encode(data).decode("ascii"))
        )

    async def clear(self) -> None:
        """Take back all output. It is erased from the journal when this returns (J-3)."""
        await self._session.update(v2.TerminalUpdate(terminal_id=self.terminal_id, output=None), durable=True)

    async def exit(self, code: int | None = None, *, signal: str | None = None) -> None:
        """Say how the command ended: with an exit ``code``, or by a ``signal``.

        A negative code is a signal's number, as :mod:`subprocess` has it.
        """
        if code is not None and code < 0 and signal is None:
            signal, code = _signal_name(-code), None
        status = v2.TerminalExitStatus(
            exit_code=UNSET if code is None else code, signal=UNSET if signal is None else signal
        )
        await self._session.update(v2.TerminalUpdate(terminal_id=self.terminal_id, exit_status=status))
