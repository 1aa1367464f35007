// A v1 client on the official SDK: CLIENT --cwd DIR -- AGENT COMMAND…

import { client, methods, ndJsonStream } from "@agentclientprotocol/sdk";
import { info, run, text } from "./recording.mjs";

const { session } = methods.agent;

await run(1, async ({ output, input, cwd, recording, document }) => {
  let onChunk = () => {};

  const app = client({ name: "recorder" })
    .onNotification(methods.client.session.update, ({ params }) => {
      recording.add({ update: params });
      if (params.update.sessionUpdate === "agent_message_chunk") onChunk();
    })
    .onRequest(methods.client.session.requestPermission, ({ params }) => {
      recording.add({ permission: params });
      return { outcome: { outcome: "selected", optionId: "allow" } };
    });

  await app.connectWith(ndJsonStream(output, input), async (agent) => {
    const ask = (method, params) => recording.answer(method, agent.request(method, params));
    const prompt = (words) => ask(session.prompt, { sessionId, prompt: text(words) });

    const initialize = { protocolVersion: 1, clientInfo: info, clientCapabilities: {} };
    document.initialize = await ask(methods.agent.initialize, initialize);
    const { sessionId } = await ask(session.new, { cwd, mcpServers: [] });

    await prompt("stream");
    await prompt("tool");
    await Promise.all([prompt("one"), prompt("two")]);

    let chunks = 0;
    onChunk = () => {
      chunks += 1;
      if (chunks === 3) agent.notify(session.cancel, { sessionId });
    };
    await prompt("slow");
    onChunk = () => {};

    document.list = await ask(session.list, { cwd });
    await ask(session.load, { sessionId, cwd, mcpServers: [] });
    if (document.initialize.agentCapabilities?.sessionCapabilities?.close) await ask(session.close, { sessionId });
  });
});
