"""(transcript, update) → change: the exact state of a session after every update, and the replay that rebuilds it."""

from twofold.fold._change import Change, ChangedContent, ChangedEntity, ChangeKind
from twofold.fold._entities import (
    Compaction,
    Entity,
    Message,
    MessageType,
    Part,
    Plan,
    Terminal,
    ToolCall,
    block_of,
    joined_text,
    part_of,
)
from twofold.fold._own import LOSS, SETUP
from twofold.fold._replay import replay
from twofold.fold._revision import Revision, patched, patched_meta
from twofold.fold._transcript import Reload, Transcript

__all__ = [
    "LOSS",
    "SETUP",
    "Change",
    "ChangeKind",
    "ChangedContent",
    "ChangedEntity",
    "Compaction",
    "Entity",
    "Message",
    "MessageType",
    "Part",
    "Plan",
    "Reload",
    "Revision",
    "Terminal",
    "ToolCall",
    "Transcript",
    "block_of",
    "joined_text",
    "part_of",
    "patched",
    "patched_meta",
    "replay",
]
