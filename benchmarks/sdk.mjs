// The official TypeScript SDK as the other side: `node sdk.mjs SDK LINES`, where SDK is the package's folder.
// A request is a line "CASE START STOP" on stdin; the answer is the nanoseconds that those lines took.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [sdk, path] = process.argv.slice(2);
const { zUpdateSessionNotification } = await import(pathToFileURL(join(sdk, "dist/v2/schema/zod.gen.js")));
const lines = readFileSync(path, "utf8").split("\n"); // strings already: decoding UTF-8 is not in the time

const cases = {
  json(start, stop) {
    for (let index = start; index < stop; index++) JSON.parse(lines[index]);
  },
  zod(start, stop) {
    for (let index = start; index < stop; index++) {
      const message = JSON.parse(lines[index]);
      if (message.method !== "session/update") throw new Error("not a session/update");
      zUpdateSessionNotification.parse(message.params);
    }
  },
};

for await (const request of createInterface({ input: process.stdin })) {
  const [name, start, stop] = request.split(" ");
  const before = process.hrtime.bigint();
  cases[name](Number(start), Number(stop));
  console.log(String(process.hrtime.bigint() - before));
}
