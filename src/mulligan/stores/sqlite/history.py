"""The records of jobs: one for each claim that did not simply succeed."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mulligan.core.job import HISTORY_MAX, HistoryRecord
from mulligan.stores.sqlite.bulk import ROWS, Params
from mulligan.stores.sqlite.hop import Transaction

_APPEND = f"INSERT INTO mulligan_history (job, ended_at_us, record) SELECT column1, ?, column2 FROM {ROWS} WHERE column1 IS NOT NULL"
_TRIM = """
DELETE FROM mulligan_history WHERE job = ? AND seq <= (SELECT seq FROM mulligan_history WHERE job = ? ORDER BY seq DESC LIMIT 1 OFFSET ?)
"""
_OF_JOBS = """
SELECT json_group_array(json_array(h.id, h.ended_at_us, h.record)) FROM (
  SELECT j.id, r.ended_at_us, r.record
  FROM (SELECT value AS chosen FROM json_each(?)) AS c
    CROSS JOIN mulligan_jobs AS j CROSS JOIN mulligan_history AS r INDEXED BY mulligan_history_job
  WHERE j.seq = c.chosen AND r.job = j.seq ORDER BY r.seq) AS h
"""

_records_decoder = msgspec.json.Decoder(list[tuple[str, int | None, str]])
_record_decoder = msgspec.json.Decoder(HistoryRecord)


def append_records(transaction: Transaction, ended_at_us: int | None, rows: list[Params]) -> None:
    """Writes records, given by the seq of the job and their text; None: each says itself when it ended."""
    if rows:
        transaction.run_rows(_APPEND, 2, rows, (ended_at_us,))


def trim_histories(transaction: Transaction, seqs: Iterable[int]) -> None:
    """Forgets the oldest records of jobs that have more than are kept."""
    for seq in seqs:
        transaction.run(_TRIM, (seq, seq, HISTORY_MAX))


def histories(transaction: Transaction, chosen: str) -> dict[str, list[HistoryRecord]]:
    """The records of the chosen jobs (a JSON list of seq) that have any, by id, oldest first."""
    [text] = transaction.row(_OF_JOBS, (chosen,))
    found: dict[str, list[HistoryRecord]] = {}
    for job_id, ended_at_us, record in _records_decoder.decode(text):
        found.setdefault(job_id, []).append(_record_of(record, ended_at_us))
    return found


def _record_of(text: str, ended_at_us: int | None) -> HistoryRecord:
    try:
        record = _record_decoder.decode(text)
    except msgspec.DecodeError as problem:
        return HistoryRecord(generation=0, fence=0, attempt=0, outcome="undecodable", why=f"the stored record cannot be decoded: {problem}")
    return record if ended_at_us is None else msgspec.structs.replace(record, ended_at_us=ended_at_us)
