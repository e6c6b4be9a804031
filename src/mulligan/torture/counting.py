"""The checks about counters and the final state: ATTEMPTS and STATE. Counted from the ledger, compared with what is stored."""

from __future__ import annotations

from collections.abc import Mapping

from mulligan.torture.findings import Findings
from mulligan.torture.history import FOREVER, History, Hold, Life, Settle
from mulligan.torture.ledger import Row
from mulligan.torture.spans import Spans

ENDS = ("done", "failed", "cancelled")
CAUSES = ("kill", "pause", "outage")  # of a crash, in the order in which they are looked for
# Which causes of a settle a stored counter counts.
COUNTERS = {
    "failures": ("failure", "timeout", "retry asked"),
    "crashes": ("crash",),
    "snoozes": ("snooze",),
    "releases": ("release",),
}


def check_counts(history: History, rows: Mapping[str, Row], findings: Findings, slack_s: float = 0.0) -> None:
    """ATTEMPTS and STATE, job by job."""
    deeds = Deeds(history)
    for job, row in rows.items():
        life = history.lives.get(job)
        if life is None:
            continue  # a phantom, which is told elsewhere
        _attempts(job, life, row, deeds, findings)
        _shape(job, row, findings)
        _end(job, life, row, findings)
        _crashes(job, life, row, deeds, findings, slack_s)
    findings.figures["starts"] = sum(len(life.starts) for life in history.lives.values())
    findings.figures["starts_max"] = max((len(life.starts) for life in history.lives.values()), default=0)


def _attempts(job: str, life: Life, row: Row, deeds: Deeds, findings: Findings) -> None:
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
        said, asked = _counted(holds, causes, row.generation, deeds)
        if not said <= getattr(row, counter) <= asked:
            findings.add("ATTEMPTS", job, f"{counter} is {getattr(row, counter)}, the ledger shows {said} to {asked}")
    free = sum(any(settle.cause in ("snooze", "release") for settle in hold.settles) for hold in holds.values() if hold.starts)
    starts = sum(hold.starts for hold in holds.values())
    if limit is not None and (row.attempts > limit or starts - free > limit):
        findings.add("ATTEMPTS", job, f"{starts} starts, {free} of them free, {row.attempts} attempts: {limit} are allowed", "over_limit")
    if row.crashes > deeds.max_crashes:
        findings.add("ATTEMPTS", job, f"{row.crashes} crashes", "over_limit")


def _counted(holds: Mapping[int, Hold], causes: tuple[str, ...], generation: int, deeds: Deeds) -> tuple[int, int]:
    """How often such an outcome was accepted for certain, and how often it may have been."""
    ours = [[settle for settle in hold.settles if settle.cause in causes and settle.gen == generation] for hold in holds.values()]
    said = sum(any(settle.applied_at for settle in settles) for settles in ours)
    asked = sum(any(settle.applied_at or not settle.refused_at or deeds.may_be_late(settle) for settle in settles) for settles in ours)
    return said, asked


def _shape(job: str, row: Row, findings: Findings) -> None:
    held = row.owner is not None and row.lease_until is not None
    if (row.status == "processing") != held or (row.owner is None) != (row.lease_until is None):
        findings.add("STATE", job, f"{row.status}, held by {row.owner} until {row.lease_until}")
    if (row.status == "pending") != (row.run_at is not None):
        findings.add("STATE", job, f"{row.status}, due at {row.run_at}")
    if (row.status in ENDS) != (row.finished_at is not None):
        findings.add("STATE", job, f"{row.status}, finished at {row.finished_at}")


def _end(job: str, life: Life, row: Row, findings: Findings) -> None:
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
    if row.status == "cancelled" and not life.is_unwanted:
        findings.add("STATE", job, "cancelled, and nobody asked for it")


