"""Transactions of claims and renewals that keep limits.

A transaction sees one state of the database, and its writes are refused if another has changed the same documents since: nobody waits
for a lock, whoever is second begins again. All that share a limit write to a document they have in common first (limits.py), so they
take effect one after the other, and the second one finds out early. It waits a moment before it begins again, longer each time. If the
other one never ends, because its process was killed, it is ended (abandoned.py).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure

from mulligan.core.errors import StoreUnavailable
from mulligan.stores.mongo.abandoned import end_abandoned
from mulligan.stores.mongo.database import Database, Session

T = TypeVar("T")
ATTEMPTS = 60
_LOOK_EVERY = 15  # attempts, then the one in the way may be dead
_WAIT_S, _WAIT_MAX_S = 0.002, 0.1
_DUPLICATE_KEY = 11_000


async def in_transaction(database: Database, rng: random.Random, work: Callable[[Session], Awaitable[T]]) -> T:
    """What the work answers, done in one step. It may be begun several times; it may abort the transaction where nothing is to be written.

    An end that is not known (the connection broke while it was confirmed) surfaces as an error: the caller's call is repeated.
    """
    reading, writing = database.jobs.read_concern, database.jobs.write_concern
    for attempt in range(ATTEMPTS):
        if attempt % _LOOK_EVERY == _LOOK_EVERY - 1:
            await end_abandoned(database)
        async with database.client.start_session() as session:
            try:
                async with await session.start_transaction(read_concern=reading, write_concern=writing):
                    return await work(session)
            except OperationFailure as problem:
                if not is_conflict(problem):
                    raise
        await asyncio.sleep(rng.uniform(0, min(_WAIT_MAX_S, _WAIT_S * 2**attempt)))
    raise StoreUnavailable("others change the same limits all the time; nothing is lost, the same call may be repeated")


def is_conflict(problem: OperationFailure) -> bool:
    """Whether another was quicker. A document that both wanted to make comes as a duplicate key, if the other one is done."""
    if isinstance(problem, BulkWriteError):
        errors = problem.details.get("writeErrors") or []
        return bool(errors) and all(error.get("code") == _DUPLICATE_KEY for error in errors)
    return problem.has_error_label("TransientTransactionError") or isinstance(problem, DuplicateKeyError)
