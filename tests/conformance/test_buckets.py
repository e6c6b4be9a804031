"""Buckets: how many jobs the whole fleet may start over time. A token is taken inside the claim, so the bound is exact."""

from __future__ import annotations

import asyncio

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Store
from mulligan.core.groups import DOWNSTREAM, FAIR, TASK
from mulligan.core.limits import TOKEN, Level, Limit
from tests.builders import ask, bucket, claim, grouped, new_job, release, retry, us


async def fill(store: Store, jobs: int) -> None:
    """Fresh jobs of queue q."""
    await store.insert([new_job() for _ in range(jobs)])


async def started(store: Store, *limits: Limit, total: int = 100) -> int:
    """How many jobs a claim of both lanes starts."""
    return len((await claim(store, ask(limits=limits), ask(lane="retry", limits=limits), total=total)).jobs)


async def test_a_bucket_begins_full_and_is_emptied_by_starts(store: Store, clock: ManualClock) -> None:
    """As many start as it has tokens; the level is stored with the time."""
    await fill(store, 10)
    limit = bucket(per_s=2, burst=3)
    claimed = await claim(store, ask(limits=(limit,)))
    assert (len(claimed.jobs), claimed.levels, claimed.held_back) == (3, {"b": 0}, {"q"})
    assert await store.levels() == {"b": Level(0, clock.now_us())}
    assert claimed.next_due_us == clock.now_us() + us(0.5)


async def test_tokens_flow_in_with_time_up_to_the_burst(store: Store, clock: ManualClock) -> None:
    """Half a second at two a second is one token; an hour is no more than the burst."""
    await fill(store, 20)
    limit = bucket(per_s=2, burst=3)
    assert await started(store, limit) == 3
    clock.advance(0.499999)
    assert await started(store, limit) == 0
    clock.advance(0.000001)
    assert await started(store, limit) == 1
    clock.advance(3_600)
    assert await started(store, limit) == 3


async def test_a_fraction_of_a_token_is_kept(store: Store, clock: ManualClock) -> None:
    """A hundred a minute is a hundred a minute, however often it is asked for."""
    await fill(store, 300)
    limit = bucket(per_s=100 / 60, burst=1)
    total = 0
    for _ in range(600):
        total += await started(store, limit)
        clock.advance(0.1)
    assert 99 <= total <= 101


async def test_an_empty_claim_costs_nothing(store: Store) -> None:
    """Tokens are for starts, not for looking."""
    limit = bucket(per_s=1, burst=5)
    assert await started(store, limit) == 0
    assert await store.levels() == {}
    await fill(store, 6)
    assert await started(store, limit) == 5


async def test_a_clock_set_back_brings_nothing_in(store: Store, clock: ManualClock) -> None:
    """And it does not stop the flow from then on."""
    await fill(store, 10)
    limit = bucket(per_s=1, burst=2)
    assert await started(store, limit) == 2
    clock.advance(-100)
    await fill(store, 5)
    assert await started(store, limit) == 0
    clock.advance(101)
    assert await started(store, limit) in (1, 2)


async def test_a_bucket_of_the_retry_lane_leaves_fresh_work_alone(store: Store) -> None:
    """A retry budget bounds the starts of retries, exactly."""
    await fill(store, 10)
    await store.settle([retry(job) for job in (await claim(store, ask())).jobs])
    await fill(store, 4)
    limit = bucket(burst=3, lane="retry")
    claimed = await claim(store, ask(lane="retry", limits=(limit,)), ask(limits=(limit,)))
    assert [job.lane for job in claimed.jobs] == ["retry"] * 3 + ["fresh"] * 4


async def test_a_claim_tells_of_buckets_that_its_starts_do_not_draw_from(store: Store, clock: ManualClock) -> None:
    """A spent retry budget that has filled up again is seen with the next fresh start, so that its first failure is not taken for one
    that is over the budget."""
    await fill(store, 3)
    await store.settle([retry(job) for job in (await claim(store, ask())).jobs])
    limit = bucket(per_s=1, burst=3, lane="retry")
    assert (await claim(store, ask(lane="retry", limits=(limit,)))).levels == {"b": 0}
    clock.advance(2)
    await fill(store, 1)
    assert (await claim(store, ask(limits=(limit,)))).levels == {"b": 2 * TOKEN}
    assert (await store.levels())["b"].level_u == 0  # nothing was taken, so nothing is written


