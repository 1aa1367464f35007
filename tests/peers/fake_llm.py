"""A scripted model on 127.0.0.1 that agents take for OpenAI (chat completions), Anthropic (messages) or Gemini.

The last user text names the script to play, `scenario=NAME` with a name of `SCRIPTS`. A script may call one of the
tools that the agent offers, with arguments filled in from the tool's schema, and say something else once it has the
result. A request that offers no tools is one for a title. Everything is streamed as server-sent events.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias, assert_never

Json: TypeAlias = dict[str, Any]
Event: TypeAlias = tuple[str | None, Json | str]


@dataclass(frozen=True)
class Script:
    """What the model does in one turn: thinks, says something, perhaps calls a tool and says more after it."""

    text: Sequence[str]
    thoughts: Sequence[str] = ()
    tool: Literal["read", "write"] | None = None
    after: Sequence[str] = ()
    pause: float = 0.005

    @property
    def said(self) -> str:
        """The text of the turn, joined."""
        return "".join((*self.text, *self.after))


def deltas(text: str) -> tuple[str, ...]:
    """Cut a text where a `¦` stands."""
    return tuple(text.split("¦"))


TITLE: Final = Script(deltas("Scripted ¦session"))
THOUGHTS: Final = deltas("The user wants ¦a short answer.\n¦Two points, ¦then a snippet — with naïve café text.")
PLAIN: Final = deltas(  # cut inside words and fences, inside a joined emoji and before a combining accent
    """# Fold¦ing notes
¦
¦Two points about *streams*:

¦1. deltas arrive ¦in ord¦er;
2. a `mess¦ageId` may be **missing**.

¦```pyth¦on
for part in stream:
    print(part¦, end="")
¦```

¦Unicode: naïve café, 日本¦語, Ελλάδα, עברית, 👩¦\u200d👩\u200d👧, e¦\u0301 and 𝒳.
¦ ¦
| a | b |
|---|---|
| 1 | \\| |
¦
Done¦."""
)
SCRIPTS: Final = {
    "plain": Script(PLAIN, THOUGHTS),
    "short": Script(deltas("Still ¦here¦.")),
    "slow": Script([f"Line {number} of a long answer.\n" for number in range(1, 120)], pause=0.05),
    "read": Script(deltas("I will read ¦`notes.txt` ¦first."), THOUGHTS[:2], "read", deltas("It has ¦three lines.")),
    "write": Script(
        deltas("Writing ¦`out.md` now."), THOUGHTS[:2], "write", deltas("Wrote `out.md`¦: ¦two bullets ✅")
    ),
}

FILES: Final = {"read": "notes.txt", "write": "out.md"}
NOTES: Final = "alpha\nbeta — β\ngamma\n"
WRITTEN: Final = "- one\n- two ✅\n"
TOOL_NAMES: Final = {"read": r"read(_text)?(_file)?", "write": r"write(_text)?(_file)?"}


@dataclass(frozen=True)
class Tool:
    """A tool that an agent offers to the model."""

    name: str
    schema: Json

    def arguments(self, kind: Literal["read", "write"], workspace: Path) -> Json:
        """Fill in what the schema names and the script knows."""
        filled: Json = {}
        for name in self.schema["properties"]:
            if name.lower() in ("path", "file_path", "filepath"):
                filled[name] = str(workspace / FILES[kind])
            elif name == "content":
                filled[name] = WRITTEN
        return filled


@dataclass(frozen=True)
class Thought:
    deltas: Sequence[str]


@dataclass(frozen=True)
class Text:
    deltas: Sequence[str]


@dataclass(frozen=True)
class Call:
    id: str
    tool: Tool
    arguments: Json


Part: TypeAlias = Thought | Text | Call


@dataclass
class Asked:
    """What a request for an answer comes down to, whichever service it is meant for."""

    tools: list[Tool]
    prompt: str = ""
    results: int = 0  # of tools, since the prompt
    thoughts: bool = True  # are wanted

    def user(self, text: str) -> None:
        """Take a text of the user's: a prompt, unless it only stands around one."""
        if "scenario=" in text or not self.prompt:
            self.prompt, self.results = text, 0


