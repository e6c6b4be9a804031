"""A worker that is killed: what is lost, begun twice, or not back in time."""

from __future__ import annotations

import random
import time

from benchmarks.peers.bench import Bench
from benchmarks.peers.programs import Program
from benchmarks.peers.records import TraceReader

MOMENT_S = 0.03  # within which a kill comes: the half itself is where a worker that runs jobs in batches has just ended one
SETTLED_S = 0.5  # without a start or an end it is worth asking whether all is stored
QUIET_S = 5.0  # nothing is left in the store and nothing has happened for so long: what is missing is lost


def kill(bench: Bench) -> dict[str, float]:
    """Half-way through a drain the worker is killed, and another one started: what is lost, begun twice, or not back in time."""
    jobs = bench.work.mortals
    bench.enqueue("mortal", jobs, "bulk")
    trace = TraceReader(bench.records)
    with bench.left() as left:
        with bench.worker() as first:
            bench.until(lambda: len(trace.read().ends) >= jobs // 2, first, lambda: f"{len(trace.ends)} of {jobs} done")
            time.sleep(random.uniform(0, MOMENT_S))
            first.kill()
        killed_ns = time.monotonic_ns()
        with bench.worker() as second:
            in_store = _wait_for_the_rest(bench, trace, left, second, jobs)
        death = trace.read().death(jobs)
    # What the store still holds may have ended just before the kill; it is not back all the same, and will be begun again one day.
    figures: dict[str, float] = {"lost": max(0, death.missing - in_store), "twice": death.twice, "not_back": in_store}
    return figures if death.missing or in_store else {**figures, "recovery_s": max(0, death.last_ns - killed_ns) / 1e9}


def _wait_for_the_rest(bench: Bench, trace: TraceReader, left: Program, worker: Program, jobs: int) -> int:
    """Until all have ended and are stored as finished, or the time is up, or nothing is left in the store and nothing happens any more;
    how many the store holds then."""
    limit = time.monotonic() + bench.work.back_s
    while True:
        if not worker.running:
            worker.answer(1.0)  # raises with what it said
        trace.read()
        quiet_s = (time.monotonic_ns() - trace.last_ns) / 1e9
        is_late = time.monotonic() > limit
        if is_late or quiet_s > SETTLED_S:
            in_store = int(left.ask(bench.work.answer_s)["left"])
            if is_late or (in_store == 0 and (len(trace.ends) >= jobs or quiet_s > QUIET_S)):
                return in_store
        time.sleep(0.1)
