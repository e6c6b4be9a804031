"""The lines that a careful claim may draw from (core/choosing), all asks in few statements.

A job's id travels in hexadecimal: the order is the same, and one that was damaged does no harm to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from mulligan.core.choosing import Line, Waiting
from mulligan.core.contract import Ask
from mulligan.core.job import LANES, Lane
from mulligan.core.ring import Place, Round, Stretches, heads_of
from mulligan.stores.sqlite.bulk import ROWS, Params
from mulligan.stores.sqlite.hop import Transaction
from mulligan.stores.sqlite.ring import OF_PLACE, Damaged, Rings

READY_MAX = 5_000  # due jobs that one line is sorted from, where no index has the order

# The rows: lane, priority, now, then the queue once for each source, NULL where the source is not asked.
_PLAIN_LINES = f"""
SELECT json_group_array(json((
  SELECT json_group_array(json_array(at_us, hex(id), seq)) FROM (
    SELECT * FROM (
      SELECT seq, run_at_us AS at_us, id FROM mulligan_jobs INDEXED BY mulligan_jobs_due
      WHERE status = 'pending' AND ready = 0 AND grp IS NULL
        AND queue = a.column4 AND lane = a.column1 AND priority = a.column2 AND run_at_us <= a.column3
      ORDER BY run_at_us, id LIMIT ?)
    UNION ALL SELECT * FROM (
      SELECT seq, run_at_us AS at_us, id FROM mulligan_jobs INDEXED BY mulligan_jobs_fifo
      WHERE status = 'pending' AND ready = 1 AND queue = a.column5 AND lane = a.column1 AND priority = a.column2
        AND run_at_us <= a.column3 LIMIT ?)
    UNION ALL SELECT * FROM (
      SELECT seq, created_at_us AS at_us, id FROM mulligan_jobs INDEXED BY mulligan_jobs_fifo
      WHERE status = 'pending' AND ready = 1 AND queue = a.column6 AND lane = a.column1 AND priority = a.column2
        AND run_at_us <= a.column3
      ORDER BY created_at_us, id LIMIT ?)
    ORDER BY at_us, id LIMIT ?)
))) FROM {ROWS} AS a WHERE a.column1 IS NOT NULL
"""

# The rows: queue, lane, priority, now, group.
_OF_GROUP = f"INDEXED BY mulligan_jobs_groups WHERE {OF_PLACE} AND grp = a.column5 AND run_at_us <= a.column4 ORDER BY run_at_us, id"
_HEADS = f"""
SELECT json_group_array(json((
  SELECT json_group_array(json_array(run_at_us, hex(id), seq)) FROM (SELECT run_at_us, id, seq FROM mulligan_jobs {_OF_GROUP} LIMIT ?)
))) FROM {ROWS} AS a WHERE a.column1 IS NOT NULL
"""
_HEADS_BY_AGE = f"""
SELECT json_group_array(json((
  SELECT json_group_array(json_array(created_at_us, hex(id), seq)) FROM (
    SELECT * FROM (SELECT created_at_us, id, seq FROM mulligan_jobs {_OF_GROUP} LIMIT ?) ORDER BY created_at_us, id LIMIT ?)
))) FROM {ROWS} AS a WHERE a.column1 IS NOT NULL
"""
_lines_decoder = msgspec.json.Decoder(list[list[Waiting]])


class Listing(NamedTuple):
    """What a claim may draw from: the lines of each ask, how their groups were gone round, and what could not be listed."""

    lines: list[list[Line]]
    rounds: list[list[Round]]
    damaged: set[Damaged]


class _Place(NamedTuple):
    """One lane of an ask."""

    ask: int
    queue: str
    lane: Lane
    priority: int
    after: str
    is_by_age: bool
    is_grouped: bool
    has_marked: bool  # asked for in the order of run_at, and yet there are jobs marked for the order of creation


def list_lines(
    transaction: Transaction,
    asks: Sequence[Ask],
    paused: set[str],
    grouped: set[str],
    marked: set[tuple[str, int]],
    limit: int,
    stretches: Stretches,
    *,
    wide: bool = False,
) -> Listing:
    """The lines of each ask: of each lane the jobs without a group, then its groups in their turn. Due jobs must be marked already.

    `grouped` names the queues that have jobs with groups, `marked` queues and priorities with marked jobs.
    """
    places = [
        _Place(
            number,
            ask.queue,
            lane,
            ask.priority,
            ask.after,
            ask.order == "created_at",
            ask.queue in grouped,
            (ask.queue, ask.priority) in marked,
        )
        for number, ask in enumerate(asks)
        if ask.queue not in paused
        for lane in (LANES if ask.lane is None else (ask.lane,))
    ]
    listing = Listing([[] for _ in asks], [[] for _ in asks], set())
    with_groups = [place for place in places if place.is_grouped]
    rings = Rings(transaction, stretches)
    found = rings.go_round([((place.queue, place.lane, place.priority), place.after) for place in with_groups], limit, wide=wide)
    rounds = dict(zip(with_groups, found, strict=True))
    for place, jobs in zip(places, _plain_lines(transaction, places, limit), strict=True):
        listing.lines[place.ask].append(Line(place.lane, None, jobs))
        if place in rounds:
            round_ = rounds[place]
            heads = heads_of(limit, len(round_.due))
            listing.rounds[place.ask].append(round_)
            listing.lines[place.ask] += _heads(transaction, round_.place, round_.due, heads, is_by_age=place.is_by_age)
            listing.lines[place.ask] += round_.marks()
    listing.damaged.update(rings.damaged)
    return listing


def longer_lines(
    transaction: Transaction, asks: Sequence[Ask], wanted: Sequence[tuple[int, Lane, str]], limit: int
) -> dict[tuple[int, Lane, str], Line]:
    """More jobs of some groups, given by ask, lane and group."""
    found: dict[tuple[int, Lane, str], Line] = {}
    for number, lane in sorted({(number, lane) for number, lane, _ in wanted}):
        ask = asks[number]
        groups = [group for *place, group in wanted if place == [number, lane]]
        place = (ask.queue, lane, ask.priority)
        for line in _heads(transaction, place, groups, limit, is_by_age=ask.order == "created_at"):
            found[number, lane, str(line.group)] = line
    return found


def unmarked_lines(transaction: Transaction, asks: Sequence[Ask], paused: set[str]) -> list[list[Line]]:
    """For a look that may not mark: one due job of each lane that is asked for in the order of creation and is not marked yet."""
    lines: list[list[Line]] = [[] for _ in asks]
    places = [
        (number, ask, lane)
        for number, ask in enumerate(asks)
        if ask.order == "created_at" and ask.queue not in paused
        for lane in (LANES if ask.lane is None else (ask.lane,))
    ]
    rows = [(lane, ask.priority, transaction.now_us, ask.queue, None, None) for _, ask, lane in places]
    for (number, _, lane), jobs in zip(places, _decoded(transaction, _PLAIN_LINES, rows, (1, 0, 0, 1)), strict=True):
        lines[number].append(Line(lane, None, jobs))
    return lines


def _plain_lines(transaction: Transaction, places: Sequence[_Place], limit: int) -> list[list[Waiting]]:
    """The first due jobs without a group of each place."""
    rows: list[Params] = []
    for place in places:
        by_time = None if place.is_by_age else place.queue
        by_age = place.queue if place.is_by_age else None
        rows.append((place.lane, place.priority, transaction.now_us, by_time, by_time if place.has_marked else None, by_age))
    return _decoded(transaction, _PLAIN_LINES, rows, (limit, READY_MAX, limit, limit))


def _heads(transaction: Transaction, place: Place, groups: Sequence[str], heads: int, *, is_by_age: bool) -> list[Line]:
    """The lines of some groups of a place, each with its first jobs."""
    rows: list[Params] = [(*place, transaction.now_us, group) for group in groups]
    if is_by_age:
        # No index has the age of what is due in a group. A bounded number of jobs is sorted, over all groups.
        jobs = _decoded(transaction, _HEADS_BY_AGE, rows, (max(heads, READY_MAX // max(1, len(rows))), heads))
    else:
        jobs = _decoded(transaction, _HEADS, rows, (heads,))
    return [Line(place[1], group, own, is_cut=len(own) == heads) for group, own in zip(groups, jobs, strict=True)]


def _decoded(transaction: Transaction, template: str, rows: Sequence[Params], before: Params) -> list[list[Waiting]]:
    columns = len(rows[0]) if rows else 0
    return [line for text in transaction.texts(template, columns, rows, before) for line in _lines_decoder.decode(text)]
