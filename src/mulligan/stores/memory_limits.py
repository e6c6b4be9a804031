"""What the memory store counts for the limits of a fleet, and the notes its processes share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mulligan.core.choosing import Chosen, Line, needs
from mulligan.core.contract import Ask, Note
from mulligan.core.job import Job
from mulligan.core.limits import Ledger, Level, Scope, scopes_of, slots_text
from mulligan.stores.memory_index import Index


class Limits:
    """Slots are counted over the rows, never kept as a number; buckets have a stored level."""

    def __init__(self, jobs: Mapping[str, Job], index: Index) -> None:
        self._jobs = jobs
        self._index = index
        self._slots: dict[str, str] = {}  # what processing jobs were claimed under
        self.levels: dict[str, Level] = {}

    def ledger(self, asks: Sequence[Ask], lines: Sequence[Sequence[Line]], now_us: int) -> Ledger:
        """What the limits of a claim allow at this moment."""
        scopes, buckets = needs(asks, lines)
        return Ledger(now_us, self._count(scopes, now_us), {key: self.levels[key] for key in buckets if key in self.levels})

    def take(self, ask: Ask, one: Chosen, ledger: Ledger) -> None:
        """Notes that a chosen job was taken."""
        text = slots_text(ask.limits, one.line.lane, one.line.group)
        if text is not None:
            self._slots[one.job.id] = text
        ledger.charge(ask.queue, one.line.lane, one.line.group, ask.limits)

    def leave(self, job_id: str) -> None:
        """A job is not processing any more."""
        self._slots.pop(job_id, None)

    def has_slots(self, row: Job, now_us: int) -> bool:
        """Whether a job still has the slots it was claimed under: an ended lease gave them away, and must find them free again."""
        text = self._slots.get(row.id)
        if text is None or row.lease_expires_at_us is None or row.lease_expires_at_us > now_us:
            return True
        wanted = scopes_of(text, row.queue, row.concurrency_key)
        counts = self._count([scope for scope, _ in wanted], now_us)
        return all(counts[scope] < most for scope, most in wanted)

    def _count(self, scopes: Iterable[Scope], now_us: int) -> dict[Scope, int]:
        """The processing jobs of each scope under a lease that has not ended; all scopes at one go through them."""
        counts = dict.fromkeys(scopes, 0)
        for row in map(self._jobs.__getitem__, self._index.held(now_us) if counts else ()):
            keys = {None} if row.id in self._slots else set()
            for key in keys if row.concurrency_key is None else {*keys, row.concurrency_key}:
                for scope in (Scope(row.queue, lane, key) for lane in (None, row.lane)):
                    if scope in counts:
                        counts[scope] += 1
        return counts


class Notes:
    """Small shared texts, each written only over the version its writer has read."""

    def __init__(self) -> None:
        self._notes: dict[str, Note] = {}

    def find(self, prefix: str) -> list[Note]:
        """Those whose key begins so, by key."""
        return [self._notes[key] for key in sorted(self._notes) if key.startswith(prefix)]

    def put(self, key: str, body: str, version: int, now_us: int) -> Note | None:
        """The note as it is now; None if another version is there. A repeat of the last write answers it again."""
        known = self._notes.get(key)
        if known is not None and (known.version, known.body) == (version + 1, body):
            return known
        if (0 if known is None else known.version) != version:
            return None
        self._notes[key] = Note(key=key, body=body, version=version + 1, updated_at_us=now_us)
        return self._notes[key]
