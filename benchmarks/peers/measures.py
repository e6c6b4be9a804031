"""The measurements. Each takes a peer in an empty store and gives its figures; PeerFailed if the peer does not do the work."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.environments import Environment
from benchmarks.peers.figures import percentile
from benchmarks.peers.places import Place
from benchmarks.peers.processes import usage
from benchmarks.peers.programs import PeerFailed, Program
from benchmarks.peers.records import SumReader, Sums, TraceReader, pauses_ns, waits_ms
from benchmarks.peers.roster import Peer

ATTEMPTS = 3
GAP_MS = 30.0  # between two pick-ups: long enough for a worker to fall asleep again
LOOK_S = 0.002
PAUSE_NS = 500_000_000  # a storm without a start for so long waits for its jobs to be due
MOMENT_S = 0.03  # within which a kill comes: the half itself is where a worker that runs jobs in batches has just ended one
SETTLED_S = 0.5  # without a start or an end it is worth asking whether all is stored
QUIET_S = 5.0  # nothing is left in the store and nothing has happened for so long: what is missing is lost


class Work(NamedTuple):
    """How much is done, and how long it may take."""

    jobs: int = 20_000
    singles: int = 2_000
    storm: int = 5_000
    pickups: int = 200
    mortals: int = 4_000
    idle_s: float = 10.0
    answer_s: float = 120.0
    drain_s: float = 300.0
    back_s: float = 75.0  # within which killed jobs have to be back

    @classmethod
    def of(cls, jobs: int) -> Work:
        """All amounts, from the jobs of a drain. More of those do not make everything else longer."""
        usual = cls()
        part = min(1.0, jobs / usual.jobs)
        less = {name: max(50, round(getattr(usual, name) * part)) for name in ("singles", "storm", "pickups", "mortals")}
        return usual._replace(jobs=jobs, **less)

    def scaled(self, share: float) -> Work:
        """As much work as is fit for a peer of this share."""
        return self._replace(
            jobs=max(200, round(self.jobs * share)),
            singles=max(50, round(self.singles * min(share, 1))),
            storm=max(100, round(self.storm * min(share, 1))),
            mortals=max(200, round(self.mortals * min(share, 1))),
        )


class Bench:
    """One peer in one place."""

    def __init__(self, peer: Peer, environment: Environment, place: Place, work: Work) -> None:
        self.peer, self.work, self.place = peer, work.scaled(peer.share), place
        self._environment = environment
        self.records = place.folder / "records"

    def program(self, *arguments: str, expect: int = 0) -> Program:
        """The adapter in one of its roles."""
        variables = {"BENCH_URL": self.place.url, "BENCH_RECORDS": str(self.records), "BENCH_EXPECT": str(expect)}
        return Program([*self._environment.command, *arguments], {**self._environment.variables, **variables}, self.place.folder)

    def prepare(self) -> None:
        """Makes tables and the like."""
        with self.program("prepare") as program:
            program.answer(self.work.answer_s)

    def enqueue(self, kind: str, count: int, how: str, gap_ms: float = 0.0) -> dict[str, float]:
        """Enqueues, and gives what the adapter tells of it."""
        asked = ("enqueue", "--kind", kind, "--count", str(count), "--how", how, "--gap-ms", str(gap_ms))
        with self.program(*asked) as program:
            return program.answer(self.work.drain_s)

    def worker(self, expect: int = 0) -> Program:
        """A worker that takes jobs from now on."""
        program = self.program("worker", expect=expect)
        try:
            program.answer(self.work.answer_s)
        except BaseException:
            program.close()
            raise
        return program

    def left(self) -> Program:
        """A program that counts what the store does not hold as finished; it has counted once, so that it is quick."""
        program = self.program("left")
        try:
            program.answer(self.work.answer_s)
            program.ask(self.work.answer_s)
        except BaseException:
            program.close()
            raise
        return program


def enqueue(bench: Bench) -> dict[str, float]:
    """One awaited at a time."""
    told = bench.enqueue("noop", bench.work.singles, "one")
    return {"enqueue_per_s": told["timed"] / told["seconds"]}


def drain(bench: Bench) -> dict[str, float]:
    """A full queue and one worker: from the first start to the moment the store holds all jobs as finished."""
    jobs = bench.work.jobs
    told = bench.enqueue("noop", jobs, "bulk")
    figures = {"bulk_per_s": told["timed"] / told["seconds"]} if bench.peer.has_bulk and told["timed"] else {}
    sums, end_ns, rss_mb, cpu_s = _worked_off(bench, jobs, 1)
    seconds = (end_ns - sums.first_ns) / 1e9
    return {**figures, "drain_per_s": jobs / seconds, "rss_mb": rss_mb, "cpu_us_per_job": cpu_s / jobs * 1e6}


def storm(bench: Bench) -> dict[str, float]:
    """Every job fails, fails and succeeds, due again at once."""
    jobs = bench.work.storm
    bench.enqueue("storm", jobs, "bulk")
    reader = SumReader(bench.records)
    sums, end_ns, _, _ = _worked_off(bench, jobs, ATTEMPTS, reader)
    wall_ns = end_ns - sums.first_ns
    if not bench.peer.waits_after_failure:
        return {"storm_per_s": jobs * ATTEMPTS / (wall_ns / 1e9)}
    busy_ns = wall_ns - pauses_ns(reader.steps, PAUSE_NS)
    return {"storm_per_s": jobs * ATTEMPTS / (busy_ns / 1e9), "storm_wall_per_s": jobs * ATTEMPTS / (wall_ns / 1e9)}


def _worked_off(bench: Bench, jobs: int, attempts: int, reader: SumReader | None = None) -> tuple[Sums, int, float, float]:
    """Runs one worker until all is done: the sums, when the store had it all, and the worker's memory and CPU."""
    reader = reader or SumReader(bench.records)
    with bench.left() as left, bench.worker(jobs * attempts) as worker:
        start_s = usage(worker.pid).cpu_s  # what it took to be ready is no part of a job
        _until(lambda: reader.read().begun >= jobs * attempts, bench, worker, lambda: f"{reader.read().begun} of {jobs * attempts} begun")
        answers: list[int] = []

        def is_empty() -> bool:
            answers.append(int(left.ask(bench.work.answer_s)["left"]))
            return answers[-1] == 0

        _until(is_empty, bench, worker, lambda: f"{answers[-1]} jobs are still in the store")
        end_ns = time.monotonic_ns()
        used = usage(worker.pid)
    sums = reader.read()
    if not sums.is_whole(jobs, attempts):
        raise PeerFailed(f"{sums.begun} executions where {jobs * attempts} should be, or not of every job; the figure does not count")
    return sums, end_ns, used.rss_mb, used.cpu_s - start_s


