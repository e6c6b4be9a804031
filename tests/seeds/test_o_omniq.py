"""O: OmniQ's behaviours. One suite for all stores (O01) and schedules (O16) stand in files of their own."""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from mulligan import (
    BadSetting,
    Custom,
    Linear,
    Mulligan,
    MulliganError,
    Queue,
    RetryPolicy,
    UnknownTask,
)
from mulligan.core.clock import ManualClock
from tests import builders
from tests.conftest import url_of
from tests.faults import FaultyStore
from tests.seeds.scenes import Flaky, change_store, drained
from tests.virtual import Stage, play

OMNIQ = RetryPolicy.preset("omniq")
CALM = RetryPolicy(jitter="none")


@pytest.mark.parametrize(("options", "executions"), [({}, 4), ({"max_retries": 0}, 1), ({"max_retries": 6}, 7)], ids=["default", "0", "6"])
def test_o02_the_default_is_three_retries(backend: str, tmp_path: Path, options: dict[str, Any], executions: int) -> None:
    """Four executions by default, one with max_retries=0, N+1 otherwise."""

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage)
        handle = await flaky.task.options(**options).enqueue()
        await drained(stage)
        assert len(flaky.starts) == executions
        assert (await handle.job()).status == "failed"

    play(backend, tmp_path, scene)


def test_o02_none_means_unlimited(backend: str, tmp_path: Path) -> None:
    """A job without a limit outlives a hundred failures, and endless retries are warned of where no maximum age is set."""

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, failures=100, retry=RetryPolicy(backoff=Linear(step=0.01, cap=0.1)))
        with pytest.warns(UserWarning, match="max_age"):
            handle = await flaky.task.options(max_retries=None).enqueue()
        await drained(stage)
        job = await handle.job()
        assert (job.status, job.attempts, job.remaining_retries) == ("done", 101, None)
        await flaky.task.options(max_retries=None, max_age=3_600).enqueue()

    play(backend, tmp_path, scene)


def test_o03_a_job_can_be_claimed_and_settled_by_hand_beside_a_worker(backend: str, tmp_path: Path) -> None:
    """claim, fail with error, exception type and traceback, get, complete: the same policy decides as in the worker next to it."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.declare("by-hand", queue="manual", retry=CALM)
        flaky = Flaky(stage, failures=1, queue="automatic", retry=CALM)
        automatic = await flaky.task.enqueue()
        handle = await app.enqueue("by-hand", args=[1])
        async with stage.worker(queues=["automatic"]) as worker:
            [lease] = await app.claim(queue="manual")
            assert await lease.fail("Connection timeout", exception_type="TimeoutError", traceback="line 1\nline 2")
            job = await app.get(handle.id)
            error = job.last_error
            assert error is not None
            assert (error.message, error.type, error.traceback) == ("Connection timeout", "TimeoutError", "line 1\nline 2")
            assert (job.status, job.failures, job.history[0].delay) == ("pending", 1, 1)
            await asyncio.sleep(1)
            [lease] = await app.claim(queue="manual")
            assert lease.job.args == [1]
            assert await lease.complete({"rows": 3})
            assert await lease.fail("too late") is False
            await worker.drain()
        assert await handle.result() == {"rows": 3}
        assert ((await automatic.job()).history[0].delay, await automatic.result()) == (1, "up")

    play(backend, tmp_path, scene)


def test_o04_the_decision_and_the_delay_can_be_replaced(backend: str, tmp_path: Path) -> None:
    """A predicate of the user's rules whether to retry, and a function of the user's how long to wait."""

    def is_fatal(error: BaseException) -> bool:
        return "fatal" in str(error)

    async def scene(stage: Stage) -> None:
        policy = RetryPolicy(max_retries=5, give_up_on=is_fatal, backoff=Custom(lambda n: 3 + n * n, cap=1_000), jitter="none")
        starts: list[float] = []

        @stage.app.task(retry=policy)
        async def work() -> None:
            starts.append(stage.elapsed_s)
            raise OSError("fatal: no disk" if len(starts) == 4 else "busy")

        handle = await work.enqueue()
        await drained(stage)
        assert starts == [pytest.approx(at_s, abs=0.05) for at_s in (0, 4, 11, 23)]
        job = await handle.job()
        assert (job.status, job.remaining_retries) == ("failed", 2)
        assert "is_fatal" in job.history[-1].why

    play(backend, tmp_path, scene)


@pytest.mark.parametrize(
    ("clamp", "n", "low", "high"), [(None, 1, 0.75, 1.25), (None, 4, 6, 10), (None, 7, 45, 60), (None, 99, 45, 60), (False, 99, 45, 75)]
)
def test_o05_the_preset_varies_by_a_quarter_and_keeps_its_cap(clamp: bool | None, n: int, low: float, high: float) -> None:
    """min(2^(n-1), 60) times U(0.75, 1.25), not above 60 s unless the original's 75 s are asked for."""
    policy = RetryPolicy.preset("omniq", clamp=clamp)
    rng = random.Random(5)
    drawn = [policy.delay(n, rng=rng) for _ in range(2_000)]
    width = high - low
    assert low <= min(drawn) <= low + width / 50
    assert high - width / 50 <= max(drawn) <= high
    assert [OMNIQ.raw_delay(n) for n in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]


