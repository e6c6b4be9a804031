"""`mulligan configure [QUEUE]`: other settings for a queue, in all workers, while they run; or a look at what is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mulligan.cli.options import common, reading, run
from mulligan.cli.values import NONE, or_none

if TYPE_CHECKING:
    from mulligan.app import Mulligan
    from mulligan.steering import ChangedQueue

TITLES = ("queue", "setting", "value", "changed", "by")
OVER = ("wait", "backoff", "weighted", "fail")


@click.command()
@click.argument("queue", metavar="[QUEUE]", required=False)
@click.option("--claim", metavar="STRATEGY", help="weighted(0.3), retry_first, fresh_first, fifo or separate(5).")
@click.option("--concurrency", callback=or_none(int), metavar="N", help="Jobs of the queue that may run at once; none: no limit.")
@click.option("--max-inflight-retries", callback=or_none(int), metavar="N", help="Retries that may run at once; none: no limit.")
@click.option("--key-concurrency", type=int, metavar="N", help="Jobs with the same concurrency key that may run at once.")
@click.option("--rate", metavar="RATE", help="Starts over time, as in 100/m, 10/s or 5/h; none: no limit.")
@click.option("--rate-burst", type=float, metavar="N", help="How many of these may come at once.")
@click.option(
    "--budget",
    metavar="BUDGET",
    help="Retries over time, as in 100/m, or 20%+10/s: a fifth of fresh work, and ten a second in any case; none: no limit.",
)
@click.option("--budget-burst", type=float, metavar="N", help="How many of these may come at once.")
@click.option("--budget-over", type=click.Choice(OVER), help="What happens to retries beyond it, besides waiting.")
@click.option("--budget-stretch", type=float, metavar="X", help="How many times longer backoffs are then, with --budget-over backoff.")
@click.option("--budget-each-tenant", is_flag=True, help="Each fair key has such a budget of its own.")
@click.option("--reset", is_flag=True, help="Take all changes back: the queue is served as the code of its workers says.")
@click.option("--by", metavar="NAME", help="Who does it.  [default: the user's name]")
@common
@click.pass_context
def configure(ctx: click.Context, /, queue: str | None, reset: bool, by: str | None, store: str, as_json: bool, **options: Any) -> None:
    """Change how a queue is served, in all workers at once, while they run.

    \b
      mulligan configure billing --claim "weighted(0.3)" --concurrency 20
      mulligan configure billing --rate 100/m --budget 20%+10/s --budget-over backoff
      mulligan configure billing --max-inflight-retries none
      mulligan configure billing --reset

    What is given is changed, over what the code of the workers says; the rest stays as it is. All limits are of the whole fleet.
    Without an option it shows what is changed now; without QUEUE, in all queues.
    """
    changes = changes_of(options)
    ctx.exit(run(_configure(store, as_json, queue, changes, reset, by)))


def changes_of(options: dict[str, Any]) -> dict[str, Any]:
    """The settings to change, from the options as they were typed; BadSetting where they do not fit together."""
    from mulligan.policy.budget_text import read_budget, read_rate

    named = ("claim", "concurrency", "max_inflight_retries", "key_concurrency")
    changes = {name: None if options[name] == NONE else options[name] for name in named if options[name] is not None}
    for name, read in (("rate", read_rate), ("budget", read_budget)):
        more = {
            option.removeprefix(f"{name}_"): value
            for option, value in options.items()
            if option.startswith(f"{name}_") and value is not None and value is not False
        }
        _check_belongs(name, options[name], more)
        if options[name] is not None:
            changes[name] = None if options[name].lower() == NONE else _with(read(options[name]), more)
    return changes


def _with(limit: Any, more: dict[str, Any]) -> Any:
    from msgspec.structs import replace

    return replace(limit, **more)


def _check_belongs(name: str, given: str | None, more: dict[str, Any]) -> None:
    from mulligan.core.errors import BadSetting

    if more and (given is None or given.lower() == NONE):
        option = f"--{name}-{min(more)}".replace("_", "-")
        raise BadSetting(f"{option} says more about a {name}: give it together with --{name}, as in --{name} 100/m {option} ...")


async def _configure(url: str, as_json: bool, queue: str | None, changes: dict[str, Any], reset: bool, by: str | None) -> int:
    from mulligan.cli.exits import NO, OK
    from mulligan.cli.output import emit, say
    from mulligan.cli.requeue import operator
    from mulligan.core.errors import BadSetting

    if reset and changes:
        raise BadSetting("--reset takes all changes back; give it alone, and change settings after it")
    if queue is None and (reset or changes):
        raise BadSetting("name the queue that is meant: mulligan configure QUEUE ...")
    async with reading(url) as app:
        before = await app.configured()
        if queue is None or not (reset or changes):
            return await _show(app, before, queue, as_json=as_json)
        who = by or operator()
        if reset:
            await app.reset_queue(queue, by=who)
            after: dict[str, Any] = {}
        else:
            after = await app.configure(queue, by=who, **changes)
    changed = after != next((one.settings for one in before if one.queue == queue), {})
    if as_json:
        emit({"queue": queue, "changed": changed, "settings": after})
    elif not changed:
        already = "so" if after else "as the code of its workers says"
        say(f"Queue {queue} was served {already} already.", style="yellow")
    elif reset:
        say(f"Queue {queue} is served as the code of its workers says; they follow within a second or two.")
    else:
        settings = ", ".join(f"{name} {shown_value(value)}" for name, value in after.items())
        say(f"Queue {queue} is served with {settings}; workers follow within a second or two.")
        say(f"To take that back: mulligan configure {queue} --reset")
    return OK if changed else NO


async def _show(app: Mulligan, changed: list[ChangedQueue], queue: str | None, *, as_json: bool) -> int:
    from mulligan.cli.exits import OK
    from mulligan.cli.output import emit, say, table
    from mulligan.cli.times import ago
    from mulligan.core.clock import datetime_to_us

    if queue is not None:
        changed = [one for one in changed if one.queue == queue]
        if not changed and queue not in app.queue_names():
            (await app.status())[queue]  # a queue nobody knows is a mistake worth telling
    if as_json:
        emit({"queues": changed})
    elif not changed:
        say(f"{'No queue is' if queue is None else f'Queue {queue} is not'} changed: what the code of the workers says is what counts.")
    else:
        now_us = await app.store.now_us()
        table(
            TITLES,
            [
                [one.queue, name, shown_value(value), ago(datetime_to_us(one.at, "at"), now_us), one.by]
                for one in changed
                for name, value in one.settings.items()
            ],
        )
    return OK


def shown_value(value: Any) -> str:
    """A changed setting as it is typed."""
    return NONE if value is None else str(value)
