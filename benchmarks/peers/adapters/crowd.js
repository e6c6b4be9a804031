// A hundred callers in one process, each of which waits for its own enqueue before the next: the same as crowd.py, for Node.
"use strict";

const CALLERS = 100;
const now = () => Number(process.hrtime.bigint());
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Numbers between 0 and 1 by chance, the same in every run.
function* chances(seed) {
  let state = seed + 1;
  for (;;) {
    state = (state * 48271) % 2147483647;
    yield state / 2147483647;
  }
}

// Sends everything. The first call of each caller opens connections, and is not timed.
async function crowded(sender, asked) {
  const callers = Math.max(1, Math.min(CALLERS, Math.floor(asked.count / 2)));
  const gapNs = asked.perS ? (callers / asked.perS) * 1e9 : 0;
  const sent = new Array(asked.count).fill(0);
  const places = Array.from({ length: callers }, (_, place) => place);

  async function first(place) {
    sent[place] = now();
    await sender.one(asked.kind, asked.first + place);
  }

  async function rest(place) {
    const chance = chances(place);
    let due = now();
    for (let index = place + callers; index < asked.count; index += callers) {
      if (gapNs) {
        due += -Math.log(chance.next().value) * gapNs;
        const wait = due - now();
        if (wait > 0) {
          await pause(wait / 1e6);
          due = now();
        }
      }
      // A job that was due while the call before was under way has waited since then.
      sent[index] = gapNs ? Math.round(due) : now();
      await sender.one(asked.kind, asked.first + index);
    }
  }

  await Promise.all(places.map(first));
  const begin = performance.now();
  await Promise.all(places.map(rest));
  const told = { seconds: (performance.now() - begin) / 1e3, timed: asked.count - callers, callers };
  return asked.told ? { ...told, sent_ns: sent } : told;
}

exports.crowded = crowded;
