"""decide: the only place where a job's fate is chosen. Pure: the same job, outcome, policy, signals and generator give the same change.

Counting, once and for all. attempts is raised by the claim; snooze and release give it back. A job may run again while
attempts < max_retries + 1 and crashes < max_crashes. A backoff's n is the number of failures (of crashes, after a crash), this one
included. A requeue starts a new generation with all five counters at zero; what they were is in the history.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from mulligan.core.change import Cause, Change, Dead, Guard, Held, Lapsed
from mulligan.core.clock import SECOND_US
from mulligan.core.codec import MESSAGE_CHARS_MAX, storable_text
from mulligan.core.contract import Signals
from mulligan.core.job import ErrorInfo, HistoryRecord, Job, Lane, Status
from mulligan.core.outcome import (
    CancelObeyed,
    Expired,
    LeaseLost,
    Outcome,
    Raised,
    Released,
    Requeued,
    Snoozed,
    Succeeded,
    Unstorable,
)
from mulligan.policy.adaptive import times
from mulligan.policy.checks import SECONDS_MAX, SECONDS_MIN, span
from mulligan.policy.error_info import fingerprint
from mulligan.policy.retry import ResolvedPolicy, RetryPolicy
from mulligan.policy.rules import SNOOZE_DEFAULT_S

WHY_CHARS_MAX = 1_000
DELAY_MIN_US = round(SECONDS_MIN * SECOND_US)
DELAY_MAX_US = SECONDS_MAX * SECOND_US
NO_CODE = "the task's own rules are not at hand here, so the frozen numbers decide"
NO_BUDGET = "the retry budget is spent, and its rule is to fail"


class Case(msgspec.Struct, frozen=True):
    """What a decision is made from, besides the outcome."""

    job: Job
    policy: ResolvedPolicy
    now_us: int
    rng: Random
    signals: Signals

    @property
    def may_run_again(self) -> bool:
        """Whether the limit of executions allows one more."""
        return self.job.max_retries is None or self.job.attempts < self.job.max_retries + 1


class Fate(msgspec.Struct, frozen=True):
    """What an outcome makes of a job. What is not given stays as it is."""

    cause: Cause
    status: Status
    why: str
    lane: Lane | UnsetType = UNSET
    delay_us: int = 0
    last_delay_us: int | None | UnsetType = UNSET
    error: ErrorInfo | None = None  # of this execution; the job keeps it too if it is a failure's
    counters: dict[str, int] = {}


def decide(
    job: Job,
    outcome: Outcome,
    policy: RetryPolicy,
    signals: Signals,
    rng: Random,
    *,
    settle_id: str,
    worker: str = "",
    started_at_us: int | None = None,
) -> Change:
    """The change that the outcome of one claim (or an operator's wish) makes to its job."""
    if type(outcome) is Succeeded:
        return success(job, outcome, signals.now_us, settle_id=settle_id, worker=worker, started_at_us=started_at_us)
    case = Case(job, policy.filled(), max(signals.now_us, job.read_at_us), rng, signals)
    fate = _FATES[type(outcome)](case, outcome)
    by = outcome.by or worker if type(outcome) is Requeued else worker
    ran_us = 0 if started_at_us is None else max(0, signals.now_us - started_at_us)
    return _change(job, fate, _guard(job, outcome), settle_id, by, started_at_us, ran_us)


def success(job: Job, outcome: Succeeded, now_us: int, *, settle_id: str, worker: str = "", started_at_us: int | None = None) -> Change:
    """The change of a success: there is nothing to weigh, and nothing to record."""
    return Change(
        job.id,
        job.queue,
        job.task,
        Held(job.fence),
        settle_id,
        "success",
        "done",
        job.lane,
        job.attempts,
        job.failures,
        job.crashes,
        job.snoozes,
        job.releases,
        job.generation,
        result_json=outcome.result_json,
        worker=worker,
        ran_us=now_us - started_at_us if started_at_us is not None and now_us > started_at_us else 0,
    )


def _change(job: Job, fate: Fate, guard: Guard, settle_id: str, worker: str, started_at_us: int | None, ran_us: int) -> Change:
    """The full field set of the job's next state, and the record of how it came to it."""
    counted = fate.counters.get
    generation = counted("generation", job.generation)
    why = storable_text(fate.why, WHY_CHARS_MAX)
    record = HistoryRecord(
        generation,
        job.fence,
        0 if fate.cause == "requeue" else job.attempts,
        fate.cause,
        worker,
        started_at_us,
        None,
        fate.error,
        fate.delay_us if fate.status == "pending" else None,
        why,
    )
    return Change(
        job.id,
        job.queue,
        job.task,
        guard,
        settle_id,
        fate.cause,
        fate.status,
        job.lane if fate.lane is UNSET else fate.lane,
        counted("attempts", job.attempts),
        counted("failures", job.failures),
        counted("crashes", job.crashes),
        counted("snoozes", job.snoozes),
        counted("releases", job.releases),
        generation,
        fate.delay_us,
        job.last_delay_us if fate.last_delay_us is UNSET else fate.last_delay_us,
        job.last_error if fate.error is None or _is_free(fate) else fate.error,
        None,
        record,
        worker,
        why,
        ran_us,
    )


def _guard(job: Job, outcome: Outcome) -> Guard:
    if type(outcome) is Requeued:
        return Dead(job.generation)
    if type(outcome) is LeaseLost and outcome.lapsed:
        return Lapsed(job.fence)  # a renewal in between wins
    return Held(job.fence)


def _is_free(fate: Fate) -> bool:
    """A snooze that goes on is no failure, even where an error led to it: the job keeps the error it had."""
    return fate.cause == "snooze" and fate.status == "pending"


# --- one function per outcome --------------------------------------------------------------------------------------


def _raised(case: Case, outcome: Raised) -> Fate:
    told = _joined(outcome.rule, NO_CODE) if outcome.code_missing else outcome.rule
    if outcome.ruling == "snooze":
        return _snooze(case, SNOOZE_DEFAULT_S * SECOND_US if outcome.after_us is None else outcome.after_us, told, outcome.error)
    failures = case.job.failures + 1
    cause: Cause = "retry asked" if outcome.asked else "timeout" if outcome.timed_out else "failure"
    head = f"failure {failures} of {_executions(case.job, failures)}"
    counters = {"failures": failures}
    if outcome.ruling == "give_up":
        return _failed(cause, _joined(f"{head}: given up for good", told), outcome.error, counters)
    if not case.may_run_again:
        return _failed(cause, _joined(f"{head}: no retry is left", told), outcome.error, counters)
    if case.job.crashes >= case.policy.max_crashes:
        return _failed(cause, _joined(f"{head}: it has crashed too often to run again", told), outcome.error, counters)
    if outcome.after_us is None:
        delay_us, how, last_delay_us = _backoff(case, failures)
    else:
        delay_us, how = _asked_wait(case, outcome.after_us)
        last_delay_us = UNSET
    why = f"{head}: {how}; {told}" if told else f"{head}: {how}"
    fate = _again(case, cause, delay_us, why, outcome.error, counters, "retry", last_delay_us)
    if fate.status == "pending" and case.signals.over_budget == "fail":
        return _failed(cause, _joined(f"{head}: {NO_BUDGET}", told), outcome.error, counters)
    return fate


def _snoozed(case: Case, outcome: Snoozed) -> Fate:
    return _snooze(case, outcome.delay_us, outcome.message, None)


def _snooze(case: Case, wished_us: int, told: str, error: ErrorInfo | None) -> Fate:
    """Not now. The attempt is given back, so that waiting spends no retry; the number of snoozes has a limit of its own."""
    job, limit = case.job, case.policy.max_snoozes
    snoozes = job.snoozes + 1
    counters = {"snoozes": snoozes, "attempts": max(0, job.attempts - 1)}
    if snoozes > limit:
        why = _joined(f"snoozed out: snooze {snoozes}, and {limit} are allowed", told)
        return _failed("snooze", why, error or _own_error("mulligan.SnoozedOut", why, "snoozed out", case.now_us), counters)
    delay_us = min(max(wished_us, DELAY_MIN_US), DELAY_MAX_US)
    why = _joined(f"snooze {snoozes} of at most {limit}: {span(delay_us / SECOND_US)}, which spends no retry", told)
    return _again(case, "snooze", delay_us, why, error, counters, UNSET, UNSET)


def _released(case: Case, outcome: Released) -> Fate:
    job = case.job
    counters = {"releases": job.releases + 1, "attempts": max(0, job.attempts - 1)}
    delay_us = min(max(outcome.delay_us, 0), DELAY_MAX_US)
    when = f"due again in {span(delay_us / SECOND_US)}" if delay_us else "due again at once"
    return Fate(
        cause="release", status="pending", why=f"given back uncounted, {when}: {outcome.reason}", delay_us=delay_us, counters=counters
    )


def _cancelled(case: Case, outcome: CancelObeyed) -> Fate:  # noqa: ARG001 - one signature for all outcomes
    return Fate(cause="cancel", status="cancelled", why=_joined("cancelled", outcome.reason))


def _crashed(case: Case, outcome: LeaseLost) -> Fate:
    job, limit = case.job, case.policy.max_crashes
    crashes = job.crashes + 1
    counters = {"crashes": crashes}
    error = _own_error("mulligan.Crashed", outcome.reason, "crashed", case.now_us)
    head = f"crash {crashes} of at most {limit}, {outcome.reason}"
    if crashes >= limit:
        return _failed("crash", f"crashed: {head}", error, counters)
    if not case.may_run_again:
        return _failed("crash", f"crashed: {head}; no retry is left of {_executions(job, job.attempts)}", error, counters)
    if crashes == 1:  # most crashes are deployments and lost hosts, which are no fault of the job
        return _again(case, "crash", 0, f"{head}: the first one, so it runs again at once", error, counters, "retry", UNSET)
    delay_us, how, last_delay_us = _backoff(case, crashes)
    return _again(case, "crash", delay_us, f"{head}: {how}", error, counters, "retry", last_delay_us)


def _expired(case: Case, outcome: Expired) -> Fate:  # noqa: ARG001 - one signature for all outcomes
    why = f"too old: claimed {_age(case)} after it first fell due, beyond its maximum age; not run"
    return _failed("expired", why, _own_error("mulligan.Expired", why, "too old", case.now_us), {})


def _unstorable(case: Case, outcome: Unstorable) -> Fate:
    why = f"unstorable: the store refuses to keep the outcome: {outcome.reason}"
    return _failed("unstorable", why, _own_error("mulligan.Unstorable", outcome.reason, "unstorable", case.now_us), {})


def _requeued(case: Case, outcome: Requeued) -> Fate:
    fresh_start = {"attempts": 0, "failures": 0, "crashes": 0, "snoozes": 0, "releases": 0, "generation": case.job.generation + 1}
    delay_us = min(max(outcome.delay_us, 0), DELAY_MAX_US)
    why = f"requeued by {outcome.by or 'an operator'}: all limits start anew, in generation {case.job.generation + 1}"
    return Fate(cause="requeue", status="pending", why=why, lane="retry", delay_us=delay_us, last_delay_us=None, counters=fresh_start)


_FATES: dict[type, Callable[[Case, Any], Fate]] = {
    Raised: _raised,
    Snoozed: _snoozed,
    Released: _released,
    CancelObeyed: _cancelled,
    LeaseLost: _crashed,
    Expired: _expired,
    Unstorable: _unstorable,
    Requeued: _requeued,
}


# --- what they share -----------------------------------------------------------------------------------------------


def _again(
    case: Case,
    cause: Cause,
    delay_us: int,
    why: str,
    error: ErrorInfo | None,
    counters: dict[str, int],
    lane: Lane | UnsetType,
    last_delay_us: int | None | UnsetType,
) -> Fate:
    """Pending once more, unless the job would be too old by then."""
    max_age_us = case.policy.max_age_us if case.job.max_age_us is None else case.job.max_age_us
    # A job claimed at exactly its maximum age is expired, so the next run has to fall before it.
    if max_age_us is not None and case.now_us + delay_us >= case.job.due_first_us + max_age_us:
        why = f"too old: in {span(delay_us / SECOND_US)} it would be beyond its maximum age of {span(max_age_us / SECOND_US)}; {why}"
        return _failed(cause, why, error or _own_error("mulligan.Expired", why, "too old", case.now_us), counters)
    return Fate(cause, "pending", why, lane, delay_us, last_delay_us, error, counters)


def _failed(cause: Cause, why: str, error: ErrorInfo, counters: dict[str, int]) -> Fate:
    return Fate(cause=cause, status="failed", why=why, error=error, counters=counters)


def _backoff(case: Case, n: int) -> tuple[int, str, int | UnsetType]:
    """The wait in microseconds, how it came about, and what of it the policy chose, which the next one may build on."""
    last_us, signals = case.job.last_delay_us, case.signals
    delay_s, how = case.policy.choose(n, case.rng, None if last_us is None else last_us / SECOND_US, signals)
    chosen_us = max(DELAY_MIN_US, round(delay_s * SECOND_US))
    if signals.over_budget != "backoff" or signals.stretch <= 1:
        return chosen_us, how, chosen_us
    # Beyond the cap, too: it bounds what one job waits for its own sake, and here all retries together are too many.
    delay_us = round(min(chosen_us * signals.stretch, DELAY_MAX_US))
    return delay_us, _joined(how, f"x {times(signals.stretch)} to {span(delay_us / SECOND_US)}, as the retry budget is spent"), chosen_us


def _asked_wait(case: Case, wished_us: int) -> tuple[int, str]:
    """The wait a handler or a server asks for, cut to what the policy lets others ask."""
    longest_us = case.policy.max_retry_after_us
    if wished_us > longest_us:
        return longest_us, f"waits {span(longest_us / SECOND_US)}, cut from {span(wished_us / SECOND_US)} by max_retry_after"
    delay_us = max(wished_us, DELAY_MIN_US)
    return delay_us, f"waits {span(delay_us / SECOND_US)} as asked"


def _executions(job: Job, counted: int) -> str:
    """The limit in words, and how much of it is used where that does not follow from the count before it."""
    return _limit_in_words(job.max_retries, None if job.attempts == counted else job.attempts)


@lru_cache(maxsize=1_000)
def _limit_in_words(max_retries: int | None, used: int | None) -> str:
    limit = "unlimited executions" if max_retries is None else f"at most {max_retries + 1} executions"
    return limit if used is None else f"{limit}, {used} used"


def _age(case: Case) -> str:
    return span(max(0, case.now_us - case.job.due_first_us) / SECOND_US)


def _own_error(name: str, message: str, code: str, at_us: int) -> ErrorInfo:
    """An error that no handler raised."""
    return ErrorInfo(
        type=name, message=storable_text(message, MESSAGE_CHARS_MAX), code=code, fingerprint=fingerprint(name, []), at_us=at_us
    )


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))
