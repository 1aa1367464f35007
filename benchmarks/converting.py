"""Rows in this process, CPU time: what converting to v1 adds to decoding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from time import process_time
from typing import Final

from benchmarks.corpus import Corpus
from benchmarks.decoding import Eater, decode, read_in_full
from benchmarks.measure import Batches, Goal, Row, timed
from twofold.convert import Downgrader
from twofold.wire import v1, v2

__all__ = ["groups"]

LINES: Final = 40_000


def groups(corpus: Corpus) -> list[Batches]:
    """Give the groups of this module."""

    @cache
    def others() -> list[bytes]:
        chunks = set(corpus.chunks)
        return [line for line in corpus.lines if line not in chunks][:LINES]

    def unchanged_cases(policy: str) -> Eater:
        converter = Downgrader(policy=policy)

        def eat(batch: Sequence[bytes]) -> None:
            quick, convert = v2.decode_line, converter.update
            for line in batch:
                params = quick(line) or read_in_full(line)
                if not convert(params.update).unchanged:
                    raise AssertionError("a chunk was to pass as it is")

        return eat

    def encoded(policy: str) -> Eater:
        converter = Downgrader(policy=policy)

        def eat(batch: Sequence[bytes]) -> None:
            quick, convert, encode = v2.decode_line, converter.update, v1.encode
            for line in batch:
                params = quick(line) or read_in_full(line)
                for update in convert(params.update).updates:
                    encode(v1.SessionNotification(session_id=params.session_id, update=update))

        return eat

    passing = Batches(
        lambda size: min(size.lines, LINES),
        {
            "decode": lambda: timed(decode, corpus.chunks[:LINES], process_time),
            "strict": lambda: timed(unchanged_cases("strict"), corpus.chunks[:LINES], process_time),
            "mark": lambda: timed(unchanged_cases("mark"), corpus.chunks[:LINES], process_time),
        },
        [
            Row("convert-strict", "decode and v2 → v1, passing unchanged / decode", "strict", "decode", Goal(2.0)),
            Row("convert-mark", "the same under the policy mark / decode", "mark", "decode", Goal(2.0)),
        ],
    )
    encoding = Batches(
        lambda size: min(size.lines, LINES),
        {
            "decode": lambda: timed(decode, corpus.chunks[:LINES], process_time),
            "encoded": lambda: timed(encoded("mark"), corpus.chunks[:LINES], process_time),
        },
        [Row("convert-encode", "decode, v2 → v1 and encode, text chunks / decode", "encoded", "decode", Goal(3.0))],
    )
    rest = Batches(
        lambda size: min(size.lines, len(others())),
        {
            "decode": lambda: timed(decode, others(), process_time),
            "encoded": lambda: timed(encoded("mark"), others(), process_time),
        },
        [Row("convert-rest", "the same, all other updates of the corpus / decode", "encoded", "decode")],
    )
    return [passing, encoding, rest]
