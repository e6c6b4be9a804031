"""Calls that must not pass mypy --strict. Each wrong line says which error it must give.

`make check` sees the ignores, and would complain of one that is not needed; test_types.py takes them away and compares.
"""

from __future__ import annotations

from mulligan import Context, Handle, Mulligan, Rate, RetryBudget

app = Mulligan("memory://")


@app.task
async def charge(invoice: int, currency: str = "EUR") -> str:
    return f"{invoice} {currency}"


@app.task(queue="q")
async def with_context(ctx: Context, invoice: int) -> int:
    return invoice


@app.task
def plain(name: str) -> int:
    return len(name)


@app.task(queue="q")
def plain_context(ctx: Context, name: str, *, loud: bool) -> None: ...


async def wrong_types() -> None:
    """Arguments of another type."""
    await charge.enqueue("42")  # type: ignore[arg-type]
    await charge.enqueue(42, 43)  # type: ignore[arg-type]
    await charge.enqueue(invoice=None)  # type: ignore[arg-type]
    await with_context.enqueue("42")  # type: ignore[arg-type]
    await plain.enqueue(42)  # type: ignore[arg-type]
    await plain_context.enqueue("x", loud="very")  # type: ignore[arg-type]


async def missing_arguments() -> None:
    """Arguments left out."""
    await charge.enqueue()  # type: ignore[call-arg]
    await with_context.enqueue()  # type: ignore[call-arg]
    await plain.enqueue()  # type: ignore[call-arg]
    await plain_context.enqueue("x")  # type: ignore[call-arg]


async def too_many_arguments() -> None:
    """More than the function takes, the context among them."""
    await charge.enqueue(1, "EUR", 3)  # type: ignore[call-arg]
    await plain_context.enqueue("x", True)  # type: ignore[call-arg]


async def unknown_keywords() -> None:
    """Names the function does not have."""
    await charge.enqueue(1, curency="EUR")  # type: ignore[call-arg]
    await plain.enqueue(nam="x")  # type: ignore[call-arg]
    await with_context.enqueue(1, ctx=None)  # type: ignore[call-arg]


async def other_forms() -> None:
    """Options, sync, job and plain calls hold to the same signature."""
    await charge.options(delay=5).enqueue("42")  # type: ignore[arg-type]
    await with_context.options(delay=5).options(priority=1).enqueue()  # type: ignore[call-arg]
    charge.sync.enqueue("42")  # type: ignore[arg-type]
    plain.options(tags=["a"]).sync.enqueue(1)  # type: ignore[arg-type]
    charge.job("42")  # type: ignore[arg-type]
    with_context.job()  # type: ignore[call-arg]
    await charge("42")  # type: ignore[arg-type]
    plain(5)  # type: ignore[arg-type]


async def wrong_steps(ctx: Context) -> None:
    """Steps hold to the signature of their function, and those in place are entered, not awaited."""
    await ctx.once("plain", len, 5)  # type: ignore[call-overload]
    await ctx.once("plain", abs)  # type: ignore[call-overload]
    await ctx.once(5, len, "x")  # type: ignore[call-overload]
    ctx.sync.once("plain", len, 5)  # type: ignore[call-overload]
    await ctx.once("plain")  # type: ignore[misc]
    text: str = await ctx.once("plain", len, "x")  # type: ignore[call-overload]
    print(text)


async def wrong_results() -> None:
    """A result, and a handle, used as another type."""
    handle = await charge.enqueue(1)
    number: int = await handle.result()  # type: ignore[assignment]
    other: Handle[int] = handle  # type: ignore[assignment]
    length: str = await (await plain.enqueue("x")).result(timeout=5)  # type: ignore[assignment]
    blocking: str = plain.sync.enqueue("x").result()  # type: ignore[assignment]
    inline: str = plain("x")  # type: ignore[assignment]
    print(number, other, length, blocking, inline)


async def wrong_settings() -> None:
    """Settings of tasks and calls of another type."""
    app.task(queue=5)  # type: ignore[call-overload]
    app.task(retries=5)  # type: ignore[call-overload]
    await app.enqueue_many([1])  # type: ignore[list-item]
    await app.get(5)  # type: ignore[arg-type]
    app.task(depends_on=5)  # type: ignore[call-overload]
    app.task(rate="100/m")  # type: ignore[call-overload]
    app.declare("x", budget=Rate(per_s=1))  # type: ignore[arg-type]
    app.downstreams("bank")  # type: ignore[arg-type]


async def wrong_steering() -> None:
    """Changes of a queue that no worker could follow."""
    await app.configure("q", concurrency="5")  # type: ignore[arg-type]
    await app.configure("q", key_concurrency=None)  # type: ignore[arg-type]
    await app.configure("q", hold_slot_up_to=3)  # type: ignore[call-arg]
    await app.configure("q", rate=RetryBudget(per_s=1))  # type: ignore[arg-type]
    app.sync.configure("q", claim=5)  # type: ignore[arg-type]
    await app.open_breaker()  # type: ignore[call-arg]
