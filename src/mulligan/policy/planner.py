"""LanePlanner: how a worker splits its free slots into asks, and in which order it starts what it got.

Fairness is kept by credits: a lane earns its share of every start and pays one for each start of its own, so the account carries what
a small batch cannot hold, and batches of one serve every lane. Accounts are whole numbers, so they never drift. They begin at
random values, so that restarts favour nobody. When a lane turns out to be empty, its account goes back into 0..1 starts: nobody
owes a lane that had nothing to start, or is owed by it.

Per queue, then lane, then priority level:
- queues share the total evenly; what does not divide goes round; a queue that could not use its share last time gets one slot to
  try again with, and the busy ones get the rest, so that little has to be lent between queues;
- Weighted gives the retry lane its share, the strict strategies give one lane everything and the other what is left over;
- inside a lane urgent comes first, but raised and normal jobs have a small share that is theirs.
The asks add up to the total. What an ask cannot use is lent to the others by the store (core/lending).
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random

from mulligan.core.contract import Ask
from mulligan.core.errors import BadSetting
from mulligan.core.job import LANES, PRIORITIES, Job, Lane
from mulligan.policy.lanes import Fifo, RetryFirst, Weighted
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


class QueuePlan:
    """One queue's accounts, and what follows from them."""

    def __init__(self, queue: Queue, rng: Random) -> None:
        self.name = queue.name
        self._strategy = queue.claim
        self._retries = Account(queue.claim.retry_share, rng) if isinstance(queue.claim, Weighted) else None
        lanes: tuple[Lane | None, ...] = (None,) if isinstance(queue.claim, Fifo) else LANES
        self._asked: dict[Lane | None, int] = dict.fromkeys(lanes, 0)
        self.busy = True  # it could use its share of the last claim
        self._levels = {lane: {level: Account(share, rng) for level, share in LEVEL_SHARES.items()} for lane in lanes}

    def asks(self, share: int) -> list[Ask]:
        """The queue's asks for its share of a claim, the lane that is due first."""
        if isinstance(self._strategy, Fifo):
            return self._lane_asks(None, share)
        if isinstance(self._strategy, RetryFirst):
            return [*self._lane_asks("retry", share), *self._lane_asks("fresh", 0)]
        if self._retries is None:
            return [*self._lane_asks("fresh", share), *self._lane_asks("retry", 0)]
        due = self._retries.due(share)
        fresh, retry = self._lane_asks("fresh", share - due), self._lane_asks("retry", due)
        # A slot that another queue lends goes to the first ask, so the lane whose turn it is stands there.
        return [*retry, *fresh] if self._retries.due(1) else [*fresh, *retry]

    def _lane_asks(self, lane: Lane | None, share: int) -> list[Ask]:
        """One ask per level, urgent first. The lower levels take their due, urgent has the rest."""
        left = self._asked[lane] = share
        guaranteed = {}
        for level, account in reversed(self._levels[lane].items()):
            guaranteed[level] = min(left, account.due(share))
            left -= guaranteed[level]
        return [
            Ask(
                queue=self.name,
                lane=lane,
                priority=level,
                guaranteed=guaranteed.get(level, left),
                order="created_at" if lane is None else "run_at",
            )
            for level in PRIORITIES
        ]

    def start_order(self, jobs: Sequence[Job]) -> list[Job]:
        """Claimed jobs of this queue in the order in which they shall start; notes these starts in the accounts."""
        lanes: dict[Lane | None, list[Job]] = {lane: [] for lane in self._levels}
        for job in jobs:
            lanes[None if None in lanes else job.lane].append(job)
        for lane, members in lanes.items():
            started = Counter(map(_PRIORITY, members))
            for level, account in self._levels[lane].items():
                account.started(len(members), started[level])
                account.forget()
        asked = sum(self._asked.values())
        if asked or jobs:  # a queue that had no share and got nothing has shown nothing
            self.busy = len(jobs) >= asked
        if self._retries is None:
            return list(jobs)
        line = _by_credit(self._retries, lanes["fresh"], lanes["retry"])
        if any(len(members) < self._asked[lane] for lane, members in lanes.items()):
            self._retries.forget()  # a lane that did not fill its own share has nothing left to start
        return line


class LanePlanner:
    """The split of free slots into asks over all queues of a worker. One planner per fetcher: it holds the fetcher's accounts."""

    def __init__(self, queues: Sequence[Queue], rng: Random) -> None:
        self._plans = {queue.name: QueuePlan(queue, rng) for queue in queues}
        if len(self._plans) < len(queues):
            raise BadSetting(f"a queue is listed twice: {', '.join(queue.name for queue in queues)}")
        self._turn = rng.randrange(len(queues)) if queues else 0

    def asks(self, total: int) -> list[Ask]:
        """The asks for `total` free slots; their guarantees add up to it."""
        if total <= 0 or not self._plans:
            return []
        plans = list(self._plans.values())
        plans = plans[self._turn :] + plans[: self._turn]
        # The next claim begins behind those that got one more; where it divides evenly, lending still has to go round.
        self._turn = (self._turn + max(total % len(plans), 1)) % len(plans)
        shares = _even(total, len(plans))
        busy = [place for place, plan in enumerate(plans) if plan.busy] or list(range(len(plans)))
        idle = [place for place in range(len(plans)) if place not in busy and shares[place] > 1]
        extra = _even(sum(shares[place] - 1 for place in idle), len(busy))
        for place in idle:
            shares[place] = 1
        for place, more in zip(busy, extra, strict=True):
            shares[place] += more
        return [ask for share, plan in zip(shares, plans, strict=True) for ask in plan.asks(share)]

    def interleave(self, jobs: Iterable[Job]) -> list[Job]:
        """The jobs of a claim in the order in which they shall start: queues in turn, and inside each its lanes by credit.

        Call it once per claim, with all its jobs: it is where the accounts learn what was started.
        """
        by_queue: dict[str, list[Job]] = {name: [] for name in self._plans}
        for job in jobs:
            by_queue.setdefault(job.queue, []).append(job)
        lines = [self._plans[name].start_order(line) if name in self._plans else line for name, line in by_queue.items()]
        if len(lines) == 1:
            return lines[0]
        return [line[place] for place in range(max(map(len, lines), default=0)) for line in lines if place < len(line)]


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
