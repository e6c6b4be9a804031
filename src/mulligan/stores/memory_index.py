"""The order in which the memory store finds its jobs. Everything here is derived from the rows alone, by one function: Index.put."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Generic, TypeVar

from mulligan.core.choosing import Waiting
from mulligan.core.contract import DEPTH_MAX, Order, Pulse
from mulligan.core.errors import StoreRejected, shown
from mulligan.core.groups import behind, tenant_of
from mulligan.core.job import LIVE, Job, Lane
from mulligan.core.ring import Arc, Bounds, Place, Visits, Walk

K = TypeVar("K", str, tuple[int, str], tuple[int, str, int])
BLOCK_MAX = 512
MAX_ID = "\U0010ffff"  # greater than every id


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

    def above(self, bound: K) -> Iterator[K]:
        """The keys greater than the bound, smallest first."""
        start = bisect_right(self._tops, bound)
        for block in self._blocks[start:]:
            yield from block[bisect_right(block, bound) :]

    def next_above(self, bound: K) -> K | None:
        """The smallest key greater than the bound."""
        at = bisect_right(self._tops, bound)
        if at == len(self._blocks):
            return None
        block = self._blocks[at]
        return block[bisect_right(block, bound)]

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

    def __len__(self) -> int:
        return len(self._ready) + len(self._later)

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

    def due_last(self, now_us: int) -> Iterator[str]:
        """The ids of due jobs, the last by run_at first."""
        self._turn_to(now_us)
        return (job_id for _, job_id, _ in self._ready.below(None))

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


class Groups:
    """The pending jobs of one queue, lane and priority that have a group: each group by its time, and all of them by theirs."""

    __slots__ = ("_all", "_group_of", "_names", "_shelves")

    def __init__(self) -> None:
        self._all = Shelf()
        self._names: SortedKeys[str] = SortedKeys()
        self._shelves: dict[str, Shelf] = {}
        self._group_of: dict[str, str] = {}  # by id

    def add(self, job: Job, group: str) -> None:
        self._all.add(job)
        if group not in self._shelves:
            self._shelves[group] = Shelf()
            self._names.add(group)
        self._shelves[group].add(job)
        self._group_of[job.id] = group

    def remove(self, job: Job, group: str) -> None:
        self._all.remove(job)
        self._shelves[group].remove(job)
        del self._group_of[job.id]
        if not self._shelves[group]:
            del self._shelves[group]
            self._names.remove(group)

    def next_due_us(self, now_us: int) -> int | None:
        return self._all.next_due_us(now_us)

    def due(self, now_us: int) -> Iterator[tuple[int, str]]:
        return self._all.due("run_at", now_us)

    def oldest(self, now_us: int, most: int) -> list[str]:
        """The groups of the jobs that are due longest, at most so many jobs."""
        return [self._group_of[job_id] for _, job_id in islice(self.due(now_us), most)]

    def newest(self, now_us: int, most: int) -> list[str]:
        """The groups of the jobs that fell due last, at most so many jobs."""
        return [self._group_of[job_id] for job_id in islice(self._all.due_last(now_us), most)]

    def walk(self, arc: Arc, bounds: Bounds, now_us: int) -> Visits:
        """Visits groups along a way, up to the bounds (core/ring)."""
        walk = Walk(bounds)
        for start, end in ((arc.start, arc.high), (arc.low, arc.until)):
            position = start
            walk.turn_over()
            while (group := self._names.next_above(position)) is not None and group <= end:
                if walk.leaps_over(group):
                    position = behind(tenant_of(group))
                elif walk.ends_before(group):
                    return Visits(walk.groups, is_cut=True)
                else:
                    walk.visit(group, next(self._shelves[group].due("run_at", now_us), None) is not None)
                    position = group
        return Visits(walk.groups, is_cut=False)

    def heads(self, group: str, order: Order, now_us: int, most: int) -> list[Waiting]:
        """The first due jobs of a group."""
        shelf = self._shelves.get(group)
        return [] if shelf is None else [Waiting(*key) for key in islice(shelf.due(order, now_us), most)]


class Index:
    """Every order the store needs: claimable jobs, leases, finished jobs, ids, and who owns a unique key."""

    def __init__(self) -> None:
        self._ids: SortedKeys[str] = SortedKeys()
        self._shelves: dict[str, dict[tuple[Lane, int], Shelf]] = {}  # by queue: jobs without a group
        self._groups: dict[str, dict[tuple[Lane, int], Groups]] = {}  # by queue: jobs with one
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

    def check_free(self, jobs: Iterable[Job]) -> None:
        """StoreRejected if one of them is alive and its unique key has an owner."""
        for job in jobs:
            if job.status in LIVE and self.owner(job.queue, job.unique_key) is not None:
                raise StoreRejected(f"job {job.id}: another live job of queue {job.queue} has the unique key {shown(job.unique_key)}")

    def without_group(self, place: Place, order: Order, now_us: int, most: int) -> list[Waiting]:
        """The first due jobs of a line that have no group."""
        queue, lane, priority = place
        shelf = self._shelves.get(queue, {}).get((lane, priority))
        return [] if shelf is None else [Waiting(*key) for key in islice(shelf.due(order, now_us), most)]

    def groups(self, place: Place) -> Groups | None:
        """Those of a line that have one."""
        queue, lane, priority = place
        return self._groups.get(queue, {}).get((lane, priority))

    def next_due_us(self, queue: str, now_us: int) -> int | None:
        """When the next pending job of a queue falls due, of those that are not due yet."""
        shelves: list[Shelf | Groups] = [*self._shelves.get(queue, {}).values(), *self._groups.get(queue, {}).values()]
        return min((due_us for shelf in shelves if (due_us := shelf.next_due_us(now_us)) is not None), default=None)

    def pulse(self, queue: str, now_us: int) -> Pulse:
        """How many jobs of a queue are due, and since when the oldest is."""
        lines = [shelf.due("run_at", now_us) for shelf in self._shelves.get(queue, {}).values()]
        lines += [groups.due(now_us) for groups in self._groups.get(queue, {}).values()]
        firsts = [list(islice(line, DEPTH_MAX)) for line in lines]
        oldest_us = min((line[0][0] for line in firsts if line), default=None)
        return Pulse(queue=queue, depth=min(DEPTH_MAX, sum(map(len, firsts))), oldest_us=oldest_us)

    def held(self, now_us: int) -> Iterator[str]:
        """Processing jobs whose lease has not ended."""
        return (job_id for _, job_id in self._leases.above((now_us, MAX_ID)))

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
            if job.group is None:
                self._shelf(job).add(job)
            else:
                self._groups.setdefault(job.queue, {}).setdefault((job.lane, job.priority), Groups()).add(job, job.group)
        elif job.status == "processing":
            self._leases.add((_set(job.lease_expires_at_us), job.id))
        else:
            self._finished.setdefault(job.status, SortedKeys()).add((_set(job.finished_at_us), job.id))
        if job.unique_key is not None and job.status in LIVE:
            self._owners[job.queue, job.unique_key] = job.id

    def _leave(self, job: Job) -> None:
        if job.status == "pending":
            if job.group is None:
                self._shelf(job).remove(job)
            else:
                self._groups[job.queue][job.lane, job.priority].remove(job, job.group)
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
