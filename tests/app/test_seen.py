"""Seen from outside: the event bus and the metrics of an app."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from mulligan import Event, Fail, Mulligan, RetryPolicy, Snooze
from tests.virtual import Stage, play


def test_p09_the_events_of_a_job_in_order(backend: str, tmp_path: Path) -> None:
    """Success, retry and final failure each publish their steps in the order the design names, ending in LOCK_RELEASE."""

    async def scene(stage: Stage) -> None:
        calls: list[int] = []

        @stage.app.task(retry=RetryPolicy(max_retries=1))
        async def work(kind: str) -> None:
            calls.append(1)
            if kind == "fail" or (kind == "retry" and len(calls) == 1):
                raise ConnectionError(kind)

        started, retried = ["CLAIM_SUCCESS", "PROCESSING"], ["FAILED", "RETRY_SCHEDULED", "LOCK_RELEASE"]
        ways = {
            "retry": [*started, *retried, *started, "COMPLETED", "LOCK_RELEASE"],
            "done": [*started, "COMPLETED", "LOCK_RELEASE"],
            "fail": [*started, *retried, *started, "FAILED", "LOCK_RELEASE"],
        }
        async with stage.worker() as worker:
            for kind, steps in ways.items():
                handle = await work.enqueue(kind)
                await worker.drain()
                kinds = [event.kind for event in stage.app.events.recent(1_000, job_id=handle.id)]
                assert kinds == ["ENQUEUED", *steps]
        assert stage.app.events.recent(1_000, kind="CLAIM_START")[0].detail["jobs"] == 1
        assert [event.kind for event in stage.app.events.recent(10_000) if event.kind.startswith("WORKER")] == [
            "WORKER_STARTED",
            "WORKER_STOPPED",
        ]

    play(backend, tmp_path, scene)


async def test_subscribers_hear_and_cannot_harm(app: Mulligan, caplog: pytest.LogCaptureFixture) -> None:
    """A subscriber hears every event until it is removed; one that raises is logged, and the others still hear."""
    app.declare("work")
    heard: list[Event] = []

    def broken(event: Event) -> None:
        raise RuntimeError("subscriber")

    app.events.subscribe(broken)
    stop = app.events.subscribe(heard.append)
    handle = await app.enqueue("work")
    assert [(event.kind, event.job_id, event.task, event.queue) for event in heard] == [("ENQUEUED", handle.id, "work", "default")]
    assert "an event subscriber failed on ENQUEUED" in caplog.text
    stop()
    await app.enqueue("work")
    assert len(heard) == 1


async def test_recent_filters_and_is_bounded(app: Mulligan) -> None:
    """The ring gives the newest events that match, oldest first, and holds at most ten thousand."""

    @app.task
    async def work() -> None: ...

    handles = await app.enqueue_many([work.job() for _ in range(10_500)])
    assert len(app.events.recent(20_000)) == 10_000
    assert [event.job_id for event in app.events.recent(2)] == [handle.id for handle in handles[-2:]]
    assert app.events.recent(5, kind="FAILED") == []
    assert [event.kind for event in app.events.recent(5, job_id=handles[-1].id)] == ["ENQUEUED"]
    assert app.events.recent(0) == []


def test_p08_counters_and_the_timer(backend: str, tmp_path: Path) -> None:
    """Submitted, claimed, completed, failed and retried are counted per queue and in all, with the times of executions."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        seen: set[str] = set()

        @app.task(queue="q", retry=RetryPolicy(max_retries=1, jitter="none"))
        async def work(kind: str) -> None:
            first = kind not in seen
            seen.add(kind)
            if kind == "retry" and first:
                raise ConnectionError
            if kind == "snooze" and first:
                raise Snooze(1)
            if kind == "fail":
                raise Fail("x")

        await app.enqueue_many([work.job(kind) for kind in ("done", "retry", "snooze", "fail")])
        app.declare("other")
        await app.enqueue("other", delay=1_000)
        async with stage.worker() as worker:
            await worker.drain()
            while (await app.status())["q"].queue_size:
                await worker.drain()
        numbers = app.metrics.snapshot()
        wanted = {"submitted": 5, "claimed": 6, "completed": 3, "failed": 2, "retried": 1, "snoozed": 1, "dead": 1, "released": 0}
        assert {name: numbers[name] for name in wanted} == wanted
        assert numbers["failure_rate"] == pytest.approx(2 / 5)
        assert numbers["execution"]["count"] == 5
        assert sum(numbers["execution"]["buckets"].values()) == 5
        assert numbers["queues"]["q"] == {"submitted": 4, "claimed": 6, "completed": 3, "failed": 2, "retried": 1, "snoozed": 1, "dead": 1}
        assert numbers["queues"]["default"] == {"submitted": 1}

    play(backend, tmp_path, scene)


def test_r10_o15_log_lines(backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A retry is told from a regular job; planned retries and ends are logged with attempt and delay; each line has its fields."""
    caplog.set_level(logging.DEBUG, "mulligan.jobs")

    async def scene(stage: Stage) -> str:
        @stage.app.task(retry=RetryPolicy(max_retries=1, jitter="none"))
        async def work() -> None:
            raise ConnectionError("line one\nline \x1b[31mtwo")

        handle = await work.enqueue()
        async with stage.worker() as worker:
            await worker.drain()
        return handle.id

    job_id = play(backend, tmp_path, scene)
    lines = [record.getMessage() for record in caplog.records if record.name == "mulligan.jobs"]
    assert f"Processing regular job: work {job_id}" in lines
    assert f"Task retry scheduled: {job_id} (attempt 2) in 1.0s" in lines
    assert f"Processing RETRY job: work {job_id} (attempt 2)" in lines
    assert f"Task failed permanently: {job_id} after 2 attempts" in lines
    assert all("\n" not in line and "\x1b" not in line for line in lines)
    assert {getattr(record, "job_id", None) for record in caplog.records if record.name == "mulligan.jobs"} == {job_id}


def test_o13_a_high_retry_rate_is_warned_of_once(backend: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """More than ten retries of a task within a minute give one warning, and no second one in that minute."""

    async def scene(stage: Stage) -> None:
        @stage.app.task(name="flaky", retry=RetryPolicy(max_retries=1))
        async def flaky() -> None:
            raise ConnectionError

        await stage.app.enqueue_many([flaky.job() for _ in range(30)])
        async with stage.worker() as worker:
            await worker.drain()

    play(backend, tmp_path, scene)
    warnings = [record.getMessage() for record in caplog.records if record.name == "mulligan.retries"]
    assert warnings == ["High retry rate for flaky: 11"]
