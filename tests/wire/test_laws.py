"""What holds for every update: both readers agree, nothing unknown is lost, three states stay three."""

import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import msgspec
import msgspec.inspect as inspect
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.values import anything, canonical, joined, text
from tests.wire.captured import by_kind, captured
from tests.wire.introspection import MODELS, field_names, fields, known_tags, least, models, nullable, smallest
from tests.wire.schema import Version, schema
from twofold.jsonrpc import loads
from twofold.wire import UNSET, Codec, Model, Skipped, encode, to_json, v1, v2
from twofold.wire._model import EXTRA, OTHER, OTHER_FIELDS
from twofold.wire._read import hook, read

MODULES: dict[Version, ModuleType] = {1: v1, 2: v2}
RESERVED = [EXTRA, OTHER, OTHER_FIELDS, f"{OTHER_FIELDS}.kind"]


def agreed(module: ModuleType, line: bytes) -> Any:
    """Read the params of a line every way there is; they must be the same and come out equal."""
    codec: Codec[Any, Any] = module.CODEC
    value = loads(line)["params"]
    raw = json.dumps(value).encode()
    params = codec.read_params(value)
    skipped: list[Skipped] = []
    readings = [
        codec.decode_params(raw),
        codec.read_params(value, skipped=skipped),
        codec.decode_line(line) or params,
    ]
    assert skipped == []
    for one in readings:
        assert one == params
        assert repr(one) == repr(params)  # of the same types, too
    update = codec.read_update(value["update"])
    assert codec.decode_update(json.dumps(value["update"]).encode()) == update == params.update
    assert canonical(loads(encode(params))) == canonical(to_json(params)) == canonical(value)
    assert canonical(loads(encode(update))) == canonical(value["update"])
    return params


