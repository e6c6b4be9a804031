"""What limits and groups cost on Redis, and that several processes keep them together."""

from __future__ import annotations

import asyncio

import pytest

from mulligan.core.clock import SECOND_US, ManualClock
from mulligan.core.contract import Ask, Order
from mulligan.core.groups import FAIR
from mulligan.core.job import Job
from mulligan.core.limits import BUCKET_MEMORY_US, Slots
from mulligan.stores.redis import RedisStore, from_url
from tests.builders import ask, bucket, claim, claim_one, done, get, grip, grouped, new_job, us
from tests.redis.keys import command, figures, keys

LIMITS = (Slots(most=100), bucket("all", burst=1_000), bucket("tenant", burst=5, part=FAIR))
SLOTS = 5
TOKENS = 60


async def calls(store: RedisStore) -> int:
    """How many commands the server has run so far, those of scripts included."""
    stats = await figures(store)
    return sum(one["calls"] for name, one in stats.items() if name not in ("cmdstat_publish", "cmdstat_ping", "cmdstat_info"))


async def cost_of_a_claim(store: RedisStore, queue: str, groups: int, jobs: int, order: Order = "run_at") -> int:
    """The commands of one claim of 10 jobs, of so many groups with so many due jobs each."""
    await store.insert([grouped(queue, fair=f"tenant {number:05}") for number in range(groups) for _ in range(jobs)])
    before = await calls(store)
    claimed = await claim(store, Ask(queue=queue, lane="fresh", priority=0, guaranteed=10, order=order, limits=LIMITS), total=10)
    after = await calls(store)
    assert len(claimed.jobs) == 10
    return after - before


@pytest.mark.parametrize("order", ["run_at", "created_at"])
async def test_a_claim_costs_the_same_beside_many_tenants(own: RedisStore, order: Order) -> None:
    """The commands of a claim depend neither on the number of groups nor on that of their jobs."""
    few = await cost_of_a_claim(own, "few", 100, 1, order)
    assert await cost_of_a_claim(own, "many", 2_000, 1, order) - few <= 2
    assert await cost_of_a_claim(own, "deep", 100, 50, order) - few <= 2
    assert few < 300
    assert await cost_of_a_claim(own, "fewer", 60, 1, order) < few


async def test_nothing_is_visited_while_no_group_is_due(own: RedisStore) -> None:
    """One probe says that nothing is due, however many groups wait for later."""
    await own.insert([grouped(fair=f"tenant {number:05}", delay_s=600) for number in range(2_000)])
    before = await calls(own)
    assert (await claim(own, ask(), total=10)).jobs == []
    assert await calls(own) - before < 40


async def test_slots_are_counted_by_index(own: RedisStore) -> None:
    """Counting costs the same beside many running jobs, and reads none of them."""
    await own.insert([new_job() for _ in range(1_501)])
    limits = (Slots(most=10_000),)
    costs = []
    await claim(own, ask("other"))  # the server knows the script from here on
    for total in (1, 1_499, 1):
        before = await calls(own)
        assert len((await claim(own, ask(limits=limits), total=total)).jobs) == total
        costs.append(await calls(own) - before)
    assert costs[2] == costs[0]
    assert await command(own, "ZCARD", "{}slots:q:fresh") == 1_501


async def test_plain_jobs_pay_for_nothing(own: RedisStore) -> None:
    """A job without a group and limits has the indexes it always had, and its claim reads one set more."""
    await own.insert([new_job() for _ in range(10)])
    before = await figures(own)
    held = (await claim(own, ask(), total=5)).jobs
    after = await figures(own)
    assert len(held) == 5
    ran = {name: one["calls"] - before.get(name, {"calls": 0})["calls"] for name, one in after.items()}
    expected = {"evalsha": 1, "smembers": 2, "zscore": 1, "zrange": 1, "zcount": 1, "zrangebyscore": 1, "mget": 2, "zrem": 1}
    expected |= {"mset": 1, "zadd": 2, "zremrangebyscore": 1, "incr": 1, "get": 1, "time": 1}
    assert {name.removeprefix("cmdstat_"): count for name, count in ran.items() if count and name in PLAIN} == expected
    kinds = {key.split(":")[0] for key in await keys(own)}
    assert kinds == {"epoch", "beat", "schema", "names", "ids", "state", "body", "due", "leases", "claims"}


PLAIN = {f"cmdstat_{name}" for name in ("smembers", "zscore", "zrange", "zcount", "zrangebyscore", "mget", "zrem", "mset", "zadd", "get")}
PLAIN |= {f"cmdstat_{name}" for name in ("evalsha", "zremrangebyscore", "incr", "time", "exists", "hget", "hset", "zrangebylex", "sadd")}


