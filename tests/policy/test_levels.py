from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.core.choosing import Line, Waiting, choose
from mulligan.core.contract import Ask
from mulligan.core.job import LANES, Job, Lane
from mulligan.core.limits import Ledger, Scope
from mulligan.policy.lanes import Fifo, FreshFirst, RetryFirst, Separate, Strategy, Weighted
from mulligan.policy.planner import LEVEL_SHARES, LanePlanner
from mulligan.policy.queues import Queue
from tests.fairness.bound import shortfall
from tests.policy.samples import make_job
from tests.policy.test_planner import TOTALS, claim, everything, starts

STRATEGIES = [Weighted(), Weighted(0.5), RetryFirst(), FreshFirst(), Separate(3), Fifo()]
SMALL = [st.just([1] * 200), st.lists(st.integers(1, 3), min_size=100, max_size=100)]


def lacks(jobs: Sequence[Job], level: int) -> float:
    """What the worst window of these starts lacks of the level's share."""
    return float(shortfall((job.priority == level for job in jobs), LEVEL_SHARES[level]).lacks)


@given(st.sampled_from(STRATEGIES), st.one_of(TOTALS, *SMALL), st.integers(0, 10**6))
def test_a_level_lacks_no_more_than_a_batch_puts_off(strategy: Strategy, totals: list[int], seed: int) -> None:
    """D14: in any n starts of a lane a level lacks at most one start and its share of one claim, in which urgent jobs stand first."""
    started = starts(LanePlanner([Queue("q", claim=strategy)], Random(seed)), totals, everything)
    for lane in LANES:
        for level, share in LEVEL_SHARES.items():
            assert lacks([job for job in started if job.lane == lane], level) <= 1 + share * max(totals) + 1e-6


@given(st.sampled_from(STRATEGIES), st.one_of(TOTALS, *SMALL), st.integers(0, 10**6))
def test_lower_levels_keep_their_shares_where_the_other_lane_is_empty(strategy: Strategy, totals: list[int], seed: int) -> None:
    """R11: slots that an empty lane of retries lends go to urgent jobs first, and yet the others have what is theirs of all starts."""
    started = starts(LanePlanner([Queue("q", claim=strategy)], Random(seed)), totals, lambda ask: 10**6 if ask.lane != "retry" else 0)
    for level, share in LEVEL_SHARES.items():
        assert lacks(started, level) <= 2 + share * 2 * max(totals) + 1e-6