def read_openai(body: Json) -> Asked:
    """Read a request for a chat completion."""
    asked = Asked([Tool(one["function"]["name"], one["function"]["parameters"]) for one in body.get("tools") or ()])
    for message in body["messages"]:
        if message["role"] == "tool":
            asked.results += 1
        elif message["role"] == "user":
            content = message["content"]
            asked.user(content if isinstance(content, str) else "".join(one.get("text", "") for one in content))
    return asked


def read_anthropic(body: Json) -> Asked:
    """Read a request for a message."""
    asked = Asked([Tool(one["name"], one["input_schema"]) for one in body.get("tools") or () if "input_schema" in one])
    asked.thoughts = body.get("thinking", {}).get("type") in ("enabled", "adaptive")
    for message in body["messages"]:
        if message["role"] == "user":
            content = message["content"]
            for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
                if block["type"] == "tool_result":
                    asked.results += 1
                elif block["type"] == "text":
                    asked.user(block["text"])
    return asked


def read_gemini(body: Json) -> Asked:
    """Read a request for generated content."""
    functions = [one for group in body.get("tools") or () for one in group.get("functionDeclarations", ())]
    asked = Asked([Tool(one["name"], one.get("parametersJsonSchema") or one["parameters"]) for one in functions])
    for content in body["contents"]:
        if content["role"] == "user":
            for part in content["parts"]:
                if "functionResponse" in part:
                    asked.results += 1
                elif "text" in part:
                    asked.user(part["text"])
    return asked


_numbers = itertools.count(1)
_process = os.urandom(4).hex()


def new_id(prefix: str) -> str:
    """Return an id that no other process gives, as a real service does."""
    return f"{prefix}_{_process}{next(_numbers):04}"


