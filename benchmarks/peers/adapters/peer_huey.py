"""Huey on SQLite (one thread, as more get in each other's way; without waiting for the disk, or with it) or on Redis (eight threads)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import adapter
import jobs
from huey import RedisHuey, SqliteHuey
from huey.consumer import Consumer

BUSY_S = 60  # how long a write waits for others: a hundred threads that enqueue have to wait for each other


def make_huey(url: str) -> tuple[Any, dict[str, Any]]:
    """The queue and its four tasks."""
    if adapter.variant() == "redis":
        huey = RedisHuey("bench", url=url)
    else:
        huey = SqliteHuey("bench", filename=url.removeprefix("sqlite:///"), fsync=adapter.variant() == "sqlite-fsync", timeout=BUSY_S)

    @huey.task()  # type: ignore[untyped-decorator]  # Huey has no types
    def noop(number: int) -> None:
        jobs.noop(number)

    @huey.task(retries=jobs.ATTEMPTS - 1, context=True)  # type: ignore[untyped-decorator]
    def storm(number: int, task: Any) -> None:
        jobs.storm(number, jobs.ATTEMPTS - task.retries)

    @huey.task()  # type: ignore[untyped-decorator]
    def probe(number: int) -> None:
        jobs.probe(number)

    @huey.task()  # type: ignore[untyped-decorator]
    def mortal(number: int) -> None:
        jobs.mortal(number)

    return huey, {"noop": noop, "storm": storm, "probe": probe, "mortal": mortal}


class Sender:
    """Enqueues. There is no bulk call."""

    def __init__(self, tasks: dict[str, Any]) -> None:
        self._tasks = tasks

    def one(self, kind: str, number: int) -> None:
        """One job."""
        self._tasks[kind](number)


class HueyPeer:
    """The adapter."""

    def prepare(self, url: str) -> None:
        """Its tables."""
        make_huey(url)

    def sender(self, url: str) -> Sender:
        """Enqueues."""
        return Sender(make_huey(url)[1])

    def left(self, url: str) -> Callable[[], int]:
        """What waits. What runs has left the queue already."""
        huey, _ = make_huey(url)
        return lambda: int(huey.pending_count() + huey.scheduled_count())

    def work(self, url: str) -> None:
        """Its consumer, in this process."""
        huey, _ = make_huey(url)
        Consumer(huey, workers=adapter.tuned("threads")).start()
        adapter.end_on_sigterm()
        adapter.ready()
        threading.Event().wait()


if __name__ == "__main__":
    adapter.main(HueyPeer())
