"""Full queues that are worked off: no-op jobs, jobs that fail twice, and jobs of 1 ms CPU by one process and by two."""

from __future__ import annotations

import time
from typing import NamedTuple

from benchmarks.peers.bench import Bench
from benchmarks.peers.processes import usage
from benchmarks.peers.programs import PeerFailed
from benchmarks.peers.records import SumReader, Sums, pauses_ns

ATTEMPTS = 3
PAUSE_NS = 500_000_000  # a storm without a start for so long waits for its jobs to be due


class Worked(NamedTuple):
    """What a worker did until its store held every job as finished."""

    sums: Sums
    end_ns: int
    rss_mb: float
    cpu_s: float

    @property
    def wall_ns(self) -> int:
        """From the first start to the end."""
        return self.end_ns - self.sums.first_ns


def drain(bench: Bench) -> dict[str, float]:
    """A full queue and one worker: from the first start to the moment the store holds all jobs as finished."""
    jobs = bench.work.jobs
    if bench.peer.is_loop:
        return _loop(bench, jobs)
    told = bench.enqueue("noop", jobs, "bulk")
    figures = {"bulk_per_s": told["timed"] / told["seconds"]} if bench.peer.has_bulk and told["timed"] else {}
    worked = worked_off(bench, jobs, 1)
    used = {"rss_mb": worked.rss_mb, "cpu_us_per_job": worked.cpu_s / jobs * 1e6, "drained": jobs}
    return {**figures, "drain_per_s": jobs / (worked.wall_ns / 1e9), **used}


def _loop(bench: Bench, jobs: int) -> dict[str, float]:
    """A bare loop times itself: it has no worker that could be started, and no job that could be counted."""
    told = bench.loop(jobs)
    figures = {"bulk_per_s": jobs / told["insert_s"]} if bench.peer.has_bulk else {}
    return {**figures, "drain_per_s": jobs / told["seconds"]}


def storm(bench: Bench) -> dict[str, float]:
    """Every job fails, fails and succeeds, due again at once."""
    jobs = bench.work.storm
    bench.enqueue("storm", jobs, "bulk")
    reader = SumReader(bench.records)
    wall_ns = worked_off(bench, jobs, ATTEMPTS, reader).wall_ns
    if not bench.peer.waits_after_failure:
        return {"storm_per_s": jobs * ATTEMPTS / (wall_ns / 1e9)}
    busy_ns = wall_ns - pauses_ns(reader.steps, PAUSE_NS)
    return {"storm_per_s": jobs * ATTEMPTS / (busy_ns / 1e9), "storm_wall_per_s": jobs * ATTEMPTS / (wall_ns / 1e9)}


def pair(bench: Bench) -> dict[str, float]:
    """Jobs of 1 ms CPU, by a supervisor with one process and then with two; both begin when all their processes are up."""
    jobs, rates = bench.work.burns, []
    for processes in (1, 2):
        bench.records.unlink(missing_ok=True)
        bench.enqueue("burn", jobs, "bulk")
        worked = worked_off(bench, jobs, 1, None, "--processes", str(processes))
        rates.append(jobs / (worked.wall_ns / 1e9))
    one, two = rates
    return {"one_process_per_s": one, "two_processes_per_s": two, "two_processes_x": two / one}


def worked_off(bench: Bench, jobs: int, attempts: int, reader: SumReader | None = None, *options: str) -> Worked:
    """Runs one worker until all is done."""
    reader = reader or SumReader(bench.records)
    wanted = jobs * attempts
    with bench.left() as left, bench.worker(wanted, *options) as worker:
        start_s = usage(worker.pid).cpu_s  # what it took to be ready is no part of a job
        bench.until(lambda: reader.read().begun >= wanted, worker, lambda: f"{reader.read().begun} of {wanted} begun")
        answers: list[int] = []

        def is_empty() -> bool:
            answers.append(int(left.ask(bench.work.answer_s)["left"]))
            return answers[-1] == 0

        bench.until(is_empty, worker, lambda: f"{answers[-1]} jobs are still in the store")
        end_ns = time.monotonic_ns()
        used = usage(worker.pid)
    sums = reader.read()
    if not sums.is_whole(jobs, attempts):
        raise PeerFailed(f"{sums.begun} executions where {wanted} should be, or not of every job; the figure does not count")
    return Worked(sums, end_ns, used.rss_mb, used.cpu_s - start_s)
