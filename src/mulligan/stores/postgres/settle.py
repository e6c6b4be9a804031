"""Settling: guarded changes, applied together in few round trips, answered one by one.

Mostly a batch can be written by one statement (at_once.py), and all answers are known after one round trip. In any other batch the rows are
locked and looked at first, each change is judged in its order, and those that apply are written together, in the same transaction. (What
the first way wrote of a batch of successes that were not all held is met again by the second, which knows it by its settle_id.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import asyncpg
import msgspec

from mulligan.core.change import Change, Dead, Lapsed, Verdict
from mulligan.core.events import Event, StoredForm, stored_forms_of
from mulligan.core.job import HISTORY_MAX, LIVE, Status
from mulligan.stores.postgres.at_once import settle_at_once
from mulligan.stores.postgres.database import Database, Transaction
from mulligan.stores.postgres.entries import entries_of
from mulligan.stores.postgres.rows import RECORD, to_json
from mulligan.stores.postgres.writes import SETTLE, Write, params_of

_STATES = """
SELECT id, queue, unique_key, status, fence, generation, settle_id, run_at_us, lease_expires_at_us, cancel_requested, at_us
FROM {s}.lock_states($1, $2)
"""
_OWNERS = """
SELECT v.queue, v.unique_key FROM unnest($1::text[], $2::text[]) AS v(queue, unique_key), LATERAL (
  SELECT 1 FROM {s}.jobs o WHERE o.queue = v.queue AND o.unique_key = v.unique_key AND o.unique_key IS NOT NULL
    AND o.status IN ('pending', 'processing') LIMIT 1) AS o
"""
_NOTE_PAST = "SELECT {s}.note_past()"
LATE_S = 0.5  # as in settle_whole (functions_write.py): retries may have come to lie behind the floors of claims
KEY_RACES_MAX = 5  # how often an insert may take a key between the look and the write


class _State(msgspec.Struct):
    """A row as far as guards and answers need it. It follows the changes of a batch as they are applied."""

    id: str
    queue: str
    unique_key: str | None
    status: Status
    fence: int
    generation: int
    settle_id: str | None
    run_at_us: int | None
    lease_expires_at_us: int | None
    cancel_requested: bool


async def settle(database: Database, changes: Sequence[Change]) -> list[Verdict]:
    """Applies each change whose guard holds, in order; the others are refused, one by one."""
    if not changes:
        return []
    return await settle_at_once(database, changes) or await settle_in_steps(database, changes)


async def settle_in_steps(database: Database, changes: Sequence[Change]) -> list[Verdict]:
    """The same for a batch that one statement could not write."""
    now_us = database.now_us()
    races = 0
    while True:
        try:
            return await database.within(lambda transaction: _Batch(transaction, changes).settle(now_us))
        except asyncpg.UniqueViolationError:
            races += 1
            if races >= KEY_RACES_MAX:
                raise


class _Batch:
    """One batch of any changes: judged one after the other against the locked rows, written in groups of those that do not meet."""

    def __init__(self, transaction: Transaction, changes: Sequence[Change]) -> None:
        self._transaction = transaction
        self._changes = changes
        self._now_us = 0
        self._states: dict[str, _State] = {}
        self._owned: set[tuple[str, str]] = set()  # unique keys of live jobs, as far as this batch needs them
        self._group: dict[str, Write] = {}  # rows to write, by id
        self._records: list[tuple[str, str]] = []
        self._events: list[Event | StoredForm] = []
        self._long_lived: set[str] = set()  # jobs that may have more records than are kept

    async def settle(self, now_us: int | None) -> list[Verdict]:
        """The verdicts, after everything is written."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await self._look(now_us)
        verdicts = [await self._settle(change) for change in self._changes]
        await self._write_group()
        if self._records or self._events:
            await self._transaction.rows(
                RECORD,
                [job_id for job_id, _ in self._records],
                [record for _, record in self._records],
                sorted(self._long_lived),
                *entries_of(self._events),
            )
        if now_us is None and loop.time() - began_s > LATE_S and any(verdict.status == "pending" for verdict in verdicts):
            await self._transaction.rows(_NOTE_PAST)
        return verdicts

    async def _look(self, now_us: int | None) -> None:
        first, *found = await self._transaction.rows(_STATES, now_us, sorted({change.job_id for change in self._changes}))
        self._now_us = first[10]
        self._states = {row[0]: _State(*row[:10]) for row in found}
        dead = {change.job_id for change in self._changes if isinstance(change.guard, Dead)}
        keys = {(s.queue, s.unique_key) for s in self._states.values() if s.id in dead and s.unique_key is not None}
        if keys:
            ordered = sorted(keys)
            rows = await self._transaction.rows(_OWNERS, [queue for queue, _ in ordered], [key for _, key in ordered])
            self._owned = {(row[0], row[1]) for row in rows}

    async def _settle(self, change: Change) -> Verdict:
        state = self._states.get(change.job_id)
        refusal = self._refusal(state, change)
        if state is not None and refusal and state.settle_id == change.settle_id:
            return self._verdict(state, change)  # A repeat: it was applied before, and nothing more is written.
        if state is not None and not refusal:
            await self._take(state, change)
        verdict = self._verdict(state, change, refusal)
        self._events += stored_forms_of(change, verdict)
        return verdict

    def _refusal(self, state: _State | None, change: Change) -> str:
        """Why the change's guard does not hold; empty if it does."""
        if state is None:
            return "missing"
        if isinstance(change.guard, Dead):
            if state.status != "failed" or state.generation != change.guard.generation:
                return "not failed"
            return "unique key taken" if (state.queue, state.unique_key) in self._owned else ""
        if state.status != "processing" or state.fence != change.guard.fence:
            return "stale"
        if isinstance(change.guard, Lapsed) and (state.lease_expires_at_us is None or state.lease_expires_at_us > self._now_us):
            return "not lapsed"
        return ""

    async def _take(self, state: _State, change: Change) -> None:
        """Notes what is to be written, and lets the state follow it."""
        requeued = isinstance(change.guard, Dead)
        status = change.status
        if status == "pending" and state.cancel_requested and not requeued:
            status = "cancelled"  # Cancel wins over every way back to pending, except an operator's.
        if state.id in self._group or (requeued and state.unique_key is not None):
            await self._write_group()  # An earlier change of this batch may have to free the row or the key first.
        self._group[state.id] = Write(change, state.status, state.fence, status)
        if state.unique_key is not None:
            key = (state.queue, state.unique_key)
            self._owned.add(key) if status in LIVE else self._owned.discard(key)
        state.status, state.generation, state.settle_id = status, change.generation, change.settle_id
        state.run_at_us = self._now_us + change.delay_us if status == "pending" else None
        state.lease_expires_at_us = None
        state.cancel_requested = state.cancel_requested and not requeued
        if change.record is not None:
            self._records.append((state.id, to_json(msgspec.structs.replace(change.record, ended_at_us=self._now_us))))
            if state.fence + state.generation > HISTORY_MAX:  # a job has at most one record for each claim and each requeue
                self._long_lived.add(state.id)

    async def _write_group(self) -> None:
        writes, self._group = [self._group[job_id] for job_id in sorted(self._group)], {}
        if not writes:
            return
        row = await self._transaction.row(SETTLE, *params_of(self._now_us, writes))
        if row[1] != len(writes):
            raise RuntimeError("rows changed under their lock; this is a bug in the PostgreSQL store")

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
