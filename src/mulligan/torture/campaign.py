"""One torture run: start everybody, let the nemesis loose, wait until all is quiet, write down the final state, and ask the checker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from mulligan.app import Mulligan
from mulligan.core.errors import IllegalMove, StoreError, StoreUnavailable
from mulligan.core.job import Job
from mulligan.stores import address_of, at_address, file_of, is_shared
from mulligan.torture.crew import Crew
from mulligan.torture.ledger import Ledger, Row
from mulligan.torture.nemesis import Nemesis, Stuck
from mulligan.torture.plan import MAX_CRASHES, MAX_RETRIES, POLL_S, Plan
from mulligan.torture.producing import Producers
from mulligan.torture.tail import Tail
from mulligan.torture.tasks import LEDGER_FILE
from mulligan.torture.wires import HOST as WIRES_HOST
from mulligan.torture.wires import Wires

STATE_FILE = "state.jsonl"
QUIET_S = 60.0  # so long may nothing end before a run is taken for stuck
LOOK_S = 0.1
TRIES = 20


async def torture(plan: Plan, url: str, folder: Path, step: Callable[[int], None]) -> dict[str, Any]:
    """Runs the plan on an empty store; the checker's report. The ledger and the final state stay in the folder."""
    assert is_shared(url)
    ledger = Ledger(folder / LEDGER_FILE)
    file = file_of(url)
    settings = {
        **msgspec.to_builtins(plan),
        "max_retries": MAX_RETRIES,
        "max_crashes": MAX_CRASHES,
        "poll_s": POLL_S,
        "store": "file" if file else "server",
    }
    ledger.note("RUN", settings=settings)
    tail = Tail(folder / LEDGER_FILE)
    app = Mulligan(url)
    async with contextlib.AsyncExitStack() as stack:
        wires = await stack.enter_async_context(Wires(address_of(url))) if plan.cuts else None
        crew = Crew(plan, url if wires is None else at_address(url, WIRES_HOST, wires.port), folder, tail)
        producers = Producers(plan, crew, tail)
        nemesis = Nemesis(plan, crew, producers, tail, ledger, None if file is None else file.resolve())
        nemesis.wires = wires
        try:
            await _patiently(app.open)  # makes its tables once, before many do so at the same time
            problem = await _played(plan, crew, producers, nemesis, tail, app, step)
            ledger.note("STOP")
            await crew.finish()
            await _patiently(lambda: _written_down(app, folder / STATE_FILE))
        finally:
            await app.close()
            await crew.clear()
            tail.close()
            ledger.close()
    report = await judged(folder, plan.slack_s)
    return {**report, **nemesis.counts, **({"stuck": problem} if problem else {})}


async def _played(
    plan: Plan, crew: Crew, producers: Producers, nemesis: Nemesis, tail: Tail, app: Mulligan, step: Callable[[int], None]
) -> str:
    """From the first job to quiet; what went wrong with the run itself, if anything did."""
    side = [asyncio.create_task(loop) for loop in (tail.run(), crew.keep(), _watched(tail, plan, step))]
    try:
        await asyncio.gather(*(crew.start_worker() for _ in range(plan.workers)))
        faults = nemesis.faults()
        producers.allowed = plan.jobs if not faults else min(plan.jobs, 100)
        work = [asyncio.create_task(one) for one in (producers.run(), nemesis.run(faults))]
        side += work
        while not all(task.done() for task in work):
            done, _ = await asyncio.wait(side, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
                side.remove(task)
        await _quiet(app, tail)
    except Stuck as problem:
        return str(problem)
    finally:
        for task in side:
            task.cancel()
        await asyncio.gather(*side, return_exceptions=True)
    return ""


async def _patiently(call: Callable[[], Awaitable[None]]) -> None:
    """The wires of a tortured store may break at any time; so this is tried a few times."""
    for _ in range(TRIES):
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(LOOK_S)
    return await call()


async def _watched(tail: Tail, plan: Plan, step: Callable[[int], None]) -> None:
    """Tells how many jobs have ended."""
    told = 0
    while True:
        ended = min(tail.ended, plan.jobs)
        step(ended - told)
        told = ended
        await asyncio.sleep(LOOK_S)


async def _quiet(app: Mulligan, tail: Tail) -> None:
    """Waits until no job is left that waits or runs."""
    loop = asyncio.get_running_loop()
    ended, deadline = tail.ended, loop.time() + QUIET_S
    while True:
        with contextlib.suppress(StoreError):
            queues = (await app.store.stats()).queues
            if not any(one.fresh_ready + one.fresh_later + one.retry_ready + one.retry_later + one.processing for one in queues):
                return
        if tail.ended != ended:
            ended, deadline = tail.ended, loop.time() + QUIET_S
        if loop.time() > deadline:
            raise Stuck(f"jobs are left, and none has ended for {QUIET_S:g} s")
        await asyncio.sleep(LOOK_S)


def row_of(job: Job) -> Row:
    """A job as the checker reads it."""
    return Row(
        id=job.id,
        status=job.status,
        run_at=job.run_at_us,
        finished_at=job.finished_at_us,
        owner=job.lease_owner,
        lease_until=job.lease_expires_at_us,
        attempts=job.attempts,
        failures=job.failures,
        crashes=job.crashes,
        snoozes=job.snoozes,
        releases=job.releases,
        generation=job.generation,
        fence=job.fence,
        max_retries=job.max_retries,
    )


async def _written_down(app: Mulligan, path: Path) -> None:
    """The final state: every job there is, one per line."""
    with path.open("wb") as file:
        async for job in app.jobs():
            file.write(msgspec.json.encode(row_of(job)) + b"\n")


async def judged(folder: Path, slack_s: float) -> dict[str, Any]:
    """What the checker says, which is a program of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "mulligan.torture.checker", str(folder / LEDGER_FILE), str(folder / STATE_FILE), "--slack", str(slack_s),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, errors = await process.communicate()
    if process.returncode not in (0, 1):
        raise IllegalMove(f"the checker ended with {process.returncode}: {errors.decode('utf-8', 'replace')[-2000:]}")
    report: dict[str, Any] = json.loads(out)
    return report
