"""Enqueueing: every form of it, every option, and what is stored for each."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from mulligan import BadSetting, Constant, Mulligan, Rate, RetryPolicy, WrongArguments
from mulligan.core.clock import SECOND_US
from mulligan.core.groups import group_of
from mulligan.enqueueing import INSERT_BATCH_MAX, INSERT_CHARS_MAX
from tests.faults import FaultyStore

NEXT_CENTURY = datetime(2100, 1, 1, 12, 30, 15, 123456, tzinfo=timezone.utc)


async def test_a_call_is_stored_as_a_pending_job(app: Mulligan) -> None:
    """enqueue stores the arguments as given and gives back a handle to a fresh, ready job with zero counters."""

    @app.task(queue="billing", timeout=30, priority=1, tags=["money"])
    async def charge(invoice: int, *, currency: str = "EUR") -> None: ...

    handle = await charge.enqueue(42, currency="USD")
    job = await handle.job()
    assert handle.created
    assert (job.id, job.task, job.queue, job.args, job.kwargs) == (handle.id, "charge", "billing", [42], {"currency": "USD"})
    assert (job.status, job.view, job.lane, job.priority, job.tags, job.timeout) == ("pending", "ready", "fresh", 1, ("money",), 30)
    assert (job.attempts, job.failures, job.crashes, job.snoozes, job.releases, job.fence, job.generation) == (0, 0, 0, 0, 0, 0, 1)
    assert (job.last_error, job.result, job.finished_at, job.next_retry_at) == (None, None, None, None)
    assert job.created_at == job.updated_at == job.run_at
    assert job.created_at.tzinfo is timezone.utc


async def test_values_come_back_as_they_went_in(app: Mulligan) -> None:
    """Every JSON value survives the store: nested, empty, large, beyond the BMP, and texts that look like something else."""
    app.declare("work")
    args: list[Any] = [None, True, False, 0, -1, 2**63 - 1, -(2**63), 0.1, 1e300, -0.0, "", "𝄞 ü \\ \" ' %s ? {x}", "nul \0 inside", [], {}]
    args += [{"a": [1, {"b": None}], "": "empty key", "$where": 1, "a.b": 2, "__proto__": 3}, "2020-01-01T00:00:00Z", "x" * 100_000]
    handle = await app.enqueue("work", args=args, kwargs={"self": 1, "ünï": [2]})
    job = await handle.job()
    assert job.args == args
    assert job.kwargs == {"self": 1, "ünï": [2]}


@pytest.mark.parametrize(
    "options, fields",
    [
        ({"priority": 2}, {"priority": 2}),
        ({"unique_key": "k"}, {"unique_key": "k"}),
        ({"fair_key": "tenant 1"}, {"fair_key": "tenant 1", "concurrency_key": None}),
        ({"concurrency_key": "invoice:1/ü"}, {"concurrency_key": "invoice:1/ü", "fair_key": None}),
        ({"tags": ["a", "b"]}, {"tags": ("task", "a", "b")}),
        ({"queue": "other"}, {"queue": "other"}),
        ({"timeout": 1.5}, {"timeout": 1.5}),
        ({"timeout": None}, {"timeout": None}),
        ({"max_retries": 7}, {"max_retries": 7}),
        ({"max_retries": 0}, {"max_retries": 0}),
        ({"max_retries": None, "max_age": 60}, {"max_retries": None}),
        ({"max_age": 60}, {"max_age": 60.0}),
        ({"retry": RetryPolicy(max_retries=9)}, {"max_retries": 9}),
        ({"retry": RetryPolicy(max_retries=9), "max_retries": 2}, {"max_retries": 2}),
        ({"eta": NEXT_CENTURY}, {"run_at": NEXT_CENTURY, "view": "scheduled"}),
        ({"eta": NEXT_CENTURY.astimezone(timezone(timedelta(hours=5, minutes=45)))}, {"run_at": NEXT_CENTURY}),
        ({}, {"priority": 1, "queue": "home", "timeout": 900.0, "max_retries": 3, "max_age": None, "unique_key": None, "tags": ("task",)}),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
async def test_options_are_stored(app: Mulligan, options: dict[str, Any], fields: dict[str, Any]) -> None:
    """Each option sets its field, whether given by .options or by name; what is not given comes from the task."""

    @app.task(queue="home", priority=1, tags=["task"])
    async def work(number: int) -> None: ...

    typed = await (await work.options(**options).enqueue(1)).job()
    await app.cancel(typed.id)  # so that a unique key is free again
    named = await (await app.enqueue("work", args=[1], **options)).job()
    for job in (typed, named):
        assert {name: getattr(job, name) for name in fields} == fields


async def test_what_a_claim_must_know_is_stored_with_the_job(app: Mulligan) -> None:
    """Keys, downstream and a limited task make the job's group; a job with none of them has none."""
    app.declare("plain")
    app.declare("bank", depends_on="bank")
    app.declare("both", depends_on="bank", rate=Rate(per_s=5))
    keys: dict[str, Any] = {"fair_key": "f", "concurrency_key": "c"}
    jobs = [await (await app.enqueue(name, **given)).job() for name in ("plain", "bank", "both") for given in ({}, keys)]
    assert [(job.depends_on, job.group) for job in jobs] == [
        (None, None),
        (None, group_of("f", None, None, "c")),
        ("bank", group_of(None, "bank", None, None)),
        ("bank", group_of("f", "bank", None, "c")),
        ("bank", group_of(None, "bank", "both", None)),
        ("bank", group_of("f", "bank", "both", "c")),
    ]


