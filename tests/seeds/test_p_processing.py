"""P: the behaviours of processing and failure orchestration."""

from __future__ import annotations

import ast
import asyncio
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mulligan import Constant, Context, Event, Fail, Mulligan, RetryPolicy, StoreUnavailable
from mulligan.admin import Admin
from mulligan.core.contract import Signals, Store
from mulligan.core.job import ErrorInfo
from mulligan.core.outcome import LeaseLost, Outcome, Raised, Released, Snoozed, Succeeded
from mulligan.observe.bus import EventBus
from mulligan.policy.decide import decide
from tests import builders
from tests.seeds.scenes import Flaky, MeetingStore, Watched, change_store, crash_worker, drained, kinds, successor
from tests.virtual import Stage, play

SOURCE = Path(__file__).resolve().parents[2] / "src" / "mulligan"
SPRING = RetryPolicy.preset("springqueue")


def test_p01_a_handler_works_or_raises_and_touches_nothing_else(backend: str, tmp_path: Path) -> None:
    """A plain function that knows nothing of the queue is retried and recorded; the context it may ask for writes receipts of its own
    steps, and nothing else."""

    async def scene(stage: Stage) -> None:
        calls: list[str] = []

        def plain(name: str) -> str:
            calls.append(name)
            if len(calls) < 3:
                raise OSError("disk busy")
            return name.upper()

        handle = await stage.app.task(retry=RetryPolicy(jitter="none"))(plain).enqueue("a")
        await drained(stage)
        job = await handle.job()
        assert (job.status, job.result, job.attempts, job.failures) == ("done", "A", 3, 2)

    play(backend, tmp_path, scene)
    offered = {name for name in dir(Context) if not name.startswith("_")}
    assert offered == {"attempt", "cancelled", "deadline", "fence", "idempotency_key", "job", "mark_cancelled", "once", "state", "sync"}


async def test_p02_one_pure_function_decides(store: Store) -> None:
    """The same job, outcome and seed give the same change, the job is left as it was, and every decision says why."""
    job = await builders.put_and_claim(store)
    before = msgspec.json.encode(job)
    outcomes: list[Outcome] = [
        Succeeded(),
        Raised(error=ErrorInfo(type="X", message="x")),
        Snoozed(5_000_000),
        Released("shutdown"),
        LeaseLost(),
    ]
    for outcome in outcomes:
        changes = [
            decide(job, outcome, RetryPolicy(), Signals(now_us=job.read_at_us), random.Random(4), settle_id="s", worker="w")
            for _ in range(2)
        ]
        assert changes[0] == changes[1]
        assert changes[0].why or changes[0].cause == "success"
    assert msgspec.json.encode(job) == before
    assert await builders.get(store, job.id) == job


def test_p02_nothing_else_makes_changes() -> None:
    """Only policy/decide builds a Change; worker, app and stores pass on what it returns."""
    makers = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Change":
                makers.add(path.relative_to(SOURCE).as_posix())
    assert makers == {"policy/decide.py"}


def test_p04_the_failure_and_its_retry_are_one_atomic_write(backend: str, tmp_path: Path) -> None:
    """A write that never arrives shows neither, a write whose answer is lost shows both, and its repeat adds nothing."""
    neither: Any = ("processing", 0, [], [])
    both = ("pending", 1, ["failure"], ["FAILED", "RETRY_SCHEDULED"])

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, failures=1, retry=RetryPolicy(backoff=Constant(60), jitter="none"))
        store = change_store(stage.app, Watched(stage.app.store))
        handle = await flaky.task.enqueue()
        store.fail("settle", times=2)
        store.fail("settle", when="after")
        async with stage.worker():
            await asyncio.sleep(30)
        assert store.seen == [neither, neither, both, both]
        [record] = (await handle.job()).history
        assert record.delay == 60
        assert record.error is not None
        failed, scheduled = [event for event in await store.read_events(0, 100) if event.job_id == handle.id]
        assert (failed.kind, scheduled.kind, scheduled.seq) == ("FAILED", "RETRY_SCHEDULED", failed.seq + 1)
        assert (failed.at_us, failed.fence) == (scheduled.at_us, scheduled.fence)

    play(backend, tmp_path, scene)


@pytest.mark.parametrize("executions", [1, 3, 5])
def test_p05_the_preset_counts_executions_and_doubles_from_a_second(backend: str, tmp_path: Path, executions: int) -> None:
    """The delay after failure n is 1000 * 2^max(0, n-1) ms, and a limit of N is N executions, as the design counts."""
    policy = RetryPolicy.preset("springqueue", executions=executions)
    assert [round(policy.raw_delay(n) * 1_000) for n in range(1, 8)] == [1000 * 2 ** max(0, n - 1) for n in range(1, 8)]
    assert SPRING.max_retries == 2

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, retry=policy)
        await flaky.task.enqueue()
        await drained(stage)
        assert len(flaky.starts) == executions
        assert flaky.waits == [1, 2, 4, 8][: executions - 1]

    play(backend, tmp_path, scene)


