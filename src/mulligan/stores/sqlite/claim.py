"""Claiming: which jobs, in which order, and the one write that takes them.

Candidates are found by index alone (INDEXED BY, so that no statistics can change that), as one row of JSON lists.

Claims in the order of creation need a list of due jobs in that order, and no index can have "due" in it. So such a claim first marks
due jobs as `ready`, a bounded number at a time; the marked ones have an index of their own. The order is exact as long as no more
than READY_MAX jobs of a lane fell due since the last claim; beyond that, those that fell due first are marked first. A claim in
the order of run_at that meets marked jobs (the strategy of the queue was changed) serves them too, and takes the marks off again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Ask
from mulligan.core.job import LANES, PRIORITIES
from mulligan.core.lending import allot
from mulligan.stores.sqlite.hop import Transaction
from mulligan.stores.sqlite.rows import numbers, read_text, to_json

CLAIM_MEMORY_US = 3_600 * SECOND_US  # how long a claim_id that took jobs is known
READY_MAX = 5_000
_ASKS_MAX = 12  # in one statement; more are asked in several
_FORGET_EVERY, _FORGET_MAX = 64, 512  # old claim ids are removed now and then, and more of them than came meanwhile

_DUE = """
SELECT seq, run_at_us AS at_us, id FROM mulligan_jobs INDEXED BY mulligan_jobs_due
WHERE status = 'pending' AND ready = 0 AND queue = ? AND lane = ? AND priority = ? AND run_at_us <= ?
ORDER BY run_at_us, id LIMIT ?
"""
_OLDEST = """
SELECT seq FROM mulligan_jobs INDEXED BY mulligan_jobs_fifo
WHERE status = 'pending' AND ready = 1 AND queue = ? AND priority = ? AND run_at_us <= ?
ORDER BY created_at_us, id LIMIT ?
"""
_OLDEST_OF_LANE = _OLDEST.replace("AND run_at_us", "AND lane = ? AND run_at_us")
_MARKED = """
SELECT seq, run_at_us AS at_us, id FROM mulligan_jobs INDEXED BY mulligan_jobs_fifo
WHERE status = 'pending' AND ready = 1 AND queue = ? AND lane = ? AND priority = ? AND run_at_us <= ? LIMIT ?
"""
_HAS_MARKED = """
EXISTS (SELECT 1 FROM mulligan_jobs INDEXED BY mulligan_jobs_fifo WHERE status = 'pending' AND ready = 1 AND queue = ? AND priority = ?)
"""
_MARK = f"UPDATE mulligan_jobs SET ready = 1 WHERE seq IN (SELECT seq FROM ({_DUE}))"
_UNMARK = """
UPDATE mulligan_jobs SET ready = 0 WHERE seq IN (
  SELECT seq FROM mulligan_jobs INDEXED BY mulligan_jobs_fifo
  WHERE status = 'pending' AND ready = 1 AND queue = ? AND priority = ? LIMIT ?)
"""
_TAKE = """
UPDATE mulligan_jobs SET status = 'processing', run_at_us = NULL, ready = 0, fence = fence + 1, attempts = attempts + 1,
  claim_id = ?, claim_place = c.place, lease_owner = ?, lease_expires_at_us = ?, updated_at_us = ?
FROM (SELECT key AS place, value AS chosen FROM json_each(?)) AS c
WHERE mulligan_jobs.seq = c.chosen
"""
_REMEMBER = "INSERT INTO mulligan_claims (claim_id, at_us) VALUES (?, ?)"
_FORGET = "DELETE FROM mulligan_claims WHERE at_us < ? AND seq IN (SELECT seq FROM mulligan_claims ORDER BY seq LIMIT ?)"
HELD = """
SELECT json_group_array(seq) FROM (
  SELECT seq FROM mulligan_jobs INDEXED BY mulligan_jobs_lease WHERE status = 'processing' AND claim_id = ? ORDER BY claim_place)
