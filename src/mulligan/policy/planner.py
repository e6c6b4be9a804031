"""LanePlanner: how a worker splits its free slots into asks, and in which order it starts what it got.

Fairness is kept by credits: a lane earns its share of every start and pays one for each start of its own, so the account carries what
a small batch cannot hold, and batches of one serve every lane. Accounts are whole numbers, so they never drift. They begin at
random values, so that restarts favour nobody. When a lane turns out to be empty, its account goes back into 0..1 starts: nobody
owes a lane that had nothing to start, or is owed by it. So with F claimers any n starts in a row that were claimed while both lanes waited
hold at least (1-r)n - F fresh jobs and rn - F retries.

Per queue, then lane, then priority level:
- queues share the total evenly; what does not divide goes round; a queue that could not use its share last time gets one slot to
  try again with, and the busy ones get the rest, so that little has to be lent between queues;
- Weighted gives the retry lane its share, the strict strategies give one lane everything and the other what is left over;
- inside a lane urgent comes first, but raised and normal jobs have a small share that is theirs, also of what the other lane leaves.
The asks add up to the total. What an ask cannot use is lent to the others by the store (core/lending).

Where limits of the fleet hold jobs back, the store shares out what they allow (core/choosing), and the accounts keep what a lane did not
get: it had something to start. Tenants take turns; where the next claim goes on, the last one's answer said, per lane and level.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from random import Random

from mulligan.core.contract import Ask, Claimed
from mulligan.core.errors import BadSetting
from mulligan.core.job import LANES, PRIORITIES, Job, Lane
from mulligan.core.limits import TOKEN, Limit, Slots
from mulligan.policy.lanes import Fifo, FreshFirst, RetryFirst, Separate, Weighted
from mulligan.policy.queues import Queue

START = 1_000_000_000  # one start, in the unit of the accounts
CARRIED_MAX = 20 * START  # what lent slots may put a lane ahead or behind before it is made up for
# The guaranteed share of a lane's starts for the levels below urgent, while all of them wait.
LEVEL_SHARES: dict[int, float] = {1: 0.2, 0: 0.1}
_PRIORITY = operator.attrgetter("priority")


class Account:
    """The credit of one claimant to a share of the starts."""

    __slots__ = ("balance", "share")

    def __init__(self, share: float, rng: Random) -> None:
        self.share = min(max(round(share * START), 1), START - 1)
        self.balance = rng.randrange(START)

    def due(self, starts: int) -> int:
        """How many of the next starts belong to it."""
        return min(max(0, (self.balance + self.share * starts) // START), starts)

    def started(self, starts: int, own: int) -> None:
        """Notes some starts, of which so many were its own."""
        self.balance = min(max(self.balance + self.share * starts - START * own, -CARRIED_MAX), CARRIED_MAX)

    def forget(self) -> None:
        """Drops what is more than one start, owned or owed."""
        self.balance = min(max(self.balance, 0), START)

    def pass_turns(self) -> None:
        """Drops whole starts, owned or owed: a turn that was not used is over, and the next one comes in its time."""
        self.balance %= START


class QueuePlan:
    """One queue's accounts, and what follows from them."""

    def __init__(self, queue: Queue, rng: Random) -> None:
        self.name = queue.name
        self.queue = queue
        self._retries = _retry_account(queue, rng)
        self._limits = queue.limits
        self.has_capped_lane = any(isinstance(limit, Slots) and limit.lane is not None for limit in self._limits)
        self._after: dict[tuple[Lane | None, int], str] = {}
        self.is_over_budget = False
        self._by_shares = isinstance(queue.claim, Weighted)  # whether the last asks kept the share of retries
        lanes: tuple[Lane | None, ...] = (None,) if isinstance(queue.claim, Fifo) else LANES
        self._asked: dict[Lane | None, int] = dict.fromkeys(lanes, 0)
        self.busy = True  # it could use its share of the last claim
        self._short: set[Lane | None] = set()  # lanes that did not fill their shares when they were last asked
        self._held_back = False  # because of a limit
        self._served: dict[Lane | None, int] = {}  # by lane: the level below urgent that had something last
        self._levels = {lane: {level: Account(share, rng) for level, share in LEVEL_SHARES.items()} for lane in lanes}

    def asks(self, share: int, shared: tuple[Limit, ...] = ()) -> list[Ask]:
        """The queue's asks for its share of a claim, the lane that is due first. `shared` are limits of more than this queue."""
        limits = self._limits + shared
        if isinstance(self.queue.claim, Fifo):
            return self._lane_asks(None, share, limits, of=share)
        self._by_shares = isinstance(self.queue.claim, Weighted) or self.is_over_budget
        if self._retries is not None and self._by_shares:
            due = self._retries.due(share)
            # The lane that is short keeps something where it is its turn: otherwise nobody would notice that it is not short any more.
            if self._held_back and self._short == {"retry"}:
                due = min(due, max(1, share - self._due_below("fresh", share)))
            elif self._held_back and self._short == {"fresh"}:
                due = max(due, min(share - 1, self._due_below("retry", share)))
            fresh = self._lane_asks("fresh", share - due, limits, of=share if "retry" in self._short else share - due)
            retry = self._lane_asks("retry", due, limits, of=share if "fresh" in self._short else due)
            # A slot that another queue lends goes to the first ask, so the lane whose turn it is stands there.
            return [*retry, *fresh] if self._retries.due(1) else [*fresh, *retry]
        first: Lane = "fresh" if isinstance(self.queue.claim, FreshFirst) else "retry"
        second: Lane = "retry" if first == "fresh" else "fresh"
        # Something is always left for the first lane, as above.
        left_over = min(self._due_below(second, share), max(0, share - 1)) if first in self._short else 0
        own = share - left_over
        return [*self._lane_asks(first, own, limits, of=own), *self._lane_asks(second, left_over, limits, of=share)]

    def _due_below(self, lane: Lane, share: int) -> int:
        """How much of such a share belongs to the levels below urgent. A lane that lives on what the other one leaves must be sure of that
        much: what is lent goes to urgent jobs first."""
        return min(share, sum(account.due(share) for account in self._levels[lane].values()))

    def _lane_asks(self, lane: Lane | None, share: int, limits: tuple[Limit, ...], *, of: int) -> list[Ask]:
        """One ask per level, urgent first. The lower levels take their due of all the lane is going to get (`of`), urgent has the rest.

        Where a limit lets only some start, or a single slot can only be lent, it is for those that stand first: a lower level whose turn
        it is.
        """
        left = self._asked[lane] = share
        guaranteed = {}
        accounts = self._levels[lane]
        for level in sorted(accounts, key=lambda level: (-accounts[level].balance, level == self._served.get(lane), level)):
            guaranteed[level] = min(left, accounts[level].due(of))
            left -= guaranteed[level]
        levels: Sequence[int] = PRIORITIES
        if (self._held_back and lane in self._short) or (share == 0 and of == 1):
            levels = sorted(PRIORITIES, key=lambda level: level not in accounts or not accounts[level].due(1))
        return [
            Ask(
                queue=self.name,
                lane=lane,
                priority=level,
                guaranteed=guaranteed.get(level, left),
                order="created_at" if lane is None else "run_at",
                limits=limits,
                after=self._after.get((lane, level), ""),
            )
            for level in levels
        ]

    def look_at(self, levels: Mapping[str, int]) -> None:
        """Falls back to shares while the queue's retry budget is spent, if that is its owner's choice."""
        budget = self.queue.budget
        if budget is not None and budget.over == "weighted":
            self.is_over_budget = levels.get(f"budget:queue:{self.name}", TOKEN if not self.is_over_budget else 0) < TOKEN

    def learn(self, ask: Ask, after: str) -> None:
        """Where the turns of an ask go on."""
        self._after[ask.lane, ask.priority] = after

    def start_order(self, jobs: Sequence[Job], *, held_back: bool = False) -> list[Job]:
        """Claimed jobs of this queue in the order in which they shall start; notes these starts in the accounts."""
        lanes: dict[Lane | None, list[Job]] = {lane: [] for lane in self._levels}
        for job in jobs:
            lanes[None if None in lanes else job.lane].append(job)
        for lane, members in lanes.items():
            started = Counter(map(_PRIORITY, members))
            for level, account in self._levels[lane].items():
                account.started(len(members), started[level])
                account.forget()
                if started[level]:
                    self._served[lane] = level
            if self._asked[lane]:
                (self._short.add if len(members) < self._asked[lane] else self._short.discard)(lane)
        self._held_back = held_back
        asked = sum(self._asked.values())
        if asked or jobs:  # a queue that had no share and got nothing has shown nothing
            self.busy = len(jobs) >= asked
        if self._retries is None or not self._by_shares:
            return list(jobs)
        line = _by_credit(self._retries, lanes["fresh"], lanes["retry"])
        if not held_back and any(len(members) < self._asked[lane] for lane, members in lanes.items()):
            self._retries.pass_turns()  # a lane that did not fill its own share has nothing left to start
        return line


