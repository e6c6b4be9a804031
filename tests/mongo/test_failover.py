"""A replica set of three under load: the primary steps down, is killed, or keeps its answer to itself."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from mulligan.core.change import Verdict
from mulligan.core.errors import StoreUnavailable
from mulligan.core.job import Job
from mulligan.stores.mongo import MongoStore, from_url
from tests.builders import ask, claim, done, failed, grip, new_job, retry
from tests.servers import MongoSet, Proxy
from tests.servers.urls import with_database

BATCH = 50
torture = [pytest.mark.torture, pytest.mark.timeout(1_800)]


@pytest.fixture(scope="module")
def replica_set() -> Iterator[MongoSet]:
    """Three members."""
    with MongoSet() as members:
        yield members


@pytest.fixture
async def far_store(replica_set: MongoSet, request: pytest.FixtureRequest) -> AsyncIterator[MongoStore]:
    """An open store on the set, on the servers' own clocks."""
    store = from_url(with_database(replica_set.url, f"t_{abs(hash(request.node.name)) % 10**9}"))
    await store.open()
    yield store
    await store.close()


async def patiently(call: Callable[[], object]) -> object:
    """Repeats a call as a worker does, until the set has a primary again."""
    for _ in range(20):
        try:
            return await call()  # type: ignore[misc]
        except StoreUnavailable:
            await asyncio.sleep(0.2)
    raise AssertionError("the set did not come back")


class Load:
    """Producers and workers that note what the store acknowledged to them."""

    def __init__(self, store: MongoStore) -> None:
        self.store = store
        self.inserted: set[str] = set()
        self.finished: list[str] = []
        self.stop = False

    async def produce(self) -> None:
        while not self.stop:
            jobs = [new_job() for _ in range(BATCH)]
            await patiently(lambda jobs=jobs: self.store.insert(jobs))  # type: ignore[misc]
            self.inserted |= {job.id for job in jobs}

    async def work(self, name: str) -> None:
        while not (self.stop and self.inserted <= set(self.finished)):
            claim_id = new_job().id
            answer = await patiently(lambda claim_id=claim_id: claim(self.store, ask(), total=BATCH, claim_id=claim_id, owner=name))  # type: ignore[misc]
            jobs: list[Job] = answer.jobs  # type: ignore[attr-defined]
            verdicts: list[Verdict] = await patiently(lambda jobs=jobs: self.store.settle([done(job) for job in jobs]))  # type: ignore[assignment,misc]
            assert all(verdict.applied for verdict in verdicts)
            self.finished += [job.id for job in jobs]


async def under_load(store: MongoStore, trouble: Callable[[], object], times: int) -> Load:
    """Lets trouble happen while jobs come and go; the load when all is settled."""
    load = Load(store)
    tasks = [asyncio.create_task(work) for work in (load.produce(), load.work("a"), load.work("b"))]
    for _ in range(times):
        seen = len(load.finished)
        await asyncio.to_thread(trouble)
        while len(load.finished) < seen + 4 * BATCH:  # work goes on behind it
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.01)
    load.stop = True
    await asyncio.gather(*tasks)
    return load


async def check(load: Load) -> None:
    """Everything acknowledged is there, done, and was done once."""
    assert len(load.finished) == len(set(load.finished))
    assert set(load.finished) == load.inserted
    [queue] = (await load.store.stats()).queues
    assert (queue.done, queue.processing, queue.fresh_ready) == (len(load.inserted), 0, 0)


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=torture)])
async def test_step_down_under_load_loses_nothing(replica_set: MongoSet, far_store: MongoStore, times: int) -> None:
    """The primary hands over again and again while jobs come and go: all acknowledged jobs are there, each done once."""
    load = await under_load(far_store, replica_set.step_down, times)
    await check(load)
    print(f"{times} step-downs, {len(load.inserted)} jobs acknowledged, none lost")


@pytest.mark.parametrize("times", [1, pytest.param(10, marks=torture)])
async def test_killed_primary_under_load_loses_nothing(replica_set: MongoSet, far_store: MongoStore, times: int) -> None:
    """The primary is killed while jobs come and go, and comes back as a member: all acknowledged jobs are there, each done once."""

    def kill_and_return() -> None:
        replica_set.kill_primary()
        replica_set.primary()  # another one, once it is elected
        replica_set.start()

    load = await under_load(far_store, kill_and_return, times)
    await check(load)
    print(f"{times} killed primaries, {len(load.inserted)} jobs acknowledged, none lost")


