"""Enqueueing inside a transaction of the caller's own, on the stores that can share a database with the caller."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from mulligan.core.contract import Inserted, Store
from mulligan.core.errors import BadSetting, IllegalMove
from mulligan.core.job import NewJob


async def insert_in(store: Store, connection: Any, jobs: Sequence[NewJob]) -> list[Inserted]:
    """Stores the jobs in the open transaction of this connection, which may be an async or a plain one."""
    answer = _begun(store, connection, jobs)
    inserted: list[Inserted] = await answer if inspect.isawaitable(answer) else answer
    return inserted


def insert_in_now(store: Store, connection: Any, jobs: Sequence[NewJob]) -> list[Inserted]:
    """The same for a plain connection, in the caller's thread."""
    answer = _begun(store, connection, jobs)
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        raise IllegalMove("this connection is an async one; await app.enqueue_in(...) instead of the sync form")
    inserted: list[Inserted] = answer
    return inserted


def _begun(store: Store, connection: Any, jobs: Sequence[NewJob]) -> Any:
    join = getattr(store, "insert_in", None)
    if join is None:
        raise BadSetting(f"{store.url} cannot take part in a transaction of yours; PostgreSQL and SQLite can, enqueue() works everywhere")
    return join(connection, jobs)
