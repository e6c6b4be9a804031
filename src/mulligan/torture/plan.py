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
SHORT_MAX_S = 0.3  # what most jobs take at most
LONG_LEASES = (1.5, 3.0)  # what those take that outlive their lease
LONG_MAX_S = 45.0  # so that a run with long leases is not taken for stuck
CANCEL_EVERY = 400  # of so many jobs one is cancelled as soon as it is stored


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What one run shall do."""

    jobs: int = 2_000
    kills: int = 40
    pauses: int = 20
    restarts: int = 0
    cuts: int = 0  # times at which all connections to the store are reset
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


# How many of a thousand jobs are of each kind. Few outlive their lease, since they keep a slot for so long, and very few do so while they
# hold the loop, which keeps all slots of a process and whoever looks for lost jobs there.
KINDS = {
    "quick": 500, "flaky": 140, "snoozy": 60, "later": 50, "slow": 150, "thread": 50, "loop": 44.5,
    "long": 3, "long thread": 2, "long loop": 0.5,
}  # fmt: skip


def work_of(seed: int, number: int, lease_s: float) -> Work:
    """The job of this number: most are quick, some fail once or twice, some snooze, some last long enough to be killed."""
    rng = random.Random(f"{seed}:{number}")
    [kind] = rng.choices(tuple(KINDS), tuple(KINDS.values()))
    if kind.startswith("long"):
        seconds = min(LONG_MAX_S, lease_s * rng.uniform(*LONG_LEASES))
    elif kind == "slow":
        seconds = rng.uniform(0.1, SHORT_MAX_S)
    else:
        seconds = rng.uniform(0.02, 0.1) if kind == "thread" else rng.uniform(0, 0.01)
    return Work(
        task="block" if kind.endswith("thread") else "work",
        seconds=round(seconds, 4),
        fails=rng.choice((1, 2)) if kind == "flaky" else 0,
        snoozes=1 if kind == "snoozy" else 0,
        holds_loop=kind.endswith("loop"),
        delay_s=round(rng.uniform(0.1, 1.0), 3) if kind == "later" else 0.0,
    )
