"""The settings of one worker, checked when made."""

from __future__ import annotations

import os
import socket

import msgspec

from mulligan.core.clock import SECOND_US
from mulligan.core.contract import Store, Width
from mulligan.core.errors import BadSetting, shown

LEASE_S = 30.0
DAY_S = 86_400.0


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker claims, runs and stops. Times in seconds."""

    concurrency: int = 100  # jobs running at once in this process
    lease: float = LEASE_S  # how long a claim holds without a renewal
    poll: float = 1.0  # longest sleep of an idle fetcher; hints wake it earlier
    grace: float = 25.0  # how long a stopping worker lets handlers finish
    sweep: float = 1.0  # pause between two looks for lapsed leases
    ahead: int | None = None  # most jobs claimed beyond the free slots, when jobs are short; None: what the store does best with
    batch: int | None = None  # most outcomes in one write; None: what the store does best with
    buffer: int = 5_000  # most outcomes waiting to be written before handlers wait
    keep_done: float | None = DAY_S  # retention; None keeps for ever
    keep_failed: float | None = 90 * DAY_S
    keep_cancelled: float | None = DAY_S
    thread_turn: float | None = 0.0001  # longest turn of one thread at the interpreter while another waits; None leaves it alone
    gc_every: int | None = 20_000  # new objects between two searches for garbage in cycles; None leaves it alone
    keeper_thread: bool = True  # renew from a thread of its own, so that a blocked loop keeps its leases

    def __post_init__(self) -> None:
        for name, most in (("concurrency", 10_000), ("ahead", 10_000), ("batch", 1_000), ("buffer", 1_000_000)):
            value = getattr(self, name)
            if value is None and name in ("ahead", "batch"):
                continue
            if not isinstance(value, int):
                raise BadSetting(f"worker setting {name} must be a whole number, not {shown(value)}")
            _between(name, value, 0 if name == "ahead" else 1, most)
        if not isinstance(self.keeper_thread, bool):
            raise BadSetting(f"worker setting keeper_thread must be True or False, not {shown(self.keeper_thread)}")
        _between("lease", self.lease, 0.1, DAY_S)
        _between("poll", self.poll, 0.001, 3_600)
        _between("grace", self.grace, 0, DAY_S)
        _between("sweep", self.sweep, 0.001, 3_600)
        if self.thread_turn is not None:
            _between("thread_turn", self.thread_turn, 0.00001, 1)
        if self.gc_every is not None:
            if not isinstance(self.gc_every, int):
                raise BadSetting(f"worker setting gc_every must be a whole number or None, not {shown(self.gc_every)}")
            _between("gc_every", self.gc_every, 1, 10_000_000)
        for name in ("keep_done", "keep_failed", "keep_cancelled"):
            if getattr(self, name) is not None:
                _between(name, getattr(self, name), 0, 100 * 365 * DAY_S)

    @property
    def lease_us(self) -> int:
        return round(self.lease * SECOND_US)

    def width_on(self, store: Store) -> Width:
        """How much this worker asks that store for at once."""
        best = store.width
        return Width(best.ahead if self.ahead is None else self.ahead, best.batch if self.batch is None else self.batch)


def _between(name: str, value: float, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise BadSetting(f"worker setting {name} must be between {low:g} and {high:g}, not {shown(value)}")


def worker_name(unique: str) -> str:
    """The owner's name on a lease: readable, and never reused, so that a restart does not inherit old leases."""
    return f"{socket.gethostname()[:60]}:{os.getpid()}:{unique[-8:]}"
