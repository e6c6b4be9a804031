"""Breakers of a whole fleet, on real workers: a dead downstream is left alone, tried carefully, and everything drains when it heals."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mulligan import Breaker, Constant, Downstream, Queue, RetryPolicy
from mulligan.core.ids import new_id
from tests.builders import all_events, fifo
from tests.faults import FaultyStore
from tests.virtual import Stage, play
from tests.worker.members import stored

RETRY = RetryPolicy(max_retries=None, max_age=86_400, backoff=Constant(5), jitter="full")


class Bank:
    """A downstream that is dead for a while, and every call that was made to it, in virtual seconds."""

    def __init__(self, stage: Stage, dead_from_s: float, dead_until_s: float, *, error: Exception | None = None, **settings: Any) -> None:
        self.calls: list[tuple[float, bool]] = []

        async def pay() -> None:
            ok = not dead_from_s <= stage.elapsed_s < dead_until_s
            self.calls.append((stage.elapsed_s, ok))
            if not ok:
                raise error or ConnectionError("down")

        self.task: Any = stage.app.task(**{"depends_on": "bank", "retry": RETRY, **settings})(pay)

    def within(self, begin_s: float, end_s: float) -> int:
        """How many calls were made in a span, without those at its very end."""
        return sum(begin_s <= at_s < end_s - 0.001 for at_s, _ in self.calls)


async def arrive(stage: Stage, task: Any, per_s: int, seconds: int) -> None:
    """Steady arrivals from now on."""
    await stage.app.enqueue_many([task.options(delay=number / per_s).job() for number in range(per_s * seconds)])


def test_an_outage_from_its_first_failure_to_the_last_job(local_backend: str, tmp_path: Path) -> None:
    """It opens within about a second, lets one probe a second through in the whole fleet, opens longer each time, and closes gradually."""

    async def scene(stage: Stage) -> None:
        bank = Bank(stage, 3, 140)
        stage.app.downstreams(Downstream("bank", breaker=Breaker(window=10, open_for=20, probes=3, ramp=20)))
        await arrive(stage, bank.task, 2, 170)
        async with stage.worker(), stage.worker(), stage.worker():
            await asyncio.sleep(190)
        began_s = stage.clock.now_us() / 1e6 - stage.elapsed_s
        events = await all_events(stage.app.store)
        turns = [(event.kind, event.at_us / 1e6 - began_s) for event in events if event.kind.startswith("BREAKER")]
        kinds = [kind.removeprefix("BREAKER_") for kind, _ in turns]
        assert kinds == ["OPENED", "HALF_OPEN"] * (len(kinds) // 2 - 1) + ["CLOSING", "CLOSED"]  # each told once, in this order
        opened = [at_s for kind, at_s in turns if kind == "BREAKER_OPENED"]
        tried = [at_s for kind, at_s in turns if kind == "BREAKER_HALF_OPEN"]
        lengths = [half_s - open_s for open_s, half_s in zip(opened, tried, strict=True)]
        assert [round(length_s) for length_s in lengths] == [20 * 2**number for number in range(len(lengths))]
        assert len(lengths) == 3
        [closing_s] = [at_s for kind, at_s in turns if kind == "BREAKER_CLOSING"]
        # Ten calls are needed to judge, half of them bad, at two a second; whatever ends until the next look comes on top.
        assert opened[0] <= 3 + 3 + 1.2
        assert bank.within(opened[0] + 1.3, tried[0]) == 0
        for half_s, end_s in zip(tried, [*opened[1:], closing_s], strict=True):
            assert bank.within(half_s, end_s) <= end_s - half_s + 1
        # While it closes the rate doubles every two seconds, so early on the backlog of hundreds of jobs comes in small steps.
        assert bank.within(closing_s, closing_s + 2) <= 6
        assert bank.within(closing_s, closing_s + 4) <= 12
        assert sum(ok for _, ok in bank.calls) == 340
        jobs = Counter([job.status async for job in stage.app.jobs()])
        assert jobs == {"done": 340}
        assert bank.within(3, 140) <= 30

    play(local_backend, tmp_path, scene)


@pytest.mark.parametrize(
    ("breaker", "good", "bad", "opens"),
    [
        (Breaker(failure_rate=0.5, min_calls=10), 9, 9, True),
        (Breaker(failure_rate=0.5, min_calls=10), 12, 9, False),
        (Breaker(failure_rate=0.5, min_calls=30), 9, 9, False),
        (Breaker(failure_rate=1, min_calls=1_000, failures=9), 50, 9, True),
        (Breaker(failure_rate=1, min_calls=1_000, failures=10), 50, 9, False),
    ],
)
def test_calls_of_all_workers_are_judged_together(
    local_backend: str, tmp_path: Path, breaker: Breaker, good: int, bad: int, opens: bool
) -> None:
    """By their share, or by their number, over one window; no worker alone sees enough of them."""

    async def scene(stage: Stage) -> None:
        stage.app.downstreams(Downstream("bank", breaker=breaker))

        @stage.app.task(depends_on="bank", retry=RetryPolicy(max_retries=1, backoff=Constant(300), jitter="none"))
        async def pay(ok: bool) -> None:
            await asyncio.sleep(0.4)
            if not ok:
                raise ConnectionError("down")

        await stage.app.enqueue_many([pay.job(True) for _ in range(good)])
        fleet = [stage.worker(concurrency=5, poll=0.1) for _ in range(3)]
        for worker in fleet:
            await worker.start()
        await asyncio.sleep(3)
        await stage.app.enqueue_many([pay.job(False) for _ in range(bad)])
        await asyncio.sleep(5)
        state = await stored(stage.app.store, "bank")
        assert (state.state == "open") == opens
        await asyncio.gather(*(worker.stop() for worker in fleet))

    play(local_backend, tmp_path, scene)


class TooMany(Exception):
    """A 429 that says for how long."""

    retry_after = 60


def test_one_retry_after_holds_the_whole_fleet(local_backend: str, tmp_path: Path) -> None:
    """About a second later nobody calls any more, until the time is over; attempts of those who wait are not spent."""

    async def scene(stage: Stage) -> None:
        bank = Bank(stage, 10, 10.2, error=TooMany())
        await arrive(stage, bank.task, 5, 80)
        async with stage.worker(), stage.worker(), stage.worker():
            await asyncio.sleep(100)
        told = [at_s for at_s, ok in bank.calls if not ok]
        assert told
        assert bank.within(told[0] + 1.5, told[0] + 60) == 0
        assert bank.within(told[0] + 60, told[0] + 62) >= 200
        jobs = [job async for job in stage.app.jobs()]
        assert {job.status for job in jobs} == {"done"}
        assert sum(job.attempts for job in jobs) == len(bank.calls)
        held = [event for event in await all_events(stage.app.store) if event.kind == "DOWNSTREAM_HELD"]
        assert len(held) == 1

    play(local_backend, tmp_path, scene)


def test_a_job_claimed_before_it_opened_goes_back_once(backend: str, tmp_path: Path) -> None:
    """Released uncounted when its turn comes; no worker takes it again before it may run, so nothing goes round and round."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        bank = Bank(stage, 0, 0)
        counting = FaultyStore(app.store)
        app.store = counting  # type: ignore[assignment]

        @app.task(queue="busy")
        async def long() -> None:
            await asyncio.sleep(10)

        async with stage.worker(concurrency=1, queues=["default", "busy"], poll=5) as worker, stage.worker(queues=["default"], poll=5):
            await long.enqueue()
            while not worker.executor.running:
                await asyncio.sleep(0.01)
            handles = await app.enqueue_many([bank.task.options(queue="busy").job() for _ in range(5)])
            claimed = await app.store.claim(new_id(0), worker.name, [fifo("busy")], 5, 30_000_000)
            worker.executor.accept(claimed.jobs)  # as if claimed ahead: the one slot is busy
            await app.open_breaker("bank", reason="maintenance")
            await asyncio.sleep(20)
            jobs = [await handle.job() for handle in handles]
            assert {(job.status, job.attempts, job.releases, job.fence) for job in jobs} == {("pending", 0, 1, 1)}
            assert "it depends on bank, and that breaker is open: maintenance" in jobs[0].history[0].why
            before = counting.calls["claim"]
            await asyncio.sleep(40)
            assert counting.calls["claim"] - before <= 2 * 40 / 5 + 4
            await app.close_breaker("bank")
            await asyncio.sleep(5)
        assert {(job.status, job.attempts, job.fence) for job in [await handle.job() for handle in handles]} == {("done", 1, 2)}
        assert len(bank.calls) == 5

    play(backend, tmp_path, scene)


