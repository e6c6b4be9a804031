"""Batches about held jobs, as most are: made ready on the caller's thread, so that the one that writes has little left to do.

Successes are written without looking first, each only where its guard holds; if some were not, whoever settles the batch again knows
the others by their settle_ids. Other outcomes leave records and events, which must come with the change that they tell of: one look
finds the rows of all of them, or the batch is not written here. Nobody else can write in between.

Whatever else there is (a guard that does not hold, a cancel that wins, a takeover, a requeue) is for settle.py, which judges one by one.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from mulligan.core.change import Change, Verdict, all_equal, held_fences
from mulligan.core.events import Event, Row, retry_row, stored_events_of
from mulligan.core.job import HISTORY_MAX
from mulligan.stores.sqlite.bulk import ROWS, Params
from mulligan.stores.sqlite.eventlog import append_entry, entry_of
from mulligan.stores.sqlite.history import append_numbered, text_apart, trim_histories
from mulligan.stores.sqlite.hop import Transaction
from mulligan.stores.sqlite.rows import encode, numbers, to_json
from mulligan.stores.sqlite.writes import NO_DELAY, apply, row_of_write

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
# The newest record of all, and the seq of each job that is held under its fence and nobody wants cancelled, in the order of the object
# from ids to fences.
_LOOK = """
SELECT (SELECT coalesce(max(seq), 0) FROM mulligan_history), json_group_array(j.seq)
FROM json_each(?) AS w CROSS JOIN mulligan_jobs AS j INDEXED BY mulligan_jobs_id
WHERE j.id = w.key AND j.status = 'processing' AND j.fence = w.value AND j.cancel_requested = 0
"""
# Back to pending. The rows: seq, then the new values. Without a word about finished_at_us no trigger looks at it. The error of a failure
# stands in its record, which is told by its number among those of the batch: with each write of the job, its row would be twice as long.
_AGAIN_WIDTH = 13
_APPLY_AGAIN = f"""
UPDATE mulligan_jobs SET
  updated_at_us = ?, run_at_us = ? + v.column2, due_us = ? + v.column2, status = 'pending', lane = v.column3, attempts = v.column4,
  failures = v.column5, crashes = v.column6, snoozes = v.column7, releases = v.column8, generation = v.column9,
  last_delay_us = nullif(v.column10, {NO_DELAY}), last_error = nullif(v.column11, ''), settle_id = v.column12, result_json = NULL,
  error_record = nullif(v.column13, 0) + ?,
  ready = 0, claim_id = NULL, claim_place = NULL, lease_owner = NULL, lease_expires_at_us = NULL, slots = NULL
