"""`mulligan migrate`: creates the store or brings it up to date; says what it would do, if asked."""

from __future__ import annotations

import click

from mulligan.cli.options import common, run, writing


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
    from mulligan.stores import file_of, migration_sql, pending_migrations

    require_shared(store)
    if sql:
        script = migration_sql(store)
        emit({"sql": script}) if as_json else click.echo(script, nl=False)
        return
    steps = [{"number": step.number, "name": step.name} for step in pending_migrations(store)]
    if not plan:
        run(_open(store))
    done = "pending" if plan else "applied"
    if as_json:
        emit({"store": store, done: steps})
    elif not steps:
        say(f"{file_of(store)} is up to date.")
    for step in [] if as_json else steps:
        say(f"{'would apply' if plan else 'applied'} {step['number']}: {step['name']}")
    if plan and steps:
        ctx.exit(NO)


async def _open(url: str) -> None:
    async with writing(url):
        pass  # opening is what applies them
