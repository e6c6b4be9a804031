"""Jobs with groups that have gone every way there is: all come to rest, and nothing of them is claimed or counted any more."""

from __future__ import annotations

import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Store
from tests.builders import ask, claim, fifo
from tests.lives import LIMITS, live_through, remove_all


@pytest.mark.parametrize("tenants", [60, pytest.param(10_000, marks=[pytest.mark.scale, pytest.mark.timeout(3_600)])])
async def test_nothing_is_left_of_them(store: Store, clock: ManualClock, tenants: int) -> None:
    """Neither in the figures, nor in the pulse, nor for any claim."""
    await live_through(store, clock, tenants)
    [figures] = (await store.stats()).queues
    waiting = (figures.fresh_ready, figures.fresh_later, figures.retry_ready, figures.retry_later, figures.processing)
    assert waiting == (0, 0, 0, 0, 0)
    assert figures.done + figures.failed + figures.cancelled == 3 * tenants
    assert min(figures.done, figures.cancelled) > 0
    [pulse] = await store.pulse(["q"])
    assert (pulse.depth, pulse.oldest_us) == (0, None)
    for wanted in (ask(limits=LIMITS), ask(lane="retry", priority=2), fifo()):
        claimed = await claim(store, wanted)
        assert (claimed.jobs, claimed.next_due_us, claimed.held_back) == ([], None, frozenset())
    assert await remove_all(store, clock) == 3 * tenants
    assert (await claim(store, ask(limits=LIMITS))).jobs == []
