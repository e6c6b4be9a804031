"""The measurements. Each takes a peer in an empty store and gives its figures; PeerFailed if the peer does not do the work."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.peers.bench import Bench
from benchmarks.peers.drains import drain, pair, storm
from benchmarks.peers.environments import Environment
from benchmarks.peers.kills import kill
from benchmarks.peers.loads import loaded, pickup
from benchmarks.peers.places import Place
from benchmarks.peers.programs import PeerFailed
from benchmarks.peers.roster import Peer
from benchmarks.peers.work import Work


def enqueue(bench: Bench) -> dict[str, float]:
    """One awaited at a time."""
    told = bench.enqueue("noop", bench.work.singles, "one")
    return {"enqueue_per_s": told["timed"] / told["seconds"]}


def crowd(bench: Bench) -> dict[str, float]:
    """A hundred callers in one process, each of which awaits its enqueue before the next; what the store holds then is counted."""
    told = bench.enqueue("noop", bench.work.crowd, "crowd")
    with bench.left() as left:
        stored = int(left.ask(bench.work.answer_s)["left"])
    if stored != bench.work.crowd:
        raise PeerFailed(f"{stored} jobs are stored of {bench.work.crowd} that were enqueued; the figure does not count")
    return {"crowd_per_s": told["timed"] / told["seconds"]}


MEASUREMENTS: dict[str, Callable[[Bench], dict[str, float]]] = {
    "enqueue": enqueue,
    "crowd": crowd,
    "drain": drain,
    "pickup": pickup,
    "loaded": loaded,
    "storm": storm,
    "pair": pair,
    "kill": kill,
}


def measured(peer: Peer, environment: Environment, place: Place, work: Work, measure: str) -> dict[str, float]:
    """One measurement of one peer."""
    bench = Bench(peer, environment, place, work)
    if not peer.is_loop:
        bench.prepare()
    figures = MEASUREMENTS[measure](bench)
    bench.records.unlink(missing_ok=True)
    return figures
