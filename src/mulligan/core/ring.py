"""How a claim goes round the groups of a line (a queue's lane and priority): what it looks at, and where it ends. Every store does the
same, at a cost that does not depend on how many tenants wait.

- If few jobs of the line are due, they are listed by their time, and nobody goes round.
- Otherwise the claim goes from group to group in their order, from behind the place where the last one ended round to it. Of one tenant
  it visits a share of the groups and then goes on to the next tenant, so that one with thousands of groups has a turn like everybody.
  Between two tenants it stops, when it has found enough or has visited enough.
- Of a tenant with more groups than its share it visits another stretch each time its turn has come (Stretches).
- If it meets many groups and few that are due, those that have the oldest due jobs are listed as well.
- If limits hold so much back that the claim is not full, it goes round once more, and further, and lists the groups of the newest due
  jobs as well; and it lists more jobs of those groups of which it could take all it had listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from threading import Lock
from typing import NamedTuple

from mulligan.core.choosing import Line, Turn
from mulligan.core.groups import SEPARATOR, behind, tenant_of
from mulligan.core.job import Lane

VISITS_MAX = 500  # groups of one line that one claim visits; those that are left of the last tenant's share come on top
SPARE_GROUPS = 50  # due groups that are listed beyond the number of jobs wanted, in case limits pass over some
NEWEST = 20  # due jobs, those that fell due last, whose groups are listed where many are held back: whoever comes anew may be free
TENANT_GROUPS = 4  # of each tenant, at least so many groups are visited if it has them
STRETCHES_MAX = 10_000  # tenants of which a process remembers where the last stretch ended
TOP = "\U0010ffff" * 200  # behind every group: a tenant's name is shorter

Place = tuple[str, Lane, int]  # a line: queue, lane, priority


class Bounds(NamedTuple):
    """When a round ends: with so many due groups of so many tenants, or so many visits. `share` is what it visits of one tenant; 0: it does
    not tell tenants apart, and may end anywhere."""

    groups: int
    tenants: int
    visits: int
    share: int


class Arc(NamedTuple):
    """A way along the groups: those behind `start` up to `high`, then those behind `low` up to `until`."""

    start: str
    high: str
    low: str
    until: str


class Visits(NamedTuple):
    """The groups on a way, in their order, and whether each has a due job."""

    groups: Sequence[tuple[str, bool]]
    is_cut: bool  # there were more


class Walk:
    """A way along groups, one by one: for stores that go it step by step."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._due = self._tenants = self._of_tenant = 0
        self._tenant: str | None = None
        self.groups: list[tuple[str, bool]] = []

    def turn_over(self) -> None:
        """The second part of the way begins."""
        self._tenant = None

    def ends_before(self, group: str) -> bool:
        """Whether this group is not visited any more."""
        if self._bounds.share and tenant_of(group) == self._tenant:
            return False
        is_enough = self._due >= self._bounds.groups and self._tenants >= self._bounds.tenants
        return is_enough or len(self.groups) >= self._bounds.visits

    def leaps_over(self, group: str) -> bool:
        """Whether this group is left out, because its tenant has had its share."""
        return self._of_tenant == self._bounds.share and tenant_of(group) == self._tenant

    def visit(self, group: str, is_due: bool) -> None:
        """Notes a group that was visited."""
        tenant = tenant_of(group)
        if tenant != self._tenant:
            self._tenant, self._of_tenant = tenant, 0
            self._tenants += 1
        self._of_tenant += 1
        self._due += is_due
        self.groups.append((group, is_due))


class Stretch(NamedTuple):
    """A part of one tenant's groups that is to be visited."""

    tenant: str
    arc: Arc
    bounds: Bounds


