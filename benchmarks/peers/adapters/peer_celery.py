"""Celery on Redis: one process, ten threads, no results, nothing it sends to other workers. With "late" it acknowledges after the job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import adapter
import jobs
import redis
from celery import Celery, signals

THREADS = adapter.tuned("threads")
QUIET = ("--loglevel=CRITICAL", "--without-gossip", "--without-mingle", "--without-heartbeat")


def make_app(url: str) -> tuple[Any, dict[str, Any]]:
    """The app and its four tasks."""
    app = Celery("bench", broker=url)
    app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)
    # Its log is off, and what the adapter tells the runner must not go there.
    app.conf.update(worker_hijack_root_logger=False, worker_redirect_stdouts=False)
    app.conf.task_acks_late = adapter.variant() == "late"

    @app.task(name="noop")  # type: ignore[untyped-decorator]  # Celery has no types
    def noop(number: int) -> None:
        jobs.noop(number)

    @app.task(name="storm", bind=True, max_retries=jobs.ATTEMPTS - 1)  # type: ignore[untyped-decorator]
    def storm(self: Any, number: int) -> None:
        try:
            jobs.storm(number, self.request.retries + 1)
        except jobs.TryAgain as problem:
            raise self.retry(exc=problem, countdown=0) from problem

    @app.task(name="probe")  # type: ignore[untyped-decorator]
    def probe(number: int) -> None:
        jobs.probe(number)

    @app.task(name="mortal")  # type: ignore[untyped-decorator]
    def mortal(number: int) -> None:
        jobs.mortal(number)

    return app, {"noop": noop, "storm": storm, "probe": probe, "mortal": mortal}


class Sender:
    """Enqueues. There is no bulk call."""

    def __init__(self, tasks: dict[str, Any]) -> None:
        self._tasks = tasks

    def one(self, kind: str, number: int) -> None:
        """One job."""
        self._tasks[kind].delay(number)


class CeleryPeer:
    """The adapter."""

    def prepare(self, url: str) -> None:
        """Nothing has to be made."""

    def sender(self, url: str) -> Sender:
        """Enqueues."""
        return Sender(make_app(url)[1])

    def left(self, url: str) -> Callable[[], int]:
        """What waits, and what a worker has taken and not acknowledged."""
        client: Any = redis.Redis.from_url(url)
        return lambda: int(client.llen("celery") + client.hlen("unacked"))

    def work(self, url: str) -> None:
        """Its worker, in this process."""
        signals.worker_ready.connect(lambda **_: adapter.ready(), weak=False)
        app, _ = make_app(url)
        app.worker_main(["worker", "--pool=threads", f"--concurrency={THREADS}", *QUIET])


if __name__ == "__main__":
    adapter.main(CeleryPeer())
