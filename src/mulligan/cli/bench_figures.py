"""The measurements of `mulligan bench`, each on a store of its own. Every figure comes from a real run in this command."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from mulligan.cli.bench_child import ATTEMPTS, QUEUE, URL_VARIABLE, make_app
from mulligan.core.errors import IllegalMove
from mulligan.request import Options

CHILD = "mulligan.cli.bench_child"
GAP_S = 0.02  # between two pick-ups: long enough for the worker to fall asleep again
INSERT_PART = 5_000  # jobs made and handed over at once in bulk


async def child(*arguments: str, url: str, program: Sequence[str] = ("-m", CHILD)) -> dict[str, Any]:
    """Runs a measuring process to its end, and gives its answer."""
    process = await _started(*program, *arguments, url=url)
    try:
        out, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return answer_of(process.returncode, out, errors)


async def _started(*arguments: str, url: str) -> asyncio.subprocess.Process:
    """A measuring process. Its URL travels in the environment: it may hold a password, and everybody can read arguments."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, URL_VARIABLE: url},
    )


def answer_of(code: int | None, out: bytes, errors: bytes) -> dict[str, Any]:
    """The last line of a measuring process; IllegalMove with what it said if it failed."""
    if code != 0 or not out.strip():
        told = errors.decode("utf-8", "replace").strip().splitlines()
        raise IllegalMove(f"a measuring process ended with {code}: {told[-1] if told else 'it said nothing'}")
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    return answer


async def enqueue_one_by_one(url: str, jobs: int) -> float:
    """Jobs per second when each enqueue is awaited before the next."""
    async with make_app(url) as app:
        await app.enqueue("noop")  # the first one opens files and prepares statements
        start = time.perf_counter()
        for _ in range(jobs):
            await app.enqueue("noop")
        return jobs / (time.perf_counter() - start)


async def enqueue_bulk(url: str, task: str, jobs: int) -> float:
    """Jobs per second when they are handed over many at a time; making them counts."""
    async with make_app(url) as app:
        definition, options = app.registry.need(task), Options()
        start = time.perf_counter()
        for first in range(0, jobs, INSERT_PART):
            await app.enqueue_many([app.build(definition, (), {}, options) for _ in range(first, min(first + INSERT_PART, jobs))])
        return jobs / (time.perf_counter() - start)


async def drain(url: str, jobs: int) -> tuple[float, float, float]:
    """Enqueues no-op jobs and lets one worker process run them: bulk enqueues per second, jobs per second, and its memory in MB."""
    bulk = await enqueue_bulk(url, "noop", jobs)
    answer = await child("drain", url=url)
    await _check(url, jobs)
    return bulk, jobs / answer["seconds"], answer["rss_mb"]


async def retry_storm(url: str, jobs: int) -> float:
    """Executions per second when every job fails, fails and succeeds, due again at once."""
    await enqueue_bulk(url, "storm", jobs)
    answer = await child("drain", url=url)
    await _check(url, jobs)
    return jobs * ATTEMPTS / float(answer["seconds"])


async def pickup_ms(url: str, samples: int) -> tuple[float, float]:
    """The median and the 99th percentile, in ms, from before an enqueue to the start of the handler in another, idle process."""
    process = await _started("-m", CHILD, "pickup", str(samples), url=url)
    assert process.stdout is not None
    try:
        await process.stdout.readline()  # it says that it is ready
        async with make_app(url) as app:
            for _ in range(samples):
                await asyncio.sleep(GAP_S)
                await app.enqueue("pickup", args=[time.monotonic()])
        out, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    waits_s = sorted(answer_of(process.returncode, out, errors)["waits_s"])
    return statistics.median(waits_s) * 1e3, waits_s[min(len(waits_s) - 1, round(0.99 * len(waits_s)))] * 1e3


async def _done(url: str) -> int:
    async with make_app(url) as app:
        return sum(queue.done for queue in (await app.status()).queues if queue.region == QUEUE)


async def _check(url: str, wanted: int) -> None:
    """A figure counts only if the work was done: every job stored as done."""
    done = await _done(url)
    if done != wanted:
        raise IllegalMove(f"{done} jobs are done where {wanted} should be; the measurement does not count")
