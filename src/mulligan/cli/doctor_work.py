"""What `mulligan doctor` finds about the work: what waits for nobody, what is not retried, retried too often, or waits too long. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec

from mulligan.admin import Status
from mulligan.cli.doctor_limits import limit_findings
from mulligan.cli.finding import Finding, fail, ok, warn
from mulligan.cli.job_view import error_text
from mulligan.cli.times import ago, length
from mulligan.core.clock import SECOND_US
from mulligan.core.events import Event
from mulligan.core.job import Job
from mulligan.core.schedule import Schedule
from mulligan.policy.retry import thaw

GROUPS_SHOWN = 5
RETRIES_WINDOW_US = 60 * SECOND_US
RETRIES_WARN = 10  # more than so many of one task within the window, as for the warning in the log
DELAY_WARN_US = 900 * SECOND_US  # longer than the default policy ever waits
LATE_US = 60 * SECOND_US


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knows, read once."""

    now_us: int
    status: Status
    failed: Sequence[Job] = ()  # the newest of them
    waiting_retries: Sequence[Job] = ()  # the newest of them
    events: Sequence[Event] = ()
    schedules: Sequence[Schedule] = ()
    hint: str = ""  # what to add to a recommended command


def work_findings(evidence: Evidence) -> list[Finding]:
    """All findings, in the order in which trouble is best looked at."""
    return [
        *_workers(evidence),
        *_unserved(evidence),
        *_paused(evidence),
        *limit_findings(evidence.status, evidence.hint),
        *_unknown_tasks(evidence),
        *_stuck(evidence),
        *_late_schedules(evidence),
        *_failed(evidence),
        *_not_retried(evidence),
        *_retried_often(evidence),
        *_waiting_long(evidence),
    ]


def _workers(evidence: Evidence) -> list[Finding]:
    alive = evidence.status.workers
    if alive:
        slots = sum(worker.concurrency for worker in alive)
        return [ok("workers", f"{_count(len(alive), 'worker')} alive with {_count(slots, 'slot')}")]
    return [warn("workers", "no worker is alive", f"start one: mulligan worker MODULE:APP{evidence.hint}")]


def _unserved(evidence: Evidence) -> list[Finding]:
    served = {queue for worker in evidence.status.workers for queue in worker.queues}
    found = []
    for queue in evidence.status.queues:
        waiting = queue.queue_size + queue.retry_queue_size
        due = queue.ready + queue.retry_ready
        if queue.region in served or not waiting:
            continue
        text = (
            f"queue {queue.region}: {_count(waiting, 'job')} waiting ({due} due), and no worker serves it: nothing of it runs or is retried"
        )
        advice = f"start one: mulligan worker MODULE:APP --queues {queue.region}{evidence.hint}"
        found.append(fail("unserved queues", text, advice) if due else warn("unserved queues", text, advice))
    return found or [ok("unserved queues", "every queue with waiting jobs has a worker")]


def _paused(evidence: Evidence) -> list[Finding]:
    found = []
    for queue in evidence.status.queues:
        waiting = queue.queue_size + queue.retry_queue_size
        if queue.paused and waiting:
            reason = f" ({queue.pause_reason})" if queue.pause_reason else ""
            text = f"queue {queue.region} is paused{reason} while {_count(waiting, 'job')} wait"
            found.append(warn("paused queues", text, f"when it may go on: mulligan resume {queue.region}{evidence.hint}"))
    return found or [ok("paused queues", "no paused queue keeps jobs waiting")]


def _unknown_tasks(evidence: Evidence) -> list[Finding]:
    unaware: dict[str, list[str]] = defaultdict(list)
    for worker in evidence.status.workers:
        for task in worker.unknown_tasks:
            unaware[task].append(worker.id)
    advice = "deploy the code that registers it, or correct the name it is enqueued under"
    return [
        warn("unknown tasks", f"task {task} is not known to {', '.join(workers)}; its jobs go back for 30 s at a time", advice)
        for task, workers in sorted(unaware.items())
    ] or [ok("unknown tasks", "every task that was claimed is known")]


def _stuck(evidence: Evidence) -> list[Finding]:
    stuck = sum(queue.stuck for queue in evidence.status.queues)
    if not stuck:
        return [ok("stuck jobs", "no lease has ended unattended")]
    text = f"{_count(stuck, 'job')} running under a lease that has ended: the worker vanished or hangs"
    if evidence.status.workers:
        return [warn("stuck jobs", text, "look again in a few seconds: any worker takes them over; if they stay, report it")]
    return [fail("stuck jobs", text, f"no worker is alive to take them over; start one: mulligan worker MODULE:APP{evidence.hint}")]


