"""Settling: guarded changes, applied together in few statements, answered one by one.

Mostly a batch is nothing but successes. Those are written at once, each only where its guard holds; if all were written, all answers
are known. In any other batch the rows are looked at first (nobody else can write in between), each change is judged in its order,
and those that apply are written together.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import msgspec

from mulligan.core.change import Change, Dead, Held, Verdict, all_equal, are_successes, held_fences
from mulligan.core.events import Event, StoredForm, stored_forms_of
from mulligan.core.job import HISTORY_MAX, Status
from mulligan.stores.sqlite.bulk import ROWS, Params
from mulligan.stores.sqlite.eventlog import append_events
from mulligan.stores.sqlite.hop import Transaction
from mulligan.stores.sqlite.rows import to_json

_WIDTH = 17
_NO_DELAY = -1
# The rows: id, status and fence before, then the new values; what stands there for NULL, because None is dear (bulk.py), is no value
# of its column. INDEXED BY keeps the planner from starting at the leases.
_APPLY = f"""
UPDATE mulligan_jobs INDEXED BY mulligan_jobs_id SET
  updated_at_us = ?, finished_at_us = iif(v.column4 = 'pending', NULL, ?), run_at_us = iif(v.column4 = 'pending', v.column5, NULL),
  due_us = iif(v.column4 = 'pending', v.column5, due_us),
  status = v.column4, lane = v.column6, attempts = v.column7, failures = v.column8, crashes = v.column9, snoozes = v.column10,
  releases = v.column11, generation = v.column12, last_delay_us = nullif(v.column13, {_NO_DELAY}),
  last_error = nullif(v.column14, ''), result_json = nullif(v.column15, ''), settle_id = v.column16,
  cancel_requested = iif(v.column17, 0, cancel_requested),
  due_first_us = iif(v.column17 AND v.column4 = 'pending', v.column5, due_first_us),
  ready = 0, claim_id = NULL, claim_place = NULL, lease_owner = NULL, lease_expires_at_us = NULL, slots = NULL
FROM {ROWS} AS v
WHERE mulligan_jobs.id = v.column1 AND mulligan_jobs.status = v.column2 AND mulligan_jobs.fence = v.column3
"""
# Successes without a result that differ only in their jobs: what they share is bound once, and the jobs travel as one JSON object, the
# id by the settle_id.
_APPLY_ALIKE = """
UPDATE mulligan_jobs INDEXED BY mulligan_jobs_id SET
  updated_at_us = ?1, finished_at_us = ?1, run_at_us = NULL, status = 'done', lane = ?3, attempts = ?4, failures = ?5, crashes = ?6,
  snoozes = ?7, releases = ?8, generation = ?9, last_delay_us = ?10, last_error = NULL, result_json = NULL, settle_id = v.settle_id,
  ready = 0, claim_id = NULL, claim_place = NULL, lease_owner = NULL, lease_expires_at_us = NULL, slots = NULL
FROM (SELECT key AS settle_id, value AS job_id FROM json_each(?11)) AS v
WHERE mulligan_jobs.id = v.job_id AND mulligan_jobs.status = 'processing' AND mulligan_jobs.fence = ?2
"""
_NUMBERS = ("attempts", "failures", "crashes", "snoozes", "releases", "generation", "last_delay_us")
_ALIKE = operator.attrgetter("guard", "lane", "error", "result_json", *_NUMBERS)
_STATES = """
SELECT json_group_array(json_array(j.id, j.seq, j.status, j.fence, j.generation, j.settle_id, j.run_at_us, j.lease_expires_at_us,
  j.cancel_requested))
FROM (SELECT value AS wanted FROM json_each(?)) AS w CROSS JOIN mulligan_jobs AS j INDEXED BY mulligan_jobs_id WHERE j.id = w.wanted
"""
_OTHER_OWNER = """
SELECT EXISTS (
  SELECT 1 FROM mulligan_jobs AS o INDEXED BY mulligan_jobs_unique
  WHERE o.queue = j.queue AND o.unique_key = j.unique_key AND o.unique_key IS NOT NULL AND o.status IN ('pending', 'processing'))