def heads_of(limit: int, groups: int) -> int:
    """How many jobs of each due group are listed for a claim of `limit`: enough for several rounds, and not the whole of it."""
    return max(1, min(limit, -(-4 * limit // max(1, groups))))


def bounds_of(limit: int, *, wide: bool = False) -> Bounds:
    """How far a claim of `limit` jobs goes round; `wide`: if it was not full."""
    groups = limit + SPARE_GROUPS
    share = max(TENANT_GROUPS, -(-groups // limit))
    if wide:
        return Bounds(VISITS_MAX, limit, VISITS_MAX, share)
    return Bounds(groups, limit, min(VISITS_MAX, max(2 * groups, share * limit)), share)


def whole_round(after: str) -> Arc:
    """From behind a text round to it."""
    return Arc(after, TOP, "", after)


def _arc_of(tenant: str, after: str | None) -> Arc:
    """Round the groups of one tenant, from behind one of them."""
    first = tenant + SEPARATOR
    return Arc(after or first, behind(tenant), first, after or first)


class Stretches:
    """Where, in the groups of tenants that have many, the last stretch ended. A store has one; it forgets the oldest if there are too many.

    What it does not know begins with the tenant's first group: so it is after a restart of the process.
    """

    def __init__(self) -> None:
        self._ends: dict[tuple[Place, str], str] = {}
        self._lock = Lock()  # a store may be used by several threads

    def end_of(self, place: Place, tenant: str) -> str | None:
        """The last group that was visited; None if that is not known."""
        return self._ends.get((place, tenant))

    def learn(self, rounds: Iterable[Iterable[Round]], turns: Iterable[Turn]) -> None:
        """After a claim: the rounds of each ask, and its turn. A tenant whose turn has come goes on with the next stretch."""
        ends = {
            (one.place, tenant): end
            for own, turn in zip(rounds, turns, strict=True)
            for one in own
            for tenant, end in one.ends.items()
            if turn.has_come(tenant)
        }
        if not ends:
            return
        with self._lock:
            for key, end in ends.items():
                self._ends.pop(key, None)
                self._ends[key] = end
            while len(self._ends) > STRETCHES_MAX:
                del self._ends[next(iter(self._ends))]


class Round:
    """One claim's way round one line: what it has found so far.

    A store tells it all groups with due jobs (`list_all`), or what it visited (`walk`, then `stretch` for each stretch that walk wants,
    then `list_also` with the groups of the oldest due jobs if the round is sparse, and of the newest if it is wide and cut). Then `due`
    are the groups to list.
    """

    def __init__(self, place: Place, bounds: Bounds) -> None:
        self.place = place
        self.bounds = bounds
        self.due: list[str] = []
        self.last: str | None = None  # where it stopped; None: it came round
        self.ends: dict[str, str] = {}  # of tenants that may have more groups than were visited: the last that was
        self.is_partial = False  # of a tenant there are more groups

    @property
    def is_cut(self) -> bool:
        """Whether there is more to look at."""
        return self.last is not None or self.is_partial

    @property
    def is_sparse(self) -> bool:
        """Whether it stopped with hardly anything that is due."""
        return self.last is not None and len(self.due) < self.bounds.tenants

    def list_all(self, groups: Iterable[str]) -> None:
        """These groups have everything that is due."""
        self.due = list(dict.fromkeys(groups))

    def walk(self, visits: Visits, known: Stretches) -> list[Stretch]:
        """What was found on the way round. Answers with the stretches to be visited besides; what they find stands for their tenants."""
        counts: dict[str, int] = {}
        for group, _ in visits.groups:
            tenant = tenant_of(group)
            counts[tenant] = counts.get(tenant, 0) + 1
            self.ends[tenant] = group
        large = [tenant for tenant, visited in counts.items() if visited >= self.bounds.share]
        self.ends = {tenant: self.ends[tenant] for tenant in large}
        self.due = [group for group, is_due in visits.groups if is_due]
        if visits.is_cut and visits.groups:
            self.last = visits.groups[-1][0]
            large = [tenant for tenant in large if known.end_of(self.place, tenant) is not None]
        if not large:
            return []
        bounds = Bounds(self.bounds.share, 0, self.bounds.share, 0)
        if self.last is None:  # what is left of the bounds is for them
            more_groups = max(0, self.bounds.groups - len(self.due)) // len(large)
            more_visits = max(0, self.bounds.visits - len(visits.groups)) // len(large)
            bounds = Bounds(self.bounds.share + more_groups, 0, self.bounds.share + more_visits, 0)
        return [Stretch(tenant, _arc_of(tenant, known.end_of(self.place, tenant)), bounds) for tenant in large]

    def stretch(self, tenant: str, visits: Visits) -> None:
        """What was found on a stretch of one tenant's groups."""
        self.due = [group for group in self.due if tenant_of(group) != tenant]
        self.due += [group for group, is_due in visits.groups if is_due]
        if visits.is_cut and visits.groups:
            self.ends[tenant] = visits.groups[-1][0]
            self.is_partial = True
        else:
            del self.ends[tenant]

    def marks(self) -> list[Line]:
        """A line without jobs that says where there is more to look at, if there is."""
        if self.last is not None:
            return [Line(self.place[1], self.last, [], is_cut=True)]
        return [Line(self.place[1], end, [], is_cut=True, is_within=True) for end in islice(self.ends.values(), int(self.is_partial))]

    def list_also(self, groups: Iterable[str]) -> None:
        """Groups from elsewhere, which have due jobs. Where the turn goes on does not depend on them."""
        self.due = list(dict.fromkeys((*self.due, *groups)))


def is_short(total: int, taken: int, rounds: Iterable[Round]) -> bool:
    """Whether a claim should go round once more, and further: it is not full, and there are groups it has not seen."""
    return taken < total and any(one.is_cut for one in rounds)
