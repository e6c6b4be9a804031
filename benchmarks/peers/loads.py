"""Single jobs that are picked up: by an idle worker, and by one that works at half of what it can do."""

from __future__ import annotations

import time
from collections.abc import Sequence

from benchmarks.peers.bench import Bench
from benchmarks.peers.figures import percentile
from benchmarks.peers.processes import usage
from benchmarks.peers.programs import PeerFailed, Program
from benchmarks.peers.records import TraceReader, waits_ms

GAP_MS = 30.0  # between two pick-ups: long enough for a worker to fall asleep again
LOAD = 0.5  # of the capacity
SETTLE_S = 0.5  # at the begin of the load, which is not looked at: the rate has to come up to what it is meant to be


def pickup(bench: Bench) -> dict[str, float]:
    """An idle worker gets single jobs, and then none at all."""
    count = bench.work.pickups
    trace = TraceReader(bench.records)
    with bench.worker() as worker:
        sent_ns = bench.enqueue("probe", count, "one", gap_ms=GAP_MS)["sent_ns"]
        _until_started(bench, worker, trace, count)
        waits = waits_ms(sent_ns, trace.first_start_ns)
        return {"pickup_p50_ms": percentile(waits, 0.5), "pickup_p99_ms": percentile(waits, 0.99), **_idle(bench, worker)}


def _idle(bench: Bench, worker: Program) -> dict[str, float]:
    """What worker and server use while there is nothing to do."""
    time.sleep(1.0)  # what the last job has left to be done
    pids = {"idle_cpu_percent": worker.pid, **({"idle_server_percent": bench.place.server_pid} if bench.place.server_pid else {})}
    begin, before = time.monotonic(), {name: usage(pid).cpu_s for name, pid in pids.items()}
    time.sleep(bench.work.idle_s)
    seconds = time.monotonic() - begin
    return {name: 100 * max(0.0, usage(pid).cpu_s - before[name]) / seconds for name, pid in pids.items()}


def loaded(bench: Bench) -> dict[str, float]:
    """First the capacity: a hundred callers of one process enqueue as fast as they can, and one worker runs it all. Then they enqueue at
    half that rate, at moments chosen by chance, whether or not the worker is behind.

    The capacity is that of this kind of arrival, with the producer, the worker and the server on the same cores. A full queue is drained
    faster, because nobody enqueues meanwhile; half of that rate would be more than some producers can send.
    """
    trace = TraceReader(bench.records)
    with bench.worker() as worker:
        first = bench.work.crowd
        told = bench.enqueue("probe", first, "crowd", told=1)
        _until_started(bench, worker, trace, first)
        per_s = LOAD * told["timed"] / ((trace.last_ns - min(told["sent_ns"][told["callers"] :])) / 1e9)
        count = max(2, told["callers"] + round(per_s * (SETTLE_S + bench.work.loaded_s)))
        told = bench.enqueue("probe", count, "crowd", told=1, first=first, per_s=per_s)
        _until_started(bench, worker, trace, first + count)
    started = {number - first: at_ns for number, at_ns in trace.first_start_ns.items() if number >= first}
    return _under_load(told["sent_ns"], waits_ms(told["sent_ns"], started), told["callers"])


def _under_load(sent_ns: Sequence[int], waits: Sequence[float], callers: int) -> dict[str, float]:
    """The rate and the waits, without the first call of each caller and without the begin."""
    begin_ns = min(sent_ns[callers:]) + round(SETTLE_S * 1e9)
    looked_at = [(at_ns, wait) for at_ns, wait in zip(sent_ns, waits, strict=True) if at_ns >= begin_ns]
    if not looked_at:
        raise PeerFailed("it took so long to enqueue that nothing is known about it under load")
    times_ns, ms = zip(*looked_at, strict=True)
    rate = len(times_ns) / ((max(times_ns) - begin_ns) / 1e9)
    return {"load_per_s": rate, "loaded_p50_ms": percentile(ms, 0.5), "loaded_p99_ms": percentile(ms, 0.99)}


def _until_started(bench: Bench, worker: Program, trace: TraceReader, count: int) -> None:
    bench.until(lambda: len(trace.read().starts) >= count, worker, lambda: f"{len(trace.starts)} of {count} picked up")
