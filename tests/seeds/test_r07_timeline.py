"""R07: the region queue's timeline, to the second, on the real worker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mulligan import Fifo, FreshFirst, Queue, RetryFirst, RetryPolicy
from tests.virtual import Stage, play

JOB_S = 30.0


@pytest.mark.parametrize(
    ("claim", "hold_s", "retry_starts_s"),
    [
        (FreshFirst(), 2.0, 182),
        (RetryFirst(), 2.0, 32),
        (FreshFirst(), 0.0, 180),
        (RetryFirst(), 0.0, 60),
        (Fifo(), 2.0, 32),
        (Fifo(), 0.0, 60),
    ],
    ids=lambda value: str(value),
)
def test_r07_retry_starts_when_the_document_says(backend: str, tmp_path: Path, claim: object, hold_s: float, retry_starts_s: int) -> None:
    """Six jobs of 30 s, one worker; the first fails once and its retry starts at the second the strategy gives."""
    starts: list[tuple[str, float]] = []

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.queues(Queue("region", claim=claim, hold_slot_up_to=hold_s, retry=RetryPolicy.preset("region-queue")))  # type: ignore[arg-type]

        @app.task(queue="region")
        async def job(name: str) -> None:
            starts.append((name, stage.elapsed_s))
            await asyncio.sleep(JOB_S)
            if name == "A-q1" and len([1 for started, _ in starts if started == "A-q1"]) == 1:
                raise ConnectionError("down")

        names = ["A-q1", "A-q2", "A-q3", "B-q1", "B-q2", "B-q3"]
        await app.enqueue_many([job.job(name) for name in names])
        async with stage.worker(concurrency=1) as worker:
            await worker.drain()

    play(backend, tmp_path, scene)
    retry_start_s = [at_s for name, at_s in starts if name == "A-q1"][1]
    assert round(retry_start_s) == retry_starts_s
    assert len(starts) == 7
