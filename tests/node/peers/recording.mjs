// What the scripts share beside the SDK: the command line of a client, its agent's process, and the record of what the SDK
// hands over.

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { Readable, Writable } from "node:stream";

const DEADLINE_MS = 20_000;
const GRACE_MS = 3_000;

const manifest = new URL("../node_modules/@agentclientprotocol/sdk/package.json", import.meta.url);
const { name, version } = JSON.parse(readFileSync(manifest, "utf8"));
export const info = { name, version };

export class Recording {
  events = [];
  #waiting = [];

  add(event) {
    this.events.push(structuredClone(event));
    this.#waiting = this.#waiting.filter(({ met, resolve }) => !met() || resolve());
  }

  // Resolves as soon as `met` says so; looked at after every event.
  until(met) {
    return new Promise((resolve) => {
      if (met()) resolve();
      else this.#waiting.push({ met, resolve });
    });
  }

  // Records the answer to a request at the moment the SDK gives it.
  answer(method, promise) {
    return promise.then(
      (result) => {
        this.add({ response: method, result });
        return result;
      },
      ({ code, message, data }) => this.add({ response: method, error: { code, message, data } }),
    );
  }
}

// CLIENT --cwd DIR -- AGENT COMMAND…: starts the agent, lets `talk` speak with it, prints the document.
export async function run(protocolVersion, talk) {
  const [flag, cwd, dashes, command, ...words] = process.argv.slice(2);
  if (flag !== "--cwd" || dashes !== "--" || !command) throw new Error("usage: CLIENT --cwd DIR -- AGENT COMMAND…");
  const agent = spawn(command, words, { stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => agent.once("exit", (code, signal) => resolve({ code, signal })));
  const recording = new Recording();
  const document = { sdk: info, protocolVersion, initialize: null, events: recording.events, list: null };
  const late = setTimeout(() => finish(1, `not done after ${DEADLINE_MS} ms`), DEADLINE_MS);

  async function finish(status, failed) {
    clearTimeout(late);
    const stop = setTimeout(() => agent.kill("SIGKILL"), GRACE_MS);
    agent.stdin.end();
    document.agentExit = await ended;
    clearTimeout(stop);
    if (failed) document.failed = failed;
    process.stdout.write(`${JSON.stringify(document)}\n`, () => process.exit(status));
  }

  try {
    await talk({ output: Writable.toWeb(agent.stdin), input: Readable.toWeb(agent.stdout), cwd, recording, document });
  } catch (error) {
    return finish(1, String(error?.stack ?? error));
  }
  return finish(0);
}

export const text = (words) => [{ type: "text", text: words }];
