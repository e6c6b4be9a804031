"""New jobs as lua/new.lua takes them: what jobs have in common goes once, as their kind, and is put in MessagePack once."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import msgspec

from mulligan.core.job import NewJob
from mulligan.stores.redis.layout import blob, encode, packed_blob, run_of

_OF_EACH = ("id", "payload")
_SHARED = operator.attrgetter(*(name for name in NewJob.__struct_fields__ if name not in _OF_EACH))


class Kind:
    """What jobs share that differ only in their ids and payloads. Known by identity."""

    __slots__ = ("_after", "_before", "_rest", "told")

    def __init__(self, job: NewJob) -> None:
        self.told = (job.queue, job.priority, job.delay_us, job.eta_us, job.unique_key, job.group, job.concurrency_key)
        # The parts of a body (layout.py) around what is a job's own.
        self._before = run_of((job.queue, job.task))
        self._after = run_of((job.policy, job.max_retries, job.priority))
        limits = run_of((job.timeout_us, job.max_age_us))
        tail = run_of((job.schedule, job.tick_us, job.unique_key, job.concurrency_key, job.fair_key, job.group, job.tags, job.trace))
        self._rest = run_of((blob(limits), blob(tail)))

    def body(self, job: NewJob) -> msgspec.Raw:
        """The body of a job of this kind, as a value."""
        head = b"".join((encode(job.id), self._before, encode(job.payload), self._after))
        return blob(packed_blob(head) + self._rest)


NewRow = tuple[Kind, str, msgspec.Raw]


def new_rows(jobs: Sequence[NewJob]) -> list[NewRow]:
    """Each job as its kind, its id and its body."""
    kinds: dict[tuple[Any, ...], Kind] = {}
    rows: list[NewRow] = []
    for job in jobs:
        shared = _SHARED(job)
        kind = kinds.get(shared)
        if kind is None:
            kind = kinds[shared] = Kind(job)
        rows.append((kind, job.id, kind.body(job)))
    return rows


def argument(rows: Sequence[NewRow]) -> tuple[Any, ...]:
    """The kinds, and the jobs with the places of theirs, counted from 1."""
    places: dict[Kind, int] = {}
    jobs = [(places.setdefault(kind, len(places) + 1), job_id, body) for kind, job_id, body in rows]
    return [kind.told for kind in places], jobs
