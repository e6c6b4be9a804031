"""Values for tests, built by hand: new jobs, asks, and the changes a policy would decide on. Knows nothing of the policy itself."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from mulligan.core.change import Cause, Change, Dead, Grip, Guard, Held, Lapsed
from mulligan.core.clock import SECOND_US, ManualClock
from mulligan.core.contract import FIND_LIMIT_MAX, Ask, Claimed, Order, Query, Store, WorkerInfo
from mulligan.core.events import Event
from mulligan.core.groups import group_of
from mulligan.core.ids import new_id
from mulligan.core.job import ErrorInfo, HistoryRecord, Job, Lane, NewJob, Status
from mulligan.core.limits import TOKEN, Bucket
from mulligan.core.schedule import Schedule, Tick

LEASE_S = 30
TEXT_ERROR = ErrorInfo(type="ConnectionError", message="refused", code="111", traceback="line 1\nline 2", fingerprint="f1", at_us=1)


def fresh_id() -> str:
    """An id that is newer than all those before it."""
    return new_id(0)


def new_job(queue: str = "q", *, id: str | None = None, delay_s: float = 0, **fields: Any) -> NewJob:  # noqa: A002
    """A job as a producer asks for it; every field of NewJob can be given."""
    given: dict[str, Any] = {
        "id": id or fresh_id(),
        "queue": queue,
        "task": "work",
        "payload": '{"args":[],"kwargs":{}}',
        "policy": "{}",
        "max_retries": 3,
        "delay_us": us(delay_s),
    }
    return NewJob(**(given | fields))


def us(seconds: float) -> int:
    """Seconds in microseconds."""
    return round(seconds * SECOND_US)


def turn_to(clock: ManualClock, time_us: int) -> None:
    """Sets the clock to a time exactly; a single step in seconds would round over centuries."""
    while (distance_us := time_us - clock.now_us()) != 0:
        clock.advance(distance_us / SECOND_US)


def ask(
    queue: str = "q", lane: Lane | None = "fresh", *, guaranteed: int = 1_000, priority: int = 0, order: Order = "run_at", **more: Any
) -> Ask:
    """A wish for jobs of one queue, lane and priority."""
    return Ask(queue=queue, lane=lane, priority=priority, guaranteed=guaranteed, order=order, **more)


def grouped(
    queue: str = "q", *, fair: str | None = None, on: str | None = None, limited: str | None = None, key: str | None = None, **fields: Any
) -> NewJob:
    """A job with a group: whom it is for, what it depends on, its limited task, its concurrency key."""
    return new_job(queue, fair_key=fair, concurrency_key=key, group=group_of(fair, on, limited, key), **fields)


def bucket(key: str = "b", *, per_s: float = 0, burst: float = 1, ratio: float = 0, **fields: Any) -> Bucket:
    """A limit of starts over time."""
    return Bucket(key=key, rate_u=round(per_s * TOKEN), burst_u=round(burst * TOKEN), ratio_u=round(ratio * TOKEN), **fields)


def fifo(queue: str = "q") -> Ask:
    """A wish for the oldest jobs of a queue, of both lanes."""
    return ask(queue, None, order="created_at")


async def claim(
    store: Store, *asks: Ask, total: int = 1_000, lease_s: float = LEASE_S, claim_id: str | None = None, owner: str = "worker-1"
) -> Claimed:
    """A claim under a new id; without asks, for both lanes of queue q."""
    return await store.claim(claim_id or fresh_id(), owner, asks or (ask(), ask(lane="retry")), total, us(lease_s))


async def claim_one(store: Store, *asks: Ask, lease_s: float = LEASE_S) -> Job:
    """Claims and returns the one job there is to claim."""
    [job] = (await claim(store, *asks, lease_s=lease_s)).jobs
    return job


async def put_and_claim(store: Store, lease_s: float = LEASE_S, **fields: Any) -> Job:
    """Inserts one job of queue q and claims it."""
    job = new_job(**fields)
    await store.insert([job])
    claimed = await claim(store, fifo(job.queue), lease_s=lease_s)
    return next(one for one in claimed.jobs if one.id == job.id)


async def get(store: Store, job_id: str) -> Job:
    """The job, which must be there, with its history."""
    [job] = await store.get([job_id])
    assert job is not None
    return job


def grip(job: Job) -> Grip:
    """What the holder of a claimed job shows."""
    return Grip(job.id, job.fence)


def change(job: Job, cause: Cause, status: Status, *, delay_s: float = 0, settle_id: str | None = None, **fields: Any) -> Change:
    """A change of a claimed job: the fields of the job where none are given."""
    guard: Guard = fields.pop("guard", Held(job.fence))
    given: dict[str, Any] = {
        "lane": job.lane,
        "last_delay_us": job.last_delay_us,
        "worker": job.lease_owner or "",
        **{name: getattr(job, name) for name in ("attempts", "failures", "crashes", "snoozes", "releases", "generation")},
    }
    return Change(
        job_id=job.id,
        queue=job.queue,
        task=job.task,
        guard=guard,
        settle_id=settle_id or fresh_id(),
        cause=cause,
        status=status,
        delay_us=us(delay_s),
        **(given | fields),
    )


def done(job: Job, result_json: str | None = None, **fields: Any) -> Change:
    """The handler returned."""
    return change(job, "success", "done", result_json=result_json, **fields)


def retry(job: Job, delay_s: float = 0, **fields: Any) -> Change:
    """The handler raised, and the job may run again."""
    error = fields.get("error", TEXT_ERROR)  # one object in both places, as `decide` has it
    noted = replace(record(job, "failure", delay_s), error=error)
    given: dict[str, Any] = {"lane": "retry", "failures": job.failures + 1, "error": error, "record": noted}
    return change(job, "failure", "pending", delay_s=delay_s, **({"last_delay_us": us(delay_s)} | given | fields))


def failed(job: Job, **fields: Any) -> Change:
    """The handler raised, and that was the last time."""
    given: dict[str, Any] = {"lane": "retry", "failures": job.failures + 1, "error": TEXT_ERROR, "record": record(job, "failure", None)}
    return change(job, "failure", "failed", **(given | fields))


def snooze(job: Job, delay_s: float = 0, **fields: Any) -> Change:
    """The handler asked to be run later; the attempt is given back."""
    given: dict[str, Any] = {"attempts": job.attempts - 1, "snoozes": job.snoozes + 1, "record": record(job, "snooze", delay_s)}
    return change(job, "snooze", "pending", delay_s=delay_s, **(given | fields))


def release(job: Job, delay_s: float = 0, **fields: Any) -> Change:
    """The job was not run after all; the attempt is given back."""
    given: dict[str, Any] = {"attempts": job.attempts - 1, "releases": job.releases + 1, "record": record(job, "release", delay_s)}
    return change(job, "release", "pending", delay_s=delay_s, **(given | fields))


def crash(job: Job, delay_s: float = 0, status: Status = "pending", **fields: Any) -> Change:
    """The holder vanished; taken over only if the lease has ended."""
    given: dict[str, Any] = {
        "guard": Lapsed(job.fence),
        "lane": "retry",
        "crashes": job.crashes + 1,
        "record": record(job, "crash", delay_s if status == "pending" else None),
    }
    return change(job, "crash", status, delay_s=delay_s, **(given | fields))


def cancelled(job: Job, **fields: Any) -> Change:
    """The handler obeyed a cancel."""
    return change(job, "cancel", "cancelled", **({"record": record(job, "cancel", None)} | fields))


def requeue(job: Job, delay_s: float = 0, *, by: str = "operator", **fields: Any) -> Change:
    """An operator sends a failed job back under the next generation."""
    given: dict[str, Any] = {
        "guard": Dead(job.generation),
        "lane": "retry",
        "attempts": 0,
        "failures": 0,
        "crashes": 0,
        "generation": job.generation + 1,
        "last_delay_us": None,
        "worker": by,
        "record": record(job, "requeue", delay_s, worker=by),
    }
    return change(job, "requeue", "pending", delay_s=delay_s, **(given | fields))


def record(job: Job, outcome: Cause, delay_s: float | None, worker: str | None = None) -> HistoryRecord:
    """The history record of one ended claim."""
    return HistoryRecord(
        generation=job.generation,
        fence=job.fence,
        attempt=job.attempts,
        outcome=outcome,
        worker=job.lease_owner or "" if worker is None else worker,
        started_at_us=job.updated_at_us,
        delay_us=None if delay_s is None else us(delay_s),
        why=f"{outcome} of attempt {job.attempts}",
    )


def schedule(name: str = "every", interval_s: float = 300, **fields: Any) -> Schedule:
    """A schedule that makes jobs of queue q."""
    pattern = new_job(id="00000000-0000-7000-8000-000000000000", schedule=name)
    return Schedule(name=name, job=fields.pop("job", pattern), interval_us=us(interval_s), **fields)


def tick(of: Schedule, job: NewJob | None = None, **fields: Any) -> Tick:
    """The schedule's next tick, with the job it makes."""
    made = job or new_job(of.job.queue, schedule=of.name, tick_us=of.next_tick_us)
    given: dict[str, Any] = {"job": made, "expected_us": of.next_tick_us, "next_tick_us": of.next_tick_us + of.interval_us}
    return Tick(name=of.name, **(given | fields))


