"""R09: retry depth, average retry wait, retry success rate, and the time that priority saves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from mulligan import Constant, FreshFirst, Queue, RetryFirst, RetryPolicy
from mulligan.admin import QueueStatus
from tests.virtual import Stage, play

REGION = RetryPolicy.preset("region-queue")


def timeline(claim: object, *, hold_s: float = 0.0) -> Callable[[Stage], object]:
    """The document's six jobs of 30 s with one worker, the first of which fails once; gives back the queue's numbers at the end."""

    async def scene(stage: Stage) -> QueueStatus:
        app = stage.app
        app.queues(Queue("region", claim=claim, hold_slot_up_to=hold_s, retry=REGION))  # type: ignore[arg-type]
        failed = []

        @app.task(queue="region")
        async def job(name: str) -> None:
            await asyncio.sleep(30)
            if name == "A-q1" and not failed:
                failed.append(name)
                raise ConnectionError("down")

        await app.enqueue_many([job.job(name) for name in ("A-q1", "A-q2", "A-q3", "B-q1", "B-q2", "B-q3")])
        async with stage.worker(concurrency=1) as worker:
            await worker.drain()
        return (await app.status())["region"]

    return scene


@pytest.mark.parametrize(("claim", "saved_s"), [(RetryFirst(), 150), (FreshFirst(), 0)], ids=["first", "last"])
def test_r09_time_saved_is_what_the_document_says(backend: str, tmp_path: Path, claim: object, saved_s: int) -> None:
    """182 s without priority, 32 s with it: 150 s are saved by the one retry; without priority nothing is."""
    recent = play(backend, tmp_path, timeline(claim, hold_s=2)).recent  # type: ignore[arg-type, attr-defined]
    assert round(recent.time_saved_s) == saved_s


def test_r09_waits_and_successes_are_counted(backend: str, tmp_path: Path) -> None:
    """Two jobs fail twice each and then succeed: the waits and the outcomes of each attempt number, to the second."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.queues(Queue("q", claim=RetryFirst(), retry=RetryPolicy(max_retries=3, backoff=Constant(10), jitter="none")))
        runs: dict[str, int] = {}

        @app.task(queue="q")
        async def job(name: str) -> None:
            runs[name] = runs.get(name, 0) + 1
            await asyncio.sleep(4)
            if runs[name] < 3:
                raise ConnectionError("down")

        await app.enqueue_many([job.job("a"), job.job("b")])
        async with stage.worker(concurrency=1) as worker:
            await asyncio.sleep(9)
            early = (await app.status())["q"]
            assert (early.retry_queue_size, early.retry_ready) == (2, 0), "both back off"
            await worker.drain()
            await asyncio.sleep(11)  # for the next report
            whole = (await app.status())["q"]
        assert whole.claim == "retry_first"
        assert whole.recent is not None
        # a: 0-4, 14-18, 28-32; b: 4-8, 18-22, 32-36: b is due at 18 and 32.
        assert (whole.recent.fresh_starts, whole.recent.retry_starts) == (2, 4)
        assert whole.recent.retry_share == pytest.approx(4 / 6)
        assert whole.recent.average_fresh_wait_s == pytest.approx(2, abs=0.1)
        assert whole.recent.average_retry_wait_s == pytest.approx(0, abs=0.1)
        assert whole.recent.retry_success_rate == pytest.approx(0.5)
        outcomes = {attempt: (one.succeeded, one.failed) for attempt, one in whole.recent.by_attempt.items()}
        assert outcomes == {"1": (0, 2), "2": (0, 2), "3": (2, 0)}
        assert whole.recent == (await app.status())["q"].recent, "a stopped worker's figures stay for a while"

    play(backend, tmp_path, scene)


@pytest.mark.parametrize("seed", range(3))
def test_r09_time_saved_agrees_with_the_simulator(tmp_path: Path, seed: int) -> None:
    """The same burst twice, retries first and last: what the first run says it saved is what retries waited longer in the second.

    In a burst without later arrivals, the end of the line is where a queue without priority would put a retry.
    """

    def burst(claim: object) -> Callable[[Stage], object]:
        async def scene(stage: Stage) -> QueueStatus:
            app = stage.app
            rng = random.Random(seed)
            app.queues(Queue("q", claim=claim, retry=RetryPolicy(max_retries=3, backoff=Constant(5), jitter="none")))  # type: ignore[arg-type]
            fails = {number: rng.random() < 0.1 for number in range(400)}

            @app.task(queue="q")
            async def job(number: int) -> None:
                await asyncio.sleep(1)
                if fails[number]:
                    fails[number] = False
                    raise ConnectionError("down")

            await app.enqueue_many([job.job(number) for number in fails])
            async with stage.worker(concurrency=4) as worker:
                await worker.drain()
            return (await app.status())["q"]

        return scene

    first = play("memory", tmp_path, burst(RetryFirst())).recent  # type: ignore[arg-type, attr-defined]
    last = play("memory", tmp_path, burst(FreshFirst())).recent  # type: ignore[arg-type, attr-defined]
    assert last.time_saved_s == 0
    really_saved_s = last.average_retry_wait_s - first.average_retry_wait_s
    assert really_saved_s > 20
    assert first.average_time_saved_s == pytest.approx(really_saved_s, rel=0.1)
