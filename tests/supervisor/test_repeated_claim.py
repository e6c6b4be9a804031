"""What a supervisor asks of a store when a child died in the middle of a claim: the claim again, for nothing new."""

from __future__ import annotations

import pytest

from mulligan.core.contract import Store
from mulligan.core.limits import Slots
from mulligan.worker.deaths import still_held
from tests.builders import ask, claim, done, get, grouped, new_job


@pytest.mark.parametrize("group", [None, "tenant"])
async def test_a_repeated_claim_answers_what_is_held_and_takes_no_more(store: Store, group: str | None) -> None:
    """The jobs still held under that claim id come back under the same fence; those that wait are left to others."""
    jobs = [new_job() if group is None else grouped(fair=group) for _ in range(4)]
    await store.insert(jobs)
    limits = () if group is None else (Slots(most=3),)
    first = (await claim(store, ask(limits=limits), claim_id="c-1", total=3)).jobs
    assert len(first) == 3
    await store.settle([done(first[1])])
    repeated = await still_held(store, "c-1", "worker-1")
    assert sorted((job.id, job.fence) for job in repeated) == sorted([(first[0].id, 1), (first[2].id, 1)])
    [waiting] = {job.id for job in jobs} - {job.id for job in first}
    assert (await get(store, waiting)).status == "pending"


async def test_a_claim_nobody_made_answers_nothing(store: Store) -> None:
    """An id the store has never seen claims nothing either, and stays free for a claim that is still on its way."""
    await store.insert([new_job() for _ in range(2)])
    assert await still_held(store, "c-1", "worker-1") == []
    assert len((await claim(store, claim_id="c-1", total=1)).jobs) == 1
    assert len(await still_held(store, "c-1", "worker-1")) == 1
