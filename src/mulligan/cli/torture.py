"""`mulligan torture`: kills, pauses and outages on real processes, judged by a checker that looks only at a ledger outside the queue."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import signal
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mulligan.cli.exits import NO, OK
from mulligan.cli.options import json_option, own_store_option, run

if TYPE_CHECKING:
    from mulligan.torture.plan import Plan

SEED_DEFAULT = 1
SHOWN = {
    "lost": "acknowledged jobs that are gone",
    "rerun": "started again after their acknowledged success",
    "phantom": "jobs nobody asked for",
    "over_limit": "started more often than allowed",
    "stale_accepted": "writes accepted from a holder of old",
    "overlap": "two holders at a time",
    "early": "claimed before they were due",
    "effect": "effects out of order, twice or missing",
}


@click.command()
@click.option(
    "--jobs", type=click.IntRange(1, 10_000_000), default=2_000, show_default=True, help="Jobs to store (of each seed, with --sim)."
)
@click.option("--kills", type=click.IntRange(0, 1_000_000), default=40, show_default=True, help="kill -9 of children, workers, producers.")
@click.option(
    "--pauses", type=click.IntRange(0, 1_000_000), default=20, show_default=True, help="Processes stopped for longer than a lease."
)
@click.option("--restarts", type=click.IntRange(0, 10_000), default=0, show_default=True, help="Outages of the store.")
@click.option("--cuts", type=click.IntRange(0, 1_000_000), default=0, show_default=True, help="All connections to the store are reset.")
@click.option("--restart-command", metavar="CMD", help="Restarts the store. On SQLite a foreign process locks the file instead.")
@click.option("--restart-seconds", type=click.FloatRange(0.1, 3_600), default=30.0, show_default=True, help="How long it locks the file.")
@click.option("--workers", type=click.IntRange(2, 64), default=2, show_default=True, help="Supervisors.")
@click.option("--processes", type=click.IntRange(1, 64), default=2, show_default=True, help="Children of each.")
@click.option("--lease", type=click.FloatRange(0.5, 600), default=2.0, show_default=True, metavar="SECONDS", help="Length of a lease.")
@click.option("--slack", type=click.FloatRange(0, 600), default=0.0, show_default=True, help="Seconds allowed beyond the bounds on time.")
@click.option("--seed", type=click.IntRange(0), default=SEED_DEFAULT, show_default=True, help="What is done to whom follows from it.")
@click.option("--ledger", type=click.Path(file_okay=False, path_type=Path), help="Keep ledger and final state in this folder, a new one.")
@click.option("--sim", is_flag=True, help="Simulate instead: the real code under virtual time, many seeds.")
@click.option("--seeds", type=click.IntRange(1, 10_000_000), default=100, show_default=True, help="With --sim: how many seeds to play.")
@click.option("--app", default="mulligan.torture.tasks:app", hidden=True)
@own_store_option("Torture there, in a place made for it and removed afterwards.  [default: a temporary SQLite file]")
@json_option
@click.pass_context
def torture(ctx: click.Context, /, sim: bool, seeds: int, as_json: bool, store: str | None, ledger: Path | None, **given: Any) -> None:
    """Kill workers while jobs run, stop them, take their store away, and prove from a ledger that nothing is lost or done twice."""
    if sim:
        from mulligan.cli.torture_sim import run_sim

        jobs = given["jobs"] if ctx.get_parameter_source("jobs") is not click.core.ParameterSource.DEFAULT else 0
        ctx.exit(run_sim(seeds, given["seed"], jobs, as_json=as_json))
    from mulligan.cli.output import emit
    from mulligan.torture.plan import Plan

    command = given.pop("restart_command")
    plan = Plan(
        restart_command=tuple(shlex.split(command or "")),
        restart_s=given.pop("restart_seconds"),
        lease_s=given.pop("lease"),
        slack_s=given.pop("slack"),
        **given,
    )
    _check(plan, store)
    folder = _folder(ledger)
    report = run(_until_told(_tortured(plan, store, folder)))
    is_kept = ledger is not None or bool(report["violations"])
    report["ledger"] = str(folder) if is_kept else None
    if not is_kept:
        shutil.rmtree(folder, ignore_errors=True)
    if as_json:
        emit(report)
    else:
        _show(report, plan)
    ctx.exit(NO if report["violations"] or report.get("stuck") else OK)


def _check(plan: Plan, store: str | None) -> None:
    """Refuses what cannot be carried out."""
    from mulligan.cli.bench_scratch import kind_of
    from mulligan.cli.places import require_shared

    if store is not None:
        require_shared(store)
    is_file = store is None or kind_of(store) == "sqlite"
    if plan.restarts and not is_file and not plan.restart_command:
        raise click.UsageError("--restarts needs --restart-command CMD on a store behind a network")
    if plan.cuts:
        if is_file:
            raise click.UsageError("--cuts is for a store behind a network; a file has no connections to cut")
        from mulligan.stores import address_of

        address_of(store or "")
    if plan.restart_command and is_file:
        raise click.UsageError("--restart-command is for a store behind a network; a SQLite file is locked instead")


def _folder(ledger: Path | None) -> Path:
    """Where the ledger is written: a new folder."""
    if ledger is None:
        return Path(tempfile.mkdtemp(prefix="mulligan-torture-"))
    try:
        ledger.mkdir(parents=True, exist_ok=False)
    except OSError as problem:
        raise click.UsageError(f"--ledger must name a folder that can be made and is not there yet: {problem}") from problem
    return ledger.resolve()


async def _until_told(work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """Carries it out; Ctrl-C or SIGTERM cut it short, once, and then all that was started is ended first."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    told = [False]

    def stop() -> None:
        if not told[0]:
            told[0] = True
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _tortured(plan: Plan, store: str | None, folder: Path) -> dict[str, Any]:
    from mulligan.cli.bench_scratch import Scratch, folder_beside, kind_of
    from mulligan.cli.output import progress
    from mulligan.torture.campaign import torture as tortured

    files = Path(tempfile.mkdtemp(prefix="mulligan-torture-store-", dir=folder_beside(store)))
    try:
        async with Scratch(store, files, "full", word="torture").place("run") as place:
            with progress(plan.jobs, "torturing") as step:
                report = await tortured(plan, place.url, folder, step)
        return {"store": "sqlite" if store is None else kind_of(store), **report}
    finally:
        shutil.rmtree(files, ignore_errors=True)


