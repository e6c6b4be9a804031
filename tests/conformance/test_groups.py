"""Jobs with a group: tenants take turns, in both lanes, whatever one of them floods the queue with."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Ask, Claimed, Store
from mulligan.core.groups import DOWNSTREAM, FAIR, KEY, TASK, group_of, part_of
from mulligan.core.job import NewJob
from mulligan.core.ring import SPARE_GROUPS
from tests.builders import (
    ask,
    bucket,
    cancelled,
    claim,
    claim_one,
    done,
    failed,
    fifo,
    fresh_id,
    get,
    grouped,
    new_job,
    release,
    requeue,
    retry,
    schedule,
    snooze,
    tick,
    us,
)


def tenants(claimed: Claimed) -> list[str]:
    """Whom the claimed jobs are for, in their order."""
    return [job.fair_key or "" for job in claimed.jobs]


async def test_a_group_is_stored_and_read(store: Store) -> None:
    """All parts of a group come back as they were given, whatever characters they have."""
    job = grouped(fair="açme, \U0001f600 ltd", on="stripe", limited="charge", key="user:42'\"")
    await store.insert([job])
    for row in (await get(store, job.id), await claim_one(store)):
        assert row.group == job.group
        assert [part_of(row.group, part) for part in (FAIR, DOWNSTREAM, TASK, KEY)] == [
            job.fair_key,
            "stripe",
            "charge",
            job.concurrency_key,
        ]
        assert row.depends_on == "stripe"


async def test_tenants_take_turns(store: Store) -> None:
    """A flood of one tenant does not stand before the jobs of others that came later."""
    await store.insert([grouped(fair="flood") for _ in range(20)])
    await store.insert([grouped(fair=name) for name in ("b", "a", "a")])
    claimed = await claim(store, ask(), total=5)
    assert tenants(claimed) == ["a", "b", "flood", "a", "flood"]


async def test_the_turn_goes_on_where_the_last_claim_ended(store: Store) -> None:
    """Claims of one, each told where the one before ended, serve every tenant once before any is served twice."""
    await store.insert([grouped(fair=name) for name in ("a", "b", "c", "d") for _ in range(3)])
    after, served = "", []
    for _ in range(8):
        claimed = await claim(store, ask(after=after), total=1)
        [after] = claimed.turns
        served += tenants(claimed)
    assert served == ["a", "b", "c", "d", "a", "b", "c", "d"]


async def test_inside_a_tenant_the_oldest_comes_first(store: Store, clock: ManualClock) -> None:
    """The groups of one tenant are one line, in the order of their times."""
    jobs = [grouped(fair="a", on=on) for on in ("x", "y", None, "x")]
    for job in jobs:
        await store.insert([job])
        clock.advance(1)
    assert [job.id for job in (await claim(store, ask())).jobs] == [job.id for job in jobs]


async def test_jobs_without_a_fair_key_are_one_tenant(store: Store, clock: ManualClock) -> None:
    """Whatever else they have: those without a group, and those with one, in the order of their times."""
    jobs = [new_job(), grouped(on="x"), new_job(), grouped(key="k")]
    for job in jobs:
        await store.insert([job])
        clock.advance(1)
    await store.insert([grouped(fair="a")])
    claimed = await claim(store, ask())
    assert [job.id for job in claimed.jobs if not job.fair_key] == [job.id for job in jobs]
    assert tenants(claimed)[:3] == ["", "a", ""]


async def test_turns_are_kept_in_the_retry_lane_too(store: Store, clock: ManualClock) -> None:
    """A failing batch of one tenant does not delay the retries of another."""
    await store.insert([grouped(fair="b") for _ in range(10)])
    await store.insert([grouped(fair="a")])
    first = await claim(store, ask())
    await store.settle([retry(job, 5 if job.fair_key == "b" else 6) for job in first.jobs])
    clock.advance(6)
    claimed = await claim(store, ask(lane="retry"), total=3)
    assert sorted(tenants(claimed)) == ["a", "b", "b"]


async def test_priorities_are_lines_of_their_own(store: Store) -> None:
    """The turns of one priority know nothing of the other."""
    await store.insert([grouped(fair="a", priority=0), grouped(fair="a", priority=2), grouped(fair="b", priority=2)])
    claimed = await claim(store, ask(priority=2), ask(priority=0), total=3)
    assert [(job.priority, job.fair_key) for job in claimed.jobs] == [(2, "a"), (2, "b"), (0, "a")]


async def test_a_grouped_job_is_not_claimed_before_its_time(store: Store, clock: ManualClock) -> None:
    """Due is inclusive for them too, and the next due time tells of them."""
    await store.insert([grouped(fair="a", delay_s=10)])
    clock.advance(9.999999)
    claimed = await claim(store, ask())
    assert (claimed.jobs, claimed.next_due_us) == ([], clock.now_us() + 1)
    clock.advance(0.000001)
    assert len((await claim(store, ask())).jobs) == 1


async def test_a_group_that_is_not_due_is_passed_over(store: Store) -> None:
    """Only due jobs take part in the turns."""
    await store.insert([grouped(fair="a", delay_s=10), grouped(fair="b"), grouped(fair="a"), grouped(fair="c", delay_s=1)])
    assert tenants(await claim(store, ask())) == ["a", "b"]


async def test_a_clock_set_back_makes_grouped_jobs_wait_again(store: Store, clock: ManualClock) -> None:
    """Due is judged at each claim."""
    await store.insert([grouped(fair="a", delay_s=10), grouped(fair="b", delay_s=20)])
    clock.advance(30)
    assert len((await claim(store, ask(), total=1)).jobs) == 1
    clock.advance(-15)
    assert (await claim(store, ask())).jobs == []


@pytest.mark.parametrize("wanted", [ask(), ask(order="created_at"), ask(lane=None), fifo()])
async def test_every_order_serves_grouped_jobs(store: Store, wanted: Ask) -> None:
    """Each due job is claimed once, grouped or not, in whatever order is asked for."""
    jobs = [grouped(fair=name) if name else new_job() for name in ("a", "b", "", "a", "") for _ in range(3)]
    await store.insert(jobs)
    claimed = [*(await claim(store, wanted, total=7)).jobs, *(await claim(store, wanted)).jobs]
    assert Counter(job.id for job in claimed) == Counter(job.id for job in jobs)


async def test_fifo_serves_tenants_in_turn_and_each_by_age(store: Store, clock: ManualClock) -> None:
    """In the order of creation, a retry that is older stands before a fresh job of the same tenant."""
    await store.insert([old := grouped(fair="a")])
    clock.advance(1)
    await store.insert([grouped(fair="b") for _ in range(3)])
    [job] = (await claim(store, fifo(), total=1)).jobs
    assert job.id == old.id
    await store.settle([retry(job, 2)])
    clock.advance(1)
    await store.insert([young := grouped(fair="a")])
    clock.advance(5)
    claimed = await claim(store, fifo())
    assert [job.id for job in claimed.jobs if job.fair_key == "a"] == [old.id, young.id]
    assert tenants(claimed)[:2] == ["a", "b"]


async def test_paused_queues_keep_their_grouped_jobs(store: Store) -> None:
    """A pause holds for jobs with a group as well."""
    await store.insert([grouped(fair="a")])
    await store.set_queue("q", paused=True)
    assert (await claim(store, ask())).jobs == []
    await store.set_queue("q", paused=False)
    assert len((await claim(store, ask())).jobs) == 1


async def test_guarantees_and_lending_hold_for_grouped_jobs(store: Store) -> None:
    """What one lane leaves unused is lent to the other, and each keeps what is guaranteed to it."""
    await store.insert([grouped(fair="a") for _ in range(10)])
    first = await claim(store, ask(), total=4)
    await store.settle([retry(job) for job in first.jobs])
    claimed = await claim(store, ask(guaranteed=3), ask(lane="retry", guaranteed=1), total=4)
    assert [job.lane for job in claimed.jobs] == ["fresh"] * 3 + ["retry"]
    claimed = await claim(store, ask(guaranteed=3), ask(lane="retry", guaranteed=5), total=8)
    assert [job.lane for job in claimed.jobs] == ["fresh"] * 3 + ["retry"] * 3


@pytest.mark.parametrize("give_back", [retry, release, snooze])
async def test_a_grouped_job_comes_back_to_its_line(store: Store, give_back: object) -> None:
    """Whatever sends it back, it waits in its group again, and can be claimed again."""
    await store.insert([grouped(fair="a", key="k"), grouped(fair="b")])
    job = next(job for job in (await claim(store, ask())).jobs if job.fair_key == "a")
    await store.settle([give_back(job)])  # type: ignore[operator]
    again = await claim(store, ask(), ask(lane="retry"))
    assert [(job.id, job.group) for job in again.jobs] == [(job.id, group_of("a", None, None, "k"))]


async def test_grouped_jobs_are_requeued_cancelled_and_pruned(store: Store, clock: ManualClock) -> None:
    """The ways of operators leave nothing in the lines, and put back what they should."""
    await store.insert([grouped(fair=name) for name in ("a", "b", "c", "d")])
    one, two, three = (await claim(store, ask(), total=3)).jobs
    await store.settle([failed(one), cancelled(two), done(three)])
    await store.settle([requeue(await get(store, one.id))])
    assert (await get(store, one.id)).status == "pending"
    claimed = await claim(store, ask(), ask(lane="retry"))
    assert sorted(tenants(claimed)) == ["a", "d"]
    await store.settle([done(job) for job in claimed.jobs])
    clock.advance(10)
    assert await store.prune("done", 0, 100) == 3
    assert (await claim(store, ask(), ask(lane="retry"))).jobs == []


async def test_a_cancelled_grouped_job_leaves_its_line(store: Store) -> None:
    """A pending one is never claimed after its cancellation."""
    await store.insert([job := grouped(fair="a"), grouped(fair="a")])
    assert await store.request_cancel([job.id]) == ["cancelled"]
    assert len((await claim(store, ask())).jobs) == 1


async def test_restored_grouped_jobs_are_claimed(store: Store) -> None:
    """A job of another store brings its group, and the queue becomes one with groups."""
    await store.insert([job := grouped("other", fair="a")])
    row = await get(store, job.id)
    copy = replace(row, id=fresh_id(), queue="q")
    assert await store.restore([copy]) == [True]
    assert [job.id for job in (await claim(store, ask())).jobs] == [copy.id]


async def test_a_schedules_jobs_may_have_a_group(store: Store, clock: ManualClock) -> None:
    """A tick's job waits in its group like any other."""
    stored = await store.put_schedule(schedule(interval_s=10, job=grouped(fair="a")))
    clock.advance(10)
    assert await store.fire([tick(stored, grouped(fair="a", schedule=stored.name, tick_us=stored.next_tick_us))]) == [True]
    assert tenants(await claim(store, ask())) == ["a"]


