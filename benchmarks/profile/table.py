"""What the measurements of one store come to: the truth from the runs without an instrument, the shares from those with one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.growth.page import markdown
from benchmarks.profile.stages import STAGES

MICRO = 1e6


def profile_of(jobs: int, plain: Sequence[dict[str, Any]], sampled: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures of one store, in microseconds of processor time for each job (of a storm: for each attempt)."""
    costs_us = [one["cpu_s"] * MICRO / jobs for one in plain]
    cost_us = median(costs_us)
    own: Counter[str] = Counter()
    in_driver: Counter[str] = Counter()
    for one in sampled:
        for stage, is_driver, seconds in one["spots"]:
            (in_driver if is_driver else own)[stage] += seconds
    seen_s = own.total() + in_driver.total()
    scale = cost_us / seen_s if seen_s else 0.0
    return {
        "jobs": jobs,
        "rounds": len(plain),
        "cpu_us_per_job": round(cost_us, 2),
        "cpu_us_least": round(min(costs_us), 2),
        "cpu_us_most": round(max(costs_us), 2),
        "wall_us_per_job": round(median(one["wall_s"] * MICRO / jobs for one in plain), 2),
        "sampled_cpu_us_per_job": round(median(one["cpu_s"] * MICRO / jobs for one in sampled), 2),
        "looks": sum(one["looks"] for one in sampled),
        "stages": {
            stage: {"own_us": round(own[stage] * scale, 2), "driver_us": round(in_driver[stage] * scale, 2)}
            for stage in STAGES
            if own[stage] or in_driver[stage]
        },
    }


def lines(store: str, figures: dict[str, Any]) -> Iterator[str]:
    """The figures as a table for people."""
    spread = f"{figures['cpu_us_least']:.1f} to {figures['cpu_us_most']:.1f}"
    yield (
        f"{store}: {figures['cpu_us_per_job']:.1f} µs of processor time per job ({spread} in {figures['rounds']} rounds of "
        f"{figures['jobs']:,} jobs), {figures['wall_us_per_job']:.1f} µs on the clock; "
        f"with the sampler {figures['sampled_cpu_us_per_job']:.1f} µs, {figures['looks']:,} looks"
    )
    yield f"  {'stage':<13}{'ours':>7}{'driver':>8}{'share':>8}"
    for stage, parts in figures["stages"].items():
        both = parts["own_us"] + parts["driver_us"]
        yield f"  {stage:<13}{parts['own_us']:>7.2f}{parts['driver_us']:>8.2f}{both / figures['cpu_us_per_job']:>8.1%}  {STAGES[stage]}"


def as_markdown(now: Mapping[str, Any], before: Mapping[str, Any]) -> str:
    """For the documentation: each stage on each store, in an older state of the code and in this one."""
    stores = [store for store in now["stores"] if store in before["stores"]]
    head = ["stage, µs", *(f"{store}, {when}" for store in stores for when in ("before", "now"))]
    columns = [found["stages"] for store in stores for found in (before["stores"][store], now["stores"][store])]
    rows = [
        [stage, *(f"{sum(column[stage].values()):.1f}" if stage in column else "-" for column in columns)]
        for stage in STAGES
        if any(stage in column for column in columns)
    ]
    figures = [found for store in stores for found in (before["stores"][store], now["stores"][store])]
    rows.append(["**all**", *(f"**{found['cpu_us_per_job']:.1f}**" for found in figures)])
    rows.append(["least to most", *(f"{found['cpu_us_least']:.1f} to {found['cpu_us_most']:.1f}" for found in figures)])
    rows.append(["on the clock", *(f"{found['wall_us_per_job']:.1f}" for found in figures)])
    return markdown(head, rows)
