"""Slots: how many jobs may be processing at once in the whole fleet. Counted in the store, under leases that have not ended."""

from __future__ import annotations

import asyncio

import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Store
from mulligan.core.job import Lane
from mulligan.core.limits import Slots
from tests.builders import ask, claim, crash, done, failed, fifo, grip, grouped, new_job, release, retry, us

TWO = Slots(most=2)
TWO_RETRIES = Slots(most=2, lane="retry")
ONE_BY_KEY = Slots(most=1, by_key=True)


async def fill(store: Store, jobs: int, lane: Lane = "fresh") -> None:
    """Jobs of queue q, waiting in one lane."""
    await store.insert([new_job() for _ in range(jobs)])
    if lane == "retry":
        await store.settle([retry(job) for job in (await claim(store, ask())).jobs])


async def test_a_claim_takes_no_more_than_the_slots(store: Store) -> None:
    """Whatever it asks for; the answer says that a limit held something back."""
    await fill(store, 5)
    claimed = await claim(store, ask(limits=(TWO,)))
    assert (len(claimed.jobs), claimed.held_back) == (2, {"q"})
    nothing = await claim(store, ask(limits=(TWO,)))
    assert (nothing.jobs, nothing.held_back) == ([], {"q"})


async def test_nothing_is_held_back_where_nothing_waits(store: Store) -> None:
    """A limit that is reached by the last job holds nothing back."""
    await fill(store, 2)
    assert (await claim(store, ask(limits=(TWO,)))).held_back == frozenset()
    assert (await claim(store, ask(limits=(TWO,)))).held_back == frozenset()


@pytest.mark.parametrize("end", [done, failed, release, retry])
async def test_a_settled_job_gives_its_slot_back(store: Store, end: object) -> None:
    """Whatever becomes of it."""
    await fill(store, 4)
    first, _ = (await claim(store, ask(limits=(TWO,)))).jobs
    await store.settle([end(first)])  # type: ignore[operator]
    assert len((await claim(store, ask(limits=(TWO,)), ask(lane="retry", limits=(TWO,)))).jobs) == 1


async def test_the_slots_of_a_queue_are_for_both_lanes_and_all_priorities(store: Store) -> None:
    """One number for everything in the queue."""
    await fill(store, 2, "retry")
    await store.insert([new_job(), new_job(priority=2)])
    asks = [ask(lane=lane, priority=priority, limits=(TWO,), guaranteed=1) for lane in ("retry", "fresh") for priority in (2, 0)]
    claimed = await claim(store, *asks)
    assert len(claimed.jobs) == 2
    assert claimed.held_back == {"q"}


async def test_the_slots_of_a_lane_leave_the_other_alone(store: Store) -> None:
    """Ten retries wait, two may run; fresh work goes on (W08)."""
    await fill(store, 10, "retry")
    await store.insert([new_job() for _ in range(3)])
    claimed = await claim(store, ask(lane="retry", limits=(TWO_RETRIES,)), ask(limits=(TWO_RETRIES,)))
    assert [job.lane for job in claimed.jobs] == ["retry"] * 2 + ["fresh"] * 3
    assert (await claim(store, ask(lane="retry", limits=(TWO_RETRIES,)))).jobs == []


async def test_what_a_limit_leaves_free_goes_to_the_other_lane(store: Store) -> None:
    """A guaranteed share that may not be used is lent like one that is not needed."""
    await fill(store, 10, "retry")
    await store.insert([new_job() for _ in range(20)])
    claimed = await claim(store, ask(lane="retry", guaranteed=5, limits=(TWO_RETRIES,)), ask(guaranteed=5, limits=(TWO_RETRIES,)), total=10)
    assert [job.lane for job in claimed.jobs] == ["retry"] * 2 + ["fresh"] * 8


async def test_a_short_limit_is_shared_in_proportion(store: Store) -> None:
    """Of five slots for forty asked, the retry lane gets its fifth, not nothing."""
    await fill(store, 20, "retry")
    await store.insert([new_job() for _ in range(40)])
    five = Slots(most=5)
    claimed = await claim(store, ask(guaranteed=32, limits=(five,)), ask(lane="retry", guaranteed=8, limits=(five,)), total=40)
    assert [job.lane for job in claimed.jobs] == ["fresh"] * 4 + ["retry"]


async def test_in_the_order_of_creation_a_full_lane_is_passed_over(store: Store, clock: ManualClock) -> None:
    """Retries that may not run do not stand before fresh jobs that may."""
    await fill(store, 4, "retry")
    clock.advance(1)
    await store.insert([new_job() for _ in range(3)])
    wanted = ask(lane=None, order="created_at", limits=(TWO_RETRIES,))
    assert [job.lane for job in (await claim(store, wanted)).jobs] == ["retry"] * 2 + ["fresh"] * 3


async def test_queues_have_slots_of_their_own(store: Store) -> None:
    """The same limit on two queues is two limits."""
    await store.insert([new_job(queue) for queue in ("q", "r") for _ in range(4)])
    claimed = await claim(store, ask("q", limits=(TWO,)), ask("r", limits=(TWO,)))
    assert sorted(job.queue for job in claimed.jobs) == ["q", "q", "r", "r"]


async def test_an_ended_lease_gives_its_slot_away(store: Store, clock: ManualClock) -> None:
    """A crash leaks no slot: the jobs are still processing, but their leases are over."""
    await fill(store, 4)
    await claim(store, ask(limits=(TWO,)), lease_s=10)
    clock.advance(9.999999)
    assert (await claim(store, ask(limits=(TWO,)))).jobs == []
    clock.advance(0.000001)
    assert len((await claim(store, ask(limits=(TWO,)))).jobs) == 2


