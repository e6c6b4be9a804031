"""`mulligan doctor`: looks for trouble and says what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mulligan.cli.options import common, run

if TYPE_CHECKING:
    from mulligan.app import Mulligan
    from mulligan.cli.doctor_work import Evidence
    from mulligan.cli.finding import Finding
    from mulligan.core.contract import Promise

EVENTS_PAGE = 1_000
JOBS_READ = 500
STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command()
@common
@click.pass_context
def doctor(ctx: click.Context, store: str, as_json: bool) -> None:
    """Look for trouble, and say what to do about it. Exit code 1 if something must be done."""
    from mulligan.cli.exits import NO, OK
    from mulligan.cli.output import emit, say
    from mulligan.stores import redacted

    findings, promise = run(_examine(store))
    counts = {level: sum(one.level == level for one in findings) for level in STYLES}
    if as_json:
        emit({"store": redacted(store), "ok": not counts["fail"], "counts": counts, "promise": promise, "findings": findings})
    else:
        for one in findings:
            say(f"{one.level:<4}  {one.check}: {one.message}", style="" if one.level == "ok" else STYLES[one.level])
            if one.advice:
                say(f"      do: {one.advice}")
        say(f"{counts['ok']} ok, {counts['warn']} to look at, {counts['fail']} to act on")
    ctx.exit(NO if counts["fail"] else OK)


async def _examine(url: str) -> tuple[list[Finding], Promise | None]:
    from mulligan.app import Mulligan
    from mulligan.cli.doctor_store import file_findings, promise_findings, store_findings
    from mulligan.cli.doctor_work import work_findings
    from mulligan.cli.finding import fail, ok
    from mulligan.cli.places import require_ready
    from mulligan.core.errors import SchemaMismatch, StoreError, UsageError
    from mulligan.stores import file_of

    try:
        await require_ready(url)
        async with Mulligan(url) as app:
            findings = [ok("store", f"{app.store.url} opens")]
            path = file_of(url)
            if path is not None:
                findings += file_findings(path)
            promise = await app.store.promise()
            findings += store_findings(await app.store.describe()) + promise_findings(promise)
            return findings + work_findings(await _gather(app, url)), promise
    except SchemaMismatch as problem:
        return [fail("schema", str(problem), "mulligan migrate, or the version of mulligan that the store was used with")], None
    except (StoreError, UsageError) as problem:
        return [fail("store", str(problem), "without a store nothing else can be looked at")], None


async def _gather(app: Mulligan, url: str) -> Evidence:
    from mulligan.cli.doctor_work import Evidence
    from mulligan.cli.options import store_hint
    from mulligan.core.contract import Query

    events = []
    seq = 0
    while page := await app.store.read_events(seq, EVENTS_PAGE):
        seq = page[-1].seq
        events += page
    return Evidence(
        now_us=await app.store.now_us(),
        status=await app.status(),
        failed=(await app.store.find(Query(status="failed"), JOBS_READ)).jobs,
        waiting_retries=(await app.store.find(Query(status="pending", lane="retry"), JOBS_READ)).jobs,
        events=events,
        schedules=await app.store.schedules(),
        hint=store_hint(url),
    )
