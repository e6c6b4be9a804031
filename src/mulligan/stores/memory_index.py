"""The order in which the memory store finds its jobs. Everything here is derived from the rows alone, by one function: Index.put."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice
from typing import Generic, TypeVar

from mulligan.core.contract import Ask, Order
from mulligan.core.job import LANES, LIVE, Job, Lane

K = TypeVar("K", str, tuple[int, str], tuple[int, str, int])
BLOCK_MAX = 512


class SortedKeys(Generic[K]):
    """A set of keys kept in order, in blocks, so that neither the ends nor the middle of a million keys are expensive."""

    __slots__ = ("_blocks", "_count", "_tops")

    def __init__(self) -> None:
        self._blocks: list[list[K]] = []
        self._tops: list[K] = []  # the largest key of each block
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: K) -> None:
        """Takes in a key that is not there yet."""
        self._count += 1
        if not self._blocks:
            self._blocks.append([key])
            self._tops.append(key)
            return
        at = min(bisect_left(self._tops, key), len(self._blocks) - 1)
        block = self._blocks[at]
        insort(block, key)
        if len(block) > BLOCK_MAX:
            # A full last block is cut near its end: keys mostly come in rising order, and would leave half-empty blocks behind.
            cut = BLOCK_MAX // 2 if at < len(self._blocks) - 1 else BLOCK_MAX
            self._blocks.insert(at + 1, block[cut:])
            self._tops.insert(at + 1, block[-1])
            del block[cut:]
        self._tops[at] = block[-1]

    def remove(self, key: K) -> None:
        """Takes out a key that is there."""
        at = bisect_left(self._tops, key)
        block = self._blocks[at]
        position = bisect_left(block, key)
        if block[position] != key:
            raise KeyError(key)
        del block[position]
        self._count -= 1
        if block:
            self._tops[at] = block[-1]
        else:
            del self._blocks[at], self._tops[at]

    def first(self) -> K | None:
        """The smallest key."""
        return self._blocks[0][0] if self._blocks else None

    def last(self) -> K | None:
        """The largest key."""
        return self._tops[-1] if self._tops else None

    def __iter__(self) -> Iterator[K]:
        for block in self._blocks:
            yield from block

    def below(self, bound: K | None) -> Iterator[K]:
        """The keys smaller than the bound (None: all of them), largest first."""
        for block in reversed(self._blocks):
            end = len(block) if bound is None else bisect_left(block, bound)
            yield from reversed(block[:end])


class Shelf:
    """The pending jobs of one queue, lane and priority: the due ones in both claim orders, the others by their time."""

    __slots__ = ("_later", "_now_us", "_ready", "_ready_by_age")

    def __init__(self) -> None:
        self._now_us = -1  # a job is ready exactly if its run_at is not after this time
        self._later: SortedKeys[tuple[int, str, int]] = SortedKeys()  # (run_at, id, created_at)
        self._ready: SortedKeys[tuple[int, str, int]] = SortedKeys()
        self._ready_by_age: SortedKeys[tuple[int, str]] = SortedKeys()  # (created_at, id)

    def add(self, job: Job) -> None:
        self._add(_shelf_key(job))

    def remove(self, job: Job) -> None:
        key = _shelf_key(job)
        if key[0] > self._now_us:
            self._later.remove(key)
        else:
            self._ready.remove(key)
            self._ready_by_age.remove((key[2], key[1]))

    def due(self, order: Order, now_us: int) -> Iterator[tuple[int, str]]:
        """The due jobs as (time, id), in the order asked for."""
        self._turn_to(now_us)
        return iter(self._ready_by_age) if order == "created_at" else ((run_at_us, job_id) for run_at_us, job_id, _ in self._ready)

    def next_due_us(self, now_us: int) -> int | None:
        """The earliest run_at after now."""
        self._turn_to(now_us)
        key = self._later.first()
        return None if key is None else key[0]

    def _add(self, key: tuple[int, str, int]) -> None:
        if key[0] > self._now_us:
            self._later.add(key)
        else:
            self._ready.add(key)
            self._ready_by_age.add((key[2], key[1]))

    def _turn_to(self, now_us: int) -> None:
        self._now_us = now_us
        while (key := self._later.first()) is not None and key[0] <= now_us:
            self._later.remove(key)
            self._add(key)
        # A clock may be set back; what was due is then not due any more.
        while (key := self._ready.last()) is not None and key[0] > now_us:
            self._ready.remove(key)
            self._ready_by_age.remove((key[2], key[1]))
            self._add(key)


class Index:
    """Every order the store needs: claimable jobs, leases, finished jobs, ids, and who owns a unique key."""

    def __init__(self) -> None:
        self._ids: SortedKeys[str] = SortedKeys()
        self._shelves: dict[str, dict[tuple[Lane, int], Shelf]] = {}  # by queue
        self._leases: SortedKeys[tuple[int, str]] = SortedKeys()  # (lease_expires_at, id)
        self._finished: dict[str, SortedKeys[tuple[int, str]]] = {}  # by status: (finished_at, id)
        self._owners: dict[tuple[str, str], str] = {}  # (queue, unique_key) of live jobs

    def put(self, old: Job | None, new: Job | None) -> None:
        """Follows one row from what it was to what it is; None means that there is no row."""
        if old is None and new is not None:
            self._ids.add(new.id)
        if old is not None:
            self._leave(old)
        if new is not None:
            self._enter(new)
        if old is not None and new is None:
            self._ids.remove(old.id)

    def owner(self, queue: str, unique_key: str | None) -> str | None:
        """The live job that owns a unique key."""
        return None if unique_key is None else self._owners.get((queue, unique_key))

    def due(self, ask: Ask, now_us: int, limit: int) -> list[str]:
        """The first due jobs an ask is for, in its order."""
        shelves = self._shelves.get(ask.queue, {})
        lanes = LANES if ask.lane is None else (ask.lane,)
        lines = [shelf.due(ask.order, now_us) for lane in lanes if (shelf := shelves.get((lane, ask.priority))) is not None]
        return [job_id for _, job_id in islice(heapq.merge(*lines), limit)]

    def next_due_us(self, queue: str, now_us: int) -> int | None:
        """When the next pending job of a queue falls due, of those that are not due yet."""
        times = [due_us for shelf in self._shelves.get(queue, {}).values() if (due_us := shelf.next_due_us(now_us)) is not None]
        return min(times, default=None)

    def lapsed(self, now_us: int, limit: int) -> list[str]:
        """Processing jobs whose lease has ended, the oldest end first."""
        return _until(self._leases, now_us, limit)

    def finished(self, status: str, until_us: int, limit: int) -> list[str]:
        """Jobs that came to this terminal status not after the given time, oldest first."""
        return _until(self._finished.get(status, SortedKeys()), until_us, limit)

    def newest(self, before: str | None) -> Iterator[str]:
        """Ids from the newest down, starting below the given one."""
        return self._ids.below(before)

    def _enter(self, job: Job) -> None:
        if job.status == "pending":
            self._shelf(job).add(job)
        elif job.status == "processing":
            self._leases.add((_set(job.lease_expires_at_us), job.id))
        else:
            self._finished.setdefault(job.status, SortedKeys()).add((_set(job.finished_at_us), job.id))
        if job.unique_key is not None and job.status in LIVE:
            self._owners[job.queue, job.unique_key] = job.id

    def _leave(self, job: Job) -> None:
        if job.status == "pending":
            self._shelf(job).remove(job)
        elif job.status == "processing":
            self._leases.remove((_set(job.lease_expires_at_us), job.id))
        else:
            self._finished[job.status].remove((_set(job.finished_at_us), job.id))
        if job.unique_key is not None and job.status in LIVE:
            del self._owners[job.queue, job.unique_key]

    def _shelf(self, job: Job) -> Shelf:
        shelves = self._shelves.setdefault(job.queue, {})
        shelf = shelves.get((job.lane, job.priority))
        if shelf is None:
            shelf = shelves[job.lane, job.priority] = Shelf()
        return shelf


def _shelf_key(job: Job) -> tuple[int, str, int]:
    return (_set(job.run_at_us), job.id, job.created_at_us)


def _until(keys: SortedKeys[tuple[int, str]], until_us: int, limit: int) -> list[str]:
    found: list[str] = []
    for time_us, job_id in keys:
        if time_us > until_us or len(found) >= limit:
            break
        found.append(job_id)
    return found


def _set(time_us: int | None) -> int:
    """The time, which the job's status says must be there."""
    if time_us is None:
        raise ValueError("a row lacks the time that its status calls for; this is a bug in the memory store")
    return time_us
