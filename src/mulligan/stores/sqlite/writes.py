"""How the outcome of a claim, or an operator's wish, is written into the row of a job."""

from __future__ import annotations

from typing import Any

from mulligan.core.change import Change
from mulligan.core.job import Status
from mulligan.stores.sqlite.bulk import ROWS, Params
from mulligan.stores.sqlite.hop import Transaction
from mulligan.stores.sqlite.rows import to_json

_WIDTH = 17
NO_DELAY = -1
# The rows: id, status and fence before, then the new values; what stands there for NULL, because None is dear (bulk.py), is no value
# of its column. INDEXED BY keeps the planner from starting at the leases.
_APPLY = f"""
UPDATE mulligan_jobs INDEXED BY mulligan_jobs_id SET
  updated_at_us = ?, finished_at_us = iif(v.column4 = 'pending', NULL, ?), run_at_us = iif(v.column4 = 'pending', v.column5, NULL),
  due_us = iif(v.column4 = 'pending', v.column5, due_us),
  status = v.column4, lane = v.column6, attempts = v.column7, failures = v.column8, crashes = v.column9, snoozes = v.column10,
  releases = v.column11, generation = v.column12, last_delay_us = nullif(v.column13, {NO_DELAY}),
  last_error = nullif(v.column14, ''), error_record = NULL, result_json = nullif(v.column15, ''), settle_id = v.column16,
  cancel_requested = iif(v.column17, 0, cancel_requested),
  due_first_us = iif(v.column17 AND v.column4 = 'pending', v.column5, due_first_us),
  ready = 0, claim_id = NULL, claim_place = NULL, lease_owner = NULL, lease_expires_at_us = NULL, slots = NULL
FROM {ROWS} AS v
WHERE mulligan_jobs.id = v.column1 AND mulligan_jobs.status = v.column2 AND mulligan_jobs.fence = v.column3
"""


def apply(transaction: Transaction, rows: list[Params]) -> int:
    """Writes each row whose job is as the row says; how many were."""
    return transaction.run_rows(_APPLY, _WIDTH, rows, (transaction.now_us, transaction.now_us))


def row_of_write(change: Change, before: Status, fence: int, status: Status, run_at_us: int | None, *, requeued: bool = False) -> Params:
    """The row that a change writes, given the job's status and fence before it and the status after it."""
    row: tuple[Any, ...] = (
        change.job_id,
        before,
        fence,
        status,
        0 if run_at_us is None else run_at_us,
        change.lane,
        change.attempts,
        change.failures,
        change.crashes,
        change.snoozes,
        change.releases,
        change.generation,
        NO_DELAY if change.last_delay_us is None else change.last_delay_us,
        "" if change.error is None else to_json(change.error),
        change.result_json or "",
        change.settle_id,
        1 if requeued else 0,
    )
    return row
