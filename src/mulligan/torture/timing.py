"""The checks about time: RECOVER and WAKE. What nobody could help is taken off: outages of the store, pauses of those who should act."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from mulligan.torture.findings import Findings
from mulligan.torture.history import FOREVER, History, Hold, Life, Spans

SECOND_US = 1_000_000
RECONNECT_US = 5 * SECOND_US  # the store's return is promised to be noticed so soon
CHILD_US = SECOND_US
BEYOND_LEASE_US = SECOND_US
WAKE_US = 200_000


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
    recovery_worker_max_s: float
    recovery_beyond_lease_max_s: float
    recoveries: int
    recoveries_worker: int
    wake_max_s: float
    idle_spans: int  # in how many stretches of time somebody had nothing to do, so that it could have been seen


def check_times(history: History, findings: Findings, slack_s: float) -> Times:
    """RECOVER and WAKE, with what a loaded machine is allowed beyond the bounds."""
    slack_us = round(slack_s * SECOND_US)
    down = Spans()
    down.spans = [(begin, end + RECONNECT_US) for begin, end in history.outages.spans]
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
    wake_us = _wake(history, down, findings, slack_us)
    return Times(
        recovery_max_s=max(child) / SECOND_US,
        recovery_worker_max_s=max(worker) / SECOND_US,
        recovery_beyond_lease_max_s=beyond / SECOND_US,
        recoveries=len(child) - 1,
        recoveries_worker=len(worker) - 1,
        wake_max_s=wake_us / SECOND_US,
        idle_spans=sum(map(len, history.idle.values())),
    )


def recoveries(history: History, down: Spans) -> Iterator[Recovery]:
    """Every job that a killed process had in its hands, and when somebody else took it from there."""
    lease_us = round(float(history.settings.get("lease_s", 0)) * SECOND_US)
    for job, life in history.lives.items():
        for fence, hold in life.holds.items():
            died_at = history.death_after(hold.holder, hold.claimed_at) if hold.claimed_at else FOREVER
            taken_at = _taken_at(life, fence, hold, died_at)
            if taken_at is None or taken_at <= died_at:
                continue
            if not hold.started_at and hold.renewed_sent > died_at + CHILD_US:
                continue  # it was not in the dead one's hands any more: its supervisor keeps it, to be run alone
            parent = history.parents.get(hold.holder, 0)
            took_us = taken_at - died_at - down.within(died_at, taken_at)
            if parent in history.pauses:
                took_us -= history.pauses[parent].within(died_at, taken_at)
            is_child = history.death_after(parent, hold.claimed_at) > taken_at
            lapses_at = max(hold.renewed_at, hold.claimed_at) + lease_us
            limit_us = CHILD_US if is_child else max(0, lapses_at - died_at) + BEYOND_LEASE_US
            yield Recovery(job, fence, took_us, limit_us, is_child)


def _taken_at(life: Life, fence: int, hold: Hold, died_at: int) -> int | None:
    """When the job was certainly no longer held in the dead one's name; None if it had settled it, or may have."""
    if died_at == FOREVER:
        return None
    others = [settle.applied_at for settle in hold.applied() if settle.pid != hold.holder]
    if others:
        return min(others)
    if any(settle.pid == hold.holder and not settle.refused for settle in hold.settles):
        return None
    later = [other.claimed_at for number, other in life.holds.items() if number > fence and other.claimed_at]
    return min(later, default=None)


def _wake(history: History, down: Spans, findings: Findings, slack_us: int) -> int:
    """The longest time that a due job waited while a worker had nothing to do."""
    limit_us = round(float(history.settings.get("poll_s", 1)) * SECOND_US) + WAKE_US
    rest = {pid: sorted(spans) for pid, spans in _resting(history).items()}
    worst = 0
    for job, life in history.lives.items():
        for ready, claimed in _waits(life, history):
            for pid, spans in rest.items():
                place = max(0, bisect_right(spans, (ready, 0)) - 1)
                while place < len(spans) and spans[place][0] < claimed:
                    begin, end = max(ready, spans[place][0]), min(claimed, spans[place][1])
                    place += 1
                    if end - begin <= worst:
                        continue
                    idle_us = end - begin - down.within(begin, end) - _paused(history, pid, begin, end)
                    worst = max(worst, idle_us)
                    if idle_us > limit_us + slack_us:
                        findings.add("WAKE", job, f"due for {idle_us / SECOND_US:.2f} s while process {pid} had nothing to do")
    return worst


def _paused(history: History, pid: int, begin: int, end: int) -> int:
    return sum(history.pauses[one].within(begin, end) for one in (pid, history.parents.get(pid, 0)) if one in history.pauses)


def _resting(history: History) -> dict[int, list[tuple[int, int]]]:
    """When each process had nothing to do: from an answer with too little to its next call, or to its death."""
    return {pid: [(begin, min(end, history.death_after(pid, begin))) for begin, end in spans if end] for pid, spans in history.idle.items()}


def _waits(life: Life, history: History) -> Iterator[tuple[int, int]]:
    """From when the job was due to when it was claimed, each time, on the machine's clock."""
    if history.ahead_max == FOREVER:
        return
    due, known_at = life.due, life.acknowledged_at
    for fence in sorted(life.holds):
        hold = life.holds[fence]
        if hold.claimed_at and due:
            yield max(due + history.ahead_max, known_at), hold.claimed_at
        applied = [settle for settle in hold.applied() if settle.status == "pending"]
        due, known_at = (applied[0].due, applied[0].applied_at) if applied else (0, 0)