def test_o05_a_worker_waits_within_a_quarter(backend: str, tmp_path: Path) -> None:
    """The three retries of the preset start 0.75 to 1.25 times 1, 2 and 4 s after the failure before."""

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, retry=OMNIQ)
        await flaky.task.enqueue()
        await drained(stage)
        assert len(flaky.waits) == 3
        assert all(0.75 * raw - 0.06 <= wait <= 1.25 * raw + 0.06 for wait, raw in zip(flaky.waits, (1, 2, 4), strict=True))
        assert flaky.waits != [1, 2, 4]

    play(backend, tmp_path, scene)


def test_o06_times_are_aware_utc(backend: str, tmp_path: Path) -> None:
    """Every time of a job is an aware UTC datetime; an eta of another zone is the same instant, a naive one is refused."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.declare("work")
        noon = datetime(2030, 1, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=30)))
        later = await (await app.enqueue("work", eta=noon)).job()
        assert later.run_at == noon
        assert later.run_at is not None
        assert later.run_at.tzinfo is timezone.utc
        with pytest.raises(BadSetting, match="aware"):
            await app.enqueue("work", eta=datetime(2030, 1, 1))  # noqa: DTZ001 - a naive time is what is refused
        await app.enqueue("work")
        [lease] = await app.claim()
        assert lease.job.lease_expires_at is not None
        await lease.fail("down", after=60)
        job = await app.get(lease.id)
        moments = [job.created_at, job.updated_at, job.run_at, job.next_retry_at, job.history[0].started_at, job.history[0].ended_at]
        assert job.last_error is not None
        for moment in [*moments, job.last_error.at, lease.job.lease_expires_at]:
            assert moment is not None
            assert moment.tzinfo is timezone.utc

    play(backend, tmp_path, scene)


async def test_o07_a_failure_is_one_call(backend: str, tmp_path: Path) -> None:
    """Failing a job writes once; the retry's time, the error and the count are all there after that one call."""
    async with Mulligan(url_of(backend, tmp_path), clock=ManualClock(), retry=CALM) as app:
        app.declare("work")
        handle = await app.enqueue("work")
        store = change_store(app, FaultyStore(app.store))
        [lease] = await app.claim()
        store.calls.clear()
        await lease.fail("down")
        assert set(store.calls) <= {"now_us", "settle"}
        assert store.calls["settle"] == 1
        job = await handle.job()
    assert (job.status, job.failures, job.last_error is not None, job.next_retry_at is not None) == ("pending", 1, True, True)


