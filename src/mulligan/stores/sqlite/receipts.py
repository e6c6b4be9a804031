"""Receipts of finished steps: written under the grip of their job's holder, the first of a name stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from mulligan.core.change import Grip
from mulligan.core.receipt import (
    FEW,
    RECEIPT_BYTES_BESIDE,
    RECEIPTS_BYTES_BEFORE,
    RECEIPTS_MAX,
    Receipt,
    in_order,
    too_large,
    too_many,
    undecodable,
)
from mulligan.stores.sqlite.hop import Transaction
from mulligan.stores.sqlite.rows import to_json

_HELD = "SELECT seq FROM mulligan_jobs INDEXED BY mulligan_jobs_id WHERE id = ? AND status = 'processing' AND fence = ?"
# Texts are read as bytes: one that is no UTF-8 must not keep the others from being read.
_ONE = "SELECT CAST(name AS BLOB), CAST(value AS BLOB), fence, at_us FROM mulligan_receipts WHERE job = ? AND name = ?"
_COUNT = "SELECT count(*) FROM mulligan_receipts WHERE job = ?"
_BYTES = "SELECT sum(? + length(name) + length(CAST(coalesce(value, '') AS BLOB))) FROM mulligan_receipts WHERE job = ?"
_PUT = "INSERT INTO mulligan_receipts (job, name, fence, at_us, value) VALUES (?, ?, ?, ?, ?)"
_ALL = """
SELECT j.id, CAST(r.name AS BLOB), CAST(r.value AS BLOB), r.fence, r.at_us
FROM (SELECT value AS wanted FROM json_each(?)) AS w
  CROSS JOIN mulligan_jobs AS j INDEXED BY mulligan_jobs_id CROSS JOIN mulligan_receipts AS r INDEXED BY mulligan_receipts_job
WHERE j.id = w.wanted AND r.job = j.seq
"""


def put_receipt(transaction: Transaction, grip: Grip, name: str, value_json: str | None) -> Receipt | None:
    """Stores the receipt of a step, or finds the one that is there; None if the grip does not hold."""
    held = transaction.row(_HELD, (grip.job_id, grip.fence))
    if held is None:
        return None
    known = transaction.row(_ONE, (held[0], name))
    if known is not None:
        return _receipt_of(*known)
    [count] = transaction.row(_COUNT, held)
    if count >= RECEIPTS_MAX:
        raise too_many(grip.job_id)
    if count > FEW and transaction.row(_BYTES, (RECEIPT_BYTES_BESIDE, held[0]))[0] > RECEIPTS_BYTES_BEFORE:
        raise too_large(grip.job_id)
    transaction.run(_PUT, (held[0], name, grip.fence, transaction.now_us, value_json))
    return Receipt(name=name, value_json=value_json, fence=grip.fence, at_us=transaction.now_us)


def receipts(transaction: Transaction, ids: Sequence[str]) -> list[list[Receipt]]:
    """The receipts of each job, in the order in which they were stored."""
    found: dict[str, list[Receipt]] = {}
    for job_id, *columns in transaction.rows(_ALL, (to_json(list(dict.fromkeys(ids))),)):
        found.setdefault(job_id, []).append(_receipt_of(*columns))
    return [in_order(found.get(job_id, ())) for job_id in ids]


def restore_receipts(transaction: Transaction, seqs: Mapping[str, int], receipts: Mapping[str, Sequence[Receipt]]) -> None:
    """Writes those of restored jobs, which are given by their seq."""
    for job_id, own in receipts.items():
        for receipt in own if job_id in seqs else ():
            transaction.run(_PUT, (seqs[job_id], receipt.name, receipt.fence, receipt.at_us, receipt.value_json))


def _receipt_of(name: bytes, value: bytes | None, fence: int, at_us: int) -> Receipt:
    shown = name.decode("utf-8", "replace")
    try:
        text = None if value is None else value.decode()
        return msgspec.convert({"name": shown, "value_json": text, "fence": fence, "at_us": at_us}, Receipt)
    except (UnicodeError, msgspec.ValidationError) as problem:
        return undecodable(shown, problem)
