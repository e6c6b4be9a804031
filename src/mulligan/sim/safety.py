"""Safety: the invariants over one job before and after a step of the store, by what its account says. Each tells what is wrong, or nothing.

Numbers as in the list of invariants (docs/guide/simulation.md). What needs more than one job is in claims.py, settling.py and filing.py.
"""

from __future__ import annotations

from collections.abc import Callable

from mulligan.core.job import HISTORY_MAX, LIVE, Job
from mulligan.sim.account import Account

Check = Callable[[Job | None, Job, Account], str]
_FIXED = ("id", "queue", "task", "payload", "policy", "max_retries", "priority", "timeout_us", "max_age_us", "unique_key",
          "concurrency_key", "fair_key", "group", "tags", "trace", "schedule", "tick_us")  # fmt: skip


def s3_fence_rises(before: Job | None, after: Job, account: Account) -> str:
    """Every claim raises the fence by one, and nothing else moves it."""
    if before is not None and after.fence < before.fence:
        return f"the fence fell from {before.fence} to {after.fence}"
    return "" if after.fence == account.fence else f"fence {after.fence} after {account.fence} claims"


def s4_only_what_was_asked(before: Job | None, after: Job, account: Account) -> str:
    """A row has the state that the calls which were let through give it: no more, no less."""
    if after.status != account.status:
        return f"it is {after.status}, and by what was asked of the store it is {account.status}"
    if after.lane != account.lane:
        return f"it stands in the {after.lane} lane, not in the {account.lane} one"
    if after.run_at_us != account.run_at_us:
        return f"it is due at {after.run_at_us}, not at {account.run_at_us}"
    if after.due_first_us != account.due_first_us:
        return f"it counts its age from {after.due_first_us}, not from {account.due_first_us}"
    if after.cancel_requested != account.cancel_requested:
        return f"its cancel wish is {after.cancel_requested}, not {account.cancel_requested}"
    if before is not None:
        for name in (*_FIXED, "created_at_us"):
            if getattr(before, name) != getattr(after, name):
                return f"its {name} has changed"
    return ""


def s5_terminal_is_final(before: Job | None, after: Job, account: Account) -> str:
    """Done and cancelled stay; failed leaves by a requeue, which raises the generation."""
    if after.generation != account.generation:
        return f"generation {after.generation}, not {account.generation}"
    if before is None or before.status in LIVE:
        return ""
    if before.status == "failed" and after.status == "pending" and after.generation == before.generation + 1:
        return ""
    return f"a {before.status} job was written again, and is {after.status}"


def s7_attempts(before: Job | None, after: Job, account: Account) -> str:  # noqa: ARG001 - one signature for all checks
    """Attempts are claims less snoozes and releases, and never above the limit."""
    if after.attempts != account.attempts:
        return f"{after.attempts} attempts; counted from outside, {account.attempts}"
    if (after.failures, after.snoozes, after.releases) != (account.failures, account.snoozes, account.releases):
        return (
            f"failures, snoozes, releases are {(after.failures, after.snoozes, after.releases)}; "
            f"counted from outside, {(account.failures, account.snoozes, account.releases)}"
        )
    limit = account.numbers.max_retries
    if limit is not None and after.attempts > limit + 1:
        return f"{after.attempts} attempts, and {limit + 1} executions are allowed"
    return ""


def s8_crashes(before: Job | None, after: Job, account: Account) -> str:  # noqa: ARG001 - one signature for all checks
    """Lost leases are counted, and end a job when there are too many."""
    if after.crashes != account.crashes:
        return f"{after.crashes} crashes; counted from outside, {account.crashes}"
    if after.crashes > account.numbers.max_crashes:
        return f"{after.crashes} crashes, and {account.numbers.max_crashes} are the end"
    if after.crashes == account.numbers.max_crashes and after.status in LIVE:
        return f"it is {after.status} after its last crash"
    return ""


def s12_well_formed(before: Job | None, after: Job, account: Account) -> str:  # noqa: ARG001 - one signature for all checks
    """A row has exactly the fields its status calls for."""
    held = after.status == "processing"
    lease = (after.lease_owner is not None, after.lease_expires_at_us is not None, after.claim_id is not None)
    if lease != (held, held, held):
        return f"{after.status} with owner, end of lease, claim id: {lease}"
    if (after.run_at_us is not None) != (after.status == "pending"):
        return f"{after.status} with a run time of {after.run_at_us}"
    if (after.finished_at_us is not None) != (after.status not in LIVE):
        return f"{after.status} with a finish time of {after.finished_at_us}"
    if after.status == "pending" and after.due_us != after.run_at_us:
        return f"due at {after.due_us} with a run time of {after.run_at_us}"
    if held and (after.lease_owner, after.claim_id) != (account.owner, account.claim_id):
        return f"held by {after.lease_owner} under {after.claim_id}, and was given to {account.owner} under {account.claim_id}"
    if held and after.lease_expires_at_us != account.lease_us:
        return f"the lease ends at {after.lease_expires_at_us}; as it was asked for, at {account.lease_us}"
    if after.status not in LIVE and after.finished_at_us != account.finished_us:
        return f"finished at {after.finished_at_us}, and it ended at {account.finished_us}"
    return ""


def s13_history(before: Job | None, after: Job, account: Account) -> str:
    """One record for each claim that did not simply succeed; none is rewritten, and the newest are kept."""
    known = () if before is None else before.history
    added = account.records - account.records_seen
    if len(after.history) != min(account.records, HISTORY_MAX):
        return f"{len(after.history)} records, and {account.records} settlements were worth one"
    if after.last_error != account.last_error:
        return "the error of its last failure is another one than was settled"
    kept = after.history[: max(0, len(after.history) - added)]
    return "" if kept == known[len(known) - len(kept) :] else "its history was rewritten"


def s19_result(before: Job | None, after: Job, account: Account) -> str:  # noqa: ARG001 - one signature for all checks
    """What a handler returned is there as soon as its job is done."""
    if after.status == "done" and after.result_json != account.result_json:
        return f"the result is {after.result_json}, and the handler returned {account.result_json}"
    return ""


def s20_cancel(before: Job | None, after: Job, account: Account) -> str:  # noqa: ARG001 - one signature for all checks
    """A job whose cancel was requested does not wait to be started."""
    return "it waits to be started though its cancel was requested" if after.status == "pending" and after.cancel_requested else ""


ROW_CHECKS: tuple[tuple[str, Check], ...] = (
    ("S3", s3_fence_rises),
    ("S5", s5_terminal_is_final),
    ("S12", s12_well_formed),
    ("S20", s20_cancel),
    ("S7", s7_attempts),
    ("S8", s8_crashes),
    ("S13", s13_history),
    ("S4", s4_only_what_was_asked),
    ("S19", s19_result),
)
