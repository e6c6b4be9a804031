"""`mulligan pause QUEUE` and `mulligan resume QUEUE`: for all workers, until told otherwise."""

from __future__ import annotations

import click

from mulligan.cli.options import common, reading, run


@click.command()
@click.argument("queue", metavar="QUEUE")
@click.option("--reason", metavar="TEXT", default="", help="Why, for those who will ask; status and why show it.")
@click.option("--by", metavar="NAME", help="Who does it.  [default: the user's name]")
@common
@click.pass_context
def pause(ctx: click.Context, queue: str, reason: str, by: str | None, store: str, as_json: bool) -> None:
    """Let nothing of a queue be started until it is resumed. What runs goes on."""
    ctx.exit(run(_set_paused(store, as_json, queue, True, reason, by)))


@click.command()
@click.argument("queue", metavar="QUEUE")
@click.option("--by", metavar="NAME", help="Who does it.  [default: the user's name]")
@common
@click.pass_context
def resume(ctx: click.Context, queue: str, by: str | None, store: str, as_json: bool) -> None:
    """Let a paused queue go on."""
    ctx.exit(run(_set_paused(store, as_json, queue, False, "", by)))


async def _set_paused(url: str, as_json: bool, queue: str, paused: bool, reason: str, by: str | None) -> int:
    from mulligan.cli.exits import NO, OK
    from mulligan.cli.output import emit, say
    from mulligan.cli.requeue import operator
    from mulligan.cli.times import iso

    async with reading(url) as app:
        before = {state.queue: state.paused for state in await app.store.queue_states()}
        changed = before.get(queue, False) != paused
        who = by or operator()
        if changed or paused:  # a second pause may bring a better reason
            state = await (app.pause(queue, reason=reason, by=who) if paused else app.resume(queue, by=who))
        else:
            if queue not in app.queue_names():
                (await app.status())[queue]  # a queue nobody knows is a mistake worth telling
            state = None
    if as_json:
        at = None if state is None else iso(state.updated_at_us)
        emit({"queue": queue, "paused": paused, "changed": changed, "reason": reason, "at": at})
    elif changed:
        say(f"Queue {queue} is paused: nothing of it is started until `mulligan resume {queue}`." if paused else f"Queue {queue} goes on.")
    else:
        say(f"Queue {queue} was already paused." if paused else f"Queue {queue} was not paused.", style="yellow")
    return OK if changed else NO
