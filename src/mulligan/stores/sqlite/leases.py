"""Leases: lengthening them, finding those that have ended, and telling their holders to stop."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mulligan.core.change import Grip
from mulligan.core.clock import SECOND_US
from mulligan.core.contract import CancelAnswer, Renewal, WorkerInfo
from mulligan.core.events import Event
from mulligan.core.job import Job
from mulligan.core.limits import scopes_of
from mulligan.stores.sqlite.eventlog import append_events
from mulligan.stores.sqlite.hop import Transaction
from mulligan.stores.sqlite.limits import count_slots
from mulligan.stores.sqlite.rows import decode_text, read_text, to_json

WORKER_MEMORY_US = 3_600 * SECOND_US  # how long a silent worker is listed

# Whether a job lost its slots: a lease that has ended gave them away.
_HELD = """
SELECT json_group_array(json_array(j.id, j.seq, j.fence, j.cancel_requested, j.slots IS NOT NULL AND j.lease_expires_at_us <= ?))
FROM (SELECT value AS wanted FROM json_each(?)) AS w CROSS JOIN mulligan_jobs AS j INDEXED BY mulligan_jobs_id
WHERE j.id = w.wanted AND j.status = 'processing'
"""
_LENGTHEN = "UPDATE mulligan_jobs SET lease_expires_at_us = ? WHERE seq IN (SELECT value FROM json_each(?))"
_SLOTS_OF_ENDED = """
SELECT slots, queue, concurrency_key FROM mulligan_jobs WHERE seq = ? AND slots IS NOT NULL AND lease_expires_at_us <= ?
"""
_SEEN = """
INSERT INTO mulligan_workers (id, seen_at_us, body) VALUES (?, ?, ?)
ON CONFLICT (id) DO UPDATE SET seen_at_us = excluded.seen_at_us, body = excluded.body
"""
_FORGET_WORKERS = "DELETE FROM mulligan_workers WHERE seen_at_us < ?"
_WORKERS = "SELECT body FROM mulligan_workers ORDER BY id"
OVERDUE = """
SELECT json_group_array(seq) FROM (
  SELECT seq FROM mulligan_jobs INDEXED BY mulligan_jobs_lease WHERE status = 'processing' AND lease_expires_at_us <= ?
  ORDER BY lease_expires_at_us, id LIMIT ?)
