"""Claiming: which jobs, in which order, and the one write that takes them.

Candidates are found by index alone (INDEXED BY, so that no statistics can change that), as one row of JSON lists.

Claims in the order of creation need a list of due jobs in that order, and no index can have "due" in it. So such a claim first marks
due jobs as `ready`, a bounded number at a time; the marked ones have an index of their own. The order is exact as long as no more
than READY_MAX jobs of a lane fell due since the last claim; beyond that, those that fell due first are marked first. A claim in
the order of run_at that meets marked jobs (the strategy of the queue was changed) serves them too, and takes the marks off again.

Where a queue has jobs with groups, or a limit of the whole fleet has a say, the claim is a careful one (careful.py). Whether there are
such jobs is seen in their index, at the price of one look for each queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from mulligan.core.contract import Ask
from mulligan.core.job import LANES
from mulligan.core.lending import allot
from mulligan.core.ring import Stretches
from mulligan.stores.sqlite.bulk import ROWS
from mulligan.stores.sqlite.careful import CarefulClaim, Queues, are_limited
from mulligan.stores.sqlite.hop import Transaction
from mulligan.stores.sqlite.lines import READY_MAX
from mulligan.stores.sqlite.rows import numbers, read_text, salvage, to_json
from mulligan.stores.sqlite.taking import Taken, next_due_us, remember, take

_ASKS_MAX = 12  # in one statement; more are asked in several

_DUE = """
SELECT seq, run_at_us AS at_us, id FROM mulligan_jobs INDEXED BY mulligan_jobs_due
WHERE status = 'pending' AND ready = 0 AND grp IS NULL AND queue = ? AND lane = ? AND priority = ? AND run_at_us <= ?
ORDER BY run_at_us, id LIMIT ?
"""
_MARKED_BY_AGE = """
SELECT seq, created_at_us, id FROM mulligan_jobs INDEXED BY mulligan_jobs_fifo
WHERE status = 'pending' AND ready = 1 AND queue = ? AND priority = ? AND lane = ? AND run_at_us <= ?
"""
_OLDEST_OF_LANE = f"{_MARKED_BY_AGE} ORDER BY created_at_us, id LIMIT ?"
_OLDEST = f"{_MARKED_BY_AGE} UNION ALL {_MARKED_BY_AGE} ORDER BY created_at_us, id LIMIT ?"
_MARKED = """
SELECT seq, run_at_us AS at_us, id FROM mulligan_jobs INDEXED BY mulligan_jobs_fifo
WHERE status = 'pending' AND ready = 1 AND queue = ? AND lane = ? AND priority = ? AND run_at_us <= ? LIMIT ?
"""
_HAS_MARKED = """
EXISTS (SELECT 1 FROM mulligan_jobs INDEXED BY mulligan_jobs_fifo WHERE status = 'pending' AND ready = 1 AND queue = ? AND priority = ?)
"""
_HAS_GROUPS = """
EXISTS (SELECT 1 FROM mulligan_jobs INDEXED BY mulligan_jobs_groups WHERE grp IS NOT NULL AND status = 'pending' AND queue = ?)
"""
_MARK = f"UPDATE mulligan_jobs SET ready = 1 WHERE seq IN (SELECT seq FROM ({_DUE}))"
_UNMARK = """
UPDATE mulligan_jobs SET ready = 0 WHERE seq IN (
  SELECT seq FROM mulligan_jobs INDEXED BY mulligan_jobs_fifo
  WHERE status = 'pending' AND ready = 1 AND queue = ? AND priority = ? LIMIT ?)
"""
HELD = """
SELECT json_group_array(seq) FROM (
  SELECT seq FROM mulligan_jobs INDEXED BY mulligan_jobs_lease WHERE status = 'processing' AND claim_id = ? ORDER BY claim_place)
