"""What the bare batch loops of `mulligan bench --beside bare` have in common: the rows, and the form of the answer.

A bare loop is what somebody writes who needs batches and a fence and nothing else: no retries, no leases that lapse, no lanes, no
history, no events, no handlers. It has the same driver, the same durability and rows of the same width as the store it is compared
with. What a queue adds to it is the price of a queue.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from mulligan.core.ids import new_id

BATCH = 500
OWNER = "bare:1"
LEASE_US = 30_000_000
PAYLOAD = '{"args":[],"kwargs":{}}'


def batches(jobs: int) -> Iterator[range]:
    """The numbers of all jobs, a batch at a time."""
    for first in range(0, jobs, BATCH):
        yield range(first, min(first + BATCH, jobs))


def new_row(now_us: int) -> dict[str, Any]:
    """A job that is due, with every field a job of ours has; those that are empty at first are None."""
    return {
        "id": new_id(now_us),
        "queue": "bench",
        "task": "noop",
        "status": "pending",
        "lane": "fresh",
        "priority": 0,
        "run_at_us": now_us,
        "created_at_us": now_us,
        "updated_at_us": now_us,
        "finished_at_us": None,
        "due_first_us": now_us,
        "due_us": now_us,
        "attempts": 0,
        "failures": 0,
        "crashes": 0,
        "snoozes": 0,
        "releases": 0,
        "generation": 1,
        "fence": 0,
        "claim_id": None,
        "settle_id": None,
        "lease_owner": None,
        "lease_expires_at_us": None,
        "last_delay_us": None,
        "max_retries": 3,
        "timeout_us": 900_000_000,
        "max_age_us": None,
        "schedule": None,
        "tick_us": None,
        "unique_key": None,
        "concurrency_key": None,
        "fair_key": None,
        "cancel_requested": False,
        "tags": "[]",
        "trace": None,
        "policy": "{}",
        "last_error": None,
        "result_json": None,
        "payload": PAYLOAD,
    }


def tell(measure: Callable[[str, str, int], dict[str, float]]) -> None:
    """Runs a loop as a program, `NAMESPACE JOBS`, and prints its answer: {"insert_s": ..., "seconds": ...}.

    The address comes by the environment, because it may hold a password and everybody can read arguments.
    """
    namespace, jobs = sys.argv[1:]
    sys.stdout.write(json.dumps(measure(os.environ["MULLIGAN_BENCH_URL"], namespace, int(jobs))) + "\n")


def check(settled: int, jobs: int) -> None:
    """A figure counts only if every job was settled under its fence."""
    if settled != jobs:
        sys.exit(f"the bare loop settled {settled} jobs of {jobs}")
