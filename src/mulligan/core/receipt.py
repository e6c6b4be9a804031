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


def undecodable(name: str, problem: object) -> Receipt:
    """What stands for a receipt that is damaged: its text is no JSON, so that nobody takes it for a value."""
    return Receipt(name=name, value_json=f"undecodable: {problem}"[:1_000], fence=0, at_us=0)


def in_order(receipts: Iterable[Receipt]) -> list[Receipt]:
    """As they were stored: by claim, then by time; those of one moment by name."""
    return sorted(receipts, key=lambda receipt: (receipt.fence, receipt.at_us, receipt.name))
