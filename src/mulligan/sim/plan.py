"""Plan: everything a world is made from, drawn from its seed: settings, policies, jobs, and how often each fault strikes."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from mulligan.core.clock import SECOND_US
from mulligan.core.groups import group_of
from mulligan.core.ids import new_id
from mulligan.core.job import NewJob
from mulligan.policy.backoff import Exponential
from mulligan.policy.budget import Rate, RetryBudget
from mulligan.policy.lanes import Fifo, FreshFirst, RetryFirst, Separate, Strategy, Weighted
from mulligan.policy.queues import Queue
from mulligan.policy.retry import RetryPolicy, freeze
from mulligan.sim.account import Numbers

TASK = "work"
JOBS = 40
# What can be switched off, one by one, when a failing seed is shrunk.
FAULTS = (
    "refused", "lost", "delayed", "duplicated", "replayed", "outage", "deaf", "crash", "pause", "restart", "step",
    "cancel", "requeue", "hold", "configure", "schedule", "prune", "sweep", "poison", "block", "clock",
)  # fmt: skip
FAIR = "fair"  # a queue for the probe of fairness
TEMPERS = ("good", "flaky", "hopeless", "sleepy", "slow", "stubborn", "odd", "poison", "block")


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """What can be asked of a world, and made smaller."""

    seed: int
    jobs: int = JOBS
    span_s: float = 12.0  # how long faults strike
    faults: frozenset[str] = frozenset(FAULTS)


class PlannedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job and when it comes."""

    at_s: float
    temper: str
    queue: str
    policy: int
    priority: int
    delay_s: float
    timeout_s: float | None
    max_age_s: float | None
    unique_key: str | None
    concurrency_key: str | None
    fair_key: str | None


