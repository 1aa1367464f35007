"""The vectors: after each update the whole state and what the change says, in both revisions, each with its source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fold.reference import Reference, equal
from tests.fold.sessions import replayed, typed
from twofold.fold import Change, Compaction, Message, Plan, Revision, Terminal, ToolCall, Transcript
from twofold.wire import same

Json = Any

FILES = sorted((Path(__file__).parent.parent / "vectors" / "fold").glob("*.json"))


VECTORS = {path.stem: json.loads(path.read_text("utf-8")) for path in FILES}
RUNS = [
    pytest.param(vector, revision, id=f"{name}-{revision.value}", marks=pytest.mark.rule(*vector["rules"]))
    for name, vector in VECTORS.items()
    for revision in Revision
]


def summary(change: Change) -> Json:
    """A change in the form that the vectors have."""
    if not change:
        return "nothing"
    said: dict[str, Json] = {"entity": change.entity, "kind": change.kind, "content": change.content}
    match change.target:
        case Message():
            said |= {"type": change.target.type, "id": change.target.message_id}
        case ToolCall():
            said["id"] = change.target.tool_call_id
        case Terminal():
            said["id"] = change.target.terminal_id
        case Plan():
            said["id"] = change.target.plan_id
        case Compaction():
            said["id"] = change.target.compaction_id
    if change.content == "appended":
        said["index"] = change.index
    if change.fields:
        said["fields"] = list(change.fields)
    return said


def state(whole: Json) -> Json:
    """A state in the form that the vectors have: without what is empty."""
    return {name: value for name, value in whole.items() if value not in (None, [])}


@pytest.mark.parametrize(("vector", "revision"), RUNS)
def test_the_state_and_the_change_after_each_update_are_those_of_the_vector(vector: Json, revision: Revision) -> None:
    transcript, reference = Transcript(revision=revision), Reference(revision.value)
    for number, step in enumerate(vector["steps"]):
        expected = {**step, **step.get("preview", {})} if revision is Revision.PREVIEW else step
        change = transcript.apply(typed(step["update"]))
        reference.apply(step["update"])
        assert summary(change) == expected["change"], number
        assert equal(state(transcript.to_json()), expected["transcript"]), number
        assert equal(state(reference.to_json()), expected["transcript"]), "the reference is wrong"
        assert same(replayed(transcript).to_json(), transcript.to_json()), number
        if "text" in step:
            assert transcript.messages[0].text == step["text"], number


def test_every_vector_names_its_source_and_its_rules() -> None:
    assert len(FILES) > 30
    for name, vector in VECTORS.items():
        assert vector.keys() == {"title", "source", "rules", "steps"}, name
        assert all(vector.values()), name
        for step in vector["steps"]:
            assert {"update", "change", "transcript"} <= step.keys(), name
            assert step.keys() <= {"update", "change", "transcript", "text", "preview"}, name
