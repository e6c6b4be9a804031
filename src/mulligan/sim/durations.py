"""Durations: how long a simulated call takes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Duration = Callable[[Random], float]


def fixed(seconds: float) -> Duration:
    """Always the same."""
    return lambda _: seconds


def between(low_s: float, high_s: float) -> Duration:
    """Anything between the two, all alike."""
    return lambda rng: rng.uniform(low_s, high_s)


def exponential(mean_s: float) -> Duration:
    """Many short ones and a few long ones."""
    return lambda rng: rng.expovariate(1 / mean_s)
