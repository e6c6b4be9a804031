"""What SQLite does for a call: the statements it executes, their plans, and how many steps they take."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial

from mulligan.stores.sqlite import SQLiteStore
from mulligan.stores.sqlite.hop import Hop, Outside

Call = Callable[[SQLiteStore], Awaitable[object]]


async def on_both_threads(store: SQLiteStore, work: Callable[[Hop], object]) -> list[object]:
    """Runs something outside a transaction in the thread of each connection."""
    session = store._session
    assert session is not None
    loop = asyncio.get_running_loop()
    hops: list[Hop] = [session.writer, session.reader]
    return [await loop.run_in_executor(hop, Outside(partial(work, hop))) for hop in hops]


async def texts_of(store: SQLiteStore, call: Call) -> list[str]:
    """Everything a call has SQLite execute, the beginnings and ends of transactions too."""
    seen: list[str] = []
    await on_both_threads(store, lambda hop: hop.connection.set_trace_callback(seen.append))  # type: ignore[union-attr]
    await call(store)
    await on_both_threads(store, lambda hop: hop.connection.set_trace_callback(None))  # type: ignore[union-attr]
    return seen


async def statements_of(store: SQLiteStore, call: Call) -> list[str]:
    """The statements a call executes, with their values."""
    # A line that begins with -- is the body of a trigger, which has a plan of its own.
    return [text for text in await texts_of(store, call) if re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE)", text, re.IGNORECASE)]


async def plan_of(store: SQLiteStore, call: Call) -> list[str]:
    """The steps of all plans of a call."""
    lines: list[str] = []
    for statement in await statements_of(store, call):
        rows = await store._write(lambda t, statement=statement: t.rows(f"EXPLAIN QUERY PLAN {statement}"))  # type: ignore[misc]
        lines += [row[3] for row in rows]
    return lines


async def steps_of(store: SQLiteStore, call: Call) -> int:
    """How many steps SQLite's machine takes for a call, in hundreds."""
    counts = [0]

    def count() -> int:
        counts[0] += 1
        return 0

    await on_both_threads(store, lambda hop: hop.connection.set_progress_handler(count, 100))  # type: ignore[union-attr]
    await call(store)
    await on_both_threads(store, lambda hop: hop.connection.set_progress_handler(None, 0))  # type: ignore[union-attr]
    return counts[0]
