"""The message rules, as far as they are about reading and writing."""

import hashlib
import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import Case
from twofold.exceptions import Malformed
from twofold.jsonrpc import loads
from twofold.wire import UNSET, Skipped, encode, to_json, v1, v2

WHOLE = ["user_message", "agent_message", "agent_thought"]
CHUNKS = ["user_message_chunk", "agent_message_chunk", "agent_thought_chunk"]
TEXT = {"type": "text", "text": "hello"}


def chunk(kind: str = "agent_message_chunk", **fields: Any) -> dict[str, Any]:
    return {"sessionUpdate": kind, "messageId": "m", "content": TEXT, **fields}


def whole(kind: str = "agent_message", **fields: Any) -> dict[str, Any]:
    return {"sessionUpdate": kind, "messageId": "m", **fields}


def read(update: Any, *, module: ModuleType = v2, skipped: list[Skipped] | None = None) -> Any:
    return module.decode_update(json.dumps(update).encode(), skipped=skipped)


def refusal(update: Any, *, module: ModuleType = v2, skipped: list[Skipped] | None = None) -> Malformed:
    with pytest.raises(Malformed) as caught:
        read(update, module=module, skipped=skipped)
    return caught.value


# U-1, U-2: six kinds, each with an id


@pytest.mark.rule("U-1")
def test_each_of_the_six_kinds_is_a_type_of_its_own() -> None:
    types = {type(read(whole(kind))) for kind in WHOLE} | {type(read(chunk(kind))) for kind in CHUNKS}
    assert types == {
        v2.UserMessage,
        v2.AgentMessage,
        v2.AgentThought,
        v2.UserMessageChunk,
        v2.AgentMessageChunk,
        v2.AgentThoughtChunk,
    }


@pytest.mark.rule("U-2")
@pytest.mark.parametrize("kind", WHOLE + CHUNKS)
@pytest.mark.parametrize(
    ("id", "found"),
    [
        (None, "null"),
        (7, "an integer"),
        (7.5, "a number"),
        (True, "a boolean"),
        (["m"], "an array"),
        ({"id": "m"}, "an object"),
    ],
)
def test_a_message_id_that_is_no_string_is_refused(kind: str, id: Any, found: str) -> None:
    error = refusal(chunk(kind) | {"content": [TEXT] if kind in WHOLE else TEXT, "messageId": id})
    assert str(error) == f"$.messageId: expected a string, found {found}"


@pytest.mark.rule("U-2")
@pytest.mark.parametrize("kind", WHOLE + CHUNKS)
def test_a_message_without_an_id_is_refused(kind: str) -> None:
    update = chunk(kind) | {"content": [TEXT] if kind in WHOLE else TEXT}
    del update["messageId"]
    assert str(refusal(update)) == "$.messageId: expected a required field, found nothing"


@pytest.mark.rule("U-2")
@pytest.mark.parametrize("kind", WHOLE + CHUNKS)
def test_the_empty_message_id_is_legal(kind: str) -> None:
    update = chunk(kind) | {"content": [TEXT] if kind in WHOLE else TEXT, "messageId": ""}
    assert read(update).message_id == ""


def test_a_v1_chunk_may_have_no_id_or_null() -> None:
    update = chunk("agent_message_chunk")
    assert read(update, module=v1).message_id == "m"
    assert read(update | {"messageId": None}, module=v1).message_id is None
    del update["messageId"]
    assert read(update, module=v1).message_id is UNSET


# U-3: patch fields


@pytest.mark.rule("U-3")
@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("content", [..., None, [], [TEXT]])
@pytest.mark.parametrize("meta", [..., None, {}, {"a": 1}])
def test_the_states_of_content_and_meta_survive_reading_and_writing(kind: str, content: Any, meta: Any) -> None:
    update = whole(kind) | ({} if content is ... else {"content": content}) | ({} if meta is ... else {"_meta": meta})
    message = read(update)
    assert (message.content is UNSET, message.content is None) == (content is ..., content is None)
    assert (message.meta is UNSET, message.meta is None) == (meta is ..., meta is None)
    written = loads(encode(message))
    assert written == update
    assert written.keys() == update.keys()


