"""A scripted endpoint of chat completions on 127.0.0.1 that streams as OpenAI's does."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self, TypeAlias

__all__ = ["DEADLINE", "Answer", "Endpoint", "Json", "call", "text", "thoughts"]

Json: TypeAlias = dict[str, Any]

DEADLINE: Final = 30.0
PIECE: Final = 11  # bytes in one HTTP chunk: events, and characters in them, are cut where it happens


@dataclass(frozen=True)
class Answer:
    """One answer: what it streams and how it ends.

    ``held`` ends it only when the agent hangs up, ``cut`` in the middle, with neither a reason nor a last chunk.
    """

    deltas: Sequence[Json] = ()
    reason: str = "stop"
    status: int = 200
    held: bool = False
    cut: bool = False


def text(*pieces: str) -> list[Json]:
    """Stream text in these pieces."""
    return [{"content": piece} for piece in pieces]


def thoughts(*pieces: str) -> list[Json]:
    """Stream thoughts in these pieces."""
    return [{"content": None, "reasoning_content": piece} for piece in pieces]


def call(index: int, name: str, *arguments: str) -> list[Json]:
    """Stream a tool call: its name first, then its arguments in these pieces."""
    head = {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": ""}}
    return [
        {"tool_calls": [one]}
        for one in (head, *({"index": index, "function": {"arguments": piece}} for piece in arguments))
    ]


class Endpoint(ThreadingHTTPServer):
    """Plays ``answers``, one a request, from ``with`` to its end, and keeps the requests."""

    daemon_threads = True

    def __init__(self, *answers: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = list(answers)
        self.requests: list[Json] = []
        self.keys: list[str | None] = []
        self.hung_up = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, name="endpoint")

    @property
    def url(self) -> str:
        """What agents take for the base URL."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join(DEADLINE)
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    """One connection of an agent."""

    protocol_version = "HTTP/1.1"
    server: Endpoint

    def do_POST(self) -> None:
        """Play the next answer."""
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.requests.append(json.loads(body))
        self.server.keys.append(self.headers["authorization"])
        answer = self.server.answers.pop(0) if self.path == "/v1/chat/completions" else Answer(status=404)
        self.send_response(answer.status)
        self.send_header("transfer-encoding", "chunked")
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        events = b": a comment, as some send to keep a connection\r\n\r\n"
        for delta in answer.deltas:
            events += _event({"index": 0, "delta": delta, "finish_reason": None})
        if not answer.held and not answer.cut:
            events += _event({"index": 0, "delta": {}, "finish_reason": answer.reason})
            events += b'data: {"choices":[],"usage":{"total_tokens":7}}\n\ndata: [DONE]\n\n'
        for start in range(0, len(events), PIECE):
            self._chunk(events[start : start + PIECE])
        if answer.held:
            self.connection.settimeout(DEADLINE)
            if not self.connection.recv(1):
                self.server.hung_up.set()
        elif not answer.cut:
            self._chunk(b"")
        self.close_connection = answer.held or answer.cut

    def log_message(self, format: str, *_: object) -> None:
        """Say nothing on standard error."""

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


def _event(choice: Json) -> bytes:
    return b"data: " + json.dumps({"choices": [choice]}, ensure_ascii=False).encode() + b"\n\n"
