"""The storms of the guide in small: seconds instead of minutes, under virtual time. test_full.py plays them in full size.

Each bound has a twin here that breaks it: the same scene without what is to keep it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from benchmarks.storms import aligned, dead, mass, outage, tenants
from benchmarks.storms.flapping import BRIEF
from benchmarks.storms.stage import lost

from mulligan import RetryFirst, RetryPolicy, Weighted
from mulligan.sim.figures import depth, most_within, peak_to_mean, selected
from mulligan.sim.recorder import Recorder
from mulligan.sim.service import Flapping

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(300)  # they wait for nothing and need only the processor, of which a busy machine gives little


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of failures are what these tests are about: the alarm about high retry rates need not tell."""
    caplog.set_level("ERROR", logger="mulligan")


# --- mass failures ---------------------------------------------------------------------------------------------------


def test_w09_failing_jobs_do_not_stop_fresh_work_and_drain_to_zero() -> None:
    """100, then 100, then 1,000 jobs fail three times each: fresh work beside them goes on, and in the end all are done."""
    record = mass.batches((100, 100, 1_000), slots=10, every_s=15, seed=1)
    waiting = [count for _, count in depth(record.runs, 1)]
    assert max(waiting) > 900
    assert waiting[-1] == 0
    assert (record.failed, lost(record)) == (0, 0)
    assert mass.fresh_wait_s(record.runs, 45, 75) <= mass.SERVICE_S  # while the thousand come and go
    assert mass.longest_pause_s(record.runs) < 4 * mass.SERVICE_S


def test_m15_stuck_jobs_are_recovered_and_none_is_lost() -> None:
    """A thousand jobs of a worker that vanished run again soon after their leases ended, once each, and fresh work goes on."""
    record = mass.vanished(1_000, slots=20, fed_s=60, seed=1)
    stuck = selected(record.runs, task="stuck")
    assert mass.LEASE_S <= stuck[0].start_s < mass.LEASE_S + 2
    assert [run.attempt for run in stuck] == [2] * 1_000
    assert (record.failed, lost(record)) == (0, 0)
    assert mass.fresh_wait_s(record.runs, mass.LEASE_S, 60) <= mass.SERVICE_S


# --- an outage under a steady load -----------------------------------------------------------------------------------

TIMES = outage.Times(calm_s=20, outage_s=180)


@pytest.mark.parametrize(("how", "slots"), [("slow", 10), ("refused", 3)])
def test_m15_an_outage_makes_no_storm_and_fresh_work_goes_on(how: outage.How, slots: int) -> None:
    """Retries come evenly, fresh work waits at most a service time longer, and every job is done once when all is over."""
    alone, record = (outage.run(one, Weighted(), slots, TIMES, seed=1) for one in ("none", how))
    alone_s = outage.fresh_wait_s(alone, TIMES)
    assert 1 <= peak_to_mean(outage.retries_per_bin(record, TIMES)) < 2
    assert outage.fresh_wait_s(record, TIMES) <= max(1.3 * alone_s, alone_s + outage.SERVICE_S)
    assert (record.failed, lost(record)) == (0, 0)


def test_retries_first_keep_fresh_work_waiting_through_an_outage() -> None:
    """The same outage with retries first: fresh work waits for most of it."""
    record = outage.run("slow", RetryFirst(), 10, TIMES, seed=1, drains=False)
    assert outage.fresh_wait_s(record, TIMES) > 20 * outage.SERVICE_S


# --- an aligned failure ----------------------------------------------------------------------------------------------

JOBS, DOWN_S = 1_000, 20


def test_aligned_failures_come_back_as_the_policy_spreads_them() -> None:
    """A thousand jobs that fail at one moment: no ten seconds hold more than 1.2 times the retries that the policy alone gives."""
    record = aligned.run(JOBS, DOWN_S, seed=1)
    found = aligned.Comparison([record], JOBS, DOWN_S, samples=5_000)
    assert len(found.ratios) >= 2
    assert max(found.ratios) <= 1.2
    assert found.beyond == []
    assert (record.failed, lost(record)) == (0, 0)


def test_retries_without_jitter_are_beyond_that_spread() -> None:
    """The same comparison finds the storm that a policy without jitter makes."""
    storm = aligned.run(200, DOWN_S, seed=1, retry=RetryPolicy(max_retries=40, jitter="none"))
    assert aligned.Comparison([storm], 200, DOWN_S, samples=2_000).beyond


def test_a_budget_bounds_every_ten_seconds() -> None:
    """With 20 retries a second and 20 at once, no ten seconds, wherever they begin, hold more than 220; without, far more do."""
    limited = aligned.run(300, DOWN_S, seed=1, budget=aligned.BUDGET)
    assert 200 <= most_within(aligned.retry_times(limited), 10) <= 220
    assert (limited.failed, lost(limited)) == (0, 0)
    assert most_within(aligned.retry_times(aligned.run(300, DOWN_S, seed=1)), 10) > 900


# --- breaker and budget ----------------------------------------------------------------------------------------------

SLOTS, START_S, END_S, FED_S = 4, 60, 660, 720
DEAD = dead.outage("slow", START_S, END_S)