@pytest.mark.parametrize("name", ["fair_key", "concurrency_key"])
@pytest.mark.parametrize(
    "value", ["", "x" * 129, 7, "a\x1fb", "a\0b", "a\ud800"], ids=["empty", "long", "number", "separator", "nul", "half"]
)
async def test_a_key_that_no_store_could_sort_is_refused(app: Mulligan, name: str, value: Any) -> None:
    """The message names the option; nothing is stored."""
    app.declare("work")
    with pytest.raises(BadSetting, match=name):
        await app.enqueue("work", **{name: value})
    assert (await app.status()).queues == []


async def test_delay_counts_from_the_stores_now(app: Mulligan) -> None:
    """A delayed job is scheduled that much after it was stored, and is not claimable before."""

    @app.task
    async def work() -> None: ...

    job = await (await work.options(delay=90.5).enqueue()).job()
    assert job.run_at is not None
    assert (job.run_at - job.created_at).total_seconds() == 90.5
    assert job.view == "scheduled"
    assert await app.claim() == []


async def test_options_add_up_and_do_not_stick(app: Mulligan) -> None:
    """Chained options merge, the later one wins, and the task itself stays as it was."""

    @app.task
    async def work() -> None: ...

    chained = work.options(priority=1, tags=["x"]).options(priority=2, delay=5)
    job = await (await chained.enqueue()).job()
    plain = await (await work.enqueue()).job()
    assert (job.priority, job.tags, job.view) == (2, ("x",), "scheduled")
    assert (plain.priority, plain.tags, plain.view) == (0, (), "ready")


async def test_a_unique_key_has_one_live_job_per_queue(app: Mulligan) -> None:
    """While a job of the key lives, others get its handle; another queue, or a finished holder, does not stand in the way."""

    @app.task
    async def work(number: int) -> None: ...

    one = work.options(unique_key="invoice:42")
    first = await one.enqueue(1)
    second = await one.enqueue(2)
    elsewhere = await one.options(queue="other").enqueue(3)
    assert (first.created, second.created, elsewhere.created) == (True, False, True)
    assert second.id == first.id != elsewhere.id
    assert (await second.job()).args == [1]
    [lease] = await app.claim()
    assert (await one.enqueue(4)).id == first.id  # processing is alive, too
    await lease.complete()
    third = await one.enqueue(5)
    assert third.created
    assert third.id != first.id


async def test_only_a_created_job_is_announced(app: Mulligan) -> None:
    """ENQUEUED is published once per stored job, not for the one that met a taken key."""

    @app.task
    async def work() -> None: ...

    handle = await work.options(unique_key="k").enqueue()
    await work.options(unique_key="k").enqueue()
    assert [event.job_id for event in app.events.recent(kind="ENQUEUED")] == [handle.id]


