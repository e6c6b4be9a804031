"""`mulligan bench`: how fast it is on this machine, and how that compares with another queue in the same run."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from mulligan.cli.options import json_option, own_store_option, run

ROUNDS = 3  # of each side where two are compared; they take turns, so that a slow moment of the machine meets both
FIGURES = {
    "enqueue_per_s": ("enqueue, one awaited at a time", "jobs/s"),
    "enqueue_bulk_per_s": ("enqueue in bulk", "jobs/s"),
    "drain_per_s": ("drain by one worker process", "jobs/s"),
    "pickup_p50_ms": ("pick-up by an idle process, median", "ms"),
    "pickup_p99_ms": ("pick-up by an idle process, 99 of 100", "ms"),
    "retry_attempts_per_s": ("retry storm (fail, fail, succeed)", "executions/s"),
    "rss_mb": ("memory of the worker after the drain", "MB"),
    "huey_drain_per_s": ("drain by Huey, its defaults", "jobs/s"),
    "drain_ratio_huey": ("drain, compared with Huey", "x"),
}


@click.command()
@click.option("--jobs", type=click.IntRange(10, 10_000_000), default=20_000, show_default=True, help="No-op jobs to drain.")
@click.option(
    "--durability",
    type=click.Choice(["full", "normal"]),
    default="full",
    show_default=True,
    help="What a commit of the temporary file waits for.",
)
@click.option("--beside", type=click.Choice(["huey"]), help="Drain as many jobs with this queue too, in turns, and print the ratio.")
@own_store_option("Measure on this store, and leave the finished jobs there.  [default: temporary SQLite files]")
@json_option
def bench(jobs: int, durability: str, beside: str | None, store: str | None, as_json: bool) -> None:
    """Measure how fast it is here. Figures of different runs compare badly; ratios of one run compare well."""
    from mulligan.cli.output import emit, table

    folder = Path(tempfile.mkdtemp(prefix="mulligan-bench-"))
    try:
        figures = run(_measure(_places(store, folder, durability), jobs, beside, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        about = {"python": platform.python_version(), "cpus": os.cpu_count(), "durability": durability if store is None else None}
        emit({"jobs": jobs, **about, **figures})
    else:
        table(("figure", ">value", "unit"), [[name, _shown(figures[key]), unit] for key, (name, unit) in FIGURES.items() if key in figures])


def _shown(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:,.2f}"


def _places(store: str | None, folder: Path, durability: str) -> Callable[[str], str]:
    """The store of each measurement: one new file each, or always the one that was named."""
    if store is not None:
        from mulligan.cli.places import require_shared

        require_shared(store)
        return lambda _name: store
    return lambda name: f"sqlite:///{folder / name}.db?durability={durability}"


async def _measure(place: Callable[[str], str], jobs: int, beside: str | None, folder: Path) -> dict[str, Any]:
    from mulligan.cli import bench_figures
    from mulligan.cli.output import progress

    adapter = _adapter() if beside else None
    rounds = ROUNDS if adapter else 1
    drains, bulks, memory, others = [], [], [], []
    with progress(2 * rounds + 3, "measuring") as step:
        one = await bench_figures.enqueue_one_by_one(place("single"), max(10, min(jobs, 2_000)))
        step(1)
        for number in range(rounds):
            bulk, rate, rss_mb = await bench_figures.drain(place(f"drain{number}"), jobs)
            bulks.append(bulk)
            drains.append(rate)
            memory.append(rss_mb)
            step(1)
            if adapter is not None:
                answer = await bench_figures.child(str(folder / f"huey{number}.db"), str(jobs), program=[str(adapter)])
                others.append(jobs / answer["seconds"])
            step(1)
        p50, p99 = await bench_figures.pickup_ms(place("pickup"), max(20, min(jobs // 50, 200)))
        step(1)
        storm = await bench_figures.retry_storm(place("storm"), max(10, jobs // 4))
        step(1)
    figures: dict[str, Any] = {
        "enqueue_per_s": round(one, 1),
        "enqueue_bulk_per_s": round(statistics.median(bulks), 1),
        "drain_per_s": round(statistics.median(drains), 1),
        "pickup_p50_ms": round(p50, 3),
        "pickup_p99_ms": round(p99, 3),
        "retry_attempts_per_s": round(storm, 1),
        "rss_mb": round(max(memory), 1),
    }
    if others:
        figures["huey_drain_per_s"] = round(statistics.median(others), 1)
        figures["drain_ratio_huey"] = round(statistics.median(drains) / statistics.median(others), 2)
        figures["rounds"] = {"mulligan": [round(rate, 1) for rate in drains], "huey": [round(rate, 1) for rate in others]}
    return figures


def _adapter() -> Path:
    """The measuring program of the other side, if it can run here."""
    from mulligan.cli.bench_figures import huey_adapter
    from mulligan.core.errors import BadSetting

    if importlib.util.find_spec("huey") is None:
        raise BadSetting(
            "--beside huey needs Huey, which is not installed in this Python; install it (pip install huey), or leave --beside out"
        )
    path = huey_adapter()
    if not path.exists():
        raise BadSetting("--beside huey works in a checkout of the repository only: its measuring program is not part of the package")
    return path
