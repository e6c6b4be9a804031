"""`mulligan requeue ID...`: failed jobs go back, under a new generation."""

from __future__ import annotations

import getpass

import click

from mulligan.cli.options import common, reading, run


@click.command()
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--by", metavar="NAME", help="Who does it, for the history.  [default: the user's name]")
@common
@click.pass_context
def requeue(ctx: click.Context, job_ids: tuple[str, ...], by: str | None, store: str, as_json: bool) -> None:
    """Send failed jobs back to be run again, with all limits anew. Other jobs are left as they are."""
    ctx.exit(run(_requeue(store, as_json, job_ids, by or operator())))


def operator() -> str:
    """Who sits here, as far as the system knows."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container may have no name for its user
        return "an operator"


async def _requeue(url: str, as_json: bool, job_ids: tuple[str, ...], by: str) -> int:
    from mulligan.cli.answers import Answer, report
    from mulligan.core.errors import JobNotFound

    answers = []
    async with reading(url) as app:
        for job_id in job_ids:
            try:
                done = await app.requeue(job_id, by=by)
                job = await app.get(job_id)
            except JobNotFound as problem:
                answers.append(Answer.missing(job_id, problem))
                continue
            if done:
                text = f"requeued: {job.task} on queue {job.queue}, generation {job.generation}"
            else:
                text = f"not requeued: only a failed job can be, this one is {job.status}"
            answers.append(Answer(id=job_id, ok=done, status=job.status, text=text))
    return report("requeued", answers, as_json=as_json)
