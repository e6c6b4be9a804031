"""Apps with a planted bug each, for workers of a torture run: what is wrong is in the store, below the eyes of the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from mulligan.core.change import Change, Held, Lapsed, Verdict
from mulligan.core.contract import Ask, Claimed, Query
from mulligan.core.job import Job
from mulligan.core.outcome import Succeeded
from mulligan.policy.decide import success
from mulligan.torture.ledger import mono_us
from mulligan.torture.tasks import make_app
from mulligan.worker.deaths import NO_QUEUE

BLIND_US = 4_000_000


def settles_by_id_alone(store: Any) -> None:
    """Whoever settles is believed, whatever its fence: written over the present holder's job, or acknowledged for nothing."""
    settle = store.settle

    async def unfenced(changes: Sequence[Change]) -> list[Verdict]:
        verdicts = await settle(changes)
        again = {
            place: replace(change, guard=Held(verdict.fence))
            for place, (change, verdict) in enumerate(zip(changes, verdicts, strict=True))
            if not verdict.applied and verdict.status == "processing"
        }
        for place, verdict in zip(again, await settle(list(again.values())) if again else [], strict=True):
            verdicts[place] = verdict
        return [
            verdict if verdict.applied else replace(verdict, applied=True, status=change.status)
            for change, verdict in zip(changes, verdicts, strict=True)
        ]

    store.settle = unfenced


def acknowledges_before_it_runs(store: Any) -> None:
    """What is claimed is done at once; whoever dies before it has run it, has not run it."""
    claim, settle = store.claim, store.settle

    async def hasty(claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int) -> Claimed:
        claimed: Claimed = await claim(claim_id, owner, asks, total, lease_us)
        if claimed.jobs:
            await settle([success(job, Succeeded(), claimed.now_us, settle_id=f"{job.id} {job.fence}") for job in claimed.jobs])
        return claimed

    store.claim = hasty


def takes_over_the_living(store: Any) -> None:
    """Every job that runs is overdue."""
    settle = store.settle

    async def all_that_run(limit: int) -> list[Job]:
        jobs: list[Job] = (await store.find(Query(status="processing"), limit)).jobs
        return jobs

    async def unlapsed(changes: Sequence[Change]) -> list[Verdict]:
        verdicts: list[Verdict] = await settle([
            replace(change, guard=Held(change.guard.fence)) if isinstance(change.guard, Lapsed) else change for change in changes
        ])  # fmt: skip
        return verdicts

    store.overdue, store.settle = all_that_run, unlapsed


def counts_failures_twice(store: Any) -> None:
    """Each failure costs two attempts."""
    settle = store.settle

    async def greedy(changes: Sequence[Change]) -> list[Verdict]:
        verdicts: list[Verdict] = await settle([
            replace(change, attempts=change.attempts + 1) if change.cause == "failure" else change for change in changes
        ])  # fmt: skip
        return verdicts

    store.settle = greedy


def forgets_the_backoff(store: Any) -> None:
    """It says when the retry is due, and makes it due at once."""
    settle = store.settle

    async def impatient(changes: Sequence[Change]) -> list[Verdict]:
        verdicts = await settle([replace(change, delay_us=0) for change in changes])
        return [
            verdict if verdict.run_at_us is None else replace(verdict, run_at_us=verdict.run_at_us + change.delay_us)
            for change, verdict in zip(changes, verdicts, strict=True)
        ]

    store.settle = impatient


def finds_nothing_at_first(store: Any) -> None:
    """For some seconds each process is told that nothing is due, however often it asks."""
    claim, began = store.claim, mono_us()
    nothing = Ask(queue=NO_QUEUE, lane="fresh", priority=0, guaranteed=1)

    async def blind(claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int) -> Claimed:
        is_blind = mono_us() < began + BLIND_US
        claimed: Claimed = await claim(claim_id, owner, (nothing,) if is_blind else asks, total, lease_us)
        return claimed

    store.claim = blind


unfenced = make_app(settles_by_id_alone)
hasty = make_app(acknowledges_before_it_runs)
grabbing = make_app(takes_over_the_living)
greedy = make_app(counts_failures_twice)
impatient = make_app(forgets_the_backoff)
blind = make_app(finds_nothing_at_first)
