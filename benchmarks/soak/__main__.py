"""`python -m benchmarks.soak`: a worker process under a steady load; memory, files, tables and rows are sampled all the time.

The store is a new one: a file in a temporary folder, or a server of the tests. Exit code 1 if something grew more than it may, or
was larger than it ever may be.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.soak.app import KINDS, make_app
from benchmarks.soak.growth import BOUNDS, Growth, growth_of
from benchmarks.soak.sizes import bytes_of, rows_of

from mulligan import Mulligan
from tests.servers import server_url

STORES = ("sqlite", "postgres", "mongo", "redis")
BATCH_S = 0.1
PAGE = resource.getpagesize()


def say(text: str) -> None:
    """One line, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def feed(app: Mulligan, rate: float, counted: dict[str, int]) -> None:
    """Enqueues at a steady rate for ever; one that falls behind does not catch up in a burst."""
    tasks = app.state.tasks
    batch = max(1, round(rate * BATCH_S))
    while True:
        number = counted["enqueued"]
        await app.enqueue_many([tasks[KINDS[one % len(KINDS)]].job(one) for one in range(number, number + batch)])
        counted["enqueued"] += batch
        await asyncio.sleep(batch / rate)


def resident_mb(pid: int) -> float:
    """The memory a process has in use."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / 1e6


async def sample(app: Mulligan, url: str, pid: int) -> dict[str, float]:
    """Everything that is watched, now."""
    stats = await app.store.stats()
    waiting = sum(one.fresh_ready + one.retry_ready + one.processing for one in stats.queues)
    return {"rss_mb": resident_mb(pid), "rows": await rows_of(app), "waiting": waiting, **await bytes_of(url)}


async def soak(url: str, *, for_s: float, rate: float, keep_s: float, every_s: float, as_json: bool) -> dict[str, Any]:
    """One run; its samples, and what became of each figure."""
    app = make_app(url)
    counted, samples = {"enqueued": 0}, []
    async with app:
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.soak.worker", url, str(keep_s), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            await worker.stdout.readline()
            feeding = asyncio.create_task(feed(app, rate, counted))
            for number in range(1, max(5, round(for_s / every_s)) + 1):
                await asyncio.sleep(every_s)
                if feeding.done():
                    feeding.result()
                assert worker.returncode is None, f"the worker ended with {worker.returncode}"
                samples.append(await sample(app, url, worker.pid))
                if not as_json and sys.stdout.isatty():
                    sys.stdout.write(f"\r{number * every_s:6.0f} s  {samples[-1]}"[:150])
            feeding.cancel()
            with suppress(asyncio.CancelledError):
                await feeding
        finally:
            worker.stdin.close()
            code = await worker.wait()
    names = list(samples[0])
    growth = [growth_of(name, [one[name] for one in samples]) for name in names]
    return {"enqueued": counted["enqueued"], "exit": code, "samples": samples, "growth": growth}


def show(store: str, result: dict[str, Any]) -> None:
    """The figures of one store, as a table."""
    say(f"\n{store}: {result['enqueued']:,} jobs")
    say(f"{'':10}{'steady':>14}{'end':>14}{'growth':>9}{'largest':>14}")
    for one in result["growth"]:
        grown = one.final / one.steady - 1 if one.steady else 0.0
        told = "" if one.is_fine else "GREW TOO MUCH" if BOUNDS[one.name].below is None else "TOO LARGE"
        say(f"{one.name:10}{one.steady:14,.1f}{one.final:14,.1f}{grown:9.1%}{one.largest:14,.1f}  {told}".rstrip())


def main() -> int:
    """Soaks the stores asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="make soak ARGS=...", description="A steady load for a long time: what grows?")
    parser.add_argument("--store", choices=STORES, action="append", help="only this one; may be repeated (default: all)")
    parser.add_argument(
        "--for", dest="for_s", type=float, default=600, metavar="SECONDS", help="how long for each store (default %(default)s)"
    )
    parser.add_argument("--rate", type=float, default=300, metavar="JOBS", help="jobs enqueued in a second (default %(default)s)")
    parser.add_argument("--keep", type=float, default=20, metavar="SECONDS", help="retention of what is finished (default %(default)s)")
    parser.add_argument("--every", type=float, default=2, metavar="SECONDS", help="between two samples (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object for each store")
    asked = parser.parse_args()
    fine = True
    for store in asked.store or STORES:
        with tempfile.TemporaryDirectory(prefix="soak-") as folder:
            url = f"sqlite:///{folder}/soak.db" if store == "sqlite" else server_url(store)
            result = asyncio.run(soak(url, for_s=asked.for_s, rate=asked.rate, keep_s=asked.keep, every_s=asked.every, as_json=asked.json))
        growth: list[Growth] = result["growth"]
        fine = fine and result["exit"] == 0 and all(one.is_fine for one in growth)
        if asked.json:
            say(json.dumps(result | {"store": store, "growth": [one._asdict() for one in growth]}))
        else:
            show(store, result)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
