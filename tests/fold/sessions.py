"""Short ways to write updates and to fold them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from twofold.fold import MessageType, Revision, Transcript, replay
from twofold.wire import encode, v2

Json = Any


def typed(update: Json) -> v2.SessionUpdate:
    """Read an update that is given as JSON values."""
    return v2.read_update(update)


def sent(update: v2.SessionUpdate) -> v2.SessionUpdate:
    """Give what the other side reads when this update is sent."""
    return v2.decode_update(encode(update))


def folded(updates: Iterable[Json], revision: Revision | str = Revision.RFD) -> Transcript:
    """Fold updates that are given as JSON values."""
    transcript = Transcript(revision=revision)
    for update in updates:
        transcript.apply(typed(update))
    return transcript


def replayed(transcript: Transcript, *, compact: bool = False) -> Transcript:
    """Fold the replay of a transcript, as the other side of a connection would read it."""
    fresh = Transcript(transcript.session_id, revision=transcript.revision)
    for update in replay(transcript, compact=compact):
        fresh.apply(sent(update))
    return fresh


def text(words: str, **members: Json) -> Json:
    """A text block."""
    return {"type": "text", "text": words, **members}


def whole(message_id: str = "m1", *content: Json, type: MessageType = "agent_message", **members: Json) -> Json:
    """A whole-message update; without blocks it omits `content`, unless `content=` says otherwise."""
    return {
        "sessionUpdate": type,
        "messageId": message_id,
        **({"content": list(content)} if content else {}),
        **members,
    }


def chunk(message_id: str, block: Json, type: MessageType = "agent_message", **members: Json) -> Json:
    """A message chunk; a string is a text block."""
    content = text(block) if isinstance(block, str) else block
    return {"sessionUpdate": f"{type}_chunk", "messageId": message_id, "content": content, **members}


def message(transcript: Transcript, message_id: str = "m1", type: MessageType = "agent_message") -> Json:
    """The state of one message as JSON values."""
    held = transcript.message(type, message_id)
    assert held is not None
    return held.to_json()


def contents(transcript: Transcript) -> dict[str, Json]:
    """The content of every message as JSON values, by type and id."""
    return {json.dumps([one.type, one.message_id]): one.to_json()["content"] for one in transcript.messages}
