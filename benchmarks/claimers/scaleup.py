"""Real workers: `mulligan worker --processes N` on one queue. How much more do two or four processes get done than one?"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.claimers.app import FOLDER, QUEUE, counted
from benchmarks.growth.sites import Sites

from mulligan.core.contract import FIND_LIMIT_MAX, Query, Store
from mulligan.stores import open_store
from tests.builders import new_job

INSERT = 1_000
PATIENCE_S = 600.0
LOOK_S = 0.5  # a look counts all jobs, which costs the store something
EDGE = 0.05  # the part of the jobs at each end that is not looked at: there, processes begin and end one by one


class WorkersFailed(Exception):
    """The workers did not come up, or did not work the queue off."""


def scale_up(sites: Sites, store: str, processes: int, task: str, jobs: int) -> dict[str, float]:
    """The figures of one run. The queue is paused until all processes are there, so that they begin together."""
    with sites.site(store) as url, tempfile.TemporaryDirectory(prefix="claimers-") as folder:
        asyncio.run(_fill(url, task, jobs))
        command = [sys.executable, "-m", "mulligan", "worker", "benchmarks.claimers.app:app", "--store", url]
        command += ["--processes", str(processes), "--log-level", "error"]
        fleet = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, FOLDER: folder})
        try:
            times_us = asyncio.run(_drain(url, fleet, processes, jobs))
            fleet.send_signal(signal.SIGTERM)
            fleet.wait(PATIENCE_S)
        finally:
            fleet.kill()
            fleet.wait()
        return figures(times_us, counted(Path(folder)), processes)


def figures(times_us: list[int], starts: list[int], processes: int) -> dict[str, float]:
    """The rate in the middle of the run, and what part each process had of it: 1 is an equal share.

    Jobs are settled in batches, which have one time. The first batch of the middle began before it and does not count.
    """
    ordered = sorted(times_us)
    edge = int(len(ordered) * EDGE)
    first_us, last_us = ordered[edge], ordered[-1 - edge]
    middle = sum(first_us < time_us <= last_us for time_us in ordered)
    shares = [one * processes / len(ordered) for one in starts]
    return {
        "jobs_per_s": middle * 1e6 / max(1, last_us - first_us),
        "least_share": min(shares) if len(shares) == processes else 0.0,
        "largest_share": max(shares, default=0.0),
        "started": sum(starts),
    }


async def _fill(url: str, task: str, jobs: int) -> None:
    store = open_store(url)
    await store.open()
    try:
        await store.set_queue(QUEUE, paused=True)
        for first in range(0, jobs, INSERT):
            await store.insert([new_job(QUEUE, task=task) for _ in range(min(INSERT, jobs - first))])
    finally:
        await store.close()


async def _drain(url: str, fleet: subprocess.Popen[Any], processes: int, jobs: int) -> list[int]:
    """Lets the workers begin; when each job was finished, by the clock of the store."""
    store = open_store(url)
    await store.open()
    try:
        await _until(fleet, lambda: _present(store, processes))
        await store.set_queue(QUEUE, paused=False)
        await _until(fleet, lambda: _finished(store, jobs))
        times_us: list[int] = []
        after: str | None = None
        while True:
            page = await store.find(Query(status="done"), FIND_LIMIT_MAX, after)
            times_us += [job.finished_at_us or 0 for job in page.jobs]
            if (after := page.after) is None:
                return times_us
    finally:
        await store.close()


async def _until(fleet: subprocess.Popen[Any], holds: Any) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not await holds():
        if fleet.poll() is not None or time.monotonic() > until_s:
            raise WorkersFailed(
                f"the workers ended with {fleet.returncode}" if fleet.poll() is not None else "the queue was not worked off"
            )
        await asyncio.sleep(LOOK_S)


async def _present(store: Store, processes: int) -> bool:
    return len(await store.workers()) >= processes


async def _finished(store: Store, jobs: int) -> bool:
    return sum(queue.done for queue in (await store.stats()).queues) >= jobs
