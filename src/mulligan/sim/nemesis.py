"""Nemesis: what goes wrong beside the network, and what operators do meanwhile, at the times the plan has drawn."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Signals
from mulligan.core.ids import new_id
from mulligan.core.job import Status
from mulligan.core.outcome import Requeued
from mulligan.core.schedule import MISSED, Schedule
from mulligan.policy.decide import decide
from mulligan.policy.queues import write_changes
from mulligan.policy.retry import thaw
from mulligan.sim.account import Account
from mulligan.sim.plan import PlannedJob
from mulligan.sim.process import Process, inside

if TYPE_CHECKING:
    from mulligan.sim.world import World

PROCESSES_MAX = 30
QUEUE_NOTE = "queue:"


class Nemesis:
    """Makes the moves of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng
        self._tasks: list[asyncio.Task[Any]] = []
        self._schedules = 0

    async def run(self) -> None:
        """Every move at its time."""
        loop = self._world.loop
        for at_s, kind in self._world.plan.moves:
            await asyncio.sleep(max(0.0, at_s - loop.virtual_s))
            getattr(self, f"_{kind}")()

    def _aside(self, doing: Coroutine[Any, Any, None]) -> None:
        """Beside the other moves; an operator does not wait for the last wish to be carried out."""
        self._tasks.append(self._world.loop.create_task(doing))

    def _any_process(self) -> Process | None:
        alive = self._world.alive()
        return self._rng.choice(alive) if alive else None

    def _any_account(self, *statuses: Status) -> Account | None:
        found = [account for account in self._world.watch.accounts.values() if account.status in statuses]
        return self._rng.choice(found) if found else None

    def replace(self) -> None:
        """Another process takes the place of one that has ended, a little later."""
        if len(self._world.processes) < PROCESSES_MAX:
            self._world.network.later(self._rng.random() * 1.5, self._begin)

    def _begin(self) -> None:
        if self._world.watch.broken is None:
            self._world.begin_process()

    # -- Processes and time -------------------------------------------------------------------------------------------

    def _crash(self) -> None:
        process = self._any_process()
        if process is not None:
            self._world.crash(process)
            self.replace()

    def _pause(self) -> None:
        process = self._any_process()
        if process is not None:
            share = self._rng.choice((self._rng.uniform(0.3, 0.9), self._rng.uniform(0.8, 1.3), self._rng.uniform(1.0, 2.5)))
            self._world.pause(process, self._world.plan.lease_s * share)

    def _restart(self) -> None:
        process = self._any_process()
        if process is None or process.number not in self._world.workers:
            return
        self._world.faults["restart"] += 1
        self._world.end_process(process)
        self.replace()

    def _step(self) -> None:
        seconds = self._rng.choice((self._rng.uniform(0.1, 20.0), -self._rng.uniform(0.1, 5.0)))
        self._world.step_clock(seconds)

    def _outage(self) -> None:
        self._world.network.outage(self._rng.uniform(0.2, 3.0))

    # -- Operators ----------------------------------------------------------------------------------------------------

    def _cancel(self) -> None:
        account = self._any_account("pending", "processing", "processing", "done", "failed")
        if account is not None:
            self._world.faults["cancel"] += 1
            self._aside(self._world.insist("request_cancel", [account.new.id]))

    def _requeue(self) -> None:
        account = self._any_account("failed")
        if account is not None:
            self._world.faults["requeue"] += 1
            self._aside(self._send_back(account))

    async def _send_back(self, account: Account) -> None:
        world = self._world
        [job] = await world.insist("get", [account.new.id])
        if job is None or job.status != "failed":
            return
        settle_id = new_id(job.read_at_us)
        change = decide(job, Requeued(by="somebody"), thaw(job.policy), Signals(now_us=job.read_at_us), self._rng, settle_id=settle_id)
        await world.insist("settle", [change])

    def _hold(self) -> None:
        self._world.faults["hold"] += 1
        self._aside(self._hold_queue(self._rng.choice(self._world.plan.names), self._rng.uniform(0.2, 2.0)))

    async def _hold_queue(self, queue: str, seconds: float) -> None:
        await self._world.insist("set_queue", queue, paused=True)
        await asyncio.sleep(seconds)
        await self._world.insist("set_queue", queue, paused=False)

    def _configure(self) -> None:
        rng, queue = self._rng, self._rng.choice(self._world.plan.names)
        changes: dict[str, Any] = rng.choice((
            {"concurrency": rng.choice((None, 1, 4))},
            {"key_concurrency": rng.choice((1, 3))},
            {"max_inflight_retries": rng.choice((None, 1))},
            {"claim": rng.choice(("weighted(0.3)", "fifo", "retry_first"))},
            {"rate": rng.choice((None, "20/s"))},
        ))  # fmt: skip
        self._world.faults["configure"] += 1
        self._aside(self._write_note(queue, write_changes(queue, changes, mark=new_id(self._world.clock.now_us()))))

    async def _write_note(self, queue: str, text: str) -> None:
        world, key = self._world, QUEUE_NOTE + queue
        notes = await world.insist("notes", key)
        await world.insist("put_note", key, text, next((note.version for note in notes if note.key == key), 0))

    def _schedule(self) -> None:
        world, rng = self._world, self._rng
        world.faults["schedule"] += 1
        if self._schedules and rng.random() < 0.5:
            name = f"tick{rng.randrange(self._schedules)}"
            self._aside(world.insist("set_schedule_paused", name, rng.random() < 0.7))
            return
        name = f"tick{self._schedules}"
        self._schedules += 1
        planned = PlannedJob(
            at_s=0.0, temper="good", queue=rng.choice(world.plan.names), policy=0, priority=0, delay_s=0.0, timeout_s=None,
            max_age_s=None, unique_key=None, concurrency_key=None, fair_key=None,
        )  # fmt: skip
        job = world.plan.new_job(planned, 1_000 + self._schedules, world.clock.now_us())
        schedule = Schedule(name=name, job=job, interval_us=round(rng.uniform(0.8, 4.0) * SECOND_US), missed=rng.choice(MISSED))
        self._aside(world.insist("put_schedule", schedule))

    def _prune(self) -> None:
        status: Status = self._rng.choice(("done", "failed", "cancelled"))
        self._world.faults["prune"] += 1
        self._aside(self._world.insist("prune", status, round(self._rng.uniform(0.0, 3.0) * SECOND_US), self._rng.choice((1, 5, 100))))

    def _sweep(self) -> None:
        """All sweepers at once."""
        self._world.faults["sweep"] += 1
        for process in self._world.alive():
            worker = self._world.workers.get(process.number)
            if worker is not None:
                inside(process, self._world.in_process, worker._sweep())  # noqa: SLF001 - no operator can ask for it
