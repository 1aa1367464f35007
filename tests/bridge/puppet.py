"""An agent that does as it is told: `python puppet.py CONFIG`. A plain script, so that it starts quickly.

CONFIG is JSON: `versions` has an answer to `initialize` for each version that may be asked for (an object for a result,
a number for an error code, a text for how to end: see below); `sessions` the ids of new sessions, one after another;
`methods` a result, or an error code, for other methods; `heard` a file for every line that comes, as it comes.

A prompt's text is JSON: steps to take, one after another.

    {"update": {…}}      report an update of the session
    {"say": {…}}         send a message
    {"raw": "…"}         write these characters, as Latin-1
    {"answer": {…}}      answer the prompt with a result; {"refuse": code} with an error
    {"hear": "method"}   read on until this method comes; {"hear": null} until an answer comes
    {"serve": null}      answer that, as if it had come by itself
    {"repeat": {…}}      report what the client said last under "hear", in the text of this update
    {"end": "…"}         end: "exit 3", "kill", "hang" (read no more, write no more), "babble" (and then hang),
                         "close" (the output only)

With `deaf` it goes on running when its input has ended, with `stubborn` when it is asked to end. `start` is how it
ends before it says anything, `prompted` at its first prompt; `banner` is what it writes first, `child` a file for the
id of a process that it leaves.
"""

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

Json = Any


class Puppet:
    """The agent, and what it is told."""

    def __init__(self, config: Json) -> None:
        self.config = config
        self.sessions = list(config.get("sessions", []))
        self.heard: Json = None
        self.log = open(config["heard"], "ab", buffering=0) if "heard" in config else None  # noqa: SIM115

    def hear(self) -> Json:
        """Read a message; end where the input does."""
        while True:
            line = sys.stdin.buffer.readline()
            if self.log is not None:
                self.log.write(line)
            if not line:
                if self.config.get("deaf"):
                    hang()
                sys.exit(0)
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict):
                return message

    def say(self, **members: Json) -> None:
        raw(json.dumps({"jsonrpc": "2.0", **members}, separators=(",", ":")).encode() + b"\n")

    def serve(self) -> None:
        """Answer what comes."""
        while True:
            message = self.hear()
            if "method" in message and "id" in message:
                self.request(message["id"], message["method"], message.get("params"))

    def request(self, id: Json, method: str, params: Json) -> None:
        if method == "initialize":
            self.answer(id, self.config["versions"].get(str(params["protocolVersion"]), -32022))
        elif method == "session/new" and self.sessions:
            self.say(id=id, result={"sessionId": self.sessions.pop(0), **self.config.get("new", {})})
        elif method == "session/prompt" and "prompted" in self.config:
            end(self.config["prompted"])
        elif method == "session/prompt":
            self.act(id, params["sessionId"], json.loads(params["prompt"][0]["text"]))
        else:
            held = self.config.get("methods", {}).get(method, -32601)
            for update in held.pop("updates", []) if isinstance(held, dict) else []:
                self.say(method="session/update", params={"sessionId": params["sessionId"], "update": update})
            self.answer(id, held)

    def answer(self, id: Json, held: Json) -> None:
        if isinstance(held, str):
            end(held)
        elif isinstance(held, int):
            self.say(id=id, error={"code": held, "message": "no"})
        else:
            self.say(id=id, result=held)

    def act(self, id: Json, session: str, steps: Json) -> None:
        for step in steps:
            [(verb, what)] = step.items()
            match verb:
                case "update":
                    self.say(method="session/update", params={"sessionId": session, "update": what})
                case "say":
                    self.say(**what)
                case "raw":
                    raw(what.encode("latin-1"))
                case "answer":
                    self.say(id=id, result=what)
                case "refuse":
                    self.say(id=id, error={"code": what, "message": "no"})
                case "hear":
                    self.heard = self.hear()
                    while self.heard.get("method") != what:
                        if "id" in self.heard and "method" in self.heard:
                            self.request(self.heard["id"], self.heard["method"], self.heard.get("params"))
                        self.heard = self.hear()
                case "serve":
                    self.request(self.heard["id"], self.heard["method"], self.heard.get("params"))
                case "repeat":
                    text = {"type": "text", "text": json.dumps(self.heard)}
                    update = {**what, "content": text}
                    self.say(method="session/update", params={"sessionId": session, "update": update})
                case "end":
                    end(what)


def raw(data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(1, left) :]


def end(how: str) -> None:
    if how.startswith("exit"):
        sys.exit(int(how.split()[1]))
    if how == "babble":
        raw(b"no JSON\n")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "close":
        os.close(1)
    hang()


def hang() -> None:
    while True:
        time.sleep(60)


if __name__ == "__main__":
    config = json.loads(sys.argv[1])
    if config.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "child" in config:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL
        )
        with open(config["child"], "w") as file:
            file.write(str(child.pid))
    if "start" in config:
        end(config["start"])
    if "banner" in config:
        raw(config["banner"].encode())
    Puppet(config).serve()