def test_p06_the_delay_survives_a_crash(backend: str, tmp_path: Path) -> None:
    """After the worker dies without a word, another one runs the retry when its time has come, not before, and like new work."""
    starts: list[float] = []

    async def scene(stage: Stage) -> None:
        async def work(name: str) -> None:
            starts.append(stage.elapsed_s)
            if len(starts) == 1:
                raise ConnectionError

        def register(app: Mulligan) -> Any:
            return app.task(retry=RetryPolicy(backoff=Constant(60), jitter="none"))(work)

        handle = await register(stage.app).enqueue("old")
        await stage.worker().start()
        await asyncio.sleep(10)
        await crash_worker()
        reborn = await successor(backend, tmp_path, stage)
        task = register(reborn)
        assert await reborn.claim(limit=10) == []
        async with Stage(reborn, stage.clock).worker() as worker:
            await asyncio.sleep(49)
            assert len(starts) == 1
            await worker.drain()
            fresh = await task.enqueue("new")
            await worker.drain()
        assert starts[1] == pytest.approx(60, abs=0.01)
        path = ["CLAIM_SUCCESS", "PROCESSING", "COMPLETED", "LOCK_RELEASE"]
        assert kinds(reborn, handle.id)[-4:] == path
        assert kinds(reborn, fresh.id) == ["ENQUEUED", *path]
        await reborn.close()

    play(backend, tmp_path, scene)


def test_p07_requeue_is_for_failed_jobs_only(backend: str, tmp_path: Path) -> None:
    """Pending, running, done and cancelled jobs answer False and stay as they are; a failed one answers True, once."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.declare("work")
        pending, running, done, cancelled, failed = [await app.enqueue("work") for _ in range(5)]
        leases = {lease.id: lease for lease in await app.claim(limit=5)}
        await leases[pending.id].release()
        await leases[done.id].complete()
        await leases[cancelled.id].release()
        await app.cancel(cancelled.id)
        await leases[failed.id].fail("broken", retry=False)
        for handle in (pending, running, done, cancelled):
            before = await handle.job()
            assert await app.requeue(handle.id) is False
            assert await handle.job() == before
        assert await app.requeue(failed.id, by="ops") is True
        job = await failed.job()
        assert (job.status, job.attempts, job.failures, job.generation, job.lane) == ("pending", 0, 0, 2, "retry")
        assert [(record.outcome, record.generation) for record in job.history] == [("failure", 1), ("requeue", 2)]
        assert await app.requeue(failed.id) is False

    play(backend, tmp_path, scene)


def test_p07_of_two_operators_at_once_one_wins(backend: str, tmp_path: Path) -> None:
    """Both have read the failed job before either writes; one True, one False, one new generation, one event."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        flaky = Flaky(stage, error=Fail("broken"))
        handle = await flaky.task.enqueue()
        await drained(stage)
        seen = await handle.job()
        change_store(app, MeetingStore(app.store, "get", 2))
        answers = await asyncio.gather(app.requeue(handle.id, by="ann"), app.requeue(handle.id, by="bob"))
        assert sorted(answers) == [False, True]
        change_store(app, app.store._inner)  # type: ignore[attr-defined]
        job = await handle.job()
        assert (job.generation, len(job.history)) == (2, 2)
        assert kinds(app).count("REQUEUED") == 1
        await drained(stage)
        [late] = await app.store.settle([builders.requeue(seen)])  # a third one, who read it before and writes after it failed again
        assert ((await handle.job()).status, late.applied, late.reason) == ("failed", False, "not failed")

    play(backend, tmp_path, scene)


