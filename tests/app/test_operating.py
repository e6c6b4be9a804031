"""Operating: pause and resume, requeue, cancel."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mulligan import Context, Event, Handle, Mulligan, Queue, RetryPolicy, UnknownQueue
from tests.virtual import Stage, play


async def failed_job(app: Mulligan, **options: Any) -> str:
    """The id of a job that has just failed for good."""
    app.declare("work")
    handle: Handle[Any] = await app.enqueue("work", **options)
    [lease] = await app.claim()
    assert await lease.fail("x", retry=False)
    return handle.id


def test_a_paused_queue_is_not_claimed_by_anyone(backend: str, tmp_path: Path) -> None:
    """Paused, nothing of the queue starts and what runs goes on; other queues are not touched; resumed, it starts at once."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        starts: list[tuple[str, float]] = []

        @app.task(queue="a")
        async def work(name: str) -> None:
            starts.append((name, stage.elapsed_s))
            await asyncio.sleep(10)

        async with stage.worker(poll=3_600):
            running = await work.enqueue("running")
            await asyncio.sleep(1)
            state = await app.pause("a", reason="deploy", by="ann")
            assert (state.queue, state.paused, state.reason, state.by) == ("a", True, "deploy", "ann")
            waiting = await work.enqueue("waiting")
            await work.options(queue="default").enqueue("other")
            assert await app.claim(queue="a") == []
            await asyncio.sleep(99)
            assert (await running.job()).status == "done"
            assert (await waiting.job()).view == "ready"
            await app.resume("a", by="ann")
            await asyncio.sleep(11)
            assert (await waiting.job()).status == "done"
        assert [(name, round(at_s)) for name, at_s in starts] == [("running", 0), ("other", 1), ("waiting", 100)]
        kinds = [event.kind for event in app.events.recent(1_000) if event.kind.startswith("QUEUE")]
        assert kinds == ["QUEUE_PAUSED", "QUEUE_RESUMED"]
        stored = [event.kind for event in await app.store.read_events(0, 1_000) if event.kind.startswith("QUEUE")]
        assert stored == kinds

    play(backend, tmp_path, scene)


async def test_only_a_known_queue_can_be_paused(app: Mulligan) -> None:
    """A queue of a task, of a setting or of stored jobs is known; a misspelt one is refused with those that are, and nothing is stored."""
    app.declare("one", queue="of-task")
    app.queues(Queue("of-setting"))
    await app.enqueue("one", queue="of-job")
    for name in ("default", "of-task", "of-setting", "of-job"):
        assert (await app.pause(name)).paused
        assert not (await app.resume(name)).paused
    for call in (app.pause, app.resume):
        with pytest.raises(UnknownQueue, match="no queue is named 'of-tusk'; known: default, of-job, of-setting, of-task"):
            await call("of-tusk")
    assert "of-tusk" not in [state.queue for state in await app.store.queue_states()]


async def test_texts_of_operators_are_made_storable(app: Mulligan) -> None:
    """A reason or a name that no store could keep is kept as near as can be; it must not keep an operator from acting."""
    odd = "because \ud800 of \0 this" + "x" * 100_000
    state = await app.pause("default", reason=odd, by=odd)
    [stored] = await app.store.queue_states()
    assert (stored.reason, stored.by) == (state.reason, state.by)
    assert stored.reason.startswith("because ? of \N{REPLACEMENT CHARACTER} this")
    assert len(stored.reason) < 5_000
    job_id = await failed_job_of_resumed(app)
    assert await app.requeue(job_id, by=odd)
    assert (await app.get(job_id)).history[-1].worker.startswith("because ? of")


async def failed_job_of_resumed(app: Mulligan) -> str:
    """A failed job of the default queue, which is resumed first."""
    await app.resume("default")
    return await failed_job(app)


async def test_p07_requeue_of_a_failed_job(app: Mulligan) -> None:
    """True for a failed job: attempts from 0 under the next generation, in the retry lane, history kept, fence kept (P07)."""
    job_id = await failed_job(app)
    assert await app.requeue(job_id, by="ann")
    job = await app.get(job_id)
    assert (job.status, job.view, job.lane, job.generation) == ("pending", "ready", "retry", 2)
    assert (job.attempts, job.failures, job.crashes, job.fence) == (0, 0, 0, 1)
    assert [(record.outcome, record.generation) for record in job.history] == [("failure", 1), ("requeue", 2)]
    assert "ann" in job.history[-1].why
    [lease] = await app.claim()
    assert (lease.job.fence, lease.job.attempts) == (2, 1)


