"""The handshake: which version two sides go on with, and ``initialize`` said in the other version's words.

An agent answers with the highest of its versions that is not above the one asked:

=========  =============  ===========================================
asked      agent offers   answer
=========  =============  ===========================================
2 or more  1, 2           2
2 or more  1              1
1          1, 2           1
1          2              error -32022
0          any            error -32022
=========  =============  ===========================================

A client asks for the highest that it is allowed, and reads the answer so:

======================================  =================================================================
answer                                  what the client does
======================================  =================================================================
2, with ``info``                        goes on in v2
2, without ``info``                     it is not v2, whatever it says: starts the agent again asking for
                                        1, or gives up
1                                       goes on in v1, if it may
another version                         gives up
error, to a request for 2               asks for 1 in v1's words on the same connection, if it may
error, to a request for 1               gives up
======================================  =================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from twofold.exceptions import RequestError

__all__ = [
    "UNSUPPORTED",
    "choose",
    "downgrade_initialize",
    "downgrade_initialized",
    "supports",
    "upgrade_initialize",
    "upgrade_initialized",
]

UNSUPPORTED: Final = -32022
"""The error code for a protocol version that the agent does not have."""


def choose(asked: int, offered: Collection[int]) -> int:
    """Give the version to answer with. Raises :class:`RequestError` when there is none."""
    fitting = [version for version in offered if version <= asked]
    if not fitting:
        data = {"requested": asked, "supported": sorted(offered)}
        raise RequestError(UNSUPPORTED, "Unsupported protocol version", data)
    return max(fitting)


def supports(capabilities: Any, *path: str) -> bool:
    """Whether v2 capabilities have the marker at ``path``: an object there, ``{}`` included."""
    for name in path:
        capabilities = capabilities.get(name) if isinstance(capabilities, dict) else None
    return isinstance(capabilities, dict)


def downgrade_initialized(result: dict[str, Any]) -> dict[str, Any]:
    """Say a v2 agent's answer to ``initialize`` in v1's words."""
    capabilities = result.get("capabilities") or {}
    session = capabilities.get("session") or {}
    prompt, mcp = session.get("prompt"), session.get("mcp")
    markers = {
        name: session[name] for name in ("delete", "additionalDirectories") if isinstance(session.get(name), dict)
    }
    methods = [_method_to_v1(method) for method in result.get("authMethods") or ()]
    answer: dict[str, Any] = {
        "protocolVersion": 1,
        "agentInfo": result.get("info"),
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {name: supports(prompt, name) for name in ("image", "audio", "embeddedContext")},
            "mcpCapabilities": {"http": supports(mcp, "http"), "sse": False},
            "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, **markers},
            **({"auth": {"logout": {}}} if methods else {}),
        },
        "authMethods": [method for method in methods if method is not None],
    }
    if isinstance(capabilities.get("_meta"), dict):
        answer["agentCapabilities"]["_meta"] = capabilities["_meta"]
    if isinstance(result.get("_meta"), dict):
        answer["_meta"] = result["_meta"]
    return answer


def upgrade_initialized(result: dict[str, Any], *, name: str) -> dict[str, Any]:
    """Say a v1 agent's answer to ``initialize`` in v2's words; ``name`` is that of an agent that does not say it."""
    held = result.get("agentCapabilities") or {}
    v1_session = held.get("sessionCapabilities") or {}
    prompt, mcp = held.get("promptCapabilities") or {}, held.get("mcpCapabilities") or {}
    session: dict[str, Any] = {
        "prompt": {name: {} for name in ("image", "audio", "embeddedContext") if prompt.get(name) is True},
        "mcp": {"stdio": {}, **({"http": {}} if mcp.get("http") is True else {})},
    }
    for marker in ("delete", "additionalDirectories"):
        if isinstance(v1_session.get(marker), dict):
            session[marker] = v1_session[marker]
    info = result.get("agentInfo")
    if not isinstance(info, dict) or not isinstance(info.get("name"), str) or not isinstance(info.get("version"), str):
        info = {"name": name, "version": "unknown"}
    answer: dict[str, Any] = {"protocolVersion": 2, "info": info, "capabilities": {"session": session}}
    if isinstance(held.get("_meta"), dict):
        answer["capabilities"]["_meta"] = held["_meta"]
    methods = [_method_to_v2(method) for method in result.get("authMethods") or () if isinstance(method, dict)]
    if methods:
        answer["authMethods"] = methods
    if isinstance(result.get("_meta"), dict):
        answer["_meta"] = result["_meta"]
    return answer


def upgrade_initialize(params: dict[str, Any]) -> dict[str, Any]:
    """Say a v1 client's ``initialize`` in v2's words. Its file system and terminals have none: they are not offered."""
    held = params.get("clientCapabilities") or {}
    capabilities: dict[str, Any] = {
        name: held[name] for name in ("elicitation", "_meta") if isinstance(held.get(name), dict)
    }
    auth = held.get("auth") or {}
    if auth.get("terminal") is True or isinstance(auth.get("terminal"), dict):
        capabilities["auth"] = {"terminal": {}}
    info = params.get("clientInfo")
    if not isinstance(info, dict) or not isinstance(info.get("name"), str) or not isinstance(info.get("version"), str):
        info = {"name": "unknown", "version": "unknown"}
    upgraded: dict[str, Any] = {"protocolVersion": 2, "info": info, "capabilities": capabilities}
    if isinstance(params.get("_meta"), dict):
        upgraded["_meta"] = params["_meta"]
    return upgraded


def downgrade_initialize(params: dict[str, Any]) -> dict[str, Any]:
    """Say a v2 client's ``initialize`` in v1's words. It has no file system and no terminals for the agent."""
    held = params.get("capabilities") or {}
    capabilities: dict[str, Any] = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
    for name in ("elicitation", "_meta"):
        if isinstance(held.get(name), dict):
            capabilities[name] = held[name]
    if supports(held, "auth", "terminal"):
        capabilities["auth"] = {"terminal": True}
    downgraded: dict[str, Any] = {
        "protocolVersion": 1,
        "clientInfo": params.get("info"),
        "clientCapabilities": capabilities,
    }
    if isinstance(params.get("_meta"), dict):
        downgraded["_meta"] = params["_meta"]
    return downgraded


def _method_to_v1(method: dict[str, Any]) -> dict[str, Any] | None:
    """Authentication methods of v1 have an ``id``, and no ``type`` where the agent does it all itself."""
    members = dict(method)
    kind = members.pop("type", None)
    members["id"] = members.pop("methodId", None)
    if kind == "agent":
        return members
    if kind == "terminal":
        env: Sequence[dict[str, Any]] = members.get("env") or ()
        if env:
            members["env"] = {one.get("name"): one.get("value") for one in env}
        return {"type": "terminal", **members}
    return None


def _method_to_v2(method: dict[str, Any]) -> dict[str, Any]:
    members = dict(method)
    kind = members.pop("type", None) or "agent"
    members["methodId"] = members.pop("id", None)
    env = members.get("env")
    if kind == "terminal" and isinstance(env, dict):
        members["env"] = [{"name": name, "value": value} for name, value in env.items()]
    return {"type": kind, **members}
