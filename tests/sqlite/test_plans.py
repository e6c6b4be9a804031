"""The cost of the hot calls, from what SQLite says it does: the statements are taken from real calls, not from the source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Query
from mulligan.stores.sqlite import SQLiteStore
from tests.builders import LEASE_S, ask, claim, done, failed, fifo, grip, new_job, put_and_claim, retry
from tests.sqlite.tracing import Call, plan_of, steps_of


async def some_of_everything(store: SQLiteStore, clock: ManualClock) -> None:
    """Jobs of every status, so that no plan is chosen for an empty table."""
    for _ in range(3):
        await store.insert([new_job(), new_job(delay_s=1_000), new_job("other"), new_job(unique_key=str(clock.now_us()))])
        clock.advance(1)
    await store.settle([done(await put_and_claim(store, queue="q2")), failed(await put_and_claim(store, queue="q2"))])
    await put_and_claim(store, queue="q2")


async def claim_and_settle(store: SQLiteStore, *, fails: bool = False) -> None:
    [job] = (await claim(store, total=1)).jobs
    await store.settle([retry(job, 10) if fails else done(job)])


async def renew_one(store: SQLiteStore) -> None:
    [job] = (await claim(store, total=1)).jobs
    assert (await store.renew([grip(job)], 1))[0].held


CALLS: dict[str, tuple[Call, str]] = {
    "claim": (lambda store: claim(store), "mulligan_jobs_due (queue=? AND lane=? AND priority=? AND run_at_us<?)"),
    "claim by creation": (lambda store: claim(store, fifo()), "mulligan_jobs_fifo (queue=? AND priority=? AND lane=?)"),
    "empty claim": (lambda store: claim(store, ask("none")), "mulligan_jobs_due (queue=? AND lane=? AND priority=? AND run_at_us>?)"),
    "repeated claim": (lambda store: claim(store, ask("q2"), claim_id="again"), "mulligan_claims_1 (claim_id=?)"),
    "settle": (claim_and_settle, "mulligan_jobs_id (id=?)"),
    "settle failures": (lambda store: claim_and_settle(store, fails=True), "mulligan_jobs_id (id=?)"),
    "renew": (renew_one, "mulligan_jobs_id (id=?)"),
    "overdue": (lambda store: store.overdue(10), "mulligan_jobs_lease (lease_expires_at_us<?)"),
    "insert": (lambda store: store.insert([new_job()]), ""),
    "insert with a taken key": (lambda store: store.insert([new_job(unique_key="k")]), ""),
    "prune": (lambda store: store.prune("done", 0, 10), "mulligan_jobs_finished (status=? AND finished_at_us<?)"),
    "find failed": (lambda store: store.find(Query(status="failed"), 10), "mulligan_jobs_rest (status=? AND id<?)"),
    "find cancelled": (lambda store: store.find(Query(status="cancelled"), 10), "mulligan_jobs_rest (status=? AND id<?)"),
    "find processing": (lambda store: store.find(Query(status="processing"), 10), "mulligan_jobs_lease"),
    "find of a schedule": (lambda store: store.find(Query(schedule="s"), 10), "mulligan_jobs_schedule (schedule=? AND id<?)"),
    "get": (lambda store: store.get(["x"]), "mulligan_history_job (job=?)"),
    "cancel": (lambda store: store.request_cancel(["x"]), "mulligan_jobs_id (id=?)"),
}


@pytest.mark.parametrize("name", CALLS)
async def test_m14_hot_calls_go_by_index(store: SQLiteStore, clock: ManualClock, name: str) -> None:
    """No call that a worker makes, and no usual look, goes through the table of jobs (M14)."""
    await some_of_everything(store, clock)
    await claim(store, ask("q2"), claim_id="again")
    call, wanted = CALLS[name]
    plan = await plan_of(store, call)
    assert any(wanted in line for line in plan), plan
    scans = [
        line
        for line in plan
        if re.match(r"SCAN (mulligan_jobs|j|o|mulligan_history|r)\b", line) and "INDEX mulligan_jobs_lease" not in line
    ]
    assert scans == []
    # The lists of a claim come from the index in their order; only merging two lanes, or ending a lease at one moment, sorts.
    if name in ("claim", "empty claim", "settle", "prune", "find failed"):
        assert not any("TEMP B-TREE" in line for line in plan), plan


async def test_plans_do_not_follow_statistics(store: SQLiteStore, clock: ManualClock) -> None:
    """Statistics of another time (all pending) cannot turn a claim or a settlement onto another index."""
    await some_of_everything(store, clock)
    before = {name: await plan_of(store, CALLS[name][0]) for name in ("claim", "claim by creation", "overdue", "prune")}
    await store._write(lambda t: t.run("ANALYZE"))
    await store._write(lambda t: t.run("UPDATE sqlite_stat1 SET stat = '1000000 1 1 1 1 1'"))
    await store.close()
    await store.open()
    await store.insert([new_job() for _ in range(3)])
    after = {name: await plan_of(store, CALLS[name][0]) for name in before}
    for name, plan in before.items():
        indexes = {match for line in plan for match in re.findall(r"mulligan_jobs_\w+", line)}
        assert {match for line in after[name] for match in re.findall(r"mulligan_jobs_\w+", line)} <= indexes | {"mulligan_jobs_id"}
    await store.insert([new_job()])
    settling = await plan_of(store, claim_and_settle)
    assert any("mulligan_jobs_id (id=?)" in line for line in settling)


# Copies of one row, made inside SQLite. Ids go down from the top, so that the jobs of the test are not the newest.
MANY = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
INSERT INTO mulligan_jobs (id, queue, task, status, lane, priority, run_at_us, created_at_us, updated_at_us, due_first_us, due_us,
  finished_at_us, policy, payload)
SELECT printf('ffffffff-%s-%s-%012d', ?, ?, i), 'q', 'work', ?, ?, 0, ?, ? - i, 0, 0, 0, ?, '{}', '{}' FROM n
"""


