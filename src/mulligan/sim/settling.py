"""What must hold for settlements: who may write, and whether what is written follows from what the handler did and from the policy."""

from __future__ import annotations

from collections.abc import Sequence

from mulligan.core.change import Change, Dead, Lapsed, Verdict
from mulligan.core.clock import SECOND_US
from mulligan.core.job import Status
from mulligan.sim.account import Account, Ending
from mulligan.sim.process import Process
from mulligan.sim.watch import Watch

DELAY_MIN_US = 1_000
ROUNDING_US = 2  # times are floats on a loop and whole microseconds in a store
_ERRORS = frozenset({"failure", "timeout", "retry asked", "crash", "expired"})  # causes that leave an error
_COUNTED = {
    # By cause: what is added to attempts, failures, crashes, snoozes, releases.
    "success": (0, 0, 0, 0, 0),
    "failure": (0, 1, 0, 0, 0),
    "timeout": (0, 1, 0, 0, 0),
    "retry asked": (0, 1, 0, 0, 0),
    "snooze": (-1, 0, 0, 1, 0),
    "release": (-1, 0, 0, 0, 1),
    "cancel": (0, 0, 0, 0, 0),
    "crash": (0, 0, 1, 0, 0),
    "expired": (0, 0, 0, 0, 0),
    "unstorable": (0, 0, 0, 0, 0),
}


def saw_settle(watch: Watch, changes: Sequence[Change], *, answer: Sequence[Verdict], process: Process | None) -> None:
    """A batch of settlements was carried out."""
    now_us = watch.now_us()
    watch.saw("settle", f"by {process.number if process else '-'}: {len(changes)}")
    for change, verdict in zip(changes, answer, strict=True):
        account = watch.accounts.get(change.job_id)
        if account is None:
            watch.check("S4", "a change of a job that is not stored was accepted" if verdict.applied else "")
            continue
        refusal = refusal_of(watch, account, change, now_us)
        is_repeat = change.settle_id == account.settle_id
        words = f"{change.cause} to {change.status}"
        guard = f"{type(change.guard).__name__} {change.guard.generation if isinstance(change.guard, Dead) else change.guard.fence}"
        watch.note(f"{words} under {guard}: {'repeat' if is_repeat else refusal or 'applied'}", account)
        if verdict.applied and refusal and not is_repeat:
            rule = "S22" if isinstance(change.guard, Lapsed) else "S4"
            watch.fail(rule, f"{words} under {guard} was accepted: {refusal}", account)
        if not verdict.applied and (is_repeat or not refusal):
            why = "it was applied before" if is_repeat else "nothing stands against it"
            watch.fail("S24" if is_repeat else "S4", f"{words} under {guard} was refused ({verdict.reason}) though {why}", account)
        watch.checks["S22" if isinstance(change.guard, Lapsed) else "S4"] += 1
        watch.checks["S24"] += is_repeat
        if refusal:
            continue
        judge(watch, account, change, process, now_us)
        write(account, change, now_us)
        watch.must_change(account)
        watch.check(
            "S4", "" if verdict.status == account.status else f"the verdict says {verdict.status}, and it is {account.status}", account
        )


def refusal_of(watch: Watch, account: Account, change: Change, now_us: int) -> str:
    """Why a change may not be applied; empty if it may."""
    guard = change.guard
    if isinstance(guard, Dead):
        if account.status != "failed" or account.generation != guard.generation:
            return f"it is {account.status} in generation {account.generation}"
        return "its unique key is taken" if watch.owner_of(account.new.queue, account.new.unique_key) is not None else ""
    if account.status != "processing" or account.fence != guard.fence:
        return f"it is {account.status} under fence {account.fence}"
    if isinstance(guard, Lapsed) and account.lease_us > now_us:
        return "its lease has not ended"
    return ""


def write(account: Account, change: Change, now_us: int) -> None:
    """Enters an applied change into the account."""
    requeued = isinstance(change.guard, Dead)
    status = "cancelled" if change.status == "pending" and account.cancel_requested and not requeued else change.status
    account.status, account.lane = status, change.lane
    account.run_at_us = now_us + change.delay_us if status == "pending" else None
    account.finished_us = None if status == "pending" else now_us
    if requeued:
        account.attempts = account.failures = account.crashes = account.snoozes = account.releases = 0
        account.generation += 1
        account.cancel_requested = False
        account.deaths = account.lapses = 0
        account.due_first_us = account.run_at_us or 0
    else:
        more = _COUNTED[change.cause]
        account.attempts += more[0]
        account.failures += more[1]
        account.crashes += more[2]
        account.snoozes += more[3]
        account.releases += more[4]
        account.lapses += change.cause == "crash"
    account.records += change.cause != "success"
    account.settle_id = change.settle_id
    account.last_error = change.error
    account.result_json = None
    if change.cause == "success" and (ending := account.ended.get(account.fence)) is not None:
        account.result_json = ending.result_json


