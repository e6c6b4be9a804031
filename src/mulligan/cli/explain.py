"""A job's story in plain sentences: what it is, what happened and why, and what happens next. Pure: the same facts, the same words."""

from __future__ import annotations

from collections.abc import Sequence

from mulligan.admin import Status
from mulligan.cli.job_view import call_text, error_text
from mulligan.cli.situation import Situation, Surroundings, situation, surroundings
from mulligan.cli.times import ago, clock_time, length, when
from mulligan.core.clock import SECOND_US
from mulligan.core.contract import QueueState
from mulligan.core.job import HistoryRecord, Job
from mulligan.policy.retry import ResolvedPolicy, thaw

FIRST_SHOWN, LAST_SHOWN = 3, 7  # of a long history; the middle of it is much of the same
OWN_ERRORS = ("crash", "expired", "unstorable")  # their error says the same as their reason
HAPPENED = {
    "failure": "failed",
    "timeout": "ran out of time",
    "retry asked": "asked to be retried",
    "snooze": "asked to be run later",
    "release": "was given back without being counted",
    "cancel": "was cancelled",
    "crash": "was lost, because its worker vanished",
    "expired": "came too late to be started",
    "unstorable": "ended in something that cannot be stored",
}


def explain_job(
    job: Job, status: Status, states: Sequence[QueueState] = (), holding: Sequence[str] = (), *, store_hint: str = ""
) -> list[str]:
    """The whole story, one sentence or two a line. `store_hint` is appended to the commands it recommends."""
    around = surroundings(job, status, states, holding)
    policy = thaw(job.policy, None)
    return [
        *_beginning(job),
        *_past(job),
        *_future(job, situation(job, around), around, policy, store_hint),
        *_rules(job, policy),
    ]


def _beginning(job: Job) -> list[str]:
    now_us = job.read_at_us
    made = f"made by the schedule {job.schedule} for its tick of {clock_time(job.tick_us, now_us)}" if job.schedule else "enqueued"
    lines = [
        f"Job {job.id} calls {call_text(job)} on queue {job.queue}. It was {made} at {when(job.created_at_us, now_us)}. Times are UTC."
    ]
    if job.generation > 1:
        lines.append(f"It was requeued {_times(job.generation - 1)}: this is generation {job.generation}, in which all limits began anew.")
    return lines


# --- what happened ---------------------------------------------------------------------------------------------------


def _past(job: Job) -> list[str]:
    records = [record for record in job.history if record.generation == job.generation]
    told = [_record_line(record, job.read_at_us) for record in records]
    hidden = len(told) - FIRST_SHOWN - LAST_SHOWN
    if hidden > 0:
        told = [*told[:FIRST_SHOWN], f"({hidden} more of that kind: mulligan show {job.id})", *told[-LAST_SHOWN:]]
    ends = [record for record in job.history if record.generation < job.generation and record.delay_us is None]
    before = [f"Generation {record.generation} ended{_at(record, job.read_at_us)}{_because(record.why)}." for record in ends]
    if not told and not before and job.attempts == 0:
        return ["It has not been started yet."]
    return before + told


def _record_line(record: HistoryRecord, now_us: int) -> str:
    if record.outcome == "requeue":
        return f"It went back{_at(record, now_us)}{_because(record.why)}."
    ran = ""
    if record.started_at_us is not None and record.ended_at_us is not None and record.ended_at_us > record.started_at_us:
        ran = f" after {length(record.ended_at_us - record.started_at_us)}"
    error = "" if record.error is None or record.outcome in OWN_ERRORS else f": {error_text(record.error)}"
    head = f"Attempt {record.attempt} {HAPPENED.get(record.outcome, record.outcome)}{_at(record, now_us)}{ran}{error}."
    if record.delay_us is None:
        return f"{head} That was its end{_because(record.why)}."
    if record.delay_us == 0:
        return f"{head} It was due again at once{_because(record.why)}."
    return f"{head} It was then to wait {length(record.delay_us)}{_because(record.why)}."


def _at(record: HistoryRecord, now_us: int) -> str:
    return "" if record.ended_at_us is None else f" at {clock_time(record.ended_at_us, now_us)}"


def _because(why: str) -> str:
    return f" ({why})" if why else ""


# --- what happens next -----------------------------------------------------------------------------------------------


def _future(job: Job, where: Situation, around: Surroundings, policy: ResolvedPolicy, hint: str) -> list[str]:
    if where in ("done", "failed", "cancelled"):
        return _ended(job, where, hint)
    if where in ("running", "stopping", "stuck"):
        return _held(job, where, around, policy)
    return _waiting(job, where, around, policy, hint)


def _ended(job: Job, where: Situation, hint: str) -> list[str]:
    at = when(job.finished_at_us or job.updated_at_us, job.read_at_us)
    if where == "done":
        after = f" at attempt {job.attempts}" if job.attempts > 1 else ""
        return [f"It is done, since {at}{after}. Nothing more will happen to it."]
    if where == "cancelled":
        return [f"It was cancelled at {at}. It will not run again; enqueue a new job if it is needed after all."]
    because = error_text(job.last_error) or "something that was not recorded"
    return [
        f"It gave up at {at}, after {_count(job.attempts, 'execution')}, because of {because}.",
        f"It stays among the failed jobs until somebody acts. To run it again once the cause is mended: mulligan requeue {job.id}{hint}",
    ]


