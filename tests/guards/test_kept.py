"""A worker keeps nothing of the jobs it has run: what it holds in memory after many is what it held after few."""

from __future__ import annotations

import gc
import sys
from collections import deque
from itertools import pairwise
from pathlib import Path

import pytest

from tests.conftest import BACKENDS, DURABLE, url_of
from tests.guards.scene import JOBS, Scene

RING = 64
# Caches that fill by chance are far below this; one object kept for each job is one block at least.
BLOCKS_PER_JOB = 0.5


@pytest.mark.parametrize("durable", [name for name in BACKENDS if name in DURABLE])  # the memory store keeps its jobs in this process
async def test_nothing_is_kept_of_a_job(durable: str, tmp_path: Path) -> None:
    """Blocks of memory in use after 2,000 jobs, after 2,000 more and again: the same, within half a block for each job."""
    async with Scene(url_of(durable, tmp_path)) as scene, scene.app.worker() as worker:
        # The newest events are kept, which is a fixed number of very different sizes: a few of them, here.
        scene.app.events._ring = deque(maxlen=RING)
        blocks = []
        for _ in range(4):
            for jobs in (JOBS, 1):  # the last claim and the last batch stay until the next one: let those be of one job
                await scene.fill(jobs)
                await worker.drain()
            gc.collect()
            blocks.append(sys.getallocatedblocks())
    # The first time everything is made that stays, and once in a while a connection more: what is kept of jobs is kept each time.
    kept = min(after - before for before, after in pairwise(blocks[1:])) / JOBS
    print(f"{durable}: {kept:.4f} blocks kept for each job")
    assert kept <= BLOCKS_PER_JOB
