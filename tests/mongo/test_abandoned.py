"""Transactions whose process was killed in the middle: the server keeps them for a minute, and nobody has to wait for that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import OperationFailure

from mulligan.core.limits import Slots
from mulligan.stores.mongo import MongoStore
from mulligan.stores.mongo.abandoned import ABANDONED_US, APP_NAME, end_abandoned
from tests.builders import ask, claim, new_job
from tests.mongo.conftest import Raw


@pytest.fixture
async def rival(request: pytest.FixtureRequest, url: str) -> AsyncIterator[AsyncClientSession]:
    """A transaction of another process under this name, that has not written yet."""
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url, appname=getattr(request, "param", APP_NAME))
    async with client.start_session() as session:
        await session.start_transaction()
        yield session
        if session.in_transaction:
            await session.abort_transaction()
    await client.close()


async def take_turn(session: AsyncClientSession, raw: Raw) -> None:
    """The first write of a claim from queue q."""
    limits = session.client[raw.name]["mulligan_limits"]
    await limits.update_one({"_id": "queue q"}, {"$inc": {"turns": 1}}, upsert=True, session=session)


async def left_alone(raw: Raw) -> None:
    """Waits until the server has a transaction that is old enough."""
    old = {"type": "idleSession", "transaction.timeInactiveMicros": {"$gt": ABANDONED_US}}
    while not list(raw.client.admin.aggregate([{"$currentOp": {"idleSessions": True}}, {"$match": old}])):
        await asyncio.sleep(0.05)


async def test_a_claim_does_not_wait_for_a_dead_one(store: MongoStore, raw: Raw, rival: AsyncClientSession) -> None:
    """Somebody has begun to count the same slots and never goes on: claims end it, and whoever comes back finds it ended."""
    await store.insert([new_job() for _ in range(3)])
    await take_turn(rival, raw)
    await left_alone(raw)
    assert len((await claim(store, ask(limits=(Slots(most=2),)))).jobs) == 2
    with pytest.raises(OperationFailure) as refused:
        await take_turn(rival, raw)
    assert refused.value.has_error_label("TransientTransactionError")


async def test_one_that_is_at_work_is_left_alone(store: MongoStore, raw: Raw, rival: AsyncClientSession) -> None:
    """It has written a moment ago."""
    await take_turn(rival, raw)
    assert await store._call(lambda: end_abandoned(store._db)) == 0
    await rival.commit_transaction()


@pytest.mark.parametrize("rival", ["shop"], indirect=True)
async def test_those_of_other_programs_are_left_alone(store: MongoStore, raw: Raw, rival: AsyncClientSession) -> None:
    """A user's own transaction may take its time."""
    await take_turn(rival, raw)
    await left_alone(raw)
    await store._call(lambda: end_abandoned(store._db))
    await rival.commit_transaction()
