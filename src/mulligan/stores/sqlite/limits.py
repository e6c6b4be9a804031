"""What the limits of a fleet are kept by (core/limits): slots are counted from the rows, the levels of buckets are stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from mulligan.core.job import LANES
from mulligan.core.limits import BUCKET_MEMORY_US, Ledger, Level, Scope
from mulligan.stores.sqlite.bulk import ROWS, Params
from mulligan.stores.sqlite.hop import Transaction
from mulligan.stores.sqlite.rows import numbers, to_json

_FORGET_MAX = 512

# Jobs under a lease that has not ended. The rows: queue, lane, now. Without a key, only jobs count that were claimed under slots.
_COUNT_LANES = f"""
SELECT json_group_array((
  SELECT count(*) FROM mulligan_jobs INDEXED BY mulligan_jobs_slots
  WHERE slots IS NOT NULL AND status = 'processing' AND queue = a.column1 AND lane = a.column2 AND lease_expires_at_us > a.column3))
FROM {ROWS} AS a WHERE a.column1 IS NOT NULL
"""
# The rows: queue, key, lane (NULL: both), now.
_COUNT_KEYS = f"""
SELECT json_group_array((
  SELECT count(*) FROM mulligan_jobs INDEXED BY mulligan_jobs_keys
  WHERE concurrency_key IS NOT NULL AND status = 'processing'
    AND queue = a.column1 AND concurrency_key = a.column2 AND lease_expires_at_us > a.column4 AND lane = coalesce(a.column3, lane)))
FROM {ROWS} AS a WHERE a.column1 IS NOT NULL
"""
_ALL_LEVELS = "SELECT json_group_array(json_array(key, level_u, at_us)) FROM mulligan_buckets"
_LEVELS = f"{_ALL_LEVELS} WHERE key IN (SELECT value FROM json_each(?))"
_WRITE_LEVELS = f"""
INSERT INTO mulligan_buckets (key, level_u, at_us) SELECT column1, column2, column3 FROM {ROWS} WHERE column1 IS NOT NULL
ON CONFLICT (key) DO UPDATE SET level_u = excluded.level_u, at_us = excluded.at_us
"""
_FORGET = """
DELETE FROM mulligan_buckets WHERE key IN (
  SELECT key FROM mulligan_buckets INDEXED BY mulligan_buckets_age WHERE at_us < ? ORDER BY at_us LIMIT ?)
"""

_levels_decoder = msgspec.json.Decoder(list[tuple[str, int, int]])


def read_ledger(transaction: Transaction, scopes: Iterable[Scope], buckets: Iterable[str]) -> Ledger:
    """The state of these limits now."""
    wanted = sorted(buckets)
    stored = _levels(transaction, _LEVELS, (to_json(wanted),)) if wanted else {}
    return Ledger(transaction.now_us, count_slots(transaction, scopes), stored)


def count_slots(transaction: Transaction, scopes: Iterable[Scope]) -> dict[Scope, int]:
    """How many slots of each scope are taken."""
    counts: dict[Scope, int] = dict.fromkeys(scopes, 0)
    now_us = transaction.now_us
    lanes = [(scope, lane) for scope in counts if scope.key is None for lane in LANES if scope.lane in (None, lane)]
    lane_rows: list[Params] = [(scope.queue, lane, now_us) for scope, lane in lanes]
    for (scope, _), count in zip(lanes, _numbers(transaction, _COUNT_LANES, 3, lane_rows), strict=True):
        counts[scope] += count
    keyed = [scope for scope in counts if scope.key is not None]
    key_rows: list[Params] = [(scope.queue, scope.key, scope.lane, now_us) for scope in keyed]
    return counts | dict(zip(keyed, _numbers(transaction, _COUNT_KEYS, 4, key_rows), strict=True))


def write_levels(transaction: Transaction, levels: Mapping[str, Level]) -> None:
    """Stores what is left in the buckets."""
    transaction.run_rows(_WRITE_LEVELS, 3, [(key, *level) for key, level in levels.items()])


def forget_levels(transaction: Transaction) -> None:
    """Removes buckets that were not touched for long, a bounded number of them."""
    transaction.run(_FORGET, (transaction.now_us - BUCKET_MEMORY_US, _FORGET_MAX))


def levels(transaction: Transaction) -> dict[str, Level]:
    """What is stored of every bucket."""
    return _levels(transaction, _ALL_LEVELS, ())


def _levels(transaction: Transaction, sql: str, params: Params) -> dict[str, Level]:
    [text] = transaction.row(sql, params)
    return {key: Level(level_u, at_us) for key, level_u, at_us in _levels_decoder.decode(text)}


def _numbers(transaction: Transaction, template: str, columns: int, rows: list[Params]) -> list[int]:
    return [number for text in transaction.texts(template, columns, rows) for number in numbers(text)]
