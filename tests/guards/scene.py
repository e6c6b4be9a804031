"""The work all guards measure: jobs that do nothing, jobs that fail twice, and a worker with its defaults that empties the queue."""

from __future__ import annotations

from typing import Any

from mulligan import Constant, Context, Mulligan, RetryPolicy
from tests.guards.counted_store import Calls, CountedStore

ATTEMPTS = 3
JOBS = 2_000


class Scene:
    """An app whose store is counted."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.app = Mulligan(url, **settings)
        self.store = CountedStore(self.app.store)
        self.app.store = self.store  # type: ignore[assignment]  # it has every call of one, by __getattr__

        @self.app.task
        async def noop() -> None:
            return None

        @self.app.task(retry=RetryPolicy(max_retries=ATTEMPTS - 1, backoff=Constant(delay=0.001), jitter="none"))
        async def storm(ctx: Context) -> None:
            if ctx.attempt < ATTEMPTS:
                raise ConnectionError("try again")

        self.noop = noop
        self.storm = storm

    async def __aenter__(self) -> Scene:
        await self.app.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.app.close()

    @property
    def calls(self) -> Calls:
        return self.store.calls

    async def fill(self, jobs: int = JOBS, task: str = "noop") -> None:
        """So many jobs wait."""
        await self.app.enqueue_many([getattr(self, task).job() for _ in range(jobs)])

    async def drain(self, **settings: Any) -> None:
        """A worker comes, runs all that waits, and goes."""
        async with self.app.worker(**settings) as worker:
            await worker.drain()
