from typing import get_args

from tests.wire import typing_cases
from tests.wire.introspection import smallest
from twofold.wire import Other, v1, v2


def test_the_cases_name_every_update() -> None:
    for cls in get_args(v2.SessionUpdate):
        document = {"sessionUpdate": "later"} if issubclass(cls, Other) else smallest(cls)
        assert typing_cases.every_update_is_one_of_these(v2.read_update(document)) == cls.__name__
    for cls in get_args(v1.SessionUpdate):
        document = {"sessionUpdate": "later"} if issubclass(cls, Other) else smallest(cls)
        assert typing_cases.every_v1_update_is_one_of_these(v1.read_update(document)) == cls.__name__


def test_the_cases_name_every_block() -> None:
    for cls in get_args(v2.ContentBlock):
        document = {"type": "later"} if issubclass(cls, Other) else smallest(cls)
        content = v2.read_content([document])
        assert typing_cases.every_block_is_one_of_these(content[0]) == ("later" if issubclass(cls, Other) else "")


def test_the_cases_tell_three_states_apart() -> None:
    for message, found in [
        (v2.AgentMessage(message_id="m"), -1),
        (v2.AgentMessage(message_id="m", content=None), 0),
        (v2.AgentMessage(message_id="m", content=[]), 0),
    ]:
        assert typing_cases.three_states_narrow_by_identity(message) == found


def test_the_cases_read_lines() -> None:
    params = b'{"sessionId":"s","update":{"sessionUpdate":"agent_message","messageId":"m"}}'
    line = b'{"jsonrpc":"2.0","method":"session/update","params":' + params + b"}"
    assert typing_cases.readers_give_the_types_of_their_version(line) == params
    assert typing_cases.every_line_is_one_of_these(line) == "session/update"
