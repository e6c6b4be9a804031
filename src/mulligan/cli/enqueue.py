"""`mulligan enqueue TASK [ARGUMENT...]`: one job, or a schedule that makes jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mulligan.cli.options import json_option, own_store_option, run
from mulligan.cli.values import NONE, or_none

if TYPE_CHECKING:
    from mulligan.app import Mulligan

STORE_HELP = "The store. [env: MULLIGAN_STORE; default: that of --app, else sqlite:///mulligan.db]"


@click.command()
@click.argument("task", metavar="TASK")
@click.argument("arguments", metavar="[ARGUMENT]...", nargs=-1)
@click.option("--kwargs", metavar="JSON", help='Keyword arguments as a JSON object, as in {"name": 1}.')
@click.option("--delay", type=float, metavar="SECONDS", help="Run no earlier than so many seconds from now.")
@click.option("--eta", metavar="TIME", help="Run no earlier than this time, as in 2030-01-31T12:00:00Z.")
@click.option("--priority", type=click.IntRange(0, 2), help="0 normal, 1 raised, 2 urgent.")
@click.option("--unique-key", metavar="KEY", help="At most one waiting or running job of the queue has it; else the first one stands.")
@click.option("--fair-key", metavar="KEY", help="Whom it is for: those who share a queue take turns.")
@click.option("--concurrency-key", metavar="KEY", help="Jobs of the queue with the same one run one at a time.")
@click.option(
    "--max-age", callback=or_none(float), metavar="SECONDS", help="Give up when it has not ended so long after it first fell due."
)
@click.option("--max-retries", callback=or_none(int), metavar="N", help="How often it may be run again; none: without limit.")
@click.option("--timeout", callback=or_none(float), metavar="SECONDS", help="The longest one execution may take; none: no limit.")
@click.option("--queue", metavar="NAME", help="The queue to put it into.  [default: that of the task]")
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="A label to find it by; may be given several times.")
@click.option("--interval", type=float, metavar="SECONDS", help="Store a schedule that makes one such job per interval.")
@click.option("--name", metavar="NAME", help="The name of that schedule.  [default: that of the task]")
@click.option("--missed", type=click.Choice(["one", "skip", "all"]), help="What becomes of ticks nobody was there for.  [default: one]")
@click.option(
    "--app", "target", metavar="MODULE:APP", help="The app whose tasks it is checked against. Without it the name is taken on trust."
)
@own_store_option(STORE_HELP)
@json_option
def enqueue(
    task: str, arguments: tuple[str, ...], kwargs: str | None, target: str | None, store: str | None, as_json: bool, **options: Any
) -> None:
    """Store one job that calls TASK, and print its id.

    An ARGUMENT is a JSON value; what is not JSON is passed as text, and name=value is passed by name.
    """
    run(_enqueue(task, arguments, kwargs, target, store, as_json, options))


async def _enqueue(
    task: str,
    arguments: tuple[str, ...],
    kwargs_json: str | None,
    target: str | None,
    store: str | None,
    as_json: bool,
    options: dict[str, Any],
) -> None:
    from mulligan.cli.output import emit, say
    from mulligan.cli.values import call_arguments, moment
    from mulligan.handle import ScheduleHandle

    args, kwargs = call_arguments(arguments, kwargs_json)
    options["eta"] = moment(options["eta"])
    chosen = {name: _plain(value) for name, value in options.items() if value is not None and value != ()}
    app = _app(task, target, store)
    try:
        made = await app.enqueue(task, args=args, kwargs=kwargs, **chosen)  # which opens the store only if the call can be carried out
    finally:
        await app.close()
    if isinstance(made, ScheduleHandle):
        first, interval_s = made.next_runs(1)[0], made.schedule.interval_us / 1e6
        if as_json:
            emit({"schedule": made.name, "next_run": first, "interval": interval_s})
        else:
            say(f"schedule {made.name}: every {interval_s:g} s, next at {first.isoformat(timespec='seconds')}")
    elif as_json:
        emit({"id": made.id, "created": made.created})
    else:
        say(made.id)
        if not made.created:
            say("An earlier job with this unique key still waits or runs; no new one was made.", err=True, style="yellow")


def _plain(value: Any) -> Any:
    return None if value == NONE else value


def _app(task: str, target: str | None, store: str | None) -> Mulligan:
    """The app to enqueue through: the named one, or one that knows nothing but this task's name."""
    from mulligan.app import Mulligan
    from mulligan.cli.importing import import_app
    from mulligan.cli.places import require_shared

    if target is not None:
        app = import_app(target)
        if store is not None:
            app.use_store(store)
    else:
        app = Mulligan(store)  # which asks the environment, then takes the default
        app.declare(task)
    require_shared(app.store.url)
    return app
