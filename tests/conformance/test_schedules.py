from __future__ import annotations

import asyncio

from msgspec.structs import replace

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Query, Store
from tests.builders import all_jobs, claim, claim_one, done, fresh_id, full_state, get, new_job, retry, schedule, tick, us


async def test_new_schedule_starts_one_interval_from_now(store: Store, clock: ManualClock) -> None:
    """Without an anchor the first tick is one interval after the store's now."""
    given = schedule("check", 300, missed="skip")
    stored = await store.put_schedule(given)
    now = clock.now_us()
    assert stored == replace(given, anchor_us=now, next_tick_us=now + us(300), updated_at_us=now)
    assert await store.schedules() == [stored]


async def test_anchor_and_first_tick_are_kept_where_given(store: Store, clock: ManualClock) -> None:
    """A given anchor sets the first tick; a given first tick stands."""
    one = await store.put_schedule(schedule("a", 60, anchor_us=us(1_000)))
    two = await store.put_schedule(schedule("b", 60, anchor_us=us(1_000), next_tick_us=us(1_500), paused=True))
    assert (one.anchor_us, one.next_tick_us, one.paused) == (us(1_000), us(1_060), False)
    assert (two.anchor_us, two.next_tick_us, two.paused) == (us(1_000), us(1_500), True)


async def test_schedule_round_trips_with_its_pattern(store: Store) -> None:
    """Every field of the job it makes is kept."""
    pattern = new_job(
        "billing",
        task="check",
        payload='{"args":[1,"\\u0000",{"a.b":"$"}],"kwargs":{"x":null}}',
        policy='{"max_retries":5}',
        max_retries=None,
        priority=2,
        delay_s=1.5,
        timeout_us=7,
        max_age_us=8,
        unique_key="k",
        concurrency_key="c",
        fair_key="f",
        tags=("x", "y"),
        trace="t",
        schedule="s",
    )
    stored = await store.put_schedule(schedule("s", 0.000001, job=pattern, missed="all"))
    assert stored.job == pattern
    assert (await store.schedules())[0] == stored


async def test_same_interval_goes_on_from_where_it_stands(store: Store, clock: ManualClock) -> None:
    """Putting a schedule again, as every start of a program does, moves neither its ticks nor its pause."""
    first = await store.put_schedule(schedule("s", 60))
    await store.fire([tick(first)])
    await store.set_schedule_paused("s", True)
    clock.advance(75)
    job = new_job(task="other", schedule="s")
    again = await store.put_schedule(schedule("s", 60, job=job, missed="all", anchor_us=5, next_tick_us=6))
    assert (again.anchor_us, again.next_tick_us, again.paused) == (first.anchor_us, first.next_tick_us + us(60), True)
    assert (again.job, again.missed, again.updated_at_us) == (job, "all", clock.now_us())
    assert await store.schedules() == [again]


async def test_another_interval_starts_anew(store: Store, clock: ManualClock) -> None:
    """A changed interval is anchored at the store's now, or where the caller says; a pause stays."""
    await store.put_schedule(schedule("s", 60))
    await store.set_schedule_paused("s", True)
    clock.advance(10)
    anew = await store.put_schedule(schedule("s", 90))
    assert (anew.anchor_us, anew.next_tick_us, anew.paused) == (clock.now_us(), clock.now_us() + us(90), True)
    placed = await store.put_schedule(schedule("s", 30, anchor_us=us(500)))
    assert (placed.anchor_us, placed.next_tick_us, placed.paused) == (us(500), us(530), True)


async def test_schedules_are_sorted_by_name(store: Store) -> None:
    """All schedules, by name."""
    for name in ("b", "a", "C"):
        await store.put_schedule(schedule(name))
    assert [one.name for one in await store.schedules()] == ["C", "a", "b"]


async def test_pausing_and_removing_say_whether_there_was_one(store: Store) -> None:
    """An unknown name is False, not an error."""
    assert not await store.set_schedule_paused("s", True)
    assert not await store.remove_schedule("s")
    await store.put_schedule(schedule("s"))
    assert await store.set_schedule_paused("s", True)
    assert await store.set_schedule_paused("s", True)
    assert [one.paused for one in await store.schedules()] == [True]
    assert await store.set_schedule_paused("s", False)
    assert [one.paused for one in await store.schedules()] == [False]
    assert await store.remove_schedule("s")
    assert await store.schedules() == []


async def test_fire_moves_the_schedule_and_inserts_its_job(store: Store, clock: ManualClock) -> None:
    """One step does both, and the job's times come from the store's clock as with any insert (O16)."""
    stored = await store.put_schedule(schedule("s", 300))
    clock.advance(301)
    job = new_job(schedule="s", tick_us=stored.next_tick_us, delay_s=2)
    assert await store.fire([tick(stored, job)]) == [True]
    [after] = await store.schedules()
    assert (after.next_tick_us, after.anchor_us) == (stored.next_tick_us + us(300), stored.anchor_us)
    row = await get(store, job.id)
    assert (row.schedule, row.tick_us, row.status, row.lane) == ("s", stored.next_tick_us, "pending", "fresh")
    assert (row.created_at_us, row.run_at_us, row.due_first_us) == (clock.now_us(), clock.now_us() + us(2), clock.now_us() + us(2))


