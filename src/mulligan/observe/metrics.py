"""Counters and the execution timer, fed by the event bus."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from mulligan.core.clock import SECOND_US
from mulligan.core.events import Event
from mulligan.core.figures import view_of
from mulligan.observe.flow import Flow

# Upper bounds in seconds; one more bucket takes what is longer.
TIMER_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
COUNTED = {
    "ENQUEUED": "submitted",
    "CLAIM_SUCCESS": "claimed",
    "COMPLETED": "completed",
    "FAILED": "failed",
    "RETRY_SCHEDULED": "retried",
    "RELEASED": "released",
    "SNOOZED": "snoozed",
    "CRASHED": "crashed",
    "CANCELLED": "cancelled",
    "REQUEUED": "requeued",
    "LEASE_LOST": "lease_lost",
}


_QUEUE, _RAN_US = 3, 8  # the places in a row


class Timer:
    """A histogram of execution times."""

    def __init__(self) -> None:
        self.counts = [0] * (len(TIMER_BUCKETS_S) + 1)
        self.count = 0
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        """Adds one execution."""
        self.counts[bisect_left(TIMER_BUCKETS_S, seconds)] += 1
        self.count += 1
        self.total_s += seconds

    def observe_all(self, seconds: Sequence[float]) -> None:
        """Adds many executions."""
        ordered, before = sorted(seconds), 0
        for place, bound in enumerate(TIMER_BUCKETS_S):
            until = bisect_right(ordered, bound)
            self.counts[place] += until - before
            before = until
            if before == len(ordered):
                break
        self.counts[-1] += len(ordered) - before
        self.count += len(seconds)
        self.total_s += sum(seconds)

    def quantile(self, share: float) -> float | None:
        """The upper bound of the bucket that holds the given share of executions; None without any."""
        if self.count == 0:
            return None
        wanted = share * self.count
        seen = 0
        for bound, number in zip(TIMER_BUCKETS_S, self.counts, strict=False):
            seen += number
            if seen >= wanted:
                return bound
        return float("inf")


class Metrics:
    """What this process has seen: P08's counters, per queue and in all, and the timer.

    `failed` counts failed executions (a retried one too); `dead` counts jobs that gave up.
    """

    kinds = tuple(COUNTED)

    def __init__(self) -> None:
        self.totals: Counter[str] = Counter()
        self.by_queue: dict[str, Counter[str]] = {}
        self.execution = Timer()
        self.flow = Flow()

    def on_rows(self, kind: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Many events of one kind at once, as rows (core/events)."""
        name = COUNTED[kind]
        queues = [row[_QUEUE] for row in rows]
        numbers: dict[str, int] = dict.fromkeys(queues, len(queues))  # mostly there is one
        for queue, number in numbers.items() if len(numbers) < 2 else Counter(queues).items():
            counter = self.by_queue.get(queue)
            if counter is None:
                counter = self.by_queue[queue] = Counter()
            counter[name] += number
        self.totals[name] += len(rows)
        if kind == "COMPLETED" or kind == "FAILED":  # such a row's failure is not final
            self.execution.observe_all([row[_RAN_US] / SECOND_US for row in rows])

    def on_event(self, event: Event) -> None:
        """One event."""
        name = COUNTED[event.kind]
        queue = self.by_queue.get(event.queue)
        if queue is None:
            queue = self.by_queue[event.queue] = Counter()
        self.totals[name] += 1
        queue[name] += 1
        if event.kind == "COMPLETED" or event.kind == "FAILED":
            self.execution.observe(event.ran_us / SECOND_US)
            if event.detail.get("final"):
                self.totals["dead"] += 1
                queue["dead"] += 1

    def snapshot(self) -> dict[str, Any]:
        """All numbers as plain data."""
        ended = self.totals["completed"] + self.totals["failed"]
        return {
            **{name: self.totals[name] for name in (*COUNTED.values(), "dead")},
            "failure_rate": self.totals["failed"] / ended if ended else 0.0,
            "execution": {
                "count": self.execution.count,
                "total_s": round(self.execution.total_s, 6),
                "p50_s": self.execution.quantile(0.5),
                "p99_s": self.execution.quantile(0.99),
                "buckets": dict(zip([*map(str, TIMER_BUCKETS_S), "inf"], self.execution.counts, strict=True)),
            },
            "queues": {queue: dict(counter) for queue, counter in sorted(self.by_queue.items())},
            "flow": {queue: msgspec.to_builtins(view_of(figures)) for queue, figures in sorted(self.flow.totals().items())},
            "levels": dict(sorted(self.flow.levels.items())),
            "breakers": dict(sorted(self.flow.breakers.items())),
        }
