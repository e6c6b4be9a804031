"""O01: the same behaviour on every store. The suite that shows it call by call is tests/conformance; this is a whole worker's day."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from mulligan import Fail, Job, RetryPolicy, Snooze
from tests.conftest import BACKENDS
from tests.virtual import Stage, play

CALM = RetryPolicy(jitter="none")


class Near:
    """A time that equals any other within a bound."""

    def __init__(self, seconds: float, within_s: float) -> None:
        self.seconds = seconds
        self.within_s = within_s

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Near) and abs(self.seconds - other.seconds) <= self.within_s

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"{self.seconds:.3f} s"


def test_o01_the_same_scene_ends_alike_on_every_store(tmp_path: Path) -> None:
    """Failures, a time-out, a snooze, a crash, a cancel and a requeue leave the same jobs, histories and events everywhere."""

    async def scene(stage: Stage) -> list[Any]:
        app = stage.app
        runs: dict[str, int] = {}

        @app.task(retry=CALM, timeout=5)
        async def work(name: str) -> str:
            runs[name] = runs.get(name, 0) + 1
            if name == "flaky" and runs[name] < 3:
                raise ConnectionError("down")
            if name == "slow" and runs[name] == 1:
                await asyncio.sleep(100)
            if name == "hopeless":
                raise Fail("never", code=7)
            if name == "sleepy" and runs[name] == 1:
                raise Snooze(20)
            return name

        names = ["good", "flaky", "slow", "hopeless", "sleepy", "crashed", "cancelled"]
        handles = {name: await work.options(delay=position).enqueue(name) for position, name in enumerate(names)}
        await app.cancel(handles["cancelled"].id)
        await asyncio.sleep(5)
        for lease in await app.claim(limit=10, lease=8):
            if lease.id != handles["crashed"].id:
                assert await lease.release()
        async with stage.worker() as worker:
            await asyncio.sleep(30)
            await app.requeue(handles["hopeless"].id)
            await worker.drain()
        return [told(await handle.job(), stage) for handle in handles.values()]

    def told(job: Job, stage: Stage) -> Any:
        start = job.created_at
        history = [(record.outcome, record.attempt, record.fence, record.delay, record.why) for record in job.history]
        # When a crash is noticed depends on when a worker last woke up: within a second, whichever store it is.
        within_s = 1.0 if job.crashes else 0.05
        times = [moment and Near((moment - start).total_seconds(), within_s) for moment in (job.updated_at, job.finished_at, job.run_at)]
        kinds = [event.kind for event in stage.app.events.recent(10_000, job_id=job.id)]
        counts = (job.attempts, job.failures, job.crashes, job.snoozes, job.releases, job.generation, job.fence)
        return job.args, job.status, job.lane, counts, job.result, times, history, kinds

    answers = {}
    for backend in BACKENDS:
        (tmp_path / backend).mkdir()
        answers[backend] = play(backend, tmp_path / backend, scene)
    assert [answer[1] for answer in answers["memory"]] == ["done", "done", "done", "failed", "done", "done", "cancelled"]
    for backend in BACKENDS:
        assert answers[backend] == answers["memory"]
