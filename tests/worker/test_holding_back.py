"""Jobs that a limit of the fleet holds back: they spend nothing, they start when they may, and waiting for that is no work."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mulligan import Constant, Context, Queue, Rate, RetryFirst, RetryPolicy, Separate
from mulligan.core.change import Change, Verdict
from mulligan.core.ring import VISITS_MAX
from tests.faults import FaultyStore
from tests.seeds.scenes import make_retries
from tests.virtual import Stage, play


class Claims(FaultyStore):
    """A store that notes when claims are made, and how many jobs each took."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.app.store)
        self._stage = stage
        self.made: list[tuple[float, int]] = []
        stage.app.store = self  # type: ignore[assignment]

    async def claim(self, *args: Any) -> Any:
        claimed = await self._inner.claim(*args)
        self.made.append((self._stage.elapsed_s, len(claimed.jobs)))
        return claimed

    def within(self, begin_s: float, end_s: float) -> int:
        """How many were made in a span."""
        return sum(begin_s <= at_s < end_s for at_s, _ in self.made)


def task(stage: Stage, starts: list[tuple[str, float]], lasts_s: float = 0.0, **settings: Any) -> Any:
    """A task that notes when it is started, and for whom."""

    async def work(name: str = "") -> None:
        starts.append((name, stage.elapsed_s))
        await asyncio.sleep(lasts_s)

    return stage.app.task(**settings)(work)


# -- What waiting costs --------------------------------------------------------------------------------------------------


def test_waiting_behind_a_breaker_costs_a_claim_per_poll(backend: str, tmp_path: Path) -> None:
    """Nothing is claimed and given back again; each worker looks once in a poll interval, and no attempt is spent."""

    async def scene(stage: Stage) -> None:
        starts: list[tuple[str, float]] = []
        work = task(stage, starts, depends_on="bank")
        claims = Claims(stage)
        await stage.app.open_breaker("bank")
        handles = await stage.app.enqueue_many([work.job() for _ in range(20)])
        async with stage.worker(poll=2), stage.worker(poll=2):
            await asyncio.sleep(60)
            assert claims.within(1, 60) <= 2 * 59 / 2 + 2
            assert sum(jobs for _, jobs in claims.made) == 0
            await stage.app.close_breaker("bank")
            await asyncio.sleep(2)
        jobs = [await handle.job() for handle in handles]
        assert {(job.status, job.attempts, job.releases, job.fence) for job in jobs} == {("done", 1, 0, 1)}

    play(backend, tmp_path, scene)


