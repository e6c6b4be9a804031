"""One contest: so many claimer processes begin together on a queue of so many jobs, and end when it is empty."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.claimers.claimer import QUEUE, TOTAL
from benchmarks.claimers.trouble import since, trouble
from benchmarks.growth.sites import Sites
from benchmarks.peers.figures import percentile

from mulligan.stores import open_store
from tests.builders import new_job

INSERT = 1_000
END_S = 600.0
Records = Sequence[dict[str, Any]]


class ContestFailed(Exception):
    """A claimer ended with an error; the message is what it said."""


async def fill(url: str, jobs: int) -> None:
    """So many fresh jobs, all due."""
    store = open_store(url)
    await store.open()
    try:
        for first in range(0, jobs, INSERT):
            await store.insert([new_job(QUEUE) for _ in range(min(INSERT, jobs - first))])
    finally:
        await store.close()


def contest(sites: Sites, store: str, claimers: int, jobs: int) -> dict[str, float]:
    """The figures of one contest."""
    server = sites.server(store)
    address = None if server is None else server.url
    with sites.site(store) as url, tempfile.TemporaryDirectory(prefix="claimers-") as folder:
        asyncio.run(fill(url, jobs))
        before: dict[str, int] = {}
        files = [Path(folder) / f"{number}.json" for number in range(claimers)]
        began, records = run_claimers(url, files, lambda: before.update(trouble(store, address)))
        return {**figures(began, records, jobs), **since(before, trouble(store, address))}


def run_claimers(url: str, files: Sequence[Path], when_ready: Callable[[], None] = lambda: None) -> tuple[float, Records]:
    """When they were told to begin, and what each of them wrote down. What they do to connect is over when they are ready."""
    command = [sys.executable, "-m", "benchmarks.claimers.claimer", url]
    processes = [subprocess.Popen([*command, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for file in files]
    try:
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise ContestFailed(f"a claimer ended with {process.wait()} before it was ready")
        when_ready()
        began = time.perf_counter()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in processes:
            if process.wait(END_S) != 0:
                raise ContestFailed(f"a claimer ended with {process.returncode}")
    finally:
        for process in processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
    return began, [json.loads(file.read_text("utf-8")) for file in files]


def figures(began: float, records: Records, jobs: int) -> dict[str, float]:
    """What the records tell.

    A claim that brought less than it asked for is short. It was short in vain if a claim that began after its end still found jobs: those
    were due all the time. It is not if it took what was left.
    """
    claims = sorted((tuple(one) for record in records for one in record["claims"]), key=lambda one: one[0])
    took_ms = [(ended - start) * 1e3 for start, ended, _ in claims]
    last_start = max((start for start, _, found in claims if found), default=began)
    vain = [(ended, found) for _, ended, found in claims if found < TOTAL and ended < last_start]
    ids = Counter(job_id for record in records for job_id in record["ids"])
    shares = [len(record["ids"]) * len(records) / jobs for record in records]
    settles = [tuple(one) for record in records for one in record["settles"]]
    settled = max((ended for _, ended in settles), default=began)
    return {
        "jobs_per_s": jobs / (settled - began) if settles else 0.0,
        "claims": len(claims),
        "short_share": sum(found > 0 for _, found in vain) / len(claims),
        "empty_share": sum(found == 0 for _, found in vain) / len(claims),
        "claim_p50_ms": percentile(took_ms, 0.5),
        "claim_p99_ms": percentile(took_ms, 0.99),
        "claim_worst_ms": max(took_ms),
        "settle_worst_ms": max(((ended - start) * 1e3 for start, ended in settles), default=0.0),
        "least_share": min(shares),  # of what an equal part would be
        "largest_share": max(shares),
        "twice": sum(times - 1 for times in ids.values()),
        "lost": jobs - len(ids),
        "refused": sum(record["refused"] for record in records),
        "errors": sum(record["errors"] for record in records),
    }
