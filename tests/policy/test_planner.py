from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mulligan.core.contract import Ask, Claimed
from mulligan.core.errors import BadSetting
from mulligan.core.job import Job
from mulligan.core.lending import allot
from mulligan.core.limits import TOKEN, Slots
from mulligan.policy.budget import RetryBudget
from mulligan.policy.lanes import Fifo, FreshFirst, RetryFirst, Separate, Strategy, Weighted
from mulligan.policy.planner import START, Account, LanePlanner
from mulligan.policy.queues import Queue
from tests.builders import bucket
from tests.policy.samples import make_job

Lots = Callable[[Ask], int]


def claim(asks: Sequence[Ask], total: int, waiting: Lots) -> list[Job]:
    """What a store would give: so many jobs of each ask as the shared rule of lending allots, in the order of the asks."""
    available = [min(total, waiting(ask)) for ask in asks]
    takes = allot(total, [ask.guaranteed for ask in asks], available, [(ask.queue, ask.lane) for ask in asks])
    return [
        make_job(queue=ask.queue, lane=ask.lane or "fresh", priority=ask.priority)
        for ask, take in zip(asks, takes, strict=True)
        for _ in range(take)
    ]


def starts(planner: LanePlanner, totals: Sequence[int], waiting: Lots) -> list[Job]:
    """All jobs a worker starts that claims these totals one after the other."""
    started: list[Job] = []
    for total in totals:
        started += planner.interleave(claim(planner.asks(total), total, waiting))
    return started


def everything(ask: Ask) -> int:
    return 10**6


def normal_only(ask: Ask) -> int:
    return 10**6 if ask.priority == 0 else 0


def worst_shortfall(flags: Sequence[bool], share: float) -> float:
    """By how much the flagged starts of any window fall short of their share: the largest fall of the running excess."""
    excess = highest = worst = 0.0
    for flag in flags:
        excess += flag - share
        worst = max(worst, highest - excess)
        highest = max(highest, excess)
    return worst


TOTALS = st.lists(st.integers(1, 50), min_size=1, max_size=60)
SHARES = st.sampled_from([0.2, 0.5, 0.01, 0.99, 1 / 3, 0.125]) | st.floats(0.001, 0.999)


@given(SHARES, st.one_of(TOTALS, st.just([1] * 200)), st.integers(0, 10**6), st.booleans())
def test_l3_any_window_of_starts_holds_both_shares(share: float, totals: list[int], seed: int, levels: bool) -> None:
    """L3, W06, B8: while both lanes wait, any n starts in a row hold at least (1-r)n - 1 fresh and rn - 1 retries; batches of one too."""
    planner = LanePlanner([Queue("q", claim=Weighted(share))], Random(seed))
    started = starts(planner, totals, everything if levels else normal_only)
    assert len(started) == sum(totals)
    assert worst_shortfall([job.lane == "retry" for job in started], share) <= 1 + 1e-6
    assert worst_shortfall([job.lane == "fresh" for job in started], 1 - share) <= 1 + 1e-6


def test_shortfall_is_measured_rightly() -> None:
    """The measure of the test above: four starts without a retry fall short by 0.8, ten by 2."""
    assert worst_shortfall([False] * 4, 0.2) == pytest.approx(0.8)
    assert worst_shortfall([True] + [False] * 10 + [True], 0.2) == pytest.approx(2)
    assert worst_shortfall([True] * 9, 0.2) == 0


@given(st.integers(0, 10**6), TOTALS, TOTALS, st.sampled_from(["fresh", "retry"]))
def test_l3_holds_from_the_moment_both_lanes_wait(seed: int, before: list[int], after: list[int], only: str) -> None:
    """A lane that was empty brings neither debt nor hoard: the bound holds at once when it fills."""
    planner = LanePlanner([Queue("q")], Random(seed))
    assert {job.lane for job in starts(planner, before, lambda ask: 10**6 if ask.lane == only else 0)} == {only}
    started = starts(planner, after, everything)
    assert worst_shortfall([job.lane == "retry" for job in started], 0.2) <= 1 + 1e-6
    assert worst_shortfall([job.lane == "fresh" for job in started], 0.8) <= 1 + 1e-6