"""
# One probe for each lane and priority of each queue, because the index has them before the time. Marked jobs were due when they were
# marked; only after a clock was set back is one of them in the future. There are few: this is asked when the due ones are all taken.
NEXT_DUE = """
SELECT min(run_at_us) FROM (
  SELECT (
    SELECT run_at_us FROM mulligan_jobs INDEXED BY mulligan_jobs_due
    WHERE status = 'pending' AND ready = 0 AND queue = q.value AND lane = l.value AND priority = p.value AND run_at_us > ?
    ORDER BY run_at_us LIMIT 1) AS run_at_us
  FROM json_each(?) AS q CROSS JOIN json_each(?) AS l CROSS JOIN json_each(?) AS p
  UNION ALL
  SELECT j.run_at_us FROM json_each(?) AS q CROSS JOIN mulligan_jobs AS j INDEXED BY mulligan_jobs_fifo
  WHERE j.status = 'pending' AND j.ready = 1 AND j.queue = q.value AND j.run_at_us > ?)
"""
_LANES, _PRIORITIES = to_json(LANES), to_json(PRIORITIES)

_names_decoder = msgspec.json.Decoder(set[str])


class Taken(NamedTuple):
    """What a claim took: the jobs as one JSON text (None if SQLite could not make it), and their seq as a JSON list."""

    text: str | None
    chosen: str
    now_us: int
    next_due_us: int | None
    is_empty: bool


def claim(transaction: Transaction, claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int) -> Taken:
    """Takes due jobs under a lease, or finds what an earlier claim of the same id still holds."""
    now_us = transaction.now_us
    _mark(transaction, asks)
    seen = _look(transaction, claim_id, asks, total)
    if seen.marked and not seen.is_known:
        seen = _look(transaction, claim_id, asks, total, with_marked=True)
        _unmark(transaction, seen.marked)
    if seen.is_known:
        [chosen] = transaction.row(HELD, (claim_id,))
        found = len(numbers(chosen))
    else:
        picked = _pick(asks, seen, total)
        chosen, found = to_json(picked), len(picked)
        if picked:
            transaction.run(_TAKE, (claim_id, owner, now_us + lease_us, now_us, chosen))
            _remember(transaction, claim_id)
    text = read_text(transaction, chosen) if found else "[]"
    next_due_us = _next_due_us(transaction, asks, seen.paused) if found < total else None
    return Taken(text, chosen, now_us, next_due_us, is_empty=not found)


def probe(transaction: Transaction, claim_id: str, asks: Sequence[Ask]) -> Taken | None:
    """The answer to a claim that is empty, found without writing; None if there may be something to take or to return."""
    plain = [msgspec.structs.replace(ask, order="run_at") for ask in asks]
    seen = _look(transaction, claim_id, plain, 1)
    if seen.is_known or seen.marked or _pick(plain, seen, 1):
        return None
    return Taken("[]", "[]", transaction.now_us, _next_due_us(transaction, asks, seen.paused), is_empty=True)


class _Seen(NamedTuple):
    """What a claim finds before it takes anything."""

    is_known: bool  # the claim_id took jobs before
    paused: set[str]
    lines: list[list[int]]  # the candidates of each ask
    marked: set[tuple[str, int]]  # queues and priorities asked for in the order of run_at that hold marked jobs


def _look(transaction: Transaction, claim_id: str, asks: Sequence[Ask], limit: int, *, with_marked: bool = False) -> _Seen:
    now_us = transaction.now_us
    is_known, paused, lines, marked = 0, "[]", list[list[int]](), set[tuple[str, int]]()
    for at in range(0, len(asks), _ASKS_MAX):
        part = asks[at : at + _ASKS_MAX]
        params: list[Any] = [claim_id]
        for ask in part:
            params += _line_params(ask, now_us, limit, with_marked=with_marked)
        shapes = tuple((ask.order, ask.lane is None) for ask in part)
        is_known, paused, *found = transaction.row(_look_sql(shapes, with_marked), params)
        lines += [numbers(line) for line in found[::2]]
        marked |= {(ask.queue, ask.priority) for ask, has_marked in zip(part, found[1::2], strict=True) if has_marked}
    # A queue that is asked for in both orders at once keeps its marks.
    marked -= {(ask.queue, ask.priority) for ask in asks if ask.order == "created_at"} if with_marked else set()
    return _Seen(bool(is_known), _names_decoder.decode(paused), lines, marked)


@lru_cache(maxsize=256)
def _look_sql(shapes: tuple[tuple[str, bool], ...], with_marked: bool) -> str:
    """One row: whether the claim_id is known, the paused queues, then per ask its candidates and whether it meets marked jobs."""
    columns = ", ".join(
        f"(SELECT json_group_array(seq) FROM ({_line_sql(order, both_lanes, with_marked)})), {_HAS_MARKED if order == 'run_at' else '0'}"
        for order, both_lanes in shapes
    )
    return f"""
    SELECT EXISTS (SELECT 1 FROM mulligan_claims WHERE claim_id = ?),
      (SELECT json_group_array(queue) FROM mulligan_queues WHERE paused = 1), {columns}
    """


def _line_sql(order: str, both_lanes: bool, with_marked: bool) -> str:
    if order == "created_at":
        return _OLDEST if both_lanes else _OLDEST_OF_LANE
    sources = [_DUE, _MARKED] if with_marked else [_DUE]
    parts = [f"SELECT * FROM ({source})" for source in sources * (2 if both_lanes else 1)]
    return _DUE if len(parts) == 1 else f"SELECT seq FROM ({' UNION ALL '.join(parts)}) ORDER BY at_us, id LIMIT ?"


def _line_params(ask: Ask, now_us: int, limit: int, *, with_marked: bool) -> list[Any]:
    """The parameters of one ask, in the order in which _look_sql has their places."""
    if ask.order == "created_at":
        return [ask.queue, ask.priority, *([] if ask.lane is None else [ask.lane]), now_us, limit]
    params: list[Any] = []
    for lane in LANES if ask.lane is None else (ask.lane,):
        params += [ask.queue, lane, ask.priority, now_us, limit]
        if with_marked:
            params += [ask.queue, lane, ask.priority, now_us, READY_MAX]
    if ask.lane is None or with_marked:
        params.append(limit)
    return [*params, ask.queue, ask.priority]


def _pick(asks: Sequence[Ask], seen: _Seen, total: int) -> list[int]:
    """The jobs of a claim: each ask's guaranteed share, then what the others leave, in the order of the asks."""
    listed: set[int] = set()
    lines: list[list[int]] = []
    for ask, candidates in zip(asks, seen.lines, strict=True):
        # Asks may overlap. A job stands in the line of the first ask that lists it.
        line = [] if ask.queue in seen.paused else [seq for seq in candidates if seq not in listed]
        listed.update(line)
        lines.append(line)
    takes = allot(total, [ask.guaranteed for ask in asks], [len(line) for line in lines], [(ask.queue, ask.lane) for ask in asks])
    return [seq for line, take in zip(lines, takes, strict=True) for seq in line[:take]]


def _mark(transaction: Transaction, asks: Sequence[Ask]) -> None:
    for ask in asks:
        if ask.order == "created_at":
            for lane in LANES if ask.lane is None else (ask.lane,):
                transaction.run(_MARK, (ask.queue, lane, ask.priority, transaction.now_us, READY_MAX))


def _unmark(transaction: Transaction, places: set[tuple[str, int]]) -> None:
    for queue, priority in sorted(places):
        transaction.run(_UNMARK, (queue, priority, READY_MAX))


def _remember(transaction: Transaction, claim_id: str) -> None:
    seq = transaction.connection.execute(_REMEMBER, (claim_id, transaction.now_us)).lastrowid or 0
    if seq % _FORGET_EVERY == 0:
        transaction.run(_FORGET, (transaction.now_us - CLAIM_MEMORY_US, _FORGET_MAX))


def _next_due_us(transaction: Transaction, asks: Sequence[Ask], paused: set[str]) -> int | None:
    queues = to_json(sorted({ask.queue for ask in asks} - paused))
    now_us = transaction.now_us
    next_due_us: int | None = transaction.row(NEXT_DUE, (now_us, queues, _LANES, _PRIORITIES, queues, now_us))[0]
    return next_due_us
