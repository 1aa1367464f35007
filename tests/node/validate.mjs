// Reads lines of {version, params} and answers each with what the official SDK makes of the params of a session/update:
// {ok: false, issues} when its validator refuses them, else {ok: true, equal}: whether it kept all that was sent.

import { text } from "node:stream/consumers";
import { isDeepStrictEqual } from "node:util";

const dist = new URL("./node_modules/@agentclientprotocol/sdk/dist/", import.meta.url);
const { zSessionNotification } = await import(new URL("v1/schema/zod.gen.js", dist));
const { zUpdateSessionNotification } = await import(new URL("v2/schema/zod.gen.js", dist));
const validators = { 1: zSessionNotification, 2: zUpdateSessionNotification };

const lines = (await text(process.stdin)).split("\n"); // readline would split on U+2028 too
for (const line of lines.slice(0, -1)) {
  const { version, params } = JSON.parse(line);
  const result = validators[version].safeParse(params);
  const answer = result.success
    ? { ok: true, equal: isDeepStrictEqual(result.data, JSON.parse(line).params) }
    : { ok: false, issues: result.error.issues };
  console.log(JSON.stringify(answer));
}
