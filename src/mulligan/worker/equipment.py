"""Equipment: what an app lends its workers and its claims by hand."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mulligan.core.contract import Store
from mulligan.observe.bus import EventBus
from mulligan.observe.flow import Flow
from mulligan.policy.downstream import Downstream
from mulligan.policy.queues import Queue
from mulligan.policy.retry import RetryPolicy
from mulligan.worker.hooks import Hook
from mulligan.worker.perform import Middleware
from mulligan.worker.registry import Registry


class Equipment(msgspec.Struct, frozen=True, kw_only=True):
    """What the app gives its worker."""

    store: Store
    registry: Registry
    queues: Mapping[str, Queue]  # the queues to serve
    downstreams: Mapping[str, Downstream] = {}
    flow: Flow | None = None  # where its work is counted; None: for itself alone
    policy: RetryPolicy | None
    bus: EventBus
    rng: random.Random
    state: Any
    middleware: Sequence[Middleware] = ()
    startup: Sequence[Hook] = ()
    shutdown: Sequence[Hook] = ()
    version: str = ""
