"""O16: an interval with retries. Occurrences are jobs of their own, so retries and schedules never touch each other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mulligan import Constant, Context, RetryPolicy
from mulligan.core.schedule import Missed
from mulligan.worker.scheduler import Scheduler
from tests.seeds.scenes import MeetingStore
from tests.virtual import Stage, play

# A tenth of the interval that the design names: a worker looks at its store every second, and a tick is no different for being later.
INTERVAL_S = 30


class Check:
    """A task that runs on a schedule, and when the runs of each tick began; both in virtual seconds."""

    def __init__(self, stage: Stage, bad_ticks: set[int] | None, policy: RetryPolicy) -> None:
        self.starts: dict[int, list[int]] = {}
        start_us = stage.clock.now_us()

        async def check(ctx: Context) -> None:
            assert ctx.job.tick_us is not None
            tick_s = round((ctx.job.tick_us - start_us) / 1e6)
            self.starts.setdefault(tick_s, []).append(round(stage.elapsed_s))
            if bad_ticks is None or tick_s in bad_ticks:
                raise ConnectionError("down")

        stage.app.task(retry=policy)(check)


def test_o16_an_occurrence_is_retried_and_the_next_one_still_runs(backend: str, tmp_path: Path) -> None:
    """All four runs of the first check fail; the checks of the next ticks run on time, with counters of their own."""

    async def scene(stage: Stage) -> None:
        check = Check(stage, {30, 90}, RetryPolicy(jitter="none"))
        await stage.app.enqueue("check", interval=INTERVAL_S, max_retries=3)
        async with stage.worker():
            await asyncio.sleep(125)
        assert check.starts == {30: [30, 31, 33, 37], 60: [60], 90: [90, 91, 93, 97], 120: [120]}
        jobs = [job async for job in stage.app.jobs(schedule="check")]
        assert [(job.status, job.attempts, job.failures, job.max_retries) for job in reversed(jobs)] == [
            ("failed", 4, 4, 3),
            ("done", 1, 0, 3),
            ("failed", 4, 4, 3),
            ("done", 1, 0, 3),
        ]

    play(backend, tmp_path, scene)


def test_o16_retries_never_shift_the_schedule(backend: str, tmp_path: Path) -> None:
    """Retries that last longer than the interval overlap the next occurrences; every first run is still at its tick."""

    async def scene(stage: Stage) -> None:
        check = Check(stage, None, RetryPolicy(backoff=Constant(25), jitter="none"))
        every = await stage.app.enqueue("check", interval=INTERVAL_S, max_retries=3)
        planned = [round((moment - (await stage.app.status()).at).total_seconds()) for moment in every.next_runs(4)]
        assert planned == [30, 60, 90, 120]
        async with stage.worker():
            await asyncio.sleep(130)
        assert check.starts == {30: [30, 55, 80, 105], 60: [60, 85, 110], 90: [90, 115], 120: [120]}
        [now] = await stage.app.schedules()
        assert [moment.timestamp() for moment in now.next_runs(1)] == [every.next_runs(5)[4].timestamp()]

    play(backend, tmp_path, scene)


@pytest.mark.parametrize(
    ("missed", "ran"),
    [
        ("one", {1200: [1420], 1500: [1500]}),
        ("skip", {1500: [1500]}),
        ("all", {300: [1420], 600: [1420], 900: [1420], 1200: [1420], 1500: [1500]}),
    ],
)
def test_o16_missed_ticks_follow_the_stated_rule(backend: str, tmp_path: Path, missed: Missed, ran: dict[int, list[int]]) -> None:
    """Four ticks pass while no worker runs: "one" makes up for the newest, "skip" for none, "all" for each; the next is on time."""

    async def scene(stage: Stage) -> None:
        check = Check(stage, set(), RetryPolicy())
        await stage.app.enqueue("check", interval=300, missed=missed)
        await asyncio.sleep(1_420)
        async with stage.worker():
            await asyncio.sleep(90)
        assert check.starts == ran

    play(backend, tmp_path, scene)


def test_o16_many_schedulers_make_one_job_per_tick(backend: str, tmp_path: Path) -> None:
    """Two schedulers that both see a tick as due make one job of it, and so do two workers for every tick."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        check = Check(stage, set(), RetryPolicy())
        await app.enqueue("check", interval=INTERVAL_S)
        await asyncio.sleep(INTERVAL_S)
        store = MeetingStore(app.store, "schedules", 2)
        await asyncio.gather(*(Scheduler(store, app.events).fire_due() for _ in range(2)))
        assert store.calls["fire"] == 2
        assert len([job async for job in app.jobs(schedule="check")]) == 1
        async with stage.worker(), stage.worker():
            await asyncio.sleep(4 * INTERVAL_S + 1)
        assert check.starts == {tick: [tick] for tick in (30, 60, 90, 120, 150)}
        assert [event.kind for event in app.events.recent(1_000)].count("ENQUEUED") == 5

    play(backend, tmp_path, scene)


def test_o16_a_schedule_can_be_put_again_paused_and_removed(backend: str, tmp_path: Path) -> None:
    """The same interval put again keeps the ticks where they are, a pause leaves ticks out, and what is removed ticks no more."""

    async def scene(stage: Stage) -> None:
        check = Check(stage, set(), RetryPolicy())
        every = await stage.app.enqueue("check", interval=INTERVAL_S, missed="skip")
        await asyncio.sleep(20)
        again = await stage.app.enqueue("check", interval=INTERVAL_S, missed="skip")
        assert again.next_runs() == every.next_runs()
        async with stage.worker():
            await asyncio.sleep(15)
            assert await every.pause()
            await asyncio.sleep(45)
            assert await every.resume()
            await asyncio.sleep(20)
            assert await every.remove()
            await asyncio.sleep(70)
        assert check.starts == {30: [30], 90: [90]}
        assert await every.remove() is False

    play(backend, tmp_path, scene)
