"""Nothing public is left out of the reference: names, errors, events, settings, commands and their options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_overloads

import click
import pytest

import mulligan
from mulligan import Breaker, Downstream, Mulligan, Queue, Rate, RetryBudget, RetryPolicy
from mulligan.cli import main
from mulligan.core import errors
from mulligan.core.events import EVENT_KINDS
from mulligan.core.job import STATUSES, Job
from mulligan.request import Options, TaskOptions
from mulligan.steering import QueueChanges
from mulligan.worker.settings import WorkerSettings
from tests.docs.pages import REFERENCE, blocks, names, pages, section


def reference(name: str) -> str:
    return (REFERENCE / name).read_text("utf-8")


def everything() -> str:
    return "\n".join(page.read_text("utf-8") for page in sorted(REFERENCE.glob("*.md")))


def parameters(thing: Callable[..., Any]) -> list[str]:
    """The settings a callable takes, by name."""
    return [name for name, found in inspect.signature(thing).parameters.items() if name != "self" and found.kind is not found.VAR_KEYWORD]


def all_commands() -> list[tuple[str, click.Command]]:
    """Every command of the command line under its full name, those of groups included."""

    def walk(path: str, command: click.Command) -> list[tuple[str, click.Command]]:
        if not isinstance(command, click.Group):
            return [(path, command)]
        context = click.Context(command)
        inner = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
        return [found for name, child in inner if child is not None for found in walk(f"{path} {name}", child)]

    assert isinstance(main, click.Group)
    return walk("mulligan", main)


def test_every_public_name_is_documented() -> None:
    """Each name of mulligan.__all__ stands in the reference."""
    assert sorted(set(mulligan.__all__) - names(everything())) == []


def test_public_names_exist() -> None:
    """Each name of mulligan.__all__ can be imported, and none is listed twice."""
    assert len(set(mulligan.__all__)) == len(mulligan.__all__)
    assert [name for name in mulligan.__all__ if not hasattr(mulligan, name)] == []


def test_every_error_is_documented() -> None:
    """Each class of the error tree stands on the page of errors."""
    tree = [name for name, thing in vars(errors).items() if inspect.isclass(thing) and issubclass(thing, Exception)]
    assert len(tree) > 10
    assert sorted(set(tree) - names(reference("errors.md"))) == []


def test_every_event_is_documented() -> None:
    """Each kind of event stands on the page of events."""
    assert sorted(set(EVENT_KINDS) - names(reference("events.md"))) == []


def test_every_job_field_is_documented() -> None:
    """Each status, field and derived property of a job stands on the page of jobs."""
    fields = {name.removesuffix("_us").removesuffix("_json") for name in Job.__struct_fields__ if name != "due_us"}  # due_at
    derived = {name for name, thing in vars(Job).items() if isinstance(thing, property)}
    assert sorted((fields | derived | set(STATUSES)) - names(reference("jobs.md"))) == []


SETTINGS = {
    "Mulligan": parameters(Mulligan),
    "Breaker": parameters(Breaker),
    "Downstream": parameters(Downstream),
    "Queue": parameters(Queue),
    "Rate": parameters(Rate),
    "RetryBudget": parameters(RetryBudget),
    "RetryPolicy": parameters(RetryPolicy),
    "app.claim": parameters(Mulligan.claim),
    "app.configure": [*parameters(Mulligan.configure), *QueueChanges.__annotations__],
    "app.enqueue": [*parameters(Mulligan.enqueue), *Options.__struct_fields__],
    "app.jobs": parameters(Mulligan.jobs),
    "app.task": [*TaskOptions.__annotations__, *(n for form in get_overloads(Mulligan.task) for n in parameters(form) if n != "function")],
    "app.worker": [*parameters(Mulligan.worker), *WorkerSettings.__struct_fields__],
}


@pytest.mark.parametrize("title", SETTINGS)
def test_every_setting_is_documented(title: str) -> None:
    """Each parameter stands in the section of the thing it sets."""
    assert SETTINGS[title]
    assert sorted(set(SETTINGS[title]) - names(section(reference("settings.md"), title))) == []


def test_every_command_is_documented() -> None:
    """Each command has its section."""
    page = reference("commands.md")
    assert len(all_commands()) > 10
    assert [path for path, _ in all_commands() if not section(page, path).strip()] == []


def test_every_option_is_documented() -> None:
    """Each option and argument of a command stands in the command's section, or among those all of them share."""
    page = reference("commands.md")
    shared = names(section(page, "Options all commands share"))
    missing = []
    for path, command in all_commands():
        known = names(section(page, path)) | shared
        for parameter in command.params:
            is_option = isinstance(parameter, click.Option)
            wanted = (
                max([*parameter.opts, *parameter.secondary_opts], key=len)
                if is_option
                else (parameter.metavar or parameter.name or "").upper()
            )
            spelled = wanted if is_option else wanted.strip("[].:")
            if not (getattr(parameter, "hidden", False) or known & {spelled, spelled.split(":")[0]}):
                missing.append(f"{path}: {spelled}")
    assert missing == []


def test_no_page_names_a_command_that_is_not_there() -> None:
    """Each `mulligan word` in a console block of any page is a command."""
    known = {path.split()[1] for path, _ in all_commands()}
    typed = {
        words[words.index("mulligan") + 1]
        for page in pages()
        for block in blocks(page)
        if block.language == "console"
        for words in (line.split() for line in block.code.splitlines())
        if "mulligan" in words[:3] and len(words) > words.index("mulligan") + 1
    }
    assert typed
    assert sorted(word for word in typed if not word.startswith("-") and word not in known) == []
