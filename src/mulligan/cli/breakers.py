"""`mulligan breakers [open|close NAME]`: the breakers of downstreams, and what an operator does to them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from mulligan.cli.options import common, reading, run

if TYPE_CHECKING:
    from mulligan.cli.output import Cell
    from mulligan.steering import BreakerStatus

TITLES = ("breaker", "state", "since", "until", "held until", "by", "reason")
STYLES = {"open": "red", "half_open": "yellow", "closing": "yellow", "closed": "green"}


@click.command()
@click.argument("move", type=click.Choice(["open", "close"]), required=False)
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--reason", metavar="TEXT", default="", help="Why, for those who will ask.")
@click.option("--by", metavar="NAME", help="Who does it.  [default: the user's name]")
@common
@click.pass_context
def breakers(ctx: click.Context, move: str | None, name: str | None, reason: str, by: str | None, store: str, as_json: bool) -> None:
    """List all breakers; open or close one by hand.

    \b
      mulligan breakers
      mulligan breakers open stripe --reason "they asked us to stop"
      mulligan breakers close stripe

    While the breaker of a downstream is open, all jobs whose task depends on it (depends_on="stripe") wait, and spend no attempts.
    One that was opened by hand stays open until it is closed by hand.
    """
    if move is None:
        run(_list(store, as_json))
    elif name is None:
        raise click.UsageError(f"name the breaker to {move}, which is what tasks depend on: mulligan breakers {move} NAME")
    else:
        ctx.exit(run(_turn(store, as_json, move, name, reason, by)))


async def _list(url: str, as_json: bool) -> None:
    from mulligan.cli.output import emit, say, table

    async with reading(url) as app:
        found = await app.breakers()
        now_us = await app.store.now_us()
    if as_json:
        emit({"breakers": found})
    elif found:
        table(TITLES, [_row(breaker, now_us) for breaker in found])
    else:
        say("No breaker was ever heard of: nothing that a task depends on (depends_on=) has failed, and nobody opened one.")


def _row(breaker: BreakerStatus, now_us: int) -> list[Cell]:
    until = _clock(breaker.until, now_us)
    if breaker.state == "open" and breaker.manual:
        until = "closed by hand"
    return [
        breaker.name,
        (breaker.state, STYLES[breaker.state]),
        _clock(breaker.since, now_us),
        until,
        _clock(breaker.held_until, now_us),
        breaker.by,
        breaker.reason,
    ]


def _clock(moment: datetime | None, now_us: int) -> str:
    from mulligan.cli.times import clock_time
    from mulligan.core.clock import datetime_to_us

    return "" if moment is None else clock_time(datetime_to_us(moment, "time"), now_us)


async def _turn(url: str, as_json: bool, move: str, name: str, reason: str, by: str | None) -> int:
    from mulligan.cli.exits import NO, NOT_FOUND, OK
    from mulligan.cli.output import emit, say
    from mulligan.cli.requeue import operator

    async with reading(url) as app:
        known = {breaker.name: breaker for breaker in await app.breakers()}
        before = known.get(name)
        who = by or operator()
        if move == "open":
            changed = before is None or not (before.state == "open" and before.manual)
            # A second one may bring a better reason; without any it would only take the first one away.
            after = await app.open_breaker(name, reason=reason, by=who) if changed or reason else before
        else:
            changed = before is not None and (before.state != "closed" or before.held_until is not None)
            after = await app.close_breaker(name, reason=reason, by=who) if changed else before
    if as_json:
        emit({"name": name, "changed": changed, "breaker": after})
    elif after is None:
        say(f"No breaker is named {name}; known: {', '.join(known) or 'none'}", err=True, style="yellow")
    elif not changed:
        say(f"Breaker {name} was {'open by hand already' if move == 'open' else 'not open'}.", style="yellow")
    elif move == "open":
        say(f"Breaker {name} is open: jobs that depend on it wait, and spend no attempts, until `mulligan breakers close {name}`.")
        if before is None:
            say(f'Nothing was heard of it before: make sure that tasks depend on it under this name, as in depends_on="{name}".', err=True)
    else:
        say(f"Breaker {name} is closed: what depends on it runs again.")
    if after is None:
        return NOT_FOUND
    return OK if changed else NO
