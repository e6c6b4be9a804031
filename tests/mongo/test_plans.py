"""The cost of the hot calls, from what the server says it did: its profiler notes every operation of a real call."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Iterator
from time import perf_counter
from typing import Any

import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Order, Query
from mulligan.core.groups import FAIR
from mulligan.core.limits import Slots
from mulligan.stores.mongo import MongoStore
from tests.builders import ask, bucket, claim, done, failed, fifo, grip, grouped, new_job, put_and_claim, retry
from tests.mongo.conftest import Raw

Call = Callable[[MongoStore], Awaitable[object]]
MANY = 2_000


@pytest.fixture
def profiled(raw: Raw) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """The operations on jobs since the profiler was switched on."""

    def operations() -> list[dict[str, Any]]:
        raw.command("profile", 0)
        return [op for op in raw["system.profile"].find({}) if op["ns"].endswith((".mulligan_jobs", ".mulligan_meta"))]

    yield operations
    raw.command("profile", 0)
    raw.drop_collection("system.profile")


async def claim_and_settle(store: MongoStore, *, fails: bool = False) -> None:
    [job] = (await claim(store, total=1)).jobs
    await store.settle([retry(job, 10) if fails else done(job)])


async def renew_one(store: MongoStore) -> None:
    [job] = (await claim(store, total=1)).jobs
    assert (await store.renew([grip(job)], 1))[0].held


CALLS: dict[str, Call] = {
    "claim": lambda store: claim(store, total=100),
    "claim by creation": lambda store: claim(store, fifo(), total=100),
    "empty claim": lambda store: claim(store, ask("none")),
    "settle": claim_and_settle,
    "settle failures": lambda store: claim_and_settle(store, fails=True),
    "renew": renew_one,
    "overdue": lambda store: store.overdue(10),
    "insert": lambda store: store.insert([new_job()]),
    "insert with a taken key": lambda store: store.insert([new_job(unique_key="k")]),
    "prune": lambda store: store.prune("done", 0, 10),
    "find failed": lambda store: store.find(Query(status="failed"), 10),
    "find processing": lambda store: store.find(Query(status="processing"), 10),
    "find of a schedule": lambda store: store.find(Query(schedule="s"), 10),
    "get": lambda store: store.get(["x"]),
    "cancel": lambda store: store.request_cancel(["x"]),
}


async def fill(store: MongoStore, jobs: int) -> None:
    """So many jobs each that are due, wait for the future, and are done; and a few of every other kind."""
    for at in range(0, jobs, 500):
        count = min(500, jobs - at)
        await store.insert([new_job("past") for _ in range(count)])
        await store.settle([done(job) for job in (await claim(store, ask("past"))).jobs])
        await store.insert([new_job(delay_s=1_000) for _ in range(count)])
    await store.insert([new_job(delay_s=1_000, unique_key="k")])
    await store.settle([failed(await put_and_claim(store, queue="q2"))])
    await put_and_claim(store, queue="q2")
    await store.insert([new_job() for _ in range(jobs)])


@pytest.mark.parametrize("name", CALLS)
async def test_m14_hot_calls_go_by_index(store: MongoStore, raw: Raw, profiled: Callable[[], list[dict[str, Any]]], name: str) -> None:
    """No call that a worker makes, and no usual look, reads the collection of jobs, or more of an index than it answers with (M14)."""
    await fill(store, 600)
    raw.command("profile", 2)
    await CALLS[name](store)
    operations = profiled()
    assert operations
    for op in operations:
        assert "COLLSCAN" not in str(op.get("planSummary", "")) or op["ns"].endswith("_meta"), op
        # A claim by creation marks all 600 jobs that are due; the others stay with what they answer.
        assert op.get("keysExamined", 0) <= (1_300 if name == "claim by creation" else 320), op


async def test_claim_examines_no_more_among_many(store: MongoStore, raw: Raw, profiled: Callable[[], list[dict[str, Any]]]) -> None:
    """With thousands of done, future and due jobs a claim of 100 examines a few hundred keys, like among few."""
    await fill(store, MANY)
    raw.command("profile", 2)
    assert len((await claim(store, total=100)).jobs) == 100
    assert sum(op.get("keysExamined", 0) for op in profiled()) <= 600


@pytest.mark.parametrize("order", ["run_at", "created_at"])
async def test_careful_claims_go_by_index(store: MongoStore, raw: Raw, profiled: Callable[[], list[dict[str, Any]]], order: Order) -> None:
    """Among many tenants, and beside one with many jobs, a claim of 10 examines a few keys for each group it lists, and reads few jobs."""
    limits = (Slots(most=1_000), Slots(most=1, by_key=True), bucket("tenants", burst=9, part=FAIR))
    await store.insert([grouped(fair=f"t{number:05}", key=f"k{number}") for number in range(600) for _ in range(3)])
    await store.insert([grouped("flooded", fair=name) for name in "abc" for _ in range(3)])
    await store.insert([grouped("flooded", fair="flood") for _ in range(1_000)])
    for queue in ("q", "flooded"):
        raw.command("profile", 2)
        assert len((await claim(store, ask(queue, None, order=order, limits=limits), total=10)).jobs) == 10
        operations = profiled()
        raw.drop_collection("system.profile")
        assert not [op for op in operations if "COLLSCAN" in str(op.get("planSummary", "")) and not op["ns"].endswith("_meta")]
        # In the order of creation no index has what is due in a group: a bounded number of its jobs is sorted.
        most = 600 if order == "run_at" else 3_000
        assert sum(op.get("keysExamined", 0) for op in operations) <= most
        assert sum(op.get("docsExamined", 0) for op in operations) <= (150 if order == "run_at" else most)


async def test_figures_read_no_job_that_waits_or_rests(store: MongoStore, raw: Raw, profiled: Callable[[], list[dict[str, Any]]]) -> None:
    """Counting goes along keys alone; only the one job that runs is read."""
    await fill(store, 600)
    raw.command("profile", 2)
    assert {queue.queue: queue.done for queue in (await store.stats()).queues} == {"past": 600, "q": 0, "q2": 0}
    assert sum(op.get("docsExamined", 0) for op in profiled() if op["ns"].endswith("_jobs")) == 1


async def test_cold_plan_cache_costs_nothing(store: MongoStore, raw: Raw) -> None:
    """A claim and its settlement after the plan cache was emptied take no more than twice the time of those before."""
    await fill(store, MANY)

    async def one() -> float:
        began = perf_counter()
        await store.settle([done(job) for job in (await claim(store, total=50)).jobs])
        return perf_counter() - began

    await one()
    warm, cold = [], []
    for _ in range(9):
        warm.append(await one())
        raw.command("planCacheClear", "mulligan_jobs")
        cold.append(await one())
    assert statistics.median(cold) <= 2 * statistics.median(warm)


async def test_every_limit_at_its_maximum_fits_a_document(store: MongoStore, raw: Raw, clock: ManualClock) -> None:
    """A job with the longest payload, result and fifty of the longest errors is far below MongoDB's 16 MB."""
    from bson import encode
    from msgspec.structs import replace

    from mulligan.core.codec import MESSAGE_CHARS_MAX, PAYLOAD_BYTES_MAX, TRACEBACK_CHARS_MAX
    from tests.builders import TEXT_ERROR

    error = replace(TEXT_ERROR, message="\U0001f600" * 2 * MESSAGE_CHARS_MAX, traceback="\U0001f600" * 2 * TRACEBACK_CHARS_MAX)
    job = await put_and_claim(store, payload='"' + "x" * (PAYLOAD_BYTES_MAX - 2) + '"')
    for _ in range(51):
        change = retry(job, 0)
        assert change.record is not None
        record = replace(change.record, error=error, why="\U0001f600" * 2 * MESSAGE_CHARS_MAX)
        [verdict] = await store.settle([replace(change, error=error, record=record, why=record.why)])
        assert verdict.applied
        [job] = (await claim(store, ask(), ask(lane="retry"))).jobs
    await store.settle([done(job, '"' + "é" * (PAYLOAD_BYTES_MAX - 2) + '"')])
    doc = raw.mulligan_jobs.find_one({"_id": job.id})
    assert doc is not None
    assert len(doc["history"]) == 50
    assert len(encode(doc)) < 12 * 1024 * 1024
