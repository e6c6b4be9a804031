from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from mulligan.core.change import Change
from mulligan.core.contract import Listener, Store
from tests.builders import claim, crash, failed, get, new_job, put_and_claim, release, requeue, retry, schedule, snooze, tick

SOON_S = 20  # A hint comes at once; this only bounds a broken test.
QUIET_S = 0.05


async def drained(listener: Listener) -> Listener:
    """The listener when all hints so far have been heard."""
    while await listener.wait(QUIET_S):
        pass
    return listener


async def test_wait_ends_without_a_hint_when_the_time_is_over(store: Store) -> None:
    """No hint: False, after about the time given."""
    listener = store.listen()
    started = asyncio.get_running_loop().time()
    assert not await listener.wait(QUIET_S)
    assert asyncio.get_running_loop().time() - started < SOON_S / 2
    listener.close()


async def test_hint_before_the_wait_is_not_lost(store: Store) -> None:
    """A hint between two waits ends the next wait at once."""
    listener = await drained(store.listen())
    store.announce()
    assert await listener.wait(SOON_S)
    listener.close()


async def test_several_hints_are_one(store: Store) -> None:
    """Hints carry nothing, so many before a wait wake it and leave no endless rest."""
    listener = await drained(store.listen())
    for _ in range(50):
        store.announce()
    assert await listener.wait(SOON_S)
    await asyncio.wait_for(drained(listener), SOON_S)
    listener.close()


async def test_sleeper_is_woken(store: Store) -> None:
    """A wait under way ends with the hint, long before its time."""
    listener = await drained(store.listen())
    sleeper = asyncio.create_task(listener.wait(SOON_S))
    await asyncio.sleep(0)
    store.announce()
    assert await sleeper
    listener.close()


async def test_insert_from_another_thread_and_loop_wakes_the_sleeper(store: Store) -> None:
    """A hint crosses event loops: the producer's loop runs in another thread."""
    listener = await drained(store.listen())
    sleeper = asyncio.create_task(listener.wait(SOON_S))
    await asyncio.sleep(0)
    await asyncio.to_thread(asyncio.run, store.insert([new_job()]))
    assert await sleeper
    assert len((await claim(store)).jobs) == 1
    listener.close()


async def test_every_listener_hears_every_hint(store: Store) -> None:
    """A wake-up goes to all sleepers; they settle by claiming who gets the job."""
    listeners = [await drained(store.listen()) for _ in range(3)]
    store.announce()
    assert await asyncio.gather(*(listener.wait(SOON_S) for listener in listeners)) == [True] * 3
    for listener in listeners:
        listener.close()


async def test_closed_listener_does_not_disturb_the_others(store: Store) -> None:
    """Closing one ear, twice even, leaves the store and the others as they are."""
    closed, listener = store.listen(), await drained(store.listen())
    closed.close()
    closed.close()
    store.announce()
    assert await listener.wait(SOON_S)
    listener.close()


async def test_cancelled_wait_keeps_the_hint(store: Store) -> None:
    """A worker that stops waiting loses no hint that comes later."""
    listener = await drained(store.listen())
    sleeper = asyncio.create_task(listener.wait(SOON_S))
    await asyncio.sleep(0)
    sleeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeper
    store.announce()
    assert await listener.wait(SOON_S)
    listener.close()


async def test_insert_wakes(store: Store) -> None:
    """A new job is announced by the store itself, also one for later: it may be the next to fall due."""
    for delay_s in (0, 60):
        listener = await drained(store.listen())
        await store.insert([new_job(delay_s=delay_s)])
        assert await listener.wait(SOON_S)
        listener.close()


@pytest.mark.parametrize("back", [retry, snooze, release])
async def test_settling_to_pending_wakes(store: Store, back: Callable[..., Change]) -> None:
    """A job that goes back is announced."""
    job = await put_and_claim(store)
    listener = await drained(store.listen())
    await store.settle([back(job)])
    assert await listener.wait(SOON_S)
    listener.close()


async def test_requeue_and_takeover_wake(store: Store) -> None:
    """So is one that an operator or a sweeper sends back."""
    job = await put_and_claim(store, lease_s=0)
    listener = await drained(store.listen())
    await store.settle([crash(job)])
    assert await listener.wait(SOON_S)
    [job] = (await claim(store)).jobs
    await store.settle([failed(job)])
    await drained(listener)
    await store.settle([requeue(await get(store, job.id))])
    assert await listener.wait(SOON_S)
    listener.close()


async def test_fire_wakes(store: Store) -> None:
    """The job of a tick is announced."""
    stored = await store.put_schedule(schedule("s"))
    listener = await drained(store.listen())
    await store.fire([tick(stored)])
    assert await listener.wait(SOON_S)
    listener.close()


async def test_resuming_a_queue_wakes(store: Store) -> None:
    """The jobs that waited while a queue was paused are announced."""
    await store.set_queue("q", paused=True)
    listener = await drained(store.listen())
    await store.set_queue("q", paused=False)
    assert await listener.wait(SOON_S)
    listener.close()


async def test_the_job_is_there_when_the_hint_comes(store: Store) -> None:
    """The hint follows the write: who wakes by it finds the job."""
    listener = await drained(store.listen())

    async def wake_and_claim() -> int:
        await listener.wait(SOON_S)
        return len((await claim(store)).jobs)

    claimer = asyncio.create_task(wake_and_claim())
    await asyncio.sleep(0)
    await store.insert([new_job()])
    assert await claimer == 1
    listener.close()
