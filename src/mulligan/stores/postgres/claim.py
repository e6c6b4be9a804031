"""Claiming: one call of the server's function, and its rows made into jobs. Where limits or groups have a say: careful.py."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Ask, Claimed
from mulligan.core.job import LANES
from mulligan.stores.postgres.database import Database
from mulligan.stores.postgres.floors import Floors, Line
from mulligan.stores.postgres.rows import COLUMNS, decode, salvage

CLAIM_MEMORY_US = 3_600 * SECOND_US  # how long a claim_id that took jobs is known
READY_MAX = 5_000  # due jobs that one claim in the order of creation marks at most

ID, _QUEUE, _LANE, _PRIORITY, _CREATED = (COLUMNS.index(name) for name in ("id", "queue", "lane", "priority", "created_at_us"))
# What every claimed job has or lacks is not sent. In the place of a time it cannot have comes its place in the claim.
_STATUS, _CLAIM_ID, _DUE, _PLACE = (COLUMNS.index(name) for name in ("status", "claim_id", "due_us", "finished_at_us"))
_UPDATED, _OWNER, _LEASE_END = (COLUMNS.index(name) for name in ("updated_at_us", "lease_owner", "lease_expires_at_us"))
_SENT = {"status": "NULL", "claim_id": "NULL", "run_at_us": "NULL", "finished_at_us": "claim_place"}
_NOW, _NEXT_DUE, _BUMPS, _IS_GROUPED = (
    _CREATED,
    _DUE,
    COLUMNS.index("fence"),
    COLUMNS.index("cancel_requested"),
)  # of the row that has no id
_AGE_AND_ID = operator.itemgetter(_CREATED, ID)
SENT_COLUMNS = ", ".join(_SENT.get(name, name) for name in COLUMNS)
CLAIM = f"""
SELECT {", ".join(COLUMNS)}
FROM {{s}}.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
"""


class Wish(NamedTuple):
    """One claim as it was asked for."""

    claim_id: str
    owner: str
    asks: Sequence[Ask]
    total: int
    lease_us: int


async def claim(database: Database, floors: Floors, wish: Wish) -> Claimed | None:
    """Takes due jobs under a lease, or returns what an earlier claim of the same id still holds. None, and nothing done, if one of the
    queues has jobs with groups."""
    found = await _taken(database, floors, wish)
    if found is None:
        return None
    taken, now_us, next_due_us = found
    jobs = decode(taken, now_us)
    if jobs is None:
        jobs = await salvage(database, taken, now_us)
    return Claimed(jobs=jobs, now_us=now_us, next_due_us=next_due_us)


async def claim_at_once(database: Database, floors: Floors, wish: Wish) -> Claimed | None:
    """The same by one statement and nothing more: None also if a row cannot be decoded, and something has to be done about it."""
    found = await _taken(database, floors, wish)
    if found is None:
        return None
    taken, now_us, next_due_us = found
    jobs = decode(taken, now_us)
    return None if jobs is None else Claimed(jobs=jobs, now_us=now_us, next_due_us=next_due_us)


async def _taken(database: Database, floors: Floors, wish: Wish) -> tuple[list[list[Any]], int, int | None] | None:
    """The values of the rows that were taken, in their order; the time, and the next due time. None if there are groups."""
    asks = wish.asks
    unusual = _is_unusual(asks)
    rows = await database.rows(
        CLAIM,
        database.now_us(),
        wish.claim_id,
        wish.owner,
        [ask.queue for ask in asks],
        [ask.lane for ask in asks],
        [ask.priority for ask in asks],
        [ask.guaranteed for ask in asks],
        [ask.order == "created_at" for ask in asks],
        floors.of(asks),
        floors.bumps,
        wish.total,
        wish.lease_us,
        unusual,
        READY_MAX,
        CLAIM_MEMORY_US,
    )
    answer = next(row for row in rows if row[ID] is None)
    if answer[_IS_GROUPED]:
        return None
    now_us: int = answer[_NOW]
    taken = _in_order(asks, [list(row) for row in rows if row[ID] is not None])
    floors.learn(now_us, answer[_BUMPS], {} if unusual else _reached(asks, taken))
    return _filled(wish, taken, now_us), now_us, answer[_NEXT_DUE]


def completed(wish: Wish, rows: Sequence[Any], now_us: int) -> list[list[Any]]:
    """The values of claimed rows (SENT_COLUMNS) in the order of the claim, with those that were not sent."""
    return _filled(wish, _in_order(wish.asks, [list(row) for row in rows]), now_us)


def _filled(wish: Wish, taken: list[list[Any]], now_us: int) -> list[list[Any]]:
    lease_end_us = now_us + wish.lease_us
    for values in taken:
        values[_STATUS], values[_CLAIM_ID], values[_PLACE] = "processing", wish.claim_id, None
        if values[_OWNER] is None:  # not of an earlier call: what this one wrote
            values[_UPDATED], values[_OWNER], values[_LEASE_END] = now_us, wish.owner, lease_end_us
    return taken


def _in_order(asks: Sequence[Ask], taken: Sequence[list[Any]]) -> list[list[Any]]:
    """The rows in the order of their asks, and within an ask in the order that it wants. Unusual asks have left the place in the rows."""
    lines: dict[Line, list[list[Any]]] = {}
    for row in taken:
        lines.setdefault((row[_QUEUE], row[_LANE], row[_PRIORITY]), []).append(row)
    ordered: list[list[Any]] = []
    for ask in asks:
        lanes = LANES if ask.lane is None else (ask.lane,)
        found = [row for lane in lanes for row in lines.pop((ask.queue, lane, ask.priority), ())]
        found.sort(key=_AGE_AND_ID if ask.order == "created_at" else _due_and_id)
        ordered += found
    for line in lines.values():  # of a repeat with other asks
        ordered += sorted(line, key=_due_and_id)
    if any(row[_PLACE] is not None for row in ordered):
        ordered.sort(key=lambda row: row[_PLACE] or 0)
    return ordered


def _due_and_id(row: list[Any]) -> tuple[int, str]:
    return (row[_DUE] or 0, row[ID])  # a row that was edited by hand may have no time


def _reached(asks: Sequence[Ask], taken: Sequence[list[Any]]) -> dict[Line, int]:
    """Up to which run_at each line was taken. A line that is served in the order of creation has no such mark."""
    lines: set[Line] = {(ask.queue, ask.lane, ask.priority) for ask in asks if ask.order == "run_at"}
    return {line: row[_DUE] for row in taken if row[_DUE] is not None and (line := (row[_QUEUE], row[_LANE], row[_PRIORITY])) in lines}


def _is_unusual(asks: Sequence[Ask]) -> bool:
    """Whether asks overlap, or one is of a kind that has no index of its own."""
    if any(ask.lane is None and ask.order == "run_at" for ask in asks):
        return True
    lines = {(ask.queue, ask.lane, ask.priority) for ask in asks}
    if len(lines) < len(asks):
        return True
    return any(lane is not None and (queue, None, priority) in lines for queue, lane, priority in lines)
