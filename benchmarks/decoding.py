"""Rows in this process, CPU time: decoding, folding and encoding beside orjson."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from time import process_time
from typing import Any, Final, TypeAlias

import msgspec
import orjson

from benchmarks.corpus import Corpus
from benchmarks.measure import Batches, Goal, Row, Start, Step, timed
from twofold.exceptions import Malformed
from twofold.fold import Change, Transcript
from twofold.jsonrpc import Notification, parse
from twofold.wire import v2

__all__ = ["Eater", "decode", "decode_and_fold", "groups", "read_in_full"]

Eater: TypeAlias = Callable[[Sequence[bytes]], object]

SLOW_LINES: Final = 20_000
ENCODED_LINES: Final = 20_000


def read_in_full(line: bytes) -> v2.UpdateSessionNotification:
    """Read what the quick decoder declined, as every reader of lines does."""
    frame = parse(line)
    assert isinstance(frame, Notification)
    assert isinstance(frame.params, msgspec.Raw)
    return v2.decode_params(bytes(frame.params))


def decode(batch: Sequence[bytes]) -> None:
    """Decode lines to typed updates, nothing lost."""
    quick = v2.decode_line
    for line in batch:
        if quick(line) is None:
            read_in_full(line)


def decode_and_fold(*, listen: bool) -> Eater:
    """Make the function that decodes lines and folds them into one transcript, which it keeps."""
    transcript = Transcript()
    if listen:
        transcript.subscribe(_listener)

    def eat(batch: Sequence[bytes]) -> None:
        quick, apply = v2.decode_line, transcript.apply
        for line in batch:
            params = quick(line)
            if params is None:
                params = read_in_full(line)
            apply(params.update)

    return eat


def _listener(_change: Change) -> None:
    pass


def _each(function: Callable[[bytes], object]) -> Eater:
    def eat(batch: Sequence[bytes]) -> None:
        for line in batch:
            function(line)

    return eat


def groups(corpus: Corpus) -> list[Batches]:
    """Give the groups of this module."""
    return [*_corpus(corpus), *_slow(corpus), _encode(corpus)]


def _corpus(corpus: Corpus) -> list[Batches]:
    def case(make: Callable[[], Eater]) -> Start:
        return lambda: timed(make(), corpus.lines, process_time)

    cases = {
        "orjson": case(lambda: _each(orjson.loads)),
        "decode": case(lambda: decode),
        "fold": case(lambda: decode_and_fold(listen=True)),
        "fold, nobody listens": case(lambda: decode_and_fold(listen=False)),
        "json": case(lambda: _each(json.loads)),
        "msgspec": case(lambda: _each(msgspec.json.Decoder().decode)),
    }
    goals = [
        Row("decode", "decode / orjson.loads", "decode", "orjson", Goal(1.0)),
        Row("fold", "fold / orjson.loads", "fold", "orjson", Goal(2.0)),
    ]
    others = [
        Row("fold-unheard", "fold without a listener / orjson.loads", "fold, nobody listens", "orjson"),
        Row("json", "json.loads / orjson.loads", "json", "orjson"),
        Row("msgspec", "msgspec, untyped / orjson.loads", "msgspec", "orjson"),
    ]
    return [Batches(lambda size: min(size.lines, len(corpus.lines)), cases, rows) for rows in (goals, others)]


def _slow(corpus: Corpus) -> list[Batches]:
    def with_unknown_tag(line: bytes) -> bytes:
        return line.replace(b'"sessionUpdate":"', b'"sessionUpdate":"_example.com/', 1)

    def with_unknown_block(line: bytes) -> bytes:
        return line.replace(b'"content":{"type":"', b'"content":{"type":"_example.com/', 1)

    def with_extra_field(line: bytes) -> bytes:
        return line[: -len(b"}}}")] + b',"sequence":7}}}'

    def malformed(line: bytes) -> bytes:
        return line[: line.rindex(b'"messageId":')] + b'"messageId":7}}}'

    def refuse(batch: Sequence[bytes]) -> None:
        quick = v2.decode_line
        for line in batch:
            if quick(line) is None:
                try:
                    read_in_full(line)
                except Malformed:
                    continue
            raise AssertionError("a malformed line was taken")

    def group(name: str, text: str, change: Callable[[bytes], bytes], eat: Eater) -> Batches:
        @cache
        def lines() -> list[bytes]:
            return [change(line) for line in corpus.chunks[:SLOW_LINES]]

        cases = {
            "orjson": lambda: timed(_each(orjson.loads), lines(), process_time),
            "decode": lambda: timed(eat, lines(), process_time),
        }
        row = Row(name, f"{text} / orjson.loads", "decode", "orjson")
        return Batches(lambda size: min(size.lines, SLOW_LINES), cases, [row])

    return [
        group("slow-tag", "decode, all kinds unknown", with_unknown_tag, decode),
        group("slow-block", "decode, all blocks unknown", with_unknown_block, decode),
        group("slow-field", "decode, unknown field in all", with_extra_field, decode),
        group("slow-malformed", "decode, all malformed", malformed, refuse),
    ]


def _encode(corpus: Corpus) -> Batches:
    def each(function: Callable[[Any], bytes], values: Sequence[Any]) -> Step:
        def step(start: int, stop: int) -> float:
            batch = values[start:stop]
            before = process_time()
            for value in batch:
                function(value)
            return process_time() - before

        return step

    @cache
    def lines() -> list[bytes]:
        return corpus.lines[:: len(corpus.lines) // ENCODED_LINES][:ENCODED_LINES]

    cases = {
        "orjson": lambda: each(orjson.dumps, [orjson.loads(line)["params"] for line in lines()]),
        "encode": lambda: each(v2.encode, [v2.decode_line(line) or read_in_full(line) for line in lines()]),
    }
    row = Row("encode", "encode / orjson.dumps", "encode", "orjson")
    return Batches(lambda size: min(size.lines, ENCODED_LINES), cases, [row])
