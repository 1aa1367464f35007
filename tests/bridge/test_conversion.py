"""Different versions on both sides: what each of the two says, the other hears in its own words, or is told why not."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.bridge.ends import CWD, V1, V2, Bridged, bridged, puppet, script, text
from tests.runtime.talk import run, story, update_of, updates_of
from twofold.convert import CORRECTED, SUPERSEDES, WITHDRAWN
from twofold.fold import Transcript
from twofold.jsonrpc import dumps
from twofold.wire import v1, v2

Json = Any

UPDATE = "session/update"
OPTIONS = [
    {"optionId": "y", "name": "Yes", "kind": "allow_once"},
    {"optionId": "n", "name": "No", "kind": "reject_once"},
]
RUNNING = {"sessionUpdate": "state_update", "state": "running"}
IDLE = {"sessionUpdate": "state_update", "state": "idle", "stopReason": "end_turn"}
INSERTED = {"answer": {"messageId": "u"}}
DONE = {"answer": {"stopReason": "end_turn"}}


def update(kind: str, **members: Json) -> Json:
    return {"update": {"sessionUpdate": kind, **members}}


def chunk(id: str | None, words: str, kind: str = "agent_message_chunk", **members: Json) -> Json:
    named = {} if id is None else {"messageId": id}
    return update(kind, **named, content=text(words), **members)


def whole(id: str, *words: str, **members: Json) -> Json:
    return update("agent_message", messageId=id, content=[text(one) for one in words], **members)


@asynccontextmanager
async def v1_client(**config: Json) -> AsyncIterator[Bridged]:
    """A v1 client that has begun session `s` of a v2 agent."""
    options = config.pop("options", {})
    versions = {"2": config.pop("initialized", V2)}
    async with bridged(puppet(versions, **config), version=1, agent_version=2, **options) as ends:
        await ends.talk.new_session()
        yield ends


@asynccontextmanager
async def v2_client(**config: Json) -> AsyncIterator[Bridged]:
    """A v2 client that has begun session `s` of a v1 agent."""
    options = config.pop("options", {})
    versions = {"1": config.pop("initialized", V1)}
    async with bridged(puppet(versions, **config), version=2, agent_version=1, **options) as ends:
        await ends.talk.new_session()
        yield ends


def lines_of(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_bytes().splitlines() if line]


def heard_by(agent: Path, method: str) -> list[Json]:
    """Give the params of each request and notification with this method that the agent heard."""
    return [line.get("params") for line in lines_of(agent) if line.get("method") == method]


# initialize


class TestInitialize:
    def test_a_v1_client_hears_what_the_v2_agent_can_in_its_own_words(self) -> None:
        agent = {
            **V2,
            "info": {"name": "puppet", "version": "1", "title": "Puppet"},
            "capabilities": {
                "session": {
                    "prompt": {"image": {}, "embeddedContext": {}},
                    "mcp": {"http": {}, "stdio": {}},
                    "delete": {},
                    "additionalDirectories": {},
                },
                "_meta": {"a": 1},
            },
            "authMethods": [
                {"type": "agent", "methodId": "key", "name": "Key"},
                {"type": "terminal", "methodId": "tty", "name": "Login", "env": [{"name": "A", "value": "b"}]},
                {"type": "new_kind", "methodId": "x", "name": "X"},
            ],
            "_meta": {"b": 2},
        }

        async def main() -> Json:
            async with bridged(puppet({"2": agent}), agent_version=2) as ends:
                return await ends.talk.initialize(1)

        assert run(main()) == {
            "protocolVersion": 1,
            "agentInfo": {"name": "puppet", "version": "1", "title": "Puppet"},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": False},
                "sessionCapabilities": {
                    "list": {},
                    "resume": {},
                    "close": {},
                    "delete": {},
                    "additionalDirectories": {},
                },
                "auth": {"logout": {}},
                "_meta": {"a": 1},
            },
            "authMethods": [
                {"id": "key", "name": "Key"},
                {"type": "terminal", "id": "tty", "name": "Login", "env": {"A": "b"}},
            ],
            "_meta": {"b": 2},
        }

    def test_a_v2_client_hears_what_the_v1_agent_can_in_its_own_words(self) -> None:
        agent = {
            "protocolVersion": 1,
            "agentCapabilities": {
                "promptCapabilities": {"image": True},
                "mcpCapabilities": {"http": True},
                "sessionCapabilities": {"delete": {}},
            },
            "authMethods": [{"id": "key", "name": "Key"}, {"id": 3, "name": "no id"}],
        }

        async def main() -> Json:
            async with bridged(puppet({"1": agent}), agent_version=1) as ends:
                return await ends.talk.initialize(2)

        answer = run(main())
        assert answer["info"]["name"].startswith("python")  # it did not say
        del answer["info"]
        assert answer == {
            "protocolVersion": 2,
            "capabilities": {
                "session": {"prompt": {"image": {}}, "mcp": {"stdio": {}, "http": {}}, "delete": {}},
            },
            "authMethods": [{"type": "agent", "methodId": "key", "name": "Key"}],
        }

    def test_the_v2_agent_hears_who_the_v1_client_is_and_of_no_files_and_terminals(self, tmp_path: Path) -> None:
        heard = tmp_path / "heard"
        capabilities = {
            "fs": {"readTextFile": True, "writeTextFile": True},
            "terminal": True,
            "elicitation": {"form": {}},
            "_meta": {"a": 1},
        }

        async def main() -> None:
            async with bridged(puppet({"2": V2}, heard=heard), agent_version=2) as ends:
                await ends.talk.initialize(1, clientCapabilities=capabilities)
                assert ends.reported("ignored") == [
                    {"words": "the client's files and terminals: an agent of version 2 has its own"}
                ]

        run(main())
        assert heard_by(heard, "initialize") == [
            {
                "protocolVersion": 2,
                "info": {"name": "t", "version": "0"},
                "capabilities": {"elicitation": {"form": {}}, "_meta": {"a": 1}},
            }
        ]

    def test_the_v1_agent_hears_who_the_v2_client_is_and_is_offered_no_files_and_terminals(
        self, tmp_path: Path
    ) -> None:
        heard = tmp_path / "heard"

        async def main() -> None:
            async with bridged(puppet({"1": V1}, heard=heard), agent_version=1) as ends:
                await ends.talk.initialize(2, capabilities={"auth": {"terminal": {}}, "elicitation": {"url": {}}})

        run(main())
        assert heard_by(heard, "initialize") == [
            {
                "protocolVersion": 1,
                "clientInfo": {"name": "t", "version": "0"},
                "clientCapabilities": {
                    "fs": {"readTextFile": False, "writeTextFile": False},
                    "terminal": False,
                    "elicitation": {"url": {}},
                    "auth": {"terminal": True},
                },
            }
        ]

    @pytest.mark.parametrize(
        ("capabilities", "words"),
        [
            ({"fs": {"readTextFile": True}}, "files"),
            ({"terminal": True}, "terminals"),
            ({"fs": {"writeTextFile": True}, "terminal": True}, "files and terminals"),
        ],
    )
    def test_a_client_that_offers_tools_nobody_can_use_is_refused_when_asked_to(
        self, capabilities: Json, words: str
    ) -> None:
        async def main() -> None:
            async with bridged(puppet({"2": V2}), agent_version=2, refuse_client_tools=True) as ends:
                params = {"protocolVersion": 1, "clientCapabilities": capabilities}
                error = await ends.talk.refused("initialize", params)
                reason = f"the client offers {words} to the agent, and an agent of version 2 cannot use them"
                assert error == {"code": -32603, "message": "Internal error", "data": {"reason": reason}}
                assert not await ends.running

        run(main())

    def test_a_client_that_offers_no_tools_is_not_refused(self) -> None:
        async def main() -> None:
            async with bridged(puppet({"2": V2}), agent_version=2, refuse_client_tools=True) as ends:
                params = {"fs": {"readTextFile": False}, "terminal": False}
                assert (await ends.talk.initialize(1, clientCapabilities=params))["protocolVersion"] == 1
                assert ends.reported("ignored") == []

        run(main())

    @pytest.mark.parametrize("client", [v1_client, v2_client])
    def test_a_second_initialize_is_refused(self, client: Any) -> None:
        async def main() -> None:
            async with client() as ends:
                assert (await ends.talk.refused("initialize", {"protocolVersion": 1}))["code"] in (-32600, -32601)

        run(main())


class TestAuthentication:
    def test_a_v1_client_logs_in_and_out_of_a_v2_agent(self, tmp_path: Path) -> None:
        heard = tmp_path / "heard"

        async def main() -> None:
            async with v1_client(methods={"auth/login": {}, "auth/logout": {}}, heard=heard) as ends:
                assert await ends.talk.ask("authenticate", {"methodId": "key"}) == {}
                assert await ends.talk.ask("logout") == {}

        run(main())
        assert heard_by(heard, "auth/login") == [{"methodId": "key"}]
        assert heard_by(heard, "auth/logout") == [{}]

    def test_a_v2_client_logs_in_and_out_of_a_v1_agent(self, tmp_path: Path) -> None:
        heard = tmp_path / "heard"

        async def main() -> None:
            async with v2_client(methods={"authenticate": {}, "logout": {}}, heard=heard) as ends:
                assert await ends.talk.ask("auth/login", {"methodId": "key"}) == {}
                assert await ends.talk.ask("auth/logout") == {}

        run(main())
        assert heard_by(heard, "authenticate") == [{"methodId": "key"}]
        assert heard_by(heard, "logout") == [{}]

    @pytest.mark.parametrize("client", [v1_client, v2_client])
    def test_the_request_for_authentication_keeps_its_code(self, client: Any) -> None:
        async def main() -> None:
            async with client(sessions=["s"], methods={"session/new": -32000}) as ends:
                error = await ends.talk.refused("session/new", {"cwd": CWD, "mcpServers": []})
                assert error["code"] == -32000

        run(main())


# Sessions


class TestAV1ClientsSessions:
    def test_servers_over_stdio_get_the_type_that_v2_wants(self, tmp_path: Path) -> None:
        heard = tmp_path / "heard"
        servers = [
            {"name": "a", "command": "/bin/a", "args": [], "env": []},
            {"type": "http", "name": "b", "url": "http://x/", "headers": []},
        ]

        async def main() -> None:
            async with v1_client(sessions=["s", "t"], heard=heard) as ends:
                await ends.talk.new_session(mcpServers=servers, _meta={"m": 1})

        run(main())
        assert heard_by(heard, "session/new")[1] == {
            "cwd": CWD,
            "mcpServers": [{"type": "stdio", **servers[0]}, servers[1]],
            "_meta": {"m": 1},
        }

    def test_options_modes_and_commands_are_told_in_v1s_words(self, tmp_path: Path) -> None:
        heard = tmp_path / "heard"
        values = [{"value": "ask", "name": "Ask"}, {"value": "code", "name": "Code", "description": "Write"}]
        mode = {
            "type": "select",
            "configId": "mode",
            "name": "Mode",
            "category": "mode",
            "currentValue": "ask",
            "options": values,
        }
        commands = [{"type": "command", "name": "plan", "description": "Plan", "input": {"type": "text", "hint": "x"}}]
        changed = {**mode, "currentValue": "code"}
        methods = {"session/set_config_option": {"configOptions": [changed]}}

        async def main() -> None:
            new = {"configOptions": [mode], "availableCommands": commands}
            async with bridged(
                puppet({"2": V2}, new=new, methods=methods, heard=heard), version=1, agent_version=2
            ) as ends:
                talk = ends.talk
                answer = await talk.ask("session/new", {"cwd": CWD, "mcpServers": []})
                v1_mode = {name: value for name, value in mode.items() if name != "configId"} | {"id": "mode"}
                assert answer["configOptions"] == [v1_mode]
                assert answer["modes"] == {
                    "currentModeId": "ask",
                    "availableModes": [
                        {"id": "ask", "name": "Ask"},
                        {"id": "code", "name": "Code", "description": "Write"},
                    ],
                }
                told = await talk.updated("available_commands_update")
                assert told["availableCommands"] == [{"name": "plan", "description": "Plan", "input": {"hint": "x"}}]
                assert await talk.ask("session/set_mode", {"sessionId": "s", "modeId": "code"}) == {}
                set_ = {"sessionId": "s", "configId": "mode", "value": "code"}
                assert (await talk.ask("session/set_config_option", set_))["configOptions"] == [
                    {**v1_mode, "currentValue": "code"}
                ]
                talk.prompt("s", script(INSERTED, update("config_option_update", configOptions=[changed])))
                assert (await talk.updated("config_option_update"))["configOptions"][0]["currentValue"] == "code"
                assert (await talk.updated("current_mode_update"))["currentModeId"] == "code"

        run(main())
        asked = {"sessionId": "s", "configId": "mode", "type": "id", "value": "code"}
        assert heard_by(heard, "session/set_config_option") == [asked, asked]

    def test_load_is_a_replay_and_resume_is_none(self, tmp_path: Path) -> None:
        heard = tmp_path / "heard"
        replayed = [
            {"sessionUpdate": "user_message", "messageId": "u0", "content": [text("Hi")]},
            {"sessionUpdate": "agent_message", "messageId": "m0", "content": [text("Hel"), text("lo")]},
            {"sessionUpdate": "state_update", "state": "idle"},
        ]

        async def main() -> None:
            async with v1_client(methods={"session/resume": {"updates": replayed}}, heard=heard) as ends:
                talk = ends.talk
                since = talk.position
                await talk.ask("session/load", {"sessionId": "s", "cwd": CWD, "mcpServers": []})
                shown = updates_of(talk.heard(since))
                assert [(one["sessionUpdate"], one["messageId"], one["content"]["text"]) for one in shown] == [
                    ("user_message_chunk", "u0", "Hi"),
                    ("agent_message_chunk", "m0", "Hel"),
                    ("agent_message_chunk", "m0", "lo"),
                ]
                assert await talk.ask("session/resume", {"sessionId": "s", "cwd": CWD, "mcpServers": []}) == {}

        run(main())
        load, resume = heard_by(heard, "session/resume")
        assert load["replayFrom"] == {"type": "start"}
        assert "replayFrom" not in resume

    def test_list_close_and_delete_are_called_the_same(self, tmp_path: Path) -> None:
        heard = tmp_path / "heard"
        listed = {"sessions": [{"sessionId": "s", "cwd": CWD, "title": "T"}], "nextCursor": "n", "_meta": {"a": 1}}
        methods = {"session/list": listed, "session/close": {}, "session/delete": {"_meta": {}}}

        async def main() -> None:
            async with v1_client(methods=methods, heard=heard) as ends:
                assert await ends.talk.ask("session/list", {"cwd": CWD, "cursor": "c"}) == listed
                assert await ends.talk.ask("session/close", {"sessionId": "s"}) == {}
                assert await ends.talk.ask("session/delete", {"sessionId": "s"}) == {"_meta": {}}

        run(main())
        assert heard_by(heard, "session/list") == [{"cwd": CWD, "cursor": "c"}]
        assert heard_by(heard, "session/close") == heard_by(heard, "session/delete") == [{"sessionId": "s"}]


class TestAV2ClientsSessions:
    def test_servers_get_what_v1_requires(self, tmp_path: Path) -> None:
        heard = tmp_path / "heard"
        servers = [
            {"type": "stdio", "name": "a", "command": "/bin/a"},
            {"type": "http", "name": "b", "url": "http://x/"},
        ]

        async def main() -> None:
            async with v2_client(sessions=["s", "t"], heard=heard) as ends:
                await ends.talk.new_session(mcpServers=servers)
                await ends.talk.refused("session/new", {"cwd": CWD})

        run(main())
        assert [params["mcpServers"] for params in heard_by(heard, "session/new")] == [
            [],
            [
                {"name": "a", "command": "/bin/a", "args": [], "env": []},
                {"type": "http", "name": "b", "url": "http://x/", "headers": []},
            ],
            [],
        ]

    def test_modes_are_an_option_and_options_are_told_in_v2s_words(self, tmp_path: Path) -> None:
        heard = tmp_path / "heard"
        modes = {"currentModeId": "ask", "availableModes": [{"id": "ask", "name": "Ask"}, {"id": "code", "name": "C"}]}
        option = {
            "type": "select",
            "id": "model",
            "name": "Model",
            "currentValue": "a",
            "options": [{"group": "g", "name": "G", "options": [{"value": "a", "name": "A"}]}],
        }
        methods = {"session/set_mode": {}, "session/set_config_option": {"configOptions": [option]}}

        async def main() -> None:
            new = {"modes": modes, "configOptions": [option]}
            async with bridged(
                puppet({"1": V1}, new=new, methods=methods, heard=heard), version=2, agent_version=1
            ) as ends:
                talk = ends.talk
                answer = await talk.ask("session/new", {"cwd": CWD, "mcpServers": []})
                mode, model = answer["configOptions"]
                assert (mode["configId"], mode["category"], mode["currentValue"]) == ("mode", "mode", "ask")
                assert [one["value"] for one in mode["options"]] == ["ask", "code"]
                assert model["configId"] == "model"
                assert model["options"][0]["groupId"] == "g"
                chosen = {"sessionId": "s", "configId": "mode", "type": "id", "value": "code"}
                answer = await talk.ask("session/set_config_option", chosen)
                assert answer["configOptions"][0]["currentValue"] == "code"
                answer = await talk.ask("session/set_config_option", {**chosen, "configId": "model", "value": "a"})
                assert [one["configId"] for one in answer["configOptions"]] == ["mode", "model"]
                changed = update("config_option_update", configOptions=[{**option, "name": "Which model"}])
                talk.prompt("s", script(update("current_mode_update", currentModeId="ask"), changed, DONE))
                for name in ("Model", "Which model"):
                    mode, model = (await talk.updated("config_option_update"))["configOptions"]
                    assert (mode["currentValue"], model["name"]) == ("ask", name)

        run(main())
        assert heard_by(heard, "session/set_mode") == [{"sessionId": "s", "modeId": "code"}]
        assert heard_by(heard, "session/set_config_option") == [{"sessionId": "s", "configId": "model", "value": "a"}]

    @pytest.mark.rule("P-4")
    def test_a_replay_is_a_load_and_the_state_comes_after_it_and_before_the_answer(self, tmp_path: Path) -> None:
        heard = tmp_path / "heard"
        replayed = [
            {"sessionUpdate": "user_message_chunk", "content": text("Hi")},
            {"sessionUpdate": "agent_message_chunk", "content": text("Hel")},
            {"sessionUpdate": "agent_message_chunk", "content": text("lo")},
        ]
        methods = {"session/load": {"updates": replayed}, "session/resume": {}}

        async def main() -> None:
            async with v2_client(methods=methods, heard=heard) as ends:
                talk, since = ends.talk, ends.talk.position
                setup = {"sessionId": "s", "cwd": CWD, "mcpServers": []}
                id = talk.request("session/resume", {**setup, "replayFrom": {"type": "start"}})
                await talk.result(id)
                assert story(talk.heard(since)) == [
                    "user_message_chunk Hi",
                    "agent_message_chunk Hel",
                    "agent_message_chunk lo",
                    "idle",
                    f"{id}: ok",
                ]
                since = talk.position
                id = talk.request("session/resume", {**setup, "replayFrom": None})
                await talk.result(id)
                assert story(talk.heard(since)) == ["idle", f"{id}: ok"]
                error = await talk.refused("session/resume", {**setup, "replayFrom": {"type": "message"}})
                assert error["code"] == -32602

        run(main())
        assert len(heard_by(heard, "session/load")) == len(heard_by(heard, "session/resume")) == 1


# Prompts


@pytest.mark.parametrize(
    ("idle", "answer"),
    [
        ({"stopReason": "end_turn"}, {"stopReason": "end_turn"}),
        ({"stopReason": "max_tokens"}, {"stopReason": "max_tokens"}),
        ({"stopReason": "cancelled"}, {"stopReason": "cancelled"}),
        ({}, {"stopReason": "end_turn"}),
        ({"stopReason": "_new"}, {"stopReason": "end_turn"}),
        ({"stopReason": "error", "error": {"code": 3, "message": "no", "data": {"a": 1}}}, None),
        ({"stopReason": "error"}, None),
    ],
)
def test_a_v1_prompt_is_answered_when_the_v2_session_is_idle(idle: Json, answer: Json) -> None:
    steps = [INSERTED, {"update": RUNNING}, chunk("m", "Hi"), update("state_update", state="idle", **idle)]

    async def main() -> None:
        async with v1_client() as ends:
            talk, since = ends.talk, ends.talk.position
            answered = await talk.answered(talk.prompt("s", script(*steps)))
            assert answered.get("result") == answer
            assert len(updates_of(talk.heard(since))) == 1
            if answer is None:
                assert answered["error"] == {"code": -32603, "message": "Internal error"}
            assert ends.bridge.losses == (idle.get("stopReason") == "_new" or "error" in idle)

    run(main())


def test_two_v1_prompts_at_once_are_each_answered_at_the_end_of_the_work() -> None:
    async def main() -> None:
        async with v1_client() as ends:
            talk = ends.talk
            first = talk.prompt("s", script(INSERTED, {"update": RUNNING}, chunk("m", "one")))
            second = talk.prompt("s", script({"answer": {"messageId": "u2"}}, chunk("n", "two"), {"update": IDLE}))
            since = talk.position
            assert (await talk.result(first))["stopReason"] == (await talk.result(second))["stopReason"] == "end_turn"
            assert [one["content"]["text"] for one in updates_of(talk.heard(since))] == ["one", "two"]

    run(main())


def test_two_v2_prompts_at_once_are_inserted_one_after_the_other() -> None:
    async def main() -> None:
        async with v2_client() as ends:
            talk, since = ends.talk, ends.talk.position
            first = talk.prompt("s", script(chunk(None, "one"), DONE))
            second = talk.prompt("s", script(chunk(None, "two"), DONE))
            await talk.idle()
            await talk.idle()
            lines = talk.heard(since)
            ids = {line["id"]: line["result"]["messageId"] for line in lines if "result" in line}
            said = [(one["sessionUpdate"], one.get("messageId")) for one in updates_of(lines)]
            assert [kind for kind, _ in said] == [
                *("user_message", "state_update", "agent_message_chunk", "state_update"),
                *("user_message", "state_update", "agent_message_chunk", "state_update"),
            ]
            assert [said[0][1], said[4][1]] == [ids[first], ids[second]]
            assert said[2][1] != said[6][1]

    run(main())


def test_a_v1_client_cancels_a_v2_turn() -> None:
    cancelled = {**IDLE, "stopReason": "cancelled"}

    async def main() -> None:
        async with v1_client() as ends:
            talk = ends.talk
            steps = [INSERTED, {"update": RUNNING}, chunk("m", "…"), {"hear": "session/cancel"}, {"update": cancelled}]
            id = talk.prompt("s", script(*steps))
            await talk.updated("agent_message_chunk")
            talk.notify("session/cancel", {"sessionId": "s"})
            assert await talk.result(id) == {"stopReason": "cancelled"}

    run(main())


def test_a_v2_client_cancels_a_v1_turn_and_the_prompt_behind_it() -> None:
    async def main() -> None:
        async with v2_client() as ends:
            talk = ends.talk
            steps = [chunk("m", "…"), {"hear": "session/cancel"}, {"answer": {"stopReason": "cancelled"}}]
            talk.prompt("s", script(*steps))
            behind = talk.prompt("s", script(DONE))
            await talk.updated("agent_message_chunk")
            talk.notify("session/cancel", {"sessionId": "s"})
            assert (await talk.error(behind))["code"] == -32800
            assert (await talk.idle())["stopReason"] == "cancelled"

    run(main())


def test_a_v1_turn_that_fails_is_idle_with_the_error_for_a_v2_client() -> None:
    async def main() -> None:
        async with v2_client() as ends:
            ends.talk.prompt("s", script(chunk("m", "Hm"), {"refuse": -32000}))
            idle = await ends.talk.idle()
            assert (idle["stopReason"], idle["error"]["code"]) == ("error", -32000)

    run(main())


# Permissions


def permission(**params: Json) -> Json:
    return {"say": {"id": "ask", "method": "session/request_permission", "params": {"sessionId": "s", **params}}}


TOOL = {"toolCallId": "c", "title": "Run it", "kind": "execute"}
SUBJECTS: list[tuple[Json, Json]] = [
    ({"type": "tool_call", "toolCall": TOOL}, {**TOOL, "title": "May I?"}),
    (
        {"type": "command", "command": "rm x", "cwd": CWD, "toolCallId": "c"},
        {"toolCallId": "c", "title": "May I?", "kind": "execute", "rawInput": {"command": "rm x", "cwd": CWD}},
    ),
    ({"type": "new_kind", "x": 1}, {"toolCallId": "permission-1", "title": "May I?"}),
    (None, {"toolCallId": "permission-1", "title": "May I?"}),
]


@pytest.mark.parametrize(("subject", "tool_call"), SUBJECTS, ids=["tool call", "command", "unknown", "none"])
@pytest.mark.parametrize("outcome", [{"outcome": "selected", "optionId": "y"}, {"outcome": "cancelled"}])
def test_a_v1_client_is_asked_about_a_tool_call_and_the_v2_agent_hears_the_outcome(
    subject: Json, tool_call: Json, outcome: Json
) -> None:
    asked = {"title": "May I?", "options": OPTIONS, "_meta": {"m": 1}} | (
        {} if subject is None else {"subject": subject}
    )
    answer = whole("m")["update"]

    async def main() -> None:
        async with v1_client() as ends:
            talk = ends.talk
            steps = [INSERTED, permission(**asked), {"hear": None}, {"repeat": chunk("m", "")["update"]}]
            talk.prompt("s", script(*steps, {"update": IDLE}))
            request = await talk.asked("session/request_permission")
            assert request["params"] == {"sessionId": "s", "toolCall": tool_call, "options": OPTIONS, "_meta": {"m": 1}}
            talk.respond(request["id"], {"outcome": outcome})
            told = await talk.updated("agent_message_chunk")
            assert json.loads(told["content"]["text"])["result"] == {"outcome": outcome}
            lost = isinstance(subject, dict) and subject["type"] != "tool_call"
            assert ends.bridge.losses >= lost

    assert answer["sessionUpdate"] == "agent_message"
    run(main())


def test_a_description_is_content_of_the_tool_call_that_a_v1_client_is_asked_about() -> None:
    async def main() -> None:
        async with v1_client() as ends:
            asked = permission(title="May I?", description="It deletes.", options=OPTIONS)
            ends.talk.prompt("s", script(INSERTED, asked))
            request = await ends.talk.asked("session/request_permission")
            content = [{"type": "content", "content": text("It deletes.")}]
            assert request["params"]["toolCall"]["content"] == content

    run(main())


@pytest.mark.parametrize(
    ("tool_call", "title"),
    [
        (TOOL, "Run it"),
        ({"toolCallId": "known"}, "Known before"),
        ({"toolCallId": "other"}, "The agent asks for a permission"),
    ],
)
@pytest.mark.parametrize("outcome", [{"outcome": "selected", "optionId": "n"}, {"outcome": "cancelled"}])
def test_a_v2_client_is_asked_with_a_title_and_the_v1_agent_hears_the_outcome(
    tool_call: Json, title: str, outcome: Json
) -> None:
    async def main() -> None:
        async with v2_client() as ends:
            talk, since = ends.talk, ends.talk.position
            known = update("tool_call", toolCallId="known", title="Known before")
            asked = permission(toolCall=tool_call, options=OPTIONS)
            steps = [known, asked, {"hear": None}, {"repeat": chunk("m", "")["update"]}, DONE]
            talk.prompt("s", script(*steps))
            request = await talk.asked("session/request_permission")
            assert request["params"]["title"] == title
            assert request["params"]["options"] == OPTIONS
            assert request["params"]["subject"] == {"type": "tool_call", "toolCall": tool_call}
            talk.respond(request["id"], {"outcome": outcome})
            told = await talk.updated("agent_message_chunk")
            assert json.loads(told["content"]["text"])["result"] == {"outcome": outcome}
            await talk.idle()
            states = [one["state"] for one in updates_of(talk.heard(since)) if one["sessionUpdate"] == "state_update"]
            assert states == ["running", "requires_action", "running", "idle"]

    run(main())


@pytest.mark.parametrize("client", [v1_client, v2_client])
def test_a_permission_that_the_agent_withdraws_is_withdrawn_from_the_client(client: Any) -> None:
    async def main() -> None:
        async with client() as ends:
            talk = ends.talk
            asked = {"title": "May I?", "options": OPTIONS, "toolCall": TOOL}
            cancel = {"say": {"method": "$/cancel_request", "params": {"requestId": "ask"}}}
            steps = [permission(**asked), {"hear": "_go"}, cancel, {"hear": None}]
            talk.prompt("s", script(*steps, {"repeat": chunk("m", "")["update"]}))
            request = await talk.asked("session/request_permission")
            talk.notify("_go")
            withdrawn = await talk.asked("$/cancel_request")
            assert withdrawn["params"] == {"requestId": request["id"]}
            talk.respond(request["id"], {"outcome": {"outcome": "cancelled"}})
            told = await talk.updated("agent_message_chunk")
            assert json.loads(told["content"]["text"])["id"] == "ask"

    run(main())


# What is called the same, and what nobody knows


@pytest.mark.parametrize("client", [v1_client, v2_client])
class TestOtherMethods:
    def test_extension_requests_and_notifications_pass_both_ways(self, client: Any, tmp_path: Path) -> None:
        heard = tmp_path / "heard"
        ask = {"say": {"id": "x", "method": "_vendor/ask", "params": {"q": [1], "_meta": {"a": 1}}}}
        tell = {"say": {"method": "_vendor/tell", "params": {"n": None}}}

        async def main() -> None:
            async with client(methods={"_vendor/do": {"done": [1.5]}}, heard=heard) as ends:
                talk = ends.talk
                assert await talk.ask("_vendor/do", {"what": "é"}) == {"done": [1.5]}
                talk.notify("_vendor/note", {"k": {}})
                talk.prompt("s", script(tell, ask, {"hear": None}, {"repeat": chunk("m", "")["update"]}))
                assert (await talk.asked("_vendor/tell"))["params"] == {"n": None}
                request = await talk.asked("_vendor/ask")
                assert request["params"] == {"q": [1], "_meta": {"a": 1}}
                talk.fail(request["id"], -32099, "not now", {"d": 1})
                told = await talk.updated("agent_message_chunk")
                answer = json.loads(told["content"]["text"])["error"]
                assert answer == {"code": -32099, "message": "not now", "data": {"d": 1}}

        run(main())
        assert heard_by(heard, "_vendor/do") == [{"what": "é"}]
        assert heard_by(heard, "_vendor/note") == [{"k": {}}]

    def test_elicitation_passes(self, client: Any) -> None:
        params = {"mode": "form", "sessionId": "s", "message": "Name?", "requestedSchema": {"type": "object"}}
        ask = {"say": {"id": "e", "method": "elicitation/create", "params": params}}
        complete = {"say": {"method": "elicitation/complete", "params": {"elicitationId": "e"}}}

        async def main() -> None:
            async with client() as ends:
                talk = ends.talk
                talk.prompt("s", script(ask, {"hear": None}, {"repeat": chunk("m", "")["update"]}, complete))
                request = await talk.asked("elicitation/create")
                assert request["params"] == params
                talk.respond(request["id"], {"action": "accept", "content": {"name": "x"}})
                told = await talk.updated("agent_message_chunk")
                answer = {"action": "accept", "content": {"name": "x"}}
                assert json.loads(told["content"]["text"])["result"] == answer
                assert (await talk.asked("elicitation/complete"))["params"] == {"elicitationId": "e"}

        run(main())

    def test_methods_that_one_version_lacks_are_refused_by_name(self, client: Any) -> None:
        async def main() -> None:
            async with client() as ends:
                error = await ends.talk.refused("session/new_in_v9", {"sessionId": "s"})
                assert error == {
                    "code": -32601,
                    "message": "Method not found",
                    "data": {"method": "session/new_in_v9"},
                }

        run(main())

    @pytest.mark.parametrize("method", ["fs/read_text_file", "terminal/create", "session/new_in_v9"])
    def test_an_agent_that_asks_for_what_was_not_offered_is_refused(self, client: Any, method: str) -> None:
        ask = {"say": {"id": "x", "method": method, "params": {"sessionId": "s", "path": "/etc/passwd"}}}

        async def main() -> None:
            async with client() as ends:
                ends.talk.prompt("s", script(ask, {"hear": None}, {"repeat": chunk("m", "")["update"]}))
                told = await ends.talk.updated("agent_message_chunk")
                assert json.loads(told["content"]["text"])["error"]["code"] == -32601
                assert method not in [line.get("method") for line in ends.talk.lines]

        run(main())

    def test_what_is_no_message_is_answered_and_the_conversation_goes_on(self, client: Any) -> None:
        async def main() -> None:
            async with client() as ends:
                talk = ends.talk
                ends.stream.send_raw(b"no JSON\n[]\n\n")
                assert [(await talk.next())["error"]["code"] for _ in range(2)] == [-32700, -32600]
                talk.prompt("s", script({"raw": "no JSON\n"}, {"raw": "[1]\n"}, chunk("m", "still here")))
                assert (await talk.updated("agent_message_chunk"))["content"]["text"] == "still here"
                assert [facts["side"] for facts in ends.reported("fault")] == ["client"] * 2 + ["agent"] * 2

        run(main())


# Updates


def shown(lines: list[Json]) -> dict[str, str]:
    """Give the text that a v1 client shows of the agent's messages: by id, without what was superseded."""
    held: dict[str, str] = {}
    gone: set[str] = set()
    for one in updates_of(lines):
        if one["sessionUpdate"] == "agent_message_chunk":
            old = (one.get("_meta") or {}).get(SUPERSEDES)
            gone |= {old} if old else set()
            held[one["messageId"]] = held.get(one["messageId"], "") + one["content"]["text"]
    return {id: words for id, words in held.items() if id not in gone}