async def test_enqueue_many_keeps_the_order_and_writes_in_batches(app: Mulligan) -> None:
    """Handles come in the order of the jobs, ids rise, and 2,234 jobs take three writes."""

    @app.task
    async def work(number: int) -> None: ...

    app.store = faulty = FaultyStore(app.store)
    jobs = [work.job(number) for number in range(2_234)]
    handles = await app.enqueue_many(jobs)
    assert [handle.id for handle in handles] == [job.id for job in jobs] == sorted(job.id for job in jobs)
    assert faulty.calls["insert"] == -(-2_234 // INSERT_BATCH_MAX) == 3
    assert (await app.status())["default"].ready == 2_234
    assert [lease.job.args for lease in await app.claim(limit=3)] == [[0], [1], [2]]
    assert await app.enqueue_many([]) == []


async def test_large_payloads_go_in_smaller_batches(app: Mulligan) -> None:
    """What is written at once is bounded by its size too; nothing is left out or changes its place."""

    @app.task
    async def work(number: int, text: str) -> None: ...

    app.store = faulty = FaultyStore(app.store)
    jobs = [work.job(number, "x" * (INSERT_CHARS_MAX // 200)) for number in range(250)]
    handles = await app.enqueue_many(jobs)
    assert [handle.id for handle in handles] == [job.id for job in jobs]
    assert faulty.calls["insert"] == 2  # a hundred, and then all that is left
    assert (await app.status())["default"].ready == 250


@pytest.mark.parametrize("name", ["app", "task", "colour"])
async def test_an_option_that_does_not_exist_is_named(app: Mulligan, name: str) -> None:
    """Whatever it is called, it is told as one; also where something within has a parameter of that name."""
    app.declare("work")
    options: dict[str, Any] = {name: 1}
    with pytest.raises(BadSetting, match=f"unknown option {name}"):
        await app.enqueue("work", **options)


async def test_enqueue_many_again_repeats_nothing(app: Mulligan) -> None:
    """After an interruption in the middle, the same list again stores what was missing, and only that."""

    @app.task
    async def work(number: int) -> None: ...

    jobs = [work.job(number) for number in range(1_200)]
    real = app.store
    app.store = faulty = FaultyStore(real)
    faulty.fail("insert", when="after", error=KeyboardInterrupt())  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        await app.enqueue_many(jobs)
    app.store = real
    assert (await app.status())["default"].ready == INSERT_BATCH_MAX  # stored, though nobody heard of it
    handles = await app.enqueue_many(jobs)
    assert [handle.created for handle in handles] == [True] * 1_200
    assert (await app.status())["default"].ready == 1_200


async def test_mixed_tasks_and_options_in_one_batch(app: Mulligan) -> None:
    """A batch may hold jobs of any task, queue and option, and a job made once is one job however often it is given."""

    @app.task
    async def one() -> None: ...

    @app.task(queue="b")
    async def two(text: str) -> None: ...

    repeated = one.job()
    handles = await app.enqueue_many([repeated, two.options(delay=5).job("x"), repeated])
    assert [(await handle.job()).queue for handle in handles] == ["default", "b", "default"]
    assert handles[0].id == handles[2].id
    assert len([job async for job in app.jobs()]) == 2


async def test_declared_tasks_are_enqueued_with_their_defaults(app: Mulligan) -> None:
    """A declared name needs no function here; its queue, policy, priority and tags are used, its arguments are not checked."""
    app.declare("remote", queue="far", retry=RetryPolicy(max_retries=1), timeout=5, priority=2, tags=["t"])
    job = await (await app.enqueue("remote", args=[1, 2], kwargs={"x": 3})).job()
    assert (job.queue, job.max_retries, job.timeout, job.priority, job.tags) == ("far", 1, 5, 2, ("t",))


@pytest.mark.parametrize(
    "args, kwargs",
    [((), {}), ((1, 2, 3), {}), ((1,), {"nosuch": 2}), ((1,), {"a": 2}), ((), {"b": "x"})],
    ids=["missing", "too many", "unknown keyword", "given twice", "one missing"],
)
async def test_wrong_arguments_are_refused_at_once(app: Mulligan, args: Any, kwargs: Any) -> None:
    """Arguments that do not fit are refused when enqueued, in all forms, with the signature; nothing is stored."""

    @app.task
    async def work(a: int, b: str = "") -> None: ...

    for call in (
        lambda: work.enqueue(*args, **kwargs),
        lambda: work.options(delay=1).enqueue(*args, **kwargs),
        lambda: app.enqueue("work", args=args, kwargs=kwargs),
    ):
        with pytest.raises(WrongArguments, match=r"work\(a: 'int', b: 'str' = ''\) -> 'None'"):
            await call()
    with pytest.raises(TypeError):
        work.job(*args, **kwargs)
    assert (await app.status()).queues == []


async def test_delay_and_eta_exclude_each_other(app: Mulligan) -> None:
    """Two answers to one question are refused."""
    app.declare("work")
    with pytest.raises(BadSetting, match="not both"):
        await app.enqueue("work", delay=1, eta=NEXT_CENTURY)


async def test_an_eta_in_the_past_is_due_at_once(app: Mulligan) -> None:
    """A time that has passed is stored as given and can be claimed."""
    app.declare("work")
    past = datetime(1970, 1, 1, tzinfo=timezone.utc)
    handle = await app.enqueue("work", eta=past)
    assert (await handle.job()).run_at == past
    assert [lease.id for lease in await app.claim()] == [handle.id]


async def test_priority_decides_among_waiting_jobs(app: Mulligan) -> None:
    """Urgent jobs are claimed before raised ones, and those before normal ones."""

    @app.task
    async def work(priority: int) -> None: ...

    for priority in (0, 1, 2, 0, 1, 2):
        await work.options(priority=priority).enqueue(priority)
    claimed = [lease.job.priority for lease in await app.claim(limit=6)]
    assert sorted(claimed) == [0, 0, 1, 1, 2, 2]
    assert claimed[0] == 2


async def test_a_schedule_is_upserted_and_steered(app: Mulligan) -> None:
    """interval= stores one schedule per name, whose handle tells its next runs, pauses, resumes and removes it."""

    @app.task
    async def check() -> None: ...

    every = await app.enqueue("check", interval=300, name="check-system")
    again = await app.enqueue("check", interval=300, name="check-system")
    unnamed = await app.enqueue("check", interval=60)
    assert (every.name, unnamed.name) == ("check-system", "check")
    assert [one.name for one in await app.schedules()] == ["check", "check-system"]
    runs = every.next_runs(3)
    assert again.next_runs(3) == runs
    assert [(later - runs[0]).total_seconds() for later in runs] == [0, 300, 600]
    assert await every.pause()
    assert [one.schedule.paused for one in await app.schedules()] == [False, True]
    assert await every.resume()
    assert await every.remove()
    assert not await every.remove()
    assert not await every.pause()
    assert [one.name for one in await app.schedules()] == ["check"]
    assert [job async for job in app.jobs()] == []  # a schedule is no job


async def test_the_frozen_policy_of_a_job_names_its_numbers(app: Mulligan) -> None:
    """What is stored with a job is the policy it was enqueued under, not a reference to it."""

    @app.task(retry=RetryPolicy(max_retries=2, backoff=Constant(delay=7), jitter="none"))
    async def work() -> None: ...

    await work.enqueue()
    [lease] = await app.claim()
    assert await lease.fail("once")
    job = await app.get(lease.id)
    assert job.last_delay == 7
    assert job.run_at_us == job.updated_at_us + 7 * SECOND_US
    assert job.history[0].delay == 7


async def test_queues_named_by_callers_are_not_remembered_without_a_bound(app: Mulligan, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name per tenant costs memory once; what is kept of such names for speed is forgotten again."""
    monkeypatch.setattr("mulligan.request.KNOWN_MAX", 5)
    app.declare("work")
    for tenant in range(20):
        await app.enqueue("work", queue=f"tenant-{tenant}", priority=1)
    assert len(app._builder._frozen) <= 5