def test_many_tenants_behind_a_breaker_are_looked_through_once_in_a_poll(local_backend: str, tmp_path: Path) -> None:
    """A claim looks at some hundred groups. All of them held back is no reason to go round and round, and hides nobody who may start."""
    tenants = VISITS_MAX + 100

    async def scene(stage: Stage) -> None:
        starts: list[tuple[str, float]] = []
        work, free = task(stage, starts, name="work", depends_on="bank"), task(stage, starts, name="free", depends_on="post")
        claims = Claims(stage)
        await stage.app.open_breaker("bank")
        await stage.app.enqueue_many([work.options(fair_key=f"tenant {number:04}").job() for number in range(tenants)])
        async with stage.worker(concurrency=50):
            await asyncio.sleep(20)
            # A round takes tenants / (50 + 50) claims; there is one in a second, and one more for the hints of the start.
            assert claims.within(0, 20) <= 21 * (tenants // 100 + 1)
            for number in (3, 250, tenants - 1):
                before_s = stage.elapsed_s
                await free.options(fair_key=f"tenant {number:04}").enqueue(str(number))
                await asyncio.sleep(5)
                assert starts[-1][0] == str(number)
                assert starts[-1][1] - before_s <= 1.5
            assert claims.within(20, 35) <= 15 * 2 * (tenants // 100 + 1)

    play(local_backend, tmp_path, scene)


def test_work_that_keeps_arriving_behind_a_breaker_is_no_busy_loop(local_backend: str, tmp_path: Path) -> None:
    """Every new job is a hint. Where claims come for nothing, hints wake a worker fifty times a second at most."""

    async def scene(stage: Stage) -> None:
        starts: list[tuple[str, float]] = []
        work, free = task(stage, starts, name="work", depends_on="bank"), task(stage, starts, name="free")
        claims = Claims(stage)
        await stage.app.open_breaker("bank")
        async with stage.worker():
            for _ in range(400):
                await work.enqueue()
                await asyncio.sleep(0.004)
            assert claims.within(0, 1.6) <= 1.6 * 50 + 2
            before_s = stage.elapsed_s
            await free.enqueue("free")
            await asyncio.sleep(1)
            assert [name for name, _ in starts] == ["free"]
            assert starts[0][1] - before_s <= 0.03

    play(local_backend, tmp_path, scene)


@pytest.mark.parametrize("workers", [1, 6])
def test_waiting_for_tokens_is_no_busy_loop(local_backend: str, tmp_path: Path, workers: int) -> None:
    """Tokens that come fast are let to gather, whoever else waits for them, so that claims are few; and yet the rate is used up."""

    async def scene(stage: Stage) -> None:
        starts: list[tuple[str, float]] = []
        stage.app.queues(Queue("q", rate=Rate(per_s=300)))
        work = task(stage, starts, queue="q")
        claims = Claims(stage)
        await stage.app.enqueue_many([work.job() for _ in range(1_500)])
        fleet = [stage.worker() for _ in range(workers)]
        for worker in fleet:
            await worker.start()
        await fleet[0].drain()
        assert 3.9 <= stage.elapsed_s <= 4.4  # three hundred at once, then as many in a second
        assert len(claims.made) <= 4.4 * 100 * workers  # one for each wait of AGAIN_S, one more after its own outcomes
        await asyncio.gather(*(worker.stop() for worker in fleet))

    play(local_backend, tmp_path, scene)


# -- When they start -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", [Queue("q", concurrency=1), Queue("q", key_concurrency=1)], ids=["cap", "key"])
def test_a_freed_slot_is_used_at_once_by_the_worker_that_freed_it(backend: str, tmp_path: Path, queue: Queue) -> None:
    """Its own outcome wakes it, long before it would poll."""

    async def scene(stage: Stage) -> None:
        starts: list[tuple[str, float]] = []
        stage.app.queues(queue)
        work = task(stage, starts, 0.37, queue="q")
        await stage.app.enqueue_many([work.options(concurrency_key="k").job() for _ in range(20)])
        async with stage.worker(poll=3_600) as worker:
            await worker.drain()
        gaps = [later - earlier for (_, earlier), (_, later) in pairwise(starts)]
        assert len(gaps) == 19
        assert max(gaps) < 0.38

    play(backend, tmp_path, scene)


def test_a_slot_that_another_worker_freed_is_found_within_a_poll(backend: str, tmp_path: Path) -> None:
    """Nobody tells it, so it looks."""

    async def scene(stage: Stage) -> None:
        starts: list[tuple[str, float]] = []
        stage.app.queues(Queue("q", concurrency=1))
        work = task(stage, starts, 10.0, queue="q")
        await stage.app.enqueue_many([work.job("first"), work.job("second")])
        async with stage.worker(poll=2) as one, stage.worker(poll=2) as other:
            while not starts:
                await asyncio.sleep(0.01)
            holder = one if one.executor.running else other
            stopping = asyncio.create_task(holder.stop())
            await asyncio.sleep(13)
            await stopping
        assert [name for name, _ in starts] == ["first", "second"]
        assert 10 <= starts[1][1] - starts[0][1] <= 12.1

    play(backend, tmp_path, scene)


def test_a_token_is_used_when_it_arrives(backend: str, tmp_path: Path) -> None:
    """A worker sleeps until then, not until its next poll, and not a moment less."""

    async def scene(stage: Stage) -> None:
        starts: list[tuple[str, float]] = []
        stage.app.queues(Queue("q", rate=Rate(per_minute=20, burst=1)))
        work = task(stage, starts, queue="q")
        claims = Claims(stage)
        await stage.app.enqueue_many([work.job() for _ in range(8)])
        async with stage.worker(poll=3_600) as worker:
            await worker.drain()
        assert [round(at_s - starts[0][1], 1) for _, at_s in starts] == [3.0 * number for number in range(8)]
        assert len(claims.made) <= 2 * 8 + 2

    play(backend, tmp_path, scene)


@pytest.mark.parametrize(
    ("settings", "jobs", "at_once"),
    [
        ({"queue": Queue("q", concurrency=2)}, [{}] * 6, 2),
        ({"queue": Queue("q", key_concurrency=1)}, [{"concurrency_key": "k"}] * 4, 1),
        ({"queue": Queue("q"), "rate": Rate(per_s=1, burst=1)}, [{}] * 4, None),
        ({"queue": Queue("q", rate=Rate(per_s=1, burst=1))}, [{}] * 4, None),
    ],
    ids=["cap", "key", "rate of a task", "rate of a queue"],
)
def test_what_is_held_back_spends_no_attempt(
    backend: str, tmp_path: Path, settings: dict[str, Any], jobs: list[dict[str, Any]], at_once: int | None
) -> None:
    """It stays pending, is claimed once, and runs when it may."""

    async def scene(stage: Stage) -> None:
        running = Counter[str]()
        most = 0
        stage.app.queues(settings["queue"])

        @stage.app.task(queue="q", rate=settings.get("rate"))
        async def work() -> None:
            nonlocal most
            running["now"] += 1
            most = max(most, running["now"])
            await asyncio.sleep(0.5)
            running["now"] -= 1

        handles = await stage.app.enqueue_many([work.options(**options).job() for options in jobs])
        async with stage.worker() as worker, stage.worker():
            await asyncio.sleep(0.3)
            waiting = [job for handle in handles if (job := await handle.job()).status == "pending"]
            assert waiting
            assert {(job.attempts, job.fence) for job in waiting} == {(0, 0)}
            await worker.drain()
        assert {(job.status, job.attempts, job.fence, job.releases) for job in [await handle.job() for handle in handles]} == {
            ("done", 1, 1, 0)
        }
        assert at_once is None or most == at_once

    play(backend, tmp_path, scene)


# -- Held slots beside caps ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "queue", [Queue("q", claim=RetryFirst(), concurrency=1), Queue("q", claim=Separate(1), concurrency=1)], ids=["retry_first", "separate"]
)
def test_a_slot_held_through_a_backoff_does_not_count_as_running(backend: str, tmp_path: Path, queue: Queue) -> None:
    """A worker keeps its own slot empty for the retry; the fleet's slot is free meanwhile, and another worker may use it."""

    async def scene(stage: Stage) -> None:
        starts: list[tuple[str, float]] = []
        stage.app.queues(replace(queue, hold_slot_up_to=5))

        @stage.app.task(queue="q", retry=RetryPolicy(max_retries=1, backoff=Constant(3), jitter="none"))
        async def work(name: str) -> None:
            starts.append((name, stage.elapsed_s))
            await asyncio.sleep(1)
            if name == "bad" and sum(one == "bad" for one, _ in starts) == 1:
                raise ConnectionError

        async with stage.worker(concurrency=1, poll=0.5) as one, stage.worker(concurrency=1, poll=0.5):
            await work.enqueue("bad")
            while not starts:
                await asyncio.sleep(0.01)
            began_s = starts[0][1]
            await stage.app.enqueue_many([work.job("good") for _ in range(6)])
            await one.drain()
        assert sorted(name for name, _ in starts) == ["bad"] * 2 + ["good"] * 6
        again_s = [at_s for name, at_s in starts if name == "bad"][1]
        assert 4 <= again_s - began_s <= 5.6  # due after four seconds, and the fleet's one slot is busy until the next whole one
        inside = sorted(at_s for _, at_s in starts)
        assert all(later - earlier >= 0.99 for earlier, later in pairwise(inside))

    play(backend, tmp_path, scene)


# -- A lane with slots of its own ----------------------------------------------------------------------------------------


class LateSettles(FaultyStore):
    """A store that takes its time over every outcome."""

    async def settle(self, changes: Any) -> Any:
        await asyncio.sleep(0.5)
        return await self._inner.settle(changes)


@pytest.mark.parametrize("settings", [{"claim": Separate(retry_concurrency=1)}, {"claim": RetryFirst(), "max_inflight_retries": 1}])
def test_the_slot_of_a_retry_is_kept_for_the_next_one(settings: dict[str, Any], tmp_path: Path) -> None:
    """Until the outcome of a retry is written, the store lets no other one start; its slot is not given to fresh work meanwhile."""

    async def scene(stage: Stage) -> None:
        started: list[str] = []

        async def work(ctx: Context) -> None:
            started.append(ctx.job.lane)
            await asyncio.sleep(1)

        made = stage.app.task(queue="q")(work)
        await make_retries(stage.app, made, 3)
        await stage.app.enqueue_many([made.job() for _ in range(4)])
        stage.app.queues(Queue("q", **settings))
        stage.app.store = LateSettles(stage.app.store)  # type: ignore[assignment]
        async with stage.worker(concurrency=1) as worker:
            await worker.drain()
        assert started == ["retry"] * 3 + ["fresh"] * 4

    play("memory", tmp_path, scene)


class FarStore(LateSettles):
    """A store that takes as long over each claim."""

    async def claim(self, *args: Any) -> Any:
        await asyncio.sleep(0.5)
        return await self._inner.claim(*args)


def test_claims_reach_ahead_beside_a_lane_with_slots_of_its_own(tmp_path: Path) -> None:
    """More outcomes than slots may be on their way then; the next claim does not wait for them to be written."""
    lasted_s: dict[int | None, float] = {}

    async def scene(stage: Stage, slots: int | None) -> None:
        starts: list[tuple[str, float]] = []
        work = task(stage, starts, queue="q")
        await stage.app.enqueue_many([work.job() for _ in range(5_000)])
        stage.app.queues(Queue("q", max_inflight_retries=slots))
        stage.app.store = FarStore(stage.app.store)  # type: ignore[assignment]
        async with stage.worker(concurrency=10) as worker:
            await worker.drain()
        lasted_s[slots] = max(at_s for _, at_s in starts)

    for slots in (None, 50):
        play("memory", tmp_path, partial(scene, slots=slots))
    assert lasted_s[50] <= 1.25 * lasted_s[None]


def test_a_refused_outcome_holds_no_slot(backend: str, tmp_path: Path) -> None:
    """The job was somebody else's by then, and waits again; a backoff that was not written keeps no slot empty."""

    class Late(FaultyStore):
        async def settle(self, changes: Sequence[Change]) -> list[Verdict]:
            if all(change.cause == "success" for change in changes):
                return await self._inner.settle(changes)
            return [Verdict(job_id=change.job_id, applied=False, status="pending", fence=2, reason="stale") for change in changes]

    async def scene(stage: Stage) -> None:
        stage.app.store = Late(stage.app.store)  # type: ignore[assignment]
        stage.app.queues(Queue("q", hold_slot_up_to=3_600))

        @stage.app.task(queue="q", retry=RetryPolicy(max_retries=1, backoff=Constant(3_000), jitter="none"))
        async def bad() -> None:
            raise ConnectionError

        @stage.app.task(queue="q")
        async def good() -> None: ...

        async with stage.worker(concurrency=1):
            await bad.enqueue()
            await asyncio.sleep(1)
            handle = await good.enqueue()
            await asyncio.sleep(5)
            assert (await handle.job()).status == "done"

    play(backend, tmp_path, scene)
