"""Limits of a whole fleet hold across processes that are killed and stopped in the middle; a killed process leaves no slot taken."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from mulligan import Mulligan
from tests.processes.children import Nursery, until
from tests.processes.limited_checks import Crowd, check_crowd, check_silence
from tests.processes.limited_rules import CROWDS
from tests.processes.limited_tasks import CAP, DOWNSTREAM, LEASE_S, mono_us, some_jobs
from tests.processes.storm import (
    PROCESSES,
    Fleet,
    Producer,
    all_held_by,
    batter,
    drained,
    findings_of,
    full_at_us,
    hold_all,
    limited_app,
    unfelt,
    verdict,
)

torture = [pytest.mark.torture, pytest.mark.timeout(900)]


@pytest.fixture
async def app(nursery: Nursery) -> AsyncIterator[Mulligan]:
    """The test's own app on the same store; it runs nothing."""
    async with limited_app(nursery) as app:
        yield app


@pytest.mark.parametrize("kills, stops", [pytest.param(5, 1, marks=pytest.mark.timeout(180)), pytest.param(100, 10, marks=torture)])
async def test_limits_hold_while_processes_are_killed(nursery: Nursery, app: Mulligan, kills: int, stops: int) -> None:
    """Slots, keys, rates, budgets and an open breaker are kept at every start, no slot is leaked, and every job comes to its own end."""
    rng = random.Random(kills)
    fleet = Fleet(nursery)
    fleet.start(PROCESSES)
    async with Producer(app, rng) as producer:
        await batter(fleet, rng, kills=kills // 2, stops=stops, nursery=nursery)
        await app.open_breaker(DOWNSTREAM)
        await until(fleet.all_have_shut)
        shut_us = mono_us()
        await batter(fleet, rng, kills=kills - kills // 2, stops=0, nursery=nursery)
        await until(fleet.all_have_shut)
        let_us = mono_us()
        await app.close_breaker(DOWNSTREAM)
        killed_us = fleet.kill(*await fleet.ready())  # all of them together
        pids = {child.pid for child in fleet.start(PROCESSES)}

        async def full_again() -> list[int] | None:
            runs = fleet.runs()
            moments = [full_at_us(crowd, runs, pids) for crowd in CROWDS]
            return None if None in moments or unfelt(findings_of(runs)) else [at_us for at_us in moments if at_us is not None]

        moments = await until(full_again, pause_s=0.2)
    print(f"all slots taken again {(max(moments) - killed_us) / 1e6:.2f} s after all were killed, with leases of {LEASE_S} s")
    await fleet.ready()
    await drained(app, within_s=60)
    fleet.finish()
    assert await verdict(app, fleet, producer.ids) == []
    assert check_silence(DOWNSTREAM, fleet.runs(), shut_us, let_us) == []


async def test_new_processes_keep_what_was_set_before_they_came(nursery: Nursery, app: Mulligan) -> None:
    """A breaker that is open, and a limit that an operator has lowered, are kept from the first claim of a process on."""
    await app.open_breaker(DOWNSTREAM)
    await app.configure("caps", concurrency=1)
    jobs = [job for queue in ("shop", "caps") for job in some_jobs(app, random.Random(1), queue, 6)]
    await app.enqueue_many(jobs)
    fleet = Fleet(nursery)
    fleet.start(PROCESSES)
    await fleet.ready()
    await until(fleet.all_have_shut)

    async def some_ran() -> bool:
        return sum(run.ended_us is not None for run in fleet.runs()) >= 5

    await until(some_ran)
    let_us = mono_us()
    runs = fleet.runs()
    assert check_silence(DOWNSTREAM, runs, 0, let_us) == []
    assert check_crowd(Crowd("changed", 1, lambda run: run.queue), runs).problems == []
    await app.close_breaker(DOWNSTREAM)
    await app.reset_queue("caps")
    await drained(app, within_s=60)
    fleet.finish()
    assert await verdict(app, fleet, {job.id for job in jobs}) == []


async def test_slots_of_killed_processes_come_back_by_themselves(nursery: Nursery, app: Mulligan) -> None:
    """Nobody sweeps, so nothing but the end of a lease gives a slot to those who wait; and not before that."""
    gate = nursery.folder / "gate"
    fleet = Fleet(nursery, sweeps=False)
    ids = await hold_all(app, gate)
    holders = fleet.start(PROCESSES)
    await all_held_by(fleet, *holders)
    heirs = fleet.start(PROCESSES)
    await fleet.ready()
    killed_us = fleet.kill(*holders)
    ids |= await hold_all(app, gate)  # only now: a holder could still take those that no limit keeps back, and nobody would sweep them
    taken_us = max(run.started_us or 0 for run in await all_held_by(fleet, *heirs))
    print(f"all slots taken again {(taken_us - killed_us) / 1e6:.2f} s after all were killed, with leases of {LEASE_S} s")
    gate.touch()
    fleet.start(sweeps=True)
    await fleet.ready()
    await drained(app, within_s=40)
    fleet.finish()
    assert await verdict(app, fleet, ids) == []


async def test_a_stopped_process_does_not_get_its_slots_back(nursery: Nursery, app: Mulligan) -> None:
    """Stopped past its lease it loses its slots to another; continued, its renewals are refused, it says so, and its handlers stop."""
    gate = nursery.folder / "gate"
    fleet = Fleet(nursery, sweeps=False)
    ids = await hold_all(app, gate)
    [stale] = fleet.start(concurrency=len(ids))  # so that it has no room, and is not in the middle of a claim when it is stopped
    lost = await all_held_by(fleet, stale)
    stale.stop_at_rest(nursery.lock_file)
    ids |= await hold_all(app, gate)
    [heir] = fleet.start()
    await all_held_by(fleet, heir)
    stale.go_on()
    for kind in ("REFUSED", "LEASE_LOST", "END"):
        await until(fleet.noted(kind, lost))
    own = {(run.job, run.fence) for run in lost}
    assert {run.outcome for run in fleet.runs() if (run.job, run.fence) in own} == {"stopped"}
    holders = [job async for job in app.jobs(status="processing", queue="caps") if job.view != "stuck"]
    assert len(holders) <= CAP
    assert {job.lease_owner.split(":")[1] for job in holders if job.lease_owner} <= {str(heir.pid)}
    gate.touch()
    fleet.start(sweeps=True)
    await fleet.ready()
    await drained(app, within_s=40)
    fleet.finish()
    assert await verdict(app, fleet, ids) == []


async def test_outcomes_of_a_stopped_process_that_was_swept_are_refused(nursery: Nursery, app: Mulligan) -> None:
    """Another has taken its jobs over: what its handlers bring when they go on is not accepted, and each job is done once, by the heir."""
    gate = nursery.folder / "gate"
    fleet = Fleet(nursery)
    ids = await hold_all(app, gate)
    [stale] = fleet.start(concurrency=len(ids), sweeps=False)
    lost = await all_held_by(fleet, stale)
    stale.stop_at_rest(nursery.lock_file)
    [heir] = fleet.start()
    await until(fleet.noted("CRASHED", lost))
    gate.touch()  # its handlers end as soon as it goes on
    await drained(app, within_s=40)
    stale.go_on()
    await until(fleet.noted("LEASE_LOST", lost))
    fleet.finish()
    assert await verdict(app, fleet, ids) == []
    last = {(job.id, job.fence) async for job in app.jobs()}
    assert {run.pid for run in fleet.runs() if (run.job, run.fence) in last} == {heir.pid}
