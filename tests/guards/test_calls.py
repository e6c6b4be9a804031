"""How much Python runs for one job, from its claim to its verdict and before that to enqueue it, in all threads: calls, which are the
same on every machine."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.conftest import url_of
from tests.guards.counted_calls import calls_counted
from tests.guards.scene import ATTEMPTS, Scene

FEW, MANY = 1_000, 3_000

# Measured on Python 3.11 (newer ones make fewer calls: a comprehension is none any more), and an eighth more. They move a little with the
# width of the batches, since each batch has calls of its own.
PER_JOB = {"memory": 95, "sqlite": 30, "postgres": 40, "mongo": 54, "redis": 40}
PER_ATTEMPT = {"memory": 132, "sqlite": 62, "postgres": 75, "mongo": 107, "redis": 74}
BULK = {"memory": 28, "sqlite": 14, "postgres": 14, "mongo": 30, "redis": 20}
CROWD = {"memory": 61, "sqlite": 58, "postgres": 60, "mongo": 88, "redis": 69}
CALLERS = 100
DRAINS_MAX = 3


async def calls_of_a_drain(url: str, jobs: int, task: str) -> int:
    """All calls while a worker comes, runs so many jobs, and goes."""
    with calls_counted() as counted:  # before the store starts its threads
        async with Scene(url) as scene:
            await scene.fill(jobs, task)
            before = counted.calls
            await scene.drain()
            return counted.calls - before


async def per_job(backend: str, folder: Path, task: str) -> float:
    """What each job beyond the first thousand costs, so that what is done once is taken off."""
    (folder / "few").mkdir()
    (folder / "many").mkdir()
    few = await calls_of_a_drain(url_of(backend, folder / "few"), FEW, task)
    many = await calls_of_a_drain(url_of(backend, folder / "many"), MANY, task)
    return (many - few) / (MANY - FEW)


async def least_per_job(backend: str, folder: Path, task: str, enough: float) -> float:
    """The least of a few drains, until one is enough: on a busy machine batches are narrower, and each of them has calls of its own."""
    found = []
    for number in range(DRAINS_MAX):
        (folder / str(number)).mkdir()
        found.append(await per_job(backend, folder / str(number), task))
        if found[-1] <= enough:
            break
    return min(found)


async def test_calls_for_a_job(backend: str, tmp_path: Path) -> None:
    """A job that does nothing takes no more calls than it is known to."""
    calls = await least_per_job(backend, tmp_path, "noop", PER_JOB[backend])
    print(f"{backend}: {calls:.1f} calls for each job")
    assert calls <= PER_JOB[backend]


async def test_calls_for_a_failure(backend: str, tmp_path: Path) -> None:
    """Nor does an attempt of a job that fails, fails and succeeds."""
    calls = await least_per_job(backend, tmp_path, "storm", PER_ATTEMPT[backend] * ATTEMPTS) / ATTEMPTS
    print(f"{backend}: {calls:.1f} calls for each attempt")
    assert calls <= PER_ATTEMPT[backend]


async def test_calls_for_an_enqueue_in_bulk(backend: str, tmp_path: Path) -> None:
    """A job among many of one call is made and stored with no more calls than it is known to."""
    with calls_counted() as counted:
        async with Scene(url_of(backend, tmp_path)) as scene:
            await scene.fill(FEW)
            before = counted.calls
            await scene.fill(MANY)
            calls = (counted.calls - before) / MANY
    print(f"{backend}: {calls:.1f} calls for each job in bulk")
    assert calls <= BULK[backend]


async def test_calls_for_an_enqueue_in_a_crowd(backend: str, tmp_path: Path) -> None:
    """Nor does one of a hundred callers take more, each of whom waits for his own."""
    with calls_counted() as counted:
        async with Scene(url_of(backend, tmp_path)) as scene:

            async def caller(jobs: int) -> None:
                for _ in range(jobs):
                    await scene.noop.enqueue()

            async def crowd(jobs: int) -> None:
                await asyncio.gather(*(caller(jobs // CALLERS) for _ in range(CALLERS)))

            await crowd(MANY)  # the loop has its own connection then
            await crowd(MANY)
            before = counted.calls
            await crowd(MANY)
            calls = (counted.calls - before) / MANY
    print(f"{backend}: {calls:.1f} calls for each job in a crowd")
    assert calls <= CROWD[backend]
