// The official TypeScript SDK's v2 client: `node client.mjs SDK AGENT…`, where SDK is the package's folder.
// Requests and answers are those of `client.py`; the time is that on the clock, and of this process's CPU.
import { spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [sdk, command, ...words] = process.argv.slice(2);
const { client, methods, ndJsonStream } = await import(pathToFileURL(join(sdk, "dist/v2/stable/acp.js")));
const requests = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const request = async () => (await requests.next()).value;

while ((await request()) === "open") {
  const agent = spawn(command, words, { stdio: ["pipe", "pipe", "inherit"] });
  const messages = new Map();
  let updates = 0;
  let done = () => {};

  // The least that one would write to hold messages of text.
  const app = client({ name: "bench" }).onNotification(methods.client.session.update, ({ params: { update } }) => {
    updates += 1;
    switch (update.sessionUpdate) {
      case "agent_message_chunk":
      case "agent_thought_chunk":
      case "user_message_chunk": {
        const key = `${update.sessionUpdate} ${update.messageId}`;
        let texts = messages.get(key);
        if (!texts) messages.set(key, (texts = []));
        if (update.content.type === "text") texts.push(update.content.text);
        break;
      }
      case "state_update":
        if (update.state === "idle") done();
    }
  });

  await app.connectWith(ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout)), async (peer) => {
    await peer.request(methods.agent.initialize, {
      protocolVersion: 2,
      info: { name: "bench", version: "0" },
      capabilities: {},
    });
    const cwd = process.cwd();
    const { sessionId } = await peer.request(methods.agent.session.new, { cwd, mcpServers: [] });
    console.log("0 0");
    for (let line; (line = await request()) && line !== "close"; ) {
      const [start, stop] = line.split(" ").map(Number);
      updates = 0;
      const before = process.hrtime.bigint();
      const used = process.cpuUsage();
      const idle = new Promise((resolve) => (done = resolve));
      await peer.request(methods.agent.session.prompt, { sessionId, prompt: [{ type: "text", text: line }] });
      await idle;
      const { user, system } = process.cpuUsage(used);
      const wall = process.hrtime.bigint() - before;
      if (updates !== stop - start + 3) throw new Error(`${updates} updates of ${stop - start} chunks`);
      console.log(`${wall} ${(user + system) * 1000}`);
    }
  });
  agent.stdin.end();
}
