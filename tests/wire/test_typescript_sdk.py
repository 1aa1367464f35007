"""What we write, through the validators of the official TypeScript SDK."""

import json
import subprocess
from typing import Any

import pytest
from hypothesis import Phase, given, settings

from tests.node_tools import HOME, node, node_modules
from tests.values import joined
from tests.wire.captured import captured
from tests.wire.schema import Version, schema
from twofold.jsonrpc import loads
from twofold.wire import encode, v1, v2

DOCUMENTS = 500


def judged(version: Version, written: list[bytes]) -> list[dict[str, Any]]:
    """Let the SDK read params as we wrote them, all in one process."""
    node_modules()
    lines = b"".join(b'{"version":%d,"params":%s}\n' % (version, params) for params in written)
    done = subprocess.run([node(), HOME / "validate.mjs"], input=lines, capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(written)
    return answers


def generated(version: Version) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    @settings(max_examples=DOCUMENTS, phases=[Phase.generate], derandomize=True, database=None)
    @given(schema(version).documents)
    def collect(document: dict[str, Any]) -> None:
        found.append(joined(document))

    collect()
    return found


@pytest.mark.parametrize("version", [1, 2])
def test_the_typescript_sdk_reads_what_we_write_as_it_was_sent(version: Version) -> None:
    module = v1 if version == 1 else v2
    documents = generated(version)
    assert len(documents) == DOCUMENTS
    kinds = {document["update"]["sessionUpdate"] for document in documents}
    assert kinds | _captured_kinds(module) >= module.KINDS
    answers = judged(version, [encode(module.read_params(document)) for document in documents])
    wrong = [
        (document, answer)
        for document, answer in zip(documents, answers, strict=True)
        if not answer.get("equal", False)
    ]
    assert wrong == []


def _captured_kinds(module: Any) -> set[str]:
    return {loads(line)["params"]["update"]["sessionUpdate"] for reader, line in captured() if reader is module}


@pytest.mark.parametrize("version", [1, 2])
def test_the_typescript_sdk_reads_the_captured_updates_as_we_write_them(version: Version) -> None:
    module = v1 if version == 1 else v2
    written = [encode(module.read_params(loads(line)["params"])) for reader, line in captured() if reader is module]
    assert all(answer["ok"] for answer in judged(version, written))
