"""The manual way beside the worker: claim, then complete, fail, snooze, extend or release (O03)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mulligan import BadPayload, BadSetting, Constant, Lease, Mulligan, Queue, RetryFirst, RetryPolicy
from tests.virtual import Stage, play


async def one_lease(app: Mulligan, *, lease: float = 30, **options: Any) -> Lease:
    """A new job, claimed."""
    app.declare("work")
    handle = await app.enqueue("work", **options)
    [claimed] = await app.claim(lease=lease)
    assert claimed.id == handle.id
    return claimed


async def test_claim_takes_due_jobs_in_order(app: Mulligan) -> None:
    """The oldest due jobs of the queue, at most as many as asked for, each to one claimer; none left gives none."""
    app.declare("work")
    handles = [await app.enqueue("work", args=[number]) for number in range(5)]
    await app.enqueue("work", delay=100)
    await app.enqueue("work", queue="other")
    first, rest = await app.claim(limit=2), await app.claim(limit=10)
    assert [lease.id for lease in first + rest] == [handle.id for handle in handles]
    assert await app.claim(limit=10) == []
    job = first[0].job
    assert (job.status, job.fence, job.attempts, job.args) == ("processing", 1, 1, [0])
    assert job.lease_owner
    assert (await handles[0].job()).lease_expires_at == job.lease_expires_at


async def test_complete(app: Mulligan) -> None:
    """The job is done with its result; nothing can be said about it twice."""
    lease = await one_lease(app)
    assert await lease.complete({"paid": True})
    job = await app.get(lease.id)
    assert (job.status, job.result, job.lease_owner, job.lease_expires_at) == ("done", {"paid": True}, None, None)
    for again in (lease.complete, lease.release, lease.extend):
        assert await again() is False
    assert await lease.fail("x") is False
    assert await lease.snooze(1) is False
    after = await app.get(lease.id)
    assert (after.status, after.result, after.updated_at, after.history) == ("done", {"paid": True}, job.updated_at, ())
    assert [event.kind for event in app.events.recent(kind="LEASE_LOST")] == ["LEASE_LOST"] * 4


async def test_fail_follows_the_policy(app: Mulligan) -> None:
    """A failure by hand is retried by the job's policy, and gives up when that is used up (O03)."""
    lease = await one_lease(app, retry=RetryPolicy(max_retries=1, backoff=Constant(delay=0.001), jitter="none"))
    assert await lease.fail("first", code="E1", exception_type="ConnectionError", traceback="trace")
    job = await app.get(lease.id)
    assert (job.status, job.lane, job.failures, job.last_delay) == ("pending", "retry", 1, 0.001)
    assert job.last_error is not None
    assert (job.last_error.type, job.last_error.message, job.last_error.code) == ("ConnectionError", "first", "E1")
    while not (leases := await app.claim()):
        await asyncio.sleep(0.001)
    assert await leases[0].fail("second")
    job = await app.get(lease.id)
    assert (job.status, job.attempts, job.failures) == ("failed", 2, 2)


@pytest.mark.parametrize("retry, status", [(True, "pending"), (False, "failed")])
async def test_fail_for_good_or_after_a_while(app: Mulligan, retry: bool, status: str) -> None:
    """retry=False gives up with retries left; after= overrules the backoff."""
    lease = await one_lease(app, max_retries=9)
    assert await lease.fail("x", retry=retry, after=77)
    job = await app.get(lease.id)
    assert job.status == status
    assert (job.run_at_us or 0) == (job.updated_at_us + 77_000_000 if retry else 0)


async def test_snooze_spends_no_retry(app: Mulligan) -> None:
    """Due again after the time asked for, in its lane, with the attempt given back."""
    lease = await one_lease(app)
    assert await lease.snooze(60, "not ready")
    job = await app.get(lease.id)
    assert (job.status, job.lane, job.attempts, job.failures, job.snoozes) == ("pending", "fresh", 0, 0, 1)
    assert job.run_at_us == job.updated_at_us + 60_000_000
    assert (job.history[0].outcome, job.history[0].delay) == ("snooze", 60)
    assert "not ready" in job.history[0].why


