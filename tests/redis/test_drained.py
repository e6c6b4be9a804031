from __future__ import annotations

import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.limits import BUCKET_MEMORY_US
from mulligan.stores.redis import RedisStore
from tests.builders import ask, claim, grouped
from tests.lives import LIMITS, live_through, remove_all
from tests.redis.keys import command, keys
from tests.redis.test_repair import NOTHING

REST = {"epoch", "beat", "schema", "names", "events", "seq", "claims", "grouped"}


@pytest.mark.parametrize("tenants", [60, pytest.param(10_000, marks=[pytest.mark.scale, pytest.mark.timeout(3_600)])])
async def test_drained_tenants_leave_no_keys(store: RedisStore, clock: ManualClock, tenants: int) -> None:
    """Every index is right while their jobs are there, and gone when they are; their buckets are forgotten after a day."""
    await live_through(store, clock, tenants)
    assert await store.repair() == NOTHING
    kinds = {key.partition(":")[0] for key in await keys(store)} - {"state", "body", "extra", "history", "finished", "counts", "ids"}
    assert kinds <= REST | {"levels", "touched"}
    await remove_all(store, clock)
    assert await keys(store) <= REST | {"levels", "touched"}
    assert await command(store, "HLEN", "{}levels") == await command(store, "ZCARD", "{}touched") == tenants
    clock.advance(BUCKET_MEMORY_US / 1_000_000 + 1)
    for _ in range(tenants // 1_000 + 1):
        await store.insert([grouped(fair="new")])
        await claim(store, ask(limits=LIMITS))
    assert await command(store, "HLEN", "{}levels") == await command(store, "ZCARD", "{}touched") == 1
