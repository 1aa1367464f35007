// A v2 agent on the official SDK, on stdin and stdout; the first text block of a prompt says what it does.
// A prompt sent while another is worked on waits: it is inserted, and its request answered, when its turn comes.

import { randomUUID } from "node:crypto";
import { Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { agent, methods, ndJsonStream, RequestError } from "@agentclientprotocol/sdk/experimental/v2";
import { info, text } from "./recording.mjs";

const sessions = new Map(); // by id: {sessionId, cwd, client, state, history, work, stop}

function find(sessionId) {
  const session = sessions.get(sessionId);
  if (!session) throw RequestError.sessionNotFound(sessionId);
  return session;
}

// Ends the turn that runs, and those that wait.
function stop(session) {
  session.stop.abort();
  session.stop = new AbortController();
}

const send = ({ client, sessionId }, update) => client.notify(methods.client.session.update, { sessionId, update });

function enter(session, state) {
  session.state = { sessionUpdate: "state_update", ...state };
  return send(session, session.state);
}

// Sends an upsert, and merges it into the one that a replay will send for this id.
function upsert(session, id, update) {
  session.history.set(id, { ...session.history.get(id), ...update });
  return send(session, update);
}

// Streams a message; in the history it is whole.
async function say(session, sessionUpdate, messageId, ...parts) {
  for (const part of parts) {
    const [content] = text(part);
    const held = session.history.get(messageId)?.content ?? [];
    session.history.set(messageId, { sessionUpdate, messageId, content: [...held, content] });
    await send(session, { sessionUpdate: `${sessionUpdate}_chunk`, messageId, content });
  }
}

async function stream(session) {
  const [thought, greeting, aside, planId] = [randomUUID(), randomUUID(), randomUUID(), randomUUID()];
  await say(session, "agent_thought", thought, "Let me ", "think");
  await say(session, "agent_message", greeting, "Hello", ", ", "world");
  const replaced = { sessionUpdate: "agent_message", messageId: greeting, content: text("Hello, world!") };
  await upsert(session, greeting, replaced);
  await say(session, "agent_message", aside, "secret");
  await upsert(session, aside, { sessionUpdate: "agent_message", messageId: aside, content: null });
  const entries = [
    { content: "Say hello", priority: "high", status: "completed" },
    { content: "Say goodbye", priority: "low", status: "pending" },
  ];
  await upsert(session, planId, { sessionUpdate: "plan_update", plan: { type: "items", planId, entries } });
}

async function tool(session, stopped) {
  const toolCallId = randomUUID();
  const call = { toolCallId, title: "Run printf", kind: "execute", status: "pending" };
  const update = (fields) => upsert(session, toolCallId, { sessionUpdate: "tool_call_update", toolCallId, ...fields });
  await update(call);
  await enter(session, { state: "requires_action" });
  const question = {
    sessionId: session.sessionId,
    title: "Run printf?",
    subject: { type: "tool_call", toolCall: call },
    options: [
      { optionId: "allow", name: "Allow", kind: "allow_once" },
      { optionId: "reject", name: "Reject", kind: "reject_once" },
    ],
  };
  const { outcome } = await session.client
    .request(methods.client.session.requestPermission, question, {
      cancellationSignal: stopped,
      stopWaitingOnCancel: true,
    })
    .catch(() => ({ outcome: { outcome: "cancelled" } }));
  await enter(session, { state: "running" });
  const allowed = outcome.outcome === "selected" && outcome.optionId === "allow";
  if (allowed) {
    const terminalId = randomUUID();
    const data = Buffer.from("hello from tool").toString("base64");
    const terminal = { sessionUpdate: "terminal_update", terminalId };
    await update({ status: "in_progress", content: [{ type: "terminal", terminalId }] });
    await upsert(session, terminalId, { ...terminal, command: "printf 'hello from tool'", cwd: session.cwd });
    await send(session, { sessionUpdate: "terminal_output_chunk", terminalId, data });
    session.history.get(terminalId).output = { data };
    await upsert(session, terminalId, { ...terminal, exitStatus: { exitCode: 0 } });
  }
  await update({ status: allowed ? "completed" : "failed" });
  if (!stopped.aborted) await say(session, "agent_message", randomUUID(), allowed ? "Done." : "Not done.");
}

async function slow(session, stopped) {
  const messageId = randomUUID();
  for (let tick = 1; tick <= 500 && !stopped.aborted; tick += 1) {
    await say(session, "agent_message", messageId, `tick ${tick} `);
    await sleep(20, undefined, { signal: stopped }).catch(() => {});
  }
}

async function turn(session, messageId, prompt, stopped) {
  const words = prompt.find(({ type }) => type === "text")?.text ?? "";
  await upsert(session, messageId, { sessionUpdate: "user_message", messageId, content: prompt });
  await enter(session, { state: "running" });
  try {
    if (stopped.aborted) return await enter(session, { state: "idle", stopReason: "cancelled" });
    if (words === "boom") throw new Error("boom");
    if (words === "stream") await stream(session);
    else if (words === "tool") await tool(session, stopped);
    else if (words === "slow") await slow(session, stopped);
    else await say(session, "agent_message", randomUUID(), words);
    await enter(session, { state: "idle", stopReason: stopped.aborted ? "cancelled" : "end_turn" });
  } catch ({ message }) {
    await enter(session, { state: "idle", stopReason: "error", error: { code: -32603, message } });
  }
}

const app = agent({ name: "scripted" })
  .onRequest(methods.agent.initialize, () => ({
    protocolVersion: 2,
    info: { ...info, name: `${info.name} agent` },
    capabilities: { session: {} },
  }))
  .onRequest(methods.agent.session.new, ({ params, client }) => {
    const sessionId = randomUUID();
    const state = { sessionUpdate: "state_update", state: "idle" };
    const [history, work, stop] = [new Map(), Promise.resolve(), new AbortController()];
    sessions.set(sessionId, { sessionId, cwd: params.cwd, client, state, history, work, stop });
    return { sessionId };
  })
  .onRequest(methods.agent.session.prompt, async ({ params }) => {
    const session = find(params.sessionId);
    const { signal } = session.stop;
    const messageId = randomUUID();
    const inserted = session.work.then(() => !signal.aborted);
    session.work = inserted
      .then((yes) => yes && sleep(0, true)) // lets the answer to the request out first
      .then((yes) => yes && turn(session, messageId, params.prompt, signal));
    if (!(await inserted)) throw RequestError.requestCancelled();
    return { messageId };
  })
  .onNotification(methods.agent.session.cancel, ({ params }) => {
    stop(find(params.sessionId));
  })
  .onRequest(methods.agent.session.list, ({ params }) => ({
    sessions: [...sessions.values()]
      .filter(({ cwd }) => params.cwd == null || cwd === params.cwd)
      .map(({ sessionId, cwd }) => ({ sessionId, cwd })),
  }))
  .onRequest(methods.agent.session.resume, async ({ params }) => {
    const session = find(params.sessionId);
    const { replayFrom } = params;
    if (replayFrom != null && replayFrom.type !== "start") throw RequestError.invalidParams({ replayFrom });
    if (replayFrom != null) for (const update of session.history.values()) await send(session, update);
    await send(session, session.state);
    return {};
  })
  .onRequest(methods.agent.session.close, async ({ params }) => {
    const session = sessions.get(params.sessionId);
    if (session) {
      stop(session);
      await session.work;
    }
    return {};
  });

const connection = app.connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
await connection.closed;
sessions.forEach(stop);
