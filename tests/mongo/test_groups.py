"""Groups on MongoDB: damaged ones, and the two ways to visit them."""

from __future__ import annotations

from collections import Counter

import pytest

from mulligan.core.contract import Ask
from mulligan.stores.mongo import MongoStore, turns
from tests.builders import ask, claim, done, fifo, get, grouped
from tests.mongo.conftest import Raw


@pytest.mark.parametrize("others", [3, 80], ids=["few jobs", "many groups"])
@pytest.mark.parametrize("wanted", [ask(), fifo()], ids=["by time", "by age"])
async def test_a_damaged_group_is_put_aside(store: MongoStore, raw: Raw, others: int, wanted: Ask) -> None:
    """A text that is no group does not stop the claims of the others, whether it is met among few jobs or on the way round many."""
    jobs = [grouped(fair=f"t{number:03}") for number in range(others)]
    await store.insert([*jobs, bad := grouped(fair="t000x"), worse := grouped(fair="t000y")])
    for job, text in ((bad, "no group"), (worse, "\U0010ffff\x1f")):
        raw["mulligan_jobs"].update_one({"_id": job.id}, {"$set": {"group": text}})
    taken: list[str] = []
    while claimed := (await claim(store, wanted, total=2)).jobs:
        taken += [job.id for job in claimed]
    assert sorted(taken) == sorted(job.id for job in jobs)
    assert [(await get(store, one.id)).status for one in (bad, worse)] == ["failed", "failed"]


@pytest.mark.parametrize("total", [3, 20])
async def test_sweeps_and_leaps_find_the_same(store: MongoStore, total: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups with few jobs and with many, changing under way: each job is claimed once, tenants in turn, whichever way is taken."""
    monkeypatch.setattr(turns, "LEAPS", 3)
    sizes = {f"t{number:02}": 30 if number % 3 == 0 else 1 + number % 5 for number in range(15)}
    await store.insert([grouped(fair=name) for name, jobs in sizes.items() for _ in range(jobs)])
    after, served, ways = "", Counter[str](), set[bool]()
    while claimed := (answer := await claim(store, ask(after=after), total=total)).jobs:
        [after] = answer.turns
        waiting = {name for name, jobs in sizes.items() if served[name] < jobs}
        for job in claimed:
            least = min((served[name] for name in waiting if served[name] < sizes[name]), default=0)
            assert served[str(job.fair_key)] <= least + 1
            served[str(job.fair_key)] += 1
        await store.settle([done(job) for job in claimed])
        ways.add(store._db.depths["fresh 0 q"][1] > 0)
    assert served == sizes
    assert ways == {True, False}