async def test_fresh_starts_bring_tokens_for_retries(store: Store) -> None:
    """A ratio of one fifth: ten fresh starts pay for two retries."""
    await fill(store, 5)
    await store.settle([retry(job) for job in (await claim(store, ask())).jobs])
    limit = bucket(burst=5, ratio=0.2, lane="retry")
    assert await started(store, limit) == 5
    await fill(store, 10)
    assert await started(store, limit) == 10
    assert (await store.levels())["b"].level_u == 2 * TOKEN
    await store.settle([retry(job) for job in (await claim(store, ask("other"))).jobs])


async def test_what_a_ratio_brings_in_is_bounded_by_the_burst(store: Store) -> None:
    """A thousand fresh starts do not pay for a storm."""
    await fill(store, 50)
    limit = bucket(burst=2, ratio=0.5, lane="retry")
    assert await started(store, limit) == 50
    assert (await store.levels())["b"].level_u == 2 * TOKEN


async def test_a_released_job_does_not_give_its_token_back(store: Store) -> None:
    """The bound is on starts that were granted; a release is rare, and errs on the safe side."""
    await fill(store, 2)
    limit = bucket(burst=1)
    [job] = (await claim(store, ask(limits=(limit,)))).jobs
    await store.settle([release(job)])
    assert await started(store, limit) == 0


async def test_a_bucket_is_shared_by_queues_that_name_it(store: Store) -> None:
    """The key says who shares."""
    await store.insert([new_job(queue) for queue in ("q", "r") for _ in range(5)])
    limit = bucket(burst=4)
    claimed = await claim(store, ask("q", guaranteed=2, limits=(limit,)), ask("r", guaranteed=2, limits=(limit,)), total=4)
    assert sorted(job.queue for job in claimed.jobs) == ["q", "q", "r", "r"]
    assert (await claim(store, ask("q", limits=(limit,)))).jobs == []


async def test_each_tenant_has_a_bucket_of_its_own(store: Store) -> None:
    """A limit for each value of a part: what one tenant spends is not missing for another."""
    await store.insert([grouped(fair=name) for name in ("a", "b") for _ in range(5)])
    await store.insert([new_job()])
    limit = bucket("tenants", burst=2, part=FAIR)
    claimed = await claim(store, ask(limits=(limit,)))
    assert sorted(job.fair_key or "" for job in claimed.jobs) == ["", "a", "a", "b", "b"]
    assert sorted(await store.levels()) == ["tenants/a", "tenants/b"]


async def test_a_limited_task_leaves_the_others_alone(store: Store) -> None:
    """A limit on one value of a part is for jobs with that value only."""
    await store.insert([grouped(limited="slow") for _ in range(5)])
    await store.insert([grouped(limited="other"), new_job(), new_job()])
    limit = bucket("task:slow", burst=2, part=TASK, value="slow")
    assert await started(store, limit) == 5


async def test_of_several_limits_the_tightest_holds_and_all_are_charged(store: Store) -> None:
    """A job needs a token of each; one that lacks one spends none of the others."""
    await store.insert([grouped(on="d", limited="t") for _ in range(6)])
    narrow, wide = bucket("narrow", burst=2, part=TASK, value="t"), bucket("wide", burst=5, part=DOWNSTREAM, value="d")
    assert await started(store, wide, narrow) == 2
    levels = {key: level.level_u for key, level in (await store.levels()).items()}
    assert levels == {"narrow": 0, "wide": 3 * TOKEN}


async def test_a_bucket_without_flow_gives_no_time(store: Store, clock: ManualClock) -> None:
    """An open breaker holds back; when it will let go, the bucket does not know."""
    await fill(store, 1)
    claimed = await claim(store, ask(limits=(bucket(burst=0),)))
    assert (claimed.jobs, claimed.held_back, claimed.next_due_us) == ([], {"q"}, None)
    await store.insert([new_job(delay_s=5)])
    assert (await claim(store, ask(limits=(bucket(burst=0),)))).next_due_us == clock.now_us() + us(5)


async def test_a_repeated_claim_takes_no_more_tokens(store: Store) -> None:
    """After a lost reply the same claim finds its jobs and pays nothing."""
    await fill(store, 5)
    limit = bucket(burst=4)
    await claim(store, ask(limits=(limit,)), claim_id="c-1", total=2)
    before = await store.levels()
    assert len((await claim(store, ask(limits=(limit,)), claim_id="c-1", total=2)).jobs) == 2
    assert await store.levels() == before


async def test_many_claimers_at_once_share_the_tokens(store: Store) -> None:
    """No token is given twice."""
    await fill(store, 60)
    limit = bucket(burst=7)
    answers = await asyncio.gather(*(claim(store, ask(limits=(limit,)), total=3, owner=f"w{number}") for number in range(12)))
    assert sum(len(answer.jobs) for answer in answers) == 7
    assert (await store.levels())["b"].level_u == 0
