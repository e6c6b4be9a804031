"""What every claim ends with: the write that takes the jobs, the memory of its id, and when the next job falls due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Ask
from mulligan.core.job import LANES, PRIORITIES
from mulligan.stores.sqlite.hop import Transaction
from mulligan.stores.sqlite.rows import to_json

CLAIM_MEMORY_US = 3_600 * SECOND_US  # how long a claim_id that took jobs is known
_FORGET_EVERY, _FORGET_MAX = 64, 512  # old claim ids are removed now and then, and more of them than came meanwhile

_TAKE = """
UPDATE mulligan_jobs SET status = 'processing', run_at_us = NULL, ready = 0, fence = fence + 1, attempts = attempts + 1,
  claim_id = ?, claim_place = c.place, lease_owner = ?, lease_expires_at_us = ?, updated_at_us = ?
FROM (SELECT key AS place, value AS chosen FROM json_each(?)) AS c
WHERE mulligan_jobs.seq = c.chosen
"""
# Here the list has pairs: which job, and the slots it is claimed under.
_TAKE_UNDER_SLOTS = _TAKE.replace("value AS chosen", "json_extract(value, '$[0]') AS chosen, json_extract(value, '$[1]') AS held").replace(
    "updated_at_us = ?", "updated_at_us = ?, slots = c.held"
)
_REMEMBER = "INSERT INTO mulligan_claims (claim_id, at_us) VALUES (?, ?)"
_FORGET = "DELETE FROM mulligan_claims WHERE at_us < ? AND seq IN (SELECT seq FROM mulligan_claims ORDER BY seq LIMIT ?)"
# One probe for each lane and priority of each queue, because the index has them before the time. Marked jobs were due when they were
# marked; only after a clock was set back is one of them in the future. There are few: this is asked when the due ones are all taken.
NEXT_DUE = """
SELECT min(run_at_us) FROM (
  SELECT (
    SELECT run_at_us FROM mulligan_jobs INDEXED BY mulligan_jobs_due
    WHERE status = 'pending' AND ready = 0 AND grp IS NULL
      AND queue = q.value AND lane = l.value AND priority = p.value AND run_at_us > ?
    ORDER BY run_at_us LIMIT 1) AS run_at_us
  FROM json_each(?) AS q CROSS JOIN json_each(?) AS l CROSS JOIN json_each(?) AS p
  UNION ALL
  SELECT j.run_at_us FROM json_each(?) AS q CROSS JOIN mulligan_jobs AS j INDEXED BY mulligan_jobs_fifo
  WHERE j.status = 'pending' AND j.ready = 1 AND j.queue = q.value AND j.run_at_us > ?)
"""
NEXT_DUE_OF_GROUPS = """
SELECT min(run_at_us) FROM (
  SELECT (
    SELECT run_at_us FROM mulligan_jobs INDEXED BY mulligan_jobs_grouped
    WHERE grp IS NOT NULL AND status = 'pending' AND queue = q.value AND lane = l.value AND priority = p.value AND run_at_us > ?
    ORDER BY run_at_us LIMIT 1) AS run_at_us
  FROM json_each(?) AS q CROSS JOIN json_each(?) AS l CROSS JOIN json_each(?) AS p)
"""
_LANES, _PRIORITIES = to_json(LANES), to_json(PRIORITIES)


class Taken(NamedTuple):
    """What a claim took: the jobs as one JSON text (None if SQLite could not make it), and their seq as a JSON list.

    The rest is what the contract's Claimed says.
    """

    text: str | None
    chosen: str
    now_us: int
    next_due_us: int | None
    is_empty: bool
    held_back: frozenset[str] = frozenset()
    turns: tuple[str, ...] = ()
    levels: Mapping[str, int] = {}


def take(transaction: Transaction, claim_id: str, owner: str, lease_us: int, chosen: str) -> None:
    """Puts the chosen jobs (a JSON list of seq) under a lease."""
    now_us = transaction.now_us
    transaction.run(_TAKE, (claim_id, owner, now_us + lease_us, now_us, chosen))


def take_under_slots(transaction: Transaction, claim_id: str, owner: str, lease_us: int, chosen: Sequence[tuple[int, str | None]]) -> None:
    """The same, where each job (by seq) keeps the text of the slots it is claimed under."""
    now_us = transaction.now_us
    transaction.run(_TAKE_UNDER_SLOTS, (claim_id, owner, now_us + lease_us, now_us, to_json(chosen)))


def remember(transaction: Transaction, claim_id: str) -> bool:
    """Notes that this claim_id took jobs; whether it is time to tidy up, which is so now and then."""
    seq = transaction.connection.execute(_REMEMBER, (claim_id, transaction.now_us)).lastrowid or 0
    is_time = seq % _FORGET_EVERY == 0
    if is_time:
        transaction.run(_FORGET, (transaction.now_us - CLAIM_MEMORY_US, _FORGET_MAX))
    return is_time


def next_due_us(transaction: Transaction, asks: Sequence[Ask], paused: set[str], grouped: set[str]) -> int | None:
    """When the next pending job of the queues falls due, of those that are not due yet."""
    now_us = transaction.now_us
    open_queues = {ask.queue for ask in asks} - paused
    queues = to_json(sorted(open_queues))
    due_us: int | None = transaction.row(NEXT_DUE, (now_us, queues, _LANES, _PRIORITIES, queues, now_us))[0]
    if not grouped or not (with_groups := sorted(open_queues & grouped)):
        return due_us
    of_groups_us: int | None = transaction.row(NEXT_DUE_OF_GROUPS, (now_us, to_json(with_groups), _LANES, _PRIORITIES))[0]
    return min((time_us for time_us in (due_us, of_groups_us) if time_us is not None), default=None)
