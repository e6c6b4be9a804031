// BullMQ on Redis with ioredis, its usual driver. Completed jobs are removed, as its guide advises for a queue that is only worked off.
"use strict";
const { Queue, Worker } = require("bullmq");
const { main, tuned } = require("./adapter.js");
const jobs = require("./jobs.js");

const QUEUE = "bench";
const CONCURRENCY = tuned("concurrency");
const LEFT = ["wait", "active", "delayed", "prioritized", "waiting-children", "paused", "failed"];

// Workers wait for jobs on a connection that must never give up.
const connection = (url) => ({ url, maxRetriesPerRequest: null });

// Without a backoff a failed job is due again at once.
const options = { attempts: jobs.ATTEMPTS, removeOnComplete: true };

main({
  async prepare() {},

  async sender(url) {
    const queue = new Queue(QUEUE, { connection: connection(url), defaultJobOptions: options });
    await queue.waitUntilReady();
    return {
      one: (kind, number) => queue.add(kind, { number }),
      bulk: (kind, numbers) => queue.addBulk(numbers.map((number) => ({ name: kind, data: { number } }))),
    };
  },

  async left(url) {
    const queue = new Queue(QUEUE, { connection: connection(url) });
    await queue.waitUntilReady();
    return async () => Object.values(await queue.getJobCounts(...LEFT)).reduce((sum, count) => sum + count, 0);
  },

  async work(url) {
    const handlers = {
      noop: (job) => jobs.noop(job.data.number),
      storm: (job) => jobs.storm(job.data.number, job.attemptsMade + 1),
      probe: (job) => jobs.probe(job.data.number),
      mortal: (job) => jobs.mortal(job.data.number),
    };
    const worker = new Worker(QUEUE, async (job) => handlers[job.name](job), {
      connection: connection(url),
      concurrency: CONCURRENCY,
    });
    worker.on("error", () => {});
    await worker.waitUntilReady();
    return () => worker.close();
  },
});
