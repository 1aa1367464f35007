// A v2 client on the official SDK: CLIENT --cwd DIR -- AGENT COMMAND…

import { client, methods, ndJsonStream } from "@agentclientprotocol/sdk/experimental/v2";
import { info, run, text } from "./recording.mjs";

const { session } = methods.agent;

await run(2, async ({ output, input, cwd, recording, document }) => {
  const inserted = new Set(); // the ids of user messages reported so far,
  const worked = new Set(); // and of those that an idle state came after
  let onChunk = () => {};

  const app = client({ name: "recorder" })
    .onNotification(methods.client.session.update, ({ params }) => {
      const { update } = params;
      if (update.sessionUpdate.startsWith("user_message")) inserted.add(update.messageId);
      if (update.sessionUpdate === "state_update" && update.state === "idle") inserted.forEach((id) => worked.add(id));
      recording.add({ update: params });
      if (update.sessionUpdate === "agent_message_chunk") onChunk();
    })
    .onRequest(methods.client.session.requestPermission, ({ params }) => {
      recording.add({ permission: params });
      return { outcome: { outcome: "selected", optionId: "allow" } };
    });

  await app.connectWith(ndJsonStream(output, input), async (agent) => {
    const ask = (method, params) => recording.answer(method, agent.request(method, params));

    // Sends all at once, and waits until each is in the conversation and the session idle again.
    const prompt = async (...prompts) => {
      const answers = await Promise.all(
        prompts.map((words) => ask(session.prompt, { sessionId, prompt: text(words) })),
      );
      await recording.until(() => answers.every(({ messageId }) => worked.has(messageId)));
    };

    document.initialize = await ask(methods.agent.initialize, { protocolVersion: 2, info, capabilities: {} });
    const { sessionId } = await ask(session.new, { cwd, mcpServers: [] });

    await prompt("stream");
    await prompt("tool");
    await prompt("one", "two");

    let chunks = 0;
    onChunk = () => {
      chunks += 1;
      if (chunks === 3) agent.notify(session.cancel, { sessionId });
    };
    await prompt("slow");
    onChunk = () => {};

    document.list = await ask(session.list, { cwd });
    await ask(session.resume, { sessionId, cwd, mcpServers: [], replayFrom: { type: "start" } });
    await ask(session.close, { sessionId });
  });
});