def _late_schedules(evidence: Evidence) -> list[Finding]:
    late = [one for one in evidence.schedules if not one.paused and evidence.now_us - one.next_tick_us > LATE_US]
    return [
        warn(
            "schedules",
            f"schedule {one.name} should have made a job {ago(one.next_tick_us, evidence.now_us)}",
            "schedules tick inside workers; start one",
        )
        for one in late
    ]


# --- not retrying, too many retries, delays too long -----------------------------------------------------------------


def _failed(evidence: Evidence) -> list[Finding]:
    total = sum(queue.failed for queue in evidence.status.queues)
    if not total:
        return [ok("failed jobs", "none")]
    groups = Counter((job.task, job.last_error.type if job.last_error else "no error recorded") for job in evidence.failed)
    newest = {(job.task, job.last_error.type if job.last_error else "no error recorded"): job for job in reversed(evidence.failed)}
    found = []
    for (task, kind), number in groups.most_common(GROUPS_SHOWN):
        job = newest[(task, kind)]
        newest_ago = ago(job.finished_at_us, evidence.now_us)
        text = f"{_count(number, 'failed job')} of {task} with {kind}, the newest {newest_ago}: {error_text(job.last_error, 120)}"
        found.append(warn("failed jobs", text, f"mulligan why {job.id}{evidence.hint}"))
    if len(groups) > GROUPS_SHOWN:
        found.append(
            warn("failed jobs", f"and {len(groups) - GROUPS_SHOWN} more kinds of failure", f"mulligan jobs --status failed{evidence.hint}")
        )
    return found


def _not_retried(evidence: Evidence) -> list[Finding]:
    """Failed although retries were left: the error, the maximum age or the number of crashes decided."""
    early = [job for job in evidence.failed if job.remaining_retries is None or job.remaining_retries > 0]
    none_at_all = Counter(job.task for job in evidence.failed if job.max_retries == 0)
    found = []
    for task, number in Counter(job.task for job in early).most_common(GROUPS_SHOWN):
        job = next(job for job in early if job.task == task)
        text = f"{_count(number, 'job')} of {task} failed with retries left: it gives up on that error, was too old, or crashed too often"
        found.append(
            warn(
                "not retried", text, f"mulligan why {job.id}{evidence.hint} tells which; see give_up_on, retry_on and max_age of its policy"
            )
        )
    for task, number in none_at_all.most_common(GROUPS_SHOWN):
        found.append(
            warn(
                "not retried",
                f"{_count(number, 'job')} of {task} failed at the first error: its max_retries is 0",
                "raise it if that was not meant",
            )
        )
    return found or [ok("not retried", "no job failed with retries left")]


def _retried_often(evidence: Evidence) -> list[Finding]:
    since_us = evidence.now_us - RETRIES_WINDOW_US
    recent = Counter(event.task for event in evidence.events if event.kind == "RETRY_SCHEDULED" and event.at_us >= since_us)
    advice = (
        f"mulligan events --kind FAILED{evidence.hint} shows the errors; pause the queue, raise base and cap of the backoff, "
        "or give up on errors that never mend"
    )
    return [
        warn("many retries", f"{number} retries of {task} within the last minute", advice)
        for task, number in recent.most_common(GROUPS_SHOWN)
        if number > RETRIES_WARN
    ] or [ok("many retries", f"no task was retried more than {RETRIES_WARN} times within the last minute")]


def _waiting_long(evidence: Evidence) -> list[Finding]:
    long = [job for job in evidence.waiting_retries if job.run_at_us is not None and job.run_at_us - evidence.now_us > DELAY_WARN_US]
    found = []
    for task, number in Counter(job.task for job in long).most_common(GROUPS_SHOWN):
        job = max((job for job in long if job.task == task), key=lambda job: job.run_at_us or 0)
        wait = length((job.run_at_us or 0) - evidence.now_us)
        text = f"{_count(number, 'retry', 'retries')} of {task} wait for up to {wait} more; its policy: {thaw(job.policy, None).explain()}"
        found.append(warn("long delays", text, f"lower the cap of its backoff if that is too long; mulligan why {job.id}{evidence.hint}"))
    return found or [ok("long delays", f"no retry waits for more than {length(DELAY_WARN_US)}")]


def _count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
