"""Receipts that somebody has damaged in their document, and who reads them."""

from __future__ import annotations

from typing import Any

import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Query
from mulligan.core.errors import BadPayload, StoreRejected
from mulligan.stores.mongo import MongoStore
from mulligan.stores.mongo.database import Database
from tests.builders import claim_one, done, fifo, get, grip, put_and_claim, retry
from tests.mongo.conftest import Raw


@pytest.mark.parametrize("change", [{"value": 5}, {"fence": "x"}, {"at_us": None}, {"value": {"a": 1}}])
async def test_a_receipt_that_cannot_be_decoded_still_stands(store: MongoStore, raw: Raw, change: dict[str, Any]) -> None:
    """Its step is not free again, and its value is told to be damaged; the job itself is none the worse."""
    job = await put_and_claim(store)
    for name in ("one", "two"):
        await store.put_receipt(grip(job), name, "1")
    raw.mulligan_jobs.update_one({"_id": job.id}, {"$set": {f"receipts.0.{field}": value for field, value in change.items()}})
    [found] = await store.receipts([job.id])
    values = {receipt.name: receipt for receipt in found}
    assert values["two"].value == 1
    with pytest.raises(BadPayload, match="one"):
        _ = values["one"].value
    assert await store.put_receipt(grip(job), "one", "2") == values["one"]
    assert [verdict.applied for verdict in await store.settle([retry(job)])] == [True]
    assert (await claim_one(store, fifo())).id == job.id


async def test_receipts_that_are_no_list_are_not_written_over(store: MongoStore, raw: Raw) -> None:
    """Nobody knows what they said."""
    job = await put_and_claim(store)
    raw.mulligan_jobs.update_one({"_id": job.id}, {"$set": {"receipts": "x"}})
    with pytest.raises(StoreRejected, match="damaged"):
        await store.put_receipt(grip(job), "one", "1")
    [[shown]] = await store.receipts([job.id])
    with pytest.raises(BadPayload):
        _ = shown.value
    assert (await get(store, job.id)).status == "processing"
    assert [verdict.applied for verdict in await store.settle([done(job)])] == [True]


async def test_a_document_without_receipts_has_no_field_for_them(store: MongoStore, raw: Raw) -> None:
    """Jobs that have no steps cost nothing."""
    job = await put_and_claim(store)
    assert raw.mulligan_jobs.count_documents({"receipts": {"$exists": True}}) == 0
    await store.put_receipt(grip(job), "one", "1")
    assert raw.mulligan_jobs.count_documents({"receipts": {"$exists": True}}) == 1


async def test_claims_and_searches_do_not_read_them(store: MongoStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be megabytes, and belong to nobody but their steps."""
    job = await put_and_claim(store)
    await store.put_receipt(grip(job), "one", "1")
    read: list[dict[str, Any]] = []
    docs = Database.docs

    async def noted(*args: Any, **options: Any) -> list[dict[str, Any]]:
        found = await docs(*args, **options)
        read.extend(found)
        return found

    monkeypatch.setattr(Database, "docs", noted)
    clock.advance(31)
    assert len(await store.overdue(10)) == 1
    await store.settle([retry(job)])
    await claim_one(store, fifo())
    await get(store, job.id)
    await store.find(Query(), 10)
    assert len(read) >= 4
    assert [doc for doc in read if "receipts" in doc] == []
