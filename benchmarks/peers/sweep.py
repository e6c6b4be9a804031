"""`python -m benchmarks.peers.sweep`: each peer with other numbers in its settings, so that it is measured at its best.

One number is changed at a time. Exit code 1 if another one was better than the one in use in every round, or could not be measured.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from benchmarks.peers.environments import Environment, environment
from benchmarks.peers.figures import FIGURES, summary
from benchmarks.peers.measures import measured
from benchmarks.peers.places import Places
from benchmarks.peers.programs import PeerFailed
from benchmarks.peers.roster import FASTEST, PEERS, Peer
from benchmarks.peers.table import columns, shown, with_spread
from benchmarks.peers.work import Work

from tests.servers import ServerFailed

JUDGED = {"drain": "drain_per_s", "storm": "storm_per_s", "pickup": "pickup_p50_ms"}
Values = Mapping[str, Sequence[float]]  # of one figure, by settings, a value for each round


def said(peer: Peer) -> str:
    """The numbers of its settings in words."""
    return ", ".join(f"{one.name} {one.used}" for one in peer.tuned)


def candidates(peer: Peer) -> list[Peer]:
    """The peer as it is measured, and with each other number in the place of one that is used."""
    found = [peer]
    for index, one in enumerate(peer.tuned):
        for number in one.others:
            changed = one._replace(used=number, others=())
            found.append(peer._replace(tuned=(*peer.tuned[:index], changed, *peer.tuned[index + 1 :])))
    return found


def better(values: Values, used: str, figure: str) -> list[str]:
    """Settings that were better than the ones in use in every round, the best round of those included."""
    if used not in values:
        return []
    if FIGURES[figure].more_is_better:
        return [name for name, found in values.items() if name != used and min(found) > max(values[used])]
    return [name for name, found in values.items() if name != used and max(found) < min(values[used])]


def table(values: Values, used: str, figure: str) -> str:
    """A line for each of the settings."""
    rows = [["settings", FIGURES[figure].short, "to the one in use"]]
    own = summary(list(values[used])).median if used in values else 0.0
    for name, found in values.items():
        times = f"{summary(list(found)).median / own:.2f}x" if own else "-"
        rows.append([name + (" (in use)" if name == used else ""), with_spread(summary(list(found))), times])
    return columns(rows)


def swept(
    peer: Peer, place: Places, measure: str, rounds: int, work: Work, say: Callable[[str], None]
) -> tuple[dict[str, list[float]], bool]:
    """The figure of each candidate, in turns; and whether all could be measured."""
    made: Environment = environment(peer)
    tried, figure = candidates(peer), JUDGED[measure]
    values: dict[str, list[float]] = defaultdict(list)
    is_whole = True
    for number in range(rounds):
        turn = number % len(tried)
        for one in [*tried[turn:], *tried[:turn]]:
            try:
                with place.place(peer.store) as here:
                    value = measured(one, made, here, work, measure)[figure]
            except (PeerFailed, ServerFailed, OSError) as problem:
                say(f"{peer.name}, {said(one)}: not measured, {problem}")
                is_whole = False
                continue
            values[said(one)].append(value)
            say(f"round {number + 1}  {peer.name}, {said(one)}: {figure} {shown(value)}")
    return values, is_whole


def say(text: str = "") -> None:
    """One line, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """Sweeps what was asked for."""
    tunable = [name for name, peer in PEERS.items() if peer.tuned]
    made = argparse.ArgumentParser(prog="python -m benchmarks.peers.sweep", description="Try other numbers in the settings of the peers.")
    made.add_argument("--peer", choices=tunable, action="append", help=f"only this one; may be repeated (default: {', '.join(FASTEST)})")
    made.add_argument("--all", action="store_true", help="every peer that has numbers to try")
    made.add_argument("--measure", choices=list(JUDGED), default="drain", help="what is judged (default %(default)s)")
    made.add_argument("--rounds", type=int, default=3, help="how often each is measured (default %(default)s)")
    made.add_argument("--jobs", type=int, default=Work().jobs, help="jobs of a drain, before a peer's share (default %(default)s)")
    asked = made.parse_args()
    is_fine = True
    told = []
    with Places() as places:
        for name in tunable if asked.all else asked.peer or FASTEST:
            if not PEERS[name].takes(asked.measure):
                continue
            try:
                values, is_whole = swept(PEERS[name], places, asked.measure, asked.rounds, Work.of(asked.jobs), say)
            except PeerFailed as problem:
                say(f"{name}: not measured, {problem}")
                is_fine = False
                continue
            used, figure = said(PEERS[name]), JUDGED[asked.measure]
            told += [f"\n{name}", table(values, used, figure)]
            found = better(values, used, figure)
            told += [f"better in every round: {one}" for one in found]
            is_fine = is_fine and is_whole and not found
    say("\n".join(told))
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
