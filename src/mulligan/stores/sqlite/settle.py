"""Settling: guarded changes, applied together in few statements, answered one by one.

Mostly a batch is about nothing but held jobs, and is written at once (at_once.py). In any other one the rows are looked at first (nobody
else can write in between), each change is judged in its order, and those that apply are written together.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mulligan.core.change import Change, Dead, Held, Verdict
from mulligan.core.events import Event, stored_events_of
from mulligan.core.job import HISTORY_MAX, Status
from mulligan.stores.sqlite.at_once import AtOnce
from mulligan.stores.sqlite.bulk import Params
from mulligan.stores.sqlite.eventlog import append_events
from mulligan.stores.sqlite.history import append_records, trim_histories
from mulligan.stores.sqlite.hop import Transaction
from mulligan.stores.sqlite.rows import to_json
from mulligan.stores.sqlite.writes import apply, row_of_write

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


def settle(transaction: Transaction, changes: Sequence[Change], at_once: AtOnce | None) -> tuple[int, list[Verdict] | None]:
    """Applies each change whose guard holds, in order; the others are refused, one by one. None: everything was written at once."""
    if at_once is not None and at_once.write(transaction):
        return transaction.now_us, None
    return transaction.now_us, _Batch(transaction, changes).settle()


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
        self._events: list[Event] = []
        self._long_lived: set[int] = set()  # jobs that may have more records than are kept

    def settle(self) -> list[Verdict]:
        """The verdicts, after everything is written."""
        verdicts = [self._settle(change) for change in self._changes]
        self._write_group()
        append_records(self._transaction, self._now_us, self._records)
        trim_histories(self._transaction, sorted(self._long_lived))
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
        self._events += stored_events_of(change, verdict)
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
        self._group.append(row_of_write(change, state.status, state.fence, status, run_at_us, requeued=requeued))
        state.status, state.run_at_us, state.generation, state.settle_id = status, run_at_us, change.generation, change.settle_id
        state.lease_expires_at_us = None
        state.cancel_requested = 0 if requeued else state.cancel_requested
        self._transaction.wakes = self._transaction.wakes or status == "pending"
        if change.record is not None:
            self._records.append((state.seq, to_json(change.record)))
            if state.fence + state.generation > HISTORY_MAX:  # a job has at most one record for each claim and each requeue
                self._long_lived.add(state.seq)

    def _write_group(self) -> None:
        rows, self._group = self._group, []
        if apply(self._transaction, rows) != len(rows):
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
