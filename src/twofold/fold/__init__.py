"""(transcript, update) → change: the exact state of a session after every update, and the replay that rebuilds it."""

from twofold.fold._change import Change, ChangedContent, ChangedEntity, ChangeKind
from twofold.fold._entities import Compaction, Entity, Message, MessageType, Plan, Terminal, ToolCall, joined_text
from twofold.fold._replay import replay
from twofold.fold._revision import Revision, patched, patched_meta
from twofold.fold._transcript import Reload, Transcript

__all__ = [
    "Change",
    "ChangeKind",
    "ChangedContent",
    "ChangedEntity",
    "Compaction",
    "Entity",
    "Message",
    "MessageType",
    "Plan",
    "Reload",
    "Revision",
    "Terminal",
    "ToolCall",
    "Transcript",
    "joined_text",
    "patched",
    "patched_meta",
    "replay",
]
