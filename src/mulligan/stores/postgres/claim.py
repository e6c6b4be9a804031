"""Claiming: one call of the server's function, and its rows made into jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Ask, Claimed
from mulligan.stores.postgres.database import Database
from mulligan.stores.postgres.floors import Floors, Line
from mulligan.stores.postgres.rows import COLUMNS, decode, salvage

CLAIM_MEMORY_US = 3_600 * SECOND_US  # how long a claim_id that took jobs is known
READY_MAX = 5_000  # due jobs that one claim in the order of creation marks at most

_PLACE, _FROM_US = len(COLUMNS), len(COLUMNS) + 1
_ID, _NOW, _NEXT_DUE, _BUMPS = (COLUMNS.index(name) for name in ("id", "created_at_us", "run_at_us", "fence"))
CLAIM = (
    f"SELECT {', '.join(COLUMNS)}, claim_place, due_us FROM {{s}}.claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"
)


async def claim(database: Database, floors: Floors, claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int) -> Claimed:
    """Takes due jobs under a lease, or returns what an earlier claim of the same id still holds."""
    unusual = _is_unusual(asks)
    rows = await database.rows(
        CLAIM,
        database.now_us(),
        claim_id,
        owner,
        [ask.queue for ask in asks],
        [ask.lane for ask in asks],
        [ask.priority for ask in asks],
        [ask.guaranteed for ask in asks],
        [ask.order == "created_at" for ask in asks],
        floors.of(asks),
        floors.bumps,
        total,
        lease_us,
        unusual,
        READY_MAX,
        CLAIM_MEMORY_US,
    )
    answer = next(row for row in rows if row[_ID] is None)
    now_us: int = answer[_NOW]
    taken = sorted((row for row in rows if row[_ID] is not None), key=lambda row: row[_PLACE] or 0)
    floors.learn(now_us, answer[_BUMPS], {} if unusual else _reached(asks, taken))
    jobs = decode(taken, now_us)
    if jobs is None:
        jobs = await salvage(database, taken, now_us)
    return Claimed(jobs=jobs, now_us=now_us, next_due_us=answer[_NEXT_DUE])


def _reached(asks: Sequence[Ask], taken: Sequence[Any]) -> dict[Line, int]:
    """Up to which run_at each line was taken. A line that is served in the order of creation has no such mark."""
    lines: set[Line] = {(ask.queue, ask.lane, ask.priority) for ask in asks if ask.order == "run_at"}
    reached: dict[Line, int] = {}
    for row in taken:
        line = (row["queue"], row["lane"], row["priority"])
        if row[_FROM_US] is not None and line in lines:
            reached[line] = row[_FROM_US]
    return reached


def _is_unusual(asks: Sequence[Ask]) -> bool:
    """Whether asks overlap, or one is of a kind that has no index of its own."""
    if any(ask.lane is None and ask.order == "run_at" for ask in asks):
        return True
    lines = {(ask.queue, ask.lane, ask.priority) for ask in asks}
    if len(lines) < len(asks):
        return True
    return any(lane is not None and (queue, None, priority) in lines for queue, lane, priority in lines)