FROM {ROWS} AS v WHERE mulligan_jobs.seq = v.column1
"""
_NUMBERS = ("attempts", "failures", "crashes", "snoozes", "releases", "generation", "last_delay_us")
_ALIKE = operator.attrgetter("guard", "lane", "error", "result_json", *_NUMBERS)


class Others(NamedTuple):
    """The outcomes of a batch that are no successes: what is written of each, which is known by its place among them."""

    held: str  # ids and fences, as JSON
    again: list[tuple[int, Params]]  # pending again
    rest: list[Params]  # failed or cancelled
    records: list[tuple[int, str, str]]  # and their errors, where those do not stand in the text
    long_lived: list[int]  # those that may have more records than are kept
    events: int
    entry: str

    def write(self, transaction: Transaction, seqs: list[int], last_record: int) -> None:
        """Writes all, given the seq of each job, and that of the newest record."""
        now_us = transaction.now_us
        again: list[Params] = [(seqs[place], *row) for place, row in self.again]
        shared = (now_us, now_us, now_us, last_record)
        written = transaction.run_rows(_APPLY_AGAIN, _AGAIN_WIDTH, again, shared) + apply(transaction, self.rest)
        if written != len(seqs):
            raise RuntimeError("rows changed inside a transaction that holds the write lock; this is a bug in the SQLite store")
        transaction.wakes = transaction.wakes or bool(again)
        records: list[Params] = [(number, seqs[place], *texts) for number, (place, *texts) in enumerate(self.records, 1)]
        append_numbered(transaction, last_record, now_us, records)
        trim_histories(transaction, [seqs[place] for place in self.long_lived])
        if self.events:
            append_entry(transaction, now_us, self.events, self.entry)


class AtOnce(NamedTuple):
    """A batch that is ready to be written."""

    changes: Sequence[Change]
    fences: Sequence[int]
    successes: int
    alike: Params  # what the successes share, and their jobs; empty if they share nothing
    rows: list[Params]  # of successes that share nothing
    others: Others | None

    def write(self, transaction: Transaction) -> bool:
        """Whether all were held, and everything is written; otherwise nothing but some successes may be."""
        written = transaction.run(_APPLY_ALIKE, (transaction.now_us, *self.alike)) if self.alike else apply(transaction, self.rows)
        if written != self.successes:
            return False
        if self.others is None:
            return True
        last_record, text = transaction.row(_LOOK, (self.others.held,))
        seqs = numbers(text)
        if self.successes + len(seqs) != len(self.changes):
            return False
        self.others.write(transaction, seqs, last_record)
        return True

    def verdicts(self, at_us: int) -> list[Verdict]:
        """The answers, once it was written at that time."""
        return [
            Verdict(change.job_id, True, change.status, fence, at_us + change.delay_us if change.status == "pending" else None, "", at_us)
            for change, fence in zip(self.changes, self.fences, strict=True)
        ]


def ready(changes: Sequence[Change]) -> AtOnce | None:
    """The batch, made ready; None if it has to be looked at."""
    fences = held_fences(changes)
    if not fences:
        return None
    successes: list[tuple[Change, int]] = []
    others: list[tuple[Change, int]] = []
    for pair in zip(changes, fences, strict=True):
        change = pair[0]
        if change.cause == "success" and change.status == "done" and change.record is None:
            successes.append(pair)
        elif change.result_json is None:
            others.append(pair)
        else:  # a result of what is not done
            return None
    told = _others_of(others) if others else None
    if told is None and others:
        return None
    alike = _alike_params(successes)
    rows = [] if alike else [_row_at_rest(change, fence) for change, fence in successes]
    return AtOnce(changes, fences, len(successes), alike, rows, told)


def _alike_params(successes: Sequence[tuple[Change, int]]) -> Params:
    """What successes without a result share, and their jobs; empty if they differ in more."""
    changes = [change for change, _ in successes]
    if not changes or changes[0].result_json is not None or changes[0].error is not None or not all_equal(map(_ALIKE, changes)):
        return ()
    jobs = to_json({change.settle_id: change.job_id for change in changes})
    return (successes[0][1], changes[0].lane, *[getattr(changes[0], name) for name in _NUMBERS], jobs)


def _row_at_rest(change: Change, fence: int) -> Params:
    return row_of_write(change, "processing", fence, change.status, None)


def _others_of(pairs: Sequence[tuple[Change, int]]) -> Others | None:
    """None if an event tells a time which only the store knows."""
    again: list[tuple[int, Params]] = []
    rest: list[Params] = []
    records: list[tuple[int, str, str]] = []
    long_lived: list[int] = []
    told: list[Event | Row] = []
    for place, (change, fence) in enumerate(pairs):
        record, is_apart = change.record, False
        if change.status == "pending":
            error = "" if change.error is None else encode(change.error).decode()
            is_apart = record is not None and record.error is change.error is not None
            again.append((place, _row_again(change, "", len(records) + 1) if is_apart else _row_again(change, error, 0)))
        else:
            rest.append(_row_at_rest(change, fence))
        if record is not None:
            records.append((place, text_apart(record), error) if is_apart else (place, encode(record).decode(), ""))
            if fence + change.generation > HISTORY_MAX:  # a job has at most one record for each claim and each requeue
                long_lived.append(place)
        row = retry_row(change, fence)
        if row is not None:
            told.append(row)
        elif change.status == "pending" and change.cause not in ("snooze", "release"):
            return None
        else:
            told += stored_events_of(change, Verdict(job_id=change.job_id, applied=True, status=change.status))
    held = to_json({change.job_id: fence for change, fence in pairs})
    return Others(held, again, rest, records, long_lived, *entry_of(told))


def _row_again(change: Change, error: str, record: int) -> Params:
    row: tuple[Any, ...] = (
        change.delay_us,
        change.lane,
        change.attempts,
        change.failures,
        change.crashes,
        change.snoozes,
        change.releases,
        change.generation,
        NO_DELAY if change.last_delay_us is None else change.last_delay_us,
        error,
        change.settle_id,
        record,
    )
    return row
