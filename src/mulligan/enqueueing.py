"""Enqueueing before and after the store's call: the same for the async form and for the blocking one (sync.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mulligan.core.contract import Inserted
from mulligan.core.errors import BadSetting
from mulligan.core.job import NewJob
from mulligan.core.schedule import Missed, Schedule
from mulligan.handle import Handle, ScheduleHandle
from mulligan.request import PLAIN, build_schedule

if TYPE_CHECKING:
    from mulligan.app import Mulligan

INSERT_BATCH_MAX = 1_000  # jobs in one write
INSERT_LARGE_MAX = 100  # of a batch whose payloads are longer than this together, so that every server takes it as one message
INSERT_CHARS_MAX = 16 * 1024 * 1024


def wanted(
    app: Mulligan,
    task: str,
    /,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    interval: float | None = None,
    name: str | None = None,
    missed: Missed = "one",
    **options: Any,
) -> NewJob | Schedule:
    """What a call of `enqueue` by name asks for, checked and encoded."""
    job = app.build(app.registry.need(task), args, kwargs or {}, PLAIN.with_more(options))
    if interval is not None:
        return build_schedule(job, interval, name or task, missed)
    if name is not None or missed != "one":
        raise BadSetting("name and missed belong to a schedule; give interval=seconds as well")
    return job


def batches(jobs: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
    """The jobs in their order, as they go to the store, one write after the other."""
    start = 0
    while start < len(jobs):
        batch = jobs[start : start + INSERT_BATCH_MAX]
        if sum([len(job.payload) for job in batch]) > INSERT_CHARS_MAX:
            batch = batch[:INSERT_LARGE_MAX]
        yield batch
        start += len(batch)


def published(app: Mulligan, batch: Sequence[NewJob], inserted: Sequence[Inserted]) -> list[Handle[Any]]:
    """The handles of a batch that was stored, after its events."""
    pairs = zip(batch, inserted, strict=True)
    app.events.publish_rows([("enqueued", answer.at_us, job.id, job.queue, job.task) for job, answer in pairs if answer.created])
    return [Handle(app, answer.id, answer.created) for answer in inserted]


async def put_schedule(app: Mulligan, schedule: Schedule) -> ScheduleHandle:
    """Stores a schedule, and opens the store for it if need be."""
    await app.open()
    return ScheduleHandle(app, await app.store.put_schedule(schedule))