# U-4, U-5: chunks


@pytest.mark.rule("U-4")
@pytest.mark.parametrize("kind", CHUNKS)
@pytest.mark.parametrize(
    ("content", "found"), [(None, "null"), ([TEXT], "an array"), ([], "an array"), ("hello", "a string")]
)
def test_a_chunk_whose_content_is_not_one_block_is_refused(kind: str, content: Any, found: str) -> None:
    assert str(refusal(chunk(kind, content=content))) == f"$.content: expected an object, found {found}"


@pytest.mark.rule("U-4")
@pytest.mark.parametrize("kind", CHUNKS)
@pytest.mark.parametrize("module", [v1, v2])
def test_a_chunk_without_content_is_refused(kind: str, module: ModuleType) -> None:
    update = chunk(kind)
    del update["content"]
    assert str(refusal(update, module=module)) == "$.content: expected a required field, found nothing"


@pytest.mark.rule("U-5")
@pytest.mark.parametrize("module", [v1, v2])
def test_the_meta_of_block_chunk_and_notification_are_three_things(module: ModuleType) -> None:
    update = chunk(content=TEXT | {"_meta": {"of": "block"}}, _meta={"of": "chunk"})
    params = module.read_params({"sessionId": "s", "update": update, "_meta": {"of": "notification"}})
    assert params.meta == {"of": "notification"}
    assert params.update.meta == {"of": "chunk"}
    assert params.update.content.meta == {"of": "block"}
    without = module.read_params({"sessionId": "s", "update": chunk(), "_meta": {"of": "notification"}})
    assert without.update.meta is UNSET


# U-6: strict

BAD_BLOCKS: list[tuple[Any, str, str]] = [
    ({"type": "text"}, ".text", "expected a required field, found nothing"),
    ({"type": "text", "text": None}, ".text", "expected a string, found null"),
    ({"type": "text", "text": "", "annotations": []}, ".annotations", "expected an object, found an array"),
    (
        {"type": "text", "text": "", "annotations": {"audience": ["user", 1]}},
        ".annotations.audience[1]",
        "expected a string, found an integer",
    ),
    ({"type": "image", "data": ""}, ".mimeType", "expected a required field, found nothing"),
    ({"type": "resource", "resource": {"uri": ""}}, ".resource", 'expected "text" or "blob", found neither'),
    ({"type": "resource", "resource": []}, ".resource", "expected an object, found an array"),
    ({"type": "resource", "resource": {"uri": "", "text": 1}}, ".resource.text", "expected a string, found an integer"),
    ({"type": "resource", "resource": {"uri": "", "blob": 1}}, ".resource.blob", "expected a string, found an integer"),
    ({"type": None}, ".type", "expected a string, found null"),
    ({}, ".type", "expected a string, found nothing"),
    ("hello", "", "expected an object, found a string"),
    ("", "", "expected an object, found an empty string"),
    ({"type": "text", "text": "", "_meta": []}, "._meta", "expected an object, found an array"),
]


@pytest.mark.rule("U-6")
@pytest.mark.parametrize(("block", "path", "said"), BAD_BLOCKS)
def test_a_bad_block_is_refused_with_the_path_of_its_fault(block: Any, path: str, said: str) -> None:
    assert str(refusal(whole(content=[TEXT, block]))) == f"$.content[1]{path}: {said}"
    assert str(refusal(chunk(content=block))) == f"$.content{path}: {said}"
    params = json.dumps({"sessionId": "s", "update": whole(content=[TEXT, block])}).encode()
    with pytest.raises(Malformed) as caught:
        v2.decode_params(params)
    assert str(caught.value) == f"$.params.update.content[1]{path}: {said}"
    with pytest.raises(Malformed) as caught:
        v2.decode_params(params, path="$[3].params")
    assert caught.value.path == f"$[3].params.update.content[1]{path}"


