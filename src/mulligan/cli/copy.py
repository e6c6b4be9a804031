"""`mulligan copy`: carries all jobs, histories, receipts and schedules from one store to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mulligan.cli.options import json_option, reading, run, writing

if TYPE_CHECKING:
    from mulligan.cli.copying import Copied


@click.command()
@click.option("--from", "source", metavar="URL", required=True, help="The store to copy from. It is not changed.")
@click.option("--to", "target", metavar="URL", required=True, help="The store to copy to. It is created if need be.")
@click.option("--force", is_flag=True, help="Copy although workers of either store seem to be at work: jobs may then run twice.")
@json_option
@click.pass_context
def copy(ctx: click.Context, source: str, target: str, force: bool, as_json: bool) -> None:
    """Copy everything from one store to another: jobs with their histories and receipts, settings of queues, schedules, breakers.

    Stop the workers of both first. A job that is in the second store already is left alone there, so that a copy that was interrupted is
    resumed by repeating it. At the end the counts of both stores are compared; exit code 1 if they do not agree.
    """
    from mulligan.cli.exits import NO
    from mulligan.cli.output import emit, say

    copied = run(_copy(source, target, force=force, quiet=as_json))
    if as_json:
        emit(copied)
    else:
        say(
            f"{copied.copied} jobs copied, {copied.already_there} were there already"
            + (f" ({copied.differing} of them have moved on there)" if copied.differing else "")
            + f"; {copied.queues} queue settings, {copied.schedules} schedules, {copied.notes} notes."
        )
        for problem in copied.problems:
            say(f"not verified: {problem}", style="red")
        if copied.verified:
            say("The counts of both stores agree.", style="green")
    if not copied.verified:
        ctx.exit(NO)


async def _copy(source_url: str, target_url: str, *, force: bool, quiet: bool) -> Copied:
    from mulligan.cli.copying import copy_store, count_jobs, require_quiet
    from mulligan.cli.output import progress
    from mulligan.core.errors import BadSetting

    async with reading(source_url) as source, writing(target_url) as target:
        if source.store.url == target.store.url:
            raise BadSetting("--from and --to name the same store")
        if not force:
            await require_quiet(source.store, "first")
            await require_quiet(target.store, "second")
        total = count_jobs(await source.store.stats())
        with progress(total, "copying jobs", show=not quiet) as told:
            return await copy_store(source.store, target.store, told)
