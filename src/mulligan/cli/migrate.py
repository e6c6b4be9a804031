"""`mulligan migrate`: creates the store or brings it up to date; says what it would do, if asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mulligan.cli.options import common, run, writing

if TYPE_CHECKING:
    from mulligan.stores import Migration


@click.command()
@click.option("--plan", is_flag=True, help="Say what would be applied, and change nothing. Exit code 1 if anything would.")
@click.option("--sql", is_flag=True, help="Print the schema as SQL, for reading and review, and change nothing.")
@common
@click.pass_context
def migrate(ctx: click.Context, plan: bool, sql: bool, store: str, as_json: bool) -> None:
    """Create the store, or bring it up to date. Apps and workers do so too when they first open it."""
    from mulligan.cli.exits import NO
    from mulligan.cli.output import emit, say
    from mulligan.cli.places import require_shared
    from mulligan.core.errors import BadSetting
    from mulligan.stores import file_of, migration_sql, redacted

    require_shared(store)
    if plan and sql:
        raise BadSetting("--plan tells what is still to be applied, --sql prints the whole schema; ask for one of them")
    if sql:
        script = migration_sql(store)
        if not script:
            raise BadSetting(f"{redacted(store)} is a store without SQL; `mulligan migrate` alone sets it up")
        emit({"sql": script}) if as_json else click.echo(script, nl=False)
        return
    steps = [{"number": step.number, "name": step.name} for step in run(_migrate(store, plan=plan))]
    where = str(file_of(store) or redacted(store))
    if as_json:
        emit({"store": redacted(store), "pending" if plan else "applied": steps})
    elif not steps:
        say(f"{where} is up to date.")
    for step in [] if as_json else steps:
        say(f"{'would apply' if plan else 'applied'} {step['number']}: {step['name']}")
    if plan and steps:
        ctx.exit(NO)


async def _migrate(url: str, *, plan: bool) -> list[Migration]:
    from mulligan.stores import pending_migrations

    steps = await pending_migrations(url)
    if not plan:
        async with writing(url):
            pass  # opening is what applies them
    return steps
