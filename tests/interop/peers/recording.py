"""What both Python clients need beside the SDK: the command line, and the record of what the SDK hands over.

This runs with either version of the SDK, so it imports nothing of the tests.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any, TypeVar

from acp.exceptions import RequestError
from pydantic import BaseModel

SDK = {"name": "agent-client-protocol", "version": version("agent-client-protocol")}
DEADLINE_SECONDS = 20

Result = TypeVar("Result", bound=BaseModel | None)


def dumped(model: BaseModel) -> Any:
    """Give what the SDK made of something received: the fields that were sent, as far as it kept them."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


class Recording:
    """Everything that the SDK handed over, in that order."""

    def __init__(self, protocol_version: int) -> None:
        self.events: list[dict[str, Any]] = []
        self.document: dict[str, Any] = {"sdk": SDK, "protocolVersion": protocol_version, "events": self.events}
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    def add(self, event: dict[str, Any]) -> None:
        """Record an event, and wake who waited for it."""
        self.events.append(event)
        for met, waiting in self._waiting:
            if not waiting.done() and met():
                waiting.set_result(None)

    def update(self, session_id: str, update: BaseModel, meta: dict[str, Any]) -> None:
        """Record a `session/update`; the SDK spreads its `_meta` over the arguments of the handler."""
        params = {"sessionId": session_id, "update": dumped(update)}
        self.add({"update": {**params, "_meta": meta} if meta else params})

    async def until(self, met: Callable[[], bool]) -> None:
        """Wait for the event after which `met` says so."""
        if not met():
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append((met, waiting))
            await waiting

    async def answer(self, method: str, request: Awaitable[Result]) -> Result:
        """Record the answer to a request at the moment the SDK gives it."""
        try:
            result = await request
        except RequestError as error:
            self.add({"response": method, "error": error.to_error_obj()})
            raise
        self.add({"response": method, "result": None if result is None else dumped(result)})
        return result


def run(protocol_version: int, talk: Callable[[Recording, str, list[str]], Awaitable[int | None]]) -> None:
    """`CLIENT --cwd DIR -- AGENT COMMAND…`: let `talk` start the agent and speak with it, and print the document.

    `talk` gives the status with which the agent ended.
    """
    flag, cwd, dashes, *command = sys.argv[1:]
    if (flag, dashes) != ("--cwd", "--") or not command:
        sys.exit("usage: CLIENT --cwd DIR -- AGENT COMMAND…")
    recording = Recording(protocol_version)

    async def in_time() -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            recording.document["agentExit"] = {"code": await talk(recording, cwd, command)}

    try:
        asyncio.run(in_time())
    except Exception as error:
        recording.document["failed"] = f"{type(error).__name__}: {error}"
    print(json.dumps(recording.document))
    sys.exit("failed" in recording.document)
