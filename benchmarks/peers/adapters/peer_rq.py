"""RQ on Redis with its worker that does not fork for each job; results are not kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import adapter
import jobs
import redis
from rq import Queue, Retry, SimpleWorker, get_current_job

NAME = "bench"
# RQ finds its functions by their paths.
PATHS = {"noop": "jobs.noop", "storm": "peer_rq.storm", "probe": "jobs.probe", "mortal": "jobs.mortal"}
OPTIONS: dict[str, Any] = {"result_ttl": 0, "description": "-", "retry": Retry(max=jobs.ATTEMPTS - 1)}
LISTS = (f"rq:queue:{NAME}", f"rq:queue:{NAME}:intermediate")
REGISTRIES = (f"rq:wip:{NAME}", f"rq:failed:{NAME}", f"rq:scheduled:{NAME}")


def storm(number: int) -> None:
    """A job of the storm."""
    job: Any = get_current_job()
    jobs.storm(number, jobs.ATTEMPTS - job.retries_left)


class Sender:
    """Enqueues."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def one(self, kind: str, number: int) -> None:
        """One job."""
        self._queue.enqueue(PATHS[kind], args=(number,), **OPTIONS)

    def bulk(self, kind: str, numbers: Sequence[int]) -> None:
        """Many through one pipeline."""
        self._queue.enqueue_many([Queue.prepare_data(PATHS[kind], args=(number,), **OPTIONS) for number in numbers])


class RqPeer:
    """The adapter."""

    def prepare(self, url: str) -> None:
        """Nothing has to be made."""

    def sender(self, url: str) -> Sender:
        """Enqueues."""
        return Sender(Queue(NAME, connection=redis.Redis.from_url(url)))

    def left(self, url: str) -> Callable[[], int]:
        """What waits, runs, is to be tried again or has failed."""
        client: Any = redis.Redis.from_url(url)
        return lambda: int(sum(client.llen(key) for key in LISTS) + sum(client.zcard(key) for key in REGISTRIES))

    def work(self, url: str) -> None:
        """Its worker, in this process."""
        worker = SimpleWorker([NAME], connection=redis.Redis.from_url(url), log_job_description=False)
        adapter.ready()
        worker.work(logging_level="CRITICAL", with_scheduler=False)


if __name__ == "__main__":
    adapter.main(RqPeer())
