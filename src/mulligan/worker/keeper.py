"""The keeper: renews every lease this process holds, one call each third of the lease, until the verdicts have come.

What comes back with a renewal is passed on: a lease that is another's now stops its run, and so does a cancel that waits.
It runs in a thread with a loop of its own, so that a handler that blocks the main loop keeps its job. It cannot help against
a handler that holds the GIL.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence

from mulligan.core.contract import Renewal, Store, WorkerInfo
from mulligan.core.errors import StoreError
from mulligan.worker.run import SURE_OF_LEASE, Holdings

log = logging.getLogger("mulligan.keeper")
RENEWALS_PER_LEASE = 3
BEAT_MAX_S = 10.0  # a worker reports itself at least this often, however long its leases are
RETRY_S = 0.25


class Keeper:
    """The loop of renewals; `answers` is called with what the store said."""

    def __init__(
        self,
        store: Store,
        holdings: Holdings,
        lease_s: float,
        describe: Callable[[], WorkerInfo],
        answers: Callable[[Sequence[Renewal]], None],
        ended: Callable[[], bool] = lambda: False,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._holdings = holdings
        self._lease_us = round(lease_s * 1_000_000)
        self._pause_s = min(lease_s / RENEWALS_PER_LEASE, BEAT_MAX_S)
        self._describe = describe
        self._answers = answers
        self._now_s = now_s  # the clock of the loop it keeps leases for
        self._sure_s = lease_s * SURE_OF_LEASE
        self._ended = ended  # whether the loop it keeps leases for is closed: then nobody works on them any more

    async def run(self) -> None:
        """The loop; ends by cancellation, or with the worker's loop. Begins with a beat, so that a new worker is seen at once."""
        while not self._ended():
            pause_s = self._pause_s
            try:
                await self.renew()
            except StoreError as error:
                log.warning("renewing leases failed, trying again: %s", error)
                pause_s = min(RETRY_S, pause_s)
            except Exception:
                # Without renewals every job here would be run twice: no error is worth that.
                log.exception("renewing leases failed, trying again")
                pause_s = min(RETRY_S, pause_s)
            await asyncio.sleep(pause_s)

    async def renew(self) -> None:
        """One round."""
        until_s = self._now_s() + self._sure_s
        renewals = await self._store.renew(self._holdings.grips(), self._lease_us, self._describe())
        for renewal in renewals:
            run = self._holdings.find(renewal.job_id, renewal.fence) if renewal.held else None
            if run is not None:
                run.held_until_s = until_s
        told = [renewal for renewal in renewals if not renewal.held or renewal.cancel_requested]
        if told:
            self._answers(told)


class KeeperThread:
    """Runs a keeper in a daemon thread with an event loop of its own."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._main, name="mulligan-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._started.wait()

    def _main(self) -> None:
        asyncio.run(self._supervise())

    async def _supervise(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._keeper.run())
        self._started.set()
        try:
            await self._task
        except asyncio.CancelledError:
            pass
        except Exception:
            log.exception("the keeper died; leases are no longer renewed")

    async def stop(self) -> None:
        """Ends the thread and waits for it."""
        if self._loop is not None and self._task is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
