from __future__ import annotations

from random import Random
from typing import Any

import pytest

from mulligan.core.contract import Signals
from mulligan.core.errors import BadPolicy
from mulligan.policy.adaptive import Adaptive
from mulligan.policy.backoff import Constant, Delays, Exponential, Linear
from mulligan.policy.presets import PRESET_LEASE_S, PRESETS
from mulligan.policy.retry import RetryPolicy, freeze
from tests.policy.samples import custom

TABLE = [
    # name, retries, raw delays, jitter
    ("micro-queue", 10, [5, 10, 20, 40, 80, 160, 320, 640, 1_280, 1_800, 1_800, 1_800], "full"),
    ("weave", 5, [1, 4, 16, 64, 256, 900, 900], "none"),
    ("springqueue", 2, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900], "none"),
    ("region-queue", 3, [2, 4, 8, 16, 32, 60, 60], "none"),
    ("region-queue-adaptive", 3, [2, 4, 8, 16, 32, 60, 60], "none"),  # of a queue where nothing waits
    ("omniq", 3, [1, 2, 4, 8, 16, 32, 60, 60], "percent(25)"),
]


@pytest.mark.parametrize(("name", "retries", "delays", "jitter"), TABLE, ids=[row[0] for row in TABLE])
def test_presets_reproduce_their_sources(name: str, retries: int, delays: list[float], jitter: str) -> None:
    """M02, W03, P05, R04, O05: limits, delays and jitter of the five sources, number by number."""
    policy = RetryPolicy.preset(name)
    assert [policy.raw_delay(n) for n in range(1, len(delays) + 1)] == delays
    assert policy.raw_delay(10**9) == delays[-1]
    resolved = policy.resolved()
    assert (resolved.max_retries, resolved.jitter, resolved.clamp) == (retries, jitter, True)
    assert resolved.max_crashes == 3


def test_every_preset_is_in_the_table() -> None:
    """A new preset needs its numbers written down."""
    assert list(PRESETS) == [row[0] for row in TABLE]
    assert PRESET_LEASE_S == {"micro-queue": 600}


def test_p05_springqueue_counts_executions() -> None:
    """P05: its N executions are N - 1 retries here."""
    assert [RetryPolicy.preset("springqueue", executions=n).max_retries for n in (1, 2, 5)] == [0, 1, 4]
    with pytest.raises(BadPolicy, match="^executions must be a whole number from 1 to 1000000000, not 0$"):
        RetryPolicy.preset("springqueue", executions=0)


def test_o05_omniq_spreads_by_a_quarter() -> None:
    """O05, E6: U(0.75, 1.25) of the raw delay, ending at the cap of 60 s, or at the original's 75 s where asked for."""
    policy, original = RetryPolicy.preset("omniq"), RetryPolicy.preset("omniq", clamp=False)
    rng = Random(1)
    for n, raw in enumerate([1, 2, 4, 8, 16, 32], start=1):
        assert all(0.75 * raw <= policy.delay(n, rng=rng) <= 1.25 * raw for _ in range(200))
    late = [policy.delay(9, rng=rng) for _ in range(500)]
    assert 45 <= min(late) < 46 < 59 < max(late) <= 60
    late = [original.delay(9, rng=rng) for _ in range(500)]
    assert 45 <= min(late) < 46 < 74 < max(late) <= 75


@pytest.mark.parametrize("size", [0, 1, 3, 5, 10, 11, 25, 50, 140, 150, 289, 290, 291, 1_000])
def test_r12_region_queue_adapts_to_the_number_of_waiting_jobs(size: int) -> None:
    """R12: min(2^n * (1 + size / 10), 60), without jitter, and the cap of 60 s is the only bound."""
    policy = RetryPolicy.preset("region-queue-adaptive")
    wanted = [min(2**n * (1 + size / 10), 60) for n in range(1, 12)]
    assert [policy.raw_delay(n, depth=size) for n in range(1, 12)] == wanted
    signals = Signals(now_us=0, depth=size, oldest_age_us=10**12, failure_rate=1.0)  # which its formula does not know
    assert [policy.filled().choose(n, Random(1), None, signals)[0] for n in range(1, 12)] == wanted


