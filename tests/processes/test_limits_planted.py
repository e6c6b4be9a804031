"""Planted bugs: what a fleet does that keeps its limits wrongly is seen by the checks of test_limits.py."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest

from mulligan import Mulligan
from tests.processes.children import Nursery, until
from tests.processes.limited_checks import check_silence
from tests.processes.limited_rules import CROWDS, STREAMS
from tests.processes.limited_tasks import DOWNSTREAM, LEASE_S, mono_us
from tests.processes.storm import PROCESSES, Fleet, Producer, all_held_by, findings_of, hold_all, limited_app


@pytest.fixture
async def app(file_nursery: Nursery) -> AsyncIterator[Mulligan]:
    """The test's own app on a file; what is planted is not in the store."""
    async with limited_app(file_nursery) as app:
        yield app


@pytest.mark.parametrize(
    "bug, names",
    [("own slots", [crowd.name for crowd in CROWDS]), ("own tokens", [stream.name for stream in STREAMS])],
)
async def test_limits_that_each_process_keeps_for_itself_are_seen(file_nursery: Nursery, app: Mulligan, bug: str, names: list[str]) -> None:
    """Each process alone keeps the limit, all together do not: every check of that kind complains, and none of the other kind."""
    fleet = Fleet(file_nursery, bug=bug)
    fleet.start(PROCESSES)

    async def all_seen() -> bool:
        return {name for name, finding in findings_of(fleet.runs()).items() if finding.problems} >= set(names)

    async with Producer(app, random.Random(1)):
        await until(all_seen, pause_s=0.2)
    assert {name for name, finding in findings_of(fleet.runs()).items() if finding.problems} == set(names)


@pytest.mark.parametrize("bug", ["deaf", "late"])
async def test_workers_that_do_not_heed_an_open_breaker_are_seen(file_nursery: Nursery, app: Mulligan, bug: str) -> None:
    """Whether they never do, or only begin to after their first claim."""
    await app.open_breaker(DOWNSTREAM)
    fleet = Fleet(file_nursery, bug=bug)
    fleet.start(PROCESSES)

    async def is_seen() -> bool:
        return bool(check_silence(DOWNSTREAM, fleet.runs(), 0, mono_us()))

    async with Producer(app, random.Random(1)):
        await until(is_seen)


async def test_slots_that_do_not_come_back_are_seen(file_nursery: Nursery, app: Mulligan) -> None:
    """With leases that last for ever the slots of killed processes stay taken, and whoever waits for them waits in vain."""
    gate = file_nursery.folder / "gate"
    fleet = Fleet(file_nursery, sweeps=False, bug="long leases")
    await hold_all(app, gate)
    await all_held_by(fleet, *fleet.start(PROCESSES))
    fleet.kill(*await fleet.ready())
    await hold_all(app, gate)
    heirs = fleet.start(PROCESSES)
    await fleet.ready()
    with pytest.raises(AssertionError, match="waited in vain"):
        await all_held_by(fleet, *heirs, within_s=2 * LEASE_S)
