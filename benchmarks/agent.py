"""An agent that is nothing but quick: `python agent.py LINES VERSION`. A plain script, which starts quickly too.

It answers a prompt of the text "START STOP" with those lines of the file, which it read before, as quickly as the pipe
takes them. Around them it says what the protocol version asks for.
"""

import json
import os
import sys
from itertools import accumulate
from typing import Any


def main(path: str, version: int) -> None:
    """Serve one client until it ends."""
    with open(path, "rb") as file:
        data = file.read()
    places = [0, *accumulate(map(len, data.splitlines(keepends=True)))]
    session = json.loads(data[: places[1]])["params"]["sessionId"]
    lines = memoryview(data)
    prompts = 0
    for line in sys.stdin.buffer:
        request = json.loads(line)
        match request.get("method"):
            case "initialize":
                answer(request, initialized(version))
            case "session/new":
                answer(request, {"sessionId": session})
            case "session/prompt":
                prompts += 1
                prompt = request["params"]["prompt"]
                start, stop = map(int, prompt[0]["text"].split(" "))
                if version == 2:
                    message_id = f"prompt_{prompts}"
                    answer(request, {"messageId": message_id})
                    update(session, sessionUpdate="user_message", messageId=message_id, content=prompt)
                    update(session, sessionUpdate="state_update", state="running")
                write(lines[places[start] : places[stop]])
                if version == 2:
                    update(session, sessionUpdate="state_update", state="idle", stopReason="end_turn")
                else:
                    answer(request, {"stopReason": "end_turn"})


def initialized(version: int) -> dict[str, Any]:
    """Give the answer to `initialize`."""
    if version == 1:
        return {"protocolVersion": 1, "agentCapabilities": {}}
    return {"protocolVersion": 2, "info": {"name": "quick", "version": "0"}, "capabilities": {"session": {}}}


def answer(request: dict[str, Any], result: dict[str, Any]) -> None:
    """Answer a request."""
    say({"id": request["id"], "result": result})


def update(session: str, **members: Any) -> None:
    """Send an update."""
    say({"method": "session/update", "params": {"sessionId": session, "update": members}})


def say(message: dict[str, Any]) -> None:
    """Send a message."""
    write(memoryview(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n"))


def write(left: memoryview) -> None:
    """Write everything."""
    while left:
        left = left[os.write(1, left) :]


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
