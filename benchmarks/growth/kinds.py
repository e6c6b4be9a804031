"""Kinds of jobs a store fills with: one for each status, and those of the future apart by lane."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace

from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Store
from mulligan.core.ids import new_id
from mulligan.core.job import ErrorInfo, Job, first_row
from tests.builders import new_job

QUEUE = "q"
TASK = "work"
RARE = "rare"  # the task and the queue of a few old jobs
BATCH = 2_000
NOTED = 200
DAY_US = 86_400 * SECOND_US
ERROR = ErrorInfo(type="ConnectionError", message="refused", code="111", traceback="line 1\nline 2", fingerprint="f1")
Progress = Callable[[int, int], None]


def _finished(row: Job, now_us: int) -> Job:
    return replace(row, run_at_us=None, finished_at_us=now_us, attempts=1, fence=1)


def _ready(row: Job, now_us: int, number: int) -> Job:
    return replace(row, run_at_us=now_us - DAY_US + number)


def _later(row: Job, now_us: int, number: int) -> Job:
    return replace(row, run_at_us=now_us + DAY_US + number)


def _retry(row: Job, now_us: int, number: int) -> Job:
    return replace(row, lane="retry", attempts=1, failures=1, run_at_us=now_us + DAY_US + number, last_error=ERROR)


def _processing(row: Job, now_us: int, number: int) -> Job:
    lease_us = now_us + DAY_US + number
    return replace(
        row, status="processing", run_at_us=None, attempts=1, fence=1, lease_owner="w", claim_id=row.id, lease_expires_at_us=lease_us
    )


def _done(row: Job, now_us: int, _: int) -> Job:
    return replace(_finished(row, now_us), status="done")


def _failed(row: Job, now_us: int, _: int) -> Job:
    return replace(_finished(row, now_us), status="failed", lane="retry", failures=1, last_error=ERROR)


def _cancelled(row: Job, now_us: int, _: int) -> Job:
    return replace(_finished(row, now_us), status="cancelled", fence=0, attempts=0)


KINDS: dict[str, Callable[[Job, int, int], Job]] = {
    "ready": _ready,
    "later": _later,
    "retry": _retry,
    "processing": _processing,
    "done": _done,
    "failed": _failed,
    "cancelled": _cancelled,
}


def jobs_of(sizes: Mapping[str, int], now_us: int) -> Iterator[Job]:
    """So many of each kind, mixed, so that jobs of every kind are among the newest and among the oldest. The oldest of each is rare."""
    for number in range(max(sizes.values())):
        for kind, size in sizes.items():
            if number < size:
                queue, task = (RARE, RARE) if number == 0 else (QUEUE, TASK)
                row = first_row(new_job(queue, id=new_id(now_us), task=task), now_us)
                yield KINDS[kind](row, now_us, number)


async def fill(store: Store, sizes: Mapping[str, int], progress: Progress = lambda *_: None) -> list[str]:
    """Stores them, in bulk; the ids of some, evenly from the oldest to the newest."""
    now_us, total, stored = await store.now_us(), sum(sizes.values()), 0
    step = max(1, total // NOTED)
    noted: list[str] = []
    batch: list[Job] = []
    for number, job in enumerate(jobs_of(sizes, now_us)):
        batch.append(job)
        if number % step == 0:
            noted.append(job.id)
        if len(batch) == BATCH:
            await store.restore(batch)
            stored, batch = stored + BATCH, []
            progress(stored, total)
    if batch:
        await store.restore(batch)
    progress(total, total)
    return noted
