"""A fleet of worker processes under limits that is killed, stopped and started again at random moments, while jobs keep coming."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mulligan import Mulligan
from tests.processes.children import PATIENCE_S, Child, Nursery, until
from tests.processes.ledger import Ledger, Line, read
from tests.processes.limited_checks import Crowd, Finding, Unseen, check_crowd, check_ends, check_stream
from tests.processes.limited_history import Run, read_history
from tests.processes.limited_rules import CROWDS, STREAMS
from tests.processes.limited_tasks import LEASE_S, MAX_CRASHES, held_job, make_limited_app, mono_us, some_jobs, tell

PROCESSES = 4
BACKLOG = {"caps": 16, "apart": 12, "rated": 8, "ratio": 8, "shop": 8}  # jobs that are kept waiting in each queue
SETTINGS: dict[str, Any] = {"lease": LEASE_S, "poll": 0.1, "sweep": 0.1, "concurrency": 12, "ahead": 0}


@asynccontextmanager
async def limited_app(nursery: Nursery) -> AsyncIterator[Mulligan]:
    """A test's own app on the store of its processes; it runs nothing."""
    ledger = Ledger(nursery.folder / "own-ledger.txt")
    async with make_limited_app(nursery.url, ledger) as app:
        yield app
    ledger.close()


class Fleet:
    """The worker processes of one test. Only those that have said they are ready are counted on."""

    def __init__(self, nursery: Nursery, **settings: Any) -> None:
        self._nursery = nursery
        self._settings = SETTINGS | settings
        self._starting: dict[Child, asyncio.Task[str]] = {}
        self.ledger = Ledger(nursery.ledger)

    def start(self, count: int = 1, **settings: Any) -> list[Child]:
        """New processes, under way."""
        given = json.dumps(self._settings | settings)
        children = [self._nursery.start("limited_server", self._nursery.url, self._nursery.ledger, given) for _ in range(count)]
        for child in children:
            self._starting[child] = asyncio.create_task(child.said("ready"))
        return children

    async def ready(self) -> list[Child]:
        """All of them, once the last one is ready."""
        await asyncio.gather(*self._starting.values())
        return list(self._starting)

    def at_work(self) -> list[Child]:
        """Those that are ready now."""
        return [child for child, said in self._starting.items() if said.done()]

    def kill(self, *victims: Child) -> int:
        """kill -9, all at once; the moment before."""
        at_us = mono_us()
        for victim in victims:
            tell(self.ledger, "KILL", victim=victim.pid)
            os.kill(victim.pid, signal.SIGKILL)
        for victim in victims:
            victim.kill()
            self._starting.pop(victim).cancel()
        return at_us

    def finish(self) -> None:
        """A clean end of all."""
        for child in self._starting:
            child.finish()
        self.ledger.close()

    def lines(self, *kinds: str) -> list[Line]:
        """What the ledger says so far."""
        return read(self._nursery.ledger, *kinds)

    def noted(self, kind: str, runs: Sequence[Run]) -> Callable[[], Awaitable[bool]]:
        """A condition: there is a line of this kind for each of these runs."""
        wanted = {(run.job, run.fence) for run in runs}

        async def is_noted() -> bool:
            return wanted <= {(line.job, line.fence) for line in self.lines(kind)}

        return is_noted

    async def all_have_shut(self) -> bool:
        """Whether every process has heard that the breaker is open, and claims accordingly."""
        last = {line.pid: line.kind for line in self.lines("SHUT", "LET")}
        return all(last.get(child.pid) == "SHUT" for child in self._starting)

    async def any_at_work(self) -> bool:
        """Whether there is one to be killed."""
        return bool(self.at_work())

    def runs(self) -> list[Run]:
        """What it tells of runs so far."""
        return read_history(self.lines()).runs


class Producer:
    """Keeps some jobs waiting in every queue; knows what it has asked for."""

    def __init__(self, app: Mulligan, rng: random.Random) -> None:
        self._app = app
        self._rng = rng
        self._task: asyncio.Task[None] | None = None
        self.ids: set[str] = set()

    async def __aenter__(self) -> Producer:
        await self._fill()
        self._task = asyncio.create_task(self._go_on())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            await self._fill()

    async def _fill(self) -> None:
        waiting = await waiting_jobs(self._app)
        jobs = [
            job for queue, most in BACKLOG.items() for job in some_jobs(self._app, self._rng, queue, max(0, most - waiting.get(queue, 0)))
        ]
        self.ids |= {job.id for job in jobs}  # before they are stored: a cancelled call may have stored them
        if jobs:
            await self._app.enqueue_many(jobs)


async def waiting_jobs(app: Mulligan) -> dict[str, int]:
    """How many jobs of each queue are not at their end yet."""
    stats = await app.store.stats()
    return {one.queue: one.fresh_ready + one.fresh_later + one.retry_ready + one.retry_later + one.processing for one in stats.queues}


async def drained(app: Mulligan, within_s: float) -> None:
    """Waits until every job has come to its end."""

    async def is_empty() -> bool:
        return not any((await waiting_jobs(app)).values())

    await until(is_empty, within_s=within_s, pause_s=0.1)


