"""500 seeds of the simulation: every invariant holds after every step, and no fault and no check stays silent."""

from __future__ import annotations

import pytest

from mulligan.sim.plan import FAULTS
from mulligan.sim.seeds import campaign

PART = 50
# S17 is shown by tests/model and tests/conformance, S21 by the transactions of the SQL stores, L6 on real connections (tests/outages).
CHECKS = {f"S{number}" for number in range(1, 25)} - {"S17", "S21"} | {f"L{number}" for number in range(1, 11)} - {"L6"}


@pytest.mark.parametrize("first", range(1, 501, PART))
def test_every_invariant_holds(first: int) -> None:
    """Parts of the 500 seeds, so that several can be played at a time; each part meets every fault and makes every check."""
    tally = campaign(range(first, first + PART))
    assert [(one.command, one.rule, one.told, one.trace) for one in tally.violations] == []
    assert tally.seeds == PART
    assert tally.jobs >= PART * 35
    assert set(FAULTS) - {name for name, times in tally.faults.items() if times} == set()
    assert CHECKS - set(tally.checks) == set()


@pytest.mark.torture
def test_a_million_jobs() -> None:
    """The long form."""
    tally = campaign(range(100_000, 109_000), jobs=150, processes=2)
    assert [(one.command, one.rule, one.told) for one in tally.violations] == []
    assert tally.jobs >= 1_000_000
