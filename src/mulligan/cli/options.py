"""The options all commands share, and how a command comes to its store."""

from __future__ import annotations

import asyncio
import re
import shlex
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from shutil import which
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mulligan.cli.group import JSON_WANTED
from mulligan.config import STORE_DEFAULT, STORE_VARIABLE, default_url

if TYPE_CHECKING:
    from mulligan.app import Mulligan

T = TypeVar("T")
AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


def _note_json(ctx: click.Context, _parameter: click.Parameter, value: bool) -> bool:
    ctx.meta[JSON_WANTED] = value  # errors are shown in the same form as answers
    return value


def json_option(function: AnyFunction) -> AnyFunction:
    """--json, passed on as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, callback=_note_json, help="Answer in JSON, for programs.")(function)


def store_option(function: AnyFunction) -> AnyFunction:
    """--store of commands that work on an existing store, passed on as `store`; falls back to MULLIGAN_STORE, then to the default."""
    return click.option(
        "--store",
        metavar="URL",
        envvar=STORE_VARIABLE,
        default=STORE_DEFAULT,
        help=f"The store, as in sqlite:///jobs.db or postgresql://host/db. [env: {STORE_VARIABLE}; default: {STORE_DEFAULT}]",
    )(function)


def own_store_option(meaning: str) -> Callable[[AnyFunction], AnyFunction]:
    """--store of commands that have a store of their own unless told otherwise: the environment is not asked. Passed on as `store`."""

    def add(function: AnyFunction) -> AnyFunction:
        return click.option("--store", metavar="URL", default=None, help=meaning)(function)

    return add


def common(function: AnyFunction) -> AnyFunction:
    """--store and --json."""
    return store_option(json_option(function))


def program() -> str:
    """How this program is called from here: by its name, or as it was called now where the name is not found."""
    if which("mulligan"):
        return "mulligan"
    return f"{sys.executable} -m mulligan" if sys.argv[0].endswith("__main__.py") else sys.argv[0]


def store_hint(url: str) -> str:
    """What to add to a command so that it works on the same store from the same folder; nothing where it would anyway.

    A password is masked: then the hint is to be completed by whoever knows it.
    """
    return "" if url == default_url() else f" --store {shlex.quote(masked(url))}"


def masked(url: str) -> str:
    """The URL with nothing hidden but a password; everything is hidden that may be part of one."""
    from mulligan.stores import redacted

    if "password" in url.lower() or url.count("@") > 1 or ("@" in url and "?" in url.partition("@")[0]):
        return redacted(url)
    return re.sub(r"//([^:/@]*):[^@]*@", r"//\1:***@", url)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a command's coroutine to its end. Ctrl-C cancels it between two steps of the loop, and a second one interrupts whatever runs.

    Left to itself, Python cancels it in the middle of any step; one that has just found a future undone then fails to set it.
    """
    is_ours_to_hear = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    is_told = False

    async def main() -> T:
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        assert this is not None

        def interrupt(_signal: int, _frame: object) -> None:
            nonlocal is_told
            if is_told:
                raise KeyboardInterrupt
            is_told = True
            loop.call_soon_threadsafe(this.cancel)

        if not is_ours_to_hear:  # another thread's, or told to be ignored, as for a program in the background
            return await work
        before = signal.signal(signal.SIGINT, interrupt)
        try:
            return await work
        finally:
            if signal.getsignal(signal.SIGINT) is interrupt:
                signal.signal(signal.SIGINT, before)

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        if is_told:
            raise KeyboardInterrupt from None
        raise
    finally:
        # An interrupt that left the loop from below lets the loop's own way of hearing Ctrl-C come back last.
        if is_ours_to_hear and is_told:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@asynccontextmanager
async def reading(url: str) -> AsyncIterator[Mulligan]:
    """An app on a store that must be there and up to date: a look creates nothing and changes nothing."""
    from mulligan.app import Mulligan
    from mulligan.cli.places import require_ready

    await require_ready(url)
    async with Mulligan(url) as app:
        yield app


@asynccontextmanager
async def writing(url: str) -> AsyncIterator[Mulligan]:
    """An app on a store that is created or brought up to date if needed."""
    from mulligan.app import Mulligan
    from mulligan.cli.places import require_shared

    require_shared(url)
    async with Mulligan(url) as app:
        yield app
