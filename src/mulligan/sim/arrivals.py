"""Arrivals: at which times jobs come in, in seconds of the simulation, and the feeder that enqueues them then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count, groupby, repeat
from random import Random
from typing import Any, Protocol

from mulligan.core.job import NewJob


class Enqueues(Protocol):
    """What jobs are handed to: an app."""

    async def enqueue_many(self, jobs: Sequence[NewJob]) -> list[Any]: ...


def steady(per_s: float, start_s: float, end_s: float) -> Iterator[float]:
    """One job every so often, evenly."""
    return (start_s + number / per_s for number in range(int((end_s - start_s) * per_s)))


def poisson(per_s: float, start_s: float, end_s: float, rng: Random) -> Iterator[float]:
    """So many jobs a second on average, each at a time that knows nothing of the others."""
    time_s = start_s + rng.expovariate(per_s)
    while time_s < end_s:
        yield time_s
        time_s += rng.expovariate(per_s)


def bursts(jobs: int, per_s: float, start_s: float, end_s: float, rng: Random) -> Iterator[float]:
    """Batches of so many jobs, each batch at once, as many batches a second as poisson gives."""
    for time_s in poisson(per_s, start_s, end_s, rng):
        yield from repeat(time_s, jobs)


def at_once(jobs: int, at_s: float) -> Iterator[float]:
    """So many jobs at one moment."""
    return repeat(at_s, jobs)


async def feed(app: Enqueues, times_s: Iterable[float], make: Callable[[int], NewJob]) -> None:
    """Enqueues a job at each of the times, which rise; `make` is given its number, from 0. The jobs of one moment are one batch."""
    loop = asyncio.get_running_loop()
    numbers = count()
    for time_s, together in groupby(times_s):
        await asyncio.sleep(max(0.0, time_s - loop.time()))
        await app.enqueue_many([make(next(numbers)) for _ in together])
