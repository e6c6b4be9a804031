"""Receipts: what the finished steps of a handler leave with their job, so that a rerun skips them (worker/steps.py).

They belong to the job through all its generations, and go when it goes. A receipt that cannot be decoded still stands: its step is not
run again, and whoever asks for its value is told.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from mulligan.core.codec import check_name, decode_result, encode_result
from mulligan.core.errors import BadPayload, StoreRejected

RECEIPTS_MAX = 100  # of one job
RECEIPT_BYTES_MAX = 64 * 1024
# All receipts of a job together: what one document of MongoDB has room for beside the rest of a job, and so the same on every store.
RECEIPTS_BYTES_MAX = 3_000_000
RECEIPTS_BYTES_BEFORE = RECEIPTS_BYTES_MAX - RECEIPT_BYTES_MAX  # with more than that there may be no room for another one
RECEIPT_BYTES_BESIDE = 100  # what a receipt takes beside its name and its value; on no store more
FEW = RECEIPTS_BYTES_BEFORE // (RECEIPT_BYTES_MAX + 128 + RECEIPT_BYTES_BESIDE)  # so many fit however large they are: nobody need add up


class Receipt(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One finished step of a job: its name, what it returned, and the claim and time it was stored under."""

    name: str
    value_json: str | None  # None stands for the value None, as in results
    fence: int
    at_us: int

    @property
    def value(self) -> Any:
        """What the step returned; BadPayload if the stored text is damaged."""
        try:
            return decode_result(self.value_json)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
            raise BadPayload(f"the receipt {self.name!r} cannot be decoded: {problem}") from problem


def encode_receipt(name: str, value: Any) -> str | None:
    """The text of a step's value; BadPayload if it is no plain JSON, or too large."""
    try:
        text = encode_result(value)
    except BadPayload as problem:
        raise BadPayload(f"the value of step {name!r} cannot be stored: {problem}") from None
    if text is not None and _bytes(text) > RECEIPT_BYTES_MAX:
        raise BadPayload(
            f"the value of step {name!r}: {_bytes(text):,} bytes as JSON, the limit is {RECEIPT_BYTES_MAX:,}; "
            "store the data elsewhere and return a reference"
        )
    return text


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def check_receipt(name: str, value_json: str | None) -> None:
    """Raises for a receipt that not every store can keep. Every store calls it before it writes one."""
    check_name(name, "step")
    if value_json is None:
        return
    try:
        size = _bytes(value_json)
    except UnicodeEncodeError:
        raise StoreRejected(f"receipt {name!r}: its value holds a lone surrogate") from None
    if size > RECEIPT_BYTES_MAX:
        raise StoreRejected(f"receipt {name!r}: its value has {size:,} bytes, the limit is {RECEIPT_BYTES_MAX:,}")
    if "\0" in value_json:
        raise StoreRejected(f"receipt {name!r}: its value holds a NUL character")


def too_many(job_id: str) -> StoreRejected:
    """What a job that has all the receipts it may have is answered."""
    return StoreRejected(f"job {job_id} has {RECEIPTS_MAX} receipts, which is the limit; let one step do more, or use more jobs")


def too_large(job_id: str) -> StoreRejected:
    """What a job is answered whose receipts may leave no room for one more."""
    return StoreRejected(
        f"job {job_id}: its receipts take almost {RECEIPTS_BYTES_MAX:,} bytes together, which is the limit; "
        "let steps return less, or use more jobs"
    )


def kept_bytes(name: str, value_json: str | None) -> int:
    """What a receipt counts towards the bound of all."""
    return RECEIPT_BYTES_BESIDE + len(name) + (0 if value_json is None else _bytes(value_json))


def undecodable(name: str, problem: object) -> Receipt:
    """What stands for a receipt that is damaged: its text is no JSON, so that nobody takes it for a value."""
    return Receipt(name=name, value_json=f"undecodable: {problem}"[:1_000], fence=0, at_us=0)


def in_order(receipts: Iterable[Receipt]) -> list[Receipt]:
    """As they were stored: by claim, then by time; those of one moment by name."""
    return sorted(receipts, key=lambda receipt: (receipt.fence, receipt.at_us, receipt.name))
