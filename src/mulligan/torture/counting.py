"""The checks about counters and the final state: ATTEMPTS and STATE. Counted from the ledger, compared with what is stored."""

from __future__ import annotations

from collections.abc import Mapping

from mulligan.torture.findings import Findings
from mulligan.torture.history import History, Hold, Life
from mulligan.torture.ledger import Row

ENDS = ("done", "failed", "cancelled")
RECONNECT_US = 5_000_000  # a worker is at work again so soon after its store has come back
# Which causes of a settle a stored counter counts.
COUNTERS = {
    "failures": ("failure", "timeout", "retry asked"),
    "crashes": ("crash",),
    "snoozes": ("snooze",),
    "releases": ("release",),
}


def check_counts(history: History, rows: Mapping[str, Row], findings: Findings) -> None:
    """ATTEMPTS and STATE, job by job."""
    for job, row in rows.items():
        life = history.lives.get(job)
        if life is None:
            continue  # a phantom, which is told elsewhere
        _attempts(job, life, row, history, findings)
        _shape(job, row, findings)
        _end(job, life, row, history, findings)
    findings.figures["starts"] = sum(len(life.starts) for life in history.lives.values())
    findings.figures["starts_max"] = max((len(life.starts) for life in history.lives.values()), default=0)


def _attempts(job: str, life: Life, row: Row, history: History, findings: Findings) -> None:
    holds = {fence: hold for fence, hold in life.holds.items() if hold.gen in (0, row.generation)}
    limit = None if row.max_retries is None else row.max_retries + 1
    if row.generation == 1:
        unseen = [fence for fence in range(1, row.fence + 1) if fence not in life.holds]
        if unseen:
            findings.add("ATTEMPTS", job, f"fence {unseen[0]} was given, and nobody claimed or settled it")
        if row.attempts != row.fence - row.snoozes - row.releases:
            findings.add("ATTEMPTS", job, f"{row.fence} claims, {row.snoozes} snoozes, {row.releases} releases, {row.attempts} attempts")
    if life.holds and max(life.holds) > row.fence:
        findings.add("ATTEMPTS", job, f"claimed under fence {max(life.holds)}, stored with {row.fence}")
    for counter, causes in COUNTERS.items():
        said, asked = _counted(holds, causes, row.generation)
        if not said <= getattr(row, counter) <= asked:
            findings.add("ATTEMPTS", job, f"{counter} is {getattr(row, counter)}, the ledger shows {said} to {asked}")
    free = sum(any(settle.cause in ("snooze", "release") for settle in hold.settles) for hold in holds.values() if hold.starts)
    starts = sum(hold.starts for hold in holds.values())
    if limit is not None and (row.attempts > limit or starts - free > limit):
        findings.add("ATTEMPTS", job, f"{starts} starts, {free} of them free, {row.attempts} attempts: {limit} are allowed", "over_limit")
    if row.crashes > int(history.settings.get("max_crashes", row.crashes)):
        findings.add("ATTEMPTS", job, f"{row.crashes} crashes", "over_limit")


def _counted(holds: Mapping[int, Hold], causes: tuple[str, ...], generation: int) -> tuple[int, int]:
    """How often such an outcome was accepted for certain, and how often it may have been."""
    ours = [[settle for settle in hold.settles if settle.cause in causes and settle.gen == generation] for hold in holds.values()]
    said = sum(any(settle.applied_at for settle in settles) for settles in ours)
    asked = sum(any(settle.applied_at or not settle.refused for settle in settles) for settles in ours)
    return said, asked


def _shape(job: str, row: Row, findings: Findings) -> None:
    held = row.owner is not None and row.lease_until is not None
    if (row.status == "processing") != held or (row.owner is None) != (row.lease_until is None):
        findings.add("STATE", job, f"{row.status}, held by {row.owner} until {row.lease_until}")
    if (row.status == "pending") != (row.run_at is not None):
        findings.add("STATE", job, f"{row.status}, due at {row.run_at}")
    if (row.status in ENDS) != (row.finished_at is not None):
        findings.add("STATE", job, f"{row.status}, finished at {row.finished_at}")


def _end(job: str, life: Life, row: Row, history: History, findings: Findings) -> None:
    if row.status not in ENDS:
        findings.add("STATE", job, f"still {row.status} when all was quiet")
    ends = {
        settle.status for hold in life.holds.values() for settle in hold.applied() if settle.status in ENDS and settle.gen == row.generation
    }
    if ends - {row.status}:
        findings.add("STATE", job, f"acknowledged as {min(ends - {row.status})}, stored as {row.status}")
    cancelled_at = min((at for at, how in life.cancels if how == "cancelled"), default=0)
    if cancelled_at and row.status != "cancelled":
        findings.add("STATE", job, f"acknowledged as cancelled, stored as {row.status}")
    if cancelled_at and any(at > cancelled_at for at, *_ in life.starts):
        findings.add("STATE", job, "started after it was cancelled")
    if row.status == "cancelled" and not life.cancels:
        findings.add("STATE", job, "cancelled, and nobody asked for it")
    explained = [is_explained(hold, history) for hold in life.holds.values() if _crashed(hold, row.generation)]
    findings.figures["crashes"] += len(explained)
    findings.figures["crashes_unexplained"] += explained.count(False)
    if row.status == "failed":
        findings.figures["failed"] += 1
        if explained.count(True) < int(history.settings.get("max_crashes", 3)):
            findings.add("STATE", job, f"failed, and the ledger shows {explained.count(True)} deaths of its own", "failed_unexplained")


def _crashed(hold: Hold, generation: int) -> bool:
    return any(settle.cause == "crash" and settle.gen == generation and not settle.refused for settle in hold.settles)


def is_explained(hold: Hold, history: History) -> bool:
    """Whether something was done to the process that had this job, or to the store, while it had it."""
    begin, end = hold.sent, max(settle.tried_at for settle in hold.settles if settle.cause == "crash")
    if not begin:
        return True  # who claimed it did not live to say so
    parent = history.parents.get(hold.holder, 0)
    if any(history.death_after(pid, begin) <= end for pid in (hold.claimer, hold.holder, parent)):
        return True
    return history.was_paused(hold.holder, begin, end) or history.outages.within(begin - RECONNECT_US, end) > 0