FROM mulligan_jobs AS j WHERE j.seq = ?
"""
_RECORD = f"INSERT INTO mulligan_history (job, record) SELECT column1, column2 FROM {ROWS} WHERE column1 IS NOT NULL"
_TRIM_HISTORY = """
DELETE FROM mulligan_history WHERE job = ? AND seq <= (SELECT seq FROM mulligan_history WHERE job = ? ORDER BY seq DESC LIMIT 1 OFFSET ?)
"""


class _State(msgspec.Struct, array_like=True):
    """A row as far as guards and answers need it. It follows the changes of a batch as they are applied."""

    id: str
    seq: int
    status: Status
    fence: int
    generation: int
    settle_id: str | None
    run_at_us: int | None
    lease_expires_at_us: int | None
    cancel_requested: int


_states_decoder = msgspec.json.Decoder(list[_State])


def settle(transaction: Transaction, changes: Sequence[Change]) -> list[Verdict]:
    """Applies each change whose guard holds, in order; the others are refused, one by one."""
    fences = held_fences(changes)
    if fences and are_successes(changes) and _write_plain(transaction, changes):
        return [
            Verdict(job_id=change.job_id, applied=True, status=change.status, fence=fence, at_us=transaction.now_us)
            for change, fence in zip(changes, fences, strict=True)
        ]
    return _Batch(transaction, changes).settle()


def _write_plain(transaction: Transaction, changes: Sequence[Change]) -> bool:
    """Writes successes without looking first; whether all of them were held."""
    first = changes[0] if changes else None
    if first is not None and first.result_json is None and first.error is None and all_equal(map(_ALIKE, changes)):
        return _write_alike(transaction, first, changes) == len(changes)
    rows = [_row_of(change, "processing", change.guard.fence, "done", None) for change in changes if isinstance(change.guard, Held)]
    return _apply(transaction, rows) == len(rows)


def _write_alike(transaction: Transaction, first: Change, changes: Sequence[Change]) -> int:
    assert isinstance(first.guard, Held)
    jobs = to_json({change.settle_id: change.job_id for change in changes})
    numbers = [getattr(first, name) for name in _NUMBERS]
    return transaction.run(_APPLY_ALIKE, (transaction.now_us, first.guard.fence, first.lane, *numbers, jobs))


class _Batch:
    """One batch of any changes: judged one after the other against the rows, written in groups of those that do not meet."""

    def __init__(self, transaction: Transaction, changes: Sequence[Change]) -> None:
        self._transaction = transaction
        self._now_us = transaction.now_us
        self._changes = changes
        [text] = transaction.row(_STATES, (to_json(sorted({change.job_id for change in changes})),))
        self._states = {state.id: state for state in _states_decoder.decode(text)}
        self._group: list[Params] = []  # rows to write, of different jobs
        self._records: list[Params] = []
        self._events: list[Event | StoredForm] = []
        self._long_lived: set[int] = set()  # jobs that may have more records than are kept

    def settle(self) -> list[Verdict]:
        """The verdicts, after everything is written."""
        verdicts = [self._settle(change) for change in self._changes]
        self._write_group()
        if self._records:
            self._transaction.run_rows(_RECORD, 2, self._records)
        for seq in sorted(self._long_lived):
            self._transaction.run(_TRIM_HISTORY, (seq, seq, HISTORY_MAX))
        append_events(self._transaction, self._events)
        return verdicts

    def _settle(self, change: Change) -> Verdict:
        state = self._states.get(change.job_id)
        refusal = self._refusal(state, change)
        if state is not None and refusal and state.settle_id == change.settle_id:
            return self._verdict(state, change)  # A repeat: it was applied before, and nothing more is written.
        if state is not None and not refusal:
            self._take(state, change)
        verdict = self._verdict(state, change, refusal)
        self._events += stored_forms_of(change, verdict)
        return verdict

    def _refusal(self, state: _State | None, change: Change) -> str:
        """Why the change's guard does not hold; empty if it does."""
        if state is None:
            return "missing"
        if type(change.guard) is Held:
            return "" if state.status == "processing" and state.fence == change.guard.fence else "stale"
        if isinstance(change.guard, Dead):
            if state.status != "failed" or state.generation != change.guard.generation:
                return "not failed"
            self._write_group()  # An earlier change of this batch may have freed or taken the key.
            [taken] = self._transaction.row(_OTHER_OWNER, (state.seq,))
            return "unique key taken" if taken else ""
        if state.status != "processing" or state.fence != change.guard.fence:
            return "stale"
        if state.lease_expires_at_us is None or state.lease_expires_at_us > self._now_us:
            return "not lapsed"
        return ""

    def _take(self, state: _State, change: Change) -> None:
        """Notes what is to be written, and lets the state follow it."""
        requeued = type(change.guard) is Dead
        status = change.status
        if status == "pending" and state.cancel_requested and not requeued:
            status = "cancelled"  # Cancel wins over every way back to pending, except an operator's.
        run_at_us = self._now_us + change.delay_us if status == "pending" else None
        # No job is twice in a group: after one change only a Dead guard can hold, and that one writes the group first.
        self._group.append(_row_of(change, state.status, state.fence, status, run_at_us, requeued=requeued))
        state.status, state.run_at_us, state.generation, state.settle_id = status, run_at_us, change.generation, change.settle_id
        state.lease_expires_at_us = None
        state.cancel_requested = 0 if requeued else state.cancel_requested
        self._transaction.wakes = self._transaction.wakes or status == "pending"
        if change.record is not None:
            self._records.append((state.seq, to_json(msgspec.structs.replace(change.record, ended_at_us=self._now_us))))
            if state.fence + state.generation > HISTORY_MAX:  # a job has at most one record for each claim and each requeue
                self._long_lived.add(state.seq)

    def _write_group(self) -> None:
        rows, self._group = self._group, []
        if _apply(self._transaction, rows) != len(rows):
            raise RuntimeError("rows changed inside a transaction that holds the write lock; this is a bug in the SQLite store")

    def _verdict(self, state: _State | None, change: Change, refusal: str = "") -> Verdict:
        if state is None:
            return Verdict(job_id=change.job_id, applied=False, status=None, reason=refusal, at_us=self._now_us)
        return Verdict(
            job_id=change.job_id,
            applied=not refusal,
            status=state.status,
            fence=state.fence,
            run_at_us=state.run_at_us,
            reason=refusal,
            at_us=self._now_us,
        )


def _apply(transaction: Transaction, rows: list[Params]) -> int:
    return transaction.run_rows(_APPLY, _WIDTH, rows, (transaction.now_us, transaction.now_us))


def _row_of(change: Change, before: Status, fence: int, status: Status, run_at_us: int | None, *, requeued: bool = False) -> Params:
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
        _NO_DELAY if change.last_delay_us is None else change.last_delay_us,
        "" if change.error is None else to_json(change.error),
        change.result_json or "",
        change.settle_id,
        1 if requeued else 0,
    )
    return row
