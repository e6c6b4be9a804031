"""Receipts that somebody has damaged in their hash: one does not keep the others from being read."""

from __future__ import annotations

import pytest

from mulligan.core.errors import BadPayload
from mulligan.stores.redis import RedisStore
from tests.builders import done, grip, put_and_claim
from tests.redis.keys import command, keys


@pytest.mark.parametrize("text", [b"", b"\xc1", b"\x01\x02\x03", b"\x01\x02\xa1\xff"])
async def test_a_receipt_that_cannot_be_decoded_still_stands(store: RedisStore, text: bytes) -> None:
    """Its step is not free again, and its value is told to be damaged."""
    job = await put_and_claim(store)
    for name in ("one", "two"):
        await store.put_receipt(grip(job), name, "1")
    await command(store, "HSET", f"{{}}receipts:{job.id}", "one", text)
    [found] = await store.receipts([job.id])
    values = {receipt.name: receipt for receipt in found}
    assert values["two"].value == 1
    with pytest.raises(BadPayload, match="one"):
        _ = values["one"].value
    assert await store.put_receipt(grip(job), "one", "2") == values["one"]


async def test_they_are_one_key_that_goes_with_the_job(store: RedisStore) -> None:
    """A job without receipts has no key for them."""
    plain, stepped = await put_and_claim(store), await put_and_claim(store)
    await store.put_receipt(grip(stepped), "one", "1")
    assert {key for key in await keys(store) if key.startswith("receipts:")} == {f"receipts:{stepped.id}"}
    await store.settle([done(plain), done(stepped)])
    await store.prune("done", 0, 10)
    assert not [key for key in await keys(store) if key.startswith("receipts:")]