def test_breaker_and_budget_spare_a_dead_downstream_and_all_jobs_drain() -> None:
    """At most 5 % of the calls of ten minutes are left; afterwards all jobs are done, and waiting has spent no attempts."""
    without, guarded = (dead.run(kind, [DEAD], SLOTS, FED_S, seed=1) for kind in (dead.BARE, dead.GUARDED))
    assert dead.calls(without, START_S, END_S) > 2_000
    assert dead.calls(guarded, START_S, END_S) <= 0.05 * dead.calls(without, START_S, END_S)
    assert (guarded.failed, lost(guarded)) == (0, 0)
    attempts: dict[int, list[int]] = {}
    for run in guarded.runs:
        attempts.setdefault(run.job, []).append(run.attempt)
    assert all(own == list(range(1, len(own) + 1)) for own in attempts.values())  # no attempt is counted that was not a call
    assert max(map(len, attempts.values())) <= 8


def test_a_retry_after_holds_all_jobs_of_that_downstream() -> None:
    """Where the downstream says how long it needs, a few calls in ten minutes are enough to know, and all jobs are done afterwards."""
    record = dead.run(dead.GUARDED, [dead.outage("slow, Retry-After", START_S, END_S)], SLOTS, FED_S, seed=1)
    assert 1 <= dead.calls(record, START_S, END_S) < 0.03 * SLOTS * (END_S - START_S)
    assert "DOWNSTREAM_HELD" in {kind for _, kind in record.turns}
    assert (record.failed, lost(record)) == (0, 0)


def test_a_quick_breaker_saves_jobs_that_have_few_retries() -> None:
    """With the three retries of the default policy an outage kills jobs; behind a breaker that judges by ten seconds, none."""
    fault = dead.outage("slow", 30, 150)
    without, guarded = (dead.run(kind, [fault], SLOTS, 150, seed=1, retry=RetryPolicy()) for kind in (dead.BARE, dead.QUICK))
    assert without.failed > 5
    assert (guarded.failed, lost(guarded)) == (0, 0)


def test_m15_a_flapping_downstream_is_survived() -> None:
    """Every job is done in the end, with and without a breaker, and a quick one keeps most calls from failing."""
    flaps = Flapping(start_s=30, end_s=270, down_s=30, up_s=90)
    without, guarded = (dead.run(kind, [flaps], 6, 270, seed=1) for kind in (dead.BARE, BRIEF))
    assert [(one.failed, lost(one)) for one in (without, guarded)] == [(0, 0), (0, 0)]
    bad, bad_guarded = (sum(1 for run in one.runs if not run.ok) for one in (without, guarded))
    assert 0 < bad_guarded < bad / 3


# --- tenants ---------------------------------------------------------------------------------------------------------

FLOOD, BACKLOG, DAY_S = 3_000, 40, 30


@cache
def day(kind: tenants.Kind, flood: tenants.Flood) -> tenants.Day:
    return tenants.run(kind, flood, FLOOD, DAY_S, backlog=BACKLOG)


@pytest.mark.parametrize("flood", ["succeeds", "fails"])
def test_a_flood_at_most_doubles_the_wait_of_other_tenants(flood: tenants.Flood) -> None:
    """Nine tenants with work waiting wait at most twice as long beside a flood of the tenth, also when it comes back as retries."""
    alone, beside = day("backlog", "none"), day("backlog", flood)
    assert alone.median_wait_s("fresh") > tenants.SERVICE_S
    assert beside.median_wait_s("fresh") <= 2 * alone.median_wait_s("fresh")
    assert beside.median_wait_s("retry") <= alone.median_wait_s("retry") + tenants.SERVICE_S


@pytest.mark.parametrize("flood", ["succeeds", "fails"])
def test_a_flood_costs_other_tenants_less_than_a_service_time(flood: tenants.Flood) -> None:
    """Where hardly anybody waits without the flood, its median cost is less than one service time, in both lanes."""
    alone, beside = day("steady", "none"), day("steady", flood)
    for lane in ("fresh", "retry"):
        assert beside.median_wait_s(lane) <= max(2 * alone.median_wait_s(lane), alone.median_wait_s(lane) + tenants.SERVICE_S)


def test_without_fair_keys_a_flood_goes_first() -> None:
    """The same flood without fair keys keeps everybody waiting."""
    unfair = tenants.run("steady", "succeeds", FLOOD, DAY_S, fair=False)
    assert unfair.median_wait_s("fresh") > 50 * tenants.SERVICE_S


# --- one seed, one history -------------------------------------------------------------------------------------------


def digest(record: Recorder) -> str:
    """A record as a short text."""
    return sha256(msgspec.json.encode(record.runs)).hexdigest()


def test_the_same_seed_gives_the_same_record() -> None:
    """A seed stands for one history, to the microsecond; another one for another."""
    first, again, other = (digest(aligned.run(50, DOWN_S, seed=seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_the_same_seed_gives_the_same_record_in_another_process() -> None:
    """Nothing in a history comes from the process: not its hashes of texts, not its ids."""
    program = "from tests.storms.test_scenes import *; print(digest(dead.run(dead.GUARDED, [dead.outage('slow', 5, 25)], 4, 30, seed=3)))"
    answers = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(number)},
            capture_output=True,
            text=True,
            check=True,
            timeout=50,
        ).stdout
        for number in (1, 2)
    ]
    assert answers[0] == answers[1]
    assert len(answers[0].strip()) == 64
