"""The policies of the five designs mulligan grew from, with their numbers and their jitter."""

from __future__ import annotations

from mulligan.core.errors import BadPolicy
from mulligan.policy.adaptive import Adaptive
from mulligan.policy.backoff import Exponential
from mulligan.policy.checks import checked_count, shown
from mulligan.policy.retry import RetryPolicy

PRESETS: dict[str, RetryPolicy] = {
    "micro-queue": RetryPolicy(max_retries=10, backoff=Exponential(5, 2, 1_800), jitter="full"),
    "weave": RetryPolicy(max_retries=5, backoff=Exponential(1, 4, 900), jitter="none"),
    # Its limit counts executions, ours counts retries: three executions are two retries.
    "springqueue": RetryPolicy(max_retries=2, backoff=Exponential(1, 2, 900), jitter="none"),
    "region-queue": RetryPolicy(max_retries=3, backoff=Exponential(2, 2, 60), jitter="none"),
    # min(2^n x (1 + size / 10), 60), where size is the number of jobs that wait: the cap is its only bound.
    "region-queue-adaptive": RetryPolicy(
        max_retries=3, backoff=Exponential(2, 2, 60), jitter="none", adaptive=Adaptive(depth=10, age=None, failures=None, most=None)
    ),
    "omniq": RetryPolicy(max_retries=3, backoff=Exponential(1, 2, 60), jitter="percent(25)"),
}
# What a source says about leases, for whoever sets up a worker; a policy has no lease of its own.
PRESET_LEASE_S: dict[str, float] = {"micro-queue": 600}


def make_preset(name: str, executions: int | None = None, clamp: bool | None = None) -> RetryPolicy:
    """The preset of that name, with a limit in executions, or without the clamp after jitter, where asked for."""
    if name not in PRESETS:
        raise BadPolicy(f"preset must be one of {', '.join(PRESETS)}, not {shown(name)}")
    changed = RetryPolicy(clamp=clamp)
    if executions is not None:
        changed = RetryPolicy(clamp=clamp, max_retries=checked_count(executions, "executions", 1) - 1)
    return changed.over(PRESETS[name])
