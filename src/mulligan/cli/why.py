"""`mulligan why ID`: what happened to a job, why each delay was what it was, and what happens next."""

from __future__ import annotations

import click

from mulligan.cli.options import common, reading, run


@click.command()
@click.argument("job_id", metavar="ID")
@common
def why(job_id: str, store: str, as_json: bool) -> None:
    """Tell what happened to a job, why each delay was what it was, and what happens next."""
    run(_why(store, as_json, job_id))


async def _why(url: str, as_json: bool, job_id: str) -> None:
    from mulligan.cli.explain import explain_job
    from mulligan.cli.holding import holding
    from mulligan.cli.job_view import job_view
    from mulligan.cli.options import store_hint
    from mulligan.cli.output import emit, say
    from mulligan.cli.situation import situation, surroundings
    from mulligan.fleet import limits_of

    async with reading(url) as app:
        # The job is read last, so that what surrounds it is not newer than itself.
        status = await app.status()
        states = await app.store.queue_states()
        job = await app.get(job_id)
        limits = await limits_of(app.store, job) if job.status == "pending" else []
    hint = store_hint(url)
    holds = holding(job, limits, status.breakers, hint=hint) if job.status == "pending" else []
    sentences = explain_job(job, status, states, holds, store_hint=hint)
    if not as_json:
        for sentence in sentences:
            say(sentence)
        return
    around = surroundings(job, status, states, holds)
    facts = {
        "queue_paused": around.paused is not None,
        "pause_reason": None if around.paused is None else around.paused.reason,
        "workers_serving": [worker.id for worker in around.serving],
        "workers_not_knowing_the_task": [worker.id for worker in around.serving if job.task in worker.unknown_tasks],
        "workers_alive": around.alive,
        "due_jobs_of_queue": around.waiting,
        "limits": limits,
        "breaker": next((breaker for breaker in status.breakers if breaker.name == job.depends_on), None),
        "held_back_by": list(around.holding),
    }
    emit({"id": job.id, "situation": situation(job, around), "sentences": sentences, "facts": facts, "job": job_view(job)})
