"""`mulligan status`: all queues and workers at a glance, from stored state."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from mulligan.cli.options import common, reading, run

if TYPE_CHECKING:
    from mulligan.admin import QueueStatus, Status
    from mulligan.cli.output import Cell
    from mulligan.core.contract import WorkerInfo

QUEUE_TITLES = (
    "queue",
    ">waiting",
    ">due",
    ">retries",
    ">due",
    ">running",
    ">stuck",
    ">done",
    ">failed",
    ">cancelled",
    "next due",
    "longest running",
)
WORKER_TITLES = ("worker", "queues", ">running", ">slots", "up since", "heard of", "unknown tasks")


@click.command()
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("--every", type=click.FloatRange(0.05, 3600), default=1.0, show_default=True, help="Seconds between two looks of --watch.")
@common
def status(watch: bool, every: float, store: str, as_json: bool) -> None:
    """Show all queues and workers at a glance."""
    try:
        run(_status(store, as_json, every if watch else None))
    except KeyboardInterrupt:
        if not watch:
            raise


async def _status(url: str, as_json: bool, every_s: float | None) -> None:
    from mulligan.cli.output import emit, emit_line

    async with reading(url) as app:
        if every_s is not None and not as_json:
            await _watch(app, every_s)
        elif every_s is None:
            seen = await app.status()
            emit(status_view(seen)) if as_json else _print(seen)
        else:
            while True:
                emit_line(status_view(await app.status()))
                await asyncio.sleep(every_s)


async def _watch(app: Any, every_s: float) -> None:
    from rich.console import Group
    from rich.live import Live

    from mulligan.cli.output import console, say

    screen = console()
    if not screen.is_terminal:
        while True:
            _print(await app.status())
            say()
            await asyncio.sleep(every_s)
    with Live(console=screen, auto_refresh=False) as live:
        while True:
            live.update(Group(*_parts(await app.status())), refresh=True)
            await asyncio.sleep(every_s)


def _print(seen: Status) -> None:
    from mulligan.cli.output import console

    screen = console()
    for part in _parts(seen):
        screen.print(part)


def _parts(seen: Status) -> list[Any]:
    """What there is to print: the queues, the workers, and what needs a person."""
    from rich.text import Text

    from mulligan.cli.output import clean, make_table
    from mulligan.core.clock import datetime_to_us

    now_us = datetime_to_us(seen.at, "at")
    parts: list[Any] = []
    if seen.queues:
        parts.append(make_table(QUEUE_TITLES, [_queue_row(queue) for queue in seen.queues]))
    else:
        parts.append(Text("No queue has jobs or settings yet."))
    parts.append(Text())
    if seen.workers:
        parts.append(make_table(WORKER_TITLES, [_worker_row(worker, now_us) for worker in seen.workers]))
    else:
        parts.append(Text("No worker is alive. Start one: mulligan worker MODULE:APP", style="yellow"))
    for queue in seen.queues:
        if queue.paused:
            reason = f": {queue.pause_reason}" if queue.pause_reason else ""
            parts.append(Text(clean(f"Queue {queue.region} is paused{reason}"), style="yellow"))
    for task in unknown_tasks(seen):
        parts.append(
            Text(clean(f"Task {task} is not known to a worker that was given it; it goes back for 30 s at a time"), style="yellow")
        )
    return parts


def _queue_row(queue: QueueStatus) -> list[Cell]:
    from mulligan.cli.job_view import short_id
    from mulligan.cli.times import seconds_text

    current = queue.current_job
    longest = (
        ""
        if current is None
        else f"{current.task} {short_id(current.job_id)} {seconds_text(current.running_s)}{' (retry)' if current.is_retry else ''}"
    )
    return [
        (f"{queue.region} (paused)", "yellow") if queue.paused else queue.region,
        queue.queue_size,
        queue.ready,
        queue.retry_queue_size,
        queue.retry_ready,
        queue.running,
        (queue.stuck, "red") if queue.stuck else 0,
        queue.done,
        (queue.failed, "red") if queue.failed else 0,
        queue.cancelled,
        "" if queue.next_due_in_s is None else f"in {seconds_text(queue.next_due_in_s)}",
        longest,
    ]


def _worker_row(worker: WorkerInfo, now_us: int) -> list[Cell]:
    from mulligan.cli.times import ago, clock_time

    return [
        worker.id,
        ", ".join(worker.queues),
        worker.running,
        worker.concurrency,
        clock_time(worker.started_at_us, now_us),
        ago(worker.seen_at_us, now_us),
        ", ".join(worker.unknown_tasks),
    ]


def unknown_tasks(seen: Status) -> list[str]:
    """The tasks that some worker was given and does not know."""
    return sorted({task for worker in seen.workers for task in worker.unknown_tasks})


def worker_view(worker: WorkerInfo) -> dict[str, Any]:
    """One worker as plain data."""
    from mulligan.cli.times import iso

    return {
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "queues": list(worker.queues),
        "concurrency": worker.concurrency,
        "running": worker.running,
        "started_at": iso(worker.started_at_us),
        "seen_at": iso(worker.seen_at_us),
        "unknown_tasks": list(worker.unknown_tasks),
        "version": worker.version,
    }


def status_view(seen: Status) -> dict[str, Any]:
    """Everything as plain data."""
    return {
        "at": seen.at,
        "queues": seen.queues,
        "workers": [worker_view(worker) for worker in seen.workers],
        "unknown_tasks": unknown_tasks(seen),
    }
