"""An operator in a process of its own: `python -m tests.processes.requeuer URL`. Reads ids from standard input, answers True or False."""

from __future__ import annotations

import asyncio
import json
import sys

from mulligan import Mulligan


async def main(url: str) -> None:
    """Requeues each job of a JSON list, in its order, and prints the answers as another."""
    async with Mulligan(url) as app:
        await app.status()
        print("ready", flush=True)
        ids = json.loads(await asyncio.to_thread(sys.stdin.readline))
        answers = [await app.requeue(job_id, by=sys.argv[2]) for job_id in ids]
    print("answers", json.dumps(answers), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