@pytest.mark.rule("V-8", "V-9")
def test_a_v1_client_shows_what_the_v2_state_holds_or_a_mark() -> None:
    steps = [
        chunk("a", "Hello"),
        chunk("a", ", wor"),
        whole("a", "Hello, world"),  # the rest of what is held
        chunk("b", "secret"),
        whole("b"),  # taken back
        chunk("c", "two and two is five"),
        whole("c", "two and two is ", "four"),  # corrected
        chunk("c", "!"),
        whole("d", "whole"),
        whole("d", "whole"),  # the same again
        whole("e"),  # nothing was there
        update("agent_message", messageId="a", _meta={"x": 1}),
    ]
    state = Transcript("s")
    for step in steps:
        state.apply(v2.read_update(step["update"]))

    async def main() -> None:
        async with v1_client() as ends:
            talk, since = ends.talk, ends.talk.position
            await talk.result(talk.prompt("s", script(INSERTED, *steps, {"update": IDLE})))
            texts = list(shown(talk.heard(since)).values())
            expected = [message.text for message in state.messages if message.text]
            assert [one for one in texts if one not in (CORRECTED, WITHDRAWN)] == expected
            marks = [one for one in texts if one in (CORRECTED, WITHDRAWN)]
            assert marks == [WITHDRAWN, CORRECTED]
            losses = [(facts["kind"], facts["id"], facts["sent"]) for facts in ends.reported("loss")]
            assert losses == [
                ("agent_message", "b", "a mark"),
                ("agent_message", "c", "a mark, and the content under a new id"),
                ("agent_message", "a", None),
            ]
            assert ends.bridge.losses == 3
            assert "secret" not in str(ends.reports)

    run(main())


