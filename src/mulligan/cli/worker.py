"""`mulligan worker MODULE:APP`: runs jobs until told to stop."""

from __future__ import annotations

import logging
from typing import Any

import click

from mulligan.cli.options import json_option, own_store_option, run

LEVELS = ("debug", "info", "warning", "error", "critical")


@click.command()
@click.argument("target", metavar="MODULE:APP")
@click.option("--queues", metavar="A,B", help="Serve only these queues.  [default: all the app knows]")
@click.option("--concurrency", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Jobs running at once in each process.")
@click.option("--lease", type=float, default=30.0, show_default=True, metavar="SECONDS", help="How long a claim holds without a renewal.")
@click.option(
    "--grace", type=float, default=25.0, show_default=True, metavar="SECONDS", help="How long jobs may finish after the signal to stop."
)
@click.option("--processes", type=click.IntRange(1, 256), default=1, show_default=True, help="Worker processes to keep running.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="The least important records to log.")
@click.option("--log-json", is_flag=True, help="Log one JSON object per line.")
@click.option("--parent-fd", type=int, hidden=True)
@own_store_option("Use this store instead of the app's own.")
@json_option
@click.pass_context
def worker(ctx: click.Context, /, target: str, processes: int, log_level: str, log_json: bool, as_json: bool, **settings: Any) -> None:
    """Run jobs of an app until told to stop.

    MODULE:APP names the app, as in shop.tasks:app. SIGTERM or Ctrl-C: no more jobs are claimed, those that run may finish within the
    grace time, the rest is given back uncounted. A second signal cuts the grace time short.
    """
    from mulligan.cli.logs import set_up_logging

    store, parent_fd = settings.pop("store"), settings.pop("parent_fd")
    if processes > 1:
        from mulligan.cli.fleet import Fleet, child_command

        set_up_logging(log_level, as_json=log_json)
        options = _retyped({**settings, "store": store, "log_level": log_level}, {"log_json": log_json, "json": as_json})
        ctx.exit(run(_with(lambda: Fleet(child_command(target, options), processes, settings["grace"]).run())))
    from mulligan.cli.importing import import_app
    from mulligan.cli.serving import serve

    app = import_app(target)
    set_up_logging(log_level, as_json=log_json)
    if store is not None:
        app.use_store(store)
    if settings["queues"] is None:
        del settings["queues"]
    else:
        settings["queues"] = _names(settings["queues"], app.queue_names())
    ctx.exit(run(_with(lambda: serve(app, settings, as_json=as_json, parent_fd=parent_fd))))


def _names(typed: str, known: list[str]) -> list[str]:
    """The queues that were typed. One no task uses may be served too, but is more often a slip."""
    names = [name.strip() for name in typed.split(",") if name.strip()]
    if not names:
        raise click.BadParameter("names no queue", param_hint="--queues")
    for name in sorted(set(names) - set(known)):
        logging.getLogger("mulligan.worker").warning("no task of this app belongs to queue %r; it has %s", name, ", ".join(known))
    return names


async def _with(work: Any) -> Any:
    """Calls what must be made inside the loop."""
    return await work()


def _retyped(options: dict[str, Any], flags: dict[str, bool]) -> list[str]:
    """The options as they would be typed for a child process."""
    typed = [part for name, value in options.items() if value is not None for part in (f"--{name.replace('_', '-')}", str(value))]
    return typed + [f"--{name.replace('_', '-')}" for name, given in flags.items() if given]