async def test_a_renewed_lease_keeps_its_slot(store: Store, clock: ManualClock) -> None:
    """A slot is held as long as its lease is kept alive."""
    await fill(store, 4)
    jobs = (await claim(store, ask(limits=(TWO,)), lease_s=10)).jobs
    clock.advance(9)
    assert [answer.held for answer in await store.renew([grip(job) for job in jobs], us(10))] == [True, True]
    clock.advance(9)
    assert (await claim(store, ask(limits=(TWO,)))).jobs == []


async def test_renewing_an_ended_lease_is_refused_when_its_slot_is_taken(store: Store, clock: ManualClock) -> None:
    """Whoever comes back too late finds the slots taken, and must stop; the lease stays ended, so that others can take it over."""
    await fill(store, 4)
    late = (await claim(store, ask(limits=(TWO,)), lease_s=10)).jobs
    clock.advance(10)
    [third] = (await claim(store, ask(limits=(TWO,)), total=1)).jobs
    answers = await store.renew([grip(late[0]), grip(late[1]), grip(third)], us(30))
    assert [answer.held for answer in answers] == [True, False, True]
    assert [job.id for job in await store.overdue(10)] == [late[1].id]
    [verdict] = await store.settle([crash(late[1])])
    assert verdict.applied


async def test_renewing_an_ended_lease_is_granted_while_there_is_room(store: Store, clock: ManualClock) -> None:
    """Nobody else wanted the slot."""
    await fill(store, 2)
    jobs = (await claim(store, ask(limits=(TWO,)), lease_s=10)).jobs
    clock.advance(60)
    assert [answer.held for answer in await store.renew([grip(job) for job in jobs], us(10))] == [True, True]
    assert await store.overdue(10) == []


async def test_a_late_outcome_is_accepted_without_a_slot(store: Store, clock: ManualClock) -> None:
    """A slot bounds what runs; a result that is there is not thrown away."""
    await fill(store, 3)
    [job] = (await claim(store, ask(limits=(Slots(most=1),)), lease_s=10)).jobs
    clock.advance(10)
    assert len((await claim(store, ask(limits=(Slots(most=1),)))).jobs) == 1
    [verdict] = await store.settle([done(job)])
    assert verdict.applied


async def test_jobs_claimed_without_the_limit_are_not_counted(store: Store) -> None:
    """A limit holds for the jobs that were claimed under it: what ran before it was set does not block it."""
    await fill(store, 5)
    await claim(store, ask(), total=2)
    assert len((await claim(store, ask(limits=(TWO,)))).jobs) == 2


async def test_a_concurrency_key_runs_alone(store: Store) -> None:
    """Of jobs with one key, one runs; other keys and jobs without one are not concerned."""
    await store.insert([grouped(key="a"), grouped(key="a"), grouped(key="b"), new_job(), new_job()])
    claimed = await claim(store, ask(limits=(ONE_BY_KEY,)))
    assert sorted(job.concurrency_key or "" for job in claimed.jobs) == ["", "", "a", "b"]
    assert claimed.held_back == {"q"}
    [first] = [job for job in claimed.jobs if job.concurrency_key == "a"]
    await store.settle([done(first)])
    assert [job.concurrency_key for job in (await claim(store, ask(limits=(ONE_BY_KEY,)))).jobs] == ["a"]


async def test_a_key_is_counted_over_lanes_and_tenants(store: Store, clock: ManualClock) -> None:
    """The key is what counts, not where its jobs wait."""
    await store.insert([grouped(key="a", fair="x"), grouped(key="a", fair="y", on="z")])
    [job] = (await claim(store, ask(limits=(ONE_BY_KEY,)))).jobs
    await store.settle([retry(job)])
    both = (ask(limits=(ONE_BY_KEY,)), ask(lane="retry", limits=(ONE_BY_KEY,)))
    assert len((await claim(store, *both, lease_s=5)).jobs) == 1
    assert (await claim(store, *both)).jobs == []
    clock.advance(5)
    assert len((await claim(store, *both)).jobs) == 1


async def test_a_key_is_of_its_queue(store: Store) -> None:
    """The same key in two queues is two keys."""
    await store.insert([grouped("q", key="a"), grouped("r", key="a")])
    assert len((await claim(store, ask("q", limits=(ONE_BY_KEY,)), ask("r", limits=(ONE_BY_KEY,)))).jobs) == 2


async def test_a_repeated_claim_under_slots_takes_no_more(store: Store) -> None:
    """What it holds is returned, whatever room there is."""
    await fill(store, 5)
    first = await claim(store, ask(limits=(TWO,)), claim_id="c-1", total=1)
    again = await claim(store, ask(limits=(TWO,)), claim_id="c-1", total=5)
    assert [job.id for job in again.jobs] == [job.id for job in first.jobs]


@pytest.mark.parametrize("wanted", [ask(limits=(TWO,)), ask(lane=None, order="created_at", limits=(TWO,))])
async def test_many_claimers_at_once_keep_the_slots(store: Store, wanted: object) -> None:
    """Of many claims at the same moment, together no more than the slots."""
    await fill(store, 30)
    answers = await asyncio.gather(*(claim(store, wanted, total=2, owner=f"w{number}") for number in range(12)))  # type: ignore[arg-type]
    assert sum(len(answer.jobs) for answer in answers) == 2


async def test_slots_do_not_disturb_plain_claims(store: Store) -> None:
    """A claim without limits takes what it wants beside them."""
    await fill(store, 6)
    await claim(store, ask(limits=(TWO,)))
    assert len((await claim(store, fifo())).jobs) == 4
