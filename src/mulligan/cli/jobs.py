"""`mulligan jobs`: a list of jobs, newest first."""

from __future__ import annotations

from typing import Any

import click

from mulligan.cli.options import common, reading, run

TITLES = ("id", "status", "queue", "task", ">tries", "due or ended", "last error")
STATUSES = ("pending", "processing", "done", "failed", "cancelled")
STYLES = {"failed": "red", "stuck": "red", "backing off": "yellow", "processing": "cyan", "done": "green"}
LIMIT_MAX = 500


@click.command()
@click.option("--status", type=click.Choice(STATUSES), help="Only jobs of this status.")
@click.option("--queue", metavar="NAME", help="Only jobs of this queue.")
@click.option("--task", metavar="NAME", help="Only jobs of this task.")
@click.option("--tag", metavar="TAG", help="Only jobs with this tag.")
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), default=50, show_default=True, help="At most so many.")
@click.option("--after", metavar="ID", help="Go on after this job, the last one of the page before.")
@common
def jobs(store: str, as_json: bool, limit: int, after: str | None, **filters: Any) -> None:
    """List jobs, newest first."""
    run(_jobs(store, as_json, limit, after, filters))


async def _jobs(url: str, as_json: bool, limit: int, after: str | None, filters: dict[str, Any]) -> None:
    from mulligan.cli.job_view import job_view
    from mulligan.cli.output import emit, say, table
    from mulligan.core.contract import Query
    from mulligan.core.errors import BadSetting
    from mulligan.core.ids import is_id

    if after is not None and not is_id(after):
        raise BadSetting(f"--after takes the id of a job, not {after!r}")
    async with reading(url) as app:
        page = await app.store.find(Query(**filters), limit, after)
    if as_json:
        emit([job_view(job) for job in page.jobs])
        return
    if not page.jobs:
        say("No job matches.")
        return
    table(TITLES, [_row(job) for job in page.jobs])
    if page.after is not None:
        say(f"There are more: add --after {page.after}")


def _row(job: Any) -> list[Any]:
    from mulligan.cli.job_view import error_text
    from mulligan.cli.times import ago

    moment_us = job.run_at_us if job.status == "pending" else job.finished_at_us
    limit = "" if job.max_retries is None else f"/{job.max_retries + 1}"
    return [
        job.id,
        (job.view, STYLES.get(job.view, "")),
        job.queue,
        job.task,
        f"{job.attempts}{limit}",
        ago(moment_us, job.read_at_us),
        error_text(job.last_error, 80),
    ]
