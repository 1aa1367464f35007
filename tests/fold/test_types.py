"""What a type checker knows of the fold."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import twofold

pytest.importorskip("mypy", reason="the types are checked where the checker is installed")

SOURCE = Path(twofold.__file__).parent

REVEALED = """
from collections.abc import Callable, Iterator, Sequence
from typing import assert_type

from twofold.fold import Change, Message, Plan, Reload, Terminal, ToolCall, Transcript, replay
from twofold.wire import v2


def read(transcript: Transcript, update: v2.SessionUpdate) -> None:
    assert_type(transcript.apply(update), Change)
    assert_type(transcript.messages, Sequence[Message])
    assert_type(transcript.messages[0].content, Sequence[v2.ContentBlock])
    assert_type(transcript.messages[0].content[0], v2.ContentBlock)
    assert_type(transcript.messages[0].content[1:], Sequence[v2.ContentBlock])
    assert_type(transcript.messages[0].text, str)
    assert_type(transcript.message("agent_message", "m1"), Message | None)
    assert_type(transcript.tool_calls, Sequence[ToolCall])
    assert_type(transcript.tool_calls[0].content, Sequence[v2.ToolCallContent])
    assert_type(transcript.tool_calls[0].title, str | None)
    assert_type(transcript.terminals[0].output, bytes)
    assert_type(transcript.plans[0].entries, Sequence[v2.PlanEntry])
    assert_type(transcript.state, v2.StateUpdate | None)
    assert_type(transcript.session_info, v2.SessionInfoUpdate)
    assert_type(transcript.reload(), Reload)
    assert_type(transcript.reload().commit(), Change)
    assert_type(replay(transcript), Iterator[v2.SessionUpdate])
    assert_type(Change.nothing, Change)
    assert_type(transcript.subscribe(print), Callable[[], None])


def mistaken(transcript: Transcript) -> None:
    transcript.messages[0].content.append(v2.TextContent(text=""))  # type: ignore[attr-defined]
    transcript.message("agent", "m1")  # type: ignore[arg-type]
    transcript.apply({"sessionUpdate": "agent_message"})  # type: ignore[arg-type]
    transcript.version == "1"  # type: ignore[comparison-overlap]
"""

NEW_KIND = '''
class Dream(Model, frozen=True, kw_only=True, tag_field="sessionUpdate", tag="agent_dream"):
    """An update of a later revision."""


SessionUpdate: TypeAlias = (
    Dream
'''


OPTIONS = ["--strict", "--no-error-summary", "--config-file=", "-p", "twofold.fold", "-m", "revealed"]


def test_a_new_update_kind_is_a_type_error_until_it_is_folded_and_the_rest_reveals_what_it_should(
    tmp_path: Path,
) -> None:
    copy = tmp_path / "src" / "twofold"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    updates = copy / "wire" / "v2" / "_updates.py"
    union = "SessionUpdate: TypeAlias = (\n"
    assert updates.read_text().count(union) == 1
    updates.write_text(updates.read_text().replace(union, f"{NEW_KIND.lstrip()}    | "))
    (tmp_path / "revealed.py").write_text(REVEALED)

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *OPTIONS, f"--cache-dir={tmp_path / 'cache'}"],
        env={**os.environ, "MYPYPATH": f"{tmp_path / 'src'}{os.pathsep}{tmp_path}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.stderr == ""
    errors = [line for line in checked.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 1, checked.stdout
    assert Path(errors[0].split(":")[0]).name == "_transcript.py"
    assert '"assert_never"' in errors[0]
    assert '"Dream"' in errors[0]
