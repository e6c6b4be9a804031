"""`mulligan demo`: jobs that fail, back off, retry, recover and give up, on a temporary file, before one's eyes."""

from __future__ import annotations

import asyncio
import logging
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mulligan.cli.options import json_option, own_store_option, program, run, store_hint

if TYPE_CHECKING:
    from mulligan.app import Mulligan

QUEUE = "demo"
JOBS_PER_S = 20
LOOK_S = 0.25  # between two looks on a terminal
LINE_S = 3.0  # between two lines elsewhere
DOWN_S, UP_S = 8.0, 12.0  # the downstream of a demo without an end
DOWN_SHARE, PRODUCE_SHARE = 0.35, 0.65  # of a demo with an end: when the downstream heals, and when no more jobs are made


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What the demo has done so far. enqueued = done + failed + running + waiting (+ cancelled)."""

    enqueued: int
    done: int
    retried: int  # executions that failed and were planned again
    failed: int  # jobs that gave up
    running: int
    waiting: int
    waiting_to_retry: int
    cancelled: int
    recovered: int  # jobs that are done although they had failed before
    seconds: float


@click.command()
@click.option(
    "--for", "seconds", type=click.FloatRange(1, 86_400), metavar="SECONDS", help="End by itself after so long.  [default: at Ctrl-C]"
)
@own_store_option("Use this store and keep it.  [default: a temporary file, gone afterwards]")
@json_option
def demo(seconds: float | None, store: str | None, as_json: bool) -> None:
    """Watch jobs fail, back off, retry, recover and, when they must, give up."""
    with _quiet(), _place(store) as url:
        run(Demo(url, seconds, as_json, kept=store is not None).run())


@contextmanager
def _place(store: str | None) -> Iterator[str]:
    """The store to use: the one named, or a file in a folder that is gone afterwards."""
    if store is not None:
        from mulligan.cli.places import require_shared

        require_shared(store)
        yield store
        return
    folder = Path(tempfile.mkdtemp(prefix="mulligan-demo-"))
    try:
        yield f"sqlite:///{folder / 'demo.db'}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the log out of the picture: what it would say is what the demo shows."""
    log = logging.getLogger("mulligan")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


