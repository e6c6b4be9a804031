"""When a supervisor renews: by the lease, and at once after an answer that came too late to count on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from mulligan.core.change import Grip
from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Renewal
from mulligan.worker.supervisor import Supervisor

LEASE_S = 60


class Clock:
    """Says these times, one after the other, and then the last one for ever."""

    def __init__(self, *times_s: float) -> None:
        self._times_s = list(times_s)

    def __call__(self) -> int:
        now_s = self._times_s.pop(0) if len(self._times_s) > 1 else self._times_s[0]
        return round(now_s * SECOND_US)


@pytest.mark.parametrize(("took_s", "times"), [(1, 1), (LEASE_S + 1, 2)], ids=["in time", "too late"])
async def test_an_answer_that_came_too_late_is_asked_for_again(monkeypatch: pytest.MonkeyPatch, took_s: float, times: int) -> None:
    """A renewal that outlasts its lease, as in an outage, makes the child sure of nothing: it must not wait for the next turn."""
    loop = asyncio.get_running_loop()
    calls: list[float] = []

    async def renew(grips: Sequence[Grip], lease_us: int, info: object) -> list[Renewal]:
        calls.append(loop.time())
        return []

    ready: asyncio.Future[None] = loop.create_future()
    ready.set_result(None)
    told = asyncio.Event()
    told.set()
    child: Any = SimpleNamespace(
        is_ready=ready,
        reported=told,
        grips=list,
        info=None,
        renewed=lambda *_: None,
        ended=loop.create_future(),
        claim_since=lambda _: None,
    )
    supervisor: Any = SimpleNamespace(
        _worker=SimpleNamespace(lease=LEASE_S, lease_us=LEASE_S * SECOND_US), _store=SimpleNamespace(renew=renew), _loop_time=loop.time
    )
    monkeypatch.setattr("mulligan.worker.supervisor.monotonic_us", Clock(0, took_s, 100, 101, 101))
    renewing = asyncio.create_task(Supervisor._renew(supervisor, child))
    await asyncio.wait({renewing}, timeout=0.3)
    renewing.cancel()
    assert len(calls) == times
