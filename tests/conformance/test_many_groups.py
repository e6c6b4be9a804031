"""The way round many groups: what waits elsewhere hides nobody, and a tenant has one turn, however many groups it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Store
from mulligan.core.groups import DOWNSTREAM, KEY
from mulligan.core.job import NewJob
from mulligan.core.limits import Limit, Slots
from mulligan.core.ring import SPARE_GROUPS, VISITS_MAX
from tests.builders import ask, bucket, claim, done, fifo, grouped, retry

MANY = 2 * VISITS_MAX + 50  # more than one claim visits, twice


def of_tenant(number: int, delay_s: float = 0) -> NewJob:
    """A job of a tenant of its own."""
    return grouped(fair=f"t{number:05}", delay_s=delay_s)


def of_key(number: int, delay_s: float = 0) -> NewJob:
    """A job of a concurrency key of its own; all of them are of the one tenant without a name."""
    return grouped(key=f"k{number:05}", delay_s=delay_s)


groups = pytest.mark.parametrize("of", [of_tenant, of_key])
Made = Callable[..., NewJob]


@groups
@pytest.mark.parametrize("wanted", [ask(), fifo()], ids=["by time", "by age"])
async def test_groups_that_are_not_due_hide_nothing(store: Store, of: Made, wanted: object) -> None:
    """However many groups wait for the future: the one job that is due is claimed at once."""
    await store.insert([of(number, delay_s=60) for number in range(VISITS_MAX + 100)])
    await store.insert([due := grouped(fair="zz", key="zz")])
    assert [job.id for job in (await claim(store, wanted, total=10)).jobs] == [due.id]  # type: ignore[arg-type]


@groups
async def test_groups_that_are_not_due_slow_nothing_down(store: Store, of: Made) -> None:
    """A tenant with much to do gets full claims among many that have nothing to do yet."""
    await store.insert([of(number, delay_s=60) for number in range(VISITS_MAX + 100)])
    await store.insert([grouped(fair="zz", key="zz") for _ in range(SPARE_GROUPS + 70)])
    after = ""
    for _ in range(5):
        claimed = await claim(store, ask(after=after), total=10)
        assert len(claimed.jobs) == 10
        [after] = claimed.turns


HELD_BACK: dict[str, Limit] = {
    "an open breaker": bucket("shut", burst=0, part=DOWNSTREAM, value="dead"),
    "busy keys": Slots(most=0, by_key=True),
    "spent budgets": bucket("spent", burst=0, part=KEY),
}


@pytest.mark.parametrize("limit", HELD_BACK.values(), ids=HELD_BACK)
@pytest.mark.parametrize("many_tenants", [True, False], ids=["many tenants", "one tenant"])
async def test_groups_that_are_held_back_hide_nothing(store: Store, limit: Limit, many_tenants: bool) -> None:
    """A claim that is not full visits VISITS_MAX groups, and the next one goes on behind them: so the one free group of all is served."""
    held = [grouped(fair=f"t{number:05}" if many_tenants else None, on="dead", key=f"k{number:05}") for number in range(MANY)]
    await store.insert(held)
    await store.insert([free := grouped(fair="zz" if many_tenants else None, on="zz")])
    after, claims = "", 0
    while not (claimed := await claim(store, ask(after=after, limits=(limit,)), total=10)).jobs:
        [after] = claimed.turns
        claims += 1
        assert claims <= MANY // VISITS_MAX + 1
        assert claimed.next_due_us == claimed.now_us
        assert claimed.held_back == {"q"}
    assert [job.id for job in claimed.jobs] == [free.id]


@pytest.mark.parametrize("many_tenants", [True, False], ids=["many tenants", "one tenant"])
async def test_who_comes_anew_is_found_at_once_among_those_held_back(store: Store, clock: ManualClock, many_tenants: bool) -> None:
    """A new job that may start is claimed at once, wherever its group stands."""
    await store.insert([grouped(fair=f"t{number:05}" if many_tenants else None, on="dead", key=f"k{number:05}") for number in range(MANY)])
    clock.advance(1)
    after = ""
    for name in ("t01040", "zz", "a"):
        await store.insert([new := grouped(fair=name if many_tenants else None, on=f"on {name}")])
        claimed = await claim(store, ask(after=after, limits=(HELD_BACK["an open breaker"],)), total=10)
        assert [job.id for job in claimed.jobs] == [new.id]
        [after] = claimed.turns
        clock.advance(1)


async def test_a_free_tenant_among_those_held_back_gets_full_claims(store: Store) -> None:
    """What the others may not take is not lost: more jobs are listed of whoever may take them."""
    await store.insert([grouped(fair=f"t{number:05}", on="dead") for number in range(SPARE_GROUPS + 30)])
    await store.insert([grouped(fair="t00010", on="alive") for _ in range(25)])
    wanted = ask(limits=(HELD_BACK["an open breaker"],))
    assert [len((await claim(store, wanted, total=10)).jobs) for _ in range(3)] == [10, 10, 5]


async def test_a_tenant_with_many_groups_has_one_turn(store: Store) -> None:
    """Its groups, which differ in downstream, task and key, do not stand before the others' jobs."""
    parts = [(f"d{number % 5}", f"t{number % 3}", f"k{number:04}") for number in range(3 * SPARE_GROUPS)]
    await store.insert([grouped(fair="a", on=on, limited=limited, key=key) for on, limited, key in parts])
    await store.insert([grouped(fair=name) for name in ("b", "c", "d") for _ in range(4)])
    after, served = "", []
    for total in (1, 1, 1, 1, 2, 4, 1, 1):
        claimed = await claim(store, ask(after=after), total=total)
        [after] = claimed.turns
        served += [job.fair_key for job in claimed.jobs]
    assert served == [*"abcd", *"abcdab", *"cd"]


