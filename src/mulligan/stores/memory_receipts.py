"""The receipts of the memory store."""

from __future__ import annotations

from collections.abc import Sequence

from mulligan.core.change import Grip
from mulligan.core.job import Job
from mulligan.core.receipt import RECEIPTS_BYTES_BEFORE, RECEIPTS_MAX, Receipt, in_order, kept_bytes, too_large, too_many
from mulligan.stores.memory_rows import is_held


class Receipts:
    """By job and name. The first one of a name stays."""

    def __init__(self) -> None:
        self._receipts: dict[str, dict[str, Receipt]] = {}

    def put(self, row: Job | None, grip: Grip, name: str, value_json: str | None, now_us: int) -> Receipt | None:
        """Stores a receipt unless there is one, and answers the one that is there; None if the grip does not hold."""
        if row is None or not is_held(row, grip.fence):
            return None
        known = self._receipts.setdefault(row.id, {})
        if name not in known:
            if len(known) >= RECEIPTS_MAX:
                raise too_many(row.id)
            if sum(kept_bytes(one.name, one.value_json) for one in known.values()) > RECEIPTS_BYTES_BEFORE:
                raise too_large(row.id)
            known[name] = Receipt(name=name, value_json=value_json, fence=grip.fence, at_us=now_us)
        return known[name]

    def of(self, job_id: str) -> list[Receipt]:
        """All of a job, in the order in which they were stored."""
        return in_order(self._receipts.get(job_id, {}).values())

    def restore(self, job_id: str, receipts: Sequence[Receipt]) -> None:
        """Those of a job of another store."""
        if receipts:
            self._receipts[job_id] = {receipt.name: receipt for receipt in receipts}

    def remove(self, job_id: str) -> None:
        """With their job."""
        self._receipts.pop(job_id, None)
