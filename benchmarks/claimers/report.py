"""Rounds of contests as medians and spread, and as tables: for the terminal, and for the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.growth.page import markdown
from benchmarks.peers.figures import Summary, summary
from benchmarks.peers.table import columns, shown, with_spread

Rounds = Sequence[Mapping[str, float]]  # the figures of each round
Table = tuple[str, Sequence[str], list[list[str]]]  # title, head, rows
CONTEST_HEAD = (
    "claimers",
    "jobs/s",
    "to one",
    "short",
    "empty",
    "claim p50 ms",
    "p99 ms",
    "worst ms",
    "least part",
    "largest part",
    "twice",
    "trouble",
)
WORKER_HEAD = ("processes", "jobs/s", "to one", "least part", "largest part")
FAIR = (0.5, 2.0)  # what each part should lie between
WRONG = ("twice", "lost", "refused")
TROUBLE = ("errors", "rollbacks", "deadlocks", "write_conflicts", "aborted", "failed_commands")


def medians(rounds: Rounds) -> dict[str, Summary]:
    """Each figure over all rounds."""
    return {name: summary([one[name] for one in rounds]) for name in rounds[0]}


def wrong(result: Mapping[str, Any]) -> list[str]:
    """What must never be: a job that two claimers got, one that nobody got, a settle of its holder that was refused."""
    return [
        f"{store}, {claimers} claimers: {one[name]:.0f} {name}"
        for store, found in result["contests"].items()
        for claimers, rounds in found.items()
        for one in rounds
        for name in WRONG
        if one[name]
    ]


def uneven(result: Mapping[str, Any]) -> list[str]:
    """Where claimers got very different parts. A short contest or a busy machine can do that; a store should not."""
    told = []
    for store, found in result["contests"].items():
        for claimers, rounds in found.items():
            least, largest = (medians(rounds)[name].median for name in ("least_share", "largest_share"))
            if not FAIR[0] <= least <= largest <= FAIR[1]:
                told.append(f"{store}, {claimers} claimers: the parts go from {least:.2f} to {largest:.2f} of an equal one")
    return told


def contest_rows(found: Mapping[str, Rounds]) -> list[list[str]]:
    """A line for each number of claimers."""
    first = medians(next(iter(found.values())))["jobs_per_s"].median
    rows = []
    for claimers, rounds in found.items():
        of = medians(rounds)
        trouble = [f"{name.replace('_', ' ')} {shown(of[name].high)}" for name in TROUBLE if name in of and of[name].high]
        rows.append(
            [
                claimers,
                with_spread(of["jobs_per_s"]),
                f"{of['jobs_per_s'].median / first:.2f}x",
                f"{of['short_share'].median:.1%}",
                f"{of['empty_share'].median:.1%}",
                shown(of["claim_p50_ms"].median),
                shown(of["claim_p99_ms"].median),
                shown(of["claim_worst_ms"].high),
                f"{of['least_share'].median:.2f}",
                f"{of['largest_share'].median:.2f}",
                shown(of["twice"].high),
                ", ".join(trouble) or "none",
            ]
        )
    return rows


def worker_rows(found: Mapping[str, Rounds]) -> list[list[str]]:
    """A line for each number of processes."""
    first = medians(next(iter(found.values())))["jobs_per_s"].median
    rows = []
    for processes, rounds in found.items():
        of = medians(rounds)
        rate = of["jobs_per_s"]
        parts = [f"{of[name].median:.2f}" for name in ("least_share", "largest_share")]
        rows.append([processes, with_spread(rate), f"{rate.median / first:.2f}x", *parts])
    return rows


def as_text(result: Mapping[str, Any]) -> str:
    """For the terminal."""
    parts = [f"{title}\n{columns([head, *rows])}" for title, head, rows in _tables(result)]
    return "\n\n".join(parts)


def as_markdown(result: Mapping[str, Any]) -> str:
    """For the documentation."""
    parts = [f"**{title}**\n\n{markdown(head, rows)}" for title, head, rows in _tables(result)]
    return "\n\n".join(parts)


def _tables(result: Mapping[str, Any]) -> list[Table]:
    jobs = result["jobs"]
    tables: list[Table] = []
    for store, found in result["contests"].items():
        tables.append((f"{store}: claimers of {result['total']} on one queue of {jobs:,} jobs", CONTEST_HEAD, contest_rows(found)))
    for store, tasks in result["workers"].items():
        for task, found in tasks.items():
            tables.append(
                (f"{store}: `mulligan worker --processes N`, jobs that do {result['tasks'][task]}", WORKER_HEAD, worker_rows(found))
            )
    return tables
