"""A sweeper by itself, without the worker that usually has one."""

from __future__ import annotations

import random

from mulligan import Mulligan, RetryPolicy
from mulligan.core.contract import Store
from mulligan.worker.conditions import Conditions
from mulligan.worker.policies import Policies
from mulligan.worker.sweeper import Sweeper


def sweeper_of(app: Mulligan, rng: random.Random, name: str, *, store: Store | None = None, policy: RetryPolicy | None = None) -> Sweeper:
    """A sweeper of the app's store, or of one that stands before it."""
    swept = store or app.store
    conditions = Conditions(
        swept, app.events, name, registry=app.registry, queues={}, downstreams={}, adapts=False, now_us=lambda: 0, rng=rng
    )
    return Sweeper(swept, Policies(app.registry, {}, policy), app.events, rng, name, conditions)
