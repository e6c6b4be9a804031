"""`mulligan status`: all queues and workers at a glance, from stored state."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from mulligan.cli.options import common, reading, run

if TYPE_CHECKING:
    from mulligan.admin import QueueStatus, Status
    from mulligan.app import Mulligan
    from mulligan.cli.output import Cell
    from mulligan.core.contract import WorkerInfo

QUEUE_TITLES = ("queue", ">fresh", ">retry", ">running", ">done", ">failed", "next due", "longest running")
RARE_TITLES = ("stuck", "cancelled")  # columns that are shown where there is something in them
WORKER_TITLES = ("worker", "queues", ">running", ">slots", "up since", "heard of")


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


async def _watch(app: Mulligan, every_s: float) -> None:
    from rich.live import Live
    from rich.text import Text

    from mulligan.cli.output import console, is_coloured, say

    if not sys.stdout.isatty():
        while True:
            _print(await app.status())
            say()
            await asyncio.sleep(every_s)
    with Live(console=console(), auto_refresh=False) as live:
        while True:
            lines = _lines(await app.status(), colour=is_coloured(sys.stdout))
            # A drawn line must not be longer than the terminal is wide, or the next drawing would miss its place.
            live.update(Text("\n", no_wrap=True, overflow="crop").join(Text.from_ansi(line) for line in lines), refresh=True)
            await asyncio.sleep(every_s)


def _print(seen: Status) -> None:
    from mulligan.cli.output import is_coloured

    for line in _lines(seen, colour=is_coloured(sys.stdout)):
        click.echo(line, color=True)


def _lines(seen: Status, *, colour: bool) -> list[str]:
    """What there is to print: the queues, the workers, and what needs a person."""
    from mulligan.cli.output import painted, table_lines
    from mulligan.cli.status_numbers import number_lines
    from mulligan.core.clock import datetime_to_us

    now_us = datetime_to_us(seen.at, "at")
    lines: list[str] = []
    if seen.queues:
        rare = [name for name in RARE_TITLES if any(getattr(queue, name) for queue in seen.queues)]
        titles = [*QUEUE_TITLES[:-2], *(f">{name}" for name in rare), *QUEUE_TITLES[-2:]]
        lines += table_lines(titles, [_queue_row(queue, rare) for queue in seen.queues], colour=colour)
        lines.append("(fresh and retry: due / waiting in all)")
    else:
        lines.append("No queue has jobs or settings yet.")
    lines += number_lines(seen, colour=colour)
    lines.append("")
    if seen.workers:
        lines += table_lines(WORKER_TITLES, [_worker_row(worker, now_us) for worker in seen.workers], colour=colour)
    notes = [] if seen.workers else ["No worker is alive. Start one: mulligan worker MODULE:APP"]
    for queue in seen.queues:
        if queue.paused:
            notes.append(f"Queue {queue.region} is paused" + (f": {queue.pause_reason}" if queue.pause_reason else ""))
    notes += [f"Task {task} is not known to a worker that was given it; it goes back for 30 s at a time" for task in unknown_tasks(seen)]
    return lines + [painted(note, "yellow", colour=colour) for note in notes]


def _queue_row(queue: QueueStatus, rare: list[str]) -> list[Cell]:
    from mulligan.cli.job_view import short_id
    from mulligan.cli.times import seconds_text

    current = queue.current_job
    longest = ""
    if current is not None:
        retry = ", a retry" if current.is_retry else ""
        longest = f"{current.task} {short_id(current.job_id)}, {seconds_text(current.running_s)}{retry}"
    styles = {"stuck": "red", "cancelled": ""}
    return [
        (f"{queue.region} (paused)", "yellow") if queue.paused else queue.region,
        f"{queue.ready}/{queue.queue_size}",
        f"{queue.retry_ready}/{queue.retry_queue_size}",
        queue.running,
        queue.done,
        (queue.failed, "red") if queue.failed else 0,
        *((getattr(queue, name), styles[name]) for name in rare),
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
        "limits": seen.limits,
        "breakers": seen.breakers,
    }
