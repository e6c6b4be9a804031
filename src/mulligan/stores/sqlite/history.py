"""The records of jobs: one for each claim that did not simply succeed."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mulligan.core.job import HISTORY_MAX, ErrorInfo, HistoryRecord
from mulligan.stores.sqlite.bulk import ROWS, Params
from mulligan.stores.sqlite.hop import Transaction

_APPEND = f"INSERT INTO mulligan_history (job, ended_at_us, record) SELECT column1, ?, column2 FROM {ROWS} WHERE column1 IS NOT NULL"
# The number of each row is told, so that the job can name it.
_APPEND_NUMBERED = f"""
INSERT INTO mulligan_history (seq, job, ended_at_us, record, error)
SELECT ? + column1, column2, ?, column3, nullif(column4, '') FROM {ROWS} WHERE column1 IS NOT NULL
"""
# (The record that a job names for its last error is among the newest: whatever is written after it names another one, or none.)
_TRIM = """
DELETE FROM mulligan_history WHERE job = ? AND seq <= (SELECT seq FROM mulligan_history WHERE job = ? ORDER BY seq DESC LIMIT 1 OFFSET ?)
"""
_OF_JOBS = """
SELECT json_group_array(json_array(h.id, h.ended_at_us, h.record, h.error)) FROM (
  SELECT j.id, r.ended_at_us, r.record, r.error
  FROM (SELECT value AS chosen FROM json_each(?)) AS c
    CROSS JOIN mulligan_jobs AS j CROSS JOIN mulligan_history AS r INDEXED BY mulligan_history_job
  WHERE j.seq = c.chosen AND r.job = j.seq ORDER BY r.seq) AS h
"""

_records_decoder = msgspec.json.Decoder(list[tuple[str, int | None, str, str | None]])
_record_decoder = msgspec.json.Decoder(HistoryRecord)
_error_decoder = msgspec.json.Decoder(ErrorInfo)
_encode = msgspec.json.Encoder().encode


class _Apart(msgspec.Struct, frozen=True, gc=False):
    """What is written of a record whose error and end stand beside it."""

    generation: int
    fence: int
    attempt: int
    outcome: str
    worker: str
    started_at_us: int | None
    delay_us: int | None
    why: str


def text_apart(record: HistoryRecord) -> str:
    """The text of a record without its error, and without when it ended."""
    apart = _Apart(
        record.generation,
        record.fence,
        record.attempt,
        record.outcome,
        record.worker,
        record.started_at_us,
        record.delay_us,
        record.why,
    )
    return _encode(apart).decode()


def append_records(transaction: Transaction, ended_at_us: int | None, rows: list[Params]) -> None:
    """Writes records, given by the seq of the job and their text; None: each says itself when it ended."""
    if rows:
        transaction.run_rows(_APPEND, 2, rows, (ended_at_us,))


def append_numbered(transaction: Transaction, before_seq: int, ended_at_us: int, rows: list[Params]) -> None:
    """Writes records at the places behind `before_seq`: which of them, the seq of the job, their text and that of their error, if any."""
    if rows:
        transaction.run_rows(_APPEND_NUMBERED, 4, rows, (before_seq, ended_at_us))


def trim_histories(transaction: Transaction, seqs: Iterable[int]) -> None:
    """Forgets the oldest records of jobs that have more than are kept."""
    for seq in seqs:
        transaction.run(_TRIM, (seq, seq, HISTORY_MAX))


def histories(transaction: Transaction, chosen: str) -> dict[str, list[HistoryRecord]]:
    """The records of the chosen jobs (a JSON list of seq) that have any, by id, oldest first."""
    [text] = transaction.row(_OF_JOBS, (chosen,))
    found: dict[str, list[HistoryRecord]] = {}
    for job_id, ended_at_us, record, error in _records_decoder.decode(text):
        found.setdefault(job_id, []).append(_record_of(record, ended_at_us, error))
    return found


def _record_of(text: str, ended_at_us: int | None, error: str | None) -> HistoryRecord:
    try:
        record = _record_decoder.decode(text)
        if error is not None:
            record = msgspec.structs.replace(record, error=_error_decoder.decode(error))
    except msgspec.DecodeError as problem:
        return HistoryRecord(generation=0, fence=0, attempt=0, outcome="undecodable", why=f"the stored record cannot be decoded: {problem}")
    return record if ended_at_us is None else msgspec.structs.replace(record, ended_at_us=ended_at_us)