def _held(job: Job, where: Situation, around: Surroundings, policy: ResolvedPolicy) -> list[str]:
    now_us = job.read_at_us
    since = when(job.updated_at_us, now_us)
    execution = f"attempt {_attempt(job, job.attempts)}"
    if where == "stuck":
        ended = f"but has not renewed its lease, which ended {ago(job.lease_expires_at_us, now_us)}"
        return [f"Worker {job.lease_owner} claimed it at {since} as {execution}, {ended}.", *_takeover(job, around, policy)]
    lease = f"Its lease holds until {clock_time(job.lease_expires_at_us, now_us)} and is renewed while it runs"
    lines = [f"Worker {job.lease_owner} runs it since {since}, as {execution}. {lease}."]
    if where == "stopping":
        lines.append("Somebody asked to cancel it: its worker is told at its next renewal and then stops it.")
    elif job.timeout_us is None:
        lines.append("It has no time-out, so it runs until it ends by itself.")
    else:
        lines.append(f"It is stopped if it has not ended by {when(job.updated_at_us + job.timeout_us, now_us)}, its time-out.")
    return [*lines, _if_it_fails(job, job.attempts, policy)]


def _takeover(job: Job, around: Surroundings, policy: ResolvedPolicy) -> list[str]:
    """What becomes of a job whose worker has vanished."""
    crash = job.crashes + 1
    if job.cancel_requested:
        fate = "cancels it, as somebody asked"
    elif crash >= policy.max_crashes:
        fate = f"ends it as failed, because it is crash {crash} of at most {policy.max_crashes}"
    elif job.max_retries is not None and job.attempts > job.max_retries:
        fate = "ends it as failed, because no retry is left"
    else:
        fate = f"counts a crash ({crash} of at most {policy.max_crashes}) and lets it run again"
    lines = [f"The next worker that looks, which they do every second, {fate}."]
    return lines if around.alive else [*lines, "No worker is alive to do so. Start one: mulligan worker MODULE:APP"]


def _waiting(job: Job, where: Situation, around: Surroundings, policy: ResolvedPolicy, hint: str) -> list[str]:
    now_us = job.read_at_us
    run_at_us = job.run_at_us if job.run_at_us is not None else now_us
    attempt = _attempt(job, job.attempts + 1)
    if where == "backing off":
        lines = [f"It will run again at {when(run_at_us, now_us)}, as attempt {attempt}."]
    elif where == "scheduled":
        lines = [f"It waits for its time: it will run at {when(run_at_us, now_us)}, as attempt {attempt}."]
    else:
        lines = [f"It is due since {when(run_at_us, now_us)} and will run as attempt {attempt}."]
    lines += _obstacles(job, where, around, hint)
    return [*lines, _if_it_fails(job, job.attempts + 1, policy)]


def _obstacles(job: Job, where: Situation, around: Surroundings, hint: str) -> list[str]:
    """What keeps a due job from being started, or will keep one that is not due yet."""
    lines = [] if around.paused is None else [_pause_line(job, around.paused, hint)]
    serving = len(around.serving)
    unaware = sum(job.task in worker.unknown_tasks for worker in around.serving)
    if not serving:
        others = "no worker is alive at all" if around.alive == 0 else f"{_count(around.alive, 'worker')} alive, for other queues"
        start = f"mulligan worker MODULE:APP --queues {job.queue}{hint}"
        lines.append(f"No worker serves queue {job.queue} at the moment ({others}). Start one: {start}")
    elif unaware:
        who = "The worker that serves its queue does" if serving == 1 else f"{unaware} of the {serving} workers that serve its queue do"
        lines.append(f"{who} not know the task {job.task} and will give it back for 30 s at a time.")
        lines.append("Deploy the code that registers it, or correct the name.")
    elif where == "held back":
        lines += around.holding
    elif where == "busy":
        lines.append(f"Every worker of its queue is full: it is one of {_count(around.waiting, 'due job')} and starts when a slot is free.")
    elif where == "ready":
        have = "worker that serves its queue has" if serving == 1 else "workers that serve its queue have"
        lines.append(f"{serving} {have} room: it starts at any moment.")
    return lines


def _pause_line(job: Job, pause: QueueState, hint: str) -> str:
    since = f" since {when(pause.updated_at_us, job.read_at_us)}" if pause.updated_at_us else ""
    by = f" by {pause.by}" if pause.by else ""
    reason = f" ({pause.reason})" if pause.reason else ""
    return f"It is kept waiting because queue {job.queue} is paused{since}{by}{reason}. To let it go on: mulligan resume {job.queue}{hint}"


def _if_it_fails(job: Job, attempt: int, policy: ResolvedPolicy) -> str:
    """What follows a failure of the execution that runs or comes next."""
    if job.max_retries is not None and attempt > job.max_retries:
        return "If that attempt fails, no retry is left: it ends as failed and waits for somebody to look at it."
    raw_s = policy.raw_delay(job.failures + 1)
    wait = length(round(raw_s * SECOND_US))
    how = {"none": wait, "full": f"a random time up to {wait}"}.get(policy.jitter, f"about {wait}")
    return f"If that attempt fails, it waits {how} and is tried again, unless the error is one its task gives up on."


def _rules(job: Job, policy: ResolvedPolicy) -> list[str]:
    lines = [f"Its policy, fixed when it was enqueued: {policy.explain()}."]
    if job.max_age_us is not None and job.status in ("pending", "processing"):
        end = when(job.due_first_us + job.max_age_us, job.read_at_us)
        lines.append(f"It has a maximum age: a run that would begin after {end} is not made, and it ends as failed.")
    return lines


# --- words -----------------------------------------------------------------------------------------------------------


def _attempt(job: Job, number: int) -> str:
    return f"{number} (of any number)" if job.max_retries is None else f"{number} of at most {job.max_retries + 1}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")
