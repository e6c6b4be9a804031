"""The group that loads a command when it is asked for, and the one place where a command's errors are shown.

`mulligan --help` must cost next to nothing, so the group knows each command's name and summary without importing it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple, TextIO

import click

JSON_WANTED = "mulligan.json"  # the key in click's meta under which a command notes that it was asked for JSON


class Lazy(NamedTuple):
    """Where a command lives ("package.module:attribute"), and the line the help shows for it."""

    where: str
    summary: str


class LazyGroup(click.Group):
    """A group whose commands are named in a table and imported one at a time."""

    def __init__(self, *args: Any, lazy: Mapping[str, Lazy], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the table, which is the order in which people need them."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        lazy = self._lazy.get(cmd_name)
        if lazy is None:
            return None
        module, _, attribute = lazy.where.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.summary) for name, lazy in self._lazy.items()])

    def main(self, *args: Any, **kwargs: Any) -> Any:
        for stream in (sys.stdout, sys.stderr):
            forgive(stream)
        return super().main(*args, **kwargs)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.ClickException as problem:
            raise harmless(problem) from problem.__cause__

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException as problem:
            raise harmless(problem) from problem.__cause__
        except KeyboardInterrupt:
            from mulligan.cli.exits import INTERRUPTED

            ctx.exit(INTERRUPTED)
        except Exception as error:
            from mulligan.cli.exits import exit_code_of
            from mulligan.core.errors import MulliganError

            if not isinstance(error, MulliganError):
                raise  # a bug of ours: its traceback is what a report needs
            tell(error, as_json=bool(ctx.meta.get(JSON_WANTED)))
            ctx.exit(exit_code_of(error))


def tell(error: Exception, *, as_json: bool) -> None:
    """Shows an error as one line on stderr; as one JSON document on stdout where JSON was asked for."""
    from mulligan.cli.output import clean, emit_line

    if as_json:
        public = next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "mulligan.core.errors")
        emit_line({"error": {"type": public, "message": str(error)}})
    else:
        click.echo(f"Error: {clean(error)}", err=True)


def harmless(problem: click.ClickException) -> click.ClickException:
    """The same complaint, without control characters of what was typed."""
    from mulligan.cli.output import clean

    # Some versions of click declare it final; its text is still ours to print.
    vars(problem)["message"] = "\n".join(clean(line) for line in problem.message.split("\n"))
    return problem


def forgive(stream: TextIO) -> None:
    """Lets a terminal that cannot show a character show its number instead of ending the command."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
