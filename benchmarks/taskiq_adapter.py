"""The same no-op drain on Taskiq, for `mulligan bench --beside taskiq`: its list broker on Redis, one worker process.

`python taskiq_adapter.py QUEUE JOBS`, the server in MULLIGAN_BENCH_URL; the last line is {"seconds": ...}: from the first execution to
the last. The worker has run some jobs before, so that everything is imported and connected. What made it fastest here: parameters are
not parsed, more tasks than the default may run at once, none wait beyond them, and it logs nothing. Results are not stored, and its
pop deletes, so that a kill loses what runs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time

from taskiq.receiver import Receiver
from taskiq_redis import ListQueueBroker

WARM_UP = 500
KICKS_AT_ONCE = 500
MAX_ASYNC_TASKS = 1_000


class Marks:
    """When the first and the last of the expected executions were."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, expected: int) -> None:
        """Counts anew."""
        self.left = expected
        self.first_s = self.last_s = 0.0
        self.complete = asyncio.Event()

    def note(self) -> None:
        """One more execution."""
        if not self.first_s:
            self.first_s = time.perf_counter()
        self.left -= 1
        if self.left == 0:
            self.last_s = time.perf_counter()
            self.complete.set()


async def main(url: str, queue: str, jobs: int) -> float:
    """Enqueues the jobs, lets the receiver run them all, and gives the seconds that took."""
    broker = ListQueueBroker(url, queue_name=queue, max_connection_pool_size=KICKS_AT_ONCE)
    marks = Marks()

    @broker.task
    async def noop() -> None:
        marks.note()

    async def enqueue_and_run(count: int) -> float:
        for first in range(0, count, KICKS_AT_ONCE):
            await asyncio.gather(*(noop.kiq() for _ in range(first, min(first + KICKS_AT_ONCE, count))))
        marks.begin(count)
        finish = asyncio.Event()
        receiver = Receiver(broker, run_startup=False, validate_params=False, max_async_tasks=MAX_ASYNC_TASKS)
        listening = asyncio.create_task(receiver.listen(finish))
        await marks.complete.wait()
        finish.set()
        await listening
        return marks.last_s - marks.first_s

    broker.is_worker_process = True
    await broker.startup()
    await enqueue_and_run(min(WARM_UP, jobs))
    seconds = await enqueue_and_run(jobs)
    await broker.shutdown()
    return seconds


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # it tells of every task that begins and ends
    sys.stdout.write(json.dumps({"seconds": asyncio.run(main(os.environ["MULLIGAN_BENCH_URL"], sys.argv[1], int(sys.argv[2])))}) + "\n")
