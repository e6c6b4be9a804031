"""What the figures are meant to be: ratios to peers of the same run, and a few bounds that hold on any machine of this kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from benchmarks.peers.figures import FIGURES, Summary, ratio
from benchmarks.peers.roster import PEERS, Peer, ours

Summaries = Mapping[str, Mapping[str, Summary]]


class Beside(NamedTuple):
    """A figure compared with the best of some peers on the same store."""

    store: str
    figure: str
    at_least: float
    whom: str
    counts: Callable[[Peer], bool]


class Bound(NamedTuple):
    """A figure of mulligan alone."""

    store: str
    figure: str
    at_most: float


def _is_python(peer: Peer) -> bool:
    return not peer.is_node


def _anybody(_peer: Peer) -> bool:
    return True


def _tries_again_at_once(peer: Peer) -> bool:
    return not peer.waits_after_failure


BESIDE = (
    Beside("postgres", "drain_per_s", 1.2, "graphile-worker", lambda peer: peer.name == "graphile-worker"),
    Beside("postgres", "drain_per_s", 4.0, "the best Python peer", _is_python),
    Beside("redis", "drain_per_s", 1.5, "BullMQ", lambda peer: peer.name == "bullmq"),
    Beside("redis", "drain_per_s", 8.0, "the best Python peer", _is_python),
    Beside("sqlite", "drain_per_s", 8.0, "Huey, fsync off", lambda peer: peer.name == "huey"),
    *(Beside(store, "enqueue_per_s", 1.0, "the best peer", _anybody) for store in ("postgres", "redis")),
    *(Beside(store, "bulk_per_s", 1.5, "the best peer", _anybody) for store in ("postgres", "redis")),
    *(
        Beside(store, "storm_per_s", 5.0, "the best peer that tries again at once", _tries_again_at_once)
        for store in ("postgres", "redis", "sqlite")
    ),
)
BOUNDS = (
    Bound("redis", "pickup_p50_ms", 1.5),
    *(Bound(store, "pickup_p50_ms", 3.0) for store in ("postgres", "sqlite")),
    *(Bound(store, "cpu_us_per_job", 15.0) for store in ("postgres", "sqlite")),
    *(
        Bound(store, figure, most)
        for store in ("postgres", "redis", "sqlite")
        for figure, most in (("idle_cpu_percent", 1.0), ("rss_mb", 60.0))
    ),
)
WITHIN = (
    ("pickup_p99_ms", "pickup_p50_ms", 3.0),
    ("drain_per_s", "storm_per_s", 2.0),
)  # a figure, and how often another one it may be at most


def verdicts(summaries: Summaries) -> list[str]:
    """A line for each target that this run can tell something about."""
    lines = []
    for beside in BESIDE:
        mine = summaries.get(ours(beside.store), {}).get(beside.figure)
        others = [
            (found[beside.figure].median, name)
            for name, found in summaries.items()
            if PEERS[name].store == beside.store and name != ours(beside.store) and beside.figure in found and beside.counts(PEERS[name])
        ]
        if mine is not None and others:
            rate, name = max(others)
            reached = ratio(beside.figure, mine.median, rate) or 0.0
            words = f"{beside.at_least:g}x {beside.whom} ({name})"
            lines.append(_line(beside.store, beside.figure, f"{reached:.2f}x", words, reached >= beside.at_least))
    for bound in BOUNDS:
        mine = summaries.get(ours(bound.store), {}).get(bound.figure)
        if mine is not None:
            lines.append(_line(bound.store, bound.figure, f"{mine.median:.2f}", f"at most {bound.at_most:g}", mine.median <= bound.at_most))
    for name, found in summaries.items():
        if name == ours(PEERS[name].store):
            lines += _inner(name, found)
    return lines


def _inner(name: str, found: Mapping[str, Summary]) -> list[str]:
    """Figures of mulligan beside other figures of mulligan."""
    lines = []
    for figure, other, times in WITHIN:
        if figure in found and other in found and found[other].median:
            reached = found[figure].median / found[other].median
            words = f"at most {times:g}x {FIGURES[other].short}"
            lines.append(_line(PEERS[name].store, figure, f"{reached:.2f}x", words, reached <= times))
    return lines


def _line(store: str, figure: str, reached: str, wanted: str, is_fine: bool) -> str:
    return f"{'reached' if is_fine else 'MISSED ':<8}{store:<10}{FIGURES[figure].short:<9}{reached:>9}  {wanted}"