@given(
    st.lists(st.sampled_from([Weighted(), Weighted(0.5), RetryFirst(), FreshFirst(), Fifo()]), min_size=1, max_size=5),
    TOTALS,
    st.integers(0, 10**6),
    st.sampled_from([everything, normal_only, lambda ask: 10**6 if ask.lane == "fresh" else 0]),
)
def test_guarantees_add_up_to_the_total(strategies: list[Strategy], totals: list[int], seed: int, waiting: Lots) -> None:
    """The sum of the guarantees is the total: no slot is promised twice, none is promised to nobody."""
    planner = LanePlanner([Queue(f"q{place}", claim=strategy) for place, strategy in enumerate(strategies)], Random(seed))
    for total in totals:
        asks = planner.asks(total)
        assert sum(ask.guaranteed for ask in asks) == total
        assert min(ask.guaranteed for ask in asks) >= 0
        assert len({(ask.queue, ask.lane, ask.priority) for ask in asks}) == len(asks)
        planner.interleave(claim(asks, total, waiting))


@pytest.mark.parametrize(
    ("strategy", "lanes", "order"),
    [
        (RetryFirst(), [("retry", 10), ("fresh", 0)], "run_at"),
        (FreshFirst(), [("fresh", 10), ("retry", 0)], "run_at"),
        (Fifo(), [(None, 10)], "created_at"),
    ],
)
def test_r01_strict_strategies_give_one_lane_everything(strategy: Strategy, lanes: list[tuple[str | None, int]], order: str) -> None:
    """R01, M06: retries first, fresh first, or oldest first; what the first lane cannot use goes to the second."""
    asks = LanePlanner([Queue("q", claim=strategy)], Random(1)).asks(10)
    assert [(ask.lane, ask.priority) for ask in asks] == [(lane, level) for lane, _ in lanes for level in (2, 1, 0)]
    for lane, share in lanes:
        assert sum(ask.guaranteed for ask in asks if ask.lane == lane) == share
    assert {ask.order for ask in asks} == {order}
    assert {ask.queue for ask in asks} == {"q"}
    assert {ask.limits for ask in asks} == {Queue("q").limits}


@pytest.mark.parametrize("strategy", [RetryFirst(), FreshFirst(), Fifo()])
def test_strict_strategies_start_in_the_order_of_the_claim(strategy: Strategy) -> None:
    """What the store gave first starts first."""
    planner = LanePlanner([Queue("q", claim=strategy)], Random(1))
    jobs = [make_job(queue="q", lane=lane, id=f"{place}") for place, lane in enumerate(["fresh", "retry", "fresh", "retry", "retry"])]
    assert planner.interleave(jobs) == jobs


def test_weighted_claim_of_a_batch() -> None:
    """W06: of ten slots two are the retries' and eight the fresh jobs', and an idle share is lent."""
    planner = LanePlanner([Queue("q")], Random(1))
    asks = planner.asks(10)
    assert sum(ask.guaranteed for ask in asks if ask.lane == "retry") == 2
    assert sum(ask.guaranteed for ask in asks if ask.lane == "fresh") == 8
    assert {ask.order for ask in asks} == {"run_at"}
    assert Counter(job.lane for job in claim(asks, 10, everything)) == {"fresh": 8, "retry": 2}
    assert Counter(job.lane for job in claim(asks, 10, lambda ask: 10 if ask.lane == "fresh" else 0)) == {"fresh": 10}
    assert Counter(job.lane for job in claim(asks, 10, lambda ask: 10 if ask.lane == "retry" else 0)) == {"retry": 10}


