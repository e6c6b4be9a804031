// What the adapters of Node's peers share: the command line and the JSON lines of adapter.py.
"use strict";
const readline = require("node:readline");
const { parseArgs } = require("node:util");
const { crowded } = require("./crowd.js");

const BULK = 1000;

// Resolves when the line has been handed over. A long one is not after the call alone: a pipe takes 64 KiB at a time, and an exit cuts off the rest.
function say(answer) {
  return new Promise((resolve) => process.stdout.write(JSON.stringify(answer) + "\n", resolve));
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Pauses that no polling can fall into step with, the same in every run.
function* gaps(average) {
  let state = 1;
  for (;;) {
    state = (state * 48271) % 2147483647;
    yield average * (0.5 + state / 2147483647);
  }
}

async function spaced(sender, kind, count, gapMs) {
  const sent = [];
  const next = gaps(gapMs);
  for (let number = 0; number < count; number += 1) {
    await pause(next.next().value);
    sent.push(Number(process.hrtime.bigint()));
    await sender.one(kind, number);
  }
  return sent;
}

async function enqueue(peer, url, asked) {
  const sender = await peer.sender(url);
  if (asked.gapMs) return { sent_ns: await spaced(sender, asked.kind, asked.count, asked.gapMs) };
  if (asked.how === "crowd") return crowded(sender, asked);
  const size = asked.how === "one" ? 1 : BULK;
  let begin = performance.now();
  for (let first = 0; first < asked.count; first += size) {
    if (first === size) begin = performance.now(); // the first call opens connections; it is not timed
    const numbers = Array.from({ length: Math.min(size, asked.count - first) }, (_, index) => first + index);
    if (asked.how === "one") await sender.one(asked.kind, first);
    else await sender.bulk(asked.kind, numbers);
  }
  return { seconds: (performance.now() - begin) / 1e3, timed: Math.max(0, asked.count - size) };
}

async function tellLeft(peer, url) {
  const count = await peer.left(url);
  await say({ ready: true });
  for await (const _line of readline.createInterface({ input: process.stdin })) await say({ left: await count() });
}

async function run(peer) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      kind: { type: "string", default: "noop" },
      count: { type: "string", default: "0" },
      how: { type: "string", default: "one" },
      first: { type: "string", default: "0" },
      "gap-ms": { type: "string", default: "0" },
      "per-s": { type: "string", default: "0" },
      told: { type: "string", default: "0" },
    },
  });
  const number = (name) => Number(values[name]);
  const amounts = { count: number("count"), first: number("first"), gapMs: number("gap-ms"), perS: number("per-s"), told: number("told") };
  const asked = { kind: values.kind, how: values.how, ...amounts };
  const url = process.env.BENCH_URL;
  const role = positionals[0];
  if (role === "prepare") {
    await peer.prepare(url);
    await say({ prepared: true });
  } else if (role === "enqueue") {
    await say(await enqueue(peer, url, asked));
  } else if (role === "left") {
    await tellLeft(peer, url);
  } else {
    const stop = await peer.work(url);
    await say({ ready: true });
    await new Promise((resolve) => process.once("SIGTERM", resolve));
    await stop();
  }
}

// A number of this peer's settings, as the roster has it or a sweep tries it.
exports.tuned = (name) => JSON.parse(process.env.BENCH_TUNED)[name];

exports.main = (peer) =>
  run(peer).then(
    () => process.exit(0),
    (problem) => {
      process.stderr.write(`${problem.stack || problem}\n`);
      process.exit(1);
    },
  );
