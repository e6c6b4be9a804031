"""The checks about what may happen to a job: LOST, PHANTOM, RERUN, OVERLAP, FENCE, EARLY, EFFECT.

A line is written a moment before or after what it tells, so each check complains only where the order of things is certain.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from mulligan.torture.findings import Findings
from mulligan.torture.history import FOREVER, History, Hold, Life
from mulligan.torture.ledger import Row
from mulligan.torture.spans import Spans

CLOCK_TOLERANCE_US = 50_000  # clocks are compared through calls, and the wall clock may be slewed between two of them
JUST_US = 100_000  # so soon after a pause a process may do what it was about to do when it was stopped
SUCCESS = "done"


def check_lives(history: History, rows: Mapping[str, Row], findings: Findings) -> None:
    """All checks of this module, job by job."""
    outages = Spans((begin, end) for begin, end, _ in history.outages)
    for job, row in rows.items():
        if job not in history.lives or not history.lives[job].tries:
            findings.add("PHANTOM", job, f"stored as {row.status}, but nobody asked for it", "phantom")
    for key, jobs in history.keys.items():
        if key and len(jobs) > 1:
            findings.add("PHANTOM", min(jobs), f"the key {key} belongs to {len(jobs)} jobs", "phantom")
    for job, life in history.lives.items():
        _lost(job, life, rows, findings)
        if life.starts and not life.tries:
            findings.add("PHANTOM", job, "started, but nobody asked for it", "phantom")
        _rerun(job, life, history, findings)
        _overlap(job, life, history, findings)
        _fence(job, life, findings)
        _early(job, life, outages, findings)
        _effect(job, life, rows.get(job), findings)


def successes(life: Life) -> list[tuple[int, int, int]]:
    """The acknowledged successes of a job: time, fence and generation."""
    return [
        (settle.applied_at, fence, settle.gen)
        for fence, hold in life.holds.items()
        for settle in hold.applied()
        if settle.status == SUCCESS
    ]


def _lost(job: str, life: Life, rows: Mapping[str, Row], findings: Findings) -> None:
    # Nothing is pruned in a run, so also a job that has ended must be there.
    if job not in rows and (life.acknowledged_at or any(hold.claimed_at for hold in life.holds.values())):
        was = "its storing was acknowledged" if life.acknowledged_at else "it was claimed"
        findings.add("LOST", job, f"{was}, and it is gone", "lost")


def _rerun(job: str, life: Life, history: History, findings: Findings) -> None:
    for done_at, done_fence, gen in successes(life):
        for started_at, fence, start_gen, pid in life.starts:
            if started_at <= done_at or start_gen != gen:
                continue
            if fence < done_fence and _just_went_on(pid, started_at, history):
                findings.figures["stale_starts"] += 1
                continue
            findings.add("RERUN", job, f"started under fence {fence} after its success under fence {done_fence}", "rerun")


def _just_went_on(pid: int, started_at: int, history: History) -> bool:
    """Whether this process itself was stopped until this very moment: between its last look at the clock and the call of the handler,
    which is all that it cannot know of. The clock goes on in a pause, so it can tell from it how long ago its claim was."""
    return pid in history.pauses and history.pauses[pid].ends_near(started_at, JUST_US)


def _overlap(job: str, life: Life, history: History, findings: Findings) -> None:
    fences = sorted(life.holds)
    for place, fence in enumerate(fences):
        hold = life.holds[fence]
        if hold.starts > 1:
            findings.add("OVERLAP", job, f"started {hold.starts} times under fence {fence}", "overlap")
        kept_until = lease_end(hold, history)
        for settle in hold.applied():
            if settle.guard == "lapsed" and settle.store < kept_until - CLOCK_TOLERANCE_US:
                early_us = kept_until - settle.store
                findings.add("OVERLAP", job, f"taken over under fence {fence} {early_us} us before its lease ended", "overlap")
            if settle.guard == "held" and settle.cause in ("crash", "release") and _is_running(hold, settle.pid, settle.tried_at, history):
                findings.add("OVERLAP", job, f"given away under fence {fence} while its process {hold.runner} ran it", "overlap")
        if not hold.started_at:
            continue
        ended_at = hold.ended_at or min(history.death_after(hold.runner, hold.started_at), FOREVER)
        if ended_at == FOREVER:
            continue  # its process ended in a way that nobody noted
        for later in (life.holds[other] for other in fences[place + 1 :]):
            if (
                later.started_at
                and later.started_at < ended_at
                and later.claimed_at
                and later.claimed_store < kept_until - CLOCK_TOLERANCE_US
            ):
                findings.add("OVERLAP", job, f"a run under fence {fence} still held its lease when the next one was claimed", "overlap")
                break


def lease_end(hold: Hold, history: History) -> int:
    """A time on the store's clock until which this lease certainly lasted, if nothing was settled."""
    lease_us = round(float(history.settings.get("lease_s", 0)) * 1_000_000)
    if not hold.renewed_sent or history.ahead_max == FOREVER:
        return hold.until
    return max(hold.until, hold.renewed_sent - history.ahead_max + lease_us)


