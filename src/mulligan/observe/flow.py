"""Flow: how the work of each queue went through this process, counted as jobs start and end.

Counted into slots of a minute, so that the last ten minutes can be told beside the whole. What the counts mean is defined in core/figures.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from heapq import heappop, heappush

from mulligan.core.clock import SECOND_US
from mulligan.core.figures import ATTEMPTS_COUNTED, Figures, total
from mulligan.core.job import Job
from mulligan.core.limits import TOKEN

SLOT_US = 60 * SECOND_US
SLOTS = 10  # so many make the recent past
RECENT_US = SLOTS * SLOT_US
UNJUDGED_MAX = 10_000  # retries of one queue and priority that wait to be judged; beyond it the first is judged by what is known
LEVELS_MAX = 1_000  # buckets whose levels are kept
QUEUES_MAX = 1_000  # a job of a queue beyond these is not counted: stored names must not grow this process


class _Line:
    """The starts of one queue and priority, as far as they tell what priority has saved."""

    __slots__ = ("last_fresh_us", "unjudged")

    def __init__(self) -> None:
        self.unjudged: list[tuple[int, int]] = []  # retries, as a heap: when they fell due, when they started
        self.last_fresh_us = 0  # when the last fresh job started


class _QueueFlow:
    """One queue's slots, the newest last, and everything before them."""

    __slots__ = ("before", "lines", "now", "slots")

    def __init__(self, slot_us: int) -> None:
        self.before = Figures()
        self.now = Figures()
        self.slots: deque[tuple[int, Figures]] = deque([(slot_us, self.now)])
        self.lines: dict[int, _Line] = {}

    def turn(self, slot_us: int) -> None:
        """Begins a slot, and lets go of those that are no longer recent."""
        self.now = Figures()
        self.slots.append((slot_us, self.now))
        while self.slots[0][0] <= slot_us - RECENT_US:
            self.before.add(self.slots.popleft()[1])

    def judge(self, line: _Line, retry: tuple[int, int]) -> None:
        """Counts what a retry has saved: no older fresh job will start after it any more, or it is not waited for."""
        self.now.judged += 1
        self.now.saved_us += max(0, line.last_fresh_us - retry[1])


class Flow:
    """One per app, fed by all its workers and claims. `started` and `ended` are on the way of every job."""

    def __init__(self) -> None:
        self._queues: dict[str, _QueueFlow] = {}
        self._slot_us = 0
        self._slot_ends_us = 0
        self.levels: dict[str, float] = {}  # tokens that the last claims saw in the buckets of budgets and rates
        self.breakers: dict[str, str] = {}  # states of the downstreams this process knows

    def started(self, job: Job, now_us: int) -> None:
        """A job's handler is about to be called."""
        if now_us >= self._slot_ends_us:
            self._turn(now_us)
        flow = self._queues.get(job.queue) or self._new(job.queue)
        if flow is None:
            return
        line = flow.lines.get(job.priority)
        if line is None:
            line = flow.lines[job.priority] = _Line()
        due_us, figures = job.due_us, flow.now
        waited_us = now_us - due_us if now_us > due_us else 0
        if job.lane == "fresh":
            figures.fresh_starts += 1
            figures.fresh_wait_us += waited_us
            while line.unjudged and line.unjudged[0][0] <= due_us:
                flow.judge(line, heappop(line.unjudged))
            line.last_fresh_us = now_us
        else:
            figures.retry_starts += 1
            figures.retry_wait_us += waited_us
            heappush(line.unjudged, (due_us, now_us))
            if len(line.unjudged) > UNJUDGED_MAX:
                flow.judge(line, heappop(line.unjudged))

    def ended(self, job: Job, *, ok: bool) -> None:
        """An execution has succeeded or failed."""
        flow = self._queues.get(job.queue) or self._new(job.queue)
        if flow is not None:
            counts = flow.now.succeeded if ok else flow.now.failed
            attempt = job.attempts
            if attempt > ATTEMPTS_COUNTED:
                attempt = ATTEMPTS_COUNTED
            try:
                counts[attempt] += 1
            except KeyError:
                counts[attempt] = 1

    def ran_dry(self) -> None:
        """Nothing is due in any queue: no older fresh job will start after the retries that have started."""
        for flow in self._queues.values():
            for line in flow.lines.values():
                for retry in line.unjudged:
                    flow.judge(line, retry)
                line.unjudged.clear()

    def saw_levels(self, levels: Mapping[str, int]) -> None:
        """What a claim saw in its buckets, in millionths of a token."""
        if len(self.levels) > LEVELS_MAX:
            self.levels.clear()
        for key, level_u in levels.items():
            if not key.startswith("breaker:"):
                self.levels[key] = max(0, level_u) / TOKEN

    def recent(self, now_us: int) -> dict[str, Figures]:
        """The last ten minutes, by queue; queues in which nothing happened are left out."""
        if now_us >= self._slot_ends_us:
            self._turn(now_us)
        found = {name: total(figures for _, figures in flow.slots) for name, flow in self._queues.items()}
        return {name: figures for name, figures in found.items() if figures != Figures()}

    def totals(self) -> dict[str, Figures]:
        """Everything since this process began, by queue."""
        return {name: total([flow.before, *(figures for _, figures in flow.slots)]) for name, flow in self._queues.items()}

    def _turn(self, now_us: int) -> None:
        self._slot_us = now_us - now_us % SLOT_US
        self._slot_ends_us = self._slot_us + SLOT_US
        for flow in self._queues.values():
            flow.turn(self._slot_us)

    def _new(self, queue: str) -> _QueueFlow | None:
        if len(self._queues) >= QUEUES_MAX:
            return None
        flow = self._queues[queue] = _QueueFlow(self._slot_us)
        return flow
