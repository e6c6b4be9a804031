"""M: the MongoDB micro queue's behaviours."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from mulligan import BadPolicy, Context, Exponential, Fail, Fifo, Mulligan, Queue, RetryPolicy
from mulligan.core.clock import ManualClock
from mulligan.core.contract import Store
from tests import builders
from tests.conftest import url_of
from tests.faults import FaultyStore
from tests.seeds.scenes import IDLE, Flaky, MeetingStore, change_store, drained, kinds
from tests.sweeping import sweeper_of
from tests.virtual import Stage, play

MICRO = RetryPolicy.preset("micro-queue")
RAW_DELAYS = [5, 10, 20, 40, 80, 160, 320, 640, 1280, 1800, 1800]


def test_m01_a_job_stores_the_fields_of_the_design(backend: str, tmp_path: Path) -> None:
    """A new job has its payload, times and policy and no attempt; a failed attempt adds the error and the next retry time."""

    async def scene(stage: Stage) -> None:
        @stage.app.task(retry=RetryPolicy(jitter="none").over(MICRO))
        async def work(order: int, note: str) -> None:
            raise Warning("no paper")

        handle = await work.enqueue(7, note="blue")
        job = await handle.job()
        assert job.id == handle.id
        assert (job.args, job.kwargs) == ([7], {"note": "blue"})
        assert (job.status, job.attempts, job.next_retry_at, job.last_error) == ("pending", 0, None, None)
        assert job.created_at == job.updated_at
        assert '"backoff":["exponential",5,2,1800]' in job.policy.replace(" ", "").replace(".0", "")

        await asyncio.sleep(2)
        async with stage.worker():
            await asyncio.sleep(1)
        job = await handle.job()
        assert (job.status, job.attempts) == ("pending", 1)
        assert job.next_retry_at is not None
        assert job.last_error is not None
        assert (job.last_error.message, job.last_error.code) == ("no paper", None)
        assert job.last_error.at is not None
        moments = (job.updated_at, job.last_error.at, job.next_retry_at)
        assert [round((moment - job.created_at).total_seconds(), 1) for moment in moments] == [2, 2, 7]
        await asyncio.sleep(4.1)
        assert (await handle.job()).next_retry_at is None  # due: null means ready now

    play(backend, tmp_path, scene)


def test_m02_the_preset_has_the_numbers_of_the_design() -> None:
    """Base 5 s, factor 2, cap 1800 s, full jitter."""
    assert MICRO.backoff == Exponential(base=5, factor=2.0, cap=1800)
    assert MICRO.jitter == "full"
    rng = random.Random(2)
    drawn = [MICRO.delay(9, rng=rng) for _ in range(2_000)]
    assert 0 < min(drawn) < 20
    assert 1_260 < max(drawn) <= 1_280


@pytest.mark.parametrize(
    "own",
    [
        RetryPolicy(backoff=Exponential(cap=20)),
        RetryPolicy(max_retries=3, jitter=None, backoff=Exponential(base=None, factor=None, cap=20)),
    ],
    ids=["missing", "null"],
)
def test_m03_the_job_wins_over_the_global_policy_field_by_field(backend: str, tmp_path: Path, own: RetryPolicy) -> None:
    """A job that only lowers the cap keeps the app's base, factor and jitter; a missing and a null field are the same."""

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage)
        await flaky.task.options(retry=own).enqueue()
        await drained(stage)
        assert flaky.waits == [6, 18, 20]

    play(backend, tmp_path, scene, retry=RetryPolicy(backoff=Exponential(base=6, factor=3, cap=100), jitter="none"))


def test_m03_a_field_nobody_gives_takes_the_default(backend: str, tmp_path: Path) -> None:
    """Base and factor come from the defaults (1 s, doubling) when only a cap is given anywhere."""

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, retry=RetryPolicy(jitter="none", backoff=Exponential(cap=3)))
        await flaky.task.enqueue()
        await drained(stage)
        assert flaky.waits == [1, 2, 3]

    play(backend, tmp_path, scene)


