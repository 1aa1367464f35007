"""Rows beside the official SDKs, on the text chunks of the corpus, which are the same bytes in v1 and v2.

Neither SDK folds v2 updates. The Python one reads v1 (CPU time); the TypeScript one reads v2 in a process of its own
(wall time on both sides).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from time import perf_counter, process_time
from typing import Final

from acp.contrib.session_state import SessionAccumulator
from acp.schema import AgentMessageChunk, AgentThoughtChunk, SessionNotification, TextContentBlock, UserMessageChunk

from benchmarks.corpus import Corpus
from benchmarks.decoding import Eater, decode, decode_and_fold
from benchmarks.measure import Batches, Goal, Row, Start, Step, timed
from tests.node_tools import node, node_modules

__all__ = ["groups"]

ACCUMULATED: Final = 500
"""Lines that the SDK's own fold is measured on: what it costs grows with their square."""


def groups(corpus: Corpus) -> list[Batches]:
    """Give the groups of this module."""
    return [_python(corpus), _accumulator(corpus), _node(corpus)]


def _python(corpus: Corpus) -> Batches:
    cases = {
        "decode": lambda: timed(decode, corpus.chunks, process_time),
        "fold": lambda: timed(decode_and_fold(listen=True), corpus.chunks, process_time),
        "parse": lambda: timed(_parse, corpus.chunks, process_time),
        "parse and fold": lambda: timed(_parse_and_fold(), corpus.chunks, process_time),
    }
    rows = [
        Row("python-decode", "Python SDK's parse / decode", "parse", "decode", Goal(10, "at least")),
        Row("python-fold", "Python SDK's parse and hand fold / fold", "parse and fold", "fold", Goal(5, "at least")),
    ]
    return Batches(lambda size: min(size.lines, len(corpus.chunks)), cases, rows)


def _parse(batch: Sequence[bytes]) -> None:
    """What the SDK's transport and router do with a notification before they call the handler, without asyncio."""
    for line in batch:
        message = json.loads(line.strip())
        if message.get("method") == "session/update":
            SessionNotification.model_validate(message.get("params"))


def _parse_and_fold() -> Eater:
    """The same, and the least that a user of the SDK would write to hold messages of text and tell somebody."""
    messages: dict[tuple[str, str], list[str]] = {}

    def changed(key: tuple[str, str], index: int, text: str) -> None:
        pass

    def eat(batch: Sequence[bytes]) -> None:
        for line in batch:
            message = json.loads(line.strip())
            if message.get("method") != "session/update":
                continue
            update = SessionNotification.model_validate(message.get("params")).update
            if isinstance(update, (AgentMessageChunk, AgentThoughtChunk, UserMessageChunk)):
                key = (update.session_update, update.message_id or "")
                texts = messages.get(key)
                if texts is None:
                    texts = messages[key] = []
                if isinstance(update.content, TextContentBlock):
                    texts.append(update.content.text)
                    changed(key, len(texts) - 1, update.content.text)

    return eat


def _accumulator(corpus: Corpus) -> Batches:
    def accumulate() -> Eater:
        accumulator = SessionAccumulator()

        def eat(batch: Sequence[bytes]) -> None:
            for line in batch:
                accumulator.apply(SessionNotification.model_validate(json.loads(line).get("params")))

        return eat

    cases = {
        "fold": lambda: timed(decode_and_fold(listen=True), corpus.chunks, process_time),
        "accumulate": lambda: timed(accumulate(), corpus.chunks, process_time),
    }
    text = f"Python SDK's parse and own accumulator, {ACCUMULATED} lines / fold"
    row = Row("python-accumulator", text, "accumulate", "fold", Goal(12, "at least"))
    return Batches(lambda _size: ACCUMULATED, cases, [row])


def _node(corpus: Corpus) -> Batches:
    @cache
    def peer() -> subprocess.Popen[str]:
        sdk = node_modules() / "@agentclientprotocol" / "sdk"
        words = [node(), Path(__file__).with_name("sdk.mjs"), sdk, corpus.chunks_path]
        return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def case(name: str) -> Start:
        def start() -> Step:
            process = peer()
            requests, answers = process.stdin, process.stdout
            assert requests is not None
            assert answers is not None

            def step(start: int, stop: int) -> float:
                requests.write(f"{name} {start} {stop}\n")
                requests.flush()
                return int(answers.readline()) / 1e9

            return step

        return start

    cases = {
        "decode": lambda: timed(decode, corpus.chunks, perf_counter),
        "fold": lambda: timed(decode_and_fold(listen=True), corpus.chunks, perf_counter),
        "JSON.parse": case("json"),
        "zod": case("zod"),
    }
    rows = [
        Row("node-decode", "TypeScript SDK's parse / decode", "zod", "decode", Goal(20, "at least")),
        Row("node-fold", "TypeScript SDK's parse / fold", "zod", "fold", Goal(8, "at least")),
        Row("node-json", "Node's JSON.parse / decode", "JSON.parse", "decode"),
    ]
    return Batches(lambda size: min(size.lines, len(corpus.chunks)), cases, rows)
