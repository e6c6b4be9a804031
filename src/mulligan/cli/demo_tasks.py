"""The sample tasks of `mulligan demo`: one that works, one that often fails, one whose downstream is out, one that can never work."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from mulligan.app import Mulligan
from mulligan.policy.backoff import Constant, Exponential
from mulligan.policy.retry import RetryPolicy

FLAKY_SHARE = 0.4
# How often each task is enqueued, in parts of twenty.
MIX = ("steady",) * 10 + ("flaky",) * 5 + ("outage",) * 4 + ("hopeless",)


class Downstream:
    """A service somewhere else: down from the start, up after a while, and down again if the demo goes on for long."""

    def __init__(self, now: Callable[[], float], down_s: float, up_s: float | None) -> None:
        self._now = now
        self._start = now()
        self._down_s = down_s
        self._up_s = up_s  # None: once it is up it stays up

    @property
    def is_down(self) -> bool:
        """Whether calls to it fail at this moment."""
        age_s = self._now() - self._start
        return age_s < self._down_s if self._up_s is None else age_s % (self._down_s + self._up_s) < self._down_s


def make_app(url: str, queue: str, downstream: Downstream, rng: random.Random) -> Mulligan:
    """An app with the four tasks. Delays are small, so that a few seconds show a whole life."""
    app = Mulligan(url, rng=rng)

    @app.task(queue=queue, retry=RetryPolicy(max_retries=3))
    async def steady(number: int) -> int:
        await asyncio.sleep(rng.uniform(0.01, 0.1))
        return number

    @app.task(queue=queue, retry=RetryPolicy(max_retries=6, backoff=Exponential(base=0.25, factor=2, cap=2)))
    async def flaky(number: int) -> int:
        await asyncio.sleep(rng.uniform(0.01, 0.1))
        if rng.random() < FLAKY_SHARE:
            raise ConnectionError("the connection was reset")
        return number

    @app.task(queue=queue, retry=RetryPolicy(max_retries=25, backoff=Exponential(base=0.5, factor=1.5, cap=2), jitter="equal"))
    async def outage(number: int) -> int:
        await asyncio.sleep(rng.uniform(0.01, 0.1))
        if downstream.is_down:
            raise TimeoutError("the payment service does not answer")
        return number

    @app.task(queue=queue, retry=RetryPolicy(max_retries=2, backoff=Constant(delay=0.5), jitter="none"))
    async def hopeless(number: int) -> int:
        raise LookupError(f"there is no customer {number}")

    return app
