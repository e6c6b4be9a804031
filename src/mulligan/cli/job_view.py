"""A job as plain data for `--json`: plain names, ISO times, arguments and result decoded. And as short texts for tables."""

from __future__ import annotations

import json
from typing import Any

from mulligan.cli.times import iso
from mulligan.core.clock import SECOND_US
from mulligan.core.errors import BadPayload
from mulligan.core.job import ErrorInfo, HistoryRecord, Job
from mulligan.core.receipt import Receipt
from mulligan.policy.retry import thaw

# Where a name of the view differs from the field it shows by more than its unit.
_TIMES = ("run_at", "created_at", "updated_at", "finished_at", "lease_expires_at", "tick")
_SAME = (
    "id",
    "queue",
    "task",
    "status",
    "view",
    "lane",
    "priority",
    "attempts",
    "failures",
    "crashes",
    "snoozes",
    "releases",
    "generation",
    "max_retries",
    "remaining_retries",
    "retries",
    "is_retry",
    "timeout",
    "max_age",
    "fence",
    "claim_id",
    "settle_id",
    "lease_owner",
    "last_delay",
    "schedule",
    "unique_key",
    "concurrency_key",
    "fair_key",
    "depends_on",
    "trace",
    "cancel_requested",
    "idempotency_key",
)


def job_view(job: Job) -> dict[str, Any]:
    """All of a job. What cannot be decoded is left as null, with the raw text and the reason beside it."""
    args, kwargs, problem = arguments(job)
    seen: dict[str, Any] = {name: getattr(job, name) for name in _SAME}
    seen["args"], seen["kwargs"] = args, kwargs
    if problem is not None:
        seen["payload"], seen["payload_error"] = job.payload, problem
    for name in _TIMES:
        seen[name] = iso(getattr(job, f"{name}_us"))
    seen["due_first_at"] = iso(job.due_first_us)
    seen["due_at"] = iso(job.due_us)
    seen["read_at"] = iso(job.read_at_us)
    seen["next_retry_at"] = iso(job.run_at_us) if job.next_retry_at is not None else None
    seen["tags"] = list(job.tags)
    seen["last_error"] = error_view(job.last_error)
    seen["result"] = result_of(job)
    seen["policy"] = policy_view(job)
    seen["history"] = [record_view(record) for record in job.history]
    return seen


def policy_view(job: Job) -> dict[str, Any]:
    """The frozen policy: its numbers as stored, and in a sentence."""
    try:
        numbers = json.loads(job.policy)
    except ValueError:
        numbers = job.policy
    return {"numbers": numbers, "explained": thaw(job.policy, None).explain()}


def error_view(error: ErrorInfo | None) -> dict[str, Any] | None:
    """One recorded error."""
    if error is None:
        return None
    return {
        "type": error.type,
        "message": error.message,
        "code": error.code,
        "traceback": error.traceback,
        "fingerprint": error.fingerprint,
        "at": iso(error.at_us),
    }


def record_view(record: HistoryRecord) -> dict[str, Any]:
    """One record of the history."""
    return {
        "generation": record.generation,
        "attempt": record.attempt,
        "fence": record.fence,
        "outcome": record.outcome,
        "worker": record.worker,
        "started_at": iso(record.started_at_us),
        "ended_at": iso(record.ended_at_us),
        "delay": None if record.delay_us is None else record.delay_us / SECOND_US,
        "why": record.why,
        "error": error_view(record.error),
    }


def receipt_view(receipt: Receipt) -> dict[str, Any]:
    """One receipt, or its raw text where that cannot be decoded."""
    try:
        value = receipt.value
    except BadPayload:
        value = receipt.value_json
    return {"name": receipt.name, "value": value, "fence": receipt.fence, "at": iso(receipt.at_us)}


def arguments(job: Job) -> tuple[list[Any] | None, dict[str, Any] | None, str | None]:
    """The arguments of a job, or why they cannot be read."""
    try:
        return job.args, job.kwargs, None
    except BadPayload as problem:
        return None, None, str(problem)


def result_of(job: Job) -> Any:
    """The result, or its raw text where somebody has stored what is not JSON."""
    try:
        return job.result
    except ValueError:  # msgspec's decoding errors are ValueErrors
        return job.result_json


def short_id(job_id: str) -> str:
    """The end of an id, which tells jobs apart; the beginning is the time and the same for many."""
    return f"…{job_id[-8:]}"


def call_text(job: Job, chars_max: int = 120) -> str:
    """The call a job stands for, as one would type it."""
    args, kwargs, problem = arguments(job)
    if args is None or kwargs is None:
        return f"{job.task}(? {problem})"
    inside = ", ".join([*(json.dumps(value) for value in args), *(f"{name}={json.dumps(value)}" for name, value in kwargs.items())])
    return f"{job.task}({inside})" if len(inside) <= chars_max else f"{job.task}({inside[:chars_max]}…)"


def error_text(error: ErrorInfo | None, chars_max: int = 200) -> str:
    """An error in one line."""
    if error is None:
        return ""
    name = error.type.rpartition(".")[2]
    text = f"{name}: {error.message}" if error.message else name
    return text if len(text) <= chars_max else f"{text[:chars_max]}…"