class Model:
    """The model behind the services: plays the script that it is asked for."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.played: list[str] = []

    def answer(self, asked: Asked) -> tuple[list[Part], float]:
        """Return the parts of the answer, and the seconds between its deltas."""
        names = re.findall(r"scenario=(\w+)", asked.prompt)
        if not asked.tools or not names:
            return [Text(TITLE.text)], 0
        script = SCRIPTS[names[-1]]
        self.played.append(names[-1])
        if asked.results:
            return [Text(script.after)], script.pause
        parts: list[Part] = [Thought(script.thoughts)] if script.thoughts and asked.thoughts else []
        parts.append(Text(script.text))
        if script.tool is not None:
            tool = next(one for one in asked.tools if re.fullmatch(TOOL_NAMES[script.tool], one.name.lower()))
            parts.append(Call(new_id("call"), tool, tool.arguments(script.tool, self.workspace)))
        return parts, script.pause


def write_openai(parts: Sequence[Part], model: str) -> Iterator[Event]:
    """Write an answer as chunks of a chat completion."""
    base: Json = {"id": new_id("chatcmpl"), "object": "chat.completion.chunk", "created": 1, "model": model}

    def chunk(delta: Json, reason: str | None = None) -> Event:
        return None, {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    yield chunk({"role": "assistant", "content": ""})
    for part in parts:
        match part:
            case Thought(deltas):
                yield from (chunk({"reasoning_content": delta}) for delta in deltas)
            case Text(deltas):
                yield from (chunk({"content": delta}) for delta in deltas)
            case Call(id, tool, arguments):
                call = {"id": id, "type": "function", "function": {"name": tool.name, "arguments": ""}}
                yield chunk({"tool_calls": [{"index": 0, **call}]})
                for half in halves(arguments):
                    yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": half}}]})
            case _:
                assert_never(part)
    yield chunk({}, "tool_calls" if isinstance(parts[-1], Call) else "stop")
    yield None, {**base, "choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}}
    yield None, "[DONE]"


def write_anthropic(parts: Sequence[Part], model: str) -> Iterator[Event]:
    """Write an answer as the events of a message."""

    def event(kind: str, **more: Any) -> Event:
        return kind, {"type": kind, **more}

    usage = {"input_tokens": 100, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    end: Json = {"stop_reason": None, "stop_sequence": None}
    message = {"id": new_id("msg"), "type": "message", "role": "assistant", "model": model, "content": []}
    yield event("message_start", message={**message, **end, "usage": usage})
    for index, part in enumerate(parts):
        block: Json
        deltas: list[Json]
        match part:
            case Thought(thoughts):
                block = {"type": "thinking", "thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": delta} for delta in thoughts]
                deltas.append({"type": "signature_delta", "signature": "c2NyaXB0ZWQ="})
            case Text(texts):
                block = {"type": "text", "text": ""}
                deltas = [{"type": "text_delta", "text": delta} for delta in texts]
            case Call(id, tool, arguments):
                block = {"type": "tool_use", "id": f"toolu_{id}", "name": tool.name, "input": {}}
                deltas = [{"type": "input_json_delta", "partial_json": half} for half in halves(arguments)]
            case _:
                assert_never(part)
        yield event("content_block_start", index=index, content_block=block)
        yield from (event("content_block_delta", index=index, delta=delta) for delta in deltas)
        yield event("content_block_stop", index=index)
    end["stop_reason"] = "tool_use" if isinstance(parts[-1], Call) else "end_turn"
    yield event("message_delta", delta=end, usage={"output_tokens": 20})
    yield event("message_stop")


def write_gemini(parts: Sequence[Part], model: str) -> Iterator[Event]:
    """Write an answer as a stream of generated contents."""
    base: Json = {"modelVersion": model, "responseId": new_id("response")}
    base["usageMetadata"] = {"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120}

    def content(part: Json, reason: str | None = None) -> Event:
        candidate: Json = {"index": 0, "content": {"role": "model", "parts": [part]}}
        return None, {**base, "candidates": [{**candidate, "finishReason": reason} if reason else candidate]}

    for part in parts:
        match part:
            case Thought(deltas):
                yield from (content({"text": delta, "thought": True}) for delta in deltas)
            case Text(deltas):
                yield from (content({"text": delta}) for delta in deltas)
            case Call(id, tool, arguments):
                yield content({"functionCall": {"name": tool.name, "args": arguments, "id": id}})
            case _:
                assert_never(part)
    yield content({"text": ""}, "STOP")


def halves(arguments: Json) -> tuple[str, str]:
    """Cut arguments in two, as they are streamed."""
    text = json.dumps(arguments, ensure_ascii=False)
    return text[: len(text) // 2], text[len(text) // 2 :]


SERVICES: Final = {
    "/chat/completions": (read_openai, write_openai),
    "/messages": (read_anthropic, write_anthropic),
    ":streamGenerateContent": (read_gemini, write_gemini),
}


class ModelServer(ThreadingHTTPServer):
    """The services on a free port of 127.0.0.1, in threads, from `with` to its end.

    It is also a proxy that refuses: agents are told to reach the world through it. `outside` is what they asked for.
    """

    daemon_threads = True

    def __init__(self, workspace: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = Model(workspace)
        self.outside: list[str] = []
        self.problems: list[BaseException] = []
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, name="model server")

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.server_address[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join(10)
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep what went wrong for the test, except that an agent hung up: a cancelled one does."""
        problem = sys.exception()
        if problem is not None and not isinstance(problem, ConnectionError):
            self.problems.append(problem)


class _Handler(BaseHTTPRequestHandler):
    """One connection of an agent."""

    protocol_version = "HTTP/1.1"
    server: ModelServer

    def do_POST(self) -> None:
        """Play the model, for the service that the path is one of."""
        raw = self._body()
        path = self.path.split("?")[0]
        service = next((SERVICES[end] for end in SERVICES if path.endswith(end)), None)
        if service is None:
            self._say(404, {"error": {"type": "not_found", "message": "not here"}})
            return
        read, write = service
        body = json.loads(gzip.decompress(raw) if self.headers.get("content-encoding") == "gzip" else raw)
        parts, pause = self.server.model.answer(read(body))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for name, data in write(parts, body.get("model", "scripted-1")):
            time.sleep(pause)
            line = f"data: {data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)}\n\n"
            self._chunk((f"event: {name}\n{line}" if name else line).encode())
        self._chunk(b"")

    def do_GET(self) -> None:
        """Know nothing else."""
        self._say(404, {"error": {"type": "not_found", "message": "not here"}})

    do_HEAD = do_GET

    def do_CONNECT(self) -> None:
        """Refuse the way out."""
        self.server.outside.append(self.path)
        self.send_error(403)

    def log_message(self, format: str, *_: object) -> None:
        """Say nothing on standard error."""

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _say(self, status: int, answer: Json) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