@pytest.mark.parametrize("total", [1, 2, 30])
@pytest.mark.parametrize("strategy", [Weighted(0.05), Weighted(0.2), Weighted(0.95)])
@pytest.mark.parametrize("lane", LANES)
def test_no_level_starves_in_a_lane_with_a_small_share(strategy: Weighted, lane: Lane, total: int) -> None:
    """Where a lane's own share is less than its lower levels', they have all of it, in turn, while the other lane is empty."""
    planner = LanePlanner([Queue("q", claim=strategy)], Random(3))
    started = starts(planner, [total] * (6_000 // total), lambda ask: 10**6 if ask.lane == lane else 0)
    own = strategy.retry_share if lane == "retry" else 1 - strategy.retry_share
    levels = Counter(job.priority for job in started)
    for level, share in LEVEL_SHARES.items():
        assert levels[level] / len(started) >= min(share, own / 3) - 0.005


def test_a_trickle_of_retries_leaves_the_levels_of_fresh_work_their_shares() -> None:
    """Under retry_first, fresh work lives on what retries leave: of that, and of what they might leave, the lower levels have theirs."""
    planner = LanePlanner([Queue("q", claim=RetryFirst())], Random(1))
    started: Counter[tuple[str, int]] = Counter()
    for _ in range(500):
        jobs = claim(planner.asks(10), 10, lambda ask: (3 if ask.priority == 0 else 0) if ask.lane == "retry" else 10**6)
        started.update((job.lane, job.priority) for job in planner.interleave(jobs))
    assert started["retry", 0] == 1_500
    assert started["fresh", 0] >= 499 and started["fresh", 1] >= 999


def test_retry_first_is_strict_again_one_claim_after_retries_wait() -> None:
    """What the lower levels of fresh work were sure of is given back as soon as retries fill what they are asked for."""
    planner = LanePlanner([Queue("q", claim=RetryFirst())], Random(1))
    starts(planner, [10] * 20, lambda ask: 10**6 if ask.lane == "fresh" else 0)
    first, *rest = (starts(planner, [10], everything) for _ in range(5))
    assert Counter(job.lane for job in first)["retry"] >= 6
    assert {job.lane for jobs in rest for job in jobs} == {"retry"}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("lane", LANES)
def test_a_queue_without_a_share_promises_nothing(strategy: Strategy, lane: Lane) -> None:
    """One slot for two queues, of which one lane has jobs: the queue whose turn it is not promises no more and no less than nothing."""
    planner = LanePlanner([Queue(name, claim=strategy) for name in ("a", "b")], Random(1))
    for _ in range(30):
        asks = planner.asks(1)
        assert sorted({sum(ask.guaranteed for ask in asks if ask.queue == name) for name in ("a", "b")}) == [0, 1]
        assert {ask.guaranteed for ask in asks} == {0, 1}
        planner.interleave(claim(asks, 1, lambda ask: 10 if ask.lane in (lane, None) else 0))


class CappedStore:
    """Claims of a queue whose jobs are all there, but may only be started as far as its slots allow; one job ends after each claim."""

    def __init__(self, queue: Queue, seed: int) -> None:
        self.planner = LanePlanner([queue], Random(seed))
        self.running: list[Job] = []

    def claim(self, total: int) -> list[Job]:
        asks = self.planner.asks(total)
        lines = [[Line(lane, None, [Waiting(0, f"{place} {number}") for number in range(total)]) for lane in lanes_of(ask)]
                 for place, ask in enumerate(asks)]  # fmt: skip
        retries = sum(job.lane == "retry" for job in self.running)
        counts = {Scope("q", None, None): len(self.running), Scope("q", "retry", None): retries}
        choice = choose(total, asks, lines, Ledger(0, counts, {}))
        jobs = [make_job(queue="q", lane=one.line.lane, priority=asks[one.ask].priority) for one in choice.jobs]
        self.running = [*self.running, *jobs]
        return self.planner.interleave(jobs, choice.held_back)


def lanes_of(ask: Ask) -> tuple[Lane, ...]:
    return LANES if ask.lane is None else (ask.lane,)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("slots", [1, 2, 5])
def test_no_level_starves_under_a_limit(strategy: Strategy, slots: int) -> None:
    """A queue that may run few jobs at once starts one whenever one ends: each level has its share of these, whatever was asked for."""
    store = CappedStore(Queue("q", claim=strategy, concurrency=slots), 1)
    started: list[Job] = []
    for _ in range(400):
        started += store.claim(20)
        store.running.pop(0)
    levels = Counter(job.priority for job in started)
    assert len(started) >= 400
    assert levels[0] / len(started) == pytest.approx(0.1, abs=0.03)
    assert levels[1] / len(started) == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize("strategy", [Weighted(), Weighted(0.8), RetryFirst(), Separate(2)])
@pytest.mark.parametrize("total", [1, 2, 30])
def test_no_level_of_fresh_work_starves_beside_retries_at_their_limit(strategy: Strategy, total: int) -> None:
    """Retries that may not start keep their credit; the slots they leave are not for urgent jobs alone."""
    store = CappedStore(Queue("q", claim=strategy, max_inflight_retries=2), 1)
    started: list[Job] = []
    for number in range(200):
        started += store.claim(total)
        store.running = [job for job in store.running if job.lane == "retry" and number % 5]
    fresh = Counter(job.priority for job in started if job.lane == "fresh")
    for level, share in LEVEL_SHARES.items():
        assert fresh[level] / fresh.total() >= 0.6 * share
