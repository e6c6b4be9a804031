"""Every way in which a held job can end, some with texts that look like what a store leaves open."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from mulligan.core.change import Change
from mulligan.core.contract import Store
from mulligan.core.job import ErrorInfo, Job
from tests.builders import LEASE_S, ask, cancelled, done, failed, fresh_id, new_job, record, release, retry, snooze, us

# What only the time of a write tells may stand open in a text until then.
SLY = '"ended_at_us":null, "at_us":0, "run_at_us":null, {"ended_at_us":null}'


def sly(job: Job) -> Change:
    """A failure with such an error."""
    error = ErrorInfo(type=SLY, message=SLY, code=SLY)
    told = msgspec.structs.replace(record(job, "failure", 5), error=error, why=SLY, worker=SLY)
    return retry(job, 5, error=error, record=told, why=SLY, worker=SLY)


EVERY_END: Sequence[Callable[[Job], Change]] = (
    done,
    lambda job: done(job, '"a result"'),
    sly,
    lambda job: retry(job, 3),
    failed,
    lambda job: snooze(job, 7),
    lambda job: release(job, 9),
    cancelled,
)


async def claimed(store: Store, count: int, queue: str = "q", **fields: object) -> Sequence[Job]:
    """So many new jobs under one claim."""
    await store.insert([new_job(queue, **fields) for _ in range(count)])
    return (await store.claim(fresh_id(), "me", [ask(queue)], count, us(LEASE_S))).jobs