def worker_info(id: str = "worker-1", **fields: Any) -> WorkerInfo:  # noqa: A002
    """A worker as it reports itself."""
    given: dict[str, Any] = {"host": "host-1", "pid": 4711, "queues": ("q", "r"), "concurrency": 10, "running": 3, "started_at_us": 5}
    return WorkerInfo(id=id, **(given | fields))


async def all_jobs(store: Store) -> dict[str, Job]:
    """Every job of the store with its history, by id, read page by page."""
    ids: list[str] = []
    after: str | None = None
    while True:
        page = await store.find(Query(), FIND_LIMIT_MAX, after)
        ids += [job.id for job in page.jobs]
        after = page.after
        if after is None:
            break
    return {job.id: job for job in await store.get(ids) if job is not None}


async def all_events(store: Store) -> list[Event]:
    """The store's whole event log."""
    return await store.read_events(0, 100_000)


async def full_state(store: Store) -> dict[str, Any]:
    """Everything a store shows of itself, for comparing it before and after, or with another store."""
    return {
        "jobs": await all_jobs(store),
        "stats": await store.stats(),
        "queues": await store.queue_states(),
        "schedules": await store.schedules(),
        "events": await all_events(store),
        "levels": await store.levels(),
        "notes": await store.notes(""),
        "workers": sorted(await store.workers(), key=lambda worker: worker.id),
    }
