"""What `mulligan doctor` finds about the limits of a fleet: breakers that hold, budgets that are spent, workers that disagree. Pure."""

from __future__ import annotations

from mulligan.admin import Status
from mulligan.cli.finding import Finding, ok, warn
from mulligan.cli.status_numbers import limit_name


def limit_findings(status: Status, hint: str = "") -> list[Finding]:
    """All findings."""
    return [*_breakers(status, hint), *_spent(status, hint), *_disagreeing(status)]


def _breakers(status: Status, hint: str) -> list[Finding]:
    found = []
    for breaker in status.breakers:
        if breaker.state == "open":
            reason = f": {breaker.reason}" if breaker.reason else ""
            by_hand = f"when it may go on: mulligan breakers close {breaker.name}{hint}"
            advice = by_hand if breaker.manual else "it is tried again by itself; mend the downstream"
            found.append(warn("breakers", f"the breaker of {breaker.name} is open{reason}: what depends on it waits", advice))
        elif breaker.held_until is not None:
            text = f"{breaker.name} asked to be left alone until {breaker.held_until:%Y-%m-%d %H:%M:%S}: what depends on it waits"
            found.append(warn("breakers", text, "nothing; or ask its owners for a higher limit"))
    return found or [ok("breakers", "no downstream is left alone")]


def _spent(status: Status, hint: str) -> list[Finding]:
    waiting = {queue.region for queue in status.queues if queue.retry_ready}
    spent = [limit for limit in status.limits if limit.kind == "budget" and limit.is_spent and (limit.queue or "") in (waiting | {""})]
    advice = f"mend what fails (mulligan events --kind FAILED{hint}), or give it more: mulligan configure QUEUE --budget 200/m{hint}"
    return [warn("retry budgets", f"{limit_name(limit)} is spent: its retries wait for tokens", advice) for limit in spent if waiting] or [
        ok("retry budgets", "none is spent while retries wait")
    ]


def _disagreeing(status: Status) -> list[Finding]:
    """Queues whose workers keep different limits: then none of them can be relied on."""
    found = []
    for queue in sorted({name for worker in status.workers for name in worker.limits if name}):
        kept = {(worker.claims.get(queue), worker.limits[queue]) for worker in status.workers if queue in worker.limits}
        if len(kept) > 1:
            text = f"the workers of queue {queue} were given different settings: its limits hold only as far as they agree"
            found.append(warn("settings", text, "deploy the same code to all; or set them for all at once: mulligan configure"))
    return found or [ok("settings", "all workers of a queue keep the same limits")]