def test_m04_a_job_is_pending_processing_and_then_done_or_failed(backend: str, tmp_path: Path) -> None:
    """`failed` is reached by using up the retries and by an irrecoverable error, and by nothing else."""

    async def scene(stage: Stage) -> None:
        seen: list[str] = []

        @stage.app.task(retry=RetryPolicy(max_retries=1, jitter="none"))
        async def work(ctx: Context, job_kind: str) -> None:
            seen.append((await stage.app.get(ctx.job.id)).status)
            if job_kind == "flaky":
                raise ConnectionError
            if job_kind == "hopeless":
                raise Fail("never")

        handles = [await work.enqueue(kind) for kind in ("good", "flaky", "hopeless")]
        assert [(await handle.job()).status for handle in handles] == ["pending"] * 3
        async with stage.worker(concurrency=1) as worker:
            await asyncio.sleep(0.5)
            assert [(await handle.job()).status for handle in handles] == ["done", "pending", "failed"]
            await worker.drain()
        assert [(await handle.job()).status for handle in handles] == ["done", "failed", "failed"]
        assert [(await handle.job()).attempts for handle in handles] == [1, 2, 1]
        assert seen == ["processing"] * 4

    play(backend, tmp_path, scene)


async def test_m05_claimers_never_share_a_job(store: Store) -> None:
    """Eight claims at once take forty jobs without a duplicate and without a gap."""
    new = [builders.new_job() for _ in range(40)]
    await store.insert(new)
    answers = await asyncio.gather(*(builders.claim(store, total=7, owner=f"worker-{number}") for number in range(8)))
    taken = Counter(job.id for claimed in answers for job in claimed.jobs)
    assert taken == Counter(job.id for job in new)
    assert all(job.lease_owner == f"worker-{number}" for number, claimed in enumerate(answers) for job in claimed.jobs)


async def test_m05_a_claim_takes_what_is_due_now_and_returns_the_new_record(store: Store, clock: ManualClock) -> None:
    """A microsecond before its time a job is left, at exactly its time it is due; status and updated_at are set in the same step."""
    new = builders.new_job(delay_s=10)
    await store.insert([new])
    clock.advance(9.999999)
    assert (await builders.claim(store)).jobs == []
    clock.advance(0.000001)
    job = await builders.claim_one(store)
    assert (job.id, job.status, job.updated_at_us) == (new.id, "processing", clock.now_us())
    assert job == await builders.get(store, new.id)


async def test_m05_an_empty_claim_changes_nothing(store: Store, clock: ManualClock) -> None:
    """A claim that finds only running, finished and future jobs leaves every row, counter and event as it was."""
    await builders.put_and_claim(store)
    await store.settle([builders.done(await builders.put_and_claim(store))])
    await store.settle([builders.failed(await builders.put_and_claim(store))])
    await store.insert([builders.new_job(delay_s=60)])
    before = await builders.full_state(store)
    clock.advance(5)
    assert (await builders.claim(store)).jobs == []
    clock.advance(-5)
    assert await builders.full_state(store) == before


async def test_m06_fifo_claims_by_creation_then_id(backend: str, tmp_path: Path) -> None:
    """The oldest job comes first although it was retried meanwhile; equal creation times are ordered by id."""
    clock = ManualClock()
    async with Mulligan(url_of(backend, tmp_path), clock=clock) as app:
        app.queues(Queue("q", claim=Fifo()))
        app.declare("work", queue="q")
        oldest = await app.enqueue("work")
        [lease] = await app.claim(queue="q")
        clock.advance(1)
        twins = [builders.new_job() for _ in range(5)]
        await app.store.insert(random.Random(3).sample(twins, 5))
        clock.advance(1)
        youngest = await app.enqueue("work")
        assert await lease.fail("later", after=1)
        clock.advance(1)
        order = [lease.id for _ in range(7) for lease in await app.claim(queue="q")]
    assert order == [oldest.id, *(twin.id for twin in twins), youngest.id]