async def test_grouped_jobs_are_counted(store: Store, clock: ManualClock) -> None:
    """The figures of a queue do not tell jobs with a group from others."""
    await store.insert([grouped(fair="a"), grouped(fair="b", delay_s=60), new_job()])
    [figures] = (await store.stats()).queues
    assert (figures.fresh_ready, figures.fresh_later, figures.next_due_us) == (2, 1, clock.now_us() + us(60))


async def test_a_repeated_claim_returns_its_grouped_jobs(store: Store) -> None:
    """As for others: what it still holds, and nothing more."""
    await store.insert([grouped(fair=name) for name in "abcd"])
    first = await claim(store, ask(), total=2, claim_id="c-1")
    again = await claim(store, ask(), total=4, claim_id="c-1")
    assert [job.id for job in again.jobs] == [job.id for job in first.jobs]


def _many(count: int, start: int = 0) -> list[NewJob]:
    return [grouped(fair=f"t{number:05}") for number in range(start, start + count)]


async def test_more_tenants_than_a_claim_lists_are_served_in_turn(store: Store) -> None:
    """A claim that does not look at all groups says where it stopped, and that there may be more."""
    names = SPARE_GROUPS + 5
    await store.insert(_many(names))
    after, served = "", list[str]()
    for _ in range(names):
        claimed = await claim(store, ask(after=after), total=1)
        [after] = claimed.turns
        served += tenants(claimed)
    assert served == sorted(served)
    assert len(set(served)) == names


async def test_a_limit_of_one_group_leaves_the_others_alone(store: Store) -> None:
    """A downstream that may not be called holds back its own jobs only, and the answer names the queue."""
    await store.insert([grouped(fair="a", on="dead"), grouped(fair="a", on="alive"), grouped(fair="b", on="dead"), new_job()])
    shut = bucket("breaker", burst=0, part=DOWNSTREAM, value="dead")
    claimed = await claim(store, ask(limits=(shut,)))
    assert sorted(job.depends_on or "" for job in claimed.jobs) == ["", "alive"]
    assert claimed.held_back == {"q"}
