"""The committer: writes outcomes in batches and tells the world what became of them.

Batches form by themselves: what gathers while one write is under way is the next batch. A slot is free as soon as the
committer has accepted its change; the lease is renewed until the verdict has come. When the buffer is full, executors wait,
so no slots free up, so nothing more is claimed.

A store error here is never the handler's fault. A retryable one repeats the same batch under the same settle ids. Any other
one halves the batch until the culprit stands alone; that one is settled as failed, "unstorable", and the rest is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from mulligan.core.change import Change, Verdict
from mulligan.core.contract import Near
from mulligan.core.errors import StoreError
from mulligan.core.events import events_of, row_of
from mulligan.observe.bus import EventBus
from mulligan.worker.health import StoreHealth
from mulligan.worker.run import Run

log = logging.getLogger("mulligan.committer")
Pair = tuple[Change, Run]


class Committer:
    """One loop; `submit` feeds it, `settled` hears of every verdict, `written` of every batch."""

    def __init__(
        self,
        near: Near,
        bus: EventBus,
        health: StoreHealth,
        *,
        batch_max: int,
        buffer_max: int,
        settled: Callable[[Run, Change, Verdict | None], None],
        written: Callable[[], None],
        unstorable: Callable[[Run, str], Change],
    ) -> None:
        self._near = near
        self._bus = bus
        self._health = health
        self._batch_max = batch_max
        self._buffer_max = buffer_max
        self._settled = settled
        self._written = written
        self._unstorable = unstorable
        self._buffer: deque[Pair] = deque()
        self._writing = 0  # outcomes of the batch that is under way
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Future[None] | None = None
        self._room: deque[asyncio.Future[None]] = deque()
        self._idle_waiters: list[asyncio.Future[None]] = []

    @property
    def ending(self) -> bool:
        """Whether its loop has been cancelled or has ended: nothing more will be written."""
        return self._task is not None and (self._task.done() or self._task.cancelling() > 0)

    @property
    def unwritten(self) -> int:
        """Outcomes that were accepted and have no verdict yet: in the store their jobs still run."""
        return len(self._buffer) + self._writing

    def offer(self, change: Change, run: Run) -> bool:
        """Accepts the change if there is room."""
        if len(self._buffer) >= self._buffer_max:
            return False
        self._buffer.append((change, run))
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
        return True

    async def submit(self, change: Change, run: Run) -> None:
        """Accepts the change, waiting for room."""
        while not self.offer(change, run):
            waiter = asyncio.get_running_loop().create_future()
            self._room.append(waiter)
            await waiter

    async def flush(self) -> None:
        """Returns when everything accepted so far has its verdict."""
        while self._buffer or self._writing:
            waiter = asyncio.get_running_loop().create_future()
            self._idle_waiters.append(waiter)
            await waiter

    async def run(self) -> None:
        """The loop; ends only by cancellation, after `flush`."""
        self._task = asyncio.current_task()
        while True:
            if not self._buffer:
                self._wake = asyncio.get_running_loop().create_future()
                await self._wake
            batch = self._next_batch()
            self._make_room(len(batch))
            self._writing = len(batch)
            try:
                await self._write(batch)
            finally:
                self._writing = 0
                if not self._buffer:
                    self._tell_idle()

    def _next_batch(self) -> list[Pair]:
        if len(self._buffer) > self._batch_max:
            return [self._buffer.popleft() for _ in range(self._batch_max)]
        batch = list(self._buffer)
        self._buffer.clear()
        return batch

    def _make_room(self, places: int) -> None:
        for _ in range(min(places, len(self._room))):
            waiter = self._room.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _tell_idle(self) -> None:
        waiters, self._idle_waiters = self._idle_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _write(self, batch: Sequence[Pair]) -> None:
        """Writes a batch whole, or in halves where the store refuses it."""
        while True:
            try:
                verdicts = await self._near.settle([change for change, _ in batch])
            except StoreError as error:
                if error.retryable:
                    await self._health.failed(error)
                    continue
                await self._write_halves(batch, error)
                return
            except Exception as error:  # noqa: BLE001 - a driver's own error, such as a value it cannot encode
                await self._write_halves(batch, error)
                return
            self._health.ok()
            self._publish(batch, verdicts)
            return

    async def _write_halves(self, batch: Sequence[Pair], error: Exception) -> None:
        if len(batch) > 1:
            middle = len(batch) // 2
            await self._write(batch[:middle])
            await self._write(batch[middle:])
            return
        [(change, run)] = batch
        if change.cause == "unstorable":
            # Even the plain record is refused. The lease will lapse and a sweeper decides: the job is not lost.
            log.error("the outcome of job %s cannot be written, nor that it cannot: %s", change.job_id, error)
            self._settled(run, change, None)
            self._written()
            return
        log.error("the outcome of job %s cannot be stored: %s", change.job_id, error)
        await self._write([(self._unstorable(run, str(error)), run)])

    def _publish(self, batch: Sequence[Pair], verdicts: Sequence[Verdict]) -> None:
        rows = []
        for (change, run), verdict in zip(batch, verdicts, strict=True):
            self._settled(run, change, verdict)
            row = row_of(change, verdict)
            if row is not None:
                rows.append(row)
        if len(rows) == len(batch):
            self._bus.publish_rows(rows)
        else:
            pairs = zip(batch, verdicts, strict=True)
            self._bus.publish([event for (change, _), verdict in pairs for event in events_of(change, verdict)])
        self._written()
