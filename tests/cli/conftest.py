"""A folder, a store in it, and commands that are run there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from mulligan import Mulligan
from tests.cli.commands import Answer, run_command

T = TypeVar("T")
Run = Callable[..., Answer]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, without settings from outside."""
    monkeypatch.chdir(tmp_path)
    for name in ("MULLIGAN_STORE", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Run:
    """Runs a command in this process, as `run("status", "--json")`."""
    return run_command


class Shop:
    """A store with jobs in it, at the place where commands look by default."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "mulligan.db"
        self.url = f"sqlite:///{self.file}"

    def do(self, work: Callable[[Mulligan], Coroutine[Any, Any, T]]) -> T:
        """Lets something happen on the open app, and closes it again."""

        async def opened() -> T:
            async with make_app(self.url) as app:
                return await work(app)

        return asyncio.run(opened())

    def enqueue(self, task: str = "fine", *args: Any, **options: Any) -> str:
        """Stores one job; its id."""

        async def enqueue(app: Mulligan) -> str:
            return (await app.enqueue(task, args=args, **options)).id

        return self.do(enqueue)

    def work(self) -> None:
        """Runs everything that is due or will be retried."""

        async def drain(app: Mulligan) -> None:
            async with app.worker() as worker:
                await worker.drain()

        self.do(drain)


def make_app(url: str) -> Mulligan:
    """Three tasks: one that works, one that fails and is retried once, one that gives up at once."""
    from mulligan import Constant, Fail, RetryPolicy

    app = Mulligan(url, retry=RetryPolicy(max_retries=1, backoff=Constant(delay=0.001), jitter="none"))

    @app.task
    async def fine(*args: Any, **kwargs: Any) -> Any:
        return args[0] if args else None

    @app.task
    async def broken(text: str = "it broke") -> None:
        raise ValueError(text)

    @app.task
    async def refused() -> None:
        raise Fail("no such invoice", code="404")

    return app


@pytest.fixture
def shop(folder: Path) -> Shop:
    """An empty store."""
    made = Shop(folder)
    made.do(_nothing)
    return made


async def _nothing(app: Mulligan) -> None:
    return None
