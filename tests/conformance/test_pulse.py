"""The pulse of a queue: how many jobs are due, counted up to a bound, and since when the oldest waits."""

from __future__ import annotations

from mulligan.core.clock import ManualClock
from mulligan.core.contract import DEPTH_MAX, Pulse, Store
from tests.builders import claim, grouped, new_job, retry


async def test_an_empty_queue_has_no_depth(store: Store) -> None:
    """Also one that nobody has heard of; the answers come in the order of the question."""
    await store.insert([new_job("b")])
    assert [pulse.queue for pulse in await store.pulse(["a", "b"])] == ["a", "b"]
    assert (await store.pulse(["a"])) == [Pulse(queue="a")]
    assert await store.pulse([]) == []


async def test_due_jobs_of_all_lanes_priorities_and_groups_count(store: Store, clock: ManualClock) -> None:
    """Jobs of the future and jobs that run do not."""
    start_us = clock.now_us()
    await store.insert([new_job(), new_job(priority=2), grouped(fair="a"), new_job(delay_s=60), grouped(fair="b", delay_s=60)])
    clock.advance(1)
    [pulse] = await store.pulse(["q"])
    assert pulse == Pulse(queue="q", depth=3, oldest_us=start_us)
    [job] = (await claim(store, total=1)).jobs
    assert (await store.pulse(["q"]))[0].depth == 2
    await store.settle([retry(job)])
    assert (await store.pulse(["q"]))[0].depth == 3


async def test_the_count_stops_at_its_bound(store: Store) -> None:
    """More than that is congestion enough, and counting it would cost more the more there is."""
    await store.insert([new_job() for _ in range(DEPTH_MAX + 50)])
    assert (await store.pulse(["q"]))[0].depth == DEPTH_MAX
