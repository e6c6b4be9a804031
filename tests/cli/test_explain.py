"""The story of a job, for every place it can be in. The words are for people; what must be in them is checked here."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mulligan import Constant, Exponential, RetryPolicy
from mulligan.admin import QueueStatus, Status
from mulligan.cli.explain import explain_job
from mulligan.cli.situation import situation, surroundings
from mulligan.core.clock import SECOND_US, us_to_datetime
from mulligan.core.contract import QueueState, WorkerInfo
from mulligan.core.job import ErrorInfo, HistoryRecord, Job
from mulligan.inline import inline_job
from mulligan.policy.retry import freeze
from tests.builders import new_job, us, worker_info

NOW_US = 1_700_000_000 * SECOND_US  # 2023-11-14 22:13:20
ERROR = ErrorInfo(type="builtins.ConnectionError", message="refused", at_us=NOW_US - us(9))
POLICY = RetryPolicy(max_retries=3, backoff=Exponential(base=1, factor=2, cap=900), jitter="full")
MINE = worker_info("host:1:aa", queues=("q",), concurrency=10, running=3)


def job(policy: RetryPolicy = POLICY, **fields: Any) -> Job:
    """A pending job that was made a minute ago and is due, with some fields changed."""
    new = new_job(
        id="0198f2c4-5d1e-7b3a-9c11-2f6a0d4e8b71",
        policy=freeze(policy),
        max_retries=policy.max_retries,
        payload='{"args":[42],"kwargs":{}}',
    )
    basis = inline_job(new, NOW_US - us(60))
    given = {"status": "pending", "attempts": 0, "fence": 0, "run_at_us": NOW_US - us(60), "lease_owner": None, "read_at_us": NOW_US}
    return msgspec.structs.replace(basis, **(given | fields))


def held(**fields: Any) -> Job:
    """A job that a worker has held for ten seconds."""
    given = {
        "status": "processing",
        "attempts": 1,
        "run_at_us": None,
        "updated_at_us": NOW_US - us(10),
        "lease_owner": "host:1:aa",
        "lease_expires_at_us": NOW_US + us(20),
        "timeout_us": us(900),
    }
    return job(**(given | fields))


def at_rest(status: str, **fields: Any) -> Job:
    """A job that came to rest five seconds ago."""
    return job(**({"status": status, "run_at_us": None, "finished_at_us": NOW_US - us(5), "attempts": 1} | fields))


def record(attempt: int, outcome: str = "failure", delay_s: float | None = 1.0, **fields: Any) -> HistoryRecord:
    """One record, of an execution that took two seconds."""
    given = {
        "generation": 1,
        "fence": attempt,
        "error": ERROR,
        "started_at_us": NOW_US - us(12),
        "ended_at_us": NOW_US - us(10),
        "delay_us": None if delay_s is None else us(delay_s),
        "why": f"failure {attempt} of at most 4 executions: chosen",
    }
    return HistoryRecord(attempt=attempt, outcome=outcome, **(given | fields))


def status(*workers: WorkerInfo, **queue: Any) -> Status:
    """The status of all queues, which is one."""
    given: dict[str, Any] = {
        "region": "q",
        "queue_size": 1,
        "retry_queue_size": 0,
        "processing": False,
        "current_job": None,
        "running": 0,
        "ready": 1,
        "retry_ready": 0,
        "stuck": 0,
        "done": 0,
        "failed": 0,
        "cancelled": 0,
        "paused": False,
        "pause_reason": "",
        "oldest_ready_s": None,
        "next_due_in_s": None,
    }
    return Status(at=us_to_datetime(NOW_US), queues=[QueueStatus(**(given | queue))], workers=list(workers))


PAUSE = QueueState(queue="q", paused=True, reason="bank is down", by="anna", updated_at_us=NOW_US - us(300))
BACKING_OFF = job(
    lane="retry", attempts=2, failures=2, run_at_us=NOW_US + us(4), last_error=ERROR, history=(record(1), record(2, delay_s=14.0))
)

CASES: list[Any] = [
    pytest.param(
        job(run_at_us=NOW_US + us(3600)),
        status(MINE),
        [],
        "scheduled",
        ["not been started", "23:13:20", "in 3600 s", "attempt 1 of at most 4"],
        id="scheduled",
    ),
    pytest.param(
        BACKING_OFF,
        status(MINE),
        [],
        "backing off",
        [
            "run again at 22:13:24 (in 4 s)",
            "attempt 3 of at most 4",
            "Attempt 2 failed",
            "wait 14 s (failure 2 of",
            "a random time up to 4 s",
        ],
        id="backing off",
    ),
    pytest.param(
        job(lane="retry", attempts=3, failures=3, run_at_us=NOW_US + us(4)),
        status(MINE),
        [],
        "backing off",
        ["attempt 4 of at most 4", "no retry is left"],
        id="backing off for the last time",
    ),
    pytest.param(
        job(POLICY.over(POLICY), run_at_us=NOW_US + us(4)),
        status(),
        [],
        "scheduled",
        ["No worker serves queue q", "no worker is alive at all"],
        id="scheduled for nobody",
    ),
    pytest.param(
        job(),
        status(MINE, paused=True),
        [PAUSE],
        "paused",
        ["queue q is paused", "since 22:08:20 (300 s ago)", "by anna", "(bank is down)", "mulligan resume q --store x"],
        id="paused",
    ),
    pytest.param(job(), status(MINE, paused=True, pause_reason="lunch"), [], "paused", ["paused (lunch)"], id="paused, as status tells"),
    pytest.param(
        job(),
        status(),
        [],
        "no worker",
        ["No worker serves queue q", "mulligan worker MODULE:APP --queues q --store x"],
        id="no worker at all",
    ),
    pytest.param(
        job(),
        status(worker_info("other", queues=("r",))),
        [],
        "no worker",
        ["1 worker alive, for other queues"],
        id="workers for others only",
    ),
    pytest.param(
        job(),
        status(worker_info("old", queues=("q",), unknown_tasks=("work",))),
        [],
        "unknown task",
        ["does not know the task work", "30 s", "Deploy"],
        id="unknown to the only worker",
    ),
    pytest.param(
        job(),
        status(MINE, worker_info("old", queues=("q",), unknown_tasks=("work",))),
        [],
        "ready",
        ["1 of the 2 workers"],
        id="unknown to one of two",
    ),
    pytest.param(
        job(), status(worker_info(queues=("q",), concurrency=3, running=3), ready=7), [], "busy", ["full", "7 due jobs"], id="busy"
    ),
    pytest.param(job(), status(MINE), [], "ready", ["due since 22:12:20", "starts at any moment"], id="ready"),
    pytest.param(
        held(),
        status(MINE),
        [],
        "running",
        ["host:1:aa runs it since 22:13:10 (10 s ago)", "until 22:13:40", "time-out", "22:28:10"],
        id="running",
    ),
    pytest.param(held(timeout_us=None), status(MINE), [], "running", ["no time-out"], id="running without a time-out"),
    pytest.param(held(cancel_requested=True), status(MINE), [], "stopping", ["asked to cancel"], id="stopping"),
    pytest.param(
        held(lease_expires_at_us=NOW_US - us(2)),
        status(MINE),
        [],
        "stuck",
        ["ended 2 s ago", "crash (1 of at most 3)", "run again"],
        id="stuck",
    ),
    pytest.param(
        held(lease_expires_at_us=NOW_US - us(2)),
        status(),
        [],
        "stuck",
        ["No worker is alive", "mulligan worker"],
        id="stuck, and nobody there",
    ),
    pytest.param(
        held(lease_expires_at_us=NOW_US, crashes=2), status(MINE), [], "stuck", ["crash 3 of at most 3"], id="stuck for the last time"
    ),
    pytest.param(
        held(lease_expires_at_us=NOW_US, attempts=4), status(MINE), [], "stuck", ["no retry is left"], id="stuck at the last attempt"
    ),
    pytest.param(
        held(lease_expires_at_us=NOW_US, cancel_requested=True), status(MINE), [], "stuck", ["cancels it"], id="stuck and cancelled"
    ),
    pytest.param(at_rest("done", attempts=2), status(MINE), [], "done", ["done", "22:13:15 (5 s ago)", "attempt 2"], id="done"),
    pytest.param(
        at_rest("failed", attempts=4, last_error=ERROR, history=(record(4, delay_s=None, why="no retry is left"),)),
        status(MINE),
        [],
        "failed",
        [
            "gave up",
            "4 executions",
            "ConnectionError: refused",
            "no retry is left",
            "mulligan requeue 0198f2c4-5d1e-7b3a-9c11-2f6a0d4e8b71 --store x",
        ],
        id="failed",
    ),
    pytest.param(at_rest("failed"), status(), [], "failed", ["not recorded"], id="failed for no recorded reason"),
    pytest.param(at_rest("cancelled", attempts=0), status(MINE), [], "cancelled", ["was cancelled at 22:13:15"], id="cancelled"),
]


@pytest.mark.parametrize("subject, world, states, place, words", CASES)
def test_every_situation_is_told(subject: Job, world: Status, states: list[QueueState], place: str, words: list[str]) -> None:
    """The situation is recognised, and its story holds what a newcomer needs."""
    assert situation(subject, surroundings(subject, world, states)) == place
    sentences = explain_job(subject, world, states, store_hint=" --store x")
    story = "\n".join(sentences)
    assert [word for word in words if word not in story] == []
    assert story.startswith("Job 0198f2c4-5d1e-7b3a-9c11-2f6a0d4e8b71 calls work(42) on queue q.")
    assert all(sentence.strip() and "  " not in sentence and "None" not in sentence for sentence in sentences)


def test_every_situation_has_a_case() -> None:
    """The table above leaves none out."""
    from typing import get_args

    from mulligan.cli.situation import Situation

    assert {case.values[3] for case in CASES} | {"held back"} == set(get_args(Situation))


def test_a_job_that_is_held_back_is_told_by_what() -> None:
    """What limits and breakers have against it stands in its story; a pause, or no worker at all, comes before it."""
    holds = ["The retry budget of queue q is spent."]
    assert situation(job(), surroundings(job(), status(MINE), [], holds)) == "held back"
    assert holds[0] in explain_job(job(), status(MINE), [], holds)
    assert situation(job(), surroundings(job(), status(MINE), [PAUSE], holds)) == "paused"
    assert situation(job(), surroundings(job(), status(), [], holds)) == "no worker"
    assert situation(BACKING_OFF, surroundings(BACKING_OFF, status(MINE), [], holds)) == "backing off"


@pytest.mark.parametrize(
    "outcome, words",
    [
        ("failure", "Attempt 1 failed at 22:13:10 after 2 s: ConnectionError: refused."),
        ("timeout", "ran out of time"),
        ("retry asked", "asked to be retried"),
        ("snooze", "asked to be run later"),
        ("release", "given back without being counted"),
        ("cancel", "was cancelled"),
        ("crash", "its worker vanished"),
        ("expired", "came too late"),
        ("unstorable", "cannot be stored"),
        ("requeue", "It went back at 22:13:10 (sent by anna)."),
    ],
)
def test_every_outcome_has_its_words(outcome: str, words: str) -> None:
    """Each kind of record is told with its reason, whether it goes on or ends there."""
    for delay_s, after in ((1.5, "wait 1.5 s (sent by anna)"), (0.0, "at once (sent by anna)"), (None, "its end (sent by anna)")):
        told = [
            line
            for line in explain_job(job(attempts=1, history=(record(1, outcome, delay_s, why="sent by anna"),)), status(MINE))
            if words in line
        ]
        assert len(told) == 1
        assert outcome == "requeue" or after in told[0]


def test_a_requeued_job_tells_of_its_earlier_life() -> None:
    """Earlier generations are told by how they ended, the present one in full."""
    history = (record(1), record(2, delay_s=None, why="no retry is left"), record(0, "requeue", 0.0, generation=2, why="requeued by anna"))
    story = "\n".join(explain_job(job(generation=2, lane="retry", history=history), status(MINE)))
    assert "requeued once: this is generation 2" in story
    assert "Generation 1 ended at 22:13:10 (no retry is left)." in story
    assert "requeued by anna" in story
    assert "Attempt 1 failed" not in story


def test_a_long_history_is_shortened() -> None:
    """Of fifty records the first and the last ones are told, and where to find the others."""
    lines = explain_job(job(attempts=50, history=tuple(record(number) for number in range(1, 51))), status(MINE))
    told = [line for line in lines if line.startswith("Attempt")]
    assert len(told) == 10
    assert "Attempt 50 failed" in told[-1]
    assert any("40 more of that kind: mulligan show" in line for line in lines)


@pytest.mark.parametrize(
    "policy, words",
    [
        (RetryPolicy(max_retries=0), "no retry is left"),
        (RetryPolicy(max_retries=3, backoff=Constant(delay=7), jitter="none"), "it waits 7 s and is tried again"),
        (RetryPolicy(max_retries=3, backoff=Constant(delay=7), jitter="equal"), "it waits about 7 s and is tried again"),
        (RetryPolicy(max_retries=None, max_age=60, backoff=Constant(delay=7), jitter="none"), "attempt 1 (of any number)"),
        (RetryPolicy(max_retries=None, max_age=60), "maximum age"),
    ],
)
def test_the_frozen_policy_tells_what_follows(policy: RetryPolicy, words: str) -> None:
    """What happens after another failure comes from the numbers stored with the job."""
    max_age_us = us(60) if isinstance(policy.max_age, int) else None
    story = "\n".join(explain_job(job(policy, max_age_us=max_age_us), status(MINE)))
    assert words in story
    assert policy.explain() in story


def test_a_scheduled_tick_names_its_schedule() -> None:
    """A job made by a schedule says which, and for which tick."""
    [first, *_] = explain_job(job(schedule="nightly", tick_us=NOW_US - us(86_400)), status(MINE))
    assert "made by the schedule nightly for its tick of 2023-11-13 22:13:20" in first


def test_what_cannot_be_read_is_told_all_the_same() -> None:
    """A payload and a policy that are not ours do not keep the story from being told."""
    story = "\n".join(explain_job(msgspec.structs.replace(job(payload="{not json"), policy="nonsense"), status(MINE)))
    assert "work(?" in story
    assert "Its policy" in story
