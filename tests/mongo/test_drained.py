from __future__ import annotations

import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.limits import BUCKET_MEMORY_US
from mulligan.stores.mongo import MongoStore
from mulligan.stores.mongo import limits as limiting
from tests.builders import ask, claim, grouped
from tests.lives import LIMITS, live_through, remove_all
from tests.mongo.conftest import Raw

OF_LIVE_JOBS = ("line", "fifo_line", "turn_line", "turn_due", "lease_expires_at_us", "slots", "given_away", "live_key")


async def test_drained_tenants_leave_nothing(store: MongoStore, raw: Raw, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs at rest have none of the fields that live ones are found and counted by, and buckets are forgotten after a day."""
    await live_through(store, clock, 60)
    jobs = raw["mulligan_jobs"]
    assert jobs.count_documents({}) == 180
    assert {field: jobs.count_documents({field: {"$exists": True}}) for field in OF_LIVE_JOBS} == dict.fromkeys(OF_LIVE_JOBS, 0)
    await remove_all(store, clock)
    assert jobs.count_documents({}) == 0
    assert raw["mulligan_limits"].count_documents({}) == 60 + 1  # buckets, and the document by which claims of the queue take turns
    clock.advance(BUCKET_MEMORY_US / 1_000_000 + 1)
    monkeypatch.setattr(limiting, "_FORGET_EVERY", 1)
    await store.insert([grouped(fair="new")])
    await claim(store, ask(limits=LIMITS))
    assert raw["mulligan_limits"].count_documents({}) == 2
