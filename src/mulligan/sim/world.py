"""World: several real workers, producers and operators over one memory store on one virtual loop, with everything that may go wrong.

First faults strike for a while; then all is calm, and everything has to come to rest and be right.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import msgspec

from mulligan.core.clock import SECOND_US
from mulligan.core.errors import StoreError
from mulligan.observe.bus import EventBus
from mulligan.policy.queues import Queue
from mulligan.sim.handlers import Handlers
from mulligan.sim.network import Link, Network
from mulligan.sim.plan import TASK, Plan, Setup
from mulligan.sim.process import Process, SimLoop, Standstill, inside
from mulligan.sim.watch import Broken, Watch
from mulligan.stores import open_store
from mulligan.worker.equipment import Equipment
from mulligan.worker.registry import Registry, define
from mulligan.worker.settings import WorkerSettings
from mulligan.worker.worker import Worker

START_US = 1_700_000_000 * SECOND_US
REST_MAX_S = 400.0  # for everything to come to rest once all is calm
PROCESSES_MAX = 40


class StepClock:
    """The store's clock: follows the loop, and can be moved."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.offset_us = 0

    def now_us(self) -> int:
        return START_US + self.offset_us + round(self._loop.virtual_s * SECOND_US)


class Result(msgspec.Struct, kw_only=True):
    """What a world came to."""

    setup: Setup
    rule: str = ""  # the invariant that does not hold; empty if all do
    told: str = ""
    trace: list[str] = []  # the last events of the job, or of the world
    digest: str = ""
    jobs: int = 0
    events: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0  # what it took to play it
    faults: dict[str, int] = {}
    checks: dict[str, int] = {}
    ends: dict[str, int] = {}


