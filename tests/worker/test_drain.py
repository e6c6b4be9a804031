"""When a worker may say that its queues are empty."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from mulligan import Constant, RetryPolicy
from tests.faults import FaultyStore
from tests.seeds.scenes import change_store
from tests.virtual import Stage, play


class SlowStore(FaultyStore):
    """A store whose figures are asked for late, and whose answers to claims are under way for long."""

    def __getattr__(self, name: str) -> Any:
        inner = super().__getattr__(name)
        if name not in ("stats", "claim"):
            return inner

        async def call(*args: Any, **kwargs: Any) -> Any:
            if name == "stats":
                await asyncio.sleep(1.5)
                return await inner(*args, **kwargs)
            answer = await inner(*args, **kwargs)
            await asyncio.sleep(5 if answer.jobs else 0)
            return answer

        return call


def test_drain_does_not_end_while_a_claim_is_under_way(backend: str, tmp_path: Path) -> None:
    """The retry is claimed while the figures are on their way: they show nothing that waits, and nothing is held yet; it still runs."""

    async def scene(stage: Stage) -> None:
        runs: list[float] = []

        @stage.app.task(retry=RetryPolicy(max_retries=1, backoff=Constant(1), jitter="none"))
        async def work() -> None:
            runs.append(stage.elapsed_s)
            if len(runs) == 1:
                raise ConnectionError("down")

        change_store(stage.app, SlowStore(stage.app.store))
        handle = await work.enqueue()
        async with stage.worker() as worker:
            await worker.drain()
            assert len(runs) == 2
            assert (await handle.job()).status == "done"

    play(backend, tmp_path, scene)