class Plan:
    """The world of one seed."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        rng = Random(f"world {setup.seed}")
        self.lease_s = rng.choice((1.0, 2.0, 3.0))
        self.poll_s = rng.choice((0.5, 1.0))
        self.sweep_s = rng.choice((0.3, 1.0))
        self.grace_s = rng.choice((0.0, 0.5, 3.0))
        self.concurrency = rng.choice((1, 2, 4, 8))
        self.workers = rng.choice((2, 3, 4))
        self.batch = rng.choice((1, 3, 500))
        self.buffer = rng.choice((1, 2, 5_000))
        self.policies = [_numbers(rng) for _ in range(4)]
        self.queues = _queues(rng)
        self.names = list(self.queues)
        weight = rng.choice((0.3, 1.0, 1.0, 2.0))
        self.rates = {fault: weight * rng.choice((0.0, 0.02, 0.05)) for fault in ("refused", "lost", "delayed", "duplicated", "replayed")}
        self.rates = {fault: rate if fault in setup.faults else 0.0 for fault, rate in self.rates.items()}
        self.delay_max_s = rng.choice((0.1, 0.5, 2.0, 5.0))
        self.moves = _moves(rng, setup)
        self.hints_lost = "deaf" in setup.faults and rng.random() < 0.2
        self.has_groups = rng.random() < 0.5  # claims that know of no groups are another path, and a shorter one
        jobs = Random(f"jobs {setup.seed}")
        self.jobs = sorted((self._job(jobs) for _ in range(setup.jobs)), key=lambda job: job.at_s)

    def _job(self, rng: Random) -> PlannedJob:
        weights = (8, 8, 2, 3, 2, 1, 2, 1 if "poison" in self.setup.faults else 0, 1 if "block" in self.setup.faults else 0)
        return PlannedJob(
            at_s=rng.random() ** 2 * self.setup.span_s * 0.9,
            temper=rng.choices(TEMPERS, weights)[0],
            queue=rng.choice(self.names),
            policy=rng.randrange(len(self.policies)),
            priority=rng.choice((0, 0, 0, 1, 2)),
            delay_s=rng.choice((0.0, 0.0, 0.0, rng.random() * 3.0)),
            timeout_s=rng.choice((None, None, 0.3, 1.0)),
            max_age_s=rng.choice((None, None, None, None, 6.0)),
            unique_key=rng.choice((None, None, None, "u1", "u2")),
            concurrency_key=rng.choice((None, None, None, "k1", "k2") if self.has_groups else (None,)),
            fair_key=rng.choice((None, None, None, "t1", "t2") if self.has_groups else (None,)),
        )

    def new_job(self, planned: PlannedJob, number: int, now_us: int) -> NewJob:
        """The job as it is enqueued."""
        numbers = self.policies[planned.policy]
        return NewJob(
            id=new_id(now_us),
            queue=planned.queue,
            task=TASK,
            payload=f'{{"args":[{number},"{planned.temper}"],"kwargs":{{}}}}',
            policy=numbers.text,
            max_retries=numbers.max_retries,
            priority=planned.priority,
            delay_us=round(planned.delay_s * SECOND_US),
            timeout_us=None if planned.timeout_s is None else round(planned.timeout_s * SECOND_US),
            max_age_us=None if planned.max_age_s is None else round(planned.max_age_s * SECOND_US),
            unique_key=planned.unique_key,
            concurrency_key=planned.concurrency_key,
            fair_key=planned.fair_key,
            group=group_of(planned.fair_key, None, None, planned.concurrency_key),
        )


def _numbers(rng: Random) -> Numbers:
    base_s, factor = rng.choice((0.05, 0.2, 0.5)), rng.choice((1.0, 2.0, 3.0))
    cap_s, jitter = rng.choice((0.5, 2.0, 4.0)), rng.choice(("none", "full", "full", "equal"))
    given: dict[str, Any] = {
        "max_retries": rng.choice((0, 1, 2, 3, 5)),
        "max_crashes": rng.choice((1, 2, 3, 3, 4)),
        "max_snoozes": rng.choice((0, 1, 2, 5)),
    }
    policy = RetryPolicy(
        backoff=Exponential(base=base_s, factor=factor, cap=max(cap_s, base_s)), jitter=jitter, max_retry_after=3.0, max_age=None, **given
    )
    return Numbers(text=freeze(policy), base_s=base_s, factor=factor, cap_s=max(cap_s, base_s), jitter=jitter, retry_after_s=3.0, **given)


def _queues(rng: Random) -> dict[str, Queue]:
    strategies: tuple[Strategy, ...] = (Weighted(), Weighted(0.5), Fifo(), FreshFirst(), RetryFirst(), Separate(2))
    found = {}
    for name in ("one", "two", "three")[: rng.choice((1, 2, 3))]:
        found[name] = Queue(
            name,
            claim=rng.choice(strategies),
            concurrency=rng.choice((None, None, 1, 3)),
            max_inflight_retries=rng.choice((None, None, 1, 2)),
            key_concurrency=rng.choice((1, 1, 2)),
            rate=rng.choice((None, None, None, Rate(per_s=10.0, burst=3.0))),
            budget=rng.choice((None, None, None, RetryBudget(per_s=5.0, burst=2.0), RetryBudget(ratio=0.5, min_per_s=2.0, burst=2.0))),
            hold_slot_up_to=rng.choice((0.0, 0.0, 0.3)),
        )
    return found


def _moves(rng: Random, setup: Setup) -> list[tuple[float, str]]:
    """What the nemesis and the operators do, and when."""
    often = {"crash": 3, "pause": 3, "restart": 2, "step": 1, "outage": 1, "cancel": 5, "requeue": 4, "hold": 2,
             "configure": 2, "schedule": 3, "prune": 1, "sweep": 4}  # fmt: skip
    moves = []
    for kind, count in often.items():
        for _ in range(rng.randrange(2 * count + 1)):
            at_s = rng.random() * setup.span_s
            if kind in setup.faults:
                moves.append((at_s, kind))
    if rng.random() < 0.5:  # a world whose clock is steady can check more
        moves = [move for move in moves if move[1] != "step"]
    if any(kind == "step" for _, kind in moves) or rng.random() < 0.6:
        moves = [move for move in moves if move[1] != "prune"]  # an insert that is repeated after a prune is a new job
    return sorted(moves)