async def test_m07_done_failure_and_retry_are_one_write_each(backend: str, tmp_path: Path) -> None:
    """Done, a hard failure with message and code, and a retry with its time and count each take one settling write."""
    async with Mulligan(url_of(backend, tmp_path), clock=ManualClock(), retry=RetryPolicy(jitter="none").over(MICRO)) as app:
        app.declare("work")
        for _ in range(3):
            await app.enqueue("work")
        store = change_store(app, FaultyStore(app.store))
        one, two, three = await app.claim(limit=3)
        assert await one.complete({"pages": 3})
        assert store.calls["settle"] == 1
        assert await two.fail("no such order", code=404, retry=False)
        assert store.calls["settle"] == 2
        assert await three.fail("line busy")
        assert store.calls["settle"] == 3
        assert store.calls["insert"] == 0
        done, failed, waiting = [await app.get(lease.id) for lease in (one, two, three)]
    assert (done.status, done.result) == ("done", {"pages": 3})
    assert failed.last_error is not None
    assert (failed.status, failed.last_error.message, failed.last_error.code) == ("failed", "no such order", "404")
    assert (waiting.status, waiting.failures, waiting.attempts) == ("pending", 1, 1)
    assert waiting.next_retry_at is not None
    assert (waiting.next_retry_at - waiting.updated_at).total_seconds() == 5


def test_m08_raw_delay_doubles_to_the_cap() -> None:
    """5, 10, 20 ... 1280, then 1800 for ever, also for a number of failures at which the power alone would overflow."""
    assert [MICRO.raw_delay(n) for n in range(1, 12)] == RAW_DELAYS
    assert MICRO.raw_delay(100_000) == 1_800


def test_m08_a_worker_waits_the_raw_delays(backend: str, tmp_path: Path) -> None:
    """Eight retries of a failing job start after exactly these delays, when jitter is off."""

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, retry=RetryPolicy(jitter="none", max_retries=8).over(MICRO))
        await flaky.task.enqueue()
        await drained(stage, **IDLE)
        assert flaky.waits == RAW_DELAYS[:8]

    play(backend, tmp_path, scene)


@pytest.mark.parametrize(
    ("jitter", "n", "low", "high"),
    [
        ("none", 4, 40, 40),
        ("full", 4, 0, 40),
        ("bounded", 4, 5, 40),
        ("bounded", 1, 5, 5),
        ("bounded", 50, 5, 1_800),
        ("full", 50, 0, 1_800),
    ],
)
def test_m09_jitter_draws_between_its_bounds(jitter: str, n: int, low: float, high: float) -> None:
    """none is the raw delay, full is U(0, raw), bounded is U(base, max(base, raw)); none of them passes the cap."""
    policy = RetryPolicy(jitter=jitter).over(MICRO)
    rng = random.Random(9)
    drawn = [policy.delay(n, rng=rng) for _ in range(2_000)]
    width = high - low
    assert low <= min(drawn) <= low + width / 50
    assert high - width / 50 <= max(drawn) <= high
    assert sum(drawn) / len(drawn) == pytest.approx((low + high) / 2, rel=0.05)


@pytest.mark.parametrize("name", ["half", "Full", "", "percent(0)", "percent(101)", 3])
def test_m09_an_unknown_jitter_is_refused_when_the_policy_is_made(name: str) -> None:
    """A name that means nothing is an error at once, not silently no jitter."""
    with pytest.raises(BadPolicy, match="jitter"):
        RetryPolicy(jitter=name)


