"""The checks about time: RECOVER and WAKE. What nobody could help is taken off: outages of the store, pauses of those who should act."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from mulligan.torture.findings import Findings
from mulligan.torture.history import FOREVER, History, Hold, Life
from mulligan.torture.spans import Spans, covered

SECOND_US = 1_000_000
RECONNECT_US = 5 * SECOND_US  # the store's return is promised to be noticed so soon
RESET_US = SECOND_US  # a connection that was cut while the store is up is replaced sooner
BACKOFF_US = SECOND_US  # whoever was refused tries again after so long at most
CHILD_US = SECOND_US
BEYOND_LEASE_US = SECOND_US
WAKE_US = 200_000
NEVER = array("q")


class Recovery(NamedTuple):
    """How long a job of a dead process stayed in its name."""

    job: str
    fence: int
    took_us: int
    limit_us: int
    is_child: bool  # its supervisor was there to see it


class Times(NamedTuple):
    """The worst of each kind, in seconds."""

    recovery_max_s: float
    recovery_child_max_s: float
    recovery_worker_max_s: float
    recovery_beyond_lease_max_s: float
    recoveries: int
    recoveries_worker: int
    wake_max_s: float
    idle_spans: int  # in how many stretches of time somebody had nothing to do, so that it could have been seen


class Downtimes:
    """When a process could not reach its store: outages, each with the time until it is back at work, as its answers show."""

    def __init__(self, history: History) -> None:
        self._outages = history.outages
        self._made: dict[tuple[int, int, int], Spans] = {}
        self.for_all = Spans((begin, end + allowed(how)) for begin, end, how in history.outages)

    def of(self, pid: int, answers: Mapping[int, array[int]], extra_us: int) -> Spans:
        """For one process: its first answer after an outage ends the allowance, so long afterwards."""
        key = (id(answers), pid, extra_us)
        if key not in self._made:
            times = answers.get(pid, NEVER)
            spans = []
            for begin, end, how in self._outages:
                place = bisect_left(times, end)
                first_at = times[place] if place < len(times) else FOREVER
                spans.append((begin, min(end + allowed(how), first_at + extra_us)))
            self._made[key] = Spans(spans)
        return self._made[key]


def back_within(how: str) -> int:
    """How long after the end of an outage of this kind somebody must be answered again: one that only cut wires lets them wait once."""
    return RESET_US + BACKOFF_US if how == "reset" else RECONNECT_US


def allowed(how: str) -> int:
    """How long after the end of an outage of this kind a worker may need to be back."""
    return RESET_US if how == "reset" else RECONNECT_US


def check_times(history: History, findings: Findings, slack_s: float) -> Times:
    """RECOVER and WAKE, with what a loaded machine is allowed beyond the bounds."""
    slack_us = round(slack_s * SECOND_US)
    down = Downtimes(history)
    child, worker = [0], [0]
    beyond = 0
    for one in recoveries(history, down):
        (child if one.is_child else worker).append(one.took_us)
        if not one.is_child:
            beyond = max(beyond, one.took_us - one.limit_us + BEYOND_LEASE_US)
        if one.took_us > one.limit_us + slack_us:
            whose = "child" if one.is_child else "worker"
            seconds, limit = one.took_us / SECOND_US, one.limit_us / SECOND_US
            findings.add(
                "RECOVER", one.job, f"held under fence {one.fence} for {seconds:.2f} s after a {whose}'s death, {limit:.2f} s at most"
            )
    _resumed(history, findings, slack_us)
    wake_us = _wake(history, down, findings, slack_us)
    return Times(
        recovery_max_s=max(child + worker) / SECOND_US,
        recovery_child_max_s=max(child) / SECOND_US,
        recovery_worker_max_s=max(worker) / SECOND_US,
        recovery_beyond_lease_max_s=beyond / SECOND_US,
        recoveries=len(child) - 1,
        recoveries_worker=len(worker) - 1,
        wake_max_s=wake_us / SECOND_US,
        idle_spans=sum(map(len, history.idle.values())),
    )


def recoveries(history: History, down: Downtimes) -> Iterator[Recovery]:
    """Every job that a killed process had in its hands, and when somebody else took it from there."""
    lease_us = round(float(history.settings.get("lease_s", 0)) * SECOND_US)
    for job, life in history.lives.items():
        for fence, hold in life.holds.items():
            holder = history.holder(hold)
            died_at = history.death_after(holder, hold.claimed_at) if hold.claimed_at else FOREVER
            taken_at = _taken_at(life, fence, hold, holder, died_at, history.ahead_max)
            if taken_at is None or taken_at <= died_at:
                continue
            parent = history.parent(hold.claimer, hold.claimed_at)
            is_child = holder != parent and history.death_after(parent, hold.claimed_at) > taken_at
            # A supervisor that is refused waits a little before its next try, also when its renewals are answered by then.
            away = down.of(parent, history.answers, BACKOFF_US) if is_child else down.for_all
            lapses_at = history.held_until(hold, lease_us)
            paused = history.pauses.get(parent) if is_child else None
            dying = history.dying(holder, died_at) if is_child else None
            took_us = taken_at - died_at - covered(died_at, taken_at, away, paused, dying)
            limit_us = CHILD_US if is_child else max(0, lapses_at - died_at) + BEYOND_LEASE_US
            yield Recovery(job, fence, took_us, limit_us, is_child)


def _taken_at(life: Life, fence: int, hold: Hold, holder: int, died_at: int, ahead_us: int) -> int | None:
    """When the job was certainly no longer held in the dead one's name; None if it had settled it, or may have.

    Whoever took it over may have died before it could say so, or have been stopped before it heard the answer. Then the next claim tells:
    it was due again when that was written, or later.
    """
    if died_at == FOREVER:
        return None
    others = [settle.applied_at for settle in hold.applied() if settle.pid != holder]
    if not others and any(settle.pid == holder and not settle.refused_at for settle in hold.settles):
        return None
    later = [other for number, other in life.holds.items() if number > fence and other.claimed_at]
    claimed = [min(other.claimed_at, other.due + ahead_us if other.due else FOREVER) for other in later]
    return min((*others, *claimed), default=None)


def _resumed(history: History, findings: Findings, slack_us: int) -> None:
    """Taking time off for an outage is fair only if work goes on after it: soon, somebody must be answered."""
    over_at = history.stopped_at or history.last_at
    begins = sorted(begin for begin, *_ in history.outages)
    for _, end, how in history.outages:
        back_by = end + back_within(how) + slack_us
        place = bisect_left(begins, end)
        if back_by > over_at or (place < len(begins) and begins[place] < back_by):
            continue  # the run was over, or the next outage came first
        place = bisect_left(history.work, end)
        if place == len(history.work) or history.work[place] > back_by:
            findings.add("RECOVER", "", f"work did not go on within {back_within(how) / SECOND_US:g} s after a {how} of the store")


# --- idle workers --------------------------------------------------------------------------------------------------------


class Resting:
    """When each process had a free slot: from the answer to a claim that left one, to the call that brought a job, or to its end."""

    EPOCH_US = 10 * SECOND_US

    def __init__(self, history: History) -> None:
        self.spans: dict[int, list[tuple[int, int]]] = {}
        self._present: dict[int, list[int]] = defaultdict(list)  # by epoch: few of all processes were there at any one time
        for pid, spans in history.idle.items():
            ended = [(begin, min(end or FOREVER, history.end_of(pid, begin))) for begin, end in spans]
            self.spans[pid] = ended
            for epoch in range(ended[0][0] // self.EPOCH_US, max(end for _, end in ended) // self.EPOCH_US + 1):
                self._present[epoch].append(pid)

    def during(self, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
        """The processes that had a free slot in this time, and from when to when."""
        epochs = range(begin // self.EPOCH_US, end // self.EPOCH_US + 1)
        for pid in {pid for epoch in epochs for pid in self._present.get(epoch, ())}:
            spans = self.spans[pid]
            place = max(0, bisect_right(spans, (begin, 0)) - 1)
            while place < len(spans) and spans[place][0] < end:
                first, last = max(begin, spans[place][0]), min(end, spans[place][1])
                if last > first:
                    yield pid, first, last
                place += 1


def _wake(history: History, down: Downtimes, findings: Findings, slack_us: int) -> int:
    """The longest time that a due job waited while a worker had nothing to do. Its calls do not count: a slow store is not its fault."""
    limit_us = round(float(history.settings.get("poll_s", 1)) * SECOND_US) + WAKE_US
    resting = Resting(history)
    worst = 0
    for job, life in history.lives.items():
        for ready, claimed in _waits(life, history):
            if claimed - ready <= min(worst, limit_us):
                continue
            late: dict[int, int] = {}
            for pid, begin, end in resting.during(ready, claimed):
                if end - begin <= min(worst, limit_us):
                    continue
                idle_us = end - begin - covered(begin, end, *_kept_from(history, down, pid))
                worst = max(worst, idle_us)
                late[pid] = max(late.get(pid, 0), idle_us)
            for pid, idle_us in late.items():
                if idle_us > limit_us + slack_us:
                    findings.add("WAKE", job, f"due for {idle_us / SECOND_US:.2f} s while process {pid} had nothing to do")
    return worst


def _kept_from(history: History, down: Downtimes, pid: int) -> tuple[Spans | None, ...]:
    """What keeps a process with a free slot from asking for work, or is the asking."""
    away = down.of(pid, history.claim_answers, 0)
    paused = (history.pauses.get(one) for one in (pid, *history.parents(pid)))
    return away, *paused, history.blocked.get(pid), history.polls.get(pid)


def _waits(life: Life, history: History) -> Iterator[tuple[int, int]]:
    """From when the job was certainly due to when it can have been claimed at the earliest, each time, on the machine's clock."""
    if history.ahead_max == FOREVER:
        return
    due, known_at = life.due, life.acknowledged_at
    for fence in sorted(life.holds):
        hold = life.holds[fence]
        if hold.claimed_at and due:
            yield max(due + history.ahead_max, known_at), history.claimed_from(hold)
        applied = [settle for settle in hold.applied() if settle.status == "pending"]
        due, known_at = (applied[0].due, applied[0].applied_at) if applied else (0, 0)
