"""`mulligan worker MODULE:APP`: runs jobs until told to stop."""

from __future__ import annotations

import logging
from typing import Any

import click

from mulligan.cli.options import json_option, own_store_option, run

LEVELS = ("debug", "info", "warning", "error", "critical")
SUPERVISED = ("kill_after", "max_jobs", "max_memory")  # options that only a supervisor can keep


@click.command()
@click.argument("target", metavar="MODULE:APP")
@click.option("--queues", metavar="A,B", help="Serve only these queues.  [default: all the app knows]")
@click.option("--concurrency", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Jobs running at once in each process.")
@click.option("--lease", type=float, default=30.0, show_default=True, metavar="SECONDS", help="How long a claim holds without a renewal.")
@click.option(
    "--grace", type=float, default=25.0, show_default=True, metavar="SECONDS", help="How long jobs may finish after the signal to stop."
)
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    help="Worker processes that a supervisor keeps running.  [default: one process, no supervisor]",
)
@click.option("--kill-after", type=float, metavar="SECONDS", help="End the process of a job that does not stop for so long.  [default: 10]")
@click.option("--max-jobs", type=click.IntRange(1), metavar="N", help="Replace a worker process that has finished so many jobs.")
@click.option("--max-memory", type=click.IntRange(1), metavar="MIB", help="Replace a worker process that is larger than this.")
@click.option("--health-file", metavar="PATH", help="Write there every second whether it lives and is ready.")
@click.option("--health-port", type=click.IntRange(0, 65_535), metavar="PORT", help="Answer /livez and /readyz there.")
@click.option("--health-host", default="127.0.0.1", show_default=True, metavar="HOST", help="The address of that port.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="The least important records to log.")
@click.option("--log-json", is_flag=True, help="Log one JSON object per line.")
@click.option("--link-fd", type=int, hidden=True)
@click.option("--cells-fd", type=int, hidden=True)
@click.option("--solo", is_flag=True, hidden=True)
@own_store_option("Use this store instead of the app's own.")
@json_option
@click.pass_context
def worker(
    ctx: click.Context, /, target: str, processes: int | None, log_level: str, log_json: bool, as_json: bool, **settings: Any
) -> None:
    """Run jobs of an app until told to stop.

    MODULE:APP names the app, as in shop.tasks:app. SIGTERM or Ctrl-C: no more jobs are claimed, those that run may finish within the
    grace time, the rest is given back uncounted. A second signal cuts the grace time short.

    With --processes, a supervisor keeps so many processes running: it renews their leases, ends those that do not stop, and settles
    the jobs of those that die at once.
    """
    from mulligan.cli.health import HealthOptions
    from mulligan.cli.importing import import_app
    from mulligan.cli.logs import set_up_logging

    store, link_fd, cells_fd, solo = (settings.pop(name) for name in ("store", "link_fd", "cells_fd", "solo"))
    health = HealthOptions(settings.pop("health_file"), settings.pop("health_port"), settings.pop("health_host"))
    supervised = {name: value for name in SUPERVISED if (value := settings.pop(name)) is not None}
    typed = _retyped({**settings, "store": store, "log_level": log_level}, {"log_json": log_json, "json": as_json})
    if supervised and processes is None:
        raise click.UsageError(f"--{min(supervised).replace('_', '-')} needs a supervisor: give --processes as well")
    app = import_app(target)
    set_up_logging(log_level, as_json=log_json)
    if store is not None:
        app.use_store(store)
    if settings["queues"] is None:
        del settings["queues"]
    else:
        settings["queues"] = _names(settings["queues"], app.queue_names(), is_child=link_fd is not None)
    if processes is not None:
        from mulligan.cli.fleet import child_command, supervise
        from mulligan.worker.supervisor_settings import SupervisorSettings

        limits, command = SupervisorSettings(processes=processes, **supervised), child_command(target, typed)
        ctx.exit(run(_with(lambda: supervise(app, settings, limits, command, health))))
    from mulligan.cli.serving import serve

    link = None if link_fd is None else _link(link_fd, cells_fd, solo=solo)
    ctx.exit(run(_with(lambda: serve(app, settings, as_json=as_json, health=health, link=link))))


def _link(link_fd: int, cells_fd: int, *, solo: bool) -> Any:
    from mulligan.worker.child_link import ChildLink

    return ChildLink(link_fd, cells_fd, solo=solo)


def _names(typed: str, known: list[str], *, is_child: bool) -> list[str]:
    """The queues that were typed. One no task uses may be served too, but is more often a slip."""
    names = [name.strip() for name in typed.split(",") if name.strip()]
    if not names:
        raise click.BadParameter("names no queue", param_hint="--queues")
    for name in sorted(set(names) - set(known)) if not is_child else ():  # its supervisor has said it already
        logging.getLogger("mulligan.worker").warning("no task of this app belongs to queue %r; it has %s", name, ", ".join(known))
    return names


async def _with(work: Any) -> Any:
    """Calls what must be made inside the loop."""
    return await work()


def _retyped(options: dict[str, Any], flags: dict[str, bool]) -> list[str]:
    """The options as they would be typed for a child process."""
    typed = [part for name, value in options.items() if value is not None for part in (f"--{name.replace('_', '-')}", str(value))]
    return typed + [f"--{name.replace('_', '-')}" for name, given in flags.items() if given]
