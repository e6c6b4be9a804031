"""Service: something that simulated handlers call. It takes its time, and fails as its faults say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

import msgspec

from mulligan.core.job import Job
from mulligan.sim.durations import Duration


class ServiceFailed(ConnectionError):
    """A call to the service failed. `retry_after` is how long it asks to be left alone, in seconds."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Call(msgspec.Struct, frozen=True):
    """One call: by which job, when it began, and when it would end if all went well, in seconds."""

    job: Job
    start_s: float
    end_s: float


class Failure(msgspec.Struct, frozen=True):
    """How a call fails: when, and how long the service then asks to be left alone."""

    at_s: float
    retry_after_s: float | None = None


class Fault(Protocol):
    """What may be wrong with a service."""

    def failure(self, call: Call, rng: Random) -> Failure | None:
        """How the call fails; None if this fault does not touch it."""
        ...


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that begin between two times fail, after their own time or after `takes`.

    share: how many of them, from 0 to 1. retry_after: seconds the service asks for; as a rule, longer than it needs.
    """

    start_s: float
    end_s: float
    share: float = 1.0
    takes: Duration | None = None
    retry_after_s: float | None = None

    def failure(self, call: Call, rng: Random) -> Failure | None:
        if not self.start_s <= call.start_s < self.end_s or (self.share < 1 and rng.random() >= self.share):
            return None
        return Failure(call.end_s if self.takes is None else call.start_s + self.takes(rng), self.retry_after_s)


class Flapping(msgspec.Struct, frozen=True, kw_only=True):
    """Between two times the service is down and up in turn, down first; calls that begin while it is down fail."""

    start_s: float
    end_s: float
    down_s: float
    up_s: float
    takes: Duration | None = None

    def failure(self, call: Call, rng: Random) -> Failure | None:
        since_s = call.start_s - self.start_s
        if not 0 <= since_s < self.end_s - self.start_s or since_s % (self.down_s + self.up_s) >= self.down_s:
            return None
        return Failure(call.end_s if self.takes is None else call.start_s + self.takes(rng))


class Breakdown(msgspec.Struct, frozen=True):
    """Every call that is under way at one moment fails at that moment."""

    at_s: float

    def failure(self, call: Call, rng: Random) -> Failure | None:  # noqa: ARG002 - one signature for all faults
        return Failure(self.at_s) if call.start_s <= self.at_s < call.end_s else None


class Poison(msgspec.Struct, frozen=True):
    """Certain jobs fail: always, or at so many executions before they succeed."""

    hits: Callable[[Job], bool]
    times: int | None = None
    takes: Duration | None = None

    def failure(self, call: Call, rng: Random) -> Failure | None:
        if not self.hits(call.job) or (self.times is not None and call.job.attempts > self.times):
            return None
        return Failure(call.end_s if self.takes is None else call.start_s + self.takes(rng))


class Service:
    """What handlers call. The first of its faults to strike a call decides; `calls` counts them all."""

    def __init__(self, takes: Duration, rng: Random, faults: Sequence[Fault] = ()) -> None:
        self._takes = takes
        self._rng = rng
        self._faults = faults
        self.calls = 0

    async def call(self, job: Job) -> None:
        """One call on behalf of a job; raises ServiceFailed."""
        self.calls += 1
        start_s = asyncio.get_running_loop().time()
        planned = Call(job, start_s, start_s + self._takes(self._rng))
        failures = [failure for fault in self._faults if (failure := fault.failure(planned, self._rng)) is not None]
        if not failures:
            await asyncio.sleep(planned.end_s - start_s)
            return
        first = min(failures, key=lambda failure: failure.at_s)
        await asyncio.sleep(max(0.0, first.at_s - start_s))
        raise ServiceFailed("the service is down", first.retry_after_s)
