"""An operator in a process of its own: `python -m tests.processes.requeuer URL NAME`. Reads ids, one a line, and answers True or False."""

from __future__ import annotations

import asyncio
import sys

from mulligan import Mulligan


async def main(url: str, name: str) -> None:
    """Requeues each job as soon as its id comes."""
    async with Mulligan(url) as app:
        print("ready", flush=True)
        while job_id := (await asyncio.to_thread(sys.stdin.readline)).strip():
            print("answer", await app.requeue(job_id, by=name), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
