// graphile-worker on PostgreSQL, as its page about performance advises for many short jobs: a local queue, batched completions.
// Its delay after a failure is e^attempts seconds and no option changes it (an admin function can reschedule a job afterwards, which is a
// second write); the runner leaves the pauses in which nothing is due out of the storm.
"use strict";
const { Logger, makeWorkerUtils, run } = require("graphile-worker");
const { main, tuned } = require("./adapter.js");
const jobs = require("./jobs.js");

const quiet = new Logger(() => () => {});
const CONCURRENCY = tuned("concurrency");
const LOCAL_QUEUE = tuned("local_queue");

const preset = {
  worker: {
    concurrentJobs: CONCURRENCY,
    maxPoolSize: CONCURRENCY + 2,
    localQueue: { size: LOCAL_QUEUE },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    logger: quiet,
  },
};

main({
  async prepare(url) {
    const utils = await makeWorkerUtils({ connectionString: url, logger: quiet });
    await utils.migrate();
    await utils.release();
  },

  async sender(url) {
    const utils = await makeWorkerUtils({ connectionString: url, logger: quiet });
    const options = { maxAttempts: jobs.ATTEMPTS };
    return {
      one: (kind, number) => utils.addJob(kind, { number }, options),
      bulk: (kind, numbers) => utils.addJobs(numbers.map((number) => ({ identifier: kind, payload: { number }, ...options }))),
    };
  },

  async left(url) {
    const utils = await makeWorkerUtils({ connectionString: url, logger: quiet });
    return () =>
      utils.withPgClient(async (client) => {
        const { rows } = await client.query("select count(*)::int as left from graphile_worker._private_jobs");
        return rows[0].left;
      });
  },

  async work(url) {
    const runner = await run({
      connectionString: url,
      preset,
      noHandleSignals: true,
      taskList: {
        noop: async (payload) => jobs.noop(payload.number),
        storm: async (payload, helpers) => jobs.storm(payload.number, helpers.job.attempts),
        probe: async (payload) => jobs.probe(payload.number),
        mortal: (payload) => jobs.mortal(payload.number),
      },
    });
    return () => runner.stop();
  },
});
