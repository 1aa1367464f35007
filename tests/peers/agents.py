"""How each real agent starts: its command, its environment and what it is configured with, all in folders of the test.

None of them reaches further than 127.0.0.1: the model is there, and so is the only proxy they know, which refuses.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.node_tools import node
from tests.peers.environments import node_packages, python_programs


@dataclass(frozen=True)
class Place:
    """Where one agent lives: a home and a workspace that are its own, and the port of the model on 127.0.0.1."""

    home: Path
    workspace: Path
    port: int

    @property
    def url(self) -> str:
        """The address of the model."""
        return f"http://127.0.0.1:{self.port}"

    def write(self, path: str, content: str | Mapping[str, Any]) -> Path:
        """Write a file of the home: a text, or JSON (which YAML readers read, too)."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
        return file


@dataclass(frozen=True)
class Start:
    """What to start, in the workspace."""

    command: list[str]
    env: dict[str, str]


@dataclass(frozen=True)
class Agent:
    """An agent, and what it is known to do."""

    name: str
    setup: Callable[[Place], Start]
    versions: tuple[int, ...] = (1,)
    scripted: bool = True
    """It asks the model; else it says again what it is told, at once."""
    thinks: bool = True
    """It passes the model's thoughts on as they are."""
    asks: bool = True
    """It asks for permission before it writes a file."""
    finishes: bool = True
    """It says of each tool call how it ended."""
    lists: bool = True
    """It has `session/list`."""
    replays_late: bool = False
    """It answers first and replays then; and a session loaded in the minute in which it began is lost."""

    def start(self, place: Place) -> Start:
        """Write the configuration, and return what to start; skip or fail the test when it is not to be had."""
        start = self.setup(place)
        temporary = place.home / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(place.home),
            "TMPDIR": str(temporary),
            "XDG_CONFIG_HOME": str(place.home / ".config"),
            "XDG_DATA_HOME": str(place.home / ".local" / "share"),
            "XDG_CACHE_HOME": str(place.home / ".cache"),
            "XDG_STATE_HOME": str(place.home / ".local" / "state"),
            "GIT_CEILING_DIRECTORIES": str(place.workspace.parent),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "USER": "user",
            "NO_COLOR": "1",
            "DO_NOT_TRACK": "1",
            **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), place.url),
            **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
        }
        return Start(start.command, env | start.env)


def _fast_agent(place: Place) -> Start:
    config = {
        "default_model": "generic.scripted-1",
        "generic": {"api_key": "none", "base_url": f"{place.url}/v1"},
        "logger": {"type": "none", "progress_display": False},
    }
    file = place.write("fastagent.config.yaml", config)
    command = [str(python_programs("fast-agent") / "fast-agent-acp"), "--home", str(place.home / "fast-agent")]
    return Start([*command, "--config-path", str(file), "--model", "generic.scripted-1", "--shell"], {})


def _passthrough(place: Place) -> Start:
    command = [str(python_programs("fast-agent") / "fast-agent-acp"), "--home", str(place.home / "fast-agent")]
    return Start([*command, "--model", "passthrough"], {})


def _claude(place: Place) -> Start:
    key = "sk-ant-none"
    known = {"hasCompletedOnboarding": True, "customApiKeyResponses": {"approved": [key], "rejected": []}}
    folder = place.write(".claude/.claude.json", known).parent
    program = node_packages("claude") / "@agentclientprotocol" / "claude-agent-acp" / "dist" / "index.js"
    env = {
        "ANTHROPIC_BASE_URL": place.url,
        "ANTHROPIC_API_KEY": key,
        "ANTHROPIC_MODEL": "claude-sonnet-4-5",
        "ANTHROPIC_SMALL_FAST_MODEL": "claude-haiku-4-5",
        "CLAUDE_CONFIG_DIR": str(folder),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "IS_SANDBOX": "1",
        "MAX_THINKING_TOKENS": "2000",
        "PATH": f"{node().parent}:/usr/local/bin:/usr/bin:/bin",
    }
    return Start([str(node()), str(program)], env)


def _hermes(place: Place) -> Start:
    model = {"default": "scripted-1", "provider": "custom", "base_url": f"{place.url}/v1", "api_key": "none"}
    memory = {"memory_enabled": False, "user_profile_enabled": False}
    file = place.write(".hermes/config.yaml", {"model": {**model, "context_length": 100000}, "memory": memory})
    env = {"HERMES_HOME": str(file.parent), "OPENAI_API_KEY": "none", "OPENAI_BASE_URL": f"{place.url}/v1"}
    return Start([str(python_programs("hermes") / "hermes"), "acp"], env)


def _opencode(place: Place) -> Start:
    scripted = {
        "name": "Scripted",
        "reasoning": True,
        "tool_call": True,
        "limit": {"context": 100000, "output": 8000},
        "interleaved": {"field": "reasoning_content"},
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Local",
        "options": {"baseURL": f"{place.url}/v1", "apiKey": "none"},
        "models": {"scripted-1": scripted},
    }
    config = {
        "autoupdate": False,
        "share": "disabled",
        "model": "local/scripted-1",
        "small_model": "local/scripted-1",
        "provider": {"local": provider},
        "permission": {"edit": "ask", "bash": "ask"},
    }
    place.write(".config/opencode/opencode.json", config)
    program = node_packages("opencode") / "opencode-linux-x64-baseline" / "bin" / "opencode"
    no = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
    env = {f"OPENCODE_DISABLE_{what}": "1" for what in no}
    return Start([str(program), "acp", "--cwd", str(place.workspace)], env)


def _gemini(place: Place) -> Start:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "general": {
            "enableAutoUpdate": False,
            "disableAutoUpdate": True,
            "disableUpdateNag": True,
            "sessionRetention": {"enabled": False},
        },
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
    }
    place.write(".gemini/settings.json", settings)
    program = node_packages("gemini") / "@google" / "gemini-cli" / "bundle" / "gemini.js"
    env = {
        "GEMINI_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": place.url,
        "GEMINI_CLI_NO_RELAUNCH": "true",
        "GEMINI_TELEMETRY_ENABLED": "false",
    }
    return Start([str(node()), str(program), "--acp", "--model", "gemini-2.5-flash"], env)


AGENTS: Final = {
    agent.name: agent
    for agent in (
        Agent("fast-agent-passthrough", _passthrough, scripted=False, thinks=False, asks=False),
        Agent("claude", _claude, versions=(2, 1)),
        Agent("fast-agent", _fast_agent, thinks=False, asks=False),
        Agent("hermes", _hermes, finishes=False),
        Agent("opencode", _opencode),
        Agent("gemini", _gemini, thinks=False, lists=False, replays_late=True),
    )
}
"""By name. `make test` talks to the first two, `make peers` to all."""