def _show(report: dict[str, Any], plan: Plan) -> None:
    from mulligan.cli.output import say, table

    faults = f"{report['kills']} kills, {report['pauses']} pauses, {report['restarts']} outages, {report['cuts']} cuts"
    say(f"{report['store']}: {report['jobs']} jobs stored, {report['unknown']} unknown; {faults}; seed {plan.seed}")
    say(f"{report['done']} done ({report['done_share']:.3%}), {report['failed']} failed, {report['cancelled']} cancelled")
    rows = [[name, report[name], _bound(report, name), words] for name, words in SHOWN.items()]
    table(("check", ">count", ">95 % below", "what it counts"), [[str(cell) for cell in row] for row in rows])
    say(
        f"worst recovery: {report['recovery_child_max_s']} s after a child's death ({report['recoveries']} jobs), "
        f"{report['recovery_worker_max_s']} s after a worker's ({report['recoveries_worker']} jobs, lease {plan.lease_s:g} s)"
    )
    say(
        f"{report['crashes']} crashes: {report['crashes_by_kill']} by kills, {report['crashes_by_pause']} by pauses, "
        f"{report['crashes_by_outage']} by outages, {report['crashes_unexplained']} by nobody's hand"
    )
    say(f"{report['starts']} starts, at most {report['starts_max']} of one job; {report['stale_refused']} stale writes refused")
    say(f"ledger: {report['lines']} lines, sha256 {report['ledger_sha256']}")
    if report.get("stuck"):
        say(f"the run did not come to its end: {report['stuck']}", style="red", err=True)
    for violation in report["examples"]:
        say(f"{violation['check']} {violation['job']}: {violation['text']}", style="red", err=True)
    if report["ledger"]:
        say(f"{report['violations']} violations; ledger and final state: {report['ledger']}", style="red" if report["violations"] else "")


def _bound(report: dict[str, Any], name: str) -> str:
    bound = report["bounds"].get(name)
    return "" if bound is None else f"{bound:.2g}"