@pytest.mark.rule("U-6")
@pytest.mark.parametrize("value", [[], "update", 7, None, True])
def test_what_is_no_object_is_no_update(value: Any) -> None:
    assert refusal(value).path == "$"
    with pytest.raises(Malformed, match=r"^\$\.params: expected an object"):
        v2.read_params(value)
    with pytest.raises(Malformed, match=r"^\$\.params\.update: expected an object"):
        v2.read_params({"sessionId": "s", "update": value})


@pytest.mark.rule("U-6")
def test_an_update_without_a_kind_is_refused() -> None:
    assert str(refusal({"messageId": "m"})) == "$.sessionUpdate: expected a string, found nothing"
    assert str(refusal({"sessionUpdate": 1})) == "$.sessionUpdate: expected a string, found an integer"


@pytest.mark.rule("U-6")
def test_what_the_schema_requires_of_unknown_variants_is_required() -> None:
    plan = {"sessionUpdate": "plan_update", "plan": {"type": "board"}}
    assert str(refusal(plan)) == "$.plan.planId: expected a required field, found nothing"
    command = {"type": "form", "name": "n", "description": None}
    commands = {"sessionUpdate": "available_commands_update", "availableCommands": [command]}
    assert str(refusal(commands)) == "$.availableCommands[0].description: expected a string, found null"
    option = {"type": "slider", "name": "n"}
    options = {"sessionUpdate": "config_option_update", "configOptions": [option]}
    assert str(refusal(options)) == "$.configOptions[0].configId: expected a required field, found nothing"
    change = {"operation": "rename", "mimeType": 1}
    diff = {
        "sessionUpdate": "tool_call_content_chunk",
        "toolCallId": "t",
        "content": {"type": "diff", "changes": [change]},
    }
    assert str(refusal(diff)) == "$.content.changes[0].mimeType: expected a string, found an integer"


@pytest.mark.rule("U-6")
def test_commands_of_the_older_revision_which_had_no_type_are_refused() -> None:
    commands = [{"name": "plan", "description": "Plan first"}]
    update = {"sessionUpdate": "available_commands_update", "availableCommands": commands}
    assert str(refusal(update)) == "$.availableCommands[0].type: expected a string, found nothing"
    assert len(read(update, module=v1).available_commands) == 1


@pytest.mark.rule("U-6")
@pytest.mark.parametrize(
    ("module", "item", "path"),
    [
        (v2, {"groupId": "g", "name": "n", "options": []}, "$.configOptions[0].options[0].options"),
        (v2, {"name": "n", "options": [{"value": "v", "name": "n"}]}, "$.configOptions[0].options[0].groupId"),
        (v2, {"groupId": "g", "name": "n"}, "$.configOptions[0].options[0].options"),
        (v2, {"name": "n"}, "$.configOptions[0].options[0].value"),
        (v2, {"value": 1, "name": "n", "groupId": "g"}, "$.configOptions[0].options[0].value"),
        (v1, {"group": "g", "name": "n"}, "$.configOptions[0].options[0].options"),
        (v1, {"name": "n", "options": []}, "$.configOptions[0].options[0].group"),
        (v1, {"name": "n"}, "$.configOptions[0].options[0].value"),
    ],
)
def test_a_bad_choice_is_refused_as_a_value_or_as_a_group(module: ModuleType, item: Any, path: str) -> None:
    option = {"type": "select", "id": "c", "configId": "c", "name": "n", "currentValue": "v", "options": [item]}
    assert refusal({"sessionUpdate": "config_option_update", "configOptions": [option]}, module=module).path == path


def test_choices_are_values_or_groups_of_values() -> None:
    value = {"value": "v", "name": "n"}
    for module, id, group in [(v1, "id", "group"), (v2, "configId", "groupId")]:
        for choices, type_ in [
            ([value], module.SessionConfigSelectOption),
            ([value | {group: "mine", "options": 1}], module.SessionConfigSelectOption),  # extras of a value
            ([{group: "g", "name": "n", "options": [value]}], module.SessionConfigSelectGroup),
        ]:
            option = {"type": "select", id: "c", "name": "n", "currentValue": "v", "options": choices}
            update = {"sessionUpdate": "config_option_update", "configOptions": [option]}
            held = read(update, module=module)
            assert [type(choice) for choice in held.config_options[0].options] == [type_]
            assert loads(encode(held)) == update


