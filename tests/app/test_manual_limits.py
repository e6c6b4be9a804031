"""Claims by hand keep the same limits, budgets and breakers as workers do, and count for them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mulligan import Breaker, Constant, Downstream, Lease, Mulligan, Queue, Rate, RetryBudget, RetryPolicy
from mulligan import claiming as module
from mulligan.claiming import ManualClaims
from mulligan.core.clock import ManualClock
from mulligan.core.contract import Store
from mulligan.policy.breaker import read_state
from mulligan.request import Options
from tests.builders import all_events, grouped
from tests.faults import FaultyStore

POLICY = RetryPolicy(max_retries=50, backoff=Constant(1), jitter="none")


@pytest.fixture
async def app(url: str, clock: ManualClock) -> AsyncIterator[Mulligan]:
    """An open app on a clock that stands still, with a plain task and one that depends on a bank."""
    async with Mulligan(url, clock=clock, rng=random.Random(1), retry=POLICY) as app:
        app.declare("work")
        app.declare("pay", depends_on="bank")
        yield app


async def enqueue(app: Mulligan, jobs: int, task: str = "work", **options: Any) -> list[str]:
    """So many jobs of a task; their ids."""
    return [(await app.enqueue(task, **options)).id for _ in range(jobs)]


async def claimed(app: Mulligan, limit: int = 100, queue: str = "default") -> list[Lease]:
    """What one claim by hand gets."""
    return await app.claim(queue=queue, limit=limit)


# -- Limits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "options", "most"),
    [(Queue("default", concurrency=3), {}, 3), (Queue("default", key_concurrency=2), {"concurrency_key": "k"}, 2)],
    ids=["cap", "key"],
)
async def test_slots_are_kept_beside_claims_by_hand(app: Mulligan, queue: Queue, options: dict[str, Any], most: int) -> None:
    """No more than the slots are held at once; each that is settled gives one back."""
    app.queues(queue)
    ids = await enqueue(app, 6, **options)
    leases = await claimed(app)
    assert [lease.id for lease in leases] == ids[:most]
    assert await claimed(app) == []
    await leases[0].complete()
    await leases[1].release()
    assert [lease.id for lease in await claimed(app)] == [ids[1], ids[most]]
    assert {(await app.get(job_id)).attempts for job_id in ids[most + 1 :]} == {0}


async def test_tokens_are_spent_by_claims_by_hand(app: Mulligan, clock: ManualClock) -> None:
    """A rate bounds what is claimed; tokens come with time."""
    app.queues(Queue("default", rate=Rate(per_minute=60, burst=2)))
    await enqueue(app, 10)
    taken = [len(await claimed(app))]
    for seconds in (0.5, 0.5, 1.5, 60):
        clock.advance(seconds)
        taken.append(len(await claimed(app)))
    assert taken == [2, 0, 1, 1, 2]


async def test_a_spent_budget_holds_retries_and_fails_them_if_that_is_chosen(app: Mulligan, clock: ManualClock) -> None:
    """Fresh jobs go on; a retry waits for its token, and a failure beyond the budget is the last one."""
    app.queues(Queue("default", budget=RetryBudget(per_minute=6, burst=1, over="fail")))
    first, second, third = await enqueue(app, 3)
    for lease in await claimed(app, limit=2):
        await lease.fail("down")  # nothing is known of the budget yet: both may be retried
    clock.advance(1)
    [retry, fresh] = sorted(await claimed(app), key=lambda lease: lease.job.lane, reverse=True)
    assert (retry.job.lane, fresh.id) == ("retry", third)
    await fresh.fail("down")
    assert (await app.get(third)).status == "failed"
    assert {(await app.get(job_id)).status for job_id in (first, second)} == {"pending", "processing"}
    clock.advance(30)
    [other] = await claimed(app)
    clock.advance(30)  # by now there is a token again, though no claim has seen it
    await other.fail("down")
    assert (await app.get(other.id)).status == "pending"


async def test_tenants_take_turns_from_claim_to_claim(app: Mulligan) -> None:
    """Whose turn it is, is kept between two claims, per queue."""
    await app.store.insert([grouped("default", fair=tenant) for tenant in ("a", "a", "a", "b", "c")])
    assert [(await claimed(app, 1))[0].job.fair_key for _ in range(5)] == ["a", "b", "c", "a", "a"]


async def test_claims_at_once_keep_the_limits(app: Mulligan) -> None:
    """Ten claims that overlap take no more than the cap together."""
    app.queues(Queue("default", concurrency=4))
    await enqueue(app, 20)
    answers = await asyncio.gather(*(claimed(app, 3) for _ in range(10)))
    assert sum(map(len, answers)) == 4
    assert len({lease.id for leases in answers for lease in leases}) == 4


# -- Breakers ------------------------------------------------------------------------------------------------------------


async def state_of(app: Mulligan, name: str = "bank") -> Any:
    """What the store says of a breaker."""
    return next((read_state(note.body) for note in await app.store.notes("breaker:") if note.key == f"breaker:{name}"), None)


async def test_failures_by_hand_open_the_breaker(app: Mulligan, clock: ManualClock) -> None:
    """They count like those of a worker: the next claim holds back what depends on it, and takes the rest; probes close it again."""
    app.downstreams(Downstream("bank", breaker=Breaker(min_calls=5, open_for=10, probes=2, ramp=0)))
    await enqueue(app, 5, "pay")
    for lease in await claimed(app):
        await lease.fail("down")
    clock.advance(5)
    [other] = await enqueue(app, 1)
    assert [lease.id for lease in await claimed(app)] == [other]
    assert (await state_of(app)).state == "open"
    for seconds, probes in ((9.9, 0), (0.1, 1), (0.5, 0), (0.5, 1), (1, 3)):
        clock.advance(seconds)
        leases = await claimed(app)
        assert len(leases) == probes
        for lease in leases:
            await lease.complete()
    assert (await state_of(app)).state == "closed"
    jobs = [job async for job in app.jobs(task="pay")]
    assert {(job.status, job.attempts, job.releases) for job in jobs} == {("done", 2, 0)}


async def test_what_a_person_asks_for_is_for_one_job(app: Mulligan, clock: ManualClock) -> None:
    """`after` puts off the job that failed, not everything that depends on the same downstream."""
    first, second = await enqueue(app, 2, "pay")
    [lease] = await claimed(app, 1)
    await lease.fail("come back later", after=300)
    assert [lease.id for lease in await claimed(app)] == [second]
    clock.advance(300)
    assert [lease.id for lease in await claimed(app)] == [first]


async def test_what_is_given_up_by_hand_says_nothing_of_the_downstream(app: Mulligan) -> None:
    """A bad job is no bad downstream, and no good one."""
    await enqueue(app, 30, "pay")
    for lease in await claimed(app, 20):
        await lease.fail("no such account", retry=False)
    await (await claimed(app, 1))[0].complete()
    assert len(await claimed(app)) == 9
    state = await state_of(app)
    assert (state.state, sum(slot.ok for slot in state.calls), sum(slot.bad for slot in state.calls)) == ("closed", 1, 0)


async def test_what_another_holder_has_settled_is_not_counted(app: Mulligan, clock: ManualClock) -> None:
    """A lease that is lost says nothing: its outcome was not written."""
    await enqueue(app, 1, "pay")
    [lease] = await app.claim(lease=1)
    clock.advance(2)
    async with app.worker(keeper_thread=False, poll=3_600):  # its sweeper takes the job over before it does anything else
        while (await app.get(lease.id)).lease_owner == lease.job.lease_owner:
            await asyncio.sleep(0)
    assert not await lease.fail("down")
    await claimed(app)
    state = await state_of(app)
    assert state is None or sum(slot.bad for slot in state.calls) == 0


async def test_queues_of_one_process_count_for_themselves(app: Mulligan) -> None:
    """Equal calls of two queues, ended at the same moment and written at once, are all counted, and the change is told once."""
    app.downstreams(Downstream("bank", breaker=Breaker(min_calls=10)))
    for queue in ("a", "b"):
        await enqueue(app, 5, "pay", queue=queue)
        for lease in await claimed(app, queue=queue):
            await lease.fail("down")
    await asyncio.gather(claimed(app, queue="a"), claimed(app, queue="b"))
    await asyncio.gather(claimed(app, queue="a"), claimed(app, queue="b"))
    assert (await state_of(app)).state == "open"
    assert Counter(event.kind for event in await all_events(app.store))["BREAKER_OPENED"] == 1
    assert len(app.events.recent(kind="BREAKER_OPENED")) == 1


async def test_claims_at_once_tell_a_change_once(app: Mulligan) -> None:
    """Each claim begins with a look at the fleet; several that overlap write and tell the same change once."""
    await enqueue(app, 20, "pay")
    for lease in await claimed(app):
        await lease.fail("down")
    await asyncio.gather(*(claimed(app) for _ in range(8)))
    assert len(app.events.recent(kind="BREAKER_OPENED")) == 1
    assert Counter(event.kind for event in await all_events(app.store))["BREAKER_OPENED"] == 1


async def test_a_breaker_goes_by_the_clock_of_the_store(store: Store, clock: ManualClock) -> None:
    """A host whose own clock is a day ahead opens a breaker for as long as everybody else does."""
    ahead = ManualClock(clock.now_us() + 86_400_000_000)
    app = Mulligan("memory://")
    app.store = store
    app.declare("pay", depends_on="bank")
    kit = app._equipment({})  # the same as `app.claim` gives it
    claims = ManualClaims(kit, ahead)
    await store.insert([app.build(app.registry.need("pay"), [], {}, Options()) for _ in range(10)])
    for lease in await claims.claim("default", 10, 30_000_000):
        await lease.fail("down")
    await claims.claim("default", 1, 30_000_000)
    [note] = await store.notes("breaker:")
    state = read_state(note.body)
    assert state is not None
    assert (state.state, state.since_us, state.until_us) == ("open", clock.now_us(), clock.now_us() + 30_000_000)


# -- What the policy knows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_job", [False, True], ids=["of its task", "of its own"])
async def test_a_policy_that_adapts_sees_the_queue(app: Mulligan, by_job: bool) -> None:
    """R12 by hand: a job that fails while fifty others are due waits by the formula, wherever its policy comes from."""
    adaptive = RetryPolicy.preset("region-queue-adaptive")
    app.declare("slow", retry=None if by_job else adaptive)
    options = {"retry": adaptive} if by_job else {}
    await enqueue(app, 1, "slow", **options)
    await enqueue(app, 50)
    [lease] = await claimed(app, 1)
    await lease.fail("down")
    assert (await app.get(lease.id)).last_delay == pytest.approx(12)


async def test_a_pulse_that_fails_loses_no_job(app: Mulligan) -> None:
    """What was claimed is handed over, whatever becomes of the look at the queue."""
    faulty = FaultyStore(app.store)
    app.store = faulty  # type: ignore[assignment]
    faulty.fail("pulse")
    ids = await enqueue(app, 1, retry=RetryPolicy.preset("region-queue-adaptive"))
    assert [lease.id for lease in await claimed(app)] == ids


async def test_plain_policies_cost_no_look_at_the_queue(app: Mulligan) -> None:
    """The pulse is taken only for policies that use it."""
    faulty = FaultyStore(app.store)
    app.store = faulty  # type: ignore[assignment]
    await enqueue(app, 2)
    await claimed(app, 1)
    await claimed(app, 1)
    assert (faulty.calls["pulse"], faulty.calls["claim"]) == (0, 2)


async def test_what_is_kept_between_claims_is_bounded(app: Mulligan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever claims from ever new queues does not fill the memory."""
    monkeypatch.setattr(module, "QUEUES_MAX", 3)
    for number in range(10):
        await claimed(app, queue=f"queue-{number}")
    assert app._claims is not None
    assert list(app._claims._conditions) == ["queue-7", "queue-8", "queue-9"]
