"""What holds a due job back although a worker has room: a breaker, a budget, a rate, slots. In sentences; pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mulligan.cli.times import seconds_text, when
from mulligan.core.clock import SECOND_US, datetime_to_us
from mulligan.core.job import Job
from mulligan.fleet import LimitStatus
from mulligan.steering import BreakerStatus

_OPEN = {
    "open": "is open",
    "half_open": "is half open: one call at a time is let through to see whether it is well again",
    "closing": "is closing: calls are let through again, more and more of them",
}


def holding(job: Job, limits: Sequence[LimitStatus], breakers: Sequence[BreakerStatus], *, hint: str = "") -> list[str]:
    """Why it is not started, one sentence for each thing that is in the way now; none if nothing is."""
    own = next((breaker for breaker in breakers if breaker.name == job.depends_on), None)
    lines = [] if own is None else _breaker_lines(own, job.read_at_us, hint)
    return lines + [_limit_line(limit) for limit in limits if limit.is_spent]


def _breaker_lines(breaker: BreakerStatus, now_us: int, hint: str) -> list[str]:
    lines = []
    if breaker.held_until is not None:
        lines.append(f"It depends on {breaker.name}, which asked to be left alone until {_time(breaker.held_until, now_us)} (Retry-After).")
    words = _OPEN.get(breaker.state)
    if words is not None:
        until = f" until {_time(breaker.until, now_us)}" if breaker.until else ""
        by = f" by {breaker.by}" if breaker.by else ""
        reason = f" ({breaker.reason})" if breaker.reason else ""
        let_go = f" To let it through: mulligan breakers close {breaker.name}{hint}" if breaker.manual else ""
        opened = f" It was opened by hand{by}." if breaker.manual else ""
        lines.append(f"It depends on {breaker.name}, whose breaker {words}{until}{reason}.{opened} No attempts are spent.{let_go}")
    return lines


def _time(moment: datetime, now_us: int) -> str:
    return when(datetime_to_us(moment, "until"), now_us)


def _limit_line(limit: LimitStatus) -> str:
    if limit.kind == "slots":
        if limit.owner == "key":
            return f"{limit.most:g} with the concurrency key {limit.name} may run at once, and so many do: it starts when one of them ends."
        what = {"retry": "retries", "fresh": "fresh jobs", None: "jobs"}[limit.lane]
        return f"{limit.most:g} {what} of queue {limit.name} may run at once, and so many do: it starts when one of them ends."
    what = "retry budget" if limit.kind == "budget" else "rate limit"
    return f"The {what} of {limit.owner} {limit.name} is spent{_refill(limit)}: it starts when there is a token for it."


def _refill(limit: LimitStatus) -> str:
    if not limit.per_s:
        return ", and only fresh starts bring tokens in"
    return f", and one token comes in every {seconds_text(max(1 / SECOND_US, 1 / limit.per_s))}"
