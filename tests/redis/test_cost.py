from __future__ import annotations

from mulligan.stores.redis import RedisStore
from tests.builders import ask, claim, done, fifo, new_job
from tests.redis.keys import command, figures

LANES = (ask(guaranteed=80), ask(lane="retry", guaranteed=20))


async def calls(store: RedisStore) -> int:
    """How many commands the server has run so far, those of scripts included."""
    stats = await figures(store)
    return sum(one["calls"] for name, one in stats.items() if name not in ("cmdstat_publish", "cmdstat_ping"))


async def cost_of_a_claim(store: RedisStore, size: int) -> int:
    """The commands of one claim of 100 jobs, beside `size` fresh, future and done jobs each."""
    await store.insert([new_job() for _ in range(size)])
    while jobs := (await claim(store, *LANES, total=500)).jobs:
        await store.settle([done(job) for job in jobs])
    await store.insert([new_job(delay_s=1_000 + number) for number in range(size)])
    await store.insert([new_job() for _ in range(size)])
    before = await calls(store)
    claimed = await claim(store, *LANES, total=100)
    after = await calls(store)
    assert len(claimed.jobs) == 100
    return after - before


async def test_a_claim_costs_the_same_beside_many_jobs(own: RedisStore) -> None:
    """The number of commands of a claim does not depend on how many fresh, future and done jobs there are, and is small."""
    few = await cost_of_a_claim(own, 150)
    many = await cost_of_a_claim(own, 10_000)
    assert many == few
    assert many < 40


async def test_a_claim_by_age_does_not_step_over_future_jobs(own: RedisStore) -> None:
    """A claim in the order of creation runs few commands, although older jobs of the future stand in front."""
    await own.insert([new_job(delay_s=1_000 + number) for number in range(10_000)])
    await own.insert([new_job() for _ in range(300)])
    await claim(own, fifo(), total=100)
    before = await calls(own)
    assert len((await claim(own, fifo(), total=100)).jobs) == 100
    assert await calls(own) - before < 40


async def test_a_batch_is_one_script(own: RedisStore) -> None:
    """Claiming and settling a batch takes one command each from the client, and a bounded number inside."""
    await own.insert([new_job() for _ in range(500)])
    await command(own, "CONFIG", "RESETSTAT")
    jobs = (await claim(own, *LANES, total=500)).jobs
    await own.settle([done(job) for job in jobs])
    stats = await figures(own)
    assert stats["cmdstat_evalsha"]["calls"] == 2
    assert sum(one["calls"] for one in stats.values()) < 60
