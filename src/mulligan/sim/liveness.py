"""Liveness: what has to happen in the end. When the faults are over everything comes to rest, and a few probes measure how soon."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mulligan.core.job import Lane, NewJob, first_row
from mulligan.policy.lanes import Weighted
from mulligan.policy.queues import Queue
from mulligan.sim.account import Account
from mulligan.sim.plan import FAIR, PlannedJob

if TYPE_CHECKING:
    from mulligan.sim.world import World

REST_MAX_S = 300.0
SLACK_S = 0.25  # beyond every bound, for the steps in between
RESUME_S = 5.0
FAIR_JOBS, FAIR_SHARE, FAIR_CLAIMERS = 15, 0.3, 2  # jobs of each lane, the share of retries, and workers that serve nothing else


async def come_to_rest(world: World) -> None:
    """Calm, until nothing is left to do; then the probes; then a clean end."""
    await _calm(world)
    await _rest(world)
    for probe in (_wakes, _is_told, _recovers, _reconnects, _is_fair):
        await probe(world)
    await _shuts_down(world)


async def _calm(world: World) -> None:
    """No more faults; two live workers at least."""
    world.network.is_calm = True
    world.network.end_outage()
    for process in list(world.processes):
        world.resume(process)
    await asyncio.sleep(2.0)
    while world.network.under_way:  # noqa: ASYNC110 - virtual seconds cost nothing
        await asyncio.sleep(0.5)
    while len([process for process in world.alive() if process.number in world.workers]) < 2:
        world.begin_process()
        await asyncio.sleep(1.0)


async def _rest(world: World) -> None:
    """L4: every job comes to an end."""
    watch, since_s = world.watch, world.loop.virtual_s
    while True:
        for name in list(watch.schedules):
            await world.link.remove_schedule(name)
        for queue in sorted(watch.paused):
            await world.link.set_queue(queue, paused=False)
        live = [account for account in watch.accounts.values() if account.is_live]
        if not live and world.loop.virtual_s - since_s > 1.0:
            break
        late = world.loop.virtual_s - since_s > REST_MAX_S
        watch.check("L4", f"it is still {live[0].status} {REST_MAX_S:g} s after the last fault" if late else "", live[0] if live else None)
        await asyncio.sleep(1.0)
    await asyncio.sleep(1.0)  # a slot may be kept through a short backoff, and the job have been run by another worker
    for process in world.alive():
        if (worker := world.workers.get(process.number)) is not None:
            executor = worker.executor
            watch.check("L10", left_over(executor.running, executor.waiting, worker.jobs_held, executor.busy))


def _job(world: World, temper: str, number: int, queue: str) -> NewJob:
    planned = PlannedJob(
        at_s=0.0, temper=temper, queue=queue, policy=0, priority=0, delay_s=0.0, timeout_s=None, max_age_s=None,
        unique_key=None, concurrency_key=None, fair_key=None,
    )  # fmt: skip
    return world.plan.new_job(planned, number, world.clock.now_us())


async def _insert(world: World, temper: str, number: int) -> Account:
    job = _job(world, temper, number, world.plan.names[0])
    await world.link.insert([job])
    return world.watch.accounts[job.id]


def left_over(running: int, waiting: int, held: int, slots: int) -> str:
    """L10: a worker that has nothing to do holds nothing, and all its slots are free."""
    if not (running or waiting or held or slots):
        return ""
    return f"every job has ended, and a worker runs {running}, keeps {waiting} waiting, holds {held}, and {slots} of its slots are taken"


async def _until(world: World, account: Account, what: str, limit_s: float, rule: str) -> None:
    """Waits until the account shows it, and not longer than it may take."""
    end_s = world.loop.virtual_s + limit_s
    while True:
        shown = {
            "claimed": account.fence > 0,
            "started": bool(account.started),
            "left": account.status != "processing" or account.fence > 1,
            "told": bool(account.ended),
            "ended": not account.is_live,
        }[what]
        if shown:
            break
        late = world.loop.virtual_s > end_s
        world.watch.check(rule, f"not {what} within {limit_s:.2f} s" if late else "", account)
        await asyncio.sleep(0.05)
    world.watch.check(rule, "", account)


async def _wakes(world: World) -> None:
    """L2: a ready job meets an idle worker, with every hint lost."""
    network = world.network
    was_deaf, network.deaf = network.deaf, True
    await asyncio.sleep(world.plan.poll_s + 1.0)
    account = await _insert(world, "quick", 2_000)
    await _until(world, account, "claimed", world.plan.poll_s + SLACK_S, "L2")
    await _until(world, account, "ended", 30.0, "L4")
    network.deaf = was_deaf


async def _recovers(world: World) -> None:
    """L1: the job of a killed process is free again when its lease has ended and somebody has looked."""
    account = await _insert(world, "slow", 2_001)
    await _until(world, account, "started", world.plan.poll_s + SLACK_S, "L2")
    assert account.holder is not None
    world.crash(account.holder)
    world.begin_process()  # in its place, so that the probes after this one find as many as it did
    await _until(world, account, "left", world.plan.lease_s + world.plan.sweep_s + SLACK_S, "L1")
    await _until(world, account, "ended", 120.0, "L4")


async def _reconnects(world: World) -> None:
    """L5: after an outage work goes on by itself."""
    world.network.outage(20.0)
    await asyncio.sleep(20.0)
    account = await _insert(world, "quick", 2_002)
    await _until(world, account, "claimed", RESUME_S, "L5")
    await _until(world, account, "ended", 30.0, "L4")


async def _is_told(world: World) -> None:
    """S20: a running handler is told of its cancel within one heartbeat."""
    account = await _insert(world, "patient", 2_003)
    await _until(world, account, "started", world.plan.poll_s + SLACK_S, "L2")
    await world.link.request_cancel([account.new.id])
    await _until(world, account, "told", world.plan.lease_s / 3 + SLACK_S, "S20")
    await _until(world, account, "ended", 5.0, "L4")


async def _is_fair(world: World) -> None:
    """L3: while both lanes wait, both get their share of any number of starts in a row, but for one start of each claimer."""
    watch, now_us = world.watch, world.clock.now_us()
    queue = Queue(FAIR, claim=Weighted(FAIR_SHARE))
    for _ in range(FAIR_CLAIMERS):
        world.begin_process({FAIR: queue})
    await asyncio.sleep(1.0)
    fresh = [_job(world, "quick", 3_000 + number, FAIR) for number in range(FAIR_JOBS)]
    late = [_job(world, "quick", 4_000 + number, FAIR) for number in range(FAIR_JOBS)]
    watch.fair_starts.clear()
    await world.link.restore([
        *(first_row(job, now_us) for job in fresh),
        *(replace(first_row(job, now_us), lane="retry") for job in late),
    ])  # fmt: skip
    accounts = [watch.accounts[job.id] for job in (*fresh, *late)]
    for account in accounts:
        await _until(world, account, "ended", 60.0, "L4")
    lanes = [lane for lane, both_wait in watch.fair_starts if both_wait]
    watch.check("L3", unfair(lanes, FAIR_SHARE, FAIR_CLAIMERS))


def unfair(lanes: Sequence[Lane], share: float, claimers: int) -> str:
    """What is wrong with the order of starts; nothing if every stretch of it has its due of both lanes."""
    for first in range(len(lanes)):
        retries = 0
        for place in range(first, len(lanes)):
            retries += lanes[place] == "retry"
            starts = place - first + 1
            if retries < share * starts - claimers or starts - retries < (1 - share) * starts - claimers:
                return f"{retries} retries in {starts} starts in a row, with a share of {share} and {claimers} claimers"
    return ""


async def _shuts_down(world: World) -> None:
    """L7: told to stop, every worker ends within its grace, and leaves no lease behind."""
    for number in range(2):
        await _insert(world, "patient", 2_010 + number)
    await asyncio.sleep(0.5)
    processes = [process for process in world.alive() if process.number in world.workers]
    ending = [world.end_process(process) for process in processes]
    _, late = await asyncio.wait(ending, timeout=world.plan.grace_s + 1.0)
    world.watch.check("L7", f"{len(late)} workers have not ended within their grace of {world.plan.grace_s} s" if late else "")
    for account in world.watch.accounts.values():
        held = account.status == "processing" and account.holder in processes
        world.watch.check("L7", "its lease is held by a worker that has ended" if held else "", account)
