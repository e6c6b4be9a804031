"""What the tests of steps share: a sink, faults, and a way to the end."""

from __future__ import annotations

import asyncio
from typing import Any

from mulligan import Handle, Job
from tests.faults import FaultyStore
from tests.virtual import Stage


class Till:
    """The sink: what reached it, one entry per effect."""

    def __init__(self) -> None:
        self.charged: list[int] = []

    async def charge(self, amount: int, *, currency: str = "EUR") -> dict[str, Any]:
        self.charged.append(amount)
        return {"amount": amount, "currency": currency, "number": len(self.charged)}

    def charge_now(self, amount: int) -> tuple[int, int]:
        self.charged.append(amount)
        return amount, len(self.charged)


def faulty(stage: Stage) -> FaultyStore:
    """Puts faults between the app and its store."""
    stage.app.store = store = FaultyStore(stage.app.store)  # type: ignore[assignment]
    return store


async def names(stage: Stage, handle: Handle[Any]) -> list[str]:
    [own] = await stage.app.store.receipts([handle.id])
    return [receipt.name for receipt in own]


async def drained(stage: Stage, handle: Handle[Any], **settings: Any) -> Job:
    """The job after a worker has done all there is to do."""
    async with stage.worker(**settings) as worker:
        await worker.drain()
    return await handle.job()


class SlowReceipts(FaultyStore):
    """A store that takes its time to write receipts."""

    seconds = 1.0

    def __getattr__(self, name: str) -> Any:
        target = super().__getattr__(name)
        if name != "put_receipt":
            return target

        async def put_receipt(*args: Any) -> Any:
            await asyncio.sleep(self.seconds)
            return await target(*args)

        return put_receipt