class World:
    """One seed. `run` plays it through."""

    def __init__(self, setup: Setup) -> None:
        self.plan = Plan(setup)
        self.loop = SimLoop()
        self.clock = StepClock(self.loop)
        self.watch = Watch(self.clock, lambda: self.loop.virtual_s, {numbers.text: numbers for numbers in self.plan.policies})
        self.store = open_store("memory://", clock=self.clock)
        self.watch.rows = self.store._jobs  # type: ignore[attr-defined]  # noqa: SLF001 - whoever watches must see what no call tells
        self.network = Network(self.store, self.watch, self.loop, Random(f"network {setup.seed}"), self.plan.rates)
        self.network.delay_max_s = self.plan.delay_max_s
        self.network.deaf = self.plan.hints_lost
        self.network.slow_sweeps = "sweep" in setup.faults
        self.watch.on_broken = self.on_broken
        self.faults = self.network.faults
        self.faults["deaf"] += self.plan.hints_lost
        self.rng = Random(f"nemesis {setup.seed}")
        self.processes: list[Process] = []
        self.workers: dict[int, Worker] = {}
        self.handlers = Handlers(self)
        self.registry = Registry()
        self.registry.add(define(TASK, self.handlers.work, timeout_us=None))
        self.link = Link(self.network, self.store, None)  # of producers and operators
        self._broken: asyncio.Future[None] | None = None

    # -- Processes ----------------------------------------------------------------------------------------------------

    def begin_process(self, queues: Mapping[str, Queue] | None = None) -> Process:
        """A new process with a worker in it, for all queues or for some."""
        rng = Random(f"clock {self.plan.setup.seed} {len(self.processes)}")
        wrong = "clock" in self.plan.setup.faults and rng.random() < 0.3
        rate, offset_s = (rng.uniform(0.92, 1.1), rng.choice((-3_600.0, 3_600.0))) if wrong else (1.0, 0.0)
        process = Process(len(self.processes), rate, offset_s)
        self.faults["clock"] += wrong
        self.processes.append(process)
        self.watch.note(f"process {process.number} begins")
        process.remains.append(inside(process, self.in_process, self._serve(process, queues or self.plan.queues)))
        return process

    async def _serve(self, process: Process, queues: Mapping[str, Queue]) -> None:
        plan = self.plan
        equipment = Equipment(
            store=Link(self.network, self.store, process),
            registry=self.registry,
            queues=queues,
            policy=None,
            bus=EventBus(ring_max=10),
            rng=Random(f"process {plan.setup.seed} {process.number}"),
            state=None,
        )
        settings = WorkerSettings(
            concurrency=plan.concurrency,
            lease=plan.lease_s,
            poll=plan.poll_s,
            sweep=plan.sweep_s,
            grace=plan.grace_s,
            batch=plan.batch,
            buffer=plan.buffer,
            thread_turn=None,
            gc_every=None,
            keeper_thread=False,
        )
        while not process.stopping:
            worker = Worker(equipment, settings)
            try:
                await worker.start()
            except StoreError:
                await asyncio.sleep(0.2)
                continue
            self.workers[process.number] = worker
            return

    def alive(self) -> list[Process]:
        """Those that run, and have not been told to end."""
        return [process for process in self.processes if process.state == "running" and not process.stopping]

    def crash(self, process: Process) -> None:
        """Kills a process: nothing of it runs any more."""
        if process.state != "dead":
            self.faults["crash"] += 1
            self.watch.note(f"process {process.number} is killed")
            self.loop.kill(process)

    def pause(self, process: Process, seconds: float) -> None:
        """Stops a process for a time."""
        if process.state != "running":
            return
        self.faults["pause"] += 1
        self.watch.note(f"process {process.number} stands still for {seconds:.3f} s")
        process.state = "stopped"
        process.stood_s = self.loop.virtual_s + seconds
        process.disturbed_s = max(process.disturbed_s, process.stood_s)
        self.network.later(seconds, lambda: self.resume(process))

    def resume(self, process: Process) -> None:
        """Lets a stopped process go on."""
        if process.state == "stopped":
            self.watch.note(f"process {process.number} goes on")
            process.stood_s = self.loop.virtual_s
            process.disturbed_s = max(process.disturbed_s, process.stood_s)
            self.loop.go_on(process)

    def end_process(self, process: Process) -> asyncio.Task[None]:
        """Tells a worker to stop, as a signal does."""
        process.stopping = True
        self.watch.note(f"process {process.number} is told to stop")
        task: asyncio.Task[None] = inside(process, self.in_process, self.workers[process.number].stop())
        return task

    def in_process(self, doing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task of the process that is current."""
        return self.loop.create_task(doing)

    def step_clock(self, seconds: float) -> None:
        """Moves the store's clock."""
        self.faults["step"] += 1
        self.clock.offset_us += round(seconds * SECOND_US)
        self.watch.stepped_s = self.loop.virtual_s
        self.watch.note(f"the store's clock is moved by {seconds:.6f} s")

    # -- Playing ------------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        """Plays the seed through, from the first job to the last."""
        with _quiet_log(self):
            try:
                self.loop.run_until_complete(self._main())
            except Broken:
                pass
            except Standstill as still:
                with suppress(Broken):
                    self.watch.fail("L4", str(still))
            result = self._result()  # what is taken apart now is not part of the world any more
            self._end()
        return result

    async def _main(self) -> None:
        from mulligan.sim.liveness import come_to_rest
        from mulligan.sim.nemesis import Nemesis

        self._broken = self.loop.create_future()
        await self.store.open()
        self.nemesis = Nemesis(self)
        body = self.loop.create_task(self._play(come_to_rest))
        await asyncio.wait({body, self._broken}, return_when=asyncio.FIRST_COMPLETED)
        if body.done() and self.watch.broken is None:
            body.result()

    async def _play(self, come_to_rest: Any) -> None:
        for _ in range(self.plan.workers):
            self.begin_process()
        await asyncio.gather(self._produce(), self.nemesis.run())
        await asyncio.sleep(max(0.0, self.plan.setup.span_s - self.loop.virtual_s))
        await come_to_rest(self)

    async def _produce(self) -> None:
        for number, planned in enumerate(self.plan.jobs):
            await asyncio.sleep(max(0.0, planned.at_s - self.loop.virtual_s))
            await self.insist("insert", [self.plan.new_job(planned, number, self.clock.now_us())])

    async def insist(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """A call that is repeated, the same, until the store has answered."""
        while True:
            try:
                return await getattr(self.link, name)(*args, **kwargs)
            except StoreError:
                await asyncio.sleep(0.1)

    def on_broken(self) -> None:
        for process in self.processes:
            process.state = "dead"
        if self._broken is not None and not self._broken.done():
            self._broken.set_result(None)

    def _end(self) -> None:
        if self.watch.broken is None:
            self.watch.broken = Broken("", "over")
        for worker in self.workers.values():
            with suppress(AttributeError):
                worker.executor.take_unstarted()
        self.loop.end(self.processes)

    def _result(self) -> Result:
        watch, broken = self.watch, self.watch.broken
        accounts = [*watch.accounts.values(), *watch.pruned]
        result = Result(setup=self.plan.setup)
        if broken is not None and broken.rule:
            result.rule, result.told = broken.rule, broken.told
            result.trace = list(watch.recent if broken.account is None else broken.account.trace)
            if broken.account is not None:
                result.told = f"job #{broken.account.number}: {broken.told}"
        result.digest = watch.digest()
        result.jobs = len(accounts)
        result.events = sum(watch.events.values())
        result.virtual_s = self.loop.virtual_s
        result.faults, result.checks = dict(self.faults), dict(watch.checks)
        result.ends = dict(Counter(account.status for account in accounts))
        return result


class _Bugs(logging.Handler):
    """What the worker itself calls a bug is one."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.CRITICAL)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        if self._world.watch.broken is None:
            error = record.exc_info[1] if record.exc_info else None
            with suppress(Broken):
                self._world.watch.fail("L4", f"{record.msg}: {type(error).__name__}: {error}")


@contextmanager
def _quiet_log(world: World) -> Iterator[None]:
    """The log of a simulated fleet is nobody's, except for what it calls critical."""
    log = logging.getLogger("mulligan")
    level, propagates, bugs = log.level, log.propagate, _Bugs(world)
    log.setLevel(logging.CRITICAL)
    log.propagate = False
    log.addHandler(bugs)
    try:
        yield
    finally:
        log.setLevel(level)
        log.propagate = propagates
        log.removeHandler(bugs)
