from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

import pytest

from mulligan.core.change import Grip
from mulligan.core.clock import Clock, ManualClock, SystemClock
from mulligan.core.contract import Query, Store
from mulligan.core.errors import IllegalMove
from mulligan.core.job import first_row
from mulligan.worker.settings import WorkerSettings
from tests.builders import ask, get, new_job, schedule, us

CALLS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "now_us": lambda store: store.now_us(),
    "insert": lambda store: store.insert([new_job()]),
    "claim": lambda store: store.claim("c", "me", [ask()], 1, us(30)),
    "renew": lambda store: store.renew([], us(30)),
    "settle": lambda store: store.settle([]),
    "overdue": lambda store: store.overdue(1),
    "request_cancel": lambda store: store.request_cancel(["x"]),
    "get": lambda store: store.get(["x"]),
    "find": lambda store: store.find(Query(), 1),
    "stats": lambda store: store.stats(),
    "prune": lambda store: store.prune("done", 0, 1),
    "put_receipt": lambda store: store.put_receipt(Grip("x", 1), "step", "1"),
    "receipts": lambda store: store.receipts(["x"]),
    "set_queue": lambda store: store.set_queue("q", paused=True),
    "queue_states": lambda store: store.queue_states(),
    "put_schedule": lambda store: store.put_schedule(schedule()),
    "set_schedule_paused": lambda store: store.set_schedule_paused("s", True),
    "remove_schedule": lambda store: store.remove_schedule("s"),
    "schedules": lambda store: store.schedules(),
    "fire": lambda store: store.fire([]),
    "notes": lambda store: store.notes(""),
    "put_note": lambda store: store.put_note("k", "body", 0),
    "levels": lambda store: store.levels(),
    "pulse": lambda store: store.pulse(["q"]),
    "record_events": lambda store: store.record_events([]),
    "read_events": lambda store: store.read_events(0, 1),
    "workers": lambda store: store.workers(),
    "restore": lambda store: store.restore([first_row(new_job(), 0)]),
    "promise": lambda store: store.promise(),
    "describe": lambda store: store.describe(),
}


def test_every_call_of_the_contract_is_tried() -> None:
    """The table above names every method of the contract but those that open, close and wake, and `near`, which carries out nothing."""
    methods = {name for name, _ in inspect.getmembers(Store, inspect.isfunction) if not name.startswith("_")}
    assert methods - {"open", "close", "listen", "announce", "near"} == set(CALLS)


def test_a_store_says_how_wide_calls_shall_be(unopened: Store) -> None:
    """It is known before the store is open, and a worker could be told the same by its settings."""
    width = unopened.width
    settings = WorkerSettings(ahead=width.ahead, batch=width.batch)
    assert WorkerSettings().width_on(unopened) == settings.width_on(unopened) == width


@pytest.mark.parametrize("name", CALLS)
async def test_calls_on_a_store_that_was_never_opened_are_refused(unopened: Store, name: str) -> None:
    """A store must be opened first, and the error says so."""
    with pytest.raises(IllegalMove, match="open"):
        await CALLS[name](unopened)


@pytest.mark.parametrize("name", CALLS)
async def test_calls_on_a_closed_store_are_refused(store: Store, name: str) -> None:
    """After close nothing is carried out any more."""
    await store.close()
    with pytest.raises(IllegalMove, match="open"):
        await CALLS[name](store)


async def test_listening_needs_an_open_store(unopened: Store) -> None:
    """So does the ear for wake-ups."""
    with pytest.raises(IllegalMove, match="open"):
        unopened.listen()


async def test_close_is_idempotent(store: Store) -> None:
    """Closing twice, or more often, is closing once."""
    await store.close()
    await store.close()
    await store.close()


async def test_close_of_a_store_that_was_never_opened(unopened: Store) -> None:
    """There is nothing to close, and that is no error."""
    await unopened.close()


async def test_open_is_idempotent(store: Store) -> None:
    """Opening an open store changes nothing."""
    job = new_job()
    await store.insert([job])
    await store.open()
    assert (await get(store, job.id)).status == "pending"


async def test_a_closed_store_can_be_opened_again(store: Store) -> None:
    """The rows are still there."""
    job = new_job()
    await store.insert([job])
    await store.close()
    await store.open()
    assert (await get(store, job.id)).status == "pending"


async def test_close_with_an_open_listener(store: Store) -> None:
    """A sleeper does not keep a store open."""
    listener = store.listen()
    await store.close()
    listener.close()


async def test_time_is_the_injected_clocks(store: Store, clock: ManualClock) -> None:
    """A test binds its own clock into the store."""
    assert await store.now_us() == clock.now_us()
    clock.advance(1.5)
    assert await store.now_us() == clock.now_us()


async def test_time_without_a_clock_is_the_stores_own(store_maker: Callable[[Clock | None], Store]) -> None:
    """Left alone, a store keeps the time of its host, and stamps jobs with it."""
    store = store_maker(None)
    await store.open()
    try:
        before = SystemClock().now_us()
        [answer] = await store.insert([new_job()])
        after = SystemClock().now_us()
        assert before - us(0.001) < answer.at_us <= after  # some stores count whole milliseconds
    finally:
        await store.close()


async def test_url_names_the_store(unopened: Store) -> None:
    """The URL can be shown: it tells the kind of store."""
    assert "://" in unopened.url


async def test_close_lets_calls_under_way_have_their_answers(store: Store) -> None:
    """Whoever waits for an answer when the store is closed gets it; the next call is refused."""
    job = new_job()
    await store.insert([job])
    waiting = [asyncio.create_task(store.get([job.id])) for _ in range(30)]
    await asyncio.sleep(0)
    await store.close()
    assert {found.id for [found] in await asyncio.gather(*waiting) if found} == {job.id}
    with pytest.raises(IllegalMove):
        await store.get([job.id])


@pytest.mark.parametrize("many", [1, 2, 1_500])
@pytest.mark.parametrize("before", [0, 60])  # a loop that goes on inserting may get a connection of its own
async def test_close_lets_an_insert_under_way_have_its_answer(store_maker: Callable[[Clock | None], Store], many: int, before: int) -> None:
    """Whoever is told that the store is closed has stored nothing."""
    store = store_maker(None)
    await store.open()
    for _ in range(before):
        await store.insert([new_job()])
    jobs = [new_job() for _ in range(many)]
    inserting = asyncio.create_task(store.insert(jobs))
    await asyncio.sleep(0)
    await store.close()
    assert [answer.id for answer in await inserting] == [job.id for job in jobs]


async def test_a_store_opened_while_it_is_being_closed_is_open(store: Store) -> None:
    """The two do not mix: after both have returned, the store works."""
    for _ in range(10):
        await asyncio.gather(store.close(), store.open())
        await store.open()
        assert await store.now_us() > 0
