"""The numbers of a torture run, and what its jobs are: each job follows from the seed and its number."""

from __future__ import annotations

import random
from typing import NamedTuple

import msgspec

MAX_RETRIES, MAX_CRASHES = 4, 3  # two failures, two crashes and the last execution: only a third crash can make a job fail
CONCURRENCY = 3  # jobs at once in each process: few, so that most kills hit something and none hits the same jobs again and again
AHEAD = 2
POLL_S, SWEEP_S = 0.5, 0.25
BACKOFF_S = 0.05
QUEUE = "torture"
CANCEL_EVERY = 400  # of so many jobs one is cancelled as soon as it is stored


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one run shall do."""

    jobs: int = 2_000
    kills: int = 40
    pauses: int = 20
    restarts: int = 0
    workers: int = 2
    processes: int = 2
    lease_s: float = 2.0
    seed: int = 1
    restart_command: tuple[str, ...] = ()  # how the store is restarted; empty on SQLite, where a foreign lock takes its place
    restart_s: float = 30.0
    slack_s: float = 0.0  # what a loaded machine is allowed beyond the bounds on time
    app: str = "mulligan.torture.tasks:app"


class Work(NamedTuple):
    """What one job does."""

    task: str  # work, or block: in a thread
    seconds: float
    fails: int = 0
    snoozes: int = 0
    holds_loop: bool = False
    delay_s: float = 0.0


def work_of(seed: int, number: int) -> Work:
    """The job of this number: most are quick, some fail once or twice, some snooze, some last long enough to be killed."""
    rng = random.Random(f"{seed}:{number}")
    [kind] = rng.choices(("quick", "flaky", "snoozy", "later", "slow", "thread", "loop"), (50, 14, 6, 5, 15, 5, 5))
    seconds = round(rng.uniform(0.1, 0.3) if kind == "slow" else rng.uniform(0.02, 0.1) if kind == "thread" else rng.uniform(0, 0.01), 4)
    return Work(
        task="block" if kind == "thread" else "work",
        seconds=seconds,
        fails=rng.choice((1, 2)) if kind == "flaky" else 0,
        snoozes=1 if kind == "snoozy" else 0,
        holds_loop=kind == "loop",
        delay_s=round(rng.uniform(0.1, 1.0), 3) if kind == "later" else 0.0,
    )
