"""Which policy rules a job: job over task over queue over app, field by field, frozen when it is enqueued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mulligan import BadPolicy, BadSetting, Constant, Exponential, Linear, Mulligan, Queue, RetryPolicy
from mulligan.policy.retry import thaw
from tests.virtual import Stage, play

APP = RetryPolicy(max_retries=1, jitter="none", backoff=Exponential(base=1, factor=2, cap=100), max_age=1_000)
QUEUE = RetryPolicy(max_retries=2, backoff=Exponential(cap=200))
TASK = RetryPolicy(max_retries=3, backoff=Exponential(factor=3))
JOB = RetryPolicy(max_retries=4, backoff=Exponential(base=5))


@pytest.mark.parametrize(
    "app_policy, queue_policy, task_policy, options, retries, backoff",
    [
        (None, None, None, {}, 3, Exponential(base=1, factor=2, cap=900)),
        (APP, None, None, {}, 1, Exponential(base=1, factor=2, cap=100)),
        (APP, QUEUE, None, {}, 2, Exponential(base=1, factor=2, cap=200)),
        (APP, QUEUE, TASK, {}, 3, Exponential(base=1, factor=3, cap=200)),
        (APP, QUEUE, TASK, {"retry": JOB}, 4, Exponential(base=5, factor=3, cap=200)),
        (APP, QUEUE, TASK, {"retry": JOB, "max_retries": 9}, 9, Exponential(base=5, factor=3, cap=200)),
        (APP, QUEUE, TASK, {"max_retries": 0}, 0, Exponential(base=1, factor=3, cap=200)),
        (APP, None, TASK, {"retry": RetryPolicy(backoff=Linear(step=4))}, 3, Linear(step=4)),
        (APP, QUEUE, TASK, {"retry": RetryPolicy(backoff=Constant(delay=9))}, 3, Constant(delay=9)),
    ],
)
async def test_m03_job_over_task_over_queue_over_app(
    url: str,
    app_policy: RetryPolicy | None,
    queue_policy: RetryPolicy | None,
    task_policy: RetryPolicy | None,
    options: dict[str, Any],
    retries: int,
    backoff: Any,
) -> None:
    """The nearest level that gives a field wins, and fields of a backoff merge as well (M03)."""
    async with Mulligan(url, retry=app_policy) as app:
        app.queues(Queue("q", retry=queue_policy))

        @app.task(queue="q", retry=task_policy)
        async def work() -> None: ...

        job = await (await work.options(**options).enqueue()).job()
        stored = thaw(job.policy, None)
        assert (job.max_retries, stored.max_retries) == (retries, retries)
        wanted = RetryPolicy(backoff=backoff)
        assert [stored.raw_delay(n) for n in range(1, 12)] == [wanted.raw_delay(n) for n in range(1, 12)]
        assert stored.jitter == ("full" if app_policy is None else "none")
        assert job.max_age == (None if app_policy is None else 1_000)


async def test_the_queue_is_the_one_the_job_goes_to(app: Mulligan) -> None:
    """A job sent to another queue by options takes that queue's policy, not the one of its task's own queue."""
    app.queues(Queue("a", retry=RetryPolicy(max_retries=7)), Queue("b", retry=RetryPolicy(max_retries=8)))

    @app.task(queue="a")
    async def work() -> None: ...

    assert (await (await work.enqueue()).job()).max_retries == 7
    assert (await (await work.options(queue="b").enqueue()).job()).max_retries == 8
    assert (await (await work.options(queue="c").enqueue()).job()).max_retries == 3


def test_stored_jobs_keep_the_policy_they_were_enqueued_under(backend: str, tmp_path: Path) -> None:
    """After the task's and the queue's policy changed, old jobs retry as before and new ones as the new policy says."""

    async def scene(stage: Stage) -> None:
        app = stage.app
        starts: dict[str, list[float]] = {"old": [], "new": []}

        def register(policy: RetryPolicy) -> Any:
            @app.task(retry=policy, queue="q")
            async def work(name: str) -> None:
                starts[name].append(stage.elapsed_s)
                raise ConnectionError

            return work

        old = await register(RetryPolicy(max_retries=2, backoff=Constant(delay=10), jitter="none")).enqueue("old")
        app.queues(Queue("q", retry=RetryPolicy(max_retries=50, backoff=Constant(delay=500))))
        new = await register(RetryPolicy(max_retries=1, backoff=Constant(delay=3), jitter="none")).enqueue("new")
        async with stage.worker() as worker:
            await worker.drain()
        assert {name: [round(at_s) for at_s in times] for name, times in starts.items()} == {"old": [0, 10, 20], "new": [0, 3]}
        assert [(job.status, job.failures) for job in (await old.job(), await new.job())] == [("failed", 3), ("failed", 2)]

    play(backend, tmp_path, scene)


def test_a_queue_configured_later_counts_for_new_jobs() -> None:
    """app.queues after the first job of a task is not ignored because of what was worked out before."""
    app = Mulligan("memory://")
    work = app.task(name="work")(lambda: None)
    assert work.job().max_retries == 3
    app.queues(Queue("default", retry=RetryPolicy(max_retries=11)))
    assert work.job().max_retries == 11


@pytest.mark.parametrize(
    "make",
    [
        lambda policy: Mulligan("memory://", retry=policy),
        lambda policy: Mulligan("memory://").task(retry=policy),
        lambda policy: Mulligan("memory://").declare("x", retry=policy),
        lambda policy: Mulligan("memory://").task(name="x")(lambda: None).options(retry=policy).job(),
    ],
    ids=["app", "task", "declare", "job"],
)
@pytest.mark.parametrize("policy", ["omniq", 3, {"max_retries": 3}, RetryPolicy])
def test_what_is_no_policy_is_refused_where_it_is_given(make: Any, policy: object) -> None:
    """A name, a number, a dict or the class itself in place of a policy is refused at once, with how to write one."""
    with pytest.raises((BadSetting, BadPolicy), match=r"retry must be a RetryPolicy"):
        make(policy)


def test_levels_that_contradict_each_other_are_refused() -> None:
    """A job's cap below the base its task gives is noticed when the job is made, and names the field."""
    app = Mulligan("memory://", retry=RetryPolicy(backoff=Exponential(base=50, cap=100)))
    work = app.task(name="work")(lambda: None)
    with pytest.raises(BadPolicy, match="cap"):
        work.options(retry=RetryPolicy(backoff=Exponential(cap=10))).job()
    with pytest.raises(BadPolicy, match="cap"):
        app.task(retry=RetryPolicy(backoff=Exponential(cap=10)))