def test_p07_requeued_is_published_only_after_the_commit(backend: str, tmp_path: Path) -> None:
    """A requeue that the store did not take publishes nothing; one that it took is stored by the time it is heard of."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        flaky = Flaky(stage, error=Fail("broken"))
        handle = await flaky.task.enqueue()
        await drained(stage)
        store = change_store(app, Watched(app.store))
        heard: list[int] = []
        app.events.subscribe(lambda event: heard.append(len(store.seen)) if event.kind == "REQUEUED" else None)
        store.fail("settle")
        with pytest.raises(StoreUnavailable):
            await app.requeue(handle.id)
        assert heard == []
        assert (await handle.job()).status == "failed"
        store.fail("settle", when="after")
        with pytest.raises(StoreUnavailable):
            await app.requeue(handle.id, request_id="ticket-1")
        assert heard == []
        assert await app.requeue(handle.id, request_id="ticket-1")  # a repeat under the same id learns that it was done
        assert heard == [3]
        assert store.seen[1][0] == "pending"

    play(backend, tmp_path, scene)


def test_p08_counters_and_timer_tell_what_happened(backend: str, tmp_path: Path) -> None:
    """Submitted, claimed, completed, failed and retried are counted, and the execution timer is a histogram of the run times."""

    async def scene(stage: Stage) -> dict[str, Any]:
        failed: set[int] = set()

        @stage.app.task(retry=RetryPolicy(max_retries=2))
        async def work(number: int) -> None:
            await asyncio.sleep(20 if number == 0 else 2)
            if number == 9:
                raise Fail("never")
            if number < 3 and number not in failed:
                failed.add(number)
                raise ConnectionError

        await stage.app.enqueue_many([work.job(number) for number in range(10)])
        await drained(stage)
        return stage.app.metrics.snapshot()

    seen = play(backend, tmp_path, scene)
    counted = {name: seen[name] for name in ("submitted", "claimed", "completed", "failed", "retried", "dead")}
    assert counted == {"submitted": 10, "claimed": 13, "completed": 9, "failed": 4, "retried": 3, "dead": 1}
    assert seen["queues"]["default"]["completed"] == 9
    assert seen["failure_rate"] == pytest.approx(4 / 13)
    timer = seen["execution"]
    assert (timer["count"], timer["buckets"]["2.5"], timer["buckets"]["30.0"]) == (13, 11, 2)
    assert timer["total_s"] == pytest.approx(11 * 2 + 2 * 20, abs=0.1)
    assert (timer["p50_s"], timer["p99_s"]) == (2.5, 30.0)


def test_p09_events_come_in_their_order(backend: str, tmp_path: Path) -> None:
    """Success, failure with a retry, and final failure each show their steps, and every claim ends with its lock released."""
    begin = ["CLAIM_START", "CLAIM_SUCCESS", "PROCESSING"]

    async def scene(stage: Stage) -> None:
        heard: list[str] = []
        flaky = Flaky(stage, failures=1, retry=RetryPolicy(max_retries=1))
        hopeless = stage.app.task(name="hopeless", retry=RetryPolicy(max_retries=0))(_raises)
        async with stage.worker() as worker:
            stage.app.events.subscribe(lambda event: heard.append(event.kind))
            await flaky.task.enqueue()
            await worker.drain()
            await hopeless.enqueue()
            await worker.drain()
            assert heard == [
                *("ENQUEUED", *begin, "FAILED", "RETRY_SCHEDULED", "LOCK_RELEASE"),
                *(*begin, "COMPLETED", "LOCK_RELEASE"),
                *("ENQUEUED", *begin, "FAILED", "LOCK_RELEASE"),
            ]

    play(backend, tmp_path, scene)


async def _raises() -> None:
    raise ConnectionError


def test_p09_the_log_is_bounded_and_can_be_replayed(backend: str, tmp_path: Path) -> None:
    """The ring keeps the newest events; another reader replays failures, retries and operators' acts from the store's own log."""
    ring = EventBus(ring_max=5)
    ring.publish([Event(kind="ENQUEUED", at_us=number) for number in range(8)])
    assert [event.at_us for event in ring.recent(100)] == [3, 4, 5, 6, 7]
    assert [event.at_us for event in ring.recent(2)] == [6, 7]

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, retry=RetryPolicy(max_retries=1))
        handle = await flaky.task.enqueue()
        await drained(stage)
        await stage.app.requeue(handle.id, by="ann")
        reader = await successor(backend, tmp_path, stage)
        await reader.open()
        told = [event for event in await reader.store.read_events(0, 100) if event.job_id == handle.id]
        assert [event.kind for event in told] == ["FAILED", "RETRY_SCHEDULED", "FAILED", "REQUEUED"]
        assert [event.seq for event in told] == sorted(event.seq for event in told)
        assert [event.kind for event in await reader.store.read_events(told[1].seq, 1)] == ["FAILED"]
        await reader.close()

    play(backend, tmp_path, scene)


def test_p10_views_show_stored_state(backend: str, tmp_path: Path) -> None:
    """What somebody else writes to the store shows at once in get, jobs and status, and a value read before does not change."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.declare("work")
        handle = await app.enqueue("work")
        other = Admin(app.store, EventBus(), random.Random(1), stage.clock)
        first = await handle.job()
        job = await builders.claim_one(app.store, builders.ask("default"))
        assert (await handle.job()).status == "processing"
        assert (await app.status())["default"].running == 1
        await app.store.settle([builders.failed(job)])
        assert [(await handle.job()).status, *[one.status async for one in app.jobs(status="failed")]] == ["failed", "failed"]
        assert (await app.status())["default"].failed == 1
        assert await other.requeue(handle.id)
        assert (await handle.job()).generation == 2
        status = (await app.status())["default"]
        assert (status.failed, status.retry_queue_size, status.running) == (0, 1, 0)
        assert (first.status, first.generation) == ("pending", 1)

    play(backend, tmp_path, scene)
