"""The nemesis: kills, pauses and outages, spread evenly over the work. Everything it does stands in the ledger, before and after."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from mulligan.torture.crew import Crew, is_child
from mulligan.torture.ledger import Ledger, mono_us
from mulligan.torture.plan import Plan
from mulligan.torture.producing import Producers
from mulligan.torture.tail import Tail
from mulligan.torture.wires import Wires

PAUSE_LEASES = (1.1, 1.5)  # how long a pause lasts, in leases
GAP_S = (0.0, 0.3)  # before each fault: a moment that nothing has chosen
STORING_S = 0.02  # about as long as a producer takes to store what it is given
LOOK_S = 0.02
BACKLOG_MIN = 40  # jobs that are kept waiting while there are faults, so that they hit somebody at work
STILL_S = 2.0  # after which more jobs are stored, in case those that are there are none to speak of
PATIENCE_S = 120.0  # for somebody to be at work
CALM_S = 2.5  # between two cuts: time to be back, and time in which nothing is excused


class Stuck(Exception):
    """Nothing goes on any more."""


class Nemesis:
    """`run` plays all faults of a plan."""

    wires: Wires | None = None  # set where there are any to cut

    def __init__(self, plan: Plan, crew: Crew, producers: Producers, tail: Tail, ledger: Ledger, file: Path | None) -> None:
        self._plan = plan
        self._crew = crew
        self._producers = producers
        self._tail = tail
        self._ledger = ledger
        self._file = file
        self._rng = random.Random(plan.seed)
        self._pausing: set[asyncio.Task[None]] = set()
        self._cut_s = 0.0  # when wires were cut the last time, on the loop's clock
        self.done = 0
        self.counts = {"kills": 0, "pauses": 0, "restarts": 0, "cuts": 0, "cut_connections": 0}

    def faults(self) -> list[str]:
        """What it will do, in order: kills of children, of whole workers and of producers, pauses, cut wires, and outages of the store."""
        plan = self._plan
        kills = ["kill child"] * plan.kills
        kills[: plan.kills // 10] = ["kill worker"] * (plan.kills // 10)
        kills[plan.kills // 10 : plan.kills // 10 + plan.kills // 20] = ["kill producer"] * (plan.kills // 20)
        pauses = [("pause worker", "pause parent", "pause worker", "pause child")[number % 4] for number in range(plan.pauses)]
        faults = kills + pauses + ["cut"] * plan.cuts
        self._rng.shuffle(faults)
        for number in range(plan.restarts):  # spread evenly, never at the very end
            faults.insert((number * 2 + 1) * len(faults) // (plan.restarts * 2), "restart")
        return faults

    async def run(self, faults: list[str]) -> None:
        """One after the other; pauses go on beside what follows. Keeps step with the work: neither gets far ahead of the other."""
        lag = max(200, self._plan.jobs // 50)
        for number, fault in enumerate(faults):
            self._producers.allowed = max(self._producers.allowed, self._plan.jobs * (number + 1) // len(faults))
            behind = self._plan.jobs * number // len(faults) - lag
            await self._until(partial(self._has_ended, behind))
            if fault == "restart":
                await self._restart()
            elif fault == "cut":
                await self._cut()
            elif fault == "kill producer":
                await self._kill_producer()
            elif fault.startswith("kill"):
                await self._kill(fault)
            else:
                await self._pause(fault)
            self.done = number + 1
        self._producers.allowed = max(self._plan.jobs, self._producers.acknowledged)
        self._producers.is_over.set()
        await asyncio.gather(*self._pausing)

    async def _until(self, condition: Callable[[], Any]) -> None:
        ended, loop = self._tail.ended, asyncio.get_running_loop()
        moved_s = loop.time()
        while not condition():
            still_s = loop.time() - moved_s
            if self._producers.acknowledged - self._tail.ended < BACKLOG_MIN or still_s > STILL_S:
                self._producers.allowed = max(self._producers.allowed, self._producers.acknowledged + BACKLOG_MIN)
            if self._tail.ended != ended:  # it moves
                ended, moved_s = self._tail.ended, loop.time()
            if still_s > PATIENCE_S:
                raise Stuck(f"nothing has ended for {PATIENCE_S:g} s")
            await asyncio.sleep(LOOK_S)

    def _has_ended(self, jobs: int) -> bool:
        return self._tail.ended >= jobs

    def _is_not_alone(self, parent: int) -> bool:
        return parent not in self._crew.workers or bool(self._others_at_work(parent))

    # --- kills -----------------------------------------------------------------------------------------------------------

    def _awake(self) -> set[int]:
        """Workers that are not stopped."""
        return {pid for pid in self._crew.workers if pid not in self._crew.paused}

    def _victims(self) -> list[int]:
        """Children at work that may be killed or stopped without leaving nobody at work."""
        working = [process for process in self._tail.at_work(self._awake()) if process.pid not in self._crew.paused]
        there = [process.pid for process in working if is_child(process.pid, process.parent)]
        return there if len(there) > 1 else []

    async def _victim(self) -> int:
        """One of them, some time after they are there: else each would die with the first job it has started."""
        while True:
            await self._until(self._victims)
            await asyncio.sleep(self._rng.uniform(*GAP_S))
            if victims := self._victims():
                return self._rng.choice(victims)

    async def _kill(self, fault: str) -> None:
        if fault == "kill worker":
            await asyncio.gather(*self._pausing)  # else nobody might be left to notice
        victim = await self._victim()
        parent = self._tail.ready[victim].parent
        if fault == "kill worker" and len(self._others_at_work(parent)) > 0:
            pids = [parent, *self._crew.children_of(parent)]
        else:
            fault, pids = "kill child", [victim]
        self._ledger.note("NEMESIS", step="start", how=fault, pids=tuple(pids), parent=parent)
        process = self._crew.forget_worker(parent) if fault == "kill worker" else None
        self._crew.send(pids, signal.SIGKILL)
        for pid in pids:
            self._tail.ready.pop(pid, None)
        if process is not None:
            await process.wait()
            self._crew.bury(process)
            await self._crew.start_worker()
        else:
            await self._crew.until_dead(victim)
        self._ledger.note("NEMESIS", step="stop", how=fault, pids=tuple(pids), parent=parent)
        self.counts["kills"] += 1

    def _others_at_work(self, parent: int) -> list[int]:
        return [process.pid for process in self._tail.at_work(self._awake() - {parent})]

    async def _kill_producer(self) -> None:
        pid = await self._producers.kill(self._ledger, self._rng.uniform(0, STORING_S))
        self._ledger.note("NEMESIS", step="stop", how="kill producer", pids=(pid,))
        self.counts["kills"] += 1

    # --- pauses and outages ----------------------------------------------------------------------------------------------

    async def _pause(self, fault: str) -> None:
        """Stops a worker with all its children, its parent alone, or one child, for longer than a lease."""
        await asyncio.gather(*self._pausing)  # one at a time, so that somebody is left to take over
        while True:
            victim = await self._victim()
            parent = self._tail.ready[victim].parent
            if self._others_at_work(parent):
                break
            await self._until(partial(self._is_not_alone, parent))
        pids = {"pause worker": [parent, *self._crew.children_of(parent)], "pause parent": [parent], "pause child": [victim]}[fault]
        at = mono_us()
        lock = None if self._file is None else Path(f"{self._file}-lock")
        if not await self._crew.stop_at_rest(pids, lock):
            raise Stuck("a process always holds the file lock")
        self._ledger.note("NEMESIS", at=at, step="start", how=fault, pids=tuple(pids), parent=parent)
        self.counts["pauses"] += 1
        self._pausing = {asyncio.create_task(self._resume(fault, pids, parent))}

    async def _resume(self, fault: str, pids: list[int], parent: int) -> None:
        await asyncio.sleep(self._plan.lease_s * self._rng.uniform(*PAUSE_LEASES))
        self._crew.go_on(pids)
        self._ledger.note("NEMESIS", step="stop", how=fault, pids=tuple(pids), parent=parent)

    async def _restart(self) -> None:
        """The store goes away and comes back; now and then a child dies in the same moment."""
        await asyncio.gather(*self._pausing)
        if self._victims() and self._rng.random() < 0.5:
            await self._kill("kill child")
            self.counts["kills"] -= 1  # it is not one of those that were asked for
        if self._plan.restart_command:
            self._ledger.note("NEMESIS", step="start", how="restart")
            process = await self._crew.start_command(*self._plan.restart_command)
            if await process.wait():
                raise Stuck(f"the restart command ended with {process.returncode}")
        else:
            await self._lock()
        self._ledger.note("NEMESIS", step="stop", how="restart")
        self.counts["restarts"] += 1

    async def _cut(self) -> None:
        """Every connection to the store breaks, whatever is on its way there or back."""
        assert self.wires is not None
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._cut_s + CALM_S + self._plan.slack_s - loop.time())
        await self._victim()
        self._ledger.note("NEMESIS", step="start", how="reset")
        self.counts["cut_connections"] += self.wires.cut()
        self._ledger.note("NEMESIS", step="stop", how="reset")
        self._cut_s = loop.time()
        self.counts["cuts"] += 1

    async def _lock(self) -> None:
        """A foreign program holds the file's lock. The outage begins when it has it, not while it waits for it."""
        assert self._file is not None
        process = await self._crew.start_holder(self._file, self._plan.restart_s)
        assert process.stdout is not None
        word, _, at = (await process.stdout.readline()).decode().partition(" ")
        if word == "held":
            self._ledger.note("NEMESIS", at=int(at), step="start", how="restart")
        if await process.wait() or word != "held":
            raise Stuck(f"the program that was to lock the file ended with {process.returncode}")
