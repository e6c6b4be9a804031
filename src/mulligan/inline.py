"""The job a handler sees when its task is called directly, without the queue."""

from __future__ import annotations

import msgspec

from mulligan.core.job import Job, NewJob, first_row


def inline_job(new: NewJob, now_us: int) -> Job:
    """As if it had been enqueued, claimed and started right now."""
    times = {"run_at_us": None, "due_first_us": now_us, "due_us": now_us}
    return msgspec.structs.replace(first_row(new, now_us), status="processing", attempts=1, fence=1, lease_owner="inline", **times)
