"""The command line: `mulligan COMMAND`. One small file per command, imported only when that command is asked for."""

from __future__ import annotations

import click

from mulligan.cli.group import Lazy, LazyGroup
from mulligan.version import VERSION

COMMANDS = {
    "demo": Lazy("mulligan.cli.demo:demo", "Watch jobs fail, back off, retry and recover."),
    "worker": Lazy("mulligan.cli.worker:worker", "Run jobs of an app until told to stop."),
    "enqueue": Lazy("mulligan.cli.enqueue:enqueue", "Store one job, or a schedule."),
    "status": Lazy("mulligan.cli.status:status", "Show all queues and workers at a glance."),
    "jobs": Lazy("mulligan.cli.jobs:jobs", "List jobs, newest first."),
    "show": Lazy("mulligan.cli.show:show", "Show one job with its history."),
    "why": Lazy("mulligan.cli.why:why", "Tell what happened to a job, and what happens next."),
    "requeue": Lazy("mulligan.cli.requeue:requeue", "Send failed jobs back to be run again."),
    "cancel": Lazy("mulligan.cli.cancel:cancel", "Cancel jobs that wait; ask running ones to stop."),
    "pause": Lazy("mulligan.cli.pause:pause", "Let nothing of a queue be started until it is resumed."),
    "resume": Lazy("mulligan.cli.pause:resume", "Let a paused queue go on."),
    "configure": Lazy("mulligan.cli.configure:configure", "Change how a queue is served, while workers run."),
    "breakers": Lazy("mulligan.cli.breakers:breakers", "List all breakers; open or close one by hand."),
    "events": Lazy("mulligan.cli.events:events", "Show what happened lately, or follow it."),
    "doctor": Lazy("mulligan.cli.doctor:doctor", "Look for trouble, and say what to do about it."),
    "migrate": Lazy("mulligan.cli.migrate:migrate", "Create the store, or bring it up to date."),
    "copy": Lazy("mulligan.cli.copy:copy", "Copy everything from one store to another."),
    "bench": Lazy("mulligan.cli.bench:bench", "Measure how fast it is here."),
    "torture": Lazy("mulligan.cli.torture:torture", "Kill workers while jobs run, and prove that nothing is lost."),
    "completion": Lazy("mulligan.cli.completion:completion", "Complete commands in the shell with the Tab key."),
}


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="`mulligan COMMAND --help` tells more about one of them.",
)
@click.version_option(VERSION, prog_name="mulligan")
def main() -> None:
    """A durable job queue whose heart is what happens after a failure."""