def judge(watch: Watch, account: Account, change: Change, process: Process | None, now_us: int) -> None:
    """Whether the change is what the outcome of this claim calls for."""
    ending = account.ended.get(account.fence)
    watch.check("S6", _cause(account, change, ending, process), account)
    _judge_age(watch, account, change, ending, now_us)
    watch.check("S7", _counters(account, change), account)
    watch.check("S16", _delay(account, change, ending), account)
    rule, problem = _status(account, change, ending)
    watch.check(rule, problem, account)
    watch.check("S13", _record(account, change), account)
    watch.check("S12", _lane(account, change), account)
    if change.cause == "crash":
        watch.check("S22", "" if isinstance(change.guard, Lapsed) else "taken over without its lease having ended", account)
        watch.check("L8", _needless(watch, account), account)
    if change.cause == "timeout":
        ran_s = watch.time_s() - account.started.get(account.fence, 0.0)
        rate = account.holder.rate if account.holder is not None else 1.0
        early = account.new.timeout_us is None or ran_s * rate * SECOND_US < account.new.timeout_us - 1_000
        watch.check("S16", f"timed out after {ran_s:.3f} s" if early else "", account)


def _judge_age(watch: Watch, account: Account, change: Change, ending: Ending | None, now_us: int) -> None:
    """Nothing ends for its age before its time, and nothing is planned for when it will be too old.

    Who decides goes by its own estimate of the store's time. That is not before the claim, as its answer told that time; and it is not
    after the settlement, but for what a fast clock has gained since the claim. A step of the store's clock in between upsets both.
    """
    if account.new.max_age_us is None or change.cause == "requeue" or watch.stepped_since(account.term.claimed_s):
        return
    if change.cause == "expired" or (change.status == "failed" and _wanted(account, change, ending) == "pending"):
        rate = 1.0 if change.cause == "crash" or account.holder is None else account.holder.rate
        gained_us = max(0.0, rate - 1.0) * (watch.time_s() - account.term.claimed_s) * SECOND_US + ROUNDING_US
        wait_us = 0 if change.cause == "expired" else _waits(account, change, ending)[1]
        age_us = now_us - account.due_first_us
        early = not account.is_too_old(now_us + wait_us + round(gained_us))
        told = f"{change.cause} ends it as too old at an age of {age_us} us, and it may get {account.new.max_age_us}"
        watch.check("S7", told if early else "", account)
    elif change.status == "pending" and change.cause != "release":
        late = account.is_too_old(account.term.claimed_us + change.delay_us)
        watch.check("S7", f"{change.cause} sends it to wait until it will be too old" if late else "", account)


def _cause(account: Account, change: Change, ending: Ending | None, process: Process | None) -> str:
    """A cause must be what the handler did under this fence, as it was seen from outside."""
    started = account.fence in account.started
    kind = None if ending is None else ending.kind
    fits: bool
    match change.cause:
        case "success":
            fits = kind == "ok"
        case "failure":
            fits = kind in ("error", "fail", "bad result")
        case "timeout":
            fits = kind == "told"
        case "retry asked":
            fits = kind == "retry"
        case "snooze":
            fits = kind == "snooze"
        case "cancel":
            fits = kind == "cancel" or (account.cancel_requested and kind != "ok")
        case "release":
            fits = not started or (kind == "told" and process is not None and process.stopping)
        case "crash":
            fits = True
        case "expired":
            fits = not started and account.new.max_age_us is not None  # whether it is old enough is judged by its age
        case "requeue":
            fits = account.status == "failed"
        case _:
            fits = False
    if fits:
        return ""
    did = f"the handler ended: {kind}" if kind else "the handler has not ended" if started else "the handler was not started"
    return f"settled as {change.cause} under fence {account.fence}, and {did}"


def _counters(account: Account, change: Change) -> str:
    if isinstance(change.guard, Dead):
        wanted: tuple[int, ...] = (0, 0, 0, 0, 0, account.generation + 1)
    else:
        wanted = tuple(a + b for a, b in zip(account.counters(), (*_COUNTED[change.cause], 0), strict=True))
    got = (change.attempts, change.failures, change.crashes, change.snoozes, change.releases, change.generation)
    names = "attempts, failures, crashes, snoozes, releases, generation"
    return "" if got == wanted else f"after {change.cause} {names} are {got}, and ought to be {wanted}"


def _may_run_again(account: Account) -> bool:
    limit = account.numbers.max_retries
    return limit is None or account.attempts < limit + 1


