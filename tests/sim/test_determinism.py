"""A seed is a world: the same in every process, whatever was played before it and however strings are hashed there."""

from __future__ import annotations

import os
import subprocess
import sys

from mulligan.sim.seeds import campaign, play

SEEDS = range(20, 32)
PRINT = "from mulligan.sim.seeds import campaign; print(campaign(range({first}, {end}), processes={processes}).trace_hash)"


def _elsewhere(hash_seed: int, seeds: range, processes: int = 1) -> str:
    code = "if __name__ == '__main__': " + PRINT.format(first=seeds.start, end=seeds.stop, processes=processes).replace("; ", "\n    ")
    code = code.replace("if __name__ == '__main__': ", "if __name__ == '__main__':\n    ")
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": str(hash_seed)}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_same_trace_in_two_processes() -> None:
    """Two processes that hash strings differently see the same events in the same order."""
    assert _elsewhere(1, SEEDS) == _elsewhere(2, SEEDS)


def test_the_same_trace_whatever_came_before() -> None:
    """Nothing of one world is left for the next."""
    alone = play(25).digest
    play(24)
    assert play(25).digest == alone
    assert play(26).digest != alone


def test_the_same_tally_of_several_processes() -> None:
    """Seeds that are shared out among processes come to the same."""
    alone, together = campaign(range(1, 5)), campaign(range(1, 5), processes=2)
    assert together.trace_hash == alone.trace_hash
    assert together.checks == alone.checks
