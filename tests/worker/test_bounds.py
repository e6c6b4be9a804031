"""What a worker holds in memory is bounded, whatever the store or the handlers do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from mulligan import StoreUnavailable
from mulligan.core.change import Change, Verdict
from tests.faults import FaultyStore
from tests.seeds.scenes import change_store
from tests.virtual import Stage, play

JOBS, SLOTS, BUFFER, BATCH = 100, 4, 3, 2


def test_outcomes_that_cannot_be_written_stop_the_claiming(backend: str, tmp_path: Path) -> None:
    """While the store takes no outcomes, a worker starts what its buffer, one batch and its slots hold, and no more; then all are done."""

    async def scene(stage: Stage) -> None:
        starts: list[int] = []
        until_s = 120

        @stage.app.task
        async def work(number: int) -> None:
            starts.append(number)

        class Refusing(FaultyStore):
            async def settle(self, changes: Sequence[Change]) -> list[Verdict]:
                if stage.elapsed_s < until_s:
                    raise StoreUnavailable("it takes no outcomes now")
                return await inner.settle(changes)

        await stage.app.enqueue_many([work.job(number) for number in range(JOBS)])
        inner = stage.app.store
        change_store(stage.app, Refusing(inner))
        async with stage.worker(concurrency=SLOTS, buffer=BUFFER, batch=BATCH, ahead=0) as worker:
            await asyncio.sleep(until_s - 1)
            assert SLOTS <= len(starts) <= BUFFER + BATCH + SLOTS
            await worker.drain()
        assert sorted(starts) == list(range(JOBS))

    play(backend, tmp_path, scene)
