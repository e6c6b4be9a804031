"""One worker process: start, wait for a signal, stop cleanly. The first signal stops gently, the second hurries, the third ends at once.

Under a supervisor only the first one counts: it is the supervisor that hurries and kills.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from mulligan.cli.exits import NO, OK
from mulligan.cli.health import Health, HealthOptions
from mulligan.core.clock import system_rng
from mulligan.core.errors import MulliganError, StoreUnavailable

if TYPE_CHECKING:
    from mulligan.app import Mulligan
    from mulligan.worker.child_link import ChildLink
    from mulligan.worker.worker import Worker

log = logging.getLogger("mulligan.worker")
SIGNALS = (signal.SIGTERM, signal.SIGINT)
TASKS_SHOWN = 50
HANDLER_THREADS = "mulligan-handler"  # how the worker names the threads of sync handlers
IDLE_THREAD_ENDS_S = 0.2
OPEN_WAIT_MIN_S, OPEN_WAIT_MAX_S = 0.1, 3.0  # below the promise to work within five seconds of the store's return
ORPHAN_MAX_S = 15.0  # for a child to end after its supervisor, if its loop does not turn
EXIT_MAX_S = 10.0  # for threads the app has started by itself, and for what it does at exit


async def serve(app: Mulligan, settings: dict[str, Any], *, as_json: bool, health: HealthOptions, link: ChildLink | None = None) -> int:
    """Runs a worker until it is told to stop, or one of its loops has died; the exit code."""
    worker = app.worker(**settings)
    stop = Stop(worker, asyncio.get_running_loop())
    worker.link = link
    stop.listen(link)
    code = OK
    async with Health(health, app.store, stop.told, lambda: (int(worker.is_running), worker.jobs_held)):
        if not await store_answers(app, stop.told):
            return OK
        code = await work(app, worker, stop.told, as_json=as_json)
    log.info("stopped")
    if stop.is_orphan:
        end_with_group()
    if link is not None:
        link.leaving()
    let_nothing_linger(code)
    return code


async def work(app: Mulligan, worker: Worker, told: asyncio.Event, *, as_json: bool) -> int:
    """Runs the worker on its open app; the exit code."""
    code = OK
    async with app:
        try:
            await worker.start()
            announce(app, worker, as_json=as_json)
            if await died_before(worker, told):
                code = NO
            log.info("stopping: no more jobs are claimed, those that run have %g s to finish", worker.settings.grace)
            await worker.stop()
        except MulliganError:
            raise
        except Exception:
            log.exception("a start-up or shutdown hook of the app failed")
            code = NO
    return code


async def store_answers(app: Mulligan, told: asyncio.Event) -> bool:
    """Opens the app, however long its store takes to come up; False if told to stop before."""
    rng, wait_s = system_rng(), OPEN_WAIT_MIN_S
    while not told.is_set():
        try:
            await app.open()
        except StoreUnavailable as problem:
            log.warning("the store does not answer, trying again: %s", problem)
        else:
            return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(told.wait(), rng.uniform(OPEN_WAIT_MIN_S, wait_s))
        wait_s = min(OPEN_WAIT_MAX_S, wait_s * 2)
    return False


async def died_before(worker: Worker, told: asyncio.Event) -> bool:
    """Waits until the worker is told to stop; True if one of its loops has died first."""
    waits = [asyncio.ensure_future(worker.wait_dead()), asyncio.ensure_future(told.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    died = waits[0].done()
    for wait in waits:
        wait.cancel()
    return died


class Stop:
    """How a worker process is told to stop: by signals, or by the end of the process that started it."""

    def __init__(self, worker: Worker, loop: asyncio.AbstractEventLoop) -> None:
        self.told = asyncio.Event()
        self.is_orphan = False
        self._worker = worker
        self._loop = loop
        self._count = 0
        self._is_supervised = False

    def listen(self, link: ChildLink | None) -> None:
        """Takes over the signals; with a `link`, what the supervisor says, and its end."""
        for number in SIGNALS:
            self._loop.add_signal_handler(number, self._on_signal, number)
        if link is not None:
            self._is_supervised = True
            link.on_stop = self._on_told
            link.on_gone = self._on_parent_gone
            link.listen()
            link.end_with_parent(ORPHAN_MAX_S, kill_group)

    def _on_signal(self, number: int) -> None:
        self._count += 1
        if self._count == 1 or self._is_supervised:
            self.told.set()  # who ends a whole service sends a signal to all of its processes; the supervisor has got it too
        elif self._count == 2:
            self._hurry()
        else:
            log.error("told to stop a third time: ending at once; what was held goes back when its lease runs out")
            end_at_once(128 + number)

    def _hurry(self) -> None:
        log.warning("told to stop again: what still runs is stopped and given back now")
        self._worker.hurry()

    def _on_told(self, reason: str, hurry: bool) -> None:
        self.told.set()
        if hurry:
            self._hurry()
        else:
            log.info("stopping, since %s", reason)

    def _on_parent_gone(self) -> None:
        log.error("the process that started this one is gone; stopping")
        self.is_orphan = True
        self.told.set()
        self._worker.hurry()  # nobody renews its leases any more


def announce(app: Mulligan, worker: Worker, *, as_json: bool) -> None:
    """One line that tells what this process serves, then each task with its policy."""
    from mulligan.cli.output import emit_line, say

    queues = worker.queue_names
    tasks = {name: policy.explain() for name, policy in sorted(worker.task_policies().items())}
    if as_json:
        emit_line({
            "worker": worker.name,
            "pid": os.getpid(),
            "store": app.store.url,
            "queues": queues,
            "concurrency": worker.settings.concurrency,
            "tasks": tasks,
        })  # fmt: skip
    else:
        names = f"{len(tasks)} task{'' if len(tasks) == 1 else 's'}"
        say(f"worker {worker.name}: store {app.store.url}, queues {', '.join(queues)}, {names}, concurrency {worker.settings.concurrency}")
        for name, policy in list(tasks.items())[:TASKS_SHOWN]:
            say(f"  {name}: {policy}")
        if len(tasks) > TASKS_SHOWN:
            say(f"  and {len(tasks) - TASKS_SHOWN} more")
    sys.stdout.flush()
    if not tasks:
        log.warning("this app has no tasks: is the module that defines them imported by the one that makes the app?")


def let_nothing_linger(code: int) -> None:
    """Makes sure that the process ends: the interpreter would wait for ever for a thread that does not obey."""
    for thread in threading.enumerate():
        if thread.name.startswith(HANDLER_THREADS):
            thread.join(timeout=IDLE_THREAD_ENDS_S)
            if thread.is_alive():
                log.warning("a handler still runs in a thread; ending the process with it, its job goes back when its lease runs out")
                end_at_once(code)
    last_resort = threading.Timer(EXIT_MAX_S, end_at_once, [code])
    last_resort.daemon = True
    last_resort.start()


def end_with_group() -> None:
    """Ends the process of a child whose supervisor is gone, and what its handlers have left behind, as the supervisor would have done."""
    flush_output()
    kill_group()


def kill_group() -> None:
    """The same without a last word, since writing one could hang where the loop hangs."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(NO)


def end_at_once(code: int) -> None:
    """Ends the process without waiting for anything but what is already written."""
    flush_output()
    os._exit(code)


def flush_output() -> None:
    """Writes what is still to be written."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a handler may have closed it
            stream.flush()