def _until(done: Callable[[], bool], bench: Bench, worker: Program, so_far: Callable[[], str]) -> None:
    limit = time.monotonic() + bench.work.drain_s
    while not done():
        if not worker.running:
            worker.answer(1.0)  # raises with what it said
        if time.monotonic() > limit:
            raise PeerFailed(f"not done within {bench.work.drain_s:g} s: {so_far()}")
        time.sleep(LOOK_S)


def pickup(bench: Bench) -> dict[str, float]:
    """An idle worker gets single jobs, and then none at all."""
    count = bench.work.pickups
    trace = TraceReader(bench.records)
    with bench.worker() as worker:
        told: dict[str, list[int]] = bench.enqueue("probe", count, "one", GAP_MS)  # type: ignore[assignment]
        _until(lambda: len(trace.read().starts) >= count, bench, worker, lambda: f"{len(trace.starts)} of {count} picked up")
        waits = waits_ms(told["sent_ns"], trace.first_start_ns)
        return {"pickup_p50_ms": percentile(waits, 0.5), "pickup_p99_ms": percentile(waits, 0.99), **_idle(bench, worker)}


def _idle(bench: Bench, worker: Program) -> dict[str, float]:
    """What worker and server use while there is nothing to do."""
    time.sleep(1.0)  # what the last job has left to be done
    pids = {"idle_cpu_percent": worker.pid, **({"idle_server_percent": bench.place.server_pid} if bench.place.server_pid else {})}
    begin, before = time.monotonic(), {name: usage(pid).cpu_s for name, pid in pids.items()}
    time.sleep(bench.work.idle_s)
    seconds = time.monotonic() - begin
    return {name: 100 * max(0.0, usage(pid).cpu_s - before[name]) / seconds for name, pid in pids.items()}


def kill(bench: Bench) -> dict[str, float]:
    """Half-way through a drain the worker is killed, and another one started: what is lost, begun twice, or not back in time."""
    jobs = bench.work.mortals
    bench.enqueue("mortal", jobs, "bulk")
    trace = TraceReader(bench.records)
    with bench.left() as left:
        with bench.worker() as first:
            _until(lambda: len(trace.read().ends) >= jobs // 2, bench, first, lambda: f"{len(trace.ends)} of {jobs} done")
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


MEASUREMENTS: dict[str, Callable[[Bench], dict[str, float]]] = {
    "enqueue": enqueue,
    "drain": drain,
    "pickup": pickup,
    "storm": storm,
    "kill": kill,
}


def measured(peer: Peer, environment: Environment, place: Place, work: Work, measure: str) -> dict[str, float]:
    """One measurement of one peer."""
    bench = Bench(peer, environment, place, work)
    bench.prepare()
    figures = MEASUREMENTS[measure](bench)
    Path(bench.records).unlink(missing_ok=True)
    return figures
