"""A plain call of a task runs its function here and now, without the queue."""

from __future__ import annotations

import inspect

import pytest

from mulligan import Context, Mulligan


async def test_async_and_sync_with_and_without_context(app: Mulligan) -> None:
    """The call gives what the function gives: a coroutine or the value; a context is made where one is wanted."""

    @app.task
    async def one(number: int) -> int:
        return number + 1

    @app.task
    def two(number: int) -> int:
        return number + 2

    @app.task(queue="q", timeout=5)
    async def three(ctx: Context, number: int, *, text: str = "") -> tuple[str, int, str]:
        return ctx.job.queue, number, text

    @app.task
    def four(ctx: Context) -> Context:
        return ctx

    assert inspect.iscoroutine(coroutine := one(1))
    assert await coroutine == 2
    assert two(1) == 3
    assert await three(1, text="x") == ("q", 1, "x")
    ctx = four()
    assert (ctx.attempt, ctx.fence, ctx.cancelled, ctx.deadline) == (1, 1, False, None)
    assert ctx.job.task == "four"
    assert ctx.idempotency_key == f"{ctx.job.id}:1"
    assert ctx.state is app.state
    assert (await app.status()).queues == []
    assert app.events.recent() == []


async def test_errors_of_an_inline_call_are_the_functions_own(app: Mulligan) -> None:
    """Nothing is caught, retried or recorded: it is a plain call."""

    @app.task
    async def bad() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await bad()
    with pytest.raises(TypeError):
        await bad(1)  # type: ignore[call-arg]


def test_a_task_looks_like_its_function() -> None:
    """Name, docstring, signature and the function itself can be read from the task."""
    app = Mulligan("memory://")

    @app.task(name="renamed")
    def work(number: int) -> int:
        """What it does."""
        return number

    assert (work.name, work.__name__, work.__doc__) == ("renamed", "renamed", "What it does.")
    assert repr(work) == "<task 'renamed'>"
    assert work.__wrapped__ is not None
    assert work.__wrapped__(3) == 3
    assert list(inspect.signature(work).parameters) == ["number"]


async def test_context_is_found_by_its_annotation_only(app: Mulligan) -> None:
    """A first parameter called ctx without the annotation is an ordinary argument, and an annotated one may have any name."""

    @app.task
    def plain(ctx: int) -> int:
        return ctx

    @app.task
    def odd(whatever: Context, number: int) -> int:
        assert isinstance(whatever, Context)
        return number

    assert plain(5) == 5
    assert odd(6) == 6
    plain_job, odd_job = await (await plain.enqueue(5)).job(), await (await odd.enqueue(6)).job()
    assert (plain_job.args, odd_job.args) == ([5], [6])