def test_m09_a_jittered_retry_is_claimed_within_its_bounds(backend: str, tmp_path: Path) -> None:
    """With full jitter the second run of each of forty jobs starts somewhere between 0 and 5 s, and not all together."""

    async def scene(stage: Stage) -> None:
        starts: dict[int, list[float]] = {}

        @stage.app.task(retry=MICRO)
        async def work(number: int) -> None:
            starts.setdefault(number, []).append(stage.elapsed_s)
            if len(starts[number]) == 1:
                raise ConnectionError

        await stage.app.enqueue_many([work.job(number) for number in range(40)])
        await drained(stage)
        waits = [later - first for first, later in starts.values()]
        assert len(waits) == 40
        assert min(waits) < 1 < 4 < max(waits) <= 5.1

    play(backend, tmp_path, scene)


def test_m10_a_stuck_job_goes_back_after_the_visibility_timeout(backend: str, tmp_path: Path) -> None:
    """A job held for the preset's ten minutes without a sign of life runs again; one whose holder extends its lease does not."""

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, failures=0)
        lost, kept = await flaky.task.enqueue(), await flaky.task.enqueue()
        leases = {lease.id: lease for lease in await stage.app.claim(limit=2, lease=600)}
        async with stage.worker():
            await asyncio.sleep(5)
        await asyncio.sleep(565)
        async with stage.worker():
            await asyncio.sleep(20)
            assert flaky.starts == []
            assert await leases[kept.id].extend()
            await asyncio.sleep(40)
        assert flaky.starts == [pytest.approx(600.5, abs=0.6)]
        job = await lost.job()
        assert (job.status, job.history[0].outcome, job.history[0].delay) == ("done", "crash", 0)
        assert (await kept.job()).view == "processing"

    play(backend, tmp_path, scene)


async def test_m11_claim_alone_sees_due_retries(store: Store, clock: ManualClock) -> None:
    """A retry that fell due is claimed although nothing has touched the store since it was scheduled."""
    job = await builders.put_and_claim(store)
    await store.settle([builders.retry(job, delay_s=5)])
    clock.advance(5)
    again = await builders.claim_one(store)
    assert (again.id, again.attempts, again.lane) == (job.id, 2, "retry")


def test_m12_over_the_limit_a_job_is_a_dead_letter(backend: str, tmp_path: Path) -> None:
    """When the retries are used up the settling write itself makes the job failed; it is listed with every error and never runs again."""

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, retry=RetryPolicy(max_retries=2, jitter="none").over(MICRO))
        handle = await flaky.task.enqueue()
        async with stage.worker() as worker:
            await worker.drain()
            [dead] = [job async for job in stage.app.jobs(status="failed")]
            await asyncio.sleep(100)
        assert dead.id == handle.id
        job = await handle.job()
        assert [record.outcome for record in job.history] == ["failure"] * 3
        assert "no retry is left" in job.history[-1].why
        assert len(flaky.starts) == 3
        assert await stage.app.claim() == []

    play(backend, tmp_path, scene)


def test_m13_eight_sweepers_at_once_have_the_effect_of_one(backend: str, tmp_path: Path) -> None:
    """All eight find the same twenty lapsed leases before any of them writes; each job is recovered, counted and told once."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.declare("work")
        handles = [await app.enqueue("work") for _ in range(20)]
        await app.claim(limit=20, lease=10)
        await asyncio.sleep(11)
        store = MeetingStore(app.store, "overdue", 8)
        sweepers = [sweeper_of(app, random.Random(number), f"w{number}", store=store) for number in range(8)]
        recovered = await asyncio.gather(*(sweeper.sweep() for sweeper in sweepers))
        assert sum(recovered) == 20
        jobs = [await handle.job() for handle in handles]
        assert {(job.status, job.crashes, job.attempts, len(job.history)) for job in jobs} == {("pending", 1, 1, 1)}
        assert kinds(app).count("CRASHED") == 20
        assert [event.kind for event in await app.store.read_events(0, 1_000)].count("CRASHED") == 20

    play(backend, tmp_path, scene)