async def test_release_is_as_if_it_had_not_been_claimed(app: Mulligan) -> None:
    """Due at once, in its lane, nothing counted but the release; the fence goes on rising."""
    lease = await one_lease(app)
    assert await lease.release("wrong machine")
    job = await app.get(lease.id)
    assert (job.status, job.view, job.lane, job.attempts, job.releases, job.fence) == ("pending", "ready", "fresh", 0, 1, 1)
    assert "wrong machine" in job.history[0].why
    [again] = await app.claim()
    assert (again.job.fence, again.job.attempts) == (2, 1)
    assert await lease.complete("stale") is False
    assert await again.complete("fresh") is True
    assert (await app.get(lease.id)).result == "fresh"


def test_extend_keeps_a_lease_and_nothing_else_does(backend: str, tmp_path: Path) -> None:
    """Extended in time it is held for the whole work; left alone it is taken over, and then extend says so."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.declare("work", retry=RetryPolicy(max_retries=5))
        await app.enqueue("work", args=["kept"])
        await app.enqueue("work", args=["left"])
        kept, left = await app.claim(limit=2, lease=10)
        async with stage.worker(sweep=0.5, queues=["other"]):
            for _ in range(10):
                await asyncio.sleep(6)
                assert await kept.extend()
            assert await kept.extend(100)
            await asyncio.sleep(90)
            assert await left.extend() is False
            assert (await app.get(left.id)).status == "pending"
            assert (await app.get(left.id)).crashes == 1
            assert await kept.complete()
        assert (await app.get(kept.id)).fence == 1

    play(backend, tmp_path, scene)


async def test_a_lapsed_lease_that_nobody_took_is_still_good(app: Mulligan) -> None:
    """Only a takeover ends a claim, not the clock: an outcome that comes late but first is accepted."""
    lease = await one_lease(app, lease=0.001)
    while (await app.get(lease.id)).view != "stuck":
        await asyncio.sleep(0.001)
    assert await lease.complete("late")
    assert (await app.get(lease.id)).result == "late"


async def test_what_cannot_be_stored_is_refused_before_anything_happens(app: Mulligan) -> None:
    """A result or a time that no store can keep raises, and the lease is still held."""
    lease = await one_lease(app)
    with pytest.raises(BadPayload, match="the result: builtins.object is not JSON"):
        await lease.complete(object())
    with pytest.raises(BadSetting, match="seconds must be between"):
        await lease.snooze(-1)
    with pytest.raises(BadSetting, match="after must be between"):
        await lease.fail("x", after=float("nan"))
    with pytest.raises(BadSetting, match="seconds"):
        await lease.extend(float("inf"))
    assert (await app.get(lease.id)).status == "processing"
    assert await lease.complete("fine")


async def test_odd_texts_of_a_failure_are_made_storable(app: Mulligan) -> None:
    """NUL, lone surrogates and megabytes in a message never keep the failure from being recorded."""
    lease = await one_lease(app)
    odd = "a\0b \ud800 " + "x" * 5_000_000
    assert await lease.fail(odd, code=odd, exception_type=odd, traceback=odd, retry=False)
    error = (await app.get(lease.id)).last_error
    assert error is not None
    assert error.message.startswith("a\N{REPLACEMENT CHARACTER}b ? ")
    assert len(error.message) < 10_000
    assert len(error.traceback or "") < 20_000


@pytest.mark.parametrize(
    "settings",
    [{"limit": 0}, {"limit": -1}, {"limit": True}, {"limit": 1.5}, {"limit": "3"}, {"limit": 10**9}, {"lease": 0}, {"lease": -1}],
)
async def test_a_claim_that_makes_no_sense_is_refused(app: Mulligan, settings: dict[str, object]) -> None:
    """A limit is a whole number from 1, a lease is longer than nothing; nothing is claimed otherwise."""
    app.declare("work")
    handle = await app.enqueue("work")
    with pytest.raises(BadSetting, match=next(iter(settings))):
        await app.claim(**settings)  # type: ignore[arg-type]
    assert (await handle.job()).status == "pending"


async def test_a_claim_follows_the_queues_strategy(app: Mulligan) -> None:
    """A claim by hand asks as a worker would: under RetryFirst the due retry comes before older fresh jobs."""
    app.declare("work")
    app.queues(Queue("q", claim=RetryFirst()))
    retried = await app.enqueue("work", queue="q")
    [lease] = await app.claim(queue="q")
    fresh = await app.enqueue("work", queue="q", eta=lease.job.created_at)
    await lease.fail("x", after=0)
    while (await retried.job()).view != "ready":
        await asyncio.sleep(0.001)
    assert [one.id for one in await app.claim(queue="q")] == [retried.id]
    app.queues(Queue("q"))
    assert [one.id for one in await app.claim(queue="q")] == [fresh.id]
