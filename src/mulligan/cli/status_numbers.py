"""The numbers below the table of queues in `mulligan status`: what was served lately, what is left of the limits, which breakers hold."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mulligan.admin import QueueStatus, Status
from mulligan.cli.output import Cell, table_lines
from mulligan.cli.times import seconds_text
from mulligan.core.figures import FigureView
from mulligan.fleet import LimitStatus
from mulligan.steering import BreakerStatus

FLOW_TITLES = ("last 10 minutes", "claim", ">starts", ">retry share", ">average wait", ">oldest", ">retry success", ">saved")
LIMIT_TITLES = ("limit", ">left", ">of", ">per second")
BREAKER_TITLES = ("breaker", "state", "since", "until", "reason")


def number_lines(seen: Status, *, colour: bool) -> list[str]:
    """Up to three tables, each after an empty line; none for what there is nothing to tell of."""
    lines: list[str] = []
    flowing = [(queue, queue.recent) for queue in seen.queues if queue.recent is not None]
    if flowing:
        lines += ["", *table_lines(FLOW_TITLES, [_flow_row(queue, recent) for queue, recent in flowing], colour=colour)]
        lines.append("(starts, average wait and oldest that is due: fresh/retry; saved: by a retry that is served before older fresh jobs)")
    if seen.limits:
        lines += ["", *table_lines(LIMIT_TITLES, [_limit_row(limit) for limit in seen.limits], colour=colour)]
    holding = [breaker for breaker in seen.breakers if breaker.state != "closed" or breaker.held_until]
    if holding:
        lines += ["", *table_lines(BREAKER_TITLES, [_breaker_row(breaker) for breaker in holding], colour=colour)]
    return lines


def _flow_row(queue: QueueStatus, recent: FigureView) -> Sequence[Cell]:
    return [
        queue.region,
        queue.claim,
        f"{recent.fresh_starts}/{recent.retry_starts}",
        percent(recent.retry_share),
        f"{_span(recent.average_fresh_wait_s)}/{_span(recent.average_retry_wait_s)}",
        f"{_span(queue.oldest_fresh_s)}/{_span(queue.oldest_retry_s)}",
        percent(recent.retry_success_rate),
        _span(recent.average_time_saved_s),
    ]


def limit_name(limit: LimitStatus) -> str:
    """A limit in words: retry budget of queue billing."""
    if limit.kind == "slots":
        what = {"retry": "retries at once", "fresh": "fresh jobs at once", None: "jobs at once"}[limit.lane]
        return f"{what}, {limit.owner} {limit.name}"
    return f"{'retry budget' if limit.kind == 'budget' else 'rate'}, {limit.owner} {limit.name}"


def _limit_row(limit: LimitStatus) -> Sequence[Cell]:
    left = f"{limit.left:.3g}" if limit.left < 100 else f"{limit.left:,.0f}"
    return [
        limit_name(limit),
        (left, "yellow") if limit.is_spent else left,
        f"{limit.most:,g}",
        "" if limit.per_s is None else f"{limit.per_s:.3g}",
    ]


def _breaker_row(breaker: BreakerStatus) -> Sequence[Cell]:
    state = breaker.state.replace("_", " ") if breaker.state != "closed" else "held by Retry-After"
    until = breaker.held_until or breaker.until
    return [breaker.name, (state, "red" if breaker.state == "open" else "yellow"), _moment(breaker.since), _moment(until), breaker.reason]


def percent(share: float | None) -> str:
    """A share for people: 20 %."""
    return "-" if share is None else f"{share * 100:.3g} %"


def _span(seconds: float | None) -> str:
    return "-" if seconds is None else seconds_text(seconds)


def _moment(moment: datetime | None) -> str:
    return "" if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S")
