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

from collections.abc import Collection
from typing import Any, Final

from twofold.exceptions import RequestError
from twofold.runtime._json import objects, part
from twofold.wire import is_array, is_object

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
    *outer, name = path
    return is_object(part(capabilities, *outer).get(name))


def downgrade_initialized(result: dict[str, Any]) -> dict[str, Any]:
    """Say a v2 agent's answer to ``initialize`` in v1's words."""
    session = part(result, "capabilities", "session")
    prompt = part(session, "prompt")
    markers = {name: session[name] for name in ("delete", "additionalDirectories") if is_object(session.get(name))}
    methods = [_method_to_v1(method) for method in objects(result.get("authMethods"))]
    capabilities: dict[str, Any] = {
        "loadSession": True,
        "promptCapabilities": {name: supports(prompt, name) for name in ("image", "audio", "embeddedContext")},
        "mcpCapabilities": {"http": supports(session, "mcp", "http"), "sse": False},
        "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, **markers},
        **({"auth": {"logout": {}}} if methods else {}),
        **_meta(part(result, "capabilities")),
    }
    return {
        "protocolVersion": 1,
        "agentInfo": result.get("info"),
        "agentCapabilities": capabilities,
        "authMethods": [method for method in methods if method is not None],
        **_meta(result),
    }


def upgrade_initialized(result: dict[str, Any], *, name: str) -> dict[str, Any]:
    """Say a v1 agent's answer to ``initialize`` in v2's words; ``name`` is that of an agent that does not say it."""
    held = part(result, "agentCapabilities")
    v1_session = part(held, "sessionCapabilities")
    prompt = part(held, "promptCapabilities")
    http: dict[str, Any] = {"http": {}} if part(held, "mcpCapabilities").get("http") is True else {}
    session: dict[str, Any] = {
        "prompt": {kind: {} for kind in ("image", "audio", "embeddedContext") if prompt.get(kind) is True},
        "mcp": {"stdio": {}, **http},
    }
    for marker in ("delete", "additionalDirectories"):
        if is_object(v1_session.get(marker)):
            session[marker] = v1_session[marker]
    answer: dict[str, Any] = {
        "protocolVersion": 2,
        "info": _info(result.get("agentInfo"), name),
        "capabilities": {"session": session, **_meta(held)},
        **_meta(result),
    }
    methods = [
        _method_to_v2(method)
        for method in objects(result.get("authMethods"))
        if isinstance(method.get("id"), str) and isinstance(method.get("name"), str)
    ]
    if methods:
        answer["authMethods"] = methods
    return answer


def upgrade_initialize(params: dict[str, Any]) -> dict[str, Any]:
    """Say a v1 client's ``initialize`` in v2's words. Its files and terminals have none: they are not offered."""
    held = part(params, "clientCapabilities")
    capabilities: dict[str, Any] = _meta(held)
    if is_object(held.get("elicitation")):
        capabilities["elicitation"] = held["elicitation"]
    terminal = part(held, "auth").get("terminal")
    if terminal is True or is_object(terminal):
        capabilities["auth"] = {"terminal": {}}
    info = _info(params.get("clientInfo"), "unknown")
    return {"protocolVersion": 2, "info": info, "capabilities": capabilities, **_meta(params)}


def downgrade_initialize(params: dict[str, Any]) -> dict[str, Any]:
    """Say a v2 client's ``initialize`` in v1's words. It has no files and no terminals for the agent."""
    held = part(params, "capabilities")
    capabilities: dict[str, Any] = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
    capabilities |= _meta(held)
    if is_object(held.get("elicitation")):
        capabilities["elicitation"] = held["elicitation"]
    if supports(held, "auth", "terminal"):
        capabilities["auth"] = {"terminal": True}
    return {
        "protocolVersion": 1,
        "clientInfo": params.get("info"),
        "clientCapabilities": capabilities,
        **_meta(params),
    }


def _meta(of: dict[str, Any]) -> dict[str, Any]:
    return {"_meta": of["_meta"]} if is_object(of.get("_meta")) else {}


def _info(info: Any, name: str) -> dict[str, Any]:
    """Give what v2 requires of an implementation, also of one that v1 did not ask to say it."""
    if not is_object(info) or not isinstance(info.get("name"), str) or not isinstance(info.get("version"), str):
        return {"name": name, "version": "unknown"}
    right = {"title": isinstance(info.get("title"), str), "_meta": is_object(info.get("_meta"))}
    return {key: value for key, value in info.items() if right.get(key, True)}


def _method_to_v1(method: dict[str, Any]) -> dict[str, Any] | None:
    """Authentication methods of v1 have an ``id``, and no ``type`` where the agent does it all itself."""
    members = dict(method)
    kind = members.pop("type", None)
    members["id"] = members.pop("methodId", None)
    if kind == "agent":
        return members
    if kind == "terminal":
        if is_array(members.get("env")):
            members["env"] = {one.get("name"): one.get("value") for one in objects(members["env"])}
        return {"type": "terminal", **members}
    return None


def _method_to_v2(method: dict[str, Any]) -> dict[str, Any]:
    members = dict(method)
    kind = members.pop("type", None)
    kind = kind if isinstance(kind, str) else "agent"
    members["methodId"] = members.pop("id", None)
    env = members.get("env")
    if kind == "terminal" and is_object(env):
        members["env"] = [{"name": name, "value": value} for name, value in env.items()]
    return {"type": kind, **members}