def test_r12_preset_adds_nothing_but_the_adapting() -> None:
    """The other numbers are those of region-queue, and they are stored with the job."""
    policy, plain = RetryPolicy.preset("region-queue-adaptive"), RetryPolicy.preset("region-queue")
    assert policy == RetryPolicy(adaptive=Adaptive(depth=10, age=None, failures=None, most=None)).over(plain)
    assert RetryPolicy(adaptive=None).over(policy).resolved() == plain.resolved()
    assert freeze(policy) == '{"backoff":["exponential",2,2,60],"jitter":"none","adaptive":[10,null,null,null]}'
    wider = policy.over(RetryPolicy(adaptive=Adaptive(1, 1, 1, 2))).resolved()
    assert wider == policy.resolved()


def test_preset_is_a_base_like_any_other() -> None:
    """A preset merges: what the user says wins, and its kept value is not changed by options."""
    policy = RetryPolicy(max_retries=1, backoff=Exponential(cap=30)).over(RetryPolicy.preset("micro-queue")).resolved()
    assert (policy.max_retries, policy.backoff) == (1, Exponential(5, 2, 30))
    changed = RetryPolicy.preset("omniq", executions=9, clamp=False)
    assert (changed.max_retries, changed.clamp) == (8, False)
    assert RetryPolicy.preset("omniq") == PRESETS["omniq"]


