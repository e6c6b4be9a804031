"""How steady the machine is: the same small piece of work, timed before every step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from benchmarks.peers.figures import percentile, summary

TURNS = 400_000
NOISY = 1.3  # times the median: the machine had something else to do


def loop_ms() -> float:
    """The time of a fixed piece of work for one core."""
    start = time.perf_counter()
    total = 0
    for number in range(TURNS):
        total += number & 7
    return (time.perf_counter() - start) * 1e3


def noise(times_ms: Sequence[float]) -> dict[str, Any]:
    """What the timed loops tell about the machine."""
    if not times_ms:
        return {}
    middle, low, high = summary(times_ms)
    noisy = sum(one > NOISY * middle for one in times_ms)
    return {
        "loops": len(times_ms),
        "median_ms": round(middle, 2),
        "p95_ms": round(percentile(times_ms, 0.95), 2),
        "fastest_ms": round(low, 2),
        "slowest_ms": round(high, 2),
        "noisy_share": round(noisy / len(times_ms), 3),
    }