# States


@pytest.mark.rule("U-6")
@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"state": "running", "background": 1}, "$.background"),
        ({"state": "requires_action", "background": [{"type": "terminal"}]}, "$.background[0].terminalId"),
        ({"state": "idle", "stopReason": 1}, "$.stopReason"),
        ({"state": "idle", "stopReason": "error", "error": "no"}, "$.error"),
        ({"state": "idle", "_meta": 1}, "$._meta"),
        ({"state": 1}, "$.state"),
        ({}, "$.state"),
    ],
)
def test_a_known_state_with_a_wrong_shape_is_refused(fields: dict[str, Any], path: str) -> None:
    assert refusal({"sessionUpdate": "state_update", **fields}).path == path


@pytest.mark.rule("U-7")
@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize(
    ("fields", "free"),
    [
        ({"state": "sleeping", "background": 1, "later": 2}, {"background", "later"}),
        ({"state": "sleeping", "background": [{"type": "terminal"}]}, {"background"}),
        ({"state": "sleeping", "stopReason": 1, "error": "no", "_meta": []}, {"stopReason", "error", "_meta"}),
        ({"state": "running", "stopReason": 1, "error": {"code": "x"}}, {"stopReason", "error"}),
        ({"state": "idle", "stopReason": "end_turn", "error": "no"}, {"error"}),
        ({"state": "idle", "error": 1}, {"error"}),
    ],
)
def test_what_a_state_leaves_free_is_kept_as_an_extra_when_it_fits_no_field(
    fields: dict[str, Any], free: set[str], lenient: bool
) -> None:
    update = {"sessionUpdate": "state_update", **fields}
    skipped: list[Skipped] = []
    state = read(update, skipped=skipped if lenient else None)
    assert isinstance(state, v2.StateUpdate)
    assert state.state == fields["state"]
    assert state.extra == {name: fields[name] for name in free}
    assert (state.background, state.stop_reason, state.error) == (
        UNSET,
        fields["stopReason"] if isinstance(fields.get("stopReason"), str) else UNSET,
        UNSET,
    )
    assert loads(encode(state)) == update
    assert skipped == []


# U-6: lenient


@pytest.mark.rule("U-6")
@pytest.mark.parametrize(("block", "path", "said"), [case for case in BAD_BLOCKS if case[1] != "._meta"])
def test_read_leniently_a_bad_block_among_others_is_left_out_and_reported(block: Any, path: str, said: str) -> None:
    skipped: list[Skipped] = []
    message = read(whole(content=[TEXT, block, TEXT]), skipped=skipped)
    if path == ".annotations.audience[1]":  # the one bad role is left out, and no more
        assert [loads(encode(one)) for one in message.content] == [
            TEXT,
            {"type": "text", "text": "", "annotations": {"audience": ["user"]}},
            TEXT,
        ]
    else:
        assert [loads(encode(one)) for one in message.content] == [TEXT, TEXT]
    assert [f"{one}" for one in skipped] == [f"$.content[1]{path}: {said}; skipped"]


@pytest.mark.rule("U-6")
def test_read_leniently_a_bad_meta_is_left_out_and_reported_wherever_it_stands() -> None:
    skipped: list[Skipped] = []
    block = TEXT | {"_meta": "block", "annotations": {"_meta": [1]}}
    params = v2.read_params({"sessionId": "s", "update": whole(content=[block], _meta=0), "_meta": ""}, skipped=skipped)
    assert loads(encode(params)) == {"sessionId": "s", "update": whole(content=[TEXT | {"annotations": {}}])}
    assert sorted(one.path for one in skipped) == [
        "$.params._meta",
        "$.params.update._meta",
        "$.params.update.content[0]._meta",
        "$.params.update.content[0].annotations._meta",
    ]
    assert {one.expected for one in skipped} == {"an object"}


