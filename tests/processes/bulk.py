"""A producer of very many jobs: `python -m tests.processes.bulk URL JOBS_FILE COUNT`. A second run is the same call again.

The list of jobs is kept in a file, because what makes a repeated call safe is that each job has its id from the moment it was made.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from mulligan import Event, Mulligan, NewJob

SAY_AFTER = 2_000


def jobs_of(app: Mulligan, path: Path, count: int) -> list[NewJob]:
    """The list of the first run, or a new one."""
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=list[NewJob])
    task = app.task(name="bulk")(lambda number: number)
    jobs = [task.job(number) for number in range(count)]
    path.write_bytes(msgspec.json.encode(jobs))
    return jobs


async def main(url: str, path: str, count: int) -> None:
    """Enqueues the list; says when it is under way, and at the end how many were reported as stored."""
    app = Mulligan(url)
    jobs = jobs_of(app, Path(path), count)
    told = 0

    def hear(event: Event) -> None:
        nonlocal told
        told += event.kind == "ENQUEUED"
        if told == SAY_AFTER:
            print("under way", flush=True)

    app.events.subscribe(hear)
    try:
        async with app:
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            handles = await app.enqueue_many(jobs)
            print("stored", len({handle.id for handle in handles}), flush=True)
    finally:
        print("reported", told, flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(130)