def test_what_is_the_same_in_both_versions_passes_byte_for_byte() -> None:
    line = (
        '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":'
        '"agent_message_chunk","messageId":"m","content":{"text":"\\u00e9","type":"text"},"_meta":{"a":1.0}}}}\n'
    )

    async def main() -> bytes:
        async with v1_client() as ends:
            ends.talk.prompt("s", script(INSERTED, {"raw": line}, {"update": IDLE}))
            return await ends.read_line()

    assert run(main()) == line.encode()


def test_the_echo_of_its_own_prompt_is_not_told_a_v1_client_and_a_correction_of_it_is() -> None:
    echo = update("user_message", messageId="u", content=[text("my prompt")])
    corrected = update("user_message", messageId="u", content=[text("what I meant")])

    async def main() -> None:
        async with v1_client() as ends:
            talk, since = ends.talk, ends.talk.position
            await talk.result(talk.prompt("s", script(INSERTED, echo, corrected, {"update": IDLE})))
            assert [one["content"]["text"] for one in updates_of(talk.heard(since))] == [CORRECTED, "what I meant"]

    run(main())


@pytest.mark.rule("U-6")
@pytest.mark.parametrize("client", [v1_client, v2_client])
def test_a_bad_item_is_left_out_and_reported_and_the_rest_is_told(client: Any) -> None:
    bad = update("tool_call_update", toolCallId="c", title="T", content=[{"type": "content"}])
    entries = [{"content": "A", "priority": "high", "status": "pending"}, {"content": 3}]
    plan = (
        update("plan", entries=entries)
        if client is v2_client
        else update("plan_update", plan={"type": "items", "planId": "p", "entries": entries})
    )

    async def main() -> None:
        async with client() as ends:
            talk = ends.talk
            talk.prompt("s", script(bad, plan, chunk("m", "end")))
            since = talk.position
            await talk.updated("agent_message_chunk")
            told = [one for one in updates_of(talk.heard(since)) if one["sessionUpdate"].startswith("plan")]
            held = told[0]["entries"] if "entries" in told[0] else told[0]["plan"]["entries"]
            assert [entry["content"] for entry in held] == ["A"]
            assert len(ends.reported("fault")) == 2

    run(main())