@pytest.mark.rule("U-6")
def test_read_leniently_a_bad_meta_of_an_unknown_variant_is_left_out_where_the_schema_defines_it() -> None:
    skipped: list[Skipped] = []
    option = {"type": "slider", "configId": "c", "name": "n", "_meta": 7, "step": [1]}
    update = read({"sessionUpdate": "config_option_update", "configOptions": [option]}, skipped=skipped)
    assert loads(encode(update))["configOptions"] == [{"type": "slider", "configId": "c", "name": "n", "step": [1]}]
    assert [one.path for one in skipped] == ["$.configOptions[0]._meta"]


@pytest.mark.rule("U-6")
@pytest.mark.parametrize("content", ["hello", 7, {}, {"0": TEXT}, True])
def test_read_leniently_content_that_is_no_array_is_still_refused(content: Any) -> None:
    skipped: list[Skipped] = []
    assert refusal(whole(content=content), skipped=skipped).path == "$.content"
    assert skipped == []


@pytest.mark.rule("U-6")
def test_read_leniently_content_whose_blocks_are_all_bad_is_still_refused() -> None:
    skipped: list[Skipped] = []
    update = whole(content=[{"type": "text", "_meta": 1}, 7], _meta=1)
    assert str(refusal(update, skipped=skipped)) == "$.content[0].text: expected a required field, found nothing"
    assert skipped == []


@pytest.mark.rule("U-6")
def test_read_leniently_what_is_left_out_whole_is_reported_once() -> None:
    skipped: list[Skipped] = []
    bad = {"type": "text", "_meta": 1, "annotations": {"audience": [1, 2], "_meta": 2}, "text": 3}
    worse = {"type": "text", "text": "", "annotations": {"audience": [1, 2]}}
    read(whole(content=[bad, TEXT, worse]), skipped=skipped)
    assert [one.path for one in skipped] == [
        "$.content[0].annotations.audience[0]",
        "$.content[2].annotations.audience[0]",
    ]


@pytest.mark.rule("U-6")
@pytest.mark.parametrize(
    ("update", "path"),
    [
        (whole(messageId=None), "$.messageId"),
        (chunk(content={"type": "text"}), "$.content.text"),
        ({"sessionUpdate": "usage_update", "used": -1, "size": 1}, "$.used"),
        ({"sessionUpdate": "usage_update", "used": 1, "size": 1, "cost": 1}, "$.cost"),
        ({"sessionUpdate": "tool_call_update", "toolCallId": "t", "title": 1}, "$.title"),
        ({"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": "p"}}, "$.plan.entries"),
        ({"sessionUpdate": "session_info_update", "title": 7}, "$.title"),
        ({"sessionUpdate": "notice", "severity": "info", "title": ""}, "$.title"),
        (
            {"sessionUpdate": "terminal_update", "terminalId": "t", "size": {"cols": 0, "rows": 65536}},
            "$.size.cols",
        ),
    ],
)
def test_read_leniently_any_other_bad_field_is_still_refused(update: dict[str, Any], path: str) -> None:
    skipped: list[Skipped] = []
    assert refusal(update, skipped=skipped).path == refusal(update).path == path
    assert skipped == []


@pytest.mark.rule("U-6")
def test_read_leniently_a_good_update_reports_nothing() -> None:
    skipped: list[Skipped] = []
    assert read(whole(content=[TEXT], later=1), skipped=skipped) == read(whole(content=[TEXT], later=1))
    assert skipped == []


@pytest.mark.rule("U-6")
def test_what_was_left_out_is_noted_behind_what_was_noted_before() -> None:
    skipped = [Skipped("$.earlier", "a", "b")]
    read(whole(content=[TEXT, 1]), skipped=skipped)
    assert [one.path for one in skipped] == ["$.earlier", "$.content[1]"]


