"""Going round the groups of lines (core/ring), all places of a claim in few statements.

A group's text travels in hexadecimal: the order is the same, and one that was damaged does no harm to the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from mulligan.core.groups import SEPARATOR, is_group
from mulligan.core.job import Lane
from mulligan.core.ring import NEWEST, SPARE_GROUPS, TOP, Arc, Bounds, Place, Round, Stretches, Visits, bounds_of, whole_round
from mulligan.stores.sqlite.bulk import ROWS, Params
from mulligan.stores.sqlite.hop import Transaction

_WEED_MAX = 500

OF_PLACE = "grp IS NOT NULL AND status = 'pending' AND queue = a.column1 AND lane = a.column2 AND priority = a.column3"
# The rows: queue, lane, priority, now. The groups of the jobs that are due longest.
_OLDEST = f"""
SELECT json_group_array(json((
  SELECT json_group_array(hex(grp)) FROM (
    SELECT grp FROM mulligan_jobs INDEXED BY mulligan_jobs_grouped WHERE {OF_PLACE} AND run_at_us <= a.column4 ORDER BY run_at_us LIMIT ?)
))) FROM {ROWS} AS a WHERE a.column1 IS NOT NULL
"""
_NEWEST = _OLDEST.replace("ORDER BY run_at_us LIMIT", "ORDER BY run_at_us DESC LIMIT")
# The rows: queue, lane, priority, now, then an arc and bounds. From group to group by one step in the index, never along the jobs of a
# group. A row without a group stands between the two parts of the arc, and at its end. What a row counts are the groups before it, so the
# way ends with a row that is not visited any more: it says whether there would have been another. `n` is the number of its group among
# those of its tenant. (A group that was damaged may have no tenant; it is one by itself.)
_END = f"instr(ring.grp, '{SEPARATOR}')"
_TENANT = f"iif({_END}, substr(ring.grp, 1, {_END} - 1), ring.grp)"
_N = f"iif({_TENANT} IS ring.last, ring.of_last + 1, 1)"
_WALK = f"""
SELECT json_group_array(json((
  WITH RECURSIVE ring (grp, is_second, visited, due, tenants, last, of_last) AS (
    SELECT (
      SELECT grp FROM mulligan_jobs INDEXED BY mulligan_jobs_groups
      WHERE {OF_PLACE} AND grp > a.column5 AND grp <= a.column6 ORDER BY grp LIMIT 1), 0, 0, 0, 0, NULL, 0
    UNION ALL
    SELECT (
        SELECT j.grp FROM mulligan_jobs AS j INDEXED BY mulligan_jobs_groups WHERE {OF_PLACE}
          AND j.grp > CASE WHEN ring.grp IS NULL THEN a.column7
            WHEN {_N} = a.column12 THEN max(ring.grp, {_TENANT} || ' ') ELSE ring.grp END
          AND j.grp <= iif(ring.is_second OR ring.grp IS NULL, a.column8, a.column6) ORDER BY j.grp LIMIT 1),
      ring.is_second OR ring.grp IS NULL,
      ring.visited + (ring.grp IS NOT NULL),
      ring.due + EXISTS (
        SELECT 1 FROM mulligan_jobs AS j INDEXED BY mulligan_jobs_groups WHERE {OF_PLACE} AND j.grp = ring.grp AND run_at_us <= a.column4),
      ring.tenants + (ring.grp IS NOT NULL AND {_TENANT} IS NOT ring.last),
      {_TENANT},
      {_N}
    FROM ring WHERE iif(ring.grp IS NULL, NOT ring.is_second,
      NOT (({_TENANT} IS NOT ring.last OR a.column12 = 0)
        AND (ring.visited >= a.column11 OR (ring.due >= a.column9 AND ring.tenants >= a.column10)))))
  SELECT json_group_array(json_array(hex(grp), due)) FROM ring
))) FROM {ROWS} AS a WHERE a.column1 IS NOT NULL
"""
_OF_DAMAGED_GROUP = """
SELECT json_group_array(seq) FROM (
  SELECT seq FROM mulligan_jobs INDEXED BY mulligan_jobs_groups
  WHERE grp IS NOT NULL AND status = 'pending' AND queue = ? AND lane = ? AND priority = ? AND hex(grp) = ? LIMIT ?)