async def fill(store: SQLiteStore, clock: ManualClock, jobs: int) -> None:
    """So many jobs that are done, and so many that wait for the future in each lane, older than all others."""
    now_us = clock.now_us()
    done_row = ("done", "fresh", None, now_us, now_us)
    later_rows = [("pending", lane, now_us + 10**12, now_us, None) for lane in ("fresh", "retry")]
    for status, lane, run_at_us, created_us, finished_us in (done_row, *later_rows):
        values = (jobs, status[:4], lane[:4], status, lane, run_at_us, created_us, finished_us)
        await store._write(lambda t, values=values: t.run(MANY, values))  # type: ignore[misc]


async def work_on(store: SQLiteStore, order: str) -> None:
    """Inserts, claims, renews and settles twenty jobs."""
    await store.insert([new_job() for _ in range(20)])
    asks = (fifo(),) if order == "created_at" else (ask(), ask(lane="retry"))
    jobs = (await claim(store, *asks, total=20)).jobs
    assert len(jobs) == 20
    await store.renew([grip(job) for job in jobs], LEASE_S)
    await store.overdue(10)
    await store.settle([done(job) if place % 2 else failed(job) for place, job in enumerate(jobs)])
    assert (await claim(store, *asks)).jobs == []
    assert (await claim(store, *asks)).jobs == []


@pytest.mark.parametrize("order", ["run_at", "created_at"])
async def test_m14_work_costs_the_same_among_many_jobs(tmp_path: Path, clock: ManualClock, order: str) -> None:
    """A round of work takes as many steps beside 100,000 done and 200,000 waiting jobs as beside a thousand."""
    costs = []
    for jobs in (1_000, 100_000):
        store = SQLiteStore(tmp_path / f"{jobs}.db", clock=clock, durability="normal")
        await store.open()
        await fill(store, clock, jobs)
        costs.append(await steps_of(store, lambda store: work_on(store, order)))
        await store.close()
    assert costs[0] > 10
    assert costs[1] <= 2 * costs[0], costs


async def test_looks_cost_the_same_among_many_jobs(store: SQLiteStore, clock: ManualClock) -> None:
    """Finding failed jobs and pruning look at what they find, not at all there is."""
    await fill(store, clock, 20_000)
    await store.settle([failed(await put_and_claim(store, lease_s=1))])
    assert await steps_of(store, lambda store: store.find(Query(status="failed"), 10)) < 20
    assert await steps_of(store, lambda store: store.find(Query(), 10)) < 20
    assert await steps_of(store, lambda store: store.find(Query(status="pending"), 10)) < 200
    assert await steps_of(store, lambda store: store.prune("failed", 0, 10)) < 20
