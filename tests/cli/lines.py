"""Lines of captured traffic."""

import json
from pathlib import Path
from typing import Any


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def chunk(words: str, message: str = "m") -> dict[str, Any]:
    return {"sessionUpdate": "agent_message_chunk", "messageId": message, "content": text(words)}


def whole(*words: str, message: str = "m") -> dict[str, Any]:
    return {"sessionUpdate": "agent_message", "messageId": message, "content": [text(one) for one in words] or None}


def line(update: dict[str, Any], session: str = "s-1") -> bytes:
    params = {"sessionId": session, "update": update}
    return json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode()


def write(path: Path, *lines: bytes, end: bytes = b"\n") -> Path:
    path.write_bytes(b"".join(one + end for one in lines))
    return path