@pytest.mark.parametrize("url", ["amqp://localhost", "mysql://localhost/jobs", "redis:localhost", "files:///jobs", "sqlite:jobs.db", ""])
def test_o08_a_store_that_is_not_there_is_refused_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL that no store answers to fails where the app is made, and the message names what would work."""
    monkeypatch.setenv("MULLIGAN_STORE", "nothing://here")
    with pytest.raises(BadSetting, match="sqlite:///"):
        Mulligan(url)


@pytest.mark.parametrize("limit", ["concurrency", "max_inflight_retries"])
def test_o08_a_limit_that_no_store_could_keep_is_refused(limit: str) -> None:
    """A fleet-wide limit is a whole number of jobs; anything else is refused where it is given, not when the first job waits for ever."""
    for wrong in (0, -1, 2.5, True, "5", 10**9):
        with pytest.raises(BadSetting, match=limit):
            Queue("q", **{limit: wrong})  # type: ignore[arg-type]


async def test_o08_an_unusable_file_stops_the_worker_at_its_start(tmp_path: Path) -> None:
    """A file that is no database and a folder that is missing are errors when a worker starts, not when its first job fails."""
    (tmp_path / "text.db").write_text("this is no database, but it is long enough to look at" * 100)
    for path, trouble in (("text.db", "is not a SQLite database"), ("missing/jobs.db", "missing does not exist")):
        worker = Mulligan(f"sqlite:///{tmp_path}/{path}").worker()
        with pytest.raises(MulliganError, match=trouble):
            await worker.start()


def test_o09_enqueue_by_name_or_path_takes_every_option(backend: str, tmp_path: Path) -> None:
    """A registered name and an allowed function path, with args, kwargs, max_retries, timeout, delay, eta and interval."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.task(name="sum")(lambda left, right: left + right)
        named = await app.enqueue("sum", args=[1], kwargs={"right": 2}, max_retries=5, timeout=30)
        dotted = await app.enqueue("tests.seeds.scenes.add", args=[3, 4])
        colon = await app.enqueue("tests.seeds.scenes:add", kwargs={"left": 5, "right": 6})
        delayed = await app.enqueue("sum", args=[1, 1], delay=60)
        dated = await app.enqueue("sum", args=[2, 2], eta=(await delayed.job()).created_at + timedelta(seconds=90))
        every = await app.enqueue("sum", args=[0, 0], interval=110, max_retries=1, name="zero")
        job = await named.job()
        assert (job.max_retries, job.timeout, job.task) == (5, 30, "sum")
        async with stage.worker():
            await asyncio.sleep(100)
            assert [await handle.result() for handle in (named, dotted, colon, delayed, dated)] == [3, 7, 11, 2, 4]
            started = [(await handle.job()).finished_at for handle in (delayed, dated)]
            assert [round((at - job.created_at).total_seconds(), 1) for at in started if at] == [60, 90]
            await asyncio.sleep(20)
        [tick] = [one async for one in app.jobs(schedule="zero")]
        assert (tick.result, tick.max_retries, every.name) == (0, 1, "zero")
        for unknown in ("os.system", "tests.conftest.make_store", "subprocess:run"):
            with pytest.raises(UnknownTask):
                await app.enqueue(unknown, args=["true"])

    play(backend, tmp_path, scene, allow_paths=["tests.seeds"])


@pytest.mark.parametrize("backoff", [Linear(step=5, cap=300), Custom(lambda n: min(n * 5, 300), cap=300)], ids=["Linear", "Custom"])
def test_o10_a_linear_delay_of_ones_own(backend: str, tmp_path: Path, backoff: Any) -> None:
    """min(5n, 300), by the ready-made formula and by a function."""
    policy = RetryPolicy(max_retries=4, backoff=backoff, jitter="none")
    assert [policy.raw_delay(n) for n in (1, 2, 3, 59, 60, 61, 10_000)] == [5, 10, 15, 295, 300, 300, 300]

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, retry=policy)
        await flaky.task.enqueue()
        await drained(stage)
        assert flaky.waits == [5, 10, 15, 20]

    play(backend, tmp_path, scene)


class TemporaryError(Exception):
    """Goes away by itself."""


class PermanentError(Exception):
    """Does not."""


@pytest.mark.parametrize(
    ("policy", "error", "runs"),
    [
        (RetryPolicy(give_up_on=(PermanentError,)), PermanentError("no"), 1),
        (RetryPolicy(give_up_on=(PermanentError,)), TemporaryError("later"), 4),
        (RetryPolicy(retry_on=(TemporaryError,)), TemporaryError("later"), 4),
        (RetryPolicy(retry_on=(TemporaryError,)), KeyError("unlisted"), 1),
        (RetryPolicy(give_up_on=lambda error: error.args[0] == 404), PermanentError(404), 1),
        (RetryPolicy(give_up_on=lambda error: error.args[0] == 404), PermanentError(503), 4),
        (RetryPolicy(give_up_on=(ConnectionError,), retry_on=(OSError,)), ConnectionRefusedError("both"), 1),
    ],
)
def test_o11_errors_are_classified(backend: str, tmp_path: Path, policy: RetryPolicy, error: Exception, runs: int) -> None:
    """By type, subclasses included, or by a predicate on the current exception; a permanent one fails with retries left."""

    async def scene(stage: Stage) -> None:
        flaky = Flaky(stage, error=error, retry=policy)
        handle = await flaky.task.enqueue()
        await drained(stage)
        job = await handle.job()
        assert (job.status, len(flaky.starts), job.remaining_retries) == ("failed", runs, 4 - runs)
        assert job.last_error is not None
        assert type(error).__name__ in job.last_error.type

    play(backend, tmp_path, scene)


