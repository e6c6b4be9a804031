"""What must hold for inserts, cancels, schedules, reads, removals and pauses, judged by the accounts."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from mulligan.core.contract import CancelAnswer, Inserted
from mulligan.core.job import Job, NewJob, Status
from mulligan.core.schedule import Tick
from mulligan.sim.process import Process
from mulligan.sim.watch import Watch


def saw_insert(watch: Watch, jobs: Sequence[NewJob], *, answer: Sequence[Inserted], process: Process | None = None) -> None:  # noqa: ARG001 - all are told who asked
    """Jobs were stored, or their ids or keys known already."""
    now_us = watch.now_us()
    for new, told in zip(jobs, answer, strict=True):
        known = watch.accounts.get(new.id)
        owner = watch.owner_of(new.queue, new.unique_key)
        if known is not None:
            watch.note("inserted again", known)
            watch.check("S24", "" if told.created and told.id == new.id else f"a repeated insert is answered as {told}", known)
        elif owner is not None:
            watch.note("its key is asked for", owner)
            kept = not told.created and told.id == owner.new.id
            watch.check("S10", "" if kept else "a second live job of its unique key was stored", owner)
        else:
            watch.check("S10", "" if told.created and told.id == new.id else f"a new job is answered as one that is there: {told}")
            account = watch.open_account(new, now_us)
            watch.note(f"inserted into {new.queue} level {new.priority} due in {(account.run_at_us or 0) - now_us} us", account)
    watch.saw("insert", str(len(jobs)))


def saw_restore(watch: Watch, jobs: Sequence[Job], *, answer: Sequence[bool], process: Process | None = None) -> None:  # noqa: ARG001 - all are told who asked
    """Jobs of another store were written as they were there."""
    for job, told in zip(jobs, answer, strict=True):
        watch.check("S9", "" if told == (job.id not in watch.accounts) else f"a restore is answered {told}")
        if told:
            new = NewJob(**{name: getattr(job, name) for name in NewJob.__struct_fields__ if hasattr(job, name)}, eta_us=job.run_at_us)
            account = watch.open_account(new, watch.now_us())
            account.lane = job.lane
            watch.note(f"restored into the {job.lane} lane", account)
    watch.saw("restore", str(len(jobs)))


def saw_cancel(watch: Watch, ids: Sequence[str], *, answer: Sequence[CancelAnswer], process: Process | None = None) -> None:  # noqa: ARG001 - all are told who asked
    """Cancels were asked for."""
    now_us = watch.now_us()
    for job_id, told in zip(ids, answer, strict=True):
        account = watch.accounts.get(job_id)
        if account is None:
            watch.check("S20", "" if told == "missing" else f"a cancel of a job that is not stored is answered {told}")
            continue
        status: Status = account.status
        wanted = {"pending": "cancelled", "processing": "requested", "cancelled": "cancelled"}.get(status, "finished")
        watch.note(f"cancel: {told}", account)
        watch.check("S20", "" if told == wanted else f"a cancel of a {status} job is answered {told}", account)
        if status == "pending":
            account.status, account.run_at_us, account.cancel_requested, account.finished_us = "cancelled", None, True, now_us
            watch.must_change(account)
        elif status == "processing":
            account.cancel_requested = True
            account.cancelled_s = min(account.cancelled_s, watch.time_s())
            watch.must_change(account)
    watch.saw("request_cancel", str(len(ids)))


def saw_fire(watch: Watch, ticks: Sequence[Tick], *, answer: Sequence[bool], process: Process | None = None) -> None:
    """Schedules were moved, and jobs made of their ticks."""
    now_us = watch.now_us()
    for tick, applied in zip(ticks, answer, strict=True):
        schedule = watch.schedules.get(tick.name)
        stands = schedule is not None and not schedule.paused and schedule.next_tick_us == tick.expected_us
        place = 0 if schedule is None else (tick.expected_us - schedule.anchor_us) // 1_000
        watch.note(f"tick {place} of {tick.name}: {applied}")
        watch.check(
            "S18",
            ""
            if applied == stands
            else f"tick {place} of {tick.name} {'fires though the schedule stands elsewhere or is paused' if applied else 'does not fire'}",
        )
        if not applied or schedule is None:
            continue
        watch.schedules[tick.name] = replace(schedule, next_tick_us=tick.next_tick_us)
        if tick.job is None:
            continue
        if watch.owner_of(tick.job.queue, tick.job.unique_key) is None and tick.job.id not in watch.accounts:
            watch.open_account(tick.job, now_us)
        name = (tick.name, tick.job.tick_us or 0)
        watch.ticks[name] = watch.ticks.get(name, 0) + 1
        watch.check("S18", f"two jobs of one tick of {tick.name}" if watch.ticks[name] > 1 else "")
        # Who fires goes by the time that the store told it; only a clock that was set back since shows less than that.
        told_us = now_us if process is None else max(now_us, process.told_us)
        due = tick.job.tick_us is not None and tick.job.tick_us <= told_us
        watch.check("S18", "" if due else f"a tick of {tick.name} fires before its time")
    watch.saw("fire", str(len(ticks)))


def saw_get(watch: Watch, ids: Sequence[str], *, answer: Sequence[Job | None], process: Process | None = None) -> None:  # noqa: ARG001 - all are told who asked
    """Jobs were read: what is told of a job is its state, and the result comes in the same read as "done"."""
    for job_id, job in zip(ids, answer, strict=True):
        account = watch.accounts.get(job_id)
        if account is None or job is None:
            watch.check(
                "S9", "" if account is None and job is None else "a stored job cannot be read, or one that is not stored can", account
            )
            continue
        watch.check(
            "S19",
            "" if job.status != "done" or job.result_json == account.result_json else "a done job is read without its result",
            account,
        )
    watch.saw("get", str(len(ids)))


def saw_overdue(watch: Watch, limit: int, *, answer: Sequence[Job], process: Process | None) -> None:
    """Lapsed leases were asked for: all of them are told, and no other."""
    now_us = watch.now_us()
    lapsed = {a.new.id for a in watch.accounts.values() if a.status == "processing" and a.lease_us <= now_us}
    told = {job.id for job in answer}
    numbers = sorted(watch.accounts[job_id].number for job_id in told if job_id in watch.accounts)
    watch.saw("overdue", f"by {process.number if process else '-'}: {numbers}")
    watch.check("S22", "" if told <= lapsed else "a job is told to be overdue whose lease has not ended")
    watch.check("L1", "" if len(told) == min(limit, len(lapsed)) else f"{len(lapsed)} leases have ended, and {len(told)} are told")


def saw_prune(watch: Watch, status: Status, older_than_us: int, limit: int, *, answer: int, process: Process | None = None) -> None:  # noqa: ARG001
    """Jobs were removed: finished ones of that status, old enough, and as many as told."""
    now_us, count = watch.now_us(), answer
    gone = [account for job_id, account in watch.accounts.items() if job_id not in watch.rows]
    watch.check(
        "S9", "" if len(gone) == count <= limit else f"a prune of {status} removed {len(gone)} jobs and told {count}, at most {limit}"
    )
    for account in gone:
        old = account.finished_us is not None and account.finished_us <= now_us - older_than_us
        watch.check("S9", "" if account.status == status and old else f"a prune of {status} took a {account.status} job", account)
        watch.note("pruned", account)
        watch.forget(account)
    watch.saw("prune", f"{status} {count}")