@pytest.mark.rule("W-1", "W-2", "W-3", "W-4")
def test_a_v2_client_hears_v1_updates_with_ids_and_of_what_has_no_place() -> None:
    steps = [
        chunk("named", "A"),
        chunk(None, "B"),
        chunk(None, "C"),
        update("tool_call", toolCallId="t", title="T", content=[{"type": "terminal", "terminalId": "theirs"}]),
        chunk(None, "D"),
        update("plan", entries=[{"content": "P", "priority": "low", "status": "pending"}]),
        update("current_mode_update", currentModeId="m"),
        DONE,
    ]

    async def main() -> None:
        async with v2_client() as ends:
            talk, since = ends.talk, ends.talk.position
            talk.prompt("s", script(*steps))
            await talk.idle()
            state = Transcript("s")
            for one in updates_of(talk.heard(since)):
                state.apply(v2.read_update(one))
            said = [(one.message_id == "named", one.text) for one in state.messages if one.type == "agent_message"]
            assert said == [(True, "A"), (False, "BC"), (False, "D")]
            assert [call.title for call in state.tool_calls] == ["T"]
            assert len(state.plans) == 1
            assert [facts["kind"] for facts in ends.reported("loss")] == ["tool_call", "current_mode_update"]
            assert ends.bridge.losses == 2

    run(main())