def test_o12_the_state_of_retries_is_readable(backend: str, tmp_path: Path) -> None:
    """Attempts, limit, status, task name, last error and remaining retries are right at every step."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        app.declare("report", retry=RetryPolicy(max_retries=2))
        handle = await app.enqueue("report")

        async def shown() -> tuple[Any, ...]:
            job = await app.get(handle.id)
            error = job.last_error
            return job.task, job.status, job.attempts, job.max_retries, job.retries, job.remaining_retries, error and error.message

        assert await shown() == ("report", "pending", 0, 2, 0, 2, None)
        for number, status in ((1, "pending"), (2, "pending"), (3, "failed")):
            [lease] = await app.claim()
            assert (await shown())[1:4] == ("processing", number, 2)
            await lease.fail(f"error {number}", after=0)
            assert await shown() == ("report", status, number, 2, number - 1, 3 - number, f"error {number}")
            await asyncio.sleep(0.01)

    play(backend, tmp_path, scene)


def test_o13_a_high_retry_rate_is_warned_of_once_per_window(backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The eleventh retry of a task within a minute warns, the next warning comes a minute later, and ten retries never warn."""

    async def scene(stage: Stage) -> None:
        every_second = RetryPolicy(max_retries=10_000, backoff=Linear(step=1, cap=1), jitter="none")
        await Flaky(stage, name="noisy", retry=every_second).task.enqueue()
        await Flaky(stage, name="calm", retry=RetryPolicy(max_retries=10).over(every_second)).task.enqueue()
        async with stage.worker():
            await asyncio.sleep(9.5)
            assert warnings() == []
            await asyncio.sleep(1)
            assert warnings() == ["High retry rate for noisy: 11"]
            await asyncio.sleep(59)
            assert len(warnings()) == 1
            await asyncio.sleep(61)
            assert len(warnings()) == 3

    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "mulligan.retries"]

    play(backend, tmp_path, scene)
    assert [text.rpartition(":")[0] for text in warnings()] == ["High retry rate for noisy"] * 3


async def test_o14_failed_jobs_are_listed(backend: str, tmp_path: Path) -> None:
    """All of them, newest first, over more than one page, and only those of the queue asked for."""
    async with Mulligan(url_of(backend, tmp_path), clock=ManualClock()) as app:
        app.declare("other")

        @app.task(queue="billing")
        def charge(number: int) -> None:
            """Claimed by hand."""

        await app.enqueue_many([charge.job(number) for number in range(620)])
        jobs = (await builders.claim(app.store, builders.ask("billing"), total=620)).jobs
        await app.store.settle([builders.failed(job) for job in jobs[:610]])
        await app.enqueue("other")
        [lease] = await app.claim()
        await lease.fail("no", retry=False)
        failed = [job async for job in app.jobs(status="failed", queue="billing")]
        assert [job.args[0] for job in failed] == list(range(609, -1, -1))
        assert [job.task async for job in app.jobs(status="failed", limit=1)] == ["other"]


def test_o15_debug_lines_tell_of_retries_and_of_giving_up(backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The two lines of the design, with the attempt that is planned, its delay, and the number of attempts in the end."""
    caplog.set_level(logging.DEBUG, logger="mulligan.jobs")

    async def scene(stage: Stage) -> str:
        handle = await Flaky(stage, retry=RetryPolicy(max_retries=3, jitter="none")).task.enqueue()
        await drained(stage)
        return str(handle.id)

    job_id = play(backend, tmp_path, scene)
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG and record.getMessage().startswith("Task")]
    assert lines == [
        f"Task retry scheduled: {job_id} (attempt 2) in 1.0s",
        f"Task retry scheduled: {job_id} (attempt 3) in 2.0s",
        f"Task retry scheduled: {job_id} (attempt 4) in 4.0s",
        f"Task failed permanently: {job_id} after 4 attempts",
    ]
