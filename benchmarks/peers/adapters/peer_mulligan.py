"""mulligan itself, through the same runner as everybody: its defaults, 100 jobs at once, no switch that users do not have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import adapter
import jobs

from mulligan import Constant, Context, Mulligan, RetryPolicy

QUEUE = "bench"
CONCURRENCY = 100


def make_app(url: str) -> Mulligan:
    """The app both sides use."""
    app = Mulligan(url)
    at_once = RetryPolicy(max_retries=jobs.ATTEMPTS - 1, backoff=Constant(delay=0.001), jitter="none")

    @app.task(queue=QUEUE)
    async def noop(number: int) -> None:
        jobs.noop(number)

    @app.task(queue=QUEUE, retry=at_once)
    async def storm(ctx: Context, number: int) -> None:
        jobs.storm(number, ctx.attempt)

    @app.task(queue=QUEUE)
    async def probe(number: int) -> None:
        jobs.probe(number)

    @app.task(queue=QUEUE)
    async def mortal(number: int) -> None:
        await jobs.mortal_async(number)

    app.state.tasks = {task.name: task for task in (noop, storm, probe, mortal)}
    return app


class Sender:
    """Enqueues."""

    def __init__(self, app: Mulligan) -> None:
        self._app = app

    async def one(self, kind: str, number: int) -> None:
        """One job."""
        await self._app.enqueue(kind, args=[number])

    async def bulk(self, kind: str, numbers: Sequence[int]) -> None:
        """Many in one call."""
        task = self._app.state.tasks[kind]
        await self._app.enqueue_many([task.job(number) for number in numbers])


class MulliganPeer:
    """The adapter."""

    async def prepare(self, url: str) -> None:
        """Opening the store makes its tables."""
        async with make_app(url):
            pass

    async def sender(self, url: str) -> Sender:
        """Enqueues."""
        app = make_app(url)
        await app.open()
        return Sender(app)

    async def left(self, url: str) -> Callable[[], Awaitable[int]]:
        """What waits, runs or has failed for good; what is done is kept, and does not count."""
        app = make_app(url)
        await app.open()

        async def count() -> int:
            queues = (await app.status()).queues
            return sum(one.queue_size + one.retry_queue_size + one.running + one.failed for one in queues)

        return count

    async def work(self, url: str) -> None:
        """One process."""
        stop = adapter.stop_event()
        async with make_app(url) as app, app.worker(queues=[QUEUE], concurrency=CONCURRENCY):
            adapter.ready()
            await stop.wait()


if __name__ == "__main__":
    adapter.main(MulliganPeer())
