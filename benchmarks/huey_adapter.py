"""The same no-op drain on Huey, for `mulligan bench --beside huey`: SqliteHuey with fsync off, and its consumer at its defaults.

`python huey_adapter.py JOBS`, the file in MULLIGAN_BENCH_URL; the last line is {"seconds": ...}: from the start of the
consumer to the end of the last task.
Its dequeue deletes, so that a kill loses what runs.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

from huey import SqliteHuey
from huey.consumer import Consumer


def main(filename: str, jobs: int) -> float:
    """Enqueues the jobs, runs the consumer until all have been executed, and gives the seconds that took."""
    huey = SqliteHuey("bench", filename=filename, fsync=False)
    finished = threading.Event()
    left = jobs
    lock = threading.Lock()

    @huey.task()  # type: ignore[untyped-decorator]  # Huey has no types
    def noop() -> None:
        nonlocal left
        with lock:
            left -= 1
            if left == 0:
                finished.set()

    for _ in range(jobs):
        noop()
    consumer = Consumer(huey)
    start = time.perf_counter()
    consumer.start()
    finished.wait()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"seconds": main(os.environ["MULLIGAN_BENCH_URL"], int(sys.argv[1]))}) + "\n")
    sys.stdout.flush()
    os._exit(0)  # its threads are idle now, and stopping them takes longer than the measurement
