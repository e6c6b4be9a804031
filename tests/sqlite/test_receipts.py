"""Receipts that somebody has damaged in the file: one does not keep the others from being read."""

from __future__ import annotations

import pytest

from mulligan.core.errors import BadPayload
from mulligan.stores.sqlite import SQLiteStore
from tests.builders import grip, put_and_claim


async def test_a_receipt_that_cannot_be_decoded_still_stands(store: SQLiteStore) -> None:
    """Its step is not free again, and its value is told to be damaged."""
    job = await put_and_claim(store)
    for name in ("one", "two"):
        await store.put_receipt(grip(job), name, "1")
    await store._write(lambda t: t.run("UPDATE mulligan_receipts SET value = CAST(x'22ff22' AS TEXT) WHERE name = 'one'"))
    [found] = await store.receipts([job.id])
    values = {receipt.name: receipt for receipt in found}
    assert values["two"].value == 1
    with pytest.raises(BadPayload, match="one"):
        _ = values["one"].value
    assert await store.put_receipt(grip(job), "one", "2") == values["one"]