def _is_running(hold: Hold, by: int, at: int, history: History) -> bool:
    """Whether another process than `by` was certainly inside the handler at this time."""
    if not hold.started_at or hold.runner == by or hold.started_at > at:
        return False
    return (hold.ended_at or 0) > at and history.death_after(hold.runner, hold.started_at) > at


def _fence(job: str, life: Life, findings: Findings) -> None:
    fences = sorted(life.holds)
    claimed = [life.holds[fence] for fence in fences if life.holds[fence].claimed_at]
    for before, after in pairwise(claimed):
        if after.claimed_store < before.claimed_store:
            findings.add("FENCE", job, "a higher fence was given at an earlier time")
    next_claim_at = FOREVER
    for fence in reversed(fences):
        hold = life.holds[fence]
        if hold.other_claims:
            findings.add("FENCE", job, f"two claims were given fence {fence}", "stale_accepted")
        applied = hold.applied()
        if len(applied) > 1:
            findings.add("FENCE", job, f"settled {len(applied)} times under fence {fence}", "stale_accepted")
        for settle in applied:
            if settle.tried_at > next_claim_at:
                findings.add("FENCE", job, f"a {settle.cause} under fence {fence} was accepted after a higher claim", "stale_accepted")
        if hold.renewed_sent > next_claim_at:
            findings.add("FENCE", job, f"fence {fence} was renewed after a higher claim", "stale_accepted")
        if hold.claimed_at:
            next_claim_at = min(next_claim_at, hold.claimed_at)


def _early(job: str, life: Life, outages: Spans, findings: Findings) -> None:
    # A store that was away during the call may have repeated the insert by itself; a repeat is answered with a later time.
    due = 0 if outages.touch(life.tried_at, life.acknowledged_at) else life.due
    for fence in sorted(life.holds):
        hold = life.holds[fence]
        if hold.claimed_at and due and hold.claimed_store < due:
            findings.add("EARLY", job, f"claimed under fence {fence} {due - hold.claimed_store} us before it was due", "early")
        dues = [settle.due for settle in hold.applied() if settle.status == "pending" and settle.due]
        due = min(dues, default=0)


def _effect(job: str, life: Life, row: Row | None, findings: Findings) -> None:
    highest, keys = 0, set()
    for _, fence, key, fenced, keyed in sorted(life.effects):
        if fenced and fence < highest:
            findings.add("EFFECT", job, f"the sink took fence {fence} after {highest}", "effect")
        highest = max(highest, fence)
        if keyed and key in keys:
            findings.add("EFFECT", job, f"two effects with the key {key}", "effect")
        if keyed:
            keys.add(key)
    if row is not None and row.status == SUCCESS and not life.effects:
        findings.add("EFFECT", job, "done, but it never had an effect", "effect")
