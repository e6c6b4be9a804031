"""The pruner: removes finished jobs that are older than their retention, a bounded number at a time."""

from __future__ import annotations

from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Store
from mulligan.core.job import Status
from mulligan.worker.settings import WorkerSettings

PRUNE_BATCH_MAX = 1_000
PRUNE_EVERY_S = 60.0
PRUNE_LEAST_S = 1.0


class Pruner:
    """`prune` is one pass; the worker repeats it."""

    def __init__(self, store: Store, settings: WorkerSettings) -> None:
        self._store = store
        kept: list[tuple[Status, float | None]] = [
            ("done", settings.keep_done),
            ("failed", settings.keep_failed),
            ("cancelled", settings.keep_cancelled),
        ]
        self._ages_us: list[tuple[Status, int]] = [(status, round(keep * SECOND_US)) for status, keep in kept if keep is not None]
        shortest_s = min((keep for _, keep in kept if keep is not None), default=PRUNE_EVERY_S)
        # Half of a short retention, so that at most half as much again is kept as was asked for.
        self.every_s = min(max(shortest_s / 2, PRUNE_LEAST_S), PRUNE_EVERY_S)

    async def prune(self) -> int:
        """Removes what is too old; returns how many jobs went."""
        removed = 0
        for status, age_us in self._ages_us:
            while True:
                count = await self._store.prune(status, age_us, PRUNE_BATCH_MAX)
                removed += count
                if count < PRUNE_BATCH_MAX:
                    break
        return removed
