"""`mulligan completion SHELL`: the script that lets the Tab key complete commands and options."""

from __future__ import annotations

import os
from pathlib import PurePath

import click

from mulligan.cli.options import json_option

VARIABLE = "_MULLIGAN_COMPLETE"
INSTALL = {
    "bash": 'add this line to ~/.bashrc: eval "$(mulligan completion bash)"',
    "zsh": 'add this line to ~/.zshrc: eval "$(mulligan completion zsh)"',
    "fish": "run once: mulligan completion fish > ~/.config/fish/completions/mulligan.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(INSTALL)), required=False)
@json_option
def completion(shell: str | None, as_json: bool) -> None:
    """Complete commands and options with the Tab key, in bash, zsh or fish.

    Prints the script for SHELL; without SHELL, how to install it in the one that is in use.
    """
    from mulligan.cli.output import emit, say

    if shell is None:
        mine = PurePath(os.environ.get("SHELL", "")).name
        for name in [mine] if mine in INSTALL else INSTALL:
            say(f"{name}: {INSTALL[name]}") if not as_json else emit({"shell": name, "install": INSTALL[name]})
        return
    script = source(shell)
    emit({"shell": shell, "install": INSTALL[shell], "script": script}) if as_json else click.echo(script)


def source(shell: str) -> str:
    """The script for one shell."""
    from click.shell_completion import ShellComplete, get_completion_class

    from mulligan.cli import main

    kind = get_completion_class(shell)
    assert kind is not None
    # The base method alone: bash's own looks for an installed bash and complains on stderr where it is old.
    return ShellComplete.source(kind(main, {}, "mulligan", VARIABLE))
