"""What groups and limits cost: every look goes by index, and costs the same whatever number of tenants and jobs there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mulligan.core.clock import ManualClock
from mulligan.core.contract import Ask
from mulligan.core.groups import FAIR
from mulligan.core.limits import Slots
from mulligan.stores.sqlite import SQLiteStore
from tests.builders import ask, bucket, claim, done, fifo, grip, grouped, new_job
from tests.sqlite.tracing import Call, plan_of, statements_of, steps_of

LIMITS = (Slots(most=10_000), Slots(most=100, by_key=True), bucket("tenants", burst=1_000, part=FAIR))
GROUPS, GROUPED = "mulligan_jobs_groups (queue=? AND lane=? AND priority=?", "mulligan_jobs_grouped (queue=? AND lane=? AND priority=?"
BOTH_LANES = (ask(limits=LIMITS), ask(lane="retry", limits=LIMITS))
BY_AGE = Ask(queue="q", lane=None, priority=0, guaranteed=1_000, order="created_at", limits=LIMITS)


async def renew_late(store: SQLiteStore) -> None:
    """Claims under slots, for no time at all, and renews."""
    jobs = (await claim(store, *BOTH_LANES, total=2, lease_s=0)).jobs
    assert [answer.held for answer in await store.renew([grip(job) for job in jobs], 1)] == [True, True]


CALLS: dict[str, tuple[Call, list[str]]] = {
    "ring": (
        lambda store: claim(store, ask(after="b"), total=1),
        [
            f"{GROUPED} AND run_at_us<?)",  # what is due longest
            f"{GROUPS} AND grp>? AND grp<?)",  # from one group to the next
            f"{GROUPS} AND grp=? AND run_at_us<?)",  # what is due in one
        ],
    ),
    "ring by age": (
        lambda store: claim(store, fifo()),
        [f"{GROUPS} AND grp=? AND run_at_us<?)", "mulligan_jobs_fifo (queue=? AND priority=? AND lane=?)"],
    ),
    "limits": (
        lambda store: claim(store, *BOTH_LANES),
        [
            "mulligan_jobs_slots (queue=? AND lane=? AND lease_expires_at_us>?)",
            "mulligan_jobs_keys (queue=? AND concurrency_key=? AND lease_expires_at_us>?)",
            "mulligan_buckets USING PRIMARY KEY (key=?)",
            "mulligan_jobs USING INTEGER PRIMARY KEY (rowid=?)",
        ],
    ),
    "limits by age": (lambda store: claim(store, BY_AGE), ["mulligan_jobs_fifo (queue=? AND priority=? AND lane=?)"]),
    "next due": (lambda store: claim(store, ask("later")), [f"{GROUPED} AND run_at_us>?)"]),
    "late renewal": (
        renew_late,
        [
            "mulligan_jobs_slots (queue=? AND lane=? AND lease_expires_at_us>?)",
            "mulligan_jobs_keys (queue=? AND concurrency_key=? AND lease_expires_at_us>?)",
        ],
    ),
    "pulse": (lambda store: store.pulse(["q"]), [f"{GROUPED} AND run_at_us<?)"]),
    "a note": (lambda store: store.put_note("n", "", 0), ["mulligan_notes USING PRIMARY KEY (key=?)"]),
    "notes": (lambda store: store.notes("n"), ["mulligan_notes USING PRIMARY KEY (key>?)"]),
}


@pytest.mark.parametrize("name", CALLS)
async def test_careful_calls_go_by_index(store: SQLiteStore, name: str) -> None:
    """Rings, heads, counts, levels and due times are found by index, by one step for each group."""
    await store.insert([grouped(fair=fair, key=key) for fair in "abc" for key in (None, "k") for _ in range(10)])
    await store.insert([new_job(), grouped("later", fair="a", delay_s=60)])
    call, wanted = CALLS[name]
    plan = await plan_of(store, call)
    for line in wanted:
        assert any(line in step for step in plan), (line, plan)
    assert [line for line in plan if re.match(r"SCAN (mulligan_(?!queues)\w+|j)\b(?! USING INDEX mulligan_jobs_lease)", line)] == []


async def test_plain_claims_beside_grouped_queues_make_no_more_calls(store: SQLiteStore) -> None:
    """A queue without groups is claimed, found empty and settled by the same statements, whatever other queues have."""

    async def work(store: SQLiteStore) -> None:
        await store.insert([new_job() for _ in range(3)])
        await store.settle([done(job) for job in (await claim(store, ask(), total=3)).jobs])
        assert (await claim(store, ask())).jobs == []

    def shapes(statements: list[str]) -> list[str]:
        return [" ".join(statement.split()[:3]) for statement in statements]

    await work(store)
    before = shapes(await statements_of(store, work))
    await store.insert([grouped("other", fair=name) for name in "abc"])
    assert shapes(await statements_of(store, work)) == before
    # insert; look, look, take, remember, read; settle; look, next due
    assert [shape for shape in before if not shape.startswith(("INSERT INTO mulligan_jobs", "UPDATE mulligan_jobs INDEXED"))] == [
        "SELECT EXISTS (SELECT",
        "SELECT EXISTS (SELECT",
        "UPDATE mulligan_jobs SET",
        "INSERT INTO mulligan_claims",
        "SELECT json_group_array(json_array(j.id, j.queue,",
        "SELECT EXISTS (SELECT",
        "SELECT min(run_at_us) FROM",
    ]


async def test_index_of_plain_jobs_has_no_grouped_ones(store: SQLiteStore) -> None:
    """And the other way round: each pays for its own."""
    await store.insert([new_job(), grouped(fair="a")])

    async def counted(index: str, condition: str) -> int:
        sql = f"SELECT count(*) FROM mulligan_jobs INDEXED BY {index} WHERE status = 'pending' AND {condition}"
        [count] = await store._read(lambda t: t.row(sql))
        return int(count)

    assert await counted("mulligan_jobs_due", "ready = 0 AND grp IS NULL") == 1
    for index in ("mulligan_jobs_groups", "mulligan_jobs_grouped"):
        assert await counted(index, "grp IS NOT NULL") == 1


async def cost_of_claims(path: Path, clock: ManualClock, tenants: int, each: int, *asks: Ask) -> int:
    """What four claims of five take beside so many tenants with so many jobs each, half of them in the future."""
    store = SQLiteStore(path / f"{tenants}-{each}.db", clock=clock, durability="normal")
    await store.open()
    for delay_s in (0, 1_000):
        for _ in range(each):
            jobs = [grouped(fair=f"tenant {tenant:05}", key=f"key {tenant}", delay_s=delay_s) for tenant in range(tenants)]
            await store.insert(jobs)
    # As many run already, under limits.
    await store.insert([grouped(fair=f"tenant {tenant:05}", key=f"key {tenant}", priority=2) for tenant in range(tenants)])
    taken = 0
    for _ in range(tenants // 50):
        taken += len((await claim(store, ask(priority=2, limits=LIMITS[1:]), total=50)).jobs)
    assert taken == tenants

    async def work(store: SQLiteStore) -> None:
        after = ""
        for _ in range(4):
            wanted = [Ask(**{name: getattr(one, name) for name in one.__struct_fields__} | {"after": after}) for one in asks]
            claimed = await claim(store, *wanted, total=5)
            assert len(claimed.jobs) == 5
            after = claimed.turns[0]

    cost = await steps_of(store, work)
    await store.close()
    return cost


@pytest.mark.parametrize("asks", [(ask(),), BOTH_LANES, (fifo(),)], ids=["no limits", "limits", "by age"])
async def test_claims_cost_the_same_among_many_tenants(tmp_path: Path, clock: ManualClock, asks: tuple[Ask, ...]) -> None:
    """Two thousand tenants cost what two hundred cost, and twenty jobs of each tenant what two cost."""
    few = await cost_of_claims(tmp_path, clock, 200, 1, *asks)
    many = await cost_of_claims(tmp_path, clock, 2_000, 1, *asks)
    deep = await cost_of_claims(tmp_path, clock, 200, 10, *asks)
    assert few > 10
    assert many <= 1.5 * few, (few, many)
    assert deep <= (1.5 if asks[0].order == "run_at" else 3) * few, (few, deep)


async def test_look_at_groups_that_are_not_due_is_bounded(store: SQLiteStore) -> None:
    """Ten times as many groups that wait for the future do not make a claim dearer, whether few jobs are due or many."""
    tenants = 0

    async def costs(more: int) -> list[int]:
        nonlocal tenants
        await store.insert([grouped(fair=f"tenant {tenant:05}", delay_s=1_000) for tenant in range(tenants, tenants + more)])
        tenants += more
        found = []
        for jobs in (1, 70):
            await store.insert([grouped(fair="x") for _ in range(jobs)])

            async def work(store: SQLiteStore) -> None:
                assert len((await claim(store, ask(), total=1)).jobs) == 1

            found.append(await steps_of(store, work))
            await claim(store, ask(), total=jobs)
        return found

    await costs(1)
    (few_small, many_small), (few_large, many_large) = await costs(600), await costs(6_000)
    assert few_large <= 1.3 * few_small + 5
    assert many_large <= 1.3 * many_small
    assert few_small < many_small / 5
