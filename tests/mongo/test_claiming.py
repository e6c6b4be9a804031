from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.job import LANES, PRIORITIES
from mulligan.stores.mongo import MongoStore
from mulligan.stores.mongo import claim as claiming
from mulligan.stores.mongo import take as taking
from tests.builders import ask, claim, new_job, us
from tests.mongo.conftest import Raw

SOON_S = 10


async def test_next_time_is_asked_beside_the_take(store: MongoStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that is not full does not wait for its take before it asks when the next job falls due."""
    asked = asyncio.Event()
    take, next_due_us = claiming.take, taking.next_due_us

    async def take_late(*given: Any) -> int:
        await asyncio.wait_for(asked.wait(), SOON_S)
        return await take(*given)

    async def ask_now(*given: Any) -> int | None:
        asked.set()
        return await next_due_us(*given)

    monkeypatch.setattr(claiming, "take", take_late)
    monkeypatch.setattr(taking, "next_due_us", ask_now)
    await store.insert([new_job(), new_job(delay_s=30)])
    claimed = await claim(store, total=2)
    assert (len(claimed.jobs), claimed.next_due_us) == (1, clock.now_us() + us(30))


async def test_next_time_costs_a_key_for_each_line(store: MongoStore, raw: Raw, clock: ManualClock) -> None:
    """Among hundreds of jobs that wait for their time, in all lanes and priorities, the next one is found by the first of each."""
    await store.insert([new_job(delay_s=100 + at, priority=priority) for at in range(200) for priority in PRIORITIES])
    raw.command("profile", 2)
    empty = await claim(store, *(ask(lane=lane, priority=priority) for lane in LANES for priority in PRIORITIES), total=10)
    raw.command("profile", 0)
    assert (empty.jobs, empty.next_due_us) == ([], clock.now_us() + us(100))
    looks = list(raw["system.profile"].find({"command.aggregate": "mulligan_meta"}))
    assert len(looks) == 2
    assert sum(look["keysExamined"] for look in looks) <= 40
    assert sum(look["docsExamined"] for look in looks) <= 4
