"""Leases: lengthening them, finding those that have ended, and telling their holders to stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mulligan.core.change import Grip
from mulligan.core.clock import SECOND_US
from mulligan.core.contract import CancelAnswer, Renewal, WorkerInfo
from mulligan.core.events import Event
from mulligan.core.job import Job
from mulligan.core.limits import Scope, scopes_of
from mulligan.stores.postgres.careful import slots_lock
from mulligan.stores.postgres.database import Database, Transaction
from mulligan.stores.postgres.entries import ADD_EVENTS, entries_of
from mulligan.stores.postgres.rows import COLUMNS, decode, salvage, to_json

WORKER_MEMORY_US = 3_600 * SECOND_US  # how long a silent worker is listed

_RENEW = """
SELECT id, fence, cancel_requested, is_left, queue, concurrency_key, slots FROM {s}.renew($1, $2, $3, $4, $5, $6, $7)
"""
_RENEW_ENDED = "SELECT id, fence, cancel_requested FROM {s}.renew_ended($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
_WORKERS = "SELECT body, seen_at_us FROM {s}.workers ORDER BY id"
OVERDUE = f"""
SELECT {", ".join(COLUMNS)}, t.at_us FROM {{s}}.now_us($1) AS t(at_us), LATERAL (
  SELECT * FROM {{s}}.jobs k WHERE k.status = 'processing' AND k.lease_expires_at_us <= t.at_us
  ORDER BY k.lease_expires_at_us, k.id LIMIT $2) AS j
ORDER BY j.lease_expires_at_us, j.id
"""
_LOCK = "SELECT id, status, queue, task, fence, attempts, at_us FROM {s}.lock_states($1, $2)"
_CANCEL = """
WITH cancelled AS (
  UPDATE {s}.jobs SET status = 'cancelled', cancel_requested = true, run_at_us = NULL, ready = false, finished_at_us = $2,
    updated_at_us = $2
  WHERE id = ANY ($1::text[]) RETURNING queue
)
INSERT INTO {s}.tallies (queue, status, jobs) SELECT queue, 'cancelled', count(*) FROM cancelled GROUP BY queue
"""
_ASK_TO_STOP = "UPDATE {s}.jobs SET cancel_requested = true WHERE id = ANY ($1::text[])"

_worker_decoder = msgspec.json.Decoder(WorkerInfo)


async def renew(database: Database, grips: Sequence[Grip], lease_us: int, worker: WorkerInfo | None) -> list[Renewal]:
    """Lengthens the leases that are still held, and notes that the worker lives."""
    wanted = sorted({(grip.job_id, grip.fence) for grip in grips})
    rows = await database.rows(
        _RENEW,
        database.now_us(),
        [job_id for job_id, _ in wanted],
        [fence for _, fence in wanted],
        lease_us,
        None if worker is None else worker.id,
        None if worker is None else to_json(worker),
        WORKER_MEMORY_US,
    )
    held = {(row[0], row[1]): row[2] for row in rows if not row[3]}
    if len(held) < len(rows):
        held |= await _renew_ended(database, grips, {(row[0], row[1]): row for row in rows if row[3]}, lease_us)
    return [_renewal(grip, held.get((grip.job_id, grip.fence))) for grip in grips]


async def _renew_ended(
    database: Database, grips: Sequence[Grip], ended: Mapping[tuple[str, int], Any], lease_us: int
) -> dict[tuple[str, int], bool]:
    """Those of the ended leases that find the slots free that their jobs are processing under, with whether a cancel waits. They are
    judged in the order of the call, alone among all that count these slots."""
    wanted = [key for key in dict.fromkeys((grip.job_id, grip.fence) for grip in grips) if key in ended]
    scopes: list[tuple[int, Scope, int]] = []
    for place, key in enumerate(wanted, start=1):
        _, _, _, _, queue, concurrency_key, slots = ended[key]
        if slots is not None:
            scopes += [(place, scope, most) for scope, most in scopes_of(slots, queue, concurrency_key)]
    rows = await database.rows(
        _RENEW_ENDED,
        database.now_us(),
        sorted({slots_lock(scope.queue) for _, scope, _ in scopes}),
        [job_id for job_id, _ in wanted],
        [fence for _, fence in wanted],
        lease_us,
        [place for place, _, _ in scopes],
        [scope.queue for _, scope, _ in scopes],
        [scope.lane for _, scope, _ in scopes],
        [scope.key for _, scope, _ in scopes],
        [most for _, _, most in scopes],
    )
    return {(row[0], row[1]): row[2] for row in rows}


def _renewal(grip: Grip, cancel_requested: bool | None) -> Renewal:
    if cancel_requested is None:
        return Renewal(job_id=grip.job_id, fence=grip.fence, held=False)
    return Renewal(job_id=grip.job_id, fence=grip.fence, held=True, cancel_requested=cancel_requested)


async def workers(database: Database) -> list[WorkerInfo]:
    """The workers that reported themselves within the last hour, by id."""
    return [msgspec.structs.replace(_worker_decoder.decode(row[0]), seen_at_us=row[1]) for row in await database.rows(_WORKERS)]


async def overdue(database: Database, limit: int) -> list[Job]:
    """Processing jobs whose lease has ended, the oldest end first. Takes nothing over; quarantines what cannot be decoded."""
    now_us = database.now_us()
    rows = await database.reading(lambda transaction: transaction.rows(OVERDUE, now_us, max(0, limit)))
    if not rows:
        return []
    at_us = rows[0]["at_us"]
    jobs = decode(rows, at_us)
    return await salvage(database, rows, at_us) if jobs is None else jobs


async def request_cancel(database: Database, ids: Sequence[str]) -> list[CancelAnswer]:
    """Cancels pending jobs at once, and asks the holders of processing ones to stop."""
    now_us = database.now_us()

    async def work(transaction: Transaction) -> list[CancelAnswer]:
        first, *found = await transaction.rows(_LOCK, now_us, sorted(set(ids)))
        at_us = first[6]
        pending = [row for row in found if row[1] == "pending"]
        processing = [row[0] for row in found if row[1] == "processing"]
        if processing:
            await transaction.rows(_ASK_TO_STOP, processing)
        if pending:
            by_id = {row[0]: row for row in pending}
            await transaction.rows(_CANCEL, list(by_id), at_us)
            events = [_cancelled(by_id[job_id], at_us) for job_id in dict.fromkeys(ids) if job_id in by_id]
            await transaction.rows(ADD_EVENTS, *entries_of(events))
        statuses = {row[0]: row[1] for row in found}
        return [_ANSWERS.get(statuses[job_id], "finished") if job_id in statuses else "missing" for job_id in ids]

    return await database.within(work)


_ANSWERS: dict[str, CancelAnswer] = {"pending": "cancelled", "cancelled": "cancelled", "processing": "requested"}


def _cancelled(row: Sequence[object], at_us: int) -> Event:
    job_id, _, queue, task, fence, attempts, _ = row
    return msgspec.convert(
        {"kind": "CANCELLED", "at_us": at_us, "job_id": job_id, "queue": queue, "task": task, "fence": fence, "attempt": attempts}, Event
    )
