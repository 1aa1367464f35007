"""What ``check`` finds that a fold tolerates."""

import json
from typing import Any

import pytest

from twofold.capture import Checker, Version
from twofold.examples import harbour


def findings(*updates: dict[str, Any], version: Version | None = None) -> list[tuple[int, str]]:
    checker = Checker(version=version)
    lines = [json.dumps(update).encode() for update in updates]
    return [(problem.line, problem.path) for problem in checker.feed(lines)]


def text(message_id: str) -> dict[str, Any]:
    return {"sessionUpdate": "agent_message_chunk", "messageId": message_id, "content": {"type": "text", "text": "x"}}


TOOL = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "title": "Read"}


def test_good_traffic_has_no_findings() -> None:
    assert list(Checker().feed(harbour().splitlines())) == []


@pytest.mark.parametrize("message_id", ["", " ", " m", "m\n", "a\u0000", "x" * 1025])
def test_a_malformed_id_is_found(message_id: str) -> None:
    assert findings(text(message_id)) == [(1, "$.messageId")]


def test_a_first_tool_call_without_a_title_is_found_once() -> None:
    bare = {"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": "pending"}
    assert findings(bare, bare) == [(1, "$")]
    assert findings({**bare, "title": ""}) == [(1, "$")]
    assert findings(TOOL, bare) == []


@pytest.mark.parametrize(
    ("update", "path"),
    [
        ({"sessionUpdate": "future_kind"}, "$.sessionUpdate"),
        ({**text("m"), "content": {"type": "hologram"}}, "$.content.type"),
        ({**TOOL, "content": [{"type": "chart"}]}, "$.content[0].type"),
        ({**TOOL, "kind": "dance"}, "$.kind"),
        ({**TOOL, "status": "started"}, "$.status"),
        ({"sessionUpdate": "state_update", "state": "dreaming"}, "$.state"),
        ({"sessionUpdate": "plan_update", "plan": {"type": "tree", "planId": "p"}}, "$.plan.type"),
    ],
)
def test_an_unknown_word_without_an_underscore_is_found_and_one_with_is_not(update: dict[str, Any], path: str) -> None:
    assert findings(update) == [(1, path)]
    custom = json.loads(json.dumps(update).replace('"future_kind"', '"_x"'))
    for word in ("hologram", "chart", "dance", "started", "dreaming", "tree"):
        custom = json.loads(json.dumps(custom).replace(f'"{word}"', f'"_{word}"'))
    assert findings(custom) == []


@pytest.mark.parametrize(
    ("update", "path"),
    [
        ({**TOOL, "locations": [{"path": "a.txt"}]}, "$.locations[0].path"),
        (
            {**TOOL, "content": [{"type": "diff", "changes": [{"operation": "move", "path": "/a", "oldPath": "b"}]}]},
            "$.content[0].changes[0].oldPath",
        ),
        ({"sessionUpdate": "terminal_update", "terminalId": "x", "cwd": "./here"}, "$.cwd"),
    ],
)
def test_a_relative_path_is_found(update: dict[str, Any], path: str) -> None:
    assert findings(update) == [(1, path)]


@pytest.mark.parametrize("path", ["/a", "C:\\a", "c:/a", "\\\\host\\share"])
def test_absolute_paths_of_every_system_are_fine(path: str) -> None:
    assert findings({**TOOL, "locations": [{"path": path}]}) == []


@pytest.mark.parametrize(
    ("update", "path"),
    [
        ({**text("m"), "content": {"type": "image", "data": "?", "mimeType": "image/png"}}, "$.content.data"),
        (
            {**text("m"), "content": {"type": "resource", "resource": {"uri": "file:///a", "blob": "a"}}},
            "$.content.resource.blob",
        ),
        ({"sessionUpdate": "terminal_output_chunk", "terminalId": "x", "data": "abc"}, "$.data"),
        ({"sessionUpdate": "terminal_update", "terminalId": "x", "output": {"data": "a b"}}, "$.output.data"),
    ],
)
def test_invalid_base64_is_found(update: dict[str, Any], path: str) -> None:
    assert findings(update) == [(1, path)]


def test_a_terminal_id_that_is_used_again_is_found() -> None:
    first = {"sessionUpdate": "terminal_update", "terminalId": "x", "command": "ls"}
    ended = {"sessionUpdate": "terminal_update", "terminalId": "x", "exitStatus": {"exitCode": 0}}
    again = {"sessionUpdate": "terminal_update", "terminalId": "x", "command": "pwd"}
    assert findings(first, ended, first) == []
    assert findings(first, again) == []
    assert findings(first, ended, again) == [(3, "$.terminalId")]


def test_in_v1_an_update_of_a_tool_call_that_was_never_created_is_found() -> None:
    created = {"sessionUpdate": "tool_call", "toolCallId": "t", "title": "Read"}
    assert findings(TOOL, TOOL, version=1) == [(1, "$")]
    assert findings(created, TOOL, version=1) == []
    assert findings({**created, "status": "paused"}, version=1) == [(1, "$.status")]


def test_a_batch_and_a_reused_request_id_are_found() -> None:
    ask = {"jsonrpc": "2.0", "id": 1, "method": "session/prompt", "params": {}}
    checker = Checker()
    found = [problem.path for problem in checker.feed([json.dumps(one).encode() for one in ([ask], ask)])]
    assert found == ["$", "$.id"]


def test_what_a_fold_refuses_is_found_too() -> None:
    assert findings({"sessionUpdate": "agent_message"}) == [(1, "$.messageId")]
    assert [problem.line for problem in Checker().feed([b"{", b""])] == [1]


@pytest.mark.rule("J-7")
def test_findings_say_nothing_of_the_content() -> None:
    update = {"sessionUpdate": "SECRET", "x": "SECRET"}
    image = {**text("SECRET "), "content": {"type": "image", "data": "SECRET?", "mimeType": "SECRET"}}
    location = {**TOOL, "locations": [{"path": "SECRET"}], "status": "SECRET"}
    lines = [json.dumps(one).encode() for one in (update, image, location)]
    found = [str(problem) for problem in Checker().feed(lines)]
    assert len(found) == 5
    assert "SECRET" not in "".join(found)