class LanePlanner:
    """The split of free slots into asks over all queues of a worker. One planner per fetcher: it holds the fetcher's accounts.

    `shared` gives the limits of the moment that are not a queue's own: those of tasks and of what they depend on.
    """

    def __init__(self, queues: Sequence[Queue], rng: Random, shared: Callable[[], tuple[Limit, ...]] = tuple) -> None:
        self._rng = rng
        self._shared = shared
        self._plans = {queue.name: QueuePlan(queue, rng) for queue in queues}
        if len(self._plans) < len(queues):
            raise BadSetting(f"a queue is listed twice: {', '.join(queue.name for queue in queues)}")
        self._turn = self._lent_turn = rng.randrange(len(queues)) if queues else 0

    def change(self, queue: Queue) -> None:
        """Serves a queue by other settings from now on."""
        if self._plans[queue.name].queue != queue:
            self._plans[queue.name] = QueuePlan(queue, self._rng)

    @property
    def has_capped_lane(self) -> bool:
        """Whether a lane of one of its queues has a number of slots that it must not exceed."""
        return any(plan.has_capped_lane for plan in self._plans.values())

    def asks(self, total: int) -> list[Ask]:
        """The asks for `total` free slots; their guarantees add up to it."""
        if total <= 0 or not self._plans:
            return []
        plans = list(self._plans.values())
        # The next claim begins behind those that got one more; where it divides evenly, only lending has to go round.
        over = total % len(plans)
        begin = self._turn if over else self._lent_turn
        plans = plans[begin:] + plans[:begin]
        self._turn = (self._turn + over) % len(plans)
        self._lent_turn = (self._lent_turn + 1) % len(plans)
        shares = _even(total, len(plans))
        busy = [place for place, plan in enumerate(plans) if plan.busy] or list(range(len(plans)))
        idle = [place for place in range(len(plans)) if place not in busy and shares[place] > 1]
        extra = _even(sum(shares[place] - 1 for place in idle), len(busy))
        for place in idle:
            shares[place] = 1
        for place, more in zip(busy, extra, strict=True):
            shares[place] += more
        shared = self._shared()
        return [ask for share, plan in zip(shares, plans, strict=True) for ask in plan.asks(share, shared)]

    def learn(self, asks: Sequence[Ask], claimed: Claimed) -> None:
        """Takes in what a claim's answer tells beyond its jobs."""
        for ask, after in zip(asks, claimed.turns, strict=False):
            self._plans[ask.queue].learn(ask, after)
        for plan in self._plans.values():
            plan.look_at(claimed.levels)

    def interleave(self, jobs: Iterable[Job], held_back: Container[str] = ()) -> list[Job]:
        """The jobs of a claim in the order in which they shall start: queues in turn, and inside each its lanes by credit.

        Call it once per claim, with all its jobs: it is where the accounts learn what was started. `held_back` names the queues where
        a limit stood in the way, so that a lane with few jobs need not have been empty.
        """
        by_queue: dict[str, list[Job]] = {name: [] for name in self._plans}
        for job in jobs:
            by_queue.setdefault(job.queue, []).append(job)
        lines = [
            self._plans[name].start_order(line, held_back=name in held_back) if name in self._plans else line
            for name, line in by_queue.items()
        ]
        if len(lines) == 1:
            return lines[0]
        return [line[place] for place in range(max(map(len, lines), default=0)) for line in lines if place < len(line)]