async def test_claimers_share_slots_and_tokens(url: str) -> None:
    """Eight claimers on four connections never hold more jobs than there are slots, and start no more than there are tokens."""
    stores = [from_url(url) for _ in range(4)]
    for store in stores:
        await store.open()
    await stores[0].insert([grouped(fair=f"tenant {number % 7}") for number in range(3 * TOKENS)])
    limits = (Slots(most=SLOTS), bucket("starts", burst=TOKENS))
    wanted = ask(limits=limits)
    running: set[str] = set()
    started: list[Job] = []

    async def work(number: int) -> None:
        store = stores[number % 4]
        while len(started) < TOKENS:
            held = (await claim(store, wanted, total=3, owner=f"worker-{number}")).jobs
            running.update(job.id for job in held)
            started.extend(held)
            assert len(running) <= SLOTS
            await asyncio.sleep(0.001)
            running.difference_update(job.id for job in held)
            await store.settle([done(job) for job in held])

    await asyncio.gather(*(work(number) for number in range(8)))
    assert len({job.id for job in started}) == len(started) == TOKENS
    assert (await claim(stores[0], wanted)).jobs == []
    for store in stores:
        await store.close()


async def test_a_renewal_and_a_claim_never_share_the_last_slot(url: str, clock: ManualClock) -> None:
    """Of an ended lease and a new claim at the same moment, exactly one has the slot."""
    stores = [from_url(url, clock) for _ in range(2)]
    for store in stores:
        await store.open()
    await stores[0].insert([new_job() for _ in range(40)])
    one_at_a_time = ask(limits=(Slots(most=1),))
    for number in range(20):
        held = (await claim(stores[0], one_at_a_time, total=1)).jobs[0]
        clock.advance(31)
        renewing, claiming = stores[0].renew([grip(held)], us(30)), claim(stores[1], one_at_a_time, total=1)
        if number % 2:
            [renewal], claimed = await asyncio.gather(renewing, claiming)
        else:
            claimed, [renewal] = await asyncio.gather(claiming, renewing)
        assert renewal.held + len(claimed.jobs) == 1
        await stores[0].settle([done(job) for job in (held, *claimed.jobs)])
    for store in stores:
        await store.close()


async def test_buckets_are_forgotten_in_time(store: RedisStore, clock: ManualClock) -> None:
    """What nobody has touched for a day goes when another bucket is written, and begins full again."""
    await store.insert([new_job() for _ in range(3)])
    await claim(store, ask(limits=(bucket("old", burst=2),)), total=1)
    clock.advance(BUCKET_MEMORY_US / SECOND_US + 1)
    await claim(store, ask(limits=(bucket("new", burst=2),)), total=1)
    assert set(await store.levels()) == {"new"}
    assert await command(store, "ZCARD", "{}touched") == 1
    assert (await claim(store, ask(limits=(bucket("old", burst=2),)), total=1)).levels == {"old": 1_000_000}


async def test_texts_of_groups_and_keys_are_told_apart(store: RedisStore) -> None:
    """Queues and groups may contain what separates them in the names of keys."""
    await store.insert([grouped("q:1", fair="a", key="k"), grouped("q", fair="1:a", key="1:k"), grouped("q:fresh:0", fair="a:b")])
    taken = await claim_one(store, ask("q", limits=(Slots(most=1, by_key=True),)))
    assert taken.fair_key == "1:a"
    assert (await claim_one(store, ask("q:1", limits=(Slots(most=1, by_key=True),)))).fair_key == "a"
    assert (await claim_one(store, ask("q:fresh:0"))).fair_key == "a:b"
    assert (await get(store, taken.id)).concurrency_key == "1:k"


async def test_a_full_server_keeps_limits(own: RedisStore) -> None:
    """Out of memory: limited jobs are claimed, renewed and settled, and their tokens and slots are counted."""
    await own.insert([grouped(fair="a", key="k") for _ in range(10)])
    await command(own, "CONFIG", "SET", "maxmemory", "1")
    wanted = ask(limits=(Slots(most=4), bucket("starts", burst=6)))
    held = (await claim(own, wanted)).jobs
    assert len(held) == 4
    assert all(renewal.held for renewal in await own.renew([grip(job) for job in held], us(60)))
    assert (await own.put_note("note", "body", 0)) is not None
    assert all(verdict.applied for verdict in await own.settle([done(job) for job in held]))
    assert len((await claim(own, wanted)).jobs) == 2
    await command(own, "CONFIG", "SET", "maxmemory", "0")
