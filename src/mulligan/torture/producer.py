"""A producer: `python -m mulligan.torture.producer SEED LEASE`. Each line on its standard input is a range of jobs to store: FIRST COUNT.

A call that the store does not answer is made again with the same jobs until it does: each has its id from the moment it was made.
"""

from __future__ import annotations

import asyncio
import sys

from mulligan.core.errors import StoreError
from mulligan.torture.tasks import app, is_unwanted, job_of

AGAIN_S = 0.2


async def store(seed: int, lease_s: float, first: int, count: int) -> None:
    """Stores the jobs of these numbers, and cancels the unwanted ones at once."""
    numbers = range(first, first + count)
    jobs = [job_of(app, seed, number, lease_s) for number in numbers]
    while True:
        try:
            await app.enqueue_many(jobs)
            for number, job in zip(numbers, jobs, strict=True):
                if is_unwanted(number):
                    await app.cancel(job.id)
        except StoreError:
            await asyncio.sleep(AGAIN_S)
        else:
            return


async def main(seed: int, lease_s: float) -> None:
    """Works off its standard input to its end."""
    while line := await asyncio.to_thread(sys.stdin.readline):
        first, count = map(int, line.split())
        await store(seed, lease_s, first, count)
        sys.stdout.write(f"stored {first} {count}\n")
        sys.stdout.flush()
    await app.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