def test_tool_call_output_that_grows_is_not_sent_whole_again_for_every_piece() -> None:
    pieces = [
        update("tool_call_content_chunk", toolCallId="c", content={"type": "content", "content": text("x" * 40)})
        for _ in range(300)
    ]

    async def main() -> None:
        async with v1_client() as ends:
            talk, since = ends.talk, ends.talk.position
            first = update("tool_call_update", toolCallId="c", title="T", status="in_progress")
            last = update("tool_call_update", toolCallId="c", status="completed")
            await talk.result(talk.prompt("s", script(INSERTED, first, *pieces, last, {"update": IDLE})))
            lines = updates_of(talk.heard(since))
            sizes = [len(one["content"]) for one in lines if "content" in one]
            assert sizes == sorted(sizes)
            assert sizes[-1] == 300
            assert len(sizes) < 40
            assert "".join(one["content"]["text"] for one in lines[-1]["content"]) == "x" * 12_000

    run(main())


# Closing at the first loss


@pytest.mark.rule("V-4")
def test_the_view_ends_at_the_first_loss_when_asked_to_and_begins_again_with_a_load(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    replayed = [{"sessionUpdate": "agent_message", "messageId": "a", "content": [text("corrected")]}]

    async def main() -> None:
        methods = {"session/resume": {"updates": replayed}}
        async with v1_client(methods=methods, heard=heard, options={"on_loss": "close"}) as ends:
            talk, since = ends.talk, ends.talk.position
            ask = [{"hear": "session/cancel"}, permission(title="May I?", options=OPTIONS), {"hear": None}]
            steps = [chunk("a", "wrong"), whole("a", "corrected"), chunk("a", " more"), *ask, {"update": IDLE}]
            done = {"say": {"method": "_done"}}
            error = await talk.error(talk.prompt("s", script(INSERTED, *steps, done)))
            await talk.asked("_done")
            assert "load the session again" in error["data"]["reason"]
            assert [one["content"]["text"] for one in updates_of(talk.heard(since))] == ["wrong"]
            assert (await talk.error(talk.prompt("s", script(INSERTED))))["data"] == error["data"]
            await talk.ask("session/load", {"sessionId": "s", "cwd": CWD, "mcpServers": []})
            assert [one["content"]["text"] for one in updates_of(talk.heard(since))] == ["wrong", "corrected"]
            assert await talk.result(talk.prompt("s", script(INSERTED, {"update": IDLE})))
            assert ends.bridge.losses == 1
            assert "session/request_permission" not in [line.get("method") for line in talk.lines]

    run(main())
    assert heard_by(heard, "session/cancel") == [{"sessionId": "s"}]
    assert [line["result"] for line in lines_of(heard) if line.get("id") == "ask"] == [
        {"outcome": {"outcome": "cancelled"}}
    ]


# Against the schemas' own readers


@pytest.mark.parametrize("client", [v1_client, v2_client])
def test_every_update_that_is_told_reads_as_one_of_the_clients_version(client: Any) -> None:
    read: Callable[[bytes], Any] = v1.decode_update if client is v1_client else v2.decode_update

    async def main() -> None:
        async with client() as ends:
            talk = ends.talk
            terminal = update("terminal_update", terminalId="x", command="ls", cwd=CWD, output={"data": "aGk="})
            call = update(
                "tool_call_update", toolCallId="c", title="T", content=[{"type": "terminal", "terminalId": "x"}]
            )
            usage = update("usage_update", used=1, size=2)
            unknown = update("_vendor_update", a=1)
            talk.prompt("s", script(call, terminal, usage, unknown, chunk("m", "end")))
            since = talk.position
            await talk.updated("agent_message_chunk")
            for line in talk.heard(since):
                if update_of(line) is not None:
                    read(dumps(update_of(line)))

    run(main())