def test_a_dead_downstream_of_one_tenant_delays_no_other(local_backend: str, tmp_path: Path) -> None:
    """Tenants whose jobs are held back lose their turn, and the others, in all queues and levels, go on as if they were alone."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.queues(Queue("q"))
        starts: dict[str, list[float]] = {"a": [], "b": [], "c": []}
        await app.open_breaker("bank")

        async def work(tenant: str) -> None:
            starts[tenant].append(stage.elapsed_s)
            await asyncio.sleep(0.1)

        held, free = app.task(name="held", queue="q", depends_on="bank")(work), app.task(name="free", queue="q", depends_on="post")(work)
        await app.enqueue_many([held.options(fair_key="a", priority=2).job("a") for _ in range(300)])
        await app.enqueue_many([free.options(fair_key=tenant).job(tenant) for tenant in ("b", "c") for _ in range(40)])
        async with stage.worker(concurrency=2):
            await asyncio.sleep(4.5)
            assert {tenant: len(times) for tenant, times in starts.items()} == {"a": 0, "b": 40, "c": 40}
            assert all(abs(one - other) < 0.11 for one, other in zip(starts["b"], starts["c"], strict=True))
            await app.close_breaker("bank")
            await asyncio.sleep(17)
        assert len(starts["a"]) == 300

    play(local_backend, tmp_path, scene)


def test_a_worker_that_stops_tells_what_it_has_counted(backend: str, tmp_path: Path) -> None:
    """Workers that live for less than a beat count, too: what one of them has met is known to the next."""

    async def scene(stage: Stage) -> None:
        bank = Bank(stage, 0, 1_000, retry=RetryPolicy(backoff=Constant(60), jitter="none"))
        stage.app.downstreams(Downstream("bank", breaker=Breaker(min_calls=6)))
        for _ in range(3):
            await stage.app.enqueue_many([bank.task.job() for _ in range(3)])
            async with stage.worker():
                await asyncio.sleep(0.1)
        assert len(bank.calls) == 6
        assert [event.kind for event in await all_events(stage.app.store) if event.kind.startswith("BREAKER")] == ["BREAKER_OPENED"]

    play(backend, tmp_path, scene)
