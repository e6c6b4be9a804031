"""The insert that blocks its thread, on the stores that have one: what `insert` answers and stores, without an event loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Inserted, Store
from mulligan.core.errors import IllegalMove
from mulligan.core.job import NewJob
from mulligan.core.limits import TOKEN
from mulligan.stores import open_store
from tests.builders import claim, full_state, get, new_job
from tests.conftest import BACKENDS, url_of

HAVE_IT = ("sqlite", "redis")


@pytest.fixture(params=[name for name in BACKENDS if name in HAVE_IT])
def backend(request: pytest.FixtureRequest) -> str:
    """The stores that have the blocking insert."""
    return str(request.param)


async def insert_now(store: Store, jobs: Sequence[NewJob]) -> list[Inserted]:
    """The blocking insert, in a thread that may block."""
    inserted: list[Inserted] = await asyncio.to_thread(store.insert_now, jobs)  # type: ignore[attr-defined]
    return inserted


async def test_it_stores_what_insert_stores(store: Store, clock: ManualClock) -> None:
    """Of two equal jobs, one stored each way, nothing but the id differs; the answers have the store's time."""
    job = new_job(
        "billing", delay_s=2, priority=1, tags=("a", "b"), unique_key="one", concurrency_key="c", fair_key="f", timeout_us=TOKEN, trace="t"
    )
    other = new_job("billing", **{**_fields(job), "unique_key": "two"})
    [usual] = await store.insert([job])
    [blocking] = await insert_now(store, [other])
    assert (blocking.id, blocking.created, blocking.at_us) == (other.id, True, clock.now_us()) == (other.id, usual.created, usual.at_us)
    assert replace(await get(store, other.id), id=job.id, unique_key="one") == await get(store, job.id)


def _fields(job: NewJob) -> dict[str, object]:
    return {name: getattr(job, name) for name in job.__struct_fields__ if name not in ("id", "queue")}


def _awkward(queue: str) -> list[list[NewJob]]:
    """Calls one after the other: a plain job, its repeat, a unique key that is taken, lists that repeat themselves, many jobs, none."""
    plain, unique = new_job(queue), new_job(queue, unique_key="k")
    twice = new_job(queue)
    first, second = new_job(queue, unique_key="m"), new_job(queue, unique_key="m")
    many = [new_job(queue) for _ in range(600)]
    return [
        [plain],
        [plain],
        [unique],
        [new_job(queue, unique_key="k")],
        [unique],
        [twice, twice],
        [first, second, first],
        many,
        [*many[:3], new_job(queue, unique_key="m")],
        [],
    ]


async def test_it_answers_what_insert_answers(store: Store) -> None:
    """Known ids, taken keys, lists that repeat themselves, long lists and none at all: each is answered as `insert` does."""
    answers = []
    for way, queue in ((store.insert, "usual"), (lambda jobs: insert_now(store, jobs), "now")):
        calls = _awkward(queue)
        places = {job.id: place for place, job in enumerate(job for jobs in calls for job in jobs)}
        answers.append([[(places[answer.id], answer.created) for answer in await way(jobs)] for jobs in calls])
    assert answers[0] == answers[1]
    stats = {one.queue: one for one in (await store.stats()).queues}
    assert stats["usual"].fresh_ready == stats["now"].fresh_ready == 604


async def test_what_cannot_be_stored_is_refused_as_by_insert(store: Store) -> None:
    """A text that no store can keep raises the same error both ways, and changes nothing; what comes after it is stored."""
    before = await full_state(store)
    errors = []
    for bad in (new_job(payload='"\ud800"'), new_job(eta_us=2**70)):
        for way in (store.insert, lambda jobs: insert_now(store, jobs)):
            with pytest.raises(Exception, match=".") as caught:
                await way([bad])
            errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]
    assert errors[2] == errors[3]
    assert await full_state(store) == before
    assert (await insert_now(store, [new_job()]))[0].created


async def test_a_sleeper_is_told(store: Store) -> None:
    """A worker that sleeps gets its hint, as after `insert`, and finds the job."""
    ear = store.listen()
    try:
        await ear.wait(0)
        waiting = asyncio.create_task(ear.wait(20))
        await insert_now(store, [job := new_job()])
        assert await waiting
        assert [one.id for one in (await claim(store)).jobs] == [job.id]
    finally:
        ear.close()


async def test_a_store_that_is_not_open_says_so(unopened: Store) -> None:
    """Before it is opened and after it is closed nothing is stored; opened again it works."""
    with pytest.raises(IllegalMove, match="open"):
        await insert_now(unopened, [new_job()])
    await unopened.open()
    [answer] = await insert_now(unopened, [job := new_job()])
    await unopened.close()
    with pytest.raises(IllegalMove, match="open"):
        await insert_now(unopened, [new_job()])
    await unopened.open()
    assert [one.id for one in (await claim(unopened)).jobs] == [answer.id] == [job.id]
    await unopened.close()


PROGRAM = """
import asyncio, os, signal, sys
from mulligan.core.errors import IllegalMove
from mulligan.stores import open_store
from tests.builders import new_job

store = open_store(sys.argv[1])
asyncio.run(store.open())
store.insert_now([new_job()])
child = os.fork()
if child == 0:
    signal.alarm(20)
    try:
        store.insert_now([new_job()])
    except IllegalMove as problem:
        assert "forked" in str(problem), problem
        asyncio.run(store.open())
        store.insert_now([new_job()])
        os._exit(7)
    os._exit(1)
_, status = os.waitpid(child, 0)
store.insert_now([new_job()])
asyncio.run(store.close())
print(os.waitstatus_to_exitcode(status))
"""


async def test_a_forked_child_opens_for_itself(backend: str, tmp_path: Path) -> None:
    """In a child the inherited store refuses, and once opened there it works; the parent's goes on, and nothing is lost or doubled."""
    url = url_of(backend, tmp_path)
    answer = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", PROGRAM, url],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert answer.stdout.split() == ["7"], answer.stderr
    store = open_store(url)
    await store.open()
    assert [queue.fresh_ready for queue in (await store.stats()).queues] == [3]
    await store.close()