"""
# Marked jobs of a lane that does not exist, which no list has.
_OF_NO_LANE = f"""
SELECT json_group_array(j.seq) FROM {ROWS} AS a CROSS JOIN mulligan_jobs AS j INDEXED BY mulligan_jobs_fifo
WHERE j.status = 'pending' AND j.ready = 1 AND j.queue = a.column1 AND j.priority = a.column2 AND j.lane NOT IN ('fresh', 'retry')
"""

_names_decoder = msgspec.json.Decoder(set[str])


def claim(
    transaction: Transaction, stretches: Stretches, claim_id: str, owner: str, asks: Sequence[Ask], total: int, lease_us: int
) -> Taken:
    """Takes due jobs under a lease, or finds what an earlier claim of the same id still holds."""
    _mark(transaction, asks)
    is_limited = are_limited(asks)
    seen = _look(transaction, claim_id, asks, 0 if is_limited else total)
    if seen.is_known:
        [chosen] = transaction.row(HELD, (claim_id,))
        return _answer(transaction, asks, seen, chosen, len(numbers(chosen)), total)
    if is_limited or seen.grouped:
        found = Queues(seen.paused, seen.grouped, seen.marked)
        taken = CarefulClaim(transaction, asks, total, found, stretches).claim(claim_id, owner, lease_us)
        _unmark(transaction, seen.marked - _by_age(asks))
        return taken
    if seen.marked:
        seen = _look(transaction, claim_id, asks, total, with_marked=True)
        _unmark(transaction, seen.marked - _by_age(asks))
    picked = _pick(asks, seen, total)
    chosen = to_json(picked)
    if picked:
        take(transaction, claim_id, owner, lease_us, chosen)
        remember(transaction, claim_id)
    if len(picked) < total:
        _quarantine_lost(transaction, asks)
    return _answer(transaction, asks, seen, chosen, len(picked), total)


def _answer(transaction: Transaction, asks: Sequence[Ask], seen: _Seen, chosen: str, found: int, total: int) -> Taken:
    text = read_text(transaction, chosen) if found else "[]"
    due_us = next_due_us(transaction, asks, seen.paused, seen.grouped) if found < total else None
    return Taken(text, chosen, transaction.now_us, due_us, is_empty=not found)


def probe(transaction: Transaction, stretches: Stretches, claim_id: str, asks: Sequence[Ask], total: int) -> Taken | None:
    """The answer to a claim that is empty, found without writing; None if there may be something to take or to return."""
    plain = [msgspec.structs.replace(ask, order="run_at") for ask in asks]
    is_limited = are_limited(asks)
    seen = _look(transaction, claim_id, plain, 0 if is_limited else 1)
    if seen.is_known:
        return None
    if is_limited or seen.grouped:
        met = seen.marked - _by_age(asks)  # Marks that are to be taken off.
        return None if met else CarefulClaim(transaction, asks, total, Queues(seen.paused, seen.grouped, set()), stretches).probe()
    if seen.marked or _pick(plain, seen, 1):
        return None
    return _answer(transaction, asks, seen, "[]", 0, total)


def _by_age(asks: Sequence[Ask]) -> set[tuple[str, int]]:
    """Queues and priorities that are asked for in the order of creation. Where one is asked for in both orders, it keeps its marks."""
    return {(ask.queue, ask.priority) for ask in asks if ask.order == "created_at"}


class _Seen(NamedTuple):
    """What a claim finds before it takes anything."""

    is_known: bool  # the claim_id took jobs before
    paused: set[str]
    lines: list[list[int]]  # the candidates of each ask
    marked: set[tuple[str, int]]  # queues and priorities asked for in the order of run_at that hold marked jobs
    grouped: set[str]  # queues of the asks that hold pending jobs with a group


def _look(transaction: Transaction, claim_id: str, asks: Sequence[Ask], limit: int, *, with_marked: bool = False) -> _Seen:
    now_us = transaction.now_us
    is_known, paused, lines, marked, grouped = 0, "[]", list[list[int]](), set[tuple[str, int]](), set[str]()
    for at in range(0, len(asks), _ASKS_MAX):
        part = asks[at : at + _ASKS_MAX]
        params: list[Any] = [claim_id]
        for ask in part:
            params += _line_params(ask, now_us, limit, with_marked=with_marked)
        queues = {ask.queue for ask in part}
        params += queues
        shapes = tuple((ask.order, ask.lane is None) for ask in part)
        is_known, paused, *found, has_groups = transaction.row(_look_sql(shapes, len(queues), with_marked), params)
        lines += [numbers(line) for line in found[::2]]
        marked |= {(ask.queue, ask.priority) for ask, has_marked in zip(part, found[1::2], strict=True) if has_marked}
        if has_groups:
            grouped |= {queue for queue in queues if transaction.row(f"SELECT {_HAS_GROUPS}", (queue,))[0]}
    return _Seen(bool(is_known), _names_decoder.decode(paused), lines, marked, grouped)


@lru_cache(maxsize=256)
def _look_sql(shapes: tuple[tuple[str, bool], ...], queues: int, with_marked: bool) -> str:
    """One row: whether the claim_id is known, the paused queues, per ask its candidates and whether it meets marked jobs; at last,
    whether one of the queues has jobs with groups.
    """
    columns = ", ".join(
        f"(SELECT json_group_array(seq) FROM ({_line_sql(order, both_lanes, with_marked)})), {_HAS_MARKED if order == 'run_at' else '0'}"
        for order, both_lanes in shapes
    )
    return f"""
    SELECT EXISTS (SELECT 1 FROM mulligan_claims WHERE claim_id = ?),
      (SELECT json_group_array(queue) FROM mulligan_queues WHERE paused = 1), {columns}, {" OR ".join([_HAS_GROUPS] * queues)}
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
        lanes = LANES if ask.lane is None else (ask.lane,)
        return [*(value for lane in lanes for value in (ask.queue, ask.priority, lane, now_us)), limit]
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


def _quarantine_lost(transaction: Transaction, asks: Sequence[Ask]) -> None:
    """Finds damaged jobs among those that are still marked: few, where a claim has taken all it was given."""
    for chosen in transaction.texts(_OF_NO_LANE, 2, sorted(_by_age(asks))):
        if chosen != "[]":
            salvage(transaction, chosen)


def _unmark(transaction: Transaction, places: set[tuple[str, int]]) -> None:
    for queue, priority in sorted(places):
        transaction.run(_UNMARK, (queue, priority, READY_MAX))
