"""What the ledger of processes under limits tells: one Run for each claim, with its times on the machine's clock.

A run is certainly its process's own within its spans: from the answer that granted or renewed its lease until a time at which the store
has not yet taken that lease for ended. Whoever runs on outside of them may have lost its slot and not know it yet; a process that was held
up may do that, and it is not counted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from tests.processes.ledger import Line

SLACK_US = 20_000  # what the clocks of a store and of the machine may differ by within a lease


class Run(NamedTuple):
    """One claim of one job, and what became of it."""

    job: str
    fence: int
    pid: int
    queue: str
    task: str
    lane: str
    claimed_us: int  # by the store's clock
    key: str | None = None
    tenant: str | None = None
    on: str | None = None  # the downstream it depends on
    spans: tuple[tuple[int, int], ...] = ()  # when it was certainly held
    started_us: int | None = None
    ended_us: int | None = None
    outcome: str = ""

    def intervals(self) -> list[tuple[int, int]]:
        """When it ran and was held. A run without an end was killed: it keeps its slot as long as its lease."""
        if self.started_us is None:
            return []
        merged: list[tuple[int, int]] = []
        for held_us, lapses_us in sorted(self.spans):
            begin_us = max(held_us, self.started_us)
            end_us = lapses_us if self.ended_us is None else min(lapses_us, self.ended_us)
            if begin_us >= end_us:
                continue
            if merged and begin_us <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], end_us))
            else:
                merged.append((begin_us, end_us))
        return merged

    @property
    def is_lapsed(self) -> bool:
        """Whether it ran on when its lease was over."""
        end_us = max((end_us for _, end_us in self.spans), default=0)
        return self.started_us is not None and self.ended_us is not None and self.ended_us > end_us


class History(NamedTuple):
    """All runs, and what is wrong with the ledger itself."""

    runs: list[Run]
    problems: list[str]


def read_history(lines: Sequence[Line]) -> History:
    """The runs of a ledger, in the order of their claims in it."""
    runs: dict[tuple[str, int], Run] = {}
    problems: list[str] = []
    for line in lines:
        if line.kind not in ("CLAIM", "HELD", "START", "END"):
            continue
        own = (line.job, line.fence)
        more = json.loads(line.more)
        run = runs.get(own)
        if line.kind == "CLAIM":
            until_us = more.pop("until_us")
            run = run or Run(line.job, line.fence, line.pid, **more)
            more = {"until_us": until_us}
        if run is None or run.pid != line.pid:
            problems.append(f"{line.kind} without a claim of that process: {line}")
            continue
        if line.kind in ("CLAIM", "HELD"):
            run = run._replace(spans=(*run.spans, (line.at_us, more["until_us"] - SLACK_US)))
        elif line.kind == "START":
            if run.started_us is not None:
                problems.append(f"started twice under one fence: {line}")
            run = run._replace(started_us=line.at_us)
        else:
            run = run._replace(ended_us=line.at_us, outcome=more["outcome"])
        runs[own] = run
    return History(list(runs.values()), problems)