class Demo:
    """One run: a producer, a worker and somebody who watches."""

    def __init__(self, url: str, seconds: float | None, as_json: bool, *, kept: bool) -> None:
        self._url = url
        self._kept = kept
        self._seconds = seconds
        self._as_json = as_json
        self._enqueued = 0
        self._recovered: set[str] = set()
        self._retried: set[str] = set()
        self._hinted = False
        self._next_due_in_s: float | None = None
        self._before: dict[str, int] = {}  # what a store that is kept had of an earlier demo

    async def run(self) -> None:
        """From the first job to the last count."""
        from mulligan.cli.demo_tasks import Downstream, make_app
        from mulligan.core.clock import system_rng

        loop = asyncio.get_running_loop()
        self._start = loop.time()
        self._stop = asyncio.Event()
        endless = self._seconds is None
        self._downstream = Downstream(loop.time, DOWN_S if endless else DOWN_SHARE * (self._seconds or 0), UP_S if endless else None)
        app = make_app(self._url, QUEUE, self._downstream, system_rng())
        app.events.subscribe(self._on_event)
        async with app:
            counts = msgspec.structs.asdict(await self._counts(app))
            self._before = {name: counts[name] for name in ("done", "failed", "cancelled")}
            worker = app.worker(queues=[QUEUE], concurrency=20, grace=2.0)
            self._listen(worker)
            async with worker:
                self._introduce()
                producer = asyncio.ensure_future(self._produce(app))
                await self._watch(app)
                self._stop.set()
                await producer
            await self._conclude(app)

    def _listen(self, worker: Any) -> None:
        def told() -> None:
            if self._stop.is_set():
                worker.hurry()
            self._stop.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, told)

    def _on_event(self, event: Any) -> None:
        if event.kind == "RETRY_SCHEDULED":
            self._retried.add(event.job_id)
        elif event.kind == "COMPLETED" and event.job_id in self._retried:
            self._recovered.add(event.job_id)

    def _elapsed_s(self) -> float:
        return asyncio.get_running_loop().time() - self._start

    async def _produce(self, app: Mulligan) -> None:
        """Enqueues the mix of tasks at a steady pace; one of each at once, so that there is something to see."""
        from mulligan.cli.demo_tasks import MIX

        until_s = float("inf") if self._seconds is None else PRODUCE_SHARE * self._seconds
        kinds = sorted(set(MIX))
        while self._elapsed_s() < until_s and not self._stop.is_set():
            number = self._enqueued
            task = kinds[number] if number < len(kinds) else MIX[number * 7 % len(MIX)]
            await app.enqueue(task, args=[number + 1])
            self._enqueued += 1
            await asyncio.sleep(1 / JOBS_PER_S)

    async def _watch(self, app: Mulligan) -> None:
        """Shows the counts until the time is over or somebody stops it."""
        stream = sys.stderr if self._as_json else sys.stdout
        if stream.isatty():
            from rich.live import Live
            from rich.text import Text

            from mulligan.cli.output import console

            with Live(console=console(err=self._as_json), auto_refresh=False, transient=True) as live:
                while await self._pause(LOOK_S):
                    await self._hint(app, partial(live.console.print, soft_wrap=True))  # a command to copy must not be cut in two
                    live.update(Text(await self._line(app), no_wrap=True, overflow="crop"), refresh=True)
            return
        while await self._pause(LINE_S):
            await self._hint(app, self._print)
            self._print(await self._line(app))

    async def _pause(self, seconds: float) -> bool:
        """Waits a moment; False when the demo is over."""
        left_s = seconds if self._seconds is None else min(seconds, self._seconds - self._elapsed_s())
        if left_s > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), left_s)
        return not self._stop.is_set() and (self._seconds is None or self._elapsed_s() < self._seconds)

    # --- what is said ------------------------------------------------------------------------------------------------

    def _print(self, text: object) -> None:
        from mulligan.cli.output import say

        say(text, err=self._as_json)

    def _introduce(self) -> None:
        for line in (
            "steady works, flaky fails 4 times in 10, outage calls a service that is down at first, hopeless can never work.",
            f"Look from another terminal: {program()} status --watch{store_hint(self._url)}",
            *([] if self._seconds is not None else ["Ctrl-C ends it."]),
        ):
            self._print(line)

    async def _hint(self, app: Mulligan, show: Any) -> None:
        """Names the first job that gave up, once there is one."""
        from mulligan.core.contract import Query

        if self._hinted:
            return
        page = await app.store.find(Query(status="failed", queue=QUEUE), 1)
        if page.jobs:
            self._hinted = True
            show(f"The first one gave up. Ask why: {program()} why {page.jobs[0].id}{store_hint(self._url)}")

    async def _counts(self, app: Mulligan) -> Counts:
        seen = next((queue for queue in (await app.status()).queues if queue.region == QUEUE), None)
        self._next_due_in_s = None if seen is None else seen.next_due_in_s
        return Counts(
            enqueued=self._enqueued,
            done=0 if seen is None else seen.done - self._before.get("done", 0),
            retried=app.metrics.totals["retried"],
            failed=0 if seen is None else seen.failed - self._before.get("failed", 0),
            running=0 if seen is None else seen.running,
            waiting=0 if seen is None else seen.queue_size + seen.retry_queue_size,
            waiting_to_retry=0 if seen is None else seen.retry_queue_size,
            cancelled=0 if seen is None else seen.cancelled - self._before.get("cancelled", 0),
            recovered=len(self._recovered),
            seconds=round(self._elapsed_s(), 3),
        )

    async def _line(self, app: Mulligan) -> str:
        from mulligan.cli.times import seconds_text

        counts = await self._counts(app)
        parts = [
            f"{counts.seconds:5.1f} s",
            f"done {counts.done} ({counts.recovered} after a retry)",
            f"running {counts.running}",
            f"waiting to retry {counts.waiting_to_retry}",
            f"failed {counts.failed}",
            "no retry planned" if self._next_due_in_s is None else f"next retry in {seconds_text(self._next_due_in_s)}",
            "service DOWN" if self._downstream.is_down else "service up",
        ]
        return " | ".join(parts)

    async def _conclude(self, app: Mulligan) -> None:
        """The last counts, after everything has stopped; and the story of one job that gave up."""
        from mulligan.cli.explain import explain_job
        from mulligan.cli.output import emit_line, say
        from mulligan.core.contract import Query

        counts = await self._counts(app)
        if self._as_json:
            emit_line(counts)
            return
        page = await app.store.find(Query(status="failed", queue=QUEUE), 1)
        if page.jobs:
            say()
            say("This is what `mulligan why` says about the last job that gave up:")
            for sentence in explain_job(await app.get(page.jobs[0].id), await app.status()):
                if self._kept or "mulligan requeue" not in sentence:  # the temporary file is gone in a moment
                    say(f"  {sentence}")
            say()
        say(
            f"{counts.enqueued} enqueued, {counts.done} done ({counts.recovered} of them after a failure), {counts.retried} retries, "
            f"{counts.failed} failed, {counts.waiting} still waiting"
        )
