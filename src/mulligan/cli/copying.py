"""Carrying everything from one store to another: jobs with histories and receipts, queues, schedules, notes. Repeating it is harmless."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from mulligan.core.clock import SECOND_US
from mulligan.core.contract import FIND_LIMIT_MAX, Query, Stats, Store
from mulligan.core.errors import IllegalMove
from mulligan.core.job import Job
from mulligan.core.receipt import Receipt

SEEN_LATELY_US = 60 * SECOND_US  # a worker that reported itself so recently, and has not said goodbye, is at work
FIRST_PAGE = 50  # until it is known how large the jobs are
PORTION_BYTES = 8_000_000  # carried in one write
RECEIPTS_OF = 50  # jobs whose receipts are read at once; those of one job may be megabytes
Receipts = Mapping[str, Sequence[Receipt]]  # by the id of their job
COUNTED = ("processing", "done", "failed", "cancelled", "fresh_ready", "fresh_later", "retry_ready", "retry_later")


class Portion(NamedTuple):
    """Jobs that are carried in one write."""

    jobs: Sequence[Job]
    receipts: Receipts
    size: int


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy did, and whether the counts of both stores agree with it."""

    jobs: int
    copied: int
    already_there: int
    differing: int  # already there, and not the same any more: the other store has worked on them
    queues: int  # settings the target did not have
    schedules: int  # likewise
    notes: int  # likewise: what operators have changed, and the states of breakers
    verified: bool
    problems: tuple[str, ...] = ()


async def require_quiet(store: Store, which: str) -> None:
    """IllegalMove if somebody works on the store: a job that is carried away while it runs would run twice."""
    now_us = await store.now_us()
    at_work = [worker.id for worker in await store.workers() if not worker.stopped and worker.seen_at_us > now_us - SEEN_LATELY_US]
    if at_work:
        raise IllegalMove(
            f"worker {', '.join(sorted(at_work)[:3])} works on the {which} store; stop it first (it is counted as gone a minute after "
            "its last sign of life), or add --force if it is gone"
        )
    held = sum(queue.processing - queue.stuck for queue in (await store.stats()).queues)
    if held:
        raise IllegalMove(f"{held} jobs of the {which} store are being processed; wait for them, or add --force to carry them away held")


async def copy_store(source: Store, target: Store, told: Callable[[int], None]) -> Copied:
    """Carries everything over; `told` hears how many jobs were dealt with. What is in the target already is not touched."""
    before = await source.stats(), await target.stats()
    seen, copied, already_there, differing = Counter[tuple[str, str]](), Counter[tuple[str, str]](), 0, 0
    after: str | None = None
    limit = FIRST_PAGE
    while True:
        page = await source.find(Query(), limit, after)
        jobs = [job for job in await source.get([job.id for job in page.jobs]) if job is not None]
        created, size = list[bool](), 0
        async for portion in _portions(source, jobs):
            created += await target.restore(portion.jobs, portion.receipts)
            size += portion.size
        limit = max(1, min(FIND_LIMIT_MAX, PORTION_BYTES * len(jobs) // max(1, size)))  # if the next ones are as large as these
        seen.update(_place(job) for job in jobs)
        copied.update(_place(job) for job, is_new in zip(jobs, created, strict=True) if is_new)
        known = [job for job, is_new in zip(jobs, created, strict=True) if not is_new]
        already_there += len(known)
        differing += sum(not _same(*pair) for pair in zip(known, await target.get([job.id for job in known]), strict=True))
        told(len(jobs))
        after = page.after
        if after is None:
            break
    queues, schedules, notes = await _copy_settings(source, target)
    problems = _problems(seen, copied, before, (await source.stats(), await target.stats()))
    return Copied(
        jobs=seen.total(),
        copied=copied.total(),
        already_there=already_there,
        differing=differing,
        queues=queues,
        schedules=schedules,
        notes=notes,
        verified=not problems,
        problems=tuple(problems),
    )


async def _receipts_of(source: Store, jobs: Sequence[Job]) -> Receipts:
    """Those of jobs that were ever claimed, which others cannot have; of a failed one that is damaged, nobody knows."""
    ids = [job.id for job in jobs if job.fence > 0 or job.status == "failed"]
    return {job_id: own for job_id, own in zip(ids, await source.receipts(ids), strict=True) if own} if ids else {}


async def _copy_settings(source: Store, target: Store) -> tuple[int, int, int]:
    """Carries over what the target does not have yet: what was changed there since is as it should be."""
    known = {state.queue for state in await target.queue_states()}
    states = [state for state in await source.queue_states() if state.queue not in known]
    for state in states:
        await target.set_queue(state.queue, paused=state.paused, reason=state.reason, by=state.by)
    there = {schedule.name for schedule in await target.schedules()}
    schedules = [schedule for schedule in await source.schedules() if schedule.name not in there]
    for schedule in schedules:
        await target.put_schedule(schedule)
    written = {note.key for note in await target.notes("")}
    notes = [note for note in await source.notes("") if note.key not in written]
    for note in notes:
        await target.put_note(note.key, note.body, 0)
    return len(states), len(schedules), len(notes)


async def _portions(source: Store, jobs: Sequence[Job]) -> AsyncIterator[Portion]:
    """The jobs in parts of bounded size, so that one write stays far below a store's time-out, however large the payloads are."""
    part, kept, size = list[Job](), dict[str, Sequence[Receipt]](), 0
    for at in range(0, len(jobs), RECEIPTS_OF):
        some = jobs[at : at + RECEIPTS_OF]
        receipts = await _receipts_of(source, some)
        for job in some:
            own = receipts.get(job.id, ())
            part.append(job)
            kept[job.id] = own
            size += _bytes(job, own)
            if size >= PORTION_BYTES:
                yield Portion(part, kept, size)
                part, kept, size = [], {}, 0
    if part:
        yield Portion(part, kept, size)


def _bytes(job: Job, receipts: Sequence[Receipt]) -> int:
    texts = sum(len(record.error.traceback or "") + len(record.error.message) for record in job.history if record.error is not None)
    kept = sum(len(receipt.value_json or "") for receipt in receipts)
    return len(job.payload) + len(job.policy) + len(job.result_json or "") + texts + kept + 500


def count_jobs(stats: Stats) -> int:
    """How many jobs there are."""
    return _counts(stats).total()


def _place(job: Job) -> tuple[str, str]:
    return (job.queue, job.status)


def _same(one: Job, other: Job | None) -> bool:
    return other is not None and msgspec.structs.replace(one, read_at_us=0) == msgspec.structs.replace(other, read_at_us=0)


def _counts(stats: Stats) -> Counter[tuple[str, str]]:
    counts = Counter[tuple[str, str]]()
    for queue in stats.queues:
        for name in COUNTED:
            status = "pending" if name.endswith(("_ready", "_later")) else name
            counts[queue.queue, status] += getattr(queue, name)
    return counts


def _problems(seen: Counter[Any], copied: Counter[Any], before: tuple[Stats, Stats], after: tuple[Stats, Stats]) -> list[str]:
    """Where the counts of the two stores are not what the copy should have made them."""
    problems = []
    if not +_counts(before[0]) == +_counts(after[0]) == seen:
        problems.append("the first store changed while it was copied, or holds jobs that could not be read; stop its users and repeat")
    expected, found = _counts(before[1]) + copied, _counts(after[1])
    for queue, status in sorted(expected.keys() | found.keys()):
        if expected[queue, status] != found[queue, status]:
            problems.append(
                f"queue {queue}: {found[queue, status]} {status} jobs in the second store, {expected[queue, status]} were to be there; "
                "somebody works on it"
            )
    return problems
