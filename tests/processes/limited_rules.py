"""The limits of the app in limited_tasks.py, as a reader of the ledger counts them."""

from __future__ import annotations

from collections.abc import Callable

from tests.processes.limited_checks import Crowd, Stream
from tests.processes.limited_history import Run
from tests.processes.limited_tasks import (
    APART_CAP,
    BUDGET_BURST,
    BUDGET_S,
    CAP,
    DOWNSTREAM,
    FLOOR_S,
    KEY_CAP,
    RATE_BURST,
    RATE_S,
    RATIO,
    RATIO_BURST,
    RETRY_CAP,
)


def _of(lane: str | None, **wanted: str) -> Callable[[Run], str | None]:
    """Runs with these values, of one lane or both, all together."""

    def name(run: Run) -> str | None:
        is_one = lane in (None, run.lane) and all(getattr(run, field) == value for field, value in wanted.items())
        return "all" if is_one else None

    return name


CROWDS = (
    Crowd("concurrency", CAP, _of(None, queue="caps")),
    Crowd("max_inflight_retries", RETRY_CAP, _of("retry", queue="caps")),
    Crowd("key_concurrency", KEY_CAP, lambda run: run.key if run.queue == "caps" else None),
    Crowd("separate", APART_CAP, _of("retry", queue="apart")),
)
STREAMS = (
    Stream("rate of a queue", RATE_BURST, RATE_S, _of(None, queue="rated")),
    Stream("rate of a task", RATE_BURST, RATE_S, _of(None, task="metered")),
    Stream("rate of a downstream", RATE_BURST, RATE_S, _of(None, on=DOWNSTREAM)),
    Stream("budget of a queue", BUDGET_BURST, BUDGET_S, _of("retry", queue="rated")),
    Stream("budget of a task", BUDGET_BURST, BUDGET_S, _of("retry", task="metered")),
    Stream("budget of a downstream", BUDGET_BURST, BUDGET_S, _of("retry", on=DOWNSTREAM)),
    Stream("budget of a tenant", BUDGET_BURST, BUDGET_S, lambda run: run.tenant if (run.queue, run.lane) == ("apart", "retry") else None),
    Stream("budget by ratio", RATIO_BURST, FLOOR_S, _of("retry", queue="ratio"), RATIO, _of("fresh", queue="ratio")),
)