def test_batch_is_started_interleaved() -> None:
    """Fairness holds over starts: in a claimed batch every fifth start is a retry, and each lane keeps its order."""
    planner = LanePlanner([Queue("q")], Random(3))
    fresh = [make_job(queue="q", id=f"f{place}") for place in range(8)]
    retries = [make_job(queue="q", id=f"r{place}", lane="retry") for place in range(2)]
    line = planner.interleave([*fresh, *retries])
    assert [job.id for job in line if job.lane == "fresh"] == [job.id for job in fresh]
    assert [job.id for job in line if job.lane == "retry"] == ["r0", "r1"]
    places = [place for place, job in enumerate(line) if job.lane == "retry"]
    assert places[1] - places[0] == 5


def test_planning_alone_changes_no_credit() -> None:
    """A claim that failed, or came back empty, costs no lane its turn: only starts count."""
    planner = LanePlanner([Queue("q")], Random(5))
    first = planner.asks(1)
    for _ in range(20):
        assert planner.asks(1) == first
        assert planner.interleave([]) == []


def test_b8_batches_of_one_serve_retries() -> None:
    """B8: a fifth of a batch of one is not nothing: every fifth claim is the retry lane's."""
    planner = LanePlanner([Queue("q")], Random(2))
    lanes = [job.lane for job in starts(planner, [1] * 100, normal_only)]
    assert lanes.count("retry") == 20
    assert all("retry" in lanes[place : place + 5] for place in range(95))


def test_restart_favours_nobody() -> None:
    """Accounts begin anywhere between zero and one start, so that the first claim of many restarts is fair too."""
    first = [starts(LanePlanner([Queue("q")], Random(seed)), [1], normal_only)[0].lane for seed in range(2_000)]
    assert 0.17 < first.count("retry") / 2_000 < 0.23