def test_unknown_preset_is_refused_with_the_list() -> None:
    """The message says which ones there are."""
    with pytest.raises(
        BadPolicy,
        match="^preset must be one of micro-queue, weave, springqueue, region-queue, region-queue-adaptive, omniq, not 'sidekiq'$",
    ):
        RetryPolicy.preset("sidekiq")


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ({}, "4 executions, waits about 1 s, 2 s, 4 s, full jitter; gives up after at most 7 s of waiting"),
        ({"max_retries": 0}, "1 execution, no retries"),
        ({"max_retries": 0, "max_age": 60}, "1 execution, no retries; gives up 60 s after it first fell due"),
        ({"max_retries": 1, "jitter": "none"}, "2 executions, waits 1 s, no jitter; gives up after at most 1 s of waiting"),
        (
            {"max_retries": 6},
            "7 executions, waits about 1 s, 2 s, 4 s, 8 s, 16 s, 32 s, full jitter; gives up after at most 63 s of waiting",
        ),
        (
            {"max_retries": 7},
            "8 executions, waits about 1 s, 2 s, 4 s, 8 s, 16 s ... 64 s, full jitter; gives up after at most 127 s of waiting",
        ),
        (
            {"max_retries": 1_000, "backoff": Constant(2), "jitter": "none"},
            "1,001 executions, waits 2 s, 2 s, 2 s, 2 s, 2 s ... 2 s, no jitter; gives up after at most 2000 s of waiting",
        ),
        (
            {"max_retries": 1_003, "backoff": Linear(0.01, 900), "jitter": "none"},  # 0.01 x 500,500, and three times the last
            "1,004 executions, waits 10 ms, 20 ms, 30 ms, 40 ms, 50 ms ... 10 s, no jitter; gives up after at most 5035 s of waiting",
        ),
        (
            {"max_retries": 10**9},
            "1,000,000,001 executions, waits about 1 s, 2 s, 4 s, 8 s, 16 s ... 900 s, full jitter; "
            "gives up after at most 10,416,667 days of waiting",
        ),
        (
            {"max_retries": None, "max_age": 3_600},
            "unlimited executions, waits about 1 s, 2 s, 4 s, 8 s, 16 s and so on, up to 900 s, full jitter; "
            "gives up 3600 s after it first fell due",
        ),
        (
            {"max_retries": None, "jitter": "none"},
            "unlimited executions, waits 1 s, 2 s, 4 s, 8 s, 16 s and so on, up to 900 s, no jitter; never gives up",
        ),
        (
            {"max_retries": 2, "max_age": 60},
            "3 executions, waits about 1 s, 2 s, full jitter; gives up after at most 3 s of waiting or 60 s after it first fell due",
        ),
        (
            {"max_retries": 2, "jitter": "percent(50)"},
            "3 executions, waits about 1 s, 2 s, percent(50) jitter; gives up after at most 4.5 s of waiting",
        ),
        (
            {"max_retries": 3, "jitter": "decorrelated", "backoff": Exponential(1, 2, 20)},
            "4 executions, waits about 1 s, 2 s, 4 s, decorrelated jitter; gives up after at most 32 s of waiting",
        ),
        (
            {"max_retries": 1, "jitter": "percent(50)", "backoff": Exponential(10, 2, 10)},
            "2 executions, waits about 10 s, percent(50) jitter; gives up after at most 10 s of waiting",
        ),
        (
            {"max_retries": 2_000, "jitter": "percent(50)", "backoff": Exponential(10, 1, 10)},
            "2,001 executions, waits about 10 s, 10 s, 10 s, 10 s, 10 s ... 10 s, percent(50) jitter; "
            "gives up after at most 5.56 h of waiting",
        ),
        (
            {"max_retries": 1_100, "jitter": "decorrelated", "backoff": Exponential(1, 2, 10)},
            "1,101 executions, waits about 1 s, 2 s, 4 s, 8 s, 10 s ... 10 s, decorrelated jitter; "
            "gives up after at most 3.05 h of waiting",
        ),
        (
            {"max_retries": 4, "backoff": Delays(1, 5, 30), "jitter": "none"},
            "5 executions, waits 1 s, 5 s, 30 s, 30 s, no jitter; gives up after at most 66 s of waiting",
        ),
        (
            {"max_retries": 2, "backoff": custom(lambda n: 1 / 0), "jitter": "none"},
            "3 executions, waits 1 s, 2 s, no jitter; gives up after at most 3 s of waiting",
        ),
        (
            {
                "max_retries": 1,
                "give_up_on": (ValueError, KeyError),
                "snooze_on": {OSError: 9, len: 5},
                "retry_on": (ConnectionError, EOFError),
            },
            "2 executions, waits about 1 s, full jitter; gives up after at most 1 s of waiting; gives up at once on ValueError, KeyError; "
            "snoozes 9 s on OSError, 5 s on len(); retries only ConnectionError, EOFError",
        ),
        (
            {"max_retries": 2, "adaptive": Adaptive(depth=10), "jitter": "none"},
            "3 executions, waits 1 s, 2 s, no jitter; waits grow with congestion, x 2 at 10 jobs waiting, at most x 16, up to 900 s; "
            "gives up after at most 48 s of waiting",
        ),
        (
            {"max_retries": 2, "adaptive": Adaptive(1, 60, 2.5, None), "backoff": Exponential(cap=60)},
            "3 executions, waits about 1 s, 2 s, full jitter; waits grow with congestion, x 2 at 1 job waiting, "
            "x 2 when the oldest has waited 60 s, x 3.5 when all executions fail, up to 60 s; gives up after at most 120 s of waiting",
        ),
        (
            {"max_retries": 2, "adaptive": Adaptive(age=5, most=4), "backoff": Exponential(cap=100), "jitter": "decorrelated"},
            "3 executions, waits about 1 s, 2 s, decorrelated jitter; waits grow with congestion, x 2 when the oldest has waited 5 s, "
            "at most x 4, up to 100 s; gives up after at most 48 s of waiting",  # 3 x 4 s, then 3 x 12 s
        ),
        (
            {"max_retries": 1_002, "adaptive": Adaptive(failures=1, most=3), "backoff": Constant(1), "jitter": "none"},
            "1,003 executions, waits 1 s, 1 s, 1 s, 1 s, 1 s ... 1 s, no jitter; waits grow with congestion, "
            "x 2 when all executions fail, at most x 3, up to 900 s; gives up after at most 3006 s of waiting",
        ),
        ({"max_retries": 0, "adaptive": Adaptive(depth=10)}, "1 execution, no retries"),
        (
            {"max_retries": 1, "retry_on": ()},
            "2 executions, waits about 1 s, full jitter; gives up after at most 1 s of waiting; retries only when the handler asks for it",
        ),
    ],
)
def test_policy_explains_itself_in_a_sentence(policy: dict[str, Any], sentence: str) -> None:
    """How often, how long, how spread, when it ends, and which errors it treats apart."""
    assert RetryPolicy(**policy).explain() == sentence
