"""What the figures are meant to be: ratios to others of the same run, and a few bounds that hold on any machine of this kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from benchmarks.peers.figures import FIGURES, Summary
from benchmarks.peers.roster import PEERS, STORES, Peer, blocking, ours

Summaries = Mapping[str, Mapping[str, Summary]]
SERVED = ("postgres", "redis", "sqlite")  # stores on which there are peers
MANY = 1_000_000  # jobs after which a worker may be larger


class Beside(NamedTuple):
    """A figure that is at least so often that of others on the same store: of the best of them."""

    store: str
    figure: str
    at_least: float
    whom: str
    counts: Callable[[Peer], bool]
    who: str = ""  # mulligan as it runs there, unless it says otherwise


class Bound(NamedTuple):
    """A figure of mulligan alone that is at most, or at least, a number."""

    name: str
    figure: str
    number: float
    is_most: bool = True


class Within(NamedTuple):
    """A figure of mulligan that is at most, or at least, so often another one of its own."""

    figure: str
    other: str
    times: float
    is_most: bool = True


class Verdict(NamedTuple):
    """What a run says about a target. For a ratio, low and high are what the rounds would have made of it at worst and at best."""

    name: str
    figure: str
    reached: float
    low: float
    high: float
    unit: str  # "x" for a ratio
    wanted: str
    is_fine: bool

    def line(self) -> str:
        """One line of a table."""
        value = f"{self.reached:.2f}{self.unit}"
        spread = f"{self.low:.2f} to {self.high:.2f}" if self.high > self.low else ""
        word = "reached" if self.is_fine else "MISSED"
        return f"{word:<9}{self.name:<27}{FIGURES[self.figure].short:<10}{value:>9}  {spread:<16}{self.wanted}"


def _named(name: str) -> Callable[[Peer], bool]:
    return lambda peer: peer.name == name


def _is_peer(peer: Peer) -> bool:
    return peer.role == "peer"


def _is_python(peer: Peer) -> bool:
    return _is_peer(peer) and not peer.is_node


def _is_as_durable(peer: Peer) -> bool:
    return _is_peer(peer) and peer.is_durable


def _is_as_durable_and_blocks(peer: Peer) -> bool:
    return _is_as_durable(peer) and peer.blocks


def _is_as_durable_and_awaited(peer: Peer) -> bool:
    return _is_as_durable(peer) and not peer.blocks


def _tries_again_at_once(peer: Peer) -> bool:
    return _is_peer(peer) and not peer.waits_after_failure


def _is_limit(peer: Peer) -> bool:
    return peer.role == "limit"


BESIDE = (
    Beside("postgres", "drain_per_s", 1.2, "graphile-worker", _named("graphile-worker")),
    Beside("postgres", "drain_per_s", 4.0, "the best Python peer", _is_python),
    Beside("postgres", "drain_per_s", 0.4, "the bare batch loop", _is_limit),
    Beside("redis", "drain_per_s", 1.5, "BullMQ", _named("bullmq")),
    Beside("redis", "drain_per_s", 8.0, "the best Python peer", _is_python),
    Beside("sqlite", "drain_per_s", 8.0, "Huey, fsync off", _named("huey")),
    Beside("mongo", "drain_per_s", 25.0, "a find_one_and_update loop", _named("single-mongo")),
    Beside("mongo", "drain_per_s", 0.5, "the bare batch loop", _is_limit),
    *(Beside(store, "bulk_per_s", 1.5, "the best peer as durable", _is_as_durable) for store in SERVED),
    *(Beside(store, "storm_per_s", 5.0, "the best peer that tries again at once", _tries_again_at_once) for store in SERVED),
)
# Calls that one waits for, by figure: how often those of the best peer.
ENQUEUES = {"enqueue_per_s": 1.0, "crowd_per_s": 1.5}
BOUNDS = (
    Bound(ours("postgres"), "bulk_per_s", 80_000, is_most=False),
    Bound(ours("redis"), "pickup_p50_ms", 1.5),
    Bound(ours("postgres"), "pickup_p50_ms", 3.0),
    Bound(ours("sqlite"), "pickup_p50_ms", 3.0),
    Bound(ours("mongo"), "pickup_p50_ms", 8.0),
    *(Bound(ours(store), "idle_cpu_percent", 1.0) for store in STORES),
    *(Bound(ours(store), "cpu_us_per_job", 15.0) for store in ("postgres", "sqlite")),
    *(Bound(f"{ours(store)}-watched", "cpu_us_per_job", 25.0) for store in ("postgres", "sqlite")),
    *(Bound(ours(store), "two_processes_x", 1.7, is_most=False) for store in STORES),
    *(Bound(ours(store), figure, 0.0) for store in STORES for figure in ("lost", "not_back")),
)
WITHIN = (
    Within("pickup_p99_ms", "pickup_p50_ms", 3.0),
    Within("loaded_p99_ms", "pickup_p99_ms", 10.0),
    Within("storm_per_s", "drain_per_s", 0.5, is_most=False),
)
# Worker memory in MB, by the jobs it has run.
RSS_MB, RSS_AFTER_MANY_MB = 60.0, 80.0


def verdicts(summaries: Summaries) -> list[Verdict]:
    """One for each target that this run can tell something about."""
    found = [_beside(target, summaries) for target in (*BESIDE, *_enqueues(summaries))]
    found += [_bound(target, summaries.get(target.name, {})) for target in BOUNDS]
    for store in STORES:
        mine = summaries.get(ours(store), {})
        found.append(_bound(Bound(ours(store), "rss_mb", _memory_bound(mine)), mine))
        found += [_within(target, ours(store), mine) for target in WITHIN]
    return [one for one in found if one is not None]


def _enqueues(summaries: Summaries) -> list[Beside]:
    """Like is compared with like: calls that block with ours that blocks, where that one was measured, and those one awaits with ours."""
    wanted = []
    for store in SERVED:
        for figure, times in ENQUEUES.items():
            if figure in summaries.get(blocking(store), {}):
                wanted += [
                    Beside(store, figure, times, "the best peer as durable that does not block", _is_as_durable_and_awaited),
                    Beside(store, figure, times, "the best peer as durable that blocks", _is_as_durable_and_blocks, blocking(store)),
                ]
            else:
                wanted.append(Beside(store, figure, times, "the best peer as durable", _is_as_durable))
    return wanted


def _beside(target: Beside, summaries: Summaries) -> Verdict | None:
    who = target.who or ours(target.store)
    mine = summaries.get(who, {}).get(target.figure)
    others = [
        (found[target.figure], name)
        for name, found in summaries.items()
        if PEERS[name].store == target.store and target.figure in found and target.counts(PEERS[name])
    ]
    if mine is None or not others:
        return None
    best, name = max(others)
    wanted = f"at least {target.at_least:g}x {target.whom} ({name})"
    return _ratio(who, target.figure, mine, best, wanted, lambda reached: reached >= target.at_least)


def _bound(target: Bound, mine: Mapping[str, Summary]) -> Verdict | None:
    found = mine.get(target.figure)
    if found is None:
        return None
    is_fine = found.median <= target.number if target.is_most else found.median >= target.number
    wanted = f"at {'most' if target.is_most else 'least'} {target.number:,g}"
    return Verdict(target.name, target.figure, found.median, found.low, found.high, "", wanted, is_fine)


def _within(target: Within, name: str, mine: Mapping[str, Summary]) -> Verdict | None:
    found, other = mine.get(target.figure), mine.get(target.other)
    if found is None or other is None:
        return None
    wanted = f"at {'most' if target.is_most else 'least'} {target.times:g}x its {FIGURES[target.other].short}"
    return _ratio(
        name, target.figure, found, other, wanted, lambda reached: reached <= target.times if target.is_most else reached >= target.times
    )


def _ratio(name: str, figure: str, mine: Summary, other: Summary, wanted: str, is_fine: Callable[[float], bool]) -> Verdict | None:
    """The ratio of the medians; at worst and at best, each side had its slowest and its fastest round."""
    if not other.low:
        return None
    reached = mine.median / other.median
    return Verdict(name, figure, reached, mine.low / other.high, mine.high / other.low, "x", wanted, is_fine(reached))


def _memory_bound(mine: Mapping[str, Summary]) -> float:
    return RSS_AFTER_MANY_MB if "drained" in mine and mine["drained"].median >= MANY else RSS_MB
