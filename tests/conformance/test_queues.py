from __future__ import annotations

from mulligan.core.clock import ManualClock
from mulligan.core.contract import QueueState, Store
from tests.builders import all_events, claim, done, new_job, put_and_claim


async def test_setting_a_queue_is_stored_and_returned(store: Store, clock: ManualClock) -> None:
    """The answer is what is stored, with the store's time."""
    state = await store.set_queue("billing", paused=True, reason="provider is down", by="ann")
    assert state == QueueState(queue="billing", paused=True, reason="provider is down", by="ann", updated_at_us=clock.now_us())
    assert await store.queue_states() == [state]


async def test_setting_replaces_the_one_before(store: Store, clock: ManualClock) -> None:
    """A queue has one stored setting; the last one counts whole."""
    await store.set_queue("q", paused=True, reason="a", by="b")
    clock.advance(1)
    state = await store.set_queue("q", paused=False)
    assert await store.queue_states() == [state]
    assert (state.paused, state.reason, state.by, state.updated_at_us) == (False, "", "", clock.now_us())


async def test_states_are_sorted_by_name(store: Store) -> None:
    """Only queues with a stored setting are listed, by name."""
    await store.insert([new_job("never-set")])
    for name in ("b", "a", "C"):
        await store.set_queue(name, paused=False)
    assert [state.queue for state in await store.queue_states()] == ["C", "a", "b"]


async def test_pause_and_resume_are_logged_only_when_they_change_something(store: Store, clock: ManualClock) -> None:
    """The log tells of each change of the flag once; a queue without a setting counts as running."""
    for paused in (False, True, True, False, False, True):
        clock.advance(1)
        await store.set_queue("q", paused=paused, reason="why", by="ann")
    events = await all_events(store)
    assert [(event.kind, event.queue) for event in events] == [("QUEUE_PAUSED", "q"), ("QUEUE_RESUMED", "q"), ("QUEUE_PAUSED", "q")]
    assert [event.at_us - clock.now_us() for event in events] == [-4_000_000, -2_000_000, 0]


async def test_pause_does_not_touch_running_jobs(store: Store) -> None:
    """A paused queue starts nothing; what runs may finish."""
    job = await put_and_claim(store)
    await store.set_queue("q", paused=True)
    [verdict] = await store.settle([done(job)])
    assert verdict.applied


async def test_jobs_can_be_enqueued_while_paused(store: Store) -> None:
    """Pausing stops claims, not producers."""
    await store.set_queue("q", paused=True)
    await store.insert([new_job(), new_job()])
    assert (await claim(store)).jobs == []
    await store.set_queue("q", paused=False)
    assert len((await claim(store)).jobs) == 2
