"""`mulligan bench`: how fast it is on this machine, and how that compares with the bare store or another queue in the same run."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mulligan.cli.options import json_option, own_store_option, run

if TYPE_CHECKING:
    from mulligan.cli.bench_scratch import Scratch

ROUNDS = 3  # of each side where several are compared; they take turns, so that a slow moment of the machine meets all
FIGURES = {
    "enqueue_per_s": ("enqueue, one awaited at a time", "jobs/s"),
    "enqueue_bulk_per_s": ("enqueue in bulk", "jobs/s"),
    "drain_per_s": ("drain by one worker process", "jobs/s"),
    "pickup_p50_ms": ("pick-up by an idle process, median", "ms"),
    "pickup_p99_ms": ("pick-up by an idle process, 99 of 100", "ms"),
    "retry_attempts_per_s": ("retry storm (fail, fail, succeed)", "executions/s"),
    "rss_mb": ("memory of the worker after the drain", "MB"),
    "bare_insert_per_s": ("insert by the bare batch loop of this store", "jobs/s"),
    "bare_drain_per_s": ("drain by the bare batch loop of this store", "jobs/s"),
    "drain_ratio_bare": ("drain, compared with the bare batch loop", "x"),
    "huey_drain_per_s": ("drain by Huey, fsync off", "jobs/s"),
    "drain_ratio_huey": ("drain, compared with Huey", "x"),
    "taskiq_drain_per_s": ("drain by Taskiq, its list broker", "jobs/s"),
    "drain_ratio_taskiq": ("drain, compared with Taskiq", "x"),
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
@click.option(
    "--beside",
    type=click.Choice(["bare", "huey", "taskiq"]),
    multiple=True,
    help="Drain as many jobs with this too, in turns, and print the ratio: the store's bare batch loop, Huey (SQLite), Taskiq (Redis).",
)
@own_store_option("Measure there, in a place made for it and removed afterwards; jobs are not touched.  [default: temporary SQLite files]")
@json_option
def bench(jobs: int, durability: str, beside: tuple[str, ...], store: str | None, as_json: bool) -> None:
    """Measure how fast it is here. Figures of different runs compare badly; ratios of one run compare well."""
    from mulligan.cli import bench_peers
    from mulligan.cli.bench_scratch import Scratch, folder_beside, shown_place
    from mulligan.cli.output import emit, say, table

    if store is not None:
        from mulligan.cli.places import require_shared

        require_shared(store)
    folder = Path(tempfile.mkdtemp(prefix="mulligan-bench-", dir=folder_beside(store)))
    try:
        scratch = Scratch(store, folder, durability)
        peers = list(dict.fromkeys(beside))
        for peer in peers:
            bench_peers.require(peer, scratch.kind)
        figures = run(_measure(scratch, jobs, peers))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        about = {"python": platform.python_version(), "cpus": os.cpu_count(), "durability": durability if store is None else None}
        emit({"jobs": jobs, "store": scratch.kind, **about, **figures})
        return
    table(("figure", ">value", "unit"), [[name, _shown(figures[key]), unit] for key, (name, unit) in FIGURES.items() if key in figures])
    if store is not None:
        say(f"Measured in {shown_place(store)}, which is removed again.")


def _shown(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:,.2f}"


async def _measure(scratch: Scratch, jobs: int, peers: list[str]) -> dict[str, Any]:
    from mulligan.cli import bench_figures
    from mulligan.cli.output import progress

    rounds = ROUNDS if peers else 1
    with progress((1 + len(peers)) * rounds + 3, "measuring") as step:
        async with scratch.place("single") as place:
            one = await bench_figures.enqueue_one_by_one(place.url, max(10, min(jobs, 2_000)))
        step(1)
        ours, others = await _rounds(scratch, jobs, peers, rounds, step)
        async with scratch.place("pickup") as place:
            p50, p99 = await bench_figures.pickup_ms(place.url, max(20, min(jobs // 50, 200)))
        step(1)
        async with scratch.place("storm") as place:
            storm = await bench_figures.retry_storm(place.url, max(10, jobs // 4))
        step(1)
    bulks, drains, memory = zip(*ours, strict=True)
    return {
        "enqueue_per_s": round(one, 1),
        "enqueue_bulk_per_s": round(statistics.median(bulks), 1),
        "drain_per_s": round(statistics.median(drains), 1),
        "pickup_p50_ms": round(p50, 3),
        "pickup_p99_ms": round(p99, 3),
        "retry_attempts_per_s": round(storm, 1),
        "rss_mb": round(max(memory), 1),
        **_compared(jobs, drains, others),
    }


async def _rounds(
    scratch: Scratch, jobs: int, peers: list[str], rounds: int, step: Any
) -> tuple[list[tuple[float, float, float]], dict[str, list[dict[str, float]]]]:
    """The drains of all sides, which take turns: ours as bulk enqueues per second, jobs per second and MB, theirs as they told them."""
    from mulligan.cli import bench_figures, bench_peers

    ours: list[tuple[float, float, float]] = []
    others: dict[str, list[dict[str, float]]] = {peer: [] for peer in peers}
    for number in range(rounds):
        async with scratch.place(f"drain{number}") as place:
            ours.append(await bench_figures.drain(place.url, jobs))
        step(1)
        for peer, told in others.items():
            async with scratch.place(f"{peer}{number}") as place:
                told.append(await bench_peers.drain(peer, place, jobs))
            step(1)
    return ours, others


def _compared(jobs: int, drains: tuple[float, ...], others: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """The figures of the other sides, and the ratios of the medians."""
    figures: dict[str, Any] = {}
    told: dict[str, list[float]] = {"mulligan": [round(rate, 1) for rate in drains]}
    for peer, answers in others.items():
        rates = [jobs / answer["seconds"] for answer in answers]
        figures[f"{peer}_drain_per_s"] = round(statistics.median(rates), 1)
        figures[f"drain_ratio_{peer}"] = round(statistics.median(drains) / statistics.median(rates), 3)
        told[peer] = [round(rate, 1) for rate in rates]
        if all("insert_s" in answer for answer in answers):
            figures[f"{peer}_insert_per_s"] = round(statistics.median(jobs / answer["insert_s"] for answer in answers), 1)
    return {**figures, "rounds": told} if others else {}