async def test_fire_is_refused_unless_the_schedule_stands_there(store: Store) -> None:
    """A tick that was fired before, lies elsewhere, or belongs to no schedule inserts nothing and moves nothing."""
    stored = await store.put_schedule(schedule("s", 300))
    fired = tick(stored)
    assert await store.fire([fired]) == [True]
    before = await full_state(store)
    wrong = [fired, tick(stored), tick(stored, expected_us=stored.next_tick_us + 1), tick(schedule("unknown", next_tick_us=5))]
    assert await store.fire(wrong) == [False] * 4
    assert await full_state(store) == before


async def test_paused_or_removed_schedule_does_not_fire(store: Store) -> None:
    """Pausing and removing take effect also for a tick that was already planned."""
    stored = await store.put_schedule(schedule("s", 300))
    await store.set_schedule_paused("s", True)
    assert await store.fire([tick(stored)]) == [False]
    await store.set_schedule_paused("s", False)
    assert await store.fire([tick(stored)]) == [True]
    [moved] = await store.schedules()
    await store.remove_schedule("s")
    assert await store.fire([tick(moved)]) == [False]
    assert len(await all_jobs(store)) == 1


async def test_tick_without_a_job_is_passed_over(store: Store) -> None:
    """A missed tick that is skipped only moves the schedule."""
    stored = await store.put_schedule(schedule("s", 300))
    skip = replace(tick(stored), job=None, next_tick_us=stored.next_tick_us + us(3_000))
    assert await store.fire([skip]) == [True]
    assert [one.next_tick_us for one in await store.schedules()] == [stored.next_tick_us + us(3_000)]
    assert await all_jobs(store) == {}


async def test_a_tick_fires_at_most_once_under_concurrent_firing(store: Store) -> None:
    """Twenty schedulers fire the same tick at once: one job (S18, 39)."""
    stored = await store.put_schedule(schedule("s", 300))
    answers = await asyncio.gather(*(store.fire([tick(stored)]) for _ in range(20)))
    assert sum(fired for [fired] in answers) == 1
    assert len(await all_jobs(store)) == 1


async def test_a_batch_of_ticks_is_answered_one_by_one(store: Store) -> None:
    """Several ticks of one schedule follow each other in one batch; a refused one does not disturb the others."""
    one = await store.put_schedule(schedule("a", 10))
    two = await store.put_schedule(schedule("b", 10))
    second = replace(one, next_tick_us=one.next_tick_us + us(10))
    assert await store.fire([tick(one), tick(one), tick(second), tick(two)]) == [True, False, True, True]
    assert [job.schedule for _, job in sorted((await all_jobs(store)).items())] == ["a", "a", "b"]
    assert await store.fire([]) == []


async def test_tick_whose_unique_key_is_taken_still_moves_the_schedule(store: Store) -> None:
    """The job of the last tick still runs: this tick makes no second one, and the schedule goes on."""
    stored = await store.put_schedule(schedule("s", 10))
    first = new_job(unique_key="s", schedule="s")
    assert await store.fire([tick(stored, first)]) == [True]
    [moved] = await store.schedules()
    assert await store.fire([tick(moved, new_job(unique_key="s", schedule="s"))]) == [True]
    assert list(await all_jobs(store)) == [first.id]
    assert [one.next_tick_us for one in await store.schedules()] == [stored.next_tick_us + us(20)]


async def test_retries_never_shift_the_schedule(store: Store, clock: ManualClock) -> None:
    """An occurrence that fails and is retried leaves the next tick where it was, with counters of its own (O16, E17, E18)."""
    stored = await store.put_schedule(schedule("s", 300))
    clock.advance(300)
    await store.fire([tick(stored)])
    [before] = await store.schedules()
    await store.settle([retry(await claim_one(store), delay_s=1_000)])
    assert await store.schedules() == [before]
    clock.advance(300)
    await store.fire([tick(before)])
    job = await claim_one(store)
    assert (job.attempts, job.failures, job.tick_us) == (1, 0, before.next_tick_us)
    await store.settle([done(job)])


async def test_jobs_of_a_schedule_are_found_and_outlive_it(store: Store) -> None:
    """Removing a schedule leaves the jobs it made."""
    stored = await store.put_schedule(schedule("s", 300))
    await store.fire([tick(stored, new_job(id=fresh_id(), schedule="s"))])
    await store.insert([new_job()])
    await store.remove_schedule("s")
    assert len((await store.find(Query(schedule="s"), 10)).jobs) == 1
    assert len((await claim(store)).jobs) == 2