async def batter(fleet: Fleet, rng: random.Random, *, kills: int, stops: int, nursery: Nursery) -> None:
    """So many processes killed or stopped past their lease, one after the other, each replaced by a new one."""
    ways = ["kill"] * kills + ["stop"] * stops
    rng.shuffle(ways)
    for way in ways:
        await asyncio.sleep(rng.uniform(0.1, 0.9))  # a moment that nothing in the fleet has chosen
        await until(fleet.any_at_work)
        victim = rng.choice(fleet.at_work())
        if way == "kill":
            fleet.kill(victim)
            fleet.start()
        else:
            await asyncio.to_thread(victim.stop_at_rest, nursery.lock_file)
            tell(fleet.ledger, "STOP", victim=victim.pid)
            await asyncio.sleep(LEASE_S * rng.uniform(1.1, 1.5))
            tell(fleet.ledger, "CONT", victim=victim.pid)
            victim.go_on()


def full_at_us(crowd: Crowd, runs: Sequence[Run], pids: set[int]) -> int | None:
    """When all slots of a crowd were first taken by runs of these processes; None if they never were."""
    moments = sorted({run.started_us for run in runs if run.pid in pids and run.started_us is not None})
    mine = [run for run in runs if run.pid in pids and crowd.group(run) is not None]
    for at_us in moments:
        if check_crowd(crowd, [run for run in mine if any(begin <= at_us < end for begin, end in run.intervals())]).peak >= crowd.most:
            return at_us
    return None


async def hold_all(app: Mulligan, gate: Path) -> set[str]:
    """Jobs that take every slot there is, until the gate is open: of queue caps, of its retries, of one key, and of retries apart."""
    jobs = [held_job(app, gate, key="red"), held_job(app, gate, key="red"), held_job(app, gate, fails=1), held_job(app, gate, fails=1)]
    jobs += [held_job(app, gate, queue="apart", fails=1), held_job(app, gate, queue="apart", fails=1)]
    await app.enqueue_many(jobs)
    return {job.id for job in jobs}


async def all_held_by(fleet: Fleet, *holders: Child, within_s: float = PATIENCE_S) -> list[Run]:
    """Waits until these processes have every slot; their runs."""
    pids = {child.pid for child in holders}

    async def are_full() -> bool:
        runs = fleet.runs()
        return all(full_at_us(crowd, runs, pids) is not None for crowd in CROWDS)

    await until(are_full, within_s=within_s)
    return [run for run in fleet.runs() if run.pid in pids and run.started_us is not None and run.ended_us is None]


async def unseen_claims(app: Mulligan, ids: set[str], runs: Sequence[Run]) -> list[Unseen]:
    """The claims that are not in the ledger, from the jobs' histories. None of them was started, so none was renewed."""
    seen = {(run.job, run.fence) for run in runs}
    found = []
    for job_id in sorted(ids):
        fences = (await app.store.get([job_id]))[0]
        if fences is None or all((job_id, fence) in seen for fence in range(1, fences.fence + 1)):
            continue
        job = await app.get(job_id)
        before_us, lane = job.created_at_us, "fresh"
        for record in job.history:
            ended_us = record.ended_at_us or 0
            if (job_id, record.fence) not in seen:
                run = Run(job_id, record.fence, 0, job.queue, job.task, lane, 0, job.concurrency_key, job.fair_key, job.depends_on)
                found.append(Unseen(run, before_us, ended_us - round(LEASE_S * 1_000_000)))
            before_us = ended_us
            lane = lane if record.outcome == "release" else "retry"
    return found


def findings_of(runs: Sequence[Run], unseen: Sequence[Unseen] = ()) -> dict[str, Finding]:
    """What each limit was seen to do."""
    crowds = {crowd.name: check_crowd(crowd, runs) for crowd in CROWDS}
    return crowds | {stream.name: check_stream(stream, runs, unseen) for stream in STREAMS}


def unfelt(findings: dict[str, Finding]) -> list[str]:
    """The limits that nothing came up to, so that it does not mean much that they were kept."""
    idle = [crowd.name for crowd in CROWDS if findings[crowd.name].peak < crowd.most]
    return idle + [stream.name for stream in STREAMS if findings[stream.name].peak <= 1 - 1 / stream.burst]


async def verdict(app: Mulligan, fleet: Fleet, ids: set[str]) -> list[str]:
    """Everything that is wrong with the ledger, and with the jobs at their end."""
    runs, problems = read_history(fleet.lines())
    unseen = await unseen_claims(app, ids, runs)
    findings = findings_of(runs, unseen)
    problems += [problem for finding in findings.values() for problem in finding.problems]
    jobs = [job async for job in app.jobs()]
    problems += check_ends(jobs, ids, runs, max_crashes=MAX_CRASHES)
    problems += [f"bucket {key} is in debt: {level}" for key, level in (await app.store.levels()).items() if level.level_u < 0]
    lapsed = sum(run.is_lapsed for run in runs)
    print(f"{len(jobs)} jobs, {len(runs)} claims, {len(unseen)} more unseen, {lapsed} runs outlived their lease")
    print("; ".join(f"{name} {finding.peak:.2f}" for name, finding in findings.items()))
    return problems
