"""The calls that are measured: those a worker makes all the time, and those people and dashboards make to look."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from benchmarks.claimers.claimer import TOTAL, asks
from benchmarks.growth.kinds import DAY_US, QUEUE, RARE, TASK

from mulligan.core.contract import Query, Store
from mulligan.core.events import Event
from mulligan.core.job import Job
from tests.builders import claim, done, grip, new_job, us

LEASE_S = 3_600
PAGE = 50  # what `mulligan jobs` and a dashboard show at once
EVENTS = 1_000
OVERDUE = 100
FINDS: dict[str, Query] = {
    "all": Query(),
    "pending": Query(status="pending"),
    "processing": Query(status="processing"),
    "done": Query(status="done"),
    "failed": Query(status="failed"),
    "cancelled": Query(status="cancelled"),
    "a queue": Query(queue=QUEUE),
    "failed of a queue": Query(status="failed", queue=QUEUE),
    "done of a task": Query(status="done", task=TASK),
    "waiting retries": Query(status="pending", lane="retry"),
}
# What is not among the newest, and what no index tells apart: something has to be gone through.
SEARCHES: dict[str, Query] = {
    "a rare queue": Query(queue=RARE),
    "pending of a rare task": Query(status="pending", task=RARE),
    "done of a rare task": Query(status="done", task=RARE),
    "failed of a rare task": Query(status="failed", task=RARE),
}


class Scene:
    """What calls on one store need: ids from everywhere, and the jobs of the last claim, which the next calls renew and settle."""

    def __init__(self, ids: list[str]) -> None:
        self.ids = ids[:TOTAL]
        self.deep = ids[len(ids) // 2]
        self.held: list[Job] = []
        self.seq = 0

    async def prepare(self, store: Store) -> None:
        """Fills the event log a little."""
        now_us = await store.now_us()
        await store.record_events([Event(kind="COMPLETED", at_us=now_us, job_id=str(number), queue=QUEUE) for number in range(EVENTS)])
        self.seq = (await store.read_events(0, EVENTS))[EVENTS // 2].seq


Call = Callable[[Store, Scene], Awaitable[None]]


async def _claim(store: Store, scene: Scene) -> None:
    scene.held = (await claim(store, *asks(), total=TOTAL, lease_s=LEASE_S)).jobs
    assert len(scene.held) == TOTAL


async def _renew(store: Store, scene: Scene) -> None:
    renewals = await store.renew([grip(job) for job in scene.held], us(LEASE_S))
    assert all(one.held for one in renewals)


async def _settle(store: Store, scene: Scene) -> None:
    verdicts = await store.settle([done(job) for job in scene.held])
    assert all(one.applied for one in verdicts)


async def _insert(store: Store, _: Scene) -> None:
    """As many due jobs as a claim takes, so that there are always as many."""
    assert all(one.created for one in await store.insert([new_job(QUEUE) for _ in range(TOTAL)]))


async def _overdue(store: Store, _: Scene) -> None:
    assert await store.overdue(OVERDUE) == []


async def _prune(store: Store, _: Scene) -> None:
    """Nothing is old enough, as nearly always when a worker tidies up."""
    assert await store.prune("done", 30 * DAY_US, TOTAL) == 0


async def _pulse(store: Store, _: Scene) -> None:
    [pulse] = await store.pulse([QUEUE])
    assert pulse.depth > 0


async def _stats(store: Store, _: Scene) -> None:
    assert len((await store.stats()).queues) > 0


async def _get(store: Store, scene: Scene) -> None:
    assert None not in await store.get(scene.ids)


async def _events(store: Store, scene: Scene) -> None:
    assert len(await store.read_events(scene.seq, PAGE)) == PAGE


def _first_page(query: Query) -> Call:
    async def first_page(store: Store, _: Scene) -> None:
        assert len((await store.find(query, PAGE)).jobs) == PAGE

    return first_page


def _deep_page(query: Query) -> Call:
    async def deep_page(store: Store, scene: Scene) -> None:
        assert len((await store.find(query, PAGE, scene.deep)).jobs) == PAGE

    return deep_page


def _search(query: Query) -> Call:
    async def search(store: Store, _: Scene) -> None:
        found = (await store.find(query, PAGE)).jobs
        assert 0 < len(found) < PAGE

    return search


WORK: dict[str, Call] = {
    "insert": _insert,
    "claim": _claim,
    "renew": _renew,
    "settle": _settle,
    "overdue": _overdue,
    "prune": _prune,
    "pulse": _pulse,
}
LOOKS: dict[str, Call] = {
    "stats": _stats,
    "get": _get,
    "events": _events,
    **{f"find {name}": _first_page(query) for name, query in FINDS.items()},
    **{f"find {name}, deep": _deep_page(query) for name, query in FINDS.items()},
    **{f"search {name}": _search(query) for name, query in SEARCHES.items()},
}
CALLS: dict[str, Call] = {**WORK, **LOOKS}
