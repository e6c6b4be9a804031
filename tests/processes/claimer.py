"""A process of two that claim by hand and let go at random: `python -m tests.processes.claimer URL LEDGER SEED JOBS`.

Each job is to be claimed three times. Under fences 1 and 2 it is released, failed, left to lapse, or left to lapse and renewed at the last
moment; under fence 3 it is completed. What has lapsed is settled, renewed and released all the same, as a stale worker would.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from mulligan import Lease, Mulligan
from tests.processes.ledger import Ledger
from tests.processes.tasks import POLICY, make_app
from tests.sweeping import sweeper_of

SHORT_S, TINY_S = 0.05, 0.002
FENCE_LAST = 3
CLAIMERS = 2  # in each process


class Claimer:
    """One of the competing processes."""

    def __init__(self, app: Mulligan, ledger: Ledger, rng: random.Random) -> None:
        self._app = app
        self._ledger = ledger
        self._rng = rng
        self._sweeper = sweeper_of(app, rng, "sweeper", policy=POLICY)
        self._lapsed: list[Lease] = []

    async def run(self, jobs: int) -> None:
        """Claims and lets go until all jobs are done; in between and afterwards tries what a stale holder might."""
        finished = False
        while not finished:
            leases = await self._app.claim(limit=self._rng.randint(1, 20), lease=30)
            for lease in leases:
                await self._let_go(lease)
            await self._sweeper.sweep()
            await self._write_stale(5)
            if not leases:
                finished = (await self._app.status())["default"].done >= jobs
                await asyncio.sleep(0.005)
        while self._lapsed:
            await self._write_stale(100)
            await self._sweeper.sweep()

    async def _let_go(self, lease: Lease) -> None:
        job = lease.job
        self._ledger.note("CLAIM", job.id, job.fence, job.read_at_us)
        if job.fence > 1:
            await asyncio.sleep(0.002)  # so that the holder before can meet this one
        if job.fence == FENCE_LAST:
            assert await lease.complete("done")
            return
        way = self._rng.choice(["release", "fail", "lapse", "revive"])
        if way == "fail":
            assert await lease.fail("by chance", after=0.001)
        elif way == "lapse":
            await self._lapse(lease, SHORT_S)
        elif way == "release" or await self._revived(lease):
            assert await lease.release()

    async def _lapse(self, lease: Lease, seconds: float) -> None:
        """Lets the lease run out so soon, and keeps it for stale writes."""
        began_us = await self._app.store.now_us()
        assert await lease.extend(seconds)
        self._ledger.note("SHORT", lease.id, lease.job.fence, began_us, seconds)
        self._lapsed.append(lease)

    async def _revived(self, lease: Lease) -> bool:
        """Lets the lease run out and renews it at once; False if a sweeper was faster. Once renewed, no sweeper may take it."""
        await self._lapse(lease, TINY_S)
        await asyncio.sleep(TINY_S)
        if not await lease.extend(30):
            return False
        self._lapsed.remove(lease)
        await asyncio.sleep(0.01)
        return True

    async def _write_stale(self, most: int) -> None:
        """Settles, renews and releases what was taken over, while the next holder may be at work."""
        for lease in self._rng.sample(self._lapsed, min(most, len(self._lapsed))):
            now = await self._app.get(lease.id)
            if now.status == "processing" and now.fence == lease.job.fence:
                continue  # not taken over yet
            answers = [await lease.complete("stale"), await lease.extend(), await lease.release(), await lease.fail("stale")]
            self._ledger.note("ACCEPTED" if any(answers) else "REFUSED", lease.id, lease.job.fence)
            if now.status == "done":
                self._lapsed.remove(lease)


async def main(url: str, ledger_path: str, seed: str, jobs: str) -> None:
    """Opens the store, says that it is ready, waits for the start, and runs."""
    ledger = Ledger(Path(ledger_path))
    async with make_app(url, ledger) as app:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        claimers = [Claimer(app, ledger, random.Random(int(seed) * CLAIMERS + number)) for number in range(CLAIMERS)]
        await asyncio.gather(*(claimer.run(int(jobs)) for claimer in claimers))
    print("stopped", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
