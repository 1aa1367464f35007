"""Updates made with the models of the official Python SDK, which speaks v1."""

import json
from typing import Any, get_args

import pytest
from acp import helpers as make
from acp import schema as sdk
from acp.utils import serialize_params
from hypothesis import given
from hypothesis import strategies as st

from tests.values import canonical
from tests.wire.introspection import models
from tests.wire.schema import schema
from twofold.jsonrpc import loads
from twofold.wire import UNSET, encode, v1

PNG = "iVBORw0KGgo="
BLOCKS: list[make.ContentBlock] = [
    make.text_block("Zürich \U0001f680 \u2028"),
    make.image_block(PNG, "image/png", uri="file:///a.png"),
    make.audio_block(PNG, "audio/wav"),
    make.resource_link_block("a", "file:///a", mime_type="text/plain", size=3, description="d", title="t"),
    make.resource_block(make.embedded_text_resource("file:///a", "text", mime_type="text/plain")),
    make.resource_block(make.embedded_blob_resource("file:///a", PNG)),
    sdk.TextContentBlock(
        type="text", text="", annotations=sdk.Annotations(audience=["user"], priority=0.5), field_meta={"a": [None]}
    ),
]
PLAN = [make.plan_entry("one"), make.plan_entry("two", priority="high", status="completed")]
OPTIONS = [sdk.SessionConfigSelectOption(value="a", name="A"), sdk.SessionConfigSelectOption(value="b", name="B")]

UPDATES: list[Any] = [
    *map(make.update_user_message, BLOCKS),
    *map(make.update_agent_message, BLOCKS),
    *map(make.update_agent_thought, BLOCKS),
    make.update_agent_message_text(""),
    sdk.AgentMessageChunk(
        session_update="agent_message_chunk", content=BLOCKS[0], message_id="m", field_meta={"a": {"b": 1}}
    ),
    make.start_tool_call("t", "Title"),
    make.start_read_tool_call("t", "Read", "/a"),
    make.start_edit_tool_call("t", "Edit", "/a", {"new": True}),
    make.update_tool_call("t"),
    make.update_tool_call(
        "t",
        title="Title",
        kind="execute",
        status="completed",
        content=[
            make.tool_content(BLOCKS[0]),
            make.tool_diff_content("/a", "new", "old"),
            make.tool_terminal_ref("term"),
        ],
        locations=[sdk.ToolCallLocation(path="/a", line=3)],
        raw_input={"a": [1, 1.5, None, True]},
        raw_output="out",
    ),
    make.update_plan(PLAN),
    make.update_plan([]),
    make.update_available_commands(
        [
            sdk.AvailableCommand(name="plan", description="d"),
            sdk.AvailableCommand(
                name="go", description="d", input=sdk.AvailableCommandInput(sdk.UnstructuredCommandInput(hint="where"))
            ),
        ]
    ),
    make.update_current_mode("code"),
    sdk.SessionInfoUpdate(session_update="session_info_update", title="T", updated_at="2026-06-09T12:00:00Z"),
    sdk.UsageUpdate(session_update="usage_update", used=1, size=2, cost=sdk.Cost(amount=0.1, currency="EUR")),
    sdk.ConfigOptionUpdate(
        session_update="config_option_update",
        config_options=[
            sdk.SessionConfigOptionSelect(id="c", name="n", type="select", current_value="a", options=OPTIONS),
            sdk.SessionConfigOptionSelect(
                id="c",
                name="n",
                type="select",
                current_value="a",
                options=[sdk.SessionConfigSelectGroup(group="g", name="n", options=OPTIONS)],
            ),
            sdk.SessionConfigOptionBoolean(id="b", name="n", type="boolean", current_value=False),
        ],
    ),
]
# The SDK's updates that come from the unstable part of its schema.
UNSTABLE = {"plan_update", "plan_removed"}


def read_back(notification: sdk.SessionNotification) -> v1.SessionNotification:
    """Read what the SDK sends for a notification, and check that it comes out equal with nothing unknown in it."""
    sent = serialize_params(notification)
    line = json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": sent}).encode()
    params = v1.decode_line(line)
    assert params is not None
    assert all(model.extra is UNSET for model in models(params))
    assert canonical(loads(encode(params))) == canonical(sent)
    return params


@pytest.mark.parametrize("update", UPDATES, ids=lambda update: str(update.session_update))
def test_what_the_python_sdk_sends_is_read_without_a_rest(update: Any) -> None:
    params = read_back(make.session_notification("s", update))
    assert params.update.__struct_config__.tag == update.session_update


def test_every_stable_update_of_the_python_sdk_is_among_the_examples() -> None:
    union = sdk.SessionNotification.model_fields["update"].annotation
    kinds = {get_args(one.model_fields["session_update"].annotation)[0] for one in get_args(union)}
    assert kinds - UNSTABLE == {update.session_update for update in UPDATES}
    assert kinds - UNSTABLE <= v1.KINDS


@given(st.data())
def test_generated_updates_pass_through_the_python_sdk(data: st.DataObject) -> None:
    document = data.draw(schema(1).plain_documents)
    if document["update"]["sessionUpdate"] in {update.session_update for update in UPDATES}:
        read_back(sdk.SessionNotification.model_validate(document))


@given(st.data())
def test_the_python_sdk_makes_the_same_of_what_we_write_as_of_what_we_read(data: st.DataObject) -> None:
    document = data.draw(schema(1).plain_documents)
    if document["update"]["sessionUpdate"] in {update.session_update for update in UPDATES}:
        written = encode(v1.read_params(document))
        assert sdk.SessionNotification.model_validate_json(written) == sdk.SessionNotification.model_validate(document)
