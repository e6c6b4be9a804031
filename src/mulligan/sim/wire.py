"""What a process may say and what it has heard: rules for its calls as they leave it, and for the answers as they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mulligan.core.change import Change, Held
from mulligan.sim.process import Process
from mulligan.sim.watch import Watch


def sends(watch: Watch, process: Process, name: str, args: tuple[Any, ...]) -> None:
    """A call leaves a process."""
    if name == "claim":
        unheard = process.unheard
        new = unheard is not None and unheard != args[0] and not process.stopping
        watch.check("S24", "a claim goes out under a new id though the answer to the last one is not known" if new else "")
        process.unheard = args[0]
    elif name == "settle":
        _sends_changes(watch, process, args[0])


def _sends_changes(watch: Watch, process: Process, changes: Sequence[Change]) -> None:
    for change in changes:
        account = watch.accounts.get(change.job_id)
        if account is None or not isinstance(change.guard, Held):
            continue
        grip = (account.number, change.guard.fence)
        ended_s = account.ended_s.get(change.guard.fence)
        late = ended_s is not None and grip in process.lost and process.lost[grip] < ended_s
        watch.check("S4", f"its outcome under fence {grip[1]} is written by a holder that knew it was lost" if late else "", account)
        known = process.sent.setdefault(grip, change.settle_id)
        twice = known != change.settle_id and change.cause != "unstorable"
        watch.check("S24", f"its outcome under fence {grip[1]} is sent under two ids" if twice else "", account)


def hears(watch: Watch, process: Process, name: str, args: tuple[Any, ...], answer: Any) -> None:
    """An answer reaches a process."""
    if name == "claim":
        if process.unheard == args[0]:
            process.unheard = None
        for job in answer.jobs:
            account = watch.accounts.get(job.id)
            if account is not None and account.fence == job.fence:
                account.heard = True
    elif name == "now_us":
        process.told_us = answer
    elif name == "renew":
        for renewal in answer:
            account = watch.accounts.get(renewal.job_id)
            if account is not None and not renewal.held:
                process.lost.setdefault((account.number, renewal.fence), watch.time_s())
