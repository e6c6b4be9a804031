"""A made-up result file, as `python -m benchmarks.peers --out` writes it, for the tests of what is published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# Names of the roster, so that targets apply.
ROUNDS: dict[str, tuple[str, dict[str, list[float]]]] = {
    "bullmq": ("redis", {"drain_per_s": [10_000.0, 12_000.0, 11_000.0], "storm_per_s": [3_000.0], "pickup_p50_ms": [2.0]}),
    "taskiq": (
        "redis",
        {"drain_per_s": [4_000.0] * 3, "enqueue_per_s": [4_000.0], "pickup_p50_ms": [1.0], "pickup_p99_ms": [100.0]},
    ),
    "bare-redis": ("redis", {"drain_per_s": [50_000.0]}),
    "mulligan-redis": (
        "redis",
        {
            "drain_per_s": [16_000.0, 30_000.0, 20_000.0],
            "enqueue_per_s": [2_000.0],
            "pickup_p50_ms": [1.0],
            "pickup_p99_ms": [10.0],
            "storm_per_s": [15_000.0],
        },
    ),
    "mulligan-postgres": ("postgres", {"drain_per_s": [8_000.0], "storm_per_s": [6_000.0]}),
    "graphile-worker": ("postgres", {"drain_per_s": [8_000.0], "storm_per_s": [2_000.0]}),
}
NOISE = {"loops": 9, "median_ms": 10.0, "p95_ms": 12.0, "fastest_ms": 9.0, "slowest_ms": 14.0, "noisy_share": 0.25}


def result(**changed: Any) -> dict[str, Any]:
    """The whole file; `changed` replaces or adds entries at the top."""
    peers = {name: {"store": store, "settings": "", "promises": "", "rounds": rounds} for name, (store, rounds) in ROUNDS.items()}
    return {"machine": {"cpus": 2, "python": "3.11.7"}, "noise": NOISE, "problems": [], "peers": peers, **changed}


def written(folder: Path, **changed: Any) -> Path:
    """The file itself."""
    path = folder / "found.json"
    path.write_text(json.dumps(result(**changed)), "utf-8")
    return path