def test_a_prompt_is_read_as_content_blocks() -> None:
    blocks = v2.read_content([TEXT, {"type": "later", "a": 1}], path="$.params.prompt")
    assert [type(block) for block in blocks] == [v2.TextContent, v2.OtherContentBlock]
    with pytest.raises(Malformed, match=r"^\$\.params\.prompt\[0\]\.text: expected a required field, found nothing$"):
        v2.read_content([{"type": "text"}], path="$.params.prompt")


# U-8: half characters


@pytest.mark.rule("U-8")
def test_half_characters_are_kept_as_sent(case: Callable[[str], Case]) -> None:
    lines, expect = case("28-journal-half-characters")
    updates = []
    for line in lines:
        params = v2.decode_line(line) or v2.decode_params(json.dumps(json.loads(line)["params"]).encode())
        assert loads(encode(params)) == json.loads(line)["params"]
        assert isinstance(params.update, v2.AgentMessageChunk)
        updates.append(params.update)
    assert len(updates) == expect["records"]
    written = [json.dumps(json.loads(encode(one.content)), separators=(",", ":")) for one in updates[:2]]
    assert written == expect["sensible"]["messageE1BlocksAsJsonText"]
    assert b"\\ud83d" in encode(updates[0])
    assert [loads(encode(one.content)) for one in updates[2:]] == expect["messageE2"]["content"]


@pytest.mark.rule("U-8")
@pytest.mark.parametrize("module", [v1, v2])
def test_half_characters_are_kept_in_ids_names_and_words_too(module: ModuleType) -> None:
    half = "\ud83d"
    update = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": half,
        "kind": half,
        half: {half: [half]},
        "rawInput": {half: half},
        "_meta": {half: half},
    }
    params = module.read_params({"sessionId": half, "update": update})
    assert params.update.tool_call_id == half
    assert loads(encode(params)) == {"sessionId": half, "update": update}
    assert encode(params).isascii()


# Lines


def test_wide_lines_are_read_quickly_and_whole(case: Callable[[str], Case]) -> None:
    lines, expect = case("19-wide-lines")
    params = [v2.decode_line(line) for line in lines]
    assert [one and type(one.update) for one in params] == [
        v2.AgentMessageChunk,
        v2.AgentMessageChunk,
        v2.AgentMessage,
        v2.AgentMessageChunk,
    ]
    (image,) = json.loads(lines[2])["params"]["update"]["content"]
    assert to_json(params[2])["update"]["content"] == [image]
    digest = expect["sessionsByDigest"]["s-1"][1]
    assert len(image["data"]) == digest["imageDataLength"]
    assert hashlib.sha256(image["data"].encode()).hexdigest() == digest["imageDataSha256"]


def test_newer_kinds_of_update_are_read(case: Callable[[str], Case]) -> None:
    lines, _ = case("17-newer-update-kinds")
    for line in lines:
        message = json.loads(line)
        if message.get("method") == "session/update":
            params = v2.decode_line(line) or v2.read_params(message["params"])
            assert loads(encode(params)) == message["params"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"session/update","params":%s}',
        b'{"jsonrpc":"2.0","method":"session/updates","params":%s}',
        b'{"jsonrpc":"1.0","method":"session/update","params":%s}',
        b'{"method":"session/update","params":%s}',
        b'{"jsonrpc":"2.0","method":"session/update","params":%s,"later":1}',
        b'{"jsonrpc":"2.0","method":"session/update","params":[%s]}',
        b'[{"jsonrpc":"2.0","method":"session/update","params":%s}]',
        b'{"jsonrpc":"2.0","method":"session/update","params":%s} 1',
        b'\xef\xbb\xbf{"jsonrpc":"2.0","method":"session/update","params":%s}',
    ],
)
def test_the_quick_reader_declines_every_other_line_without_a_verdict(line: bytes) -> None:
    params = json.dumps({"sessionId": "s", "update": chunk()}).encode()
    assert v2.decode_line(line.replace(b"%s", params)) is None
    assert v1.decode_line(line.replace(b"%s", params)) is None