def _crashes(job: str, life: Life, row: Row, deeds: Deeds, findings: Findings, slack_s: float) -> None:
    """What the job was charged with, and what the ledger shows as the cause of each."""
    own = 0
    for fence, hold in life.holds.items():
        crash = _crash(hold, row.generation)
        if crash is None:
            continue
        cause = deeds.cause(life, fence, crash)
        findings.figures["crashes"] += 1
        findings.figures[f"crashes_by_{cause}" if cause else "crashes_unexplained"] += 1
        own += bool(cause)
        # A machine that is busy with other things may be late with a renewal; nothing makes a process die but a fault.
        is_certain = crash.applied_at and not (crash.guard == "lapsed" and slack_s)
        if is_certain and not cause:
            findings.add("ATTEMPTS", job, f"charged with a crash under fence {fence}, and nothing was done to its process or its store")
    if row.status == "failed":
        findings.figures["failed"] += 1
        if own < deeds.max_crashes:
            findings.add("STATE", job, f"failed, and the ledger shows {own} deaths of its own", "failed_unexplained")


def _crash(hold: Hold, generation: int) -> Settle | None:
    """The crash that was charged under a fence; one that nobody has answered only where no other outcome was accepted."""
    crashes = [settle for settle in hold.settles if settle.cause == "crash" and settle.gen == generation]
    if applied := [settle for settle in crashes if settle.applied_at]:
        return applied[0]
    open_ones = [settle for settle in crashes if not settle.refused_at]
    return open_ones[0] if open_ones and not hold.applied() else None


class Deeds:
    """What the nemesis has done, and to whom."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._kills = Spans((begin, end) for times in history.deaths.values() for begin, end in times)
        self._pauses = Spans(piece for spans in history.pauses.values() for piece in spans.pieces(0, FOREVER))
        self._outages = Spans((begin, end) for begin, end, _ in history.outages)
        self._resets = Spans((begin, end) for begin, end, how in history.outages if how == "reset")
        self._downs = Spans((begin, end) for begin, end, how in history.outages if how != "reset")
        self.max_crashes = int(history.settings.get("max_crashes", 3))
        self._lease_us = round(float(history.settings.get("lease_s", 0)) * 1_000_000)

    def may_be_late(self, settle: Settle) -> bool:
        """Whether a refusal may be the answer to a repeat: the store went away during the call, and a job that was settled by the first
        try may have been claimed, and settled, by another before the second one came."""
        return self._outages.touch(settle.tried_at, settle.refused_at)

    def cause(self, life: Life, fence: int, crash: Settle) -> str:
        """What was done to the process that had this job, or to its supervisor or the store, while it had it; nothing: empty."""
        history, hold, end = self._history, life.holds[fence], crash.tried_at
        if hold.claimed_at:
            begin = history.claimed_from(hold)
            parent = history.parent(hold.claimer, hold.claimed_at)
            holders = {history.holder(hold), parent}
            if hold.is_alone and not hold.runner:  # the child that was to run it may have died before it could note the start
                holders |= {pid for pid in history.deaths if history.parent(pid, history.death_after(pid, begin)) == parent}
            was_killed = any(history.death_after(pid, begin) <= end for pid in holders)
            was_stopped = any(history.pauses[pid].touch(begin, end) for pid in holders if pid in history.pauses)
        else:  # whoever claimed it did not live to say so, or was stopped, or not answered: then there was somebody like that
            begin = _free_from(life, fence)
            was_killed = self._kills.touch(begin, end)
            was_stopped = self._pauses.touch(begin, end)
        # Wires that were cut keep a renewal from the store, and nothing else: they make no process die, and come too late once it lapsed.
        known_at = max(hold.claimed_at, hold.renewed_at)
        lapsed_at = known_at + self._lease_us if known_at else end
        was_cut = crash.guard == "lapsed" and self._resets.touch(max(begin, hold.renewed_at), min(end, lapsed_at))
        found = (was_killed, was_stopped, was_cut or self._downs.touch(begin, end))
        return next((cause for cause, was_done in zip(CAUSES, found, strict=True) if was_done), "")


def _free_from(life: Life, fence: int) -> int:
    """From when on this fence can have been given: the job was stored, or was settled before."""
    before = [settle.tried_at for number, hold in life.holds.items() if number < fence for settle in hold.applied()]
    return max(before, default=life.tried_at)