@pytest.mark.parametrize("strategy", [Weighted(), RetryFirst(), FreshFirst(), Fifo()])
@pytest.mark.parametrize("total", [1, 3, 50])
def test_d14_every_level_is_served(strategy: Strategy, total: int) -> None:
    """D14, R11: urgent work comes first, but while all levels wait a fifth of a lane's starts is raised and a tenth is normal."""
    planner = LanePlanner([Queue("q", claim=strategy)], Random(4))
    started = starts(planner, [total] * (6_000 // total), everything)
    levels = Counter(job.priority for job in started)
    assert levels[0] / len(started) == pytest.approx(0.1, abs=0.01)
    assert levels[1] / len(started) == pytest.approx(0.2, abs=0.01)
    assert levels[2] / len(started) == pytest.approx(0.7, abs=0.01)


def test_levels_of_each_lane_are_served() -> None:
    """The shares of the levels hold inside each lane, not only over both."""
    planner = LanePlanner([Queue("q", claim=Weighted(0.5))], Random(4))
    started = starts(planner, [1] * 4_000, everything)
    for lane in ("fresh", "retry"):
        levels = Counter(job.priority for job in started if job.lane == lane)
        assert [round(levels[level] / 2_000, 2) for level in (2, 1, 0)] == [0.7, 0.2, 0.1]


def test_level_share_is_lent_inside_the_lane() -> None:
    """Where only normal jobs wait, each lane still gets its whole share."""
    asks = LanePlanner([Queue("q")], Random(1)).asks(50)
    assert Counter(job.lane for job in claim(asks, 50, normal_only)) == {"fresh": 40, "retry": 10}


def test_both_lower_levels_due_at_once_do_not_overdraw_a_slot() -> None:
    """One slot is one slot, even when raised and normal jobs are both due; the lower level goes first."""
    planner = LanePlanner([Queue("q", claim=Fifo())], Random(1))
    starts(planner, [1] * 40, lambda ask: 1 if ask.priority == 2 else 0)  # nothing but urgent work: both fall due
    asks = planner.asks(1)
    assert [(ask.priority, ask.guaranteed) for ask in asks] == [(2, 0), (1, 0), (0, 1)]
    assert [job.priority for job in starts(planner, [1, 1, 1], everything)] == [0, 1, 2]


def test_queues_share_evenly() -> None:
    """Several queues get equal shares of each claim; what does not divide goes round."""
    planner = LanePlanner([Queue(name) for name in ("a", "b", "c")], Random(1))
    shares: Counter[str] = Counter()
    for total in [1, 2, 4, 5, 7, 10, 1, 1, 2, 3] * 3:
        per_queue: Counter[str] = Counter()
        for ask in planner.asks(total):
            per_queue[ask.queue] += ask.guaranteed
        assert max(per_queue.values()) - min(per_queue.values()) <= 1
        shares.update(per_queue)
    assert set(shares.values()) == {36}


def test_remainders_go_round_exactly() -> None:
    """The claim after the one that gave one queue more begins behind it: one slot, then two, are one for each of three queues."""
    for seed in range(6):
        planner = LanePlanner([Queue(name) for name in ("a", "b", "c")], Random(seed))
        shares: Counter[str] = Counter()
        for total in (1, 2):
            for ask in planner.asks(total):
                shares[ask.queue] += ask.guaranteed
        assert shares == {"a": 1, "b": 1, "c": 1}


def test_idle_queue_keeps_one_slot_to_try_with() -> None:
    """A queue that could not use its share leaves all but one slot to the busy ones, and gets its share back when it fills that one."""
    planner = LanePlanner([Queue("a"), Queue("b")], Random(1))

    def shares(total: int, waiting: Lots) -> dict[str, int]:
        asks = planner.asks(total)
        planner.interleave(claim(asks, total, waiting))
        return {name: sum(ask.guaranteed for ask in asks if ask.queue == name) for name in ("a", "b")}

    # Five jobs wait, all in a: it fills its share of five exactly, and b nothing.
    assert shares(10, lambda ask: 5 if (ask.queue, ask.lane, ask.priority) == ("a", "fresh", 0) else 0) == {"a": 5, "b": 5}
    assert shares(10, lambda ask: 50 if ask.queue == "a" else 0) == {"a": 9, "b": 1}
    assert shares(4, lambda ask: 50 if ask.queue == "a" else 0) == {"a": 3, "b": 1}
    assert shares(10, everything) == {"a": 9, "b": 1}
    assert shares(10, everything) == {"a": 5, "b": 5}


def test_lane_that_is_due_is_asked_for_first() -> None:
    """A lent slot goes to the first ask, so the lane whose turn it is stands there, and not one start too early."""
    for seed in range(50):
        planner = LanePlanner([Queue("q")], Random(seed))
        first = planner.asks(4)[0].lane
        assert first == planner.interleave([make_job(queue="q"), make_job(queue="q", lane="retry")])[0].lane


def test_first_queue_of_a_restart_is_chosen_by_chance() -> None:
    """A fleet of workers that claim one job each must not all begin with the same queue."""
    first = Counter(LanePlanner([Queue("a"), Queue("b")], Random(seed)).asks(1)[0].queue for seed in range(200))
    assert min(first["a"], first["b"]) > 70


def test_lent_slots_go_round_the_queues() -> None:
    """Even where the total divides evenly, what one queue leaves is lent to another first each time."""
    for names in (["a", "b"], ["a", "b", "c"]):
        planner = LanePlanner([Queue(name, claim=Fifo()) for name in names], Random(1))
        assert len({planner.asks(len(names))[0].queue for _ in names}) == len(names)


@given(st.integers(0, 10**6), st.lists(st.integers(1, 20), min_size=30, max_size=30))
def test_busy_queue_beside_idle_ones_keeps_its_lanes_fair(seed: int, totals: list[int]) -> None:
    """A queue that lives on lent slots still gives both lanes their share, within a few starts."""
    planner = LanePlanner([Queue(name) for name in ("a", "idle", "idler")], Random(seed))
    started = starts(planner, totals, lambda ask: 10**6 if ask.queue == "a" and ask.priority == 0 else 0)
    assert len(started) == sum(totals)
    assert worst_shortfall([job.lane == "retry" for job in started], 0.2) <= 6
    assert worst_shortfall([job.lane == "fresh" for job in started], 0.8) <= 6


def test_busy_queue_beside_idle_ones_in_batches_of_one() -> None:
    """Lent one by one, slots go to the lane whose turn it is, so the bound of a single queue holds."""
    planner = LanePlanner([Queue(name) for name in ("a", "idle", "idler")], Random(6))
    started = starts(planner, [1] * 300, lambda ask: 10**6 if ask.queue == "a" and ask.priority == 0 else 0)
    assert worst_shortfall([job.lane == "retry" for job in started], 0.2) <= 1 + 1e-6
    assert worst_shortfall([job.lane == "fresh" for job in started], 0.8) <= 1 + 1e-6


def test_queues_of_a_batch_start_in_turn() -> None:
    """A batch of several queues is started one of each, so that none waits for the whole of another."""
    planner = LanePlanner([Queue(name, claim=Fifo()) for name in ("a", "b")], Random(1))
    jobs = [make_job(queue=queue, id=f"{queue}{place}") for queue in ("a", "b") for place in range(3 if queue == "a" else 1)]
    assert [job.id for job in planner.interleave(jobs)] == ["a0", "b0", "a1", "a2"]


def test_jobs_of_other_queues_are_not_lost() -> None:
    """A job of a queue the planner does not know keeps its place in the line."""
    planner = LanePlanner([Queue("a")], Random(1))
    jobs = [make_job(queue="a", id="1"), make_job(queue="z", id="2"), make_job(queue="z", id="3", lane="retry")]
    assert [job.id for job in planner.interleave(jobs)] == ["1", "2", "3"]
    assert planner.interleave(iter([jobs[1]])) == [jobs[1]]


@pytest.mark.parametrize("total", [0, -1])
def test_no_slots_no_asks(total: int) -> None:
    """A full worker asks for nothing."""
    assert LanePlanner([Queue("a")], Random(1)).asks(total) == []


def test_no_queues_no_asks() -> None:
    """A worker without queues asks for nothing."""
    planner = LanePlanner([], Random(1))
    assert planner.asks(5) == []
    assert planner.interleave([]) == []


def test_queue_listed_twice_is_refused() -> None:
    """Two accounts for one queue would count its starts twice."""
    with pytest.raises(BadSetting, match="^a queue is listed twice: a, b, a$"):
        LanePlanner([Queue("a"), Queue("b"), Queue("a")], Random(1))


def test_accounts_hold_whole_numbers_within_bounds() -> None:
    """The smallest and the largest share still earn and still leave something."""
    rng = Random(1)
    assert [Account(1e-12, rng).share, Account(1 - 1e-12, rng).share, Account(0.2, rng).share] == [1, START - 1, START // 5]
    account = Account(0.2, rng)
    assert 0 < account.balance < START
    account.started(10, 0)
    account.forget()
    assert (account.balance, account.due(0), account.due(1), account.due(5), account.due(4)) == (START, 0, 1, 2, 1)
    account.started(1, 1)
    assert account.balance == START // 5
    account.started(3, 3)
    assert (account.due(4), account.due(15)) == (0, 0)
    account.forget()
    assert (account.balance, account.due(4), account.due(5)) == (0, 0, 1)
    account.started(10_000, 10_000)
    assert account.balance == -20 * START
    account.started(10_000, 0)
    assert account.balance == 20 * START


def test_thousand_asks_are_cheap_in_size() -> None:
    """Six asks per queue, three for fifo: the store probes no more than that."""
    planner = LanePlanner([Queue("a"), Queue("b", claim=Fifo())], Random(1))
    assert len(planner.asks(1_000)) == 9


def test_asks_carry_the_limits_of_queue_and_fleet() -> None:
    """Every ask names its queue's limits, and those of the moment that are not a queue's own."""
    shared = bucket("breaker")
    planner = LanePlanner([Queue("a", concurrency=3), Queue("b")], Random(1), lambda: (shared,))
    for ask in planner.asks(10):
        assert ask.limits == (*Queue(ask.queue, concurrency=3 if ask.queue == "a" else None).limits, shared)


def test_turns_go_on_where_the_last_claim_ended() -> None:
    """Each lane and level of each queue has its own place in the round of its tenants."""
    planner = LanePlanner([Queue("a"), Queue("b", claim=Fifo())], Random(1))
    asks = planner.asks(4)
    assert {ask.after for ask in asks} == {""}
    planner.learn(asks, claimed_with(turns=tuple(f"{ask.queue} {ask.lane} {ask.priority}" for ask in asks)))
    for ask in planner.asks(4):
        assert ask.after == f"{ask.queue} {ask.lane} {ask.priority}"
    planner.learn(asks, claimed_with())
    assert all(ask.after for ask in planner.asks(4))


def test_w08_a_lane_that_a_limit_held_back_keeps_its_credit() -> None:
    """One slot at a time under a cap: retries still get their fifth, because what they did not get is not forgotten."""
    planner = LanePlanner([Queue("q", concurrency=1)], Random(1))
    lanes = []
    for _ in range(1_000):
        first = planner.asks(50)[0]  # the store gives the one slot to the ask that stands first
        lanes.append(first.lane)
        planner.interleave([make_job(queue="q", lane=first.lane or "fresh")], {"q"})
    assert 190 <= lanes.count("retry") <= 210
    assert worst_shortfall([lane == "fresh" for lane in lanes], 0.8) <= 2


def test_r14_a_spent_budget_lets_retry_first_fall_back_to_shares() -> None:
    """R14: while the budget is empty fresh work has its share; with tokens again, retries come first as before."""
    budget = RetryBudget(per_minute=100, over="weighted")
    planner = LanePlanner([Queue("q", claim=RetryFirst(), budget=budget)], Random(1))
    assert share_of(planner, "retry") == 10
    planner.learn([], claimed_with(levels={"budget:queue:q": TOKEN - 1}))
    assert share_of(planner, "retry") in (2, 3)
    planner.learn([], claimed_with())  # nothing new is known
    assert share_of(planner, "retry") in (2, 3)
    planner.learn([], claimed_with(levels={"budget:queue:q": TOKEN}))
    assert share_of(planner, "retry") == 10


def test_other_choices_over_budget_leave_the_strategy_alone() -> None:
    """Only "weighted" changes how a queue is claimed."""
    for over in ("wait", "backoff", "fail"):
        planner = LanePlanner([Queue("q", claim=RetryFirst(), budget=RetryBudget(per_minute=100, over=over))], Random(1))
        planner.learn([], claimed_with(levels={"budget:queue:q": 0}))
        assert share_of(planner, "retry") == 10


def test_w07_separate_asks_for_retries_first() -> None:
    """W07: up to their own concurrency, which the store keeps, retries come first; fresh work has the rest."""
    asks = LanePlanner([Queue("q", claim=Separate(2))], Random(1)).asks(10)
    assert [ask.lane for ask in asks] == ["retry"] * 3 + ["fresh"] * 3
    assert sum(ask.guaranteed for ask in asks if ask.lane == "retry") == 10
    assert Slots(most=2, lane="retry") in asks[0].limits


def test_strategy_is_switched_while_running() -> None:
    """The next claim follows the new settings; the same settings again change nothing."""
    planner = LanePlanner([Queue("q"), Queue("r")], Random(1))
    planner.change(Queue("q", claim=Fifo(), concurrency=2))
    asks = [ask for ask in planner.asks(10) if ask.queue == "q"]
    assert {ask.lane for ask in asks} == {None}
    assert Slots(most=2) in asks[0].limits
    planner.learn(asks, claimed_with(turns=("x",) * len(asks)))
    planner.change(Queue("q", claim=Fifo(), concurrency=2))
    assert {ask.after for ask in planner.asks(10) if ask.queue == "q"} == {"x"}


def share_of(planner: LanePlanner, lane: str) -> int:
    """How much of ten a planner asks for a lane."""
    return sum(ask.guaranteed for ask in planner.asks(10) if ask.lane == lane)


def claimed_with(turns: tuple[str, ...] = (), levels: dict[str, int] | None = None) -> Claimed:
    """An answer without jobs."""
    return Claimed(jobs=[], now_us=0, next_due_us=None, turns=turns, levels=levels or {})