async def test_every_group_of_a_tenant_is_served(store: Store, clock: ManualClock) -> None:
    """Those that come first in its order do not keep the others waiting, even if they always have something to do."""
    keys = [f"k{number:04}" for number in range(2 * SPARE_GROUPS + 30)]
    await store.insert([grouped(key=key) for key in keys for _ in range(2)])
    served: Counter[str] = Counter()
    after = ""
    for _ in range(120):  # about 60 are needed where stretches are drawn by lot, 87 were the most in 20,000 tries
        claimed = await claim(store, ask(after=after, limits=(Slots(most=1, by_key=True),)), total=5)
        assert len(claimed.jobs) == 5
        [after] = claimed.turns
        served.update(str(job.concurrency_key) for job in claimed.jobs)
        await store.settle([done(job) for job in claimed.jobs])
        clock.advance(1)
        await store.insert([grouped(key=job.concurrency_key) for job in claimed.jobs])
        if len(served) == len(keys):
            break
    assert sorted(served) == keys


async def fill_both_lanes(store: Store, tenants: int, each: int) -> None:
    """So many tenants with so many jobs in each lane."""
    await store.insert([grouped(fair=f"t{number:05}") for number in range(tenants) for _ in range(each)])
    claimed = await claim(store, ask(), total=tenants * each)
    await store.settle([retry(job) for job in claimed.jobs])
    await store.insert([grouped(fair=f"t{number:05}") for number in range(tenants) for _ in range(each)])


async def test_an_ask_that_gets_nothing_keeps_its_turn(store: Store) -> None:
    """Whatever the rhythm in which the two lanes are served, each serves all its tenants before one of them again."""
    tenants = 2 * SPARE_GROUPS
    await fill_both_lanes(store, tenants, 2)
    afters, served = ("", ""), {"fresh": list[str](), "retry": list[str]()}
    for number in range(200):
        retries = int(number % 5 == 4)
        asks = ask(after=afters[0], guaranteed=1 - retries), ask(lane="retry", after=afters[1], guaranteed=retries)
        claimed = await claim(store, *asks, total=1)
        afters = claimed.turns
        [job] = claimed.jobs
        served[job.lane].append(str(job.fair_key))
    assert [len(names) for names in served.values()] == [160, 40]
    for names in served.values():
        assert len(set(names[:tenants])) == len(names[:tenants])


async def test_a_limit_of_all_does_not_move_the_turn(store: Store) -> None:
    """Claims that find the queue's slots taken look at tenants and serve none; it is still the turn of the same one."""
    tenants, slot = 2 * SPARE_GROUPS, Slots(most=1)
    await store.insert([of_tenant(number) for number in range(tenants) for _ in range(2)])
    after, served = "", []
    for _ in range(30):
        [job] = (claimed := await claim(store, ask(after=after, limits=(slot,)), total=1)).jobs
        [after] = claimed.turns
        served.append(job.fair_key)
        for _ in range(3):
            claimed = await claim(store, ask(after=after, limits=(slot,)), total=1)
            assert (claimed.jobs, claimed.turns) == ([], (after,))
        await store.settle([done(job)])
    assert served == [f"t{number:05}" for number in range(30)]