"""

_groups_decoder = msgspec.json.Decoder(list[list[str]])
_walks_decoder = msgspec.json.Decoder(list[list[tuple[str, int]]])


class Damaged(NamedTuple):
    """A group whose text is not one."""

    queue: str
    lane: Lane
    priority: int
    group: str  # in hexadecimal


class Way(NamedTuple):
    """What is to be visited in one place."""

    place: Place
    arc: Arc
    bounds: Bounds


class Rings:
    """The rounds of one claim."""

    def __init__(self, transaction: Transaction, stretches: Stretches) -> None:
        self._transaction = transaction
        self._stretches = stretches
        self.damaged: set[Damaged] = set()

    def go_round(self, places: Sequence[tuple[Place, str]], limit: int, *, wide: bool) -> list[Round]:
        """One round for each place, each from behind its text."""
        bounds = bounds_of(limit, wide=wide)
        rounds = [Round(place, bounds) for place, _ in places]
        most = limit + SPARE_GROUPS
        oldest = self._groups_of(_OLDEST, [place for place, _ in places], most + 1)
        far = [number for number, groups in enumerate(oldest) if len(groups) > most]
        for number, groups in enumerate(oldest):
            if len(groups) <= most:
                rounds[number].list_all(self._sound(rounds[number].place, groups))
        walks = self._walks([Way(rounds[number].place, whole_round(places[number][1]), bounds) for number in far])
        stretches = [
            (rounds[number], one) for number, walk in zip(far, walks, strict=True) for one in rounds[number].walk(walk, self._stretches)
        ]
        found = self._walks([Way(round_.place, one.arc, one.bounds) for round_, one in stretches])
        for (round_, one), visits in zip(stretches, found, strict=True):
            round_.stretch(one.tenant, visits)
        for number in far:
            if rounds[number].is_sparse:
                rounds[number].list_also(self._sound(rounds[number].place, oldest[number]))
        cut = [round_ for round_ in rounds if wide and round_.is_cut]
        for round_, groups in zip(cut, self._groups_of(_NEWEST, [round_.place for round_ in cut], NEWEST), strict=True):
            round_.list_also(self._sound(round_.place, groups))
        return rounds

    def _groups_of(self, template: str, places: Sequence[Place], most: int) -> list[list[str]]:
        """The groups, in hexadecimal, of the oldest or newest due jobs of each place."""
        rows: list[Params] = [(*place, self._transaction.now_us) for place in places]
        return [groups for text in self._transaction.texts(template, 4, rows, (most,)) for groups in _groups_decoder.decode(text)]

    def _walks(self, ways: Sequence[Way]) -> list[Visits]:
        rows: list[Params] = [(*way.place, self._transaction.now_us, *_texts_of(way.arc), *way.bounds) for way in ways]
        walks = [steps for text in self._transaction.texts(_WALK, 12, rows) for steps in _walks_decoder.decode(text)]
        return [self._visits_of(way.place, steps) for way, steps in zip(ways, walks, strict=True)]

    def _visits_of(self, place: Place, steps: Sequence[tuple[str, int]]) -> Visits:
        """What the rows of a walk say; empty text: no group."""
        visited: list[tuple[str, bool]] = []
        for (group, before), (_, after) in pairwise(steps):
            text = _group_of(group) if group else None
            if text is not None:
                visited.append((text, after > before))
            elif group and after > before:
                self.damaged.add(Damaged(*place, group))
        return Visits(visited, is_cut=bool(steps) and steps[-1][0] != "")

    def _sound(self, place: Place, groups: Iterable[str]) -> list[str]:
        """The groups, but for those that are none."""
        found: list[str] = []
        for group in dict.fromkeys(groups):
            text = _group_of(group)
            if text is None:
                self.damaged.add(Damaged(*place, group))
            else:
                found.append(text)
        return found


def of_damaged_group(transaction: Transaction, damaged: Damaged) -> str:
    """Pending jobs of a group whose text is not one, as a JSON list of seq; not all of them, if there are very many."""
    [chosen] = transaction.row(_OF_DAMAGED_GROUP, (*damaged, _WEED_MAX))
    return str(chosen)


def _texts_of(arc: Arc) -> Params:
    # A damaged text may stand behind all others; a blob stands behind every text.
    return [b"" if text == TOP else text for text in arc]


def _group_of(hexadecimal: str) -> str | None:
    try:
        text = bytes.fromhex(hexadecimal).decode()
    except UnicodeDecodeError:
        return None
    return text if is_group(text) else None
