from __future__ import annotations

import pytest

from mulligan.core.contract import Store
from tests.builders import ask, claim, new_job, retry


async def with_retries(store: Store, fresh: int, retries: int) -> None:
    """Puts so many due jobs into the two lanes of queue q."""
    await store.insert([new_job() for _ in range(retries)])
    if retries:
        await store.settle([retry(job) for job in (await claim(store)).jobs])
    await store.insert([new_job() for _ in range(fresh)])


@pytest.mark.parametrize(
    "fresh, retries, expected",
    [
        (20, 20, (8, 2)),  # both wait: each gets its share
        (20, 0, (10, 0)),  # the idle share is lent to the other lane
        (0, 20, (0, 10)),
        (20, 1, (9, 1)),
        (3, 20, (3, 7)),
        (1, 1, (1, 1)),  # less than the total waits: all of it is taken
        (0, 0, (0, 0)),
    ],
)
async def test_unused_share_is_lent_between_asks_in_one_trip(store: Store, fresh: int, retries: int, expected: tuple[int, int]) -> None:
    """Each ask gets its guaranteed share while jobs wait; what one leaves goes to the other in the same claim (W06)."""
    await with_retries(store, fresh, retries)
    jobs = (await claim(store, ask(guaranteed=8), ask(lane="retry", guaranteed=2), total=10)).jobs
    assert (sum(job.lane == "fresh" for job in jobs), sum(job.lane == "retry" for job in jobs)) == expected


async def test_lending_goes_in_the_order_of_the_asks(store: Store) -> None:
    """What nobody has a right to goes to the first ask that can use it."""
    await with_retries(store, 10, 10)
    jobs = (await claim(store, ask(lane="retry", guaranteed=0), ask(guaranteed=2), total=6)).jobs
    assert [job.lane for job in jobs] == ["retry"] * 4 + ["fresh"] * 2


async def test_strict_order_of_asks_is_a_full_guarantee_for_the_first(store: Store) -> None:
    """retry_first is an ask order: with the whole total guaranteed, the second ask gets only what is left (R01)."""
    await with_retries(store, 10, 3)
    jobs = (await claim(store, ask(lane="retry", guaranteed=5), ask(guaranteed=5), total=5)).jobs
    assert [job.lane for job in jobs] == ["retry"] * 3 + ["fresh"] * 2


async def test_unused_share_goes_to_its_own_lane_first(store: Store) -> None:
    """An empty urgent level lends to the other levels of its lane, not to the other lane, though that is asked for earlier."""
    await with_retries(store, 10, 10)
    wanted = [ask(priority=2, guaranteed=4), ask(lane="retry", guaranteed=2), ask(guaranteed=2)]
    jobs = (await claim(store, *wanted, total=8)).jobs
    assert [job.lane for job in jobs] == ["retry"] * 2 + ["fresh"] * 6


async def test_unused_share_goes_to_its_own_queue_before_others(store: Store) -> None:
    """What a lane leaves unused serves the other lane of its queue before it serves another queue."""
    await store.insert([new_job(queue) for queue in ("a", "b") for _ in range(10)])
    wanted = [ask("b", guaranteed=2), ask("a", "retry", guaranteed=3), ask("a", guaranteed=1)]
    jobs = (await claim(store, *wanted, total=6)).jobs
    assert [job.queue for job in jobs] == ["b"] * 2 + ["a"] * 4


async def test_guarantees_above_the_total_are_cut_in_ask_order(store: Store) -> None:
    """The sum of the shares may exceed the total; the claim never does."""
    await with_retries(store, 10, 10)
    jobs = (await claim(store, ask(guaranteed=3), ask(lane="retry", guaranteed=3), total=4)).jobs
    assert [job.lane for job in jobs] == ["fresh"] * 3 + ["retry"]


async def test_share_of_a_paused_queue_is_lent(store: Store) -> None:
    """The guaranteed share of a paused queue goes to the others."""
    await store.insert([new_job(queue) for queue in ("a", "b") for _ in range(4)])
    await store.set_queue("a", paused=True)
    assert len((await claim(store, ask("a", guaranteed=2), ask("b", guaranteed=2), total=4)).jobs) == 4
