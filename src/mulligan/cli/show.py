"""`mulligan show ID`: all fields of one job, its receipts and its history."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from mulligan.cli.options import common, reading, run

if TYPE_CHECKING:
    from mulligan.core.job import Job

APART = {"history", "receipts", "last_error", "policy", "result", "args", "kwargs"}  # fields that are shown in a way of their own


@click.command()
@click.argument("job_id", metavar="ID")
@common
def show(job_id: str, store: str, as_json: bool) -> None:
    """Show one job with its receipts and its history."""
    run(_show(store, as_json, job_id))


async def _show(url: str, as_json: bool, job_id: str) -> None:
    from mulligan.cli.job_view import job_view, receipt_view
    from mulligan.cli.output import emit

    async with reading(url) as app:
        job = await app.get(job_id)
        [receipts] = await app.store.receipts([job_id])
    seen = job_view(job) | {"receipts": [receipt_view(receipt) for receipt in receipts]}
    if as_json:
        emit(seen)
    else:
        _print(job, seen)


def _print(job: Job, seen: dict[str, Any]) -> None:
    from mulligan.cli.job_view import call_text
    from mulligan.cli.output import say, table

    rows = [[name, _text(value)] for name, value in seen.items() if name not in APART and value not in (None, [], "")]
    rows.insert(3, ["call", call_text(job, 1_000)])
    if job.result_json is not None:
        rows.append(["result", _text(seen["result"])])
    rows.append(["policy", seen["policy"]["explained"]])
    table(("field", "value"), rows)
    if seen["receipts"]:
        say()
        table(
            ("step", "done at", "fence", "value"), [[one["name"], one["at"], one["fence"], _text(one["value"])] for one in seen["receipts"]]
        )
    for record in seen["history"]:
        say()
        _print_record(record)
    if job.last_error is not None:
        say()
        say("last error", style="red")
        _print_error(seen["last_error"])


def _print_record(record: dict[str, Any]) -> None:
    from mulligan.cli.output import say

    say(f"attempt {record['attempt']}, generation {record['generation']}, fence {record['fence']}: {record['outcome']}", style="cyan")
    say(f"  {record['started_at'] or '-'} to {record['ended_at'] or '-'} by {record['worker'] or '-'}")
    if record["error"] is not None:
        say(f"  {record['error']['type']}: {record['error']['message']}")
    delay = "no further run" if record["delay"] is None else f"next run in {record['delay']:g} s"
    say(f"  {delay}: {record['why']}")


def _print_error(error: dict[str, Any]) -> None:
    from mulligan.cli.output import say

    code = f" (code {error['code']})" if error["code"] else ""
    say(f"  {error['type']}: {error['message']}{code}, at {error['at'] or '-'}")
    for line in (error["traceback"] or "").splitlines():
        say(f"  | {line}")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