async def test_p07_requeue_is_for_failed_jobs_only(app: Mulligan) -> None:
    """False for pending, processing, done and cancelled, which stay as they are; a second requeue of one failure is False, too."""
    app.declare("work")
    pending, cancelled = await app.enqueue("work", delay=100), await app.enqueue("work", delay=100)
    await app.cancel(cancelled.id)
    processing = await app.enqueue("work")
    await app.claim()
    done = await app.enqueue("work")
    [lease] = await app.claim()
    await lease.complete()
    for handle in (pending, processing, done, cancelled):
        before = await handle.job()
        assert not await app.requeue(handle.id)
        after = await handle.job()
        assert (after.status, after.generation, after.history) == (before.status, 1, before.history)
    failed = await failed_job(app)
    assert await app.requeue(failed)
    assert not await app.requeue(failed)
    assert [event.job_id for event in app.events.recent(kind="REQUEUED")] == [failed]


async def test_a_repeated_request_answers_as_the_first(app: Mulligan) -> None:
    """The same request id means the same requeue: True again, and still one generation; another id is another operator."""
    job_id = await failed_job(app)
    assert await app.requeue(job_id, request_id="click-1")
    assert await app.requeue(job_id, request_id="click-1")
    assert not await app.requeue(job_id, request_id="click-2")
    assert (await app.get(job_id)).generation == 2


async def test_requeue_yields_to_a_live_job_of_its_key(app: Mulligan) -> None:
    """A failed job whose unique key another live job has taken since stays failed."""
    job_id = await failed_job(app, unique_key="k")
    successor = await app.enqueue("work", unique_key="k")
    assert successor.created
    assert not await app.requeue(job_id)
    await app.cancel(successor.id)
    assert await app.requeue(job_id)


async def test_cancel_answers_by_state(app: Mulligan) -> None:
    """A pending job is cancelled at once, a running one is asked to stop, a finished one is too late; repeats answer alike."""
    app.declare("work")
    waiting, running = await app.enqueue("work", delay=9), await app.enqueue("work")
    heard: list[Event] = []
    app.events.subscribe(heard.append)
    assert await app.cancel(waiting.id) == "cancelled"
    assert await app.cancel(waiting.id) == "cancelled"
    job = await waiting.job()
    assert (job.status, job.run_at, job.cancel_requested) == ("cancelled", None, True)
    assert job.finished_at is not None
    [lease] = await app.claim()
    assert await app.cancel(running.id) == "requested"
    assert await app.cancel(running.id) == "requested"
    assert (await running.job()).status == "processing"
    assert await lease.complete("all the same")  # it was done before it could obey
    assert await app.cancel(running.id) == "finished"
    assert (await running.job()).status == "done"
    assert [(event.kind, event.job_id) for event in heard if event.kind == "CANCELLED"] == [("CANCELLED", waiting.id)]


async def test_cancel_wins_over_a_retry(app: Mulligan) -> None:
    """A cancelled job that then fails, snoozes or is released is cancelled, not run again."""
    app.declare("work")
    for move in ("fail", "snooze", "release"):
        handle = await app.enqueue("work")
        [lease] = await app.claim()
        await app.cancel(handle.id)
        settle = {"fail": lambda lease=lease: lease.fail("x"), "snooze": lambda lease=lease: lease.snooze(1), "release": lease.release}[
            move
        ]
        assert await settle()
        assert (await handle.job()).status == "cancelled"


def test_cancelling_tells_the_handler(backend: str, tmp_path: Path) -> None:
    """A running handler sees ctx.cancelled and is stopped; one that cleans up and returns is done."""

    async def scene(stage: Stage) -> None:
        told: list[bool] = []

        @stage.app.task
        async def polite(ctx: Context) -> str:
            told.append(ctx.cancelled)
            try:
                await asyncio.sleep(1_000)
            except asyncio.CancelledError:
                told.append(ctx.cancelled)
                raise
            return "unreachable"

        handle = await polite.options(retry=RetryPolicy(max_retries=5)).enqueue()
        async with stage.worker(lease=3) as worker:
            await asyncio.sleep(1)
            assert await stage.app.cancel(handle.id) == "requested"
            await worker.drain()
        assert stage.elapsed_s < 4
        assert told == [False, True]
        assert (await handle.job()).status == "cancelled"

    play(backend, tmp_path, scene)
