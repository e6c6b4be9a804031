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

    __slots__ = ("_after", "_before", "_rest", "is_plain", "told", "where")

    def __init__(self, job: NewJob) -> None:
        self.told = (job.queue, job.priority, job.delay_us, job.eta_us, job.unique_key, job.group, job.concurrency_key)
        # Whether such a job needs nothing but keys of its own, and what lua/insert_one.lua is told of it then.
        self.is_plain = job.unique_key is None and job.group is None and job.concurrency_key is None and job.eta_us is None
        self.where = (job.queue, job.priority, run_of((job.queue, job.priority)), job.delay_us)
        # The parts of a body (layout.py) around what is a job's own.
        self._before = run_of((job.queue, job.task))
        self._after = run_of((job.policy, job.max_retries, job.priority))
        limits = run_of((job.timeout_us, job.max_age_us))
        tail = run_of((job.schedule, job.tick_us, job.unique_key, job.concurrency_key, job.fair_key, job.group, job.tags, job.trace))
        self._rest = run_of((blob(limits), blob(tail)))

    def body(self, job: NewJob) -> bytes:
        """The body of a job of this kind."""
        return packed_blob(b"".join((encode(job.id), self._before, encode(job.payload), self._after))) + self._rest


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
        rows.append((kind, job.id, blob(kind.body(job))))
    return rows


_KINDS_MAX = 64
_kinds: dict[tuple[Any, ...], Kind] = {}


def kind_of(job: NewJob) -> Kind:
    """The kind of a job that comes by itself: mostly that of one before it."""
    shared = _SHARED(job)
    kind = _kinds.get(shared)
    if kind is None:
        if len(_kinds) >= _KINDS_MAX:
            _kinds.clear()
        kind = _kinds[shared] = Kind(job)
    return kind


def argument(rows: Sequence[NewRow]) -> tuple[Any, ...]:
    """The kinds, and the jobs with the places of theirs, counted from 1."""
    places: dict[Kind, int] = {}
    jobs = [(places.setdefault(kind, len(places) + 1), job_id, body) for kind, job_id, body in rows]
    return [kind.told for kind in places], jobs
