"""`mulligan cancel ID...`: waiting jobs are cancelled at once, running ones are asked to stop."""

from __future__ import annotations

import click

from mulligan.cli.options import common, reading, run

TEXTS = {
    "cancelled": "cancelled",
    "requested": "asked to stop: its worker is told at its next renewal",
    "finished": "not cancelled: it has ended already",
}


@click.command()
@click.argument("job_ids", metavar="ID...", nargs=-1, required=True)
@common
@click.pass_context
def cancel(ctx: click.Context, job_ids: tuple[str, ...], store: str, as_json: bool) -> None:
    """Cancel jobs that wait; ask running ones to stop."""
    ctx.exit(run(_cancel(store, as_json, job_ids)))


async def _cancel(url: str, as_json: bool, job_ids: tuple[str, ...]) -> int:
    from mulligan.cli.answers import Answer, report
    from mulligan.core.errors import JobNotFound

    answers = []
    async with reading(url) as app:
        for job_id in job_ids:
            try:
                answer = await app.cancel(job_id)
                job = await app.get(job_id)
            except JobNotFound as problem:
                answers.append(Answer.missing(job_id, problem))
                continue
            ok = answer != "finished"
            text = TEXTS[answer] if ok else f"{TEXTS[answer]} ({job.status})"
            answers.append(Answer(id=job_id, ok=ok, status=job.status, text=text, answer=answer))
    return report("cancelled", answers, as_json=as_json)
