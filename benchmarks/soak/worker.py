"""The worker process of a soak: `python -m benchmarks.soak.worker URL KEEP_S`, until its standard input ends."""

from __future__ import annotations

import asyncio
import logging
import sys

from benchmarks.soak.app import make_app


async def serve(url: str, keep_s: float) -> None:
    """Serves until the producer is gone."""
    logging.getLogger("mulligan").setLevel(logging.ERROR)  # a tenth of all jobs fails for good, as planned
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)
    app = make_app(url)
    async with app, app.worker(concurrency=50, keep_done=keep_s, keep_failed=keep_s, keep_cancelled=keep_s):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], float(sys.argv[2])))
