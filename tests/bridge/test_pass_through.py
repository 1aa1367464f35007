"""The same version on both sides: every byte passes as it came, and the journal watches."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bridge.ends import BOTH, CWD, V1, V2, bridged, puppet, script, text
from tests.runtime.talk import run
from twofold.journal import open_journal

VERSIONS = pytest.mark.parametrize("version", [1, 2])
JOURNALS = pytest.mark.parametrize("with_journal", [False, True], ids=["bare", "with a journal"])

FROM_CLIENT = [
    b'{"jsonrpc":"2.0","id":"a","method":"session/new","params":{"cwd":"/","mcpServers":[]}}\n',
    b'  { "jsonrpc" : "2.0" ,\t"method": "_vendor/ping", "params": {"_meta": {"x": 1e2}} }  \r\n',
    b'{"params":{"name":"caf\\u00e9 caf\xc3\xa9 \\ud800"},"method":"unknown/notification","jsonrpc":"2.0"}\n',
    b"\n",
    b"\r\n",
    b"no JSON at all\n",
    b'[{"jsonrpc":"2.0","method":"_batched"},{"jsonrpc":"2.0","method":"_too"}]\n',
    b'{"jsonrpc":"2.0","method":"_long","params":{"text":"' + b"x" * 3_000_000 + b'"}}\n',
    b'{"jsonrpc":"2.0","method":"_n","params":{"n":12345678901234567890.10,"d":1.0,"d":2}}\n',
]
FROM_AGENT = (
    '{"method": "session/update" , "params":{"update":{"content":{"text":"\\u00e9","type":"text","extra":[1.50]},'
    '"messageId":"m","sessionUpdate":"agent_message_chunk"},"sessionId":"s","_meta":{"k":null}},"jsonrpc":"2.0"}\r\n'
    "\n"
    "garbage between the lines\n"
    '{"jsonrpc":"2.0","method":"_vendor/notice","params":{"_meta":{"a":[]}}}\n'
    '{ "jsonrpc":"2.0", "id":"mine", "method":"_vendor/ask", "params": [1 , 2] }\n'
    '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"new_kind"}}}\n'
    '[{"jsonrpc":"2.0","method":"_batched"}]\n'
    '{"jsonrpc":"2.0","method":"_long","params":{"text":"' + "y" * 300_000 + '"}}\n'
)


def initialize(version: int) -> bytes:
    info = '"clientInfo"' if version == 1 else '"info"'
    return b'{"jsonrpc": "2.0", "id" : 0, "method":"initialize","params":{"protocolVersion":%d,%b:%b}}\n' % (
        version,
        info.encode(),
        b'{"name":"t","version":"0"}',
    )


def prompt(id: str, steps: str) -> bytes:
    params = {"sessionId": "s", "prompt": [text(steps)]}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": params}).encode() + b"\n"


@VERSIONS
@JOURNALS
def test_every_byte_of_the_client_reaches_the_agent(version: int, with_journal: bool, tmp_path: Path) -> None:
    heard = tmp_path / "heard"

    async def main() -> None:
        journal = tmp_path / "journal" if with_journal else None
        async with bridged(puppet(BOTH, heard=heard), journal=journal) as ends:
            ends.stream.send_raw(initialize(version))
            for line in FROM_CLIENT:
                ends.stream.send_raw(line)
                await ends.stream.drain()
            assert await ends.finish(), ends.bridge.failure

    run(main())
    assert heard.read_bytes() == initialize(version) + b"".join(FROM_CLIENT)


@VERSIONS
@JOURNALS
def test_every_byte_of_the_agent_reaches_the_client(version: int, with_journal: bool, tmp_path: Path) -> None:
    async def main() -> bytes:
        journal = tmp_path / "journal" if with_journal else None
        async with bridged(puppet(BOTH), journal=journal) as ends:
            ends.stream.send_raw(initialize(version))
            ends.stream.send_raw(FROM_CLIENT[0])
            ends.stream.send_raw(prompt("p", script({"raw": FROM_AGENT}, {"answer": {"x": 1}}, {"raw": "no newline"})))
            ends.stream.send_raw(b'{"jsonrpc":"2.0","id":"mine","result":null}\n')
            ends.stream.end()
            return await ends.read_all()

    said = run(main())
    first = {"jsonrpc": "2.0", "id": 0, "result": BOTH[str(version)]}
    new = {"jsonrpc": "2.0", "id": "a", "result": {"sessionId": "s"}}
    answer = {"jsonrpc": "2.0", "id": "p", "result": {"x": 1}}
    before = b"".join(json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in (first, new))
    after = json.dumps(answer, separators=(",", ":")).encode() + b"\nno newline"
    assert said == before + FROM_AGENT.encode("latin-1") + after


@VERSIONS
def test_lines_over_the_limit_pass_too_and_are_not_looked_at(version: int, tmp_path: Path) -> None:
    heard, limit = tmp_path / "heard", 4_000
    long = b'{"jsonrpc":"2.0","id":7,"method":"_long","params":{"text":"' + b"x" * 100_000 + b'"}}\n'

    async def main() -> bytes:
        command = puppet(BOTH, heard=heard)
        async with bridged(command, journal=tmp_path / "journal", line_limit=limit) as ends:
            ends.stream.send_raw(initialize(version))
            ends.stream.send_raw(FROM_CLIENT[0] + long)
            ends.stream.send_raw(prompt("p", script({"raw": "y" * 50_000 + "\n"}, {"answer": {}})))
            ends.stream.end()
            return await ends.read_all()

    said = run(main())
    assert long in heard.read_bytes()
    assert b"y" * 50_000 + b"\n" in said
    assert said.endswith(b'"id":"p","result":{}}\n')


@VERSIONS
def test_what_is_garbage_is_reported_by_its_size_and_never_by_what_it_says(version: int) -> None:
    async def main() -> None:
        async with bridged(puppet(BOTH), version=version) as ends:
            session = await ends.talk.new_session()
            ends.stream.send_raw(prompt("p", script({"raw": "a secret\n"}, {"answer": {}})))
            assert session == "s"
            assert await ends.read_line() == b"a secret\n"
            assert await ends.finish()
            assert ends.reported("garbage") == [{"bytes": 9}]
            assert "secret" not in str(ends.reports)

    run(main())


# Which version is spoken

REFUSES_2 = {"1": V1, "2": -32022}
REFUSES_1 = {"1": -32602, "2": V2}
ENDS_AT_1 = {"1": "exit 3", "2": V2}
ENDS_AT_2 = {"1": V1, "2": "exit 3"}
ANSWERS_1 = {"1": V1, "2": V1}
ANSWERS_2 = {"1": V2, "2": V2}
CLAIMS_2 = {"1": V1, "2": {"protocolVersion": 2, "agentCapabilities": {}}}


@pytest.mark.parametrize(
    ("asked", "versions", "spoken", "starts"),
    [
        (1, BOTH, 1, 1),
        (2, BOTH, 2, 1),
        (7, BOTH, 2, 1),
        (1, REFUSES_1, 2, 2),
        (1, ENDS_AT_1, 2, 2),
        (1, ANSWERS_2, 2, 2),
        (2, ANSWERS_1, 1, 1),
        (2, REFUSES_2, 1, 2),
        (2, ENDS_AT_2, 1, 2),
        (2, CLAIMS_2, 1, 2),
    ],
)
def test_the_agent_is_asked_for_the_clients_version_and_then_for_the_other(
    asked: int, versions: Any, spoken: int, starts: int
) -> None:
    async def main() -> None:
        async with bridged(puppet(versions if asked != 7 else {**versions, "7": V2})) as ends:
            answer = await ends.talk.initialize(asked)
            assert answer["protocolVersion"] == min(asked, 2)
            assert ends.reported("versions") == [{"client": min(asked, 2), "agent": spoken}]
            assert len([one for one in ends.reported("agent") if "pid" in one]) == starts
            assert await ends.talk.new_session() == "s"

    run(main())


@pytest.mark.parametrize(("forced", "asked"), [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_the_agent_is_asked_for_the_version_that_the_user_names(forced: int, asked: int, tmp_path: Path) -> None:
    heard = tmp_path / "heard"

    async def main() -> None:
        async with bridged(puppet(BOTH, heard=heard), agent_version=forced) as ends:
            assert (await ends.talk.initialize(asked))["protocolVersion"] == asked
            assert await ends.talk.new_session() == "s"

    run(main())
    assert json.loads(heard.read_bytes().split(b"\n")[0])["params"]["protocolVersion"] == forced


@pytest.mark.parametrize(
    ("asked", "versions", "options", "words"),
    [
        (1, {"1": -32022, "2": -32022}, {}, "was asked for protocol version 2, and answered an error (-32022)"),
        (2, {"1": {"hello": 1}, "2": {"hello": 1}}, {}, "protocol version 1, and answered something else"),
        (2, REFUSES_2, {"agent_version": 2}, "protocol version 2, and answered an error (-32022)"),
        (1, ANSWERS_2, {"agent_version": 1}, "protocol version 1, and answered something else"),
        (2, {"1": "exit 3", "2": "exit 3"}, {}, "ended with status 3"),
        (1, ENDS_AT_1, {"agent_version": 1}, "ended with status 3"),
    ],
)
def test_a_client_whose_agent_speaks_neither_version_is_told_why(
    asked: int, versions: Any, options: Any, words: str
) -> None:
    async def main() -> None:
        async with bridged(puppet(versions), **options) as ends:
            error = await ends.talk.error(ends.talk.request("initialize", {"protocolVersion": asked}))
            assert error["code"] == -32603
            assert words in error["data"]["reason"]
            assert not await ends.running
            assert ends.bridge.failure == error["data"]["reason"]

    run(main())


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({}, -32602),
        ({"protocolVersion": "1"}, -32602),
        ({"protocolVersion": True}, -32602),
        ([], -32602),
        ({"protocolVersion": 0}, -32022),
    ],
)
def test_a_client_that_says_initialize_wrongly_is_told_so(params: Any, code: int) -> None:
    async def main() -> None:
        async with bridged(puppet(BOTH)) as ends:
            ends.talk.send(id=1, method="initialize", params=params)
            assert (await ends.talk.error(1))["code"] == code
            assert not await ends.running

    run(main())


def test_what_comes_before_initialize_is_refused_and_initialize_is_still_to_come() -> None:
    async def main() -> None:
        async with bridged(puppet(BOTH)) as ends:
            ends.stream.send_raw(b'\n\r\n{"jsonrpc":"2.0","id":1,"method":"session/new"}\nno JSON\n[]\n')
            ends.stream.send_raw(b'{"jsonrpc":"2.0","id":2}\n{"jsonrpc":"2.0","method":"_x"}\n')
            errors = [await ends.talk.next() for _ in range(4)]
            assert [(one["id"], one["error"]["code"]) for one in errors] == [
                (1, -32600),
                (None, -32700),
                (None, -32600),
                (2, -32600),
            ]
            assert (await ends.talk.initialize(2))["protocolVersion"] == 2

    run(main())


def test_what_is_sent_together_with_initialize_is_answered_after_it() -> None:
    async def main() -> None:
        async with bridged(puppet(BOTH)) as ends:
            ends.stream.send_raw(initialize(2) + FROM_CLIENT[0] + prompt("p", script({"answer": {"messageId": "u"}})))
            answers = [await ends.talk.next() for _ in range(3)]
            assert [one["id"] for one in answers] == [0, "a", "p"]

    run(main())


def test_a_banner_before_the_answer_to_initialize_is_reported_and_does_not_keep_the_two_apart() -> None:
    async def main() -> None:
        async with bridged(puppet({"2": V2}, banner="Welcome!\n")) as ends:
            assert (await ends.talk.initialize(1))["protocolVersion"] == 1
            assert await ends.talk.new_session() == "s"
            assert ends.reported("garbage")[0] == {"bytes": 9}

    run(main())


# The journal

SECRETS = {
    "cwd": CWD,
    "mcpServers": [
        {"type": "stdio", "name": "a", "command": "/bin/mcp", "args": [], "env": [{"name": "T", "value": "sesame-1"}]},
        {"type": "http", "name": "b", "url": "http://x/", "headers": [{"name": "A", "value": "sesame-2"}]},
    ],
}


@pytest.mark.rule("J-8")
@VERSIONS
@pytest.mark.parametrize("spoken", [1, 2])
def test_servers_environments_headers_and_authentication_data_are_never_recorded(
    version: int, spoken: int, tmp_path: Path
) -> None:
    login = {1: "authenticate", 2: "auth/login"}
    methods: dict[str, Any] = {login[spoken]: {}, "session/load": {}, "session/resume": {}}

    async def main() -> None:
        command = puppet({str(spoken): BOTH[str(spoken)]}, methods=methods)
        async with bridged(command, journal=tmp_path / "journal", agent_version=spoken) as ends:
            await ends.talk.initialize(version, _meta={"token": "sesame-3"})
            await ends.talk.ask(login[version], {"methodId": "key", "_meta": {"apiKey": "sesame-4"}})
            session = await ends.talk.new_session(**SECRETS)
            attach = "session/load" if version == 1 else "session/resume"
            await ends.talk.ask(attach, {"sessionId": session, **SECRETS, "replayFrom": {"type": "start"}})
            chunk = {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": text("open text")}
            answer = {"stopReason": "end_turn"} if spoken == 1 else {"messageId": "u"}
            idle = {"sessionUpdate": "state_update", "state": "idle"}
            say = [{"update": chunk}, {"answer": answer}, *([{"update": idle}] if spoken == 2 else [])]
            await ends.talk.result(ends.talk.prompt(session, script(*say)))
            assert await ends.finish(), ends.bridge.failure
            assert "sesame" not in str(ends.reports)

    run(main())
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"open text" in stored
    assert b"sesame" not in stored


@VERSIONS
def test_the_journal_holds_what_passed(version: int, tmp_path: Path) -> None:
    def chunk(words: str) -> Any:
        return {"update": {"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": text(words)}}

    steps = [{"answer": {"messageId": "u"}}, chunk("Hel"), chunk("lo")]
    if version == 1:
        steps = [chunk("Hel"), chunk("lo"), {"answer": {"stopReason": "end_turn"}}]

    async def main() -> None:
        async with bridged(puppet(BOTH), version=version, journal=tmp_path / "journal") as ends:
            session = await ends.talk.new_session()
            ends.talk.prompt(session, script(*steps))
            assert await ends.finish(), ends.bridge.failure

    run(main())
    with open_journal(str(tmp_path / "journal")) as journal:
        state = journal.load("s").transcript
        assert [message.text for message in state.messages if message.type == "agent_message"] == ["Hello"]
        prompts = [message.text for message in state.messages if message.type == "user_message"]
        assert prompts == ([script(*steps)] if version == 1 else [])
        assert not journal.verify().faults
