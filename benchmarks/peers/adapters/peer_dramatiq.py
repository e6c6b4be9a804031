"""Dramatiq on Redis: one process, its usual 8 threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import adapter
import dramatiq
import jobs
import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import CurrentMessage

QUEUE = "default"
KEYS = (f"dramatiq:{QUEUE}.msgs", f"dramatiq:{QUEUE}.DQ.msgs")  # messages stay here until they are acknowledged


def make_broker(url: str) -> RedisBroker:
    """The broker and the four actors."""
    broker = RedisBroker(url=url)
    broker.add_middleware(CurrentMessage())
    dramatiq.set_broker(broker)

    @dramatiq.actor
    def noop(number: int) -> None:
        jobs.noop(number)

    # A backoff of 1 ms is the least it takes.
    @dramatiq.actor(max_retries=jobs.ATTEMPTS - 1, min_backoff=1, max_backoff=1)
    def storm(number: int) -> None:
        message: Any = CurrentMessage.get_current_message()
        jobs.storm(number, message.options.get("retries", 0) + 1)

    @dramatiq.actor
    def probe(number: int) -> None:
        jobs.probe(number)

    @dramatiq.actor
    def mortal(number: int) -> None:
        jobs.mortal(number)

    return broker


class Sender:
    """Enqueues. There is no bulk call."""

    def __init__(self, broker: RedisBroker) -> None:
        self._broker = broker

    def one(self, kind: str, number: int) -> None:
        """One job."""
        self._broker.get_actor(kind).send(number)


class DramatiqPeer:
    """The adapter."""

    def prepare(self, url: str) -> None:
        """Nothing has to be made."""

    def sender(self, url: str) -> Sender:
        """Enqueues."""
        return Sender(make_broker(url))

    def left(self, url: str) -> Callable[[], int]:
        """Messages that are not acknowledged; one that is delayed is in a queue of its own."""
        client = redis.Redis.from_url(url)
        return lambda: sum(client.hlen(key) for key in KEYS)

    def work(self, url: str) -> None:
        """Its worker, in this process."""
        adapter.end_on_sigterm()
        dramatiq.Worker(make_broker(url), worker_threads=adapter.tuned("threads")).start()
        adapter.ready()
        threading.Event().wait()


if __name__ == "__main__":
    adapter.main(DramatiqPeer())
