"""The checks of test_limits.py on ledgers made by hand: each says yes to what is right, and no to what is wrong by a hair."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from mulligan import Job
from mulligan.core.job import first_row
from tests.builders import new_job
from tests.processes.ledger import Line
from tests.processes.limited_checks import Crowd, Stream, Unseen, check_crowd, check_ends, check_silence, check_stream
from tests.processes.limited_history import SLACK_US, Run, read_history
from tests.processes.limited_rules import CROWDS, STREAMS
from tests.processes.storm import findings_of, unfelt

SECOND = 1_000_000
FACTS: dict[str, Any] = {"queue": "caps", "task": "work", "lane": "fresh", "key": None, "tenant": None, "on": None, "claimed_us": 0}
TWO = Crowd("two", 2, lambda run: run.queue)
BY_KEY = Crowd("key", 1, lambda run: run.key)
DRAWS = Stream("draws", 2, 10, lambda run: run.queue if run.lane == "retry" else None)
RATIO = Stream("ratio", 2, 0, DRAWS.draws, 0.25, lambda run: run.queue if run.lane == "fresh" else None)


def line(kind: str, job: str, at_us: int, fence: int = 1, pid: int = 7, **more: Any) -> Line:
    """One line as a process would have written it."""
    return Line(kind, job, fence, pid, at_us, json.dumps(more))


def ran(job: str, start_us: int, end_us: int | None, lease_us: int = SECOND, **facts: Any) -> list[Line]:
    """A claim and its run; without an end it was killed."""
    lines = [line("CLAIM", job, start_us, until_us=start_us + lease_us + SLACK_US, **FACTS | facts), line("START", job, start_us)]
    return lines if end_us is None else [*lines, line("END", job, end_us, outcome="ok")]


def runs_of(*parts: list[Line]) -> list[Run]:
    """The runs of a ledger with nothing else wrong."""
    history = read_history(sorted((one for part in parts for one in part), key=lambda one: one.at_us))
    assert history.problems == []
    return history.runs


def claimed(lane: str, *times_us: int) -> list[Run]:
    """A claim in this lane at each of these times of the store."""
    return [Run(f"{lane}{place}", 1, 7, "q", "work", lane, at_us) for place, at_us in enumerate(times_us)]


def test_no_more_at_once_than_slots() -> None:
    """Two of two is fine, and so is one that begins when another ends; a third is not."""
    assert check_crowd(TWO, runs_of(ran("a", 0, 500), ran("b", 100, 600), ran("c", 500, 900))) == ([], 2)
    problems, peak = check_crowd(TWO, runs_of(ran("a", 0, 500), ran("b", 100, 600), ran("c", 499, 900)))
    assert (len(problems), peak) == (1, 3)


def test_keys_are_counted_apart() -> None:
    """One of each key is fine, two of one are not, and no key is no concern."""
    assert (
        check_crowd(BY_KEY, runs_of(ran("a", 0, 500, key="x"), ran("b", 0, 500, key="y"), ran("c", 0, 500), ran("d", 0, 500))).problems
        == []
    )
    assert len(check_crowd(BY_KEY, runs_of(ran("a", 0, 500, key="x"), ran("b", 499, 700, key="x"))).problems) == 1


def test_a_killed_run_keeps_its_slot_until_its_lease_ends() -> None:
    """Whoever gets the slot before that has it too early."""
    killed = ran("a", 0, None), ran("b", 0, None)
    assert check_crowd(TWO, runs_of(*killed, ran("c", SECOND, SECOND + 5))).problems == []
    assert len(check_crowd(TWO, runs_of(*killed, ran("c", SECOND - 1, SECOND + 5))).problems) == 1


def test_a_renewed_run_keeps_its_slot() -> None:
    """Its lease ends later, and so does its hold on the slot, also where it is killed then."""
    renewed = [*ran("a", 0, None), line("HELD", "a", SECOND // 2, until_us=2 * SECOND + SLACK_US)]
    assert len(check_crowd(TWO, runs_of(renewed, ran("b", SECOND, None), ran("c", 2 * SECOND - 1, None))).problems) == 1
    assert check_crowd(TWO, runs_of(renewed, ran("b", SECOND, None), ran("c", 2 * SECOND, None))).problems == []


def test_a_run_past_its_lease_does_not_count_until_it_is_renewed() -> None:
    """A process that was stopped goes on without a slot; if it is given one again, it counts again."""
    late = ran("a", 0, 9 * SECOND)
    others = ran("b", 2 * SECOND, None, 9 * SECOND), ran("c", 2 * SECOND, None, 9 * SECOND)
    assert check_crowd(TWO, runs_of(late, *others)).problems == []
    again = [*late, line("HELD", "a", 3 * SECOND, until_us=4 * SECOND)]
    assert len(check_crowd(TWO, runs_of(again, *others)).problems) == 1
    [run] = [run for run in runs_of(late) if run.is_lapsed]
    assert run.job == "a"


def test_no_more_starts_than_tokens() -> None:
    """The burst at once and then one for each tenth of a second: one microsecond less is too little."""
    assert check_stream(DRAWS, claimed("retry", 0, 0, 100_000, 200_000)) == ([], 1)
    assert len(check_stream(DRAWS, claimed("retry", 0, 0, 99_999)).problems) == 1
    assert len(check_stream(DRAWS, claimed("retry", 0, 0, 0)).problems) == 1
    assert check_stream(DRAWS, claimed("fresh", 0, 0, 0)).problems == []


def test_tokens_do_not_gather_beyond_the_burst() -> None:
    """After an hour of peace two may start at once, not three; the stretches before and after are judged together."""
    assert check_stream(DRAWS, claimed("retry", 0, 3_600 * SECOND, 3_600 * SECOND)).problems == []
    assert len(check_stream(DRAWS, claimed("retry", 0, *[3_600 * SECOND] * 3)).problems) == 1
    assert len(check_stream(DRAWS, claimed("retry", 0, 0, 100_000, 150_000, 250_000)).problems) == 1


def test_fresh_starts_pay_for_retries() -> None:
    """Four fresh ones for one retry: with three it is too much."""
    retries = claimed("retry", 0, 0, 10)
    assert check_stream(RATIO, [*retries, *claimed("fresh", 5, 6, 7, 10)]).problems == []
    assert len(check_stream(RATIO, [*retries, *claimed("fresh", 5, 6, 7)]).problems) == 1
    assert len(check_stream(RATIO, [*retries, *claimed("fresh", 5, 6, 7, 11)]).problems) == 1


def test_an_unseen_claim_may_have_paid_at_any_moment_of_its_time() -> None:
    """It excuses what it could have paid for, and no more."""
    paid = [*claimed("retry", 0, 0, 10), *claimed("fresh", 5, 6, 7)]
    [run] = claimed("fresh", 0)
    assert check_stream(RATIO, paid, [Unseen(run, 4, 20)]).problems == []
    assert check_stream(RATIO, paid, [Unseen(run, 4, 9)]).problems == []
    assert len(check_stream(RATIO, paid, [Unseen(run, 11, 20)]).problems) == 1
    assert len(check_stream(RATIO, [*paid, *claimed("retry", 15)], [Unseen(run, 4, 20)]).problems) == 1


def test_silence_while_a_breaker_is_open() -> None:
    """A start of what depends on it is told, one of something else or at another time is not."""
    runs = runs_of(ran("a", 10, 20, on="shop"), ran("b", 100, 120, on="bank"), ran("c", 300, 310, on="shop"))
    assert check_silence("shop", runs, 20, 299) == []
    assert len(check_silence("shop", runs, 20, 300)) == 1
    assert len(check_silence("shop", runs, 10, 299)) == 1


def test_a_ledger_that_cannot_be_is_told() -> None:
    """Starts without a claim, of another process, or twice under one fence."""
    assert len(read_history([line("START", "a", 1)]).problems) == 1
    assert len(read_history([*ran("a", 1, None), line("END", "a", 2, pid=8, outcome="ok")]).problems) == 1
    assert len(read_history([*ran("a", 1, None), line("START", "a", 2)]).problems) == 1
    assert read_history([*ran("a", 1, 2), line("KILL", "-", 3)]).problems == []


def job_at_its_end(**fields: Any) -> Job:
    """A job called a, done by its first run unless told otherwise."""
    end = {"id": "a", "status": "done", "attempts": 1, "fence": 1, "max_retries": 4, "run_at_us": None}
    return replace(first_row(new_job(), 0), **end | fields)


@pytest.mark.parametrize(
    "fields, is_right",
    [
        ({}, True),
        ({"fence": 2}, False),
        ({"status": "pending"}, False),
        ({"status": "processing"}, False),
        ({"status": "failed", "attempts": 5}, True),
        ({"status": "failed", "attempts": 4}, False),
        ({"status": "failed", "attempts": 3, "crashes": 3}, True),
        ({"status": "failed", "attempts": 6}, False),
        ({"attempts": 6}, False),
        ({"attempts": 0}, False),
    ],
)
def test_every_job_comes_to_its_own_end(fields: dict[str, Any], is_right: bool) -> None:
    """Done by a run that ended well, or failed when its policy had nothing left; never more executions than allowed or counted."""
    problems = check_ends([job_at_its_end(**fields)], {"a"}, runs_of(ran("a", 0, 5)), max_crashes=3)
    assert (problems == []) is is_right


def test_no_job_is_lost_or_made_up() -> None:
    """What was asked for is there, and nothing else."""
    runs = runs_of(ran("a", 0, 5))
    assert check_ends([], {"a"}, runs, max_crashes=3) == ["lost: a"]
    assert check_ends([job_at_its_end()], set(), runs, max_crashes=3) == ["not asked for: a"]


def test_limits_that_nothing_came_up_to_are_told() -> None:
    """All of them, where nothing ran; not those that were reached."""
    everything = {crowd.name for crowd in CROWDS} | {stream.name for stream in STREAMS}
    assert set(unfelt(findings_of([]))) == everything
    runs = runs_of(*(ran(str(place), 0, 5, lane="retry") for place in range(2)))
    assert set(unfelt(findings_of(runs))) == everything - {"max_inflight_retries"}