def line_of(params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode()


def test_every_captured_update_is_read_alike_by_both_readers_and_comes_out_equal() -> None:
    for module, line in captured():
        agreed(module, line)


def test_the_quick_reader_takes_the_captured_updates_that_hold_nothing_unknown() -> None:
    declined = [line for module, line in captured() if module.decode_line(line) is None]
    assert len(declined) == 18  # claude-agent-acp puts `usage` into its last state_update
    assert all(b'"usage"' in line for line in declined)


@pytest.mark.parametrize("version", [1, 2])
@given(data=st.data())
def test_every_allowed_update_is_read_alike_by_both_readers(version: Version, data: st.DataObject) -> None:
    agreed(MODULES[version], line_of(joined(data.draw(schema(version).documents))))


# U-7: what no model names


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Give every object in a value, itself included."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects(inner)


captured_updates = st.sampled_from(sorted(by_kind())).flatmap(lambda kind: st.sampled_from(by_kind()[kind]))
unknown_tags = st.one_of(st.sampled_from([OTHER, EXTRA, "", "_vendor", "Text"]), text).filter(
    lambda tag: tag not in known_tags()
)
unknown_names = st.one_of(st.sampled_from(["usage", "_vendor", "MessageId", "", *RESERVED]), text).filter(
    lambda name: name not in field_names()
)


@pytest.mark.rule("U-7")
@given(data=st.data(), update=captured_updates, added=st.dictionaries(unknown_names, anything, min_size=1, max_size=3))
def test_unknown_fields_at_any_depth_are_kept(
    data: st.DataObject, update: tuple[ModuleType, bytes], added: dict[str, Any]
) -> None:
    module, line = update
    params = loads(line)["params"]
    for name, value in added.items():
        places = list(objects(params))
        place = places[data.draw(st.integers(0, len(places) - 1))]
        before = data.draw(st.integers(0, len(place)))
        members = list(place.items())
        place.clear()
        place.update([*members[:before], (name, value), *members[before:]])
    agreed(module, line_of(joined(params)))


@pytest.mark.rule("U-7")
@pytest.mark.parametrize(("module", "cls"), MODELS)
@pytest.mark.parametrize("value", [None, True, 1, [], {}, {"type": "text"}])
def test_an_unknown_field_of_any_model_is_an_extra_beside_its_fields(
    module: ModuleType, cls: type[Model], value: Any
) -> None:
    document = {**smallest(cls), "later": value}
    model = read(cls, document)
    assert model.extra == {"later": value}
    assert canonical(loads(encode(model))) == canonical(document)


@pytest.mark.rule("U-7")
def test_true_is_not_one_among_unknown_fields() -> None:
    one, true = (
        v2.decode_update(b'{"sessionUpdate":"agent_message","messageId":"m","later":[' + value + b"]}")
        for value in (b"1", b"true")
    )
    assert one != true
    assert loads(encode(true))["later"] == [True]
    assert loads(encode(true))["later"][0] is True


@pytest.mark.rule("U-7")
@pytest.mark.parametrize("version", [1, 2])
@given(tag=unknown_tags, fields=st.dictionaries(st.one_of(st.sampled_from(sorted(field_names())), text), anything))
@example(tag=OTHER, fields={OTHER_FIELDS: {}, f"{OTHER_FIELDS}.kind": "x"})
@example(tag="_vendor", fields={"messageId": 1, "content": None, "_meta": 7})
def test_an_update_of_an_unknown_kind_is_kept_whatever_it_holds(
    version: Version, tag: str, fields: dict[str, Any]
) -> None:
    module = MODULES[version]
    update = joined({**fields, "sessionUpdate": tag})
    params = agreed(module, line_of({"sessionId": "s", "update": update}))
    assert type(params.update) is module.OtherUpdate
    assert params.update.kind == update.pop("sessionUpdate")
    assert canonical(to_json(params.update.fields)) == canonical(update)


@pytest.mark.rule("U-7")
@given(tag=unknown_tags, fields=st.dictionaries(text, anything))
@example(tag=OTHER, fields={OTHER_FIELDS: {}, f"{OTHER_FIELDS}.kind": "x"})
@example(tag="", fields={"text": 1, "annotations": 1, "_meta": 1})
def test_a_block_of_an_unknown_type_is_kept_wherever_it_stands(tag: str, fields: dict[str, Any]) -> None:
    block = joined({**fields, "type": tag})
    item = {"type": "content", "content": block}
    for update in [
        {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": block},
        {"sessionUpdate": "user_message", "messageId": "m", "content": [block]},
        {"sessionUpdate": "tool_call_content_chunk", "toolCallId": "t", "content": item},
        {"sessionUpdate": "tool_call_update", "toolCallId": "t", "content": [item]},
        {"sessionUpdate": "compaction_update", "compactionId": "c", "status": "?", "summary": [block]},
    ]:
        params = agreed(v2, line_of({"sessionId": "s", "update": update}))
        (kept,) = (one for one in models(params) if isinstance(one, v2.OtherContentBlock))
        assert canonical(to_json(kept)) == canonical(block)


OPEN_WORDS = [
    {"sessionUpdate": "state_update", "state": "sleeping"},
    {"sessionUpdate": "state_update", "state": "idle", "stopReason": "_tired"},
    {"sessionUpdate": "tool_call_update", "toolCallId": "t", "kind": "dream", "status": "asleep"},
    {"sessionUpdate": "plan_update", "plan": {"type": "board", "planId": "p", "columns": []}},
    {
        "sessionUpdate": "plan_update",
        "plan": {"type": "items", "planId": "p", "entries": [{"content": "", "priority": "?", "status": "?"}]},
    },
    {"sessionUpdate": "notice", "severity": "shout", "title": "t"},
    {"sessionUpdate": "tool_call_content_chunk", "toolCallId": "t", "content": {"type": "chart", "terminalId": 1}},
    {
        "sessionUpdate": "tool_call_content_chunk",
        "toolCallId": "t",
        "content": {"type": "diff", "changes": [{"operation": "rename", "path": 1, "fileType": "socket"}]},
    },
    {
        "sessionUpdate": "available_commands_update",
        "availableCommands": [{"type": "form", "name": "", "description": ""}],
    },
    {
        "sessionUpdate": "available_commands_update",
        "availableCommands": [{"type": "command", "name": "", "description": "", "input": {"type": "form"}}],
    },
    {
        "sessionUpdate": "config_option_update",
        "configOptions": [{"type": "slider", "configId": "c", "name": "n", "options": 1}],
    },
    {
        "sessionUpdate": "user_message",
        "messageId": "m",
        "content": [{"type": "text", "text": "", "annotations": {"audience": ["robot"]}}],
    },
]


@pytest.mark.rule("U-7")
@pytest.mark.parametrize("update", OPEN_WORDS, ids=lambda update: str(update["sessionUpdate"]))
def test_unknown_words_and_variants_are_kept(update: dict[str, Any]) -> None:
    params = agreed(v2, line_of({"sessionId": "s", "update": update}))
    assert type(params.update) is not v2.OtherUpdate


@pytest.mark.rule("U-7")
@pytest.mark.parametrize("name", RESERVED)
@pytest.mark.parametrize("value", [None, {}, "x", {"extra": 1}])
def test_names_reserved_inside_are_unknown_fields_like_any_other_when_a_peer_sends_them(name: str, value: Any) -> None:
    params = {
        "sessionId": "s",
        name: value,
        "update": {
            "sessionUpdate": "agent_message",
            "messageId": "m",
            name: value,
            "content": [{"type": OTHER, name: value}],
        },
    }
    update = agreed(v2, line_of(params)).update
    assert update.extra == {name: value}
    assert update.content[0].kind == OTHER


# U-3: three states


def each_optional_field() -> Iterator[Any]:
    for module, cls in MODELS:
        for one in fields(cls):
            if not one.required:
                yield pytest.param(cls, one, id=f"{module.__name__[-2:]}.{cls.__name__}.{one.name}")


@pytest.mark.rule("U-3")
@pytest.mark.parametrize(("cls", "field"), list(each_optional_field()))
def test_omitted_null_and_empty_are_three_states_of_every_optional_field(
    cls: type[Model], field: inspect.Field
) -> None:
    quick = msgspec.json.Decoder(cls, dec_hook=hook)
    empty = least(field.type)
    states = [(None, {field.encode_name: None})] if nullable(field.type) else []
    for held, members in [(UNSET, {}), *states, (empty, {field.encode_name: empty})]:
        document = smallest(cls) | members
        raw = json.dumps(document).encode()
        for model in (quick.decode(raw), read(cls, document)):
            state = getattr(model, field.name)
            if held is UNSET or held is None:
                assert state is held
            else:
                assert state is not UNSET
                assert state is not None
            assert loads(encode(model)) == document
            assert loads(encode(model)).keys() == document.keys()
            assert to_json(model).keys() == document.keys()
    models = [read(cls, smallest(cls) | members) for _, members in [(UNSET, {}), *states]]
    models.append(read(cls, smallest(cls) | {field.encode_name: empty}))
    assert all(one != two for index, one in enumerate(models) for two in models[:index])
