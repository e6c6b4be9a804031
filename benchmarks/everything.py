"""`make bench`: every store beside its bare batch loop, SQLite beside Huey too, Redis beside Taskiq too; a table of ratios at the end.

The servers are those of the tests, started for this run and gone after it. `python -m benchmarks.everything --help` tells the options.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.servers import ServerFailed, server_url

BESIDE = {
    "sqlite": ("bare", "huey"),
    "postgres": ("bare",),
    "mongo": ("bare",),
    "redis": ("bare", "taskiq"),
}
# No-op jobs to drain in each round: some seconds' worth, so that what a cold start costs is a small part of it.
JOBS = {"sqlite": 20_000, "postgres": 60_000, "mongo": 20_000, "redis": 60_000}
# What the ratios are meant to be at least.
TARGETS = {"sqlite": {"huey": 8.0}, "postgres": {"bare": 0.4}, "mongo": {"bare": 0.4}, "redis": {"taskiq": 5.0}}
FLOORS = {"redis": 20_000}  # jobs per second


def say(text: str = "") -> None:
    """One line, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def measured(store: str, jobs: int) -> dict[str, Any] | None:
    """The figures of one store; None if its server cannot be started here or the measurement fails, which is told."""
    command = [sys.executable, "-m", "mulligan", "bench", "--json", "--jobs", str(jobs)]
    for peer in BESIDE[store]:
        command += ["--beside", peer]
    if store != "sqlite":
        try:
            command += ["--store", server_url(store)]
        except ServerFailed as problem:
            say(f"{store}: not measured, {problem}")
            return None
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        say(f"{store}: not measured, {answer.stdout.strip()} {answer.stderr.strip()}")
        return None
    figures: dict[str, Any] = json.loads(answer.stdout)
    return figures


def show(store: str, figures: dict[str, Any]) -> None:
    """The figures of one store, in words."""
    names = ("enqueue_per_s", "enqueue_bulk_per_s", "drain_per_s", "retry_attempts_per_s", "pickup_p50_ms", "pickup_p99_ms", "rss_mb")
    say(f"{store}: " + ", ".join(f"{name} {figures[name]:,.1f}" for name in names))


def show_ratios(results: dict[str, dict[str, Any]]) -> None:
    """One line for each comparison: drained jobs per second of both sides, the ratio, and what it is meant to be."""
    say()
    say(f"{'store':<10}{'beside':<10}{'ours/s':>10}{'theirs/s':>10}{'ratio':>8}  target")
    for store, figures in results.items():
        for peer in BESIDE[store]:
            target = TARGETS[store].get(peer)
            ratio = figures[f"drain_ratio_{peer}"]
            verdict = "" if target is None else f"{target:g} {'reached' if ratio >= target else 'MISSED'}"
            line = f"{store:<10}{peer:<10}{figures['drain_per_s']:>10,.0f}{figures[f'{peer}_drain_per_s']:>10,.0f}{ratio:>8.2f}  {verdict}"
            say(line.rstrip())
    for store, floor in FLOORS.items():
        if store in results:
            drained = results[store]["drain_per_s"]
            say(f"{store} drains {drained:,.0f} jobs/s; meant to be {floor:,} at least: {'reached' if drained >= floor else 'MISSED'}")


def main() -> int:
    """Measures what was asked for; 0 if everything could be measured, whatever came out."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description="Measure every store beside its bare loop and its peers.")
    parser.add_argument("--jobs", type=int, help="no-op jobs to drain in each round (20000; on PostgreSQL and Redis 60000)")
    parser.add_argument("--only", choices=list(BESIDE), action="append", help="measure only this store; may be repeated")
    parser.add_argument("--out", type=Path, help="also write all figures to this file, as JSON")
    wanted = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    stores = wanted.only or list(BESIDE)
    for store in stores:
        figures = measured(store, wanted.jobs or JOBS[store])
        if figures is not None:
            results[store] = figures
            show(store, figures)
    show_ratios(results)
    if wanted.out is not None:
        wanted.out.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    return 0 if len(results) == len(stores) else 1


if __name__ == "__main__":
    sys.exit(main())