"""
_CANCELLABLE = """
SELECT json_group_array(json_array(j.id, j.seq, j.status, j.queue, j.task, j.fence, j.attempts))
FROM (SELECT value AS wanted FROM json_each(?)) AS w CROSS JOIN mulligan_jobs AS j INDEXED BY mulligan_jobs_id WHERE j.id = w.wanted
"""
_CANCEL = """
UPDATE mulligan_jobs SET status = 'cancelled', cancel_requested = 1, run_at_us = NULL, ready = 0, finished_at_us = ?, updated_at_us = ?
WHERE seq IN (SELECT value FROM json_each(?))
"""
_ASK_TO_STOP = "UPDATE mulligan_jobs SET cancel_requested = 1 WHERE seq IN (SELECT value FROM json_each(?))"


class _Target(msgspec.Struct, frozen=True, array_like=True):
    id: str
    seq: int
    status: str
    queue: str
    task: str
    fence: int
    attempts: int


class _Held(msgspec.Struct, frozen=True, array_like=True):
    id: str
    seq: int
    fence: int
    cancel_requested: int
    has_ended: int  # and with it the hold on its slots


_held_decoder = msgspec.json.Decoder(list[_Held])
_targets_decoder = msgspec.json.Decoder(list[_Target])
_worker_decoder = msgspec.json.Decoder(WorkerInfo)


def renew(transaction: Transaction, grips: Sequence[Grip], lease_us: int, worker: WorkerInfo | None) -> list[Renewal]:
    """Lengthens the leases that are still held, and notes that the worker lives."""
    now_us = transaction.now_us
    own = _held_by(transaction, grips)
    if any(row is not None and row.has_ended for row in own):
        # Each may take the slot the next one needs.
        own = [row if row is not None and _lengthen_if_free(transaction, row, lease_us) else None for row in own]
    elif chosen := sorted({row.seq for row in own if row is not None}):
        transaction.run(_LENGTHEN, (now_us + lease_us, to_json(chosen)))
    if worker is not None:
        transaction.run(_SEEN, (worker.id, now_us, to_json(msgspec.structs.replace(worker, seen_at_us=now_us))))
        transaction.run(_FORGET_WORKERS, (now_us - WORKER_MEMORY_US,))
    return [_renewal(grip, row) for grip, row in zip(grips, own, strict=True)]


def _held_by(transaction: Transaction, grips: Sequence[Grip]) -> list[_Held | None]:
    """The row of each grip; None where it does not hold any more."""
    if not grips:
        return []
    [text] = transaction.row(_HELD, (transaction.now_us, to_json(sorted({grip.job_id for grip in grips}))))
    rows = {row.id: row for row in _held_decoder.decode(text)}
    return [row if (row := rows.get(grip.job_id)) is not None and row.fence == grip.fence else None for grip in grips]


def _lengthen_if_free(transaction: Transaction, row: _Held, lease_us: int) -> bool:
    """Lengthens one lease, if it has not ended or its slots are free; whether that was so."""
    ended = transaction.row(_SLOTS_OF_ENDED, (row.seq, transaction.now_us))
    if ended is not None:
        wanted = scopes_of(*ended)
        taken = count_slots(transaction, [scope for scope, _ in wanted])
        if any(taken[scope] >= most for scope, most in wanted):
            return False
    transaction.run(_LENGTHEN, (transaction.now_us + lease_us, to_json([row.seq])))
    return True


def _renewal(grip: Grip, row: _Held | None) -> Renewal:
    is_cancelled = row is not None and bool(row.cancel_requested)
    return Renewal(job_id=grip.job_id, fence=grip.fence, held=row is not None, cancel_requested=is_cancelled)


def workers(transaction: Transaction) -> list[WorkerInfo]:
    """The workers that reported themselves within the last hour, by id."""
    return [_worker_decoder.decode(body) for (body,) in transaction.rows(_WORKERS)]


def overdue(transaction: Transaction, limit: int) -> tuple[list[Job] | None, str]:
    """Processing jobs whose lease has ended, the oldest end first (None if one cannot be decoded), and their seq as a JSON list."""
    [chosen] = transaction.row(OVERDUE, (transaction.now_us, max(0, limit)))
    return decode_text(read_text(transaction, chosen)), chosen


def request_cancel(transaction: Transaction, ids: Sequence[str]) -> list[CancelAnswer]:
    """Cancels pending jobs at once, and asks the holders of processing ones to stop."""
    now_us = transaction.now_us
    [text] = transaction.row(_CANCELLABLE, (to_json(list(dict.fromkeys(ids))),))
    targets = {target.id: target for target in _targets_decoder.decode(text)}
    pending = [target for target in targets.values() if target.status == "pending"]
    processing = [target.seq for target in targets.values() if target.status == "processing"]
    if pending:
        transaction.run(_CANCEL, (now_us, now_us, to_json([target.seq for target in pending])))
        append_events(transaction, [_cancelled(target, now_us) for target in pending])
    if processing:
        transaction.run(_ASK_TO_STOP, (to_json(processing),))
    return [_ANSWERS[targets[job_id].status] if job_id in targets else "missing" for job_id in ids]


_ANSWERS: dict[str, CancelAnswer] = {
    "pending": "cancelled",
    "cancelled": "cancelled",
    "processing": "requested",
    "done": "finished",
    "failed": "finished",
}


def _cancelled(target: _Target, now_us: int) -> Event:
    return Event(
        kind="CANCELLED",
        at_us=now_us,
        job_id=target.id,
        queue=target.queue,
        task=target.task,
        fence=target.fence,
        attempt=target.attempts,
    )
