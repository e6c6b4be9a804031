"""The supervisor: keeps N children running, renews their leases, ends what does not stop, and settles what the dead have left.

It runs no jobs itself, so nothing a handler does can hold it up. What it knows of its children they have told over their links; what they
held when they died it settles at once (deaths.py). Stopping is passed on: children finish within their grace time, and their leases
are renewed until the last of them has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec

from mulligan.core.change import Grip
from mulligan.core.errors import StoreError
from mulligan.worker.cells import monotonic_us
from mulligan.worker.child import Child, how_it_ended, reap_strangers, resident_mb
from mulligan.worker.deaths import Deaths, losses_of, still_held
from mulligan.worker.equipment import Equipment
from mulligan.worker.keeper import BEAT_MAX_S, RENEWALS_PER_LEASE, RETRY_S
from mulligan.worker.link import Holding
from mulligan.worker.policies import Policies
from mulligan.worker.restarts import Restarts
from mulligan.worker.settings import WorkerSettings, worker_name
from mulligan.worker.solo_line import SoloLine
from mulligan.worker.supervisor_settings import SupervisorSettings
from mulligan.worker.sweeper import Sweeper

log = logging.getLogger("mulligan.supervisor")
WATCH_S = 0.2  # between two looks at time-outs
WEIGH_EVERY = 5  # looks between two of memory
FIRST_REPORT_S = 0.5  # for a new child to say what it is, before its leases are renewed without that
STOP_MARGIN_S = 4.0  # for handlers to obey, beyond the grace time, before their process is ended
FLUSH_MARGIN_S = 20.0  # for a child in which nothing runs any more to write its last outcomes
BURIAL_MAX_S = 10.0  # for the jobs of the dead to be settled at the end, if the store does not answer
HASTE_S = 2.0  # the same after the third signal
SPREAD = 0.1  # by how much the limits of children differ, so that they are not replaced all at once
SILENT_S, SILENT_LEASES = 60.0, 3  # a child in which nothing runs, and that says nothing for so long, hangs
PAUSED_S = 2.0  # between two looks: no machine is so busy, so this process was stopped
SPARED_S = 30.0  # how long a child is left alone if its successor did not start
SOLO_PLACE = 0
USAGE = 2  # the exit code of a child that would say the same again


class Supervisor:
    """Starting → running → stopping. `run` is all of it; `stop` is told of each signal."""

    def __init__(
        self,
        equipment: Equipment,
        worker: WorkerSettings,
        settings: SupervisorSettings,
        command: Sequence[str],
        solo_command: Sequence[str],
    ) -> None:
        self._kit = equipment
        self._store = equipment.store
        self._worker = worker
        self._settings = settings
        self._command = command
        self._solo_command = solo_command
        self._children: set[Child] = set()
        self._burials: set[asyncio.Task[None]] = set()
        self._recycling: Child | None = None  # the one that is being replaced: one at a time
        self._spared_until: dict[int, float] = {}  # by place
        self._limits: dict[Child, float] = {}  # each child's share of its limits
        self._silent_s = max(SILENT_S, SILENT_LEASES * worker.lease)
        self._signals = 0
        self._looks = 0
        self._solo_task: asyncio.Task[None] | None = None
        self._code = 0
        self.stopping = asyncio.Event()
        policies = Policies(equipment.registry, equipment.queues, equipment.policy)
        self._deaths = Deaths(self._store, policies, equipment.bus, equipment.rng)
        self._sweeper = Sweeper(self._store, policies, equipment.bus, equipment.rng, worker_name("supervisor"))
        self._solo = SoloLine(
            self._store, self._deaths, self._begin_solo, lambda child: self._retire(child, "nothing is left to run alone")
        )

    @property
    def children_up(self) -> int:
        """Children that claim jobs now."""
        return sum(child.is_up and child.place != SOLO_PLACE for child in self._children)

    @property
    def jobs_held(self) -> int:
        """Jobs in the hands of all children, and in the line of those that run alone."""
        return sum(len(child.held) for child in self._children) + len(self._solo)

    async def run(self) -> int:
        """Keeps the children running until told to stop; the exit code: that of children that cannot run, 1 if one did not end cleanly."""
        self._solo_task = asyncio.create_task(self._solo.run())
        side = [self._solo_task, *(asyncio.create_task(loop) for loop in (self._watch(), self._renew_line(), self._sweep()))]
        for task in side:
            task.add_done_callback(self._on_side_end)
        try:
            await asyncio.gather(*(self._keep(place) for place in range(1, self._settings.processes + 1)))
            await asyncio.gather(*(child.ended for child in self._children))  # the solo child, and those being replaced
            await self._finish()
        finally:
            for task in side:
                task.cancel()
            await asyncio.gather(*side, return_exceptions=True)
            for child in self._children:
                child.kill()
        return self._code

    def _on_side_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            log.critical("a loop of the supervisor died; stopping", exc_info=task.exception())
            self._code = 1
            self.stop()

    async def _finish(self) -> None:
        """Settles what is left, as long as there is hope."""
        asyncio.get_running_loop().call_later(BURIAL_MAX_S, self._deaths.give_up.set)
        await self._solo.close()
        while self._burials:
            await asyncio.gather(*self._burials)

    # --- places ----------------------------------------------------------------------------------------------------------

    async def _keep(self, place: int) -> None:
        """Keeps a child in one place, again and again."""
        loop = asyncio.get_running_loop()
        restarts = Restarts()
        while not self.stopping.is_set():
            try:
                child = await self._serve(self._begin(place))
            except OSError as error:  # no memory, or no number, for another process
                log.error("worker process %d cannot be started: %s", place, error)
                await self._sleep(restarts.pause_s(0.0, 0))
                continue
            code = child.ended.result()
            if self.stopping.is_set():
                return
            if code == USAGE and not child.name:
                self._code = code
                self.stop()
                return
            pause_s = restarts.pause_s(loop.time() - child.started_s, child.finished)
            when = f"in {pause_s:g} s" if pause_s else "at once"
            log.error("worker process %d ended with %s; starting another one %s", place, how_it_ended(code), when)
            await self._sleep(pause_s)

    async def _serve(self, child: Child) -> Child:
        """Returns when the child of a place has ended, or the last of those that took its place in turn."""
        while True:
            await _first(child.ended, child.worn.wait())
            if self.stopping.is_set():
                await _first(child.ended)  # nobody takes its place any more
            if child.ended.done():
                return child
            child = await self._replace(child)

    async def _replace(self, child: Child) -> Child:
        """Starts another one first, then lets this one end; the one that has the place now."""
        log.info("worker process %d is replaced: %s", child.place, child.worn_why)
        try:
            successor = self._begin(child.place)
            await _first(successor.is_ready, child.ended)
            is_up = successor.is_up or child.ended.done()
        except OSError:
            is_up = False
        if self.stopping.is_set():
            return child
        if not is_up:
            log.error("the process that was to replace worker process %d did not start; the old one goes on", child.place)
            self._spared_until[child.place] = self._loop_time() + SPARED_S
            child.worn.clear()
            self._recycling = None
            return child
        self._retire(child, child.worn_why)
        return successor

    def _begin(self, place: int, command: Sequence[str] = ()) -> Child:
        worker = self._worker
        width = worker.width_on(self._store)
        cells = worker.concurrency + width.ahead + worker.buffer + width.batch
        child = Child(place, command or self._command, cells, self._on_alone)
        self._children.add(child)
        self._limits[child] = 1 - SPREAD * self._kit.rng.random()
        log.info("worker process %d is %d", place, child.pid)
        if self.stopping.is_set():  # told while it was being started
            self._tell_to_end(child)
        renewing = asyncio.create_task(self._renew(child))
        child.ended.add_done_callback(lambda _: self._on_end(child, renewing))
        return child

    def _begin_solo(self) -> Child:
        return self._begin(SOLO_PLACE, self._solo_command)

    def _on_alone(self, child: Child, jobs: list[Holding]) -> None:
        self._solo.add(jobs, child.name)

    def _retire(self, child: Child, reason: str) -> None:
        child.ask_to_stop(reason, self._loop_time() + self._worker.grace + STOP_MARGIN_S)

    def _loop_time(self) -> float:
        return asyncio.get_running_loop().time()

    async def _sleep(self, seconds: float) -> None:
        await _first(self.stopping.wait(), asyncio.sleep(seconds))

    # --- the dead --------------------------------------------------------------------------------------------------------

    def _on_end(self, child: Child, renewing: asyncio.Task[None]) -> None:
        renewing.cancel()
        self._children.discard(child)
        self._limits.pop(child, None)
        if self._recycling is child:
            self._recycling = None
        task = asyncio.create_task(self._bury(child))
        self._burials.add(task)
        task.add_done_callback(self._burials.discard)
        code = child.ended.result()
        if self.stopping.is_set() and not (code in (0, -signal.SIGTERM) or child.was_killed):
            self._code = self._code or 1

    async def _bury(self, child: Child) -> None:
        """Settles what it held."""
        try:
            losses, owner = losses_of(child), child.name
            crashes = sum(loss.kind == "crash" for loss in losses)
            if losses:
                log.warning("process %d left %d jobs: %d are charged a crash, the others are not", child.pid, len(losses), crashes)
            work: list[Coroutine[Any, Any, int]] = [self._deaths.settle(losses, owner)] if losses else []
            if child.claim_id is not None:
                work.append(self._deaths.settle_unheard(child.claim_id, owner, is_patient=not child.is_leaving))
            await asyncio.gather(*work)
            if child.info is not None:  # nobody should count on it any more
                await self._store.renew([], self._worker.lease_us, msgspec.structs.replace(child.info, running=0, stopped=True))
        except StoreError as error:
            log.warning("could not sign off process %d: %s", child.pid, error)
        except Exception:
            log.exception("the jobs of a dead process could not be settled; they go back when their leases run out")
        finally:
            child.close()

    # --- leases ----------------------------------------------------------------------------------------------------------

    async def _renew(self, child: Child) -> None:
        """Renews what a child holds, from its first word to its end, whatever its loop does."""
        await asyncio.wait({child.is_ready})
        await _first(child.reported.wait(), asyncio.sleep(FIRST_REPORT_S))  # so that the fleet sees it at once
        while True:
            pause_s = min(self._worker.lease / RENEWALS_PER_LEASE, BEAT_MAX_S)
            try:
                until_us = monotonic_us() + self._worker.lease_us
                renewals = await self._store.renew(child.grips(), self._worker.lease_us, child.info)
                child.renewed(renewals, until_us)
                if monotonic_us() >= until_us:  # after an outage: the answer is too old to count on, and the child waits for a new one
                    pause_s = 0.0
                told = [renewal for renewal in renewals if not renewal.held or renewal.cancel_requested]
                if told and not child.ended.done():
                    child.tell(told)
            except StoreError as error:
                log.warning("renewing leases failed, trying again: %s", error)
                pause_s = min(RETRY_S, pause_s)
            except Exception:
                log.exception("renewing leases failed, trying again")
                pause_s = min(RETRY_S, pause_s)
            if (claim_id := child.claim_since(self._loop_time() - pause_s)) is not None:
                await self._renew_unheard(child, claim_id)
            await asyncio.sleep(pause_s)

    async def _renew_unheard(self, child: Child, claim_id: str) -> None:
        """What a claim has brought whose answer lies unread, because something blocks the child's loop, must not lapse meanwhile."""
        try:
            jobs = await still_held(self._store, claim_id, child.name, self._worker.lease_us)
            if jobs:
                await self._store.renew([Grip(job.id, job.fence) for job in jobs], self._worker.lease_us)
        except Exception as error:  # noqa: BLE001 - it is looked for again, and what the child is known to hold comes first
            log.warning("renewing the leases of a claim that nobody has read failed, trying again: %s", error)

    async def _renew_line(self) -> None:
        """The same for those that wait to run alone. What is lost or cancelled shows when it is to start."""
        while True:
            if grips := self._solo.grips():
                try:
                    await self._store.renew(grips, self._worker.lease_us)
                except Exception as error:  # noqa: BLE001 - whatever it is, the jobs that wait must not cost the whole fleet
                    log.warning("renewing leases failed, trying again: %s", error)
            await asyncio.sleep(min(self._worker.lease / RENEWALS_PER_LEASE, BEAT_MAX_S))

    async def _sweep(self) -> None:
        """Looks for the lapsed leases of others as its children do; but it can when all of them are blocked, or have just died."""
        while True:
            try:
                await self._sweeper.sweep()
            except Exception as error:  # noqa: BLE001 - likewise
                log.warning("looking for lapsed leases failed, trying again: %s", error)
            await asyncio.sleep(self._worker.sweep * self._kit.rng.uniform(0.9, 1.0))

    # --- time-outs, limits and the end -------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        looked_s = self._loop_time()
        while True:
            now_s = self._loop_time()
            was_paused, looked_s = now_s - looked_s > PAUSED_S, now_s
            alone_until_us = self._solo.open_until_us()
            for child in list(self._children):
                child.cells.set_alone(alone_until_us)
                child.hear()
                if was_paused:  # this process itself was stopped: nobody was silent
                    child.heard_s = now_s
                if not child.ended.done():
                    self._look_at_safely(child)
            self._looks += 1
            if os.getpid() == 1:
                reap_strangers({child.pid for child in self._children})
            await asyncio.sleep(min(WATCH_S, self._settings.kill_after / 2))

    def _look_at_safely(self, child: Child) -> None:
        try:
            self._look_at(child)
        except Exception:  # without this loop nobody would end what does not stop
            log.exception("looking at worker process %d failed", child.pid)

    def _look_at(self, child: Child) -> None:
        now_us, now_s, kill_after_us = monotonic_us(), self._loop_time(), round(self._settings.kill_after * 1_000_000)
        late = child.overdue(now_us, kill_after_us)
        if late:
            log.error("job %s does not stop; ending its process %d", late[0].job_id, child.pid)
            child.kill(late)
        elif child.stop_by_s is not None:
            if now_s > child.stop_by_s + FLUSH_MARGIN_S or (now_s > child.stop_by_s and child.running()):
                log.error("worker process %d does not end; killing it", child.pid)
                child.kill()
        elif child.name and now_s - child.heard_s > self._silent_s and not child.running():
            log.error("worker process %d has said nothing for %.0f s and runs nothing; killing it", child.pid, now_s - child.heard_s)
            child.kill()
        elif self._recycling is None and child.is_up and now_s > self._spared_until.get(child.place, 0.0):
            # Half of its time is for the other jobs there: no more of them come, and some may finish.
            why = "a job does not stop" if child.overdue(now_us, kill_after_us // 2) else self._is_worn(child)
            if why and child.place != SOLO_PLACE:
                self._recycling = child
                child.worn_why = why
                child.worn.set()

    def _is_worn(self, child: Child) -> str:
        settings, share = self._settings, self._limits.get(child, 1.0)
        if settings.max_jobs is not None and child.finished >= max(1, int(settings.max_jobs * share)):
            return f"it has finished {child.finished} jobs"
        if settings.max_memory is not None and self._looks % WEIGH_EVERY == 0:
            size_mb = resident_mb(child.pid)
            if size_mb is not None and size_mb > settings.max_memory * share:
                return f"it has grown to {size_mb:.0f} MiB"
        return ""

    def stop(self) -> None:
        """The first time: children finish within their grace time. The second time: they are hurried. The third time: they are killed."""
        self._signals += 1
        self.stopping.set()
        if self._solo_task is not None:  # what it feeds is among what its child holds; what waits is given back in the end
            self._solo_task.cancel()
        if self._signals > 2:
            asyncio.get_running_loop().call_later(HASTE_S, self._deaths.give_up.set)
        if self._signals == 2:
            log.warning("told to stop again: what still runs is stopped and given back now")
        elif self._signals == 3:
            log.error("told to stop a third time: ending the processes; what they held is given back")
        for child in self._children:
            self._tell_to_end(child)

    def _tell_to_end(self, child: Child) -> None:
        if self._signals > 2:
            child.kill()
            return
        hurry = self._signals == 2
        grace_s = 0.0 if hurry else self._worker.grace
        child.ask_to_stop("the supervisor was told to", self._loop_time() + grace_s + STOP_MARGIN_S, hurry=hurry)


async def _first(*waits: Any) -> None:
    """Waits for the first of these; what is left of coroutines is cancelled, futures are left alone."""
    tasks = {wait if isinstance(wait, asyncio.Future) else asyncio.ensure_future(wait): wait for wait in waits}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task, wait in tasks.items():
            if task is not wait:
                task.cancel()
