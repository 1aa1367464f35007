"""The session that is measured: 200,000 v2 updates, the same bytes on every machine.

Modelled on recorded traffic of coding agents: turns of a user message, thoughts, answers that stream as text chunks,
tool calls with their terminals, plans, usage and state. `python -m benchmarks.corpus OUT` writes it to a file and says
what is in it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final

__all__ = ["UPDATES", "Corpus", "lines"]

UPDATES: Final = 200_000
UNKNOWN_KINDS: Final = 380  # updates whose `sessionUpdate` no version of the schema has: 0.19 %
UNKNOWN_BLOCKS: Final = 500  # known updates with a content block of an unknown type inside: 0.25 %

SEED: Final = 20_260_609

# The block is plain text and nothing else is said: valid in v1 and in v2, byte for byte.
_TEXT_CHUNK: Final = re.compile(
    rb'"update":\{"sessionUpdate":"(?:agent_message|agent_thought|user_message)_chunk",'
    rb'"content":\{"type":"text","text":"(?:[^"\\]|\\.)*"\},"messageId":"[^"]*"\}\}\}$'
)

_PROSE: Final = (
    "the of and to a in is it that for on with as this be are or not from by at an if we can you will all one which so "
    "when each has its was do then there use new file line test code value return function class method call error "
    "string list name type data read write path update message state change check build run fix add remove move first "
    "next last same other before after between because instead should could would already still only also must where "
    "parser session stream buffer client server agent request response module package import argument default handler"
)
_WORDS: Final = _PROSE.split(" ")
_RARE: Final = (
    *("`None`", "`self._state`", "**note:**", "don’t", "naïve", "Größe", "“quoted”", '"quoted"', "C:\\temp", "→", "…"),
    *(
        "✅",
        "👩‍💻",
        "日本語",
        "переменная",
        "مرحبا",
        "café",
        "foo_bar()",
        "x != y",
        "[link](https://example.com/a?b=c)",
    ),
)
_ENDS: Final = (".", ".", ",", ",", ":", "\n", "\n\n", "\n- ", ";", "?", "```\n", "\n    ")
_FILES: Final = ("src/parser.py", "src/session/stream.py", "tests/test_stream.py", "README.md", "docs/guide/start.md")
_COMMANDS: Final = ("pytest -q tests", "git status --short", "rg -n 'def feed' src", "make check", "ls -la src/session")


def lines() -> Iterator[bytes]:
    """Make the corpus, line by line without newlines: each a `session/update` notification of one session."""
    return _Writer().lines()


class _Writer:
    def __init__(self) -> None:
        self.random: Final = random.Random(SEED)
        self.session_id: Final = f"sess_{self.random.getrandbits(64):016x}"
        self.ids = 0
        self.used = 4_000
        self.unknown = self.places(UNKNOWN_KINDS)
        self.unknown_blocks = self.places(UNKNOWN_BLOCKS)

    def places(self, count: int) -> list[int]:
        """Spread `count` positions over the corpus, the last one first: the next one is popped from the end."""
        step = UPDATES / count
        return [int(index * step + self.random.random() * step * 0.9) for index in range(count)][::-1]

    def lines(self) -> Iterator[bytes]:
        number = 0
        for update in self.updates():
            for line in (*self.extras(number), self.line(update)):
                yield line
                number += 1
                if number == UPDATES:
                    return

    def extras(self, number: int) -> Iterator[bytes]:
        """Give what is due at this position that no turn has: updates and blocks that the schema does not know."""
        if self.unknown and self.unknown[-1] <= number:
            self.unknown.pop()
            yield self.line(self.unknown_update())
        if self.unknown_blocks and self.unknown_blocks[-1] <= number:
            self.unknown_blocks.pop()
            yield self.line(self.update_with_unknown_block())

    def line(self, update: dict[str, Any]) -> bytes:
        params = {"sessionId": self.session_id, "update": update}
        message = {"jsonrpc": "2.0", "method": "session/update", "params": params}
        return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()

    def updates(self) -> Iterator[dict[str, Any]]:
        yield self.commands()
        yield self.options()
        turn = 0
        while True:
            yield from self.turn(turn)
            turn += 1

    def turn(self, number: int) -> Iterator[dict[str, Any]]:
        yield from self.prompt(number)
        yield {"sessionUpdate": "state_update", "state": "running", "background": []}
        if number % 4 == 0:
            yield self.plan(number, 0)
        for step in range(1 + self.random.randrange(4)):
            message_id = self.id("msg")  # a thought and the answer after it share their id, as some agents do
            if self.random.random() < 0.7:
                yield from self.chunks("agent_thought", message_id, self.count(30))
            streamed = list(self.chunks("agent_message", message_id, self.count(60)))
            yield from streamed
            if self.random.random() < 0.6:  # the whole message, once it is complete
                text = "".join(chunk["content"]["text"] for chunk in streamed)
                content = [{"type": "text", "text": text}]
                yield {"sessionUpdate": "agent_message", "messageId": message_id, "content": content}
            for _ in range(self.random.randrange(3)):
                yield from self.tool_call()
            yield self.usage()
            if number % 4 == 0:
                yield self.plan(number, step + 1)
        yield from self.now_and_then(number)
        yield {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn", "background": []}

    def prompt(self, number: int) -> Iterator[dict[str, Any]]:
        message_id = self.uuid()
        if number % 5 == 0:
            yield from self.chunks("user_message", message_id, 1)
            return
        content: list[dict[str, Any]] = [{"text": self.text(15 + self.random.randrange(60)), "type": "text"}]
        if number % 3 == 0:
            name = self.random.choice(_FILES)
            link = {"type": "resource_link", "uri": f"file:///workspace/project/{name}", "name": name}
            content.append(link | {"mimeType": "text/plain", "size": self.random.randrange(40_000)})
        if number % 40 == 1:
            image = base64.b64encode(self.random.randbytes(12_000)).decode()
            content.append({"type": "image", "data": image, "mimeType": "image/png"})
        if number % 7 == 2:
            resource = {"uri": "file:///workspace/project/notes.md", "text": self.text(80), "mimeType": "text/markdown"}
            content.append({"type": "resource", "resource": resource, "annotations": {"audience": ["assistant"]}})
        yield {"sessionUpdate": "user_message", "messageId": message_id, "content": content}

    def chunks(self, kind: str, message_id: str, count: int) -> Iterator[dict[str, Any]]:
        for _ in range(count):
            block = {"type": "text", "text": self.text(2 + self.random.randrange(5))}
            yield {"sessionUpdate": f"{kind}_chunk", "content": block, "messageId": message_id}

    def tool_call(self) -> Iterator[dict[str, Any]]:
        kind = self.random.choice(("execute", "execute", "read", "edit"))
        call_id = self.id("toolu")
        name = self.random.choice(_FILES)
        path = f"/workspace/project/{name}"

        def update(**fields: Any) -> dict[str, Any]:  # the tag comes last, as from some real agents
            return {"toolCallId": call_id, **fields, "sessionUpdate": "tool_call_update"}

        if kind == "execute":
            command = self.random.choice(_COMMANDS)
            terminal = {"type": "terminal", "terminalId": call_id}
            yield update(name="Bash", rawInput={}, status="pending", title="Terminal", kind=kind, content=[terminal])
            yield {"sessionUpdate": "terminal_update", "terminalId": call_id, "command": command, "cwd": "/workspace"}
            yield update(
                rawInput={"command": command, "description": self.text(5)}, title=command, status="in_progress"
            )
            for _ in range(self.random.randrange(6)):
                output = base64.b64encode(self.text(8 + self.random.randrange(80)).encode()).decode()
                yield {"sessionUpdate": "terminal_output_chunk", "terminalId": call_id, "data": output}
            ended = {"exitCode": int(self.random.random() < 0.2)}
            yield {"sessionUpdate": "terminal_update", "terminalId": call_id, "exitStatus": ended}
            yield update(
                status="completed",
                rawOutput={"exitCode": ended["exitCode"], "text": self.text(10 + self.random.randrange(400))},
            )
        elif kind == "read":
            place = {"path": path, "line": 1 + self.random.randrange(400)}
            title = f"Read {name}"
            yield update(
                name="Read", rawInput={"path": path}, status="pending", title=title, kind=kind, locations=[place]
            )
            block = {"type": "text", "text": self.text(100 + self.random.randrange(900))}
            yield {
                "sessionUpdate": "tool_call_content_chunk",
                "toolCallId": call_id,
                "content": {"type": "content", "content": block},
            }
            yield update(status="completed", _meta={"example.com/tool": {"lines": place["line"], "cached": False}})
        else:
            yield update(name="Edit", rawInput={}, status="pending", title=f"Edit {name}", kind=kind, content=[])
            old, new = self.text(60 + self.random.randrange(200)), self.text(60 + self.random.randrange(240))
            yield update(
                rawInput={"path": path, "old": old, "new": new}, status="in_progress", locations=[{"path": path}]
            )
            patch = {"format": "git_patch", "text": f"--- a/{name}\n+++ b/{name}\n@@ -1,9 +1,9 @@\n-{old}\n+{new}\n"}
            diff = {"type": "diff", "changes": [{"operation": "modify", "path": path}], "patch": patch}
            yield update(status="completed", content=[diff])

    def plan(self, number: int, done: int) -> dict[str, Any]:
        entries = [
            {
                "content": f"Step {step + 1} of the work in turn {number}",
                "priority": ("high", "medium", "low")[step % 3],
                "status": "completed" if step < done else "in_progress" if step == done else "pending",
            }
            for step in range(5)
        ]
        return {
            "sessionUpdate": "plan_update",
            "plan": {"type": "items", "planId": f"plan-{number}", "entries": entries},
        }

    def usage(self) -> dict[str, Any]:
        self.used = (self.used + self.random.randrange(900)) % 200_000
        cost = {"amount": round(self.used * 0.000_011, 6), "currency": "USD"}
        return {"sessionUpdate": "usage_update", "used": self.used, "size": 200_000, "cost": cost}

    def now_and_then(self, number: int) -> Iterator[dict[str, Any]]:
        if number % 10 == 0:
            stamp = f"2026-12-01T{number // 60 % 24:02}:{number % 60:02}:00.000Z"
            yield {"sessionUpdate": "session_info_update", "title": self.text(6).strip(), "updatedAt": stamp}
        if number % 100 == 50:
            yield self.commands()
            yield self.options()
        if number % 50 == 25:
            yield {"sessionUpdate": "notice", "severity": "info", "title": "The model was changed", "description": None}
        if number % 80 == 60:
            compaction_id = self.id("cmp")
            yield {"sessionUpdate": "compaction_update", "compactionId": compaction_id, "status": "in_progress"}
            for _ in range(8):
                block = {"type": "text", "text": self.text(20)}
                yield {"sessionUpdate": "compaction_summary_chunk", "compactionId": compaction_id, "content": block}
            yield {"sessionUpdate": "compaction_update", "compactionId": compaction_id, "status": "completed"}

    def commands(self) -> dict[str, Any]:
        commands = [
            {"type": "command", "name": f"command-{index}", "description": self.text(12)}
            | ({"input": {"type": "text", "hint": "[what to do]"}} if index % 2 else {})
            for index in range(12)
        ]
        return {"sessionUpdate": "available_commands_update", "availableCommands": commands}

    def options(self) -> dict[str, Any]:
        values = [
            {"value": f"model-{index}", "name": f"Model {index}", "description": self.text(8)} for index in range(6)
        ]
        model = {"type": "select", "configId": "model", "name": "Model", "currentValue": "model-0", "options": values}
        quiet = {"type": "boolean", "configId": "quiet", "name": "Quiet", "currentValue": False}
        return {"sessionUpdate": "config_option_update", "configOptions": [model, quiet]}

    def unknown_update(self) -> dict[str, Any]:
        kind = self.random.choice(("_example.com/heartbeat", "_example.com/queue", "review_update", "budget_update"))
        return {"sessionUpdate": kind, "sequence": self.random.randrange(10_000), "detail": {"text": self.text(10)}}

    def update_with_unknown_block(self) -> dict[str, Any]:
        block = {
            "type": self.random.choice(("video", "_example.com/chart")),
            "uri": "https://example.com/a",
            "n": [1, 2.5],
        }
        if self.random.random() < 0.5:
            return {"sessionUpdate": "agent_message_chunk", "content": block, "messageId": self.id("msg")}
        content = [{"type": "text", "text": self.text(20)}, block]
        return {"sessionUpdate": "agent_message", "messageId": self.id("msg"), "content": content}

    def text(self, words: int) -> str:
        parts = []
        for _ in range(words):
            dice = self.random.random()
            parts.append(self.random.choice(_RARE if dice < 0.01 else _WORDS))
            parts.append(self.random.choice(_ENDS) if dice > 0.93 else " ")
        return "".join(parts)

    def count(self, mean: int) -> int:
        return 1 + int(self.random.expovariate(1 / mean))

    def id(self, prefix: str) -> str:
        self.ids += 1
        return f"{prefix}_{self.random.getrandbits(24):06x}{self.ids:06x}"

    def uuid(self) -> str:
        digits = f"{self.random.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


class Corpus:
    """The corpus on disk and in memory. It is made once and kept in the folder for temporary files."""

    def __init__(self) -> None:
        recipe = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
        self.folder: Final = Path(tempfile.gettempdir(), "twofold-benchmarks", recipe)
        """Changes with this file, so that what is found there was made by this recipe."""

    @cached_property
    def path(self) -> Path:
        """The corpus as a file, one line an update."""
        return self._file("session.jsonl", lines)

    @cached_property
    def chunks_path(self) -> Path:
        """The text chunks of the corpus as a file: valid as v1 and as v2."""
        return self._file("chunks.jsonl", lambda: self.chunks)

    @cached_property
    def lines(self) -> list[bytes]:
        """All lines, without their newlines."""
        return self.path.read_bytes().split(b"\n")[:-1]

    @cached_property
    def chunks(self) -> list[bytes]:
        """The lines that carry one block of plain text for a message."""
        return [line for line in self.lines if _TEXT_CHUNK.search(line)]

    def _file(self, name: str, make: Callable[[], Iterable[bytes]]) -> Path:
        path = self.folder / name
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_suffix(f".{os.getpid()}")
            unfinished.write_bytes(b"".join(line + b"\n" for line in make()))
            unfinished.replace(path)
        return path


def main(words: list[str]) -> int:
    """Write the corpus to the file that is named and print what is in it."""
    if len(words) != 1:
        sys.exit("usage: python -m benchmarks.corpus OUT")
    made = list(lines())
    Path(words[0]).write_bytes(b"".join(line + b"\n" for line in made))
    sizes = sorted(map(len, made))
    kinds = Counter(json.loads(line)["params"]["update"]["sessionUpdate"] for line in made)
    chunks = sum(1 for line in made if _TEXT_CHUNK.search(line))
    print(f"{len(made):,} updates, {sum(sizes) + len(sizes):,} bytes, {chunks:,} text chunks")
    mean, half, most = sum(sizes) / len(sizes), sizes[len(sizes) // 2], sizes[len(sizes) * 99 // 100]
    print(f"line: mean {mean:.0f} bytes, p50 {half}, p99 {most}")
    for kind, count in kinds.most_common():
        print(f"{count:>8,}  {kind}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
