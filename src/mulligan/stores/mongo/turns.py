"""Going round the groups of a line (core/ring): which of them are due, each with its first jobs.

There are two ways to visit groups, and neither reads all the jobs of a group:
- by sweeps: the next keys of the index, as many as the groups had jobs last time. Where they have few jobs each, many of them are there;
- by leaps: the server leaps from the first key of a group to that of the next (DISTINCT_SCAN). Where groups have many jobs, that is the
  way to get past them. It is taken if a sweep met few groups, and for some time from then on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from mulligan.core.choosing import Line, Waiting
from mulligan.core.contract import Order
from mulligan.core.groups import behind, is_group, tenant_of
from mulligan.core.ring import NEWEST, SPARE_GROUPS, Arc, Bounds, Place, Round, Stretches, Visits, Walk, bounds_of, heads_of, whole_round
from mulligan.stores.mongo.database import Database, Doc, Session
from mulligan.stores.mongo.marks import READY_MAX
from mulligan.stores.mongo.schema import TURN, TURN_DUE, line_of

SWEEP_MAX = 4  # jobs of each group, up to which they are swept over
LEAPS = 50  # so many times groups are visited by leaps before a sweep is tried again
TRIPS_MAX = 12  # questions to the server on one way
HEADS_BY_AGE_MIN = 100  # of so many due jobs of a group at the least, the oldest by creation come first


class Key(NamedTuple):
    """A waiting job as an index has it."""

    group: str
    run_at_us: int
    id: str
    fence: int
    created_at_us: int


class Turns:
    """The groups of one line, for one claim. `oldest` are its first due jobs by time, one more than a short round may list."""

    def __init__(
        self, database: Database, session: Session, place: Place, order: Order, now_us: int, limit: int, oldest: Sequence[Key]
    ) -> None:
        self._database = database
        self._session = session
        self._place = place
        self._line = line_of(*place)
        self._order = order
        self._now_us = now_us
        self._limit = limit
        self._oldest = oldest
        self._keys: dict[str, list[Key]] = {}  # the first jobs of each group that was met, by time
        self._whole: set[str] = set()  # groups of which no more jobs are due than these
        self.damaged: set[str] = set()  # groups that are none: somebody edited a document

    async def go_round(self, after: str, stretches: Stretches, *, wide: bool) -> tuple[Round, list[Line]]:
        """The due groups in their turn, each with its first jobs."""
        round_ = Round(self._place, bounds_of(self._limit, wide=wide))
        oldest: dict[str, list[Key]] = {}
        for key in self._oldest:
            oldest.setdefault(key.group, []).append(key)
        if len(self._oldest) <= self._limit + SPARE_GROUPS:
            self._keys |= oldest
            self._whole |= oldest.keys()
            round_.list_all(self._sound(oldest))
        else:
            for stretch in round_.walk(await self._walk(whole_round(after), round_.bounds), stretches):
                round_.stretch(stretch.tenant, await self._walk(stretch.arc, stretch.bounds))
            if round_.is_sparse:
                self._keys = oldest | self._keys
                round_.list_also(self._sound(oldest))
            if wide and round_.is_cut:
                newest = {key.group: [key] for key in await self._newest()}
                round_.list_also(self._sound(newest))
        lines = await self._lines(round_.due, heads_of(self._limit, len(round_.due)))
        return round_, [*lines, *round_.marks()]

    async def longer(self, groups: Sequence[str]) -> list[Line]:
        """More jobs of some groups."""
        return await self._lines(groups, self._limit)

    async def _lines(self, groups: Sequence[str], heads: int) -> list[Line]:
        jobs = {group: [key for key in self._keys.get(group, ()) if key.run_at_us <= self._now_us] for group in groups}
        lacking = [group for group in groups if group not in self._whole and (self._order == "created_at" or len(jobs[group]) < heads)]
        if lacking:
            jobs |= await self._heads(lacking, heads)
        return [self._line_of(group, jobs[group], heads) for group in groups]

    def _line_of(self, group: str, keys: Iterable[Key], heads: int) -> Line:
        by_age = self._order == "created_at"
        waiting = sorted(Waiting(key.created_at_us if by_age else key.run_at_us, key.id, key.fence) for key in keys)[:heads]
        return Line(self._place[1], group, waiting, is_cut=len(waiting) == heads)

    def _sound(self, groups: Iterable[str]) -> list[str]:
        """The groups, but for those that are none."""
        self.damaged |= {group for group in groups if not is_group(group)}
        return [group for group in groups if group not in self.damaged]

    async def _walk(self, arc: Arc, bounds: Bounds) -> Visits:
        """Visits groups along a way, up to the bounds."""
        walk, trips = Walk(bounds), 0
        for start, end in ((arc.start, arc.high), (arc.low, arc.until)):
            position, is_end = start, start >= end
            walk.turn_over()
            while not is_end:
                if trips == TRIPS_MAX:
                    return Visits(walk.groups, is_cut=True)
                trips += 1
                wanted = 1 + max(1, min(bounds.visits - len(walk.groups), bounds.groups))
                groups, is_end = await self._groups_behind(position, end, wanted)
                for group in groups:
                    position = group
                    if not is_group(group):
                        self.damaged.add(group)
                    elif walk.leaps_over(group):
                        position = behind(tenant_of(group))
                    elif walk.ends_before(group):
                        return Visits(walk.groups, is_cut=True)
                    else:
                        walk.visit(group, self._keys[group][0].run_at_us <= self._now_us)
        return Visits(walk.groups, is_cut=False)

    async def _groups_behind(self, position: str, high: str, wanted: int) -> tuple[list[str], bool]:
        """The next groups, about so many if there are, and whether there are no others."""
        query = {"group": {"$gt": position, "$lte": high}}
        depth, leaps = self._database.depths.get(self._line, (1.0, 0))
        if not leaps:
            limit = math.ceil(wanted * depth)
            keys = await self._rows(query, limit)
            groups = list(dict.fromkeys(key.group for key in keys))
            is_end = len(keys) < limit
            depth = len(keys) / max(1, len(groups))
            if is_end or depth <= SWEEP_MAX:
                self._database.depths[self._line] = (max(1.0, min(depth, SWEEP_MAX)), 0)
                self._keys |= {group: [] for group in groups}
                for key in keys:
                    self._keys[key.group].append(key)
                self._whole |= set(groups if is_end else groups[:-1])
                return groups, is_end
            leaps = LEAPS
        self._database.depths[self._line] = (1.0, leaps - 1)
        firsts = await self._firsts(query, wanted)
        self._keys |= {key.group: [key] for key in firsts if key.group not in self._whole}
        return [key.group for key in firsts], len(firsts) < wanted

    async def _rows(self, query: Doc, limit: int) -> list[Key]:
        """The first keys of a part of the line."""
        pipeline: list[Doc] = [
            {"$match": {"turn_line": self._line, **query}},
            {"$sort": {"group": 1, "run_at_us": 1, "_id": 1}},
            {"$limit": limit},
            {"$project": KEY_FIELDS},
        ]
        docs = await self._database.rows(self._database.jobs, pipeline, hint=TURN, session=self._session, batchSize=limit + 1)
        return [key_of(doc) for doc in docs]

    async def _newest(self) -> list[Key]:
        """The jobs of the line that fell due last."""
        query = {"turn_due": self._line, "run_at_us": {"$lte": self._now_us}}
        found = self._database.jobs.find(query, KEY_FIELDS, hint=TURN_DUE, sort=[("run_at_us", -1)], limit=NEWEST, session=self._session)
        return [key_of(doc) for doc in await found.to_list()]

    async def _firsts(self, query: Doc, limit: int, *, sort: bool = False) -> list[Key]:
        """The first key of each group, by leaps, the groups in their order."""
        first = {name: {"$first": f"${field}"} for name, field in _FIRST.items()}
        pipeline: list[Doc] = [
            {"$match": {"turn_line": self._line, **query}},
            {"$sort": {"turn_line": 1, "group": 1, "run_at_us": 1, "_id": 1}},
            {"$group": {"_id": "$group", **first}},
            *([{"$sort": {"_id": 1}}] if sort else []),
            {"$limit": limit},
        ]
        docs = await self._database.rows(self._database.jobs, pipeline, hint=TURN, session=self._session, batchSize=limit + 1)
        keys = [Key(doc["_id"], doc["run_at_us"], doc["id"], doc["fence"], doc["created_at_us"]) for doc in docs]
        if any(after.group < before.group for before, after in pairwise(keys)):
            # They come in order because the server leaps. One that does it in another way must be told to sort.
            return await self._firsts(query, limit, sort=True)
        return keys

    async def _heads(self, groups: Sequence[str], heads: int) -> dict[str, list[Key]]:
        """The first due jobs of each of these groups. By creation: of those that fell due first, a bounded number."""
        by_age = self._order == "created_at"
        most = max(heads, HEADS_BY_AGE_MIN, READY_MAX // len(groups)) if by_age else heads
        oldest: list[Doc] = [{"$sort": {"created_at_us": 1, "_id": 1}}, {"$limit": heads}]
        jobs: list[Doc] = [
            {"$match": {"turn_line": self._line, "run_at_us": {"$lte": self._now_us}}},
            {"$sort": {"run_at_us": 1, "_id": 1}},
            {"$limit": most},
            {"$project": KEY_FIELDS},
            *(oldest if by_age else ()),
        ]
        pipeline: list[Doc] = [
            {"$match": {"_id": "schema"}},
            {"$project": {"group": {"$literal": list(groups)}}},
            {"$unwind": "$group"},
            {"$lookup": {"from": "mulligan_jobs", "localField": "group", "foreignField": "group", "pipeline": jobs, "as": "jobs"}},
        ]
        docs = await self._database.rows(self._database.meta, pipeline, session=self._session, batchSize=len(groups) + 1)
        return {doc["group"]: [key_of(job) for job in doc["jobs"]] for doc in docs}


_FIRST = {"run_at_us": "run_at_us", "id": "_id", "fence": "fence", "created_at_us": "created_at_us"}
KEY_FIELDS: Doc = {"_id": 1, "group": 1, "run_at_us": 1, "fence": 1, "created_at_us": 1}


def key_of(doc: Doc) -> Key:
    """A job from the fields of its key."""
    return Key(doc["group"], doc["run_at_us"], doc["_id"], doc.get("fence", 0), doc.get("created_at_us", 0))