def _retry_account(queue: Queue, rng: Random) -> Account | None:
    """The account of the retry lane, where its share is ever kept."""
    if isinstance(queue.claim, Weighted):
        return Account(queue.claim.retry_share, rng)
    if queue.budget is not None and queue.budget.over == "weighted" and isinstance(queue.claim, (RetryFirst, Separate)):
        return Account(Weighted().retry_share, rng)  # those that serve retries first fall back to it
    return None


def _even(total: int, parts: int) -> list[int]:
    """The total in parts that differ by one at most, the larger ones first."""
    each, over = divmod(total, parts)
    return [each + (place < over) for place in range(parts)]


def _by_credit(account: Account, fresh: list[Job], retry: list[Job]) -> list[Job]:
    """Both lanes as one line, in which a retry stands wherever the account has come to a whole start."""
    line: list[Job] = []
    next_fresh = next_retry = 0
    while next_fresh < len(fresh) and next_retry < len(retry):
        if account.due(1):
            line.append(retry[next_retry])
            next_retry += 1
            account.started(1, 1)
        else:
            line.append(fresh[next_fresh])
            next_fresh += 1
            account.started(1, 0)
    rest_fresh, rest_retry = fresh[next_fresh:], retry[next_retry:]
    account.started(len(rest_fresh) + len(rest_retry), len(rest_retry))
    return [*line, *rest_fresh, *rest_retry]
