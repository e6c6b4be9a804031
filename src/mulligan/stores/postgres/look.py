"""What a careful claim may draw from: the lines of its asks, as the server lists them (functions_careful.py, functions_rounds.py)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from mulligan.core.choosing import Line, Waiting
from mulligan.core.contract import Ask
from mulligan.core.groups import is_group, tenant_of
from mulligan.core.job import Lane
from mulligan.core.limits import Limit, matters_without_group
from mulligan.core.ring import NEWEST, SPARE_GROUPS, TOP, Bounds, Round, Stretch, Stretches, Visits, bounds_of
from mulligan.stores.postgres.claim import READY_MAX, Wish
from mulligan.stores.postgres.database import Transaction

LIST_LINES = """
SELECT kind, ask, lane, job_group, place_us, id
FROM {s}.list_lines($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)
"""
LIST_STRETCHES = """
SELECT place, kind, job_group, place_us, id FROM {s}.list_stretches($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
"""
LIST_LONGER = "SELECT place, place_us, id FROM {s}.list_longer($1, $2, $3, $4, $5, $6, $7, $8, $9)"


class Listing(NamedTuple):
    """What waits, at one moment."""

    now_us: int
    is_repeat: bool
    next_due_us: int | None
    grouped: set[str]
    lines: list[list[Line]]  # of each ask
    rounds: list[list[Round]]  # of each ask
    damaged: list[str]  # jobs whose group cannot be read


class _Found:
    """The rows of one way along groups."""

    def __init__(self, rows: Iterable[tuple[str, str | None, int, str | None]]) -> None:
        self.seen: list[tuple[str, bool]] = []
        self.jobs: dict[str, list[Waiting]] = {}
        self.heads = 1
        self.is_cut = False
        self.damaged: list[str] = []
        for kind, group, place_us, job_id in rows:
            if kind == "cut":
                self.is_cut = True
            elif kind == "heads":
                self.heads = place_us
            elif group is None or not is_group(group):
                self.damaged += [] if job_id is None else [job_id]
            elif kind == "seen":
                self.seen.append((group, bool(place_us)))
            elif job_id is not None:
                self.jobs.setdefault(group, []).append(Waiting(place_us, job_id))

    @property
    def visits(self) -> Visits:
        return Visits(self.seen, self.is_cut)

    def lines(self, lane: Lane) -> list[Line]:
        return [Line(lane, group, jobs, is_cut=len(jobs) == self.heads) for group, jobs in self.jobs.items()]


class Look:
    """One claim's looks, inside its transaction. The first one locks the limits and takes the time."""

    def __init__(self, transaction: Transaction, wish: Wish, stretches: Stretches, locks: dict[str, bool]) -> None:
        self._transaction = transaction
        self._wish = wish
        self._stretches = stretches
        self._locks = locks

    async def lines(self, given_us: int | None, passed: list[str], *, first: bool = False, wide: bool = False) -> Listing:
        """What waits. A further look of the same claim brings its time along, and leaves out what it could not have (`passed`)."""
        asks, total = self._wish.asks, self._wish.total
        bounds = bounds_of(total, wide=wide)
        locks = self._locks if first else {}
        rows = await self._transaction.rows(
            LIST_LINES,
            given_us,
            self._wish.claim_id if first else None,
            list(locks),
            list(locks.values()),
            [ask.queue for ask in asks],
            [ask.lane for ask in asks],
            [ask.priority for ask in asks],
            [ask.order == "created_at" for ask in asks],
            [ask.order == "created_at" and not _tells_lanes_apart(ask) for ask in asks],
            [ask.after for ask in asks],
            TOP,
            total,
            total + SPARE_GROUPS,
            NEWEST if wide else 0,
            *bounds,
            READY_MAX,
            passed,
        )
        facts = {row[0]: row[4] for row in rows if row[0] in ("now", "due", "repeat")}
        listing = Listing(
            now_us=facts["now"],
            is_repeat="repeat" in facts,
            next_due_us=facts["due"],
            grouped={row[3] for row in rows if row[0] == "grouped"},
            lines=[[] for _ in asks],
            rounds=[[] for _ in asks],
            damaged=[],
        )
        await self._go_round(listing, rows, bounds, passed)
        return listing

    async def longer(self, wanted: Sequence[tuple[int, Lane, str]], now_us: int, passed: list[str]) -> dict[tuple[int, Lane, str], Line]:
        """More jobs of some groups, given by ask, lane and group."""
        asks, total = self._wish.asks, self._wish.total
        rows = await self._transaction.rows(
            LIST_LONGER,
            now_us,
            *_columns([_place_of(asks[number], lane) for number, lane, _ in wanted], 4),
            [group for *_, group in wanted],
            total,
            READY_MAX,
            passed,
        )
        jobs: list[list[Waiting]] = [[] for _ in wanted]
        for place, place_us, job_id in rows:
            jobs[place - 1].append(Waiting(place_us, job_id))
        return {one: Line(one[1], one[2], own, is_cut=len(own) == total) for one, own in zip(wanted, jobs, strict=True)}

    async def _go_round(self, listing: Listing, rows: Sequence[Any], bounds: Bounds, passed: list[str]) -> None:
        """Makes lines of the rows, and visits the stretches they call for."""
        by_place: dict[tuple[int, Lane], list[Any]] = {}
        plain: dict[tuple[int, Lane], list[Waiting]] = {}
        for kind, ask, lane, group, place_us, job_id in rows:
            if kind == "job" and group is None:
                plain.setdefault((ask - 1, lane), []).append(Waiting(place_us, job_id))
            elif kind in ("seen", "cut", "heads", "job"):
                by_place.setdefault((ask - 1, lane), []).append((kind, group, place_us, job_id))
        for (number, lane), jobs in plain.items():
            listing.lines[number].append(Line(lane, None, jobs))
        stretches: list[tuple[int, Lane, Round, Stretch]] = []
        visited: set[tuple[int, Lane, str | None]] = set()
        for (number, lane), own in by_place.items():
            ask, found = self._wish.asks[number], _Found(own)
            round_ = Round((ask.queue, lane, ask.priority), bounds)
            if found.seen:
                stretches += [(number, lane, round_, one) for one in round_.walk(found.visits, self._stretches)]
                visited |= {(number, lane, group) for group, _ in found.seen}
                round_.list_also(found.jobs)
            else:
                round_.list_all(found.jobs)
            listing.rounds[number].append(round_)
            listing.lines[number] += found.lines(lane)
            listing.damaged.extend(found.damaged)
        if stretches:
            await self._visit(listing, stretches, visited, passed)
        for number, rounds in enumerate(listing.rounds):
            listing.lines[number] += [mark for round_ in rounds for mark in round_.marks()]

    async def _visit(
        self,
        listing: Listing,
        stretches: Sequence[tuple[int, Lane, Round, Stretch]],
        visited: set[tuple[int, Lane, str | None]],
        passed: list[str],
    ) -> None:
        """Lists stretches, in the place of what was visited of their tenants."""
        rows = await self._transaction.rows(
            LIST_STRETCHES,
            listing.now_us,
            *_columns([_place_of(self._wish.asks[number], lane) for number, lane, *_ in stretches], 4),
            *_columns([one.arc[:3] for *_, one in stretches], 3),
            [one.bounds.groups for *_, one in stretches],
            [one.bounds.visits for *_, one in stretches],
            self._wish.total,
            READY_MAX,
            passed,
        )
        for place, (number, lane, round_, one) in enumerate(stretches, start=1):
            found = _Found(row[1:] for row in rows if row[0] == place)
            round_.stretch(one.tenant, found.visits)
            new = found.lines(lane)
            gone = {line.group for line in new} | {
                group for *place, group in visited if place == [number, lane] and _is_of(group, one.tenant)
            }
            others = [line for line in listing.lines[number] if line.group is None or line.lane != lane or line.group not in gone]
            listing.lines[number][:] = [*others, *new]
            listing.damaged.extend(found.damaged)


def _is_of(group: str | None, tenant: str) -> bool:
    return group is not None and tenant_of(group) == tenant


def _place_of(ask: Ask, lane: Lane) -> tuple[str, Lane, int, bool]:
    return (ask.queue, lane, ask.priority, ask.order == "created_at")


def _columns(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    return [[row[place] for row in rows] for place in range(width)]


def _tells_lanes_apart(ask: Ask) -> bool:
    """Whether a limit admits jobs without a group of one lane and not of the other: then the first jobs of each lane must be listed."""
    return ask.lane is None and any(limit.lane is not None and _is_for_all(limit) for limit in ask.limits)


def _is_for_all(limit: Limit) -> bool:
    return matters_without_group((limit,))
