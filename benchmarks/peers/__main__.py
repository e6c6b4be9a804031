"""`python -m benchmarks.peers`: mulligan beside other queues, in one run, in turns. Exit code 1 if a peer could not be measured."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.peers.figures import GROUPS
from benchmarks.peers.noise import noise
from benchmarks.peers.places import Places
from benchmarks.peers.plan import BRIEF, BRIEF_ONCE, MEASURES, ONCE, steps
from benchmarks.peers.roster import BEST, PEERS, STORES, ours
from benchmarks.peers.run import Run, report
from benchmarks.peers.table import figures_table, ratio_table
from benchmarks.peers.targets import verdicts
from benchmarks.peers.work import Work


def say(text: str = "") -> None:
    """One line, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def show(run: Run) -> None:
    """The tables."""
    summaries = run.summaries()
    for store in STORES:
        peers = [name for name in PEERS if PEERS[name].store == store and name in summaries]
        if peers:
            say(f"\n{store}: medians, ± half the distance between the slowest and the fastest round")
            say("\n\n".join(table for names in GROUPS if (table := figures_table(summaries, peers, names))))
            if compared := ratio_table(summaries, ours(store), peers):
                say(f"\n{store}: more than 1 means that mulligan is ahead; a bare loop is the limit, not a peer")
                say(compared)
    if judged := verdicts(summaries):
        say("\ntargets, with what the rounds would have made of the ratio at worst and at best:")
        say("\n".join(one.line() for one in judged))
    found = noise(run.loops_ms)
    if found:
        say(
            f"\nmachine: a fixed loop took {found['median_ms']} ms (fastest {found['fastest_ms']}, slowest {found['slowest_ms']}); "
            f"{found['noisy_share']:.0%} of the steps began in a noisy moment"
        )
    if run.problems:
        say("\nnot measured:")
    for line in run.problems:
        say(f"  {line}")


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.peers", description="Measure mulligan beside other queues.")
    made.add_argument("--best", action="store_true", help="briefly: mulligan, the bare loops and the fastest peers")
    made.add_argument("--peer", choices=list(PEERS), action="append", metavar="NAME", help="only this one; may be repeated")
    made.add_argument("--store", choices=STORES, action="append", help="only on this store; may be repeated")
    made.add_argument("--measure", choices=MEASURES, action="append", help="only this; may be repeated")
    made.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="how often everything is measured (default %(default)s; the kill once, and with --best all but the drains)",
    )
    made.add_argument("--jobs", type=int, default=Work().jobs, help="no-op jobs of a drain, before a peer's share (default %(default)s)")
    made.add_argument("--back", type=float, default=Work().back_s, metavar="SECONDS", help="limit after a kill (default %(default)s)")
    made.add_argument("--out", type=Path, help="also write everything to this file, as JSON, after every step")
    made.add_argument("--list", action="store_true", help="tell who is measured, with which settings, and what each does not promise")
    return made


def main() -> int:
    """Measures what was asked for; 0 if everything could be measured, whatever came out."""
    asked = parser().parse_args()
    names = list(dict.fromkeys(asked.peer or (BEST if asked.best else PEERS)))
    names = [name for name in names if not asked.store or PEERS[name].store in asked.store]
    if asked.list:
        for name in names:
            say(f"{name} ({PEERS[name].store}): {PEERS[name].settings}. {PEERS[name].promises}.")
        return 0
    measures, once = (BRIEF, BRIEF_ONCE) if asked.best else (MEASURES, ONCE)
    run = Run(Work.of(asked.jobs)._replace(back_s=asked.back), say)
    ready = run.equip(names)
    with Places() as places:
        for step in steps(ready, asked.measure or measures, asked.rounds, once, lambda name, measure: PEERS[name].takes(measure)):
            run.take(places, step)
            if asked.out is not None:  # after every step, so that what an hour has found is not lost with the last minute
                asked.out.write_text(json.dumps(report(run, ready, places.versions), indent=2) + "\n", "utf-8")
    show(run)
    return 1 if run.problems else 0


if __name__ == "__main__":
    sys.exit(main())
