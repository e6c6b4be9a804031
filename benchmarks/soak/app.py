"""The app of a soak: jobs that succeed, fail once, return something, and a few that fail for good. Retention is short, so that what is
kept comes to a steady size soon."""

from __future__ import annotations

from mulligan import Constant, Context, Mulligan, RetryPolicy

KINDS = (
    "plain",
    "plain",
    "plain",
    "plain",
    "plain",
    "talks",
    "talks",
    "flaky",
    "flaky",
    "hopeless",
)  # in turn, so a tenth of all fail for good


def make_app(url: str) -> Mulligan:
    """The app both the producer and the worker use."""
    app = Mulligan(url, retry=RetryPolicy(max_retries=2, backoff=Constant(delay=0.5), jitter="full"))

    @app.task
    async def plain(number: int) -> None: ...

    @app.task
    async def talks(number: int) -> str:
        return f"{number} " * 20

    @app.task
    async def flaky(ctx: Context, number: int) -> int:
        if ctx.attempt == 1:
            raise ConnectionError(f"not yet, {number}")
        return number

    @app.task
    async def hopeless(number: int) -> None:
        raise ValueError(f"never, {number}")

    app.state.tasks = {task.name: task for task in (plain, talks, flaky, hopeless)}
    return app