def _wanted(account: Account, change: Change, ending: Ending | None) -> Status:
    """Which status the cause leads to, but for the job's age."""
    numbers = account.numbers
    match change.cause:
        case "success":
            return "done"
        case "cancel":
            return "cancelled"
        case "expired" | "unstorable":
            return "failed"
        case "failure" | "timeout" | "retry asked":
            given_up = ending is not None and ending.kind in ("fail", "bad result")
            is_last = given_up or not _may_run_again(account) or account.crashes >= numbers.max_crashes
        case "crash":
            is_last = account.crashes + 1 >= numbers.max_crashes or not _may_run_again(account)
        case "snooze":
            is_last = account.snoozes + 1 > numbers.max_snoozes
        case _:
            is_last = False
    return "failed" if is_last else "pending"


def _status(account: Account, change: Change, ending: Ending | None) -> tuple[str, str]:
    """Whether the status is the one that the cause leads to, and under which rule that falls. Of its age it is told elsewhere."""
    numbers, wanted = account.numbers, _wanted(account, change, ending)
    rule = "S8" if change.cause == "crash" else "S7"
    may_age = account.new.max_age_us is not None and change.cause != "release"
    if change.status == wanted or (may_age and change.status == "failed" and wanted == "pending"):
        return rule, ""
    limit = "any number" if numbers.max_retries is None else numbers.max_retries + 1
    used = f"{account.attempts} attempts of {limit}, {account.crashes} crashes of {numbers.max_crashes}"
    return rule, f"{change.cause} makes it {change.status}, and ought to make it {wanted} ({used} before)"


def _delay(account: Account, change: Change, ending: Ending | None) -> str:
    """A wait is what was asked for, or lies within the bounds of the policy."""
    if change.status != "pending":
        return ""
    low, high = _waits(account, change, ending)
    return "" if low <= change.delay_us <= high else f"{change.cause} waits {change.delay_us} us, and ought to wait {low} to {high}"


def _waits(account: Account, change: Change, ending: Ending | None) -> tuple[int, int]:
    """The shortest and the longest wait that may follow, in microseconds."""
    numbers = account.numbers
    longest_us = max(DELAY_MIN_US, numbers.longest_us(account.failures + 1))
    match change.cause:
        case "release" | "requeue":
            return 0, 0
        case "snooze":
            asked_us = max(DELAY_MIN_US, round((ending.seconds if ending else 0.0) * SECOND_US))
            return asked_us, asked_us
        case "retry asked" if ending is not None and ending.seconds:
            asked_us = min(max(DELAY_MIN_US, round(ending.seconds * SECOND_US)), round(numbers.retry_after_s * SECOND_US))
            return asked_us, asked_us
        case "crash":
            return (0, 0) if account.crashes == 0 else (DELAY_MIN_US, max(DELAY_MIN_US, numbers.longest_us(account.crashes + 1)))
        case "failure" | "timeout" if numbers.jitter == "none":
            return longest_us, longest_us
    return DELAY_MIN_US, longest_us


def _record(account: Account, change: Change) -> str:
    """Every settlement but a success tells its fence and its outcome in a record."""
    record = change.record
    if change.cause == "success":
        return ""
    if record is None:
        return f"{change.cause} leaves no record"
    if change.cause in _ERRORS and (change.error is None or change.error != record.error):
        return f"{change.cause} leaves no error, or another one than its record"
    if change.cause not in _ERRORS and change.status == "pending" and change.error != account.last_error:
        return f"{change.cause} changes the error of the last failure"
    is_requeue = change.cause == "requeue"  # by an operator, who may have read the job a while ago
    if record.outcome != change.cause or (record.fence != account.fence and not is_requeue):
        return f"the record of {change.cause} under fence {account.fence} says {record.outcome} under fence {record.fence}"
    return ""


def _lane(account: Account, change: Change) -> str:
    """Failures and crashes send a job to the retry lane; a snooze and a release leave it where it is."""
    if change.status != "pending":
        return ""
    wanted = account.lane if change.cause in ("snooze", "release") else "retry"
    return "" if change.lane == wanted else f"{change.cause} sends it to the {change.lane} lane"


def _needless(watch: Watch, account: Account) -> str:
    """A lease may run out only if something kept its holder from renewing it."""
    holder = account.holder
    if holder is None or holder.state != "running" or holder.stopping or account.told_lost or not account.heard:
        return ""
    written_s = account.term.written_s
    if max(holder.disturbed_s, watch.stepped_s) >= written_s:
        return ""
    return f"its lease ran out although process {holder.number} was well and the store answered; last renewed at {written_s:.3f}"
