"""One claimer: `python -m benchmarks.claimers.claimer URL FILE`. Says when it is ready, begins when it is told to, and claims and settles
until nothing is left. What it did stands in the file, as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from mulligan.core.contract import Ask, Near
from mulligan.core.errors import StoreError
from mulligan.core.job import LANES, PRIORITIES
from mulligan.stores import open_store
from tests.builders import ask, done, fresh_id, us

QUEUE = "q"
TOTAL = 100  # jobs of one claim
LEASE_S = 60
PAUSE_S = 0.02  # as a worker does when a claim brought nothing although something is due


def asks(total: int = TOTAL) -> list[Ask]:
    """Both lanes and all priorities, as a worker asks."""
    places = [(lane, priority) for lane in LANES for priority in PRIORITIES]
    return [ask(QUEUE, lane, priority=priority, guaranteed=-(-total // len(places))) for lane, priority in places]


class Claimer:
    """The loop, and its records. Times are those of the machine's steady clock, so that claimers can be compared."""

    def __init__(self, near: Near) -> None:
        self._near = near
        self._asks = asks()
        self.claims: list[tuple[float, float, int]] = []  # began, ended, jobs
        self.ids: list[str] = []
        self.settles: list[tuple[float, float]] = []  # began, ended
        self.refused = 0
        self.errors = 0  # calls that the store answered with an error which may pass

    async def run(self) -> None:
        """Until the queue has nothing more."""
        while True:
            claim_id, began = fresh_id(), time.perf_counter()
            claimed = None
            while claimed is None:
                try:
                    claimed = await self._near.claim(claim_id, claim_id, self._asks, TOTAL, us(LEASE_S))
                except StoreError as problem:
                    self._note(problem)
            ended = time.perf_counter()
            self.claims.append((began, ended, len(claimed.jobs)))
            self.ids += [job.id for job in claimed.jobs]
            if claimed.jobs:
                changes = [done(job) for job in claimed.jobs]
                began = time.perf_counter()
                verdicts = None
                while verdicts is None:
                    try:
                        verdicts = await self._near.settle(changes)
                    except StoreError as problem:
                        self._note(problem)
                self.settles.append((began, time.perf_counter()))
                self.refused += sum(not verdict.applied for verdict in verdicts)
            elif claimed.next_due_us is None:
                return
            else:
                await asyncio.sleep(PAUSE_S)

    def _note(self, problem: StoreError) -> None:
        if not problem.retryable:
            raise problem
        self.errors += 1


async def main(url: str) -> dict[str, Any]:
    """Opens, waits for the sign and claims; what happened."""
    store = open_store(url)
    await store.open()
    near = await store.near()
    try:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        claimer = Claimer(near or store)
        await claimer.run()
        return {name: getattr(claimer, name) for name in ("claims", "ids", "settles", "refused", "errors")}
    finally:
        if near is not None:
            await near.close()
        await store.close()


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(asyncio.run(main(sys.argv[1]))), "utf-8")
