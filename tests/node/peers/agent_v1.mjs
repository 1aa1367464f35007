// A v1 agent on the official SDK, on stdin and stdout; the first text block of a prompt says what it does.

import { randomUUID } from "node:crypto";
import { Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { agent, methods, ndJsonStream, RequestError } from "@agentclientprotocol/sdk";
import { info } from "./recording.mjs";

const sessions = new Map(); // by id: {sessionId, cwd, client, history, work, stop}

function find(sessionId) {
  const session = sessions.get(sessionId);
  if (!session) throw RequestError.resourceNotFound(sessionId);
  return session;
}

// Ends the turn that runs, and those that wait.
function stop(session) {
  session.stop.abort();
  session.stop = new AbortController();
}

function say(session, update) {
  session.history.push(update);
  return session.client.notify(methods.client.session.update, { sessionId: session.sessionId, update });
}

const chunk = (sessionUpdate, messageId, text) => ({ sessionUpdate, messageId, content: { type: "text", text } });

async function stream(session) {
  const [thought, greeting, aside] = [randomUUID(), randomUUID(), randomUUID()];
  for (const text of ["Let me ", "think"]) await say(session, chunk("agent_thought_chunk", thought, text));
  for (const text of ["Hello", ", ", "world"]) await say(session, chunk("agent_message_chunk", greeting, text));
  await say(session, chunk("agent_message_chunk", aside, "secret"));
  const entries = [
    { content: "Say hello", priority: "high", status: "completed" },
    { content: "Say goodbye", priority: "low", status: "pending" },
  ];
  await say(session, { sessionUpdate: "plan", entries });
}

async function tool(session) {
  const toolCallId = randomUUID();
  const call = { toolCallId, title: "Run printf", kind: "execute" };
  await say(session, { sessionUpdate: "tool_call", ...call, status: "pending" });
  const { outcome } = await session.client.request(methods.client.session.requestPermission, {
    sessionId: session.sessionId,
    toolCall: call,
    options: [
      { optionId: "allow", name: "Allow", kind: "allow_once" },
      { optionId: "reject", name: "Reject", kind: "reject_once" },
    ],
  });
  const allowed = outcome.outcome === "selected" && outcome.optionId === "allow";
  const content = [{ type: "content", content: { type: "text", text: "hello from tool" } }];
  const result = allowed ? { status: "completed", content } : { status: "failed" };
  await say(session, { sessionUpdate: "tool_call_update", toolCallId, ...result });
  await say(session, chunk("agent_message_chunk", randomUUID(), allowed ? "Done." : "Not done."));
}

async function slow(session, stopped) {
  const messageId = randomUUID();
  for (let tick = 1; tick <= 500 && !stopped.aborted; tick += 1) {
    await say(session, chunk("agent_message_chunk", messageId, `tick ${tick} `));
    await sleep(20, undefined, { signal: stopped }).catch(() => {});
  }
}

async function turn(session, prompt, stopped) {
  if (stopped.aborted) return { stopReason: "cancelled" };
  const words = prompt.find(({ type }) => type === "text")?.text ?? "";
  const messageId = randomUUID();
  for (const content of prompt) session.history.push({ sessionUpdate: "user_message_chunk", messageId, content });
  if (words === "boom") throw new Error("boom");
  if (words === "stream") await stream(session);
  else if (words === "tool") await tool(session);
  else if (words === "slow") await slow(session, stopped);
  else await say(session, chunk("agent_message_chunk", randomUUID(), words));
  return { stopReason: stopped.aborted ? "cancelled" : "end_turn" };
}

const app = agent({ name: "scripted" })
  .onRequest(methods.agent.initialize, () => ({
    protocolVersion: 1,
    agentInfo: { ...info, name: `${info.name} agent` },
    agentCapabilities: { loadSession: true, sessionCapabilities: { list: {}, close: {} } },
  }))
  .onRequest(methods.agent.session.new, ({ params, client }) => {
    const sessionId = randomUUID();
    const [history, work, stop] = [[], Promise.resolve(), new AbortController()];
    sessions.set(sessionId, { sessionId, cwd: params.cwd, client, history, work, stop });
    return { sessionId };
  })
  .onRequest(methods.agent.session.prompt, ({ params }) => {
    const session = find(params.sessionId);
    const { signal } = session.stop;
    const work = session.work.then(() => turn(session, params.prompt, signal)); // one prompt after the other
    session.work = work.catch(() => {});
    return work;
  })
  .onNotification(methods.agent.session.cancel, ({ params }) => {
    stop(find(params.sessionId));
  })
  .onRequest(methods.agent.session.list, ({ params }) => ({
    sessions: [...sessions.values()]
      .filter(({ cwd }) => params.cwd == null || cwd === params.cwd)
      .map(({ sessionId, cwd }) => ({ sessionId, cwd })),
  }))
  .onRequest(methods.agent.session.load, async ({ params, client }) => {
    const session = find(params.sessionId);
    for (const update of session.history)
      await client.notify(methods.client.session.update, { sessionId: params.sessionId, update });
    return {};
  })
  .onRequest(methods.agent.session.close, async ({ params }) => {
    const session = find(params.sessionId);
    stop(session);
    await session.work;
    return {};
  });

const connection = app.connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
await connection.closed;
sessions.forEach(stop);
