"""Limits that a whole fleet shares. They are kept by the store, inside the claim; here is what they are and how they are counted.

Two kinds. `Slots` bound how many jobs are processing at once. They are never counted up and down: a claim counts the rows under a lease
that has not ended, so a crash cannot leak a slot. `Bucket`s bound how many jobs are started over time: tokens flow in, each start
takes one. Their level is stored, in millionths of a token, so that every store computes the same whole numbers.

A limit is for all jobs of the asks that name it, or for those whose group (core/groups) has a certain value in one part, or for
each value of that part separately; and for both lanes or for one.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from mulligan.core.clock import SECOND_US
from mulligan.core.groups import KEY, part_of
from mulligan.core.job import Lane

TOKEN = 1_000_000  # one token, in the unit of levels
BUCKET_MEMORY_US = 86_400 * SECOND_US  # a bucket that was not touched for so long may be forgotten: it begins full again
_PLACE = operator.itemgetter(0)


class Slots(msgspec.Struct, frozen=True, tag="slots", kw_only=True):
    """At most `most` jobs processing at once: of the queue, of its one lane, or (by_key) of each concurrency key in it."""

    most: int
    lane: Lane | None = None
    by_key: bool = False

    def applies(self, lane: Lane, group: str | None) -> bool:
        """Whether it is for the jobs of such a line."""
        return self.lane in (None, lane) and (not self.by_key or bool(part_of(group, KEY)))


class Bucket(msgspec.Struct, frozen=True, tag="bucket", kw_only=True):
    """Starts cost a token each. Tokens flow in at `rate_u` a second, up to `burst_u`; a bucket nobody has touched is full.

    part None: for every job of the asks. Otherwise for those whose group has `value` in that part; value None: each value of it has a
    bucket of its own. With `ratio_u`, which belongs to a bucket of one lane, each start in the other lane brings that much in.
    """

    key: str
    rate_u: int
    burst_u: int
    ratio_u: int = 0
    lane: Lane | None = None
    part: int | None = None
    value: str | None = None

    def key_for(self, group: str | None) -> str | None:
        """Which bucket the jobs of a group draw from; None if it is not for them."""
        if self.part is None:
            return self.key
        own = part_of(group, self.part)
        if not own or self.value not in (None, own):
            return None
        return self.key if self.value is not None else f"{self.key}/{own}"


Limit = Slots | Bucket


class Scope(NamedTuple):
    """What a number of slots is counted over: processing jobs of a queue, of a lane (None: both) and a concurrency key (None: any).

    Without a key only jobs are counted that were claimed under such a limit (the store marks them); with a key, all that have it.
    """

    queue: str
    lane: Lane | None
    key: str | None


class Level(NamedTuple):
    """What is in a bucket, and when that was so."""

    level_u: int
    at_us: int


def level_now(bucket: Bucket, stored: Level | None, now_us: int) -> int:
    """What is in a bucket now. A clock that went back brings nothing in, and takes nothing out."""
    if stored is None:
        return bucket.burst_u
    elapsed_us = max(0, now_us - stored.at_us)
    return min(bucket.burst_u, stored.level_u + elapsed_us * bucket.rate_u // SECOND_US)


def scope_of(slots: Slots, queue: str, group: str | None) -> Scope:
    """What these slots are counted over, for the jobs of a line."""
    return Scope(queue, slots.lane, part_of(group, KEY) if slots.by_key else None)


def slots_text(limits: Iterable[Limit], lane: Lane, group: str | None) -> str | None:
    """The slots a job of such a line is claimed under, as a text for its row: `most|lane|key`, several joined by semicolons.

    The row keeps it while it is processing. A renewal after the lease has ended must ask for the slots anew; others may have them.
    """
    own = [limit for limit in limits if isinstance(limit, Slots) and limit.applies(lane, group)]
    return ";".join(f"{slots.most}|{slots.lane or ''}|{'key' if slots.by_key else ''}" for slots in own) or None


def scopes_of(text: str, queue: str, key: str | None) -> list[tuple[Scope, int]]:
    """What such a text says must be counted, and how many there may be at most."""
    found: list[tuple[Scope, int]] = []
    for part in text.split(";"):
        most, lane, by_key = part.split("|")
        found.append((Scope(queue, "retry" if lane == "retry" else "fresh" if lane else None, key if by_key else None), int(most)))
    return found


def matters_without_group(limits: Iterable[Limit]) -> bool:
    """Whether one of the limits is also for jobs that have no group."""
    return any(not limit.by_key if isinstance(limit, Slots) else limit.part is None for limit in limits)


class Terms:
    """The limits of an ask, found by what they are for: a line meets its own ones only, however many tasks and downstreams have some."""

    def __init__(self, limits: Iterable[Limit]) -> None:
        self._general: list[tuple[int, Limit]] = []  # with their places, because the order is kept
        self._special: dict[int, dict[str, list[tuple[int, Limit]]]] = {}  # by part and value
        for place, limit in enumerate(limits):
            if isinstance(limit, Bucket) and limit.part is not None and limit.value is not None:
                self._special.setdefault(limit.part, {}).setdefault(limit.value, []).append((place, limit))
            else:
                self._general.append((place, limit))

    def for_line(self, lane: Lane, group: str | None) -> tuple[Limit, ...]:
        """Those that are for its jobs. A bucket of the other lane belongs to them too: starts here may fill it."""
        own = [
            (place, limit)
            for place, limit in self._general
            if (limit.applies(lane, group) if isinstance(limit, Slots) else limit.key_for(group) is not None)
        ]
        for part, values in self._special.items():
            own += values.get(part_of(group, part), ())
        return tuple(limit for _, limit in sorted(own, key=_PLACE))


class Ledger:
    """What the limits of one claim allow, and what its starts take. Made from what the store has read at `now_us`."""

    def __init__(self, now_us: int, counts: Mapping[Scope, int], levels: Mapping[str, Level]) -> None:
        self._now_us = now_us
        self._counts = dict(counts)
        self._stored = levels
        self._levels: dict[str, int] = {}  # of the buckets that were looked at
        self._buckets: dict[str, Bucket] = {}
        self._touched: set[str] = set()

    def copy(self) -> Ledger:
        """The same state, to be spent without consequences."""
        other = Ledger(self._now_us, self._counts, self._stored)
        other._levels, other._buckets, other._touched = dict(self._levels), dict(self._buckets), set(self._touched)
        return other

    def look(self, group: str | None, limits: Iterable[Limit]) -> None:
        """Notes what is in the buckets of a group, also in those that a start does not draw from: `levels` tells of them."""
        for limit in limits:
            if isinstance(limit, Bucket) and (key := limit.key_for(group)) is not None:
                self._level(limit, key)

    def admits(self, queue: str, lane: Lane, group: str | None, limits: Iterable[Limit]) -> bool:
        """Whether one more job of such a line may start."""
        for limit in limits:
            if isinstance(limit, Slots):
                if limit.applies(lane, group) and self._counts.get(scope_of(limit, queue, group), 0) >= limit.most:
                    return False
            elif limit.lane in (None, lane) and (key := limit.key_for(group)) is not None and self._level(limit, key) < TOKEN:
                return False
        return True

    def wait_us(self, lane: Lane, group: str | None, limits: Iterable[Limit]) -> int | None:
        """How long until the buckets of a line have a token each; None if one of them has no flow, or if they all have one."""
        longest_us = 0
        for limit in limits:
            if isinstance(limit, Bucket) and limit.lane in (None, lane) and (key := limit.key_for(group)) is not None:
                lacking_u = TOKEN - self._level(limit, key)
                if lacking_u > 0 and (limit.rate_u <= 0 or limit.burst_u < TOKEN):
                    return None
                longest_us = max(longest_us, -(-lacking_u * SECOND_US // limit.rate_u)) if lacking_u > 0 else longest_us
        return longest_us or None

    def charge(self, queue: str, lane: Lane, group: str | None, limits: Iterable[Limit]) -> None:
        """One job of such a line starts."""
        for limit in limits:
            if isinstance(limit, Slots):
                if limit.applies(lane, group):
                    scope = scope_of(limit, queue, group)
                    self._counts[scope] = self._counts.get(scope, 0) + 1
                continue
            key = limit.key_for(group)
            if key is None:
                continue
            if limit.lane in (None, lane):
                self._levels[key] = self._level(limit, key) - TOKEN
                self._touched.add(key)
            elif limit.ratio_u:
                self._levels[key] = min(limit.burst_u, self._level(limit, key) + limit.ratio_u)
                self._touched.add(key)

    def levels(self) -> dict[str, int]:
        """The level of every bucket that was looked at."""
        return dict(self._levels)

    def writes(self) -> dict[str, Level]:
        """The buckets to be written."""
        return {key: Level(self._levels[key], self._now_us) for key in sorted(self._touched)}

    def _level(self, bucket: Bucket, key: str) -> int:
        if key not in self._levels:
            self._levels[key] = level_now(bucket, self._stored.get(key), self._now_us)
        return self._levels[key]