# What a store sends in each call, in the order it sends it; the name of the command stands in the bytes of the request.
STEPS = {
    "insert": b"insert\x00",
    "claim, looking": b"aggregate\x00",
    "claim, remembering": b"mulligan_claims\x00",
    "claim, taking": b"update\x00",
    "settle": b"update\x00",
    "settle a failure": b"update\x00",
    "renew": b"update\x00",
}


@pytest.mark.parametrize("step", STEPS)
async def test_lost_reply_is_no_loss_and_no_second_time(url: str, step: str) -> None:
    """A request whose answer is lost after the server did it is repeated inside the store: nothing is lost, nothing happens twice."""
    with Proxy(url) as proxy:
        store = from_url(proxy.url_of(url))
        await store.open()
        try:
            jobs = [new_job() for _ in range(5)]
            if step != "insert":
                await store.insert(jobs)
            held = (await claim(store)).jobs if step in ("settle", "settle a failure", "renew") else []
            dropped = proxy.drop_reply(lambda request: STEPS[step] in request and b"mulligan_hints" not in request)
            if step == "insert":
                assert [answer.created for answer in await store.insert(jobs)] == [True] * 5
            elif step.startswith("claim"):
                held = (await claim(store)).jobs
                assert [job.id for job in held] == [job.id for job in jobs]
            elif step == "renew":
                assert all(one.held for one in await store.renew([grip(job) for job in held], 30_000_000))
            else:
                wanted = [(done if step == "settle" else retry)(job) for job in held]
                assert [verdict.applied for verdict in await store.settle(wanted)] == [True] * 5
            assert dropped.is_set()
            found = [job for job in await store.get([job.id for job in jobs]) if job is not None]
            assert len(found) == 5
            assert {job.attempts for job in found} == {0 if step == "insert" else 1}
            assert {len(job.history) for job in found} == {1 if step == "settle a failure" else 0}
        finally:
            await store.close()


async def test_silence_is_noticed(url: str) -> None:
    """A server that says nothing any more is noticed within the time of a call, and the store works again when it speaks."""
    with Proxy(url) as proxy:
        store = from_url(proxy.url_of(url) + "&timeout=1")
        await store.open()
        try:
            proxy.go_silent()
            with pytest.raises(StoreUnavailable):
                await store.insert([new_job()])
            proxy.speak_again()
            assert (await store.insert([new_job()]))[0].created
        finally:
            await store.close()


async def test_write_no_majority_confirms_is_not_acknowledged(replica_set: MongoSet) -> None:
    """With both other members gone the primary alone acknowledges nothing; the same insert, repeated when they are back, is one job."""
    store = from_url(with_database(replica_set.url, "t_minority") + "&timeout=1")
    await store.open()
    try:
        primary = await asyncio.to_thread(replica_set.primary)
        for member in replica_set.members:
            if member is not primary:
                await asyncio.to_thread(member.kill)
        job = new_job()
        with pytest.raises(StoreUnavailable):
            await store.insert([job])
        await asyncio.to_thread(replica_set.start)
        await patiently(lambda: store.insert([job]))
        [held] = (await patiently(lambda: claim(store))).jobs  # type: ignore[attr-defined]
        assert (held.id, held.fence) == (job.id, 1)
    finally:
        await store.close()


async def test_a_repeated_settle_is_not_acknowledged_before_the_majority_has_it(replica_set: MongoSet) -> None:
    """The repeat of a settle finds itself written on the primary; while nobody else has it, it may still be taken back."""
    store = from_url(with_database(replica_set.url, "t_lonely") + "&timeout=2")
    await store.open()
    try:
        await patiently(lambda: store.insert([new_job()]))
        [held] = (await patiently(lambda: claim(store))).jobs  # type: ignore[attr-defined]
        primary = await asyncio.to_thread(replica_set.primary)
        others = [member.pid for member in replica_set.members if member is not primary]
        change = failed(held)
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        try:
            for _ in range(2):
                with pytest.raises(StoreUnavailable):
                    await store.settle([change])
        finally:
            for pid in others:
                os.kill(pid, signal.SIGCONT)
        [verdict] = await patiently(lambda: store.settle([change]))  # type: ignore[misc]
        assert (verdict.applied, verdict.status) == (True, "failed")
    finally:
        await store.close()
